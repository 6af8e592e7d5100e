//! The declared recipe that leads from rows to one number, as parsed from TOML. Plain data:
//! `claims` evaluates it through `stats`, `audit` walks the rows by itself.

use crate::episode::row::Cell;
use crate::error::{Error, Result, nearest};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// The data sets a derivation may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataSet {
    /// `episodes/<arm>/<seed>.parquet`, one row an attempt.
    Episodes,
    /// `calls/<arm>/<seed>.parquet`, one row a generation call.
    Calls,
    /// `harvest/<seed>.parquet`, one row a harvested sample.
    Harvest,
    /// `training/<train_seed>.parquet`, one row an optimiser step.
    Training,
    /// `imported/<arm>.parquet`, one row an attempt that another program ran.
    Imported,
    /// `receipts/<file>.json`: `of` is `<file>.<dotted path>`.
    Receipts,
    /// `experiment.toml`: `of` is a dotted path such as `decision.minimum_delta`.
    Plan,
    /// `facts.toml`: `of` is the fact's name; its badge says "cited", never "match".
    Facts,
    /// Other derivations: `of` is a formula over their numbers.
    Derivations,
}

impl DataSet {
    /// Whether each row is an attempt of an arm at a task, so that arms can be compared.
    pub fn holds_attempts(self) -> bool {
        matches!(self, DataSet::Episodes | DataSet::Imported)
    }
}

/// What is computed; ids, formulas and sources are in the estimator registry of `stats`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Estimator {
    /// Mean of a column; over episodes: mean over tasks of cell means, with a t interval over tasks.
    Mean,
    /// Share of rows whose flag is set, or whose column equals `is`; plain over rows.
    Share,
    /// Number of rows.
    Count,
    /// Number of distinct values of a column.
    CountDistinct,
    /// Sum of a column.
    Sum,
    /// Smallest value of a column.
    Min,
    /// Largest value of a column.
    Max,
    /// Value of the last row in file order.
    Last,
    /// Mean over shared tasks of treatment minus base.
    PairedDelta,
    /// Unbiased pass@k from `solved`.
    PassAtK,
    /// Expected best of k rewards.
    BestAtK,
    /// Number of paired attempts that went from unsolved to solved (`gained`), the reverse (`lost`), `both`, `neither`.
    Flips,
    /// Middle value of a column.
    Median,
    /// Interquartile mean of an arm's cell means.
    Iqm,
    /// Mean over shared tasks of the chance that an attempt of the treatment beats one of the base.
    ProbabilityOfImprovement,
    /// Number of tasks whose mean lies in a band.
    TasksWhere,
    /// Expected score of the attempt that `select_score` picks among k.
    SelectedAtK,
    /// Spread of an arm's attempts within their cells.
    GroupSd,
    /// p values of a declared family of tests, adjusted by Holm.
    Holm,
    /// p values of an exploratory table, adjusted by Benjamini and Hochberg.
    BenjaminiHochberg,
    /// The value at `of` in the plan, a receipt or the facts.
    Value,
}

impl Estimator {
    /// Whether it adjusts the p values of other derivations, one row each.
    pub fn is_family(self) -> bool {
        matches!(self, Estimator::Holm | Estimator::BenjaminiHochberg)
    }
}

/// How a paired comparison weighs its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Each task the same.
    #[default]
    Task,
    /// Each family the same, each task the same within its family.
    Family,
}

/// What is resampled as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cluster {
    /// The task.
    #[default]
    Task,
    /// The family.
    Family,
}

/// How nulls in the column count. Without a policy a null is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nulls {
    /// Rows with a null are left out, and counted.
    Omit,
    /// A null counts as 0.
    Zero,
}

/// What an interval speaks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Population {
    /// More tasks, with the arms as they are.
    #[default]
    Tasks,
    /// More tasks and more training runs.
    TasksXTrainSeeds,
}

/// Which values count: one, a list of them, or bounds, in `where`, `is` and `band`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Accepts {
    /// The column equals this.
    One(Cell),
    /// The column equals one of these.
    Any(Vec<Cell>),
    /// The column holds a number within bounds, or something else than a value.
    Within(Bounds),
}

/// Bounds of a number; all that are given hold.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// Not below this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// Not above this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// Above this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<f64>,
    /// Below this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<f64>,
    /// Another value than this; a missing one is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not: Option<Cell>,
}

