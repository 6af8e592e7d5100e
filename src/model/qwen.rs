//! What a `config.json` of Qwen says beyond a Llama's: the text part of a multimodal model, and
//! which layers mix by the gated delta rule.

use super::config::{DeltaConfig, missing, present, size, wrong};
use super::delta_rule::DeltaShape;
use crate::error::{Error, Result};
use serde_json::{Map, Value};

/// The text part of a multimodal config. Whether the head is tied may stand in the outer part alone.
pub(super) fn text_part(o: &Map<String, Value>) -> Result<Map<String, Value>> {
    let mut text = match o.get("text_config") {
        Some(Value::Object(text)) => text.clone(),
        Some(other) => return Err(wrong("text_config", "an object", other)),
        None => return Err(missing("text_config")),
    };
    let tied = o.get("tie_word_embeddings").filter(|v| !v.is_null());
    if let (Some(outer), Some(inner)) = (tied, text.get("tie_word_embeddings").filter(|v| !v.is_null()))
        && outer != inner
    {
        return Err(Error::invalid("`tie_word_embeddings` differs between the config and its `text_config`"));
    }
    if let Some(tied) = tied {
        text.insert("tie_word_embeddings".into(), tied.clone());
    }
    for key in ["bos_token_id", "eos_token_id"] {
        if let (Some(outer), false) = (o.get(key), present(&text, key)) {
            text.insert(key.into(), outer.clone());
        }
    }
    match text.get("model_type").and_then(Value::as_str) {
        Some("qwen3_5_text") => Ok(text),
        other => Err(Error::invalid(format!(
            "`text_config.model_type` must be qwen3_5_text, found {}",
            other.unwrap_or("nothing")
        ))),
    }
}

/// The delta layers of a Qwen3.5 config.
pub(super) fn delta(o: &Map<String, Value>, layers: usize) -> Result<DeltaConfig> {
    if o.get("attn_output_gate").is_some_and(|v| !v.is_null() && v != &Value::Bool(true)) {
        return Err(Error::invalid("`attn_output_gate` other than true is not supported"));
    }
    let kinds = o.get("layer_types").and_then(Value::as_array).ok_or_else(|| missing("layer_types"))?;
    if kinds.len() != layers {
        return Err(Error::invalid(format!("`layer_types` names {} layers, not {layers}", kinds.len())));
    }
    let flags = kinds.iter().map(|kind| match kind.as_str() {
        Some("linear_attention") => Ok(true),
        Some("full_attention") => Ok(false),
        _ => Err(Error::invalid(format!("`layer_types` has {kind}, which is not supported"))
            .hint("supported: linear_attention and full_attention")),
    });
    let shape = DeltaShape {
        key_heads: size(o, "linear_num_key_heads")?,
        value_heads: size(o, "linear_num_value_heads")?,
        key_dim: size(o, "linear_key_head_dim")?,
        value_dim: size(o, "linear_value_head_dim")?,
    };
    if !shape.value_heads.is_multiple_of(shape.key_heads) {
        return Err(Error::invalid(format!(
            "{} linear value heads cannot share {} key heads",
            shape.value_heads, shape.key_heads
        )));
    }
    Ok(DeltaConfig { shape, taps: size(o, "linear_conv_kernel_dim")?, layers: flags.collect::<Result<_>>()? })
}

/// Refuses windows and other kinds of layers in an architecture that is computed without them.
pub(super) fn only_full_attention(o: &Map<String, Value>) -> Result<()> {
    if o.get("use_sliding_window") == Some(&Value::Bool(true)) {
        return Err(Error::invalid("`use_sliding_window` is not supported"));
    }
    let kinds = o.get("layer_types").and_then(Value::as_array).into_iter().flatten();
    match kinds.clone().find(|kind| kind.as_str() != Some("full_attention")) {
        Some(kind) => Err(Error::invalid(format!("`layer_types` has {kind}, which is not supported"))
            .hint("supported here: full_attention")),
        None => Ok(()),
    }
}
