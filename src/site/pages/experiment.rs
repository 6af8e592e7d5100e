//! An experiment's page, from its status form to its record. Sections without content vanish; what is
//! missing, incomplete or pending is said in words.

use super::card::card;
use super::sections::Sections;
use super::{Head, Site, Tally, data, figure};
use crate::error::Result;
use crate::site::glyphs;
use crate::site::input::{AuditEntry, ExperimentInput, Publication, Verdict};
use crate::site::prose::{Prose, plain};
use crate::site::text::{
    agreeing, breakable, count, counted, day, days, link, root_of, sentence, short_hash, size,
};
use serde_json::{Value, json};

const LOCKED_STAGES: &str = "no section is locked";

/// `experiments/<slug>/index.html` and the figures' downloads.
pub fn page(site: &mut Site<'_>, input: &ExperimentInput) -> Result<()> {
    let publication = site.publication;
    let folder = format!("experiments/{}", input.slug);
    let address = format!("{folder}/index.html");
    let root = root_of(&address);
    let mut prose = Prose::new(publication, &root);
    let place = input.report_path.clone();
    let own = own_entries(publication, input);
    let tally = Tally::of(own.iter().copied());

    let mut plain_block = Vec::new();
    let headings = ["The one idea you need", "The question", "What we found", "Why it matters"];
    for (heading, text) in headings.iter().zip(input.plain.iter().flatten()) {
        if !text.trim().is_empty() {
            plain_block.push(json!({"heading": heading, "text_html": prose.headline(text, &place)?}));
        }
    }
    let mut cards = Vec::new();
    for one in &input.cards {
        cards.push(card(&mut prose, publication, one, &place, &root)?);
    }
    let mut figures = Vec::new();
    for (i, one) in input.figures.iter().enumerate() {
        figures.push(figure::figure(site, &mut prose, one, &folder, i + 1, &input.evidence)?);
    }
    let report_html = prose.block(&input.report, &place, "report", 3)?;
    let mut log = Vec::new();
    let log_place = input.report_path.replace("report.md", "log.md");
    for (i, entry) in input.log.iter().enumerate() {
        log.push(json!({
            "date": entry.date,
            "day": day(&entry.date),
            "title": plain(&entry.title),
            "body_html": prose.block(&entry.body, &log_place, &format!("log-{}", i + 1), 4)?,
        }));
    }
    let mut corrections = Vec::new();
    for (date, kind, text) in &input.corrections {
        corrections.push(json!({"date": date, "day": day(date), "kind": sentence(kind), "text_html": prose.inline(text, &place)?}));
    }
    let pending = figures.is_empty() && matches!(input.lifecycle.as_str(), "planned" | "in progress");
    let arms = arms(input);
    let related = nearest(publication, input);

    let mut sections = Sections::default();
    sections.add("results", "Results at a glance", !figures.is_empty() || pending);
    sections.add("decision", "Decision", input.decision.is_some());
    sections.add("report", "Report", !input.report.trim().is_empty());
    sections.add(
        "plan",
        "Preregistration",
        !input.locks.is_empty() || !input.amendments.is_empty() || !arms.is_empty(),
    );
    sections.add("log", "Experiment log", !log.is_empty());
    sections.add("corrections", "Corrections and deviations", !corrections.is_empty());
    sections.add("rescored", "Rescored", !input.rescores.is_empty());
    sections.add("data", "Data files", !input.files.is_empty());
    sections.add("reproduce", "Reproduce", !input.reproduce.is_empty());
    sections.add("related", "Related", !input.cited_by.is_empty() || !related.is_empty());
    sections.add("record", "Record", tally.all() > 0);

    let context = json!({
        "slug": input.slug,
        "title": input.title,
        "long": input.title.chars().count() > 70,
        "tagline": input.tagline,
        "form": form(input, &tally),
        "tags": tags(input),
        "notices": notices(input),
        "plain": plain_block,
        "cards": cards,
        "no": sections.numbers(),
        "contents": sections.contents(),
        "pending": pending,
        "figures": figures,
        "figures_size": counted(input.figures.len(), "figure"),
        "decision": decision(input),
        "report_html": report_html,
        "report_path": input.report_path,
        "unbound": input.unbound,
        "unbound_words": format!("{} in this text and its log {} without one.", counted(input.unbound, "number"), if input.unbound == 1 { "stands" } else { "stand" }),
        "arms": arms,
        "locks": locks(input),
        "amendments": input.amendments.iter().map(|(d, t)| json!({"date": d, "day": day(d), "text": t})).collect::<Vec<_>>(),
        "log": log,
        "log_range": match (input.log.first(), input.log.last()) {
            (Some(first), Some(last)) => days(&first.date, &last.date),
            _ => String::new(),
        },
        "corrections": corrections,
        "rescores": rescores(input),
        "files": files(input),
        "reproduce": input.reproduce.iter().map(|(label, command)| json!({"label": label, "command": command})).collect::<Vec<_>>(),
        "cited_by": cited_by(publication, input),
        "related": related,
        "record": record(publication, &tally),
    });
    let head = Head {
        address: &address,
        template: "experiment.html",
        title: &input.title,
        description: if input.tagline.is_empty() { &input.title } else { &input.tagline },
        nav: "experiments",
    };
    site.page(&head, context)
}

