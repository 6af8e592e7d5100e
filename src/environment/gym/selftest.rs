//! The gym's self-test: what must hold for each family and level before a solve rate means
//! anything. The oracle scores 1, random and constant policies stay under the floor, a seed
//! always makes the same tasks, two seeds share none, and the parser bears what models write.

use super::FamilyInfo;
use crate::environment::{Environment, Outcome, Session, Task};
use crate::error::Result;
use crate::philox::Philox;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Two seeds below the reserved ones, far from those that people choose for events.
const SEEDS: [u64; 2] = [(1 << 39) + 1, (1 << 39) + 2];
/// Random episodes played on each task; one alone would leave the mean too noisy for a floor.
const RANDOM_EPISODES: u32 = 8;
/// Constant replies tried: the most frequent first replies of the oracle.
const CONSTANTS: usize = 20;
/// Replies that hold no answer.
const EMPTY_REPLIES: [&str; 9] = [
    "",
    "\n\n",
    "<|im_end|>",
    "I am not sure.",
    "ANSWER:",
    "ACTION: **",
    "ANSWER: <number>",
    "<think>\nANSWER: 1",
    "\u{0}\u{fffd}ÄÖ:\r\rACTION",
];

/// The verdict over all families and levels.
#[derive(Debug, Clone, Serialize)]
pub struct SelfTest {
    /// Name of the environment.
    pub environment: String,
    /// Tasks a level and family were tested on.
    pub tasks: u32,
    /// One entry a family and level.
    pub families: Vec<LevelReport>,
    /// Whether every entry passed.
    pub passed: bool,
}

/// What was found for one family at one level.
#[derive(Debug, Clone, Serialize)]
pub struct LevelReport {
    /// Name of the family.
    pub family: String,
    /// Difficulty, 1 to 4.
    pub level: u8,
    /// Tasks played.
    pub tasks: u32,
    /// Mean reward of the oracle policy; must be 1.
    pub oracle_mean: f64,
    /// Share of tasks that the oracle solves; must be 1.
    pub oracle_solved: f64,
    /// Mean reward of random well-formed replies.
    pub random_mean: f64,
    /// Mean reward of the best constant reply.
    pub constant_mean: f64,
    /// That reply.
    pub constant_reply: String,
    /// What neither of the two may exceed.
    pub floor: f64,
    /// Longest prompt, in characters.
    pub longest_prompt_chars: usize,
    /// What did not hold, one sentence each.
    pub failures: Vec<String>,
    /// Whether nothing failed.
    pub passed: bool,
}

/// Tests every level of `families` on `tasks` tasks (200 or more for a floor to be measured
/// well), half from each of two seeds. Errors are those of making or starting a task; what
/// does not hold is in the report.
pub fn selftest(environment: &dyn Environment, families: &[FamilyInfo], tasks: u32) -> Result<SelfTest> {
    let mut reports = Vec::new();
    for info in families {
        for level in super::LEVELS {
            reports.push(test_level(environment, info, level, tasks.max(2))?);
        }
    }
    Ok(SelfTest {
        environment: environment.name().to_string(),
        tasks: tasks.max(2),
        passed: reports.iter().all(|r| r.passed),
        families: reports,
    })
}

