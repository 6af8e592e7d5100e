//! The third road: a derivation as one DuckDB query over the downloadable Parquet files, so that
//! a reader can recompute the point value and the t interval without any code of this project.

use crate::claims::derivation::{
    Accepts, Bounds, Cluster, DataSet, Derivation, Estimator, Nulls, Population, Weight,
};
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
    let default = match derivation.estimator {
        Estimator::PairedDelta
        | Estimator::BestAtK
        | Estimator::SelectedAtK
        | Estimator::TasksWhere
        | Estimator::Iqm
        | Estimator::ProbabilityOfImprovement
        | Estimator::GroupSd => Some("reward"),
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

/// One value a task for one arm: mean over cells of cell means.
const ARM_TASKS: &str = "\
cells AS (
  SELECT label, task_id, family, avg(CAST(x AS DOUBLE)) AS mean
  FROM chosen GROUP BY label, task_id, family, seed, train_seed, arm
),
tasks AS (
  SELECT label, task_id, family, avg(mean) AS value FROM cells GROUP BY label, task_id, family
)";

/// The mean of every cell.
const PAIRED_CELLS: &str = "\
cells AS (
  SELECT label, arm, task_id, family, seed, train_seed, avg(CAST(x AS DOUBLE)) AS mean
  FROM chosen GROUP BY label, arm, task_id, family, seed, train_seed
)";

/// What k attempts of every cell give at best; cells with fewer are left out.
const BEST_CELLS: &str = "\
ranked AS (
  SELECT label, arm, task_id, family, seed, train_seed, CAST(x AS DOUBLE) AS x,
         row_number() OVER (PARTITION BY label, arm, task_id, seed, train_seed ORDER BY CAST(x AS DOUBLE)) AS i,
         count(*) OVER (PARTITION BY label, arm, task_id, seed, train_seed) AS n
  FROM chosen
),
cells AS (
  SELECT label, arm, task_id, family, seed, train_seed, sum(CASE WHEN i < {k} THEN 0 ELSE x * exp(
           lgamma(i) - lgamma({k}) - lgamma(i - {k} + 1) - lgamma(n + 1) + lgamma({k} + 1) + lgamma(n - {k} + 1)) END) AS mean
  FROM ranked WHERE n >= {k} GROUP BY label, arm, task_id, family, seed, train_seed
)";

/// The ends of Wilson's interval where nothing, or everything, is solved.
const ALL_ALIKE: [&str; 2] = [
    " WHEN value = 0 THEN 0.0 WHEN value = 1 THEN n / (n + 3.841458820694124)",
    " WHEN value = 0 THEN 3.841458820694124 / (n + 3.841458820694124) WHEN value = 1 THEN 1.0",
];

fn is_rate(derivation: &Derivation) -> bool {
    let of = derivation.of.as_deref().unwrap_or("");
    (derivation.is.is_some() || row::is_rate(EpisodeRow::COLUMNS, of))
        && derivation.weight == Weight::Task
        && derivation.cluster == Cluster::Task
}

/// One difference a task over the cells both arms have; an arm without training seeds stands
/// against every training seed of the other.
const PAIRED_TASKS: &str = "\
trained AS (
  SELECT label, count(train_seed) FILTER (arm = {base}) > 0 AS base,
         count(train_seed) FILTER (arm = {treatment}) > 0 AS treatment
  FROM cells GROUP BY label
),
facing AS (
  SELECT t.label, t.task_id, t.family, coalesce(t.train_seed, b.train_seed) AS train_seed, t.mean AS treatment, b.mean AS base
  FROM cells t
  JOIN cells b ON b.task_id = t.task_id AND b.seed IS NOT DISTINCT FROM t.seed AND b.label IS NOT DISTINCT FROM t.label
  JOIN trained ON trained.label IS NOT DISTINCT FROM t.label
  WHERE t.arm = {treatment} AND b.arm = {base}
    AND (trained.base <> trained.treatment OR b.train_seed IS NOT DISTINCT FROM t.train_seed)
),
tasks AS (
  SELECT label, task_id, family, avg(treatment) - avg(base) AS value FROM facing GROUP BY label, task_id, family
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

/// The expected value of the attempt with the greatest score among k of a cell: the mean at each score, times the chance that the k
/// lie among the attempts up to that score and not all below it.
const SELECTED: &str = "\
sized AS (
  SELECT label, task_id, seed, train_seed, select_score AS score, CAST(x AS DOUBLE) AS x,
         count(*) OVER (PARTITION BY label, task_id, seed, train_seed) AS n
  FROM chosen
),
tied AS (
  SELECT label, task_id, seed, train_seed, n, score, avg(x) AS x, count(*) AS size
  FROM sized WHERE n >= {k} GROUP BY label, task_id, seed, train_seed, n, score
),
reached AS (
  SELECT *, sum(size) OVER (PARTITION BY label, task_id, seed, train_seed ORDER BY score NULLS FIRST) AS here FROM tied
),
chances AS (
  SELECT label, task_id, seed, train_seed, score, x,
         CASE WHEN here < {k} THEN 0 ELSE exp(lgamma(here + 1) - lgamma(here - {k} + 1) - lgamma(n + 1) + lgamma(n - {k} + 1)) END
       - CASE WHEN here - size < {k} THEN 0
              ELSE exp(lgamma(here - size + 1) - lgamma(here - size - {k} + 1) - lgamma(n + 1) + lgamma(n - {k} + 1)) END AS chance
  FROM reached
),
cells AS (
  SELECT label, task_id, sum(x * chance) AS value, count(*) = count(score) AS scored
  FROM chances GROUP BY label, task_id, seed, train_seed
),
tasks AS (SELECT label, task_id, avg(value) AS value, bool_and(scored) AS scored FROM cells GROUP BY label, task_id)
SELECT labels.label, CASE WHEN bool_and(tasks.scored) THEN avg(tasks.value) END AS value,
       CASE WHEN coalesce(bool_and(tasks.scored), TRUE) THEN count(tasks.value) ELSE 0 END AS n
