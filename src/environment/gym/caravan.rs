//! caravan: keeping a ledger of goods through a log. Level 1 is a short list in which a
//! number is looked up (or, if the knobs say so, changed once); later levels are logs with
//! trades, lines that change nothing, spoilage by halves, and a question about two goods.

use super::atom::{Answer, AtomSpec};
use super::knobs::{CaravanKnobs, LEVEL_ONE};
use super::{Draft, FamilyInfo, Kind, Side, words};
use crate::philox::Philox;

/// The family's entry in the registry.
pub const INFO: FamilyInfo = FamilyInfo {
    name: "caravan",
    axis: "keeping a ledger of goods through a log",
    kind: Kind::Atom,
    side: Side::Train,
    version: 1,
    floor: 0.15,
    draft: |level, rng| draft(level, rng, &LEVEL_ONE.caravan),
};

const GOODS: [&str; 20] = [
    "figs", "furs", "lamps", "beads", "bells", "drums", "combs", "masks", "ropes", "bowls", "knives",
    "shells", "candles", "mirrors", "needles", "kettles", "hides", "scrolls", "jars", "rugs",
];
const IDLE: [&str; 6] = [
    "hire {n} guards",
    "water {n} camels",
    "rest {n} days at the ford",
    "pass {n} ruined towers",
    "wait {n} days for the wind",
    "greet {n} pilgrims",
];

/// What a log is made of.
struct Shape {
    goods: usize,
    lines: usize,
    max_quantity: i64,
    max_change: i64,
    /// Whether the asked good stays as it was loaded.
    lookup: bool,
    /// Whether goods are listed with their number behind (`figs: 10`) and the question comes last.
    listed: bool,
    trades: bool,
    idle: bool,
    spoilage: bool,
    /// How many goods the question adds up.
    asked: usize,
    high: i64,
}

fn draft(level: u8, rng: &mut Philox, knobs: &CaravanKnobs) -> Draft {
    let plain = Shape {
        goods: 3,
        lines: knobs.lines.clamp(2, GOODS.len()),
        max_quantity: knobs.max_quantity,
        max_change: knobs.max_change,
        lookup: false,
        listed: false,
        trades: false,
        idle: false,
        spoilage: false,
        asked: 1,
        high: 0,
    };
    let shape = match level {
        1 => {
            let lookup = words::chance(rng, knobs.lookup_percent);
            let high = knobs.max_quantity + knobs.max_change;
            Shape { goods: plain.lines, lookup, listed: true, high, ..plain }
        }
        2 => Shape { lines: 6, max_quantity: 20, max_change: 6, high: 40, ..plain },
        3 => Shape { lines: 9, max_quantity: 24, max_change: 8, trades: true, idle: true, high: 72, ..plain },
        _ => Shape {
            goods: 4,
            lines: 13,
            max_quantity: 30,
            max_change: 9,
            trades: true,
            idle: true,
            spoilage: true,
            asked: 2,
            high: 150,
            ..plain
        },
    };
    write(rng, &shape)
}

/// Goods aboard while the log is written.
struct Ledger {
    goods: Vec<&'static str>,
    held: Vec<i64>,
    log: Vec<String>,
}

impl Ledger {
    fn load(&mut self, good: usize, quantity: i64, listed: bool) {
        self.held[good] += quantity;
        let name = self.goods[good];
        self.log.push(if listed { format!("{name}: {quantity}") } else { format!("load {quantity} {name}") });
    }

    /// Buys or sells, but never sells the last one.
    fn change(&mut self, rng: &mut Philox, good: usize, most: i64) {
        let spare = (self.held[good] - 1).min(most);
        if spare >= 1 && rng.below(2) == 0 {
            let quantity = rng.between(1, spare);
            self.held[good] -= quantity;
            self.log.push(format!("sell {quantity} {}", self.goods[good]));
        } else {
            let quantity = rng.between(1, most);
            self.held[good] += quantity;
            self.log.push(format!("buy {quantity} {}", self.goods[good]));
        }
    }

    /// Gives some of one good for some of another; a plain change when nothing can be spared.
    fn trade(&mut self, rng: &mut Philox, give: usize, most: i64) {
        let take = (give + 1 + rng.below(self.goods.len() - 1)) % self.goods.len();
        let spare = (self.held[give] - 1).min(most);
        if spare < 1 {
            return self.change(rng, give, most);
        }
        let (out, back) = (rng.between(1, spare), rng.between(1, most));
        self.held[give] -= out;
        self.held[take] += back;
        self.log.push(format!("trade {out} {} for {back} {}", self.goods[give], self.goods[take]));
    }

    /// Loses half of a good; a plain change when its number is odd.
    fn spoil(&mut self, rng: &mut Philox, good: usize, most: i64) {
        if self.held[good] % 2 != 0 {
            return self.change(rng, good, most);
        }
        self.held[good] /= 2;
        self.log.push(format!("lose half of the {}", self.goods[good]));
    }
}

