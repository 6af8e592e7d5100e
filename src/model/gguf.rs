//! Models from GGUF files of the `llama` architecture: weights dequantised to f32 once,
//! query and key rows put back into the half-split layout that safetensors checkpoints have,
//! tokenizer, chat template and constants from the file's metadata.

use super::check;
use super::config::{Architecture, Config};
use super::gguf_header;
use super::load::Numbers;
use super::lora::Target;
use super::processor::{Compute, Processor};
use super::tokenizer::{Bpe, Tokenizer};
use super::{ChatTemplate, Model, Origin, safetensors};
use crate::error::{Error, Result};
use crate::hash;
use candle_core::Device;
use candle_core::quantized::gguf_file::{Content, Value};
use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::Path;

/// Reads a model from a `.gguf` file.
pub fn load(path: &Path, processor: Processor) -> Result<Model> {
    let place = path.display().to_string();
    let content = gguf_header::read(path)?;
    let mut file = BufReader::with_capacity(1 << 20, fs_err::File::open(path)?);
    let metadata = Metadata { content: &content };
    let config = metadata.config().map_err(|e| e.at(&place))?;
    let (tokenizer, template) = metadata.text_side(&place).map_err(|e| e.at(&place))?;
    tokenizer.check_fits(config.vocab).map_err(|e| e.at(&place))?;
    let names = names(&content, &config).map_err(|e| e.at(&place))?;
    let stored = content
        .tensor_infos
        .get("blk.0.attn_q.weight")
        .map(|info| format!("{:?}", info.ggml_dtype))
        .unwrap_or_default();
    let mut read = |name: &str, _: usize| -> Result<Vec<f32>> {
        let stored = names.get(name).ok_or_else(|| Error::invalid(format!("tensor `{name}` is missing")))?;
        let tensor = content
            .tensor(&mut file, stored, &Device::Cpu)
            .and_then(|t| t.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1::<f32>())
            .map_err(|e| Error::invalid(format!("tensor `{stored}` cannot be read: {}", first_line(&e))))?;
        check::finite(stored, &tensor)?;
        let width = config.hidden;
        Ok(if name.ends_with("q_proj.weight") || name.ends_with("k_proj.weight") {
            half_split(&tensor, config.head_dim, width)
        } else {
            tensor
        })
    };
    let mut numbers = |name: &str, count| Ok(Numbers::Given(read(name, count)?));
    let compute = Compute::new(processor, &config, &mut numbers).map_err(|e| e.at(&place))?;
    Ok(Model {
        origin: Origin {
            name: place,
            path: Some(path.to_owned()),
            format: "gguf",
            sha256: hash::sha256_file(path)?,
            dtype: processor.dtype(),
            stored,
            multimodal: false,
        },
        config,
        compute,
        tokenizer: Some(tokenizer),
        template,
    })
}

/// Tokenizer and chat template of a `.gguf` file, whose weights are not read.
pub fn text_side(path: &Path) -> Result<(Tokenizer, Option<ChatTemplate>)> {
    let place = path.display().to_string();
    let content = gguf_header::read(path)?;
    Metadata { content: &content }.text_side(&place).map_err(|e| e.at(&place))
}

