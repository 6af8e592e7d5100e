//! Paired slopes, one panel a group: a line for each pair of scores, as wide as there are tasks on
//! it, with that count beside it. Improved, worsened and unchanged differ in class and in dash.

use super::Size;
use super::axis::Axis;
use super::draw::Drawing;
use super::scene::{At, Panel, Role, Scene};
use super::widths::{fit, width};
use crate::claims::number::{Style, format};
use crate::site::text::counted;

/// Tasks that share both scores.
struct Bundle {
    role: Role,
    left: f64,
    right: f64,
    tasks: Vec<String>,
}

const HEAD: f64 = 26.0;
const PLOT: f64 = 168.0;
const FOOT: f64 = 94.0;

/// Width, height and elements of the drawing.
pub fn body(scene: &Scene, size: Size) -> (u32, u32, String) {
    let (total, gutter, gap, most) = match size {
        Size::Wide => (720.0, 34.0, 30.0, 4),
        Size::Narrow => (340.0, 30.0, 26.0, 2),
    };
    let columns = scene.panels.len().clamp(1, most);
    let room = (total - gutter - gap * (columns as f64 - 1.0)) / columns as f64;
    let panel_width = f64::min(room, 230.0);
    let domain = domain(scene);
    let mut drawing = Drawing::default();
    for (i, panel) in scene.panels.iter().enumerate() {
        let left = gutter + (i % columns) as f64 * (panel_width + gap);
        let top = HEAD + (i / columns) as f64 * (HEAD + PLOT + FOOT);
        let place = Place { left, top, width: panel_width, first: i % columns == 0 };
        draw_panel(&mut drawing, scene, panel, &place, domain);
    }
    let lines = scene.panels.len().div_ceil(columns).max(1);
    let height = lines as f64 * (HEAD + PLOT + FOOT);
    (total as u32, height as u32, drawing.done())
}

struct Place {
    left: f64,
    top: f64,
    width: f64,
    first: bool,
}

/// Scores lie in [0, 1]; a metric beyond that widens the axis.
fn domain(scene: &Scene) -> (f64, f64) {
    let scores = scene.marks().flat_map(|(_, mark)| match mark.at {
        At::Pair { left, right } => vec![left, right],
        At::Estimate { .. } => Vec::new(),
    });
    scores.filter(|v| v.is_finite()).fold((0.0, 1.0), |(low, high), v| (f64::min(low, v), f64::max(high, v)))
}

/// Tasks with the same two scores together, in rising order of the scores.
fn bundles(panel: &Panel) -> Vec<Bundle> {
    let mut sorted: Vec<(f64, f64, Role, &str)> = panel
        .marks
        .iter()
        .filter_map(|mark| match mark.at {
            At::Pair { left, right } => Some((left, right, mark.role, mark.label.as_str())),
            At::Estimate { .. } => None,
        })
        .collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.3.cmp(b.3)));
    let mut bundles: Vec<Bundle> = Vec::new();
    for (left, right, role, task) in sorted {
        match bundles.last_mut() {
            Some(last) if last.left == left && last.right == right => last.tasks.push(task.to_string()),
            _ => bundles.push(Bundle { role, left, right, tasks: vec![task.to_string()] }),
        }
    }
    bundles
}

fn class(role: Role) -> &'static str {
    match role {
        Role::Improved => "sl up",
        Role::Worsened => "sl down",
        _ => "sl same",
    }
}

fn draw_panel(drawing: &mut Drawing, scene: &Scene, panel: &Panel, place: &Place, domain: (f64, f64)) {
    let (x1, x2) = (place.left, place.left + place.width);
    let axis = Axis::exact(domain.0, domain.1, place.top + PLOT - 7.0, place.top + 9.0);
    if !panel.heading.is_empty() {
        drawing.text("grp", x1, place.top - 10.0, &fit(&panel.heading, place.width));
    }
    for (at, label) in axis.ticks(3, false) {
        let y = axis.at(at);
        drawing.line("grid", (x1, y), (x2, y));
        if place.first {
            drawing.anchored("ax", "end", x1 - 8.0, y + 4.0, &label);
        }
    }
    for x in [x1, x2] {
        drawing.line("axis", (x, place.top + 2.0), (x, place.top + PLOT));
    }
    let foot = place.top + PLOT + 16.0;
    drawing.text("ax", x1, foot, &fit(&scene.arms[0], place.width / 2.0 - 4.0));
    drawing.anchored("ax", "end", x2, foot, &fit(&scene.arms[1], place.width / 2.0 - 4.0));
    let bundles = bundles(panel);
    let widest = bundles.iter().map(|b| b.tasks.len()).max().unwrap_or(1) as f64;
    for bundle in order(&bundles) {
        draw_bundle(drawing, bundle, &axis, (x1, x2), widest);
    }
    ends(drawing, &bundles, &axis, (x1, x2));
    labels(drawing, &bundles, &axis, (x1, x2));
    for (i, role) in [Role::Improved, Role::Worsened, Role::Unchanged].into_iter().enumerate() {
        let y = foot + 24.0 + 17.0 * i as f64;
        drawing.stroke(class(role), 2.0, (x1, y - 4.0), (x1 + 22.0, y - 4.0));
        drawing.text("m", x1 + 30.0, y, &format!("{} {}", panel.count(role), role.word()));
    }
}

