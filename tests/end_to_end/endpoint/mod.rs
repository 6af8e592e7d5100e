//! Another server as the backend. Here: plans, and workspaces that run them; the tests are in
//! `faults`, against a server that fails and comes back, and in `servers`, against real ones.

mod faults;
mod servers;
#[path = "../../../src/engine/endpoint/test_server.rs"]
mod test_server;

use crate::common::{expect, text};
use rederive::episode::{EpisodeRow, table};
use std::path::PathBuf;
use std::process::Output;

/// What the plans here share.
const PLAN: &str = r#"
title = "Does the tuned model do better?"
[tasks]
train = []
levels = [1]
[decision]
rule = "three-way"
metric = { estimator = "paired_delta", of = "reward", weight = "task" }
minimum_delta = 0.03
"#;

/// A plan with these tables and keys besides.
fn plan(more: &str) -> String {
    fn add(to: &mut toml::Table, from: toml::Table) {
        for (key, value) in from {
            match (to.get_mut(&key), value) {
                (Some(toml::Value::Table(to)), toml::Value::Table(from)) => add(to, from),
                (_, value) => drop(to.insert(key, value)),
            }
        }
    }
    let mut plan: toml::Table = toml::from_str(PLAN).unwrap();
    add(&mut plan, toml::from_str(more).unwrap());
    toml::to_string(&plan).unwrap()
}

/// A workspace with one experiment.
struct Lab {
    _folder: tempfile::TempDir,
    path: PathBuf,
    slug: &'static str,
}

impl Lab {
    fn new(slug: &'static str, plan: &str) -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lab");
        let lab = Lab { path, slug, _folder: folder };
        lab.expect(0, &["new", slug]);
        lab.write_plan(plan);
        lab
    }

    /// The experiment's folder of data.
    fn data(&self) -> PathBuf {
        self.path.join("data").join(self.slug)
    }

    fn write_plan(&self, plan: &str) {
        std::fs::write(self.data().join("experiment.toml"), plan).unwrap();
    }

    /// Runs the binary in this workspace and requires an exit code.
    fn expect(&self, code: i32, arguments: &[&str]) -> Output {
        expect(code, &[arguments, &["--workspace", text(&self.path)]].concat())
    }

    /// Runs the experiment and checks what it left.
    fn finish(&self) {
        self.expect(0, &["run", self.slug]);
        self.expect(0, &["fill"]);
        self.expect(0, &["audit"]);
    }

    fn rows(&self, arm: &str, seed: u64) -> Vec<EpisodeRow> {
        table::read(&self.data().join(format!("episodes/{arm}/{seed}.parquet"))).unwrap()
    }
}
