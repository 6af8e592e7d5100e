//! Models and engines that several stages share: the base model is read once, however many
//! stages of one process need it.

use super::{Context, Experiment, train};
use crate::engine::endpoint::{Count, Endpoint, Policy};
use crate::engine::local::{self, Engine, Markers, Options};
use crate::engine::{Backend, Sampling};
use crate::environment::{Environment, conversation};
use crate::episode::{Control, EpisodeRow, Item, UnitFiles, UnitReport, UnitSpec, run_unit, table};
use crate::error::{Error, Result};
use crate::experiment::{Arm, EndpointSection, Harness, MOST_SLOTS, Purpose};
use crate::model::{Lora, Model, Processor, Source, TextSide, fetch, registry};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Tokens that an observation of a later turn may take, generously.
const OBSERVATION_TOKENS: usize = 96;

const _: () = assert!(MOST_SLOTS <= local::MOST_SLOTS, "a plan allows no more slots than the engine has");

/// Holds the base model between stages.
#[derive(Default)]
pub struct Lab {
    processor: Processor,
    base: Option<Arc<Model>>,
}

/// A unit of work: one arm under one event seed.
pub struct Unit<'a> {
    /// The name that the rows carry: an arm, or `harvest`.
    pub arm: &'a str,
    /// What the seed is spent on.
    pub purpose: Purpose,
    /// The event seed.
    pub seed: u64,
    /// Families, trained ones first.
    pub families: Vec<String>,
    /// Tasks a family and level.
    pub per_family: u32,
    /// How the model is prompted and decoded.
    pub harness: &'a Harness,
    /// The locked section that the rows belong to.
    pub plan_sha256: String,
    /// The adapter's hash, when the arm has one.
    pub adapter_sha256: Option<String>,
    /// The adapter's training seed.
    pub train_seed: Option<i64>,
    /// The engine's handle of a live adapter.
    pub adapter: Option<usize>,
}

impl Lab {
    /// Models compute there.
    pub fn on(processor: Processor) -> Lab {
        Lab { processor, base: None }
    }

    /// Where models compute.
    pub fn processor(&self) -> Processor {
        self.processor
    }

    /// Lets the base model go, so that another can take its memory.
    pub fn release(&mut self) {
        self.base = None;
    }

    /// The base model of the plan, read at first use.
    pub fn base(&mut self, experiment: &Experiment, context: &Context) -> Result<Arc<Model>> {
        if let Some(model) = &self.base {
            return Ok(model.clone());
        }
        let source = source(experiment, experiment.plan.source()?)?;
        let model = Arc::new(load(&source, self.processor, context)?);
        self.base = Some(model.clone());
        Ok(model)
    }
}

/// A source of the plan: what lies in the workspace under that name, or the name.
pub fn source(experiment: &Experiment, named: &str) -> Result<Source> {
    let relative = experiment.workspace.join(named);
    Source::parse(&if relative.exists() { relative.to_string_lossy().into_owned() } else { named.to_owned() })
}

/// The plan's server, asked for the model that it serves for an arm. Refused where it is not the one that
/// answered for the base arm, since pairs would be mixed.
pub fn endpoint(
    experiment: &Experiment,
    section: &EndpointSection,
    arm: &Arm,
    harness: &Harness,
    context: &Context,
) -> Result<Endpoint> {
    let plan = &experiment.plan;
    let place = || experiment.root.join("experiment.toml").display().to_string();
    let api_key = match &section.api_key_env {
        None => None,
        Some(name) => Some(std::env::var(name).map_err(|_| {
            Error::invalid(format!("the environment variable `{name}` is not set, or is no text"))
                .at(format!("{}: [model.endpoint] api_key_env", place()))
                .hint(format!("export {name}=… in this shell"))
        })?),
    };
    let count: Option<Count> = match &plan.model.source {
        Some(source) if section.count_tokens => {
            let text = TextSide::load(&self::source(experiment, source)?)?;
            let names = section.template_names();
            Some(Box::new(move |messages| Ok(text.prompt(messages, &names)?.len())))
        }
        _ => None,
    };
    let extra = serde_json::to_value(&section.extra).map_err(|e| Error::invalid(e.to_string()))?;
    let model = arm.served.as_ref().unwrap_or(&section.model).clone();
    context.observer.begin("ask endpoint", None, "");
    let endpoint = Endpoint::connect(crate::engine::endpoint::Options {
        url: section.url.clone(),
        model: model.clone(),
        api_key,
        width: harness.slots,
        extra: extra.as_object().cloned().unwrap_or_default(),
        fingerprint: section.fingerprint,
        policy: Policy {
            retries: section.retries,
            pause: Duration::from_secs(1),
            timeout: Duration::from_secs(section.timeout_s),
        },
        count,
    })?;
    context.observer.end(&format!("{model} at {}", section.url));
    Ok(endpoint)
}

