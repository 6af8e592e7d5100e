//! How often intervals cover what they are to cover: data sets drawn from known populations, each taken through the very
//! estimate that reports print. A row of the table is one population, size and interval.

use crate::philox::Philox;
use crate::stats::bootstrap::Resamples;
use crate::stats::{
    Arm, Estimate, Interval, Observation, Options, Paired, Population, RESAMPLES, Units, Weight, estimate,
};
use rayon::prelude::*;
use serde::Serialize;

/// Where data sets come from.
#[derive(Debug, Clone, Copy, PartialEq)]
enum World {
    /// Solve rates within (0, 1): base U(.2, .6), change U(−.1, .3).
    Rates,
    /// The same means as partial credit, each attempt within ±.1 of its task's mean.
    Graded,
    /// Partial credit whose changes are skewed: most tasks change little, few a lot.
    Skewed,
    /// Changes that tasks of a cluster (ten of them) share for the greater part.
    Clustered,
    /// Changes that a training seed shifts for all tasks; the number of training seeds.
    Trained(usize),
    /// Near a ceiling: .95 before, .98 after, for every task.
    Ceiling,
    /// One task in twenty goes from never to always solved, no other moves.
    FewMove,
}

impl World {
    /// The mean change of its population.
    fn truth(self) -> f64 {
        match self {
            World::Ceiling => 0.03,
            World::FewMove => 0.05,
            _ => 0.1,
        }
    }

    fn name(self) -> &'static str {
        match self {
            World::Rates => "solve rates",
            World::Graded => "partial credit",
            World::Skewed => "skewed changes",
            World::Clustered => "tasks in clusters of ten",
            World::Trained(_) => "training seeds",
            World::Ceiling => "near a ceiling",
            World::FewMove => "few tasks move",
        }
    }

    /// Whether the default interval is to keep its level there from ten tasks on.
    fn interior(self) -> bool {
        matches!(self, World::Rates | World::Graded)
    }
}

/// One population and size.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Scenario {
    world: World,
    tasks: usize,
    attempts: usize,
}

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Always `coverage`.
    pub what: &'static str,
    /// The population.
    pub scenario: &'static str,
    /// Whether the default is to cover 93 to 97% there from ten tasks on.
    pub interior: bool,
    /// Tasks of a data set.
    pub tasks: usize,
    /// Attempts of each arm at a task.
    pub attempts: usize,
    /// Training seeds, where there are any.
    pub training_seeds: Option<usize>,
    /// The interval: `default` is what is printed first.
    pub interval: &'static str,
    /// Data sets.
    pub data_sets: usize,
    /// Share of data sets in which the interval is defined.
    pub defined: f64,
    /// Share of defined intervals that hold the truth; `None` where none is defined.
    pub coverage: Option<f64>,
    /// Mean width of the defined ones.
    pub width: Option<f64>,
    /// Share of data sets whose estimate warns (few tasks or clusters, few that differ, no variance, one training seed).
    pub flagged: f64,
    /// Of the data sets in which no interval holds the truth, the share that warn; `None` where there are none.
    pub flagged_of_missed: Option<f64>,
}

/// Every scenario of the table.
fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for (world, attempts) in [(World::Rates, 1), (World::Rates, 4), (World::Graded, 4), (World::Skewed, 1)] {
        all.extend([5, 10, 20, 50, 200].map(|tasks| Scenario { world, tasks, attempts }));
    }
    all.extend([100, 200, 400].map(|tasks| Scenario { world: World::Clustered, tasks, attempts: 1 }));
    for seeds in [2, 3, 6] {
        all.extend([20, 100].map(|tasks| Scenario { world: World::Trained(seeds), tasks, attempts: 1 }));
    }
    for world in [World::Ceiling, World::FewMove] {
        all.extend([10, 20, 50, 200].map(|tasks| Scenario { world, tasks, attempts: 1 }));
    }
    all
}

/// Number of scenarios of the table.
pub fn count() -> usize {
    scenarios().len()
}

/// Measures scenario after scenario with `data_sets` data sets each; `done` is called with the rows of each.
pub fn measure(
    data_sets: usize,
    done: &mut dyn FnMut(Vec<Row>) -> crate::error::Result<()>,
) -> crate::error::Result<()> {
    scenarios().into_iter().try_for_each(|scenario| done(scenario.measure(data_sets)))
}

/// One interval of one data set.
#[derive(Debug, Clone, Copy)]
struct Try {
    name: &'static str,
    interval: Option<Interval>,
    flagged: bool,
}

/// Warnings that tell a reader not to lean on an interval.
const FLAGS: [&str; 6] =
    ["few_tasks", "few_clusters", "few_nonzero", "zero_variance", "one_training_seed", "few_training_seeds"];