fn test_level(
    environment: &dyn Environment,
    info: &FamilyInfo,
    level: u8,
    count: u32,
) -> Result<LevelReport> {
    let make = |place: u32| {
        let half = count / 2;
        let (seed, index) = if place < half { (SEEDS[0], place) } else { (SEEDS[1], place - half) };
        environment.task(info.name, level, seed, index)
    };
    let tasks: Vec<Task> = (0..count).map(make).collect::<Result<_>>()?;
    let mut failures = Vec::new();
    let mut prompts = BTreeSet::new();
    let (mut oracle, mut random) = (Vec::new(), Vec::new());
    let mut replies: BTreeMap<String, u32> = BTreeMap::new();
    let mut rng = Philox::named(&format!("rederive/gym/selftest/{}/L{level}", info.name));

    for (place, task) in (0..).zip(&tasks) {
        let expected_id = format!("{}/L{level}/{}/{}", info.name, task.seed, task.index);
        if task.id != expected_id {
            failures.push(format!("task id is `{}`, not `{expected_id}`", task.id));
        }
        if make(place)? != *task {
            failures.push(format!("{} is another task when made again", task.id));
        }
        let text = crate::hash::canonical_json(task)?;
        let prompt = environment.begin(task)?.prompt();
        match serde_json::from_str::<Task>(&text) {
            Ok(read) if read == *task && environment.begin(&read)?.prompt() == prompt => {}
            _ => failures.push(format!("{} does not survive being written as JSON and read back", task.id)),
        }
        if !prompts.insert(prompt) {
            failures.push(format!("{} repeats the prompt of another task", task.id));
        }

        let first = environment.begin(task)?.oracle();
        *replies.entry(first).or_insert(0) += 1;
        oracle.push(play(environment, task, &mut failures, |session| session.oracle())?);
        for _ in 0..RANDOM_EPISODES {
            random.push(play(environment, task, &mut failures, |session| session.random(&mut rng))?);
        }
        test_parser(environment, task, &mut failures)?;
    }

    let mut constants: Vec<(u32, String)> =
        replies.into_iter().map(|(reply, times)| (times, reply)).collect();
    constants.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    let (mut constant_mean, mut constant_reply) = (0.0, String::new());
    for (_, reply) in constants.into_iter().take(CONSTANTS) {
        let outcomes: Vec<Outcome> = tasks
            .iter()
            .map(|task| play(environment, task, &mut failures, |_| reply.clone()))
            .collect::<Result<_>>()?;
        if mean_reward(&outcomes) > constant_mean {
            (constant_mean, constant_reply) = (mean_reward(&outcomes), reply);
        }
    }

    let (oracle_mean, random_mean) = (mean_reward(&oracle), mean_reward(&random));
    let oracle_solved = oracle.iter().filter(|o| o.solved).count() as f64 / f64::from(count);
    if oracle_mean != 1.0 || oracle_solved != 1.0 {
        failures.push(format!("the oracle scores {oracle_mean:.3} and solves {oracle_solved:.3}, not 1"));
    }
    for (policy, mean) in [("a random reply", random_mean), ("a constant reply", constant_mean)] {
        if mean > info.floor {
            failures.push(format!("{policy} scores {mean:.3}, above the floor of {:.2}", info.floor));
        }
    }
    Ok(LevelReport {
        family: info.name.to_string(),
        level,
        tasks: count,
        oracle_mean,
        oracle_solved,
        random_mean,
        constant_mean,
        constant_reply,
        floor: info.floor,
        longest_prompt_chars: prompts.iter().map(|p| p.chars().count()).max().unwrap_or(0),
        passed: failures.is_empty(),
        failures,
    })
}

/// Plays one episode; notes when it outlasts its horizon or its score moves after the end.
fn play(
    environment: &dyn Environment,
    task: &Task,
    failures: &mut Vec<String>,
    mut policy: impl FnMut(&dyn Session) -> String,
) -> Result<Outcome> {
    let mut session = environment.begin(task)?;
    let mut over = false;
    for _ in 0..session.horizon() {
        let reply = policy(session.as_ref());
        if session.reply(&reply).observation.is_none() {
            over = true;
            break;
        }
    }
    let outcome = session.outcome();
    if !over {
        failures.push(format!("{} goes on after its last turn", task.id));
    }
    if !(0.0..=1.0).contains(&outcome.reward) || outcome.solved != (outcome.reward == 1.0) {
        failures.push(format!("{} scores {} (solved: {})", task.id, outcome.reward, outcome.solved));
    }
    let late = session.oracle();
    if session.reply(&late).observation.is_some() || session.outcome() != outcome {
        failures.push(format!("{} takes a reply after its end", task.id));
    }
    Ok(outcome)
}

