//! The paired design: episodes grouped into cells (arm, task, seed, train_seed), cells of the
//! two arms joined, task means over what both arms have, and their differences. Sums run in
//! rising (task, seed, train_seed, rollout), so that every road adds in the same order.

use super::units::TaskValue;
use super::{Arm, Observation, SAME, Undefined};
use serde::Serialize;
use std::collections::BTreeSet;

/// How tasks and event seeds meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Design {
    /// Tasks come back under several seeds (or there is one seed).
    Crossed,
    /// Each task belongs to one seed, which made it.
    Nested,
}

/// The mean of one cell's scored episodes.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cell {
    seed: i64,
    train_seed: Option<i64>,
    mean: f64,
    rollouts: usize,
    /// Variance of the mean over fresh attempts, s²/n; `None` for a single attempt.
    sampling: Option<f64>,
}

/// Two cells that stand against each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// The event seed.
    pub seed: i64,
    /// The training seed, of whichever arm has one.
    pub train_seed: Option<i64>,
    /// The base arm's cell mean.
    pub base: f64,
    /// The treatment arm's cell mean.
    pub treatment: f64,
    /// Scored episodes of the base cell.
    pub base_rollouts: usize,
    /// Scored episodes of the treatment cell.
    pub treatment_rollouts: usize,
}

/// A task that both arms have.
#[derive(Debug, Clone, PartialEq)]
pub struct PairedTask<'a> {
    /// The task.
    pub task: &'a str,
    /// Its family, where it has one.
    pub family: Option<&'a str>,
    /// Its cluster, where one is declared.
    pub cluster: Option<&'a str>,
    /// The joined cells, rising by (seed, train_seed); never empty.
    pub pairs: Vec<Pair>,
    /// Mean of the base arm's cell means over the pairs.
    pub base: f64,
    /// Mean of the treatment arm's cell means over the pairs.
    pub treatment: f64,
    /// Variance of the difference over fresh attempts at the task; `None` where a cell has a single one.
    pub sampling: Option<f64>,
}

impl PairedTask<'_> {
    /// Treatment task mean minus base task mean.
    pub fn difference(&self) -> f64 {
        self.treatment - self.base
    }
}

/// Two arms joined, task by task.
#[derive(Debug, Clone, PartialEq)]
pub struct Paired<'a> {
    /// Tasks that both arms have, rising.
    pub tasks: Vec<PairedTask<'a>>,
    /// Tasks with a scored episode in one arm only, or under no common seed.
    pub unpaired_tasks: usize,
    /// Crossed or nested.
    pub design: Design,
    /// Number of event seeds in the joined cells.
    pub seeds: usize,
    /// Training seeds in the joined cells, rising.
    pub train_seeds: Vec<i64>,
    /// Joined (task, seed) cells over tasks × seeds; 1 in a full crossing.
    pub crossing: f64,
}

impl<'a> Paired<'a> {
    /// Joins the arms of `observations`, in any order. Episodes without a reward are left out.
    /// An arm that was never trained (no `train_seed` at all) stands against every training
    /// seed of the other; otherwise cells join on (task, seed, train_seed).
    ///
    /// Undefined when an arm has no scored episode, the arms share no task under a common seed,
    /// or a task's family or cluster is not the same in all its episodes.
    pub fn new(observations: &[Observation<'a>]) -> Result<Paired<'a>, Undefined> {
        let scored = in_order(observations);
        let trained = |arm: Arm| scored.iter().any(|o| o.arm == arm && o.train_seed.is_some());
        for (arm, name) in [(Arm::Base, "base"), (Arm::Treatment, "treatment")] {
            if !scored.iter().any(|o| o.arm == arm) {
                return Err(Undefined::new(format!("the {name} arm has no scored episode")));
            }
        }
        let exact = trained(Arm::Base) == trained(Arm::Treatment);
        let mut tasks = Vec::new();
        let mut unpaired_tasks = 0;
        for of_task in scored.chunk_by(|a, b| a.task == b.task) {
            let first = &of_task[0];
            if let Some(odd) = of_task.iter().find(|o| o.family != first.family || o.cluster != first.cluster)
            {
                return Err(Undefined::new(format!("task `{}` is in two families or clusters", odd.task)));
            }
            let split = of_task.partition_point(|o| o.arm == Arm::Base);
            let (pairs, sampling) = join(&cells(&of_task[..split]), &cells(&of_task[split..]), exact);
            if pairs.is_empty() {
                unpaired_tasks += 1;
                continue;
            }
            let (base, treatment) =
                (mean(pairs.iter().map(|p| p.base)), mean(pairs.iter().map(|p| p.treatment)));
            let &Observation { task, family, cluster, .. } = first;
            tasks.push(PairedTask { task, family, cluster, pairs, base, treatment, sampling });
        }
        if tasks.is_empty() {
            return Err(Undefined::new("the arms share no task under a common seed"));
        }
        let all = || tasks.iter().flat_map(|t| &t.pairs);
        let seeds: BTreeSet<i64> = all().map(|p| p.seed).collect();
        let train_seeds: BTreeSet<i64> = all().filter_map(|p| p.train_seed).collect();
        let seeds_of = |t: &PairedTask<'_>| t.pairs.iter().map(|p| p.seed).collect::<BTreeSet<_>>().len();
        let joined: usize = tasks.iter().map(seeds_of).sum();
        let nested = seeds.len() > 1 && joined == tasks.len();
        Ok(Paired {
            unpaired_tasks,
            design: if nested { Design::Nested } else { Design::Crossed },
            seeds: seeds.len(),
            train_seeds: train_seeds.into_iter().collect(),
            crossing: joined as f64 / (tasks.len() * seeds.len()) as f64,
            tasks,
        })
    }

    /// One value a task, such as `PairedTask::difference`.
    pub fn values(&self, of: impl Fn(&PairedTask<'a>) -> f64) -> Vec<TaskValue<'a>> {
        let value = |t: &PairedTask<'a>| TaskValue {
            task: t.task,
            family: t.family,
            cluster: t.cluster,
            value: of(t),
        };
        self.tasks.iter().map(value).collect()
    }

    /// Number of tasks whose two means differ.
    pub fn nonzero_differences(&self) -> usize {
        self.tasks.iter().filter(|t| t.difference().abs() > SAME).count()
    }

    /// Whether each task gives exactly one pair of episodes, as McNemar's test needs.
    pub fn one_pair_a_task(&self) -> bool {
        self.tasks.iter().all(|t| match t.pairs.as_slice() {
            [pair] => pair.base_rollouts == 1 && pair.treatment_rollouts == 1,
            _ => false,
        })
    }
}

/// Scored observations in rising (task, arm, seed, train_seed, rollout).
pub(super) fn in_order<'a>(observations: &[Observation<'a>]) -> Vec<Observation<'a>> {
    let mut scored: Vec<Observation<'a>> =
        observations.iter().filter(|o| o.reward.is_some()).copied().collect();
    scored.sort_unstable_by(|a, b| {
        let key = |o: &Observation<'a>| (o.task, o.arm, o.seed, o.train_seed, o.rollout);
        // Repeated keys are the caller's to refuse; here they must only not depend on the order.
        key(a).cmp(&key(b)).then(a.reward.unwrap_or(0.0).total_cmp(&b.reward.unwrap_or(0.0)))
    });
    scored
}

