//! How far an experiment got, read from its locks and receipts, in the words that reports and
//! tables use.

use crate::error::Result;
use crate::experiment::{Stage, lock, receipts};
use crate::stages::Experiment;
use crate::stages::receipts::{DecisionReceipt, HarvestReceipt, HeadroomReceipt, KillReceipt, MergeReceipt};
use crate::stats::decision::{Decision, Outcome};

/// How far the experiment got: what its texts can speak of.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// Nothing has run yet.
    Planned,
    /// A stage was begun, and nothing has ended the experiment.
    Underway,
    /// The harvest kept too little; nothing was trained.
    Starved(String),
    /// The trained adapter changes no canary; nothing was evaluated.
    Unchanged,
    /// The headroom gate found that the plan could not succeed.
    NoHeadroom,
    /// The mechanism gate found that the treatment has nothing to work on.
    Killed,
    /// It was decided.
    Decided {
        /// By the plan's rule.
        outcome: Outcome,
        /// What can be said of the pooled change.
        change: Change,
    },
}

/// What can be said of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// No task was answered by both arms.
    Undefined,
    /// No task's score moved.
    Nothing,
    /// A number without an interval.
    Point,
    /// An interval on fewer moved tasks than it can be trusted with.
    Few,
    /// An interval.
    Interval,
}

impl Change {
    /// Of a decision.
    pub fn of(decision: &Decision) -> Change {
        match decision {
            Decision { delta: None, .. } => Change::Undefined,
            Decision { moved: 0, .. } => Change::Nothing,
            Decision { low: None, .. } | Decision { high: None, .. } => Change::Point,
            Decision { moved, .. } if *moved < crate::stats::FEW_NONZERO => Change::Few,
            _ => Change::Interval,
        }
    }
}

impl Ending {
    /// Read from the experiment's locks and receipts.
    pub fn of(experiment: &Experiment) -> Result<Ending> {
        let root = &experiment.root;
        if let Some(receipt) = receipts::read::<DecisionReceipt>(root, "decision")? {
            let change = Change::of(&receipt.decision);
            return Ok(Ending::Decided { outcome: receipt.decision.outcome, change });
        }
        if let Some(HeadroomReceipt { passed: false, .. }) = receipts::read(root, "headroom")? {
            return Ok(Ending::NoHeadroom);
        }
        if let Some(KillReceipt { passed: false, .. }) = receipts::read(root, "kill")? {
            return Ok(Ending::Killed);
        }
        if let Some(MergeReceipt { passed: false, .. }) = receipts::read(root, "merge")? {
            return Ok(Ending::Unchanged);
        }
        if let Some(HarvestReceipt { starved: Some(why), .. }) = receipts::read(root, "harvest")? {
            return Ok(Ending::Starved(why));
        }
        for stage in [Stage::Harvest, Stage::Train, Stage::Evaluate] {
            if lock::read(root, stage)?.is_some() {
                return Ok(Ending::Underway);
            }
        }
        Ok(Ending::Planned)
    }

    /// Whether a later stage may still run.
    pub fn is_open(&self) -> bool {
        matches!(self, Ending::Planned | Ending::Underway)
    }

    /// Whether a gate or a stage ended it before it was decided.
    pub(super) fn is_stopped(&self) -> bool {
        matches!(self, Ending::Starved(_) | Ending::Unchanged | Ending::NoHeadroom | Ending::Killed)
    }

    /// One word or two for people, such as `inconclusive: starved`.
    pub fn words(&self) -> String {
        match self {
            Ending::Planned => "planned".into(),
            Ending::Underway => "in progress".into(),
            Ending::Starved(_) => "inconclusive: starved".into(),
            Ending::Unchanged => "inconclusive: the adapter changes nothing".into(),
            Ending::NoHeadroom | Ending::Killed => "design-negative".into(),
            Ending::Decided { outcome, .. } => outcome.as_str().into(),
        }
    }

    /// The report's `lifecycle`.
    pub(super) fn lifecycle(&self) -> &'static str {
        match self {
            Ending::Planned => "planned",
            Ending::Underway => "in-progress",
            Ending::Starved(_) | Ending::Unchanged | Ending::NoHeadroom | Ending::Killed => "stopped",
            Ending::Decided { .. } => "finished",
        }
    }

    /// The report's `verdict`, once there is one.
    pub(super) fn verdict(&self) -> Option<&'static str> {
        match self {
            Ending::Planned | Ending::Underway => None,
            Ending::Starved(_) | Ending::Unchanged => Some("inconclusive"),
            Ending::NoHeadroom | Ending::Killed => Some("design-negative"),
            Ending::Decided { outcome, .. } => Some(outcome.as_str()),
        }
    }
}
