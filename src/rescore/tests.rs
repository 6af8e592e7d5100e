//! The case that rescoring was made for, from the survey to the mended texts, and everything that a new
//! rows version must not do.

use super::testing::*;
use super::*;
use crate::audit::AuditReport;
use crate::claims::fill;
use crate::environment::Environment;
use crate::environment::gym::Gym;
use crate::episode::{CallRow, EpisodeRow, Row, hashes, table};
use crate::error::Error;
use crate::experiment::{Purpose, receipts};
use crate::stages::DecisionReceipt;
use std::sync::atomic::AtomicBool;
fn rules(report: &AuditReport) -> Vec<&'static str> {
    let mut rules: Vec<_> = report.findings.iter().map(|finding| finding.rule).collect();
    rules.dedup();
    rules
}

fn caught(report: &AuditReport, rule: &str, file: &str, words: &str) {
    let hit =
        report.findings.iter().any(|f| f.rule == rule && f.file.ends_with(file) && f.detail.contains(words));
    assert!(hit, "{rule}, {file}: {words} is not among {:#?}", report.findings);
}

#[test]
fn under_the_same_verifier_every_episode_is_judged_as_in_the_run() {
    let copy = Copy::new();
    let report = copy.audit();
    assert!(report.passed(), "{}", report.render(120));
    let survey = copy.survey(copy.unrepaired());
    let family = &survey.experiments[0].families[0];
    assert!(family.same_verifier && survey.findings().is_empty());
    let tally = &family.tally;
    assert_eq!((tally.episodes, tally.rescored, tally.equal, tally.differing), (600, 600, 600, 0));
    assert!(survey.moved.numbers.is_empty() && survey.experiments[0].differences.is_empty());
    let done = rescore(&copy.unrepaired(), None, &context(&AtomicBool::new(false))).unwrap();
    assert!(done.is_none() && !copy.data("superseded").exists());
}

#[test]
fn forty_of_240_become_94_and_every_place_is_named() {
    let copy = Copy::new();
    let before = copy.snapshot();
    let survey = copy.survey(copy.repaired());
    assert_eq!(copy.snapshot(), before, "looking changes nothing");
    let findings = survey.findings();
    let outdated = "judges 81 of 600 episodes otherwise";
    assert!(
        findings.len() == 1
            && findings[0].rule == "verifier_outdated"
            && findings[0].detail.contains(outdated),
        "{findings:#?}"
    );
    let family = &survey.experiments[0].families[0];
    assert!(!family.same_verifier);
    // 27 of each of the base's three seeds.
    assert_eq!((family.tally.rescored, family.tally.differing), (600, 81));
    let moved = |address: &str| survey.moved.numbers.iter().find(|moved| moved.reference == address).unwrap();
    let solved = moved("derive:marker.solved");
    assert_eq!((solved.before, solved.after), (Some(40.0), Some(94.0)));
    let places: Vec<(&str, &str, Option<&str>)> =
        solved.places.iter().map(|p| (p.file.as_str(), p.printed.as_str(), p.becomes.as_deref())).collect();
    assert_eq!(places, [(REPORT, "40", Some("94")), (CLAIM, "40", Some("94"))]);
    let card = REPORT_TEXT.lines().position(|line| line.contains("[40]")).unwrap() + 1;
    assert_eq!(solved.places[0].line, card);
    let rate = moved("derive:marker.rate");
    assert!(rate.places.iter().all(|p| p.printed == "16.7%" && p.becomes.as_deref() == Some("39.2%")));
    assert_eq!(rate.places.len(), 2);
    assert_eq!(moved("derive:marker.delta").after, Some(0.0));
    assert_eq!(moved("derive:marker.read").places[0].becomes.as_deref(), Some("39%"), "calls are read again");
    assert!(survey.moved.numbers.iter().all(|moved| !moved.reference.contains("tokens")));
    assert_eq!(survey.moved.claims[0].claim, "C0001");
    let said = render_survey(&survey);
    for words in
        ["154 → 235", "another today", "81 of 600", &format!("{REPORT}:{card}  [40] → [94]"), "claim C0001"]
    {
        assert!(said.contains(words), "{said}");
    }

    let done = copy.rescore().unwrap().unwrap();
    assert_eq!(done.moved, survey.moved, "what was announced is what moved");
    let counts = &done.receipt.families["caravan"];
    assert_eq!((counts.episodes, counts.changed), (600, 81));
    assert_eq!((counts.solved_before, counts.solved_after), (60 + 94, 141 + 94));
    let [was, now] = done.decision.as_ref().unwrap();
    assert!(was == "positive" && now != "positive", "{now}");
    let said = render_written(&done);
    for words in ["the decision was positive", "claim C0001", "read it again: its words may no longer"] {
        assert!(said.contains(words), "{said}");
    }

    // The earlier version is there, the later one carries the verifier of today.
    let old: Vec<EpisodeRow> =
        table::read_chain_checked(&copy.data("superseded/1/episodes/base/52004.parquet")).unwrap();
    let new: Vec<EpisodeRow> = table::read_chain_checked(&copy.data("episodes/base/52004.parquet")).unwrap();
    let solved = |rows: &[EpisodeRow]| rows.iter().filter(|row| row.solved == Some(true)).count();
    assert_eq!((solved(&old), solved(&new)), (20, 47));
    assert!(new.iter().all(|row| row.verifier_sha256 == Gym.verifier_sha256("caravan").unwrap()));
    let old_decision: DecisionReceipt =
        receipts::read(&copy.data("superseded/1"), "decision").unwrap().unwrap();
    assert_eq!(old_decision.decision.outcome.as_str(), "positive");
    hashes::verify(&copy.data("")).unwrap();

    // What is printed is stale now, by file and line; the audit finds nothing else but the verdict.
    let report = copy.audit();
    assert_eq!(rules(&report), ["verdict"], "{:#?}", report.findings);
    let stale = |file: &str, line: usize| {
        let place = format!("{file}:{line}");
        report
            .verdicts
            .iter()
            .any(|e| e.place == place && e.printed == "40" && e.verdict.word() == "mismatch")
    };
    assert!(stale(REPORT, card) && stale(CLAIM, CLAIM_TEXT.lines().count()), "{}", report.render(120));
    fill::fill(copy.root(), fill::Options { update: true, dry_run: false }).unwrap();
    let text = fs_err::read_to_string(copy.root().join(REPORT)).unwrap();
    assert!(text.contains("[94](derive:marker.solved) of [240]") && text.contains("[39.2%]"), "{text}");
    let text = text.replace("verdict = \"positive\"", &format!("verdict = \"{now}\""));
    fs_err::write(copy.root().join(REPORT), text).unwrap();
    let report = copy.audit();
    assert!(report.passed(), "{}", report.render(120));
    let again = copy.snapshot();
    assert!(copy.rescore().unwrap().is_none(), "a second time there is nothing to do");
    assert_eq!(copy.snapshot(), again);
}