/// The task means of one arm over all its cells, rising by task.
pub fn task_means<'a>(observations: &[Observation<'a>], arm: Arm) -> Vec<TaskValue<'a>> {
    let scored: Vec<Observation<'a>> = in_order(observations).into_iter().filter(|o| o.arm == arm).collect();
    let value = |of_task: &[Observation<'a>]| TaskValue {
        task: of_task[0].task,
        family: of_task[0].family,
        cluster: of_task[0].cluster,
        value: mean(cells(of_task).iter().map(|c| c.mean)),
    };
    scored.chunk_by(|a, b| a.task == b.task).map(value).collect()
}

/// Cells of one arm's ordered, scored episodes of one task.
fn cells(episodes: &[Observation<'_>]) -> Vec<Cell> {
    let same = |a: &Observation<'_>, b: &Observation<'_>| (a.seed, a.train_seed) == (b.seed, b.train_seed);
    let cell = |of: &[Observation<'_>]| {
        let centre = mean(of.iter().filter_map(|o| o.reward));
        let squares: f64 = of.iter().filter_map(|o| o.reward).map(|x| (x - centre).powi(2)).sum();
        let n = of.len() as f64;
        Cell {
            seed: of[0].seed,
            train_seed: of[0].train_seed,
            mean: centre,
            rollouts: of.len(),
            sampling: (of.len() > 1).then(|| squares / (n - 1.0) / n),
        }
    };
    episodes.chunk_by(same).map(cell).collect()
}

/// The joined cells, and the variance of their mean difference over fresh attempts: a cell that stands in several pairs is
/// drawn once.
fn join(base: &[Cell], treatment: &[Cell], exact: bool) -> (Vec<Pair>, Option<f64>) {
    let mut pairs = Vec::new();
    let (mut of_base, mut of_treatment) = (vec![0usize; base.len()], vec![0usize; treatment.len()]);
    for (i, b) in base.iter().enumerate() {
        for (j, t) in treatment.iter().enumerate() {
            if b.seed == t.seed && (!exact || b.train_seed == t.train_seed) {
                of_base[i] += 1;
                of_treatment[j] += 1;
                pairs.push(Pair {
                    seed: b.seed,
                    train_seed: t.train_seed.or(b.train_seed),
                    base: b.mean,
                    treatment: t.mean,
                    base_rollouts: b.rollouts,
                    treatment_rollouts: t.rollouts,
                });
            }
        }
    }
    pairs.sort_unstable_by_key(|p| (p.seed, p.train_seed));
    let n = pairs.len() as f64;
    let uses =
        base.iter().zip(&of_base).chain(treatment.iter().zip(&of_treatment)).filter(|(_, uses)| **uses > 0);
    let sampling = uses.map(|(cell, uses)| Some((*uses as f64 / n).powi(2) * cell.sampling?)).sum();
    (pairs, sampling)
}

/// Plain mean in the order given; the callers never pass nothing.
pub(super) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut n) = (0.0, 0usize);
    for v in values {
        sum += v;
        n += 1;
    }
    sum / n as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::fixtures::{DATA_SETS, csv, golden, made, near, observations};

    #[test]
    fn task_differences_match_the_reference() {
        let golden = golden();
        for name in DATA_SETS {
            let text = csv(name);
            let paired = Paired::new(&observations(&text)).unwrap();
            let reference = &golden["datasets"][name];
            let differences = reference["d_t"].as_object().expect("differences by task");
            assert_eq!(paired.tasks.len(), differences.len());
            for t in &paired.tasks {
                near(t.difference(), differences[t.task].as_f64().expect("a number"), 1e-12);
            }
            let cells: usize = paired.tasks.iter().map(|t| t.pairs.len()).sum();
            assert_eq!(Some(cells as u64), reference["design"]["paired_task_seed_cells"].as_u64());
            assert_eq!(paired.design, Design::Crossed);
        }
    }

    #[test]
    fn an_untrained_base_stands_against_every_training_seed() {
        let mut rows = vec![made(Arm::Base, "a", 1, 0, 0.25), made(Arm::Base, "a", 2, 0, 0.75)];
        for (train_seed, seed, reward) in [(7, 1, 1.0), (8, 1, 0.5), (7, 2, 0.0), (7, 3, 0.0)] {
            rows.push(Observation {
                train_seed: Some(train_seed),
                ..made(Arm::Treatment, "a", seed, 0, reward)
            });
        }
        let paired = Paired::new(&rows).unwrap();
        let pairs: Vec<_> = paired.tasks[0].pairs.iter().map(|p| (p.seed, p.train_seed, p.base)).collect();
        assert_eq!(pairs, [(1, Some(7), 0.25), (1, Some(8), 0.25), (2, Some(7), 0.75)]);
        near(paired.tasks[0].difference(), 0.5 - 1.25 / 3.0, 1e-15);
        assert_eq!(paired.train_seeds, [7, 8]);
    }

    #[test]
    fn a_cell_in_several_pairs_is_drawn_once() {
        let trained = |train_seed, rollout, reward| Observation {
            train_seed: Some(train_seed),
            ..made(Arm::Treatment, "a", 1, rollout, reward)
        };
        let mut rows = vec![
            made(Arm::Base, "a", 1, 0, 0.0),
            made(Arm::Base, "a", 1, 1, 1.0),
            trained(1, 0, 0.5),
            trained(1, 1, 0.5),
            trained(2, 0, 0.0),
            trained(2, 1, 0.5),
        ];
        // The base cell counts whole, each of the two trained ones by half.
        let paired = Paired::new(&rows).unwrap();
        near(paired.tasks[0].sampling.unwrap(), 0.5 / 2.0 + 0.125 / 2.0 / 4.0, 1e-15);
        rows.pop();
        assert_eq!(Paired::new(&rows).unwrap().tasks[0].sampling, None);
    }

    #[test]
    fn seeds_of_one_arm_only_are_left_out() {
        let rows = [
            made(Arm::Base, "a", 1, 0, 0.0),
            made(Arm::Base, "a", 2, 0, 1.0),
            made(Arm::Treatment, "a", 1, 0, 0.5),
            made(Arm::Base, "b", 1, 0, 0.5),
        ];
        let paired = Paired::new(&rows).unwrap();
        assert_eq!(paired.tasks.len(), 1);
        assert_eq!(paired.unpaired_tasks, 1);
        near(paired.tasks[0].difference(), 0.5, 0.0);
        assert!(paired.one_pair_a_task());
    }

    #[test]
    fn tasks_made_by_their_seed_are_nested() {
        let mut rows = Vec::new();
        for (task, seed) in [("a", 1), ("b", 1), ("c", 2)] {
            rows.push(made(Arm::Base, task, seed, 0, 0.0));
            rows.push(made(Arm::Treatment, task, seed, 0, 1.0));
        }
        assert_eq!(Paired::new(&rows).unwrap().design, Design::Nested);
        rows.push(made(Arm::Base, "a", 2, 0, 0.0));
        rows.push(made(Arm::Treatment, "a", 2, 0, 1.0));
        let paired = Paired::new(&rows).unwrap();
        assert_eq!(paired.design, Design::Crossed);
        assert!(paired.crossing < 1.0);
    }

    #[test]
    fn what_cannot_be_paired_says_why() {
        let only_base = [made(Arm::Base, "a", 1, 0, 0.0)];
        assert!(Paired::new(&only_base).unwrap_err().0.contains("treatment arm"));
        let strangers = [made(Arm::Base, "a", 1, 0, 0.0), made(Arm::Treatment, "b", 1, 0, 0.0)];
        assert!(Paired::new(&strangers).unwrap_err().0.contains("share no task"));
        let mut two = [made(Arm::Base, "a", 1, 0, 0.0), made(Arm::Treatment, "a", 1, 0, 0.0)];
        two[0].family = Some("f");
        assert!(Paired::new(&two).unwrap_err().0.contains("two families"));
    }
}
