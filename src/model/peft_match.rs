//! Which modules an `adapter_config.json` means, by PEFT's own rules: a list names ends of module
//! paths, a string is a pattern for the whole path (Python's `re`), and rank and alpha patterns are
//! patterns for its end.

use crate::error::{Error, Result};
use fancy_regex::{Regex, RegexBuilder};
use serde_json::Value;

/// Longest pattern that is compiled; the patterns that tools write have a few hundred bytes.
const MOST_BYTES: usize = 1 << 14;
/// Most steps of a pattern with look-around over one path.
const MOST_STEPS: usize = 100_000;
/// `target_modules` that stands for every linear layer but the output head.
const ALL_LINEAR: &str = "all-linear";

/// The part of a tensor's or module's name from `layers.` on, whichever wrapper it was trained through.
pub(super) fn normalise(key: &str) -> &str {
    let mut rest = key.strip_prefix("base_model.model.").unwrap_or(key);
    for prefix in ["model.", "language_model.", "model."] {
        rest = rest.strip_prefix(prefix).unwrap_or(rest);
    }
    rest
}

/// What stands before `layers.` in the path of a module that a tensor of this key belongs to: `model.`, or
/// `model.language_model.` of a multimodal base. `None` when it belongs to no decoder layer.
pub(super) fn stem(key: &str) -> Option<&str> {
    let path = key.strip_prefix("base_model.model.").unwrap_or(key);
    let rest = normalise(key);
    rest.starts_with("layers.").then(|| &path[..path.len() - rest.len()])
}

/// A pattern over module paths.
pub(super) struct Pattern {
    field: &'static str,
    /// As it is written in the file.
    pub(super) text: String,
    regex: Regex,
}

impl Pattern {
    /// Compiles `text` of a field, put between `before` and `after`.
    fn new(field: &'static str, text: &str, before: &str, after: &str) -> Result<Pattern> {
        let bad = |why: String| {
            Error::invalid(format!("`{field}` has `{text}`, which cannot be read as a pattern: {why}"))
                .hint("write module names instead")
        };
        if text.len() > MOST_BYTES {
            return Err(Error::invalid(format!("`{field}` has a pattern of {} bytes", text.len()))
                .hint(format!("{MOST_BYTES} bytes are the most; write module names instead")));
        }
        // Alone first: a stray bracket must not close the one around it.
        Regex::new(text).map_err(|e| bad(e.to_string()))?;
        let regex = RegexBuilder::new(&format!("{before}{text}{after}"))
            .backtrack_limit(MOST_STEPS)
            .build()
            .map_err(|e| bad(e.to_string()))?;
        Ok(Pattern { field, text: text.to_owned(), regex })
    }

    /// A pattern for a whole path.
    pub(super) fn whole(field: &'static str, text: &str) -> Result<Pattern> {
        Pattern::new(field, text, r"\A(?:", r")\z")
    }

    /// A pattern for the end of a path, from a dot on.
    pub(super) fn end(field: &'static str, text: &str) -> Result<Pattern> {
        Pattern::new(field, text, r"\A(?:.*\.)?(?:", r")\z")
    }

    /// Whether it fits the path. Errors when that takes too many steps.
    pub(super) fn fits(&self, path: &str) -> Result<bool> {
        self.regex.is_match(path).map_err(|e| self.costly(&e))
    }

    fn costly(&self, why: &fancy_regex::Error) -> Error {
        Error::invalid(format!("`{}` has `{}`, which cannot be matched: {why}", self.field, self.text))
            .hint("write module names instead")
    }
}

/// Names or a pattern of modules: `target_modules`, `exclude_modules`.
pub(super) enum Modules {
    /// Every linear matrix of the decoder layers.
    All,
    /// Module paths or ends of them.
    Names(Vec<String>),
    /// One pattern for the whole path.
    Pattern(Pattern),
}

