//! The rows that a derivation is about: filter, arms and null policy applied to a table, and
//! the same rows told apart by the `by` column.

use super::data::Table;
use super::declare::column;
use super::derivation::{Accepts, Bounds, Cluster, Derivation, Nulls, Weight};
use super::value::{Source, Warning};
use crate::episode::columns::{RowAt, Values};
use crate::episode::row::Cell;
use crate::error::{Error, Result};
use crate::stats;
use std::collections::{BTreeMap, BTreeSet};

/// One row that passed, with the value that its estimator reads.
#[derive(Debug, Clone)]
pub struct Chosen<'a> {
    /// The whole row.
    pub row: RowAt<'a>,
    /// The value of the column that is read, or whether it `is` what counts; nulls counted as the derivation says; null where
    /// no column is read.
    pub of: Cell,
}

/// The rows of one derivation.
#[derive(Debug)]
pub struct Selection<'a> {
    /// Rows in file order.
    pub rows: Vec<Chosen<'a>>,
    /// Row label → positions in `rows`, for `by`; rows whose label is null are in the total only.
    pub groups: BTreeMap<String, Vec<usize>>,
    /// What was read.
    pub sources: Vec<Source>,
    /// Arms that occur in the data set.
    pub arms_found: BTreeSet<String>,
    /// What the reader must know.
    pub warnings: Vec<Warning>,
}

/// Chooses rows. A null in the column that is read is an error unless the derivation says how
/// nulls count; it names file and row.
pub fn select<'a>(table: &'a Table, derivation: &Derivation) -> Result<Selection<'a>> {
    let at = |name: &str| table.position(name);
    let arm = at("arm");
    let of = column(derivation).and_then(at);
    let by = derivation.by.as_deref().and_then(at);
    let by_family = derivation.weight == Weight::Family || derivation.cluster == Cluster::Family;
    let family = by_family.then(|| at("family"));
    let of_arms = Accepts::Any(derivation.arms.iter().map(|arm| Cell::Text(arm.clone())).collect());
    let mut filter: Vec<(usize, &Accepts)> =
        derivation.filter.iter().filter_map(|(name, accepts)| Some((at(name)?, accepts))).collect();
    filter.extend(arm.filter(|_| !derivation.arms.is_empty()).map(|arm| (arm, &of_arms)));
    let mut out = Selection {
        rows: Vec::new(),
        groups: BTreeMap::new(),
        sources: Vec::new(),
        arms_found: BTreeSet::new(),
        warnings: Vec::new(),
    };
    let mut omitted = 0usize;
    let mut read: Vec<(bool, Source)> = Vec::new();
    for file in &table.files {
        let (mut used, mut passed) = (0, false);
        for arm in
            arm.and_then(|position| file.rows.values(position)).into_iter().flat_map(Values::different_texts)
        {
            if !out.arms_found.contains(arm) {
                out.arms_found.insert(arm.to_owned());
            }
        }
        let asked: Option<Vec<Asked<'_>>> = filter
            .iter()
            .map(|(position, accepts)| Asked::of(file.rows.values(*position)?, accepts))
            .collect();
        // A file in which no row can pass is not walked.
        let passing =
            (0..file.rows.rows()).filter(|index| asked.iter().flatten().all(|one| one.holds(*index)));
        for index in passing.take(if asked.is_some() { usize::MAX } else { 0 }) {
            let row = file.rows.row(index);
            passed = true;
            let mut value = of.map_or(Cell::Null, |position| row.cell(position));
            if of.is_some() && value.is_null() {
                match derivation.nulls {
                    None => return Err(null(derivation, &file.path, index)),
                    Some(Nulls::Zero) if derivation.is.is_some() => value = Cell::Flag(false),
                    Some(Nulls::Zero) => value = Cell::Int(0),
                    Some(Nulls::Omit) => {
                        omitted += 1;
                        continue;
                    }
                }
            } else if let Some(is) = &derivation.is {
                value = Cell::Flag(accepted(&value, is));
            }
            if family.is_some_and(|at| at.is_none_or(|position| row.text(position).is_none())) {
                return Err(Error::invalid(
                    "`family` is null, and the derivation weighs or resamples families",
                )
                .at(format!("{}: row {}", file.path, index + 1))
                .hint(
                    "leave such rows out with `where`, or `weight = \"family\"` and `cluster = \"family\"`",
                ));
            }
            if let Some(label) = by.map(|position| row.cell(position)).filter(|label| !label.is_null()) {
                out.groups.entry(label.to_string()).or_default().push(out.rows.len());
            }
            used += 1;
            out.rows.push(Chosen { row, of: value });
        }
        let source = Source {
            path: file.path.clone(),
            sha256: file.sha256.clone(),
            rows_used: used,
            rows_total: file.rows.rows(),
        };
        read.push((passed, source));
    }
    // A file of which rows were only left out was read all the same.
    let all = out.rows.is_empty();
    out.sources = read.into_iter().filter(|(passed, _)| all || *passed).map(|(_, source)| source).collect();
    if omitted > 0 {
        let text = format!(
            "{omitted} of {} rows have no `{}` and are left out",
            omitted + out.rows.len(),
            column(derivation).unwrap_or_default()
        );
        out.warnings.push(Warning { code: "missing_rows".into(), text });
    }
    out.warnings.extend(mixed_events(table, derivation, &out.rows));
    Ok(out)
}

