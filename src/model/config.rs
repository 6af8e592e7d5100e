//! Architecture, dimensions and constants of a network, read from a `config.json` in either of the layouts
//! that `transformers` writes. What is unknown or missing is refused by name: no default
//! stands in for it.

use super::delta_rule::DeltaShape;
pub use super::rope::Llama3Scaling;
use super::{qwen, rope};
use crate::error::{Error, Result};
use serde_json::{Map, Value};
use std::path::Path;

/// The kinds of network that are known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// Llama, as SmolLM2 is.
    Llama,
    /// Qwen3, dense: queries and keys are normalised per head.
    Qwen3,
    /// Qwen3.5: most layers mix by the gated delta rule, the others by gated attention.
    Qwen3_5,
}

/// Layers that mix by the gated delta rule instead of attention.
#[derive(Debug, Clone, PartialEq)]
pub struct DeltaConfig {
    /// Heads and their widths.
    pub shape: DeltaShape,
    /// Taps of the convolution before the rule.
    pub taps: usize,
    /// Which layers these are, one flag a layer.
    pub layers: Vec<bool>,
}

impl DeltaConfig {
    /// Width of the convolution: queries, keys, values.
    pub fn channels(&self) -> usize {
        2 * self.shape.key_heads * self.shape.key_dim + self.values()
    }

    /// Width of the heads' outputs together.
    pub fn values(&self) -> usize {
        self.shape.value_heads * self.shape.value_dim
    }
}

/// A network's dimensions and constants.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The kind of network.
    pub architecture: Architecture,
    /// Size of the vocabulary (rows of the embedding).
    pub vocab: usize,
    /// Width of a hidden state.
    pub hidden: usize,
    /// Width of the MLP.
    pub intermediate: usize,
    /// Number of decoder layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head (even).
    pub head_dim: usize,
    /// Coordinates of a head that rope turns, the first ones (even; all of them but in Qwen3.5).
    pub rotary_dim: usize,
    /// Layers of another kind than attention, if there are any.
    pub delta: Option<DeltaConfig>,
    /// Added to the mean square in every norm.
    pub norm_eps: f64,
    /// Base of the rope frequencies.
    pub rope_theta: f64,
    /// Stretching of the rope frequencies, if any.
    pub rope_scaling: Option<Llama3Scaling>,
    /// Longest context that the model was made for, in tokens.
    pub max_positions: usize,
    /// Whether the output head is the embedding.
    pub tied: bool,
    /// First token of a document, where the model has one.
    pub bos: Option<u32>,
    /// Tokens that end a turn; empty when the source names none.
    pub eos: Vec<u32>,
}

impl Config {
    /// Parses the text of a `config.json`; `place` names it in errors.
    pub fn parse(text: &str, place: &str) -> Result<Config> {
        let value: Value =
            serde_json::from_str(text).map_err(|e| Error::invalid(format!("is not JSON: {e}")).at(place))?;
        let object = value.as_object().ok_or_else(|| Error::invalid("is not a JSON object").at(place))?;
        Self::from_object(object).map_err(|e| e.at(place))
    }