impl Modules {
    /// Reads a field: a list of names or a string; `None` when it is null, missing or an empty list.
    pub(super) fn parse(field: &'static str, value: Option<&Value>) -> Result<Option<Modules>> {
        let wrong = |found: &Value| {
            Error::invalid(format!("`{field}` has {found}, which is no module name"))
                .hint("write the module names as a list, or one pattern for whole module paths")
        };
        match value {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.eq_ignore_ascii_case(ALL_LINEAR) => Ok(Some(Modules::All)),
            Some(Value::String(text)) => Ok(Some(Modules::Pattern(Pattern::whole(field, text)?))),
            Some(Value::Array(items)) => {
                let name = |v: &Value| v.as_str().map(str::to_owned).ok_or_else(|| wrong(v));
                let names = items.iter().map(name).collect::<Result<Vec<_>>>()?;
                Ok(Some(Modules::Names(names)).filter(|_| !items.is_empty()))
            }
            Some(other) => Err(wrong(other)),
        }
    }

    /// Whether a module is meant, by its path in the base model.
    pub(super) fn fits(&self, path: &str) -> Result<bool> {
        match self {
            Modules::All => Ok(true),
            Modules::Names(names) => Ok(names.iter().any(|name| is_end(path, name))),
            Modules::Pattern(pattern) => pattern.fits(path),
        }
    }
}

