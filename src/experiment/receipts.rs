//! Receipts: hash-bound records that a stage ran and passed its gate. The next stage refuses
//! to start without them.

use crate::error::{Error, Result};
use crate::hash;
use crate::regular;
use serde::{Serialize, de::DeserializeOwned};
use std::path::{Path, PathBuf};

/// Where a stage's receipt lies.
pub fn path(experiment: &Path, stage: &str) -> PathBuf {
    experiment.join("receipts").join(format!("{stage}.json"))
}

/// Writes a receipt atomically, with its own hash: `{"receipt": {…}, "sha256": "…"}`.
pub fn write(experiment: &Path, stage: &str, receipt: &impl Serialize) -> Result<()> {
    hash::write_atomic(&path(experiment, stage), &encode(receipt)?)
}

/// The bytes of a receipt's file.
pub fn encode(receipt: &impl Serialize) -> Result<Vec<u8>> {
    let receipt = serde_json::to_value(receipt).map_err(|e| Error::invalid(e.to_string()))?;
    let signed = serde_json::json!({ "sha256": hash::sha256_json(&receipt)?, "receipt": receipt });
    let text = serde_json::to_string_pretty(&signed).map_err(|e| Error::invalid(e.to_string()))?;
    Ok((text + "\n").into_bytes())
}

/// Reads a receipt; `None` if the stage has not run. A receipt that does not match its own hash is refused.
pub fn read<T: DeserializeOwned>(experiment: &Path, stage: &str) -> Result<Option<T>> {
    let Some((receipt, _)) = signed(experiment, stage)? else { return Ok(None) };
    serde_json::from_value(receipt).map(Some).map_err(|e| broken(experiment, stage, &e.to_string()))
}

/// The hash of a receipt, by which a later one names it; `None` if the stage has not run.
pub fn sha256(experiment: &Path, stage: &str) -> Result<Option<String>> {
    Ok(signed(experiment, stage)?.map(|(_, sha256)| sha256))
}

fn broken(experiment: &Path, stage: &str, why: &str) -> Error {
    Error::invalid(format!("not a receipt: {why}")).at(path(experiment, stage).display()).hint(remedy(stage))
}

/// What a receipt says, and its hash, which it matches.
fn signed(experiment: &Path, stage: &str) -> Result<Option<(serde_json::Value, String)>> {
    let path = path(experiment, stage);
    if !path.exists() {
        return Ok(None);
    }
    let text = regular::text(&path)?;
    let broken = |why: String| broken(experiment, stage, &why);
    let signed: serde_json::Value = serde_json::from_str(&text).map_err(|e| broken(e.to_string()))?;
    let receipt = signed.get("receipt").ok_or_else(|| broken("it has no `receipt`".into()))?;
    let claimed = signed.get("sha256").and_then(|s| s.as_str()).unwrap_or_default();
    if hash::sha256_json(receipt)? != claimed {
        return Err(Error::refused("the receipt does not match its own hash")
            .at(path.display())
            .hint(format!("it was edited: {}", remedy(stage))));
    }
    Ok(Some((receipt.clone(), claimed.to_string())))
}

/// What to do about a receipt that cannot be used.
fn remedy(stage: &str) -> String {
    match stage {
        // What it accounts for cannot be made a second time.
        rescore if rescore.starts_with("rescore-") => "restore it from version control".into(),
        "headroom" | "kill" | "decision" => "remove it and run `rederive run` again".into(),
        verb => format!("remove it and run `rederive {verb}` again"),
    }
}

/// Reads a receipt that must be there, naming the command that makes it.
pub fn require<T: DeserializeOwned>(experiment: &Path, stage: &str, command: &str) -> Result<T> {
    read(experiment, stage)?.ok_or_else(|| {
        Error::invalid(format!("the `{stage}` stage has left no receipt"))
            .at(path(experiment, stage).display())
            .hint(format!("run `{command}` first"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_bound_to_its_hash() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "train", &serde_json::json!({"rows": 80})).unwrap();
        let back: serde_json::Value = require(dir.path(), "train", "rederive train").unwrap();
        assert_eq!(back["rows"], 80);
        let p = path(dir.path(), "train");
        fs_err::write(&p, fs_err::read_to_string(&p).unwrap().replace("80", "81")).unwrap();
        assert_eq!(read::<serde_json::Value>(dir.path(), "train").unwrap_err().exit_code(), 1);
        let e = require::<serde_json::Value>(dir.path(), "merge", "rederive merge x").unwrap_err();
        assert!(e.to_string().contains("rederive merge x") && e.exit_code() == 2);
    }
}