    fn from_object(o: &Map<String, Value>) -> Result<Config> {
        let architecture = match o.get("model_type").and_then(Value::as_str) {
            Some("llama") => Architecture::Llama,
            Some("qwen3") => Architecture::Qwen3,
            Some("qwen3_5_text") => Architecture::Qwen3_5,
            Some("qwen3_5") => return Config::from_object(&qwen::text_part(o)?),
            Some(other) => {
                return Err(Error::invalid(format!("model_type `{other}` is not supported"))
                    .hint("supported: llama (SmolLM2 and other Llama checkpoints), qwen3, qwen3_5"));
            }
            None => return Err(Error::invalid("field `model_type` is missing")),
        };
        for (key, wanted) in [("attention_bias", false), ("mlp_bias", false)] {
            if o.get(key).is_some_and(|v| !v.is_null() && v != &Value::Bool(wanted)) {
                return Err(Error::invalid(format!("`{key}` other than {wanted} is not supported")));
            }
        }
        if o.get("quantization_config").is_some_and(|v| !v.is_null()) {
            return Err(Error::invalid("`quantization_config` is not supported")
                .hint("use the unquantised checkpoint, or a GGUF file"));
        }
        match o.get("hidden_act").and_then(Value::as_str) {
            Some("silu" | "swish") => {}
            other => {
                let found = other.unwrap_or("nothing");
                return Err(Error::invalid(format!("`hidden_act` must be silu, found {found}")));
            }
        }
        let (hidden, heads) = (size(o, "hidden_size")?, size(o, "num_attention_heads")?);
        let (rope_theta, rope_scaling) = rope::parse(o)?;
        let layers = size(o, "num_hidden_layers")?;
        let delta = match architecture {
            Architecture::Qwen3_5 => Some(qwen::delta(o, layers)?),
            _ => {
                qwen::only_full_attention(o)?;
                None
            }
        };
        let head_dim = match present(o, "head_dim") {
            true => size(o, "head_dim")?,
            false if hidden.is_multiple_of(heads) => hidden / heads,
            false => {
                return Err(Error::invalid(format!(
                    "`hidden_size` {hidden} is not a multiple of `num_attention_heads` {heads}"
                ))
                .hint("a model with other heads says their width in `head_dim`"));
            }
        };
        let config = Config {
            architecture,
            rotary_dim: (head_dim as f64 * rope::turned_share(o, architecture)?) as usize,
            delta,
            vocab: size(o, "vocab_size")?,
            hidden,
            intermediate: size(o, "intermediate_size")?,
            layers,
            heads,
            // Both are optional in the format, with these meanings.
            kv_heads: if present(o, "num_key_value_heads") { size(o, "num_key_value_heads")? } else { heads },
            head_dim,
            norm_eps: number(o, "rms_norm_eps")?,
            rope_theta,
            rope_scaling,
            max_positions: size(o, "max_position_embeddings")?,
            tied: match o.get("tie_word_embeddings") {
                None | Some(Value::Null) => false,
                Some(Value::Bool(tied)) => *tied,
                Some(other) => return Err(wrong("tie_word_embeddings", "a boolean", other)),
            },
            bos: token_ids(o, "bos_token_id")?.first().copied(),
            eos: token_ids(o, "eos_token_id")?,
        };
        config.check()?;
        Ok(config)
    }

