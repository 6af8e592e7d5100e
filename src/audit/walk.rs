//! From a sheet of raw rows to the attempts a derivation is about: filter, arms, null policy
//! and row labels, applied to one row after another.

use super::sheet::Sheet;
use crate::claims::derivation::{Derivation, Estimator, Nulls};
use crate::episode::row::Cell;

/// One row that passed the filter, cut down to what estimators look at.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// The text of the `by` column; `None` when there is no `by`, or the column is null.
    pub label: Option<String>,
    /// The arm, or `""` in data sets without arms.
    pub arm: String,
    /// The task.
    pub task: String,
    /// The family.
    pub family: String,
    /// The event seed.
    pub seed: i64,
    /// The training seed.
    pub train_seed: Option<i64>,
    /// The rollout.
    pub rollout: i64,
    /// The value of the `of` column after the null policy.
    pub of: Cell,
    /// Hash of the sampled tokens.
    pub tokens: String,
}

/// The column an estimator reads when the derivation names none.
fn default_column(estimator: Estimator) -> Option<&'static str> {
    match estimator {
        Estimator::PassAtK | Estimator::Flips => Some("solved"),
        Estimator::PairedDelta | Estimator::BestAtK => Some("reward"),
        _ => None,
    }
}

/// Walks all rows; the error says why the derivation cannot be computed from them.
pub fn walk(sheet: &Sheet, derivation: &Derivation) -> Result<Vec<Attempt>, String> {
    if let Some(path) = sheet.unreadable.first() {
        return Err(format!("`{path}` cannot be read"));
    }
    let of = derivation.of.as_deref().or(default_column(derivation.estimator));
    let named = derivation.filter.keys().map(String::as_str).chain(of).chain(derivation.by.as_deref());
    for column in named {
        if !sheet.columns.contains_key(column) {
            return Err(format!("the rows have no column `{column}`"));
        }
    }
    if !derivation.arms.is_empty() && !sheet.columns.contains_key("arm") {
        return Err("the rows have no column `arm`".into());
    }
    if of.is_none() && derivation.estimator != Estimator::Count {
        return Err("the derivation does not say which column (`of`)".into());
    }
    let mut attempts = Vec::new();
    for (path, number, row) in sheet.rows() {
        let arm = sheet.text(row, "arm");
        if !derivation.arms.is_empty() && !derivation.arms.iter().any(|a| a == arm) {
            continue;
        }
        let passes = derivation
            .filter
            .iter()
            .all(|(column, accepts)| accepts.values().iter().any(|want| same(sheet.cell(row, column), want)));
        if !passes {
            continue;
        }
        let mut value = of.map_or(&Cell::Null, |column| sheet.cell(row, column)).clone();
        if let (Some(column), Cell::Null) = (of, &value) {
            match derivation.nulls {
                None => {
                    return Err(format!(
                        "`{column}` is null in row {number} of `{path}`, and the derivation has no `nulls` policy"
                    ));
                }
                Some(Nulls::Omit) => continue,
                Some(Nulls::Zero) => value = Cell::Real(0.0),
            }
        }
        let label =
            derivation.by.as_deref().map(|by| sheet.cell(row, by)).filter(|cell| **cell != Cell::Null);
        attempts.push(Attempt {
            label: label.map(ToString::to_string),
            arm: arm.into(),
            task: sheet.text(row, "task_id").into(),
            family: sheet.text(row, "family").into(),
            seed: sheet.whole(row, "seed").unwrap_or(0),
            train_seed: sheet.whole(row, "train_seed"),
            rollout: sheet.whole(row, "rollout").unwrap_or(0),
            of: value,
            tokens: sheet.text(row, "tokens_sha256").into(),
        });
    }
    Ok(attempts)
}

/// Whether a row's value is the wanted one: numbers by value, everything else by kind and
/// value. A missing value equals nothing.
pub fn same(have: &Cell, want: &Cell) -> bool {
    match (have, want) {
        (Cell::Int(a), Cell::Int(b)) => a == b,
        (Cell::Int(a), Cell::Real(b)) | (Cell::Real(b), Cell::Int(a)) => *a as f64 == *b,
        (Cell::Real(a), Cell::Real(b)) => a == b,
        (Cell::Text(a), Cell::Text(b)) => a == b,
        (Cell::Flag(a), Cell::Flag(b)) => a == b,
        _ => false,
    }
}

/// A value as a number: flags are 0 or 1; text is none.
pub fn number(cell: &Cell) -> Option<f64> {
    match cell {
        Cell::Int(whole) => Some(*whole as f64),
        Cell::Real(real) => Some(*real),
        Cell::Flag(true) => Some(1.0),
        Cell::Flag(false) => Some(0.0),
        Cell::Null | Cell::Text(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::sheet::SheetFile;
    use super::*;

    fn sheet() -> Sheet {
        let columns = ["arm", "task_id", "seed", "reward", "finish_reason"];
        let row = |arm: &str, task: &str, seed: i64, reward: Cell, finish: &str| {
            vec![
                Cell::Text(arm.into()),
                Cell::Text(task.into()),
                Cell::Int(seed),
                reward,
                Cell::Text(finish.into()),
            ]
        };
        Sheet {
            columns: columns.iter().enumerate().map(|(i, c)| (*c, i)).collect(),
            files: vec![SheetFile {
                path: "data/x/episodes/base/1.parquet".into(),
                rows: vec![
                    row("base", "a", 1, Cell::Real(0.5), "stop"),
                    row("base", "b", 2, Cell::Null, "infra_error"),
                    row("other", "a", 1, Cell::Real(1.0), "stop"),
                ],
            }],
            unreadable: vec![],
        }
    }

    fn derivation(text: &str) -> Derivation {
        toml::from_str(&format!("data = \"episodes\"\n{text}")).unwrap()
    }

    #[test]
    fn nulls_need_a_policy() {
        let plain = derivation("estimator = \"mean\"\nof = \"reward\"\narms = [\"base\"]");
        let why = walk(&sheet(), &plain).unwrap_err();
        assert!(why.contains("row 2 of `data/x/episodes/base/1.parquet`"), "{why}");
        let omit = derivation("estimator = \"mean\"\nof = \"reward\"\narms = [\"base\"]\nnulls = \"omit\"");
        assert_eq!(walk(&sheet(), &omit).unwrap().len(), 1);
        let zero = derivation("estimator = \"mean\"\nof = \"reward\"\narms = [\"base\"]\nnulls = \"zero\"");
        assert_eq!(walk(&sheet(), &zero).unwrap()[1].of, Cell::Real(0.0));
    }

    #[test]
    fn a_null_outside_the_filter_does_not_matter() {
        let d = derivation(
            "estimator = \"mean\"\nof = \"reward\"\nwhere = { finish_reason = \"stop\", seed = [1.0, 7] }",
        );
        assert_eq!(walk(&sheet(), &d).unwrap().len(), 2);
    }

    #[test]
    fn unknown_columns_and_unreadable_files_are_reasons() {
        let d = derivation("estimator = \"mean\"\nof = \"rewardd\"");
        assert!(walk(&sheet(), &d).unwrap_err().contains("rewardd"));
        let d = derivation("estimator = \"count\"");
        let broken = Sheet { unreadable: vec!["data/x/e.parquet".into()], ..sheet() };
        assert!(walk(&broken, &d).unwrap_err().contains("data/x/e.parquet"));
        assert_eq!(walk(&sheet(), &d).unwrap().len(), 3);
    }
}
