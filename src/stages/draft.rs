//! First drafts of an experiment's texts: report, log and claim, with every number an empty
//! link that `fill` writes. A file that exists is never overwritten.

use super::receipts::{DecisionReceipt, HarvestReceipt, HeadroomReceipt};
use super::{Experiment, list};
use crate::claims::number::{self, Style};
use crate::error::{Error, Result};
use crate::experiment::receipts;
use crate::hash::write_atomic;
use crate::stats::decision::Outcome;
use std::path::{Path, PathBuf};

/// File in the root of a demo's workspace: `quick` or `full`.
pub const DEMO_MARKER: &str = ".rederive-demo";
/// The plan that `new` starts from.
pub const PLAN: &str = include_str!("../../templates/new/experiment.toml");
const EPISODES: &str = include_str!("../../templates/new/derivations.toml");
const HARVEST: &str = include_str!("../../templates/new/harvest.toml");
const TRAINING: &str = include_str!("../../templates/new/training.toml");

/// How far the experiment got: what its texts can speak of.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// Nothing has run yet.
    Planned,
    /// The harvest kept too little; nothing was trained.
    Starved(String),
    /// A gate found that the plan could not succeed.
    NoHeadroom,
    /// It was decided; `few` when too few tasks moved for an interval to be trusted.
    Decided {
        /// By the plan's rule.
        outcome: Outcome,
        /// Fewer tasks moved than an interval needs.
        few: bool,
    },
}

impl Ending {
    /// Read from the experiment's receipts.
    pub fn of(experiment: &Experiment) -> Result<Ending> {
        if let Some(receipt) = receipts::read::<DecisionReceipt>(&experiment.root, "decision")? {
            let few = receipt.decision.moved < crate::stats::FEW_NONZERO;
            return Ok(Ending::Decided { outcome: receipt.decision.outcome, few });
        }
        if let Some(HeadroomReceipt { passed: false, .. }) = receipts::read(&experiment.root, "headroom")? {
            return Ok(Ending::NoHeadroom);
        }
        if let Some(HarvestReceipt { starved: Some(why), .. }) = receipts::read(&experiment.root, "harvest")?
        {
            return Ok(Ending::Starved(why));
        }
        Ok(Ending::Planned)
    }

    /// One word or two for people, such as `inconclusive: starved`.
    pub fn words(&self) -> String {
        match self {
            Ending::Planned => "planned".into(),
            Ending::Starved(_) => "inconclusive: starved".into(),
            Ending::NoHeadroom => "design-negative".into(),
            Ending::Decided { outcome, .. } => outcome.as_str().into(),
        }
    }

    fn lifecycle(&self) -> &'static str {
        match self {
            Ending::Planned => "planned",
            Ending::Starved(_) | Ending::NoHeadroom => "stopped",
            Ending::Decided { .. } => "finished",
        }
    }

    fn verdict(&self) -> Option<&'static str> {
        match self {
            Ending::Planned => None,
            Ending::Starved(_) => Some("inconclusive"),
            Ending::NoHeadroom => Some("design-negative"),
            Ending::Decided { outcome, .. } => Some(outcome.as_str()),
        }
    }
}

/// Starts an experiment: writes the plan under `data/<slug>` and the first texts. Refuses a name
/// that is taken or not made of `a-z`, `0-9` and `-`.
pub fn new_experiment(workspace: &Path, slug: &str, plan: &str) -> Result<Vec<PathBuf>> {
    let word = !slug.is_empty()
        && !slug.starts_with('-')
        && slug.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if !word {
        return Err(Error::invalid(format!("`{slug}` is not a name for an experiment"))
            .hint("use a-z, 0-9 and `-`, such as `commit-an-answer`"));
    }
    if list(workspace)?.iter().any(|known| known == slug) {
        return Err(Error::invalid(format!("experiment `{slug}` exists already"))
            .at(workspace.join("data").join(slug).display())
            .hint("choose another name"));
    }
    let path = crate::experiment::plan::plan_path(workspace, slug);
    crate::experiment::Plan::parse(plan, &path)?;
    write_atomic(&path, plan.as_bytes())?;
    let experiment = Experiment::open(workspace, slug)?;
    let mut written = vec![path];
    written.extend(texts(&experiment, &Ending::Planned)?);
    Ok(written)
}