/// Refuses a server that is not the one that answered for the base arm under this seed.
pub fn same_server(experiment: &Experiment, endpoint: &Endpoint, seed: u64) -> Result<()> {
    let base = &experiment.plan.base().name;
    let files = UnitFiles::new(&experiment.root, base, seed)?;
    if !files.complete() {
        return Ok(());
    }
    let rows: Vec<EpisodeRow> = table::read_chain_checked(&files.path(&files.episodes()))?;
    let now = &endpoint.identity().engine_sha256;
    match rows.iter().find(|row| row.engine_sha256 != *now) {
        None => Ok(()),
        Some(row) => Err(Error::refused(format!(
            "the server is not the one that answered for arm `{base}` under seed {seed}: {} then, {now} now",
            row.engine_sha256
        ))
        .at(files.path(&files.episodes()).display())
        .hint("a pair is never mixed from two backends: serve as before, or start a new experiment")),
    }
}

/// Reads a model and says so.
pub fn load(source: &Source, processor: Processor, context: &Context) -> Result<Model> {
    context.observer.begin("load model", None, "");
    let model = Model::load_on(source, processor)?;
    context
        .observer
        .end(&format!("{} ({}, computed in {})", model.origin.name, model.origin.stored, model.origin.dtype));
    Ok(model)
}

/// How a harness draws.
pub fn sampling(harness: &Harness) -> Sampling {
    Sampling {
        temperature: harness.temperature as f32,
        top_p: harness.top_p as f32,
        thinking: harness.think_tokens,
        ..Sampling::greedy(harness.answer_tokens)
    }
}

/// An engine's sizes for a harness whose longest call has `context` tokens.
pub fn options(harness: &Harness, context: usize) -> Options {
    Options { thinking: harness.think_tokens.is_some(), ..Options::new(harness.slots, context) }
}

/// Most tokens that a model writes in one turn of a harness. Errors when the model has no thoughts to give a budget
/// to, or opens one after `prompt` though the harness gives it none.
fn turn_tokens(harness: &Harness, model: &Model, prompt: &[u32]) -> Result<usize> {
    let markers = model.tokenizer.as_ref().and_then(Markers::of);
    let refuse = |what: &str, remedy: &str| {
        Err(Error::invalid(what).at(format!("{}: `think_tokens`", model.origin.name)).hint(remedy))
    };
    match (harness.think_tokens, markers) {
        (Some(budget), Some(markers)) => Ok(budget + markers.forced_tokens() + harness.answer_tokens),
        (Some(_), None) => refuse(
            "the model's tokenizer has no `<think>` and `</think>`, so a thought has no budget",
            "leave `think_tokens` out of the harness",
        ),
        (None, Some(markers)) if markers.opened_in(prompt) => refuse(
            "the model's chat template opens a thought, and the harness has no budget for one",
            "set `think_tokens` in the harness, such as 1024",
        ),
        (None, _) => Ok(harness.answer_tokens),
    }
}

/// Tokens a slot must hold: the longest of a few episodes in this harness, with every turn at its
/// limit, and a quarter more. Cache memory grows with it, so it is measured and not guessed.
pub fn context_tokens(
    environment: &dyn Environment,
    model: &Model,
    harness: &Harness,
    families: &[String],
    levels: &[u8],
) -> Result<usize> {
    let mut longest = 0;
    for family in families {
        for level in levels {
            let examples = environment.examples(family, *level, harness.examples)?;
            for task in environment.longest(family, *level)? {
                let session = environment.begin(&task)?;
                let messages = conversation(&examples, session.as_ref());
                let prompt = model.prompt(&messages, harness.think_tokens.is_some())?;
                let turn = turn_tokens(harness, model, &prompt)? + OBSERVATION_TOKENS;
                longest = longest.max(prompt.len() + session.horizon() as usize * turn);
            }
        }
    }
    Ok((longest + longest / 4).next_multiple_of(64).min(model.config.max_positions))
}

