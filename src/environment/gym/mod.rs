//! The gym: invented, procedural tasks in families of four levels. A task depends on its
//! family, level, seed and index alone; everything its verifier needs travels with it.
//! One file a family; `FAMILIES` is the registry, `knobs` sets how hard level 1 is.

pub mod atom;
pub mod brinework;
pub mod caravan;
pub mod gatepost;
pub mod kilnrite;
mod knobs;
pub mod parse;
mod selftest;
mod words;

pub use knobs::{BrineworkKnobs, CaravanKnobs, GatepostKnobs, KilnriteKnobs, Knobs, LEVEL_ONE};
pub use selftest::{LevelReport, SelfTest, selftest};

use super::{Environment, Message, Session, Task};
use crate::error::{Error, Result, nearest};
use crate::philox::Philox;
use atom::{AtomSession, AtomSpec};
use kilnrite::{RiteSession, RiteSpec};
use serde::{Serialize, de::DeserializeOwned};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// Whether a family's tasks take one reply or several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One prompt, one checked answer.
    Atom,
    /// Several one-line actions.
    Turns,
}

/// The default side of a family; an experiment may choose otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Harvested and trained on.
    Train,
    /// Only evaluated.
    HeldOut,
}

/// A family's entry in the registry.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct FamilyInfo {
    /// Name, as in `[tasks] train`.
    pub name: &'static str,
    /// What is measured, in one line.
    pub axis: &'static str,
    /// One reply or several.
    pub kind: Kind,
    /// Default side.
    pub side: Side,
    /// Raised whenever the generator, its parameters or the verifier change.
    pub version: u32,
    /// Mean reward that random and constant policies must not exceed, at every level.
    pub floor: f64,
    /// Makes a task of a level (1 to 4) from a random stream.
    #[serde(skip)]
    draft: fn(u8, &mut Philox) -> Draft,
}

/// All families, trained ones first.
pub const FAMILIES: [FamilyInfo; 4] = [caravan::INFO, gatepost::INFO, kilnrite::INFO, brinework::INFO];

/// Levels of every family.
pub const LEVELS: std::ops::RangeInclusive<u8> = 1..=4;

/// Seeds from here on make worked examples only: `task` and `begin` refuse them, so that no
/// event can use one.
pub const FIRST_RESERVED_SEED: u64 = 1 << 40;

/// Tasks whose lengths stand for all of a family and level, which differ little.
const MEASURED: u32 = 8;

/// How many reserved tasks are looked through for examples that differ.
const EXAMPLE_POOL: u32 = 64;

/// Reserved tasks of each level that are part of a verifier's hash.
const FINGERPRINT_TASKS: u32 = 4;

/// A task before it has an id.
struct Draft {
    answer_domain: Option<u32>,
    /// Which shape the item has (look-up or sum, place of the right line, and the like);
    /// examples vary it.
    form: usize,
    hidden: serde_json::Value,
}

impl Draft {
    fn new(spec: &impl Serialize, answer_domain: Option<u32>, form: usize) -> Self {
        let hidden = serde_json::to_value(spec).expect("specifications have string keys and finite numbers");
        Draft { answer_domain, form, hidden }
    }

    fn atom(spec: AtomSpec, form: usize) -> Self {
        Draft::new(&spec, spec.answer.domain(), form)
    }
}

/// The environment over all families of this folder.
pub struct Gym;

/// The registry entry of a family; an error with a suggestion when there is none.
pub fn family(name: &str) -> Result<&'static FamilyInfo> {
    FAMILIES.iter().find(|f| f.name == name).ok_or_else(|| {
        let known = FAMILIES.map(|f| f.name);
        let hint = match nearest(name, known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the gym has: {}", known.join(", ")),
        };
        Error::invalid(format!("unknown family `{name}`")).hint(hint)
    })
}

