//! A tiny Llama with seeded random weights, made on the spot: it knows nothing, but runs every
//! part of the road without a download. Its tokenizer holds single bytes and, on request, merges
//! learned from a few texts.

use super::config::{Architecture, Config};
use super::load::{Numbers, assemble};
use super::tokenizer::{Bpe, Tokenizer, byte_characters};
use super::{ChatTemplate, Compute, Model, Origin};
use crate::error::{Error, Result};
use crate::hash;
use crate::philox::Philox;

/// Dimensions of a tiny model.
#[derive(Debug, Clone, PartialEq)]
pub struct TinySpec {
    /// Names the random weights.
    pub seed: u64,
    /// Width of a hidden state.
    pub hidden: usize,
    /// Width of the MLP.
    pub intermediate: usize,
    /// Decoder layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key heads.
    pub kv_heads: usize,
    /// Longest context in tokens.
    pub max_positions: usize,
    /// Merges of the tokenizer, most important first, such as those of [`learn_merges`]; none: bytes alone.
    pub merges: Vec<String>,
    /// Whether it has markers of thoughts, and a template that opens one where it may think.
    pub thoughts: bool,
}

impl Default for TinySpec {
    fn default() -> Self {
        TinySpec {
            seed: 1,
            hidden: 64,
            intermediate: 128,
            layers: 2,
            heads: 4,
            kv_heads: 2,
            max_positions: 4096,
            merges: Vec::new(),
            thoughts: false,
        }
    }
}

/// Each digit alone, then byte level: numbers are spelled out.
const PRE: &str = "smollm";

const SPECIAL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

const MARKERS: [&str; 2] = ["<think>", "</think>"];

/// Behind the opening of an assistant turn.
const MAY_THINK: &str = "{% if add_generation_prompt and enable_thinking is defined and enable_thinking %}{{ '<think>\n' }}{% endif %}";

const TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' \
     + message['content'] + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}\
     {{ '<|im_start|>assistant\n' }}{% endif %}";

impl Model {
    /// Makes a tiny model: on one machine the same spec gives the same weights to the bit. Ids 0 to 2 are the
    /// special tokens (2 ends a turn), id 3 + b is byte b, then come the merged tokens and the markers of thoughts.
    pub fn tiny(spec: &TinySpec) -> Result<Model> {
        let tokens: Vec<String> = SPECIAL
            .iter()
            .map(|t| (*t).to_owned())
            .chain(byte_characters().map(String::from))
            .chain(spec.merges.iter().map(|pair| pair.replace(' ', "")))
            .chain(MARKERS.iter().filter(|_| spec.thoughts).map(|t| (*t).to_owned()))
            .collect();
        let (markers, more) = match spec.thoughts {
            true => (vec![tokens.len() as u32 - 2, tokens.len() as u32 - 1], MAY_THINK),
            false => (Vec::new(), ""),
        };
        let head_dim = spec.hidden.checked_div(spec.heads).unwrap_or_default();
        let config = Config {
            architecture: Architecture::Llama,
            rotary_dim: head_dim,
            delta: None,
            vocab: tokens.len(),
            hidden: spec.hidden,
            intermediate: spec.intermediate,
            layers: spec.layers,
            heads: spec.heads,
            kv_heads: spec.kv_heads,
            head_dim,
            norm_eps: 1e-5,
            rope_theta: 10_000.0,
            rope_scaling: None,
            max_positions: spec.max_positions,
            tied: false,
            bos: Some(1),
            eos: vec![2],
        };
        let mut hashed = Vec::new();
        let network = assemble(&config, &mut |name, count| {
            let weights = random_weights(spec, name, count);
            hashed.push((
                name.to_owned(),
                hash::sha256_hex(&weights.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>()),
            ));
            Ok(Numbers::Given(weights))
        })?;
        let place = "tiny model";
        let bpe =
            Bpe { tokens: &tokens, special: &[0, 1, 2], added: &markers, merges: &spec.merges, pre: PRE };
        Ok(Model {
            tokenizer: Some(Tokenizer::from_bpe(&bpe, place)?),
            template: Some(ChatTemplate::new(format!("{TEMPLATE}{more}"), SPECIAL[1], SPECIAL[2], place)?),
            origin: Origin {
                name: format!("tiny-{}", spec.seed),
                path: None,
                format: "memory",
                sha256: hash::sha256_json(&hashed)?,
                dtype: "f32",
                stored: "F32".to_owned(),
                multimodal: false,
            },
            config,
            compute: Compute::Cpu(network),
        })
    }
}

/// At most `count` byte-pair merges learned from texts, in the form of [`TinySpec::merges`]. The same texts give
/// the same merges.
pub fn learn_merges(texts: &[String], count: usize) -> Result<Vec<String>> {
    use tokenizers::models::bpe::{BPE, BpeTrainerBuilder};
    use tokenizers::pre_tokenizers::{byte_level::ByteLevel, digits::Digits, sequence::Sequence};
    let failed = |e: tokenizers::Error| Error::invalid(format!("no merges can be learned: {e}"));
    let mut learner = tokenizers::Tokenizer::new(BPE::default());
    let split = Sequence::new(vec![Digits::new(true).into(), ByteLevel::new(false, true, true).into()]);
    learner.with_pre_tokenizer(Some(split));
    let trainer = BpeTrainerBuilder::new()
        .show_progress(false)
        .vocab_size(byte_characters().len() + count)
        .initial_alphabet(byte_characters().into_iter().collect())
        .build();
    let mut trainer = tokenizers::models::TrainerWrapper::from(trainer);
    learner.train(&mut trainer, texts.iter()).map_err(failed)?;
    let model = serde_json::to_value(learner.get_model()).map_err(|e| failed(Box::new(e)))?;
    let merges = model.get("merges").and_then(|m| m.as_array()).map_or(&[][..], |m| m);
    merges
        .iter()
        .map(|pair| match pair {
            serde_json::Value::String(text) => Ok(text.clone()),
            serde_json::Value::Array(two) => {
                let sides: Vec<&str> = two.iter().filter_map(|side| side.as_str()).collect();
                Ok(sides.join(" "))
            }
            other => Err(Error::invalid(format!("a learned merge reads `{other}`"))),
        })
        .collect()
}

