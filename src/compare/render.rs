//! The comparison as text for a terminal: one plain sentence that answers, a small table, what
//! limits it, and two small plots.

use super::plot;
use super::result::Comparison;
use super::rows::shown;
use crate::stats::rounding::fixed;
use crate::stats::sign_flip::Road;
use crate::stats::{Method, Population};

const BOLD: &str = "\u{1b}[1m";
const DIM: &str = "\u{1b}[2m";
const YELLOW: &str = "\u{1b}[33m";

impl Comparison {
    /// The text, in lines of about `width` characters; colour only where asked for.
    pub fn render(&self, width: usize, colour: bool) -> String {
        let width = width.clamp(40, 100);
        let paint = |code: &str, text: &str| {
            if colour { format!("{code}{text}\u{1b}[0m") } else { text.to_owned() }
        };
        let mut out = String::new();
        for line in wrapped(&self.sentence(), width, "") {
            out.push_str(&paint(BOLD, &line));
            out.push('\n');
        }
        out.push('\n');
        for line in self.table() {
            out.push_str(&line);
            out.push('\n');
        }
        if !self.warnings.is_empty() {
            out.push('\n');
            for w in &self.warnings {
                let text = format!("{}: {}", w.code, w.text);
                for line in wrapped(&text, width.saturating_sub(2), "  ") {
                    out.push_str(&paint(YELLOW, &line));
                    out.push('\n');
                }
            }
        }
        let mut plot = |title: &str, lines: Vec<String>| {
            out.push('\n');
            out.push_str(&paint(DIM, title));
            out.push('\n');
            for line in lines {
                out.push_str("  ");
                out.push_str(&line);
                out.push('\n');
            }
        };
        if let (Some(low), Some(high)) = (self.ci.low, self.ci.high) {
            plot("difference against zero", plot::interval(low, high, self.delta, width.saturating_sub(2)));
        }
        plot("tasks by difference", plot::histogram(&self.differences, width.saturating_sub(2)));
        out
    }

    /// The answer in one sentence.
    fn sentence(&self) -> String {
        let (base, treatment) = (shown(&self.base.name), shown(&self.treatment.name));
        let over = match self.population {
            Population::Tasks if self.paired_tasks == 1 => "the one task that both ran".to_owned(),
            Population::Tasks => format!("{} tasks that both ran", self.paired_tasks),
            Population::TasksTimesTrainSeeds => {
                format!("{} tasks and {} training seeds", self.paired_tasks, self.n_training_seeds)
            }
        };
        let means =
            format!("{} against {}", fixed(self.treatment.mean, 3, false), fixed(self.base.mean, 3, false));
        let delta = fixed(self.delta, 3, true);
        match (self.ci.low, self.ci.high) {
            (Some(low), Some(high)) => {
                let interval = format!("95% interval {} to {}", fixed(low, 3, true), fixed(high, 3, true));
                if low > 0.0 || high < 0.0 {
                    let verb = if low > 0.0 { "higher" } else { "lower" };
                    format!(
                        "`{treatment}` scores {verb} than `{base}`: {delta} over {over} ({means}), {interval}."
                    )
                } else {
                    format!(
                        "These rows do not tell `{treatment}` from `{base}`: {delta} over {over} ({means}), and the {interval} includes zero."
                    )
                }
            }
            _ => {
                let why = self.undefined.get("ci").map_or("it is undefined", String::as_str);
                format!(
                    "`{treatment}` minus `{base}` is {delta} over {over} ({means}), without an interval: {why}."
                )
            }
        }
    }