fn generate(info: &FamilyInfo, level: u8, seed: u64, index: u32) -> Result<(Task, usize)> {
    if !LEVELS.contains(&level) {
        return Err(
            Error::invalid(format!("`{}` has no level {level}", info.name)).hint("use a level from 1 to 4")
        );
    }
    let stream = format!("rederive/gym/{}/v{}/L{level}/{seed}/{index}", info.name, info.version);
    let draft = (info.draft)(level, &mut Philox::named(&stream));
    let task = Task {
        id: task_id(info.name, level, seed, index),
        family: info.name.to_string(),
        level,
        seed,
        index,
        answer_domain: draft.answer_domain,
        hidden: draft.hidden,
    };
    Ok((task, draft.form))
}

fn task_id(family: &str, level: u8, seed: u64, index: u32) -> String {
    format!("{family}/L{level}/{seed}/{index}")
}

fn refuse_reserved(seed: u64) -> Result<()> {
    if seed < FIRST_RESERVED_SEED {
        return Ok(());
    }
    Err(Error::invalid(format!("seed {seed} is reserved for worked examples"))
        .hint(format!("use a seed below {FIRST_RESERVED_SEED}")))
}

fn start(info: &FamilyInfo, task: &Task) -> Result<Box<dyn Session>> {
    fn read<T: DeserializeOwned>(task: &Task) -> Option<T> {
        T::deserialize(&task.hidden).ok()
    }
    let session: Option<Box<dyn Session>> = match info.kind {
        Kind::Atom => read::<AtomSpec>(task).and_then(AtomSession::new).map(|s| Box::new(s) as _),
        Kind::Turns => read::<RiteSpec>(task).and_then(RiteSession::new).map(|s| Box::new(s) as _),
    };
    session.ok_or_else(|| {
        Error::invalid(format!("the hidden part is not that of a `{}` task", info.name))
            .at(format!("task {}", task.id))
            .hint("make the task again from its family, level, seed and index")
    })
}

/// A conversation in which the oracle solves a reserved task: what a model made on the spot is taught
/// on. No event and no worked example uses these tasks.
pub fn lesson(name: &str, level: u8, index: u32) -> Result<Vec<Message>> {
    let info = family(name)?;
    let (task, _) = generate(info, level, FIRST_RESERVED_SEED + 1, index)?;
    Ok(solve(start(info, &task)?).0)
}

impl Environment for Gym {
    fn name(&self) -> &str {
        "gym"
    }

    fn families(&self) -> Vec<&str> {
        FAMILIES.iter().map(|f| f.name).collect()
    }

    fn task(&self, name: &str, level: u8, seed: u64, index: u32) -> Result<Task> {
        refuse_reserved(seed)?;
        Ok(generate(family(name)?, level, seed, index)?.0)
    }

    fn by_id(&self, id: &str) -> Result<Task> {
        let parts: Vec<&str> = id.split('/').collect();
        let parsed = match parts[..] {
            [name, level, seed, index] => level
                .strip_prefix('L')
                .and_then(|level| Some((name, level.parse().ok()?, seed.parse().ok()?, index.parse().ok()?))),
            _ => None,
        };
        let (name, level, seed, index) = parsed.ok_or_else(|| {
            Error::invalid(format!("`{id}` is not a task id"))
                .hint("ids read <family>/L<level>/<seed>/<index>")
        })?;
        self.task(name, level, seed, index)
    }

    fn longest(&self, name: &str, level: u8) -> Result<Vec<Task>> {
        // Seed 0 only measures lengths here.
        (0..MEASURED).map(|index| self.task(name, level, 0, index)).collect()
    }

    fn begin(&self, task: &Task) -> Result<Box<dyn Session>> {
        let info = family(&task.family).map_err(|e| e.at(format!("task {}", task.id)))?;
        refuse_reserved(task.seed).map_err(|e| e.at(format!("task {}", task.id)))?;
        let expected = task_id(&task.family, task.level, task.seed, task.index);
        if task.id != expected || !LEVELS.contains(&task.level) {
            return Err(Error::invalid(format!(
                "id does not agree with the task's fields, which say `{expected}`"
            ))
            .at(format!("task {}", task.id))
            .hint("make the task again from its family, level, seed and index"));
        }
        start(info, task)
    }

