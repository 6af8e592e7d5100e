//! What another version of the rows does to the numbers: every derivation whose value moves, where
//! it is printed, and the claims that rest on it.

use crate::claims::derivation::Reference;
use crate::claims::{Book, Texts, fill};
use crate::error::Result;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Contents that stand in for files, by path relative to the workspace.
pub type Instead = BTreeMap<String, Vec<u8>>;

/// A place that prints a number that moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The file, relative to the workspace.
    pub file: String,
    /// Line of the link, from 1.
    pub line: usize,
    /// What is printed.
    pub printed: String,
    /// What `fill --update` would print; null where the printed text stays right at its precision.
    pub becomes: Option<String>,
}

/// A number that moves.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Moved {
    /// Its address, `derive:…`.
    pub reference: String,
    /// What the earlier rows give; null where it is undefined.
    pub before: Option<f64>,
    /// What the later rows give.
    pub after: Option<f64>,
    /// Where it is printed, in the order of the texts.
    pub places: Vec<Place>,
}

/// A claim that rests on a number that moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Touched {
    /// Its id.
    pub claim: String,
    /// Its file, relative to the workspace.
    pub file: String,
    /// The numbers that it prints or names as evidence.
    pub references: Vec<String>,
}

/// All that moves between two versions of the rows.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Movement {
    /// Numbers, by address.
    pub numbers: Vec<Moved>,
    /// Claims, in the order of the ledger.
    pub claims: Vec<Touched>,
}

impl Movement {
    /// Printed numbers that are no longer what the rows give.
    pub fn stale(&self) -> usize {
        let places = self.numbers.iter().flat_map(|moved| &moved.places);
        places.filter(|place| place.becomes.is_some()).count()
    }
}

/// What moves in a workspace when the files of `before` become those of `after`; a file that one of them does not
/// name is read from disk.
pub fn between(workspace: &Path, before: &Instead, after: &Instead) -> Result<Movement> {
    if before == after {
        return Ok(Movement::default());
    }
    let texts = Texts::load(workspace)?;
    let old = Book::build_with(workspace, &texts, before)?.numbers();
    let book = Book::build_with(workspace, &texts, after)?;
    let new = book.numbers();
    let addresses: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let mut moved: BTreeMap<&str, Moved> = BTreeMap::new();
    for address in addresses {
        let of = |numbers: &BTreeMap<String, Option<f64>>| numbers.get(address).copied().flatten();
        let (before, after) = (of(&old), of(&new));
        if before != after {
            let reference = address.clone();
            moved.insert(address, Moved { reference, before, after, places: Vec::new() });
        }
    }
    for document in texts.documents() {
        for link in document.links() {
            let Ok(reference) = &link.reference else { continue };
            let Some(moved) = moved.get_mut(reference.to_string().as_str()) else { continue };
            let resolved = book.resolve(reference).ok();
            moved.places.push(Place {
                file: link.file,
                line: link.line,
                becomes: resolved.and_then(|it| fill::updated(&link.printed, &it, &reference.part)),
                printed: link.printed.trim().to_string(),
            });
        }
    }
    let claims = texts.claims.iter().filter_map(|claim| {
        let printed = claim.document.links().into_iter().filter_map(|link| link.reference.ok());
        let rests: BTreeSet<Reference> = printed.chain(claim.evidence().cloned()).collect();
        let references: Vec<String> = rests
            .iter()
            .map(ToString::to_string)
            .filter(|reference| moved.contains_key(reference.as_str()))
            .collect();
        let file = claim.document.path.clone();
        (!references.is_empty()).then(|| Touched { claim: claim.id.clone(), file, references })
    });
    let claims: Vec<Touched> = claims.collect();
    Ok(Movement { claims, numbers: moved.into_values().collect() })
}
