//! Numbers of published experiments, rebuilt from the counts that their pages give: rows are made, imported, derived, and each
//! headline is what the rows say. What those pages contradict themselves in is refused here.

use crate::common::{expect, said, text};
use std::path::Path;

/// One arm's attempts: tasks named by `task`, with their number of solved ones among `of`.
fn attempts(out: &mut String, arm: &str, seed: u32, task: &str, solved: &[(usize, usize)], of: usize) {
    let mut number = 0;
    for (tasks, right) in solved {
        for _ in 0..*tasks {
            for rollout in 0..of {
                let won = u8::from(rollout < *right);
                let end = if won == 1 { "stop" } else { "length" };
                out.push_str(&format!("{task}-{number:04},{arm},{seed},{rollout},{won},{won},{end}\n"));
            }
            number += 1;
        }
    }
}

/// Family, score before, score after, and of a hundred answers those that could not be read, before and after.
const FAMILIES: [(&str, f64, f64, u32, u32); 12] = [
    ("caravan", 0.020, 0.810, 98, 8),
    ("kilnrite", 0.231, 0.964, 93, 0),
    ("runeward", 0.030, 0.960, 97, 0),
    ("loomfix", 0.073, 0.665, 99, 2),
    ("burrowmaze", 0.226, 0.766, 73, 5),
    ("ferrier", 0.484, 0.960, 61, 0),
    ("foundry_ledger", 0.140, 0.460, 86, 13),
    ("gatepost", 0.581, 0.766, 38, 5),
    ("glyphgate", 0.161, 0.266, 100, 24),
    ("stallwright", 0.000, 0.395, 100, 13),
    ("brinework", 0.070, 0.610, 93, 19),
    ("spindle", 0.187, 0.795, 100, 3),
];

/// The rows of six experiments and the facts of a fourth.
fn rebuild(root: &Path) {
    const HEAD: &str = "task,arm,seed,rollout,reward,solved,finish_reason\n";
    // Eleven functions of a real library, three attempts each: 4, 5, 1 and 1 of them solved 3, 2, 1 and 0 times.
    let mut library = HEAD.to_owned();
    attempts(&mut library, "base", 1, "function", &[(4, 3), (5, 2), (1, 1), (1, 0)], 3);
    // The eleven tasks kept out of training: 20 of 33 before, then after four edits of the policy; eight are solved at least once.
    let mut kept_out = HEAD.to_owned();
    attempts(&mut kept_out, "start", 1, "task", &[(5, 3), (2, 2), (1, 1), (3, 0)], 3);
    attempts(&mut kept_out, "second", 1, "task", &[(5, 3), (1, 2), (2, 1), (3, 0)], 3);
    attempts(&mut kept_out, "preferences", 1, "task", &[(4, 3), (2, 2), (1, 1), (4, 0)], 3);
    attempts(&mut kept_out, "elicited", 1, "task", &[(3, 3), (3, 2), (1, 1), (4, 0)], 3);
    // Paired events on fresh seeds, a thousand items each.
    let mut events = HEAD.to_owned();
    for (seed, base, install) in [
        (52004, 140, 363),
        (52005, 152, 446),
        (52006, 122, 445),
        (52007, 115, 400),
        (52008, 152, 379),
        (52009, 161, 424),
        (52010, 150, 424),
    ] {
        for (arm, right) in [("base", base), ("install", install)] {
            attempts(&mut events, arm, seed, &format!("s{seed}"), &[(right, 1), (1000 - right, 0)], 1);
        }
    }
    // Base against base on fresh seeds.
    let mut null = HEAD.to_owned();
    for (seed, right) in [(1, 116), (2, 150), (3, 171)] {
        attempts(&mut null, "base", seed, &format!("s{seed}"), &[(right, 1), (1000 - right, 0)], 1);
    }
    // Twelve families of a hundred items: score before and after, and answers that could not be read.
    let mut gym = String::from("task,arm,family,split,reward,finish_reason\n");
    for (family, before, after, unread_before, unread_after) in FAMILIES {
        let split = if ["brinework", "spindle"].contains(&family) { "held_out" } else { "train" };
        for (arm, score, unread) in [("base", before, unread_before), ("round2", after, unread_after)] {
            for item in 0..100 {
                let end = if item < unread { "length" } else { "stop" };
                gym.push_str(&format!("{family}-{item:03},{arm},{family},{split},{score},{end}\n"));
            }
        }
    }
    // When an attempt was solved, where it was: 621 of a thousand within ten minutes, 443 within five.
    let mut walls = String::from("task,arm,reward,solved_ms\n");
    for attempt in 0..1000 {
        let (won, wall) = match attempt {
            0..443 => (1, (100_000 + 400 * attempt).to_string()),
            443..621 => (1, (310_000 + 1_600 * (attempt - 443)).to_string()),
            _ => (0, String::new()),
        };
        walls.push_str(&format!("t{attempt:04},base,{won},{wall}\n"));
    }
    for (name, rows) in [
        ("library", library),
        ("kept-out", kept_out),
        ("events", events),
        ("null", null),
        ("gym", gym),
        ("walls", walls),
    ] {
        let file = root.join(format!("{name}.csv"));
        std::fs::write(&file, rows).unwrap();
        expect(0, &["import", text(&file), "--name", name, "--workspace", text(root)]);
    }
    let facts: String = [("discover", 0.513), ("control", 0.523), ("tools", 0.994), ("compose", 0.18)]
        .iter()
        .map(|(name, score)| format!("[{name}]\nvalue = {score}\nsource = \"the headroom gate's receipt\"\n"))
        .collect();
    std::fs::create_dir_all(root.join("data/headroom")).unwrap();
    std::fs::write(root.join("data/headroom/facts.toml"), facts).unwrap();
}

