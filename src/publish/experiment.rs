//! One experiment's page: texts, figures with their data, plan, decision and coverage.

use super::evidence::{computed, estimate, sources};
use super::recipe::word;
use super::{Workspace, caption, data, rescored};
use crate::claims::derivation::{Derivation, Reference};
use crate::claims::report::{Figure, FigureKind};
use crate::claims::texts::ExperimentText;
use crate::claims::unbound;
use crate::claims::value::{Derived, Evaluated};
use crate::episode::{EpisodeRow, table};
use crate::error::{Error, Result};
use crate::experiment::plan::{Harness, plan_path};
use crate::experiment::{Plan, Rule, Stage, lock, receipts};
use crate::regular;
use crate::site::input::{
    CardInput, ChartInput, DecisionInput, ExperimentInput, FigureInput, LockInput, LogInput, TaskInput,
    Verdict,
};
use crate::stages::DecisionReceipt;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub(super) fn experiment(
    root: &Path,
    slug: &str,
    text: &ExperimentText,
    workspace: &Workspace,
) -> Result<ExperimentInput> {
    let front = &text.report.front;
    let folder = root.join("data").join(slug);
    let plan_file = plan_path(root, slug);
    let plan = if plan_file.exists() { Some(Plan::load(&plan_file)?) } else { None };
    let body = text.report.document.body();
    let mut unbound_numbers = unbound::find(body).len();
    let mut log = Vec::new();
    if let Some(entries) = &text.log {
        unbound_numbers += unbound::find(entries.document.body()).len();
        for entry in &entries.entries {
            log.push(LogInput {
                date: entry.date.to_string(),
                title: entry.title.clone(),
                body: entries.document.source[entry.body.clone()].to_string(),
            });
        }
    }
    let dated = |kind: &str, items: &[crate::claims::report::Dated]| -> Vec<(String, String, String)> {
        items.iter().map(|d| (d.date.to_string(), kind.to_string(), d.text.clone())).collect()
    };
    let mut corrections = dated("deviation", &front.deviations);
    corrections.extend(dated("correction", &front.corrections));
    let episodes = Episodes::read(&folder)?;
    let figures = front
        .figures
        .iter()
        .map(|f| figure(slug, f, workspace, plan.as_ref(), &episodes.families))
        .collect::<Result<_>>()?;
    Ok(ExperimentInput {
        slug: slug.to_string(),
        title: front.title.clone(),
        tagline: front.tagline.clone(),
        lifecycle: word(&front.lifecycle).replace('-', " "),
        verdict: front.verdict.as_ref().map(word),
        starved: front.starved,
        started: front.started.map(|d| d.to_string()),
        ended: front.ended.map(|d| d.to_string()),
        tags: front.tags.clone(),
        programs: front.programs.clone(),
        plain: front
            .plain
            .as_ref()
            .map(|p| [p.idea.clone(), p.question.clone(), p.found.clone(), p.matters.clone()]),
        cards: front
            .cards
            .iter()
            .map(|c| CardInput { label: c.label.clone(), value: c.value.clone(), note: c.note.clone() })
            .collect(),
        figures,
        report: body.to_string(),
        report_path: text.report.document.path.clone(),
        unbound: unbound_numbers,
        log,
        corrections,
        reproduce: [("Smoke", &front.reproduce.smoke), ("Full", &front.reproduce.full)]
            .into_iter()
            .filter_map(|(label, command)| Some((label.to_string(), command.clone()?)))
            .collect(),
        locks: locks(&folder)?,
        amendments: plan
            .iter()
            .flat_map(|p| &p.amendments)
            .map(|a| (a.date.to_string(), a.text.clone()))
            .collect(),
        decision: decision(&folder)?,
        rescores: rescored::rescores(&folder)?,
        arms: plan.iter().flat_map(arms).collect(),
        coverage: plan.as_ref().map(|p| coverage(&folder, p)).transpose()?.unwrap_or_default(),
        files: data::files(&folder)?,
        cited_by: workspace
            .texts
            .claims
            .iter()
            .filter(|c| c.experiments.iter().any(|e| e == slug))
            .map(|c| c.id.clone())
            .collect(),
        evidence: episodes.evidence,
    })
}

