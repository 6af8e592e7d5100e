//! A user's own tasks: a `tasks.jsonl` as an environment. Each line is a task with its verifier. An
//! event seed draws tasks without putting any back, and no task is drawn by two seeds of a plan, so
//! that what is harvested is never what is evaluated.

mod check;
mod decimal;
mod file;
mod json;
mod line;
mod verify;

pub use check::{Cell, Report, check};
pub use line::Split;
pub use verify::{Judgement, Verifier};

use super::{Allotment, Environment, Message, Outcome, Role, Session, Task, Turn};
use crate::error::{Error, Result, nearest};
use crate::philox::Philox;
use line::Line;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// How a file's name ends that is a task set.
pub const EXTENSION: &str = ".jsonl";
/// Raised whenever drawing or a verifier changes.
const VERSION: u32 = 1;
/// Tasks that stand for the lengths of a family and level.
const LONGEST: usize = 8;

/// A family and a level.
type Kind = (String, u8);

/// A task set.
pub struct TaskSet {
    /// As the plan names it.
    name: String,
    path: PathBuf,
    /// SHA-256 of the file.
    pub sha256: String,
    lines: Vec<Line>,
    /// The number of each of them in the file, from 1.
    numbers: Vec<usize>,
    by_id: BTreeMap<String, usize>,
    /// Lines of each family and level, in the order of their ids.
    kinds: BTreeMap<Kind, Vec<usize>>,
    /// What each seed of the plan drew.
    drawn: BTreeMap<(Kind, u64), Vec<usize>>,
    /// Who drew a task.
    owner: BTreeMap<usize, (u64, u32)>,
}

/// The id of a task by its line: its own, or the one that it has without writing it. `None` where the line is no task.
pub fn id_of(line: &str) -> Option<String> {
    Line::parse(line).ok().map(|line| line.id)
}

impl TaskSet {
    /// Reads a file that can be used; the first problem is named, and how many there are.
    pub fn open(name: &str, path: &Path) -> Result<TaskSet> {
        let contents = file::read(path)?;
        if let Some(first) = contents.problems.first() {
            let more = match contents.problems.len() {
                1 => String::new(),
                n if contents.stopped => format!(" (and at least {} further problems)", n - 1),
                n => format!(" (and {} further problems)", n - 1),
            };
            let mut error = Error::invalid(format!("{}{more}", first.problem.what));
            error = error.at(format!("{}:{}", path.display(), first.line));
            return Err(match &first.problem.remedy {
                Some(remedy) => error.hint(format!("{remedy}; `rederive tasks check` lists every problem")),
                None => error,
            });
        }
        let (numbers, lines): (Vec<usize>, Vec<Line>) = contents.lines.into_iter().unzip();
        if lines.is_empty() {
            return Err(Error::invalid("holds no task")
                .at(path.display())
                .hint("write one JSON object on each line"));
        }
        let by_id: BTreeMap<String, usize> =
            lines.iter().enumerate().map(|(at, line)| (line.id.clone(), at)).collect();
        let mut kinds: BTreeMap<Kind, Vec<usize>> = BTreeMap::new();
        for at in by_id.values() {
            kinds.entry((lines[*at].family.clone(), lines[*at].level)).or_default().push(*at);
        }
        Ok(TaskSet {
            name: name.to_owned(),
            path: path.to_owned(),
            sha256: contents.sha256,
            lines,
            numbers,
            by_id,
            kinds,
            drawn: BTreeMap::new(),
            owner: BTreeMap::new(),
        })
    }

    /// Tasks of the file.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there are none, which no file that can be opened has.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Requires that only the judging differs from an earlier file: line by line the same ids, questions, families,
    /// levels and splits, whatever the answers and verifiers. The error names what is another task.
    pub fn asks_the_same(&self, earlier: &TaskSet) -> Result<()> {
        if self.lines.len() != earlier.lines.len() {
            return Err(Error::refused(format!(
                "has {} tasks, and {} has {}",
                self.lines.len(),
                earlier.path.display(),
                earlier.lines.len()
            ))
            .at(self.path.display())
            .hint("other tasks are another plan: start a new experiment"));
        }
        for (at, (now, was)) in self.lines.iter().zip(&earlier.lines).enumerate() {
            let differs = [
                ("id", now.has_id && now.id != was.id),
                ("question", now.messages != was.messages),
                ("family", now.family != was.family),
                ("level", now.level != was.level),
                ("split", now.split != was.split),
            ];
            if let Some((what, _)) = differs.iter().find(|(_, differs)| *differs) {
                return Err(Error::refused(format!("task `{}` has another {what} than before", was.id))
                    .at(format!("{}:{}", self.path.display(), self.numbers[at]))
                    .hint("only answers, verifiers and their options may be repaired"));
            }
        }
        self.named_as(earlier)
    }

