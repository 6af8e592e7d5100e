//! The forest for phones and narrow columns: each row is its label and numbers, and below them a strip
//! with the mark. Lines across the chart are drawn in the strips only, so that none crosses a text.

use super::axis::Axis;
use super::draw::Drawing;
use super::forest::{interval_text, mark, undefined, value_text, values};
use super::scene::{Mark, Role, Scene};
use super::table::{sentence, short_delta};
use super::widths::{fit, width};
use crate::claims::number::format;

const WIDTH: f64 = 340.0;
/// Right end of texts.
const RIGHT: f64 = 336.0;
/// Height of a line of text, of a strip, and of the space after it.
const LINE: f64 = 18.0;
const STRIP: f64 = 26.0;
const GAP: f64 = 9.0;
/// Semibold digits are a little wider than the table of widths says.
const BOLD: f64 = 1.06;

/// How a scene's rows are laid out.
struct Layout {
    axis: Axis,
    ticks: Vec<(f64, String)>,
    bar: Option<f64>,
    /// Lines of text above a strip: the numbers stand beside the labels, or all on lines of their own.
    lines: f64,
}

/// Width, height and elements of the drawing.
pub fn body(scene: &Scene) -> (u32, u32, String) {
    let axis = Axis::around(values(scene), 6.0, 334.0);
    let beside = scene.marks().all(|(_, mark)| {
        let bold = if mark.role == Role::Pooled { BOLD } else { 1.0 };
        width(&label(mark)) * bold + 16.0 + numbers_width(mark) <= RIGHT
    });
    let layout = Layout {
        ticks: axis.ticks(5, true),
        axis,
        bar: scene.bar.as_ref().map(|bar| bar.at),
        lines: if beside { 1.0 } else { 2.0 },
    };
    let mut drawing = Drawing::default();
    let mut y = legend(&mut drawing, scene);
    for panel in &scene.panels {
        if !panel.heading.is_empty() {
            y += 24.0;
            drawing.text("grp", 0.0, y - 4.0, &fit(&panel.heading, 330.0));
        }
        for row in &panel.marks {
            y = draw_row(&mut drawing, row, &layout, y);
        }
    }
    if let Some(row) = &scene.pooled {
        drawing.line("hair", (0.0, y), (WIDTH, y));
        y = draw_row(&mut drawing, row, &layout, y + 4.0);
    }
    drawing.line("axis", (4.0, y), (RIGHT, y));
    for (at, tick) in &layout.ticks {
        drawing.anchored("ax", "middle", axis.at(*at), y + 18.0, tick);
    }
    drawing.text("axl", 4.0, y + 38.0, &scene.axis);
    (WIDTH as u32, y as u32 + 46, drawing.done())
}

/// What the dashed line is, beside a piece of it; gives where the rows begin.
fn legend(drawing: &mut Drawing, scene: &Scene) -> f64 {
    let Some(bar) = &scene.bar else { return 4.0 };
    drawing.line("bar", (6.0, 3.0), (6.0, 19.0));
    let words = format!("{}, {}", bar.label, format(bar.at, &short_delta(bar.at)));
    drawing.text("barl", 14.0, 15.0, &fit(&words, RIGHT - 14.0));
    24.0
}

fn label(mark: &Mark) -> String {
    if mark.note.is_empty() { mark.label.clone() } else { format!("{} {}", mark.label, mark.note) }
}

/// Room that the interval takes at the right, with the space before it.
fn interval_width(mark: &Mark) -> f64 {
    let ends = interval_text(mark);
    if ends.is_empty() { 0.0 } else { width(&ends) * 1.04 + 10.0 }
}

fn numbers_width(mark: &Mark) -> f64 {
    interval_width(mark) + width(&value_text(mark)) * BOLD
}

