//! The first page, the list of experiments, and the page for an address that does not exist.

use super::audit::tally_cells;
use super::{Head, Site, Tally, audit_table, experiment};
use crate::claims::number::{Style, format as printed};
use crate::claims::value::Number;
use crate::error::Result;
use crate::site::chart::spark;
use crate::site::glyphs;
use crate::site::input::{
    AuditEntry, CardInput, ChangeInput, ChartInput, EstimateInput, ExperimentInput, Publication, Verdict,
};
use crate::site::number::pending;
use crate::site::prose::{plain, references};
use crate::site::text::{agreeing, counted, day, days};
use serde_json::{Value, json};

/// How many experiments and changes the first page shows.
const SHOWN: usize = 6;

/// `index.html`.
pub fn home(site: &mut Site<'_>) -> Result<()> {
    let publication = site.publication;
    let tally = Tally::of(publication.audit.entries.iter());
    let mut attention: Vec<&AuditEntry> = publication
        .audit
        .entries
        .iter()
        .filter(|e| matches!(e.verdict, Verdict::Mismatch | Verdict::Unverifiable))
        .collect();
    attention.sort_by_key(|entry| entry.verdict);
    attention.truncate(SHOWN);
    let entries: Vec<Value> =
        newest(publication).into_iter().take(SHOWN).map(|e| entry(publication, e)).collect();
    let context = json!({
        "tally": if tally.all() > 0 { tally_cells(site, &tally) } else { Vec::new() },
        "audited": audit_table(site, &attention, ""),
        "experiments": entries,
        "experiments_size": counted(publication.experiments.len(), "experiment"),
        "statuses": super::claim::by_status(publication, "", false),
        "imports": super::import::list(publication, ""),
        "changes": changes(publication),
    });
    let head = Head {
        address: "index.html",
        template: "home.html",
        title: &publication.title,
        description: &publication.description,
        nav: "home",
    };
    site.page(&head, context)
}

/// `experiments/index.html`.
pub fn experiments(site: &mut Site<'_>) -> Result<()> {
    let publication = site.publication;
    let entries: Vec<Value> = newest(publication).into_iter().map(|e| entry(publication, e)).collect();
    let words = ["positive", "negative", "inconclusive", "design-negative", "instrument-only", "pending"];
    let filters: Vec<Value> = words
        .iter()
        .filter(|word| publication.experiments.iter().any(|e| verdict_word(e) == **word))
        .map(|word| json!({"word": word, "mark_html": glyphs::outcome(Some(*word).filter(|w| *w != "pending"))}))
        .collect();
    let context = json!({
        "experiments": entries,
        "size": publication.experiments.len(),
        "filters": if filters.len() > 1 { filters } else { Vec::new() },
    });
    let head = Head {
        address: "experiments/index.html",
        template: "experiments.html",
        title: "Experiments",
        description: "Every experiment of this site with its verdict and its main number.",
        nav: "experiments",
    };
    site.page(&head, context)
}

/// `404.html`.
pub fn missing(site: &mut Site<'_>) -> Result<()> {
    let head = Head {
        address: "404.html",
        template: "missing.html",
        title: "Not found",
        description: "There is no page at this address.",
        nav: "none",
    };
    site.page(&head, json!({}))
}

/// Newest first, those that have not started before them, then by slug.
fn newest(publication: &Publication) -> Vec<&ExperimentInput> {
    let mut all: Vec<&ExperimentInput> = publication.experiments.iter().collect();
    let date = |e: &ExperimentInput| e.ended.clone().or_else(|| e.started.clone()).unwrap_or_default();
    all.sort_by(|a, b| date(b).cmp(&date(a)).then_with(|| a.slug.cmp(&b.slug)));
    all
}

fn verdict_word(input: &ExperimentInput) -> &str {
    input.verdict.as_deref().unwrap_or("pending")
}

