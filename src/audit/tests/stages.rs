//! Attacks on what the stages leave beside the evaluated rows: the harvest's choice, the merge, how episodes ended,
//! times, and verdicts without a plan. Each is planted in a workspace whose files are sealed anew.

use super::attacks::{caught, found, run};
use super::workspace::{SLUG, Workspace, harvested, sample};
use crate::audit::AuditReport;
use crate::episode::row::{CallRow, EpisodeRow, HarvestRow};
use serde_json::{Value, json};

const REPORT: &str = "site/experiments/demo/report.md";
const HARVEST: &str = "harvest/11001.parquet";
const BASE: &str = "episodes/base/52004.parquet";

/// The honest workspace whose receipts follow what `change` made of the harvest rows and its plan.
fn harvest(edits: &[(&str, &str)], change: impl Fn(&mut Vec<HarvestRow>)) -> AuditReport {
    let workspace = Workspace::honest();
    for (from, to) in edits {
        workspace.replace("data/demo/experiment.toml", from, to);
    }
    let mut rows: Vec<HarvestRow> = (0..4).map(sample).collect();
    change(&mut rows);
    workspace.put(HARVEST, &mut rows);
    run(&workspace)
}

#[test]
fn what_the_harvest_kept_is_chosen_again() {
    let chosen = |edits: &[(&str, &str)], row: usize, words: &str, change: fn(&mut Vec<HarvestRow>)| {
        let report = harvest(edits, change);
        caught(&report, "harvest_kept", HARVEST, Some(row));
        found(&report, "harvest_kept", words);
    };
    chosen(&[], 4, "is kept; by the plan it is rejected as `not_terse`", |rows| {
        (rows[3].kept, rows[3].reject) = (true, None);
    });
    chosen(&[], 1, "is rejected as `unsolved`; by the plan it is kept", |rows| {
        (rows[0].kept, rows[0].reject) = (false, Some("unsolved".into()));
    });
    chosen(&[], 2, "is kept; by the plan it is rejected as `unsolved`", |rows| rows[1].solved = Some(false));
    chosen(&[], 4, "rejected as `too_dull`; by the plan it is rejected as `not_terse`", |rows| {
        rows[3].reject = Some("too_dull".into());
    });
    // The plan's own numbers: a cap, and how long a reply may be.
    let cap = [("minimum_rows = 3", "minimum_rows = 3\nfamily_cap = 2")];
    chosen(&cap, 3, "is kept; by the plan it is rejected as `family_cap`", |_| {});
    let terse = [("minimum_rows = 3", "minimum_rows = 3\nterse_tokens = 8")];
    chosen(&terse, 1, "rejected as `not_terse`", |_| {});
    // Two samples of one task.
    let twice = [("minimum_rows = 3", "minimum_rows = 3\nitem_cap = 1")];
    chosen(&twice, 2, "rejected as `item_cap`", |rows| {
        (rows[1].task_id, rows[1].rollout) = (rows[0].task_id.clone(), 1);
    });
    // A task with two answers, solved once.
    chosen(&GATEPOST, 1, "rejected as `lucky`", |rows| {
        (rows[0].family, rows[0].task_id) = ("gatepost".into(), guessable());
    });
}

/// A plan that trains on a family with tasks of few answers, and the id of such a task.
const GATEPOST: [(&str, &str); 1] = [("train = [\"caravan\"]", "train = [\"caravan\", \"gatepost\"]")];

fn guessable() -> String {
    use crate::environment::{Environment, gym::Gym};
    let few = |id: &String| Gym.by_id(id).unwrap().answer_domain.is_some_and(|answers| answers <= 8);
    (0..64).map(|i| format!("gatepost/L1/11001/{i}")).find(few).unwrap()
}

