//! What drafted reports, logs and claims say, in sentences. Every number in them is an empty link.

use super::{Change, Ending, comparison, rules};
use crate::claims::derivation::Weight;
use crate::experiment::{Deploy, Plan};
use crate::stages::Experiment;
use crate::stats::decision::Outcome;

/// Makes the empty link to one of the experiment's derivations.
pub(super) type Link<'a> = &'a dyn Fn(&str) -> String;

/// What a task's score is, in the plan's metric.
pub(super) fn score(plan: &Plan) -> &'static str {
    if plan.decision.metric.of == "solved" { "share of solved attempts" } else { "mean reward" }
}

/// In what both arms are evaluated.
fn prompt(plan: &Plan) -> &'static str {
    if plan.harness.evaluate.examples > 0 { "worked examples in front" } else { "bare prompt" }
}

/// How both arms draw their answers.
pub(super) fn decoding(plan: &Plan) -> &'static str {
    if plan.harness.evaluate.temperature > 0.0 { "drawing at random" } else { "greedily" }
}

/// The pooled change and its interval, or what stands in for them, after two scores.
pub(super) fn changed(change: Change, n: Link) -> String {
    match change {
        Change::Undefined => ", and no task was answered by both arms".into(),
        Change::Nothing | Change::Point => format!(", a change of {}", n("delta")),
        Change::Few | Change::Interval => {
            format!(", a change of {} (interval {} to {})", n("delta"), n("delta.low"), n("delta.high"))
        }
    }
}

/// Stands beside a verdict that rests on little.
pub(super) fn remark(change: Change) -> &'static str {
    match change {
        Change::Undefined | Change::Interval => "",
        Change::Nothing => " Not one task's score moved, so there is nothing to draw an interval from.",
        Change::Point => " The tasks do not differ enough, or are too few, for an interval.",
        Change::Few => {
            " Very few tasks moved at all, too few for an interval of this kind to be trusted, so the verdict rests on little."
        }
    }
}

/// The line under the title.
pub(super) fn tagline(plan: &Plan, ending: &Ending) -> &'static str {
    if comparison::is_one(plan) {
        return comparison::tagline(plan, ending);
    }
    if let Ending::Decided { outcome, .. } = ending
        && let Some(line) = rules::tagline(plan, *outcome)
    {
        return line;
    }
    match ending {
        Ending::Planned => "Planned; nothing has run yet",
        Ending::Underway => "Under way; nothing is decided yet",
        Ending::Starved(_) => "The model solved too little of its own homework to learn from",
        Ending::Unchanged => "The lessons left no trace in the answers",
        Ending::NoHeadroom => "The plan asked for more than the scale has left",
        Ending::Killed => "Stopped by a gate of its own plan",
        Ending::Decided { outcome: Outcome::Positive, .. } => {
            "It had the answers, and did not write them down"
        }
        Ending::Decided { outcome: Outcome::Negative, .. } => "Its own answers taught it nothing that counts",
        Ending::Decided { outcome: Outcome::Inconclusive, .. } => "Not enough to say either way",
    }
}

