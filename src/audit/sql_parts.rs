//! The fixed parts of the queries: tables over the chosen rows, each made of the ones before it. Arms and k stand in braces.

use crate::claims::derivation::{Cluster, Derivation, Population, Weight};

/// One value a task for one arm: mean over cells of cell means.
pub const ARM_TASKS: &str = "\
cells AS (
  SELECT label, task_id, family, avg(CAST(x AS DOUBLE)) AS mean
  FROM chosen GROUP BY label, task_id, family, seed, train_seed, arm
),
tasks AS (
  SELECT label, task_id, family, avg(mean) AS value FROM cells GROUP BY label, task_id, family
)";

/// The mean of every cell.
pub const PAIRED_CELLS: &str = "\
cells AS (
  SELECT label, arm, task_id, family, seed, train_seed, avg(CAST(x AS DOUBLE)) AS mean
  FROM chosen GROUP BY label, arm, task_id, family, seed, train_seed
)";

/// What k attempts of every cell give at best; cells with fewer are left out.
pub const BEST_CELLS: &str = "\
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
pub const ALL_ALIKE: [&str; 2] = [
    " WHEN value = 0 THEN 0.0 WHEN value = 1 THEN n / (n + 3.841458820694124)",
    " WHEN value = 0 THEN 3.841458820694124 / (n + 3.841458820694124) WHEN value = 1 THEN 1.0",
];

/// One difference a task over the cells both arms have; an arm without training seeds stands
/// against every training seed of the other.
pub const PAIRED_TASKS: &str = "\
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
pub const AT_K: &str = "\
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
pub const SELECTED: &str = "\
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
pub const TASKS_WHERE: &str = "\
SELECT label, count(*) FILTER ({band}) AS value, count(*) FILTER ({band}) / CAST(count(*) AS DOUBLE) AS share, count(*) AS n
FROM tasks GROUP BY label ORDER BY label";

/// The mean of the cells between the quartiles.
pub const QUARTILES: &str = "\
ranked AS (
  SELECT label, mean, row_number() OVER (PARTITION BY label ORDER BY mean) AS i, count(*) OVER (PARTITION BY label) AS n FROM cells
)
SELECT label, avg(mean) FILTER (i > n // 4 AND i <= n - n // 4) AS value, count(*) AS n
FROM ranked GROUP BY label ORDER BY label";

/// The spread of a cell's attempts.
pub const GROUPS: &str = "\
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
pub const BETTER: &str = "\
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
pub const FLIPS: &str = "\
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

/// The same over tasks and training seeds together: V(task) + V(seed) − V(cell), not below either of the first two.
pub const TRAINING: &str = "\
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
pub const INTERVAL: &str = "\
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

/// Mean, standard error and degrees of freedom: over tasks, families or clusters, as declared. A spread within 1e-12 is none.
pub fn summary(derivation: &Derivation) -> &'static str {
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
