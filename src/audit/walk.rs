//! From a sheet of raw rows to the attempts a derivation is about: filter, arms, null policy
//! and row labels, applied to one row after another.

use super::sheet::{Sheet, SheetFile};
use crate::claims::derivation::{Accepts, Bounds, Cluster, Derivation, Estimator, Nulls, Weight};
use crate::episode::columns::{RowAt, Values};
use crate::episode::row::Cell;
use std::borrow::Cow;

/// One row that passed the filter, cut down to what estimators look at.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt<'a> {
    /// The text of the `by` column; `None` when there is no `by`, or the column is null.
    pub label: Option<Cow<'a, str>>,
    /// The arm, or `""` in data sets without arms.
    pub arm: &'a str,
    /// The task.
    pub task: &'a str,
    /// The family.
    pub family: &'a str,
    /// The event seed.
    pub seed: i64,
    /// The training seed.
    pub train_seed: Option<i64>,
    /// The rollout.
    pub rollout: i64,
    /// The value of the `of` column after `is` and the null policy.
    pub of: Cell,
    /// The score by which one of several attempts would be picked.
    pub select_score: Option<f64>,
    /// Hash of the sampled tokens.
    pub tokens: &'a str,
}

/// The column an estimator reads when the derivation names none.
pub(super) fn default_column(estimator: Estimator) -> Option<&'static str> {
    match estimator {
        Estimator::PassAtK | Estimator::Flips => Some("solved"),
        Estimator::PairedDelta
        | Estimator::BestAtK
        | Estimator::SelectedAtK
        | Estimator::ProbabilityOfImprovement
        | Estimator::TasksWhere
        | Estimator::Iqm
        | Estimator::GroupSd => Some("reward"),
        _ => None,
    }
}

/// One condition on the rows of a file, put so that asking it is cheap.
enum Condition<'a> {
    /// Which codes of a column of texts are wanted.
    Codes(&'a [u32], Vec<bool>),
    /// Any other column.
    Cells(&'a Values, &'a Accepts),
}

impl Condition<'_> {
    fn holds(&self, at: usize) -> bool {
        match self {
            Condition::Codes(codes, wanted) => {
                codes.get(at).and_then(|code| wanted.get(*code as usize)).copied().unwrap_or(false)
            }
            Condition::Cells(values, accepts) => accepted(&values.cell(at), accepts),
        }
    }
}

/// The conditions that rows of a file must meet; `None` where no row can.
fn conditions<'a>(
    sheet: &Sheet,
    file: &'a SheetFile,
    wanted: &[(&str, &'a Accepts)],
) -> Option<Vec<Condition<'a>>> {
    let mut asked = Vec::new();
    for (column, accepts) in wanted {
        match file.columns.values(*sheet.columns.get(column)?)? {
            Values::Same(cell) if accepted(cell, accepts) => {}
            Values::Same(_) => return None,
            Values::Text { dictionary, codes } => {
                let text = |text: &str| accepted(&Cell::Text(text.to_owned()), accepts);
                let wanted: Vec<bool> = dictionary.iter().map(|entry| text(entry)).collect();
                if !wanted.contains(&true) {
                    return None;
                }
                asked.push(Condition::Codes(codes, wanted));
            }
            values => asked.push(Condition::Cells(values, accepts)),
        }
    }
    Some(asked)
}