/// The right reply must count under the decorations that models add, and a reply without
/// an answer must not.
fn test_parser(environment: &dyn Environment, task: &Task, failures: &mut Vec<String>) -> Result<()> {
    let right = environment.begin(task)?.oracle();
    let Some((key, value)) = right.split_once(": ") else {
        failures.push(format!("{}: the oracle's reply `{right}` is not one field", task.id));
        return Ok(());
    };
    let decorated = [
        right.to_lowercase(),
        format!("{right}."),
        format!("**{key}:** {value}"),
        format!("**{right}**"),
        format!("`{key}`: \"{value}\""),
        format!("Let me see.\n  {right}\n"),
        format!("{right}<|im_end|>"),
        format!("{right}</s>\n{key}: none"),
        format!("{right} <|endoftext|>"),
        format!("{key}: none\r\n{right}\r\n"),
        format!("<think>\n{key}: none\n</think>\n\n{right}"),
    ];
    for reply in decorated {
        let turn = environment.begin(task)?.reply(&reply);
        if !(turn.parse_ok && turn.action_ok) {
            failures.push(format!("{} does not read {reply:?}", task.id));
        }
    }
    for reply in EMPTY_REPLIES {
        let mut session = environment.begin(task)?;
        let turn = session.reply(reply);
        if turn.parse_ok || turn.action_ok || session.outcome().reward != 0.0 {
            failures.push(format!("{} reads an answer in {reply:?}", task.id));
        }
    }
    Ok(())
}

fn mean_reward(outcomes: &[Outcome]) -> f64 {
    outcomes.iter().map(|o| o.reward).sum::<f64>() / outcomes.len() as f64
}

#[cfg(test)]
mod tests {
    use super::super::{FAMILIES, Gym};
    use super::*;
    use crate::environment::Message;

    #[test]
    fn the_gym_passes_on_200_tasks_a_level() {
        let report = selftest(&Gym, &FAMILIES, 200).unwrap();
        for r in &report.families {
            assert!(r.passed, "{} L{}: {:?}", r.family, r.level, r.failures);
            assert_eq!((r.oracle_mean, r.oracle_solved), (1.0, 1.0));
        }
        assert_eq!(report.families.len(), 16);
        assert!(report.passed);
    }

    /// A gym with one thing broken.
    struct Broken(fn(Task) -> Task);

    impl Environment for Broken {
        fn name(&self) -> &str {
            "broken"
        }
        fn families(&self) -> Vec<&str> {
            Gym.families()
        }
        fn by_id(&self, id: &str) -> Result<Task> {
            Gym.by_id(id)
        }
        fn longest(&self, family: &str, level: u8) -> Result<Vec<Task>> {
            Gym.longest(family, level)
        }
        fn task(&self, family: &str, level: u8, seed: u64, index: u32) -> Result<Task> {
            Ok((self.0)(Gym.task(family, level, seed, index)?))
        }
        fn begin(&self, task: &Task) -> Result<Box<dyn Session>> {
            Gym.begin(task)
        }
        fn examples(&self, family: &str, level: u8, count: usize) -> Result<Vec<Message>> {
            Gym.examples(family, level, count)
        }
        fn verifier_sha256(&self, family: &str) -> Result<String> {
            Gym.verifier_sha256(family)
        }
        fn deterministic(&self) -> bool {
            true
        }
        fn publishes_transcripts(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_broken_gym_fails() {
        let found = |environment: &dyn Environment, family: usize, words: &str| {
            let report = selftest(environment, &FAMILIES[family..=family], 40).unwrap();
            assert!(!report.passed);
            assert!(
                report.families[0].failures.iter().any(|f| f.contains(words)),
                "{:?}",
                report.families[0].failures
            );
        };
        let constant = Broken(|mut task| {
            task.hidden["answer"] = serde_json::json!({"number": {"value": 7, "low": 1, "high": 12}});
            task
        });
        found(&constant, 0, "a constant reply scores 1.000, above the floor");
        let same = Broken(|mut task| {
            task.hidden["prompt"] = "How many figs are left?".into();
            task
        });
        found(&same, 3, "repeats the prompt of another task");
        let unreachable = Broken(|mut task| {
            task.hidden["horizon"] = 1.into();
            task
        });
        found(&unreachable, 2, "the oracle scores 0.");
    }

    #[test]
    fn a_floor_set_too_low_is_noticed() {
        let strict = FamilyInfo { floor: 0.2, ..FAMILIES[1] };
        let report = selftest(&Gym, &[strict], 200).unwrap();
        assert!(report.families[1].failures.iter().any(|f| f.contains("a random reply scores")));
    }
}
