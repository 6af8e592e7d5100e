//! A derivation in words, a sentence each, as its page tells what was done.

use crate::claims::declare;
use crate::claims::derivation::{
    Accepts, Cluster, DataSet, Derivation, Estimator, Nulls, Population, Weight,
};
use crate::episode::row::Cell;

/// The entry of the registry that a derivation is computed by.
pub(super) fn estimator_id(derivation: &Derivation) -> String {
    if is_plain_mean(derivation) { "mean_of_rows".into() } else { word(&derivation.estimator) }
}

/// A mean over rows that are no attempts at tasks: each row counts the same, and there is no interval.
fn is_plain_mean(derivation: &Derivation) -> bool {
    derivation.estimator == Estimator::Mean && !derivation.data.holds_attempts()
}

/// A unit variant as it is written in TOML.
pub(super) fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    }
}

/// The recipe in sentences; `locked` says whether its margin is the one that the plan was locked with.
pub(super) fn recipe(derivation: &Derivation, experiment: &str, locked: bool) -> Vec<String> {
    let mut out = Vec::new();
    let of = declare::column(derivation).unwrap_or_default();
    match derivation.data {
        DataSet::Plan => {
            out.push(format!("Read `{of}` from the plan of `{experiment}`."));
            return out;
        }
        DataSet::Receipts => {
            out.push(format!("Read `{of}` from the receipts of `{experiment}`."));
            return out;
        }
        DataSet::Facts => {
            out.push(format!("Read `{of}` from the cited facts of `{experiment}`."));
            return out;
        }
        DataSet::Derivations if derivation.estimator.is_family() => {
            let names: Vec<String> = of.split(',').map(|name| format!("`{}`", name.trim())).collect();
            let method = match derivation.estimator {
                Estimator::Holm => "Holm",
                _ => "Benjamini and Hochberg",
            };
            out.push(format!(
                "Adjust the p values of {} together, by the method of {method}.",
                names.join(", ")
            ));
            out.push("The value is how many of the adjusted ones lie below 0.05.".into());
            return out;
        }
        DataSet::Derivations => {
            out.push(format!("Work out `{of}` from the numbers of those derivations."));
            return out;
        }
        data => out.push(format!("Take the {} rows of `{experiment}`.", word(&data))),
    }
    for (column, accepts) in &derivation.filter {
        out.push(format!("Keep rows whose `{column}` {}.", condition(accepts)));
    }
    match derivation.arms.as_slice() {
        [] => {}
        [arm] => out.push(format!("Keep arm `{arm}`.")),
        [base, rest @ ..] => {
            out.push(format!("Pair arm `{}` with `{base}` on the tasks that both have.", rest.join("`, `")))
        }
    }
    if let Some(by) = &derivation.by {
        out.push(format!("Do this for each value of `{by}`, and for all rows together."));
    }
    match derivation.nulls {
        Some(Nulls::Omit) => out.push(format!("Leave out the rows in which `{of}` is null, and count them.")),
        Some(Nulls::Zero) => out.push(format!("Count a null in `{of}` as 0.")),
        None => {}
    }
    if let Some(is) = &derivation.is {
        out.push(format!("Count `{of}` as 1 where it {}, else as 0.", condition(is)));
    }
    if let Some(band) = &derivation.band {
        out.push(format!("Count the tasks whose mean {}.", condition(&Accepts::Within(band.clone()))));
    }
    let k = derivation.k.map(|k| format!(" at k = {k}")).unwrap_or_default();
    if derivation.estimator == Estimator::PairedDelta && derivation.k.is_some() {
        out.push(
            "Count each cell by the expected best of k of its attempts; leave out cells with fewer.".into(),
        );
    }
    let what = if of.is_empty() { String::new() } else { format!(" of `{of}`") };
    let plain = if is_plain_mean(derivation) { ", each row weighing the same" } else { "" };
    out.push(format!("Compute `{}`{what}{k}{plain}.", word(&derivation.estimator)));
    if derivation.weight == Weight::Family {
        out.push("Weigh every family the same.".into());
    }
    if derivation.cluster == Cluster::Family {
        out.push("Take the interval over whole families, not over single tasks.".into());
    }
    if derivation.population == Population::TasksXTrainSeeds {
        out.push("Take the interval over tasks and training seeds together.".into());
    }
    if let Some(margin) = derivation.margin {
        let whence = if locked { "locked with the plan" } else { "declared in this derivation" };
        out.push(format!("Hold it against the margin {margin}, {whence}."));
    }
    out
}