impl Scenario {
    fn measure(self, data_sets: usize) -> Vec<Row> {
        let tries: Vec<Vec<Try>> =
            (0..data_sets as u64).into_par_iter().map(|number| self.tries(number)).collect();
        let kinds = tries.first().map_or(0, Vec::len);
        (0..kinds).map(|kind| self.row(&tries.iter().map(|t| t[kind]).collect::<Vec<_>>())).collect()
    }

    fn row(self, tries: &[Try]) -> Row {
        let share = |part: usize, of: usize| (of > 0).then(|| part as f64 / of as f64);
        let truth = self.world.truth();
        let holds = |i: Interval| i.low <= truth && truth <= i.high;
        let defined: Vec<Interval> = tries.iter().filter_map(|t| t.interval).collect();
        let missed: Vec<&Try> = tries.iter().filter(|t| !t.interval.is_some_and(holds)).collect();
        let flagged = |tries: &[&Try]| tries.iter().filter(|t| t.flagged).count();
        Row {
            what: "coverage",
            scenario: self.world.name(),
            interior: self.world.interior(),
            tasks: self.tasks,
            attempts: self.attempts,
            training_seeds: if let World::Trained(seeds) = self.world { Some(seeds) } else { None },
            interval: tries.first().map_or("", |t| t.name),
            data_sets: tries.len(),
            defined: share(defined.len(), tries.len()).unwrap_or(0.0),
            coverage: share(defined.iter().filter(|i| holds(**i)).count(), defined.len()),
            width: share(1, defined.len())
                .map(|each| defined.iter().map(|i| i.high - i.low).sum::<f64>() * each),
            flagged: share(flagged(&tries.iter().collect::<Vec<_>>()), tries.len()).unwrap_or(0.0),
            flagged_of_missed: share(flagged(&missed), missed.len()),
        }
    }

    /// Every interval of data set `number`.
    fn tries(self, number: u64) -> Vec<Try> {
        let episodes = self.episodes(number);
        let observations = |cluster: bool| -> Vec<Observation<'_>> {
            episodes.iter().map(|episode| episode.observation(cluster)).collect()
        };
        let single = observations(false);
        let Ok(paired) = Paired::new(&single) else { return Vec::new() };
        let options = Options::default();
        let mut tries = intervals(&paired, &options, ["default", "t", "expanded percentile", "percentile"]);
        match self.world {
            World::Clustered => {
                let Ok(paired) = Paired::new(&observations(true)) else { return tries };
                let names = [
                    "default, by cluster",
                    "t, by cluster",
                    "expanded percentile, by cluster",
                    "percentile, by cluster",
                ];
                tries.extend(intervals(&paired, &options, names));
            }
            World::Trained(_) => {
                let options = Options { population: Population::TasksTimesTrainSeeds, ..options };
                if let Ok(e) = estimate(&paired, &options) {
                    let flagged = warns(&e);
                    let interval = e.headline.map(|h| h.interval).ok();
                    tries.push(Try { name: "default, tasks-x-train-seeds", interval, flagged });
                }
            }
            _ => {}
        }
        tries
    }

    /// The episodes of data set `number`.
    fn episodes(self, number: u64) -> Vec<Episode> {
        let mut random = Philox::named(&format!("bench/coverage/{self:?}/{number}"));
        let seeds = if let World::Trained(seeds) = self.world { seeds } else { 0 };
        let of_seed: Vec<f64> = (0..seeds).map(|_| (random.unit() - 0.5) * 0.4).collect();
        let mut of_cluster = 0.0;
        let mut out = Vec::new();
        for task in 0..self.tasks {
            if task % 10 == 0 {
                of_cluster = (random.unit() - 0.5) * 0.4;
            }
            let base = random.unit() * 0.4 + 0.2;
            let change = random.unit() * 0.4 - 0.1;
            let (base, change) = match self.world {
                World::Rates | World::Graded => (base, change),
                World::Trained(_) => (0.4, 0.1 + (change - 0.1) * 0.2),
                // The mean of u⁹ is .1.
                World::Skewed => (0.0, random.unit().powi(9)),
                World::Clustered => (base, 0.1 + of_cluster + (change - 0.1) * 0.2),
                World::Ceiling => (0.95, 0.03),
                World::FewMove => (0.0, f64::from(u8::from(random.below(20) == 0))),
            };
            let mut attempt = |mean: f64| match self.world {
                World::Graded => mean + (random.unit() - 0.5) * 0.2,
                World::Skewed => mean,
                _ => f64::from(u8::from(random.unit() < mean)),
            };
            let name = format!("t{task:05}");
            for rollout in 0..self.attempts {
                let mut push = |arm, train_seed, reward| {
                    out.push(Episode {
                        task: name.clone(),
                        cluster: format!("c{:03}", task / 10),
                        arm,
                        train_seed,
                        rollout,
                        reward,
                    });
                };
                push(Arm::Base, None, attempt(base));
                match of_seed.as_slice() {
                    [] => push(Arm::Treatment, None, attempt(base + change)),
                    shifts => shifts.iter().enumerate().for_each(|(seed, shift)| {
                        push(Arm::Treatment, Some(seed as i64), attempt(base + change + shift));
                    }),
                }
            }
        }
        out
    }
}

