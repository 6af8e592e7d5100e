//! gatepost: deciding which traveller a rule set admits. Level 1 is one rule and four
//! numbered travellers; later levels ask for several conditions at once, forbid what would else be
//! let in, and let sources of different rank contradict each other.

use super::atom::{Answer, AtomSpec};
use super::knobs::{GatepostKnobs, LEVEL_ONE};
use super::{Draft, FamilyInfo, Kind, Side, words};
use crate::philox::Philox;

/// The family's entry in the registry.
pub const INFO: FamilyInfo = FamilyInfo {
    name: "gatepost",
    axis: "deciding what a rule set admits, and which source to believe",
    kind: Kind::Atom,
    side: Side::Train,
    version: 1,
    floor: 0.30,
    draft: |level, rng| draft(level, rng, &LEVEL_ONE.gatepost),
};

const STUFFS: [&str; 8] = ["brass", "bone", "iron", "silver", "clay", "jade", "tin", "oak"];
const THINGS: [&str; 8] = ["key", "bell", "cup", "ring", "flute", "mask", "drum", "lamp"];
const CLOAKS: [&str; 8] = ["red", "blue", "green", "white", "black", "grey", "yellow", "brown"];
const ROADS: [&str; 8] = ["hill", "river", "salt", "forest", "marsh", "coast", "desert", "ice"];
const SOURCES: [&str; 8] = ["warden", "clerk", "beggar", "priest", "miller", "smith", "ferryman", "cook"];
/// The answer when no traveller may enter.
const NOBODY: &str = "nobody";

// Places of what a traveller shows in `Looks`.
const ITEM: usize = 0;
const CLOAK: usize = 1;
const ROAD: usize = 2;

/// What a traveller shows: an item of two words, a cloak and a road.
type Looks = [String; 3];

fn value(rng: &mut Philox, aspect: usize) -> String {
    match aspect {
        ITEM => format!("{} {}", rng.choose(&STUFFS), rng.choose(&THINGS)),
        CLOAK => rng.choose(&CLOAKS).to_string(),
        _ => rng.choose(&ROADS).to_string(),
    }
}

fn other_value(rng: &mut Philox, aspect: usize, not: &str) -> String {
    loop {
        let candidate = value(rng, aspect);
        if candidate != not {
            return candidate;
        }
    }
}

/// How many words two items share.
fn shared(a: &str, b: &str) -> usize {
    a.split(' ').zip(b.split(' ')).filter(|(a, b)| a == b).count()
}

/// An item that shares exactly one word with `item`, or none at all and then, unless that is
/// hard to find, none with those in `placed` either.
fn other_item(rng: &mut Philox, item: &str, similar: bool, placed: &[String]) -> String {
    const TRIES: usize = 40;
    let mut tries = 0;
    loop {
        let candidate = value(rng, ITEM);
        let apart = similar || placed.iter().all(|p| shared(p, &candidate) == 0);
        if shared(&candidate, item) == usize::from(similar) && (apart || tries >= TRIES) {
            return candidate;
        }
        tries += 1;
    }
}

fn condition(aspect: usize, value: &str) -> String {
    match aspect {
        ITEM => format!("carry the {value}"),
        CLOAK => format!("wear a {value} cloak"),
        _ => format!("come by the {value} road"),
    }
}

fn show(looks: &Looks, aspects: &[usize]) -> String {
    let parts: Vec<String> = aspects
        .iter()
        .map(|aspect| match *aspect {
            ITEM => looks[ITEM].clone(),
            CLOAK => format!("{} cloak", looks[CLOAK]),
            _ => format!("{} road", looks[ROAD]),
        })
        .collect();
    parts.join(", ")
}

/// Largest number a traveller is known by where names are left out.
const MAX_NUMBER: i64 = 20;

fn draft(level: u8, rng: &mut Philox, knobs: &GatepostKnobs) -> Draft {
    match level {
        1 => simple(rng, knobs),
        2 => simple(rng, &GatepostKnobs { rules: 2, travellers: 4, near_misses: 2, numbered: false }),
        3 => contested(rng, false),
        _ => contested(rng, true),
    }
}