    /// Refuses dimensions that no network can have.
    pub fn check(&self) -> Result<()> {
        let outside = self.bos.iter().chain(&self.eos).find(|id| **id as usize >= self.vocab);
        let problem = if self.vocab == 0 {
            "the vocabulary is empty".to_owned()
        } else if self.kv_heads == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            format!("{} query heads cannot share {} key heads", self.heads, self.kv_heads)
        } else if self.layers > 10_000 {
            format!("{} layers are more than any model has", self.layers)
        } else if self.head_dim == 0 || !self.head_dim.is_multiple_of(2) {
            format!("head width (`head_dim`) {} is not even and positive, as rope needs it", self.head_dim)
        } else if self.rotary_dim == 0
            || !self.rotary_dim.is_multiple_of(2)
            || self.rotary_dim > self.head_dim
        {
            format!("rope cannot turn {} of {} coordinates", self.rotary_dim, self.head_dim)
        } else if !(self.norm_eps > 0.0 && self.norm_eps < 1.0) {
            format!("rms_norm_eps {} is not in (0, 1)", self.norm_eps)
        } else if !(self.rope_theta >= 1.0 && self.rope_theta <= 1e30) {
            format!("rope_theta {} is not between 1 and 1e30", self.rope_theta)
        } else if self.vocab > u32::MAX as usize || self.max_positions > u32::MAX as usize {
            "vocabulary and context must fit 32 bits".to_owned()
        } else if let Some(id) = outside {
            format!("token id {id} (first or end token) is outside the vocabulary of {}", self.vocab)
        } else {
            return Ok(());
        };
        Err(Error::invalid(problem).hint("take the constants from the model's original publication"))
    }

    /// Refuses a sequence that is longer than the context that the model was made for.
    pub fn check_length(&self, tokens: usize) -> Result<()> {
        if tokens <= self.max_positions {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{tokens} tokens are more than the model's context of {}",
            self.max_positions
        ))
        .hint(
            "shorten the text: beyond its context (`max_position_embeddings`) a model's answers mean nothing",
        ))
    }

    /// Refuses a token id outside the vocabulary.
    pub fn check_tokens(&self, tokens: &[u32]) -> Result<()> {
        match tokens.iter().find(|t| **t as usize >= self.vocab) {
            Some(bad) => {
                Err(Error::invalid(format!("token id {bad} is outside the vocabulary of {}", self.vocab)))
            }
            None => Ok(()),
        }
    }

    /// Whether a layer mixes by the gated delta rule.
    pub fn is_delta(&self, layer: usize) -> bool {
        self.delta.as_ref().is_some_and(|d| d.layers.get(layer) == Some(&true))
    }

    /// Whether queries and keys are normalised per head before rope.
    pub fn normalises_heads(&self) -> bool {
        self.architecture != Architecture::Llama
    }

    /// Whether a gate from the query projection scales what attention returns.
    pub fn gates_attention(&self) -> bool {
        self.architecture == Architecture::Qwen3_5
    }

    /// What is added to the stored weights of most norms: Qwen3.5 stores their distance from 1.
    pub fn norm_offset(&self) -> f32 {
        if self.architecture == Architecture::Qwen3_5 { 1.0 } else { 0.0 }
    }

    /// Inverse frequencies of rope, `[rotary_dim / 2]`, computed in f32 as the reference implementation does.
    /// The power is libm's in Rust, so that every machine gets the same bits.
    pub fn inverse_frequencies(&self) -> Vec<f32> {
        let theta = self.rope_theta as f32;
        (0..self.rotary_dim / 2)
            .map(|i| 1.0 / libm::powf(theta, (2 * i) as f32 / self.rotary_dim as f32))
            .map(|frequency| self.rope_scaling.map_or(frequency, |s| s.stretch(frequency)))
            .collect()
    }

    /// The `config.json` of this network, a Llama (layout of transformers 5).
    pub fn to_json(&self) -> Value {
        let mut rope = serde_json::json!({"rope_theta": self.rope_theta, "rope_type": "default"});
        if let Some(s) = self.rope_scaling {
            rope = serde_json::json!({
                "rope_theta": self.rope_theta, "rope_type": "llama3", "factor": s.factor,
                "low_freq_factor": s.low_freq_factor, "high_freq_factor": s.high_freq_factor,
                "original_max_position_embeddings": s.original_max_positions,
            });
        }
        let eos = match self.eos.as_slice() {
            [] => Value::Null,
            [one] => Value::from(*one),
            several => Value::from(several.to_vec()),
        };
        serde_json::json!({
            "architectures": ["LlamaForCausalLM"], "attention_bias": false, "bos_token_id": self.bos,
            "dtype": "float32", "eos_token_id": eos, "head_dim": self.head_dim, "hidden_act": "silu",
            "hidden_size": self.hidden, "intermediate_size": self.intermediate,
            "max_position_embeddings": self.max_positions, "mlp_bias": false, "model_type": "llama",
            "num_attention_heads": self.heads, "num_hidden_layers": self.layers,
            "num_key_value_heads": self.kv_heads, "rms_norm_eps": self.norm_eps, "rope_parameters": rope,
            "tie_word_embeddings": self.tied, "vocab_size": self.vocab,
        })
    }
}

pub(super) fn present(o: &Map<String, Value>, key: &str) -> bool {
    o.get(key).is_some_and(|v| !v.is_null())
}

pub(super) fn wrong(key: &str, wanted: &str, found: &Value) -> Error {
    Error::invalid(format!("field `{key}` must be {wanted}, found {found}"))
}

pub(super) fn missing(key: &str) -> Error {
    Error::invalid(format!("field `{key}` is missing"))
}

/// A positive size that fits any address.
pub(super) fn size(o: &Map<String, Value>, key: &str) -> Result<usize> {
    let value = o.get(key).filter(|v| !v.is_null()).ok_or_else(|| missing(key))?;
    match value.as_u64() {
        Some(n) if n > 0 && n <= u64::from(u32::MAX) => Ok(n as usize),
        _ => Err(wrong(key, "a positive integer of at most 32 bits", value)),
    }
}

pub(super) fn number(o: &Map<String, Value>, key: &str) -> Result<f64> {
    let value = o.get(key).filter(|v| !v.is_null()).ok_or_else(|| missing(key))?;
    value.as_f64().ok_or_else(|| wrong(key, "a number", value))
}

/// One id, a list of ids, or none.
pub(super) fn token_ids(o: &Map<String, Value>, key: &str) -> Result<Vec<u32>> {
    let id =
        |v: &Value| v.as_u64().and_then(|n| u32::try_from(n).ok()).ok_or_else(|| wrong(key, "token ids", v));
    match o.get(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => items.iter().map(id).collect(),
        Some(one) => Ok(vec![id(one)?]),
    }
}

