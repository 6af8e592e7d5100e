//! Models: config, weights, tokenizer and chat template in; logits, LoRA layers and merged
//! checkpoints out. One network serves inference and training, over flat rows without
//! padding; a row's result never depends on its neighbours. Nothing here samples, trains
//! or knows of tasks.

pub mod adapter;
pub mod causal;
pub mod chat;
mod check;
pub mod config;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod delta;
pub mod delta_rule;
pub mod fetch;
pub mod gguf;
mod gguf_header;
pub mod kernel;
pub mod linear;
pub mod load;
pub mod lora;
pub mod merge;
pub mod network;
pub mod ops;
mod peft;
mod peft_match;
mod pip;
pub mod processor;
mod qwen;
mod random;
pub mod registry;
mod rope;
pub mod safetensors;
pub mod save;
mod text;
pub mod tiny;
pub mod tokenizer;

#[cfg(test)]
mod delta_rule_tests;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod parity;
#[cfg(test)]
mod peer;
#[cfg(test)]
pub(crate) mod testing;

use crate::error::{Error, Result};
use candle_core::Tensor;
use serde::Serialize;
use std::path::{Path, PathBuf};

pub use causal::Causal;
pub use chat::ChatTemplate;
pub use config::Config;
pub use linear::FrozenLinear;
pub use load::Source;
pub use lora::{Lora, LoraConfig, RowAdapters, Target};
pub use network::{Mix, Network, Rows};
pub use processor::{Compute, Processor};
pub use text::TextSide;
pub use tiny::TinySpec;
pub use tokenizer::Tokenizer;

impl From<candle_core::Error> for Error {
    fn from(e: candle_core::Error) -> Self {
        Error::invalid(format!("tensor computation failed: {e}"))
    }
}

/// Where a model came from and what exactly it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Origin {
    /// What the user asked for: a registry name or a path.
    pub name: String,
    /// The file or folder that was read; `None` for a model made in memory.
    pub path: Option<PathBuf>,
    /// `gguf`, `safetensors` or `memory`.
    pub format: &'static str,
    /// SHA-256 of the weights: of the file when there is one, else of the files' names and hashes as canonical JSON.
    pub sha256: String,
    /// Arithmetic type of the computation: `f32` or `bf16`.
    pub dtype: &'static str,
    /// Type of the weights in the source, such as `BF16` or `Q4_1`.
    pub stored: String,
    /// Whether it is the text part of a multimodal checkpoint, whose names stand under `model.language_model`.
    pub multimodal: bool,
}

/// A model ready to run.
pub struct Model {
    /// Dimensions and constants.
    pub config: Config,
    /// The network, where it computes.
    pub compute: Compute,
    /// Text to ids and back; absent when the source has none.
    pub tokenizer: Option<Tokenizer>,
    /// Conversation to text; absent when the source has none.
    pub template: Option<ChatTemplate>,
    /// Where it came from.
    pub origin: Origin,
}

impl Model {
    /// Reads a model into main memory. Errors name the file and what is missing, surplus or unsupported.
    pub fn load(source: &Source) -> Result<Model> {
        load::load(source, Processor::Cpu)
    }

    /// Reads a model to where it is to compute.
    pub fn load_on(source: &Source, processor: Processor) -> Result<Model> {
        load::load(source, processor)
    }

    /// The network in main memory, or an error where the weights are on a card.
    pub fn network(&self) -> Result<&Network> {
        match &self.compute {
            Compute::Cpu(network) => Ok(network),
            #[cfg(feature = "cuda")]
            Compute::Cuda(_) => Err(Error::invalid("this needs the model's weights in main memory")
                .at(&self.origin.name)
                .hint("run it with `--device cpu`")),
        }
    }

    /// Logits `[tokens, vocab]` of one sequence at every position, with an adapter or without.
    pub fn logits(&self, tokens: &[u32], adapter: Option<&Lora>) -> Result<Tensor> {
        match &self.compute {
            Compute::Cpu(network) => network.logits(&self.hidden(tokens, adapter)?),
            #[cfg(feature = "cuda")]
            Compute::Cuda(network) => {
                let logits = network.logits(tokens, adapter)?.concat();
                Ok(Tensor::from_vec(logits, (tokens.len(), self.config.vocab), &candle_core::Device::Cpu)?)
            }
        }
    }