/// Writes the texts that do not exist yet; returns what was written.
pub fn texts(experiment: &Experiment, ending: &Ending) -> Result<Vec<PathBuf>> {
    let pages = experiment.workspace.join("site").join("experiments").join(&experiment.slug);
    let mut files = vec![
        (experiment.workspace.join("site").join("site.toml"), SITE.to_string()),
        (pages.join("report.md"), report(experiment, ending)),
        (pages.join("log.md"), log(ending)),
    ];
    if let Ending::Decided { outcome, few } = ending {
        let id = next_claim(&experiment.workspace)?;
        if !claimed(experiment)? {
            let name = format!("{id}-{}.md", experiment.slug);
            files.push((
                experiment.workspace.join("claims").join(name),
                claim(experiment, &id, *outcome, *few),
            ));
        }
    }
    let mut written = Vec::new();
    for (path, text) in files {
        if !path.exists() {
            write_atomic(&path, text.as_bytes())?;
            written.push(path);
        }
    }
    Ok(written)
}

/// Stands beside a verdict that rests on very few tasks.
const FEW: &str = " Very few tasks moved at all, too few for an interval of this kind to be trusted, so the verdict rests on little.";

const SITE: &str = "title = \"Research log\"\ndescription = \"Experiments whose every number is recomputed from raw episodes.\"\n";

fn claim_files(workspace: &Path) -> Result<Vec<PathBuf>> {
    let folder = workspace.join("claims");
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for entry in fs_err::read_dir(&folder)? {
        files.push(entry?.path());
    }
    files.sort();
    Ok(files)
}

fn next_claim(workspace: &Path) -> Result<String> {
    let last = claim_files(workspace)?
        .iter()
        .filter_map(|p| p.file_name()?.to_str()?.strip_prefix('C')?.split('-').next()?.parse::<u32>().ok())
        .max()
        .unwrap_or(0);
    Ok(format!("C{:04}", last + 1))
}

fn claimed(experiment: &Experiment) -> Result<bool> {
    let suffix = format!("-{}.md", experiment.slug);
    Ok(claim_files(&experiment.workspace)?.iter().any(|p| p.to_string_lossy().ends_with(&suffix)))
}

/// Which demo made this workspace, if one did.
fn demo_kind(workspace: &Path) -> Option<String> {
    fs_err::read_to_string(workspace.join(DEMO_MARKER)).ok().map(|text| text.trim().to_string())
}

fn toml_string(text: &str) -> String {
    toml::Value::String(text.to_string()).to_string()
}

/// `[](derive:<slug>.<what>)`
fn link(experiment: &Experiment, what: &str) -> String {
    format!("[](derive:{}.{what})", experiment.slug)
}

/// The smallest gain that counts: the one number that the plan gives before anything has run, so
/// that a new experiment's texts pass the checks as they are.
fn bar(experiment: &Experiment) -> String {
    let style = Style { plus: true, ..Style::plain(2) };
    let printed = number::format(experiment.plan.decision.minimum_delta, &style);
    format!("[{printed}](derive:{}.bar)", experiment.slug)
}

