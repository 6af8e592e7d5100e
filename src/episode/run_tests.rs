//! Whole units: the same rows however often a run was stopped and in whatever order the
//! engine answered, and a refusal for everything that must not be mixed.

use super::*;
use crate::episode::compare::same_rows;
use crate::episode::hashes::Hashes;
use crate::episode::row::CallRow;
use crate::episode::testing::{Toy, Unruly, spec};
use crate::episode::transcript;
use crate::hash::sha256_hex;
use crate::philox::Philox;
use proptest::prelude::*;

fn run_with(spec: &UnitSpec, toy: &Toy, backend: &mut dyn Backend, root: &Path) -> Result<UnitReport> {
    let stop = AtomicBool::new(false);
    let mut last = 0;
    let mut progress = |p: Progress| {
        assert!(p.done >= last && p.done <= p.total);
        last = p.done;
    };
    run_unit(spec, toy, backend, root, &mut Control { stop: &stop, progress: &mut progress })
}

fn run(spec: &UnitSpec, backend: &mut dyn Backend, root: &Path) -> Result<UnitReport> {
    run_with(spec, &Toy::default(), backend, root)
}

fn episodes(root: &Path) -> Vec<EpisodeRow> {
    table::read_chain_checked(&root.join("episodes/base/7.parquet")).unwrap()
}

fn calls(root: &Path) -> Vec<CallRow> {
    table::read_chain_checked(&root.join("calls/base/7.parquet")).unwrap()
}

fn undisturbed() -> (Vec<EpisodeRow>, Vec<CallRow>, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let report = run(&spec(), &mut Unruly::new(4, "undisturbed"), dir.path()).unwrap();
    assert!(report.complete && report.failures.is_none());
    let transcripts = fs_err::read(dir.path().join("transcripts/base/7.jsonl.zst")).unwrap();
    (episodes(dir.path()), calls(dir.path()), transcripts)
}

#[test]
fn every_episode_gets_its_row() {
    let (rows, calls, _) = undisturbed();
    assert_eq!(rows.len(), 20);
    for row in &rows {
        let own: Vec<&CallRow> =
            calls.iter().filter(|c| (&c.task_id, c.rollout) == (&row.task_id, row.rollout)).collect();
        assert_eq!(row.turns as usize, own.len());
        assert!(own.iter().map(|c| c.turn).eq(0..row.turns));
        assert_eq!(row.prompt_tokens, own.iter().map(|c| c.prompt_tokens).sum::<Option<i64>>());
        assert_eq!(row.completion_tokens, own.iter().map(|c| c.completion_tokens).sum::<Option<i64>>());
        assert_eq!(row.finish_reason, own.last().unwrap().finish_reason);
        assert_eq!(row.parse_ok, own.last().unwrap().parse_ok);
        assert_eq!(row.split, if row.family == "sum" { "train" } else { "held_out" });
        assert!(row.reward.is_some() && row.solved.is_some() && row.error.is_none());
        assert!(own.iter().all(|c| c.logprobs_sha256.is_some()));
    }
    let walks = || rows.iter().filter(|r| r.family == "walk");
    assert!(
        walks().any(|r| r.turns == 3) && walks().any(|r| r.turns < 3),
        "horizons and early ends both occur"
    );
    assert!(rows.iter().any(|r| r.finish_reason == "length" && r.reward.is_some()), "a limit is a score");
}

#[test]
fn prompts_examples_and_turns_reach_the_engine_as_documented() {
    let dir = tempfile::tempdir().unwrap();
    let mut backend = Unruly::new(2, "a");
    run(&spec(), &mut backend, dir.path()).unwrap();
    let kept = transcript::read(&dir.path().join("transcripts/base/7.jsonl.zst")).unwrap();
    let calls = calls(dir.path());
    for t in &kept {
        assert!(t.messages[0].content.starts_with("example") && t.messages[2].content.starts_with("task"));
        let context = backend.render(&t.messages[..3]).unwrap();
        let first =
            calls.iter().find(|c| (&c.task_id, c.rollout, c.turn) == (&t.task_id, t.rollout, 0)).unwrap();
        assert_eq!(first.prompt_sha256.as_deref().unwrap(), crate::engine::tokens_sha256(&context));
        assert_eq!(first.tokens_sha256.as_deref().unwrap(), crate::engine::tokens_sha256(&t.sampled[0]));
    }
    assert_eq!(kept.len(), 20);
}