impl<'de> Deserialize<'de> for Accepts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Accepts, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Accepts;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a value, a list of values, or bounds such as { at_least = 2 }")
            }
            fn visit_bool<E>(self, flag: bool) -> std::result::Result<Accepts, E> {
                Ok(Accepts::One(Cell::Flag(flag)))
            }
            fn visit_i64<E>(self, whole: i64) -> std::result::Result<Accepts, E> {
                Ok(Accepts::One(Cell::Int(whole)))
            }
            fn visit_u64<E: serde::de::Error>(self, whole: u64) -> std::result::Result<Accepts, E> {
                i64::try_from(whole).map(|whole| Accepts::One(Cell::Int(whole))).map_err(E::custom)
            }
            fn visit_f64<E>(self, real: f64) -> std::result::Result<Accepts, E> {
                Ok(Accepts::One(Cell::Real(real)))
            }
            fn visit_str<E>(self, text: &str) -> std::result::Result<Accepts, E> {
                Ok(Accepts::One(Cell::Text(text.to_owned())))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> std::result::Result<Accepts, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Accepts::Any)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<Accepts, A::Error> {
                Bounds::deserialize(MapAccessDeserializer::new(map)).map(Accepts::Within)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl Accepts {
    /// The texts that are named, as accepted or as unwanted.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let unwanted = match self {
            Accepts::Within(Bounds { not, .. }) => not.as_ref(),
            _ => None,
        };
        self.values().iter().chain(unwanted).filter_map(|cell| match cell {
            Cell::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// The accepted values, where they are listed.
    pub fn values(&self) -> &[Cell] {
        match self {
            Accepts::One(cell) => std::slice::from_ref(cell),
            Accepts::Any(cells) => cells,
            Accepts::Within(_) => &[],
        }
    }
}

/// A derivation as declared under `[derivations.<id>]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Derivation {
    /// Which data set is read.
    pub data: DataSet,
    /// Whose data: a folder under `data/`; in an experiment's report it is that experiment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<String>,
    /// Column → accepted value(s); columns of the row contract only.
    #[serde(default, rename = "where", skip_serializing_if = "BTreeMap::is_empty")]
    pub filter: BTreeMap<String, Accepts>,
    /// What is computed.
    pub estimator: Estimator,
    /// The column it is computed of (or the path, for plan, receipts and facts; the formula, for derivations).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Turns the column into true or false: whether it holds this. A null counts as `nulls` says, `zero` as false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is: Option<Accepts>,
    /// For `tasks_where`: which task means count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub band: Option<Bounds>,
    /// One arm (rates) or two, base first (comparisons); empty: all rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arms: Vec<String>,
    /// Weight of a paired comparison or an episode mean.
    #[serde(default)]
    pub weight: Weight,
    /// Resampling unit.
    #[serde(default)]
    pub cluster: Cluster,
    /// What the interval speaks about.
    #[serde(default)]
    pub population: Population,
    /// Largest difference that does not matter: gives `non_inferiority_p` and `equivalence_p`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub margin: Option<f64>,
    /// k of pass@k, best@k and the selected attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k: Option<u32>,
    /// One result a value of this column: `derive:<scope>.<id>/<value>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// How nulls in `of` count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nulls: Option<Nulls>,
    /// How `fill` prints the value, such as `+0.00`, `0.0%`, `0,000`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
}

impl Derivation {
    /// Whether a part of another derivation over the same rows is the same test under another name: all that decides the
    /// number is the same. A margin does not move the p value of "something differs", nor does the order of the arms.
    pub fn tests_the_same(&self, other: &Derivation, part: &str) -> bool {
        let deciding = |of: &Derivation| {
            let mut of = Derivation { experiment: None, format: None, ..of.clone() };
            if part == "p" {
                of.margin = None;
                of.arms.sort();
            }
            of
        };
        deciding(self) == deciding(other)
    }
}

/// The address of a number: `derive:<scope>.<id>[/<row label>][.<part>]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Reference {
    /// Experiment slug or claim id.
    pub scope: String,
    /// Derivation id within the scope.
    pub id: String,
    /// Row of a `by` table.
    pub row: Option<String>,
    /// `value` (default), `low`, `high`, `n`, `p`, `se`, `df`, or an estimator's own part.
    pub part: String,
}

/// Parts that say how far a number may be off, or what a test gave.
pub const SPREAD: [&str; 8] = ["low", "high", "p", "se", "df", "mde", "non_inferiority_p", "equivalence_p"];

/// Parts that any reference may end in.
pub const PARTS: &[&str] = &[
    "value",
    "low",
    "high",
    "n",
    "p",
    "se",
    "df",
    "gained",
    "lost",
    "both",
    "neither",
    "mde",
    "share",
    "zero_share",
    "rollout_share",
    "non_inferiority_p",
    "equivalence_p",
];

