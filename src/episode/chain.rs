//! The hash chain over the rows of a file: each row's hash covers the row and the hash before
//! it, so that a changed, dropped, doubled or moved row breaks the chain where it stands.
//! (Rows cut from the end are caught by `hashes.json`, which names the last hash.)

use crate::episode::row::{Cell, Row};
use crate::error::{Error, Result};
use crate::hash;
use std::collections::BTreeMap;

/// The column that holds the chain.
pub const CHAIN_COLUMN: &str = "row_sha256";

/// What stands for the hash before the first row.
pub const START: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Fills `row_sha256` of every row, in order. A row type without that column is left as it is.
pub fn seal<R: Row>(rows: &mut [R]) -> Result<()> {
    let Some(at) = R::COLUMNS.iter().position(|c| c.name == CHAIN_COLUMN) else { return Ok(()) };
    let mut previous = START.to_string();
    for row in rows {
        previous = link(&previous, row);
        let mut cells = row.cells();
        if let Some(cell) = cells.get_mut(at) {
            *cell = Cell::Text(previous.clone());
        }
        *row = R::from_cells(cells)
            .map_err(|(column, why)| Error::invalid(format!("a row cannot be sealed: `{column}` {why}")))?;
    }
    Ok(())
}

/// Recomputes the chain. `Err(i)`: row `i`, counted from 0, is the first whose hash does not follow.
pub fn verify<R: Row>(rows: &[R]) -> Result<(), usize> {
    let mut previous = START.to_string();
    for (i, row) in rows.iter().enumerate() {
        previous = link(&previous, row);
        if hash_of(row) != Some(previous.clone()) {
            return Err(i);
        }
    }
    Ok(())
}

/// The `row_sha256` of the last row, which `hashes.json` keeps; `None` without rows.
pub fn last<R: Row>(rows: &[R]) -> Option<String> {
    rows.last().and_then(hash_of)
}

fn hash_of<R: Row>(row: &R) -> Option<String> {
    match row.cell(CHAIN_COLUMN) {
        Some(Cell::Text(text)) => Some(text),
        _ => None,
    }
}

/// SHA-256 of the previous hash, a line feed, and the canonical JSON of the row without its hash.
fn link<R: Row>(previous: &str, row: &R) -> String {
    let named: BTreeMap<&str, Cell> = R::COLUMNS
        .iter()
        .map(|c| c.name)
        .zip(row.cells())
        .filter(|(name, _)| *name != CHAIN_COLUMN)
        .collect();
    let json = hash::canonical_json(&named).expect("a map from names to cells is always JSON");
    hash::sha256_hex(format!("{previous}\n{json}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::row::{CallRow, EpisodeRow, Kind};
    use crate::episode::testing;

    fn sealed<R: Row>(mut rows: Vec<R>) -> Vec<R> {
        seal(&mut rows).unwrap();
        assert_eq!(verify(&rows), Ok(()));
        rows
    }

    /// Another value of the same kind, or a value where there was null.
    fn altered(cell: &Cell, kind: Kind) -> Cell {
        match (cell, kind) {
            (Cell::Text(t), _) => Cell::Text(format!("{t}x")),
            (Cell::Int(i), _) => Cell::Int(i + 1),
            (Cell::Real(r), _) => Cell::Real(f64::from_bits(r.to_bits() ^ 1)),
            (Cell::Flag(b), _) => Cell::Flag(!b),
            (Cell::Null, Kind::Text) => Cell::Text(String::new()),
            (Cell::Null, Kind::Int) => Cell::Int(0),
            (Cell::Null, Kind::Real) => Cell::Real(0.0),
            (Cell::Null, Kind::Flag) => Cell::Flag(false),
        }
    }

    fn every_change_is_found<R: Row>(rows: Vec<R>) {
        let rows = sealed(rows);
        for i in 0..rows.len() {
            for (c, column) in R::COLUMNS.iter().enumerate() {
                let mut changed = rows.clone();
                let mut cells = changed[i].cells();
                cells[c] = altered(&cells[c], column.kind);
                changed[i] = R::from_cells(cells).unwrap();
                assert_eq!(verify(&changed), Err(i), "row {i}, column {}", column.name);
            }
            let mut dropped = rows.clone();
            dropped.remove(i);
            if i + 1 < rows.len() {
                assert_eq!(verify(&dropped), Err(i));
            } else {
                assert_ne!(last(&dropped), last(&rows), "a cut tail shows in the last hash");
            }
            let mut doubled = rows.clone();
            doubled.insert(i, rows[i].clone());
            assert_eq!(verify(&doubled), Err(i + 1));
            for j in i + 1..rows.len() {
                let mut swapped = rows.clone();
                swapped.swap(i, j);
                assert_eq!(verify(&swapped), Err(i));
            }
        }
    }

    #[test]
    fn any_changed_dropped_doubled_or_swapped_row_breaks_the_chain() {
        every_change_is_found(testing::episode_rows(5));
        every_change_is_found(testing::call_rows(5));
    }

    #[test]
    fn a_null_is_not_an_empty_text_and_columns_do_not_run_together() {
        let mut rows = testing::episode_rows(2);
        rows[0].error = None;
        rows[1] = EpisodeRow { error: Some(String::new()), ..rows[0].clone() };
        assert_ne!(link(START, &rows[0]), link(START, &rows[1]));
        let call = &testing::call_rows(1)[0];
        let a = CallRow { arm: "ab".into(), task_id: "c".into(), ..call.clone() };
        let b = CallRow { arm: "a".into(), task_id: "bc".into(), ..call.clone() };
        assert_ne!(link(START, &a), link(START, &b));
    }

    #[test]
    fn an_empty_file_has_no_last_hash() {
        assert_eq!(last::<EpisodeRow>(&[]), None);
        assert_eq!(verify::<EpisodeRow>(&[]), Ok(()));
    }

    #[test]
    fn reals_are_written_as_documented() {
        let reals = [1e-4, 1e-5, 1e-7, 1e15, 1e16, -0.0, 1.0, 1.0 / 3.0].map(Cell::Real);
        assert_eq!(
            hash::canonical_json(&reals).unwrap(),
            "[0.0001,0.00001,1e-7,1000000000000000.0,1e+16,-0.0,1.0,0.3333333333333333]"
        );
    }

    #[test]
    fn the_recipe_is_the_documented_one() {
        // From Python: hashlib over "0"*64 + "\n" + json.dumps(row, sort_keys=True, separators=(",", ":")).
        let row = crate::episode::row::TrainingRow {
            experiment: "x".into(),
            train_seed: 1,
            step: 2,
            loss: 0.5,
            grad_norm: 1.0,
            learning_rate: 0.001,
            loss_tokens: 10,
            tokens: 20,
            wall_ms: 3,
            row_sha256: String::new(),
        };
        assert_eq!(link(START, &row), "0893c2bbc080b888b6c71eb349b327b73c39d49ecbb70fffc0aac157fc2cf3ee");
    }
}