/// candle's errors may carry a backtrace; the first line says what happened.
fn first_line(error: &candle_core::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// GGUF name of every tensor of the network. Refuses missing, surplus and misshapen ones by name.
fn names(content: &Content, config: &Config) -> Result<BTreeMap<String, String>> {
    let mut left: BTreeMap<&str, &[usize]> =
        content.tensor_infos.iter().map(|(name, info)| (name.as_str(), info.shape.dims())).collect();
    let mut names = BTreeMap::new();
    for (name, shape) in safetensors::expected(config) {
        let stored = stored_name(&name);
        match left.remove(stored.as_str()) {
            None => return Err(Error::invalid(format!("tensor `{stored}` is missing"))),
            Some(found) if found != shape => {
                return Err(Error::invalid(format!("tensor `{stored}` has shape {found:?}, not {shape:?}")));
            }
            Some(_) => names.insert(name, stored),
        };
    }
    match left.keys().next() {
        None => Ok(names),
        Some(&"rope_freqs.weight") => {
            Err(Error::invalid("tensor `rope_freqs.weight` (scaled rope) is not supported in GGUF files")
                .hint("use the model's safetensors folder, whose config.json says how it is scaled"))
        }
        Some(name) => Err(Error::invalid(format!("tensor `{name}` belongs to no module of this network"))),
    }
}

pub(super) fn stored_name(name: &str) -> String {
    let name = match name {
        "model.embed_tokens.weight" => return "token_embd.weight".to_owned(),
        "model.norm.weight" => return "output_norm.weight".to_owned(),
        "lm_head.weight" => return "output.weight".to_owned(),
        layer => layer.replace("model.layers.", "blk."),
    };
    [
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        (Target::Q.path(), "attn_q"),
        (Target::K.path(), "attn_k"),
        (Target::V.path(), "attn_v"),
        (Target::O.path(), "attn_output"),
        (Target::Gate.path(), "ffn_gate"),
        (Target::Up.path(), "ffn_up"),
        (Target::Down.path(), "ffn_down"),
    ]
    .iter()
    .fold(name, |name, (from, to)| name.replace(from, to))
}

/// Rows of each head from interleaved pairs (row `2i + s`) to two halves (row `s * head_dim / 2 + i`).
fn half_split(weight: &[f32], head_dim: usize, width: usize) -> Vec<f32> {
    let half = head_dim / 2;
    let mut out = Vec::with_capacity(weight.len());
    for head in weight.chunks(head_dim * width) {
        for side in 0..2 {
            for i in 0..half {
                let row = (2 * i + side) * width;
                out.extend_from_slice(head.get(row..row + width).unwrap_or_default());
            }
        }
    }
    out
}

struct Metadata<'a> {
    content: &'a Content,
}

