//! Every estimator, computed a second time from walked attempts: plain counts over rows and flips here; what is made of
//! tasks in `paired`, what is made of repeated attempts in `repeats`.

use super::cells;
use super::paired;
use super::repeats;
use super::walk::{Attempt, number};
use crate::claims::derivation::{Derivation, Estimator};
use crate::episode::row::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};

/// One recomputed number.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// A number the other road must have too, to rounding.
    Number(f64),
    /// A number both roads estimate by different draws: the other's lies in `low..=high`.
    Within {
        /// This road's estimate.
        value: f64,
        /// Lower Monte-Carlo bound.
        low: f64,
        /// Upper Monte-Carlo bound.
        high: f64,
    },
    /// There is no such number, and why.
    Undefined(String),
}

impl Part {
    /// This road's number, if there is one.
    pub fn get(&self) -> Option<f64> {
        match self {
            Part::Number(value) | Part::Within { value, .. } => Some(*value),
            Part::Undefined(_) => None,
        }
    }
}

/// Recomputed parts by name: `value`, `n`, `low`, ….
pub type Parts = BTreeMap<&'static str, Part>;

/// The parts that an estimator gives.
pub fn part_names(derivation: &Derivation) -> &'static [&'static str] {
    match derivation.estimator {
        Estimator::PairedDelta if derivation.margin.is_some() => &[
            "value",
            "low",
            "high",
            "n",
            "p",
            "se",
            "df",
            "mde",
            "rollout_share",
            "non_inferiority_p",
            "equivalence_p",
        ],
        Estimator::PairedDelta => &["value", "low", "high", "n", "p", "se", "df", "mde", "rollout_share"],
        Estimator::Mean if derivation.data.holds_attempts() => &["value", "low", "high", "n", "se", "df"],
        Estimator::ProbabilityOfImprovement => &["value", "low", "high", "n", "se", "df"],
        Estimator::TasksWhere => &["value", "share", "n"],
        Estimator::GroupSd => &["value", "zero_share", "n"],
        Estimator::Flips => &["value", "gained", "lost", "both", "neither", "n"],
        Estimator::Value => &["value"],
        _ => &["value", "n"],
    }
}

/// Computes a derivation from the attempts of one group. `key_text` names the bootstrap's
/// draws. The error says why the declaration itself cannot be computed.
pub fn compute(derivation: &Derivation, attempts: &[&Attempt], key_text: &str) -> Result<Parts, String> {
    match derivation.estimator {
        Estimator::Mean if derivation.data.holds_attempts() => paired::episode_mean(derivation, attempts),
        Estimator::PairedDelta => paired::paired_delta(derivation, attempts, key_text),
        Estimator::PassAtK | Estimator::BestAtK | Estimator::SelectedAtK => {
            repeats::at_k(derivation, attempts)
        }
        Estimator::GroupSd => repeats::group_sd(attempts),
        Estimator::Iqm => repeats::interquartile_mean(attempts),
        Estimator::TasksWhere => paired::tasks_where(derivation, attempts),
        Estimator::ProbabilityOfImprovement => paired::probability_of_improvement(derivation, attempts),
        Estimator::Flips => flips(derivation, attempts),
        Estimator::Value | Estimator::Holm | Estimator::BenjaminiHochberg => {
            Err("it reads other numbers and no rows".into())
        }
        _ => over_rows(derivation, attempts),
    }
}

/// The value of an attempt as a number, or why it is none.
pub fn number_of(attempt: &Attempt) -> Result<f64, String> {
    number(&attempt.of).ok_or_else(|| format!("`{}` is not a number", attempt.of))
}