/// One experiment in a list: dates, marks, title, tagline, main number.
fn entry(publication: &Publication, input: &ExperimentInput) -> Value {
    let when = match (&input.started, &input.ended) {
        (Some(first), Some(last)) => days(first, last),
        (Some(first), None) => format!("since {}", day(first)),
        _ => String::new(),
    };
    let own = experiment::own_entries(publication, input);
    let tally = Tally::of(own.iter().copied());
    let badge_html = match own.iter().map(|entry| entry.verdict).min() {
        None => String::new(),
        Some(Verdict::Match) => glyphs::badge(Verdict::Match, &format!("{} match", tally.all()), None),
        Some(worst) => {
            glyphs::badge(worst, &format!("{} of {} {}", tally.count(worst), tally.all(), worst.word()), None)
        }
    };
    let headline = input.figures.iter().find_map(|figure| match &figure.chart {
        ChartInput::Forest { pooled: Some(pooled), bar, .. } => Some((pooled, *bar)),
        _ => None,
    });
    let (spark_svg, lines) = match headline {
        Some((pooled, bar)) => (spark(pooled, bar).unwrap_or_default(), headline_words(pooled)),
        None => (
            String::new(),
            input
                .cards
                .first()
                .map_or_else(Vec::new, |card| vec![headline_value(publication, card), plain(&card.label)]),
        ),
    };
    json!({
        "href": format!("experiments/{}/index.html", input.slug),
        "title": input.title,
        "tagline": input.tagline,
        "when": when,
        "verdict": verdict_word(input),
        "lifecycle_html": glyphs::lifecycle(&input.lifecycle),
        "outcome_html": glyphs::outcome(input.verdict.as_deref()),
        "starved": input.starved,
        "spark_caption": match headline {
            Some((_, Some(_))) if !spark_svg.is_empty() => "Change and its interval; upright line: no change; dashed: the bar",
            Some(_) if !spark_svg.is_empty() => "Change and its interval; upright line: no change",
            _ => "",
        },
        "spark_svg": spark_svg,
        "lines": lines,
        "badge_html": badge_html,
    })
}

/// A card's value as plain text; `pending` while its first number has no rows.
fn headline_value(publication: &Publication, card: &CardInput) -> String {
    let first = references(&card.value).into_iter().next();
    let waits = first.and_then(|(reference, _)| pending(&publication.numbers.get(&reference)?.value));
    if waits.is_some() { "pending".to_string() } else { plain(&card.value) }
}

fn headline_words(pooled: &EstimateInput) -> Vec<String> {
    let style = Style { plus: true, ..Style::plain(3) };
    let first = match (&pooled.value, pooled.low.get(), pooled.high.get()) {
        _ if pending(&pooled.value).is_some() => "pending".to_string(),
        (Number::Undefined(why), ..) => format!("— ({why})"),
        (Number::Defined(v), Some(low), Some(high)) => {
            format!("{} [{}, {}]", printed(*v, &style), printed(low, &style), printed(high, &style))
        }
        (Number::Defined(v), ..) => {
            let why = match &pooled.low {
                Number::Undefined(why) => format!(" ({why})"),
                Number::Defined(_) => String::new(),
            };
            format!("{}, interval undefined{why}", printed(*v, &style))
        }
    };
    let n = pooled.n.map(|n| {
        agreeing(&format!("n = {} tasks", printed(n, &Style { thousands: true, ..Style::plain(0) })))
    });
    std::iter::once(first).chain(n).collect()
}

/// The latest dated entries of logs, claims and corrections, newest first.
fn changes(publication: &Publication) -> Vec<Value> {
    let mut all: Vec<(String, String, String, String, String)> = Vec::new();
    for experiment in &publication.experiments {
        let href = format!("experiments/{}/index.html", experiment.slug);
        for entry in &experiment.log {
            let log = format!("{href}#log");
            all.push((entry.date.clone(), experiment.title.clone(), plain(&entry.title), log, String::new()));
        }
    }
    for claim in &publication.claims {
        let mut before = "";
        for ChangeInput { date, status, .. } in &claim.history {
            if status == before {
                continue;
            }
            before = status;
            let href = format!("claims/{}/index.html", claim.id);
            all.push((date.clone(), claim.id.clone(), plain(&claim.title), href, glyphs::status(status)));
        }
    }
    // Newest first; within a day the order of the inputs, which is fixed.
    all.sort_by(|a, b| b.0.cmp(&a.0));
    let shown = all.into_iter().take(SHOWN).map(|(date, what, text, href, status_html)| {
        json!({"date": date, "day": day(&date), "what": what, "text": text, "href": href, "status_html": status_html})
    });
    shown.collect()
}