    /// Requires that lines without an `id`, which are named by their answers too, have the names they had.
    fn named_as(&self, earlier: &TaskSet) -> Result<()> {
        let mut renamed = (self.lines.iter().zip(&earlier.lines).zip(&self.numbers))
            .filter(|((now, was), _)| now.id != was.id)
            .map(|((_, was), number)| (&was.id, number));
        let Some((id, number)) = renamed.next() else { return Ok(()) };
        let more = match renamed.count() {
            0 => String::new(),
            1 => " (and 1 more such line)".to_owned(),
            n => format!(" (and {n} more such lines)"),
        };
        Err(Error::refused(format!("task `{id}` has another id than before, as the line has no `id`{more}"))
            .at(format!("{}:{number}", self.path.display()))
            .hint(format!(
                "a line without an `id` is named by its answer too: add `\"id\": {}` to it",
                serde_json::Value::from(id.as_str())
            )))
    }

    /// Judges a reply to one of its tasks.
    pub fn judge(&self, id: &str, reply: &str) -> Result<Judgement> {
        Ok(self.line(id)?.verifier.judge(reply))
    }

    /// The reply that counts as right for a task.
    pub fn oracle(&self, id: &str) -> Result<String> {
        Ok(self.line(id)?.verifier.oracle())
    }

    fn line(&self, id: &str) -> Result<&Line> {
        self.by_id.get(id).map(|at| &self.lines[*at]).ok_or_else(|| {
            let hint = match nearest(id, self.by_id.keys().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => {
                    let first: Vec<String> =
                        self.lines.iter().take(5).map(|line| format!("`{}`", line.id)).collect();
                    format!("its first tasks are {}", first.join(", "))
                }
            };
            Error::invalid(format!("there is no task `{id}`")).at(self.path.display()).hint(hint)
        })
    }

    fn kind(&self, family: &str, level: u8) -> Result<&[usize]> {
        if let Some(lines) = self.kinds.get(&(family.to_owned(), level)) {
            return Ok(lines);
        }
        let levels: Vec<String> = self
            .kinds
            .keys()
            .filter(|(name, _)| name == family)
            .map(|(_, level)| level.to_string())
            .collect();
        let error = match levels.is_empty() {
            true => Error::invalid(format!("no line is of the family `{family}`"))
                .hint(format!("families of the file: {}", self.families().join(", "))),
            false => Error::invalid(format!("no line of the family `{family}` is of level {level}"))
                .hint(format!("its levels are {}", levels.join(", "))),
        };
        Err(error.at(self.path.display()))
    }

    /// Lines of a kind that worked examples come from, in a fixed random order: those that may be trained on,
    /// where there are any.
    fn for_examples(&self, kind: &Kind) -> Result<Vec<usize>> {
        let all = self.kind(&kind.0, kind.1)?;
        let side = |split: Split| all.iter().copied().filter(move |at| self.lines[*at].split == split);
        let mut lines: Vec<usize> = side(Split::Train).collect();
        if lines.is_empty() {
            lines = side(Split::HeldOut).collect();
        }
        shuffle(&mut lines, kind, "examples");
        Ok(lines)
    }

    /// Lets the seeds of one purpose draw from a kind, out of `pool` and without what was taken before.
    fn draw(&mut self, kind: &Kind, of: &Drawing, pool: &[usize], taken: &mut BTreeSet<usize>) -> Result<()> {
        for seed in of.seeds {
            let mut left: Vec<usize> = pool.iter().copied().filter(|at| !taken.contains(at)).collect();
            if left.len() < of.count as usize {
                let (family, level) = kind;
                return Err(Error::invalid(format!(
                    "family `{family}`, level {level}: {} {} lines are left for seed {seed} ({}), and {} are needed",
                    left.len(),
                    of.side,
                    of.purpose,
                    of.count
                ))
                .at(self.path.display())
                .hint(format!(
                    "{} such lines in all, {} of them drawn by other seeds or kept for worked examples: add lines, or lower `{}`",
                    pool.len(),
                    pool.len() - left.len(),
                    of.key
                )));
            }
            shuffle(&mut left, kind, &seed.to_string());
            left.truncate(of.count as usize);
            taken.extend(&left);
            for (index, at) in (0..).zip(&left) {
                self.owner.insert(*at, (*seed, index));
            }
            self.drawn.insert((kind.clone(), *seed), left);
        }
        Ok(())
    }