fn report(experiment: &Experiment, ending: &Ending) -> String {
    let plan = &experiment.plan;
    let n = |what: &str| link(experiment, what);
    let mut out = String::from("+++\n");
    let mut key = |name: &str, text: &str| out.push_str(&format!("{name} = {}\n", toml_string(text)));
    key("title", &plan.title);
    key("tagline", tagline(ending));
    key("lifecycle", ending.lifecycle());
    if let Some(verdict) = ending.verdict() {
        key("verdict", verdict);
    }
    if matches!(ending, Ending::Starved(_)) {
        out.push_str("starved = true\n");
    }
    let today = crate::clock::today();
    out.push_str(&format!("started = {today}\n"));
    if *ending != Ending::Planned {
        out.push_str(&format!("ended = {today}\n"));
    }
    out.push_str("tags = [\"self-training\", \"LoRA\"]\n");
    if let Some(program) = &plan.program {
        out.push_str(&format!("programs = [{}]\n", toml_string(program)));
    }
    out.push_str("\n[plain]\n");
    for (name, text) in plain(experiment, ending) {
        out.push_str(&format!("{name} = {}\n", toml_string(&text)));
    }
    out.push_str("\n[reproduce]\n");
    let slug = &experiment.slug;
    let full = match demo_kind(&experiment.workspace).as_deref() {
        Some("quick") => "rederive demo --quick".to_string(),
        Some(_) => "rederive demo".to_string(),
        None => {
            ["harvest", "train", "merge", "run"].map(|stage| format!("rederive {stage} {slug}")).join(" && ")
        }
    };
    out.push_str(&format!("full = {}\n", toml_string(&full)));
    for (label, value, note) in cards(experiment, ending) {
        out.push_str(&format!(
            "\n[[cards]]\nlabel = {}\nvalue = {}\nnote = {}\n",
            toml_string(&label),
            toml_string(&value),
            toml_string(&note)
        ));
    }
    if matches!(ending, Ending::Decided { .. } | Ending::Planned) {
        out.push_str(&figures(experiment));
        out.push('\n');
        out.push_str(EPISODES);
        out.push_str(TRAINING);
    }
    out.push_str(if matches!(ending, Ending::Decided { .. } | Ending::Planned) { "" } else { "\n" });
    out.push_str(HARVEST);
    if *ending == Ending::NoHeadroom {
        out.push_str(HEADROOM);
    }
    out.push_str("+++\n");
    out.push_str(&body(experiment, ending, &n));
    out
}

const HEADROOM: &str = "[derivations.calibrated]\ndata = \"episodes\"\nwhere = { event = \"calibrate\" }\nestimator = \"mean\"\nof = \"reward\"\narms = [\"base\"]\nby = \"family\"\nformat = \"0.00\"\n\n";

fn tagline(ending: &Ending) -> &'static str {
    match ending {
        Ending::Planned => "Planned; nothing has run yet",
        Ending::Starved(_) => "The model solved too little of its own homework to learn from",
        Ending::NoHeadroom => "The plan asked for more than the scale has left",
        Ending::Decided { outcome: Outcome::Positive, .. } => {
            "It had the answers, and did not write them down"
        }
        Ending::Decided { outcome: Outcome::Negative, .. } => "Its own answers taught it nothing that counts",
        Ending::Decided { outcome: Outcome::Inconclusive, .. } => "Not enough to say either way",
    }
}