/// The audit's lines about texts in the experiment's own folder.
pub fn own_entries<'a>(publication: &'a Publication, input: &ExperimentInput) -> Vec<&'a AuditEntry> {
    let folder = input.report_path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let own = publication.audit.entries.iter().filter(|entry| {
        !folder.is_empty() && entry.place.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
    });
    own.collect()
}

fn cell(label: &str, value_html: String, small: String, mono: bool) -> Value {
    json!({"label": label, "value_html": value_html, "small": small, "mono": mono})
}

fn form(input: &ExperimentInput, tally: &Tally) -> Vec<Value> {
    let run = match (&input.started, &input.ended) {
        (Some(first), Some(last)) => days(first, last),
        (Some(first), None) => format!("since {}", day(first)),
        (None, Some(last)) => format!("until {}", day(last)),
        (None, None) => "not started".to_string(),
    };
    let legs = input.decision.as_ref().map_or_else(String::new, |decision| {
        let (held, all) = decision.for_positive;
        let verb = if all == 1 { "holds" } else { "hold" };
        format!("{held} of {} for a positive outcome {verb}", counted(all, "leg"))
    });
    let verdict_note = if input.starved { "starved: too little to train on".to_string() } else { legs };
    let lock = input.locks.last();
    let unbound = if input.unbound > 0 { format!("{}\u{a0}unbound", input.unbound) } else { String::new() };
    let audited = [tally.words(), unbound];
    let audited: Vec<&str> = audited.iter().map(String::as_str).filter(|t| !t.is_empty()).collect();
    vec![
        cell("Lifecycle", glyphs::lifecycle(&input.lifecycle), String::new(), false),
        cell("Verdict", glyphs::outcome(input.verdict.as_deref()), verdict_note, false),
        cell("Run", run, String::new(), false),
        match lock {
            Some(lock) => cell("Plan locked", day(&lock.locked_at), short_hash(&lock.sha256), true),
            None => cell("Plan locked", "not yet".to_string(), LOCKED_STAGES.to_string(), false),
        },
        cell("Audit", counted(tally.all(), "number"), audited.join(", "), false),
        match input.evidence.as_str() {
            "oracle" => {
                cell("Evidence", "Oracle".to_string(), "uses what deployment lacks".to_string(), false)
            }
            "deployable" => cell("Evidence", "Deployable".to_string(), String::new(), false),
            _ => cell("Evidence", "none yet".to_string(), String::new(), false),
        },
    ]
}

/// Programs and tags: four, then how many more.
fn tags(input: &ExperimentInput) -> Value {
    let all: Vec<&String> = input.programs.iter().chain(&input.tags).collect();
    let split = all.len().min(4);
    let more = &all[split..];
    json!({"shown": &all[..split], "more": more, "more_size": format!("{} more", more.len())})
}

/// What a reader must know before the results.
fn notices(input: &ExperimentInput) -> Vec<Value> {
    let mut notices = Vec::new();
    let mut note = |title: &str, text: String| notices.push(json!({"title": title, "text": text}));
    if input.starved {
        note(
            "Inconclusive: starved.",
            "The harvest kept too little to train on, so the treatment was never put to the test. This is no evidence for either arm.".to_string(),
        );
    }
    let short: Vec<String> = input
        .coverage
        .iter()
        .filter(|(_, there, planned)| there != planned)
        .map(|(arm, there, planned)| format!("{arm} {} of {}", count(*there), count(*planned)))
        .collect();
    if !short.is_empty() {
        note("Incomplete.", format!("Not all planned episodes are there: {}.", short.join(", ")));
    }
    if input.lifecycle == "retracted" {
        note("Retracted.", "The page stays readable; its results should not be cited.".to_string());
    }
    if input.evidence == "oracle" {
        note(
            "Oracle evidence.",
            "Some rows used something that a deployed system would not have.".to_string(),
        );
    }
    notices
}

fn decision(input: &ExperimentInput) -> Value {
    input.decision.as_ref().map_or(Value::Null, |decision| {
        let legs: Vec<Value> = decision
            .legs
            .iter()
            .map(|(question, value, bar, holds)| {
                json!({"question": question, "value": value, "bar": bar, "holds_html": glyphs::leg(*holds)})
            })
            .collect();
        let looks = decision.looks.map(|looks| match looks {
            1 => "once".to_string(),
            n => format!("{n} times"),
        });
        json!({"outcome_html": glyphs::outcome(Some(&decision.outcome)), "legs": legs, "looks": looks})
    })
}

