//! A unit of work: one arm under one event seed. What it consists of, where its files are, and
//! what must agree before a started unit is continued.

use super::wal::{FORMAT, Header};
use crate::engine::{Identity, Sampling};
use crate::environment::{Environment, Task};
use crate::error::{Error, Result};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Tasks of one family and level: indices `0..count`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Item {
    /// The kind of task.
    pub family: String,
    /// Its difficulty.
    pub level: u8,
    /// How many.
    pub count: u32,
}

/// What one unit runs.
#[derive(Debug, Clone)]
pub struct UnitSpec {
    /// The experiment's name.
    pub experiment: String,
    /// The event, where events have names of their own.
    pub event: Option<String>,
    /// The arm.
    pub arm: String,
    /// SHA-256 of the locked section of the plan.
    pub plan_sha256: String,
    /// SHA-256 of the arm's adapter, live or merged.
    pub adapter_sha256: Option<String>,
    /// The seed the adapter was trained with.
    pub train_seed: Option<i64>,
    /// The event seed.
    pub seed: u64,
    /// The tasks.
    pub items: Vec<Item>,
    /// `train` or `held_out` for each family of `items`.
    pub split: BTreeMap<String, String>,
    /// Attempts at each task, at least 1.
    pub rollouts: u32,
    /// How completions are drawn; `logprobs` also puts their hash on the call rows.
    pub sampling: Sampling,
    /// Worked examples ahead of each task.
    pub examples: usize,
    /// The engine's handle of the arm's adapter.
    pub adapter: Option<usize>,
    /// The harness that drives the model: `native` for this loop.
    pub scaffold: String,
    /// `deployable` or `oracle`.
    pub evidence: String,
    /// Continue a unit that another engine started; each row keeps the engine that made it.
    pub accept_engine: bool,
    /// Finish a unit although episodes failed for reasons outside the model: their rows are kept, without
    /// a reward.
    pub accept_failures: bool,
}

impl UnitSpec {
    /// All tasks in canonical order (by the bytes of their ids).
    pub fn tasks(&self, environment: &dyn Environment) -> Result<Vec<Task>> {
        let mut tasks = Vec::new();
        for item in &self.items {
            for index in 0..item.count {
                tasks.push(environment.task(&item.family, item.level, self.seed, index)?);
            }
        }
        tasks.sort_by(|a, b| a.id.cmp(&b.id));
        match tasks.windows(2).find(|pair| pair[0].id == pair[1].id) {
            Some(pair) => Err(Error::invalid(format!("task `{}` would be run twice", pair[0].id))
                .at(self.place())
                .hint("name each family and level once")),
            None => Ok(tasks),
        }
    }

    /// Checks what the types do not.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: &str, remedy: &str| Err(Error::invalid(what).at(self.place()).hint(remedy));
        if self.rollouts == 0 || self.items.iter().all(|i| i.count == 0) {
            return wrong("the unit has no episodes", "give at least one task and one rollout");
        }
        if i64::try_from(self.seed).is_err() {
            return wrong("the seed does not fit a row", "use a seed below 2^63");
        }
        if self.sampling.max_tokens == 0 {
            return wrong("no tokens may be sampled", "set `answer_tokens` to at least 1");
        }
        for item in &self.items {
            match self.split.get(&item.family).map(String::as_str) {
                Some("train" | "held_out") => {}
                _ => {
                    let what = format!("family `{}` belongs to no side", item.family);
                    return wrong(&what, "list it under `train` or `held_out`");
                }
            }
        }
        Ok(())
    }

    /// The unit as named in messages.
    pub fn place(&self) -> String {
        format!("{}/{}/{}", self.experiment, self.arm, self.seed)
    }

    /// What a started unit is continued under: everything that decides its rows but the engine's
    /// internals, the environment's generators and verifiers included.
    pub fn header(&self, environment: &dyn Environment, identity: &Identity) -> Result<Header> {
        let families: BTreeSet<&str> = self.items.iter().map(|i| i.family.as_str()).collect();
        let verifiers: BTreeMap<&str, String> =
            families.iter().map(|f| Ok((*f, environment.verifier_sha256(f)?))).collect::<Result<_>>()?;
        let settings = serde_json::json!({
            "environment": environment.name(),
            "verifiers": verifiers,
            "items": self.items,
            "split": self.split,
            "rollouts": self.rollouts,
            "sampling": self.sampling,
            "examples": self.examples,
            "scaffold": self.scaffold,
            "evidence": self.evidence,
            "train_seed": self.train_seed,
        });
        Ok(Header {
            format: FORMAT,
            experiment: self.experiment.clone(),
            event: self.event.clone(),
            arm: self.arm.clone(),
            seed: self.seed,
            plan_sha256: self.plan_sha256.clone(),
            settings_sha256: crate::hash::sha256_json(&settings)?,
            model_sha256: identity.model_sha256.clone(),
            adapter_sha256: self.adapter_sha256.clone(),
            engine_sha256: identity.engine_sha256.clone(),
            dtype: identity.dtype.clone(),
            slots: identity.slots,
        })
    }
}

