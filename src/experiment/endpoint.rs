//! `[model.endpoint]`: a server that answers for the model, in some events or in all. What decides an
//! answer is locked with the plan; how the server is reached is not, so that it may move.

use super::plan::{Plan, Purpose};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Longest wait for one answer, in seconds.
const MOST_SECONDS: u64 = 24 * 3600;
/// Most further attempts at one call.
const MOST_RETRIES: u32 = 100;
/// Members of a request that are the harness's, and no plan's.
const TAKEN: [&str; 10] = [
    "model",
    "messages",
    "seed",
    "temperature",
    "top_p",
    "max_tokens",
    "max_completion_tokens",
    "stop",
    "stream",
    "n",
];
/// Keys that say how a server is reached.
const UNLOCKED: [&str; 4] = ["url", "api_key_env", "timeout_s", "retries"];

/// `[model.endpoint]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointSection {
    /// Address of an OpenAI-compatible API, such as `http://127.0.0.1:8080/v1`.
    pub url: String,
    /// The base model, by the name that the server lists.
    pub model: String,
    /// The environment variable that holds the key, where the server wants one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// The event seeds that run there; all of them when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seeds: Option<Vec<u64>>,
    /// Longest wait for one answer, in seconds.
    #[serde(default = "timeout_default")]
    pub timeout_s: u64,
    /// How often a call that failed is tried again.
    #[serde(default = "retries_default")]
    pub retries: u32,
    /// Whether the server's count of every prompt must equal that of `source`, where a source is named.
    #[serde(default = "yes")]
    pub count_tokens: bool,
    /// Whether the server must keep its `system_fingerprint`.
    #[serde(default = "yes")]
    pub fingerprint: bool,
    /// Further members of every request, such as `{ top_k = 0, min_p = 0.0 }`.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub extra: toml::Table,
}

fn timeout_default() -> u64 {
    600
}

fn retries_default() -> u32 {
    5
}

fn yes() -> bool {
    true
}

impl EndpointSection {
    /// What the server's chat template reads beside the conversation, as `extra` says.
    pub fn template_names(&self) -> serde_json::Map<String, serde_json::Value> {
        let names = self.extra.get("chat_template_kwargs").and_then(|names| serde_json::to_value(names).ok());
        names.and_then(|names| names.as_object().cloned()).unwrap_or_default()
    }
}

impl Plan {
    /// The endpoint, for an event seed that runs there.
    pub fn endpoint_of(&self, seed: u64) -> Option<&EndpointSection> {
        self.model.endpoint.as_ref().filter(|e| e.seeds.as_ref().is_none_or(|seeds| seeds.contains(&seed)))
    }

    /// Event seeds of a purpose that run on the endpoint (`true`) or here.
    pub fn seeds_on(&self, purpose: Purpose, endpoint: bool) -> Vec<u64> {
        let of = self.event_seeds().into_iter().filter(|(p, _)| *p == purpose).map(|(_, seed)| seed);
        of.filter(|seed| self.endpoint_of(*seed).is_some() == endpoint).collect()
    }

    /// Whether any evaluated event runs on the endpoint (`true`) or here.
    pub fn runs_on(&self, endpoint: bool) -> bool {
        [Purpose::Calibrate, Purpose::Null, Purpose::Evaluate]
            .into_iter()
            .any(|purpose| !self.seeds_on(purpose, endpoint).is_empty())
    }

    /// The local model, for what needs one.
    pub fn source(&self) -> Result<&str> {
        self.model.source.as_deref().ok_or_else(|| {
            Error::invalid("the plan names no model that runs here")
                .at("experiment.toml: [model] source")
                .hint("add `source = \"smollm2-135m-instruct\"`, or another name, folder or .gguf file")
        })
    }

    /// What the plan calls its model.
    pub fn model_name(&self) -> &str {
        let served = || self.model.endpoint.as_ref().map(|e| e.model.as_str());
        self.model.source.as_deref().or_else(served).unwrap_or_default()
    }
}

/// The `[model]` section as it is locked.
pub(super) fn locked(plan: &Plan) -> serde_json::Result<serde_json::Value> {
    let mut model = serde_json::to_value(&plan.model)?;
    if let Some(endpoint) = model.get_mut("endpoint").and_then(serde_json::Value::as_object_mut) {
        endpoint.retain(|key, _| !UNLOCKED.contains(&key.as_str()));
    }
    Ok(model)
}