#[test]
fn an_environment_that_judges_otherwise_by_now_does_not_choose_again() {
    // The rows name a verifier that is not today's.
    let workspace = Workspace::honest();
    workspace.replace("data/demo/experiment.toml", GATEPOST[0].0, GATEPOST[0].1);
    let mut rows: Vec<HarvestRow> = (0..4).map(sample).collect();
    (rows[0].family, rows[0].task_id) = ("gatepost".into(), guessable());
    workspace.put(HARVEST, &mut rows);
    let mut played: Vec<EpisodeRow> = (0..4).map(harvested).collect();
    (played[0].family, played[0].task_id) = ("gatepost".into(), guessable());
    workspace.unit("harvest", 11001, &mut played);
    let report = run(&workspace);
    assert!(report.findings.iter().all(|finding| finding.rule != "harvest_kept"), "{:#?}", report.findings);
}

/// The harvest's own choice, over random outcomes of two families, one with tasks of few answers, and random caps.
#[test]
fn both_roads_choose_the_same_samples() {
    use crate::environment::{Environment, gym::Gym};
    use crate::stages::select::{Sample, select};
    let mut verdicts = std::collections::BTreeSet::new();
    for seed in 0..12 {
        // Knuth's linear congruential generator.
        let mut state: u64 = seed;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % n) as i64
        };
        let caps = [1 + below(3), 2 + below(6), 6 + below(30), 1 + below(3)];
        let workspace = Workspace::honest();
        workspace.replace("data/demo/experiment.toml", GATEPOST[0].0, GATEPOST[0].1);
        let [item, family, terse, lucky] = caps;
        let rules = format!(
            "minimum_rows = 3\nitem_cap = {item}\nfamily_cap = {family}\nterse_tokens = {terse}\nlucky_minimum = {lucky}"
        );
        workspace.replace("data/demo/experiment.toml", "minimum_rows = 3", &rules);
        let (mut rows, mut played, mut samples) = (Vec::new(), Vec::new(), Vec::new());
        for (at, task) in ["caravan", "gatepost"].iter().flat_map(|f| (0..8).map(move |i| (f, i))).enumerate()
        {
            let (family, index) = task;
            for rollout in 0..3 {
                let tokens = 1 + below(36);
                let mut row = sample(0);
                (row.family, row.rollout, row.completion_tokens) = ((*family).into(), rollout, tokens);
                row.level = 1 + (at as i64) % 2;
                row.task_id = format!("{family}/L{}/11001/{index}", row.level);
                row.solved = Some(below(3) > 0);
                let mut episode = harvested(0);
                (episode.family, episode.rollout, episode.task_id) =
                    (row.family.clone(), rollout, row.task_id.clone());
                (episode.completion_tokens, episode.level) = (Some(tokens), row.level);
                // Answers are known by the verifier of today.
                episode.verifier_sha256 = Gym.verifier_sha256(family).unwrap();
                samples.push(Sample {
                    family: row.family.clone(),
                    level: row.level,
                    task_id: row.task_id.clone(),
                    rollout,
                    solved: row.solved,
                    longest_reply: tokens as usize,
                    answer_domain: Gym.by_id(&row.task_id).unwrap().answer_domain,
                });
                rows.push(row);
                played.push(episode);
            }
        }
        let plan =
            crate::experiment::Plan::load(&workspace.root().join("data/demo/experiment.toml")).unwrap();
        for (row, verdict) in rows.iter_mut().zip(select(&samples, &plan.harvest)) {
            verdicts.insert(verdict);
            (row.kept, row.reject) = (verdict.is_none(), verdict.map(str::to_owned));
        }
        workspace.put(HARVEST, &mut rows);
        workspace.unit("harvest", 11001, &mut played);
        let report = run(&workspace);
        assert!(report.findings.iter().all(|f| f.rule != "harvest_kept"), "{seed}: {:#?}", report.findings);
    }
    assert_eq!(verdicts.len(), 6, "every verdict was met: {verdicts:?}");
}

