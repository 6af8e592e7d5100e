//! A report's figures draw derivations that exist and fit, and its dates agree with its log.

use super::Outcome;
use crate::claims::book::{Book, Entry};
use crate::claims::declare::parts;
use crate::claims::derivation::DataSet;
use crate::claims::report::{Figure, FigureKind};
use crate::claims::texts::{ExperimentText, Texts};
use crate::error::nearest;

pub(super) fn check(texts: &Texts, book: &Book, outcome: &mut Outcome) {
    for experiment in texts.experiments.values() {
        for (index, figure) in experiment.report.front.figures.iter().enumerate() {
            for (text, hint) in figure_problems(figure, experiment, book) {
                let document = &experiment.report.document;
                let line = document.line_of("[[figures]]", index).unwrap_or(1);
                outcome.add(document, line, "figure", format!("figure `{}` {text}", figure.id), hint);
            }
        }
        dates(experiment, outcome);
    }
}

/// What is wrong with one figure: each with what to do about it.
struct Problems<'a> {
    experiment: &'a ExperimentText,
    book: &'a Book,
    found: Vec<(String, String)>,
}

impl<'a> Problems<'a> {
    fn add(&mut self, what: impl Into<String>, hint: impl Into<String>) {
        self.found.push((what.into(), hint.into()));
    }

    /// The derivation of this report that a field of the figure names.
    fn known(&mut self, field: &str, id: &str) -> Option<&'a Entry> {
        let entry = self.book.entry(&self.experiment.slug, id);
        if entry.is_none() {
            let near = nearest(id, self.experiment.report.front.derivations.keys().map(String::as_str));
            let hint =
                near.map_or("declare it in the report".to_string(), |near| format!("did you mean `{near}`?"));
            self.add(format!("draws `{field} = {id}`, which no derivation of this report is called"), hint);
        }
        entry
    }

    /// As `known`, and it has a row for each value of a column: of `by`, where that is given.
    fn table(&mut self, field: &str, id: &str, by: Option<&str>) {
        let Some(entry) = self.known(field, id) else { return };
        let has = entry.derivation.by.as_deref();
        if has.is_none() || by.is_some_and(|by| has != Some(by)) {
            let what = format!(
                "draws `{field} = {id}`, which has no row for each {}",
                by.unwrap_or("value of a column")
            );
            self.add(what, format!("add `by = \"{}\"` to the derivation", by.unwrap_or("family")));
        }
    }
}

fn figure_problems(figure: &Figure, experiment: &ExperimentText, book: &Book) -> Vec<(String, String)> {
    let mut problems = Problems { experiment, book, found: Vec::new() };
    match figure.kind {
        FigureKind::Forest => {
            if figure.rows.is_empty() {
                problems.add("has no rows", "name derivations with `by` in `rows`");
            }
            for id in &figure.rows {
                problems.table("rows", id, None);
            }
            let bar = figure.bar.as_deref().and_then(|id| problems.known("bar", id));
            if let Some(entry) = bar.filter(|entry| entry.derivation.data != DataSet::Plan) {
                let what =
                    format!("draws `{}` as its preregistered bar, which is no value of the plan", entry.id);
                problems
                    .add(what, "name a derivation with `data = \"plan\"`, such as `decision.minimum_delta`");
            }
            let pooled = figure.pooled.as_deref().and_then(|id| problems.known("pooled", id));
            if let Some(entry) = pooled.filter(|entry| !parts(&entry.derivation).contains(&"low")) {
                let what = format!("pools `{}`, which has no interval", entry.id);
                problems.add(what, "name a `paired_delta` or a `mean` of episodes");
            }
        }
        FigureKind::Slope => {
            for (field, id) in [("left", &figure.left), ("right", &figure.right)] {
                match id {
                    Some(id) => problems.table(field, id, Some("task_id")),
                    None => {
                        problems.add(format!("has no `{field}`"), "name a derivation with `by = \"task_id\"`")
                    }
                }
            }
        }
    }
    if let Some(group) = figure.group_by.as_deref().filter(|name| *name != "family") {
        problems.add(format!("groups by `{group}`"), "write `group_by = \"family\"`, or leave it out");
    }
    problems.found
}

fn dates(experiment: &ExperimentText, outcome: &mut Outcome) {
    let (front, document) = (&experiment.report.front, &experiment.report.document);
    let Some(ended) = front.ended else { return };
    let line = document.line_of("ended", 0).unwrap_or(1);
    if front.started.is_some_and(|started| started > ended) {
        outcome.add(
            document,
            line,
            "dates",
            format!("ended on {ended}, before it started"),
            "correct `started` or `ended`",
        );
    }
    let last = experiment.log.as_ref().and_then(|log| log.entries.iter().map(|entry| entry.date).max());
    if let Some(last) = last.filter(|last| *last > ended) {
        let text = format!("ended on {ended}, but the log has an entry of {last}");
        outcome.add(document, line, "dates", text, "correct `ended`");
    }
}
