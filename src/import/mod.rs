//! `import`: rows that other programs made (lm-evaluation-harness, Inspect AI, plain tables) as a data set
//! of ours, with a record of where each comes from. What a source does not say stays null.

mod archive;
mod check;
mod inspect;
mod json;
mod lm_eval;
mod render;
mod score;
mod sniff;
mod source;
mod store;
mod table;

#[cfg(test)]
mod tests;

pub use source::{Beside, Choices, Counts, Origin};
pub use store::{Provenance, Written, imported};

use crate::compare;
use crate::error::{Error, Result};
use crate::hash;
use clap::ValueEnum;
use source::Source;
use std::path::{Path, PathBuf};

/// The program whose files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Sample logs of lm-evaluation-harness, as `--log_samples` writes them
    LmEval,
    /// Logs of Inspect AI, `.eval` or `.json`
    Inspect,
    /// CSV, JSON lines or Parquet, as `compare` reads them
    Table,
}

/// Which files are imported, and how.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Options {
    /// Logs or tables, each read as a whole
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The arm that the rows belong to: once for all files, or once for each, in their order
    #[arg(long, value_name = "ARM")]
    pub arm: Vec<String>,
    /// Folder under data/ that takes the rows [default: the task's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// What kind of files they are [default: seen from their content]
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Metric, scorer or column that is the reward, where there are several
    #[arg(long, value_name = "NAME")]
    pub metric: Option<String>,
    /// Filter of lm-evaluation-harness, where there are several
    #[arg(long, value_name = "NAME")]
    pub filter: Option<String>,
    /// Scores that become 0 and 1; the worse one comes first
    #[arg(long, value_name = "LOW,HIGH", allow_hyphen_values = true)]
    pub scale: Option<String>,
    /// Reward from which an attempt counts as solved, where the source does not say
    #[arg(long, value_name = "REWARD")]
    pub solved_from: Option<f64>,
    /// Your names for our columns in tables, such as `reward=score,task=id`
    #[arg(long, value_name = "OURS=YOURS", value_delimiter = ',')]
    pub map: Vec<String>,
}

/// Rows that were read and checked, and are written nowhere yet.
#[derive(Debug)]
pub struct Import {
    name: String,
    sources: Vec<Source>,
}

/// Reads and checks all files; writes nothing.
///
/// # Errors
/// Bad input names the file, the line, sample or row, and a remedy.
pub fn read(options: &Options) -> Result<Import> {
    let choices = Choices {
        metric: options.metric.clone(),
        filter: options.filter.clone(),
        scale: options.scale.as_deref().map(scale).transpose()?,
        solved_from: options.solved_from,
    };
    if let Some(least) = options.solved_from.filter(|least| !(0.0..=1.0).contains(least)) {
        return Err(Error::invalid(format!("{least} is no reward: they lie in [0, 1]"))
            .at("--solved-from")
            .hint("give a number such as 1 or 0.5"));
    }
    let mut sources = Vec::new();
    for path in &options.files {
        sources.push(read_one(path, options, &choices)?);
    }
    check::arms(&mut sources, &options.arm)?;
    check::files(&sources)?;
    check::once(&sources)?;
    check::throughout(&sources)?;
    check::same_questions(&sources, &[])?;
    sources.iter_mut().for_each(count);
    Ok(Import { name: name(options, &sources)?, sources })
}

impl Import {
    /// Writes the rows of each arm, its provenance and their hashes under `data/<name>/` of a workspace. An arm that
    /// is there with the same rows stays as it is; with other rows it is refused.
    pub fn write(self, workspace: &Path) -> Result<Written> {
        store::write(workspace, &self.name, self.sources, false)
    }

    /// What [`Import::write`] would do, with the same checks.
    pub fn preview(self, workspace: &Path) -> Result<Written> {
        store::write(workspace, &self.name, self.sources, true)
    }
}

