//! The third road: a derivation as one DuckDB query over the downloadable Parquet files, so that
//! a reader can recompute the point value and the t interval without any code of this project.

use super::sql_parts::{
    ALL_ALIKE, ARM_TASKS, AT_K, BEST_CELLS, BETTER, FLIPS, GROUPS, INTERVAL, PAIRED_CELLS, PAIRED_TASKS,
    QUARTILES, SELECTED, TASKS_WHERE, summary,
};
use super::walk::default_column;
use crate::claims::derivation::{Accepts, Bounds, Cluster, DataSet, Derivation, Estimator, Nulls, Weight};
use crate::episode::row::{self, Cell, EpisodeRow, Row};
use std::fmt::Write;

/// A DuckDB query with the columns `label` (the `by` value, or null), `value` and `n`, for episode means and paired
/// differences also `se`, `df`, `low` and `high` (95% t interval), for flips their four counts. The paths in `files` are
/// those that the query names: relative ones hold where DuckDB is started.
///
/// `None` for data sets without rows, and for an episode mean over several arms.
pub fn derivation_sql(derivation: &Derivation, files: &[String]) -> Option<String> {
    let rows =
        !matches!(derivation.data, DataSet::Receipts | DataSet::Plan | DataSet::Facts | DataSet::Derivations);
    if !rows || files.is_empty() {
        return None;
    }
    let chosen = chosen(derivation, files)?;
    let episode_mean = derivation.estimator == Estimator::Mean && derivation.data.holds_attempts();
    let of_arms = |text: &str| {
        let [base, treatment] = derivation.arms.as_slice() else { return None };
        Some(text.replace("{base}", &self::text(base)).replace("{treatment}", &self::text(treatment)))
    };
    let over_tasks =
        |tasks: &str| format!("WITH RECURSIVE {chosen},\n{tasks},\n{},\n{INTERVAL}", summary(derivation));
    let plain_query = |text: &str| Some(format!("WITH {chosen},\n{text}"));
    match derivation.estimator {
        Estimator::Mean if episode_mean && derivation.arms.len() <= 1 => {
            let ends = if is_rate(derivation) { ALL_ALIKE } else { ["", ""] };
            let query = over_tasks(ARM_TASKS);
            let query =
                query.replace("THEN value - t * se END", &format!("THEN value - t * se{} END", ends[0]));
            Some(query.replace("THEN value + t * se END", &format!("THEN value + t * se{} END", ends[1])))
        }
        Estimator::PairedDelta => {
            let cells = match derivation.k {
                None => PAIRED_CELLS.to_owned(),
                Some(k) => BEST_CELLS.replace("{k}", &k.to_string()),
            };
            of_arms(PAIRED_TASKS).map(|tasks| over_tasks(&format!("{cells},\n{tasks}")))
        }
        Estimator::ProbabilityOfImprovement => of_arms(BETTER).map(|tasks| over_tasks(&tasks)),
        Estimator::PassAtK | Estimator::BestAtK => {
            plain_query(&AT_K.replace("{k}", &derivation.k?.to_string()))
        }
        Estimator::SelectedAtK => plain_query(&SELECTED.replace("{k}", &derivation.k?.to_string())),
        Estimator::TasksWhere => {
            let band = band(derivation.band.as_ref()?)?;
            plain_query(&format!("{ARM_TASKS}\n{}", TASKS_WHERE.replace("{band}", &band)))
        }
        Estimator::Iqm => plain_query(&format!("{ARM_TASKS},\n{QUARTILES}")),
        Estimator::GroupSd => plain_query(GROUPS),
        Estimator::Flips => of_arms(FLIPS).and_then(|flips| plain_query(&flips)),
        _ if episode_mean => None,
        _ => {
            let aggregate = plain(derivation)?;
            Some(format!(
                "WITH {chosen}\nSELECT label, {aggregate} AS value, count(*) AS n\nFROM chosen\nGROUP BY label\nORDER BY label"
            ))
        }
    }
}

fn plain(derivation: &Derivation) -> Option<String> {
    Some(match derivation.estimator {
        Estimator::Mean => "avg(CAST(x AS DOUBLE))".into(),
        Estimator::Share => "avg(CASE WHEN x THEN 1.0 ELSE 0.0 END)".into(),
        Estimator::Count => "count(*)".into(),
        Estimator::CountDistinct => "count(DISTINCT x)".into(),
        Estimator::Sum => "sum(CAST(x AS DOUBLE))".into(),
        Estimator::Min => "min(CAST(x AS DOUBLE))".into(),
        Estimator::Max => "max(CAST(x AS DOUBLE))".into(),
        Estimator::Median => "median(CAST(x AS DOUBLE))".into(),
        Estimator::Last => "last(CAST(x AS DOUBLE) ORDER BY filename, file_row_number)".into(),
        _ => return None,
    })
}

/// Whether a column holds what counts; null where it holds nothing.
fn holds(column: &str, accepts: &Accepts) -> Option<String> {
    let listed = |values: &[Cell]| -> Option<String> {
        let values: Vec<String> = values.iter().map(literal).collect::<Option<_>>()?;
        (!values.is_empty()).then(|| format!("{} IN ({})", name(column), values.join(", ")))
    };
    match accepts {
        Accepts::One(cell) => listed(std::slice::from_ref(cell)),
        Accepts::Any(cells) => listed(cells),
        Accepts::Within(within) => {
            let mut all = bounds(&name(column), within, 0.0);
            if let Some(other) = &within.not {
                all.push(format!("{} <> {}", name(column), literal(other)?));
            }
            (!all.is_empty()).then(|| format!("({})", all.join(" AND ")))
        }
    }
}