/// What is printed first, and every interval on offer beside it.
fn intervals(paired: &Paired<'_>, options: &Options<'_>, names: [&'static str; 4]) -> Vec<Try> {
    let Ok(e) = estimate(paired, options) else { return Vec::new() };
    let flagged = warns(&e);
    let drawn = Units::new(&paired.values(|t| t.difference()), Weight::Task)
        .ok()
        .filter(|units| !units.zero_variance())
        .map(|units| (Resamples::draw(&units, options.bootstrap_key, RESAMPLES), units.len()));
    let expanded = drawn.as_ref().and_then(|(drawn, units)| drawn.expanded_percentile(*units).ok());
    let plain = drawn.as_ref().map(|(drawn, _)| drawn.percentile());
    let t = e.t.ok().filter(|_| drawn.is_some());
    let all = [e.headline.map(|h| h.interval).ok(), t, expanded, plain];
    names.into_iter().zip(all).map(|(name, interval)| Try { name, interval, flagged }).collect()
}

fn warns(e: &Estimate) -> bool {
    e.warnings.iter().any(|w| FLAGS.contains(&w.code))
}

/// One episode of a data set.
struct Episode {
    task: String,
    cluster: String,
    arm: Arm,
    train_seed: Option<i64>,
    rollout: usize,
    reward: f64,
}

impl Episode {
    fn observation(&self, clustered: bool) -> Observation<'_> {
        Observation {
            arm: self.arm,
            task: &self.task,
            family: None,
            cluster: clustered.then_some(self.cluster.as_str()),
            seed: 1,
            train_seed: self.train_seed,
            rollout: self.rollout as i64,
            reward: Some(self.reward),
            solved: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_population_has_the_mean_that_it_claims() {
        for scenario in scenarios() {
            let of = |arm: Arm, episodes: &[Episode]| {
                let rewards: Vec<f64> = episodes.iter().filter(|e| e.arm == arm).map(|e| e.reward).collect();
                rewards.iter().sum::<f64>() / rewards.len() as f64
            };
            let sets = 40_000 / (scenario.tasks * scenario.attempts);
            let change = |number: u64| {
                let episodes = scenario.episodes(number);
                assert!(episodes.iter().all(|e| (-0.1..=1.0).contains(&e.reward)), "{scenario:?}");
                of(Arm::Treatment, &episodes) - of(Arm::Base, &episodes)
            };
            let changes: Vec<f64> = (0..sets as u64).map(change).collect();
            let mean = changes.iter().sum::<f64>() / sets as f64;
            let spread = changes.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / (sets - 1) as f64;
            let error = (spread / sets as f64).sqrt();
            assert!((mean - scenario.world.truth()).abs() < 5.0 * error, "{scenario:?}: {mean} ± {error}");
        }
    }

    #[test]
    fn the_default_covers_in_an_interior_population_and_t_over_tasks_does_not_over_training_seeds() {
        let interior = Scenario { world: World::Graded, tasks: 20, attempts: 4 }.measure(400);
        let of = |rows: &[Row], name: &str| rows.iter().find(|r| r.interval == name).unwrap().clone();
        let default = of(&interior, "default");
        assert!((0.92..0.98).contains(&default.coverage.unwrap()), "{default:?}");
        assert_eq!(default.defined, 1.0);
        let trained = Scenario { world: World::Trained(3), tasks: 100, attempts: 1 }.measure(200);
        let (tasks, both) = (of(&trained, "default"), of(&trained, "default, tasks-x-train-seeds"));
        assert!(tasks.coverage.unwrap() < 0.85 && both.coverage.unwrap() > 0.9, "{tasks:?} {both:?}");
        assert_eq!((both.training_seeds, both.interior), (Some(3), false));
    }

    #[test]
    fn missed_intervals_of_a_ceiling_are_flagged() {
        let rows = Scenario { world: World::Ceiling, tasks: 20, attempts: 1 }.measure(300);
        assert!(rows.iter().all(|row| row.flagged_of_missed.is_none_or(|share| share > 0.95)), "{rows:?}");
        assert!(rows[0].defined < 1.0 && rows[0].coverage.unwrap() < 0.93);
    }
}
