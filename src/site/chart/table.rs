//! A scene as rows and columns: the table on the page, the CSV, the JSON and the words are all
//! written from here.

use super::scene::{At, Kind, Mark, Role, Scene};
use crate::claims::number::{Style, format, print};
use crate::claims::value::Number;
use crate::site::text::{counted, sentence as sentence_case};
use serde_json::{Value, json};

/// A column.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Name, as in the CSV.
    pub name: &'static str,
    /// Heading on the page.
    pub title: String,
    /// Whether it holds numbers.
    pub numeric: bool,
    /// How its numbers are printed on the page.
    pub style: Style,
}

/// A cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Datum {
    /// Words.
    Text(String),
    /// A number; `None` where it is undefined.
    Number(Option<f64>),
}

impl Datum {
    /// As printed on the page.
    pub fn printed(&self, column: &Column) -> String {
        match self {
            Datum::Text(text) => text.clone(),
            Datum::Number(Some(value)) => format(*value, &column.style),
            Datum::Number(None) => crate::claims::number::UNDEFINED.to_string(),
        }
    }

    fn csv(&self) -> String {
        match self {
            Datum::Text(text) if text.contains([',', '"', '\n', '\r']) => {
                format!("\"{}\"", text.replace('"', "\"\""))
            }
            Datum::Text(text) => text.clone(),
            Datum::Number(Some(value)) => value.to_string(),
            Datum::Number(None) => String::new(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Datum::Text(text) => json!(text),
            Datum::Number(value) => json!(value),
        }
    }
}

/// Rows and columns of a scene.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Columns; the first holds the row's label.
    pub columns: Vec<Column>,
    /// Rows, each as long as `columns`.
    pub rows: Vec<Vec<Datum>>,
}

impl Table {
    /// As CSV with a header, every digit kept, an undefined number empty.
    pub fn csv(&self) -> String {
        let header: Vec<&str> = self.columns.iter().map(|c| c.name).collect();
        let mut out = format!("{}\n", header.join(","));
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(Datum::csv).collect();
            out.push_str(&cells.join(","));
            out.push('\n');
        }
        out
    }
}

/// How a delta is printed in a chart.
pub fn delta_style() -> Style {
    Style { plus: true, ..Style::plain(3) }
}

/// An interval in words and brackets; `None` when an end is undefined.
pub fn interval(low: &Number, high: &Number) -> Option<String> {
    let (low, high) = (low.get()?, high.get()?);
    Some(format!("[{}, {}]", format(low, &delta_style()), format(high, &delta_style())))
}

impl Scene {
    /// The scene's table. A column in which nothing stands is left out.
    pub fn table(&self) -> Table {
        let words =
            |name| Column { name, title: sentence_case(name), numeric: false, style: Style::default() };
        let number = |name, decimals, plus| Column {
            name,
            title: sentence_case(name),
            numeric: true,
            style: Style { plus, ..Style::plain(decimals) },
        };
        let columns = match self.kind {
            Kind::Forest => vec![
                words("row"),
                words("group"),
                words("qualifier"),
                number("delta", 4, true),
                number("low", 4, true),
                number("high", 4, true),
                number("tasks", 0, false),
                words("remark"),
            ],
            Kind::Slope => {
                let [left, right] = self.arms.clone();
                vec![
                    words("task"),
                    words("group"),
                    Column { title: sentence_case(&left), ..number("left", 3, false) },
                    Column { title: sentence_case(&right), ..number("right", 3, false) },
                    words("change"),
                ]
            }
        };
        let rows: Vec<Vec<Datum>> = self.marks().map(|(heading, mark)| row(heading, mark)).collect();
        let kept: Vec<bool> = (0..columns.len())
            .map(|i| {
                rows.iter().any(|row| {
                    !matches!(row.get(i), Some(Datum::Text(t)) if t.is_empty()) && row.get(i).is_some()
                })
            })
            .collect();
        fn keep<T>(items: Vec<T>, kept: &[bool]) -> Vec<T> {
            items.into_iter().zip(kept).filter(|(_, keep)| **keep).map(|(item, _)| item).collect()
        }
        Table { columns: keep(columns, &kept), rows: rows.into_iter().map(|row| keep(row, &kept)).collect() }
    }

    /// The scene as JSON: title, description, axis, rules, columns and rows.
    pub fn json(&self) -> String {
        let table = self.table();
        let value = json!({
            "title": self.title,
            "kind": match self.kind { Kind::Forest => "forest", Kind::Slope => "slope" },
            "description": self.description(),
            "axis": self.axis,
            "arms": self.arms.iter().filter(|arm| !arm.is_empty()).collect::<Vec<_>>(),
            "rules": self.bar.iter().map(|rule| json!({"label": rule.label, "at": rule.at})).collect::<Vec<_>>(),
            "columns": table.columns.iter().map(|c| c.name).collect::<Vec<_>>(),
            "rows": table.rows.iter().map(|row| row.iter().map(Datum::json).collect::<Vec<_>>()).collect::<Vec<_>>(),
        });
        format!("{value:#}\n")
    }

