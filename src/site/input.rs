//! What the site is made from: plain values, already computed, checked and addressed. Pages
//! format them; nothing here or below computes a number.

pub use crate::claims::value::Verdict;

use crate::claims::value::{Number, Warning};
use crate::episode::row::Cell;
use std::collections::{BTreeMap, BTreeSet};

/// A whole site.
#[derive(Debug, Clone, Default)]
pub struct Publication {
    /// Title of the site.
    pub title: String,
    /// One sentence about it.
    pub description: String,
    /// Who writes it, if they say.
    pub author: Option<String>,
    /// Address of the repository, if there is one.
    pub repository: Option<String>,
    /// Revision of the workspace's texts, if it is under version control.
    pub revision: Option<String>,
    /// Experiments, in order of their slug.
    pub experiments: Vec<ExperimentInput>,
    /// Rows made elsewhere that no experiment's page shows, in order of their slug.
    pub imports: Vec<ImportInput>,
    /// Claims, in order of their id.
    pub claims: Vec<ClaimInput>,
    /// Every derivation, in order of scope and id.
    pub derivations: Vec<DerivationInput>,
    /// Every printed number, keyed by its address such as `derive:demo.delta.low`.
    pub numbers: BTreeMap<String, NumberInput>,
    /// What the audit found.
    pub audit: AuditInput,
    /// Every address with each text that the audit saw printed for it: a page may print nothing else. `None`
    /// where nobody says (a publication made by hand).
    pub judged: Option<BTreeSet<(String, String)>>,
    /// The estimators, for the method page.
    pub method: Vec<EstimatorInput>,
    /// How often each interval held the truth in simulations, for the method page.
    pub coverage: Vec<CoverageInput>,
    /// Why the site must not be built, if it must not: audit mismatches, broken hashes, unbound numbers in cards.
    pub refusals: Vec<String>,
}

/// What intervals did in simulated data sets of one population and size, for one resampling unit.
#[derive(Debug, Clone, Default)]
pub struct CoverageInput {
    /// The population, such as `solve rates`.
    pub scenario: String,
    /// Whether the default is meant to hold its level there from ten tasks on.
    pub interior: bool,
    /// Tasks.
    pub tasks: usize,
    /// Attempts of each arm at a task.
    pub attempts: usize,
    /// Training seeds, where there are any.
    pub training_seeds: Option<usize>,
    /// What was resampled or counted: `tasks`, `clusters`, `tasks × training seeds`.
    pub unit: String,
    /// Simulated data sets.
    pub data_sets: usize,
    /// Coverage by interval: default, t, expanded percentile, percentile; `None` where it is not on offer.
    pub coverage: [Option<f64>; 4],
    /// Share of data sets in which the default is defined.
    pub defined: f64,
    /// Share of data sets that carry a warning.
    pub flagged: f64,
    /// The same of the data sets in which the default missed; `None` where it never did.
    pub flagged_of_missed: Option<f64>,
}

/// One number that pages print.
#[derive(Debug, Clone)]
pub struct NumberInput {
    /// Its address, `derive:<scope>.<id>[/<row>][.<part>]`.
    pub reference: String,
    /// The derivation it belongs to: scope and id.
    pub scope: String,
    /// Derivation id.
    pub id: String,
    /// Row label, for a table.
    pub row: Option<String>,
    /// Part, such as `value` or `low`.
    pub part: String,
    /// The value.
    pub value: Number,
    /// As text in the derivation's format (or a sensible one), `—` when undefined.
    pub text: String,
    /// The interval around the same result, as text `[low, high]`, when there is one and this is the value part.
    pub interval: Option<String>,
    /// `n` as text with its unit, such as `160 tasks`.
    pub n: Option<String>,
    /// Method of the interval, in words.
    pub method: Option<String>,
    /// Flags beside it.
    pub warnings: Vec<Warning>,
    /// The audit's verdict.
    pub verdict: Verdict,
    /// Why, when it is not a match.
    pub reason: Option<String>,
}

/// A text in Markdown with `[printed](derive:…)` links.
pub type Marked = String;

