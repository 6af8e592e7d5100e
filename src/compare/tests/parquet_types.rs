//! Parquet files of another writer: unusual column types are read for what they say, or refused by
//! name.

#![cfg(test)]

use super::{Comparison, Options, defaults, run};
use crate::error::Result;

fn compare(name: &str) -> Result<Comparison> {
    let path = format!("{}/tests/fixtures/parquet/{name}.parquet", env!("CARGO_MANIFEST_DIR"));
    run(&Options { rows: vec![path.into()], ..defaults() })
}

#[test]
fn whole_numbers_of_every_width_are_seeds_and_judgements() {
    for width in ["int8", "int16", "uint8", "uint16", "uint32", "uint64"] {
        let c = compare(width).unwrap_or_else(|e| panic!("{width}: {e}"));
        assert_eq!((c.paired_tasks, c.n_seeds, c.delta), (2, 2, 0.5), "{width}");
        assert_eq!((c.base.n_unjudged, c.treatment.n_unjudged), (1, 0), "{width}");
        assert_eq!((c.pass_at_k.base[&1], c.pass_at_k.treatment[&1]), (Some(0.0), Some(1.0)), "{width}");
    }
}

#[test]
fn decimals_are_exact_however_they_are_stored() {
    for stored in ["decimal_bytes", "decimal_whole"] {
        let c = compare(stored).unwrap_or_else(|e| panic!("{stored}: {e}"));
        assert_eq!((c.delta, c.base.n_unscored, c.treatment.n_scored), (1.0, 1, 2), "{stored}");
        assert_eq!(c.best_at_k.treatment[&1], Some(0.625), "{stored}");
    }
}

#[test]
fn categories_large_text_and_booleans_are_plain_values() {
    for kind in ["categories", "large_text"] {
        let c = compare(kind).unwrap_or_else(|e| panic!("{kind}: {e}"));
        assert_eq!((c.base.name.as_str(), c.paired_tasks, c.delta), ("base", 2, 0.5), "{kind}");
    }
    let c = compare("booleans").unwrap();
    assert_eq!((c.delta, c.base.n_unscored), (1.0, 1));
    assert_eq!((c.pass_at_k.base[&1], c.pass_at_k.treatment[&1]), (Some(0.0), Some(1.0)));
    let c = compare("nulls").unwrap();
    assert_eq!((c.base.n_unjudged, c.undefined["wilson"].as_str()), (2, "`solved` is empty in every row"));
}

#[test]
fn other_types_are_refused_with_file_column_and_type() {
    for (name, column, kind) in [
        ("date", "seed", "Date"),
        ("timestamp", "seed", "Timestamp"),
        ("list", "reward", "List"),
        ("struct", "task", "Struct"),
        ("binary", "task", "Binary"),
        ("float16", "reward", "Float16"),
    ] {
        let message = compare(name).err().unwrap_or_else(|| panic!("{name} is read")).to_string();
        for part in
            [&format!("{name}.parquet: column `{column}`: the column holds `{kind}`"), "hint: write it as"]
        {
            assert!(message.contains(part), "{name}: {message}");
        }
    }
}

#[test]
fn columns_that_are_not_used_may_hold_anything() {
    assert_eq!(compare("others_unused").unwrap().delta, 0.5);
}