    /// Answers differ among the examples, and so do their forms as far as there are several.
    fn examples(&self, name: &str, level: u8, count: usize) -> Result<Vec<Message>> {
        let info = family(name)?;
        let (mut pool, mut forms) = (Vec::new(), BTreeSet::new());
        for index in 0..EXAMPLE_POOL {
            let (task, form) = generate(info, level, FIRST_RESERVED_SEED, index)?;
            let (messages, answer) = solve(start(info, &task)?);
            // The first of each form goes to the front, in order of appearance.
            let again = !forms.insert(form);
            pool.push((again, messages, answer));
        }
        pool.sort_by_key(|(again, ..)| *again);
        let mut answers = BTreeSet::new();
        let chosen: Vec<_> =
            pool.into_iter().filter(|(.., answer)| answers.insert(answer.clone())).take(count).collect();
        if chosen.len() < count {
            return Err(Error::invalid(format!(
                "`{name}` has no {count} worked examples with different answers"
            ))
            .hint(format!("ask for at most {}", chosen.len())));
        }
        Ok(chosen.into_iter().flat_map(|(_, messages, _)| messages).collect())
    }

    fn verifier_sha256(&self, name: &str) -> Result<String> {
        static KNOWN: Mutex<BTreeMap<&str, String>> = Mutex::new(BTreeMap::new());
        let info = family(name)?;
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hash) = known.get(info.name) {
            return Ok(hash.clone());
        }
        let hash = crate::hash::sha256_json(&(info.name, info.version, fingerprint(info)?))?;
        known.insert(info.name, hash.clone());
        Ok(hash)
    }

    fn deterministic(&self) -> bool {
        true
    }

    fn publishes_transcripts(&self) -> bool {
        true
    }
}

/// What a few reserved tasks of every level say, how the oracle plays them and what its first reply
/// and a useless one earn: a change of wording or of scoring shows even where nobody raised the version.
fn fingerprint(info: &FamilyInfo) -> Result<Vec<(Task, Vec<Message>, [f64; 2])>> {
    let tasks = LEVELS.flat_map(|level| (0..FINGERPRINT_TASKS).map(move |index| (level, index)));
    tasks
        .map(|(level, index)| {
            let (task, _) = generate(info, level, FIRST_RESERVED_SEED, index)?;
            let earned = |reply: &str| -> Result<f64> {
                let mut session = start(info, &task)?;
                session.reply(reply);
                Ok(session.outcome().reward)
            };
            let earned = [earned(&start(info, &task)?.oracle())?, earned("ANSWER: none of these")?];
            let (messages, _) = solve(start(info, &task)?);
            Ok((task, messages, earned))
        })
        .collect()
}

