//! The third road: a derivation as one DuckDB query over the downloadable Parquet files, so that
//! a reader can recompute the point value and the t interval without any code of this project.

use crate::claims::derivation::{Accepts, Cluster, DataSet, Derivation, Estimator, Nulls, Weight};
use crate::episode::row::Cell;
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
    match derivation.estimator {
        Estimator::Mean if episode_mean && derivation.arms.len() <= 1 => Some(over_tasks(ARM_TASKS)),
        Estimator::PairedDelta => of_arms(PAIRED_TASKS).map(|tasks| over_tasks(&tasks)),
        Estimator::PassAtK | Estimator::BestAtK => {
            Some(format!("WITH {chosen},\n{}", AT_K.replace("{k}", &derivation.k?.to_string())))
        }
        Estimator::Flips => of_arms(FLIPS).map(|flips| format!("WITH {chosen},\n{flips}")),
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
        Estimator::Last => "last(CAST(x AS DOUBLE) ORDER BY filename, file_row_number)".into(),
        _ => return None,
    })
}

/// The rows the derivation is about: filter, arms, null policy.
fn chosen(derivation: &Derivation, files: &[String]) -> Option<String> {
    let default = match derivation.estimator {
        Estimator::PairedDelta | Estimator::BestAtK => Some("reward"),
        Estimator::PassAtK | Estimator::Flips => Some("solved"),
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
        DataSet::Episodes | DataSet::Imported => ", arm, task_id, family, seed, train_seed, rollout",
        _ => "",
    };
    let (order, numbered) = match derivation.estimator {
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

/// One value a task for one arm: mean over cells of cell means.
const ARM_TASKS: &str = "\
cells AS (
  SELECT label, task_id, family, avg(CAST(x AS DOUBLE)) AS mean
  FROM chosen GROUP BY label, task_id, family, seed, train_seed, arm
),
tasks AS (
  SELECT label, task_id, family, avg(mean) AS value FROM cells GROUP BY label, task_id, family
)";

/// One difference a task over the cells both arms have; an arm without training seeds stands
/// against every training seed of the other.
const PAIRED_TASKS: &str = "\
cells AS (
  SELECT label, arm, task_id, family, seed, train_seed, avg(CAST(x AS DOUBLE)) AS mean
  FROM chosen GROUP BY label, arm, task_id, family, seed, train_seed
),
trained AS (
  SELECT label, count(train_seed) FILTER (arm = {base}) > 0 AS base,
         count(train_seed) FILTER (arm = {treatment}) > 0 AS treatment
  FROM cells GROUP BY label
),
tasks AS (
  SELECT t.label, t.task_id, t.family, avg(t.mean) - avg(b.mean) AS value
  FROM cells t
  JOIN cells b ON b.task_id = t.task_id AND b.seed IS NOT DISTINCT FROM t.seed AND b.label IS NOT DISTINCT FROM t.label
  JOIN trained ON trained.label IS NOT DISTINCT FROM t.label
  WHERE t.arm = {treatment} AND b.arm = {base}
    AND (trained.base <> trained.treatment OR b.train_seed IS NOT DISTINCT FROM t.train_seed)
  GROUP BY t.label, t.task_id, t.family
)";

/// What k of a cell's rollouts give at best, over all ways to choose them: the mean over cells with as many, then over tasks. For
/// true and false it is the chance that one of the k is true.
const AT_K: &str = "\
ranked AS (
  SELECT label, task_id, seed, train_seed, CAST(x AS DOUBLE) AS x,
         row_number() OVER (PARTITION BY label, task_id, seed, train_seed ORDER BY CAST(x AS DOUBLE)) AS i,
         count(*) OVER (PARTITION BY label, task_id, seed, train_seed) AS n
  FROM chosen
),
cells AS (
  SELECT label, task_id, sum(CASE WHEN i < {k} THEN 0 ELSE x * exp(
           lgamma(i) - lgamma({k}) - lgamma(i - {k} + 1) - lgamma(n + 1) + lgamma({k} + 1) + lgamma(n - {k} + 1)) END) AS value
  FROM ranked WHERE n >= {k} GROUP BY label, task_id, seed, train_seed
),
tasks AS (SELECT label, task_id, avg(value) AS value FROM cells GROUP BY label, task_id)
SELECT labels.label, avg(tasks.value) AS value, count(tasks.value) AS n
FROM (SELECT DISTINCT label FROM chosen) labels LEFT JOIN tasks ON tasks.label IS NOT DISTINCT FROM labels.label
GROUP BY labels.label
ORDER BY labels.label";