fn null(derivation: &Derivation, path: &str, index: usize) -> Error {
    Error::invalid(format!(
        "`{}` is null, and nothing says how nulls count",
        column(derivation).unwrap_or_default()
    ))
    .at(format!("{path}: row {}", index + 1))
    .hint("add `nulls = \"omit\"` to leave such rows out and count them, or `nulls = \"zero\"`")
}

/// Rows of evaluation, calibration and null events stand in one data set; mixing them is rarely meant.
fn mixed_events(table: &Table, derivation: &Derivation, rows: &[Chosen<'_>]) -> Option<Warning> {
    let named = ["event", "seed"]
        .iter()
        .any(|column| derivation.filter.contains_key(*column) || derivation.by.as_deref() == Some(*column));
    let position = table.position("event").filter(|_| !named && derivation.arms.len() < 2)?;
    let events: BTreeSet<&str> = rows.iter().filter_map(|chosen| chosen.row.text(position)).collect();
    (events.len() > 1).then(|| Warning {
        code: "mixed_events".into(),
        text: format!(
            "rows of several kinds of event are mixed ({}): choose with `where = {{ event = … }}`",
            events.into_iter().collect::<Vec<_>>().join(", ")
        ),
    })
}

/// A condition on a column of a file; texts are judged once, by their dictionary.
enum Asked<'a> {
    /// Every row meets it.
    Always,
    /// By the code of the text.
    Texts { codes: &'a [u32], wanted: Vec<bool> },
    /// By the value.
    Other { values: &'a Values, accepts: &'a Accepts },
}

impl<'a> Asked<'a> {
    /// `None` where no row of the file can meet it.
    fn of(values: &'a Values, accepts: &'a Accepts) -> Option<Asked<'a>> {
        match values {
            Values::Same(cell) => accepted(cell, accepts).then_some(Asked::Always),
            Values::Text { dictionary, codes } => {
                let meets = |text: &str| accepted(&Cell::Text(text.to_owned()), accepts);
                let wanted: Vec<bool> = dictionary.iter().map(|text| meets(text)).collect();
                wanted.contains(&true).then_some(Asked::Texts { codes, wanted })
            }
            values => Some(Asked::Other { values, accepts }),
        }
    }

    fn holds(&self, index: usize) -> bool {
        match self {
            Asked::Always => true,
            Asked::Texts { codes, wanted } => {
                codes.get(index).is_some_and(|code| wanted.get(*code as usize) == Some(&true))
            }
            Asked::Other { values, accepts } => accepted(&values.cell(index), accepts),
        }
    }
}

/// Whether a value is one that counts; a missing one never is.
pub fn accepted(have: &Cell, accepts: &Accepts) -> bool {
    match accepts {
        Accepts::Within(bounds) => {
            let Bounds { at_least, at_most, above, below, not } = bounds;
            if have.is_null() || not.as_ref().is_some_and(|other| same(have, other)) {
                return false;
            }
            match have.number() {
                Some(x) => {
                    at_least.is_none_or(|bound| x >= bound)
                        && at_most.is_none_or(|bound| x <= bound)
                        && above.is_none_or(|bound| x > bound)
                        && below.is_none_or(|bound| x < bound)
                }
                None => not.is_some(),
            }
        }
        listed => listed.values().iter().any(|want| same(have, want)),
    }
}

