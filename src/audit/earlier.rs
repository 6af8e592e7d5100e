//! Receipts that a rescore replaced, a second time: from the rows that they rested on, as they were
//! before that rescore. An earlier decision is quoted by dated entries and corrections, so it has to follow
//! from its rows as the one that stands does.

use super::plan_rules::Case;
use super::sheet::{self, Sheet};
use super::superseded::{kept, numbers};
use super::{Finding, decision, gates};
use crate::claims::derivation::DataSet;

/// The receipts that each rescore replaced, recomputed.
pub fn check(case: &Case, ledger: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let all = numbers(case.workspace, case.slug);
    let has_receipts = |number: &&u64| case.workspace.join(kept(case.slug, **number, "receipts")).is_dir();
    for number in all.iter().filter(has_receipts) {
        let since: Vec<u64> = all.iter().copied().filter(|later| later >= number).collect();
        let before = |data| as_before(case, &since, data);
        let (episodes, calls) = (before(DataSet::Episodes), before(DataSet::Calls));
        let case = Case {
            before: Some(*number),
            report: None,
            log: None,
            episodes: &episodes,
            calls: &calls,
            ..*case
        };
        findings.extend(decision::check(&case, ledger));
        findings.extend(gates::check(&case));
    }
    findings
}

/// The rows of a data set as they were before a rescore: of each file the first version that it or a later one
/// replaced, else the file that stands. What cannot be read is found where all versions are.
fn as_before(case: &Case, since: &[u64], data: DataSet) -> Sheet {
    let folder = format!("data/{}/", case.slug);
    let stands = sheet::paths(case.workspace, case.slug, data);
    let paths = stands.into_iter().map(|path| {
        let own = path.strip_prefix(&folder).unwrap_or(&path);
        let mut versions = since.iter().map(|number| kept(case.slug, *number, own));
        versions.find(|kept| case.workspace.join(kept).is_file()).unwrap_or(path)
    });
    sheet::read(case.workspace, data, paths.collect()).sheet
}