    fn made(&self, at: usize, seed: u64, index: u32) -> Task {
        let line = &self.lines[at];
        Task {
            id: line.id.clone(),
            family: line.family.clone(),
            level: line.level,
            seed,
            index,
            answer_domain: line.verifier.domain(),
            hidden: serde_json::Value::String(line.canonical.clone()),
        }
    }
}

/// The seeds of one purpose.
struct Drawing<'a> {
    seeds: &'a [u64],
    count: u32,
    purpose: &'static str,
    /// The key of the plan that says how many.
    key: &'static str,
    /// Which lines, in words.
    side: &'static str,
}

/// Orders lines by a random stream of the kind and a name. `lines` must come in a fixed order.
fn shuffle(lines: &mut [usize], kind: &Kind, name: &str) {
    let (family, level) = kind;
    Philox::named(&format!("rederive/taskset/v{VERSION}/{family}/L{level}/{name}")).shuffle(lines);
}

impl Environment for TaskSet {
    fn name(&self) -> &str {
        &self.name
    }

    fn families(&self) -> Vec<&str> {
        let names: BTreeSet<&str> = self.kinds.keys().map(|(family, _)| family.as_str()).collect();
        names.into_iter().collect()
    }

    /// A harvested family is harvested from its `train` lines, and evaluated on its `held_out` lines where it has
    /// some, else on `train` lines that no harvest took. A held-out family has `held_out` lines only. Harvest
    /// seeds draw first, so that what they draw depends on nothing that is locked later.
    fn allot(&mut self, plan: &Allotment) -> Result<()> {
        self.drawn.clear();
        self.owner.clear();
        let families =
            plan.train.iter().map(|name| (name, true)).chain(plan.held_out.iter().map(|name| (name, false)));
        for (family, trained) in families {
            for level in &plan.levels {
                let kind = (family.clone(), *level);
                let all = self.kind(family, *level)?.to_vec();
                let (train, held_out): (Vec<usize>, Vec<usize>) =
                    all.iter().partition(|at| self.lines[**at].split == Split::Train);
                if let Some(line) = train.first().filter(|_| !trained) {
                    let id = &self.lines[*line].id;
                    return Err(Error::invalid(format!(
                        "family `{family}` is held out by the plan, and {} of its lines are `train`, such as `{id}`",
                        train.len()
                    ))
                    .at(self.path.display())
                    .hint("list the family under `[tasks] train`, or change the lines' `split`"));
                }
                let examples = self.for_examples(&kind)?;
                let kept = |count: usize| examples.iter().copied().take(count).collect::<BTreeSet<_>>();
                if examples.len() < plan.harvest_examples.max(plan.evaluate_examples) {
                    return Err(Error::invalid(format!(
                        "family `{family}`, level {level} has {} lines for worked examples",
                        examples.len()
                    ))
                    .at(self.path.display())
                    .hint("lower `examples` in `[harness]`, or add lines"));
                }
                let mut taken = kept(plan.harvest_examples);
                let harvest = Drawing {
                    seeds: if trained { &plan.harvest } else { &[] },
                    count: plan.harvest_count,
                    purpose: "harvest",
                    key: "[harvest] per_family",
                    side: "train",
                };
                self.draw(&kind, &harvest, &train, &mut taken)?;
                taken.extend(kept(plan.harvest_examples.max(plan.evaluate_examples)));
                let (pool, side) =
                    if held_out.is_empty() { (&train, "train") } else { (&held_out, "held_out") };
                for (purpose, seeds) in &plan.evaluate {
                    let (count, key) = (plan.evaluate_count, "[tasks] per_family");
                    let drawing = Drawing { seeds, count, purpose, key, side };
                    self.draw(&kind, &drawing, pool, &mut taken)?;
                }
            }
        }
        Ok(())
    }