/// Whether a mean keeps the bounds of a band; a bound that it stands on to rounding counts as reached, not passed.
pub fn in_band(mean: f64, band: &Bounds) -> bool {
    let reaches = |bound: f64, from: f64| from - bound >= -stats::SAME;
    let passes = |bound: f64, from: f64| from - bound > stats::SAME;
    band.at_least.is_none_or(|bound| reaches(bound, mean))
        && band.at_most.is_none_or(|bound| reaches(mean, bound))
        && band.above.is_none_or(|bound| passes(bound, mean))
        && band.below.is_none_or(|bound| passes(mean, bound))
}

/// Whether a row's value is the wanted one: numbers by value, the rest by kind and value. A
/// missing value equals nothing.
pub fn same(have: &Cell, want: &Cell) -> bool {
    match (have, want) {
        (Cell::Int(_) | Cell::Real(_), Cell::Int(_) | Cell::Real(_)) => have.number() == want.number(),
        (Cell::Null, _) => false,
        _ => have == want,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::testing;

    fn choose(
        rows: &[crate::episode::row::EpisodeRow],
        text: &str,
    ) -> Result<(usize, Vec<String>, Vec<String>, Vec<(usize, usize)>)> {
        let table = testing::table(rows);
        let selection = select(&table, &toml::from_str(&format!("data = \"episodes\"\n{text}")).unwrap())?;
        Ok((
            selection.rows.len(),
            selection.groups.keys().cloned().collect(),
            selection.warnings.iter().map(|w| w.code.clone()).collect(),
            selection.sources.iter().map(|s| (s.rows_used, s.rows_total)).collect(),
        ))
    }

    fn rows() -> Vec<crate::episode::row::EpisodeRow> {
        let mut rows = vec![
            testing::episode("base", "f/1", 1, 0, Some(0.0)),
            testing::episode("base", "g/1", 2, 0, None),
            testing::episode("treatment", "f/1", 1, 0, Some(1.0)),
        ];
        rows[1].event = Some("null".into());
        rows[0].event = Some("evaluate".into());
        rows
    }

    #[test]
    fn filters_arms_and_labels_choose() {
        let count = |text: &str| choose(&rows(), &format!("estimator = \"count\"\n{text}")).unwrap();
        assert_eq!(count("").0, 3);
        assert_eq!(count("arms = [\"base\"]").0, 2);
        assert_eq!(count("where = { family = \"f\", seed = [1, 3] }").0, 2);
        assert_eq!(count("where = { reward = 1 }").0, 1);
        assert_eq!(count("where = { reward = { at_least = 0 } }").0, 2);
        assert_eq!(count("where = { reward = { above = 0, at_most = 1 } }").0, 1);
        assert_eq!(count("where = { family = { not = \"f\" } }").0, 1);
        assert_eq!(count("where = { reward = { not = 0 } }").0, 1);
        assert_eq!(count("by = \"family\"").1, ["f", "g"]);
        assert_eq!(count("by = \"event\"").1, ["evaluate", "null"]);
        assert_eq!(count("arms = [\"base\"]").2, ["mixed_events"]);
        assert!(count("where = { seed = 1 }").2.is_empty());
        assert_eq!(count("where = { seed = 1 }").3, [(2, 3)]);
    }

    #[test]
    fn nulls_are_an_error_unless_the_derivation_says_how_they_count() {
        let sum = |text: &str| {
            choose(
                &rows(),
                &format!("estimator = \"sum\"\nof = \"reward\"\nwhere = {{ seed = [1, 2] }}\n{text}"),
            )
        };
        let e = sum("").unwrap_err().to_string();
        assert!(e.contains("row 2") && e.contains("nulls = \"omit\""), "{e}");
        let (n, _, warnings, sources) = sum("nulls = \"omit\"").unwrap();
        assert_eq!((n, warnings, sources), (2, vec!["missing_rows".to_string()], vec![(2, 3)]));
        assert_eq!(sum("nulls = \"zero\"").unwrap().0, 3);
    }
}
