//! What became of an experiment's rows when its verifiers were repaired, rescore by rescore.

use crate::error::Result;
use crate::experiment::receipts;
use crate::rescore::Receipt;
use crate::site::input::{RescoreFamily, RescoreInput};
use crate::stages::DecisionReceipt;
use std::path::Path;

/// Every rescore of an experiment, the first one first.
pub(super) fn rescores(folder: &Path) -> Result<Vec<RescoreInput>> {
    let mut all: Vec<Receipt> = Vec::new();
    while let Some(receipt) = receipts::read(folder, &format!("rescore-{}", all.len() + 1))? {
        all.push(receipt);
    }
    let mut out = Vec::new();
    // From the last one back: what it led to is what the next one replaced, or what stands today.
    let mut after = outcome(folder)?;
    for receipt in all.into_iter().rev() {
        let kept = format!("superseded/{}", receipt.number);
        let before = outcome(&folder.join(&kept))?;
        let outcomes = before.clone().zip(after.clone()).filter(|(before, after)| before != after);
        let families = receipt.families.into_iter().map(|(family, counts)| RescoreFamily {
            family,
            episodes: counts.episodes,
            changed: counts.changed,
            solved: (counts.solved_before, counts.solved_after),
        });
        out.push(RescoreInput {
            number: receipt.number,
            date: receipt.at.get(..10).unwrap_or(&receipt.at).to_string(),
            families: families.collect(),
            outcomes,
            superseded: receipt.replaced.keys().map(|path| format!("{kept}/{path}")).collect(),
        });
        after = before.or(after);
    }
    out.reverse();
    Ok(out)
}

/// What the decision says that lies below a folder, if one does.
fn outcome(folder: &Path) -> Result<Option<String>> {
    let receipt = receipts::read::<DecisionReceipt>(folder, "decision")?;
    Ok(receipt.map(|receipt| receipt.decision.outcome.as_str().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rescore::{Change, Counts};
    use serde_json::json;

    fn decided(folder: &Path, outcome: &str) {
        let receipt = json!({
            "plan_sha256": "", "arms": ["a", "b"], "null_spread": null, "files": {},
            "decision": {"outcome": outcome, "legs": [], "delta": null, "low": null, "high": null, "tasks": 0, "moved": 0},
        });
        receipts::write(folder, "decision", &receipt).unwrap();
    }

    #[test]
    fn each_rescore_says_what_it_changed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        assert!(rescores(root).unwrap().is_empty());
        let counts = Counts { episodes: 8, changed: 2, solved_before: 3, solved_after: 5 };
        for number in [1, 2] {
            let change = Change { old: "o".into(), new: "n".into() };
            let receipt = Receipt {
                number,
                at: format!("2026-11-0{number}T10:00:00Z"),
                verifiers: Default::default(),
                families: [("ferrier".to_string(), counts.clone())].into_iter().collect(),
                replaced: [("episodes/base/1.parquet".to_string(), change)].into_iter().collect(),
            };
            receipts::write(root, &format!("rescore-{number}"), &receipt).unwrap();
        }
        decided(&root.join("superseded/1"), "negative");
        decided(root, "positive");
        let all = rescores(root).unwrap();
        assert_eq!((all.len(), all[0].number, all[0].date.as_str()), (2, 1, "2026-11-01"));
        assert_eq!(all[0].families[0].solved, (3, 5));
        assert_eq!(all[0].outcomes, Some(("negative".to_string(), "positive".to_string())));
        assert_eq!(all[1].outcomes, None);
        assert_eq!(all[1].superseded, ["superseded/2/episodes/base/1.parquet"]);
    }
}