#[test]
fn arms_that_were_asked_otherwise_are_named() {
    let workspace = Workspace::honest();
    let file = "calls/treatment/52004.parquet";
    let mut made: Vec<CallRow> = workspace.rows(file);
    made[3].prompt_sha256 = Some("q".repeat(64));
    workspace.put(file, &mut made);
    let report = run(&workspace);
    caught(&report, "prompts_differ", file, Some(4));
    found(&report, "prompts_differ", "opens with another prompt than it did for `base`");
}

#[test]
fn what_no_stage_writes_is_named_in_receipts_and_locks() {
    for name in ["harvest", "train", "merge", "headroom", "decision"] {
        let workspace = Workspace::honest();
        workspace.edit_receipt(name, |receipt| receipt["human_score"] = json!(0.97));
        let report = run(&workspace);
        caught(&report, "receipt_field", &format!("receipts/{name}.json"), None);
        found(&report, "receipt_field", "`human_score`, which no stage writes");
    }
    let workspace = Workspace::honest();
    workspace.replace("data/demo/receipts/plan-train.json", "{\"stage\"", "{\"human\":1,\"stage\"");
    caught(&run(&workspace), "receipt_field", "receipts/plan-train.json", None);
}

#[test]
fn a_training_on_another_model_than_the_harvests_is_named() {
    let workspace = Workspace::honest();
    workspace.edit_receipt("harvest", |receipt| receipt["model_sha256"] = json!("0".repeat(64)));
    found(&run(&workspace), "training", "`model_sha256`");
}

#[test]
fn harvested_samples_are_all_there() {
    let workspace = Workspace::honest();
    let mut rows: Vec<HarvestRow> = (0..3).map(sample).collect();
    workspace.put(HARVEST, &mut rows);
    let episodes = "episodes/harvest/11001.parquet";
    caught(&run(&workspace), "harvest_differs", episodes, Some(4));
    // With its episode and its call it leaves the plan's count of attempts.
    let mut rows: Vec<EpisodeRow> = (0..3).map(harvested).collect();
    workspace.unit("harvest", 11001, &mut rows);
    let report = run(&workspace);
    caught(&report, "unit_incomplete", episodes, None);
    found(&report, "unit_incomplete", "3 attempts at family `caravan`, level 1, where the plan gives 4");
    // Without any, the receipt has nothing that it could have read.
    workspace.forget(episodes);
    workspace.forget("calls/harvest/11001.parquet");
    found(&run(&workspace), "unit_incomplete", "no episode of `harvest` under the planned seed 11001");
}

/// The honest workspace with an episode and its call changed alike.
fn ended(change: fn(&mut EpisodeRow, &mut CallRow)) -> AuditReport {
    let workspace = Workspace::honest();
    let calls = "calls/base/52004.parquet";
    let (mut rows, mut made): (Vec<EpisodeRow>, Vec<CallRow>) = (workspace.rows(BASE), workspace.rows(calls));
    change(&mut rows[1], &mut made[1]);
    workspace.put(BASE, &mut rows);
    workspace.put(calls, &mut made);
    run(&workspace)
}

#[test]
fn an_episode_ends_as_its_calls_and_its_score_say() {
    let named = |words: &str, change: fn(&mut EpisodeRow, &mut CallRow)| {
        let report = ended(change);
        caught(&report, "episode_end", BASE, Some(2));
        found(&report, "episode_end", words);
    };
    named("`finish_reason` is `stop`, its last call ended by `length`", |_, c| {
        c.finish_reason = "length".into()
    });
    named("which no call does", |r, c| {
        (r.finish_reason, c.finish_reason) = ("bored".into(), "bored".into());
    });
    named("`reward` is `", |r, _| r.finish_reason = "infra_error".into());
    named("`error` is `—`", |r, _| {
        r.finish_reason = "infra_error".into();
        (r.reward, r.solved, r.engaged) = (None, None, None);
    });
    named("`error` is `no room`", |r, _| r.error = Some("no room".into()));
    named("`solved` is `—`", |r, _| r.solved = None);
    named("`parse_ok` is `false`, its last call says `true`", |r, _| r.parse_ok = Some(false));
    named("`engaged` is `true`, and by its calls it is `false`", |_, c| c.action_ok = Some(false));
    named("not numbered from 0", |_, c| c.turn = 1);
    // A limit that was reached between two turns is an end of its own.
    let report = ended(|r, _| r.finish_reason = "length".into());
    assert!(report.findings.iter().all(|finding| finding.rule == "receipt_file"), "{report:#?}");
}

