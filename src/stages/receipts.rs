//! What each stage's receipt says.

use crate::experiment::Shape;
use crate::stats::decision::Decision;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the harvest of one family gave.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FamilyYield {
    /// Samples drawn.
    pub samples: usize,
    /// Samples the verifier accepted.
    pub solved: usize,
    /// Samples that became training rows.
    pub kept: usize,
}

/// `receipts/harvest.json`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HarvestReceipt {
    /// Whether enough was kept to train on.
    pub passed: bool,
    /// Why not, when not.
    pub starved: Option<String>,
    /// SHA-256 of the locked harvest section.
    pub plan_sha256: String,
    /// The build of the engine that made it; null in receipts from before it was noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// SHA-256 of the model that was sampled.
    pub model_sha256: String,
    /// By family.
    pub families: BTreeMap<String, FamilyYield>,
    /// Samples drawn in all.
    pub samples: usize,
    /// Samples kept in all.
    pub kept: usize,
    /// Families that contributed.
    pub contributing_families: usize,
    /// How many samples were rejected for which reason.
    pub rejects: BTreeMap<String, usize>,
    /// Data files, with their SHA-256.
    pub files: BTreeMap<String, String>,
}

/// `receipts/train.json`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainReceipt {
    /// Whether an adapter that changes something came out.
    pub passed: bool,
    /// SHA-256 of the locked train section.
    pub plan_sha256: String,
    /// SHA-256 of the harvest's receipt; a receipt without it is of no harvest, and refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harvest_sha256: Option<String>,
    /// The build of the engine that made it; null in receipts from before it was noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// SHA-256 of the model that was trained.
    pub model_sha256: String,
    /// The training seed.
    pub train_seed: u64,
    /// Rows trained on.
    pub rows: usize,
    /// Rows longer than the cap, skipped.
    pub skipped_too_long: usize,
    /// Optimiser steps.
    pub steps: usize,
    /// Tokens seen, all epochs.
    pub tokens: usize,
    /// Loss of the first step.
    pub first_loss: f64,
    /// Loss of the last step.
    pub last_loss: f64,
    /// SHA-256 of the adapter's weights.
    pub adapter_sha256: String,
    /// Data files, with their SHA-256.
    pub files: BTreeMap<String, String>,
}

/// `receipts/merge.json`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MergeReceipt {
    /// Whether the adapter is installed: every delta matched, some non-zero, canaries changed.
    pub passed: bool,
    /// The build of the engine that made it; null in receipts from before it was noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// SHA-256 of the base weights.
    pub model_sha256: String,
    /// SHA-256 of the adapter.
    pub adapter_sha256: String,
    /// SHA-256 of the merged weights.
    pub merged_sha256: String,
    /// Where the merged checkpoint lies, relative to the experiment.
    pub folder: String,
    /// Deltas that found their weight.
    pub matched: usize,
    /// Deltas in the adapter.
    pub deltas: usize,
    /// Frobenius norm of all deltas together.
    pub delta_norm: f64,
    /// Share of the delta that survived rounding to the checkpoint's type.
    pub kept_share: f64,
    /// Largest difference between the merged model's logits and the live adapter's on the canary prompts.
    pub largest_logit_difference: f64,
    /// Canary prompts whose greedy tokens changed.
    pub canaries_changed: usize,
    /// Canary prompts.
    pub canaries: usize,
}

/// `receipts/headroom.json`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeadroomReceipt {
    /// Whether the required gain fits below the ceiling in every core, and the mean of the cores lies below its own.
    pub passed: bool,
    /// SHA-256 of the locked evaluate section.
    pub plan_sha256: String,
    /// Highest score there is.
    pub ceiling: f64,
    /// Gain that must fit.
    pub minimum_delta: f64,
    /// Base score by family on the calibration seeds.
    pub base: BTreeMap<String, f64>,
    /// Every core; empty in receipts from before cores were stated.
    #[serde(default)]
    pub cores: BTreeMap<String, Core>,
    /// Mean of the cores' baselines.
    #[serde(default)]
    pub baseline: Option<f64>,
    /// What that mean must lie below, where the plan says so.
    #[serde(default)]
    pub baseline_ceiling: Option<f64>,
    /// Data files, with their SHA-256.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
}

/// A group of families that must have room for the gain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Core {
    /// The families that it is judged by.
    pub families: Vec<String>,
    /// Mean of their base scores.
    pub baseline: f64,
    /// The score that the gain asks for.
    pub required: f64,
    /// What is left below the ceiling.
    pub possible_gain: f64,
    /// Whether that is more than the gain.
    pub feasible: bool,
}

/// `receipts/kill.json`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KillReceipt {
    /// Whether the experiment may go on.
    pub passed: bool,
    /// SHA-256 of the locked evaluate section.
    pub plan_sha256: String,
    /// Why the episodes ended that were looked at.
    pub reasons: Vec<String>,
    /// The shape that was counted.
    pub shape: Shape,
    /// The share at which the experiment stops.
    pub at_least: f64,
    /// Most tokens of one call.
    pub cap: usize,
    /// Episodes of the base arm on the calibration seeds.
    pub episodes: usize,
    /// Those of them that ended for one of the reasons.
    pub among: usize,
    /// Those of these that have the shape.
    pub of_shape: usize,
    /// Their share; null where no episode ended so.
    pub share: Option<f64>,
    /// Why there is no share.
    pub why: Option<String>,
    /// Episodes among them by shape.
    pub shapes: BTreeMap<String, usize>,
    /// Data files, with their SHA-256.
    pub files: BTreeMap<String, String>,
}

/// `receipts/decision.json`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionReceipt {
    /// SHA-256 of the locked evaluate section.
    pub plan_sha256: String,
    /// The arms compared, base first.
    pub arms: [String; 2],
    /// What came out, and how.
    pub decision: Decision,
    /// Spread of base against base on the null seeds.
    pub null_spread: Option<f64>,
    /// Evaluation events of the workspace, up to and with this experiment's, that drew tasks from the same file;
    /// absent where tasks are made from seeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looks: Option<usize>,
    /// Data files, with their SHA-256.
    pub files: BTreeMap<String, String>,
}
