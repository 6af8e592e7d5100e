//! Merges an adapter into its base: `W + scale B A` in f32, rounded once to the type of the
//! source, written as a full checkpoint. Says how much of each change the rounding kept, and
//! refuses an adapter that changes nothing.

use super::lora::Lora;
use super::safetensors::Checkpoint;
use super::{Model, save};
use crate::error::{Error, Result};
use candle_core::{DType, Tensor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// What a merge did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MergeReceipt {
    /// Name of the base model.
    pub base: String,
    /// SHA-256 of the base's weights.
    pub base_sha256: String,
    /// SHA-256 of the adapter's weights file, when it came from one.
    pub adapter_sha256: Option<String>,
    /// SHA-256 of the merged weights.
    pub merged_sha256: String,
    /// Type of the merged matrices, such as `F32`.
    pub dtype: String,
    /// Adapted modules that were found in the base; one that is not there is refused.
    pub matched: usize,
    /// Adapted modules in all.
    pub expected: usize,
    /// Frobenius norm of all changes together.
    pub frobenius: f64,
    /// Share of the whole change that rounding kept: its projection on the intended change; 1 is all of it.
    pub kept: f64,
    /// Each module's change.
    pub modules: Vec<ModuleChange>,
}

/// The change of one matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModuleChange {
    /// Name of the matrix in the checkpoint.
    pub name: String,
    /// Frobenius norm of the intended change.
    pub frobenius: f64,
    /// Share that rounding kept; `None` for a change of zero.
    pub kept: Option<f64>,
}

/// Merges `lora` into `model` and writes the result into `folder`, which must be new or empty.
/// From a folder of safetensors the other files are copied as they are and the type is kept;
/// from a GGUF file the result is f32.
pub fn merge(model: &Model, lora: &Lora, folder: &Path) -> Result<MergeReceipt> {
    if folder.exists() && fs_err::read_dir(folder)?.next().is_some() {
        return Err(Error::invalid("the folder is not empty").at(folder.display()).hint("name a new one"));
    }
    let source = match &model.origin.path {
        Some(path) if model.origin.format == "safetensors" => Some(path.as_path()),
        _ => None,
    };
    let mut totals = Totals::default();
    let (changes, dtype, merged_sha256) = match source {
        Some(path) => {
            let mut checkpoint = Checkpoint::open(path, &model.config)?;
            if checkpoint.sha256 != model.origin.sha256 {
                return Err(Error::invalid("the weights changed on disk after the model was loaded")
                    .at(path.display()));
            }
            let mut changes = Vec::new();
            for change in deltas(lora) {
                let (name, delta) = change?;
                let merged = add(&name, &checkpoint.tensor(&name)?, &delta, &mut totals, &mut changes)?;
                checkpoint.replace(&name, &merged)?;
            }
            totals.check(&changes)?;
            copy_side_files(path, folder)?;
            (changes, checkpoint.stored.clone(), checkpoint.write(folder)?)
        }
        None => {
            let mut tensors: BTreeMap<String, Tensor> = save::tensors(model)?.into_iter().collect();
            let mut changes = Vec::new();
            for change in deltas(lora) {
                let (name, delta) = change?;
                let weight = tensors.get_mut(&name).ok_or_else(|| {
                    Error::invalid(format!("the base has no matrix `{name}` for the adapter"))
                })?;
                *weight = add(&name, weight, &delta, &mut totals, &mut changes)?;
            }
            totals.check(&changes)?;
            save::write_side_files(model, folder)?;
            let tensors: Vec<_> = tensors.into_iter().collect();
            (changes, "F32".to_owned(), save::write_weights(folder, &tensors)?)
        }
    };
    Ok(MergeReceipt {
        base: model.origin.name.clone(),
        base_sha256: model.origin.sha256.clone(),
        adapter_sha256: lora.sha256.clone(),
        merged_sha256,
        dtype,
        matched: changes.len(),
        expected: lora.pairs().count(),
        frobenius: totals.intended.sqrt(),
        kept: totals.kept / totals.intended,
        modules: changes,
    })
}

