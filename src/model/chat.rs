//! Chat templates: a conversation to the text that the model was trained on, byte for byte
//! as the reference implementation renders it (Jinja with trimmed blocks, Python's string
//! methods, and its JSON).

use crate::error::{Error, Result};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, ValueKind};
use minijinja::{Environment, ErrorKind, Value};
use serde::Serialize;
use std::path::Path;

const NAME: &str = "chat_template";

/// Work that one rendering may do: instructions, plus one for each 64 bytes that are made. A published template
/// takes some hundred a message; this much is spent within a second and makes 32 MiB at most.
const FUEL: u64 = 1 << 19;

/// Stack of the thread that renders. Lists that a template puts into each other 80,000 times, which the fuel
/// allows, are freed one inside the other; that was seen to overflow 8 MiB and to fit 64 with twice the fuel.
const STACK: usize = 64 << 20;

/// Levels of lists and objects that `tojson` writes, as many as `serde_json` reads.
const DEEPEST: usize = 128;

/// Values that one `tojson` writes; a conversation with many tools has some thousand.
const MOST_VALUES: usize = 1 << 18;

/// A model's chat template.
pub struct ChatTemplate {
    environment: Environment<'static>,
    text: String,
    /// Where it was read from, for errors.
    place: String,
    bos: String,
    eos: String,
}

impl ChatTemplate {
    /// Names that a template reads and that are not set by name.
    pub const TAKEN: [&str; 5] = ["messages", "add_generation_prompt", "bos_token", "eos_token", "tools"];

    /// What decides how a conversation is rendered.
    pub fn identity(&self) -> (&str, &str, &str) {
        (&self.text, &self.bos, &self.eos)
    }

