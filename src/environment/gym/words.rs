//! Invented names, and draws of several distinct things, shared by the families.

use crate::philox::Philox;

const ONSETS: [&str; 20] = [
    "Ba", "Do", "Fe", "Ga", "Hu", "Je", "Ka", "Lo", "Mi", "Na", "Or", "Pe", "Ra", "Se", "Ti", "Ul", "Va",
    "We", "Ya", "Zo",
];
const ENDINGS: [&str; 16] = [
    "bek", "dal", "fin", "gor", "lan", "mir", "na", "ran", "rik", "ros", "sha", "tan", "tho", "vek", "vin",
    "za",
];

/// `count` distinct entries of `pool`, in random order; all of them when it holds fewer.
pub fn sample<'a>(rng: &mut Philox, pool: &[&'a str], count: usize) -> Vec<&'a str> {
    let mut entries = pool.to_vec();
    rng.shuffle(&mut entries);
    entries.truncate(count);
    entries
}

/// `count` (at most 20) personal names that differ in their first two letters: 320 possible names.
pub fn names(rng: &mut Philox, count: usize) -> Vec<String> {
    sample(rng, &ONSETS, count).into_iter().map(|onset| format!("{onset}{}", rng.choose(&ENDINGS))).collect()
}

/// `count` distinct whole numbers from 1 to `most`, written out; `most` must be at least `count`.
pub fn numbers(rng: &mut Philox, count: usize, most: i64) -> Vec<String> {
    let mut all: Vec<i64> = (1..=most).collect();
    rng.shuffle(&mut all);
    all.iter().take(count).map(i64::to_string).collect()
}

/// One personal name.
pub fn name(rng: &mut Philox) -> String {
    format!("{}{}", rng.choose(&ONSETS), rng.choose(&ENDINGS))
}

/// True with a probability of `percent` in a hundred.
pub fn chance(rng: &mut Philox, percent: i64) -> bool {
    rng.between(1, 100) <= percent
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn samples_and_names_are_distinct() {
        let mut rng = Philox::named("words");
        for _ in 0..200 {
            assert_eq!(names(&mut rng, 6).into_iter().collect::<BTreeSet<_>>().len(), 6);
            assert_eq!(numbers(&mut rng, 9, 9).into_iter().collect::<BTreeSet<_>>().len(), 9);
            assert_eq!(sample(&mut rng, &["a", "b", "c"], 5).into_iter().collect::<BTreeSet<_>>().len(), 3);
        }
    }

    #[test]
    fn chance_keeps_its_ends() {
        let mut rng = Philox::named("chance");
        assert!((0..200).all(|_| chance(&mut rng, 100) && !chance(&mut rng, 0)));
    }
}
