//! A rescore in words: counts by family, and the numbers, places and claims that move.

use super::moved::Movement;
use super::{Done, Survey};
use crate::audit::AuditReport;
use crate::stats::counted;

/// Moved numbers that are spelled out; `--json` has all.
const SHOWN: usize = 40;

/// What `audit --rescore` says.
pub fn survey(survey: &Survey) -> String {
    let mut out = vec![String::new(), "judged again from the transcripts".to_owned()];
    for experiment in &survey.experiments {
        out.push(experiment.experiment.clone());
        if experiment.families.is_empty() {
            out.push("  no episodes yet".into());
            continue;
        }
        out.push(format!(
            "  {:<22} {:>8} {:>8} {:>8} {:>8} {:>8}  {:<14} verifier",
            "family", "episodes", "rescored", "equal", "differ", "without", "solved"
        ));
        for family in &experiment.families {
            let tally = &family.tally;
            let without: usize = tally.without.values().sum();
            let name =
                if family.harvest { format!("{} (harvest)", family.family) } else { family.family.clone() };
            let verifier = if family.same_verifier { "the same" } else { "another today" };
            out.push(format!(
                "  {name:<22} {:>8} {:>8} {:>8} {:>8} {without:>8}  {:<14} {verifier}",
                tally.episodes,
                tally.rescored,
                tally.equal,
                tally.differing,
                format!("{} → {}", tally.solved_before, tally.solved_after),
            ));
            for (reason, n) in &tally.without {
                out.push(format!("    {n} not judged again: {}", reason.replace('_', " ")));
            }
        }
        out.push(match &experiment.words_not_compared {
            None => "  words compared with the sampled token ids".to_owned(),
            Some(why) => format!("  words not compared with the sampled token ids: {why}"),
        });
        let repaired: Vec<_> = experiment.families.iter().filter(|f| !f.same_verifier).collect();
        if !repaired.is_empty() {
            let differing: usize = repaired.iter().map(|f| f.tally.differing).sum();
            let episodes: usize = repaired.iter().map(|f| f.tally.episodes).sum();
            out.push(format!(
                "  a repaired verifier changes {differing} of {episodes} episodes; `{}` writes them as a new version",
                experiment.command()
            ));
        }
        let no_task = experiment.families.iter().any(|f| f.tally.without.contains_key("no_task"));
        if no_task && experiment.from_file {
            out.push(format!(
                "  a task file that was changed under the lock is repaired with `{}`, the file as it was locked",
                experiment.command()
            ));
        }
        for finding in experiment.findings() {
            let row = finding.row.map(|row| format!(", row {row}")).unwrap_or_default();
            out.push(format!("  {}  {}{row}: {}", finding.rule, finding.file, finding.detail));
        }
    }
    for other in &survey.not_opened {
        out.push(other.experiment.clone());
        out.push(format!("  not judged again: {}", other.why));
    }
    movement(&survey.moved, "would move", &mut out);
    in_lines(&out)
}

/// What `rescore` says of a version that it wrote.
pub fn written(done: &Done) -> String {
    let receipt = &done.receipt;
    let mut out = Vec::new();
    if done.resumed {
        out.push("finished a rescore that was cut off".into());
    }
    for (family, counts) in &receipt.families {
        out.push(format!(
            "{family}: {} of {} episodes changed, solved {} → {}",
            counts.changed, counts.episodes, counts.solved_before, counts.solved_after
        ));
    }
    out.push(format!(
        "{} replaced, what was there before is in data/{}/superseded/{}/",
        counted(receipt.replaced.len(), "file"),
        done.experiment,
        receipt.number
    ));
    if let Some([was, now]) = &done.decision {
        out.push(match was == now {
            true => format!("the decision stays {now}"),
            false => format!(
                "the decision was {was} and is {now}: the report's `verdict`, and its sentences that state the outcome, are to follow"
            ),
        });
    }
    if done.headroom_gone {
        out.push("the headroom gate, which passed, would not pass on these rows".into());
    }
    for family in &done.harvest {
        out.push(format!(
            "harvest of {}: {} of {} samples are judged otherwise; the adapter stays what was trained",
            family.family, family.tally.differing, family.tally.episodes
        ));
    }
    movement(&done.moved, "moved", &mut out);
    for claim in &done.moved.claims {
        out.push(format!(
            "claim {} ({}) was written before: read it again: its words may no longer be true",
            claim.claim, claim.file
        ));
    }
    out.push(
        "next: `rederive fill --update`, a dated `[[corrections]]` in the report, a `[[history]]` entry in each claim whose status changes, then `rederive audit`".into(),
    );
    in_lines(&out)
}

/// Lines as a terminal shows them: what rows and texts say moves no cursor.
fn in_lines(lines: &[String]) -> String {
    lines.iter().map(|line| AuditReport::clean(line) + "\n").collect()
}

fn movement(movement: &Movement, verb: &str, out: &mut Vec<String>) {
    if movement.numbers.is_empty() {
        return;
    }
    let places: usize = movement.numbers.iter().map(|moved| moved.places.len()).sum();
    out.push(format!(
        "{} {verb}; {}, of which {} then {}",
        counted(movement.numbers.len(), "number"),
        counted(places, "printed place"),
        movement.stale(),
        if movement.stale() == 1 { "prints something else" } else { "print something else" }
    ));
    // What is printed comes first: those are the lines that somebody has to look at.
    let mut numbers: Vec<_> = movement.numbers.iter().collect();
    numbers.sort_by_key(|moved| moved.places.is_empty());
    for moved in numbers.iter().take(SHOWN) {
        out.push(format!("  {}  {} → {}", moved.reference, number(moved.before), number(moved.after)));
        for place in &moved.places {
            let becomes = match &place.becomes {
                Some(becomes) => format!("→ [{becomes}]"),
                None => "stays".into(),
            };
            out.push(format!("    {}:{}  [{}] {becomes}", place.file, place.line, place.printed));
        }
    }
    if let Some(more) = numbers.len().checked_sub(SHOWN + 1) {
        out.push(format!("  and {} more, which `--json` lists", more + 1));
    }
    for touched in &movement.claims {
        out.push(format!(
            "claim {} ({}) rests on {}",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_that_is_named_to_steer_a_terminal_stays_on_its_line() {
        let lines = ["cara\u{1b}[2Kvan\n: 0 of 9".to_owned(), String::new()];
        assert_eq!(in_lines(&lines), "cara [2Kvan : 0 of 9\n\n");
    }
}