/// What a column must hold, behind its name.
pub(super) fn condition(accepts: &Accepts) -> String {
    let listed =
        |values: &[Cell]| values.iter().map(|cell| format!("`{cell}`")).collect::<Vec<_>>().join(", ");
    match accepts {
        Accepts::One(cell) => format!("is `{cell}`"),
        Accepts::Any(cells) => format!("is one of {}", listed(cells)),
        Accepts::Within(bounds) => {
            let number = |words: &str, bound: Option<f64>| bound.map(|x| format!("is {words} {x}"));
            let all = [
                number("at least", bounds.at_least),
                number("at most", bounds.at_most),
                number("above", bounds.above),
                number("below", bounds.below),
                bounds.not.as_ref().map(|cell| format!("is not `{cell}`")),
            ];
            all.into_iter().flatten().collect::<Vec<_>>().join(" and ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::registry;

    fn declared(text: &str) -> Derivation {
        let derivation: Derivation = toml::from_str(text).unwrap();
        declare::check(&derivation).unwrap();
        derivation
    }

    fn said(text: &str) -> String {
        recipe(&declared(text), "demo", false).join(" ")
    }

    #[test]
    fn a_mean_over_rows_has_a_formula_of_its_own() {
        for (data, id) in [
            ("training\"\nof = \"loss", "mean_of_rows"),
            ("calls\"\nof = \"completion_tokens", "mean_of_rows"),
            ("harvest\"\nof = \"reward", "mean_of_rows"),
            ("episodes\"\nof = \"reward", "mean"),
            ("imported\"\nof = \"reward", "mean"),
        ] {
            let derivation = declared(&format!("estimator = \"mean\"\ndata = \"{data}\""));
            assert_eq!(estimator_id(&derivation), id, "{data}");
            let known = registry::find(id).unwrap();
            assert_eq!(known.parts, declare::parts(&derivation), "{data}");
        }
        let text = said("data = \"training\"\nestimator = \"mean\"\nof = \"loss\"");
        assert!(text.ends_with("Compute `mean` of `loss`, each row weighing the same."), "{text}");
    }

    #[test]
    fn the_column_that_is_read_is_named_where_none_is_declared() {
        let text = said(
            "data = \"episodes\"\nestimator = \"tasks_where\"\narms = [\"a\"]\nis = { at_least = 0.5 }\nband = { above = 0 }",
        );
        assert!(text.contains("Count `reward` as 1 where it is at least 0.5, else as 0."), "{text}");
        assert!(text.contains("Compute `tasks_where` of `reward`."), "{text}");
        let text = said("data = \"episodes\"\nestimator = \"count\"");
        assert!(text.ends_with("Compute `count`."), "{text}");
    }

    #[test]
    fn a_family_of_tests_is_adjusted_together() {
        for (estimator, method) in [("holm", "Holm"), ("benjamini_hochberg", "Benjamini and Hochberg")] {
            let text = said(&format!(
                "data = \"derivations\"\nestimator = \"{estimator}\"\nof = \"delta, by_family\""
            ));
            let wanted =
                format!("Adjust the p values of `delta`, `by_family` together, by the method of {method}.");
            assert!(text.starts_with(&wanted) && !text.contains("Work out"), "{text}");
        }
        let text = said("data = \"derivations\"\nestimator = \"value\"\nof = \"1 - base\"");
        assert_eq!(text, "Work out `1 - base` from the numbers of those derivations.");
    }

    #[test]
    fn a_margin_is_locked_only_where_the_plan_has_it() {
        let text = "data = \"episodes\"\nestimator = \"paired_delta\"\narms = [\"a\", \"b\"]\nmargin = 0.05";
        assert!(said(text).ends_with("Hold it against the margin 0.05, declared in this derivation."));
        let locked = recipe(&declared(text), "demo", true).join(" ");
        assert!(locked.ends_with("Hold it against the margin 0.05, locked with the plan."), "{locked}");
    }

    #[test]
    fn nulls_and_clusters_are_told_where_they_are_declared() {
        let base = "data = \"episodes\"\nestimator = \"paired_delta\"\narms = [\"a\", \"b\"]";
        let plain = said(base);
        assert!(!plain.contains("null") && !plain.contains("whole families"), "{plain}");
        let text = said(&format!("{base}\nnulls = \"zero\"\ncluster = \"family\""));
        assert!(text.contains("Count a null in `reward` as 0."), "{text}");
        assert!(text.contains("Take the interval over whole families, not over single tasks."), "{text}");
        let text = said(&format!("{base}\nnulls = \"omit\""));
        assert!(text.contains("Leave out the rows in which `reward` is null, and count them."), "{text}");
    }
}