impl Metadata<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.content.metadata.get(key)
    }

    fn require(&self, key: &str) -> Result<&Value> {
        self.get(key).ok_or_else(|| Error::invalid(format!("metadata `{key}` is missing")))
    }

    fn text(&self, key: &str) -> Result<&str> {
        match self.require(key)? {
            Value::String(text) => Ok(text),
            _ => Err(Error::invalid(format!("metadata `{key}` is not a text"))),
        }
    }

    fn whole(&self, key: &str) -> Result<usize> {
        integer(self.require(key)?)
            .and_then(|n| usize::try_from(n).ok())
            .filter(|n| *n > 0 && *n <= u32::MAX as usize)
            .ok_or_else(|| Error::invalid(format!("metadata `{key}` is not a positive integer")))
    }

    fn optional_id(&self, key: &str) -> Result<Option<u32>> {
        self.get(key)
            .map(|v| {
                integer(v)
                    .and_then(|n| u32::try_from(n).ok())
                    .ok_or_else(|| Error::invalid(format!("metadata `{key}` is not a token id")))
            })
            .transpose()
    }

    /// A float by its shortest decimal: `1e-5`, not the digits of its nearest f32.
    fn float(&self, key: &str) -> Result<f64> {
        let found = match self.require(key)? {
            Value::F32(x) => x.to_string().parse().ok(),
            Value::F64(x) => Some(*x),
            _ => None,
        };
        found.ok_or_else(|| Error::invalid(format!("metadata `{key}` is not a number")))
    }

    fn texts(&self, key: &str) -> Result<Vec<String>> {
        let bad = || Error::invalid(format!("metadata `{key}` is not a list of texts"));
        match self.require(key)? {
            Value::Array(items) => items
                .iter()
                .map(|v| if let Value::String(text) = v { Ok(text.clone()) } else { Err(bad()) })
                .collect(),
            _ => Err(bad()),
        }
    }

    fn config(&self) -> Result<Config> {
        let architecture = self.text("general.architecture")?;
        if architecture != "llama" {
            return Err(Error::invalid(format!("architecture `{architecture}` is not supported"))
                .hint("supported: llama"));
        }
        self.refuse_scaled_rope()?;
        if self.get("llama.expert_count").is_some_and(|v| integer(v) != Some(0)) {
            return Err(Error::invalid("mixtures of experts are not supported"));
        }
        let (hidden, heads) =
            (self.whole("llama.embedding_length")?, self.whole("llama.attention.head_count")?);
        let head_dim = match self.get("llama.attention.key_length") {
            Some(_) => self.whole("llama.attention.key_length")?,
            None => hidden / heads,
        };
        let rotated = self.whole("llama.rope.dimension_count")?;
        if rotated != head_dim {
            return Err(Error::invalid(format!(
                "rope on {rotated} of {head_dim} dimensions is not supported"
            )));
        }
        let vocab = match self.content.tensor_infos.get("token_embd.weight").map(|info| info.shape.dims()) {
            Some([vocab, _]) => *vocab,
            _ => return Err(Error::invalid("tensor `token_embd.weight` is missing")),
        };
        if let Some(value) = self.get("llama.vocab_size").filter(|v| integer(v) != i64::try_from(vocab).ok())
        {
            return Err(Error::invalid(format!(
                "`llama.vocab_size` = {value:?}, but `token_embd.weight` has {vocab} rows"
            )));
        }
        let mut eos: Vec<u32> = Vec::new();
        for key in ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"] {
            eos.extend(self.optional_id(key)?.filter(|id| !eos.contains(id)));
        }
        let config = Config {
            architecture: Architecture::Llama,
            rotary_dim: head_dim,
            delta: None,
            vocab,
            hidden,
            intermediate: self.whole("llama.feed_forward_length")?,
            layers: self.whole("llama.block_count")?,
            heads,
            kv_heads: match self.get("llama.attention.head_count_kv") {
                Some(_) => self.whole("llama.attention.head_count_kv")?,
                None => heads,
            },
            head_dim,
            norm_eps: self.float("llama.attention.layer_norm_rms_epsilon")?,
            rope_theta: self.float("llama.rope.freq_base")?,
            rope_scaling: None,
            max_positions: self.whole("llama.context_length")?,
            tied: !self.content.tensor_infos.contains_key("output.weight"),
            bos: self.optional_id("tokenizer.ggml.bos_token_id")?,
            eos,
        };
        config.check()?;
        Ok(config)
    }

    /// The format says how rope is scaled under several keys, of any of which converters write one or more.
    fn refuse_scaled_rope(&self) -> Result<()> {
        let plain = |key: &str, value: &Value| match value {
            Value::String(kind) => key.ends_with("type") && kind == "none",
            Value::F32(factor) => *factor == 1.0 || *factor == 0.0,
            Value::F64(factor) => *factor == 1.0 || *factor == 0.0,
            _ => false,
        };
        for key in ["llama.rope.scaling.type", "llama.rope.scaling.factor", "llama.rope.scale_linear"] {
            if let Some(value) = self.get(key).filter(|v| !plain(key, v)) {
                return Err(Error::invalid(format!(
                    "`{key}` = {value:?}: scaled rope is not supported in GGUF files"
                ))
                .hint("use the model's safetensors folder, whose config.json says how it is scaled"));
            }
        }
        Ok(())
    }

    fn text_side(&self, place: &str) -> Result<(Tokenizer, Option<ChatTemplate>)> {
        let model = self.text("tokenizer.ggml.model")?;
        if model != "gpt2" {
            return Err(Error::invalid(format!("tokenizer model `{model}` is not supported"))
                .hint("byte-level BPE (gpt2) is; a folder with the model's tokenizer.json also works"));
        }
        let (tokens, merges) = (self.texts("tokenizer.ggml.tokens")?, self.texts("tokenizer.ggml.merges")?);
        let (mut special, mut added) = (Vec::new(), Vec::new());
        let kinds = match self.get("tokenizer.ggml.token_type") {
            Some(Value::Array(kinds)) => Some(kinds),
            _ => None,
        };
        // Without the kinds no marker of a chat would be found as one token, and every answer be wrong.
        let chat = matches!(self.get("tokenizer.chat_template"), Some(Value::String(_)));
        if chat && kinds.is_none_or(|kinds| kinds.len() != tokens.len()) {
            return Err(Error::invalid("`tokenizer.ggml.token_type` does not give each token its kind")
                .hint("convert the model again with current software, or use its safetensors folder"));
        }
        if let Some(kinds) = kinds {
            for (id, kind) in (0u32..).zip(kinds) {
                match integer(kind) {
                    Some(CONTROL) => special.push(id),
                    Some(USER_DEFINED) => added.push(id),
                    _ => {}
                }
            }
        }
        let pre = self.text("tokenizer.ggml.pre")?;
        let bpe = Bpe { tokens: &tokens, special: &special, added: &added, merges: &merges, pre };
        let tokenizer = Tokenizer::from_bpe(&bpe, place)?;
        let name = |key: &str| -> Result<String> {
            Ok(self.optional_id(key)?.and_then(|id| tokens.get(id as usize).cloned()).unwrap_or_default())
        };
        let (bos, eos) = (name("tokenizer.ggml.bos_token_id")?, name("tokenizer.ggml.eos_token_id")?);
        let template = match self.get("tokenizer.chat_template") {
            Some(Value::String(text)) => Some(ChatTemplate::new(text.clone(), &bos, &eos, place)?),
            _ => None,
        };
        Ok((tokenizer, template))
    }
}

