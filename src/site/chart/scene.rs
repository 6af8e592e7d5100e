//! What a chart shows, before any drawing: panels of marks in data space, each with a role and a
//! series, and rules across them. Made from a figure's input, or from a claim's evidence.

use crate::claims::value::Number;
use crate::site::input::{ChartInput, EstimateInput, TaskInput};
use crate::site::number::pending;

/// The kind of drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Paired deltas with intervals, one a row.
    Forest,
    /// A line from each task's base score to its treatment score, in small multiples.
    Slope,
}

/// What a mark stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// One estimate of several.
    Estimate,
    /// All of them together.
    Pooled,
    /// A task that the treatment did better.
    Improved,
    /// A task that the treatment did worse.
    Worsened,
    /// A task with the same score in both.
    Unchanged,
}

impl Role {
    /// The role in one word.
    pub fn word(self) -> &'static str {
        match self {
            Role::Estimate => "estimate",
            Role::Pooled => "pooled",
            Role::Improved => "improved",
            Role::Worsened => "worsened",
            Role::Unchanged => "unchanged",
        }
    }
}

/// Where a mark stands, in the units of the data.
#[derive(Debug, Clone, PartialEq)]
pub enum At {
    /// An estimate and its interval.
    Estimate {
        /// The estimate.
        value: Number,
        /// Lower end.
        low: Number,
        /// Upper end.
        high: Number,
    },
    /// A score in the left and in the right arm.
    Pair {
        /// Left.
        left: f64,
        /// Right.
        right: f64,
    },
}

/// One mark.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// What it stands for.
    pub role: Role,
    /// Colour and shape: 2 treatment, 3 held out.
    pub series: usize,
    /// Its label.
    pub label: String,
    /// A qualifier.
    pub note: String,
    /// Where it stands.
    pub at: At,
    /// How many tasks are behind it.
    pub n: Option<f64>,
}

/// Marks that stand together under a heading.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// The heading; may be empty.
    pub heading: String,
    /// The marks, in order.
    pub marks: Vec<Mark>,
}

impl Panel {
    /// How many marks have a role.
    pub fn count(&self, role: Role) -> usize {
        self.marks.iter().filter(|mark| mark.role == role).count()
    }
}

/// A labelled line across the chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Where.
    pub at: f64,
    /// What it marks.
    pub label: String,
}

/// A chart in data space.
#[derive(Debug, Clone, PartialEq)]
pub struct Scene {
    /// The kind of drawing.
    pub kind: Kind,
    /// Title, plain text.
    pub title: String,
    /// What the axis measures.
    pub axis: String,
    /// Names of the left and the right arm, for a slope chart.
    pub arms: [String; 2],
    /// Panels of marks.
    pub panels: Vec<Panel>,
    /// The row for all marks together.
    pub pooled: Option<Mark>,
    /// The preregistered bar.
    pub bar: Option<Rule>,
}

impl Scene {
    /// The scene of a figure.
    pub fn of(chart: &ChartInput, title: &str) -> Scene {
        match chart {
            ChartInput::Forest { groups, pooled, bar } => Scene::forest(title, groups, pooled.as_ref(), *bar),
            ChartInput::Slope { left, right, tasks } => Scene::slope(title, [left, right], tasks),
        }
    }

    /// A forest of paired deltas.
    pub fn forest(
        title: &str,
        groups: &[(String, Vec<EstimateInput>)],
        pooled: Option<&EstimateInput>,
        bar: Option<f64>,
    ) -> Scene {
        let panels = groups
            .iter()
            .map(|(heading, rows)| Panel {
                heading: heading.clone(),
                marks: rows.iter().map(|row| estimate(row, Role::Estimate)).collect(),
            })
            .collect();
        Scene {
            kind: Kind::Forest,
            title: title.to_string(),
            axis: "treatment minus base".to_string(),
            arms: [String::new(), String::new()],
            panels,
            pooled: pooled.map(|row| estimate(row, Role::Pooled)),
            bar: bar.map(|at| Rule { at, label: "preregistered bar".to_string() }),
        }
    }

    fn slope(title: &str, arms: [&String; 2], tasks: &[TaskInput]) -> Scene {
        let mut panels: Vec<Panel> = Vec::new();
        for task in tasks {
            let role = match task.left.total_cmp(&task.right) {
                std::cmp::Ordering::Less => Role::Improved,
                std::cmp::Ordering::Greater => Role::Worsened,
                std::cmp::Ordering::Equal => Role::Unchanged,
            };
            let mark = Mark {
                role,
                series: 2,
                label: task.task.clone(),
                note: String::new(),
                at: At::Pair { left: task.left, right: task.right },
                n: None,
            };
            // Panels stand in the order in which their groups first occur.
            match panels.iter_mut().find(|panel| panel.heading == task.group) {
                Some(panel) => panel.marks.push(mark),
                None => panels.push(Panel { heading: task.group.clone(), marks: vec![mark] }),
            }
        }
        Scene {
            kind: Kind::Slope,
            title: title.to_string(),
            axis: "score of a task".to_string(),
            arms: arms.map(Clone::clone),
            panels,
            pooled: None,
            bar: None,
        }
    }

    /// Whether there is nothing to draw yet: no mark at all, or only estimates that are pending.
    pub fn is_pending(&self) -> bool {
        self.marks()
            .all(|(_, mark)| matches!(&mark.at, At::Estimate { value, .. } if pending(value).is_some()))
    }

    /// Every mark with its panel's heading, in reading order, the pooled one last.
    pub fn marks(&self) -> impl Iterator<Item = (&str, &Mark)> {
        let own = self.panels.iter().flat_map(|p| p.marks.iter().map(move |m| (p.heading.as_str(), m)));
        own.chain(self.pooled.iter().map(|mark| ("", mark)))
    }
}

fn estimate(row: &EstimateInput, role: Role) -> Mark {
    let held_out = row.note.contains("held out") || row.note.contains("held_out");
    Mark {
        role,
        series: if held_out { 3 } else { 2 },
        label: row.label.clone(),
        note: row.note.replace("held_out", "held out"),
        at: At::Estimate { value: row.value.clone(), low: row.low.clone(), high: row.high.clone() },
        n: row.n,
    }
}
