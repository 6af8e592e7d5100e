//! What a claim that is held stands on. Only which numbers have to bear it out, and of what kind each is, is settled
//! here; whether they do is for `claims check` and the audit, each from its own numbers.

use super::derivation::{DataSet, Derivation, Estimator, Reference};
use super::ledger::{Change, Claim, Status};
use crate::episode::row::Cell;
use std::collections::BTreeSet;

/// What kind of ground a number is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ground {
    /// A change between two arms.
    Change,
    /// A chance that one arm beats another, which is a half where they are alike.
    Chance,
    /// A comparison whose attempts were picked by this column: by what came out, or task by task.
    Picked(String),
    /// What these arms did, without a comparison.
    Arms(BTreeSet<String>),
    /// What a decision's receipt states of a comparison.
    Stated,
    /// What the plan fixes, or a fact from elsewhere: nothing that was measured here.
    NotMeasured,
    /// Anything else that was measured.
    Measured,
}

/// Columns that say which attempts there are, and nothing of how they came out; any other one picks.
const GIVEN: [&str; 13] = [
    "arm",
    "environment",
    "event",
    "family",
    "level",
    "rollout",
    "scaffold",
    "seed",
    "split",
    "stratum",
    "tier",
    "train_seed",
    "turn",
];
/// Parts that say how an arm or a comparison came out; others count what went into it.
const COUNTS: [&str; 2] = ["n", "df"];

impl Ground {
    /// The kind of a number by its declaration.
    pub fn of(derivation: &Derivation, reference: &Reference) -> Ground {
        let counts = COUNTS.contains(&reference.part.as_str());
        match (derivation.data, derivation.estimator) {
            (DataSet::Plan | DataSet::Facts, _) => Ground::NotMeasured,
            (DataSet::Receipts, _) => match derivation.of.as_deref() {
                Some(of) if of.starts_with("decision.decision.") => Ground::Stated,
                _ => Ground::Measured,
            },
            (_, Estimator::PairedDelta | Estimator::ProbabilityOfImprovement) if !counts => {
                let picks = derivation.filter.keys().find(|column| !GIVEN.contains(&column.as_str()));
                match picks {
                    Some(column) => Ground::Picked(column.clone()),
                    None if derivation.estimator == Estimator::PairedDelta => Ground::Change,
                    None => Ground::Chance,
                }
            }
            _ => Ground::Arms(arms(derivation, reference)),
        }
    }
}

/// The arms whose attempts a number is worked out from, as far as its declaration names any.
fn arms(derivation: &Derivation, reference: &Reference) -> BTreeSet<String> {
    if !derivation.arms.is_empty() {
        return derivation.arms.iter().cloned().collect();
    }
    let filtered = derivation.filter.get("arm").into_iter().flat_map(|accepts| accepts.values());
    let named = filtered.filter_map(|cell| match cell {
        Cell::Text(arm) => Some(arm.to_string()),
        _ => None,
    });
    let by_arm = derivation.by.as_deref() == Some("arm");
    named.chain(reference.row.clone().filter(|_| by_arm)).collect()
}

/// The evidence that has to bear out the status that a claim has.
pub struct Evidence<'a> {
    /// All of it; or, where the last change raised the claim from one held status to another, what came with it.
    pub bears: Vec<&'a Reference>,
    /// What earlier entries name, where the claim was raised: none of it, under any name, bears it out again.
    pub known: Vec<&'a Reference>,
}

impl<'a> Evidence<'a> {
    /// The evidence of a claim.
    pub fn of(claim: &'a Claim) -> Evidence<'a> {
        let held = |status| matches!(status, Status::Promising | Status::Confirmed);
        let raised = claim.history.windows(2).rposition(|pair| {
            held(pair[0].status) && held(pair[1].status) && pair[0].status != pair[1].status
        });
        let at = raised.filter(|at| claim.history[at + 1].status == claim.status).map_or(0, |at| at + 1);
        let (before, after) = claim.history.split_at(at);
        let of = |changes: &'a [Change]| changes.iter().flat_map(|change| &change.evidence).collect();
        Evidence { bears: of(after), known: of(before) }
    }
}

/// The column that a comparison is of.
pub fn column(derivation: &Derivation) -> &str {
    derivation.of.as_deref().unwrap_or("reward")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ground(declared: &str, reference: &str) -> Ground {
        let derivation: Derivation = toml::from_str(declared).unwrap();
        Ground::of(&derivation, &Reference::parse(reference).unwrap())
    }

    #[test]
    fn each_number_is_a_ground_of_its_kind() {
        let arms = |names: &[&str]| Ground::Arms(names.iter().map(ToString::to_string).collect());
        let paired = "data = \"episodes\"\nestimator = \"paired_delta\"\narms = [\"base\", \"treatment\"]\n";
        assert_eq!(ground(paired, "demo.delta.low"), Ground::Change);
        assert_eq!(ground(paired, "demo.delta.n"), arms(&["base", "treatment"]));
        for (filter, column) in [("task_id = [\"a\", \"b\"]", "task_id"), ("solved = true", "solved")] {
            let picked = ground(&format!("{paired}where = {{ {filter} }}"), "demo.delta");
            assert_eq!(picked, Ground::Picked(column.into()));
        }
        assert_eq!(
            ground(&format!("{paired}where = {{ family = \"a\", seed = 3 }}"), "demo.delta"),
            Ground::Change
        );
        assert_eq!(
            ground(&paired.replace("paired_delta", "probability_of_improvement"), "demo.p"),
            Ground::Chance
        );
        for (declared, reference, wanted) in [
            ("estimator = \"iqm\"\narms = [\"base\"]", "demo.a", arms(&["base"])),
            ("estimator = \"mean\"\nwhere = { arm = \"base\" }", "demo.a", arms(&["base"])),
            ("estimator = \"mean\"\nby = \"arm\"", "demo.a/treatment", arms(&["treatment"])),
            ("estimator = \"count\"", "demo.a", arms(&[])),
        ] {
            assert_eq!(ground(&format!("data = \"episodes\"\n{declared}"), reference), wanted, "{declared}");
        }
        for (data, of, wanted) in [
            ("receipts", "decision.decision.delta", Ground::Stated),
            ("receipts", "headroom.baseline", Ground::Measured),
            ("plan", "decision.minimum_delta", Ground::NotMeasured),
            ("facts", "human", Ground::NotMeasured),
        ] {
            let declared = format!("data = \"{data}\"\nestimator = \"value\"\nof = \"{of}\"");
            assert_eq!(ground(&declared, "demo.a"), wanted, "{of}");
        }
    }
}