fn over_rows(derivation: &Derivation, attempts: &[&Attempt]) -> Result<Parts, String> {
    let n = attempts.len() as f64;
    let none = || Part::Undefined("no row passes the filter".into());
    let mut numbers = Vec::new();
    if !matches!(derivation.estimator, Estimator::Count | Estimator::CountDistinct | Estimator::Share) {
        for attempt in attempts {
            numbers.push(number_of(attempt)?);
        }
    }
    let value = match derivation.estimator {
        Estimator::Count => Part::Number(n),
        Estimator::CountDistinct => {
            let mut seen = HashSet::new();
            for attempt in attempts {
                seen.insert(distinct_key(&attempt.of));
            }
            Part::Number(seen.len() as f64)
        }
        Estimator::Share => {
            let mut hits = 0.0;
            for attempt in attempts {
                hits += f64::from(u8::from(counts(&attempt.of)?));
            }
            if attempts.is_empty() { none() } else { Part::Number(hits / n) }
        }
        _ if numbers.is_empty() => none(),
        Estimator::Sum => Part::Number(numbers.iter().fold(0.0, |sum, x| sum + x)),
        Estimator::Mean => Part::Number(plain_mean(&numbers)),
        Estimator::Min => Part::Number(numbers.iter().copied().fold(f64::INFINITY, f64::min)),
        Estimator::Max => Part::Number(numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
        Estimator::Last => numbers.last().map_or_else(none, |x| Part::Number(*x)),
        Estimator::Median => {
            numbers.sort_by(f64::total_cmp);
            let middle = |at: usize| numbers.get(at).copied().unwrap_or_default();
            let half = numbers.len() / 2;
            let even = numbers.len().is_multiple_of(2);
            Part::Number(if even { (middle(half - 1) + middle(half)) / 2.0 } else { middle(half) })
        }
        other => return Err(format!("{other:?} is not a count over rows")),
    };
    Ok(BTreeMap::from([("value", value), ("n", Part::Number(n))]))
}

/// Whether a row counts for `share`: its flag is set.
fn counts(cell: &Cell) -> Result<bool, String> {
    match cell {
        Cell::Flag(set) => Ok(*set),
        // A null that the policy counts as 0 arrives here as a number.
        Cell::Real(zero) if *zero == 0.0 => Ok(false),
        other => Err(format!("`{other}` is not a flag, and `share` names no value in `is`")),
    }
}

/// What makes two values distinct: their kind and text.
fn distinct_key(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => format!("t{text}"),
        other => format!("{other}"),
    }
}

/// Sum over count, in the order given; the callers pass at least one number.
pub fn plain_mean(numbers: &[f64]) -> f64 {
    let mut sum = 0.0;
    for x in numbers {
        sum += x;
    }
    sum / numbers.len() as f64
}

/// Attempt (task, seed, rollout) → training seed and whether it was solved.
type Solved<'a> = HashMap<(&'a str, i64, i64), Vec<(Option<i64>, bool)>>;

