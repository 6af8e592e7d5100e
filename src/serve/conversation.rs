//! Messages and tools of a chat request, brought into the form that chat templates read: contents
//! as one text, arguments of calls as objects. Parts that are no text are refused by name.

use super::failure::Failure;
use super::fields::{Fields, wrong};
use crate::model::ChatTemplate;
use serde_json::{Map, Value, json};

/// Most messages of a conversation.
const MOST_MESSAGES: usize = 10_000;

/// A call of a tool that the answer must begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MustCall {
    /// Of whichever tool.
    Any,
    /// Of the tool with this name.
    Named(String),
}

/// What a chat template is given.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// Messages as `{role, content, …}`.
    pub messages: Vec<Value>,
    /// Tools that the model may call; empty when there are none or none may be called.
    pub tools: Vec<Value>,
    /// What the answer must begin with; there are tools then.
    pub must_call: Option<MustCall>,
    /// Further names for the template.
    pub names: Map<String, Value>,
}

impl Conversation {
    /// Takes the fields.
    pub fn take(fields: &mut Fields) -> Result<Conversation, Failure> {
        let list = fields.list("messages")?.unwrap_or_default();
        if list.is_empty() || list.len() > MOST_MESSAGES {
            let text = format!("`messages` has {} entries, not 1 to {MOST_MESSAGES}", list.len());
            return Err(Failure::invalid(text).field("messages"));
        }
        let messages = list
            .into_iter()
            .enumerate()
            .map(|(at, value)| message(value, &format!("messages[{at}]")))
            .collect::<Result<Vec<_>, _>>()?;
        let mut tools = fields.list("tools")?.unwrap_or_default();
        for (at, tool) in tools.iter().enumerate() {
            check_tool(tool, &format!("tools[{at}]"))?;
        }
        let must_call = must_call(fields, &mut tools)?;
        fields.only("parallel_tool_calls", &[json!(true)], "the model decides how many calls it makes")?;
        let names = fields.object("chat_template_kwargs")?.unwrap_or_default();
        if let Some(name) = names.keys().find(|name| ChatTemplate::TAKEN.contains(&name.as_str())) {
            let what = format!("`chat_template_kwargs` sets `{name}`, which the request itself gives");
            return Err(Failure::invalid(what).field("chat_template_kwargs"));
        }
        Ok(Conversation { messages, tools, must_call, names })
    }
}

/// What `tool_choice` asks for; `none` takes the tools away.
fn must_call(fields: &mut Fields, tools: &mut Vec<Value>) -> Result<Option<MustCall>, Failure> {
    const FIELD: &str = "tool_choice";
    let Some(choice) = fields.take(FIELD) else { return Ok(None) };
    let must = match (choice.as_str(), choice["function"]["name"].as_str()) {
        (Some("auto"), _) => return Ok(None),
        (Some("none"), _) => {
            tools.clear();
            return Ok(None);
        }
        (Some("required"), _) => MustCall::Any,
        (None, Some(name)) if choice["type"] == "function" => MustCall::Named(name.to_owned()),
        _ => {
            let wanted =
                "`auto`, `none`, `required`, or {\"type\": \"function\", \"function\": {\"name\": …}}";
            return Err(wrong(FIELD, wanted, &choice));
        }
    };
    if tools.is_empty() {
        return Err(Failure::invalid("`tool_choice` asks for a call, and there are no `tools`").field(FIELD));
    }
    match &must {
        MustCall::Named(name) if !tools.iter().any(|tool| tool["function"]["name"] == name.as_str()) => {
            let name = super::failure::shorten(name);
            Err(Failure::invalid(format!("`tool_choice` names `{name}`, which is not among `tools`"))
                .field(FIELD))
        }
        _ => Ok(Some(must)),
    }
}

fn check_tool(tool: &Value, place: &str) -> Result<(), Failure> {
    if tool["type"] != "function" {
        return Err(Failure::unsupported(&format!("{place}.type"), "only tools of type `function` are"));
    }
    let function = &tool["function"];
    if function["name"].as_str().is_none_or(str::is_empty) {
        return Err(Failure::invalid(format!("`{place}.function.name` is missing")).field(place));
    }
    let parameters = &function["parameters"];
    if !parameters.is_null() && !parameters.is_object() {
        return Err(wrong(&format!("{place}.function.parameters"), "an object", parameters));
    }
    Ok(())
}