/// How the attempts that both arms made at a task ended.
const FLIPS: &str = "\
trained AS (
  SELECT label, count(train_seed) FILTER (arm = {base}) > 0 AS base,
         count(train_seed) FILTER (arm = {treatment}) > 0 AS treatment
  FROM chosen GROUP BY label
),
pairs AS (
  SELECT t.label, CAST(b.x AS BOOLEAN) AS before, CAST(t.x AS BOOLEAN) AS after
  FROM chosen t
  JOIN chosen b ON b.task_id = t.task_id AND b.seed IS NOT DISTINCT FROM t.seed AND b.rollout IS NOT DISTINCT FROM t.rollout AND b.label IS NOT DISTINCT FROM t.label
  JOIN trained ON trained.label IS NOT DISTINCT FROM t.label
  WHERE t.arm = {treatment} AND b.arm = {base}
    AND (trained.base <> trained.treatment OR b.train_seed IS NOT DISTINCT FROM t.train_seed)
)
SELECT labels.label,
       CASE WHEN count(after) > 0 THEN count(*) FILTER (after AND NOT before) - count(*) FILTER (before AND NOT after) END AS value,
       count(*) FILTER (after AND NOT before) AS gained, count(*) FILTER (before AND NOT after) AS lost,
       count(*) FILTER (before AND after) AS both, count(*) FILTER (NOT before AND NOT after) AS neither, count(after) AS n
FROM (SELECT DISTINCT label FROM chosen) labels LEFT JOIN pairs ON pairs.label IS NOT DISTINCT FROM labels.label
GROUP BY labels.label
ORDER BY labels.label";

/// Mean, standard error and degrees of freedom: over tasks, families or clusters, as declared. A spread within 1e-12 is none.
fn summary(derivation: &Derivation) -> &'static str {
    match (derivation.weight, derivation.cluster) {
        (Weight::Task, Cluster::Task) => {
            "\
summary AS (
  SELECT label, avg(value) AS value, count(*) AS n, count(*) - 1 AS df,
         CASE WHEN count(*) < 2 THEN NULL WHEN max(value) - min(value) <= 1e-12 THEN 0.0
              ELSE stddev_samp(value) / sqrt(count(*)) END AS se
  FROM tasks GROUP BY label
)"
        }
        (Weight::Family, Cluster::Task) => {
            "\
families AS (
  SELECT label, family, avg(value) AS mean, count(*) AS n,
         CASE WHEN max(value) - min(value) <= 1e-12 THEN 0.0 ELSE var_samp(value) END AS variance
  FROM tasks GROUP BY label, family
),
summary AS (
  SELECT label, avg(mean) AS value, CAST(sum(n) AS BIGINT) AS n, CAST(sum(n) AS BIGINT) - count(*) AS df,
         CASE WHEN min(n) < 2 THEN NULL ELSE sqrt(sum(variance / n)) / count(*) END AS se
  FROM families GROUP BY label
)"
        }
        (Weight::Task, Cluster::Family) => {
            "\
means AS (SELECT label, avg(value) AS mean FROM tasks GROUP BY label),
families AS (
  SELECT t.label, t.family, any_value(m.mean) AS mean, count(*) AS size, sum(t.value - m.mean) AS off
  FROM tasks t JOIN means m ON m.label IS NOT DISTINCT FROM t.label GROUP BY t.label, t.family
),
summary AS (
  SELECT label, any_value(mean) AS value, CAST(sum(size) AS BIGINT) AS n, count(*) - 1 AS df,
         CASE WHEN count(*) < 2 THEN NULL WHEN max(abs(off) / size) <= 1e-12 THEN 0.0
              ELSE sqrt(count(*) / (count(*) - 1.0) * sum(off * off)) / sum(size) END AS se
  FROM families GROUP BY label
)"
        }
        (Weight::Family, Cluster::Family) => {
            "\
families AS (SELECT label, family, avg(value) AS mean, count(*) AS n FROM tasks GROUP BY label, family),
summary AS (
  SELECT label, avg(mean) AS value, CAST(sum(n) AS BIGINT) AS n, count(*) - 1 AS df,
         CASE WHEN count(*) < 2 THEN NULL WHEN max(mean) - min(mean) <= 1e-12 THEN 0.0
              ELSE stddev_samp(mean) / sqrt(count(*)) END AS se
  FROM families GROUP BY label
)"
        }
    }
}

/// The 95% t interval. DuckDB has no t quantile, so it is found by bisection on P(−t ≤ T ≤ t), which is a finite sum for whole
/// degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4).
const INTERVAL: &str = "\
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
SELECT label, value, n, se, CASE WHEN se IS NOT NULL THEN summary.df END AS df,
       CASE WHEN se > 0 THEN value - t * se END AS low, CASE WHEN se > 0 THEN value + t * se END AS high
FROM summary LEFT JOIN quantile ON quantile.df = summary.df
ORDER BY label";

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
