//! What is missing and how much it could matter: coverage of each arm, and the delta if every
//! missing episode had gone one way or the other.

use super::units::{Units, Weight};
use super::{Arm, Observation, Paired, Undefined};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Scored against planned episodes of one arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coverage {
    /// Episodes with a reward.
    pub scored: usize,
    /// Episodes there should be: those of the arm, with or without a reward, and those whose
    /// (task, seed, rollout) only the other arm has.
    pub planned: usize,
    /// Episodes that are there without a reward.
    pub unscored: usize,
}

impl Coverage {
    /// Scored over planned; 1 where nothing is planned.
    pub fn share(self) -> f64 {
        if self.planned == 0 { 1.0 } else { self.scored as f64 / self.planned as f64 }
    }

    /// Episodes without a reward, there or not.
    pub fn missing(self) -> usize {
        self.planned - self.scored
    }
}

type Key<'a> = (&'a str, i64, Option<i64>, i64);

/// What both arms show, with the episodes that are absent from either.
#[derive(Debug, Clone)]
pub struct Planned<'o, 'a> {
    observations: &'o [Observation<'a>],
    /// Episodes that only the other arm has, without a reward.
    absent: Vec<Observation<'a>>,
    /// Coverage of the base arm.
    pub base: Coverage,
    /// Coverage of the treatment arm.
    pub treatment: Coverage,
}

impl<'o, 'a> Planned<'o, 'a> {
    /// The plan that the rows themselves show. Where the plan is known, give a row without a
    /// reward for each planned episode.
    pub fn new(observations: &'o [Observation<'a>]) -> Planned<'o, 'a> {
        let key = |o: &Observation<'a>| (o.task, o.seed, o.train_seed, o.rollout);
        let mut there: [HashSet<Key<'a>>; 2] = [HashSet::new(), HashSet::new()];
        let mut trained: [BTreeSet<Option<i64>>; 2] = [BTreeSet::new(), BTreeSet::new()];
        for o in observations {
            there[o.arm as usize].insert(key(o));
            trained[o.arm as usize].insert(o.train_seed);
        }
        let untrained = [0, 1].map(|side| trained[side].iter().all(Option::is_none));
        let mut absent: BTreeMap<(Arm, Key<'a>), Observation<'a>> = BTreeMap::new();
        for o in observations {
            let (arm, side) = match o.arm {
                Arm::Base => (Arm::Treatment, Arm::Treatment as usize),
                Arm::Treatment => (Arm::Base, Arm::Base as usize),
            };
            // A never-trained arm has one episode for all training seeds of the other.
            let train_seeds: Vec<Option<i64>> = match (untrained[side], untrained[1 - side]) {
                (true, _) => vec![None],
                (false, true) => trained[side].iter().copied().collect(),
                (false, false) => vec![o.train_seed],
            };
            for train_seed in train_seeds {
                let counterpart = Observation { arm, train_seed, reward: None, solved: None, ..*o };
                if !there[side].contains(&key(&counterpart)) {
                    absent.insert((arm, key(&counterpart)), counterpart);
                }
            }
        }
        let coverage = |arm: Arm| {
            let of = |scored: bool| {
                observations.iter().filter(|o| o.arm == arm && o.reward.is_some() == scored).count()
            };
            let (scored, unscored) = (of(true), of(false));
            let absent = absent.keys().filter(|(a, _)| *a == arm).count();
            Coverage { scored, planned: scored + unscored + absent, unscored }
        };
        let (base, treatment) = (coverage(Arm::Base), coverage(Arm::Treatment));
        Planned { observations, absent: absent.into_values().collect(), base, treatment }
    }

    /// Bounds on the delta for rewards in [0, 1]: the lower with every missing episode 0 in the
    /// treatment arm and 1 in the base arm, the upper the other way round. `None` where nothing
    /// is missing.
    pub fn worst_case(&self, weight: Weight) -> Option<Result<(f64, f64), Undefined>> {
        if self.base.missing() + self.treatment.missing() == 0 {
            return None;
        }
        let bound = |base: f64, treatment: f64| -> Result<f64, Undefined> {
            let fill = |o: &Observation<'a>| Observation {
                reward: o.reward.or(Some(if o.arm == Arm::Base { base } else { treatment })),
                ..*o
            };
            let filled: Vec<Observation<'a>> =
                self.observations.iter().chain(&self.absent).map(fill).collect();
            let differences = Paired::new(&filled)?.values(|t| t.difference());
            Ok(Units::new(&differences, weight)?.mean())
        };
        Some(bound(1.0, 0.0).and_then(|low| Ok((low, bound(0.0, 1.0)?))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::fixtures::{csv, made, near, observations};

    #[test]
    fn complete_rows_have_no_bound() {
        let text = csv("binary_basic");
        let rows = observations(&text);
        let planned = Planned::new(&rows);
        assert_eq!((planned.base.share(), planned.treatment.share()), (1.0, 1.0));
        assert!(planned.worst_case(Weight::Task).is_none());
    }

    #[test]
    fn absent_and_unscored_episodes_count() {
        let mut rows = vec![
            made(Arm::Base, "a", 1, 0, 0.0),
            made(Arm::Treatment, "a", 1, 0, 1.0),
            made(Arm::Base, "b", 1, 0, 0.0),
            made(Arm::Base, "c", 1, 0, 0.5),
            made(Arm::Treatment, "c", 1, 0, 0.5),
        ];
        rows[3].reward = None;
        let planned = Planned::new(&rows);
        assert_eq!(planned.base, Coverage { scored: 2, planned: 3, unscored: 1 });
        assert_eq!(planned.treatment, Coverage { scored: 2, planned: 3, unscored: 0 });
        let (low, high) = planned.worst_case(Weight::Task).unwrap().unwrap();
        near(low, (1.0 + 0.0 - 0.5) / 3.0, 1e-15);
        near(high, (1.0 + 1.0 + 0.5) / 3.0, 1e-15);
    }

    #[test]
    fn the_bound_holds_the_delta_of_the_unbalanced_reference() {
        let text = csv("unbalanced_missing");
        let rows = observations(&text);
        let planned = Planned::new(&rows);
        assert_eq!((planned.base.scored, planned.base.planned), (142, 156));
        assert_eq!((planned.treatment.scored, planned.treatment.planned), (131, 156));
        let (low, high) = planned.worst_case(Weight::Task).unwrap().unwrap();
        assert!(low < 0.21 && high > 0.21 && low >= -1.0 && high <= 1.0);
    }

    #[test]
    fn an_untrained_base_plans_one_episode_for_all_training_seeds() {
        let trained =
            |s: i64, task| Observation { train_seed: Some(s), ..made(Arm::Treatment, task, 1, 0, 1.0) };
        let rows = [
            made(Arm::Base, "a", 1, 0, 0.0),
            made(Arm::Base, "b", 1, 0, 0.0),
            trained(1, "a"),
            trained(2, "a"),
            trained(1, "b"),
        ];
        let planned = Planned::new(&rows);
        assert_eq!((planned.base.planned, planned.treatment.planned), (2, 4));
        assert_eq!(planned.treatment.missing(), 1);
    }
}
