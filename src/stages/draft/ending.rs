//! How an experiment ended, read from its receipts, in the words that reports and tables use.

use crate::error::Result;
use crate::experiment::receipts;
use crate::stages::Experiment;
use crate::stages::receipts::{DecisionReceipt, HarvestReceipt, HeadroomReceipt};
use crate::stats::decision::Outcome;

/// How far the experiment got: what its texts can speak of.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// Nothing has run yet.
    Planned,
    /// The harvest kept too little; nothing was trained.
    Starved(String),
    /// A gate found that the plan could not succeed.
    NoHeadroom,
    /// It was decided; `few` when too few tasks moved for an interval to be trusted.
    Decided {
        /// By the plan's rule.
        outcome: Outcome,
        /// Fewer tasks moved than an interval needs.
        few: bool,
    },
}

impl Ending {
    /// Read from the experiment's receipts.
    pub fn of(experiment: &Experiment) -> Result<Ending> {
        if let Some(receipt) = receipts::read::<DecisionReceipt>(&experiment.root, "decision")? {
            let few = receipt.decision.moved < crate::stats::FEW_NONZERO;
            return Ok(Ending::Decided { outcome: receipt.decision.outcome, few });
        }
        if let Some(HeadroomReceipt { passed: false, .. }) = receipts::read(&experiment.root, "headroom")? {
            return Ok(Ending::NoHeadroom);
        }
        if let Some(HarvestReceipt { starved: Some(why), .. }) = receipts::read(&experiment.root, "harvest")?
        {
            return Ok(Ending::Starved(why));
        }
        Ok(Ending::Planned)
    }

    /// One word or two for people, such as `inconclusive: starved`.
    pub fn words(&self) -> String {
        match self {
            Ending::Planned => "planned".into(),
            Ending::Starved(_) => "inconclusive: starved".into(),
            Ending::NoHeadroom => "design-negative".into(),
            Ending::Decided { outcome, .. } => outcome.as_str().into(),
        }
    }

    /// The report's `lifecycle`.
    pub(super) fn lifecycle(&self) -> &'static str {
        match self {
            Ending::Planned => "planned",
            Ending::Starved(_) | Ending::NoHeadroom => "stopped",
            Ending::Decided { .. } => "finished",
        }
    }

    /// The report's `verdict`, once there is one.
    pub(super) fn verdict(&self) -> Option<&'static str> {
        match self {
            Ending::Planned => None,
            Ending::Starved(_) => Some("inconclusive"),
            Ending::NoHeadroom => Some("design-negative"),
            Ending::Decided { outcome, .. } => Some(outcome.as_str()),
        }
    }
}
