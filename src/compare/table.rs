//! A file of rows as columns of plain fields, whatever its format, and the careful coercion of
//! a field to what a column must hold. Only the columns asked for are kept.

use super::{csv, json_lines, parquet};
use crate::error::{Error, Result, nearest};
use std::collections::HashMap;
use std::path::Path;

/// One value as the file has it.
#[derive(Debug, Clone, PartialEq)]
pub enum Field {
    /// Missing: null, or empty in CSV.
    Null,
    /// A boolean.
    Flag(bool),
    /// A whole number, exact: wide enough for all of 64 bits, with or without a sign.
    Int(i128),
    /// A number that came as a float; may be NaN or infinite.
    Real(f64),
    /// Text.
    Text(String),
    /// Something no column here can hold, such as a list.
    Other(String),
}

/// The columns of one file that were asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// The file, as given.
    pub path: String,
    /// Number of rows.
    pub rows: usize,
    /// Fields by column name; each as long as there are rows.
    pub columns: HashMap<String, Vec<Field>>,
    /// Line of each row in the file, for text formats.
    pub lines: Option<Vec<usize>>,
}

impl Table {
    /// Where row `i` (from 0) stands: `rows.csv: line 7` or `rows.parquet: row 6`.
    pub fn place(&self, i: usize) -> String {
        match self.lines.as_ref().and_then(|lines| lines.get(i)) {
            Some(line) => format!("{}: line {line}", self.path),
            None => format!("{}: row {}", self.path, i + 1),
        }
    }
}

/// The bytes of a file of rows; what is a folder, or not there, is refused with a way out.
pub fn bytes(path: &Path) -> Result<Vec<u8>> {
    require_file(path)?;
    Ok(fs_err::read(path)?)
}

/// Refuses a folder, standard input and a path that leads nowhere, each with a way out.
pub fn require_file(path: &Path) -> Result<()> {
    let shown = path.display();
    if path.is_dir() {
        return Err(Error::invalid("this is a folder, not a file of rows")
            .at(shown)
            .hint(format!("name the files in it, such as {}", path.join("*.parquet").display())));
    }
    if path.as_os_str() == "-" {
        return Err(Error::invalid("rows are read from files, not from standard input")
            .at(shown)
            .hint("write them to a file first, such as `… > rows.csv`"));
    }
    match fs_err::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Err(Error::invalid("there is no such file").at(shown).hint(neighbour(path)))
        }
        found => {
            found?;
            Ok(())
        }
    }
}

