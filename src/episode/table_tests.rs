//! Parquet in and out: round trips, and an error with a place for everything that does not fit.

use super::*;
use crate::episode::preview;
use crate::episode::row::{CallRow, EpisodeRow, HarvestRow, TrainingRow};
use crate::episode::testing;
use polars::prelude::{IntoColumn, ParquetWriter};
use proptest::prelude::*;

fn training(n: usize) -> Vec<TrainingRow> {
    (0..n)
        .map(|i| TrainingRow {
            experiment: "x".into(),
            train_seed: i64::MIN + i as i64,
            step: i as i64,
            loss: 1.0 / (i as f64 + 3.0),
            grad_norm: -0.0,
            learning_rate: f64::MIN_POSITIVE,
            loss_tokens: 1,
            tokens: 2,
            wall_ms: 3,
            row_sha256: String::new(),
        })
        .collect()
}

/// A file of the frame that `change` makes of three training rows, and the error of reading it.
fn error_of(change: impl Fn(&mut DataFrame)) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let bytes = encode(&training(3)).unwrap();
    let (mut frame, _) = parquet::decode(&bytes, None).unwrap();
    change(&mut frame);
    let mut out = Vec::new();
    ParquetWriter::new(&mut out).finish(&mut frame).unwrap();
    fs_err::write(&path, out).unwrap();
    let text = read::<TrainingRow>(&path).unwrap_err().to_string();
    assert!(text.contains("t.parquet"), "{text}");
    text
}

#[test]
fn rows_survive_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sub/rows.parquet");
    for n in [0, 1, 2, 50] {
        write(&path, &testing::episode_rows(n)).unwrap();
        assert_eq!(read::<EpisodeRow>(&path).unwrap(), testing::episode_rows(n));
        write(&path, &testing::call_rows(n)).unwrap();
        assert_eq!(read::<CallRow>(&path).unwrap(), testing::call_rows(n));
        write(&path, &training(n)).unwrap();
        let back: Vec<TrainingRow> = read(&path).unwrap();
        assert_eq!(back, training(n));
        assert!(back.iter().all(|r| r.grad_norm.is_sign_negative()), "negative zero keeps its sign");
    }
}

#[test]
fn the_same_rows_are_the_same_bytes() {
    let rows = testing::episode_rows(300);
    assert!(encode(&rows).unwrap() == encode(&rows.clone()).unwrap());
}

#[test]
fn numbers_that_are_not_finite_are_refused_on_the_way_in_and_out() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut rows = training(3);
        rows[1].loss = bad;
        let error = encode(&rows).unwrap_err().to_string();
        assert!(error.contains("row 2") && error.contains("`loss`"), "{error}");
        let text = error_of(|frame| {
            frame.replace("loss", Series::from(Values::new("loss".into(), [0.5, 0.5, bad]))).unwrap();
        });
        assert!(text.contains("row 3, column `loss`") && text.contains("finite"), "{text}");
    }
}

#[test]
fn each_misfit_names_row_and_column() {
    let text = error_of(|frame| {
        frame.rename("loss", "loss_".into()).unwrap();
    });
    assert!(text.contains("no column `loss`") && text.contains("rename it"), "{text}");
    let text = error_of(|frame| drop(frame.drop_in_place("tokens").unwrap()));
    assert!(text.contains("no column `tokens`"), "{text}");
    let text = error_of(|frame| {
        frame.with_column(Values::new("speed".into(), [1i64, 2, 3]).into_column()).unwrap();
    });
    assert!(text.contains("column `speed`"), "{text}");
    let text = error_of(|frame| {
        frame.replace("step", Series::from(Values::new("step".into(), ["a", "b", "c"]))).unwrap();
    });
    assert!(text.contains("column `step`") && text.contains("64-bit integers"), "{text}");
    let text = error_of(|frame| {
        frame.replace("step", Series::from(Values::new("step".into(), [1i32, 2, 3]))).unwrap();
    });
    assert!(text.contains("column `step`") && text.contains("i32"), "{text}");
    let text = error_of(|frame| {
        frame.replace("step", Series::from(Values::new("step".into(), [Some(1i64), None, Some(3)]))).unwrap();
    });
    assert!(text.contains("row 2, column `step`") && text.contains("null"), "{text}");
}

