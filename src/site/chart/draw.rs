//! The few SVG elements that charts are drawn with, coordinates at one decimal.

use crate::site::text::escape;

/// An SVG body under construction.
#[derive(Default)]
pub struct Drawing {
    out: String,
}

/// A coordinate: one decimal, no trailing zero, never `-0`.
pub fn c(value: f64) -> String {
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".to_string() } else { text.to_string() }
}

impl Drawing {
    /// A straight line.
    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.push(format!(
            "<line class=\"{class}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>",
            c(from.0),
            c(from.1),
            c(to.0),
            c(to.1)
        ));
    }

    /// A straight line of a given stroke width.
    pub fn stroke(&mut self, class: &str, width: f64, from: (f64, f64), to: (f64, f64)) {
        self.push(format!(
            "<line class=\"{class}\" stroke-width=\"{}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>",
            c(width),
            c(from.0),
            c(from.1),
            c(to.0),
            c(to.1)
        ));
    }

    /// A text that starts at `x`.
    pub fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        self.push(format!("<text class=\"{class}\" x=\"{}\" y=\"{}\">{}</text>", c(x), c(y), escape(text)));
    }

    /// A text that ends at `x` (`end`) or is centred on it (`middle`).
    pub fn anchored(&mut self, class: &str, anchor: &str, x: f64, y: f64, text: &str) {
        self.push(format!(
            "<text class=\"{class}\" x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            c(x),
            c(y),
            escape(text)
        ));
    }

    /// A circle.
    pub fn circle(&mut self, class: &str, x: f64, y: f64, r: f64) {
        self.push(format!("<circle class=\"{class}\" cx=\"{}\" cy=\"{}\" r=\"{}\"/>", c(x), c(y), c(r)));
    }

    /// A square around a centre.
    pub fn square(&mut self, class: &str, x: f64, y: f64, side: f64) {
        self.push(format!(
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
            c(x - side / 2.0),
            c(y - side / 2.0),
            c(side),
            c(side)
        ));
    }

    /// A diamond from `low` to `high` with its tips at `value`.
    pub fn diamond(&mut self, class: &str, (low, value, high): (f64, f64, f64), y: f64, half: f64) {
        self.push(format!(
            "<path class=\"{class}\" d=\"M{} {}L{} {}L{} {}L{} {}z\"/>",
            c(low),
            c(y),
            c(value),
            c(y - half),
            c(high),
            c(y),
            c(value),
            c(y + half)
        ));
    }

    /// Opens a group with a title of its own, which pointers and screen readers find.
    pub fn open(&mut self, class: &str, title: &str) {
        self.out.push_str(&format!("<g class=\"{class}\"><title>{}</title>", escape(title)));
    }

    /// Closes a group.
    pub fn close(&mut self) {
        self.out.push_str("</g>\n");
    }

    /// The elements so far.
    pub fn done(self) -> String {
        self.out
    }

    fn push(&mut self, element: String) {
        self.out.push_str(&element);
        self.out.push('\n');
    }
}