#[test]
fn a_reply_longer_than_the_plan_allows_is_named() {
    let report = ended(|r, c| (r.completion_tokens, c.completion_tokens) = (Some(4_000), Some(4_000)));
    caught(&report, "row_not_of_plan", "calls/base/52004.parquet", Some(2));
    found(&report, "row_not_of_plan", "the plan gives a turn at most 120");
}

#[test]
fn a_call_that_seals_nothing_and_counts_below_zero_are_named() {
    let calls = "calls/base/52004.parquet";
    for column in ["prompt_sha256", "tokens_sha256"] {
        let report = match column {
            "prompt_sha256" => ended(|_, c| c.prompt_sha256 = None),
            _ => ended(|_, c| c.tokens_sha256 = None),
        };
        caught(&report, "row_not_of_plan", calls, Some(2));
        found(&report, "row_not_of_plan", &format!("`{column}` is missing"));
    }
    let report = ended(|r, c| (r.wall_ms, c.wall_ms) = (-1, -2));
    caught(&report, "negative_count", BASE, Some(2));
    caught(&report, "negative_count", calls, Some(2));
}

#[test]
fn columns_that_no_episode_here_has_are_named() {
    let named = |words: &str, change: fn(&mut EpisodeRow)| {
        let workspace = Workspace::honest();
        let mut rows: Vec<EpisodeRow> = workspace.rows(BASE);
        change(&mut rows[1]);
        workspace.put(BASE, &mut rows);
        let report = run(&workspace);
        caught(&report, "row_not_of_plan", BASE, Some(2));
        found(&report, "row_not_of_plan", words);
    };
    named("`partial` is `1`, and no episode of this plan has one", |r| r.partial = Some(1.0));
    named("`solved_ms` is `9`", |r| r.solved_ms = Some(9));
    named("`tool_calls` is `3`", |r| r.tool_calls = Some(3));
    named("`think_tokens` is `1`", |r| r.think_tokens = Some(1));
    named("`evidence` is `oracle`", |r| r.evidence = "oracle".into());
    let workspace = Workspace::honest();
    let file = "training/1.parquet";
    let mut steps: Vec<crate::episode::row::TrainingRow> = workspace.rows(file);
    steps[1].learning_rate = 99.0;
    workspace.put(file, &mut steps);
    caught(&run(&workspace), "training", file, Some(2));
}

#[test]
fn a_training_that_did_not_pass_and_went_on_is_named() {
    let workspace = Workspace::honest();
    workspace.edit_receipt("train", |receipt| receipt["passed"] = json!(false));
    caught(&run(&workspace), "gate_bypassed", "receipts/train.json", None);
}

