//! What drafts say of an experiment that trains nothing here: two arms that were there before answer the same tasks. Nothing is
//! said of a harvest, of training, or of what the arms learned from.

use super::wording::{Card, Link, change_card, changed, decoding, remark, score, unreadable_card};
use super::{Change, Ending, rules};
use crate::experiment::{Deploy, Plan};
use crate::stages::Experiment;
use crate::stats::decision::Outcome;

/// Whether an experiment's plan compares what is there instead of training it.
pub(super) fn is_one(plan: &Plan) -> bool {
    plan.seeds.harvest.is_empty()
}

/// The names of both arms, the base first.
fn arms(plan: &Plan) -> (&str, &str) {
    (&plan.arms[0].name, &plan.arms[1].name)
}

/// The line under the title.
pub(super) fn tagline(plan: &Plan, ending: &Ending) -> &'static str {
    if let Ending::Decided { outcome, .. } = ending
        && let Some(line) = rules::tagline(plan, *outcome)
    {
        return line;
    }
    match ending {
        Ending::Planned => "Planned; nothing has run yet",
        Ending::Underway => "Under way; nothing is decided yet",
        Ending::Starved(_) | Ending::Unchanged => "Both arms give the same answers",
        Ending::NoHeadroom => "The plan asked for more than the scale has left",
        Ending::Killed => "Stopped by a gate of its own plan",
        Ending::Decided { outcome: Outcome::Positive, .. } => "The second arm does better on the same tasks",
        Ending::Decided { outcome: Outcome::Negative, .. } => "The second arm gains nothing that counts",
        Ending::Decided { outcome: Outcome::Inconclusive, .. } => "Not enough to say either way",
    }
}

