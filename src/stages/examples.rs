//! Training rows from harvested conversations: the bare prompt as context with weight 0, the
//! sampled ids of accepted turns with weight 1. Worked examples that were in front during the
//! harvest are left out, since evaluation has none.

use super::Experiment;
use super::harvest::ARM;
use crate::engine::Backend;
use crate::environment::{Message, Role, answer};
use crate::episode::{HarvestRow, table, transcript};
use crate::error::{Error, Result};
use crate::train::Example;
use std::collections::BTreeSet;

/// One training row for each kept sample of the harvest, in file order.
pub(super) fn build(experiment: &Experiment, backend: &dyn Backend) -> Result<Vec<Example>> {
    let mut rows = Vec::new();
    for seed in &experiment.plan.seeds.harvest {
        let path = experiment.root.join("harvest").join(format!("{seed}.parquet"));
        let kept: BTreeSet<(String, i64)> = table::read_chain_checked::<HarvestRow>(&path)?
            .into_iter()
            .filter(|row| row.kept)
            .map(|row| (row.task_id, row.rollout))
            .collect();
        let path = experiment.root.join("transcripts").join(ARM).join(format!("{seed}.jsonl.zst"));
        for t in transcript::read(&path)? {
            if kept.contains(&(t.task_id.clone(), t.rollout)) {
                rows.push(
                    row(experiment, backend, &t)
                        .map_err(|e| e.at(format!("{}: task `{}`", path.display(), t.task_id)))?,
                );
            }
        }
    }
    Ok(rows)
}

/// The conversation without its worked examples, as token ids with weights. The environment
/// plays its half again, so that a turn whose action was not accepted keeps weight 0.
fn row(experiment: &Experiment, backend: &dyn Backend, t: &transcript::Transcript) -> Result<Example> {
    let task = experiment.environment.by_id(&t.task_id)?;
    let mut session = experiment.environment.begin(&task)?;
    let replies: Vec<&str> = {
        let said: Vec<&Message> = t.messages.iter().filter(|m| m.role == Role::Assistant).collect();
        let own = said
            .len()
            .checked_sub(t.sampled.len())
            .ok_or_else(|| Error::invalid("more sampled turns than replies"))?;
        said[own..].iter().map(|m| m.content.as_str()).collect()
    };
    let mut context = backend.render(&session.opening())?;
    let mut weights = vec![0.0; context.len()];
    for (reply, sampled) in replies.iter().zip(&t.sampled) {
        let turn = session.reply(answer(reply));
        let weight = if turn.action_ok { 1.0 } else { 0.0 };
        match turn.observation {
            Some(next) => {
                let extended = backend.extend(&context, sampled, &Message::user(next))?;
                let spoken = (context.len() + sampled.len()).min(extended.len());
                weights.resize(spoken, weight);
                weights.resize(extended.len(), 0.0);
                context = extended;
            }
            None => {
                context.extend(sampled);
                weights.resize(context.len(), weight);
                break;
            }
        }
    }
    Ok(Example { tokens: context, weights })
}
