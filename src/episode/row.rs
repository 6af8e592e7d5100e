//! The row contracts: one struct per data set, each field with its doc string, and the
//! column list that files, derivations and the site's data dictionary are made from.
//! Plain data only: this is what `stats` and `audit` are both allowed to know.

use serde::{Deserialize, Serialize};

/// One value of a row. A missing value is `Null`, never 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// Missing.
    Null,
    /// `true` or `false`.
    Flag(bool),
    /// A whole number.
    Int(i64),
    /// A real number, always finite.
    Real(f64),
    /// UTF-8 text.
    Text(String),
}

impl Cell {
    /// The value as a number: integers and reals as they are, flags as 0 or 1.
    pub fn number(&self) -> Option<f64> {
        match self {
            Cell::Flag(b) => Some(f64::from(u8::from(*b))),
            Cell::Int(i) => Some(*i as f64),
            Cell::Real(r) => Some(*r),
            Cell::Null | Cell::Text(_) => None,
        }
    }

    /// Whether the value is missing.
    pub fn is_null(&self) -> bool {
        matches!(self, Cell::Null)
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Cell::Null => f.write_str("—"),
            Cell::Flag(b) => write!(f, "{b}"),
            Cell::Int(i) => write!(f, "{i}"),
            Cell::Real(r) => write!(f, "{r}"),
            Cell::Text(t) => f.write_str(t),
        }
    }
}

/// The storage type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// UTF-8 text.
    Text,
    /// 64-bit signed integer.
    Int,
    /// 64-bit float.
    Real,
    /// Boolean.
    Flag,
}

/// A column of a row contract.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Column {
    /// Name, as in files and derivations.
    pub name: &'static str,
    /// Storage type.
    pub kind: Kind,
    /// Whether null is allowed.
    pub nullable: bool,
    /// What it holds.
    pub doc: &'static str,
}

/// Whether the values of a column lie between 0 and 1 by contract: true or false, and scores.
pub fn is_rate(columns: &[Column], name: &str) -> bool {
    matches!(name, "reward" | "partial") || columns.iter().any(|c| c.name == name && c.kind == Kind::Flag)
}

/// A typed row that knows its columns.
pub trait Row: Sized + Clone + Send + Sync {
    /// The data set's name, as in `data = "episodes"`.
    const DATA_SET: &'static str;
    /// The contract, in file order.
    const COLUMNS: &'static [Column];
    /// The row's values, in file order.
    fn cells(&self) -> Vec<Cell>;
    /// One value by column name; `None` if there is no such column.
    fn cell(&self, column: &str) -> Option<Cell>;
    /// A row from values in file order; `Err((column, why))` names what does not fit.
    fn from_cells(cells: Vec<Cell>) -> Result<Self, (&'static str, String)>;
}

/// Conversion between a field's Rust type and [`Cell`].
pub trait Field: Sized {
    /// Storage type.
    const KIND: Kind;
    /// Whether null is allowed.
    const NULLABLE: bool;
    /// To a cell.
    fn to_cell(&self) -> Cell;
    /// From a cell; the error says why it does not fit.
    fn from_cell(cell: Cell) -> Result<Self, String>;
}

macro_rules! plain_field {
    ($type:ty, $kind:ident, $wrap:expr, $pattern:pat => $value:expr, $want:literal) => {
        impl Field for $type {
            const KIND: Kind = Kind::$kind;
            const NULLABLE: bool = false;
            fn to_cell(&self) -> Cell {
                ($wrap)(self)
            }
            fn from_cell(cell: Cell) -> Result<Self, String> {
                match cell {
                    $pattern => Ok($value),
                    Cell::Null => Err("is null, and this column must not be".into()),
                    other => Err(format!("is `{other}`, not {}", $want)),
                }
            }
        }
    };
}
plain_field!(String, Text, |s: &String| Cell::Text(s.clone()), Cell::Text(t) => t, "text");
plain_field!(i64, Int, |i: &i64| Cell::Int(*i), Cell::Int(i) => i, "a whole number");
plain_field!(bool, Flag, |b: &bool| Cell::Flag(*b), Cell::Flag(b) => b, "true or false");

impl Field for f64 {
    const KIND: Kind = Kind::Real;
    const NULLABLE: bool = false;
    fn to_cell(&self) -> Cell {
        Cell::Real(*self)
    }
    fn from_cell(cell: Cell) -> Result<Self, String> {
        match cell {
            Cell::Real(r) if r.is_finite() => Ok(r),
            Cell::Int(i) => Ok(i as f64),
            Cell::Null => Err("is null, and this column must not be".into()),
            other => Err(format!("is `{other}`, not a finite number")),
        }
    }
}

impl<T: Field> Field for Option<T> {
    const KIND: Kind = T::KIND;
    const NULLABLE: bool = true;
    fn to_cell(&self) -> Cell {
        self.as_ref().map_or(Cell::Null, Field::to_cell)
    }
    fn from_cell(cell: Cell) -> Result<Self, String> {
        match cell {
            Cell::Null => Ok(None),
            other => T::from_cell(other).map(Some),
        }
    }
}

macro_rules! rows {
    ($(#[$meta:meta])* $name:ident: $set:literal { $($(#[doc = $doc:literal])+ $field:ident: $type:ty,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name { $($(#[doc = $doc])+ pub $field: $type,)+ }

        impl Row for $name {
            const DATA_SET: &'static str = $set;
            const COLUMNS: &'static [Column] = &[$(Column {
                name: stringify!($field),
                kind: <$type as Field>::KIND,
                nullable: <$type as Field>::NULLABLE,
                doc: concat!($($doc),+),
            },)+];
            fn cells(&self) -> Vec<Cell> {
                vec![$(self.$field.to_cell(),)+]
            }
            fn cell(&self, column: &str) -> Option<Cell> {
                match column {
                    $(stringify!($field) => Some(self.$field.to_cell()),)+
                    _ => None,
                }
            }
            fn from_cells(cells: Vec<Cell>) -> Result<Self, (&'static str, String)> {
                let mut cells = cells.into_iter();
                Ok($name { $($field: <$type as Field>::from_cell(cells.next().unwrap_or(Cell::Null))
                    .map_err(|why| (stringify!($field), why))?,)+ })
            }
        }
    };
}