/// An engine for a model with the harness's slots, and a live adapter if one is given.
pub fn engine(
    experiment: &Experiment,
    model: &Arc<Model>,
    harness: &Harness,
    adapter: Option<Lora>,
) -> Result<(Engine, Option<usize>)> {
    let plan = &experiment.plan;
    let families: Vec<String> = plan.families().cloned().collect();
    let context =
        context_tokens(experiment.environment.as_ref(), model, harness, &families, &plan.tasks.levels)?;
    let mut engine = Engine::new(model.clone(), options(harness, context))?;
    let handle = adapter.map(|lora| engine.add_adapter("live", lora)).transpose()?;
    Ok((engine, handle))
}

/// Runs one unit to its end, resuming what is on disk.
pub fn run(
    experiment: &Experiment,
    engine: &mut dyn Backend,
    unit: &Unit,
    context: &Context,
) -> Result<UnitReport> {
    let plan = &experiment.plan;
    let items = unit
        .families
        .iter()
        .flat_map(|family| {
            plan.tasks.levels.iter().map(move |level| Item {
                family: family.clone(),
                level: *level,
                count: unit.per_family,
            })
        })
        .collect();
    let spec = UnitSpec {
        experiment: experiment.slug.clone(),
        event: Some(unit.purpose.as_str().to_string()),
        arm: unit.arm.to_string(),
        plan_sha256: unit.plan_sha256.clone(),
        adapter_sha256: unit.adapter_sha256.clone(),
        train_seed: unit.train_seed,
        seed: unit.seed,
        items,
        split: plan.families().map(|f| (f.clone(), plan.split(f).to_string())).collect(),
        rollouts: unit.harness.rollouts,
        sampling: sampling(unit.harness),
        examples: unit.harness.examples,
        adapter: unit.adapter,
        scaffold: "native".to_string(),
        evidence: "deployable".to_string(),
        // Another state of a server is another server: pairs would be mixed.
        accept_engine: context.accept_engine && engine.gives_token_ids(),
        accept_failures: false,
    };
    let what = match unit.purpose.as_str() {
        purpose if purpose == unit.arm => format!("{purpose} {}", unit.seed),
        purpose => format!("{purpose} {} {}", unit.arm, unit.seed),
    };
    let mut begun = false;
    let mut progress = |p: crate::episode::Progress| {
        if !begun {
            context.observer.begin(&what, Some(p.total as u64), "episodes");
            begun = true;
        }
        context.observer.advance(p.done as u64, &format!("{} tokens", p.completion_tokens));
    };
    let report = run_unit(
        &spec,
        experiment.environment.as_ref(),
        engine,
        &experiment.root,
        &mut Control { stop: context.stop, progress: &mut progress },
    )?;
    if begun {
        context.observer.end(&format!("{} episodes", report.progress.done));
    }
    match &report.failures {
        Some((count, first)) => {
            Err(Error::refused(format!("{count} episodes failed outside the model: {first}"))
                .at(format!("{}/{}", unit.arm, unit.seed))
                .hint("the same command tries them again"))
        }
        None => Ok(report),
    }
}

/// SHA-256 of data files, by path relative to the experiment, as listed in `hashes.json`.
pub fn file_hashes(root: &Path, paths: &[String]) -> Result<BTreeMap<String, String>> {
    let listed = crate::episode::hashes::read(root)?;
    paths
        .iter()
        .map(|path| {
            let entry = listed.get(path).ok_or_else(|| {
                Error::refused("the file is not listed in hashes.json")
                    .at(root.join(path).display())
                    .hint("remove it and run the stage again")
            })?;
            Ok((path.clone(), entry.sha256.clone()))
        })
        .collect()
}

/// The arm that a train receipt binds to, with its adapter's folder.
pub fn adapter_folder(experiment: &Experiment, arm: &Arm) -> Option<std::path::PathBuf> {
    match arm.adapter.as_deref()? {
        "receipt:train" => {
            experiment.plan.seeds.train.first().map(|seed| train::adapter_folder(experiment, *seed))
        }
        folder => Some(experiment.workspace.join(folder)),
    }
}

