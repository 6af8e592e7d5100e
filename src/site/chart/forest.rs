//! The forest of paired deltas: dot and interval for each row, zero line, preregistered bar, pooled
//! diamond, numbers at the right. An undefined interval is a dot and words, an undefined value words.
//! The narrow drawing is in `narrow`.

use super::Size;
use super::axis::Axis;
use super::draw::Drawing;
use super::scene::{At, Mark, Role, Scene};
use super::table::{delta_style, interval, sentence, short_delta};
use super::widths::{fit, width};
use crate::claims::number::{Style, format, print};
use crate::claims::value::Number;
use crate::site::input::EstimateInput;

const UNDEFINED_INTERVAL: &str = "interval undefined";

/// Where the columns stand.
struct Columns {
    note: f64,
    plot: (f64, f64),
    delta: f64,
    interval: f64,
    n: f64,
    label_room: f64,
}

/// Width, height and elements of the drawing.
pub fn body(scene: &Scene, size: Size) -> (u32, u32, String) {
    match size {
        Size::Wide => wide(scene),
        Size::Narrow => super::narrow::body(scene),
    }
}

pub(super) fn values(scene: &Scene) -> Vec<f64> {
    let marks = scene.marks().flat_map(|(_, mark)| match &mark.at {
        At::Estimate { value, low, high } => [value.get(), low.get(), high.get()],
        At::Pair { left, right } => [Some(*left), Some(*right), None],
    });
    marks.flatten().chain(scene.bar.iter().map(|bar| bar.at)).chain([0.0]).collect()
}

fn count(n: Option<f64>) -> String {
    n.map_or_else(String::new, |n| format(n, &Style { thousands: true, ..Style::plain(0) }))
}

pub(super) fn interval_text(mark: &Mark) -> String {
    match &mark.at {
        At::Estimate { value: Number::Undefined(_), .. } => String::new(),
        At::Estimate { low, high, .. } => {
            interval(low, high).unwrap_or_else(|| UNDEFINED_INTERVAL.to_string())
        }
        At::Pair { .. } => String::new(),
    }
}

pub(super) fn value_text(mark: &Mark) -> String {
    match &mark.at {
        At::Estimate { value, .. } => print(value, &delta_style()),
        At::Pair { .. } => String::new(),
    }
}

fn columns(scene: &Scene) -> Columns {
    let widest = |text: &dyn Fn(&Mark) -> String, header: &str| {
        scene.marks().map(|(_, mark)| width(&text(mark))).fold(width(header), f64::max)
    };
    let bold = 1.06;
    let n_width = widest(&|m| count(m.n), "tasks");
    let interval_width = widest(&interval_text, "interval") * bold;
    let delta_width = widest(&value_text, "delta") * bold;
    let label_room = (widest(&|m| m.label.clone(), "") * bold).clamp(40.0, 150.0);
    let note_width = widest(&|m| m.note.clone(), "").min(96.0);
    let note = label_room + 14.0;
    let n = 720.0;
    let interval = n - n_width - 22.0;
    let delta = interval - interval_width - 16.0;
    let left = if note_width > 0.0 { note + note_width + 18.0 } else { label_room + 18.0 };
    Columns { note, plot: (left, delta - delta_width - 22.0), delta, interval, n, label_room }
}

fn rules(drawing: &mut Drawing, scene: &Scene, axis: &Axis, (top, bottom): (f64, f64), ticks: usize) {
    for (at, label) in axis.ticks(ticks, true) {
        let x = axis.at(at);
        if label != "0" {
            drawing.line("grid", (x, top), (x, bottom));
        }
        drawing.anchored("ax", "middle", x, bottom + 18.0, &label);
    }
    drawing.line("zero", (axis.at(0.0), top), (axis.at(0.0), bottom));
    if let Some(bar) = &scene.bar {
        drawing.line("bar", (axis.at(bar.at), top - 6.0), (axis.at(bar.at), bottom));
    }
}

fn bar_label(drawing: &mut Drawing, scene: &Scene, axis: &Axis, y: f64, (left, right): (f64, f64)) {
    if let Some(bar) = &scene.bar {
        let words = format!("{}, {}", bar.label, format(bar.at, &short_delta(bar.at)));
        let (x, room) = (axis.at(bar.at), width(&words));
        if x + 6.0 + room <= right {
            drawing.text("barl", x + 6.0, y, &words);
        } else if x - 6.0 - room >= left {
            drawing.anchored("barl", "end", x - 6.0, y, &words);
        } else {
            drawing.anchored(
                "barl",
                "middle",
                x.clamp(left + room / 2.0, (right - room / 2.0).max(left + room / 2.0)),
                y,
                &words,
            );
        }
    }
}

pub(super) fn mark(drawing: &mut Drawing, mark: &Mark, axis: &Axis, y: f64) {
    let At::Estimate { value: Number::Defined(value), low, high } = &mark.at else {
        return;
    };
    let (series, x) = (format!("s{}", mark.series), axis.at(*value));
    let ends = low.get().zip(high.get()).map(|(low, high)| (axis.at(low), axis.at(high)));
    match (mark.role, ends) {
        (Role::Pooled, Some((low, high))) => {
            // A diamond narrower than its height would read as a dot.
            let (low, high) = (low.min(x - 4.0), high.max(x + 4.0));
            drawing.diamond(&format!("{series} f diamond"), (low, x, high), y, 8.0);
        }
        (Role::Pooled, None) => {
            drawing.diamond(&format!("{series} f diamond"), (x - 8.0, x, x + 8.0), y, 8.0);
        }
        (_, ends) => {
            if let Some((low, high)) = ends {
                let class = format!("{series} ci");
                drawing.line(&class, (low, y), (high, y));
                drawing.line(&class, (low, y - 3.5), (low, y + 3.5));
                drawing.line(&class, (high, y - 3.5), (high, y + 3.5));
            }
            if mark.series == 3 {
                drawing.square(&format!("{series} f"), x, y, 9.2);
            } else {
                drawing.circle(&format!("{series} f"), x, y, 5.0);
            }
        }
    }
}