rows! {
    /// One episode: one attempt at one task by one arm under one event seed.
    EpisodeRow: "episodes" {
        /// The experiment's folder name under `data/`.
        experiment: String,
        /// The event this episode belongs to, where events have names of their own.
        event: Option<String>,
        /// The tier of a tiered benchmark.
        tier: Option<String>,
        /// SHA-256 of the locked evaluate section of the plan.
        plan_sha256: String,
        /// The arm (policy under test).
        arm: String,
        /// SHA-256 of the model's weights file as the arm ran it (a merged arm: the merged file); for an endpoint, of what its server says of the model.
        model_sha256: String,
        /// SHA-256 of the adapter's weights, for an arm that has one, live or merged.
        adapter_sha256: Option<String>,
        /// The seed the arm's adapter was trained with; null for an arm without training.
        train_seed: Option<i64>,
        /// The harness that drove the model: `native` is this crate's own loop.
        scaffold: String,
        /// Version of a foreign scaffold.
        scaffold_version: Option<String>,
        /// Arithmetic type of weights and activations, such as `f32`; null for an endpoint, which promises none.
        dtype: Option<String>,
        /// Number of generation slots the engine ran with; null for an endpoint.
        slots: Option<i64>,
        /// The environment the task came from, such as `gym`.
        environment: String,
        /// The kind of task within the environment.
        family: String,
        /// The task's difficulty, from 1.
        level: i64,
        /// The task: the same id is the same task in every arm.
        task_id: String,
        /// `train` or `held_out`, by family or repository.
        split: String,
        /// A stratum declared by the task set, such as a size class.
        stratum: Option<String>,
        /// The event seed, which made or chose the task.
        seed: i64,
        /// Index of a repeated attempt at the same task by the same arm under the same seed.
        rollout: i64,
        /// The score in [0, 1]; null only when the infrastructure failed.
        reward: Option<f64>,
        /// Whether the task counts as solved; null only when the infrastructure failed.
        solved: Option<bool>,
        /// Partial credit in [0, 1] where the verifier gives one that the reward does not.
        partial: Option<f64>,
        /// The score by which execution selection chose among rollouts.
        select_score: Option<f64>,
        /// SHA-256 of the family's name and version and of what it asks and scores in a few reserved tasks.
        verifier_sha256: String,
        /// Whether a readable answer or action was found in the final reply.
        parse_ok: Option<bool>,
        /// Whether the model did anything that could change the score.
        engaged: Option<bool>,
        /// Whether a thinking budget was closed by force.
        forced_close: Option<bool>,
        /// Whether thinking ended by itself.
        naturally_closed: Option<bool>,
        /// Why the last generation ended: `stop`, `length`, `budget`, `wall`, `tool_limit` or `infra_error`.
        finish_reason: String,
        /// Number of assistant turns.
        turns: i64,
        /// Tool calls made.
        tool_calls: Option<i64>,
        /// Tool calls that failed.
        tool_failures: Option<i64>,
        /// Tool calls that ran only after a repair.
        repaired_calls: Option<i64>,
        /// Tokens the model was given in all turns, each turn's whole context counted; null where an endpoint does not count them.
        prompt_tokens: Option<i64>,
        /// Tokens the model wrote in all turns; null where an endpoint does not count them.
        completion_tokens: Option<i64>,
        /// Tokens written inside a thinking block.
        think_tokens: Option<i64>,
        /// SHA-256 of the sampled token ids of all turns (each turn: count, then ids, little-endian u32); null for an endpoint, which gives no ids.
        tokens_sha256: Option<String>,
        /// Wall time of the episode in milliseconds, waiting in the batch included.
        wall_ms: i64,
        /// Milliseconds until the state on disk first passed.
        solved_ms: Option<i64>,
        /// Exit code of a foreign scaffold.
        exit_code: Option<i64>,
        /// What went wrong, for `infra_error`.
        error: Option<String>,
        /// What the sandbox enforced.
        enforced: Option<String>,
        /// `deployable`, or `oracle` when something unavailable at deployment was used.
        evidence: String,
        /// When the episode started, UTC, RFC 3339.
        started_at: String,
        /// SHA-256 of version, hash of the sources, features, instruction set, dtype, slots, and the model's config, tokenizer and template; for an endpoint, of what its server says of itself.
        engine_sha256: String,
        /// Chained hash of this row and all before it in its file.
        row_sha256: String,
    }
}

