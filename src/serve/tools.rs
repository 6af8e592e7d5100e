//! Calls of tools in a model's text: the inside of a `<tool_call>` block, as one JSON object (Hermes
//! and Qwen3) or as tags for the function and each parameter (Qwen3.5). What is neither stays text.

use serde_json::{Map, Value};

/// How an answer begins that makes a call, of the named tool or of any, in the form that a chat template teaches. `None`
/// for a template that teaches neither.
pub fn opening(template: &str, name: Option<&str>) -> Option<String> {
    let rest = match name {
        _ if !template.contains("<tool_call>") => return None,
        None => String::new(),
        Some(name) if template.contains("<function=") => format!("<function={name}>\n"),
        // No space at the end: tokens bring their own.
        Some(name) => format!("{{\"name\": {}, \"arguments\":", Value::from(name)),
    };
    Some(format!("<tool_call>\n{rest}"))
}

/// A call that a model made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The function's name.
    pub name: String,
    /// Its arguments, an object written as JSON.
    pub arguments: String,
}

/// Reads the inside of a block. `tools` are those of the request: their schemas say which parameters
/// of the tagged form are texts.
pub fn parse(inside: &str, tools: &[Value]) -> Option<ToolCall> {
    let inside = inside.trim();
    if inside.starts_with('{') { parse_json(inside) } else { parse_tags(inside, tools) }
}

fn parse_json(inside: &str) -> Option<ToolCall> {
    let call: Map<String, Value> = serde_json::from_str(inside).ok()?;
    let name = call.get("name")?.as_str().filter(|name| !name.is_empty())?;
    let arguments = match call.get("arguments").or_else(|| call.get("parameters")) {
        None | Some(Value::Null) => Value::Object(Map::new()),
        // Some models write the object once more as a text.
        Some(Value::String(text)) => serde_json::from_str(text).ok()?,
        Some(other) => other.clone(),
    };
    arguments.is_object().then(|| ToolCall { name: name.to_owned(), arguments: arguments.to_string() })
}

fn parse_tags(inside: &str, tools: &[Value]) -> Option<ToolCall> {
    let (name, mut rest) = inside.strip_prefix("<function=")?.split_once('>')?;
    let body = rest.trim_end().strip_suffix("</function>")?;
    let tool = tools.iter().find(|tool| tool["function"]["name"] == name);
    let mut arguments = Map::new();
    rest = body.trim();
    while !rest.is_empty() {
        let (key, after) = rest.strip_prefix("<parameter=")?.split_once('>')?;
        let (value, after) = after.split_once("</parameter>")?;
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        let schema = tool.map(|tool| &tool["function"]["parameters"]["properties"][key]);
        if arguments.insert(key.to_owned(), typed(value, schema)).is_some() {
            return None;
        }
        rest = after.trim_start();
    }
    let sound = |text: &str| !text.is_empty() && !text.contains(['<', '\n']);
    (sound(name) && arguments.keys().all(|key| sound(key)))
        .then(|| ToolCall { name: name.to_owned(), arguments: Value::Object(arguments).to_string() })
}