pub(super) fn undefined(mark: &Mark) -> Option<String> {
    match &mark.at {
        At::Estimate { value: Number::Undefined(why), .. } => Some(format!("undefined: {why}")),
        _ => None,
    }
}

fn headings(scene: &Scene) -> bool {
    scene.panels.len() > 1 || scene.panels.iter().any(|panel| !panel.heading.is_empty())
}

fn wide(scene: &Scene) -> (u32, u32, String) {
    let columns = columns(scene);
    let axis = Axis::around(values(scene), columns.plot.0, columns.plot.1);
    let rows: usize = scene.panels.iter().map(|panel| panel.marks.len()).sum();
    let heads =
        if headings(scene) { scene.panels.iter().filter(|p| !p.heading.is_empty()).count() } else { 0 };
    let top = 46.0;
    let pooled = if scene.pooled.is_some() { 44.0 } else { 10.0 };
    let bottom = top + rows as f64 * 27.0 + heads as f64 * 31.0 + pooled;
    let mut drawing = Drawing::default();
    rules(&mut drawing, scene, &axis, (top, bottom), 6);
    drawing.line("axis", (columns.plot.0, bottom), (columns.plot.1, bottom));
    bar_label(&mut drawing, scene, &axis, 36.0, (columns.plot.0 - 20.0, columns.delta));
    drawing.anchored("axl", "middle", (columns.plot.0 + columns.plot.1) / 2.0, bottom + 38.0, &scene.axis);
    drawing.anchored("h", "end", columns.delta, 14.0, "delta");
    drawing.anchored("h", "end", columns.interval, 14.0, "interval");
    if scene.marks().any(|(_, mark)| mark.n.is_some()) {
        drawing.anchored("h", "end", columns.n, 14.0, "tasks");
    }
    let mut y = top;
    for panel in &scene.panels {
        if !panel.heading.is_empty() {
            y += 31.0;
            drawing.text("grp", 0.0, y - 9.0, &fit(&panel.heading, 320.0));
        }
        for row in &panel.marks {
            y += 27.0;
            wide_row(&mut drawing, row, &columns, &axis, y - 9.0);
        }
    }
    if let Some(row) = &scene.pooled {
        drawing.line("hair", (0.0, y + 12.0), (720.0, y + 12.0));
        wide_row(&mut drawing, row, &columns, &axis, y + 34.0);
    }
    (720, bottom as u32 + 46, drawing.done())
}

fn wide_row(drawing: &mut Drawing, row: &Mark, columns: &Columns, axis: &Axis, y: f64) {
    let bold = if row.role == Role::Pooled { " b" } else { "" };
    drawing.open("row", &sentence(row));
    drawing.text(&format!("l{bold}"), 0.0, y, &fit(&row.label, columns.label_room));
    if !row.note.is_empty() {
        drawing.text("m", columns.note, y, &fit(&row.note, 96.0));
    }
    drawing.anchored(&format!("n{bold}"), "end", columns.delta, y, &value_text(row));
    match undefined(row) {
        Some(words) => {
            let room = columns.plot.1 - columns.plot.0;
            drawing.text("m halo", columns.plot.0 + 4.0, y, &fit(&words, room - 8.0));
        }
        None => drawing.anchored(&format!("m{bold}"), "end", columns.interval, y, &interval_text(row)),
    }
    if row.n.is_some() {
        drawing.anchored("m", "end", columns.n, y, &count(row.n));
    }
    mark(drawing, row, axis, y - 4.5);
    drawing.close();
}

/// A small drawing of one estimate with its interval, zero and the bar, for lists; nothing when the
/// value is undefined.
pub fn spark(row: &EstimateInput, bar: Option<f64>) -> Option<String> {
    let value = row.value.get()?;
    let ends = row.low.get().zip(row.high.get());
    let all = [Some(value), Some(0.0), bar, ends.map(|e| e.0), ends.map(|e| e.1)];
    let axis = Axis::around(all.into_iter().flatten(), 6.0, 154.0);
    let mut drawing = Drawing::default();
    drawing.line("zero", (axis.at(0.0), 1.0), (axis.at(0.0), 21.0));
    if let Some(bar) = bar {
        drawing.line("bar", (axis.at(bar), 1.0), (axis.at(bar), 21.0));
    }
    if let Some((low, high)) = ends {
        drawing.line("s2 ci", (axis.at(low), 11.0), (axis.at(high), 11.0));
    }
    drawing.circle("s2 f", axis.at(value), 11.0, 5.0);
    let words = format!(
        "Change {}{}{}",
        format(value, &delta_style()),
        ends.map_or(", interval undefined".to_string(), |(low, high)| format!(
            ", interval {} to {}",
            format(low, &delta_style()),
            format(high, &delta_style())
        )),
        bar.map_or(String::new(), |bar| format!(", bar {}", format(bar, &short_delta(bar))))
    );
    Some(format!(
        "<svg class=\"spark\" viewBox=\"0 0 160 22\" role=\"img\" aria-label=\"{}\">{}</svg>",
        crate::site::text::escape(&words),
        drawing.done()
    ))
}