/// Arms with their descriptions and coverage; an arm that only has episodes is listed too.
fn arms(input: &ExperimentInput) -> Vec<Value> {
    let episodes = |name: &str| {
        let found = input.coverage.iter().find(|(arm, ..)| arm == name);
        found.map_or_else(String::new, |(_, there, planned)| {
            format!("{} of {}", count(*there), count(*planned))
        })
    };
    let described = input.arms.iter().map(|(name, words)| (name.as_str(), words.as_str()));
    let others = input
        .coverage
        .iter()
        .filter(|(arm, ..)| !input.arms.iter().any(|(name, _)| name == arm))
        .map(|(arm, ..)| (arm.as_str(), ""));
    described
        .chain(others)
        .map(|(name, words)| json!({"name": name, "words": agreeing(words), "episodes": episodes(name)}))
        .collect()
}

fn locks(input: &ExperimentInput) -> Vec<Value> {
    let locks = input.locks.iter().map(|lock| {
        json!({
            "stage": sentence(&lock.stage),
            "sha256": lock.sha256,
            "short": short_hash(&lock.sha256),
            "day": day(&lock.locked_at),
            "locked_at": lock.locked_at,
            "section": lock.section,
        })
    });
    locks.collect()
}

/// Rescores with their families, and the replaced files that are listed below.
fn rescores(input: &ExperimentInput) -> Vec<Value> {
    let rescores = input.rescores.iter().map(|rescore| {
        let families: Vec<Value> = rescore
            .families
            .iter()
            .map(|one| {
                json!({
                    "name": one.family,
                    "episodes": count(one.episodes),
                    "changed": count(one.changed),
                    "before": count(one.solved.0),
                    "after": count(one.solved.1),
                })
            })
            .collect();
        let shown =
            rescore.superseded.iter().filter(|path| input.files.iter().any(|file| &file.path == *path));
        let earlier: Vec<Value> = shown
            .map(|path| {
                let page = format!("data/{}/index.html", link(&data::folder(path)));
                json!({"page": page, "path_html": breakable(path)})
            })
            .collect();
        json!({
            "number": rescore.number,
            "date": rescore.date,
            "day": day(&rescore.date),
            "before_html": rescore.outcomes.as_ref().map(|(before, _)| glyphs::outcome(Some(before))),
            "after_html": rescore.outcomes.as_ref().map(|(_, after)| glyphs::outcome(Some(after))),
            "families": families,
            "files": earlier,
        })
    });
    rescores.collect()
}

fn files(input: &ExperimentInput) -> Vec<Value> {
    let files = input.files.iter().map(|file| {
        json!({
            "path_html": breakable(&file.path),
            "page": format!("data/{}/index.html", link(&data::folder(&file.path))),
            "file": format!("files/{}", link(&file.path)),
            "rows": if file.columns.is_empty() { String::new() } else { count(file.rows) },
            "size": size(file.bytes),
            "short": short_hash(&file.sha256),
            "sha256": file.sha256,
        })
    });
    files.collect()
}

fn cited_by(publication: &Publication, input: &ExperimentInput) -> Vec<Value> {
    let claims = input.cited_by.iter().map(|id| {
        let claim = publication.claims.iter().find(|claim| &claim.id == id);
        json!({
            "id": id,
            "title": claim.map_or_else(String::new, |c| plain(&c.title)),
            "status_html": claim.map_or_else(String::new, |c| glyphs::status(&c.status)),
            "href": claim.map(|c| format!("../../claims/{}/index.html", c.id)),
        })
    });
    claims.collect()
}

/// The nearest other experiments: three points a shared program, one a shared tag or word of the slug.
fn nearest(publication: &Publication, input: &ExperimentInput) -> Vec<Value> {
    let shared = |a: &[String], b: &[String]| a.iter().filter(|x| b.contains(x)).count();
    let words = |slug: &str| -> Vec<String> {
        slug.split(['-', '_', '.']).filter(|w| w.len() > 3).map(str::to_string).collect()
    };
    let mut scored: Vec<(usize, &ExperimentInput)> = publication
        .experiments
        .iter()
        .filter(|other| other.slug != input.slug)
        .map(|other| {
            let score = 3 * shared(&input.programs, &other.programs)
                + shared(&input.tags, &other.tags)
                + shared(&words(&input.slug), &words(&other.slug));
            (score, other)
        })
        .filter(|(score, _)| *score > 0)
        .collect();
    scored.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.slug.cmp(&b.1.slug)));
    let entries = scored.iter().take(4).map(|(_, other)| {
        let verdict = other.verdict.as_deref().unwrap_or("no verdict yet");
        let programs = shared(&input.programs, &other.programs);
        let shares =
            if programs > 0 { format!("shares {}; ", counted(programs, "program")) } else { String::new() };
        json!({
            "href": format!("../{}/index.html", other.slug),
            "title": other.title,
            "words": format!("{shares}{}, {verdict}", other.lifecycle),
        })
    });
    entries.collect()
}

fn record(publication: &Publication, tally: &Tally) -> Value {
    json!({
        "files": counted(publication.audit.files_checked, "file"),
        "rows": counted(publication.audit.rows_checked, "row"),
        "agree": format!("{} of {} agree", count(tally.count(Verdict::Match)), count(tally.all())),
        "badges": tally.badges(Some("../../audit/index.html")),
    })
}
