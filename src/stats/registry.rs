//! The estimators that a derivation may name: identity, formula, source, what they read and the
//! parts they give, in one list from which the method pages are made. How rows are chosen for
//! them is the derivation's business; the numbers come from the functions of this module.

use serde::Serialize;

/// One estimator's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Estimator {
    /// The name used in `estimator = "…"`. `mean` over rows that are no attempts has an entry of its own, `mean_of_rows`.
    pub id: &'static str,
    /// What it is, in a few words.
    pub title: &'static str,
    /// The formula, in plain text.
    pub formula: &'static str,
    /// Where the method comes from.
    pub source: &'static str,
    /// What the derivation must name, such as `of` (a column) or `arms` (two of them).
    pub needs: &'static [&'static str],
    /// The numbers it gives; `value` is the one that a bare link prints.
    pub parts: &'static [&'static str],
}

/// Every estimator, in the order in which the method page lists them.
pub const ESTIMATORS: &[Estimator] = &[
    Estimator {
        id: "mean",
        title: "Mean of one arm over its tasks",
        formula: "mean over tasks of (mean over the task's cells of cell means), a cell being (arm, task, seed, \
                  train_seed); low, high = value ± t(.975, df) · se; se = sd(task means, ddof 1) / √G, or the CR1 error \
                  over declared clusters; df = G − 1. With weight = family the mean of family means, \
                  se = √(Σ variance_f / n_f) / F and df = G − F. Of a rate that is 0 or 1 throughout, Wilson's interval over tasks.",
        source: "Wilson (1927). Clustered standard errors: Liang and Zeger (1986); for model evaluations: Miller (2024).",
        needs: &["of", "arm"],
        parts: &["value", "low", "high", "n", "se", "df"],
    },
    Estimator {
        id: "mean_of_rows",
        title: "Mean of a column over rows",
        formula: "Σ value / n over the n rows that pass the filter, in row order, true as 1 and false as 0; what `mean` computes \
                  where the rows are no attempts at tasks, such as calls, harvested samples and training steps",
        source: "An arithmetic mean; it has no interval of its own, because rows of one task or one run are not independent.",
        needs: &["of"],
        parts: &["value", "n"],
    },
    Estimator {
        id: "share",
        title: "Share of rows",
        formula: "rows where the flag is set, or where column = value, over all rows counted",
        source: "A plain proportion; it has no interval of its own, because rows of one task are not independent.",
        needs: &["of"],
        parts: &["value", "n"],
    },
    Estimator {
        id: "count",
        title: "Number of rows",
        formula: "the number of rows that pass the filter",
        source: "A count.",
        needs: &[],
        parts: &["value"],
    },
    Estimator {
        id: "count_distinct",
        title: "Number of distinct values",
        formula: "the number of different values of a column. A null is an error unless `nulls` says how it counts: `omit` leaves \
                  it out, with `zero` it counts as the number 0, which is one more value where no row holds a 0",
        source: "A count.",
        needs: &["of"],
        parts: &["value", "n"],
    },
    Estimator {
        id: "sum",
        title: "Sum of a column",
        formula: "Σ value, in row order",
        source: "A sum.",
        needs: &["of"],
        parts: &["value", "n"],
    },
    Estimator {
        id: "min",
        title: "Least value of a column",
        formula: "the least of the values",
        source: "An extreme; it says nothing of a typical row.",
        needs: &["of"],
        parts: &["value", "n"],
    },
    Estimator {
        id: "max",
        title: "Greatest value of a column",
        formula: "the greatest of the values",
        source: "An extreme; it says nothing of a typical row.",
        needs: &["of"],
        parts: &["value", "n"],
    },
    Estimator {
        id: "median",
        title: "Middle value of a column",
        formula: "the value in the middle of all in rising order, or the mean of the two in the middle",
        source: "An order statistic of rows; it has no interval of its own.",
        needs: &["of"],
        parts: &["value", "n"],
    },
    Estimator {
        id: "last",
        title: "Last value of a column",
        formula: "the value of the last row in file order, such as the loss at the last step",
        source: "A single value.",
        needs: &["of"],
        parts: &["value", "n"],
    },
    Estimator {
        id: "paired_delta",
        title: "Paired difference of two arms",
        formula: "mean over the tasks that both arms have of (treatment task mean − base task mean), a task mean being \
                  the mean of cell means over the (seed, train_seed) that both arms have.\n`low`, `high`: expanded percentile \
                  bootstrap of whole tasks or clusters at Φ(−√(n/(n−1)) · t(.975, n−1)), B = 10,000; below 10 units \
                  value ± t(.975, df) · se instead.\n`mde`: (z(.975) + z(.80)) · se, found with 80% power \
                  at level .05 where there are many units (with few, beside a t interval, with less: 35% at df = 2, \
                  71% at df = 9).\n`p`: sign-flip test, P(|Σ ±d| ≥ |Σ d|) over all signs of the unit differences d; exact on a \
                  lattice or by enumeration, else 10,000 random flips with the +1 correction.\nWith population = \
                  tasks-x-train-seeds: value ± t(.975, df) · se with se² = max(V_task + V_seed − V_cell, V_task, V_seed), \
                  V_c = G_c/(G_c−1) · Σ_c (Σ residuals)² / N² over the N cells (task, train_seed), df = min(tasks, train_seeds) \
                  − 1, and the test over training seeds, of which it needs six.\nWith a margin m: non_inferiority_p = \
                  P(T ≤ −(value + m)/se), equivalence_p = the larger of it and P(T ≤ (value − m)/se).\n`rollout_share`: the part of \
                  se² that fresh attempts at the same tasks would give, Σ weight² · Σ over cells of (uses/pairs)² · s²/n, at most 1.",
        source: "Hesterberg (2015) for the interval; Fisher (1935) for the test; Bloom (1995) for the smallest detectable \
                 difference; Cameron, Gelbach and Miller (2011) for two-way clusters; Schuirmann (1987) for equivalence.",
        needs: &["of", "arms"],
        parts: &["value", "low", "high", "n", "p", "se", "df", "mde", "rollout_share"],
    },
    Estimator {
        id: "pass_at_k",
        title: "pass@k of one arm",
        formula: "1 − C(n−c, k) / C(n, k) in each cell of n rollouts, c of them solved; mean over the cells of a task that \
                  have k rollouts, then over tasks",
        source: "Chen et al. (2021).",
        needs: &["arms", "k"],
        parts: &["value", "n"],
    },
    Estimator {
        id: "best_at_k",
        title: "Expected best of k rewards of one arm",
        formula: "Σ C(i−1, k−1) / C(n, k) · r₍ᵢ₎ over a cell's n rewards in rising order; mean over the cells of a task that \
                  have k rollouts, then over tasks",
        source: "Expected maximum of a sample without replacement; equals pass@k for rewards of 0 and 1.",
        needs: &["of", "arms", "k"],
        parts: &["value", "n"],
    },
    Estimator {
        id: "selected_at_k",
        title: "Selected of k attempts of one arm",
        formula: "expected value of the attempt with the greatest select_score among k drawn without replacement from a cell's n \
                  attempts, any of those that tie: Σ over scores of (C(N≤, k) − C(N<, k)) / C(n, k) · mean value at that score; \
                  mean over the cells of a task that have k rollouts, then over tasks",
        source: "Best-of-k as it can be deployed; where the score is the reward itself it is best_at_k, an oracle.",
        needs: &["of", "arms", "k"],
        parts: &["value", "n"],
    },
    Estimator {
        id: "tasks_where",
        title: "Number of tasks whose mean lies in a band",
        formula: "tasks with a task mean (mean over the task's cells of cell means) within `band`; share = their number over all \
                  tasks. band = { above = 0 } counts what was ever solved, { at_least = 0.2, at_most = 0.8 } what is neither \
                  hopeless nor safe.",
        source: "A count over tasks.",
        needs: &["of", "band"],
        parts: &["value", "share", "n"],
    },
    Estimator {
        id: "iqm",
        title: "Interquartile mean of one arm",
        formula: "mean of the cell means in rising order without the first and last ⌊N/4⌋ of N",
        source: "Agarwal et al. (2021); without an interval: cells of one task are not independent.",
        needs: &["of", "arm"],
        parts: &["value", "n"],
    },
    Estimator {
        id: "probability_of_improvement",
        title: "Chance that an attempt of the treatment beats one of the base",
        formula: "mean over the tasks that both arms have of U / (n · m): over all pairs of attempts under common seeds, those in \
                  which the treatment's is greater and half of those that are equal; low, high = value ± t(.975, df) · se over \
                  tasks or clusters",
        source: "Mann and Whitney (1947); as a measure between policies: Agarwal et al. (2021).",
        needs: &["of", "arms"],
        parts: &["value", "low", "high", "n", "se", "df"],
    },
    Estimator {
        id: "group_sd",
        title: "Spread of the attempts within a cell",
        formula: "mean over the cells of at least two attempts of their standard deviation (ddof 1); zero_share = share of those \
                  cells in which nothing varies, so that a policy gradient over the group is zero",
        source: "The two diagnostics of group-relative policy optimisation (Shao et al. 2024).",
        needs: &["of", "arm"],
        parts: &["value", "zero_share", "n"],
    },
    Estimator {
        id: "holm",
        title: "p values of a declared family of tests, adjusted",
        formula: "with the m p values in rising order, the i-th becomes the greatest of (m − j + 1) · p_j over j ≤ i, at most 1; one \
                  row a test, and value = how many of them lie below .05",
        source: "Holm (1979): controls the chance of any false rejection.",
        needs: &["of"],
        parts: &["value", "n"],
    },
    Estimator {
        id: "benjamini_hochberg",
        title: "p values of an exploratory table, adjusted",
        formula: "with the m p values in rising order, the i-th becomes the least of m / j · p_j over j ≥ i, at most 1; one row a \
                  test, and value = how many of them lie below .05",
        source: "Benjamini and Hochberg (1995): controls the expected share of false rejections; exploratory.",
        needs: &["of"],
        parts: &["value", "n"],
    },
    Estimator {
        id: "flips",
        title: "Flips between two arms",
        formula: "over pairs of attempts with the same (task, seed, rollout): gained (✗→✓), lost (✓→✗), both, neither; \
                  value = gained − lost",
        source: "The fourfold table of McNemar (1947).",
        needs: &["arms"],
        parts: &["value", "gained", "lost", "both", "neither", "n"],
    },
];

