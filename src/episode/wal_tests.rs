//! The write-ahead file: round trips, a tear at every byte, damage, and who may continue it.

use super::*;
use crate::episode::testing::{Toy, identity, records, spec};
use proptest::prelude::*;

fn header() -> Header {
    spec().header(&Toy::default(), &identity(4)).unwrap()
}

fn map(records: &[Record]) -> Records {
    records.iter().map(|r| ((r.episode.task_id.clone(), r.episode.rollout), r.clone())).collect()
}

/// The bytes of a file with these groups, and the length after each line.
fn file(groups: &[&[Record]]) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = frame(&Line::Header(header())).unwrap();
    let mut ends = vec![bytes.len()];
    for group in groups {
        bytes.extend(frame(&Line::Episodes(group.to_vec())).unwrap());
        ends.push(bytes.len());
    }
    (bytes, ends)
}

fn path() -> &'static Path {
    Path::new("wal/base/7.jsonl")
}

#[test]
fn a_tear_at_every_byte_loses_only_the_torn_line() {
    let all = records(&header(), 5);
    let groups = [&all[0..2], &all[2..3], &all[3..5]];
    let (bytes, ends) = file(&groups);
    for cut in 0..=bytes.len() {
        let contents = decode(path(), &bytes[..cut]).unwrap();
        let whole = ends.iter().filter(|end| **end <= cut).count();
        assert_eq!(contents.good_bytes, if whole == 0 { 0 } else { ends[whole - 1] });
        assert_eq!(contents.headers.len(), whole.min(1));
        assert_eq!(contents.records, map(&groups[..whole.saturating_sub(1)].concat()));
    }
}

#[test]
fn a_torn_file_is_continued() {
    let all = records(&header(), 3);
    let (bytes, _) = file(&[&all[0..1], &all[1..3]]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wal/base/7.jsonl");
    for cut in (0..bytes.len()).step_by(311) {
        durable::write(&path, &bytes[..cut]).unwrap();
        let (mut wal, contents) = Wal::open(&path, &header(), false).unwrap();
        let have = contents.records.clone();
        let missing =
            all.iter().filter(|r| !have.contains_key(&(r.episode.task_id.clone(), r.episode.rollout)));
        wal.append(missing.cloned().collect()).unwrap();
        assert_eq!(wal.reread().unwrap().records, map(&all), "cut at {cut}");
    }
}

#[test]
fn zeros_or_noise_after_the_last_line_are_a_tear_too() {
    let all = records(&header(), 2);
    let (bytes, ends) = file(&[&all]);
    for tail in [&b"\0\0\0\0"[..], b"{\"sha256\":\"", b"garbage\n", b"\xff\xfe\n"] {
        let contents = decode(path(), &[&bytes[..], tail].concat()).unwrap();
        assert_eq!((contents.records.len(), contents.good_bytes), (2, ends[1]));
    }
}

#[test]
fn damage_before_the_end_names_file_and_line() {
    let all = records(&header(), 4);
    let (bytes, ends) = file(&[&all[0..2], &all[2..4]]);
    for at in (0..ends[1] - 1).step_by(7) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let error = decode(path(), &damaged).unwrap_err().to_string();
        let line = if at < ends[0] { 1 } else { 2 };
        assert!(error.contains(&format!("7.jsonl: line {line}")), "byte {at}: {error}");
        assert!(error.contains("hint"));
    }
}

#[test]
fn an_episode_recorded_twice_is_an_error_and_a_failed_one_may_be() {
    let all = records(&header(), 4);
    assert!(all[3].failed() && !all[0].failed());
    let mut retried = all[3].clone();
    retried.episode.finish_reason = "stop".into();
    let (bytes, _) = file(&[&all[3..4], std::slice::from_ref(&retried)]);
    assert_eq!(decode(path(), &bytes).unwrap().records, map(&[retried]));
    let (bytes, _) = file(&[&all[0..1], &all[0..1]]);
    let error = decode(path(), &bytes).unwrap_err().to_string();
    assert!(error.contains("already recorded") && error.contains("line 3"), "{error}");
}

