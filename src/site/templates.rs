//! Everything that is compiled in: templates, stylesheet, script and fonts.

use crate::error::{Error, Result};
use tera::{Context, Tera};

const TEMPLATES: &[(&str, &str)] = &[
    ("base.html", include_str!("../../templates/site/base.html")),
    ("home.html", include_str!("../../templates/site/home.html")),
    ("experiments.html", include_str!("../../templates/site/experiments.html")),
    ("experiment.html", include_str!("../../templates/site/experiment.html")),
    ("entry.html", include_str!("../../templates/site/entry.html")),
    ("figure.html", include_str!("../../templates/site/figure.html")),
    ("sources.html", include_str!("../../templates/site/sources.html")),
    ("audited.html", include_str!("../../templates/site/audited.html")),
    ("data.html", include_str!("../../templates/site/data.html")),
    ("imports.html", include_str!("../../templates/site/imports.html")),
    ("import.html", include_str!("../../templates/site/import.html")),
    ("claims.html", include_str!("../../templates/site/claims.html")),
    ("claim.html", include_str!("../../templates/site/claim.html")),
    ("derivation.html", include_str!("../../templates/site/derivation.html")),
    ("audit.html", include_str!("../../templates/site/audit.html")),
    ("method.html", include_str!("../../templates/site/method.html")),
    ("missing.html", include_str!("../../templates/site/missing.html")),
];

/// Files that every site has, by their address.
pub const ASSETS: &[(&str, &[u8])] = &[
    ("style.css", include_bytes!("../../templates/static/style.css")),
    ("site.js", include_bytes!("../../templates/static/site.js")),
    ("fonts/OFL.txt", include_bytes!("../../templates/static/fonts/OFL.txt")),
    ("fonts/newsreader-roman.woff2", include_bytes!("../../templates/static/fonts/newsreader-roman.woff2")),
    ("fonts/newsreader-italic.woff2", include_bytes!("../../templates/static/fonts/newsreader-italic.woff2")),
    ("fonts/public-sans.woff2", include_bytes!("../../templates/static/fonts/public-sans.woff2")),
    ("fonts/jetbrains-mono.woff2", include_bytes!("../../templates/static/fonts/jetbrains-mono.woff2")),
];

/// The templates, parsed.
pub struct Templates {
    tera: Tera,
}

impl Templates {
    /// Parses all templates; an unknown filter or a syntax error is an error here.
    pub fn load() -> Result<Templates> {
        let mut tera = Tera::new();
        tera.add_raw_templates(TEMPLATES.iter().copied()).map_err(|e| broken("templates", &e))?;
        Ok(Templates { tera })
    }

    /// Renders a template. A name that the context lacks is an error.
    pub fn render(&self, name: &str, context: &serde_json::Value) -> Result<String> {
        let context = Context::from_serialize(context).map_err(|e| broken(name, &e))?;
        self.tera.render(name, &context).map_err(|e| broken(name, &e))
    }
}

fn broken(name: &str, error: &tera::Error) -> Error {
    Error::invalid(format!("a page template cannot be rendered: {error}")).at(name)
}
