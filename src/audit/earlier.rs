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
    for number in numbers(case.workspace, case.slug) {
        let before = |data| as_before(case, number, data);
        let (episodes, calls) = (before(DataSet::Episodes), before(DataSet::Calls));
        let case = Case {
            before: Some(number),
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
/// replaced, else the file that stands.
fn as_before(case: &Case, number: u64, data: DataSet) -> Sheet {
    let folder = format!("data/{}/", case.slug);
    let stands = sheet::paths(case.workspace, case.slug, data);
    let paths = stands.into_iter().map(|path| {
        let own = path.strip_prefix(&folder).unwrap_or(&path);
        let mut later = numbers(case.workspace, case.slug).into_iter().filter(|later| *later >= number);
        let version = later.find_map(|later| {
            let kept = kept(case.slug, later, own);
            case.workspace.join(&kept).is_file().then_some(kept)
        });
        version.unwrap_or(path)
    });
    sheet::read(case.workspace, data, paths.collect()).sheet
}
