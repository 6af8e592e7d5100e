//! Drafted documents put together: front matter, cards, figures and derivations around the wording.

use super::wording::{self, Link};
use super::{Change, DEMO_MARKER, Ending, comparison, rules};
use crate::claims::derivation::Weight;
use crate::claims::number::{self, Style};
use crate::experiment::{Deploy, Plan, Rule};
use crate::stages::Experiment;
use crate::stats::decision::Outcome;
use std::path::Path;

const EPISODES: &str = include_str!("../../../templates/new/derivations.toml");
const HARVEST: &str = include_str!("../../../templates/new/harvest.toml");
const TRAINING: &str = include_str!("../../../templates/new/training.toml");
const HEADROOM: &str = "[derivations.calibrated]\ndata = \"episodes\"\nwhere = { event = \"calibrate\" }\nestimator = \"mean\"\nof = \"reward\"\narms = [\"base\"]\nby = \"family\"\nformat = \"0.00\"\n\n";

/// Which demo made this workspace, if one did.
fn demo_kind(workspace: &Path) -> Option<String> {
    fs_err::read_to_string(workspace.join(DEMO_MARKER)).ok().map(|text| text.trim().to_string())
}

fn toml_string(text: &str) -> String {
    toml::Value::String(text.to_string()).to_string()
}

/// `[](derive:<slug>.<what>)`, but for the bar: the one number that the plan gives before anything has
/// run is printed at once, so that a new experiment's texts pass the checks as they are.
fn link(experiment: &Experiment, what: &str) -> String {
    let style = Style { plus: true, ..Style::plain(2) };
    let printed = match what {
        "bar" => number::format(experiment.plan.decision.bar(), &style),
        _ => String::new(),
    };
    format!("[{printed}](derive:{}.{what})", experiment.slug)
}

/// The report of an experiment that was planned on `started`; what is over ended on `today`.
pub(super) fn report(experiment: &Experiment, ending: &Ending, started: &str, today: &str) -> String {
    let plan = &experiment.plan;
    let n = |what: &str| link(experiment, what);
    let mut out = String::from("+++\n");
    let mut key = |name: &str, text: &str| out.push_str(&format!("{name} = {}\n", toml_string(text)));
    key("title", &plan.title);
    key("tagline", wording::tagline(plan, ending));
    key("lifecycle", ending.lifecycle());
    if let Some(verdict) = ending.verdict() {
        key("verdict", verdict);
    }
    if matches!(ending, Ending::Starved(_)) {
        out.push_str("starved = true\n");
    }
    out.push_str(&format!("started = {started}\n"));
    if !ending.is_open() {
        out.push_str(&format!("ended = {today}\n"));
    }
    let compared = comparison::is_one(plan);
    out.push_str(if compared {
        "tags = [\"comparison\"]\n"
    } else {
        "tags = [\"self-training\", \"LoRA\"]\n"
    });
    if let Some(program) = &plan.program {
        out.push_str(&format!("programs = [{}]\n", toml_string(program)));
    }
    out.push_str("\n[plain]\n");
    for (name, text) in wording::plain(experiment, ending, &n) {
        out.push_str(&format!("{name} = {}\n", toml_string(&text)));
    }
    out.push_str("\n[reproduce]\n");
    let slug = &experiment.slug;
    let full = match demo_kind(&experiment.workspace).as_deref() {
        Some("quick") => "rederive demo --quick".to_string(),
        Some(_) => "rederive demo".to_string(),
        None if compared => {
            match plan.arms.iter().any(|arm| arm.deploy == Deploy::Merged && arm.adapter.is_some()) {
                true => format!("rederive merge {slug} && rederive run {slug}"),
                false => format!("rederive run {slug}"),
            }
        }
        None => {
            ["harvest", "train", "merge", "run"].map(|stage| format!("rederive {stage} {slug}")).join(" && ")
        }
    };
    out.push_str(&format!("full = {}\n", toml_string(&full)));
    for (label, value, note) in wording::cards(experiment, ending, &n) {
        out.push_str(&format!(
            "\n[[cards]]\nlabel = {}\nvalue = {}\nnote = {}\n",
            toml_string(&label),
            toml_string(&value),
            toml_string(&note)
        ));
    }
    out.push_str(&match ending {
        Ending::Starved(_) | Ending::Unchanged | Ending::NoHeadroom | Ending::Killed => "\n".to_string(),
        Ending::Planned | Ending::Underway | Ending::Decided { .. } => {
            let training = if compared { "" } else { TRAINING };
            format!("{}\n{}{training}", figures(experiment, ending, &n), of_plan(&episodes(compared), plan))
        }
    });
    out.push_str(if compared { "" } else { HARVEST });
    if *ending == Ending::NoHeadroom {
        out.push_str(&of_plan(HEADROOM, plan));
    }
    out.push_str(&rules::derivations(plan, ending));
    out.push_str("+++\n");
    out.push_str(&wording::body(experiment, ending, &n));
    out
}