/// An experiment's page.
#[derive(Debug, Clone, Default)]
pub struct ExperimentInput {
    /// Folder name; also the page's address.
    pub slug: String,
    /// Title.
    pub title: String,
    /// One line under it.
    pub tagline: String,
    /// `planned`, `in progress`, `finished`, `stopped`, `superseded`, `retracted`.
    pub lifecycle: String,
    /// `positive`, `negative`, `inconclusive`, `design-negative`, `instrument-only`.
    pub verdict: Option<String>,
    /// The harvest was too small to train on.
    pub starved: bool,
    /// First day, `YYYY-MM-DD`.
    pub started: Option<String>,
    /// Last day.
    pub ended: Option<String>,
    /// Tags.
    pub tags: Vec<String>,
    /// Programs.
    pub programs: Vec<String>,
    /// The plain-language block: idea, question, found, matters.
    pub plain: Option<[Marked; 4]>,
    /// Headline cards.
    pub cards: Vec<CardInput>,
    /// Figures.
    pub figures: Vec<FigureInput>,
    /// Body of the report, Markdown.
    pub report: Marked,
    /// Path of the report relative to the workspace.
    pub report_path: String,
    /// Numbers in report and log that no derivation stands behind.
    pub unbound: usize,
    /// The log, oldest first.
    pub log: Vec<LogInput>,
    /// Corrections and deviations: date, kind, text.
    pub corrections: Vec<(String, String, Marked)>,
    /// How to reproduce: label and command.
    pub reproduce: Vec<(String, String)>,
    /// Locked sections of the plan.
    pub locks: Vec<LockInput>,
    /// Amendments: date and text.
    pub amendments: Vec<(String, String)>,
    /// The decision, once made.
    pub decision: Option<DecisionInput>,
    /// Rescores under repaired verifiers, the first one first.
    pub rescores: Vec<RescoreInput>,
    /// Arms and how they are prompted and decoded: name and description in words.
    pub arms: Vec<(String, String)>,
    /// Episodes there are of those planned, by arm: name, there, planned.
    pub coverage: Vec<(String, usize, usize)>,
    /// Data files.
    pub files: Vec<FileInput>,
    /// Claims that cite it, by id.
    pub cited_by: Vec<String>,
    /// `deployable`, or `oracle` when some evidence is.
    pub evidence: String,
}

/// A headline card.
#[derive(Debug, Clone, Default)]
pub struct CardInput {
    /// What it is.
    pub label: String,
    /// The value, a template over numbers.
    pub value: Marked,
    /// A remark.
    pub note: Marked,
}

/// A figure and its texts.
#[derive(Debug, Clone)]
pub struct FigureInput {
    /// Id within the experiment.
    pub id: String,
    /// Title.
    pub title: Marked,
    /// How to read it.
    pub how_to_read: Marked,
    /// What to take from it.
    pub takeaway: Marked,
    /// Technical framing.
    pub technical: Marked,
    /// What is drawn.
    pub chart: ChartInput,
    /// Derivations behind it, `<scope>.<id>`.
    pub derivations: Vec<String>,
    /// Files behind it: path, SHA-256, rows used, rows in all.
    pub sources: Vec<(String, String, usize, usize)>,
    /// Worst verdict of all its numbers, and how many there are.
    pub verdict: Verdict,
    /// How many numbers it shows.
    pub numbers: usize,
    /// Caption: what n is, which intervals.
    pub caption: String,
}

/// The data of a chart.
#[derive(Debug, Clone)]
pub enum ChartInput {
    /// Paired deltas with intervals.
    Forest {
        /// Rows in groups: heading and rows.
        groups: Vec<(String, Vec<EstimateInput>)>,
        /// All together.
        pooled: Option<EstimateInput>,
        /// The smallest gain that counts.
        bar: Option<f64>,
    },
    /// Each task's score in both arms.
    Slope {
        /// Name of the left arm.
        left: String,
        /// Name of the right arm.
        right: String,
        /// Tasks that both arms have.
        tasks: Vec<TaskInput>,
    },
}

