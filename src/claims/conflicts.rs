//! What claims say of one another, and whether their statuses allow it: a claim that was replaced is no longer held, two that
//! contradict each other are not both held, and nothing is contested or refuted without what speaks against it. Needs no number.

use super::ledger::{Claim, Status};
use std::collections::{BTreeMap, BTreeSet};

/// A rule that a claim's place in the ledger breaks.
#[derive(Debug, Clone)]
pub struct Conflict<'a> {
    /// The claim to change.
    pub claim: &'a Claim,
    /// The key of its front matter where it stands.
    pub key: &'static str,
    /// Which of several of that key, from 0.
    pub nth: usize,
    /// The rule.
    pub rule: &'static str,
    /// What does not hold.
    pub text: String,
    /// What to do.
    pub hint: &'static str,
}

/// Whether a claim is held for true.
fn held(status: Status) -> bool {
    matches!(status, Status::Promising | Status::Confirmed)
}

/// All conflicts of a ledger.
pub fn of(claims: &[Claim]) -> Vec<Conflict<'_>> {
    let by_id: BTreeMap<&str, &Claim> = claims.iter().map(|claim| (claim.id.as_str(), claim)).collect();
    let mut found = Vec::new();
    for claim in claims {
        found.extend(unknown(claim, &by_id));
        found.extend(superseded(claim, &by_id));
        found.extend(contradicted(claim, &by_id));
        found.extend(without_contradiction(claim));
    }
    found
}

fn unknown<'a>(claim: &'a Claim, by_id: &BTreeMap<&str, &'a Claim>) -> Vec<Conflict<'a>> {
    let missing = claim.contradicts.iter().filter(|id| !by_id.contains_key(id.as_str()) || **id == claim.id);
    let conflict = |id: &String| Conflict {
        claim,
        key: "contradicts",
        nth: 0,
        rule: "contradiction",
        text: if *id == claim.id {
            "the claim contradicts itself".into()
        } else {
            format!("there is no claim `{id}`")
        },
        hint: "name another claim of the ledger",
    };
    missing.map(conflict).collect()
}

/// A claim that replaces another, while that one is still held; or a circle of claims that replace each other.
fn superseded<'a>(claim: &'a Claim, by_id: &BTreeMap<&str, &'a Claim>) -> Option<Conflict<'a>> {
    let conflict = |claim, text| Conflict {
        claim,
        key: "supersedes",
        nth: 0,
        rule: "superseded",
        text,
        hint: "give the replaced claim a dated [[history]] entry with the status `retired` or `refuted`",
    };
    let old = by_id.get(claim.supersedes.as_deref()?)?;
    let mut seen = BTreeSet::from([claim.id.as_str()]);
    let mut next = Some(*old);
    while let Some(one) = next {
        if !seen.insert(&one.id) {
            return (one.id == claim.id && old.id != claim.id).then(|| {
                conflict(claim, format!("claims `{}` and `{}` replace each other", claim.id, old.id))
            });
        }
        next = one.supersedes.as_deref().and_then(|id| by_id.get(id).copied());
    }
    (!matches!(old.status, Status::Retired | Status::Refuted)).then(|| {
        let text = format!("replaces `{}`, which is still {}", old.id, old.status.word().to_lowercase());
        conflict(claim, text)
    })
}

/// Two claims that contradict each other and are both held; named is the one whose status is the newer.
fn contradicted<'a>(claim: &'a Claim, by_id: &BTreeMap<&str, &'a Claim>) -> Vec<Conflict<'a>> {
    let others = claim.contradicts.iter().filter_map(|id| by_id.get(id.as_str()).copied());
    let both = others.filter(|other| other.id != claim.id && held(other.status) && held(claim.status));
    let dated = |claim: &Claim| claim.history.last().map(|change| change.date);
    let conflict = |other: &'a Claim| {
        let (newer, older) = if dated(other) > dated(claim) { (other, claim) } else { (claim, other) };
        let text = format!(
            "is {} and contradicts `{}`, which is {}",
            newer.status.word().to_lowercase(),
            older.id,
            older.status.word().to_lowercase()
        );
        Conflict {
            claim: newer,
            key: "status",
            nth: 0,
            rule: "contradiction",
            text,
            hint: "contest one of them, with what speaks against it",
        }
    };
    both.map(conflict).collect()
}

/// A claim that is contested or refuted by nothing.
fn without_contradiction(claim: &Claim) -> Option<Conflict<'_>> {
    let mut against = false;
    for (nth, change) in claim.history.iter().enumerate() {
        against |= !change.against.is_empty();
        if matches!(change.status, Status::Contested | Status::Refuted) && !against {
            return Some(Conflict {
                claim,
                key: "[[history]]",
                nth,
                rule: "nothing_against",
                text: format!(
                    "is {} on {}, and nothing speaks against it",
                    change.status.word().to_lowercase(),
                    change.date
                ),
                hint: "name what does: `against = [\"derive:<scope>.<id>\"]`",
            });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::front_matter::{Document, Front};

    fn claim(id: &str, status: &str, extra: &str, entry: &str) -> Claim {
        let text = format!(
            "+++\nid = \"{id}\"\ntitle = \"T\"\nstatus = \"{status}\"\npopulation = \"tasks\"\n{extra}[[history]]\n\
             date = 2026-12-01\nstatus = \"{status}\"\nevidence = [\"derive:x.y\"]\n{entry}+++\nBody\n"
        );
        Claim::parse(Document::split(&format!("claims/{id}.md"), text, Front::Required).unwrap()).unwrap()
    }

    fn rules(claims: &[Claim]) -> Vec<(String, &'static str)> {
        of(claims).into_iter().map(|c| (c.claim.id.clone(), c.rule)).collect()
    }

    #[test]
    fn what_is_replaced_is_no_longer_held() {
        let new = claim("C0002", "promising", "supersedes = \"C0001\"\n", "");
        for (status, wrong) in [("promising", true), ("proposed", true), ("retired", false)] {
            let found = rules(&[claim("C0001", status, "", ""), new.clone()]);
            assert_eq!(!found.is_empty(), wrong, "{status} {found:?}");
        }
        let circle = [claim("C0001", "retired", "supersedes = \"C0002\"\n", ""), new];
        assert_eq!(rules(&circle), [("C0001".into(), "superseded"), ("C0002".into(), "superseded")]);
    }

    #[test]
    fn two_that_contradict_each_other_are_not_both_held() {
        let one = |status: &str| claim("C0001", status, "contradicts = [\"C0002\"]\n", "");
        assert_eq!(
            rules(&[one("confirmed"), claim("C0002", "promising", "", "")]),
            [("C0001".into(), "contradiction")]
        );
        assert!(rules(&[one("confirmed"), claim("C0002", "retired", "", "")]).is_empty());
        assert!(rules(&[one("proposed"), claim("C0002", "promising", "", "")]).is_empty());
        assert_eq!(rules(&[one("proposed")]), [("C0001".into(), "contradiction")]);
        let itself = claim("C0001", "proposed", "contradicts = [\"C0001\"]\n", "");
        assert_eq!(rules(&[itself]), [("C0001".into(), "contradiction")]);
    }

    #[test]
    fn nothing_is_contested_by_nothing() {
        for status in ["contested", "refuted"] {
            assert_eq!(rules(&[claim("C0001", status, "", "")]), [("C0001".into(), "nothing_against")]);
            assert!(rules(&[claim("C0001", status, "", "against = [\"derive:x.z\"]\n")]).is_empty());
        }
    }
}