#[derive(Default)]
struct Totals {
    /// Sum of squares of the intended changes.
    intended: f64,
    /// Sum of products of intended and actual changes.
    kept: f64,
    /// Whether any stored number changed.
    changed: bool,
}

impl Totals {
    /// Refuses a merge that changed nothing.
    fn check(&self, changes: &[ModuleChange]) -> Result<()> {
        let first = changes.first().map(|c| c.name.as_str()).unwrap_or("none");
        if self.intended == 0.0 {
            return Err(Error::refused(format!(
                "the adapter changes nothing: all {} deltas are zero (first: `{first}`)",
                changes.len()
            ))
            .hint("it was not trained, or its B matrices were not saved"));
        }
        if !self.changed {
            return Err(Error::refused(format!(
                "all {} deltas round away in the type of the base (first: `{first}`)",
                changes.len()
            ))
            .hint("use the adapter unmerged, or a base in f32"));
        }
        Ok(())
    }
}

/// Name of each adapted matrix and the change that the adapter makes to it, `scale B A`.
fn deltas(lora: &Lora) -> impl Iterator<Item = Result<(String, Tensor)>> {
    lora.pairs().map(|(layer, target, pair)| {
        let name = format!("model.layers.{layer}.{}.weight", target.path());
        Ok((name, (pair.b.detach().matmul(&pair.a.detach())? * pair.scale)?))
    })
}

/// The sum of a matrix and its change, rounded once to the matrix's type, and what that did.
fn add(
    name: &str,
    weight: &Tensor,
    delta: &Tensor,
    totals: &mut Totals,
    changes: &mut Vec<ModuleChange>,
) -> Result<Tensor> {
    if delta.dims() != weight.dims() {
        return Err(Error::invalid(format!(
            "the change of `{name}` has shape {:?}, not {:?}",
            delta.dims(),
            weight.dims()
        )));
    }
    let before = weight.to_dtype(DType::F32)?;
    let merged = (&before + delta)?.to_dtype(weight.dtype())?;
    let actual = (merged.to_dtype(DType::F32)? - &before)?;
    let (intended, kept) = (dot(delta, delta)?, dot(delta, &actual)?);
    if !intended.is_finite() || !kept.is_finite() {
        return Err(Error::refused(format!("the adapter's change of `{name}` is not a finite number"))
            .hint("train the adapter again, with a lower learning rate"));
    }
    totals.intended += intended;
    totals.kept += kept;
    totals.changed |= dot(&actual, &actual)? > 0.0;
    changes.push(ModuleChange {
        name: name.to_owned(),
        frobenius: intended.sqrt(),
        kept: (intended > 0.0).then(|| kept / intended),
    });
    Ok(merged)
}

