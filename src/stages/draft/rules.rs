//! What drafts say of a decision and of a gate, by the plan's rule: only the three-way rule looks for
//! a gain, the others ask whether the arms differ by as much as a margin.

use super::wording::Link;
use super::{Change, Ending};
use crate::experiment::{Plan, Rule};
use crate::stats::decision::Outcome;

/// The line under the title, for rules with a margin.
pub(super) fn tagline(plan: &Plan, outcome: Outcome) -> Option<&'static str> {
    Some(match (plan.decision.rule, outcome) {
        (Rule::ThreeWay, _) => return None,
        (Rule::NonInferiority, Outcome::Positive) => "It loses less than was allowed beforehand",
        (Rule::NonInferiority, Outcome::Negative) => "It loses more than was allowed beforehand",
        (Rule::Equivalence, Outcome::Positive) => "The arms differ by less than was set beforehand",
        (Rule::Equivalence, Outcome::Negative) => "The arms differ by more than was set beforehand",
        (_, Outcome::Inconclusive) => "Not enough to say either way",
    })
}

/// The verdict's sentence.
pub(super) fn verdict(plan: &Plan, outcome: Outcome) -> &'static str {
    match (plan.decision.rule, outcome) {
        (Rule::ThreeWay, Outcome::Positive) => "Every leg of the preregistered rule holds: **positive**.",
        (Rule::ThreeWay, Outcome::Negative) => {
            "The interval lies below the smallest gain that counts: **negative**."
        }
        (Rule::ThreeWay, Outcome::Inconclusive) => {
            "The preregistered rule is not met, and a gain that counts is not excluded: **inconclusive**."
        }
        (Rule::NonInferiority, Outcome::Positive) => {
            "The whole interval lies above minus the margin, so the second arm loses less than that: **positive**."
        }
        (Rule::NonInferiority, Outcome::Negative) => {
            "The whole interval lies below minus the margin, so the second arm loses more than that: **negative**."
        }
        (Rule::NonInferiority, Outcome::Inconclusive) => {
            "Neither is shown: that the second arm loses less than the margin, nor that it loses more: **inconclusive**."
        }
        (Rule::Equivalence, Outcome::Positive) => {
            "Both one-sided tests hold, so the arms differ by less than the margin in either direction: **positive**."
        }
        (Rule::Equivalence, Outcome::Negative) => {
            "The whole interval lies beyond the margin, so the arms differ by more than that: **negative**."
        }
        (Rule::Equivalence, Outcome::Inconclusive) => {
            "Neither is shown: that the arms differ by less than the margin, nor that they differ by more: **inconclusive**."
        }
    }
}

/// How a question about a change ends, after what is done to the model.
pub(super) fn does_it(plan: &Plan, better: &'static str) -> &'static str {
    match plan.decision.rule {
        Rule::ThreeWay => better,
        Rule::NonInferiority => {
            "does it then lose less than a margin, set beforehand, on tasks it has not seen?"
        }
        Rule::Equivalence => {
            "does its score on tasks it has not seen stay the same, within a margin that was set beforehand?"
        }
    }
}

/// The question of a comparison of two arms.
pub(super) fn question(plan: &Plan, base: &str, treatment: &str) -> String {
    match plan.decision.rule {
        Rule::ThreeWay => format!(
            "Does “{treatment}” do better than “{base}” on the same tasks, by an amount that was set beforehand?"
        ),
        Rule::NonInferiority => format!(
            "Does “{treatment}” lose less than a margin, set beforehand, against “{base}” on the same tasks?"
        ),
        Rule::Equivalence => format!(
            "Do “{treatment}” and “{base}” score the same on the same tasks, within a margin that was set beforehand?"
        ),
    }
}

/// What the plan's number is.
pub(super) fn bar(plan: &Plan) -> &'static str {
    match plan.decision.rule {
        Rule::ThreeWay => "the smallest gain that counts, set beforehand",
        Rule::NonInferiority | Rule::Equivalence => "the margin, set beforehand",
    }
}

/// How to read the dashed line of a forest.
pub(super) fn dashed(plan: &Plan) -> &'static str {
    match plan.decision.rule {
        Rule::ThreeWay => "Right of the dashed line the gain is large enough to count.",
        Rule::NonInferiority => {
            "The dashed line is minus the margin: right of it the second arm loses less than that."
        }
        Rule::Equivalence => {
            "The dashed line is the margin; minus the margin lies as far on the other side of zero."
        }
    }
}

/// Whether a rule with a margin has shown what a claim says of it. (That a gain is too small to count may rest on an interval that
/// holds zero: such a claim stays proposed.)
pub(super) fn shown(outcome: Outcome, change: Change) -> bool {
    outcome == Outcome::Positive || (outcome == Outcome::Negative && change == Change::Interval)
}