/// One row of a forest.
#[derive(Debug, Clone, PartialEq)]
pub struct EstimateInput {
    /// Row label.
    pub label: String,
    /// A qualifier, such as `held out`.
    pub note: String,
    /// Estimate.
    pub value: Number,
    /// Lower end.
    pub low: Number,
    /// Upper end.
    pub high: Number,
    /// Number of tasks.
    pub n: Option<f64>,
}

/// One task of a slope chart.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskInput {
    /// Task id.
    pub task: String,
    /// Group, such as its family.
    pub group: String,
    /// Score in the left arm.
    pub left: f64,
    /// Score in the right arm.
    pub right: f64,
}

/// A log entry.
#[derive(Debug, Clone, Default)]
pub struct LogInput {
    /// `YYYY-MM-DD`.
    pub date: String,
    /// Heading.
    pub title: String,
    /// Markdown.
    pub body: Marked,
}

/// A locked section.
#[derive(Debug, Clone, Default)]
pub struct LockInput {
    /// `harvest`, `train` or `evaluate`.
    pub stage: String,
    /// SHA-256 of its canonical JSON.
    pub sha256: String,
    /// When.
    pub locked_at: String,
    /// The section, as indented JSON.
    pub section: String,
}

/// The decision and its legs.
#[derive(Debug, Clone, Default)]
pub struct DecisionInput {
    /// `positive`, `negative` or `inconclusive`.
    pub outcome: String,
    /// Question, value, bar, whether it holds (`None`: undefined).
    pub legs: Vec<(String, String, String, Option<bool>)>,
    /// Of the legs that a positive outcome needs: how many hold, and how many there are.
    pub for_positive: (usize, usize),
    /// Evaluation events that drew tasks from the same file; `None` where tasks are made from seeds.
    pub looks: Option<usize>,
}

/// A new version of the rows under a repaired verifier.
#[derive(Debug, Clone, Default)]
pub struct RescoreInput {
    /// From 1.
    pub number: u64,
    /// `YYYY-MM-DD`.
    pub date: String,
    /// What changed, by family.
    pub families: Vec<RescoreFamily>,
    /// Outcome of the decision before and after, where it changed.
    pub outcomes: Option<(String, String)>,
    /// Where the replaced files lie, relative to the experiment's folder.
    pub superseded: Vec<String>,
}

/// A family of a rescore.
#[derive(Debug, Clone, Default)]
pub struct RescoreFamily {
    /// Its name.
    pub family: String,
    /// Rows judged again.
    pub episodes: usize,
    /// Rows that are judged otherwise.
    pub changed: usize,
    /// Solved before and after.
    pub solved: (usize, usize),
}

/// A data file and its first rows.
#[derive(Debug, Clone, Default)]
pub struct FileInput {
    /// Path relative to the experiment's folder.
    pub path: String,
    /// Where it lies, to be copied into the site.
    pub source: std::path::PathBuf,
    /// SHA-256.
    pub sha256: String,
    /// Size.
    pub bytes: u64,
    /// Rows in all.
    pub rows: usize,
    /// Columns: name, type in words, doc string.
    pub columns: Vec<(String, String, String)>,
    /// The first rows.
    pub preview: Vec<Vec<Cell>>,
    /// Where imported rows come from.
    pub provenance: Option<ProvenanceInput>,
}

/// A file that says where imported rows come from.
#[derive(Debug, Clone, Default)]
pub struct ProvenanceInput {
    /// Path relative to the data set's folder.
    pub path: String,
    /// Where it lies, to be copied into the site.
    pub source: std::path::PathBuf,
    /// SHA-256.
    pub sha256: String,
    /// Rows without a reward, where the file says how many.
    pub null_rewards: Option<usize>,
    /// What each source file says of itself and of what became of it: name, SHA-256, and labels with values.
    pub sources: Vec<(String, String, Vec<(String, String)>)>,
}

