//! Charts. A [`Scene`] holds marks in data space; its drawings, data table, CSV, JSON and
//! description are all read off the same marks, so that they cannot disagree.

mod axis;
mod draw;
mod forest;
mod narrow;
mod scene;
mod slope;
mod table;
mod widths;

pub use forest::spark;
pub use scene::{At, Kind, Mark, Panel, Role, Rule, Scene};
pub use table::{Column, Datum, Table};

use super::text::escape;

/// Which of a figure's drawings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// 720 units wide.
    Wide,
    /// 340 units wide, for phones and narrow columns.
    Narrow,
}

impl Size {
    fn name(self) -> &'static str {
        match self {
            Size::Wide => "wide",
            Size::Narrow => "narrow",
        }
    }
}

impl Scene {
    /// One drawing as an `<svg>` element whose classes the site's stylesheet colours; `id` makes its
    /// title and description unique on the page.
    pub fn svg(&self, id: &str, size: Size) -> String {
        let (width, height, body) = self.body(size);
        let (name, id) = (size.name(), escape(id));
        format!(
            "<svg class=\"chart {name}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-labelledby=\"{id}-{name}-t {id}-{name}-d\"><title id=\"{id}-{name}-t\">{}</title><desc \
             id=\"{id}-{name}-d\">{}</desc>\n{body}</svg>",
            escape(&self.title),
            escape(&self.description()),
        )
    }

    /// The wide drawing as a file of its own, with its colours and fonts inside.
    pub fn svg_file(&self) -> String {
        let (width, height, body) = self.body(Size::Wide);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" width=\"{}\" height=\"{}\" \
             viewBox=\"-16 -12 {} {}\" role=\"img\" aria-labelledby=\"t d\">\n<title id=\"t\">{}</title>\n<desc \
             id=\"d\">{}</desc>\n<style>{}</style>\n<rect class=\"paper\" x=\"-16\" y=\"-12\" width=\"{}\" \
             height=\"{}\"/>\n{body}</svg>\n",
            width + 32,
            height + 24,
            width + 32,
            height + 24,
            escape(&self.title),
            escape(&self.description()),
            include_str!("../../../templates/static/figure.css").trim(),
            width + 32,
            height + 24,
        )
    }

    fn body(&self, size: Size) -> (u32, u32, String) {
        match self.kind {
            Kind::Forest => forest::body(self, size),
            Kind::Slope => slope::body(self, size),
        }
    }
}