    /// Compiles a template; `bos` and `eos` are the tokens that it may name. `place` is for errors.
    pub fn new(text: String, bos: &str, eos: &str, place: &str) -> Result<ChatTemplate> {
        let bad = |e: minijinja::Error| {
            Error::invalid(format!("is not a usable chat template: {}", chain(&e)))
                .at(place)
                .hint("take it from the model's publication")
        };
        let mut environment = Environment::new();
        environment
            .set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(bad)?);
        environment.set_fuel(Some(FUEL));
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<Value, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
        });
        // No `strftime_now`: what a model is asked must not depend on the clock.
        environment.add_filter("tojson", to_json);
        environment.set_formatter(|out, state, value| {
            if beyond(value, DEEPEST, &mut { MOST_VALUES }) {
                let text = format!("printing more than {DEEPEST} levels or {MOST_VALUES} values");
                return Err(minijinja::Error::new(ErrorKind::BadSerialization, text));
            }
            minijinja::escape_formatter(out, state, value)
        });
        environment.add_template_owned(NAME, text.clone()).map_err(bad)?;
        let (bos, eos) = (bos.to_owned(), eos.to_owned());
        Ok(ChatTemplate { environment, text, place: place.to_owned(), bos, eos })
    }

    /// The template of a folder: `chat_template.jinja`, else `chat_template` in `tokenizer_config.json`.
    pub fn from_folder(folder: &Path) -> Result<Option<ChatTemplate>> {
        let config = folder.join("tokenizer_config.json");
        let fields: serde_json::Value = if config.exists() {
            serde_json::from_str(&crate::regular::text(&config)?)
                .map_err(|e| Error::invalid(format!("is not JSON: {e}")).at(config.display()))?
        } else {
            serde_json::Value::Null
        };
        // A token is a string, or an object with its content.
        let token = |key: &str| {
            let value = &fields[key];
            value.as_str().or_else(|| value["content"].as_str()).unwrap_or_default().to_owned()
        };
        let file = folder.join("chat_template.jinja");
        let (text, place) = if file.exists() {
            (crate::regular::text(&file)?, file)
        } else {
            match &fields["chat_template"] {
                serde_json::Value::Null => return Ok(None),
                serde_json::Value::String(text) => (text.clone(), config),
                _ => {
                    return Err(Error::invalid("`chat_template` is not one template")
                        .at(config.display())
                        .hint("put the template to use into chat_template.jinja"));
                }
            }
        };
        Self::new(text, &token("bos_token"), &token("eos_token"), &place.display().to_string()).map(Some)
    }

    /// The text of a conversation, ending with the opening of an assistant turn when `open`.
    pub fn render<M: Serialize>(&self, messages: &[M], open: bool) -> Result<String> {
        self.render_with(messages, open, &[], &serde_json::Map::new())
    }

    /// The same with tools that the model may call, and further names that the template may read, such as
    /// `enable_thinking`. Without tools the template's `tools` is undefined. Errors on a name that is taken.
    pub fn render_with<M: Serialize>(
        &self,
        messages: &[M],
        open: bool,
        tools: &[serde_json::Value],
        names: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<String> {
        if let Some(name) = names.keys().find(|name| Self::TAKEN.contains(&name.as_str())) {
            return Err(Error::invalid(format!("the chat template's `{name}` cannot be set by name"))
                .hint("set it through messages and tools"));
        }
        let template = self.environment.get_template(NAME).map_err(|e| Error::invalid(chain(&e)))?;
        let mut names = names.clone();
        if !tools.is_empty() {
            names.insert("tools".to_owned(), tools.into());
        }
        let context = minijinja::context! {
            messages => Value::from(Serde(messages)),
            add_generation_prompt => open,
            bos_token => self.bos.clone(),
            eos_token => self.eos.clone(),
            ..Value::from(Serde(&names))
        };
        let stack = std::thread::Builder::new().stack_size(STACK);
        let rendered = std::thread::scope(|scope| {
            stack.spawn_scoped(scope, || template.render(context)).map(|thread| thread.join())
        });
        let rendered =
            rendered?.map_err(|_| Error::invalid("the chat template broke its engine").at(&self.place))?;
        rendered.map_err(|e| {
            let error = if e.kind() == ErrorKind::OutOfFuel {
                Error::invalid("the chat template does not come to an end, or writes without bound").hint(
                    "take the template from the model's publication; it may need a shorter conversation",
                )
            } else {
                Error::invalid(format!("the chat template refuses this conversation: {}", chain(&e))).hint(
                    "its own words say what it needs, such as roles that alternate or no system message",
                )
            };
            error.at(&self.place)
        })
    }

    /// The text of a conversation and the opening of an assistant turn, in which the template is to let the model
    /// think first, or is not to (`enable_thinking`; a template that does not know the name makes no difference).
    pub fn prompt<M: Serialize>(&self, messages: &[M], thinking: bool) -> Result<String> {
        let mut names = serde_json::Map::new();
        names.insert("enable_thinking".to_owned(), thinking.into());
        self.render_with(messages, true, &[], &names)
    }

    /// What follows the content of an assistant turn when `next` comes after it: the end of that
    /// turn, `next`, and the opening of another assistant turn as [`ChatTemplate::prompt`] writes it.
    pub fn after_assistant<M: Serialize>(&self, next: &M, thinking: bool) -> Result<String> {
        // A text that no template writes by itself, and that no trimming changes.
        const MARK: &str = "\u{2063}rederive-assistant-turn\u{2063}";
        let next = serde_json::to_value(next)
            .map_err(|e| Error::invalid(format!("message cannot be rendered: {e}")))?;
        let messages = [
            serde_json::json!({"role": "user", "content": "."}),
            serde_json::json!({"role": "assistant", "content": MARK}),
            next,
        ];
        let text = self.prompt(&messages, thinking)?;
        match text.split_once(MARK) {
            Some((_, rest)) if !rest.contains(MARK) => Ok(rest.to_owned()),
            _ => Err(Error::invalid("the chat template does not write an assistant's content as it stands")
                .hint("episodes of several turns need a template that does")),
        }
    }

    /// Whether the template has a place for tools.
    pub fn takes_tools(&self) -> bool {
        self.environment
            .get_template(NAME)
            .is_ok_and(|template| template.undeclared_variables(false).contains("tools"))
    }

    /// The template itself.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The beginning-of-document token that it was made with; empty when there is none.
    pub fn bos(&self) -> &str {
        &self.bos
    }

    /// The end token that it was made with; empty when there is none.
    pub fn eos(&self) -> &str {
        &self.eos
    }
}