    /// Why rows with a value have no interval, a sentence for each reason.
    pub fn without_interval(&self) -> Vec<String> {
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for (_, mark) in self.marks() {
            if let At::Estimate { value: Number::Defined(_), low: Number::Undefined(why), .. } = &mark.at {
                match reasons.iter_mut().find(|(known, _)| known == why) {
                    Some((_, rows)) => rows.push(&mark.label),
                    None => reasons.push((why, vec![&mark.label])),
                }
            }
        }
        let all = self.marks().count();
        let sentence = |(why, rows): &(&str, Vec<&str>)| {
            let of = if rows.len() == all { String::new() } else { format!(" for {}", rows.join(", ")) };
            format!("Interval undefined{of}: {why}.")
        };
        reasons.iter().map(sentence).collect()
    }

    /// The scene in words, for readers who do not see it.
    pub fn description(&self) -> String {
        match self.kind {
            Kind::Forest => self.forest_description(),
            Kind::Slope => self.slope_description(),
        }
    }

    fn forest_description(&self) -> String {
        let rows = self.panels.iter().map(|p| p.marks.len()).sum();
        let mut words = format!(
            "Forest plot of {}, {}: one dot for each difference between treatment and base, with a line for its interval.",
            counted(rows, "row"),
            self.axis
        );
        if let Some(bar) = &self.bar {
            words.push_str(&format!(
                " A dashed line marks the {} at {}.",
                bar.label,
                format(bar.at, &short_delta(bar.at))
            ));
        }
        for (heading, mark) in self.marks() {
            let place = match (mark.role, heading.is_empty()) {
                (Role::Pooled, _) | (_, true) => String::new(),
                _ => format!("{heading}, "),
            };
            words.push_str(&format!(" {place}{}.", sentence(mark)));
        }
        words
    }

    fn slope_description(&self) -> String {
        let tasks = self.panels.iter().map(|p| p.marks.len()).sum();
        let mut words = format!(
            "Slope chart of {} in {}: each line runs from a task's score under {} to its score under {}.",
            counted(tasks, "task"),
            counted(self.panels.len(), "panel"),
            self.arms[0],
            self.arms[1]
        );
        for panel in &self.panels {
            let heading = if panel.heading.is_empty() { "All tasks" } else { &panel.heading };
            words.push_str(&format!(
                " {heading}: {} improved, {} worsened, {} unchanged.",
                panel.count(Role::Improved),
                panel.count(Role::Worsened),
                panel.count(Role::Unchanged)
            ));
        }
        words
    }
}

/// A delta with as many decimals as it needs, three at most: for the bar's label.
pub fn short_delta(value: f64) -> Style {
    let decimals = (0..3).find(|d| {
        let scaled = value * 10f64.powi(*d);
        (scaled - scaled.round()).abs() < 1e-9
    });
    Style { plus: true, ..Style::plain(decimals.map_or(3, |d| d.max(0) as u32)) }
}

/// One estimate in words, such as `caravan (held out): +0.310, interval [+0.240, +0.380], 40 tasks`.
pub fn sentence(mark: &Mark) -> String {
    let note = if mark.note.is_empty() { String::new() } else { format!(" ({})", mark.note) };
    let tasks = mark.n.map_or_else(String::new, |n| {
        let noun = if n == 1.0 { "task" } else { "tasks" };
        format!(", {} {noun}", format(n, &Style { thousands: true, ..Style::plain(0) }))
    });
    match &mark.at {
        At::Estimate { value: Number::Undefined(why), .. } => {
            format!("{}{note}: undefined, {why}{tasks}", mark.label)
        }
        At::Estimate { value, low, high } => {
            let ends =
                interval(low, high).map_or("interval undefined".to_string(), |i| format!("interval {i}"));
            format!("{}{note}: {}, {ends}{tasks}", mark.label, print(value, &delta_style()))
        }
        At::Pair { left, right } => {
            let style = Style::plain(3);
            format!("{}{note}: {} to {}", mark.label, format(*left, &style), format(*right, &style))
        }
    }
}

fn row(heading: &str, mark: &Mark) -> Vec<Datum> {
    let text = |t: &str| Datum::Text(t.to_string());
    match &mark.at {
        At::Estimate { value, low, high } => {
            let remark = match (value, low, high) {
                (Number::Undefined(why), ..) => format!("undefined: {why}"),
                (_, Number::Undefined(why), _) | (_, _, Number::Undefined(why)) => {
                    format!("interval undefined: {why}")
                }
                _ => String::new(),
            };
            vec![
                text(&mark.label),
                text(heading),
                text(&mark.note),
                Datum::Number(value.get()),
                Datum::Number(low.get()),
                Datum::Number(high.get()),
                Datum::Number(mark.n),
                Datum::Text(remark),
            ]
        }
        At::Pair { left, right } => {
            vec![
                text(&mark.label),
                text(heading),
                Datum::Number(Some(*left)),
                Datum::Number(Some(*right)),
                text(mark.role.word()),
            ]
        }
    }
}