#[test]
fn a_call_that_was_cut_off_anywhere_is_finished_by_the_next_one() {
    let undisturbed = Copy::new();
    let whole = undisturbed.rescore().unwrap().unwrap();
    let expected = undisturbed.snapshot();
    let untouched = Copy::new().snapshot();
    let mut all = Vec::new();
    let steps = Copy::new();
    rescore_with(&steps.repaired(), None, &context(&AtomicBool::new(false)), &mut |step| {
        all.push(step);
        Ok(())
    })
    .unwrap();
    assert!(all.len() > 20, "{all:?}");
    // Files follow one another, so that the first, one in the middle and the last stand for all.
    let middle = all.len() / 2;
    let stops = (0..all.len()).filter(|stop| *stop < 4 || *stop == middle || *stop + 4 > all.len());
    for stop in stops {
        let copy = Copy::new();
        let mut steps = 0;
        let cut = rescore_with(&copy.repaired(), None, &context(&AtomicBool::new(false)), &mut |step| {
            assert_eq!(step, all[steps]);
            steps += 1;
            if steps > stop { Err(Error::Interrupted) } else { Ok(()) }
        });
        assert!(matches!(cut, Err(Error::Interrupted)));
        let last = all[stop];
        if last == Step::Staged {
            let data = |files: BTreeMap<String, String>| -> Vec<_> {
                files.into_iter().filter(|(name, _)| !name.contains("/wal/")).collect()
            };
            assert_eq!(
                data(copy.snapshot()),
                data(untouched.clone()),
                "nothing is touched before the journal"
            );
        } else {
            caught(
                &copy.audit(),
                "superseded_unaccounted",
                "wal/rescore-1/journal.json",
                "rederive rescore marker",
            );
        }
        let done = copy.rescore().unwrap().unwrap();
        assert_eq!(done.resumed, last != Step::Staged, "{last:?}");
        assert!(copy.snapshot() == expected, "cut off after {last:?}, step {stop}");
        assert_eq!(done.moved, whole.moved, "the list is the same");
    }
}

