//! The self-test of a task set, before anything is run on it: the oracle must be right on every line,
//! and what a constant or a random reply earns is reported, since a task that such a reply solves
//! measures nothing.

use super::file::{self, Found};
use super::line::Line;
use crate::error::Result;
use crate::philox::Philox;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Constant replies tried in a family and level: its most frequent answers.
const CONSTANTS: usize = 20;
/// Replies that hold no answer: whatever accepts one accepts anything.
const EMPTY: [&str; 4] = ["", "I do not know.", "ANSWER:", "ANSWER: none of these"];
/// A constant reply from this share on is remarked.
const HIGH: f64 = 0.9;

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The file.
    pub file: String,
    /// SHA-256 of the file.
    pub sha256: String,
    /// Tasks that can be used.
    pub tasks: usize,
    /// One entry a family, level and split.
    pub cells: Vec<Cell>,
    /// What is wrong, one entry a line, up to a limit.
    pub problems: Vec<Problem>,
    /// Whether reading stopped at that limit.
    pub stopped: bool,
    /// What is odd but not wrong.
    pub remarks: Vec<String>,
    /// Whether the file can be used.
    pub passed: bool,
}

/// What is wrong with a line.
#[derive(Debug, Clone, Serialize)]
pub struct Problem {
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong, naming the field.
    pub what: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

/// One family, level and split.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// Kind of task.
    pub family: String,
    /// Difficulty.
    pub level: u8,
    /// `train` or `held_out`.
    pub split: &'static str,
    /// Tasks by verifier.
    pub verifiers: BTreeMap<&'static str, usize>,
    /// Tasks.
    pub tasks: usize,
    /// Share that the oracle solves; must be 1.
    pub oracle: f64,
    /// Share that a random well-formed reply solves.
    pub random: f64,
    /// Share that the best constant reply solves.
    pub constant: f64,
    /// That reply.
    pub constant_reply: String,
}

/// Tests a file. Errors only where it cannot be read.
pub fn check(path: &Path) -> Result<Report> {
    let contents = file::read(path)?;
    let mut cells: BTreeMap<(String, u8, &'static str), Vec<&Line>> = BTreeMap::new();
    for (_, line) in &contents.lines {
        cells.entry((line.family.clone(), line.level, line.split.as_str())).or_default().push(line);
    }
    let (mut remarks, mut failed) = (Vec::new(), false);
    let cells: Vec<Cell> = cells
        .into_iter()
        .map(|((family, level, split), lines)| {
            let cell = cell(&family, level, split, &lines);
            failed |= cell.oracle < 1.0;
            let place = format!("{family}, level {level}, {split}");
            if cell.constant >= HIGH && cell.tasks > 1 {
                remarks.push(format!(
                    "{place}: `{}` solves {:.0}% of the tasks",
                    cell.constant_reply,
                    100.0 * cell.constant
                ));
            }
            let open = lines.iter().find(|line| EMPTY.iter().any(|reply| line.verifier.judge(reply).right));
            if let Some(line) = open {
                remarks.push(format!("{place}: task `{}` accepts a reply without an answer", line.id));
            }
            cell
        })
        .collect();
    let without = contents.lines.iter().filter(|(_, line)| !line.has_id).count();
    if without > 0 {
        remarks.push(format!(
            "{without} of {} tasks: lines without an id cannot have their verifier repaired without writing it out",
            contents.lines.len()
        ));
    }
    let problem = |found: &Found| Problem {
        line: found.line,
        what: found.problem.what.clone(),
        remedy: found.problem.remedy.clone(),
    };
    Ok(Report {
        file: path.display().to_string(),
        sha256: contents.sha256,
        tasks: contents.lines.len(),
        passed: contents.problems.is_empty() && !contents.lines.is_empty() && !failed,
        cells,
        problems: contents.problems.iter().map(problem).collect(),
        stopped: contents.stopped,
        remarks,
    })
}

fn cell(family: &str, level: u8, split: &'static str, lines: &[&Line]) -> Cell {
    let share = |solved: usize| solved as f64 / lines.len() as f64;
    let mut rng = Philox::named(&format!("rederive/taskset/check/{family}/L{level}/{split}"));
    let (mut verifiers, mut answers) = (BTreeMap::new(), BTreeMap::new());
    let (mut oracle, mut random) = (0, 0);
    for line in lines {
        *verifiers.entry(line.verifier.name()).or_insert(0) += 1;
        let reply = line.verifier.oracle();
        oracle += usize::from(line.verifier.judge(&reply).right);
        random += usize::from(line.verifier.judge(&line.verifier.random(&mut rng)).right);
        *answers.entry(reply).or_insert(0usize) += 1;
    }
    let mut constants: Vec<(usize, String)> =
        answers.into_iter().map(|(reply, times)| (times, reply)).collect();
    constants.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    let constants = constants.into_iter().take(CONSTANTS).map(|(_, reply)| reply);
    let mut best = (0, String::new());
    for reply in constants.chain(EMPTY.map(str::to_owned)) {
        let solved = lines.iter().filter(|line| line.verifier.judge(&reply).right).count();
        if solved > best.0 {
            best = (solved, reply);
        }
    }
    Cell {
        family: family.to_owned(),
        level,
        split,
        verifiers,
        tasks: lines.len(),
        oracle: share(oracle),
        random: share(random),
        constant: share(best.0),
        constant_reply: best.1,
    }
}