/// The plain-language block: key and text.
pub(super) fn plain(experiment: &Experiment, ending: &Ending, n: Link) -> [(&'static str, String); 4] {
    let (base, treatment) = arms(&experiment.plan);
    let found = match ending {
        Ending::Planned => "Nothing yet: the plan is written and waits to be run.".to_string(),
        Ending::Underway => "Nothing yet: the arms are running, and the rule is applied at their end.".to_string(),
        Ending::Starved(_) | Ending::Unchanged => "Nothing about the tasks: both arms give the same answer to every canary prompt, so there was nothing to compare.".to_string(),
        Ending::NoHeadroom => format!("Nothing about the arms: {}.", rules::no_room(&experiment.plan, "the first")),
        Ending::Killed => format!("Nothing about the arms. {}", rules::killed(&experiment.plan, n)),
        Ending::Decided { outcome, change } => {
            let lead = match outcome {
                Outcome::Positive => "Yes, on these tasks.",
                Outcome::Negative => "No.",
                Outcome::Inconclusive => "It cannot be said.",
            };
            format!("{lead} The score went from {} to {}{}.{}", n("base"), n("treatment"), changed(*change, n), remark(*change))
        }
    };
    [
        ("idea", "Two arms that answer the very same tasks are told apart by their differences on single tasks, which takes fewer tasks than two averages would.".into()),
        ("question", rules::question(&experiment.plan, base, treatment)),
        ("found", found),
        ("matters", "The plan says in what the arms differ; tasks, prompts and decoding are the same for both. A change in score belongs to that difference, and to these tasks.".into()),
    ]
}

/// Headline cards.
pub(super) fn cards(experiment: &Experiment, ending: &Ending, n: Link) -> Vec<Card> {
    if ending.is_stopped() {
        return Vec::new();
    }
    let (base, treatment) = arms(&experiment.plan);
    let note = format!("{} of {base} and of {treatment}, from zero to one", score(&experiment.plan));
    vec![
        ("Score, first arm and second".into(), format!("{} → {}", n("base"), n("treatment")), note),
        change_card(&experiment.plan, n),
        unreadable_card(n),
    ]
}

/// How to read the figure of single tasks.
pub(super) fn slope(plan: &Plan) -> String {
    let (base, treatment) = arms(plan);
    format!(
        "Each line joins one task's score under {base}, left, and {treatment}, right. Tasks with the same two scores share a line; its width and label say how many."
    )
}

/// The report's body.
pub(super) fn body(experiment: &Experiment, ending: &Ending, n: Link) -> String {
    let plan = &experiment.plan;
    let (base, treatment) = arms(plan);
    let prompt = match plan.harness.evaluate.examples {
        0 => "with the bare prompt",
        _ => "with worked examples in front as chat turns",
    };
    let installed = match (&plan.arms[1].adapter, plan.arms[1].deploy) {
        (None, _) => "",
        (Some(_), Deploy::Live) => {
            " Its adapter was made elsewhere and is applied live to the weights of the other arm."
        }
        (Some(_), Deploy::Merged) => {
            " Its adapter was made elsewhere and is merged into the weights of the other arm."
        }
    };
    let mut out = format!(
        "\n## Question\n\n{}\n\n## Method\n\nArm `{treatment}` is compared with arm `{base}`.{installed} Both answer the same tasks {prompt}, {}. A verifier that needs no model scores every answer. The harness is part of each arm's identity: the change is a change in that harness.\n\n## Results\n\n",
        plan.title,
        decoding(plan)
    );
    match ending {
        Ending::Planned | Ending::Underway => out.push_str("Pending.\n"),
        Ending::Starved(_) | Ending::Unchanged => out.push_str("Inconclusive: both arms give the same answer to every canary prompt. The installation gate then closed the experiment before any evaluation seed was spent.\n"),
        Ending::NoHeadroom | Ending::Killed => {
            out.push_str(&rules::stopped(plan, ending, n).unwrap_or_default());
        }
        Ending::Decided { outcome, change } => {
            let verdict = rules::verdict(plan, *outcome);
            out.push_str(&format!(
                "On {} paired tasks the {} went from {} to {}{}. Replies without a readable answer went from {} to {} of all. {verdict}{}\n",
                n("delta.n"),
                score(plan),
                n("base"),
                n("treatment"),
                changed(*change, n),
                n("base_unreadable"),
                n("treatment_unreadable"),
                remark(*change)
            ));
            if *outcome != Outcome::Positive && matches!(change, Change::Few | Change::Interval) {
                out.push_str(&format!(
                    "\nWith this many tasks the smallest change that would be found four times in five is {}. A change below that can hide in this experiment.\n",
                    n("delta.mde")
                ));
            }
        }
    }
    out.push_str("\n## Limits\n\nThe result speaks of these two arms in this harness, on tasks like these. What an arm learned from is not part of this experiment: whether it has seen such tasks before is for the reader of its own publication to judge.\n");
    out
}

/// The log's entry on how it ended.
pub(super) fn log_ended(ending: &Ending) -> Option<String> {
    match ending {
        Ending::Planned | Ending::Underway => None,
        Ending::Starved(_) | Ending::Unchanged => {
            Some("Both arms answered every canary alike, and nothing was evaluated.".into())
        }
        Ending::NoHeadroom => Some("The headroom gate refused the evaluation.".into()),
        Ending::Killed => Some("The kill gate stopped the experiment before the second arm ran.".into()),
        Ending::Decided { outcome, .. } => Some(format!(
            "Both arms were evaluated. By the rule written down beforehand the outcome is {}.",
            outcome.as_str()
        )),
    }
}

/// Title and status of the claim that an outcome supports.
pub(super) fn claim(plan: &Plan, outcome: Outcome, change: Change) -> (String, &'static str) {
    let (base, treatment) = arms(plan);
    let shown = rules::shown(outcome, change);
    let what = format!("On these tasks {treatment} in place of {base}");
    if let Some(title) = rules::claim(plan, outcome, &what, "the score") {
        return (title, if shown { "promising" } else { "proposed" });
    }
    match outcome {
        Outcome::Positive => (format!("On these tasks {treatment} scores higher than {base}"), "promising"),
        Outcome::Negative => (
            format!("On these tasks {treatment} does not score higher than {base} by an amount that counts"),
            "proposed",
        ),
        Outcome::Inconclusive => (
            format!("On these tasks {treatment} may score higher than {base}; this experiment cannot say"),
            "proposed",
        ),
    }
}

/// The claim's argument.
pub(super) fn argument(experiment: &Experiment, change: Change, n: Link) -> String {
    format!(
        "The {} went from {} to {}{}, over {} tasks that both arms answered.{}\nThe claim is about these two arms and tasks like these; it says nothing about how either was made.\n",
        score(&experiment.plan),
        n("base"),
        n("treatment"),
        changed(change, n),
        n("delta.n"),
        remark(change)
    )
}
