//! Writes a model as a folder that loads again here and in other software: safetensors in
//! f32, `config.json`, tokenizer, chat template and end tokens.

use super::config::Architecture;
use super::lora::Target;
use super::{Model, safetensors};
use crate::error::{Error, Result};
use crate::hash;
use candle_core::{Device, Tensor};
use serde_json::{Value, json};
use std::path::Path;

impl Model {
    /// Writes the model into `folder`, weights last; returns their SHA-256. Only Llama is written: other
    /// models are read from folders, which a merge copies.
    pub fn save(&self, folder: &Path) -> Result<String> {
        if self.config.architecture != Architecture::Llama {
            return Err(Error::invalid("only a Llama can be written anew")
                .at(folder.display())
                .hint("copy the folder that the model was read from"));
        }
        let tensors = tensors(self)?;
        write_side_files(self, folder)?;
        write_weights(folder, &tensors)
    }
}

/// All weights in f32 under their names in a checkpoint.
pub(super) fn tensors(model: &Model) -> Result<Vec<(String, Tensor)>> {
    let network = model.network()?;
    let vector = |w: &[f32]| Tensor::from_slice(w, w.len(), &Device::Cpu);
    let mut all = vec![("model.embed_tokens.weight".to_owned(), network.embedding.clone())];
    for (index, layer) in network.layers.iter().enumerate() {
        let prefix = format!("model.layers.{index}");
        all.push((format!("{prefix}.input_layernorm.weight"), vector(&layer.input_norm.weight)?));
        all.push((format!("{prefix}.post_attention_layernorm.weight"), vector(&layer.post_norm.weight)?));
        for (target, linear) in Target::ALL.into_iter().zip(&layer.linears) {
            if let Some(linear) = linear {
                all.push((format!("{prefix}.{}.weight", target.path()), linear.weight()?));
            }
        }
    }
    all.push(("model.norm.weight".to_owned(), vector(&network.final_norm.weight)?));
    if !model.config.tied {
        all.push(("lm_head.weight".to_owned(), network.head.weight()?));
    }
    Ok(all)
}

/// Writes `model.safetensors`; returns its SHA-256.
pub(super) fn write_weights(folder: &Path, tensors: &[(String, Tensor)]) -> Result<String> {
    let bytes = safetensors::serialize(tensors)?;
    hash::write_atomic(&folder.join("model.safetensors"), &bytes)?;
    Ok(hash::sha256_hex(&bytes))
}

/// Writes everything but the weights.
pub(super) fn write_side_files(model: &Model, folder: &Path) -> Result<()> {
    let config = &model.config;
    write_json(&folder.join("config.json"), &config.to_json())?;
    let mut generation = json!({ "eos_token_id": config.eos });
    if let Some(bos) = config.bos {
        generation["bos_token_id"] = bos.into();
    }
    write_json(&folder.join("generation_config.json"), &generation)?;
    if let Some(tokenizer) = &model.tokenizer {
        hash::write_atomic(&folder.join("tokenizer.json"), tokenizer.json().as_bytes())?;
        let token = |id: Option<u32>| id.and_then(|id| tokenizer.token(id));
        let names = json!({
            "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false,
            "bos_token": token(config.bos), "eos_token": token(config.eos.first().copied()),
            "model_max_length": config.max_positions,
        });
        write_json(&folder.join("tokenizer_config.json"), &names)?;
    }
    if let Some(template) = &model.template {
        hash::write_atomic(&folder.join("chat_template.jinja"), template.text().as_bytes())?;
    }
    Ok(())
}

fn write_json(path: &Path, value: &Value) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Error::invalid(format!("cannot be written as JSON: {e}")).at(path.display()))?;
    hash::write_atomic(path, (text + "\n").as_bytes())
}