/// What pages say of the episodes beside their numbers.
#[derive(Default)]
struct Episodes {
    /// The weakest kind of evidence; empty while there are no rows.
    evidence: String,
    /// Family by task.
    families: BTreeMap<String, String>,
}

impl Episodes {
    fn read(folder: &Path) -> Result<Episodes> {
        let mut episodes = Episodes::default();
        for (path, _) in crate::episode::hashes::read(folder)? {
            if !path.starts_with("episodes/") || !path.ends_with(".parquet") {
                continue;
            }
            let path = folder.join(&path);
            regular::check(&path)?;
            for row in table::read::<EpisodeRow>(&path)? {
                if episodes.evidence.is_empty() || row.evidence != "deployable" {
                    episodes.evidence = row.evidence;
                }
                episodes.families.insert(row.task_id, row.family);
            }
        }
        Ok(episodes)
    }
}

fn locks(folder: &Path) -> Result<Vec<LockInput>> {
    let mut out = Vec::new();
    for stage in [Stage::Harvest, Stage::Train, Stage::Evaluate] {
        if let Some(lock) = lock::read(folder, stage)? {
            let section =
                serde_json::to_string_pretty(&lock.section).map_err(|e| Error::invalid(e.to_string()))?;
            out.push(LockInput {
                stage: stage.as_str().into(),
                sha256: lock.sha256,
                locked_at: lock.locked_at,
                section,
            });
        }
    }
    Ok(out)
}

fn decision(folder: &Path) -> Result<Option<DecisionInput>> {
    let Some(receipt) = receipts::read::<DecisionReceipt>(folder, "decision")? else { return Ok(None) };
    let text = |x: f64| {
        crate::claims::number::format(
            x,
            &crate::claims::number::Style { plus: true, ..crate::claims::number::Style::plain(3) },
        )
    };
    let legs = receipt
        .decision
        .legs
        .iter()
        .map(|leg| {
            let p = leg.p.map_or(String::new(), |p| format!(" (p {})", p_text(p)));
            (leg.asks.clone() + &p, leg.value.map_or("—".to_string(), text), text(leg.bar), leg.holds)
        })
        .collect();
    let asked = receipt.decision.for_positive();
    let held = asked.iter().filter(|leg| leg.holds == Some(true)).count();
    Ok(Some(DecisionInput {
        outcome: receipt.decision.outcome.as_str().into(),
        legs,
        for_positive: (held, asked.len()),
        looks: receipt.looks,
    }))
}

/// A p value, three decimals.
fn p_text(p: f64) -> String {
    if p < 0.001 { "< 0.001".into() } else { format!("= {p:.3}") }
}

/// Each arm and the harness it is evaluated in; the harvest's harness beside them.
fn arms(plan: &Plan) -> Vec<(String, String)> {
    let harness = |h: &Harness| {
        let examples = match h.examples {
            0 => "the bare prompt".to_string(),
            1 => "one worked example as chat turns".to_string(),
            n => format!("{n} worked examples as chat turns"),
        };
        let decoding = if h.temperature == 0.0 {
            "greedy".to_string()
        } else {
            format!("temperature {}", h.temperature)
        };
        let tokens = match h.think_tokens {
            None => format!("at most {} tokens a turn", h.answer_tokens),
            Some(budget) => {
                format!("at most {budget} tokens of thought and {} of answer a turn", h.answer_tokens)
            }
        };
        format!("{examples}; {decoding}; {tokens}; {} attempts a task; {} slots", h.rollouts, h.slots)
    };
    let mut out: Vec<(String, String)> = plan
        .arms
        .iter()
        .map(|arm| {
            let adapter = match (&arm.adapter, arm.deploy) {
                (None, _) => "no adapter".to_string(),
                (Some(_), crate::experiment::Deploy::Live) => "trained adapter, applied live".to_string(),
                (Some(_), crate::experiment::Deploy::Merged) => {
                    "trained adapter, merged into the weights that the base arm runs on".to_string()
                }
            };
            let served = plan.model.endpoint.as_ref().map_or(String::new(), |endpoint| {
                let events = match &endpoint.seeds {
                    None => "every event".to_string(),
                    Some(seeds) => format!("seeds {seeds:?}"),
                };
                let model = arm.served.as_ref().unwrap_or(&endpoint.model);
                format!(", on another server as `{model}` in {events}")
            });
            let text =
                format!("{}, {adapter}{served}; {}", plan.model_name(), harness(&plan.harness.evaluate));
            (arm.name.clone(), text)
        })
        .collect();
    if !plan.seeds.harvest.is_empty() {
        out.push(("harvest".into(), format!("{}; {}", plan.model_name(), harness(&plan.harness.harvest))));
    }
    out
}

