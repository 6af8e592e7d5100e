//! The third road: a derivation as one DuckDB query over the downloadable Parquet files, so that
//! a reader can recompute the point value and the t interval without any code of this project.

use crate::claims::derivation::{Accepts, Cluster, DataSet, Derivation, Estimator, Nulls, Weight};
use crate::episode::row::Cell;
use std::fmt::Write;

/// A DuckDB query with the columns `label` (the `by` value, or null), `value` and `n`, and for episode
/// means and paired differences also `se`, `df`, `low` and `high` (95% t interval over tasks). The paths in
/// `files` are those that the query names: relative ones hold where DuckDB is started.
///
/// `None` where the query would not be the derivation: other data sets, estimators without SQL
/// (`last`, at-k, flips), and families as weights or clusters.
pub fn derivation_sql(derivation: &Derivation, files: &[String]) -> Option<String> {
    let rows =
        matches!(derivation.data, DataSet::Episodes | DataSet::Calls | DataSet::Harvest | DataSet::Training);
    if !rows || files.is_empty() || derivation.weight != Weight::Task || derivation.cluster != Cluster::Task {
        return None;
    }
    let chosen = chosen(derivation, files)?;
    let episode_mean = derivation.estimator == Estimator::Mean && derivation.data == DataSet::Episodes;
    match derivation.estimator {
        Estimator::Mean if episode_mean && derivation.arms.len() <= 1 => {
            Some(format!("WITH RECURSIVE {chosen},\n{ARM_TASKS},\n{}", over_tasks()))
        }
        Estimator::PairedDelta => {
            let [base, treatment] = derivation.arms.as_slice() else { return None };
            let tasks = PAIRED_TASKS.replace("{base}", &text(base)).replace("{treatment}", &text(treatment));
            Some(format!("WITH RECURSIVE {chosen},\n{tasks},\n{}", over_tasks()))
        }
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
        Estimator::Share => match &derivation.is {
            // With `nulls = "zero"` the comparison is made where nulls are filled in.
            Some(wanted) if derivation.nulls != Some(Nulls::Zero) => {
                format!("avg(CASE WHEN x = {} THEN 1.0 ELSE 0.0 END)", literal(wanted)?)
            }
            _ => "avg(CASE WHEN x THEN 1.0 ELSE 0.0 END)".into(),
        },
        Estimator::Count => "count(*)".into(),
        Estimator::CountDistinct => "count(DISTINCT x)".into(),
        Estimator::Sum => "sum(CAST(x AS DOUBLE))".into(),
        Estimator::Min => "min(CAST(x AS DOUBLE))".into(),
        Estimator::Max => "max(CAST(x AS DOUBLE))".into(),
        _ => return None,
    })
}

/// The rows the derivation is about: filter, arms, null policy.
fn chosen(derivation: &Derivation, files: &[String]) -> Option<String> {
    let default = match derivation.estimator {
        Estimator::PairedDelta => Some("reward"),
        _ => None,
    };
    let of = derivation.of.as_deref().or(default);
    let mut conditions = Vec::new();
    if !derivation.arms.is_empty() {
        let arms: Vec<String> = derivation.arms.iter().map(|arm| text(arm)).collect();
        conditions.push(format!("arm IN ({})", arms.join(", ")));
    }
    for (column, accepts) in &derivation.filter {
        let accepted: Vec<String> = match accepts {
            Accepts::One(cell) => vec![literal(cell)?],
            Accepts::Any(cells) => cells.iter().map(literal).collect::<Option<_>>()?,
        };
        if accepted.is_empty() {
            return None;
        }
        conditions.push(format!("{} IN ({})", name(column), accepted.join(", ")));
    }
    let x = match (of, derivation.nulls) {
        (None, _) if derivation.estimator == Estimator::Count => "1".to_string(),
        (None, _) => return None,
        (Some(column), Some(Nulls::Zero)) if derivation.estimator == Estimator::Share => {
            match derivation.is.as_ref().unwrap_or(&Cell::Flag(true)) {
                wanted @ (Cell::Int(_) | Cell::Real(_)) => {
                    format!("coalesce({}, 0) = {}", name(column), literal(wanted)?)
                }
                wanted => format!("coalesce({} = {}, FALSE)", name(column), literal(wanted)?),
            }
        }
        (Some(column), Some(Nulls::Zero)) => format!("coalesce(CAST({} AS DOUBLE), 0.0)", name(column)),
        (Some(column), Some(Nulls::Omit)) => {
            conditions.push(format!("{} IS NOT NULL", name(column)));
            name(column)
        }
        // Without a policy a null is an error on every road, in SQL as well.
        (Some(column), None) => {
            format!(
                "CASE WHEN {0} IS NULL THEN error('{1} is null') ELSE {0} END",
                name(column),
                column.replace('\'', "''")
            )
        }
    };
    let by = derivation.by.as_deref().map_or("NULL".to_string(), name);
    let keys = match derivation.data {
        DataSet::Episodes => ", arm, task_id, seed, train_seed",
        _ => "",
    };
    let files: Vec<String> = files.iter().map(|file| text(file)).collect();
    let mut sql = format!(
        "chosen AS (\n  SELECT CAST({by} AS VARCHAR) AS label{keys}, {x} AS x\n  FROM read_parquet([{}])",
        files.join(", ")
    );
    for (i, condition) in conditions.iter().enumerate() {
        let _ = write!(sql, "\n  {} {condition}", if i == 0 { "WHERE" } else { "  AND" });
    }
    sql.push_str("\n)");
    Some(sql)
}

