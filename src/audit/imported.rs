//! Rows that other programs made: each stands in the file of its arm and under its folder, once,
//! with a score in [0, 1], and the provenance beside it counts the rows that are there.

use super::Finding;
use super::hashes::json;
use super::rules::{self, Gathered};
use super::sheet::{Sheet, SheetFile};
use serde_json::Value;
use std::collections::HashSet;
use std::path::Path;

/// What does not hold in the imported rows of one folder under `data/`.
pub fn check(workspace: &Path, slug: &str, sheet: &Sheet) -> Vec<Finding> {
    let mut wrong_folder = Gathered::new("experiment_differs_from_folder");
    let mut wrong_arm = Gathered::new("arm_differs_from_file");
    for (file, number, row) in sheet.rows() {
        let (folder, arm) = (sheet.text(row, "experiment"), sheet.text(row, "arm"));
        if folder != slug {
            wrong_folder.add(file, number, || format!("the row is of experiment `{folder}`"));
        }
        if file != format!("data/{slug}/imported/{arm}.parquet") {
            wrong_arm.add(file, number, || format!("the row is of arm `{arm}`"));
        }
    }
    let mut findings: Vec<Finding> = wrong_folder.into_findings().chain(wrong_arm.into_findings()).collect();
    findings.extend(rules::duplicates(sheet, &["arm", "task_id", "seed", "train_seed", "rollout"]));
    findings.extend(rules::rewards(sheet));
    findings.extend(sheet.files.iter().filter_map(|file| provenance(workspace, sheet, file)));
    findings
}

/// The provenance of one file of rows against the rows.
fn provenance(workspace: &Path, sheet: &Sheet, file: &SheetFile) -> Option<Finding> {
    let path = format!("{}.json", file.path.strip_suffix(".parquet")?);
    let finding = |detail: String| Some(Finding::new("provenance", &path, None, detail));
    if !workspace.join(&path).is_file() {
        return finding(format!("is missing: nothing says where the rows of `{}` come from", file.path));
    }
    let record = match json(&workspace.join(&path)) {
        Ok(record) => record,
        Err(why) => return finding(why),
    };
    let missing = file.columns.iter().filter(|row| sheet.cell(*row, "reward").is_null()).count();
    for (field, there) in [("rows", file.columns.rows()), ("null_rewards", missing)] {
        let said = record.get(field).and_then(Value::as_u64);
        if said != Some(there as u64) {
            let said = said.map_or("nothing".to_string(), |n| n.to_string());
            return finding(format!("says {said} of `{field}`, and there are {there}"));
        }
    }
    let sources = record.get("sources").and_then(Value::as_array).into_iter().flatten();
    let named: HashSet<&str> = sources.filter_map(|source| source.get("file")?.as_str()).collect();
    let mut of_rows = file.columns.iter().map(|row| sheet.text(row, "source"));
    let stranger = of_rows.find(|name| !named.contains(name))?;
    finding(format!("names no source `{stranger}`, which rows come from"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::derivation::DataSet;
    use crate::import;

    /// A workspace with one imported arm, after `change`; the rules that do not hold then.
    fn rules_after(change: impl Fn(&Path)) -> Vec<&'static str> {
        let dir = tempfile::tempdir().unwrap();
        let csv = dir.path().join("s.csv");
        fs_err::write(&csv, "task,rollout,reward\na,0,1\na,1,\nb,0,0\n").unwrap();
        let options =
            import::Options { files: vec![csv], arm: vec!["base".into()], ..import::Options::default() };
        import::read(&options).unwrap().write(dir.path()).unwrap();
        change(&dir.path().join("data/s/imported"));
        let loaded = super::super::sheet::load(dir.path(), "s", DataSet::Imported);
        assert_eq!(loaded.findings, []);
        check(dir.path(), "s", &loaded.sheet).iter().map(|finding| finding.rule).collect()
    }

    fn edit(path: &Path, from: &str, to: &str) {
        let text = fs_err::read_to_string(path).unwrap();
        assert!(text.contains(from), "{text}");
        fs_err::write(path, text.replacen(from, to, 1)).unwrap();
    }

    #[test]
    fn rows_and_provenance_are_held_against_each_other() {
        assert_eq!(rules_after(|_| ()), [""; 0]);
        let json = |folder: &Path| folder.join("base.json");
        assert_eq!(rules_after(|f| edit(&json(f), "\"rows\": 3", "\"rows\": 4")), ["provenance"]);
        assert_eq!(
            rules_after(|f| edit(&json(f), "\"null_rewards\": 1", "\"null_rewards\": 0")),
            ["provenance"]
        );
        assert_eq!(
            rules_after(|f| edit(&json(f), "\"file\": \"s.csv\"", "\"file\": \"t.csv\"")),
            ["provenance"]
        );
        assert_eq!(rules_after(|f| fs_err::write(json(f), "{").unwrap()), ["provenance"]);
        assert_eq!(rules_after(|f| fs_err::remove_file(json(f)).unwrap()), ["provenance"]);
        let renamed =
            rules_after(|f| fs_err::rename(f.join("base.parquet"), f.join("other.parquet")).unwrap());
        assert_eq!(renamed, ["arm_differs_from_file", "provenance"]);
        let copied = rules_after(|f| {
            fs_err::copy(f.join("base.parquet"), f.join("other.parquet")).unwrap();
            fs_err::copy(f.join("base.json"), f.join("other.json")).unwrap();
        });
        assert_eq!(copied, ["arm_differs_from_file", "duplicate_row"]);
    }
}