/// The derivations over episodes; without training there are no trained and held-out families to tell apart.
fn episodes(compared: bool) -> String {
    let of_training = |block: &&str| {
        ["[derivations.delta_trained]", "[derivations.delta_held_out]"]
            .iter()
            .any(|name| block.starts_with(name))
    };
    EPISODES.split_inclusive("\n\n").filter(|block| !(compared && of_training(block))).collect()
}

/// Derivations with the plan's own arms, score and weights in place of the usual ones.
fn of_plan(derivations: &str, plan: &Plan) -> String {
    let arm = |i: usize| toml_string(&plan.arms[i].name);
    let metric = &plan.decision.metric;
    let weight = match metric.weight {
        Weight::Task => "",
        Weight::Family => "weight = \"family\"\n",
    };
    // The number that decides is tested against the plan's margin.
    let margin = plan.decision.margin.map_or(String::new(), |margin| format!("margin = {margin}\n"));
    let mut decides = false;
    let line = |line: &str| match line {
        block if block.starts_with('[') => {
            decides = block == "[derivations.delta]";
            format!("{block}\n")
        }
        "of = \"decision.minimum_delta\"" => format!("of = {}\n", toml_string(plan.decision.bar_path())),
        "of = \"reward\"" => format!("of = {}\n", toml_string(&metric.of)),
        "estimator = \"paired_delta\"" => {
            format!("{line}\n{weight}{}", if decides { margin.as_str() } else { "" })
        }
        arms if arms.starts_with("arms = ") => {
            let named = arms.replace("\"base\"", &arm(0)).replace("\"treatment\"", &arm(1));
            format!("{named}\n")
        }
        other => format!("{other}\n"),
    };
    derivations.lines().map(line).collect()
}

fn figures(experiment: &Experiment, ending: &Ending, n: Link) -> String {
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
        wording::forest(experiment, ending, n),
    );
    let slope = figure(
        "per-task",
        "slope",
        "left = \"base_by_task\"\nright = \"treatment_by_task\"\ngroup_by = \"family\"\n",
        wording::slope(experiment, n),
    );
    forest + &slope
}

/// The claim that an outcome supports.
pub(super) fn claim(experiment: &Experiment, id: &str, outcome: Outcome, change: Change) -> String {
    let slug = &experiment.slug;
    let (title, status) = wording::claim(&experiment.plan, outcome, change);
    let title = toml_string(&title);
    // What a margin bears out is cited as the p value of its test.
    let within = match experiment.plan.decision.rule {
        Rule::ThreeWay => String::new(),
        Rule::NonInferiority => format!(", \"derive:{slug}.delta.non_inferiority_p\""),
        Rule::Equivalence => format!(", \"derive:{slug}.delta.equivalence_p\""),
    };
    format!(
        "+++\nid = \"{id}\"\ntitle = {title}\nstatus = \"{status}\"\npopulation = \"tasks\"\nexperiments = [\"{slug}\"]\n[[history]]\ndate = {}\nstatus = \"{status}\"\nevidence = [\"derive:{slug}.delta\"{within}]\n+++\n{}",
        crate::clock::today(),
        wording::argument(experiment, change, &|what| link(experiment, what))
    )
}
