//! brinework: two amounts, salt and water, of which each event changes only what it
//! touches: sun takes water and leaves the salt. Level 1 is one pan, listed, and one event; later
//! levels add pours between pans and the salt that falls out when too little water is left.

use super::atom::{Answer, AtomSpec};
use super::knobs::{BrineworkKnobs, LEVEL_ONE};
use super::{Draft, FamilyInfo, Kind, Side, words};
use crate::philox::Philox;

/// The family's entry in the registry.
pub const INFO: FamilyInfo = FamilyInfo {
    name: "brinework",
    axis: "conserved amounts through mixing and drying",
    kind: Kind::Atom,
    side: Side::HeldOut,
    version: 1,
    floor: 0.15,
    draft: |level, rng| draft(level, rng, &LEVEL_ONE.brinework),
};

const PANS: [&str; 24] = [
    "heron", "reed", "moon", "gull", "stone", "cedar", "otter", "wind", "ember", "pearl", "fox", "willow",
    "crane", "frost", "cliff", "amber", "seal", "thorn", "star", "dune", "raven", "shell", "fern", "tide",
];

/// Salt and water of one pan; its name is empty where there is no other.
struct Pan {
    name: &'static str,
    salt: i64,
    water: i64,
}

impl Pan {
    fn holds(&self) -> String {
        format!("the {} pan holds {} salt, {} water", self.name, self.salt, self.water)
    }

    /// Changes one of the amounts by up to `most`, never to nothing; returns the line and
    /// whether salt was changed.
    fn change(&mut self, rng: &mut Philox, most: i64) -> (String, bool) {
        let changes_salt = rng.below(2) == 0;
        let amount = if changes_salt { &mut self.salt } else { &mut self.water };
        let spare = (*amount - 1).min(most);
        let down = spare >= 1 && rng.below(2) == 0;
        let by = rng.between(1, if down { spare } else { most });
        *amount += if down { -by } else { by };
        let (what, way) = match (changes_salt, down) {
            (true, true) => (format!("Rakers take {by} salt"), "from"),
            (true, false) => (format!("Rakers drop {by} salt"), "into"),
            (false, true) => (format!("Sun takes {by} water"), "from"),
            (false, false) => (format!("Rain adds {by} water"), "to"),
        };
        let place =
            if self.name.is_empty() { String::new() } else { format!(" {way} the {} pan", self.name) };
        (format!("{what}{place}."), changes_salt)
    }
}

fn draft(level: u8, rng: &mut Philox, knobs: &BrineworkKnobs) -> Draft {
    match level {
        1 => single(rng, knobs),
        2 => course(rng),
        3 => poured(rng, false),
        _ => poured(rng, true),
    }
}

fn prompt(rng: &mut Philox, start: &str, events: &[String], question: &str) -> String {
    format!(
        "Salt works of {}: {start}.\n{}\n{question} Reply with one line, ANSWER: <number>.",
        words::name(rng),
        events.join("\n")
    )
}

/// Level 1: one event, and a question about the amount that stayed or the one that changed.
fn single(rng: &mut Philox, knobs: &BrineworkKnobs) -> Draft {
    let salt = rng.between(2, knobs.max_amount);
    // Never the same number, so that copying the wrong amount is wrong.
    let mut water = rng.between(2, knobs.max_amount - 1);
    water += i64::from(water >= salt);
    let mut pan = Pan { name: "", salt, water };
    let (event, changed_salt) = pan.change(rng, knobs.max_change);
    let lookup = words::chance(rng, knobs.lookup_percent);
    let (substance, value) = if changed_salt != lookup { ("salt", pan.salt) } else { ("water", pan.water) };
    let prompt = format!(
        "Salt pan of {}:\nsalt: {salt}\nwater: {water}\n{event}\nReply with one line, ANSWER: <number>.\nHow much {substance}?",
        words::name(rng)
    );
    let answer = Answer::Number { value, low: 1, high: knobs.max_amount + knobs.max_change };
    let form = usize::from(lookup) + 2 * usize::from(substance == "water");
    Draft::atom(AtomSpec { prompt, answer, label: None }, form)
}

/// Level 2: four events on one pan, one of which may pour half of the brine away.
fn course(rng: &mut Philox) -> Draft {
    let mut pan =
        Pan { name: PANS[rng.below(PANS.len())], salt: rng.between(4, 24), water: rng.between(4, 24) };
    let start = pan.holds();
    let mut events = Vec::new();
    for _ in 0..4 {
        if pan.salt % 2 == 0 && pan.water % 2 == 0 && rng.below(2) == 0 {
            pan.salt /= 2;
            pan.water /= 2;
            events.push(format!("Half of the brine in the {} pan is poured away.", pan.name));
        } else {
            events.push(pan.change(rng, 6).0);
        }
    }
    let form = rng.below(2);
    let (substance, value) = [("salt", pan.salt), ("water", pan.water)][form];
    let question = format!("How much {substance} does it hold now?");
    let prompt = prompt(rng, &start, &events, &question);
    let answer = Answer::Number { value, low: 1, high: 48 };
    Draft::atom(AtomSpec { prompt, answer, label: None }, form)
}