/// Whether PEFT's `name` names the module of this path: the whole of it, or its end after a dot. A name from
/// another wrapper of the same network counts.
pub(super) fn is_end(path: &str, name: &str) -> bool {
    let name = normalise(name);
    !name.is_empty() && path.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// `layers_to_transform` with `layers_pattern`: which layers are changed.
pub(super) struct Layers {
    indices: Vec<usize>,
    patterns: Vec<Pattern>,
}

impl Layers {
    /// Reads both fields for a network of `count` layers; `None` when every layer is meant.
    pub(super) fn parse(
        indices: Option<&Value>,
        names: Option<&Value>,
        targets: &Modules,
        count: usize,
    ) -> Result<Option<Layers>> {
        const FIELD: &str = "layers_to_transform";
        const NAMES: &str = "layers_pattern";
        let absent = |v: Option<&Value>| match v {
            None | Some(Value::Null) => true,
            Some(Value::Array(items)) => items.is_empty(),
            Some(Value::String(text)) => text.is_empty(),
            Some(_) => false,
        };
        if absent(indices) {
            return match names.filter(|_| !absent(names)) {
                None => Ok(None),
                Some(names) => Err(Error::invalid(format!("`{NAMES}` is {names} without `{FIELD}`"))
                    .hint(format!("name the layers in `{FIELD}`, or remove `{NAMES}`"))),
            };
        }
        if matches!(targets, Modules::Pattern(_)) {
            return Err(Error::invalid(format!("`{FIELD}` beside a pattern in `target_modules`"))
                .hint("PEFT takes one of the two: put the layer numbers into the pattern"));
        }
        let index = |v: &Value| {
            v.as_u64().map(|n| n as usize).filter(|n| *n < count).ok_or_else(|| {
                Error::invalid(format!("`{FIELD}` has {v}; the model has {count} layers"))
                    .hint("the adapter was made for another model")
            })
        };
        let indices = match indices {
            Some(Value::Array(items)) => items.iter().map(index).collect::<Result<Vec<_>>>()?,
            Some(one) => vec![index(one)?],
            None => Vec::new(),
        };
        let wrong = |found: &Value| {
            Error::invalid(format!("`{NAMES}` has {found}, which is no name of a list of layers"))
                .hint("write the name, such as \"layers\"")
        };
        let pattern = |v: &Value| {
            let text = v.as_str().ok_or_else(|| wrong(v))?;
            Pattern::new(NAMES, text, r"\A(?:.*?\.)?(?:", r")\.(?<index>\d+)\.")
        };
        let patterns = match names.filter(|_| !absent(names)) {
            None => Vec::new(),
            Some(Value::Array(items)) => items.iter().map(pattern).collect::<Result<Vec<_>>>()?,
            Some(one) => vec![pattern(one)?],
        };
        Ok(Some(Layers { indices, patterns }))
    }

    /// Whether the module of this path stands in a layer that is changed; `layer` is its number.
    pub(super) fn fits(&self, path: &str, layer: usize) -> Result<bool> {
        let mut found = self.patterns.is_empty().then_some(layer);
        for pattern in &self.patterns {
            let captures = pattern.regex.captures(path).map_err(|e| pattern.costly(&e))?;
            if let Some(index) = captures.and_then(|c| c.name("index")?.as_str().parse().ok()) {
                found = Some(index);
                break;
            }
        }
        Ok(found.is_some_and(|index| self.indices.contains(&index)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::json;
    use proptest::prelude::*;

    /// What PEFT's own functions say of settings and paths (see the fixture's `source`).
    #[test]
    fn modules_are_chosen_as_peft_chooses_them() {
        let fixture = json("peft/modules.json");
        let mut seen = [0, 0];
        for case in fixture["targets"].as_array().unwrap() {
            let field = |name: &str| case["settings"].get(name);
            let targets = Modules::parse("target_modules", field("target_modules")).unwrap().unwrap();
            let excluded = Modules::parse("exclude_modules", field("exclude_modules")).unwrap();
            let layers =
                Layers::parse(field("layers_to_transform"), field("layers_pattern"), &targets, 32).unwrap();
            for (path, wanted) in case["paths"].as_object().unwrap() {
                let number = path.split('.').find_map(|part| part.parse().ok()).unwrap();
                let found = targets.fits(path).unwrap()
                    && !excluded.as_ref().is_some_and(|e| e.fits(path).unwrap())
                    && layers.as_ref().is_none_or(|l| l.fits(path, number).unwrap());
                assert_eq!(found, wanted.as_bool().unwrap(), "{path} under {}", case["settings"]);
                seen[usize::from(found)] += 1;
            }
        }
        assert!(seen[0] > 40 && seen[1] > 40, "{seen:?}");
        for case in fixture["patterns"].as_array().unwrap() {
            let keys = case["keys"].as_array().unwrap();
            for (path, wanted) in case["paths"].as_object().unwrap() {
                let found = keys.iter().find(|key| {
                    Pattern::end("rank_pattern", key.as_str().unwrap()).unwrap().fits(path).unwrap()
                });
                assert_eq!(
                    found.map_or(path.as_str(), |key| key.as_str().unwrap()),
                    wanted,
                    "{path} {keys:?}"
                );
            }
        }
    }

    #[test]
    fn patterns_that_run_wild_are_refused() {
        let refused = |text: &str| {
            let error = match Pattern::whole("target_modules", text) {
                Ok(pattern) => pattern.fits("model.layers.0.self_attn.q_proj").unwrap_err(),
                Err(error) => error,
            };
            assert!(error.to_string().contains("target_modules"), "{error}");
        };
        for text in ["(", "a)(", "a)|(b", "[", "*", &"(".repeat(3000), &"x".repeat(20_000)] {
            refused(text);
        }
        refused(r"(?=(.*)*$)(.|.)*(.|.)*(.|.)*(?!\w)\1x");
        refused(&format!("{}x", r"(\w+\.?)+(?=\b)".repeat(6)));
    }

    #[test]
    fn stems_tell_the_layouts_apart() {
        for (key, wanted) in [
            ("base_model.model.model.layers.0.mlp.up_proj.lora_A.weight", Some("model.")),
            ("base_model.model.model.language_model.layers.0.x", Some("model.language_model.")),
            ("base_model.model.language_model.model.layers.0.x", Some("language_model.model.")),
            ("layers.0.x", Some("")),
            ("base_model.model.model.visual.blocks.0.x", None),
            ("base_model.model.lm_head.lora_A.weight", None),
            ("", None),
        ] {
            assert_eq!(stem(key), wanted, "{key}");
        }
    }

    proptest! {
        #[test]
        fn no_name_or_pattern_panics(text in "\\PC{0,24}", path in "\\PC{0,24}") {
            let _ = (stem(&text), is_end(&path, &text));
            for pattern in [Pattern::whole("r", &text), Pattern::end("r", &text)].into_iter().flatten() {
                let _ = pattern.fits(&path);
            }
        }
    }
}
