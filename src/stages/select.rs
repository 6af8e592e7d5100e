//! Which harvested samples become training rows: verified, terse, not a lucky guess, and
//! capped by task and by family. Every sample gets a verdict; nothing is dropped silently.

use crate::experiment::plan::Harvest;
use std::collections::BTreeMap;

/// A small answer domain: a guesser is right often enough to need several correct samples.
const SMALL_DOMAIN: u32 = 8;

/// What selection needs to know of one sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Kind of task.
    pub family: String,
    /// Difficulty.
    pub level: i64,
    /// The task.
    pub task_id: String,
    /// Which of the K samples of this task.
    pub rollout: i64,
    /// Whether the verifier accepted it; null when the infrastructure failed.
    pub solved: Option<bool>,
    /// Tokens of its longest reply.
    pub longest_reply: usize,
    /// Number of answers a guesser chooses from; null when unbounded.
    pub answer_domain: Option<u32>,
}

/// Why a sample is not used, or `None` if it is: one verdict a sample, in the order given.
pub fn select(samples: &[Sample], rules: &Harvest) -> Vec<Option<&'static str>> {
    let mut correct: BTreeMap<&str, usize> = BTreeMap::new();
    for sample in samples.iter().filter(|s| s.solved == Some(true)) {
        *correct.entry(&sample.task_id).or_default() += 1;
    }
    let mut order: Vec<usize> = (0..samples.len()).collect();
    order.sort_by_key(|i| (&samples[*i].task_id, samples[*i].rollout));

    let mut verdicts = vec![None; samples.len()];
    let mut of_item: BTreeMap<&str, usize> = BTreeMap::new();
    let mut survivors: BTreeMap<&str, BTreeMap<i64, Vec<usize>>> = BTreeMap::new();
    for i in order {
        let sample = &samples[i];
        let small = sample.answer_domain.is_some_and(|d| d <= SMALL_DOMAIN);
        let taken = of_item.entry(&sample.task_id).or_default();
        verdicts[i] = if sample.solved != Some(true) {
            Some("unsolved")
        } else if sample.longest_reply > rules.terse_tokens {
            Some("not_terse")
        } else if small && correct[sample.task_id.as_str()] < rules.lucky_minimum {
            Some("lucky")
        } else if *taken >= rules.item_cap {
            Some("item_cap")
        } else {
            *taken += 1;
            survivors.entry(&sample.family).or_default().entry(sample.level).or_default().push(i);
            None
        };
    }
    for levels in survivors.values() {
        for dropped in round_robin(levels).into_iter().skip(rules.family_cap) {
            verdicts[dropped] = Some("family_cap");
        }
    }
    verdicts
}

/// One of each level in turn, until all are listed.
fn round_robin(levels: &BTreeMap<i64, Vec<usize>>) -> Vec<usize> {
    let longest = levels.values().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|i| levels.values().filter_map(move |items| items.get(i).copied())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(task: &str, rollout: i64, solved: bool, domain: Option<u32>) -> Sample {
        Sample {
            family: "f".into(),
            level: 1,
            task_id: task.into(),
            rollout,
            solved: Some(solved),
            longest_reply: 8,
            answer_domain: domain,
        }
    }

    #[test]
    fn guesses_need_several_correct_samples() {
        let rules = Harvest { lucky_minimum: 3, item_cap: 9, ..Harvest::default() };
        let mut samples: Vec<Sample> = (0..4).map(|r| sample("a", r, r < 2, Some(4))).collect();
        samples.extend((0..4).map(|r| sample("b", r, r < 3, Some(4))));
        samples.extend((0..4).map(|r| sample("c", r, r < 1, None)));
        let verdicts = select(&samples, &rules);
        assert_eq!(verdicts[..2], [Some("lucky"), Some("lucky")]);
        assert_eq!(verdicts[4..8], [None, None, None, Some("unsolved")]);
        assert_eq!(verdicts[8], None);
    }

    #[test]
    fn caps_hold_by_task_and_by_family_over_levels() {
        let rules = Harvest { item_cap: 2, family_cap: 4, ..Harvest::default() };
        let mut samples: Vec<Sample> = Vec::new();
        for task in 0..6 {
            for rollout in 0..3 {
                let mut s = sample(&format!("t{task}"), rollout, true, None);
                s.level = 1 + i64::from(task >= 3);
                samples.push(s);
            }
        }
        let verdicts = select(&samples, &rules);
        let kept: Vec<&Sample> =
            samples.iter().zip(&verdicts).filter(|(_, v)| v.is_none()).map(|(s, _)| s).collect();
        assert_eq!(kept.len(), 4);
        assert_eq!(kept.iter().filter(|s| s.level == 1).count(), 2);
        assert_eq!(verdicts.iter().filter(|v| **v == Some("item_cap")).count(), 6);
    }

    #[test]
    fn long_and_missing_samples_are_named() {
        let mut long = sample("a", 0, true, None);
        long.longest_reply = 1000;
        let mut missing = sample("a", 1, true, None);
        missing.solved = None;
        assert_eq!(select(&[long, missing], &Harvest::default()), [Some("not_terse"), Some("unsolved")]);
    }
}