rows! {
    /// One generation call: one assistant turn of one episode.
    CallRow: "calls" {
        /// The experiment's folder name under `data/`.
        experiment: String,
        /// The arm under test.
        arm: String,
        /// The task.
        task_id: String,
        /// The kind of task.
        family: String,
        /// The task's difficulty.
        level: i64,
        /// The event seed.
        seed: i64,
        /// The rollout.
        rollout: i64,
        /// The turn within the episode, from 0.
        turn: i64,
        /// Tokens in the context of this call; null where an endpoint does not count them.
        prompt_tokens: Option<i64>,
        /// Tokens sampled by this call; null where an endpoint does not count them.
        completion_tokens: Option<i64>,
        /// Why it ended: `stop` or `length`.
        finish_reason: String,
        /// SHA-256 of the context's token ids; null for an endpoint, which gives no ids.
        prompt_sha256: Option<String>,
        /// SHA-256 of the sampled token ids; null for an endpoint.
        tokens_sha256: Option<String>,
        /// SHA-256 of the sampled tokens' log-probabilities (f32 bits), when they were asked for.
        logprobs_sha256: Option<String>,
        /// Whether the environment could read the reply.
        parse_ok: Option<bool>,
        /// Whether the environment accepted the action.
        action_ok: Option<bool>,
        /// Wall time of the call in milliseconds.
        wall_ms: i64,
        /// Chained hash of this row and all before it in its file.
        row_sha256: String,
    }
}

rows! {
    /// One harvested sample: a verified or rejected attempt of the base model on a training seed.
    HarvestRow: "harvest" {
        /// The experiment's folder name under `data/`.
        experiment: String,
        /// The kind of task.
        family: String,
        /// The task's difficulty.
        level: i64,
        /// The task.
        task_id: String,
        /// The harvest seed.
        seed: i64,
        /// Which of the K samples of this task.
        rollout: i64,
        /// The verifier's score; null when the infrastructure failed.
        reward: Option<f64>,
        /// Whether the verifier accepted it.
        solved: Option<bool>,
        /// Whether it went into the training set.
        kept: bool,
        /// Why it was not kept: `unsolved`, `not_terse`, `lucky`, `item_cap`, `family_cap`, `too_long`.
        reject: Option<String>,
        /// Tokens sampled.
        completion_tokens: i64,
        /// SHA-256 of the sampled token ids.
        tokens_sha256: String,
        /// Chained hash of this row and all before it in its file.
        row_sha256: String,
    }
}