/// Token types of the format.
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;

fn integer(value: &Value) -> Option<i64> {
    Some(match value {
        Value::U8(n) => i64::from(*n),
        Value::I8(n) => i64::from(*n),
        Value::U16(n) => i64::from(*n),
        Value::I16(n) => i64::from(*n),
        Value::U32(n) => i64::from(*n),
        Value::I32(n) => i64::from(*n),
        Value::U64(n) => i64::try_from(*n).ok()?,
        Value::I64(n) => *n,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::{numbers, write_gguf as write};

    fn refusal(key: &str, value: Option<Value>) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.gguf");
        write(&path, &[(key, value)]);
        load(&path, Processor::Cpu).err().unwrap().to_string()
    }

    #[test]
    fn the_same_weights_from_gguf_are_the_same_model() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.gguf");
        write(&path, &[]);
        let (model, reference) =
            (load(&path, Processor::Cpu).unwrap(), crate::model::testing::model("llama_tied"));
        assert_eq!((model.origin.stored.as_str(), model.end_tokens()), ("F32", [7].as_slice()));
        let logits = |m: &Model| numbers(&m.logits(&[3, 1, 4, 1, 5], None).unwrap());
        assert!(logits(&model) == logits(&reference));
        assert!(model.template.is_none() && model.encode("A").unwrap() == [65]);
    }

    #[test]
    fn what_is_unsupported_or_missing_is_refused_by_name() {
        let text = |s: &str| Some(Value::String(s.into()));
        assert!(refusal("general.architecture", text("mamba")).contains("mamba"));
        assert!(refusal("tokenizer.ggml.pre", text("qwen2")).contains("qwen2"));
        assert!(refusal("tokenizer.ggml.model", text("llama")).contains("tokenizer model `llama`"));
        assert!(refusal("llama.rope.scaling.type", text("yarn")).contains("yarn"));
        assert!(refusal("llama.rope.scaling.type", Some(Value::U32(2))).contains("U32(2)"));
        assert!(refusal("llama.rope.scaling.factor", Some(Value::F32(8.0))).contains("F32(8.0)"));
        assert!(refusal("llama.vocab_size", Some(Value::U32(300))).contains("256 rows"));
        assert!(refusal("tokenizer.ggml.eos_token_id", Some(Value::U32(256))).contains("token id 256"));
        assert!(refusal("general.alignment", Some(Value::U32(0))).contains("general.alignment"));
        assert!(refusal("llama.rope.freq_base", None).contains("llama.rope.freq_base"));
        assert!(refusal("llama.block_count", Some(Value::U32(3))).contains("blk.3."));
        assert!(refusal("llama.block_count", Some(Value::U32(5))).contains("blk.4."));
        assert!(refusal("llama.feed_forward_length", Some(Value::U32(40))).contains("shape"));
        assert!(refusal("llama.attention.head_count", Some(Value::U32(0))).contains("head_count"));
        assert!(refusal("llama.rope.dimension_count", Some(Value::U32(4))).contains("4 of 8"));
    }

    #[test]
    fn a_cut_file_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.gguf");
        write(&path, &[]);
        let bytes = fs_err::read(&path).unwrap();
        for cut in [0, 3, 30, 400, bytes.len() / 2, bytes.len() - 1] {
            fs_err::write(&path, &bytes[..cut]).unwrap();
            assert!(
                load(&path, Processor::Cpu).err().unwrap().to_string().contains("x.gguf"),
                "cut at {cut}"
            );
        }
    }
}