fn read_one(path: &Path, options: &Options, choices: &Choices) -> Result<Source> {
    compare::table::require_file(path)?;
    if !fs_err::metadata(path)?.is_file() {
        return Err(Error::invalid("this is no plain file, and a file is read more than once")
            .at(path.display())
            .hint("write it to a file first"));
    }
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let origin = Origin { file, ..Origin::default() };
    let format = match options.format {
        Some(Format::Inspect) => match sniff::is_zip(path)? {
            true => sniff::Found::InspectZip,
            false => sniff::Found::InspectJson,
        },
        Some(Format::LmEval) => sniff::Found::LmEval,
        Some(Format::Table) => sniff::Found::Table,
        None => sniff::sniff(path)?,
    };
    if format == sniff::Found::Table {
        return table::read(path, origin, choices, &options.map);
    }
    if !options.map.is_empty() {
        return Err(Error::invalid("this is a log, whose fields have fixed meanings")
            .at(path.display())
            .hint("leave out --map; --metric and --filter choose, and --format table reads the file as plain rows"));
    }
    let sha256 = hash::sha256_file(path)?;
    let origin = Origin { bytes: fs_err::metadata(path)?.len(), sha256: sha256.clone(), ..origin };
    let source = match format {
        sniff::Found::InspectZip => inspect::read_eval(path, origin, choices),
        sniff::Found::InspectJson => inspect::read_json(path, origin, choices),
        _ => lm_eval::read(path, origin, choices),
    }?;
    if hash::sha256_file(path)? != sha256 {
        return Err(Error::invalid("the file changed while it was read")
            .at(path.display())
            .hint("wait until the program that writes it has ended"));
    }
    Ok(source)
}

/// The two scores of `--scale`.
fn scale(text: &str) -> Result<[f64; 2]> {
    let ends: Vec<f64> =
        text.split(',').map(|end| end.trim().parse()).collect::<Result<_, _>>().unwrap_or_default();
    match ends.as_slice() {
        [low, high] if low.is_finite() && high.is_finite() && low != high => Ok([*low, *high]),
        _ => Err(Error::invalid(format!("`{text}` is no scale"))
            .at("--scale")
            .hint("give two different numbers, the worse score first, such as --scale 0,100")),
    }
}

/// Counts what became of a source's rows.
fn count(source: &mut Source) {
    let rows = &source.rows;
    let counts = &mut source.origin.counts;
    counts.rows = rows.len();
    counts.null_rewards = rows.iter().filter(|row| row.reward.is_none()).count();
    counts.errors = rows.iter().filter(|row| row.error.is_some()).count();
    let limited = |row: &&crate::episode::ImportedRow| {
        row.finish_reason.as_deref().is_some_and(|r| r.ends_with("_limit"))
    };
    counts.limits = rows.iter().filter(limited).count();
}

/// The folder's name: the one asked for, else that of the only task or file.
fn name(options: &Options, sources: &[Source]) -> Result<String> {
    if let Some(name) = &options.name {
        let word = (1..=64).contains(&name.len())
            && !name.starts_with('-')
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        return match word {
            true => Ok(name.clone()),
            false => Err(Error::invalid(format!("`{name}` is not a name for a data set"))
                .at("--name")
                .hint("use a-z, 0-9 and `-`, at most 64 of them")),
        };
    }
    let stem = |source: &Source| {
        Path::new(&source.origin.file).file_stem().map(|s| s.to_string_lossy().into_owned())
    };
    let called =
        |source: &Source| slug(&source.origin.task.clone().or_else(|| stem(source)).unwrap_or_default());
    let first = sources.first().map(called).unwrap_or_default();
    if first.is_empty() || sources.iter().any(|source| called(source) != first) {
        return Err(Error::invalid("the files do not give one name for the data set")
            .at("--name")
            .hint("name the folder under data/ that takes the rows, such as --name my-task"));
    }
    Ok(first)
}

/// A text as a name of a-z, 0-9 and single `-`.
fn slug(text: &str) -> String {
    let plain: String =
        text.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let words: Vec<&str> = plain.split('-').filter(|word| !word.is_empty()).collect();
    let name: String = words.join("-").chars().take(64).collect();
    name.trim_end_matches('-').to_string()
}