#[test]
fn slots_and_order_of_answers_do_not_show() {
    let (rows, _, transcripts) = undisturbed();
    for (slots, disorder) in [(4, "b"), (1, "c"), (9, "d")] {
        let dir = tempfile::tempdir().unwrap();
        run(&spec(), &mut Unruly::new(slots, disorder), dir.path()).unwrap();
        let mut got = episodes(dir.path());
        for row in &mut got {
            // Slots are part of the engine's identity, which is on the row.
            (row.slots, row.engine_sha256) = (Some(4), rows[0].engine_sha256.clone());
        }
        assert_eq!(same_rows(&rows, &got), Ok(()));
        assert!(fs_err::read(dir.path().join("transcripts/base/7.jsonl.zst")).unwrap() == transcripts);
    }
}

#[test]
fn a_finished_unit_is_checked_and_not_run_again() {
    let dir = tempfile::tempdir().unwrap();
    run(&spec(), &mut Unruly::new(4, "a"), dir.path()).unwrap();
    let before = fs_err::read(dir.path().join("episodes/base/7.parquet")).unwrap();
    let mut dead = Unruly::new(4, "a");
    dead.steps_left = 0;
    let report = run(&spec(), &mut dead, dir.path()).unwrap();
    assert_eq!((report.progress.reused, report.progress.done, report.complete), (20, 20, true));
    assert!(fs_err::read(dir.path().join("episodes/base/7.parquet")).unwrap() == before);
    let other = UnitSpec { plan_sha256: sha256_hex(b"other"), ..spec() };
    let error = run(&other, &mut dead, dir.path()).unwrap_err();
    assert!(error.to_string().contains("plan") && error.exit_code() == 1, "{error}");
    for relative in ["episodes/base/7.parquet", "calls/base/7.parquet", "transcripts/base/7.jsonl.zst"] {
        let path = dir.path().join(relative);
        let whole = fs_err::read(&path).unwrap();
        let mut changed = whole.clone();
        let middle = changed.len() / 2;
        changed[middle] ^= 1;
        fs_err::write(&path, changed).unwrap();
        let error = run(&spec(), &mut dead, dir.path()).unwrap_err().to_string();
        assert!(error.contains(relative), "{error}");
        fs_err::write(&path, whole).unwrap();
    }
}

#[test]
fn another_engine_continues_only_when_accepted_and_signs_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = Unruly::new(2, "a");
    first.steps_left = 40;
    assert!(run(&spec(), &mut first, dir.path()).is_err());
    let error = run(&spec(), &mut Unruly::new(2, "b").rebuilt(), dir.path()).unwrap_err();
    assert!(error.to_string().contains("--accept-engine") && error.exit_code() == 1, "{error}");
    let accepting = UnitSpec { accept_engine: true, ..spec() };
    let report = run(&accepting, &mut Unruly::new(2, "b").rebuilt(), dir.path()).unwrap();
    assert!(report.progress.reused > 0);
    assert_eq!(report.engines.len(), 2);
    let on_rows: BTreeSet<String> = episodes(dir.path()).into_iter().map(|r| r.engine_sha256).collect();
    assert_eq!(on_rows, report.engines);
}

#[test]
fn a_changed_plan_or_verifier_never_continues() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = Unruly::new(2, "a");
    first.steps_left = 40;
    assert!(run(&spec(), &mut first, dir.path()).is_err());
    let plan = UnitSpec { plan_sha256: sha256_hex(b"other"), accept_engine: true, ..spec() };
    assert_eq!(run(&plan, &mut Unruly::new(2, "b"), dir.path()).unwrap_err().exit_code(), 1);
    let verifier = Toy { version: 2, ..Toy::default() };
    let error = run_with(&spec(), &verifier, &mut Unruly::new(2, "b"), dir.path()).unwrap_err();
    assert!(error.to_string().contains("settings_sha256"), "{error}");
    run(&spec(), &mut Unruly::new(2, "b"), dir.path()).unwrap();
}