/// The bounds of a band around task means, each as wide as rounding.
fn band(within: &Bounds) -> Option<String> {
    let all = bounds("value", within, 1e-12);
    (!all.is_empty()).then(|| all.join(" AND "))
}

fn bounds(of: &str, within: &Bounds, slack: f64) -> Vec<String> {
    let number = |x: f64| format!("CAST('{x:e}' AS DOUBLE)");
    let one = |sign: &str, bound: Option<f64>, slack: f64| {
        bound.map(|x| format!("{of} {sign} {}", number(x + slack)))
    };
    [
        one(">=", within.at_least, -slack),
        one("<=", within.at_most, slack),
        one(">", within.above, slack),
        one("<", within.below, -slack),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The rows the derivation is about: filter, arms, null policy.
fn chosen(derivation: &Derivation, files: &[String]) -> Option<String> {
    let of = derivation.of.as_deref().or(default_column(derivation.estimator));
    let mut conditions = Vec::new();
    if !derivation.arms.is_empty() {
        let arms: Vec<String> = derivation.arms.iter().map(|arm| text(arm)).collect();
        conditions.push(format!("arm IN ({})", arms.join(", ")));
    }
    for (column, accepts) in &derivation.filter {
        conditions.push(holds(column, accepts)?);
    }
    let x = match of {
        None if derivation.estimator == Estimator::Count => "1".to_string(),
        None => return None,
        Some(column) => {
            let value = match &derivation.is {
                Some(is) => holds(column, is)?,
                None => name(column),
            };
            let is_flag = derivation.is.is_some() || derivation.estimator == Estimator::Share;
            match derivation.nulls {
                Some(Nulls::Zero) if is_flag => format!("coalesce({value}, FALSE)"),
                Some(Nulls::Zero) => format!("coalesce(CAST({value} AS DOUBLE), 0.0)"),
                Some(Nulls::Omit) => {
                    conditions.push(format!("{} IS NOT NULL", name(column)));
                    value
                }
                // Without a policy a null is an error on every road, in SQL as well.
                None => {
                    let (tested, named) = (name(column), column.replace('\'', "''"));
                    format!("CASE WHEN {tested} IS NULL THEN error('{named} is null') ELSE {value} END")
                }
            }
        }
    };
    let by = derivation.by.as_deref().map_or("NULL".to_string(), name);
    let keys = match derivation.data {
        DataSet::Episodes | DataSet::Imported => ", arm, task_id, family, seed, train_seed, rollout",
        _ => "",
    };
    let (order, numbered) = match derivation.estimator {
        Estimator::SelectedAtK => (", select_score", ""),
        Estimator::Last => (", filename, file_row_number", ", filename = true, file_row_number = true"),
        _ => ("", ""),
    };
    let files: Vec<String> = files.iter().map(|file| text(file)).collect();
    let mut sql = format!(
        "chosen AS (\n  SELECT CAST({by} AS VARCHAR) AS label{keys}{order}, {x} AS x\n  FROM read_parquet([{}]{numbered})",
        files.join(", ")
    );
    for (i, condition) in conditions.iter().enumerate() {
        let _ = write!(sql, "\n  {} {condition}", if i == 0 { "WHERE" } else { "  AND" });
    }
    sql.push_str("\n)");
    Some(sql)
}

fn is_rate(derivation: &Derivation) -> bool {
    let of = derivation.of.as_deref().unwrap_or("");
    (derivation.is.is_some() || row::is_rate(EpisodeRow::COLUMNS, of))
        && derivation.weight == Weight::Task
        && derivation.cluster == Cluster::Task
}

/// A column as an SQL name.
fn name(column: &str) -> String {
    format!("\"{}\"", column.replace('"', "\"\""))
}

/// A text as an SQL literal.
fn text(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

/// A value as an SQL literal; `None` for what equals nothing.
fn literal(cell: &Cell) -> Option<String> {
    match cell {
        Cell::Null => None,
        Cell::Flag(true) => Some("TRUE".into()),
        Cell::Flag(false) => Some("FALSE".into()),
        Cell::Int(whole) => Some(whole.to_string()),
        Cell::Real(real) if real.is_finite() => Some(format!("CAST('{real:e}' AS DOUBLE)")),
        Cell::Real(_) => None,
        Cell::Text(value) => Some(text(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sql(toml_text: &str) -> Option<String> {
        derivation_sql(&toml::from_str(toml_text).unwrap(), &["a'b.parquet".into()])
    }

    #[test]
    fn imported_rows_pair_like_episodes_and_without_seeds_too() {
        let of = |data: &str| {
            sql(&format!("data = \"{data}\"\nestimator = \"paired_delta\"\narms = [\"a\", \"b\"]")).unwrap()
        };
        assert_eq!(of("imported"), of("episodes"));
        assert!(of("imported").contains("b.seed IS NOT DISTINCT FROM t.seed"));
    }

    #[test]
    fn texts_are_quoted() {
        let query = sql(
            "data = \"episodes\"\nestimator = \"count\"\nwhere = { family = \"o'hara\", level = [1, 2] }",
        )
        .unwrap();
        assert!(query.contains("'a''b.parquet'"));
        assert!(query.contains("\"family\" IN ('o''hara')"));
        assert!(query.contains("\"level\" IN (1, 2)"));
    }

    #[test]
    fn what_sql_does_not_say_is_not_said() {
        for text in [
            "data = \"plan\"\nestimator = \"value\"\nof = \"x\"",
            "data = \"episodes\"\nestimator = \"paired_delta\"\narms = [\"a\"]",
        ] {
            assert_eq!(sql(text), None, "{text}");
        }
    }
}