fn flips(derivation: &Derivation, attempts: &[&Attempt]) -> Result<Parts, String> {
    let [base, treatment] = derivation.arms.as_slice() else {
        return Err("flips compare two arms".into());
    };
    let (base, treatment) = (cells::of_arm(attempts, base), cells::of_arm(attempts, treatment));
    let exact = cells::trained(&base) == cells::trained(&treatment);
    let mut before: Solved = HashMap::new();
    for attempt in base {
        let solved = number_of(attempt)? != 0.0;
        let attempts = before.entry((attempt.task, attempt.seed, attempt.rollout)).or_default();
        attempts.push((attempt.train_seed, solved));
    }
    let (mut gained, mut lost, mut both, mut neither) = (0.0, 0.0, 0.0, 0.0);
    for attempt in treatment {
        let after = number_of(attempt)? != 0.0;
        let key = (attempt.task, attempt.seed, attempt.rollout);
        for (train_seed, solved) in before.get(&key).into_iter().flatten() {
            if exact && *train_seed != attempt.train_seed {
                continue;
            }
            match (*solved, after) {
                (false, true) => gained += 1.0,
                (true, false) => lost += 1.0,
                (true, true) => both += 1.0,
                (false, false) => neither += 1.0,
            }
        }
    }
    let n = gained + lost + both + neither;
    let value = if n == 0.0 {
        Part::Undefined("the arms share no attempt".into())
    } else {
        Part::Number(gained - lost)
    };
    Ok(BTreeMap::from([
        ("value", value),
        ("gained", Part::Number(gained)),
        ("lost", Part::Number(lost)),
        ("both", Part::Number(both)),
        ("neither", Part::Number(neither)),
        ("n", Part::Number(n)),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::tests::golden;

    fn derive(text: &str, attempts: &[Attempt]) -> Parts {
        let derivation: Derivation = toml::from_str(&format!("data = \"episodes\"\n{text}")).unwrap();
        let attempts: Vec<&Attempt> = attempts
            .iter()
            .filter(|a| derivation.arms.is_empty() || derivation.arms.iter().any(|arm| arm == a.arm))
            .collect();
        compute(&derivation, &attempts, "x/y").unwrap()
    }

    fn get(parts: &Parts, part: &str) -> f64 {
        parts[part].get().unwrap_or(f64::NAN)
    }

    #[test]
    fn at_k_matches_the_reference() {
        let reference = golden::json("stats/golden.json");
        for (name, set) in reference["datasets"].as_object().unwrap() {
            for arm in ["base", "treatment"] {
                for k in [1, 2, 4] {
                    for (estimator, of, field) in [
                        ("pass_at_k", "solved", "pass_at_k_per_seed"),
                        ("best_at_k", "reward", "best_at_k_reward_per_seed"),
                    ] {
                        let attempts = golden::attempts(set["csv"].as_str().unwrap(), of);
                        let parts = derive(
                            &format!("estimator = \"{estimator}\"\narms = [\"{arm}\"]\nk = {k}"),
                            &attempts,
                        );
                        let want = &set["arm"][arm][field][k.to_string()];
                        golden::near(get(&parts, "value"), want, 1e-12, &format!("{name} {arm} {field} {k}"));
                    }
                }
            }
        }
    }

    #[test]
    fn counts_and_shares_match_the_reference() {
        let reference = golden::json("stats/golden.json");
        for (name, set) in reference["datasets"].as_object().unwrap() {
            let attempts = golden::attempts(set["csv"].as_str().unwrap(), "solved");
            let flag =
                |a: &Attempt<'static>| Attempt { of: Cell::Flag(a.of.number() == Some(1.0)), ..a.clone() };
            let flags: Vec<Attempt> = attempts.iter().map(flag).collect();
            for arm in ["base", "treatment"] {
                let want = &set["arm"][arm];
                let share =
                    derive(&format!("estimator = \"share\"\nof = \"solved\"\narms = [\"{arm}\"]"), &flags);
                golden::near(get(&share, "value"), &want["solved_rate_episode_pooled"], 1e-12, name);
                let sum =
                    derive(&format!("estimator = \"sum\"\nof = \"solved\"\narms = [\"{arm}\"]"), &attempts);
                golden::near(get(&sum, "value"), &want["solved_count"], 1e-12, name);
            }
        }
    }

    #[test]
    fn flips_match_the_reference_table() {
        let reference = golden::json("stats/golden.json");
        for (name, set) in reference["datasets"].as_object().unwrap() {
            let table = &set["mcnemar_episode_pairs"];
            let attempts = golden::attempts(set["csv"].as_str().unwrap(), "solved");
            let parts = derive("estimator = \"flips\"\narms = [\"base\", \"treatment\"]", &attempts);
            for (part, field) in [
                ("gained", "treatment_only"),
                ("lost", "base_only"),
                ("both", "both_solved"),
                ("neither", "neither"),
            ] {
                golden::near(get(&parts, part), &table[field], 0.0, &format!("{name} {part}"));
            }
        }
    }

    #[test]
    fn smallest_largest_last_and_distinct() {
        let attempts = golden::attempts("partial_credit.csv", "reward");
        let of = |estimator: &str| {
            get(&derive(&format!("estimator = \"{estimator}\"\nof = \"reward\""), &attempts), "value")
        };
        let rewards: Vec<f64> = attempts.iter().map(|a| number(&a.of).unwrap()).collect();
        assert_eq!(of("max"), 1.0);
        assert_eq!(of("min"), 0.0);
        assert_eq!(of("last"), *rewards.last().unwrap());
        assert_eq!(of("count"), 480.0);
        let mut bits: Vec<u64> = rewards.iter().map(|r| r.to_bits()).collect();
        bits.sort_unstable();
        bits.dedup();
        assert_eq!(of("count_distinct"), bits.len() as f64);
    }
}