/// Unchanged tasks first, so that changes are drawn above them.
fn order(bundles: &[Bundle]) -> Vec<&Bundle> {
    let rank = |role| match role {
        Role::Improved => 1,
        Role::Worsened => 2,
        _ => 0,
    };
    let mut ordered: Vec<&Bundle> = bundles.iter().collect();
    ordered.sort_by_key(|b| rank(b.role));
    ordered
}

fn draw_bundle(drawing: &mut Drawing, bundle: &Bundle, axis: &Axis, (x1, x2): (f64, f64), widest: f64) {
    let n = bundle.tasks.len();
    // The area of ink grows with the count, the width with its root: 1.4 for one task, 5.6 at most.
    let stroke = if widest > 1.0 {
        1.4 + 4.2 * ((n as f64).sqrt() - 1.0) / f64::max(widest.sqrt() - 1.0, 3.0)
    } else {
        1.4
    };
    let style = Style::plain(3);
    let who = match bundle.tasks.as_slice() {
        [only] => only.clone(),
        tasks => counted(tasks.len(), "task"),
    };
    let title = format!(
        "{who}: {} to {}, {}",
        format(bundle.left, &style),
        format(bundle.right, &style),
        bundle.role.word()
    );
    drawing.open("row", &title);
    drawing.stroke(class(bundle.role), stroke, (x1, axis.at(bundle.left)), (x2, axis.at(bundle.right)));
    drawing.close();
}

/// One mark for each score that occurs: hollow for the left arm, filled for the right one.
fn ends(drawing: &mut Drawing, bundles: &[Bundle], axis: &Axis, (x1, x2): (f64, f64)) {
    let mut left: Vec<f64> = bundles.iter().map(|b| b.left).collect();
    let mut right: Vec<f64> = bundles.iter().map(|b| b.right).collect();
    for scores in [&mut left, &mut right] {
        scores.sort_by(f64::total_cmp);
        scores.dedup();
    }
    left.into_iter().for_each(|score| drawing.circle("s1 o", x1, axis.at(score), 3.6));
    right.into_iter().for_each(|score| drawing.circle("s2 f", x2, axis.at(score), 3.9));
}

/// Counts on the lines of more than one task, largest first, each where it covers no other.
fn labels(drawing: &mut Drawing, bundles: &[Bundle], axis: &Axis, (x1, x2): (f64, f64)) {
    let mut several: Vec<&Bundle> = bundles.iter().filter(|b| b.tasks.len() > 1).collect();
    several.sort_by_key(|bundle| std::cmp::Reverse(bundle.tasks.len()));
    let mut placed: Vec<(f64, f64, f64)> = Vec::new();
    for bundle in several {
        let words = bundle.tasks.len().to_string();
        let half = width(&words) / 2.0 + 4.0;
        let along: &[f64] = match bundle.role {
            Role::Improved => &[0.66, 0.54, 0.78, 0.42],
            Role::Worsened => &[0.34, 0.46, 0.22, 0.58],
            _ => &[0.5, 0.36, 0.64],
        };
        let free = along.iter().find_map(|t| {
            let x = x1 + (x2 - x1) * t;
            let y = axis.at(bundle.left + (bundle.right - bundle.left) * t);
            let clear = placed.iter().all(|(px, py, ph)| (px - x).abs() > ph + half || (py - y).abs() > 14.0);
            clear.then_some((x, y))
        });
        if let Some((x, y)) = free {
            drawing.anchored("cnt halo", "middle", x, y + 4.0, &words);
            placed.push((x, y, half));
        }
    }
}