/// Lets the oracle play an episode; returns the conversation and its replies as one text.
fn solve(mut session: Box<dyn Session>) -> (Vec<Message>, String) {
    let (mut messages, mut answer) = (Vec::new(), String::new());
    let mut observation = Some(session.prompt());
    while let Some(text) = observation {
        let reply = session.oracle();
        answer.push_str(&reply);
        messages.extend([Message::user(text), Message::assistant(reply.clone())]);
        observation = session.reply(&reply).observation;
    }
    (messages, answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Role;

    #[test]
    fn unknown_families_levels_and_reserved_seeds_are_named() {
        let message = |r: Result<Task>| r.unwrap_err().to_string();
        assert_eq!(
            message(Gym.task("caravn", 1, 1, 0)),
            "unknown family `caravn`\nhint: did you mean `caravan`?"
        );
        assert!(
            message(Gym.task("x", 1, 1, 0)).contains("the gym has: caravan, gatepost, kilnrite, brinework")
        );
        for level in [0, 5] {
            assert!(message(Gym.task("caravan", level, 1, 0)).contains(&format!("no level {level}")));
        }
        assert!(
            message(Gym.task("caravan", 1, FIRST_RESERVED_SEED, 0)).contains("reserved for worked examples")
        );
        assert!(Gym.task("caravan", 1, FIRST_RESERVED_SEED - 1, 0).is_ok());
    }

    #[test]
    fn tampered_tasks_do_not_start() {
        let good = Gym.task("gatepost", 1, 7, 3).unwrap();
        assert_eq!(good.id, "gatepost/L1/7/3");
        assert!(Gym.begin(&good).is_ok());
        let altered: [fn(&mut Task); 5] = [
            |t| t.family = "spindle".into(),
            |t| t.index = 4,
            |t| t.seed = FIRST_RESERVED_SEED,
            |t| t.hidden = serde_json::json!({"prompt": "Who?"}),
            |t| t.hidden["answer"]["word"]["right"] = 99.into(),
        ];
        for alter in altered {
            let mut task = good.clone();
            alter(&mut task);
            assert!(Gym.begin(&task).err().unwrap().to_string().starts_with("task gatepost/L1/7/3: "));
        }
    }

    #[test]
    fn examples_are_solved_episodes_with_different_answers() {
        for info in &FAMILIES {
            for level in LEVELS {
                let messages = Gym.examples(info.name, level, 3).unwrap();
                assert_eq!(messages, Gym.examples(info.name, level, 3).unwrap());
                let roles: Vec<Role> = messages.iter().map(|m| m.role).collect();
                assert!(roles.chunks(2).all(|pair| pair == [Role::User, Role::Assistant]));
                let starts = |m: &&Message| m.content.contains("Reply with one line");
                assert_eq!(messages.iter().filter(starts).count(), 3);
                let replies: BTreeSet<&str> = messages
                    .iter()
                    .filter(|m| m.role == Role::Assistant)
                    .map(|m| m.content.as_str())
                    .collect();
                assert!(replies.len() >= 3);
                assert!(replies.iter().all(|r| r.starts_with("ANSWER: ") || r.starts_with("ACTION: ")));
            }
        }
        assert_eq!(Gym.examples("caravan", 1, 0).unwrap(), []);
        assert!(Gym.examples("caravan", 1, 65).unwrap_err().to_string().contains("ask for at most"));
    }

    #[test]
    fn level_one_examples_differ_in_form() {
        let forms = |name| -> BTreeSet<usize> {
            let info = family(name).unwrap();
            let examples = Gym.examples(name, 1, 2).unwrap();
            let made = (0..EXAMPLE_POOL).map(|i| generate(info, 1, FIRST_RESERVED_SEED, i).unwrap());
            made.filter(|(t, _)| examples.iter().any(|m| t.hidden["prompt"] == *m.content))
                .map(|(_, f)| f)
                .collect()
        };
        let both = |percent| if (1..100).contains(&percent) { 2 } else { 1 };
        assert_eq!(forms("caravan").len(), both(LEVEL_ONE.caravan.lookup_percent));
        for name in ["gatepost", "kilnrite", "brinework"] {
            assert_eq!(forms(name).len(), 2, "{name}");
        }
    }

    #[test]
    fn level_one_prompts_are_short() {
        for info in &FAMILIES {
            let longest = (0..200)
                .map(|i| Gym.begin(&Gym.task(info.name, 1, 5, i).unwrap()).unwrap().prompt().len())
                .max();
            assert!(longest <= Some(420), "{}: {longest:?} characters", info.name);
        }
    }

    /// A failure means that a family's tasks or scores changed: raise its version, then write the new hash here.
    #[test]
    fn what_a_family_asks_and_scores_changes_only_with_its_version() {
        let found =
            FAMILIES.map(|f| (f.name, f.version, Gym.verifier_sha256(f.name).unwrap()[..12].to_owned()));
        let known = [
            ("caravan", 1, "8b063438b8e7"),
            ("gatepost", 1, "7c3e27b22fac"),
            ("kilnrite", 1, "e5d4624027e1"),
            ("brinework", 1, "4b60fc296040"),
        ];
        assert_eq!(found, known.map(|(name, version, hash)| (name, version, hash.to_owned())));
        assert!(Gym.verifier_sha256("menders").is_err());
    }
}