#[test]
fn columns_in_another_order_are_read_by_name() {
    let bytes = encode(&training(3)).unwrap();
    let (frame, _) = parquet::decode(&bytes, None).unwrap();
    let mut columns = frame.columns().to_vec();
    columns.reverse();
    let mut out = Vec::new();
    ParquetWriter::new(&mut out).finish(&mut DataFrame::new(3, columns).unwrap()).unwrap();
    assert_eq!(decode::<TrainingRow>(Path::new("t"), &out).unwrap(), training(3));
}

#[test]
fn a_file_of_other_rows_is_told_apart() {
    let bytes = encode(&testing::call_rows(2)).unwrap();
    let error = decode::<HarvestRow>(Path::new("calls.parquet"), &bytes).unwrap_err().to_string();
    assert!(error.contains("calls.parquet") && error.contains("harvest"), "{error}");
}

#[test]
fn a_broken_chain_names_its_row() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("e.parquet");
    let mut rows = testing::episode_rows(6);
    chain::seal(&mut rows).unwrap();
    write(&path, &rows).unwrap();
    assert_eq!(read_chain_checked::<EpisodeRow>(&path).unwrap(), rows);
    rows[4].reward = Some(1.0);
    write(&path, &rows).unwrap();
    let error = read_chain_checked::<EpisodeRow>(&path).unwrap_err();
    assert!(error.to_string().contains("row 5"), "{error}");
    assert_eq!(error.exit_code(), 1);
}

/// Reads damaged bytes by both roads; what counts is that an answer comes.
fn survives(bytes: &[u8]) -> bool {
    let path = Path::new("damaged.parquet");
    let rows = decode::<EpisodeRow>(path, bytes).and_then(|rows| check_chain(path, &rows));
    if let Err(e) = &rows {
        assert!(e.to_string().contains("damaged.parquet"), "{e}");
    }
    if let Ok(head) = preview::of_bytes(path, bytes, 2) {
        assert!(head.rows.len() <= 2);
    }
    rows.is_ok()
}

fn sealed_bytes() -> Vec<u8> {
    let mut rows = testing::episode_rows(5);
    chain::seal(&mut rows).unwrap();
    encode(&rows).unwrap()
}

#[test]
fn a_file_cut_anywhere_is_an_error() {
    let bytes = sealed_bytes();
    let footer = bytes.len() - 2000;
    for cut in (0..footer).step_by(97).chain(footer..bytes.len()) {
        assert!(!survives(&bytes[..cut]), "cut at {cut} of {}", bytes.len());
    }
}

#[test]
fn every_flipped_bit_is_an_error_or_harmless() {
    let bytes = sealed_bytes();
    let mut survived = 0;
    // Bits of a byte in turn: a stride of 9 visits each of the eight places.
    for bit in (0..bytes.len() * 8).step_by(9) {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        survived += usize::from(survives(&flipped));
    }
    assert!(survived <= 17, "only the seal's key may change: {survived}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn patches_never_panic(
        at in any::<prop::sample::Index>(),
        patch in prop::collection::vec(any::<u8>(), 1..40),
        from_end in any::<bool>(),
    ) {
        let mut bytes = sealed_bytes();
        // Half of the patches go into the footer, where sizes and offsets are.
        let range = if from_end { bytes.len() - 3000..bytes.len() - 8 } else { 0..bytes.len() };
        let start = range.start + at.index(range.len());
        for (byte, new) in bytes[start..].iter_mut().zip(patch) {
            *byte = new;
        }
        survives(&bytes);
    }

    #[test]
    fn any_text_and_numbers_survive(
        text in any::<String>(),
        number in any::<i64>(),
        real in -1e300f64..1e300,
    ) {
        let mut rows = testing::episode_rows(2);
        rows[0].task_id = text.clone();
        rows[1].error = Some(text);
        rows[0].seed = number;
        rows[1].reward = Some(real);
        chain::seal(&mut rows).unwrap();
        let back: Vec<EpisodeRow> = decode(Path::new("t"), &encode(&rows).unwrap()).unwrap();
        prop_assert_eq!(&back, &rows);
        prop_assert_eq!(chain::verify(&back), Ok(()));
    }
}