#[test]
fn a_changed_reward_under_the_same_verifier_is_a_finding_and_no_new_version() {
    let copy = Copy::new();
    let file = "episodes/base/52005.parquet";
    copy.put(file, |rows: &mut Vec<EpisodeRow>| {
        let row = rows.iter_mut().find(|row| row.reward == Some(0.0)).unwrap();
        (row.reward, row.solved) = (Some(1.0), Some(true));
        for row in rows {
            row.verifier_sha256 = Gym.verifier_sha256("caravan").unwrap();
        }
    });
    let survey = copy.survey(copy.repaired());
    let findings = survey.experiments[0].findings();
    let path = format!("data/{SLUG}/{file}");
    assert!(findings.iter().all(|f| f.rule == "rescore_differs" && f.file == path), "{findings:#?}");
    assert!(findings[0].row.is_some());
    // The 27 marked replies and the forged one; five are spelled out.
    assert_eq!(findings.len(), 6);
    assert!(findings.last().unwrap().detail.contains("more rows differ"));
    let before = copy.snapshot();
    let error = copy.rescore().unwrap_err();
    assert!(error.exit_code() == 1 && error.to_string().contains("unchanged verifier"), "{error}");
    assert_eq!(copy.snapshot(), before);
}

#[test]
fn episodes_that_cannot_be_judged_again_are_counted_and_stop_a_new_version() {
    let copy = Copy::new();
    fs_err::remove_file(copy.data("transcripts/mine/52004.jsonl.zst")).unwrap();
    let survey = copy.survey(copy.repaired());
    let tally = &survey.experiments[0].families[0].tally;
    assert_eq!(tally.without, BTreeMap::from([("no_transcript".to_string(), 120)]));
    assert_eq!((tally.episodes, tally.rescored), (600, 480));
    assert!(render_survey(&survey).contains("120 not judged again: no transcript"));
    let before = copy.snapshot();
    assert!(copy.rescore().unwrap_err().to_string().contains("is listed in hashes.json and missing"));
    // Not listed either: the transcripts were never kept.
    let listed = fs_err::read_to_string(copy.data("hashes.json")).unwrap();
    let mut listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    listed.as_object_mut().unwrap().remove("transcripts/mine/52004.jsonl.zst");
    fs_err::write(copy.data("hashes.json"), listed.to_string()).unwrap();
    let error = copy.rescore().unwrap_err().to_string();
    assert!(error.contains("hashes.json lists none: nothing says what the model replied"), "{error}");
    assert!(!copy.data("superseded").exists() && before.len() == copy.snapshot().len());
}

#[test]
fn an_unfinished_unit_stands_in_the_way() {
    let copy = Copy::new();
    fs_err::create_dir_all(copy.data("wal/base")).unwrap();
    fs_err::write(copy.data("wal/base/52004.jsonl"), "{}").unwrap();
    let error = copy.rescore().unwrap_err().to_string();
    assert!(error.contains("unfinished") && error.contains("rederive run marker"), "{error}");
}

#[test]
fn harvested_samples_are_reported_and_never_rewritten() {
    let copy = Copy::new();
    play(&copy.unrepaired(), "harvest", Purpose::Harvest, 11001);
    let sha256 = crate::hash::sha256_file(&copy.data("episodes/harvest/11001.parquet")).unwrap();
    let survey = copy.survey(copy.repaired());
    let families: Vec<(bool, usize)> =
        survey.experiments[0].families.iter().map(|f| (f.harvest, f.tally.differing)).collect();
    assert_eq!(families, [(false, 81), (true, 27)]);
    let done = copy.rescore().unwrap().unwrap();
    assert_eq!(done.harvest[0].tally.differing, 27);
    assert!(render_written(&done).contains("the adapter stays what was trained"));
    assert_eq!(crate::hash::sha256_file(&copy.data("episodes/harvest/11001.parquet")).unwrap(), sha256);
    assert!(!copy.data("superseded/1/episodes/harvest").exists());
    assert!(copy.rescore().unwrap().is_none());
}

/// A rescored copy, changed by somebody who makes every other hash right again.
fn forged(change: impl FnOnce(&Copy)) -> AuditReport {
    let copy = Copy::new();
    copy.rescore().unwrap().unwrap();
    change(&copy);
    copy.audit()
}

#[test]
fn what_no_rescore_accounts_for_is_named() {
    let report = forged(|copy| {
        let bytes = fs_err::read(copy.data("episodes/base/31001.parquet")).unwrap();
        crate::hash::write_atomic(&copy.data("superseded/2/episodes/base/31001.parquet"), &bytes).unwrap();
    });
    caught(
        &report,
        "superseded_unaccounted",
        "superseded/2/episodes/base/31001.parquet",
        "no rescore receipt",
    );
    caught(&report, "extra_file", "superseded/2/episodes/base/31001.parquet", "not listed");

    let report = forged(|copy| {
        copy.put("superseded/1/episodes/base/52004.parquet", |rows: &mut Vec<EpisodeRow>| {
            rows[0].reward = Some(0.5);
        });
    });
    caught(
        &report,
        "superseded_unaccounted",
        "superseded/1/episodes/base/52004.parquet",
        "rescore-1.json replaced",
    );

    let report =
        forged(|copy| fs_err::remove_file(copy.data("superseded/1/receipts/decision.json")).unwrap());
    caught(&report, "superseded_unaccounted", "superseded/1/receipts/decision.json", "is not there");

    let report = forged(|copy| fs_err::remove_file(copy.data("receipts/rescore-1.json")).unwrap());
    caught(
        &report,
        "superseded_unaccounted",
        "superseded/1/episodes/base/52004.parquet",
        "no rescore receipt",
    );

    // The rows of today are not those that the rescore left.
    let report = forged(|copy| {
        copy.put("episodes/base/52004.parquet", |rows: &mut Vec<EpisodeRow>| rows[3].reward = Some(0.25));
    });
    caught(
        &report,
        "superseded_unaccounted",
        "data/marker/episodes/base/52004.parquet",
        "rescore-1.json put there",
    );
}