#[test]
fn times_that_cannot_be_are_named() {
    let dated = |file: &str, words: &str, change: &dyn Fn(&Workspace)| {
        let workspace = Workspace::honest();
        change(&workspace);
        let report = run(&workspace);
        found(&report, "dates", words);
        assert!(report.findings.iter().all(|f| f.rule != "dates" || f.file.ends_with(file)), "{report:#?}");
    };
    let lock = "data/demo/receipts/plan-evaluate.json";
    let (then, later) = ("2026-11-29T00:00:00Z", "2026-11-29T09:00:00Z");
    for (at, words) in
        [(later, "before the evaluate stage was locked at 2026-11-29T09:00:00Z"), ("yesterday", "is no time")]
    {
        let file = if at == later { ".parquet" } else { "plan-evaluate.json" };
        dated(file, words, &|workspace| workspace.replace(lock, then, at));
    }
    dated("plan-evaluate.json", "is yet to come", &|workspace| {
        workspace.replace(lock, then, "2999-01-01T00:00:00Z");
    });
    dated("52004.parquet", "before seed 52004 was spent at 2026-11-29T09:00:00Z", &|workspace| {
        let at = |at: &str| format!("\"at\":\"{at}\"");
        let ledger = fs_err::read_to_string(workspace.root().join("data/seeds.jsonl")).unwrap();
        let lines = ledger.lines().map(|own| match own.contains("52004") {
            true => own.replace(&at(then), &at(later)) + "\n",
            false => own.to_string() + "\n",
        });
        let text: String = lines.collect();
        assert_ne!(text, ledger);
        workspace.text("data/seeds.jsonl", &text);
    });
    // A seed that the ledger names twice was spent the first time.
    let workspace = Workspace::honest();
    let ledger = fs_err::read_to_string(workspace.root().join("data/seeds.jsonl")).unwrap();
    let again = ledger.lines().last().unwrap().replace(then, later);
    workspace.text("data/seeds.jsonl", &format!("{ledger}{again}\n"));
    assert!(run(&workspace).findings.iter().all(|finding| finding.rule != "dates"));
    for (at, words) in [("2999-01-01T00:00:00Z", "is yet to come"), ("2026-02-30T00:00:00Z", "is no time")] {
        dated("52004.parquet", words, &|workspace| {
            let mut rows: Vec<EpisodeRow> = workspace.rows(BASE);
            rows[0].started_at = at.into();
            workspace.put(BASE, &mut rows);
        });
    }
}

/// A report over rows that nobody planned, as of a run made elsewhere.
#[test]
fn a_verdict_without_a_plan_is_named() {
    let unplanned = |verdict: &str, text: &str| {
        let workspace = Workspace::honest();
        for folder in ["receipts", "episodes", "calls", "harvest", "training", "merged", "adapters"] {
            fs_err::remove_dir_all(workspace.root().join("data").join(SLUG).join(folder)).unwrap();
        }
        for file in ["data/demo/experiment.toml", "data/demo/hashes.json", "data/seeds.jsonl"] {
            fs_err::remove_file(workspace.root().join(file)).unwrap();
        }
        fs_err::remove_dir_all(workspace.root().join("claims")).unwrap();
        workspace.text("site/experiments/demo/log.md", "## 2026-12-01 — nothing yet\n\nNothing.\n");
        let front = format!(
            "+++\ntitle = \"A\"\nlifecycle = \"finished\"\n{verdict}started = 2026-12-01\nplain = {{ idea = \"i\", question = \"q\", found = \"f\", matters = \"m\" }}\n+++\n\n{text}\n"
        );
        workspace.text(REPORT, &front);
        run(&workspace)
    };
    for verdict in ["positive", "negative", "inconclusive", "design-negative"] {
        let report = unplanned(&format!("verdict = \"{verdict}\"\n"), "Words.");
        caught(&report, "verdict", REPORT, None);
        found(&report, "verdict", "there is no plan whose rule gives one");
        caught(&unplanned("", &format!("The verdict is {verdict}.")), "verdict", REPORT, None);
    }
    for verdict in ["", "verdict = \"instrument-only\"\n"] {
        let report = unplanned(verdict, "Words.");
        assert!(report.passed(), "{}", report.render(100));
    }
}

/// A list of words that a page prints with the legs is the audit's own, not the receipt's.
#[test]
fn another_question_above_a_leg_is_named() {
    let workspace = Workspace::honest();
    let asks = |receipt: &mut Value| receipt["decision"]["legs"][2]["asks"] = json!("every task got better");
    workspace.edit_receipt("decision", asks);
    found(
        &run(&workspace),
        "decision",
        "leg 3: asks \"every task got better\", the rule asks whether the lower end",
    );
}