/// Norms of one; matrices with a standard deviation that keeps activations near one.
fn random_weights(spec: &TinySpec, name: &str, count: usize) -> Vec<f32> {
    if name.ends_with("norm.weight") {
        return vec![1.0; count];
    }
    let inputs = if name.ends_with("down_proj.weight") { spec.intermediate } else { spec.hidden };
    let deviation = if name.contains("embed_tokens") { 1.0 } else { 1.5 / (inputs as f64).sqrt() };
    let mut stream = Philox::named(&format!("tiny/{}/{name}", spec.seed));
    let mut weights = Vec::with_capacity(count + 1);
    while weights.len() < count {
        // Box and Muller's pair of normal deviates.
        let radius = (-2.0 * (1.0 - stream.unit()).ln()).sqrt() * deviation;
        let (sin, cos) = (std::f64::consts::TAU * stream.unit()).sin_cos();
        weights.push((radius * cos) as f32);
        weights.push((radius * sin) as f32);
    }
    weights.truncate(count);
    weights
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Source;
    use crate::model::testing::numbers;
    use proptest::prelude::*;

    #[test]
    fn the_same_seed_is_the_same_model_and_another_is_not() {
        let make = |seed| Model::tiny(&TinySpec { seed, ..TinySpec::default() }).unwrap();
        let (one, again, other) = (make(1), make(1), make(2));
        assert_eq!(one.origin.sha256, again.origin.sha256);
        assert_ne!(one.origin.sha256, other.origin.sha256);
        let logits = |m: &Model| numbers(&m.logits(&[5, 6, 7], None).unwrap());
        assert!(logits(&one) == logits(&again) && logits(&one) != logits(&other));
    }

    #[test]
    fn learned_merges_shorten_text_and_repeat() {
        let texts = vec!["Reply with one line, ANSWER: 12.".to_owned(), "Reply with one word.".to_owned()];
        let merges = learn_merges(&texts, 20).unwrap();
        assert_eq!(merges, learn_merges(&texts, 20).unwrap());
        assert!(merges.len() == 20, "{merges:?}");
        let plain = Model::tiny(&TinySpec::default()).unwrap();
        let merged = Model::tiny(&TinySpec { merges, ..TinySpec::default() }).unwrap();
        let (a, b) = (plain.encode(&texts[0]).unwrap(), merged.encode(&texts[0]).unwrap());
        assert!(b.len() < a.len(), "{} and {}", a.len(), b.len());
        assert_eq!(merged.decode(&b, false).unwrap(), texts[0]);
    }

    #[test]
    fn a_saved_one_loads_as_the_same_model() {
        let model =
            Model::tiny(&TinySpec { layers: 3, hidden: 96, heads: 6, kv_heads: 3, ..TinySpec::default() })
                .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let sha256 = model.save(dir.path()).unwrap();
        let again = Model::load(&Source::parse(&dir.path().display().to_string()).unwrap()).unwrap();
        assert_eq!((again.origin.sha256.as_str(), &again.config), (sha256.as_str(), &model.config));
        let tokens = model.encode("<|im_start|>user\nhé\n<|im_end|>").unwrap();
        assert_eq!(tokens, again.encode("<|im_start|>user\nhé\n<|im_end|>").unwrap());
        assert_eq!((tokens[0], tokens.last()), (1, Some(&2)));
        let logits = |m: &Model| numbers(&m.logits(&tokens, None).unwrap());
        assert!(logits(&again) == logits(&model));
        assert_eq!(again.tokenizer().unwrap().sha256(), model.tokenizer().unwrap().sha256());
    }

    #[test]
    fn impossible_dimensions_are_errors() {
        for spec in [
            TinySpec { heads: 0, ..TinySpec::default() },
            TinySpec { kv_heads: 3, ..TinySpec::default() },
            TinySpec { hidden: 36, ..TinySpec::default() },
        ] {
            assert!(Model::tiny(&spec).is_err(), "{spec:?}");
        }
    }

    #[test]
    fn turns_are_framed_and_follow_each_other() {
        let model = Model::tiny(&TinySpec::default()).unwrap();
        let turn = |role: &str, content: &str| serde_json::json!({"role": role, "content": content});
        let opened = model.render(&[turn("user", "a")], true).unwrap();
        let whole =
            model.render(&[turn("user", "a"), turn("assistant", "b"), turn("user", "c")], true).unwrap();
        let mut built = opened;
        built.extend(model.encode("b").unwrap());
        built.extend(model.after_assistant(&turn("user", "c"), true).unwrap());
        assert_eq!(built, whole);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]
        #[test]
        fn text_survives_its_tokens(text in "\\PC*|[a-z \\n\\t]*") {
            let model = Model::tiny(&TinySpec { layers: 1, hidden: 8, ..TinySpec::default() }).unwrap();
            let tokens = model.encode(&text).unwrap();
            prop_assert_eq!(tokens.len(), text.len());
            prop_assert_eq!(model.decode(&tokens, false).unwrap(), text);
        }
    }
}