/// Checks what the grammar does not; `path` is for messages.
pub(super) fn validate(plan: &Plan, path: &Path) -> Result<()> {
    let bad = |key: &str, what: String, hint: &str| {
        Err(Error::invalid(what).at(format!("{}: {key}", path.display())).hint(hint))
    };
    let needs_source = plan.runs_on(false) || !plan.seeds.harvest.is_empty();
    if plan.model.source.is_none() && (needs_source || plan.model.endpoint.is_none()) {
        return bad(
            "[model] source",
            "is missing, and some of the plan runs here".into(),
            "name a model, or give `[model.endpoint]` every event and leave out the harvest",
        );
    }
    let spent: Vec<(Purpose, u64)> =
        plan.event_seeds().into_iter().filter(|(purpose, _)| *purpose != Purpose::Harvest).collect();
    for seed in plan.model.endpoint.iter().filter_map(|e| e.seeds.as_ref()).flatten() {
        if !spent.iter().any(|(_, planned)| planned == seed) {
            return bad(
                "[model.endpoint] seeds",
                format!("{seed} is no evaluation, calibration or null seed of the plan"),
                "the harvest runs here, since training needs token ids",
            );
        }
    }
    for arm in &plan.arms {
        if arm.served.is_some() && !plan.runs_on(true) {
            return bad(
                "[[arms]] served",
                format!("arm `{}` is served, and no event runs on an endpoint", arm.name),
                "add `[model.endpoint]`, or remove `served`",
            );
        }
        if arm.adapter.is_some() && arm.served.is_none() && plan.runs_on(true) {
            return bad(
                "[[arms]] served",
                format!("arm `{}` has an adapter, which an endpoint does not know", arm.name),
                "name the model that serves it there, such as `served = \"tuned\"`",
            );
        }
    }
    let Some(endpoint) = &plan.model.endpoint else { return Ok(()) };
    if plan.harness.evaluate.think_tokens.is_some() && plan.runs_on(true) {
        return bad(
            "[harness] evaluate think_tokens",
            "a server cannot be held to a budget for thoughts".into(),
            "leave it out, and set the server's own switch in `[model.endpoint] extra`",
        );
    }
    let key = |name: &str| format!("[model.endpoint] {name}");
    if !(endpoint.url.starts_with("http://") || endpoint.url.starts_with("https://")) {
        return bad(
            &key("url"),
            format!("`{}` is no address of a server", endpoint.url),
            "write one such as \"http://127.0.0.1:8080/v1\"",
        );
    }
    if endpoint.url.contains('@') {
        return bad(
            &key("url"),
            "holds a user or a password".into(),
            "a plan is published: put the key into an environment variable and name that with `api_key_env`",
        );
    }
    if endpoint.model.trim().is_empty() {
        return bad(&key("model"), "is empty".into(), "write a name that the server lists under /models");
    }
    if !(1..=MOST_SECONDS).contains(&endpoint.timeout_s) || endpoint.retries > MOST_RETRIES {
        return bad(
            "[model.endpoint]",
            format!("timeout_s must lie in 1..={MOST_SECONDS}, and retries in 0..={MOST_RETRIES}"),
            "leave a key out to take its default",
        );
    }
    if let Some(name) = endpoint.extra.keys().find(|name| TAKEN.contains(&name.as_str())) {
        return bad(
            &key("extra"),
            format!("`{name}` is set by the harness"),
            "use `[harness]` for it; `extra` is for what a server wants beyond that",
        );
    }
    let nulls = (plan.seeds_on(Purpose::Null, true).len(), plan.seeds_on(Purpose::Null, false).len());
    if nulls.0 > 0 && nulls.1 > 0 {
        return bad(
            &key("seeds"),
            "the null seeds run on two backends, and their spread would be that of the backends".into(),
            "list all of the null seeds, or none",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::GOOD;
    use super::*;
    use crate::experiment::{Stage, lock};

    const TABLE: &str =
        "[model.endpoint]\nurl = \"http://127.0.0.1:8080/v1\"\nmodel = \"small\"\nseeds = [52005]\n";

    fn text(table: &str) -> String {
        GOOD.replace("[harness]\n", &format!("{table}[harness]\n"))
            .replace("deploy = \"merged\"", "deploy = \"merged\"\nserved = \"tuned\"")
    }

    fn parse(text: &str) -> Result<Plan> {
        Plan::parse(text, Path::new("experiment.toml"))
    }

    #[test]
    fn events_are_split_between_two_backends() {
        let plan = parse(&text(TABLE)).unwrap();
        assert_eq!(plan.seeds_on(Purpose::Evaluate, true), [52005]);
        assert_eq!(plan.seeds_on(Purpose::Evaluate, false), [52004]);
        assert!(
            plan.seeds_on(Purpose::Calibrate, true).is_empty() && plan.runs_on(true) && plan.runs_on(false)
        );
        assert_eq!(parse(&toml::to_string(&plan).unwrap()).unwrap(), plan);
        let all = parse(&text(&TABLE.replace("seeds = [52005]\n", ""))).unwrap();
        assert!(!all.runs_on(false) && all.seeds_on(Purpose::Calibrate, true) == [31001]);
    }

    #[test]
    fn a_server_may_move_and_nothing_else_may_change() {
        let folder = tempfile::tempdir().unwrap();
        let locks = |text: &str| lock::lock(folder.path(), &parse(text).unwrap(), Stage::Evaluate);
        let plan = text(TABLE);
        locks(&plan).unwrap();
        locks(&plan.replace("127.0.0.1:8080", "elsewhere:9090")).unwrap();
        locks(&plan.replace(
            "model = \"small\"",
            "model = \"small\"\nretries = 9\ntimeout_s = 7\napi_key_env = \"KEY\"",
        ))
        .unwrap();
        for (from, to, named) in [
            ("model = \"small\"", "model = \"large\"", "`model.endpoint.model`"),
            ("seeds = [52005]\n", "", "`model.endpoint.seeds`"),
            ("seeds = [52005]", "seeds = [52005]\nextra = { top_k = 0 }", "`model.endpoint.extra`"),
            ("served = \"tuned\"", "served = \"other\"", "`arms`"),
        ] {
            let error = locks(&plan.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn what_cannot_run_is_refused_by_key() {
        for (from, to, named) in [
            ("url = \"http://", "url = \"ftp://", "no address"),
            ("url = \"http://", "url = \"http://me:secret@", "a user or a password"),
            ("model = \"small\"", "model = \" \"", "[model.endpoint] model"),
            ("seeds = [52005]", "seeds = [11001]", "11001 is no evaluation"),
            ("seeds = [52005]", "seeds = [1]", "1 is no evaluation"),
            ("seeds = [52005]", "timeout_s = 0", "timeout_s"),
            ("seeds = [52005]", "retries = 1000", "retries"),
            ("seeds = [52005]", "extra = { temperature = 1.0 }", "`temperature` is set by the harness"),
            ("seeds = [52005]", "sead = [1]", "did you mean `seeds`"),
            ("served = \"tuned\"", "", "has an adapter, which an endpoint does not know"),
            ("source = \"smollm2-135m-instruct\"", "", "some of the plan runs here"),
        ] {
            let good = text(TABLE);
            assert!(good.contains(from), "{from}");
            let error = parse(&good.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(named) && error.contains("hint: "), "{named}: {error}");
        }
        let error = parse(&text("")).unwrap_err().to_string();
        assert!(error.contains("no event runs on an endpoint"), "{error}");
        let error = parse(&GOOD.replace("source = \"smollm2-135m-instruct\"", "")).unwrap_err().to_string();
        assert!(error.contains("[model] source"), "{error}");
        let null = text(TABLE).replace("train = [1]\n", "train = [1]\nnull = [41001, 41002]\n");
        assert!(parse(&null).is_ok());
        let error = parse(&null.replace("[52005]\n[harness]", "[41001]\n[harness]")).unwrap_err().to_string();
        assert!(error.contains("null seeds run on two backends"), "{error}");
    }

    #[test]
    fn a_plan_of_a_server_alone_names_no_source() {
        let table = TABLE.replace("seeds = [52005]\n", "");
        let plan = text(&table)
            .replace("source = \"smollm2-135m-instruct\"", "")
            .replace("harvest = [11001]", "harvest = []")
            .replace("adapter = \"receipt:train\"\ndeploy = \"merged\"\n", "")
            .replace("train = [1]\n", "");
        let plan = parse(&plan).unwrap();
        assert_eq!(plan.model_name(), "small");
        assert!(plan.source().unwrap_err().to_string().contains("[model] source"));
    }
}