fn message(value: Value, place: &str) -> Result<Value, Failure> {
    let Value::Object(mut message) = value else {
        return Err(wrong(place, "an object", &value));
    };
    message.retain(|_, value| !value.is_null());
    let role = match message.get("role") {
        // Templates know the older name.
        Some(Value::String(role)) if role == "developer" => "system".to_owned(),
        Some(Value::String(role)) if ["system", "user", "assistant", "tool"].contains(&role.as_str()) => {
            role.clone()
        }
        other => {
            let got = other.cloned().unwrap_or_default();
            let wanted = "one of `system`, `developer`, `user`, `assistant`, `tool`";
            return Err(wrong(&format!("{place}.role"), wanted, &got));
        }
    };
    for field in ["audio", "function_call"] {
        if message.contains_key(field) {
            return Err(Failure::unsupported(&format!("{place}.{field}"), "leave it out"));
        }
    }
    // What a model refused to say is what it said.
    let refusal = message.remove("refusal");
    let calls = message.remove("tool_calls");
    let content = match message.remove("content").or(refusal) {
        Some(content) => text_of(content, &format!("{place}.content"))?,
        None if role == "assistant" => String::new(),
        None => {
            return Err(
                Failure::invalid(format!("`{place}.content` is missing")).field(format!("{place}.content"))
            );
        }
    };
    let mut out = Map::new();
    out.insert("role".into(), role.as_str().into());
    out.insert("content".into(), content.into());
    if role == "assistant" {
        for field in ["reasoning_content", "reasoning"] {
            match message.remove(field) {
                None => {}
                Some(Value::String(text)) => {
                    out.entry("reasoning_content").or_insert(text.into());
                }
                Some(other) => return Err(wrong(&format!("{place}.{field}"), "a text", &other)),
            }
        }
        if let Some(calls) = calls {
            out.insert("tool_calls".into(), tool_calls(calls, &format!("{place}.tool_calls"))?);
        }
    } else if calls.is_some() {
        return Err(Failure::invalid(format!("`{place}.tool_calls` belongs to assistant messages only"))
            .field(format!("{place}.tool_calls")));
    }
    for field in ["name", "tool_call_id"] {
        match message.remove(field) {
            None => {}
            Some(Value::String(text)) => {
                out.insert(field.into(), text.into());
            }
            Some(other) => return Err(wrong(&format!("{place}.{field}"), "a text", &other)),
        }
    }
    Ok(Value::Object(out))
}

/// A content as one text: parts follow each other, each on lines of its own.
fn text_of(content: Value, place: &str) -> Result<String, Failure> {
    let parts = match content {
        Value::String(text) => return Ok(text),
        Value::Array(parts) => parts,
        other => return Err(wrong(place, "a text or a list of parts", &other)),
    };
    let mut texts = Vec::with_capacity(parts.len());
    for (at, part) in parts.iter().enumerate() {
        let place = format!("{place}[{at}]");
        match (part["type"].as_str(), part["text"].as_str(), part["refusal"].as_str()) {
            (Some("text"), Some(text), _) | (Some("refusal"), _, Some(text)) => texts.push(text),
            (Some(kind), ..) if kind != "text" => {
                let kind = super::failure::shorten(kind);
                return Err(Failure::unsupported(
                    &place,
                    &format!("a part of type `{kind}` is no text, and models here read text only"),
                ));
            }
            _ => return Err(wrong(&place, "a part with `type` and `text`", part)),
        }
    }
    Ok(texts.join("\n"))
}