/// One row from `top` down; gives where the next one begins.
fn draw_row(drawing: &mut Drawing, row: &Mark, layout: &Layout, top: f64) -> f64 {
    let bold = if row.role == Role::Pooled { " b" } else { "" };
    let (first, last) = (top + 14.0, top + 14.0 + (layout.lines - 1.0) * LINE);
    let strip = (top + layout.lines * LINE + 2.0, top + layout.lines * LINE + 2.0 + STRIP);
    let why = undefined(row);
    if why.is_none() {
        rules(drawing, layout, strip);
    }
    drawing.open("row", &sentence(row));
    let room = if layout.lines > 1.0 { RIGHT } else { RIGHT - numbers_width(row) - 10.0 };
    drawing.text(&format!("l halo{bold}"), 0.0, first, &fit(&label(row), room));
    let (anchor, value_at, ends_at) = if layout.lines > 1.0 {
        ("start", 0.0, width(&value_text(row)) * BOLD + 10.0)
    } else {
        ("end", RIGHT - interval_width(row), RIGHT)
    };
    drawing.anchored(&format!("n halo{bold}"), anchor, value_at, last, &value_text(row));
    let ends = interval_text(row);
    if !ends.is_empty() {
        drawing.anchored("m halo", anchor, ends_at, last, &ends);
    }
    match why {
        Some(words) => drawing.text("m halo", 6.0, strip.0 + 14.0, &fit(&words, 326.0)),
        None => mark(drawing, row, &layout.axis, (strip.0 + strip.1) / 2.0),
    }
    drawing.close();
    strip.1 + GAP
}

/// Grid, zero and bar over the height of one strip.
fn rules(drawing: &mut Drawing, layout: &Layout, (top, bottom): (f64, f64)) {
    for (at, tick) in &layout.ticks {
        if tick != "0" {
            drawing.line("grid", (layout.axis.at(*at), top), (layout.axis.at(*at), bottom));
        }
    }
    let zero = layout.axis.at(0.0);
    drawing.line("zero", (zero, top), (zero, bottom));
    if let Some(bar) = layout.bar {
        drawing.line("bar", (layout.axis.at(bar), top), (layout.axis.at(bar), bottom));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::value::Number;
    use crate::site::input::{ChartInput, EstimateInput};

    fn attribute(element: &str, name: &str) -> Option<f64> {
        element.split_once(&format!(" {name}=\""))?.1.split_once('"')?.0.parse().ok()
    }

    /// Every line across the chart, and every baseline, of a drawing.
    fn spans(svg: &str) -> (Vec<(f64, f64)>, Vec<f64>) {
        let lines = svg
            .lines()
            .filter(|l| ["zero", "bar", "grid"].iter().any(|c| l.contains(&format!("<line class=\"{c}\""))))
            .map(|l| (attribute(l, "y1").unwrap(), attribute(l, "y2").unwrap()))
            .collect();
        let texts = svg
            .lines()
            .filter(|l| l.contains("<text") && !l.contains("\"barl\""))
            .map(|l| attribute(l, "y").unwrap());
        (lines, texts.collect())
    }

    fn crossed(scene: &Scene) -> usize {
        let (lines, texts) = spans(&body(scene).2);
        assert!(lines.len() > 2 && texts.len() > 2);
        texts.iter().filter(|y| lines.iter().any(|(a, b)| *b > **y - 10.0 && *a < **y + 3.0)).count()
    }

    #[test]
    fn no_line_crosses_a_text() {
        assert_eq!(crossed(&Scene::of(&crate::site::fixtures::forest(), "T")), 0);
    }

    #[test]
    fn long_labels_get_the_numbers_on_a_line_below() {
        let row = |label: &str| EstimateInput {
            label: label.into(),
            note: "held out".into(),
            value: Number::Defined(-0.01),
            low: Number::Defined(-0.03),
            high: Number::Defined(0.0),
            n: Some(96.0),
        };
        let scene = |label: &str| {
            let groups = vec![("By family".into(), vec![row(label), row("kilnrite")])];
            Scene::of(&ChartInput::Forest { groups, pooled: Some(row("All")), bar: Some(0.03) }, "T")
        };
        let (short, long) = (scene("caravan"), scene("a family with a name of some length"));
        assert_eq!(crossed(&short) + crossed(&long), 0);
        assert!(body(&long).1 > body(&short).1);
        assert!(body(&long).2.contains(">a family with a name of some length held out<"), "not cut");
    }
}