/// A parameter's value: of the type that the schema names, where the text can be read so, else the text.
fn typed(text: &str, schema: Option<&Value>) -> Value {
    let kinds: Vec<&str> = match schema.map(|schema| &schema["type"]) {
        Some(Value::String(kind)) => vec![kind.as_str()],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if kinds.is_empty() || kinds.contains(&"string") {
        return text.into();
    }
    // The template writes earlier calls as Python does.
    let value = match text.trim() {
        "True" => Value::Bool(true),
        "False" => Value::Bool(false),
        "None" => Value::Null,
        other => serde_json::from_str(other).unwrap_or_else(|_| text.into()),
    };
    let fits = kinds.iter().any(|kind| match *kind {
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        _ => true,
    });
    if fits { value } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn tools() -> Vec<Value> {
        vec![
            json!({"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {
            "cmd": {"type": "string"}, "timeout": {"type": "integer"}, "env": {"type": "object"},
            "loud": {"type": ["boolean", "null"]}}}}}),
        ]
    }

    fn call(inside: &str) -> Option<(String, String)> {
        parse(inside, &tools()).map(|call| (call.name, call.arguments))
    }

    #[test]
    fn the_json_form_is_read() {
        let wanted = Some(("run".to_owned(), r#"{"cmd":"ls é","n":[1,2.5]}"#.to_owned()));
        assert_eq!(
            call("\n{\"name\": \"run\", \"arguments\": {\"cmd\": \"ls é\", \"n\": [1, 2.5]}}\n"),
            wanted
        );
        assert_eq!(call(r#"{"name": "run", "arguments": "{\"cmd\": \"ls é\", \"n\": [1, 2.5]}"}"#), wanted);
        assert_eq!(call(r#"{"name": "run"}"#).unwrap().1, "{}");
        for broken in [
            r#"{"name": "run", "arguments": {"#,
            r#"{"name": 5}"#,
            r#"{"name": ""}"#,
            r#"{"arguments": {}}"#,
            r#"{"name": "run", "arguments": [1]}"#,
            r#"{"name": "run"} and more"#,
            "",
        ] {
            assert_eq!(call(broken), None, "{broken}");
        }
    }

    #[test]
    fn the_tagged_form_is_read_with_the_types_of_the_schema() {
        let text = "<function=run>\n<parameter=cmd>\nls -la\npwd\n</parameter>\n<parameter=timeout>\n5\n</parameter>\n\
            <parameter=env>\n{\"A\": \"1\"}\n</parameter>\n<parameter=loud>\nTrue\n</parameter>\n</function>";
        let wanted = r#"{"cmd":"ls -la\npwd","timeout":5,"env":{"A":"1"},"loud":true}"#;
        assert_eq!(call(text).unwrap(), ("run".to_owned(), wanted.to_owned()));
        assert_eq!(
            call("<function=run>\n<parameter=cmd>\n5\n</parameter>\n</function>").unwrap().1,
            r#"{"cmd":"5"}"#
        );
        assert_eq!(
            call("<function=run><parameter=timeout>soon</parameter></function>").unwrap().1,
            r#"{"timeout":"soon"}"#
        );
        assert_eq!(call("<function=other><parameter=a>5</parameter></function>").unwrap().1, r#"{"a":"5"}"#);
        assert_eq!(call("<function=run>\n</function>").unwrap().1, "{}");
        for broken in [
            "<function=run>",
            "<function=run>text</function>",
            "<function=run><parameter=cmd>x</function>",
            "<function=><parameter=a>x</parameter></function>",
            "<function=run><parameter=cmd>x</parameter><parameter=cmd>y</parameter></function>",
            "run",
        ] {
            assert_eq!(call(broken), None, "{broken}");
        }
    }

    #[test]
    fn calls_open_as_the_template_teaches() {
        let (json, tags) = ("… <tool_call>\n{\"name\" …", "… <tool_call>\n<function=example> …");
        assert_eq!(opening(json, None).unwrap(), "<tool_call>\n");
        assert_eq!(opening(tags, None).unwrap(), "<tool_call>\n");
        assert_eq!(opening("no tools", Some("run")), None);
        for (template, rest) in
            [(json, " {\"cmd\": \"ls\"}}\n"), (tags, "<parameter=cmd>\nls\n</parameter>\n</function>\n")]
        {
            let whole = opening(template, Some("run")).unwrap() + rest;
            let wanted = Some(("run".to_owned(), r#"{"cmd":"ls"}"#.to_owned()));
            assert_eq!(call(whole.trim_start_matches("<tool_call>")), wanted, "{template}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics_and_arguments_are_an_object(
            parts in proptest::collection::vec(prop_oneof![
                Just("<function=".to_owned()), Just("run>".to_owned()), Just("<parameter=".to_owned()), Just("env>".to_owned()),
                Just("</parameter>".to_owned()), Just("</function>".to_owned()), Just("{\"name\":".to_owned()), "\\PC{0,4}"], 0..10),
        ) {
            if let Some(call) = parse(&parts.concat(), &tools()) {
                prop_assert!(serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok());
            }
        }
    }
}