FROM (SELECT DISTINCT label FROM chosen) labels LEFT JOIN tasks ON tasks.label IS NOT DISTINCT FROM labels.label
GROUP BY labels.label
ORDER BY labels.label";

/// How many tasks have a mean within the band.
const TASKS_WHERE: &str = "\
SELECT label, count(*) FILTER ({band}) AS value, count(*) FILTER ({band}) / CAST(count(*) AS DOUBLE) AS share, count(*) AS n
FROM tasks GROUP BY label ORDER BY label";

/// The mean of the cells between the quartiles.
const QUARTILES: &str = "\
ranked AS (
  SELECT label, mean, row_number() OVER (PARTITION BY label ORDER BY mean) AS i, count(*) OVER (PARTITION BY label) AS n FROM cells
)
SELECT label, avg(mean) FILTER (i > n // 4 AND i <= n - n // 4) AS value, count(*) AS n
FROM ranked GROUP BY label ORDER BY label";

/// The spread of a cell's attempts.
const GROUPS: &str = "\
cells AS (
  SELECT label, CASE WHEN max(CAST(x AS DOUBLE)) - min(CAST(x AS DOUBLE)) <= 1e-12 THEN 0.0
                     ELSE stddev_samp(CAST(x AS DOUBLE)) END AS sd
  FROM chosen GROUP BY label, arm, task_id, seed, train_seed HAVING count(*) > 1
)
SELECT labels.label, avg(sd) AS value, avg(CASE WHEN sd = 0 THEN 1.0 WHEN sd IS NOT NULL THEN 0.0 END) AS zero_share,
       count(sd) AS n
FROM (SELECT DISTINCT label FROM chosen) labels LEFT JOIN cells ON cells.label IS NOT DISTINCT FROM labels.label
GROUP BY labels.label ORDER BY labels.label";

/// One value a task: the share of pairs of attempts under common seeds in which the treatment's is the better.
const BETTER: &str = "\
trained AS (
  SELECT label, count(train_seed) FILTER (arm = {base}) > 0 AS base,
         count(train_seed) FILTER (arm = {treatment}) > 0 AS treatment
  FROM chosen GROUP BY label
),
tasks AS (
  SELECT t.label, t.task_id, t.family,
         avg(CASE WHEN abs(CAST(t.x AS DOUBLE) - CAST(b.x AS DOUBLE)) <= 1e-12 THEN 0.5
                  WHEN CAST(t.x AS DOUBLE) > CAST(b.x AS DOUBLE) THEN 1.0 ELSE 0.0 END) AS value
  FROM chosen t
  JOIN chosen b ON b.task_id = t.task_id AND b.seed IS NOT DISTINCT FROM t.seed AND b.label IS NOT DISTINCT FROM t.label
  JOIN trained ON trained.label IS NOT DISTINCT FROM t.label
  WHERE t.arm = {treatment} AND b.arm = {base}
    AND (trained.base <> trained.treatment OR b.train_seed IS NOT DISTINCT FROM t.train_seed)
  GROUP BY t.label, t.task_id, t.family
)";

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
    if derivation.population == Population::TasksXTrainSeeds {
        return TRAINING;
    }
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

/// The same over tasks and training seeds together: V(task) + V(seed) − V(cell), not below either of the first two.
const TRAINING: &str = "\
differences AS (
  SELECT label, task_id, train_seed, avg(treatment) - avg(base) AS d FROM facing GROUP BY label, task_id, train_seed
),
residuals AS (SELECT *, d - avg(d) OVER (PARTITION BY label) AS e FROM differences),
sizes AS (
  SELECT label, count(*) AS n, count(DISTINCT task_id) AS g, count(DISTINCT train_seed) AS s, count(*) = count(train_seed) AS known,
         max(abs(e)) <= 1e-12 AS still, sum(e * e) AS squares
  FROM residuals GROUP BY label
),
by_task AS (
  SELECT label, sum(e * e) AS squares FROM (SELECT label, sum(e) AS e FROM residuals GROUP BY label, task_id) GROUP BY label
),
by_seed AS (
  SELECT label, sum(e * e) AS squares FROM (SELECT label, sum(e) AS e FROM residuals GROUP BY label, train_seed) GROUP BY label
),
parts AS (
  SELECT z.*, CASE WHEN g > 1 THEN g / (g - 1.0) * t.squares / (n * n) END AS of_task,
         CASE WHEN s > 1 THEN s / (s - 1.0) * k.squares / (n * n) END AS of_seed,
         CASE WHEN n > 1 THEN n / (n - 1.0) * z.squares / (n * n) END AS of_cell
  FROM sizes z JOIN by_task t ON t.label IS NOT DISTINCT FROM z.label JOIN by_seed k ON k.label IS NOT DISTINCT FROM z.label
),
summary AS (
  SELECT tasks.label, avg(tasks.value) AS value, count(*) AS n, least(any_value(g), any_value(s)) - 1 AS df,
         CASE WHEN NOT any_value(known) OR any_value(g) < 2 OR any_value(s) < 2 THEN NULL WHEN any_value(still) THEN 0.0
              ELSE sqrt(greatest(any_value(of_task + of_seed - of_cell), any_value(of_task), any_value(of_seed))) END AS se
  FROM tasks JOIN parts ON parts.label IS NOT DISTINCT FROM tasks.label GROUP BY tasks.label
)";

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