/// Episodes on the evaluation seeds: there, and planned, by arm.
fn coverage(folder: &Path, plan: &Plan) -> Result<Vec<(String, usize, usize)>> {
    let listed = crate::episode::hashes::read(folder)?;
    let families = plan.families().count();
    let a_seed = families
        * plan.tasks.levels.len()
        * plan.tasks.per_family as usize
        * plan.harness.evaluate.rollouts as usize;
    Ok(plan
        .arms
        .iter()
        .map(|arm| {
            let there: u64 = plan
                .seeds
                .evaluate
                .iter()
                .filter_map(|seed| listed.get(&format!("episodes/{}/{seed}.parquet", arm.name)))
                .map(|f| f.rows)
                .sum();
            (arm.name.clone(), there as usize, a_seed * plan.seeds.evaluate.len())
        })
        .collect())
}

struct Behind<'a> {
    workspace: &'a Workspace,
    slug: &'a str,
    figure: &'a Figure,
    used: BTreeSet<String>,
}

impl<'a> Behind<'a> {
    fn derived(&mut self, id: &str) -> Result<&'a Derived> {
        let entry = self.workspace.book.entry(self.slug, id).ok_or_else(|| {
            Error::invalid(format!(
                "figure `{}` uses a derivation `{id}` that is not declared",
                self.figure.id
            ))
            .at(format!("site/experiments/{}/report.md", self.slug))
            .hint("declare it under `[derivations]`")
        })?;
        self.used.insert(id.to_string());
        computed(entry)
    }
}

fn figure(
    slug: &str,
    figure: &Figure,
    workspace: &Workspace,
    plan: Option<&Plan>,
    families: &BTreeMap<String, String>,
) -> Result<FigureInput> {
    let mut behind = Behind { workspace, slug, figure, used: BTreeSet::new() };
    let (chart, caption) = match figure.kind {
        FigureKind::Forest => forest(&mut behind, plan)?,
        FigureKind::Slope => slope(&mut behind, families)?,
    };
    let mut verdict = Verdict::Match;
    let mut numbers = 0;
    let mut files: BTreeMap<String, (String, usize, usize)> = BTreeMap::new();
    for id in &behind.used {
        let Some(entry) = workspace.book.entry(slug, id) else { continue };
        let derived = computed(entry)?;
        let rows = std::iter::once(None).chain(derived.rows.keys().map(Some));
        for row in rows {
            let address =
                Reference { scope: slug.into(), id: id.clone(), row: row.cloned(), part: "value".into() };
            if let Some(found) = workspace.audit.verdict_of(&address.to_string()) {
                numbers += 1;
                verdict = verdict.min(found);
            }
        }
        for (path, sha256, used, total) in sources(derived) {
            let slot = files.entry(path).or_insert((sha256, used, total));
            slot.1 = slot.1.max(used);
        }
    }
    Ok(FigureInput {
        id: figure.id.clone(),
        title: figure.title.clone(),
        how_to_read: figure.how_to_read.clone(),
        takeaway: figure.takeaway.clone(),
        technical: figure.technical.clone(),
        chart,
        derivations: behind.used.iter().map(|id| format!("{slug}.{id}")).collect(),
        sources: files.into_iter().map(|(path, (sha256, used, total))| (path, sha256, used, total)).collect(),
        verdict,
        numbers,
        caption,
    })
}