/// Replaces a file of the new version and its hash in the rescore receipt, which is signed anew.
fn rewritten<R: Row>(copy: &Copy, path: &str, change: impl FnOnce(&mut Vec<R>)) {
    copy.put(path, change);
    resigned(copy, |receipt| {
        let new = crate::hash::sha256_file(&copy.data(path)).unwrap();
        receipt["replaced"][path]["new"] = new.into();
    });
}

fn resigned(copy: &Copy, change: impl FnOnce(&mut serde_json::Value)) {
    let mut receipt: serde_json::Value = receipts::require(&copy.data(""), "rescore-1", "rescore").unwrap();
    change(&mut receipt);
    receipts::write(&copy.data(""), "rescore-1", &receipt).unwrap();
}

#[test]
fn a_rescore_that_changed_more_than_judgements_is_named() {
    let file = "episodes/mine/52004.parquet";
    let report = forged(|copy| {
        rewritten(copy, file, |rows: &mut Vec<EpisodeRow>| rows[6].completion_tokens = Some(1));
    });
    caught(&report, "rescore_changed_more", file, "`completion_tokens` is `1`");
    assert!(report.findings.iter().any(|f| f.rule == "rescore_changed_more" && f.row == Some(7)));

    let report = forged(|copy| rewritten(copy, file, |rows: &mut Vec<EpisodeRow>| drop(rows.pop())));
    caught(&report, "rescore_changed_more", file, "has 119 rows, the version before 120");

    let calls = "calls/base/52004.parquet";
    let report = forged(|copy| rewritten(copy, calls, |rows: &mut Vec<CallRow>| rows[0].wall_ms += 1));
    caught(&report, "rescore_changed_more", calls, "`wall_ms`");

    let report = forged(|copy| {
        rewritten(copy, file, |rows: &mut Vec<EpisodeRow>| rows[2].verifier_sha256 = "b".repeat(64));
    });
    caught(&report, "superseded_unaccounted", file, "the rescore's verifier of `caravan`");

    let report =
        forged(|copy| resigned(copy, |receipt| receipt["families"]["caravan"]["changed"] = 80.into()));
    caught(
        &report,
        "superseded_unaccounted",
        "rescore-1.json",
        "`families.caravan.changed` is 80, the rows give 81",
    );
}

#[test]
fn what_was_decided_before_a_rescore_follows_from_the_rows_of_before() {
    let earlier = "superseded/1/receipts/decision.json";
    let report = forged(|copy| {
        let mut decision: serde_json::Value =
            receipts::require(&copy.data("superseded/1"), "decision", "decide").unwrap();
        decision["decision"]["delta"] = 0.5.into();
        decision["decision"]["outcome"] = "negative".into();
        receipts::write(&copy.data("superseded/1"), "decision", &decision).unwrap();
        let bytes = fs_err::read(copy.data(earlier)).unwrap();
        let entry = hashes::FileHash::of(&bytes, 0, None);
        resigned(copy, |receipt| {
            receipt["replaced"]["receipts/decision.json"]["old"] = entry.sha256.clone().into();
        });
        hashes::update(&copy.data(""), [(earlier.to_owned(), entry)]).unwrap();
    });
    caught(&report, "decision", earlier, "the outcome says `negative`, the rows give `positive`");
    caught(&report, "decision", earlier, "delta");
    assert!(report.findings.iter().all(|f| f.rule != "superseded_unaccounted"), "{:#?}", report.findings);
}

#[test]
fn a_dated_entry_may_state_the_outcome_of_its_day_only() {
    let report = forged(|copy| {
        let log = copy.root().join(REPORT).with_file_name("log.md");
        let text = "## 2026-11-01 — decided\nThe outcome is positive.\n\n## 2999-01-01 — later\nThe outcome is positive.\n";
        fs_err::write(log, text).unwrap();
    });
    let of_log: Vec<&str> = report
        .findings
        .iter()
        .filter(|f| f.rule == "verdict" && f.file.ends_with("log.md"))
        .map(|f| f.detail.as_str())
        .collect();
    assert!(of_log.len() == 1 && of_log[0].starts_with("line 5 says"), "{of_log:?}");
}
