//! The estimators that a derivation may name: identity, formula, source, what they read and the
//! parts they give, in one list from which the method pages are made. How rows are chosen for
//! them is the derivation's business; the numbers come from the functions of this module.

use serde::Serialize;

/// One estimator's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Estimator {
    /// The name used in `estimator = "…"`.
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
                  se = √(Σ variance_f / n_f) / F and df = G − F.",
        source: "Clustered standard errors: Liang and Zeger (1986); for model evaluations: Miller (2024).",
        needs: &["of", "arm"],
        parts: &["value", "low", "high", "n", "se", "df"],
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
        formula: "the number of different values of a column, nulls left out",
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
                  the mean of cell means over the (seed, train_seed) that both arms have. low, high: expanded percentile \
                  bootstrap of whole tasks or clusters at Φ(−√(n/(n−1)) · t(.975, n−1)), B = 10,000; below 10 units \
                  value ± t(.975, df) · se instead. mde: (z(.975) + z(.80)) · se, found with 80% power \
                  at level .05. p: sign-flip test, P(|Σ ±d| ≥ |Σ d|) over all signs of the unit differences d; exact on a \
                  lattice or by enumeration, else 10,000 random flips with the +1 correction.",
        source: "Hesterberg (2015) for the interval; Fisher (1935) for the test; Bloom (1995) for the smallest detectable \
                 difference.",
        needs: &["of", "arms"],
        parts: &["value", "low", "high", "n", "p", "se", "df", "mde"],
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
    use crate::stats::aggregate::{self, Nulls};
    use crate::stats::at_k::{ArmCells, Kind};
    use crate::stats::fixtures::{csv, observations};
    use crate::stats::{Arm, Observation, Options, Paired, Value, Weight, estimate};

    /// The parts of one estimator, computed by the functions of this module.
    fn parts(id: &str, rows: &[Observation<'_>]) -> Vec<(&'static str, Value)> {
        let n = |count: usize| Ok(count as f64);
        let rewards: Vec<Option<f64>> = rows.iter().map(|o| o.reward).collect();
        let values = aggregate::present(&rewards, Nulls::Refuse).unwrap();
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
        let text = csv("tiny_n5");
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
        assert!(find("median").is_none());
    }
}