/// An error of the template engine with its causes, on one line.
fn chain(error: &minijinja::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// JSON as Python's `json.dumps(value, ensure_ascii=False, indent=indent)` writes it.
fn to_json(value: Value, options: Kwargs) -> Result<String, minijinja::Error> {
    let indent: Option<usize> = options.get("indent")?;
    let ascii: Option<bool> = options.get("ensure_ascii")?;
    if ascii == Some(true) {
        return Err(minijinja::Error::new(
            ErrorKind::InvalidOperation,
            "tojson with ensure_ascii is not supported",
        ));
    }
    options.assert_all_used()?;
    let mut values = MOST_VALUES;
    if beyond(&value, DEEPEST, &mut values) {
        let text = format!("tojson of more than {DEEPEST} levels or {MOST_VALUES} values");
        return Err(minijinja::Error::new(ErrorKind::BadSerialization, text));
    }
    let value = serde_json::to_value(&value)
        .map_err(|e| minijinja::Error::new(ErrorKind::BadSerialization, e.to_string()))?;
    let mut out = String::new();
    write_json(&value, indent, 0, &mut out);
    Ok(out)
}

/// Whether a value has more levels of lists and objects, or more values in all, than allowed. A list that
/// stands in several places counts in each, as it would be written.
fn beyond(value: &Value, levels: usize, values: &mut usize) -> bool {
    *values = values.saturating_sub(1);
    if *values == 0 {
        return true;
    }
    let mut below = |item: &Value| levels == 0 || beyond(item, levels - 1, values);
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            value.try_iter().is_ok_and(|mut items| items.any(|i| below(&i)))
        }
        ValueKind::Map => value
            .try_iter()
            .is_ok_and(|mut keys| keys.any(|key| value.get_item(&key).is_ok_and(|item| below(&item)))),
        _ => false,
    }
}

fn write_json(value: &serde_json::Value, indent: Option<usize>, depth: usize, out: &mut String) {
    use serde_json::Value as Json;
    let line = |out: &mut String, depth: usize| {
        if let Some(width) = indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', width.min(64) * depth));
        }
    };
    let comma = if indent.is_some() { "," } else { ", " };
    match value {
        Json::Array(items) if !items.is_empty() => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { comma });
                line(out, depth + 1);
                write_json(item, indent, depth + 1, out);
            }
            line(out, depth);
            out.push(']');
        }
        Json::Object(fields) if !fields.is_empty() => {
            out.push('{');
            for (i, (key, item)) in fields.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { comma });
                line(out, depth + 1);
                out.push_str(&Json::String(key.clone()).to_string());
                out.push_str(": ");
                write_json(item, indent, depth + 1, out);
            }
            line(out, depth);
            out.push('}');
        }
        Json::Number(n) if n.is_f64() => out.push_str(&python_float(n.as_f64().unwrap_or_default())),
        other => out.push_str(&other.to_string()),
    }
}