impl Reference {
    /// Parses the text after `derive:`. Ids and scopes are `[A-Za-z0-9_-]+`; a row label is anything
    /// without white space, parentheses or angle brackets, which are written as `%` and the two hex digits of each byte
    /// (`%20` for a blank), as `%` itself is.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = |what: String| Error::invalid(what).hint("write `derive:<scope>.<id>[/<row>][.<part>]`");
        let word =
            |s: &str| !s.is_empty() && s.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        let (scope, rest) =
            text.split_once('.').ok_or_else(|| bad(format!("`derive:{text}` names no derivation")))?;
        let (rest, part) = match rest.rsplit_once('.') {
            Some((head, tail)) if PARTS.contains(&tail) => (head, tail),
            Some((head, tail)) if !head.contains('/') => {
                let near = nearest(tail, PARTS.iter().copied()).map(|n| format!(", did you mean `{n}`?"));
                return Err(bad(format!(
                    "`derive:{text}` has an unknown part `{tail}`{}",
                    near.unwrap_or_default()
                )));
            }
            _ => (rest, "value"),
        };
        let (id, row) = match rest.split_once('/') {
            Some((id, row)) => (id, Some(decoded(row))),
            None => (rest, None),
        };
        if !word(scope) || !word(id) || row.as_deref() == Some("") {
            return Err(bad(format!("`derive:{text}` is not a reference")));
        }
        Ok(Reference { scope: scope.into(), id: id.into(), row, part: part.into() })
    }

    /// The key text of the bootstrap: `<scope>/<id>` or `<scope>/<id>/<row label>`.
    pub fn key_text(&self) -> String {
        match &self.row {
            Some(row) => format!("{}/{}/{row}", self.scope, self.id),
            None => format!("{}/{}", self.scope, self.id),
        }
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "derive:{}.{}", self.scope, self.id)?;
        // A label that ends like a part needs the part behind it.
        let mut ends_like_a_part = false;
        if let Some(row) = &self.row {
            write!(f, "/{}", encoded(row))?;
            ends_like_a_part = row.rsplit_once('.').is_some_and(|(_, tail)| PARTS.contains(&tail));
        }
        if self.part != "value" || ends_like_a_part {
            write!(f, ".{}", self.part)?;
        }
        Ok(())
    }
}

/// A row label as an address holds it.
fn encoded(label: &str) -> String {
    let mut out = String::with_capacity(label.len());
    for c in label.chars() {
        if c.is_whitespace() || c.is_control() || matches!(c, '%' | '(' | ')' | '<' | '>') {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                out.push_str(&format!("%{byte:02X}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// A row label from an address; a `%` that stands for no byte is itself.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_round_trip() {
        for text in [
            "demo.delta",
            "demo.delta.low",
            "demo.by_family/caravan",
            "C0001.x/caravan%20L1.high",
            "d.t/a/L1/5/0.value",
        ] {
            let r = Reference::parse(text).unwrap();
            let shown = r.to_string();
            assert_eq!(Reference::parse(shown.strip_prefix("derive:").unwrap()).unwrap(), r);
        }
        for label in ["x.p", "x", "a b", "100%20", "(a)", "x.value", "50%", "é\u{a0}ü.low"] {
            for part in ["value", "p"] {
                let r = Reference {
                    scope: "a".into(),
                    id: "b".into(),
                    row: Some(label.into()),
                    part: part.into(),
                };
                let shown = r.to_string();
                assert_eq!(Reference::parse(shown.strip_prefix("derive:").unwrap()).unwrap(), r, "{shown}");
            }
        }
        assert_eq!(Reference::parse("a.b/c/L1/5/0.n").unwrap().row.as_deref(), Some("c/L1/5/0"));
        assert_eq!(Reference::parse("a.b/x").unwrap().key_text(), "a/b/x");
    }

    #[test]
    fn bad_references_are_refused_with_a_hint() {
        for text in ["", "demo", "demo.", ".x", "demo.delta.lwo", "de mo.x", "demo.x/"] {
            assert!(Reference::parse(text).is_err(), "{text}");
        }
        assert!(Reference::parse("demo.delta.hihg").unwrap_err().to_string().contains("did you mean `high`"));
    }

    #[test]
    fn unknown_keys_are_refused() {
        let e = toml::from_str::<Derivation>("data = \"episodes\"\nestimator = \"mean\"\nfo = \"reward\"")
            .unwrap_err();
        assert!(e.to_string().contains("fo"));
    }
}