    fn table(&self) -> Vec<String> {
        let names = [shown(&self.base.name), shown(&self.treatment.name)];
        let wide = names.iter().map(|n| n.chars().count()).max().unwrap_or(0).max(10);
        let mut lines = vec![format!("{:wide$}  {:>7}  {:>6}  {:>13}", "", "mean", "tasks", "scored")];
        for (name, arm) in names.iter().zip([&self.base, &self.treatment]) {
            let scored = format!("{}/{}", arm.n_scored, arm.n_planned);
            lines.push(format!(
                "{name:wide$}  {:>7}  {:>6}  {scored:>13}",
                fixed(arm.mean, 3, false),
                arm.tasks
            ));
        }
        let unit = if self.cluster == "family" { "families" } else { "tasks" };
        let method = match self.ci.method {
            Some(Method::ExpandedPercentile) => format!("expanded percentile bootstrap of whole {unit}"),
            Some(Method::ExpandedPercentileMultinomial) => {
                "expanded percentile bootstrap, drawn as counts".into()
            }
            Some(Method::T) => format!("t, {} degrees of freedom", number(self.ci_t.df, 0)),
            Some(Method::Identical) => "both arms wrote the same tokens".into(),
            None => self.undefined.get("ci").cloned().unwrap_or_default(),
        };
        lines.push(format!(
            "{:wide$}  {:>7}  95%  {}  {method}",
            "difference",
            fixed(self.delta, 3, true),
            ends(self.ci.low, self.ci.high)
        ));
        if self.ci.method != Some(Method::T) {
            let df = number(self.ci_t.df, 0);
            lines.push(format!(
                "{:wide$}  {:>7}  95%  {}  t, {df} degrees of freedom",
                "",
                "",
                ends(self.ci_t.low, self.ci_t.high)
            ));
        }
        lines.push(String::new());
        let road = match self.sign_flip_method {
            Some(Road::Random) => " (random flips)",
            Some(Road::Lattice | Road::Enumeration) => " (exact)",
            None => "",
        };
        let mut fact = |label: &str, text: String| lines.push(format!("{label:<28}{text}"));
        fact("sign-flip p", format!("{}{road}", p_value(self.sign_flip_p)));
        if let Some(m) = &self.mcnemar {
            fact(
                "McNemar p (exact)",
                format!(
                    "{}  gained {}, lost {}, both {}, neither {}",
                    p_value(Some(m.p)),
                    m.treatment_only,
                    m.base_only,
                    m.both,
                    m.neither
                ),
            );
        }
        fact("smallest detectable effect", number(self.mde, 3));
        fact("tasks that differ", format!("{} of {}", self.nonzero_differences, self.paired_tasks));
        if let Some(worst) = self.worst_case {
            fact(
                "if all missing went one way",
                format!("{} to {}", fixed(worst.low, 3, true), fixed(worst.high, 3, true)),
            );
        }
        for (label, by_k) in [("pass@k", &self.pass_at_k), ("best of k", &self.best_at_k)] {
            let shown = [1usize, 2, 4, 8, 16].into_iter().filter_map(|k| {
                let at =
                    |arm: &std::collections::BTreeMap<usize, Option<f64>>| arm.get(&k).copied().flatten();
                let (base, treatment) = (at(&by_k.base)?, at(&by_k.treatment)?);
                Some(format!("k={k} {} → {}", fixed(base, 3, false), fixed(treatment, 3, false)))
            });
            let text = shown.collect::<Vec<_>>().join("   ");
            if !text.is_empty() {
                fact(label, text);
            }
        }
        lines.iter().map(|l| l.trim_end().to_owned()).collect()
    }
}

/// A number, or a dash where it is undefined.
fn number(value: Option<f64>, decimals: u32) -> String {
    value.map_or_else(|| "—".into(), |v| fixed(v, decimals, false))
}

fn ends(low: Option<f64>, high: Option<f64>) -> String {
    match (low, high) {
        (Some(low), Some(high)) => format!("{} to {}", fixed(low, 3, true), fixed(high, 3, true)),
        _ => "—".into(),
    }
}

fn p_value(p: Option<f64>) -> String {
    match p {
        Some(p) if p < 0.0001 => "below 0.0001".into(),
        other => number(other, 4),
    }
}

/// Lines of at most `width` characters, broken at spaces; continuations start with `indent`.
fn wrapped(text: &str, width: usize, indent: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.trim().is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut line, indent.to_owned()));
        } else if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}