fn forest(behind: &mut Behind, plan: Option<&Plan>) -> Result<(ChartInput, String)> {
    let figure = behind.figure;
    let mut groups = Vec::new();
    let mut all_rows: Vec<&Evaluated> = Vec::new();
    for id in &figure.rows {
        let derived = behind.derived(id)?;
        let by = behind
            .workspace
            .book
            .entry(behind.slug, id)
            .and_then(|e| e.derivation.by.clone())
            .unwrap_or_default();
        let rows = derived
            .rows
            .iter()
            .map(|(label, evaluated)| {
                let held_out = by == "family" && plan.is_some_and(|p| p.split(label) == "held_out");
                estimate(label, if held_out { "held out" } else { "" }, evaluated)
            })
            .collect();
        let heading = match by.as_str() {
            "family" => "By family".to_string(),
            "seed" => "By event seed".to_string(),
            other => format!("By {other}"),
        };
        groups.push((heading, rows));
        all_rows.extend(derived.rows.values());
    }
    let mut all: Option<(&Derivation, &Evaluated)> = None;
    if let Some(id) = &figure.pooled {
        let total = &behind.derived(id)?.total;
        all = behind.workspace.book.entry(behind.slug, id).map(|entry| (&entry.derivation, total));
    }
    let caption = caption::forest(all, &all_rows);
    let pooled = all.map(|(_, total)| estimate("All tasks", "", total));
    let bar = match &figure.bar {
        Some(id) => {
            let value = behind.derived(id)?.total.parts.get("value").and_then(|v| v.get());
            let of = behind.workspace.book.entry(behind.slug, id).and_then(|e| e.derivation.of.as_deref());
            // Not worse by as much as the margin is drawn where that is: below zero.
            let below = of == Some("decision.margin")
                && plan.is_some_and(|plan| plan.decision.rule == Rule::NonInferiority);
            if below { value.map(|margin| -margin) } else { value }
        }
        None => None,
    };
    Ok((ChartInput::Forest { groups, pooled, bar }, caption))
}

fn slope(behind: &mut Behind, families: &BTreeMap<String, String>) -> Result<(ChartInput, String)> {
    let figure = behind.figure;
    let need = |side: &Option<String>, name: &str| {
        side.clone().ok_or_else(|| {
            Error::invalid(format!("figure `{}` is a slope chart without `{name}`", figure.id))
                .at(format!("site/experiments/{}/report.md", behind.slug))
                .hint("name two `mean` derivations by `task_id`")
        })
    };
    let (left_id, right_id) = (need(&figure.left, "left")?, need(&figure.right, "right")?);
    let left = behind.derived(&left_id)?;
    let right = behind.derived(&right_id)?;
    let declared = |id: &str| behind.workspace.book.entry(behind.slug, id).map(|entry| &entry.derivation);
    let arm = |id: &str| declared(id).and_then(|d| d.arms.first().cloned()).unwrap_or_else(|| id.to_string());
    let mut tasks = Vec::new();
    for (task, evaluated) in &left.rows {
        let value = |e: &Evaluated| e.parts.get("value").and_then(|v| v.get());
        let (Some(l), Some(r)) = (value(evaluated), right.rows.get(task).and_then(value)) else { continue };
        let group = match figure.group_by.as_deref() {
            Some(_) => families.get(task).cloned().unwrap_or_default(),
            None => String::new(),
        };
        tasks.push(TaskInput { task: task.clone(), group, left: l, right: r });
    }
    let caption = match (declared(&left_id), declared(&right_id)) {
        (Some(left), Some(right)) => caption::slope(tasks.len(), left, right),
        _ => String::new(),
    };
    Ok((ChartInput::Slope { left: arm(&left_id), right: arm(&right_id), tasks }, caption))
}
