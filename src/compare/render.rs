//! The comparison as text for a terminal: one plain sentence that answers, a small table, what
//! limits it, and two small plots. No line is wider than asked for.

use super::result::{ArmSummary, Comparison};
use super::rows::shown;
use super::wrap::{flow, wrapped};
use super::{notes, plot};
use crate::stats::rounding::fixed;
use crate::stats::sign_flip::Road;
use crate::stats::{Method, Population, SAME, counted};
use std::collections::BTreeMap;

const BOLD: &str = "\u{1b}[1m";
const DIM: &str = "\u{1b}[2m";
const YELLOW: &str = "\u{1b}[33m";

/// Fewer degrees of freedom than this, and the normal approximation promises visibly more power than there is.
const FEW_FOR_POWER: f64 = 20.0;

impl Comparison {
    /// The text, in lines of at most `width` characters (40 to 140); colour only where asked for.
    pub fn render(&self, width: usize, colour: bool) -> String {
        let width = width.clamp(40, 140);
        let paint = |code: &str, text: &str| {
            if colour { format!("{code}{text}\u{1b}[0m") } else { text.to_owned() }
        };
        let mut out = String::new();
        for line in wrapped("", &self.sentence(), 0, width) {
            out.push_str(&paint(BOLD, &line));
            out.push('\n');
        }
        out.push('\n');
        for line in self.table(width).into_iter().chain([String::new()]).chain(self.facts(width)) {
            out.push_str(&line);
            out.push('\n');
        }
        for (heading, entries) in notes::sections(&self.warnings) {
            let tone = if heading == "warnings" { YELLOW } else { DIM };
            out.push('\n');
            out.push_str(&paint(tone, heading));
            out.push('\n');
            for line in entries.iter().flat_map(|text| wrapped("  ", text, 4, width)) {
                out.push_str(&paint(tone, &line));
                out.push('\n');
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
                let seeds = counted(self.n_training_seeds, "training seed");
                format!("{} and {seeds}", counted(self.paired_tasks, "task"))
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
                    // Where few units differ, the interval knows less than the test.
                    let doubt = match self.sign_flip_p {
                        Some(p) if p >= 0.05 => format!(
                            " But the sign-flip test gives p = {}, so chance alone may do it.",
                            fixed(p, 3, false)
                        ),
                        _ => String::new(),
                    };
                    format!(
                        "`{treatment}` scores {verb} than `{base}`: {delta} over {over} ({means}), {interval}.{doubt}"
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

    /// Means of the arms, and the difference with its intervals.
    fn table(&self, width: usize) -> Vec<String> {
        let arms = [&self.base, &self.treatment];
        let names = arms.map(|a| shown(&a.name));
        // The means are over the paired tasks, whatever else an arm ran.
        let tasks = arms.map(|a| match a.tasks == self.paired_tasks {
            true => a.tasks.to_string(),
            false => format!("{} of {}", self.paired_tasks, a.tasks),
        });
        let scored = arms.map(|a| format!("{}/{}", a.n_scored, a.n_planned));
        let widest = |texts: &[String], least: usize| {
            texts.iter().map(|t| t.chars().count()).max().unwrap_or(0).max(least)
        };
        let (of_tasks, of_scored) = (widest(&tasks, 5), widest(&scored, 6));
        let numbers = of_tasks + of_scored + 13;
        let label = widest(&names, 10).min(width.saturating_sub(numbers).clamp(10, 24));
        let mut lines =
            vec![format!("{:label$}  {:>7}  {:>of_tasks$}  {:>of_scored$}", "", "mean", "tasks", "scored")];
        for ((name, arm), (tasks, scored)) in names.iter().zip(arms).zip(tasks.iter().zip(&scored)) {
            let mean = fixed(arm.mean, 3, false);
            // A name too long for its column has lines of its own.
            let beside = if name.chars().count() <= label {
                name.as_str()
            } else {
                lines.extend(wrapped("", name, 2, width));
                ""
            };
            lines.push(format!("{beside:label$}  {mean:>7}  {tasks:>of_tasks$}  {scored:>of_scored$}"));
        }
        let unit = if self.cluster == "family" { "families" } else { "tasks" };
        let t = match self.ci_t.df {
            Some(df) => {
                let df = fixed(df, 0, false);
                format!("t, {df} {} of freedom", if df == "1" { "degree" } else { "degrees" })
            }
            None => "t".into(),
        };
        let method = match self.ci.method {
            Some(Method::ExpandedPercentile) => format!("expanded percentile bootstrap of whole {unit}"),
            Some(Method::ExpandedPercentileMultinomial) => {
                "expanded percentile bootstrap, drawn as counts".into()
            }
            Some(Method::T) => t.clone(),
            Some(Method::Identical) => "both arms wrote the same tokens".into(),
            None => self.undefined.get("ci").cloned().unwrap_or_default(),
        };
        let mut interval = |name: &str, delta: &str, ends: String, method: &str| {
            let before = format!("{name:label$}  {delta:>7}  95%  {ends}");
            let beside = before.chars().count() + 2;
            if beside + method.chars().count() <= width || beside + 30 <= width {
                lines.extend(wrapped(&format!("{before}  "), method, beside, width));
            } else {
                lines.push(before);
                let indent = label + 11;
                lines.extend(wrapped(&" ".repeat(indent), method, indent, width));
            }
        };
        interval("difference", &fixed(self.delta, 3, true), ends(self.ci.low, self.ci.high), &method);
        // Without a spread the t interval has no width, and says nothing beside the reason.
        let headline = self.ci.method.is_some_and(|m| m != Method::T);
        if headline && self.ci_t.low.is_some() {
            interval("", "", ends(self.ci_t.low, self.ci_t.high), &t);
        }
        lines.iter().map(|l| l.trim_end().to_owned()).collect()
    }

    /// Tests and other numbers, a label and a value each.
    fn facts(&self, width: usize) -> Vec<String> {
        const LABEL: usize = 30;
        let mut lines = Vec::new();
        let mut fact = |label: &str, parts: &[String]| {
            let parts = parts.iter().map(String::as_str);
            lines.extend(flow(&format!("{label:<LABEL$}"), parts, "   ", LABEL, width));
        };
        let road = match self.sign_flip_method {
            Some(Road::Random) => " (random flips)",
            Some(Road::Lattice | Road::Enumeration) => " (exact)",
            None => "",
        };
        fact("sign-flip p", &[format!("{}{road}", p_value(self.sign_flip_p))]);
        if let Some(m) = &self.mcnemar {
            let counts = [
                ("gained", m.treatment_only),
                ("lost", m.base_only),
                ("both", m.both),
                ("neither", m.neither),
            ];
            let counts = counts.map(|(what, n)| format!("{what} {n}"));
            let parts: Vec<String> = [p_value(Some(m.p))].into_iter().chain(counts).collect();
            fact("McNemar p (exact)", &parts);
        }
        let power = match (self.mde, self.ci_t.df) {
            (None, _) => "",
            (Some(_), Some(df)) if df < FEW_FOR_POWER => " with 80% power at most, the units being few",
            _ => " with 80% power",
        };
        fact("smallest detectable effect", &[format!("{}{power}", number(self.mde, 3))]);
        if let Some(share) = self.rollout_share {
            let better = if share > 0.5 { "more attempts at each task" } else { "more tasks" };
            let percent = fixed(100.0 * share, 0, false);
            fact(
                "uncertainty from attempts",
                &[format!("{percent}%: {better} would narrow the interval most")],
            );
        }
        let differ = if self.nonzero_differences == 1 { "task that differs" } else { "tasks that differ" };
        fact(differ, &[format!("{} of {}", self.nonzero_differences, self.paired_tasks)]);
        if let Some(worst) = self.worst_case {
            let range = format!("{} to {}", fixed(worst.low, 3, true), fixed(worst.high, 3, true));
            fact("if all missing went one way", &[range]);
        }
        for (name, label, by_k) in [
            ("pass@k", "pass@k, all tasks of each arm", &self.pass_at_k),
            ("best of k", "best of k, all tasks of each", &self.best_at_k),
        ] {
            let parts = [1usize, 2, 4, 8, 16].into_iter().filter_map(|k| {
                let at = |arm: &BTreeMap<usize, Option<f64>>| arm.get(&k).copied().flatten();
                let (base, treatment) = (at(&by_k.base)?, at(&by_k.treatment)?);
                let repeats = |arm: &ArmSummary, value: f64| (arm.mean - value).abs() <= SAME;
                if name == "best of k"
                    && k == 1
                    && repeats(&self.base, base)
                    && repeats(&self.treatment, treatment)
                {
                    return None;
                }
                Some(format!("k={k} {} → {}", fixed(base, 3, false), fixed(treatment, 3, false)))
            });
            let parts: Vec<String> = parts.collect();
            if !parts.is_empty() {
                fact(label, &parts);
            }
        }
        lines
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