/// Levels 1 and 2: the conditions of one sign must hold together, and exactly one traveller meets them.
fn simple(rng: &mut Philox, knobs: &GatepostKnobs) -> Draft {
    let count = knobs.travellers.clamp(4, 8);
    let mut aspects = vec![CLOAK, ROAD];
    rng.shuffle(&mut aspects);
    aspects.insert(0, ITEM);
    aspects.truncate(knobs.rules.clamp(1, 3));
    let wanted: Looks = std::array::from_fn(|aspect| value(rng, aspect));
    let numbered = knobs.numbered && aspects.len() == 1;
    let names = if numbered { words::numbers(rng, count, MAX_NUMBER) } else { words::names(rng, count) };
    let right = rng.below(count);
    let mut near_misses = knobs.near_misses;
    let mut travellers = vec![wanted.clone(); count];
    let mut placed = Vec::new();
    for place in (1..count).map(|step| (right + step) % count) {
        let looks = &mut travellers[place];
        let near = near_misses > 0;
        near_misses = near_misses.saturating_sub(1);
        if aspects.len() == 1 {
            looks[ITEM] = other_item(rng, &wanted[ITEM], near, &placed);
            placed.push(looks[ITEM].clone());
            continue;
        }
        // A near miss fails one condition, any other wrong traveller fails them all.
        let failed = *rng.choose(&aspects);
        for &aspect in aspects.iter().filter(|a| !near || **a == failed) {
            looks[aspect] = other_value(rng, aspect, &wanted[aspect]);
        }
    }
    let lines: Vec<String> = names
        .iter()
        .zip(&travellers)
        .map(|(name, looks)| match numbered {
            true => format!("{}: {name}", looks[ITEM]),
            false => format!("{name}: {}", show(looks, &aspects)),
        })
        .collect();
    if numbered {
        let prompt = format!(
            "At the gate:\n{}\nReply with one line, ANSWER: <item>: <number>.\nOnly one may enter: {}",
            lines.join("\n"),
            wanted[ITEM]
        );
        let answer = Answer::Word { right, options: names };
        return Draft::atom(AtomSpec { prompt, answer, label: Some(wanted[ITEM].clone()) }, right);
    }
    let conditions: Vec<String> = aspects.iter().map(|&a| condition(a, &wanted[a])).collect();
    let prompt = format!(
        "Only those who {} may enter.\n{}\nWho may enter? Reply with one line, ANSWER: <name>.",
        conditions.join(" and "),
        lines.join("\n")
    );
    Draft::atom(AtomSpec { prompt, answer: Answer::Word { right, options: names }, label: None }, right)
}