/// Calls that an assistant made earlier, with their arguments as objects, as templates walk through them.
fn tool_calls(calls: Value, place: &str) -> Result<Value, Failure> {
    let Value::Array(calls) = calls else { return Err(wrong(place, "a list", &calls)) };
    let mut out = Vec::with_capacity(calls.len());
    for (at, call) in calls.iter().enumerate() {
        let place = format!("{place}[{at}].function");
        let function = &call["function"];
        let Some(name) = function["name"].as_str() else {
            return Err(Failure::invalid(format!("`{place}.name` is missing")).field(format!("{place}.name")));
        };
        let arguments = match &function["arguments"] {
            Value::Null => json!({}),
            Value::String(text) if text.trim().is_empty() => json!({}),
            Value::String(text) => serde_json::from_str(text).unwrap_or_default(),
            other => other.clone(),
        };
        if !arguments.is_object() {
            return Err(wrong(
                &format!("{place}.arguments"),
                "an object written as JSON",
                &function["arguments"],
            ));
        }
        let mut kept = json!({"type": "function", "function": {"name": name, "arguments": arguments}});
        if let Some(id) = call["id"].as_str() {
            kept["id"] = id.into();
        }
        out.push(kept);
    }
    Ok(Value::Array(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn take(value: Value) -> Result<Conversation, Failure> {
        Conversation::take(&mut Fields::parse(value.to_string().as_bytes())?)
    }

    #[test]
    fn messages_come_into_the_form_of_templates() {
        let got = take(json!({"messages": [
            {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "user", "content": "hi", "name": "me"},
            {"role": "assistant", "content": null, "refusal": null, "reasoning_content": "hm", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"b\": 1, \"a\": [2]}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        ], "tools": [{"type": "function", "function": {"name": "f"}}], "chat_template_kwargs": {"x": 1}}))
        .unwrap();
        assert_eq!(
            got.messages,
            vec![
                json!({"role": "system", "content": "a\nb"}),
                json!({"role": "user", "content": "hi", "name": "me"}),
                json!({"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [
                {"type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": [2]}}, "id": "c1"}]}),
                json!({"role": "tool", "content": "ok", "tool_call_id": "c1"}),
            ]
        );
        assert_eq!((got.tools.len(), got.names["x"].as_i64()), (1, Some(1)));
    }

    #[test]
    fn no_tool_reaches_the_template_when_none_may_be_called() {
        let body = json!({"messages": [{"role": "user", "content": "x"}], "tool_choice": "none",
            "tools": [{"type": "function", "function": {"name": "f"}}]});
        assert!(take(body).unwrap().tools.is_empty());
    }

    #[test]
    fn a_call_can_be_asked_for() {
        let body = |choice: Value| {
            json!({"messages": [{"role": "user", "content": "x"}], "tool_choice": choice,
                "tools": [{"type": "function", "function": {"name": "f"}}]})
        };
        let must = |choice: Value| take(body(choice)).map(|c| c.must_call);
        let named = |name: &str| json!({"type": "function", "function": {"name": name}});
        assert_eq!(must(json!("auto")).unwrap(), None);
        assert_eq!(must(json!("required")).unwrap(), Some(MustCall::Any));
        assert_eq!(must(named("f")).unwrap(), Some(MustCall::Named("f".into())));
        for odd in [
            named("g"),
            json!("always"),
            json!({"type": "function"}),
            json!({"type": "allowed_tools"}),
            json!(1),
        ] {
            assert_eq!(must(odd.clone()).unwrap_err().field.as_deref(), Some("tool_choice"), "{odd}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let user = |content: Value| json!({"messages": [{"role": "user", "content": "x"}, {"role": "user", "content": content}]});
        for (body, place) in [
            (json!({}), "messages"),
            (json!({"messages": [{"role": "wizard", "content": ""}]}), "messages[0].role"),
            (user(json!([{"type": "image_url", "image_url": {"url": "u"}}])), "messages[1].content[0]"),
            (user(json!(null)), "messages[1].content"),
            (user(json!(5)), "messages[1].content"),
            (
                json!({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]}),
                "messages[0].tool_calls[0].function.arguments",
            ),
            (
                json!({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "web"}]}),
                "tools[0].type",
            ),
            (
                json!({"messages": [{"role": "user", "content": "x"}], "tool_choice": "required"}),
                "tool_choice",
            ),
            (
                json!({"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"tools": []}}),
                "chat_template_kwargs",
            ),
            (
                json!({"messages": [{"role": "user", "content": "x"}], "parallel_tool_calls": false}),
                "parallel_tool_calls",
            ),
        ] {
            let failure = take(body.clone()).unwrap_err();
            assert_eq!(failure.field.as_deref(), Some(place), "{body}: {}", failure.message);
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let word =
            "role|content|type|text|tool_calls|function|name|arguments|user|assistant|tool|image_url|x";
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            word.prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 32, 4, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec((word, inner), 0..5)
                    .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_conversation_panics(messages in any_json(), tools in any_json(), choice in any_json()) {
            let _ = take(json!({"messages": messages, "tools": [tools], "tool_choice": choice}));
            let _ = take(json!({"messages": [messages], "tools": tools}));
        }
    }
}