/// Sum of products in f64.
fn dot(a: &Tensor, b: &Tensor) -> Result<f64> {
    let (a, b) = (a.flatten_all()?.to_vec1::<f32>()?, b.flatten_all()?.to_vec1::<f32>()?);
    Ok(a.iter().zip(&b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum())
}

/// Copies the files of a checkpoint that are not weights.
fn copy_side_files(from: &Path, to: &Path) -> Result<()> {
    fs_err::create_dir_all(to)?;
    for entry in fs_err::read_dir(from)? {
        let path = entry?.path();
        let Some(name) = path.file_name() else { continue };
        let text = name.to_string_lossy();
        let weights = [".safetensors", ".safetensors.index.json", ".bin", ".gguf", ".pt", ".pth"];
        if path.is_file() && !weights.iter().any(|end| text.ends_with(end)) {
            crate::hash::write_atomic(&to.join(name), &fs_err::read(&path)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::lora::{LoraConfig, Target};
    use crate::model::testing::{distance, fixtures, model, normal, numbers, tensors};
    use crate::model::{Source, TinySpec};
    use candle_core::Device;

    #[test]
    fn a_bf16_base_stays_bf16_and_says_what_rounding_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (source, target) = (dir.path().join("source"), dir.path().join("target"));
        fs_err::create_dir_all(&source).unwrap();
        fs_err::copy(fixtures().join("llama_tied/config.json"), source.join("config.json")).unwrap();
        fs_err::write(source.join("notes.txt"), "kept as it is").unwrap();
        let half: Vec<_> = tensors("llama_tied/model.safetensors")
            .into_iter()
            .map(|(n, t)| (n, t.to_dtype(DType::BF16).unwrap()))
            .collect();
        save::write_weights(&source, &half).unwrap();
        let base = Model::load(&Source::Folder(source)).unwrap();
        assert_eq!(base.origin.stored, "BF16");
        let lora = base.load_adapter(&fixtures().join("llama_tied/adapter")).unwrap();
        let receipt = merge(&base, &lora, &target).unwrap();
        assert_eq!(receipt.dtype, "BF16");
        assert!(
            receipt.kept > 0.9 && receipt.kept < 1.1 && (receipt.kept - 1.0).abs() > 1e-6,
            "{}",
            receipt.kept
        );
        assert_eq!(fs_err::read_to_string(target.join("notes.txt")).unwrap(), "kept as it is");
        let merged = Model::load(&Source::Folder(target)).unwrap();
        let (tokens, adapted) = ([3u32, 1, 4, 1, 5], base.logits(&[3, 1, 4, 1, 5], Some(&lora)).unwrap());
        let difference = distance(&merged.logits(&tokens, None).unwrap(), &adapted);
        assert!(difference > 0.0 && difference < 0.5, "{difference}");

        let mut faint = Lora::empty(lora.config.clone(), 4);
        for (layer, target, pair) in lora.pairs() {
            let mut pair = pair.clone();
            pair.scale *= 1e-9;
            faint.set(layer, target, pair);
        }
        let error = merge(&base, &faint, &dir.path().join("faint")).unwrap_err();
        assert!(error.to_string().contains("round away") && error.exit_code() == 1, "{error}");
    }

    #[test]
    fn a_model_without_files_merges_into_a_folder_that_loads() {
        let base = Model::tiny(&TinySpec::default()).unwrap();
        let config = LoraConfig { rank: 3, alpha: 3.0, targets: vec![Target::O, Target::Up] };
        let mut lora = Lora::init(&base.config, &config, 1).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let zero = merge(&base, &lora, dir.path()).unwrap_err();
        assert!(zero.to_string().contains("all 4 deltas are zero") && zero.exit_code() == 1, "{zero}");
        let pairs: Vec<_> = lora.pairs().map(|(l, t, p)| (l, t, p.clone())).collect();
        for (layer, target, mut pair) in pairs {
            pair.b = (normal(target.name(), pair.b.dim(0).unwrap(), 3) * 0.1).unwrap();
            lora.set(layer, target, pair);
        }
        let receipt = merge(&base, &lora, dir.path()).unwrap();
        assert_eq!(receipt.modules.len(), 4);
        let merged = Model::load(&Source::Folder(dir.path().to_owned())).unwrap();
        let tokens = base.encode("hello").unwrap();
        let difference =
            distance(&merged.logits(&tokens, None).unwrap(), &base.logits(&tokens, Some(&lora)).unwrap());
        assert!(difference < 1e-4, "{difference}");
        let message = [serde_json::json!({"role": "user", "content": "hi"})];
        assert_eq!(merged.render(&message, true).unwrap(), base.render(&message, true).unwrap());
        assert_eq!(merged.end_tokens(), base.end_tokens());
        assert!(merge(&base, &lora, dir.path()).unwrap_err().to_string().contains("not empty"));
    }

    #[test]
    fn a_change_that_is_not_finite_is_refused() {
        let base = model("llama_tied");
        let mut lora = Lora::empty(LoraConfig { rank: 1, alpha: 1.0, targets: vec![Target::V] }, 4);
        let b = Tensor::full(f32::INFINITY, (16, 1), &Device::Cpu).unwrap();
        lora.set(2, Target::V, crate::model::lora::Pair { a: normal("a", 1, 32), b, scale: 1.0 });
        let dir = tempfile::tempdir().unwrap();
        let error = merge(&base, &lora, dir.path()).unwrap_err().to_string();
        assert!(error.contains("model.layers.2.self_attn.v_proj.weight"), "{error}");
        assert!(numbers(&lora.pair(2, Target::V).unwrap().b)[0].is_infinite());
    }
}