/// Makes sure a model is in the cache, with progress.
pub fn fetch_model(
    model: &registry::Known,
    from: Option<&Path>,
    context: &Context,
) -> Result<fetch::Fetched> {
    let observer = context.observer;
    let mut phase = None;
    let fetched = fetch::fetch(model, from, &mut |p| {
        if phase != Some(p.phase) {
            let what = match p.phase {
                fetch::Phase::Download => "download model",
                fetch::Phase::Extract => "unpack model",
                fetch::Phase::Verify => "verify model",
            };
            observer.begin(what, Some(p.total >> 20), "MiB");
            phase = Some(p.phase);
        }
        observer.advance(p.bytes >> 20, "");
        context.check()
    })?;
    if phase.is_some() {
        observer.end(&format!("{} MiB, hash checked", fetched.bytes >> 20));
    }
    Ok(fetched)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::gym::Gym;
    use crate::episode::transcript;
    use crate::model::TinySpec;

    fn harness(think_tokens: Option<usize>) -> Harness {
        Harness { answer_tokens: 6, think_tokens, slots: 4, temperature: 1.0, ..Harness::default() }
    }

    fn context(model: &Model, think_tokens: Option<usize>) -> Result<usize> {
        context_tokens(&Gym, model, &harness(think_tokens), &["gatepost".to_owned()], &[1])
    }

    #[test]
    fn a_budget_for_thoughts_stands_in_the_rows() {
        let model =
            Arc::new(Model::tiny(&TinySpec { seed: 5, thoughts: true, ..TinySpec::default() }).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let harness = harness(Some(9));
        let length = context(&model, harness.think_tokens).unwrap();
        let mut engine = Engine::new(model.clone(), options(&harness, length)).unwrap();
        let spec = UnitSpec {
            sampling: sampling(&harness),
            items: vec![Item { family: "gatepost".into(), level: 1, count: 30 }],
            split: BTreeMap::from([("gatepost".to_owned(), "train".to_owned())]),
            ..crate::episode::testing::spec()
        };
        let stop = std::sync::atomic::AtomicBool::new(false);
        let mut control = Control { stop: &stop, progress: &mut |_| {} };
        run_unit(&spec, &Gym, &mut engine, folder.path(), &mut control).unwrap();
        let rows: Vec<EpisodeRow> =
            table::read_chain_checked(&folder.path().join("episodes/base/7.parquet")).unwrap();
        let kept = transcript::read(&folder.path().join("transcripts/base/7.jsonl.zst")).unwrap();
        for row in &rows {
            let turns = row.turns;
            let spent = row.think_tokens.unwrap();
            assert!((0..=9 * turns).contains(&spent), "{spent} tokens of thought in {turns} turns");
            assert!(row.forced_close == Some(false) || spent >= 9);
            assert!(!(row.forced_close == Some(true) && row.naturally_closed == Some(true)));
        }
        assert!(rows.iter().filter(|row| row.forced_close == Some(true)).count() > 20);
        let said = |t: &transcript::Transcript| t.messages.last().map(|m| m.content.clone());
        assert!(kept.iter().all(|t| said(t).is_some_and(|text| text.starts_with("<think>"))));
    }

    #[test]
    fn thoughts_and_budgets_belong_together() {
        let thinker = Model::tiny(&TinySpec { thoughts: true, ..TinySpec::default() }).unwrap();
        let plain = Model::tiny(&TinySpec::default()).unwrap();
        assert!(context(&thinker, Some(500)).unwrap() > context(&thinker, None).unwrap() + 500);
        let error = context(&plain, Some(9)).unwrap_err().to_string();
        assert!(error.contains("no budget") && error.contains("think_tokens"), "{error}");
        let mut always = thinker;
        let text = "{{ messages[-1].content }}<think>\n";
        always.template = Some(crate::model::ChatTemplate::new(text.into(), "", "", "test").unwrap());
        let error = context(&always, None).unwrap_err().to_string();
        assert!(error.contains("opens a thought") && error.contains("1024"), "{error}");
        assert!(context(&always, Some(9)).is_ok());
    }
}