fn plain(experiment: &Experiment, ending: &Ending) -> [(&'static str, String); 4] {
    let shown = experiment.plan.harness.harvest.examples > 0;
    let n = |what: &str| link(experiment, what);
    let found = match ending {
        Ending::Planned => "Nothing yet: the plan is written and waits to be run.".to_string(),
        Ending::Starved(_) => format!(
            "Nothing about training. Of {} samples only {} could be kept, from {} families, and the plan asked for {} from {}.",
            n("samples"), n("kept"), n("kept_families"), n("required_rows"), n("required_families")
        ),
        Ending::NoHeadroom => "Nothing about training: in at least one family the untrained model already scores too near the top for the required gain to fit.".to_string(),
        Ending::Decided { outcome, few } => {
            let lead = match outcome {
                Outcome::Positive => "Yes, for this adapter.",
                Outcome::Negative => "No.",
                Outcome::Inconclusive => "It cannot be said.",
            };
            format!(
                "{lead} On tasks that neither arm had seen, the score went from {} to {}, a change of {} (between {} and {}); on the family kept out of training the change was {}.{}",
                n("base"), n("treatment"), n("delta"), n("delta.low"), n("delta.high"), n("delta_held_out"),
                if *few { FEW } else { "" }
            )
        }
    };
    [
        ("idea", if shown { "A model that is shown how to answer can often do what it fails to do unprompted. Its own correct answers, once checked, can serve as lessons." } else { "A model that answers the same task several times is sometimes right. Its own correct answers, once checked, can serve as lessons." }.into()),
        ("question", if shown { "If a small model is trained on answers it gave itself while it was being shown examples, does it do better when nobody shows it anything?" } else { "If a small model is trained on those of its own answers that a verifier accepted, does it do better on tasks it has not seen?" }.into()),
        ("found", found),
        ("matters", "A score mixes what a model can work out with whether it hands the result in. Lessons from its own verified work can repair the second without teaching the first, and the difference shows in which answers could be read at all.".into()),
    ]
}

fn cards(experiment: &Experiment, ending: &Ending) -> Vec<(String, String, String)> {
    let n = |what: &str| link(experiment, what);
    let card = |label: &str, value: String, note: String| (label.to_string(), value, note);
    let harvest = card(
        "Own answers kept for training",
        format!("{} of {}", n("kept"), n("samples")),
        format!("from {} families, each checked by a verifier", n("kept_families")),
    );
    match ending {
        Ending::Decided { .. } | Ending::Planned => vec![
            card(
                "Score on unseen tasks, bare prompt",
                format!("{} → {}", n("base"), n("treatment")),
                "mean over tasks, from zero to one".into(),
            ),
            card(
                "Change on the same tasks",
                n("delta"),
                format!("the smallest gain that counts, set beforehand: {}", bar(experiment)),
            ),
            card(
                "Change in the family kept out of training",
                n("delta_held_out"),
                format!("trained families: {}", n("delta_trained")),
            ),
            card(
                "Replies without a readable answer",
                format!("{} → {}", n("base_unreadable"), n("treatment_unreadable")),
                "share of all episodes".into(),
            ),
        ],
        Ending::Starved(_) | Ending::NoHeadroom => vec![harvest],
    }
}

fn figures(experiment: &Experiment) -> String {
    let n = |what: &str| link(experiment, what);
    let figure = |id: &str, kind: &str, rest: &str, texts: [(&str, String); 4]| {
        let mut out = format!("\n[[figures]]\nid = \"{id}\"\nkind = \"{kind}\"\n{rest}");
        for (name, text) in texts {
            out.push_str(&format!("{name} = {}\n", toml_string(&text)));
        }
        out
    };
    let forest = figure(
        "paired-deltas",
        "forest",
        "rows = [\"by_family\", \"by_seed\"]\npooled = \"delta\"\nbar = \"bar\"\n",
        [
            ("title", "Change in score, by family and by event".into()),
            ("how_to_read", "One row is one family or one event: both arms answer the same fresh tasks. The mark is treatment minus base, the line its interval. Right of the dashed line the gain is large enough to count. The diamond takes all tasks together.".into()),
            ("takeaway", format!("Over all tasks the score changed by {}, between {} and {}.", n("delta"), n("delta.low"), n("delta.high"))),
            ("technical", "Estimand: the unweighted mean over shared tasks of treatment minus base. Intervals are expanded-percentile paired bootstraps over tasks, t below ten tasks. One training seed: they speak of this adapter, not of the recipe.".into()),
        ],
    );
    let slope = figure(
        "per-task",
        "slope",
        "left = \"base_by_task\"\nright = \"treatment_by_task\"\ngroup_by = \"family\"\n",
        [
            ("title", "Every task, before and after".into()),
            ("how_to_read", "Each line joins one task's score under the base model, left, and after training, right. Tasks with the same two scores share a line; its width and label say how many.".into()),
            ("takeaway", format!("{} attempts went from unsolved to solved, {} the other way.", n("flips.gained"), n("flips.lost"))),
            ("technical", "Greedy decoding, one rollout a task: a task's score is one episode's reward. Tasks are made by their event seed, so no task appears twice.".into()),
        ],
    );
    forest + &slope
}

fn body(experiment: &Experiment, ending: &Ending, n: &dyn Fn(&str) -> String) -> String {
    let harness = match experiment.plan.harness.harvest.examples {
        0 => "Harvest, training and evaluation all use the bare prompt.",
        _ => {
            "The harvest puts worked examples in front of each task as chat turns; training and evaluation use the bare prompt. With the bare prompt this model seldom writes an answer line, so there would be nothing to harvest."
        }
    };
    let identity = "The harness is part of each arm's identity: base and treatment are evaluated in the same one, and the change is a change in that harness.";
    let mut out = format!(
        "\n## Question\n\n{}\n\n## Method\n\nThe base model answers tasks of the training families several times each. A verifier that needs no model accepts or rejects every sample; accepted, terse ones become training rows, with caps by task and by family, and families with few possible answers need several correct samples of one task before any counts. One low-rank adapter is trained on them and merged into the very weights that the base arm runs on. Both arms then answer the same fresh tasks, greedily.\n\n{harness} {identity}\n\n## Results\n\n",
        experiment.plan.title
    );
    match ending {
        Ending::Planned => out.push_str("Pending.\n"),
        Ending::Starved(_) => out.push_str(&format!(
            "Inconclusive: starved. {} samples were drawn and {} kept, from {} families; the plan required {} from {}. The experiment stopped before training, so nothing here speaks for or against it.\n",
            n("samples"), n("kept"), n("kept_families"), n("required_rows"), n("required_families")
        )),
        Ending::NoHeadroom => out.push_str("The headroom gate stopped the run: on the calibration seed at least one family scores so high that the required gain does not fit below the ceiling. The evaluation seeds were not spent on it.\n"),
        Ending::Decided { outcome, few } => out.push_str(&decided(*outcome, *few, n)),
    }
    out.push_str("\n## Limits\n\nOne training seed: the result speaks of this adapter, not of the recipe. The tasks are invented and small, and the family kept out of training is a near neighbour of those in it.\n");
    out
}

fn decided(outcome: Outcome, few: bool, n: &dyn Fn(&str) -> String) -> String {
    let verdict = match outcome {
        Outcome::Positive => "Every leg of the preregistered rule holds: **positive**.",
        Outcome::Negative => "The interval lies below the smallest gain that counts: **negative**.",
        Outcome::Inconclusive => {
            "The preregistered rule is not met, and a gain that counts is not excluded: **inconclusive**."
        }
    };
    let few = if few { FEW } else { "" };
    let mut out = format!(
        "The harvest kept {} of {} samples, from {} families. Training took {} steps over {} tokens; the loss went from {} to {}. All {} weight deltas found their place in the merged checkpoint, and {} of {} canary prompts changed under it.\n\nOn {} paired tasks the mean reward went from {} to {}: a paired change of {}, interval {} to {}. In trained families the change was {}, in the one kept out {}. Replies without a readable answer went from {} to {} of all. {verdict}{few}\n",
        n("kept"),
        n("samples"),
        n("kept_families"),
        n("steps"),
        n("trained_tokens"),
        n("first_loss"),
        n("last_loss"),
        n("matched"),
        n("canaries_changed"),
        n("canaries"),
        n("delta.n"),
        n("base"),
        n("treatment"),
        n("delta"),
        n("delta.low"),
        n("delta.high"),
        n("delta_trained"),
        n("delta_held_out"),
        n("base_unreadable"),
        n("treatment_unreadable")
    );
    if outcome != Outcome::Positive {
        out.push_str(&format!(
            "\nWith this many tasks the smallest change that would be found four times in five is {}. A change below that can hide in this experiment; more tasks, rather than more attempts at each, would narrow the interval.\n",
            n("delta.mde")
        ));
    }
    out
}

fn log(ending: &Ending) -> String {
    let today = crate::clock::today();
    let entry = match ending {
        Ending::Planned => return format!("## {today} — plan written\n\nNothing has run yet.\n"),
        Ending::Starved(why) => format!("Harvested and stopped: {}. Nothing was trained.", words(why)),
        Ending::NoHeadroom => {
            "Harvested, trained and merged; the headroom gate then refused the evaluation.".to_string()
        }
        Ending::Decided { outcome, .. } => format!(
            "Harvested, trained, merged and evaluated in one go. By the rule written down beforehand the outcome is {}.",
            outcome.as_str()
        ),
    };
    format!("## {today} — run\n\n{entry}\n")
}

/// A reason without its figures, which belong in bound links.
fn words(why: &str) -> &str {
    if why.contains("families contributed") {
        "too few families contributed"
    } else {
        "too few rows were kept"
    }
}

fn claim(experiment: &Experiment, id: &str, outcome: Outcome, few: bool) -> String {
    let slug = &experiment.slug;
    let n = |what: &str| link(experiment, what);
    let (title, status) = match outcome {
        Outcome::Positive => (
            "One adapter, trained on the model's own verified answers, raises its score on unseen tasks under the bare prompt",
            "promising",
        ),
        Outcome::Negative => (
            "One adapter, trained on the model's own verified answers, does not raise its score on unseen tasks by an amount that counts",
            if few { "proposed" } else { "promising" },
        ),
        Outcome::Inconclusive => (
            "One adapter, trained on the model's own verified answers, may change its score on unseen tasks; this experiment cannot say",
            "proposed",
        ),
    };
    format!(
        "+++\nid = \"{id}\"\ntitle = \"{title}\"\nstatus = \"{status}\"\npopulation = \"tasks\"\nexperiments = [\"{slug}\"]\n[[history]]\ndate = {}\nstatus = \"{status}\"\nevidence = [\"derive:{slug}.delta\"]\n+++\nThe mean reward went from {} to {}, a paired change of {}, interval {} to {}, over {} tasks that neither arm had seen.\nThe claim is about this adapter and these task families, with one training seed; it says nothing about the recipe.\n",
        crate::clock::today(),
        n("base"),
        n("treatment"),
        n("delta"),
        n("delta.low"),
        n("delta.high"),
        n("delta.n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_experiment_is_drafted_once() {
        let dir = tempfile::tempdir().unwrap();
        let written = new_experiment(dir.path(), "my-try", PLAN).unwrap();
        assert!(written.iter().all(|p| p.exists()) && written.len() == 4);
        assert!(
            new_experiment(dir.path(), "my-try", PLAN).unwrap_err().to_string().contains("exists already")
        );
        assert!(new_experiment(dir.path(), "My Try", PLAN).is_err());
    }

    #[test]
    fn texts_never_overwrite() {
        let dir = tempfile::tempdir().unwrap();
        new_experiment(dir.path(), "a", PLAN).unwrap();
        let report = dir.path().join("site/experiments/a/report.md");
        fs_err::write(&report, "mine").unwrap();
        let experiment = Experiment::open(dir.path(), "a").unwrap();
        let written =
            texts(&experiment, &Ending::Decided { outcome: Outcome::Positive, few: false }).unwrap();
        assert_eq!(fs_err::read_to_string(&report).unwrap(), "mine");
        assert!(written.iter().any(|p| p.ends_with("claims/C0001-a.md")));
        assert!(
            texts(&experiment, &Ending::Decided { outcome: Outcome::Positive, few: false })
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn every_ending_drafts_front_matter_that_parses() {
        let dir = tempfile::tempdir().unwrap();
        new_experiment(dir.path(), "a", PLAN).unwrap();
        let experiment = Experiment::open(dir.path(), "a").unwrap();
        let endings = [Ending::Planned, Ending::Starved("59 rows were kept".into()), Ending::NoHeadroom]
            .into_iter()
            .chain(
                [Outcome::Positive, Outcome::Negative, Outcome::Inconclusive]
                    .map(|outcome| Ending::Decided { outcome, few: outcome == Outcome::Negative }),
            );
        for ending in endings {
            let text = report(&experiment, &ending);
            let front = text.trim_start_matches("+++\n").split("\n+++\n").next().unwrap();
            let value: toml::Table = toml::from_str(front).unwrap_or_else(|e| panic!("{ending:?}: {e}"));
            let known = value["derivations"].as_table().unwrap();
            for used in text.split("(derive:a.").skip(1) {
                let id = used.split([')', '.', '/']).next().unwrap();
                assert!(known.contains_key(id), "{ending:?} uses `{id}`");
            }
        }
    }
}
