//! Raw rows of a run: `plan × engine × environment → episode, call and transcript files`.
//! A unit is one arm under one event seed. Finished episodes go to a write-ahead file first
//! and become Parquet when the unit is complete; nothing here computes a statistic.

pub mod chain;
pub(crate) mod column_type;
pub mod columns;
pub mod compact;
pub mod compare;
pub mod durable;
mod footer;
pub mod hashes;
mod live;
mod pages;
pub(crate) mod parquet;
pub mod preview;
pub mod row;
pub mod run;
pub mod table;
#[cfg(test)]
pub(crate) mod testing;
pub mod transcript;
pub mod unit;
pub mod wal;

pub use compare::{Difference, same_rows};
pub use live::turns_sha256;
pub use row::{
    CallRow, Cell, Column, EpisodeRow, HarvestRow, ImportedRow, Kind, NOT_COMPARED, Row, TrainingRow,
};
pub use run::{Control, Progress, UnitReport, finished, run_unit};
pub use unit::{Item, UnitFiles, UnitSpec};