/// What a claim says of `what` (an arm or a training) to `score`, for rules with a margin.
pub(super) fn claim(plan: &Plan, outcome: Outcome, what: &str, score: &str) -> Option<String> {
    let text = match (plan.decision.rule, outcome) {
        (Rule::ThreeWay, _) => return None,
        (Rule::NonInferiority, Outcome::Positive) => {
            format!("{what} does not lower {score} by as much as the margin")
        }
        (Rule::NonInferiority, Outcome::Negative) => {
            format!("{what} lowers {score} by more than the margin")
        }
        (Rule::NonInferiority, Outcome::Inconclusive) => {
            format!("{what} may lower {score} by as much as the margin; this experiment cannot say")
        }
        (Rule::Equivalence, Outcome::Positive) => {
            format!("{what} changes {score} by less than the margin")
        }
        (Rule::Equivalence, Outcome::Negative) => {
            format!("{what} changes {score} by more than the margin")
        }
        (Rule::Equivalence, Outcome::Inconclusive) => {
            format!("{what} may change {score} by as much as the margin; this experiment cannot say")
        }
    };
    Some(text)
}

/// Where `model` has no room for the required gain.
pub(super) fn no_room(plan: &Plan, model: &str) -> String {
    let gate = plan.headroom();
    let over_all = gate.is_some_and(|gate| gate.baseline_ceiling.is_some());
    match (over_all, gate.is_some_and(|gate| gate.cores.is_some())) {
        (true, _) => format!(
            "{model} already scores too near the top, in a core or over all of them, for the plan's gate to see room for the required gain"
        ),
        (false, true) => format!(
            "in at least one core {model} already scores too near the top for the required gain to fit"
        ),
        (false, false) => format!(
            "in at least one family {model} already scores too near the top for the required gain to fit"
        ),
    }
}

/// What the mechanism gate counted.
pub(super) fn killed(plan: &Plan, n: Link) -> String {
    let (reasons, shape) = plan.kill().map_or((String::new(), ""), |gate| {
        let reasons: Vec<String> = gate.among.list().iter().map(|reason| format!("`{reason}`")).collect();
        (reasons.join(" or "), gate.shape.as_str())
    });
    format!(
        "Of {} calibration episodes that ended by {reasons}, {} have the shape `{shape}`, a share of {}; the plan was to stop from {} on.",
        n("kill_among"),
        n("kill_of_shape"),
        n("kill_share"),
        n("kill_at_least")
    )
}

/// The results of an experiment that a gate stopped; `None` for every other ending.
pub(super) fn stopped(plan: &Plan, ending: &Ending, n: Link) -> Option<String> {
    match ending {
        Ending::NoHeadroom => {
            let mut out = format!(
                "The headroom gate stopped the run: on the calibration seeds {}. No evaluation episode was run.\n",
                no_room(plan, "the base arm")
            );
            let cores = cores(plan);
            if !cores.is_empty() {
                out.push_str(
                    "\n| core | baseline | required | largest possible gain |\n| --- | --- | --- | --- |\n",
                );
            }
            for core in cores {
                out.push_str(&format!(
                    "| {core} | {} | {} | {} |\n",
                    n(&format!("core_{core}_baseline")),
                    n(&format!("core_{core}_required")),
                    n(&format!("core_{core}_gain"))
                ));
            }
            Some(out)
        }
        Ending::Killed => Some(format!(
            "The kill gate stopped the run. {} What the treatment works on is then not what ends these episodes, and no evaluation episode was run.\n",
            killed(plan, n)
        )),
        _ => None,
    }
}

/// The cores that a receipt's numbers can be derived of, by name.
fn cores(plan: &Plan) -> Vec<String> {
    let Some(gate) = plan.headroom() else { return Vec::new() };
    let names: Vec<String> = match &gate.cores {
        Some(cores) => cores.keys().cloned().collect(),
        None => plan.families().cloned().collect(),
    };
    // A dot would part the name in the path of a derivation.
    if names.iter().any(|name| name.contains('.')) { Vec::new() } else { names }
}

/// The derivations that the results of a stopped experiment link to.
pub(super) fn derivations(plan: &Plan, ending: &Ending) -> String {
    let value = |id: &str, of: &str, format: &str| {
        format!(
            "[derivations.{id}]\ndata = \"receipts\"\nestimator = \"value\"\nof = \"{of}\"\nformat = \"{format}\"\n\n"
        )
    };
    match ending {
        Ending::NoHeadroom => cores(plan)
            .iter()
            .flat_map(|core| {
                [("baseline", "baseline"), ("required", "required"), ("gain", "possible_gain")].map(
                    |(id, field)| {
                        value(
                            &format!("core_{core}_{id}"),
                            &format!("headroom.cores.{core}.{field}"),
                            "0.0000",
                        )
                    },
                )
            })
            .collect(),
        Ending::Killed => [("among", "0"), ("of_shape", "0"), ("share", "0.00"), ("at_least", "0.00")]
            .map(|(field, format)| value(&format!("kill_{field}"), &format!("kill.{field}"), format))
            .concat(),
        _ => String::new(),
    }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