/// `[derivations.<id>]` over imported rows.
fn rows(id: &str, experiment: &str, rest: &str) -> String {
    format!("[derivations.{id}]\ndata = \"imported\"\nexperiment = \"{experiment}\"\n{rest}\n")
}

fn formula(id: &str, of: &str) -> String {
    format!(
        "[derivations.{id}]\ndata = \"derivations\"\nexperiment = \"events\"\nestimator = \"value\"\nof = \"{of}\"\n"
    )
}

/// A claim with every derivation and this text.
fn claim(root: &Path, body: &str) {
    let mean = |arm: &str| format!("estimator = \"mean\"\nof = \"reward\"\narms = [\"{arm}\"]");
    let mut front = String::from(
        "+++\nid = \"C0001\"\ntitle = \"Published numbers follow from their rows\"\nstatus = \"proposed\"\npopulation = \"tasks\"\n",
    );
    for declared in [
        rows("single", "library", &mean("base")),
        rows("selected", "library", "estimator = \"best_at_k\"\nk = 3\narms = [\"base\"]"),
        rows("cut", "library", "estimator = \"share\"\nof = \"finish_reason\"\nis = \"length\""),
        rows("attempts", "library", "estimator = \"count\""),
        rows("functions", "library", "estimator = \"count_distinct\"\nof = \"task_id\""),
        rows("once", "library", "estimator = \"tasks_where\"\nof = \"solved\"\nband = { above = 0 }\narms = [\"base\"]"),
        rows("always", "library", "estimator = \"tasks_where\"\nof = \"solved\"\nband = { at_least = 1 }\narms = [\"base\"]"),
        formula("lift", "selected - single"),
        rows("start", "kept-out", &mean("start")),
        rows("start_selected", "kept-out", "estimator = \"pass_at_k\"\nk = 3\narms = [\"start\"]"),
        rows("start_once", "kept-out", "estimator = \"count_distinct\"\nof = \"task_id\"\nwhere = { solved = true, arm = \"start\" }"),
        rows("by_policy", "kept-out", "estimator = \"mean\"\nof = \"reward\"\nby = \"arm\""),
        rows("elicited", "kept-out", "estimator = \"paired_delta\"\narms = [\"start\", \"elicited\"]"),
        formula("preferences", "by_policy/preferences - by_policy/start"),
        rows("base", "events", &format!("{}\nby = \"seed\"", mean("base"))),
        rows("install", "events", &format!("{}\nby = \"seed\"", mean("install"))),
        rows("events", "events", "estimator = \"count_distinct\"\nof = \"seed\""),
        formula("gain_52005", "install/52005 - base/52005"),
        formula("low_base", "least(base)"),
        formula("high_base", "greatest(base)"),
        formula("low_install", "least(install)"),
        formula("high_install", "greatest(install)"),
        formula("spread", "range(install)"),
        formula("average", "mean(install) - mean(base)"),
        rows("null_by_seed", "null", &format!("{}\nby = \"seed\"", mean("base"))),
        formula("null_spread", "range(null_by_seed)"),
        rows("families", "gym", "estimator = \"paired_delta\"\narms = [\"base\", \"round2\"]\nby = \"family\""),
        rows("all_families", "gym", &format!("{}\nweight = \"family\"", mean("round2"))),
        rows("trained", "gym", &format!("{}\nweight = \"family\"\nwhere = {{ split = \"train\" }}", mean("round2"))),
        rows("unread", "gym", "estimator = \"count\"\nwhere = { finish_reason = \"length\", family = \"caravan\" }\nby = \"arm\""),
        rows("in_ten", "walls", "estimator = \"mean\"\nof = \"solved_ms\"\nis = { at_most = 600000 }\nnulls = \"zero\"\narms = [\"base\"]"),
        rows("in_five", "walls", "estimator = \"mean\"\nof = \"solved_ms\"\nis = { at_most = 300000 }\nnulls = \"zero\"\narms = [\"base\"]"),
        formula("kept", "in_five / in_ten"),
        "[derivations.tools]\ndata = \"facts\"\nexperiment = \"headroom\"\nestimator = \"value\"\nof = \"tools\"\n".to_owned(),
        "[derivations.discover]\ndata = \"facts\"\nexperiment = \"headroom\"\nestimator = \"value\"\nof = \"discover\"\n".to_owned(),
        formula("most_to_gain", "1 - tools"),
        formula("required", "tools + 0.1"),
        formula("reachable", "min(1 - tools, 1 - discover) - 0.1"),
    ] {
        front.push_str(&declared);
    }
    front.push_str(
        "[[history]]\ndate = 2026-12-01\nstatus = \"proposed\"\nevidence = [\"derive:C0001.single\"]\n+++\n",
    );
    std::fs::create_dir_all(root.join("claims")).unwrap();
    std::fs::write(root.join("claims/C0001-published.md"), format!("{front}{body}\n")).unwrap();
}