    /// Under a seed of the plan: what it drew. Under any other: some task, for measuring and probing; their
    /// number does not end.
    fn task(&self, family: &str, level: u8, seed: u64, index: u32) -> Result<Task> {
        let kind = (family.to_owned(), level);
        let all = self.kind(family, level)?;
        if let Some(drawn) = self.drawn.get(&(kind.clone(), seed)) {
            let at = drawn.get(index as usize).ok_or_else(|| {
                Error::invalid(format!(
                    "seed {seed} drew {} tasks, and task {index} is asked for",
                    drawn.len()
                ))
                .at(format!("{}, family `{family}`, level {level}", self.path.display()))
            })?;
            return Ok(self.made(*at, seed, index));
        }
        let mut lines = all.to_vec();
        shuffle(&mut lines, &kind, &seed.to_string());
        Ok(self.made(lines[index as usize % lines.len()], seed, index))
    }

    fn by_id(&self, id: &str) -> Result<Task> {
        let at = self.by_id[&self.line(id)?.id];
        let (seed, index) = self.owner.get(&at).copied().ok_or_else(|| {
            Error::invalid(format!("no seed of the plan drew the task `{id}`")).at(self.path.display())
        })?;
        Ok(self.made(at, seed, index))
    }

    fn longest(&self, family: &str, level: u8) -> Result<Vec<Task>> {
        let mut lines = self.kind(family, level)?.to_vec();
        let size = |at: &usize| self.lines[*at].messages.iter().map(|m| m.content.len()).sum::<usize>();
        lines.sort_by_key(|at| std::cmp::Reverse(size(at)));
        Ok(lines.into_iter().take(LONGEST).map(|at| self.made(at, 0, 0)).collect())
    }

    fn begin(&self, task: &Task) -> Result<Box<dyn Session>> {
        let line = self.line(&task.id)?;
        if task.hidden.as_str() != Some(line.canonical.as_str()) {
            return Err(Error::invalid("the task is not the one that the file has under this id")
                .at(format!("task {}", task.id))
                .hint("a task set must not change while an experiment runs on it"));
        }
        Ok(Box::new(TaskSession { line: line.clone(), judged: None }))
    }

    fn examples(&self, family: &str, level: u8, count: usize) -> Result<Vec<Message>> {
        let lines = self.for_examples(&(family.to_owned(), level))?;
        if lines.len() < count {
            return Err(Error::invalid(format!(
                "family `{family}`, level {level} has {} lines for worked examples",
                lines.len()
            ))
            .at(self.path.display())
            .hint("lower `examples` in `[harness]`, or add lines"));
        }
        let mut messages = Vec::new();
        for at in &lines[..count] {
            let line = &self.lines[*at];
            messages.extend(line.messages.iter().filter(|m| m.role != Role::System).cloned());
            messages.push(Message::assistant(line.verifier.oracle()));
        }
        Ok(messages)
    }

    /// Every line of the family counts: a changed answer is another verifier.
    fn verifier_sha256(&self, family: &str) -> Result<String> {
        let lines: Vec<&str> = self
            .kinds
            .iter()
            .filter(|((name, _), _)| name == family)
            .flat_map(|(_, lines)| lines.iter().map(|at| self.lines[*at].canonical.as_str()))
            .collect();
        if lines.is_empty() {
            return self.kind(family, 1).map(|_| String::new());
        }
        crate::hash::sha256_json(&(family, VERSION, lines))
    }

    fn deterministic(&self) -> bool {
        true
    }

    fn publishes_transcripts(&self) -> bool {
        true
    }
}

struct TaskSession {
    line: Line,
    judged: Option<Judgement>,
}

impl Session for TaskSession {
    fn prompt(&self) -> String {
        self.line.messages.last().map(|m| m.content.clone()).unwrap_or_default()
    }

    fn opening(&self) -> Vec<Message> {
        self.line.messages.clone()
    }

    fn reply(&mut self, text: &str) -> Turn {
        let judged = self.line.verifier.judge(text);
        let parse_ok = judged.parsed.is_some();
        self.judged = Some(judged);
        Turn { observation: None, parse_ok, action_ok: parse_ok }
    }

    fn outcome(&self) -> Outcome {
        let solved = self.judged.as_ref().is_some_and(|judged| judged.right);
        Outcome { reward: f64::from(u8::from(solved)), solved }
    }

    fn oracle(&self) -> String {
        self.line.verifier.oracle()
    }

    fn random(&self, rng: &mut Philox) -> String {
        self.line.verifier.random(rng)
    }

    fn horizon(&self) -> u32 {
        1
    }
}

#[cfg(test)]
mod tests;