/// Rows made elsewhere, without an experiment's page.
#[derive(Debug, Clone, Default)]
pub struct ImportInput {
    /// Folder name; also the page's address.
    pub slug: String,
    /// Files of rows.
    pub files: Vec<FileInput>,
    /// Claims whose evidence was worked out from them, by id.
    pub cited_by: Vec<String>,
}

/// A change of a claim's status.
#[derive(Debug, Clone, Default)]
pub struct ChangeInput {
    /// When.
    pub date: String,
    /// The status from then on.
    pub status: String,
    /// Addresses of the evidence.
    pub evidence: Vec<String>,
    /// Addresses of what speaks against it.
    pub against: Vec<String>,
}

/// A claim's page.
#[derive(Debug, Clone, Default)]
pub struct ClaimInput {
    /// `C0001`.
    pub id: String,
    /// Statement in one line.
    pub title: String,
    /// `proposed`, `promising`, `confirmed`, `contested`, `refuted`, `retired`.
    pub status: String,
    /// `tasks` or `tasks-x-train-seeds`.
    pub population: String,
    /// Changes of its status, oldest first.
    pub history: Vec<ChangeInput>,
    /// Experiments it rests on.
    pub experiments: Vec<String>,
    /// Rows made elsewhere that it rests on, by slug.
    pub imports: Vec<String>,
    /// What it is limited to, in words.
    pub scope: Option<String>,
    /// The claim it supersedes.
    pub supersedes: Option<String>,
    /// Claims that cannot hold where it does.
    pub contradicts: Vec<String>,
    /// Markdown.
    pub body: Marked,
    /// Its evidence that are paired deltas, for a forest.
    pub forest: Vec<EstimateInput>,
    /// Path relative to the workspace.
    pub path: String,
}

/// A derivation's page.
#[derive(Debug, Clone)]
pub struct DerivationInput {
    /// Experiment or claim.
    pub scope: String,
    /// Id within it.
    pub id: String,
    /// The recipe in words, one sentence each.
    pub recipe: Vec<String>,
    /// The recipe as TOML.
    pub toml: String,
    /// Estimator: id, formula, source of the method.
    pub estimator: String,
    /// Formula in plain text.
    pub formula: String,
    /// Source of the method.
    pub method_source: String,
    /// DuckDB SQL for the point value, when the estimator has one; its paths start in the site's folder.
    pub sql: Option<String>,
    /// Results: row label (`None` for all rows) and its parts by name, each a key into `numbers` or a text.
    pub results: Vec<(Option<String>, Vec<(String, String)>)>,
    /// Flags.
    pub warnings: Vec<Warning>,
    /// Files: path, SHA-256, rows used, rows in all.
    pub sources: Vec<(String, String, usize, usize)>,
    /// Printed places and verdicts of its numbers.
    pub audit: Vec<AuditEntry>,
    /// Worst verdict.
    pub verdict: Verdict,
}

/// One line of the audit.
#[derive(Debug, Clone)]
pub struct AuditEntry {
    /// `file:line`.
    pub place: String,
    /// Address.
    pub reference: String,
    /// As printed.
    pub printed: String,
    /// As recomputed, all digits, `—` when undefined.
    pub recomputed: String,
    /// How it fared.
    pub verdict: Verdict,
    /// Why, unless a match.
    pub reason: Option<String>,
}

/// The audit page.
#[derive(Debug, Clone, Default)]
pub struct AuditInput {
    /// Every printed number, mismatches first.
    pub entries: Vec<AuditEntry>,
    /// Broken rules: rule, file, row, detail.
    pub findings: Vec<(String, String, Option<usize>, String)>,
    /// Files whose hash was checked.
    pub files_checked: usize,
    /// Rows whose chain was checked.
    pub rows_checked: usize,
}

/// An estimator of the registry.
#[derive(Debug, Clone, Default)]
pub struct EstimatorInput {
    /// Id, as in `estimator = "…"`.
    pub id: String,
    /// Name.
    pub title: String,
    /// Formula in plain text.
    pub formula: String,
    /// Where the method comes from.
    pub source: String,
    /// Parts it gives.
    pub parts: Vec<String>,
}