/// The estimator of that name.
pub fn find(id: &str) -> Option<&'static Estimator> {
    ESTIMATORS.iter().find(|e| e.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::aggregate;
    use crate::stats::at_k::{ArmCells, Kind};
    use crate::stats::fixtures::{csv, observations};
    use crate::stats::paired::task_means;
    use crate::stats::{Arm, Observation, Options, Paired, Value, Weight, estimate, multiple, repeats};

    /// The parts of one estimator, computed by the functions of this module.
    fn parts(id: &str, rows: &[Observation<'_>]) -> Vec<(&'static str, Value)> {
        let n = |count: usize| Ok(count as f64);
        let rewards: Vec<Option<f64>> = rows.iter().map(|o| o.reward).collect();
        let values: Vec<f64> = rewards.iter().copied().flatten().collect();
        let solved: Vec<bool> = rows.iter().filter_map(|o| o.solved).collect();
        let paired = Paired::new(rows).unwrap();
        let e = estimate(&paired, &Options::default()).unwrap();
        let lead = e.headline.clone().map(|h| h.interval);
        match id {
            "mean" => {
                let m = aggregate::arm_mean(rows, Arm::Base, Weight::Task).unwrap();
                let t = m.t.unwrap();
                vec![
                    ("value", Ok(m.mean)),
                    ("low", Ok(t.low)),
                    ("high", Ok(t.high)),
                    ("n", n(m.tasks)),
                    ("se", m.se),
                    ("df", Ok(m.df)),
                ]
            }
            "mean_of_rows" => vec![("value", aggregate::mean(&values)), ("n", n(values.len()))],
            "share" => vec![("value", aggregate::share(&solved)), ("n", n(solved.len()))],
            "count" => vec![("value", n(rows.len()))],
            "count_distinct" => {
                vec![
                    ("value", n(aggregate::count_distinct(rows.iter().map(|o| o.task)))),
                    ("n", n(rows.len())),
                ]
            }
            "sum" => vec![("value", Ok(aggregate::sum(&values))), ("n", n(values.len()))],
            "min" => vec![("value", aggregate::min(&values)), ("n", n(values.len()))],
            "last" => vec![("value", aggregate::last(&values)), ("n", n(values.len()))],
            "median" => vec![("value", aggregate::median(&values)), ("n", n(values.len()))],
            "selected_at_k" => {
                let at = repeats::selected_at_k(rows, &rewards, 1);
                vec![("value", at.value), ("n", n(at.tasks))]
            }
            "tasks_where" => {
                let means = task_means(rows, Arm::Base);
                let above = means.iter().filter(|task| task.value > 0.0).count();
                vec![
                    ("value", n(above)),
                    ("share", Ok(above as f64 / means.len() as f64)),
                    ("n", n(means.len())),
                ]
            }
            "iqm" => {
                let (value, cells) = repeats::interquartile_mean(rows);
                vec![("value", value), ("n", n(cells))]
            }
            "probability_of_improvement" => {
                let values = repeats::probability_of_improvement(rows).unwrap();
                let m = aggregate::mean_of_tasks(&values, Weight::Task).unwrap();
                let t = m.t.unwrap();
                vec![
                    ("value", Ok(m.mean)),
                    ("low", Ok(t.low)),
                    ("high", Ok(t.high)),
                    ("n", n(m.tasks)),
                    ("se", m.se),
                    ("df", Ok(m.df)),
                ]
            }
            "group_sd" => {
                let spread = repeats::group_spread(rows);
                vec![("value", spread.sd), ("zero_share", spread.zero_share), ("n", n(spread.cells))]
            }
            "holm" | "benjamini_hochberg" => {
                let p = [e.sign_flip.unwrap().p];
                let adjusted =
                    if id == "holm" { multiple::holm(&p) } else { multiple::benjamini_hochberg(&p) };
                vec![("value", Ok(adjusted[0])), ("n", n(adjusted.len()))]
            }
            "max" => vec![("value", aggregate::max(&values)), ("n", n(values.len()))],
            "paired_delta" => vec![
                ("value", Ok(e.delta)),
                ("low", lead.clone().map(|i| i.low)),
                ("high", lead.map(|i| i.high)),
                ("n", n(e.tasks)),
                ("p", e.sign_flip.map(|s| s.p)),
                ("se", e.se),
                ("df", e.df),
                ("mde", e.mde),
                ("rollout_share", e.rollout_share),
            ],
            "pass_at_k" | "best_at_k" => {
                let kind = if id == "pass_at_k" { Kind::Pass } else { Kind::Best };
                let at = ArmCells::new(rows, Arm::Base).at(kind, 1);
                vec![("value", at.value), ("n", n(at.tasks))]
            }
            "flips" => {
                let f = aggregate::flips(rows);
                vec![
                    ("value", Ok(f.treatment_only as f64 - f.base_only as f64)),
                    ("gained", n(f.treatment_only)),
                    ("lost", n(f.base_only)),
                    ("both", n(f.both)),
                    ("neither", n(f.neither)),
                    ("n", n(f.pairs())),
                ]
            }
            other => panic!("no function computes `{other}`"),
        }
    }

    #[test]
    fn every_estimator_is_computed_and_gives_its_parts() {
        let text = csv("partial_credit");
        let rows = observations(&text);
        for e in ESTIMATORS {
            let given = parts(e.id, &rows);
            assert_eq!(given.iter().map(|p| p.0).collect::<Vec<_>>(), e.parts, "{}", e.id);
            for (part, value) in given {
                assert!(value.is_ok_and(f64::is_finite), "{}.{part}", e.id);
            }
        }
    }

    #[test]
    fn entries_are_complete_and_ids_differ() {
        for (i, e) in ESTIMATORS.iter().enumerate() {
            assert_eq!(find(e.id), Some(e));
            assert!(!e.title.is_empty() && e.formula.len() > 9 && e.source.len() > 5);
            assert_eq!(e.parts.first(), Some(&"value"));
            assert!(ESTIMATORS[..i].iter().all(|other| other.id != e.id));
        }
        assert!(find("mode").is_none());
    }
}