    /// Hidden states `[tokens, hidden]` after the final norm, of one sequence. Errors on an id outside the
    /// vocabulary, on more tokens than the model's context has, and where the weights are on a card.
    pub fn hidden(&self, tokens: &[u32], adapter: Option<&Lora>) -> Result<Tensor> {
        self.config.check_length(tokens.len())?;
        let positions: Vec<u32> = (0..tokens.len() as u32).collect();
        let of_row = vec![adapter.map(|_| 0); tokens.len()];
        let rows = Rows { tokens, positions: &positions, adapters: &of_row };
        let loras: Vec<&Lora> = adapter.into_iter().collect();
        let mut mix = Causal::one(&self.config, tokens.len());
        self.network()?.forward(&rows, &loras, &mut mix)
    }

    /// The tokenizer, or an error that says that the source has none.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        self.tokenizer.as_ref().ok_or_else(|| {
            Error::invalid("the model has no tokenizer")
                .at(&self.origin.name)
                .hint("put the tokenizer.json of the model beside its weights")
        })
    }

    /// The chat template, or an error that says that the source has none.
    pub fn template(&self) -> Result<&ChatTemplate> {
        self.template.as_ref().ok_or_else(|| {
            Error::invalid("the model has no chat template")
                .at(&self.origin.name)
                .hint("put the model's chat_template.jinja beside its weights")
        })
    }

    /// Token ids of text as it stands: nothing is added, special tokens written in it are recognised.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.tokenizer()?.encode(text)
    }

    /// Text of token ids; special tokens are left out when `skip_special`.
    pub fn decode(&self, tokens: &[u32], skip_special: bool) -> Result<String> {
        self.tokenizer()?.decode(tokens, skip_special)
    }

    /// Token ids of a conversation, ending with the opening of an assistant turn when `open`.
    /// Messages are anything that serialises to `{role, content, …}`.
    pub fn render<M: Serialize>(&self, messages: &[M], open: bool) -> Result<Vec<u32>> {
        self.encode(&self.template()?.render(messages, open)?)
    }

    /// Token ids of a conversation and the opening of an assistant turn, which may begin with a thought if
    /// `thinking` and the model's template knows of thoughts.
    pub fn prompt<M: Serialize>(&self, messages: &[M], thinking: bool) -> Result<Vec<u32>> {
        self.encode(&self.template()?.prompt(messages, thinking)?)
    }

    /// Token ids that follow the content of an assistant turn when `next` comes after it: the
    /// end-of-turn token first, then `next`, then the opening of another assistant turn as in [`Model::prompt`].
    pub fn after_assistant<M: Serialize>(&self, next: &M, thinking: bool) -> Result<Vec<u32>> {
        self.encode(&self.template()?.after_assistant(next, thinking)?)
    }

    /// Ids that end an assistant turn, as config, generation config or tokenizer name them.
    pub fn end_tokens(&self) -> &[u32] {
        &self.config.eos
    }

    /// Reads a PEFT adapter for this model.
    pub fn load_adapter(&self, folder: &Path) -> Result<Lora> {
        adapter::load(folder, &self.config)
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{greedy, ids, json, model, smollm2};
    use super::*;

    #[test]
    fn rows_that_make_no_batch_are_errors() {
        let model = model("llama_tied");
        assert_eq!(model.logits(&[], None).unwrap().dims(), [0, 256]);
        assert!(model.logits(&[1, 256], None).unwrap_err().to_string().contains("token id 256"));
        assert_eq!(model.logits(&[1; 256], None).unwrap().dims(), [256, 256]);
        let long = model.logits(&[1; 257], None).unwrap_err().to_string();
        assert!(long.contains("257 tokens") && long.contains("context of 256"), "{long}");
        let rows = Rows { tokens: &[1, 2], positions: &[0], adapters: &[None, None] };
        let mut mix = Causal::one(&model.config, 2);
        assert!(
            model
                .network()
                .unwrap()
                .forward(&rows, &[], &mut mix)
                .unwrap_err()
                .to_string()
                .contains("1 positions")
        );
        let rows = Rows { positions: &[0, 1], adapters: &[None, Some(0)], ..rows };
        assert!(
            model
                .network()
                .unwrap()
                .forward(&rows, &[], &mut mix)
                .unwrap_err()
                .to_string()
                .contains("adapter 0")
        );
        let x = model.network().unwrap().embed(&[1, 2]).unwrap();
        assert!(model.network().unwrap().layer(4, &x, &[0, 1], &RowAdapters::base(), &mut mix).is_err());
        assert!(model.network().unwrap().layer(0, &x, &[0], &RowAdapters::base(), &mut mix).is_err());
        let fixtures = testing::fixtures();
        assert!(
            model.render(&[serde_json::json!({})], true).unwrap_err().to_string().contains("chat template")
        );
        assert!(model.load_adapter(&fixtures.join("no-such-folder")).is_err());
    }

    #[test]
    fn smollm2_agrees_with_the_reference() {
        let Some(model) = smollm2() else { return };
        let golden = json("smollm2/smollm2_q4_1.json");
        assert_eq!(model.origin.sha256, golden["sha256"].as_str().unwrap());
        assert_eq!((model.origin.stored.as_str(), model.end_tokens()), ("Q4_1", [2].as_slice()));
        for (text, tokens) in golden["tokenization"].as_object().unwrap() {
            assert_eq!(model.encode(text).unwrap(), ids(tokens), "{text:?}");
            assert_eq!(&model.decode(&ids(tokens), false).unwrap(), text);
        }
        for case in golden["cases"].as_array().unwrap() {
            let messages = case["messages"].as_array().unwrap();
            let rendered = model.template().unwrap().render(messages, true).unwrap();
            assert_eq!(rendered, case["rendered"].as_str().unwrap());
            let prompt = model.render(messages, true).unwrap();
            assert_eq!(prompt, ids(&case["prompt_tokens"]));
            let logits = model.logits(&prompt, None).unwrap();
            let last = testing::numbers(&logits.narrow(0, prompt.len() - 1, 1).unwrap());
            let mut order: Vec<u32> = (0..last.len() as u32).collect();
            order.sort_by(|a, b| last[*b as usize].total_cmp(&last[*a as usize]));
            assert_eq!(order[..5], ids(&case["top5_ids"]));
            for (id, value) in order.iter().zip(case["top5_logits"].as_array().unwrap()) {
                let difference = (f64::from(last[*id as usize]) - value.as_f64().unwrap()).abs();
                assert!(difference < 1e-3, "logit of {id} differs by {difference}");
            }
            let total: f64 = last.iter().map(|x| f64::from(*x).exp()).sum();
            assert!((total.ln() - case["logsumexp_last"].as_f64().unwrap()).abs() < 1e-3);
            assert_eq!(greedy(&model, &prompt, None, 3), ids(&case["greedy_32"])[..3]);
        }
    }

    #[test]
    fn smollm2_weights_are_dequantised_as_the_reference_does() {
        let Some(model) = smollm2() else { return };
        let golden = json("smollm2/smollm2_q4_1.json");
        let sums = golden["dequantised_checks"]["sum_and_abs_sum"].as_object().unwrap();
        for (name, sum) in sums {
            let weight = match name.as_str() {
                "model.embed_tokens.weight" => model.network().unwrap().embedding.clone(),
                "model.layers.0.self_attn.q_proj.weight" => {
                    model.network().unwrap().linear(0, Target::Q).unwrap().weight().unwrap()
                }
                _ => model.network().unwrap().linear(29, Target::Down).unwrap().weight().unwrap(),
            };
            let numbers = testing::numbers(&weight);
            for (found, wanted) in
                numbers.iter().zip(golden["dequantised_checks"]["first8"][name].as_array().unwrap())
            {
                assert_eq!(*found, wanted.as_f64().unwrap() as f32, "{name}");
            }
            let total: f64 = numbers.iter().map(|x| f64::from(*x)).sum();
            let absolute: f64 = numbers.iter().map(|x| f64::from(x.abs())).sum();
            assert!((total - sum[0].as_f64().unwrap()).abs() < 1e-3, "{name}: {total}");
            assert!((absolute - sum[1].as_f64().unwrap()).abs() < 1e-3, "{name}: {absolute}");
        }
    }
}