const HONEST: &str = "\
A single attempt solves [0.697](derive:C0001.single) and the best of three [0.909](derive:C0001.selected), [+0.21](derive:C0001.lift) more, \
on [11](derive:C0001.functions) functions of which [10](derive:C0001.once) were solved, [4](derive:C0001.always) of them always; [30%](derive:C0001.cut) of [33](derive:C0001.attempts) \
attempts ran out.

The start solves [0.606](derive:C0001.start), [0.727](derive:C0001.start_selected) with selection, [8](derive:C0001.start_once) tasks at \
least once. The second policy has [0.576](derive:C0001.by_policy/second), preferences change it by [-0.091](derive:C0001.preferences) and \
elicitation by [-0.121](derive:C0001.elicited).

In [7](derive:C0001.events) paired events the base has [0.115](derive:C0001.low_base) to [0.161](derive:C0001.high_base) and the install \
[0.363](derive:C0001.low_install) to [0.446](derive:C0001.high_install), a spread of [0.083](derive:C0001.spread); on one seed \
[0.152](derive:C0001.base/52005) becomes [0.446](derive:C0001.install/52005), a gain of [+0.294](derive:C0001.gain_52005), on average \
[+0.270](derive:C0001.average).

Base against base spans [0.055](derive:C0001.null_spread). The mean of the families is \
[0.701](derive:C0001.all_families), that of the trained ones [70.1%](derive:C0001.trained); caravan gained \
[+0.790](derive:C0001.families/caravan) and brinework, never trained, [+0.540](derive:C0001.families/brinework); \
[98](derive:C0001.unread/base) unread answers became [8](derive:C0001.unread/round2). Within ten minutes \
[0.621](derive:C0001.in_ten) are solved, within five [0.443](derive:C0001.in_five), which keeps [71%](derive:C0001.kept).

Tools stand at [0.994](derive:C0001.tools): the most to gain is [0.6%](derive:C0001.most_to_gain), and the bar asks for \
[1.094](derive:C0001.required), [-0.094](derive:C0001.reachable) beyond reach.";

#[test]
fn headlines_follow_from_the_rows_and_contradictions_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    rebuild(root);
    claim(root, HONEST);
    let at = ["--workspace", text(root)];
    expect(0, &[&["claims", "check"], &at[..]].concat());
    let audit = expect(0, &[&["audit", "--json"], &at[..]].concat());
    let audit: serde_json::Value = serde_json::from_slice(&audit.stdout).unwrap();
    assert_eq!(audit["summary"]["mismatches"], 0, "{}", audit["summary"]);
    let verdict = |id: &str| {
        let verdicts = audit["verdicts"].as_array().unwrap();
        let found = verdicts.iter().find(|entry| entry["reference"] == format!("derive:C0001.{id}"));
        found.map(|entry| entry["verdict"].as_str().unwrap().to_owned())
    };
    assert_eq!(verdict("lift").as_deref(), Some("match"));
    assert_eq!(verdict("most_to_gain").as_deref(), Some("cited"), "it rests on a fact");
    for (printed, instead) in [
        // Events counted by eye.
        ("[7](derive:C0001.events)", "[6](derive:C0001.events)"),
        // A range whose lower end is one event's and whose base is another's.
        ("[0.161](derive:C0001.high_base)", "[0.140](derive:C0001.high_base)"),
        // A spread that is none of the values'.
        ("[0.083](derive:C0001.spread)", "[0.034](derive:C0001.spread)"),
        // The greatest shown as the mean.
        ("[+0.270](derive:C0001.average)", "[+0.324](derive:C0001.average)"),
        // A rate over 33 beside a count over 32.
        ("[33](derive:C0001.attempts)", "[32](derive:C0001.attempts)"),
        // A spread of base against base that its three values do not have.
        ("[0.055](derive:C0001.null_spread)", "[0.034](derive:C0001.null_spread)"),
        // "Mean of ten trained families 71.2%" over rows that average less.
        ("[70.1%](derive:C0001.trained)", "[71.2%](derive:C0001.trained)"),
        // Re-rounded upward.
        ("[0.697](derive:C0001.single)", "[0.70](derive:C0001.selected)"),
        ("[0.6%](derive:C0001.most_to_gain)", "[10%](derive:C0001.most_to_gain)"),
    ] {
        assert!(HONEST.contains(printed), "{printed}");
        claim(root, &HONEST.replace(printed, instead));
        let output = expect(1, &[&["audit"], &at[..]].concat());
        let reference = instead.split("derive:").nth(1).unwrap().trim_end_matches(')');
        assert!(said(&output).contains(reference), "{instead}: {}", said(&output));
    }
}