fn write(rng: &mut Philox, shape: &Shape) -> Draft {
    let goods = words::sample(rng, &GOODS, shape.goods);
    let mut ledger = Ledger { held: vec![0; goods.len()], goods, log: Vec::new() };
    // A list whose asked good changes needs one of its lines for that.
    let loads = if shape.lookup { shape.goods } else { shape.goods.min(shape.lines - 1) };
    let mut order: Vec<usize> = (0..loads).collect();
    rng.shuffle(&mut order);
    // In a list quantities differ, so that copying the wrong one is wrong.
    let mut quantities: Vec<i64> = (2..=shape.max_quantity).collect();
    rng.shuffle(&mut quantities);
    for (place, good) in order.into_iter().enumerate() {
        let quantity = match quantities.get(place) {
            Some(quantity) if shape.listed => *quantity,
            _ => rng.between(2, shape.max_quantity),
        };
        ledger.load(good, quantity, shape.listed);
    }
    // The question is about good 0 (and 1): one line is sure to change it, unless it is a look-up.
    let rest = shape.lines.saturating_sub(loads);
    let touched = if shape.lookup { rest } else { rng.below(rest) };
    for line in 0..rest {
        if line == touched {
            ledger.change(rng, 0, shape.max_change);
            continue;
        }
        let good = rng.below(shape.goods);
        match rng.below(4) {
            0 if shape.trades => ledger.trade(rng, good, shape.max_change),
            1 if shape.idle => {
                let count = rng.between(2, 9).to_string();
                ledger.log.push(rng.choose(&IDLE).replace("{n}", &count));
            }
            2 if shape.spoilage => ledger.spoil(rng, good, shape.max_change),
            _ => ledger.change(rng, good, shape.max_change),
        }
    }
    let value = ledger.held[..shape.asked].iter().sum();
    const ASK: &str = "Reply with one line, ANSWER: <number>.";
    let question = match (shape.listed, shape.asked) {
        (true, _) => format!("{ASK}\nHow many {}?", ledger.goods[0]),
        (_, 1) => format!("How many {} are left? {ASK}", ledger.goods[0]),
        _ => format!("How many {} and {} are left in all? {ASK}", ledger.goods[0], ledger.goods[1]),
    };
    let prompt = format!("Caravan log of {}:\n{}\n{question}", words::name(rng), ledger.log.join("\n"));
    let answer = Answer::Number { value, low: 1, high: shape.high };
    Draft::atom(AtomSpec { prompt, answer, label: None }, usize::from(shape.lookup))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// Reads the log back and counts, by another road than the generator's.
    fn recount(prompt: &str) -> i64 {
        fn add(held: &mut BTreeMap<String, i64>, good: &str, by: &str, sign: i64) {
            *held.entry(good.to_string()).or_insert(0) += sign * by.parse::<i64>().unwrap();
        }
        let mut held = BTreeMap::new();
        for line in prompt.lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                [good, n] if good.ends_with(':') => add(&mut held, good.trim_end_matches(':'), n, 1),
                ["load" | "buy", n, good] => add(&mut held, good, n, 1),
                ["sell", n, good] => add(&mut held, good, n, -1),
                ["trade", n, give, "for", m, take] => {
                    add(&mut held, give, n, -1);
                    add(&mut held, take, m, 1);
                }
                ["lose", "half", "of", "the", good] => *held.get_mut(good).unwrap() /= 2,
                _ => {}
            }
        }
        let asked = prompt.split("How many ").nth(1).unwrap().split('?').next().unwrap();
        let asked = asked.split(" are left").next().unwrap();
        asked.split(" and ").map(|good| held[good]).sum()
    }

    #[test]
    fn answers_agree_with_a_recount_and_stay_in_range() {
        for level in 1..=4 {
            for seed in 0..300 {
                let draft = (INFO.draft)(level, &mut Philox::named(&format!("caravan/{level}/{seed}")));
                let spec: AtomSpec = serde_json::from_value(draft.hidden).unwrap();
                let Answer::Number { value, low, high } = spec.answer else { panic!("not a number") };
                assert_eq!(recount(&spec.prompt), value, "{}", spec.prompt);
                assert!((low..=high).contains(&value), "{value} is not in {low}..={high}");
                if level == 1 {
                    let numbers =
                        spec.prompt.lines().filter_map(|l| l.split_once(": ")?.1.parse::<i64>().ok());
                    assert_eq!(numbers.collect::<BTreeSet<_>>().len(), 3, "{}", spec.prompt);
                }
            }
        }
    }

    #[test]
    fn knobs_set_the_lines_and_the_share_of_look_ups() {
        for lines in 2..=6 {
            for lookup_percent in [0, 100] {
                let knobs = CaravanKnobs { lines, lookup_percent, max_quantity: 9, max_change: 2 };
                for seed in 0..50 {
                    let draft = draft(1, &mut Philox::named(&format!("knobs/{seed}")), &knobs);
                    let prompt = draft.hidden["prompt"].as_str().unwrap();
                    assert_eq!(prompt.lines().count(), lines + 3);
                    assert_eq!(draft.form, usize::from(lookup_percent == 100));
                    let asked = prompt.split("How many ").nth(1).unwrap().trim_end_matches('?');
                    let mentions = prompt.matches(asked).count() - 1;
                    assert_eq!(mentions == 1, lookup_percent == 100, "{prompt}");
                }
            }
        }
    }
}