/// Where a unit's files are, relative to the experiment folder and in all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitFiles {
    root: PathBuf,
    arm: String,
    seed: u64,
}

impl UnitFiles {
    /// Files of `arm` under `seed` in the experiment folder `root`. The arm's name becomes a folder, so only
    /// letters, digits, `_`, `-` and inner `.` are allowed.
    pub fn new(root: &Path, arm: &str, seed: u64) -> Result<Self> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if arm.is_empty() || arm.starts_with('.') || arm.ends_with('.') || !arm.chars().all(plain) {
            return Err(Error::invalid(format!("`{arm}` cannot name an arm"))
                .hint("use letters, digits, `_`, `-` and `.`; it becomes a folder"));
        }
        Ok(UnitFiles { root: root.to_path_buf(), arm: arm.to_string(), seed })
    }

    /// The experiment folder.
    pub fn root(&self) -> &Path {
        &self.root
    }
    /// `episodes/<arm>/<seed>.parquet`
    pub fn episodes(&self) -> String {
        format!("episodes/{}/{}.parquet", self.arm, self.seed)
    }
    /// `calls/<arm>/<seed>.parquet`
    pub fn calls(&self) -> String {
        format!("calls/{}/{}.parquet", self.arm, self.seed)
    }
    /// `transcripts/<arm>/<seed>.jsonl.zst`
    pub fn transcripts(&self) -> String {
        format!("transcripts/{}/{}.jsonl.zst", self.arm, self.seed)
    }
    /// `wal/<arm>/<seed>.jsonl`, which exists only while the unit is unfinished.
    pub fn write_ahead(&self) -> String {
        format!("wal/{}/{}.jsonl", self.arm, self.seed)
    }
    /// Whether the unit is finished: its episodes are there and its write-ahead file is gone. While that
    /// file exists it is what counts, since a crash may have left the others half done.
    pub fn complete(&self) -> bool {
        !self.path(&self.write_ahead()).exists() && self.path(&self.episodes()).exists()
    }
    /// The full path of one of the above.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::testing::{Toy, identity, spec};

    #[test]
    fn an_arm_cannot_leave_its_folder() {
        for bad in ["", ".", "..", "a/b", "../x", "a\\b", ".hidden", "x.", "a b", "ä", "a\0"] {
            assert!(UnitFiles::new(Path::new("d"), bad, 1).is_err(), "{bad:?}");
        }
        let files = UnitFiles::new(Path::new("d"), "treatment-2.1", 7).unwrap();
        assert_eq!(files.path(&files.episodes()), Path::new("d/episodes/treatment-2.1/7.parquet"));
    }

    #[test]
    fn tasks_come_in_canonical_order_and_once() {
        let tasks = spec().tasks(&Toy::default()).unwrap();
        assert!(tasks.windows(2).all(|p| p[0].id.as_bytes() < p[1].id.as_bytes()));
        let mut twice = spec();
        twice.items.push(twice.items[0].clone());
        assert!(twice.tasks(&Toy::default()).unwrap_err().to_string().contains("run twice"));
    }

    #[test]
    fn what_cannot_run_is_refused_with_a_remedy() {
        let check = |change: fn(&mut UnitSpec), word: &str| {
            let mut s = spec();
            change(&mut s);
            let text = s.check().unwrap_err().to_string();
            assert!(text.contains(word) && text.contains("hint"), "{text}");
        };
        check(|s| s.rollouts = 0, "no episodes");
        check(|s| s.items.clear(), "no episodes");
        check(|s| s.seed = u64::MAX, "seed");
        check(|s| s.sampling.max_tokens = 0, "tokens");
        check(|s| s.split.clear(), "side");
        spec().check().unwrap();
    }

    #[test]
    fn whatever_decides_the_rows_is_in_the_header() {
        let toy = Toy::default();
        let header = |change: fn(&mut UnitSpec)| {
            let mut s = spec();
            change(&mut s);
            s.header(&toy, &identity(4)).unwrap()
        };
        let plain = header(|_| {});
        let changes: [fn(&mut UnitSpec); 8] = [
            |s| s.rollouts += 1,
            |s| s.sampling.temperature += 0.5,
            |s| s.examples += 1,
            |s| s.items[0].count += 1,
            |s| s.evidence = "oracle".into(),
            |s| s.train_seed = Some(9),
            |s| s.plan_sha256.push('0'),
            |s| s.adapter_sha256 = Some("a".into()),
        ];
        for (i, change) in changes.into_iter().enumerate() {
            assert_ne!(header(change), plain, "change {i}");
        }
        assert_eq!(header(|s| s.adapter = Some(3)), plain, "a handle is not an identity");
        assert_eq!(header(|s| s.accept_engine = true), plain);
    }
}
