//! What must hold of a publication before a page is written: names that are safe as addresses and used
//! once, and a derivation behind every number.

use super::input::Publication;
use crate::error::{Error, Result};
use std::collections::BTreeSet;

/// The first thing that is wrong with the publication's names and references, as an error.
pub fn validate(publication: &Publication) -> Result<()> {
    names("experiment", publication.experiments.iter().map(|e| e.slug.as_str()))?;
    names("claim", publication.claims.iter().map(|c| c.id.as_str()))?;
    names("estimator", publication.method.iter().map(|e| e.id.as_str()))?;
    for experiment in &publication.experiments {
        names("figure", experiment.figures.iter().map(|f| f.id.as_str()))
            .map_err(|e| e.at(format!("experiment `{}`", experiment.slug)))?;
    }
    let mut derivations = BTreeSet::new();
    for derivation in &publication.derivations {
        name("scope", &derivation.scope)?;
        name("derivation", &derivation.id)?;
        if !derivations.insert((derivation.scope.as_str(), derivation.id.as_str())) {
            return Err(Error::invalid(format!(
                "the derivation `{}.{}` is there twice",
                derivation.scope, derivation.id
            )));
        }
    }
    for number in publication.numbers.values() {
        if !derivations.contains(&(number.scope.as_str(), number.id.as_str())) {
            return Err(Error::invalid(format!(
                "the number `{}` belongs to the derivation `{}.{}`, which is not in the publication",
                number.reference, number.scope, number.id
            )));
        }
    }
    Ok(())
}

fn names<'a>(what: &str, all: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = BTreeSet::new();
    for one in all {
        name(what, one)?;
        if !seen.insert(one) {
            return Err(Error::invalid(format!("the {what} `{one}` is there twice")));
        }
    }
    Ok(())
}

/// A name becomes part of addresses and ids: letters, digits, `-`, `_` and `.`, not starting with a dot.
fn name(what: &str, name: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
        return Err(Error::invalid(format!("`{name}` cannot be the name of a page ({what})"))
            .hint("use letters, digits, `-`, `_` and `.`"));
    }
    Ok(())
}
