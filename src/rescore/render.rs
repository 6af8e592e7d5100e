//! A rescore in words: counts by family, and the numbers, places and claims that move.

use super::moved::Movement;
use super::{Done, Survey};

/// Moved numbers that are spelled out; `--json` has all.
const SHOWN: usize = 40;

/// What `audit --rescore` says.
pub fn survey(survey: &Survey) -> String {
    let mut out = String::from("\njudged again from the transcripts\n");
    for experiment in &survey.experiments {
        out.push_str(&format!("{}\n", experiment.experiment));
        if experiment.families.is_empty() {
            out.push_str("  no episodes yet\n");
            continue;
        }
        out.push_str(&format!(
            "  {:<22} {:>8} {:>8} {:>8} {:>8} {:>8}  {:<14} verifier\n",
            "family", "episodes", "rescored", "equal", "differ", "without", "solved"
        ));
        for family in &experiment.families {
            let tally = &family.tally;
            let without: usize = tally.without.values().sum();
            let name =
                if family.harvest { format!("{} (harvest)", family.family) } else { family.family.clone() };
            let verifier = if family.same_verifier { "the same" } else { "another today" };
            out.push_str(&format!(
                "  {name:<22} {:>8} {:>8} {:>8} {:>8} {without:>8}  {:<14} {verifier}\n",
                tally.episodes,
                tally.rescored,
                tally.equal,
                tally.differing,
                format!("{} → {}", tally.solved_before, tally.solved_after),
            ));
            for (reason, n) in &tally.without {
                out.push_str(&format!("    {n} not judged again: {}\n", reason.replace('_', " ")));
            }
        }
        out.push_str(&match &experiment.words_not_compared {
            None => "  words compared with the sampled token ids\n".to_owned(),
            Some(why) => format!("  words not compared with the sampled token ids: {why}\n"),
        });
        let repaired: Vec<_> = experiment.families.iter().filter(|f| !f.same_verifier).collect();
        if !repaired.is_empty() {
            let differing: usize = repaired.iter().map(|f| f.tally.differing).sum();
            let episodes: usize = repaired.iter().map(|f| f.tally.episodes).sum();
            out.push_str(&format!(
                "  a repaired verifier changes {differing} of {episodes} episodes; `rederive rescore {}` writes them as a new version\n",
                experiment.experiment
            ));
        }
        for finding in experiment.findings() {
            let row = finding.row.map(|row| format!(", row {row}")).unwrap_or_default();
            out.push_str(&format!("  {}  {}{row}: {}\n", finding.rule, finding.file, finding.detail));
        }
    }
    for other in &survey.not_opened {
        out.push_str(&format!("{}\n  not judged again: {}\n", other.experiment, other.why));
    }
    movement(&survey.moved, "would move", &mut out);
    out
}

/// What `rescore` says of a version that it wrote.
pub fn written(done: &Done) -> String {
    let receipt = &done.receipt;
    let mut out = String::new();
    if done.resumed {
        out.push_str("finished a rescore that was cut off\n");
    }
    for (family, counts) in &receipt.families {
        out.push_str(&format!(
            "{family}: {} of {} episodes changed, solved {} → {}\n",
            counts.changed, counts.episodes, counts.solved_before, counts.solved_after
        ));
    }
    out.push_str(&format!(
        "{} files replaced, the earlier ones are in data/{}/superseded/{}/\n",
        receipt.replaced.len(),
        done.experiment,
        receipt.number
    ));
    if let Some([was, now]) = &done.decision {
        out.push_str(&match was == now {
            true => format!("the decision stays {now}\n"),
            false => format!(
                "the decision was {was} and is {now}: the report's `verdict`, and its sentences that state the outcome, are to follow\n"
            ),
        });
    }
    if done.headroom_gone {
        out.push_str("the headroom gate, which passed, would not pass on these rows\n");
    }
    for family in &done.harvest {
        out.push_str(&format!(
            "harvest of {}: {} of {} samples are judged otherwise; the adapter stays what was trained\n",
            family.family, family.tally.differing, family.tally.episodes
        ));
    }
    movement(&done.moved, "moved", &mut out);
    out.push_str(
        "next: `rederive fill --update`, a dated `[[corrections]]` in the report, a `[[history]]` entry in each claim whose status changes, then `rederive audit`\n",
    );
    out
}

fn movement(movement: &Movement, verb: &str, out: &mut String) {
    if movement.numbers.is_empty() {
        return;
    }
    let places: usize = movement.numbers.iter().map(|moved| moved.places.len()).sum();
    out.push_str(&format!(
        "{} numbers {verb}; {places} printed places, {} of them print something else then\n",
        movement.numbers.len(),
        movement.stale()
    ));
    // What is printed comes first: those are the lines that somebody has to look at.
    let mut numbers: Vec<_> = movement.numbers.iter().collect();
    numbers.sort_by_key(|moved| moved.places.is_empty());
    for moved in numbers.iter().take(SHOWN) {
        out.push_str(&format!("  {}  {} → {}\n", moved.reference, number(moved.before), number(moved.after)));
        for place in &moved.places {
            let becomes = match &place.becomes {
                Some(becomes) => format!("→ [{becomes}]"),
                None => "stays".into(),
            };
            out.push_str(&format!("    {}:{}  [{}] {becomes}\n", place.file, place.line, place.printed));
        }
    }
    if let Some(more) = numbers.len().checked_sub(SHOWN + 1) {
        out.push_str(&format!("  and {} more, which `--json` lists\n", more + 1));
    }
    for touched in &movement.claims {
        out.push_str(&format!(
            "claim {} ({}) rests on {}\n",
            touched.claim,
            touched.file,
            touched.references.join(", ")
        ));
    }
}

/// A number at six digits, or a dash.
fn number(value: Option<f64>) -> String {
    value.map_or_else(
        || "—".into(),
        |value| {
            let text = format!("{value:.6}");
            let text =
                if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
            text.to_string()
        },
    )
}
