//! A derivation in words, a sentence each, as its page tells what was done.

use crate::claims::derivation::{Accepts, DataSet, Derivation, Estimator, Population, Weight};
use crate::episode::row::Cell;

pub(super) fn estimator_id(derivation: &Derivation) -> String {
    word(&derivation.estimator)
}

/// A unit variant as it is written in TOML.
fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    }
}

/// The recipe in sentences.
pub(super) fn recipe(derivation: &Derivation, experiment: &str) -> Vec<String> {
    let mut out = Vec::new();
    let of = derivation.of.as_deref().unwrap_or_default();
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
    out.push(format!("Compute `{}`{what}{k}.", estimator_id(derivation)));
    if derivation.weight == Weight::Family {
        out.push("Weigh every family the same.".into());
    }
    if derivation.population == Population::TasksXTrainSeeds {
        out.push("Take the interval over tasks and training seeds together.".into());
    }
    if let Some(margin) = derivation.margin {
        out.push(format!("Hold it against the margin {margin}, which was declared beforehand."));
    }
    out
}

/// What a column must hold, behind its name.
fn condition(accepts: &Accepts) -> String {
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