rows! {
    /// One optimiser step of a training run.
    TrainingRow: "training" {
        /// The experiment's folder name under `data/`.
        experiment: String,
        /// The training seed.
        train_seed: i64,
        /// The optimiser step, from 1.
        step: i64,
        /// Weighted mean loss in nats a token, before the step.
        loss: f64,
        /// Global gradient norm before clipping.
        grad_norm: f64,
        /// Learning rate used.
        learning_rate: f64,
        /// Tokens with a weight in this step.
        loss_tokens: i64,
        /// All tokens in this step.
        tokens: i64,
        /// Wall time of the step in milliseconds.
        wall_ms: i64,
        /// Chained hash of this row and all before it in its file.
        row_sha256: String,
    }
}

rows! {
    /// One attempt that another program ran, as its log or table says; what it does not say is null.
    ImportedRow: "imported" {
        /// The folder name under `data/`.
        experiment: String,
        /// The arm that the import was told, or that the table names.
        arm: String,
        /// Name of the file that the row was read from.
        source: String,
        /// Line (JSON lines, CSV), sample (Inspect) or row (Parquet) within that file, from 1.
        source_row: i64,
        /// The model, as the log names it.
        model: Option<String>,
        /// The kind of task: the log's name of the task, or the table's `family`, or where it has no such column the part of the task before `/`.
        family: Option<String>,
        /// The task's difficulty.
        level: Option<i64>,
        /// The task: the same id is the same task in every arm.
        task_id: String,
        /// SHA-256 of the task's question, where the log holds it.
        task_sha256: Option<String>,
        /// Such as `train` or `held_out`.
        split: Option<String>,
        /// A stratum of the task.
        stratum: Option<String>,
        /// The seed that made or chose the task.
        seed: Option<i64>,
        /// The seed the arm's model was trained with.
        train_seed: Option<i64>,
        /// Index of a repeated attempt at the same task by the same arm.
        rollout: Option<i64>,
        /// The score in [0, 1]; null where the attempt has none.
        reward: Option<f64>,
        /// Whether the task counts as solved.
        solved: Option<bool>,
        /// Why the attempt ended, in the words of the source; `infra_error` where it broke.
        finish_reason: Option<String>,
        /// Tokens the model was given.
        prompt_tokens: Option<i64>,
        /// Tokens the model wrote.
        completion_tokens: Option<i64>,
        /// Tokens written while thinking.
        think_tokens: Option<i64>,
        /// Wall time of the attempt in milliseconds.
        wall_ms: Option<i64>,
        /// Milliseconds after the start at which the attempt was solved; missing where it was not.
        solved_ms: Option<i64>,
        /// The score by which one of several attempts would be picked, where there is one beside the reward.
        select_score: Option<f64>,
        /// When the attempt started, as the source writes it.
        started_at: Option<String>,
        /// What went wrong, for an attempt without a score.
        error: Option<String>,
        /// Chained hash of this row and all before it in its file.
        row_sha256: String,
    }
}

/// Clock columns and the chain: left out when rows of two runs are compared.
pub const NOT_COMPARED: &[&str] = &["wall_ms", "solved_ms", "started_at", "row_sha256"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_survives_cells() {
        let row = TrainingRow {
            experiment: "x".into(),
            train_seed: 1,
            step: 2,
            loss: 0.5,
            grad_norm: 1.0,
            learning_rate: 1e-4,
            loss_tokens: 10,
            tokens: 20,
            wall_ms: 3,
            row_sha256: String::new(),
        };
        assert_eq!(TrainingRow::from_cells(row.cells()), Ok(row.clone()));
        assert_eq!(row.cell("loss"), Some(Cell::Real(0.5)));
        assert_eq!(row.cell("no_such"), None);
    }

    #[test]
    fn nulls_and_wrong_kinds_are_named() {
        let mut cells = vec![Cell::Null; TrainingRow::COLUMNS.len()];
        assert_eq!(TrainingRow::from_cells(cells.clone()).unwrap_err().0, "experiment");
        cells[0] = Cell::Int(3);
        assert!(TrainingRow::from_cells(cells).unwrap_err().1.contains("not text"));
    }

    #[test]
    fn every_column_has_a_doc_string() {
        for set in [
            EpisodeRow::COLUMNS,
            CallRow::COLUMNS,
            HarvestRow::COLUMNS,
            TrainingRow::COLUMNS,
            ImportedRow::COLUMNS,
        ] {
            assert!(set.iter().all(|c| c.doc.trim().len() > 8));
        }
    }
}