/// Reads `config.json` of a folder; where a `generation_config.json` names end tokens, those come first.
pub(super) fn read_folder(folder: &Path) -> Result<Config> {
    let path = folder.join("config.json");
    let mut config = Config::parse(&crate::regular::text(&path)?, &path.display().to_string())?;
    let path = folder.join("generation_config.json");
    if path.exists() {
        let generation: Value = serde_json::from_str(&crate::regular::text(&path)?)
            .map_err(|e| Error::invalid(format!("is not JSON: {e}")).at(path.display()))?;
        if let Some(object) = generation.as_object() {
            let mut eos = token_ids(object, "eos_token_id").map_err(|e| e.at(path.display()))?;
            eos.extend(config.eos.iter().filter(|id| !eos.contains(id)).copied().collect::<Vec<_>>());
            config.eos = eos;
            config.check().map_err(|e| e.at(path.display()))?;
        }
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::fixtures;

    fn fixture() -> Value {
        serde_json::from_slice(&fs_err::read(fixtures().join("llama_tied/config.json")).unwrap()).unwrap()
    }

    /// The error after one field was changed (or removed, by null).
    fn refusal(key: &str, value: Value) -> String {
        let mut config = fixture();
        config[key] = value;
        Config::parse(&config.to_string(), "config.json").unwrap_err().to_string()
    }

    #[test]
    fn reads_what_transformers_5_writes_and_writes_it_back() {
        let config = Config::parse(&fixture().to_string(), "config.json").unwrap();
        assert_eq!((config.hidden, config.heads, config.kv_heads, config.head_dim), (32, 4, 2, 8));
        assert!(config.tied && config.eos.is_empty() && config.bos.is_none());
        assert_eq!(Config::parse(&config.to_json().to_string(), "x").unwrap(), config);
    }

    #[test]
    fn reads_the_older_layout() {
        let mut old = fixture();
        let fields = old.as_object_mut().unwrap();
        fields.remove("rope_parameters");
        fields.remove("head_dim");
        fields.insert("rope_theta".into(), 500_000.0.into());
        fields.insert("eos_token_id".into(), serde_json::json!([5, 6]));
        let config = Config::parse(&old.to_string(), "x").unwrap();
        assert_eq!((config.rope_theta, config.head_dim, config.eos), (500_000.0, 8, vec![5, 6]));
    }

    #[test]
    fn refuses_by_name() {
        assert!(refusal("model_type", "qwen9".into()).contains("qwen9"));
        assert!(refusal("model_type", Value::Null).contains("model_type"));
        assert!(refusal("rope_parameters", Value::Null).contains("rope_theta"));
        assert!(refusal("hidden_size", Value::Null).contains("hidden_size"));
        assert!(refusal("hidden_size", (-3).into()).contains("hidden_size"));
        assert!(refusal("hidden_act", "gelu".into()).contains("gelu"));
        assert!(refusal("attention_bias", true.into()).contains("attention_bias"));
        assert!(refusal("num_key_value_heads", 3.into()).contains("3 key heads"));
        assert!(refusal("head_dim", 7.into()).contains('7'));
        assert!(refusal("num_hidden_layers", 4_000_000_000u32.into()).contains("layers"));
        assert!(
            refusal("quantization_config", serde_json::json!({"bits": 4})).contains("quantization_config")
        );
        let yarn = serde_json::json!({"rope_type": "yarn", "rope_theta": 1e4});
        assert!(refusal("rope_parameters", yarn).contains("yarn"));
    }

    #[test]
    fn llama3_scaling_keeps_short_waves_and_stretches_long_ones() {
        let mut scaled = fixture();
        scaled["head_dim"] = 64.into();
        scaled["rope_parameters"] = serde_json::json!({"rope_type": "llama3", "rope_theta": 5e5, "factor": 32.0,
            "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192});
        let config = Config::parse(&scaled.to_string(), "x").unwrap();
        let plain = Config { rope_scaling: None, ..config.clone() }.inverse_frequencies();
        let found = config.inverse_frequencies();
        for (f, p) in found.iter().zip(&plain) {
            let wave = std::f32::consts::TAU / p;
            if wave < 2048.0 {
                assert_eq!(f, p);
            } else if wave > 8192.0 {
                assert!((f * 32.0 / p - 1.0).abs() < 1e-6);
            } else {
                assert!(f < p && *f > p / 32.0);
            }
        }
        assert!(found.windows(2).all(|w| w[0] > w[1]));
        assert_eq!(Config::parse(&config.to_json().to_string(), "x").unwrap(), config);
    }
}