/// A way out for a path that leads nowhere: a file of nearly that name, if there is one.
fn neighbour(path: &Path) -> String {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = fs_err::read_dir(folder) else {
        return format!("there is no folder `{}` either: check the path", folder.display());
    };
    let mut names: Vec<String> = entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    let wanted = path.file_name().unwrap_or_default().to_string_lossy();
    match nearest(&wanted, names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{}`?", path.with_file_name(near).display()),
        None => "check the name and the folder: a relative path starts where the command runs".into(),
    }
}

/// A file whose column names are known and whose rows can be read.
pub enum Source {
    /// Comma-separated text with a header line.
    Csv(csv::Csv),
    /// One JSON object a line.
    JsonLines(json_lines::JsonLines),
    /// Apache Parquet.
    Parquet(parquet::Parquet),
}

impl Source {
    /// Opens a file of these bytes; the format follows from the first of them, and then from its name.
    pub fn open(path: &Path, bytes: Vec<u8>) -> Result<Source> {
        let shown = path.display().to_string();
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
        if bytes.starts_with(b"PAR1") || extension == "parquet" {
            return Ok(Source::Parquet(parquet::Parquet::open(shown, bytes)?));
        }
        if bytes.starts_with(&[0x1f, 0x8b]) || bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            return Err(Error::invalid("the file is compressed as a whole")
                .at(shown)
                .hint("unpack it first, with gunzip or unzstd; Parquet is read as it is"));
        }
        let text = String::from_utf8(bytes).map_err(|e| {
            let line =
                1 + e.as_bytes()[..e.utf8_error().valid_up_to()].iter().filter(|b| **b == b'\n').count();
            Error::invalid("this is neither Parquet nor UTF-8 text")
                .at(format!("{shown}: line {line}"))
                .hint("save it as UTF-8")
        })?;
        let text = match text.strip_prefix('\u{feff}') {
            Some(rest) => rest.to_owned(),
            None => text,
        };
        let first = text.trim_start().chars().next();
        match (first, extension.as_str()) {
            (None, _) => {
                Err(Error::invalid("the file is empty").at(shown).hint("it needs a row for each episode"))
            }
            (Some('['), "json" | "jsonl" | "ndjson") => {
                Err(Error::invalid("this is one JSON list, not JSON lines")
                    .at(&shown)
                    .hint(format!("write one object a line: jq -c '.[]' {shown}")))
            }
            (Some('{'), _) | (_, "json" | "jsonl" | "ndjson") => {
                Ok(Source::JsonLines(json_lines::JsonLines::open(shown, text)?))
            }
            _ => Ok(Source::Csv(csv::Csv::open(shown, text)?)),
        }
    }

    /// The file, as given.
    pub fn path(&self) -> &str {
        match self {
            Source::Csv(s) => &s.path,
            Source::JsonLines(s) => &s.path,
            Source::Parquet(s) => &s.path,
        }
    }

    /// Column names, in file order.
    pub fn names(&self) -> &[String] {
        match self {
            Source::Csv(s) => &s.names,
            Source::JsonLines(s) => &s.names,
            Source::Parquet(s) => &s.names,
        }
    }

    /// Reads the named columns, each of which is there.
    pub fn read(&self, wanted: &[&str]) -> Result<Table> {
        match self {
            Source::Csv(s) => s.read(wanted),
            Source::JsonLines(s) => s.read(wanted),
            Source::Parquet(s) => s.read(wanted),
        }
    }
}

impl Field {
    /// Whether the field is missing.
    pub fn is_null(&self) -> bool {
        match self {
            Field::Null => true,
            Field::Text(t) => t.trim().is_empty(),
            _ => false,
        }
    }

    /// A name: text as it is, whole numbers as their digits.
    pub fn name(&self) -> Result<String, String> {
        match self {
            Field::Text(t) if !t.trim().is_empty() => Ok(t.clone()),
            Field::Int(i) => Ok(i.to_string()),
            Field::Real(r) => whole(*r).map(|i| i.to_string()).ok_or_else(|| self.is_not("a name")),
            _ => Err(self.is_not("a name")),
        }
    }

    /// A whole number, exact; 3.0 is one. A float beyond 2^53 is none.
    pub fn integer(&self) -> Result<i128, String> {
        let found = match self {
            Field::Int(i) => Some(*i),
            Field::Real(r) => whole(*r),
            Field::Text(t) => whole_text(t.trim()),
            _ => None,
        };
        found.ok_or_else(|| self.is_not("a whole number"))
    }

    /// A finite number in [0, 1]; `true` is 1.
    pub fn unit(&self) -> Result<f64, String> {
        let found = self.number().ok().filter(|r| (0.0..=1.0).contains(r));
        found.ok_or_else(|| self.is_not("a number in [0, 1]"))
    }

    /// A number, finite or not; `true` is 1.
    pub fn number(&self) -> Result<f64, String> {
        let found = match self {
            Field::Flag(b) => Some(f64::from(u8::from(*b))),
            Field::Int(i) => Some(*i as f64),
            Field::Real(r) => Some(*r),
            Field::Text(t) => match t.trim() {
                "true" | "True" | "TRUE" => Some(1.0),
                "false" | "False" | "FALSE" => Some(0.0),
                number => number.parse().ok(),
            },
            _ => None,
        };
        found.ok_or_else(|| self.is_not("a number"))
    }

    /// A flag: a boolean, or 0 or 1.
    pub fn flag(&self) -> Result<bool, String> {
        match self.unit() {
            Ok(1.0) => Ok(true),
            Ok(0.0) => Ok(false),
            _ => Err(self.is_not("0, 1, true or false")),
        }
    }

    fn is_not(&self, what: &str) -> String {
        match self {
            Field::Null => format!("is missing, and must be {what}"),
            Field::Flag(b) => format!("is `{b}`, not {what}"),
            Field::Int(i) => format!("is `{i}`, not {what}"),
            Field::Real(r) if r.abs() >= FLOAT_REACH && r.is_finite() => {
                format!(
                    "is the float `{r:e}`, not {what}: beyond 2^53 floats run several whole numbers together"
                )
            }
            Field::Real(r) => format!("is `{r}`, not {what}"),
            Field::Text(t) => format!("is `{}`, not {what}", super::rows::shown(t)),
            Field::Other(kind) => format!("is {kind}, not {what}"),
        }
    }
}

/// 2^53: from here on a float no longer tells one whole number from the next.
const FLOAT_REACH: f64 = 9_007_199_254_740_992.0;

fn whole(r: f64) -> Option<i128> {
    (r.fract() == 0.0 && r.abs() < FLOAT_REACH).then_some(r as i128)
}

/// Digits, with or without `.0` behind them, are read as they stand; only an exponent makes a float.
fn whole_text(t: &str) -> Option<i128> {
    let digits = match t.split_once('.') {
        Some((digits, zeros)) if zeros.bytes().all(|b| b == b'0') => digits,
        _ => t,
    };
    let float = || t.contains(['e', 'E']).then(|| t.parse().ok().and_then(whole)).flatten();
    digits.parse().ok().or_else(float)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(t: &str) -> Field {
        Field::Text(t.into())
    }

    #[test]
    fn fields_are_coerced_with_care() {
        assert_eq!(text("007").name(), Ok("007".into()));
        assert_eq!(Field::Int(7).name(), Ok("7".into()));
        assert_eq!(Field::Real(7.0).name(), Ok("7".into()));
        assert!(Field::Real(7.5).name().is_err() && text(" ").name().is_err() && Field::Null.name().is_err());
        assert_eq!(text(" 12 ").integer(), Ok(12));
        assert_eq!(text("3.0").integer(), Ok(3));
        assert!(Field::Flag(true).integer().is_err() && text("s1").integer().is_err());
        assert!(Field::Real(1e17).integer().is_err() && Field::Real(f64::NAN).integer().is_err());
        assert!(text("3.5").integer().is_err() && text("3.00000000000000000001").integer().is_err());
        assert_eq!((text("1e3").integer(), text("-7").integer()), (Ok(1000), Ok(-7)));
        assert_eq!(text("0.25").unit(), Ok(0.25));
        assert_eq!(Field::Flag(true).unit(), Ok(1.0));
        assert_eq!(text("True").flag(), Ok(true));
        assert_eq!(Field::Real(0.0).flag(), Ok(false));
        assert!(Field::Real(0.5).flag().is_err() && text("yes").flag().is_err());
    }

    #[test]
    fn whole_numbers_of_64_bits_stay_exact() {
        for exact in [1 << 53, (1 << 53) + 1, i128::from(i64::MIN), i128::from(u64::MAX)] {
            assert_eq!(Field::Int(exact).integer(), Ok(exact));
            assert_eq!(Field::Int(exact).name(), Ok(exact.to_string()));
            assert_eq!(text(&exact.to_string()).integer(), Ok(exact));
            assert_eq!(text(&format!("{exact}.00")).integer(), Ok(exact));
        }
        // As floats, 2^53 and 2^53 + 1 are one: neither is taken for the other.
        for rounded in [Field::Real(9_007_199_254_740_993.0), text("9007199254740993e0"), text("1.8e19")] {
            assert!(rounded.integer().is_err(), "{rounded:?}");
        }
        let message = Field::Real(u64::MAX as f64).integer().unwrap_err();
        assert!(message.contains("1.8446744073709552e19") && message.contains("2^53"), "{message}");
    }

    #[test]
    fn rewards_outside_the_unit_interval_are_refused() {
        for bad in ["nan", "NaN", "inf", "-inf", "1.0001", "-0.1", "high"] {
            assert!(text(bad).unit().unwrap_err().contains(bad), "{bad}");
        }
        assert!(Field::Real(f64::NAN).unit().is_err() && Field::Int(2).unit().is_err());
        assert!(Field::Other("a list".into()).unit().unwrap_err().contains("a list"));
    }
}