/// Levels 3 and 4: at most one of five travellers passes. Level 3 has two conditions and a
/// ban; at level 4 four sources speak, and on each matter the highest of them is right.
fn contested(rng: &mut Philox, sources: bool) -> Draft {
    const COUNT: usize = 5;
    let wanted: Looks = std::array::from_fn(|aspect| value(rng, aspect));
    let mut aspects = vec![ITEM, CLOAK, ROAD];
    rng.shuffle(&mut aspects);
    let [first, second, third] = [aspects[0], aspects[1], aspects[2]];
    // A false claim on `first` at level 4, what is banned on `third` at both levels.
    let decoy = other_value(rng, first, &wanted[first]);
    let banned = other_value(rng, third, &wanted[third]);
    let mut options = words::names(rng, COUNT);
    options.push(NOBODY.to_string());
    let right = rng.below(COUNT + 1);
    let mut travellers = vec![wanted.clone(); COUNT];
    for (place, looks) in travellers.iter_mut().enumerate() {
        if place == right {
            continue;
        }
        // Each wrong traveller fails in one way, and some fit the decoy in its stead.
        match rng.below(4) {
            0 => looks[third] = banned.clone(),
            1 => looks[second] = other_value(rng, second, &wanted[second]),
            2 => looks[first] = other_value(rng, first, &wanted[first]),
            _ => looks[first] = decoy.clone(),
        }
        if looks[third] != banned {
            looks[third] = other_value(rng, third, &banned);
        }
    }
    let rules = if sources {
        let mut speakers = words::sample(rng, &SOURCES, 4);
        let rank =
            format!("Rank: {}. On each matter believe the highest who speaks of it.", speakers.join(", "));
        let (top, low) = (speakers[0], speakers.split_off(1));
        // The decoy is claimed by someone below whoever tells the truth about that matter.
        let mut claims = vec![
            format!("The {}: they must {}.", low[0], condition(first, &wanted[first])),
            format!("The {}: they must {}.", low[1 + rng.below(2)], condition(first, &decoy)),
            format!("The {}: they must {}.", low[2], condition(second, &wanted[second])),
            format!("The {top}: they must not {}.", condition(third, &banned)),
        ];
        rng.shuffle(&mut claims);
        format!("{rank}\n{}", claims.join("\n"))
    } else {
        format!(
            "Only those who {} and {} may enter, but never those who {}.",
            condition(first, &wanted[first]),
            condition(second, &wanted[second]),
            condition(third, &banned)
        )
    };
    let lines: Vec<String> = options
        .iter()
        .zip(&travellers)
        .map(|(name, looks)| format!("{name}: {}", show(looks, &[ITEM, CLOAK, ROAD])))
        .collect();
    let prompt = format!(
        "{rules}\n{}\nWho may enter? Reply with one line, ANSWER: <name>, or ANSWER: {NOBODY}.",
        lines.join("\n")
    );
    Draft::atom(AtomSpec { prompt, answer: Answer::Word { right, options }, label: None }, right)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specs(level: u8) -> impl Iterator<Item = AtomSpec> {
        (0..300).map(move |seed| {
            let draft = (INFO.draft)(level, &mut Philox::named(&format!("gatepost/{level}/{seed}")));
            serde_json::from_value(draft.hidden).unwrap()
        })
    }

    /// The part of a condition that also stands in a traveller's line.
    fn shown(condition: &str) -> String {
        let c = condition.trim();
        c.trim_start_matches("carry the ")
            .trim_start_matches("wear a ")
            .trim_start_matches("come by the ")
            .to_string()
    }

    fn admitted(prompt: &str, must: &[String], never: &[String], options: &[String]) -> Vec<usize> {
        let line =
            |name: &String| prompt.lines().find(|l| l.starts_with(&format!("{name}: "))).map(str::to_string);
        (0..options.len())
            .filter(|&i| {
                line(&options[i]).is_some_and(|l| {
                    must.iter().all(|m| l.contains(m.as_str()))
                        && !never.iter().any(|n| l.contains(n.as_str()))
                })
            })
            .collect()
    }

    fn check(spec: &AtomSpec, must: &[String], never: &[String]) {
        let Answer::Word { right, options } = &spec.answer else { panic!("not a word") };
        let admitted = admitted(&spec.prompt, must, never, options);
        match options[*right].as_str() {
            NOBODY => assert!(admitted.is_empty(), "{}", spec.prompt),
            _ => assert_eq!(admitted, [*right], "{}", spec.prompt),
        }
    }

    #[test]
    fn a_sign_admits_exactly_the_answer() {
        for spec in (2..=3).flat_map(specs) {
            let sign = spec.prompt.lines().next().unwrap().trim_start_matches("Only those who ");
            let (must, never) = sign.split_once(" may enter").unwrap();
            let must: Vec<String> = must.split(" and ").map(shown).collect();
            let never: Vec<String> = never
                .split_once("never those who ")
                .iter()
                .map(|(_, n)| shown(n.trim_end_matches('.')))
                .collect();
            check(&spec, &must, &never);
        }
    }

    #[test]
    fn the_highest_source_admits_exactly_the_answer() {
        for spec in specs(4) {
            let mut lines = spec.prompt.lines();
            let rank = lines.next().unwrap().trim_start_matches("Rank: ").split('.').next().unwrap();
            let mut claims: Vec<&str> = lines.filter(|l| l.starts_with("The ")).collect();
            let place = |claim: &str| {
                let who = claim.trim_start_matches("The ").split(':').next().unwrap().to_string();
                rank.split(", ").position(|r| r == who).unwrap()
            };
            claims.sort_by_key(|c| place(c));
            let (mut must, mut never, mut settled) = (Vec::new(), Vec::new(), Vec::new());
            for claim in claims {
                let said = claim.split_once(": they must ").unwrap().1.trim_end_matches('.');
                let plain = said.trim_start_matches("not ");
                let matter = plain.split(' ').next().unwrap().to_string();
                if !settled.contains(&matter) {
                    settled.push(matter);
                    if plain == said { must.push(shown(plain)) } else { never.push(shown(plain)) }
                }
            }
            assert_eq!((must.len(), never.len()), (2, 1), "{}", spec.prompt);
            check(&spec, &must, &never);
        }
    }

    #[test]
    fn the_item_asked_for_stands_beside_the_right_number() {
        for spec in specs(1) {
            let Answer::Word { right, options } = &spec.answer else { panic!("not a word") };
            let item = spec.prompt.split("Only one may enter: ").nth(1).unwrap();
            let numbers: Vec<&str> =
                spec.prompt.lines().filter_map(|l| l.strip_prefix(&format!("{item}: "))).collect();
            assert_eq!(numbers, [options[*right].as_str()], "{}", spec.prompt);
            assert_eq!(spec.label.as_deref(), Some(item));
            assert_eq!(spec.answer.domain(), Some(4));
        }
    }

    #[test]
    fn knobs_name_travellers_and_ask_for_several_looks() {
        for (rules, numbered) in [(1, false), (3, true)] {
            let knobs = GatepostKnobs { rules, travellers: 6, near_misses: 1, numbered };
            for seed in 0..50 {
                let draft = draft(1, &mut Philox::named(&format!("knobs/{seed}")), &knobs);
                let spec: AtomSpec = serde_json::from_value(draft.hidden).unwrap();
                assert_eq!(spec.label, None);
                let sign = spec.prompt.lines().next().unwrap().trim_start_matches("Only those who ");
                let must: Vec<String> =
                    sign.trim_end_matches(" may enter.").split(" and ").map(shown).collect();
                assert_eq!(must.len(), rules);
                check(&spec, &must, &[]);
            }
        }
    }

    #[test]
    fn knobs_make_near_misses() {
        let knobs = GatepostKnobs { rules: 1, travellers: 4, near_misses: 3, numbered: true };
        for seed in 0..50 {
            let draft = draft(1, &mut Philox::named(&format!("knobs/{seed}")), &knobs);
            let prompt = draft.hidden["prompt"].as_str().unwrap();
            let (list, item) = prompt.split_once("\nReply").unwrap();
            let item = item.split("Only one may enter: ").nth(1).unwrap();
            let listed: Vec<&str> = list.lines().filter_map(|l| l.split_once(": ")).map(|(i, _)| i).collect();
            assert_eq!(listed.iter().filter(|i| **i == item).count(), 1);
            let similar = |i: &str| i.split(' ').zip(item.split(' ')).any(|(a, b)| a == b);
            assert_eq!(listed.iter().filter(|i| similar(i)).count(), 4, "{prompt}");
        }
    }
}