/// Python's `repr` of a float: shortest digits, exponent from 1e16 and below 1e-4.
fn python_float(x: f64) -> String {
    let magnitude = x.abs();
    if magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let text = format!("{x:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or_default();
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    format!("{x:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn render(template: &str, messages: serde_json::Value) -> Result<String> {
        let template = ChatTemplate::new(template.to_owned(), "<s>", "</s>", "test").unwrap();
        template.render(messages.as_array().unwrap(), true)
    }

    #[test]
    fn json_is_written_as_python_writes_it() {
        // Right-hand sides: Python's json.dumps(value, ensure_ascii=False).
        for (value, wanted) in [
            (
                json!({"z": 1, "a": [1, 2.0, 1e-5, 1e16, 0.1], "b": {}}),
                r#"{"z": 1, "a": [1, 2.0, 1e-05, 1e+16, 0.1], "b": {}}"#,
            ),
            (json!("the <b>&'é\n\u{7f}\u{1}\""), "\"the <b>&'é\\n\u{7f}\\u0001\\\"\""),
            (json!([null, true, []]), "[null, true, []]"),
        ] {
            assert_eq!(render("{{ messages[0] | tojson }}", json!([value])).unwrap(), wanted);
        }
        let indented = render("{{ messages[0] | tojson(indent=2) }}", json!([{"a": [1], "b": {}}])).unwrap();
        assert_eq!(indented, "{\n  \"a\": [\n    1\n  ],\n  \"b\": {}\n}");
    }

    #[test]
    fn blocks_are_trimmed_and_python_methods_work() {
        let template = "{% for m in messages %}\n  {% if m.role.startswith('u') %}\n{{ m.content.strip() }}|{{ bos_token }}\n  {% endif %}\n{% endfor %}";
        let text =
            render(template, json!([{"role": "user", "content": " a "}, {"role": "tool", "content": "b"}]))
                .unwrap();
        assert_eq!(text, "a|<s>\n");
        let text =
            render("{{ messages[::-1][0].content.split('x')[-1] }}", json!([{"content": "1x2"}])).unwrap();
        assert_eq!(text, "2");
        let text = render(
            "{% for m in messages %}{% if m == 2 %}{% break %}{% endif %}{{ m }}{% endfor %}",
            json!([1, 2, 3]),
        );
        assert_eq!(text.unwrap(), "1");
    }

    #[test]
    fn tools_and_further_names_reach_the_template() {
        let text = "{% if tools %}{{ tools | tojson }}{% endif %}{{ enable_thinking is defined and enable_thinking }}";
        let template = ChatTemplate::new(text.to_owned(), "", "", "t").unwrap();
        let names = |value: serde_json::Value| value.as_object().unwrap().clone();
        let none: [serde_json::Value; 0] = [];
        let tools = [json!({"name": "f", "parameters": {"b": 1, "a": 2}})];
        let rendered = template.render_with(&none, true, &tools, &names(json!({"enable_thinking": true})));
        assert_eq!(rendered.unwrap(), r#"[{"name": "f", "parameters": {"b": 1, "a": 2}}]True"#);
        assert_eq!(template.render(&none, true).unwrap(), "False");
        assert!(template.render_with(&none, true, &[], &names(json!({"messages": []}))).is_err());
        assert!(template.takes_tools());
        assert!(!ChatTemplate::new("{{ messages }}".into(), "", "", "t").unwrap().takes_tools());
    }

    #[test]
    fn a_template_may_refuse_and_says_why() {
        let error = render("{{ raise_exception('roles must alternate') }}", json!([])).unwrap_err();
        assert!(error.to_string().contains("roles must alternate"), "{error}");
        let bad = ChatTemplate::new("{% for %}".into(), "", "", "x.jinja").err().unwrap();
        assert!(bad.to_string().starts_with("x.jinja: "), "{bad}");
    }

    #[test]
    fn a_template_without_end_or_measure_is_stopped_by_name() {
        let nested = |each: &str| {
            format!(
                "{{% set n = namespace(x=[]) %}}{{% for i in range(900) %}}{{% for j in range(90000) %}}\
                 {{% set n.x = [n.x] %}}{each}{{% endfor %}}{{% endfor %}}"
            )
        };
        let doubled = |end: &str| {
            format!(
                "{{% set n = namespace(x=[]) %}}{{% for i in range(100) %}}{{% set n.x = [n.x, n.x] %}}{{% endfor %}}{end}"
            )
        };
        let (all, some) = (doubled("{{ n.x }}"), doubled("{{ n.x | tojson }}"));
        let (nested, written, printed) = (
            nested(""),
            nested("{% if j == 9000 %}{{ n.x | tojson }}{% endif %}"),
            nested("{% if j == 30000 %}{{ n.x }}{% endif %}"),
        );
        for text in [
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
            "{{ 'x' * 10000000000 }}",
            "{% for i in range(99999) %}{{ 'x' * 10000 }}{% endfor %}",
            "{% set n = namespace(x='xx') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
            "{{ range(100000) | list | tojson(indent=99999999999) | length * 'x' * 100000 }}",
            nested.as_str(),
            written.as_str(),
            printed.as_str(),
            all.as_str(),
            some.as_str(),
        ] {
            let start = std::time::Instant::now();
            let error = render(text, json!([])).unwrap_err().to_string();
            assert!(error.starts_with("test: the chat template "), "{text}: {error}");
            assert!(start.elapsed().as_secs() < 20, "{text}: {:?}", start.elapsed());
        }
        let long = json!([{"role": "user", "content": "a word or two ".repeat(40_000)}]);
        assert_eq!(render("{{ messages[0].content | trim }}", long).unwrap().len(), 559_999);
    }

    #[test]
    fn what_follows_an_assistant_needs_its_content_as_it_stands() {
        let template = |text: &str| ChatTemplate::new(text.to_owned(), "", "", "t").unwrap();
        let next = json!({"role": "user", "content": "n"});
        let plain = template("{% for m in messages %}[{{ m.content }}]{% endfor %}>");
        assert_eq!(plain.after_assistant(&next, true).unwrap(), "][n]>");
        assert!(template("{{ messages[-1].content }}").after_assistant(&next, true).is_err());
    }

    #[test]
    fn a_folder_gives_its_template_by_either_road() {
        let dir = tempfile::tempdir().unwrap();
        assert!(ChatTemplate::from_folder(dir.path()).unwrap().is_none());
        let config = json!({"chat_template": "old{{ eos_token }}", "eos_token": {"content": "E"}});
        fs_err::write(dir.path().join("tokenizer_config.json"), config.to_string()).unwrap();
        let render =
            || ChatTemplate::from_folder(dir.path()).unwrap().unwrap().render::<()>(&[], false).unwrap();
        assert_eq!(render(), "oldE");
        fs_err::write(dir.path().join("chat_template.jinja"), "new{{ eos_token }}").unwrap();
        assert_eq!(render(), "newE");
    }
}