/// The plain-language block: key and text.
pub(super) fn plain(experiment: &Experiment, ending: &Ending, n: Link) -> [(&'static str, String); 4] {
    if comparison::is_one(&experiment.plan) {
        return comparison::plain(experiment, ending, n);
    }
    let shown = experiment.plan.harness.harvest.examples > 0;
    let found = match ending {
        Ending::Planned => "Nothing yet: the plan is written and waits to be run.".to_string(),
        Ending::Underway => "Nothing yet: the stages are running, and the rule is applied at their end.".to_string(),
        Ending::Starved(_) => format!(
            "Nothing about training. Of {} samples only {} could be kept, from {} families, and the plan asked for {} from {}.",
            n("samples"), n("kept"), n("kept_families"), n("required_rows"), n("required_families")
        ),
        Ending::Unchanged => "Nothing about the tasks: with and without the adapter the model gives the same answer to every canary prompt, so there was nothing to compare.".to_string(),
        Ending::NoHeadroom => format!("Nothing about training: {}.", rules::no_room(&experiment.plan, "the untrained model")),
        Ending::Killed => format!("Nothing about training. {}", rules::killed(&experiment.plan, n)),
        Ending::Decided { outcome, change } => {
            let lead = match outcome {
                Outcome::Positive => "Yes, for this adapter.",
                Outcome::Negative => "No.",
                Outcome::Inconclusive => "It cannot be said.",
            };
            format!(
                "{lead} On tasks that neither arm had seen, the score went from {} to {}{}; on the family kept out of training the change was {}.{}",
                n("base"), n("treatment"), changed(*change, n), n("delta_held_out"), remark(*change)
            )
        }
    };
    [
        ("idea", if shown { "A model that is shown how to answer can often do what it fails to do unprompted. Its own correct answers, once checked, can serve as lessons." } else { "A model that answers the same task several times is sometimes right. Its own correct answers, once checked, can serve as lessons." }.into()),
        ("question", if shown {
            let better = "does it do better when nobody shows it anything?";
            format!("If a small model is trained on answers it gave itself while it was being shown examples, {}", rules::does_it(&experiment.plan, better))
        } else {
            let better = "does it do better on tasks it has not seen?";
            format!("If a small model is trained on those of its own answers that a verifier accepted, {}", rules::does_it(&experiment.plan, better))
        }),
        ("found", found),
        ("matters", "A score mixes what a model can work out with whether it hands the result in. Lessons from its own verified work can repair the second without teaching the first, and the difference shows in which answers could be read at all.".into()),
    ]
}

/// A headline card: label, value and note.
pub(super) type Card = (String, String, String);

/// The card of the pooled change.
pub(super) fn change_card(plan: &Plan, n: Link) -> Card {
    let bar = format!("{}: {}", rules::bar(plan), n("bar"));
    ("Change on the same tasks".into(), n("delta"), bar)
}

/// The card of what no answer could be read from.
pub(super) fn unreadable_card(n: Link) -> Card {
    let shares = format!("{} → {}", n("base_unreadable"), n("treatment_unreadable"));
    ("Replies without a readable answer".into(), shares, "share of all episodes".into())
}

/// Headline cards.
pub(super) fn cards(experiment: &Experiment, ending: &Ending, n: Link) -> Vec<Card> {
    if comparison::is_one(&experiment.plan) {
        return comparison::cards(experiment, ending, n);
    }
    let card = |label: &str, value: String, note: String| (label.to_string(), value, note);
    let harvest = card(
        "Own answers kept for training",
        format!("{} of {}", n("kept"), n("samples")),
        format!("from {} families, each checked by a verifier", n("kept_families")),
    );
    match ending {
        Ending::Decided { .. } | Ending::Planned | Ending::Underway => vec![
            card(
                &format!("Score on unseen tasks, {}", prompt(&experiment.plan)),
                format!("{} → {}", n("base"), n("treatment")),
                format!("{}, from zero to one", score(&experiment.plan)),
            ),
            change_card(&experiment.plan, n),
            card(
                "Change in the family kept out of training",
                n("delta_held_out"),
                format!("trained families: {}", n("delta_trained")),
            ),
            unreadable_card(n),
        ],
        Ending::Starved(_) | Ending::Unchanged | Ending::NoHeadroom | Ending::Killed => vec![harvest],
    }
}

/// The texts of the figure of paired changes.
pub(super) fn forest(experiment: &Experiment, ending: &Ending, n: Link) -> [(&'static str, String); 4] {
    let takeaway = match ending {
        Ending::Decided { change: Change::Undefined, .. } => "No task was answered by both arms.".to_string(),
        Ending::Decided { change: change @ (Change::Nothing | Change::Point), .. } => {
            format!("Over all tasks the score changed by {}.{}", n("delta"), remark(*change))
        }
        _ => format!(
            "Over all tasks the score changed by {}, interval {} to {}.",
            n("delta"),
            n("delta.low"),
            n("delta.high")
        ),
    };
    [
        ("title", "Change in score, by family and by event".into()),
        (
            "how_to_read",
            format!(
                "One row is one family or one event: both arms answer the same fresh tasks. The mark is treatment minus base, the line its interval. {} The diamond takes all tasks together.",
                rules::dashed(&experiment.plan)
            ),
        ),
        ("takeaway", takeaway),
        (
            "technical",
            format!(
                "Estimand: the mean over shared tasks of treatment minus base, {}. Intervals are expanded-percentile paired bootstraps over tasks, t below ten tasks. {}",
                match experiment.plan.decision.metric.weight {
                    Weight::Task => "each task weighing the same",
                    Weight::Family => "each family weighing the same",
                },
                if comparison::is_one(&experiment.plan) {
                    "They speak of these arms as they are."
                } else {
                    "One training seed: they speak of this adapter, not of the recipe."
                }
            ),
        ),
    ]
}

/// The texts of the figure of single tasks.
pub(super) fn slope(experiment: &Experiment, n: Link) -> [(&'static str, String); 4] {
    let compared = comparison::is_one(&experiment.plan);
    [
        (
            "title",
            if compared { "Every task, under either arm" } else { "Every task, before and after" }.into(),
        ),
        (
            "how_to_read",
            if compared {
                comparison::slope(&experiment.plan)
            } else {
                "Each line joins one task's score under the base model, left, and after training, right. Tasks with the same two scores share a line; its width and label say how many.".into()
            },
        ),
        (
            "takeaway",
            format!(
                "{} attempts went from unsolved to solved, {} the other way.",
                n("flips.gained"),
                n("flips.lost")
            ),
        ),
        (
            "technical",
            format!(
                "Both arms answer {}; a task's score is the {} of its attempts. Tasks are made by their event seed, so no task appears twice.",
                decoding(&experiment.plan),
                score(&experiment.plan)
            ),
        ),
    ]
}

/// The report's body.
pub(super) fn body(experiment: &Experiment, ending: &Ending, n: Link) -> String {
    let plan = &experiment.plan;
    if comparison::is_one(plan) {
        return comparison::body(experiment, ending, n);
    }
    let harness = match (plan.harness.harvest.examples, plan.harness.evaluate.examples) {
        (0, 0) => "Harvest, training and evaluation all use the bare prompt.",
        (_, 0) => {
            "The harvest puts worked examples in front of each task as chat turns; training and evaluation use the bare prompt. With the bare prompt this model seldom writes an answer line, so there would be nothing to harvest."
        }
        (0, _) => {
            "Harvest and training use the bare prompt; evaluation puts worked examples in front of each task."
        }
        _ => {
            "Harvest and evaluation put worked examples in front of each task as chat turns; training uses the bare prompt."
        }
    };
    let installed = match plan.arms[1].deploy {
        Deploy::Merged => "merged into the very weights that the base arm runs on",
        Deploy::Live => "applied live to the very weights that the base arm runs on",
    };
    let decoding = decoding(plan);
    let identity = "The harness is part of each arm's identity: base and treatment are evaluated in the same one, and the change is a change in that harness.";
    let mut out = format!(
        "\n## Question\n\n{}\n\n## Method\n\nThe base model answers tasks of the training families several times each. A verifier that needs no model accepts or rejects every sample; accepted, terse ones become training rows, with caps by task and by family, and families with few possible answers need several correct samples of one task before any counts. One low-rank adapter is trained on them and {installed}. Both arms then answer the same fresh tasks, {decoding}.\n\n{harness} {identity}\n\n## Results\n\n",
        plan.title
    );
    match ending {
        Ending::Planned | Ending::Underway => out.push_str("Pending.\n"),
        Ending::Starved(_) => out.push_str(&format!(
            "Inconclusive: starved. {} samples were drawn and {} kept, from {} families; the plan required {} from {}. The experiment stopped before training, so nothing here speaks for or against it.\n",
            n("samples"), n("kept"), n("kept_families"), n("required_rows"), n("required_families")
        )),
        Ending::Unchanged => out.push_str(&format!(
            "Inconclusive: the adapter changes nothing. The harvest kept {} of {} samples, from {} families, and an adapter was trained on them; merged into the weights it leaves the answer to every canary prompt as it was. The installation gate then closed the experiment before any evaluation seed was spent.\n",
            n("kept"), n("samples"), n("kept_families")
        )),
        Ending::NoHeadroom | Ending::Killed => {
            out.push_str(&rules::stopped(plan, ending, n).unwrap_or_default());
        }
        Ending::Decided { outcome, change } => out.push_str(&decided(plan, *outcome, *change, n)),
    }
    out.push_str("\n## Limits\n\nOne training seed: the result speaks of this adapter, not of the recipe. The tasks are invented and small, and the family kept out of training is a near neighbour of those in it.\n");
    out
}

fn decided(plan: &Plan, outcome: Outcome, change: Change, n: Link) -> String {
    let verdict = rules::verdict(plan, outcome);
    let (moved, remark, score) = (changed(change, n), remark(change), score(plan));
    let mut out = format!(
        "The harvest kept {} of {} samples, from {} families. Training took {} steps over {} tokens; the loss went from {} to {}. All {} weight deltas found their place in the merged checkpoint, and {} of {} canary prompts changed under it.\n\nOn {} paired tasks the {score} went from {} to {}{moved}. In trained families the change was {}, in the one kept out {}. Replies without a readable answer went from {} to {} of all. {verdict}{remark}\n",
        n("kept"),
        n("samples"),
        n("kept_families"),
        n("steps"),
        n("trained_tokens"),
        n("first_loss"),
        n("last_loss"),
        n("matched"),
        n("canaries_changed"),
        n("canaries"),
        n("delta.n"),
        n("base"),
        n("treatment"),
        n("delta_trained"),
        n("delta_held_out"),
        n("base_unreadable"),
        n("treatment_unreadable")
    );
    if outcome != Outcome::Positive && matches!(change, Change::Few | Change::Interval) {
        out.push_str(&format!(
            "\nWith this many tasks the smallest change that would be found four times in five is {}. A change below that can hide in this experiment; more tasks, rather than more attempts at each, would narrow the interval.\n",
            n("delta.mde")
        ));
    }
    out
}

/// The log's first entry, when the plan was written.
pub(super) fn log_planned(date: &str) -> String {
    format!("## {date} — plan written\n\nNothing has run yet.\n")
}

/// The log's entry on how it ended; `None` while it has not.
pub(super) fn log_ended(plan: &Plan, ending: &Ending, date: &str) -> Option<String> {
    let entry = match ending {
        Ending::Planned | Ending::Underway => return None,
        _ if comparison::is_one(plan) => comparison::log_ended(ending)?,
        Ending::Starved(why) => format!("Harvested and stopped: {}. Nothing was trained.", words(why)),
        Ending::Unchanged => {
            "Harvested, trained and merged; the adapter changed no canary, and nothing was evaluated.".into()
        }
        Ending::NoHeadroom => {
            "Harvested, trained and merged; the headroom gate then refused the evaluation.".to_string()
        }
        Ending::Killed => {
            "Harvested, trained and merged; the kill gate then stopped the experiment before the treatment ran.".to_string()
        }
        Ending::Decided { outcome, .. } => format!(
            "Harvested, trained, merged and evaluated. By the rule written down beforehand the outcome is {}.",
            outcome.as_str()
        ),
    };
    Some(format!("## {date} — run\n\n{entry}\n"))
}

/// A reason without its figures, which belong in bound links.
fn words(why: &str) -> &str {
    if why.contains("families contributed") {
        "too few families contributed"
    } else {
        "too few rows were kept"
    }
}

/// Title and status of the claim that an outcome supports.
pub(super) fn claim(plan: &Plan, outcome: Outcome, change: Change) -> (String, &'static str) {
    if comparison::is_one(plan) {
        return comparison::claim(plan, outcome, change);
    }
    let shown = rules::shown(outcome, change);
    let what = "One adapter, trained on the model's own verified answers,";
    if let Some(title) = rules::claim(plan, outcome, what, "its score on unseen tasks") {
        return (title, if shown { "promising" } else { "proposed" });
    }
    let (title, status) = match outcome {
        Outcome::Positive => (
            "One adapter, trained on the model's own verified answers, raises its score on unseen tasks",
            "promising",
        ),
        Outcome::Negative => (
            "One adapter, trained on the model's own verified answers, does not raise its score on unseen tasks by an amount that counts",
            "proposed",
        ),
        Outcome::Inconclusive => (
            "One adapter, trained on the model's own verified answers, may change its score on unseen tasks; this experiment cannot say",
            "proposed",
        ),
    };
    (title.to_owned(), status)
}

/// The claim's argument.
pub(super) fn argument(experiment: &Experiment, change: Change, n: Link) -> String {
    if comparison::is_one(&experiment.plan) {
        return comparison::argument(experiment, change, n);
    }
    format!(
        "The {} went from {} to {}{}, over {} tasks that neither arm had seen.{}\nThe claim is about this adapter and these task families, with one training seed; it says nothing about the recipe.\n",
        score(&experiment.plan),
        n("base"),
        n("treatment"),
        changed(change, n),
        n("delta.n"),
        remark(change)
    )
}