#[test]
fn failures_outside_the_model_have_no_reward_and_are_tried_again() {
    let (rows, ..) = undisturbed();
    let dir = tempfile::tempdir().unwrap();
    let toy = Toy { broken: Some("sum/L1/7/2".into()), ..Toy::default() };
    let mut backend = Unruly::new(4, "a");
    backend.refuse = Some("walk/L2/7/1".into());
    let report = run_with(&spec(), &toy, &mut backend, dir.path()).unwrap();
    assert!(!report.complete && !dir.path().join("episodes").exists());
    assert_eq!(report.failures.as_ref().map(|f| f.0), Some(4));
    let report = run(&spec(), &mut Unruly::new(4, "b"), dir.path()).unwrap();
    assert!(report.complete && report.progress.reused == 16);
    assert_eq!(same_rows(&rows, &episodes(dir.path())), Ok(()));
}

#[test]
fn failures_can_be_kept_as_rows_without_a_reward() {
    let dir = tempfile::tempdir().unwrap();
    let toy = Toy { broken: Some("sum/L1/7/2".into()), ..Toy::default() };
    let keep = UnitSpec { accept_failures: true, ..spec() };
    let report = run_with(&keep, &toy, &mut Unruly::new(4, "a"), dir.path()).unwrap();
    assert!(report.complete && report.failures.is_some_and(|(n, why)| n == 2 && why.contains("broken")));
    let failed: Vec<_> =
        episodes(dir.path()).into_iter().filter(|r| r.finish_reason == "infra_error").collect();
    assert_eq!(failed.len(), 2);
    for row in failed {
        assert_eq!(
            (row.reward, row.solved, row.parse_ok, row.engaged, row.turns),
            (None, None, None, None, 0)
        );
        assert!(row.error.unwrap().contains("broken"));
    }
}

#[test]
fn a_conversation_that_outgrows_the_context_is_scored() {
    let prompts = || calls_of_undisturbed().into_iter().filter(|c| c.turn == 0);
    let longest = prompts().filter_map(|c| c.prompt_tokens).max().unwrap() as usize;
    for late in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut backend = Unruly::new(4, "a");
        (backend.context_limit, backend.late) = (longest, late);
        run(&spec(), &mut backend, dir.path()).unwrap();
        let rows = episodes(dir.path());
        assert!(rows.iter().all(|r| r.turns == 1 && r.reward.is_some()));
        assert!(rows.iter().any(|r| r.family == "walk" && r.finish_reason == "length"));

        // A first prompt that is too long is nobody's answer.
        let dir = tempfile::tempdir().unwrap();
        backend.context_limit = 0;
        let report = run(&spec(), &mut backend, dir.path()).unwrap();
        assert!(!report.complete && report.failures.unwrap().0 == 20);
    }
}

fn calls_of_undisturbed() -> Vec<CallRow> {
    undisturbed().1
}

#[test]
fn a_score_outside_its_range_stops_the_run() {
    for score in [f64::NAN, -0.1, 1.5] {
        let dir = tempfile::tempdir().unwrap();
        let toy = Toy { score: Some(score), ..Toy::default() };
        let error = run_with(&spec(), &toy, &mut Unruly::new(4, "a"), dir.path()).unwrap_err().to_string();
        assert!(error.contains("not in [0, 1]"), "{error}");
    }
}

#[test]
fn transcripts_stay_unwritten_where_they_may_not_be_published() {
    let dir = tempfile::tempdir().unwrap();
    let toy = Toy { publish: false, ..Toy::default() };
    let mut first = Unruly::new(4, "a");
    first.steps_left = 20;
    assert!(run_with(&spec(), &toy, &mut first, dir.path()).is_err());
    let wal = fs_err::read_to_string(dir.path().join("wal/base/7.jsonl")).unwrap();
    assert!(wal.contains("\"task_id\":") && !wal.contains("\"messages\":"));
    run_with(&spec(), &toy, &mut Unruly::new(4, "a"), dir.path()).unwrap();
    assert!(!dir.path().join("transcripts").exists());
    assert!(!dir.path().join("wal/base/7.jsonl").exists());
    let listed: Hashes = hashes::verify(dir.path()).unwrap();
    assert_eq!(listed.len(), 2);
}

#[test]
fn stop_keeps_what_is_finished() {
    let dir = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let mut seen = Progress::default();
    let mut progress = |p: Progress| {
        seen = p;
        stop.store(p.done >= 5, Ordering::Relaxed);
    };
    let mut control = Control { stop: &stop, progress: &mut progress };
    let error =
        run_unit(&spec(), &Toy::default(), &mut Unruly::new(1, "a"), dir.path(), &mut control).unwrap_err();
    assert!(matches!(error, Error::Interrupted));
    let (at_stop, report) = (seen.done, run(&spec(), &mut Unruly::new(1, "a"), dir.path()).unwrap());
    assert!((5..20).contains(&at_stop));
    assert_eq!(report.progress.reused, at_stop);
}