/// One value a task for one arm: mean over cells of cell means.
const ARM_TASKS: &str = "\
cells AS (
  SELECT label, task_id, avg(CAST(x AS DOUBLE)) AS mean
  FROM chosen GROUP BY label, task_id, seed, train_seed, arm
),
tasks AS (
  SELECT label, task_id, avg(mean) AS value FROM cells GROUP BY label, task_id
)";

/// One difference a task over the cells both arms have; an arm without training seeds stands
/// against every training seed of the other.
const PAIRED_TASKS: &str = "\
cells AS (
  SELECT label, arm, task_id, seed, train_seed, avg(CAST(x AS DOUBLE)) AS mean
  FROM chosen GROUP BY label, arm, task_id, seed, train_seed
),
trained AS (
  SELECT label, count(train_seed) FILTER (arm = {base}) > 0 AS base,
         count(train_seed) FILTER (arm = {treatment}) > 0 AS treatment
  FROM cells GROUP BY label
),
tasks AS (
  SELECT t.label, t.task_id, avg(t.mean) - avg(b.mean) AS value
  FROM cells t
  JOIN cells b ON b.task_id = t.task_id AND b.seed = t.seed AND b.label IS NOT DISTINCT FROM t.label
  JOIN trained ON trained.label IS NOT DISTINCT FROM t.label
  WHERE t.arm = {treatment} AND b.arm = {base}
    AND (trained.base <> trained.treatment OR b.train_seed IS NOT DISTINCT FROM t.train_seed)
  GROUP BY t.label, t.task_id
)";

/// Mean, standard error and 95% t interval over tasks. DuckDB has no t quantile, so it is found
/// by bisection on P(−t ≤ T ≤ t), which is a finite sum for whole degrees of freedom
/// (Abramowitz and Stegun 26.7.3 and 26.7.4).
fn over_tasks() -> &'static str {
    "\
summary AS (
  SELECT label, avg(value) AS value, count(*) AS n, count(*) - 1 AS df,
         CASE WHEN max(value) - min(value) <= 1e-12 THEN 0.0 ELSE stddev_samp(value) / sqrt(count(*)) END AS se
  FROM tasks GROUP BY label
),
search(df, step, low, high) AS (
  SELECT DISTINCT df, 0, CAST(0 AS DOUBLE), CAST(20 AS DOUBLE) FROM summary WHERE df > 0
  UNION ALL
  SELECT df, step + 1, CASE WHEN inside < 0.95 THEN middle ELSE low END, CASE WHEN inside < 0.95 THEN high ELSE middle END
  FROM (
    SELECT *, CASE WHEN df % 2 = 1
      THEN 2 / pi() * (angle + sin(angle) * cos(angle) * coalesce(list_sum(list_transform(range(0, (df - 1) // 2),
        lambda k: exp(lgamma(k + 1) - lgamma(k + 1.5) + lgamma(1.5)) * pow(cos(angle), 2 * k))), 0))
      ELSE sin(angle) * list_sum(list_transform(range(0, df // 2),
        lambda k: exp(lgamma(k + 0.5) - lgamma(0.5) - lgamma(k + 1)) * pow(cos(angle), 2 * k)))
      END AS inside
    FROM (SELECT *, (low + high) / 2 AS middle, atan((low + high) / 2 / sqrt(df)) AS angle FROM search WHERE step < 60)
  )
),
quantile AS (SELECT df, low AS t FROM search WHERE step = 60)
SELECT label, value, n, CASE WHEN n > 1 THEN se END AS se, CASE WHEN n > 1 THEN summary.df END AS df,
       CASE WHEN se > 0 THEN value - t * se END AS low, CASE WHEN se > 0 THEN value + t * se END AS high
FROM summary LEFT JOIN quantile ON quantile.df = summary.df
ORDER BY label"
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
            "data = \"episodes\"\nestimator = \"flips\"\narms = [\"a\", \"b\"]",
            "data = \"episodes\"\nestimator = \"paired_delta\"\narms = [\"a\", \"b\"]\nweight = \"family\"",
            "data = \"episodes\"\nestimator = \"paired_delta\"\narms = [\"a\"]",
            "data = \"training\"\nestimator = \"last\"\nof = \"loss\"",
        ] {
            assert_eq!(sql(text), None, "{text}");
        }
    }
}