/// Walks all rows; the error says why the derivation cannot be computed from them.
pub fn walk<'a>(sheet: &'a Sheet, derivation: &Derivation) -> Result<Vec<Attempt<'a>>, String> {
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
    if let (Some(column), Some(Nulls::Zero)) = (of, derivation.nulls) {
        let at = sheet.columns.get(column).copied().unwrap_or(usize::MAX);
        let mut filled = sheet.files.iter().filter(|file| !file.columns.is_empty()).peekable();
        if filled.peek().is_some() && filled.all(|file| file.columns.is_missing(at)) {
            return Err(format!("`{column}` is null in every row: it was never written, which is not 0"));
        }
    }
    let arms = Accepts::Any(derivation.arms.iter().map(|arm| Cell::Text(arm.clone())).collect());
    let mut wanted: Vec<(&str, &Accepts)> =
        derivation.filter.iter().map(|(name, a)| (name.as_str(), a)).collect();
    if !derivation.arms.is_empty() {
        wanted.insert(0, ("arm", &arms));
    }
    let place = |column: &str| sheet.columns.get(column).copied().unwrap_or(usize::MAX);
    let of_at = of.map(place);
    let by_at = derivation.by.as_deref().map(place);
    let [arm, task, family, seed, train_seed, rollout, select, tokens] =
        ["arm", "task_id", "family", "seed", "train_seed", "rollout", "select_score", "tokens_sha256"]
            .map(place);
    let by_family = derivation.weight == Weight::Family || derivation.cluster == Cluster::Family;
    let mut attempts = Vec::new();
    for file in &sheet.files {
        let Some(asked) = conditions(sheet, file, &wanted) else { continue };
        for at in (0..file.columns.rows()).filter(|at| asked.iter().all(|condition| condition.holds(*at))) {
            let row: RowAt<'a> = file.columns.row(at);
            let mut value = of_at.map_or(Cell::Null, |position| row.cell(position));
            match (&derivation.is, of, value.is_null()) {
                (Some(is), _, false) => value = Cell::Flag(accepted(&value, is)),
                (_, Some(column), true) => match derivation.nulls {
                    None => {
                        return Err(format!(
                            "`{column}` is null in row {} of `{}`, and the derivation has no `nulls` policy",
                            at + 1,
                            file.path
                        ));
                    }
                    Some(Nulls::Omit) => continue,
                    Some(Nulls::Zero) if derivation.is.is_some() => value = Cell::Flag(false),
                    Some(Nulls::Zero) => value = Cell::Real(0.0),
                },
                _ => {}
            }
            if by_family && row.text(family).is_none() {
                return Err(format!("`family` is null in row {} of `{}`", at + 1, file.path));
            }
            attempts.push(Attempt {
                label: by_at.and_then(|position| label(row, position)),
                arm: row.text(arm).unwrap_or(""),
                task: row.text(task).unwrap_or(""),
                family: row.text(family).unwrap_or(""),
                seed: row.whole(seed).unwrap_or(0),
                train_seed: row.whole(train_seed),
                rollout: row.whole(rollout).unwrap_or(0),
                of: value,
                select_score: number(&row.cell(select)),
                tokens: row.text(tokens).unwrap_or(""),
            });
        }
    }
    Ok(attempts)
}

fn label(row: RowAt<'_>, position: usize) -> Option<Cow<'_, str>> {
    match row.text(position) {
        Some(text) => Some(Cow::Borrowed(text)),
        None => {
            Some(row.cell(position)).filter(|cell| !cell.is_null()).map(|cell| Cow::Owned(cell.to_string()))
        }
    }
}

/// Whether a value is one that counts. A missing one never is.
fn accepted(cell: &Cell, accepts: &Accepts) -> bool {
    match accepts {
        Accepts::One(wanted) => same(cell, wanted),
        Accepts::Any(wanted) => wanted.iter().any(|wanted| same(cell, wanted)),
        Accepts::Within(bounds) => {
            let other = bounds.not.as_ref().is_none_or(|unwanted| !same(cell, unwanted));
            let numbered =
                [bounds.at_least, bounds.at_most, bounds.above, bounds.below].iter().any(Option::is_some);
            !cell.is_null() && other && (!numbered || number(cell).is_some_and(|x| within(x, bounds, 0.0)))
        }
    }
}

/// Whether a number keeps its bounds, by as much as `slack` where it stands on one.
pub fn within(x: f64, bounds: &Bounds, slack: f64) -> bool {
    let Bounds { at_least, at_most, above, below, not: _ } = bounds;
    !(at_least.is_some_and(|bound| x < bound - slack)
        || at_most.is_some_and(|bound| x > bound + slack)
        || above.is_some_and(|bound| x <= bound + slack)
        || below.is_some_and(|bound| x >= bound - slack))
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
    use super::*;
    use crate::episode::columns::Columns;

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
                columns: Columns::of(
                    columns.len(),
                    &[
                        row("base", "a", 1, Cell::Real(0.5), "stop"),
                        row("base", "b", 2, Cell::Null, "infra_error"),
                        row("other", "a", 1, Cell::Real(1.0), "stop"),
                    ],
                ),
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
    fn bounds_and_flags_choose() {
        let (sheet, head) = (sheet(), "estimator = \"count\"\n");
        let rows =
            |filter: &str| walk(&sheet, &derivation(&format!("{head}where = {{ {filter} }}"))).unwrap().len();
        assert_eq!(rows("reward = { at_least = 0.5 }"), 2);
        assert_eq!(rows("reward = { above = 0.5, at_most = 1 }"), 1);
        assert_eq!(rows("reward = { below = 1 }"), 1);
        assert_eq!(rows("finish_reason = { not = \"stop\" }"), 1);
        assert_eq!(rows("reward = { not = 0.5 }"), 1);
        assert_eq!(rows("seed = { at_least = 2 }, reward = { above = 0 }"), 0);
        let is = |text: &str| {
            let d =
                derivation(&format!("estimator = \"mean\"\nof = \"reward\"\nis = {{ above = 0.7 }}\n{text}"));
            walk(&sheet, &d).map(|rows| rows.into_iter().map(|a| a.of).collect::<Vec<_>>())
        };
        assert!(is("").unwrap_err().contains("row 2"));
        assert_eq!(is("nulls = \"omit\"").unwrap(), [Cell::Flag(false), Cell::Flag(true)]);
        assert_eq!(is("nulls = \"zero\"").unwrap(), [Cell::Flag(false), Cell::Flag(false), Cell::Flag(true)]);
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