#[test]
fn whole_lines_that_do_not_belong_are_errors() {
    let all = records(&header(), 1);
    let bytes = frame(&Line::Episodes(all.clone())).unwrap();
    assert!(decode(path(), &bytes).unwrap_err().to_string().contains("before any header"));
    let bytes = frame(&Line::Header(Header { format: 99, ..header() })).unwrap();
    assert!(decode(path(), &bytes).unwrap_err().to_string().contains("format 99"));
    let mut foreign = all;
    foreign[0].episode.arm = "treatment".into();
    let (bytes, _) = file(&[&foreign]);
    assert!(decode(path(), &bytes).unwrap_err().to_string().contains("`arm`"));
    let body = r#"{"header":{"surprise":1}}"#;
    let line = format!("{BEFORE_HASH}{}{BEFORE_BODY}{body}}}\n", sha256_hex(body.as_bytes()));
    assert!(decode(path(), line.as_bytes()).unwrap_err().to_string().contains("line 1"));
}

#[test]
fn only_the_engine_may_change_and_only_when_accepted() {
    let then = header();
    agree(&then, &then, false).unwrap();
    let other = |change: fn(&mut Header)| {
        let mut now = then.clone();
        change(&mut now);
        now
    };
    for (word, now) in [
        ("plan_sha256", other(|h| h.plan_sha256 = "p".into())),
        ("model_sha256", other(|h| h.model_sha256 = "m".into())),
        ("adapter_sha256", other(|h| h.adapter_sha256 = Some("a".into()))),
        ("settings_sha256", other(|h| h.settings_sha256 = "s".into())),
        ("event", other(|h| h.event = Some("e".into()))),
        ("seed", other(|h| h.seed = 8)),
    ] {
        let error = agree(&then, &now, true).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!(error.exit_code(), 1);
        assert!(!error.to_string().contains("--accept"), "no flag goes round this");
    }
    let now = other(|h| h.engine_sha256 = "e".into());
    assert!(agree(&then, &now, false).unwrap_err().to_string().contains("--accept-engine"));
    agree(&then, &now, true).unwrap();
}

#[test]
fn an_accepted_engine_gets_a_header_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.jsonl");
    let second = Header { engine_sha256: "e2".into(), ..header() };
    let all = records(&header(), 2);
    let later = records(&second, 2);
    Wal::open(&path, &header(), false).unwrap().0.append(all[..1].to_vec()).unwrap();
    assert!(Wal::open(&path, &second, false).is_err());
    Wal::open(&path, &second, true).unwrap().0.append(later[1..].to_vec()).unwrap();
    let (_, contents) = Wal::open(&path, &second, false).unwrap();
    assert_eq!(contents.headers, [header(), second]);
    let engines: Vec<_> = contents.records.values().map(|r| r.episode.engine_sha256.as_str()).collect();
    assert_eq!(engines, [header().engine_sha256.as_str(), "e2"]);
}

#[test]
fn two_runs_of_one_unit_do_not_mix() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.jsonl");
    let (first, _) = Wal::open(&path, &header(), false).unwrap();
    let error = Wal::open(&path, &header(), false).unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
    drop(first);
    Wal::open(&path, &header(), false).unwrap();
}

#[test]
fn rewards_come_back_bit_for_bit() {
    // JSON readers may be one unit in the last place off: 1/11 is such a number.
    for (k, n) in (1..40).flat_map(|n| (0..=n).map(move |k| (k, n))) {
        let mut all = records(&header(), 1);
        let reward = f64::from(k) / f64::from(n);
        all[0].episode.reward = Some(reward);
        let (bytes, _) = file(&[&all]);
        let back = decode(path(), &bytes).unwrap().records.into_values().next().unwrap();
        assert_eq!(back.episode.reward.map(f64::to_bits), Some(reward.to_bits()), "{k}/{n}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn records_survive(
        text in any::<String>(),
        ids in prop::collection::vec(any::<u32>(), 0..9),
        reward in 0.0f64..=1.0,
        n in 1usize..6,
    ) {
        let mut all = records(&header(), n);
        for record in &mut all {
            record.episode.error = Some(text.clone());
            record.episode.reward = Some(reward);
            if let Some(transcript) = &mut record.transcript {
                transcript.messages[1].content = text.clone();
                transcript.sampled = vec![ids.clone(), Vec::new()];
            }
        }
        let groups: Vec<&[Record]> = all.chunks(2).collect();
        let (bytes, _) = file(&groups);
        prop_assert_eq!(decode(path(), &bytes).unwrap().records, map(&all));
    }

    #[test]
    fn no_bytes_make_it_panic(
        noise in prop::collection::vec(any::<u8>(), 0..300),
        at in any::<prop::sample::Index>(),
    ) {
        let _ = decode(path(), &noise);
        let (mut bytes, _) = file(&[&records(&header(), 2)]);
        let start = at.index(bytes.len());
        for (byte, new) in bytes[start..].iter_mut().zip(&noise) {
            *byte = *new;
        }
        let _ = decode(path(), &bytes);
    }
}