#[test]
fn an_engine_that_is_busy_or_loses_calls_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut busy = Unruly::new(1, "a");
    busy.steps_left = 3;
    assert!(run(&spec(), &mut busy, dir.path()).is_err());
    busy.steps_left = usize::MAX;
    let error = run(&spec(), &mut busy, dir.path()).unwrap_err().to_string();
    assert!(error.contains("another run"), "{error}");
}

#[test]
fn a_file_that_is_not_listed_is_not_data() {
    let dir = tempfile::tempdir().unwrap();
    run(&spec(), &mut Unruly::new(4, "a"), dir.path()).unwrap();
    fs_err::remove_file(dir.path().join("hashes.json")).unwrap();
    let error = run(&spec(), &mut Unruly::new(4, "a"), dir.path()).unwrap_err();
    assert!(error.to_string().contains("not listed") && error.exit_code() == 1, "{error}");
}

#[test]
fn a_crash_inside_compaction_needs_no_engine_to_recover() {
    use crate::episode::compact::Step;
    let whole = tempfile::tempdir().unwrap();
    let saved = whole.path().join("saved.jsonl");
    let stop = AtomicBool::new(false);
    let mut progress = |p: Progress| {
        if p.done == p.total {
            fs_err::copy(whole.path().join("wal/base/7.jsonl"), &saved).unwrap();
        }
    };
    let mut control = Control { stop: &stop, progress: &mut progress };
    run_unit(&spec(), &Toy::default(), &mut Unruly::new(4, "a"), whole.path(), &mut control).unwrap();
    for crash in [Step::Episodes, Step::Calls, Step::Transcripts, Step::Hashes] {
        let dir = tempfile::tempdir().unwrap();
        let files = UnitFiles::new(dir.path(), "base", 7).unwrap();
        let path = files.path(&files.write_ahead());
        crate::episode::durable::write(&path, &fs_err::read(&saved).unwrap()).unwrap();
        let mut dead = Unruly::new(4, "a");
        dead.steps_left = 0;
        let header = spec().header(&Toy::default(), dead.identity()).unwrap();
        let (wal, contents) = Wal::open(&path, &header, false).unwrap();
        let mut fail = |step| if step == crash { Err(Error::Interrupted) } else { Ok(()) };
        assert!(compact(&files, contents.records, wal, true, &mut fail).is_err());
        let report = run(&spec(), &mut dead, dir.path()).unwrap();
        assert!(report.complete && report.progress.reused == 20);
        for relative in [files.episodes(), files.calls(), files.transcripts(), "hashes.json".into()] {
            let (a, b) = (whole.path().join(&relative), dir.path().join(&relative));
            assert!(fs_err::read(a).unwrap() == fs_err::read(b).unwrap(), "{relative} after {crash:?}");
        }
        assert!(!path.exists());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// Killed again and again after a random number of steps, tails torn, then left alone: the same rows.
    #[test]
    fn killed_and_resumed_runs_end_with_the_same_rows(name in any::<u32>()) {
        let (rows, calls_expected, transcripts) = undisturbed();
        let dir = tempfile::tempdir().unwrap();
        let mut rng = Philox::named(&name.to_string());
        let wal = dir.path().join("wal/base/7.jsonl");
        loop {
            let mut backend = Unruly::new(4, &format!("{name} {}", rng.next_u32()));
            backend.steps_left = 1 + rng.below(40);
            if run(&spec(), &mut backend, dir.path()).is_ok() {
                break;
            }
            if rng.below(2) == 0 {
                let bytes = fs_err::read(&wal).unwrap();
                let torn = bytes.len() - rng.below(bytes.len().min(400));
                fs_err::write(&wal, &bytes[..torn]).unwrap();
            }
        }
        prop_assert_eq!(same_rows(&rows, &episodes(dir.path())), Ok(()));
        prop_assert_eq!(same_rows(&calls_expected, &calls(dir.path())), Ok(()));
        prop_assert!(fs_err::read(dir.path().join("transcripts/base/7.jsonl.zst")).unwrap() == transcripts);
        prop_assert!(!wal.exists());
        hashes::verify(dir.path()).unwrap();
    }
}