/// Levels 3 and 4: two pans, one of them poured into the other between events. Level 4 asks
/// for the crust: the salt for which the water at the end does not suffice.
fn poured(rng: &mut Philox, crust: bool) -> Draft {
    let names = words::sample(rng, &PANS, 2);
    // Much salt and little water, so that some salt always falls out at level 4.
    let mut into = Pan { name: names[0], salt: rng.between(15, 40), water: rng.between(6, 24) };
    let mut from = Pan { name: names[1], salt: rng.between(15, 40), water: rng.between(6, 24) };
    let start = format!("{}; {}", into.holds(), from.holds());
    let mut events = Vec::new();
    for _ in 0..3 {
        let pan = if rng.below(2) == 0 { &mut into } else { &mut from };
        events.push(pan.change(rng, 3).0);
    }
    events.push(format!("All of the {} pan is poured into the {} pan.", from.name, into.name));
    into.salt += from.salt;
    into.water += from.water;
    for _ in 0..if crust { 2 } else { 1 } {
        events.push(into.change(rng, 3).0);
    }
    let form = rng.below(2);
    let (question, value) = if crust {
        let need = 3 + form as i64;
        let question = format!(
            "Each {need} water keep 1 salt dissolved (whole numbers, rounded down); the rest of the salt falls out as \
             crust. How much crust lies in the {} pan?",
            into.name
        );
        (question, into.salt - into.water / need)
    } else {
        let (substance, value) = [("salt", into.salt), ("water", into.water)][form];
        (format!("How much {substance} does the {} pan hold now?", into.name), value)
    };
    let prompt = prompt(rng, &start, &events, &question);
    let answer = Answer::Number { value, low: 1, high: 95 };
    Draft::atom(AtomSpec { prompt, answer, label: None }, form)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Reads the prompt and works the pans again, by another road than the generator's.
    fn rework(prompt: &str) -> i64 {
        if prompt.starts_with("Salt pan of ") {
            return rework_list(prompt);
        }
        let (start, events) = prompt.split_once(".\n").unwrap();
        let mut pans: BTreeMap<String, [i64; 2]> = BTreeMap::new();
        let mut asked = String::new();
        for part in start.split_once(": ").unwrap().1.split("; ") {
            let words: Vec<&str> = part.split([' ', ',']).filter(|w| !w.is_empty()).collect();
            asked = words[1].to_string();
            pans.insert(asked.clone(), [words[4].parse().unwrap(), words[6].parse().unwrap()]);
        }
        for line in events.lines() {
            let words: Vec<&str> = line.split([' ', '.', '?']).collect();
            let slot = |substance: &str| usize::from(substance == "water");
            match words[..] {
                [_, "take" | "takes", n, what, "from", "the", pan, ..] => {
                    pans.get_mut(pan).unwrap()[slot(what)] -= n.parse::<i64>().unwrap();
                }
                [_, "drop" | "adds", n, what, "into" | "to", "the", pan, ..] => {
                    pans.get_mut(pan).unwrap()[slot(what)] += n.parse::<i64>().unwrap();
                }
                ["Half", .., "the", pan, "pan", "is", "poured", "away", ""] => {
                    *pans.get_mut(pan).unwrap() = pans[pan].map(|n| n / 2);
                }
                ["All", "of", "the", from, _, _, _, _, "the", to, ..] => {
                    let poured = pans.insert(from.to_string(), [0, 0]).unwrap();
                    let held = pans.get_mut(to).unwrap();
                    *held = [held[0] + poured[0], held[1] + poured[1]];
                }
                ["How", "much", what, "does", "it", ..] => return pans[&asked][slot(what)],
                ["How", "much", what, "does", "the", pan, ..] => return pans[pan][slot(what)],
                ["Each", need, ..] => {
                    let pan = line.split("lies in the ").nth(1).unwrap().split(' ').next().unwrap();
                    return pans[pan][0] - pans[pan][1].div_euclid(need.parse().unwrap());
                }
                _ => panic!("unread line: {line}"),
            }
        }
        panic!("no question in {prompt}")
    }

    /// The same for level 1, whose amounts are listed.
    fn rework_list(prompt: &str) -> i64 {
        let mut held: BTreeMap<&str, i64> = BTreeMap::new();
        for line in prompt.lines().skip(1) {
            match line.split([' ', '.', '?']).collect::<Vec<_>>()[..] {
                ["salt:", n] => held.insert("salt", n.parse().unwrap()),
                ["water:", n] => held.insert("water", n.parse().unwrap()),
                [_, "take" | "takes", n, what, ""] => {
                    held.insert(what, held[what] - n.parse::<i64>().unwrap())
                }
                [_, "drop" | "adds", n, what, ""] => {
                    held.insert(what, held[what] + n.parse::<i64>().unwrap())
                }
                ["Reply", ..] => None,
                ["How", "much", what, ""] => return held[what],
                _ => panic!("unread line: {line}"),
            };
        }
        panic!("no question in {prompt}")
    }

    #[test]
    fn answers_agree_with_a_second_working_and_stay_in_range() {
        for level in 1..=4 {
            for seed in 0..300 {
                let draft = (INFO.draft)(level, &mut Philox::named(&format!("brinework/{level}/{seed}")));
                let spec: AtomSpec = serde_json::from_value(draft.hidden).unwrap();
                let Answer::Number { value, low, high } = spec.answer else { panic!("not a number") };
                assert_eq!(rework(&spec.prompt), value, "{}", spec.prompt);
                assert!((low..=high).contains(&value), "{value} is not in {low}..={high}");
            }
        }
    }

    #[test]
    fn a_look_up_asks_for_the_amount_that_stayed() {
        for lookup_percent in [0, 100] {
            let knobs = BrineworkKnobs { max_amount: 9, max_change: 4, lookup_percent };
            for seed in 0..100 {
                let draft = draft(1, &mut Philox::named(&format!("knobs/{seed}")), &knobs);
                let prompt = draft.hidden["prompt"].as_str().unwrap();
                let event = prompt.lines().nth(3).unwrap();
                let asked = prompt.split("How much ").nth(1).unwrap().trim_end_matches('?');
                assert_eq!(event.contains(&format!(" {asked}.")), lookup_percent == 0, "{prompt}");
            }
        }
    }
}
