//! Finds a model by name, folder or file, and puts its parts together.

use super::config::{self, Config};
use super::delta::Delta;
use super::linear::FrozenLinear;
use super::lora::Target;
use super::network::{Layer, Mixer, Network};
use super::ops::RmsNorm;
use super::processor::{Compute, Processor};
use super::safetensors::{Checkpoint, weights_sha256};
use super::tokenizer::Tokenizer;
use super::{ChatTemplate, Model, Origin, fetch, gguf, registry};
use crate::error::{Error, Result};
use crate::hash;
use crate::philox::Philox;
use candle_core::{Device, Tensor};
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where to read a model from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A name of the registry; its file must have been fetched.
    Named(String),
    /// A folder with `config.json` and safetensors.
    Folder(PathBuf),
    /// A `.gguf` file.
    Gguf(PathBuf),
}

impl Source {
    /// Reads what a user or a plan writes: a registry name, a folder, or a `.gguf` path.
    pub fn parse(text: &str) -> Result<Source> {
        if registry::find(text).is_some() {
            return Ok(Source::Named(text.to_owned()));
        }
        let path = PathBuf::from(text);
        if path.is_dir() {
            return Ok(Source::Folder(path));
        }
        if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf")) {
            return Ok(Source::Gguf(path));
        }
        let error = Error::invalid(format!("`{text}` is neither a known model, a folder nor a .gguf file"));
        Err(match crate::error::nearest(text, registry::MODELS.iter().map(|m| m.name)) {
            Some(name) => error.hint(format!("did you mean `{name}`?")),
            None => error.hint("`rederive models list` shows the names"),
        })
    }
}

impl Source {
    /// Whether its files are on this machine; of a known model, those that were fetched and hold what they should.
    pub fn is_here(&self) -> bool {
        match self {
            Source::Named(name) => registry::get(name).and_then(fetch::cached).is_ok(),
            Source::Gguf(path) | Source::Folder(path) => path.exists(),
        }
    }

    /// SHA-256 of the weights, as [`Origin::sha256`] has it, without reading them into a network.
    pub fn weights_sha256(&self) -> Result<String> {
        match self {
            Source::Named(name) => hash::sha256_file(&fetch::cached(registry::get(name)?)?),
            Source::Gguf(path) => hash::sha256_file(path),
            Source::Folder(folder) => weights_sha256(folder),
        }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Named(name) => f.write_str(name),
            Source::Folder(path) | Source::Gguf(path) => write!(f, "{}", path.display()),
        }
    }
}

pub(super) fn load(source: &Source, processor: Processor) -> Result<Model> {
    let mut model = match source {
        Source::Named(name) => gguf::load(&fetch::cached(registry::get(name)?)?, processor)?,
        Source::Folder(folder) => load_folder(folder, processor)?,
        Source::Gguf(path) => gguf::load(path, processor)?,
    };
    model.origin.name = source.to_string();
    Ok(model)
}

fn load_folder(folder: &Path, processor: Processor) -> Result<Model> {
    let mut config = config::read_folder(folder)?;
    let (tokenizer, template) = (Tokenizer::from_folder(folder)?, ChatTemplate::from_folder(folder)?);
    if let Some(tokenizer) = &tokenizer {
        tokenizer.check_fits(config.vocab).map_err(|e| e.at(folder.join("tokenizer.json").display()))?;
    }
    if config.eos.is_empty() {
        // Some folders name the end of a turn only for their tokenizer.
        let end = template.as_ref().map(|template| template.identity().2);
        config.eos.extend(tokenizer.as_ref().zip(end).and_then(|(tokenizer, end)| tokenizer.id(end)));
    }
    let checkpoint = Checkpoint::open(folder, &config)?;
    let mut numbers = |name: &str, _| Ok(Numbers::Given(checkpoint.numbers(name)?));
    let compute = Compute::new(processor, &config, &mut numbers).map_err(|e| e.at(folder.display()))?;
    Ok(Model {
        tokenizer,
        template,
        origin: Origin {
            name: folder.display().to_string(),
            path: Some(folder.to_owned()),
            format: "safetensors",
            sha256: checkpoint.sha256.clone(),
            dtype: processor.dtype(),
            stored: checkpoint.stored.clone(),
            multimodal: checkpoint.is_multimodal(),
        },
        config,
        compute,
    })
}

/// The numbers of a tensor.
pub enum Numbers {
    /// Row by row.
    Given(Vec<f32>),
    /// Uniform in ±bound, for measurements: what they are does not matter, and a card makes its own.
    Uniform {
        /// Names the stream.
        seed: u64,
        /// Greatest absolute value.
        bound: f32,
    },
}

impl Numbers {
    /// All of them; refuses another count than the tensor has.
    pub(super) fn into_vec(self, name: &str, count: usize) -> Result<Vec<f32>> {
        match self {
            Numbers::Given(values) if values.len() == count => Ok(values),
            Numbers::Given(values) => {
                Err(Error::invalid(format!("tensor `{name}` has {} numbers, not {count}", values.len())))
            }
            Numbers::Uniform { seed, bound } => {
                const TOGETHER: usize = 1 << 16;
                let mut values = vec![0f32; count];
                values.par_chunks_mut(TOGETHER).enumerate().for_each(|(part, values)| {
                    let mut stream = Philox::named(&format!("uniform/{seed}/{part}"));
                    values.iter_mut().for_each(|x| *x = (2.0 * stream.unit() as f32 - 1.0) * bound);
                });
                Ok(values)
            }
        }
    }
}

/// Builds a network in main memory, asking `numbers` for each tensor once: its name and number of elements in.
pub(super) fn assemble(
    config: &Config,
    numbers: &mut dyn FnMut(&str, usize) -> Result<Numbers>,
) -> Result<Network> {
    config.check()?;
    let mut take =
        |name: &str, count: usize| -> Result<Vec<f32>> { numbers(name, count)?.into_vec(name, count) };
    let plain_norm = |weight: Vec<f32>| Arc::new(RmsNorm { weight, eps: config.norm_eps as f32 });
    let norm = |mut weight: Vec<f32>| {
        weight.iter_mut().for_each(|w| *w += config.norm_offset());
        plain_norm(weight)
    };
    let table = take("model.embed_tokens.weight", config.vocab * config.hidden)?;
    let mut layers = Vec::with_capacity(config.layers);
    for layer in 0..config.layers {
        let prefix = format!("model.layers.{layer}");
        let input_norm = norm(take(&format!("{prefix}.input_layernorm.weight"), config.hidden)?);
        let post_norm = norm(take(&format!("{prefix}.post_attention_layernorm.weight"), config.hidden)?);
        let mut linears = [const { None }; Target::ALL.len()];
        for target in Target::of(config, layer) {
            let (out, input) = target.shape(config);
            let weight = take(&format!("{prefix}.{}.weight", target.path()), out * input)?;
            linears[target as usize] = Some(FrozenLinear::new(&weight, out, input));
        }
        let mixer = match config.delta.as_ref().filter(|_| config.is_delta(layer)) {
            Some(delta) => {
                let stem = format!("{prefix}.linear_attn");
                let (channels, heads) = (delta.channels(), delta.shape.value_heads);
                let taps = take(&format!("{stem}.conv1d.weight"), channels * delta.taps)?;
                let logarithms = take(&format!("{stem}.A_log"), heads)?;
                let delta = Delta {
                    shape: delta.shape,
                    taps: delta.taps,
                    convolution: (0..delta.taps * channels)
                        .map(|i| taps[i % channels * delta.taps + i / channels])
                        .collect(),
                    decay: logarithms.iter().map(|a| -a.exp()).collect(),
                    step_bias: take(&format!("{stem}.dt_bias"), heads)?,
                };
                let norm = plain_norm(take(&format!("{stem}.norm.weight"), delta.shape.value_dim)?);
                Mixer::Delta { delta: Arc::new(delta), norm }
            }
            None if config.normalises_heads() => {
                let mut head = |name: &str| -> Result<Arc<RmsNorm>> {
                    Ok(norm(take(&format!("{prefix}.self_attn.{name}.weight"), config.head_dim)?))
                };
                Mixer::Attention { norms: Some([head("q_norm")?, head("k_norm")?]) }
            }
            None => Mixer::Attention { norms: None },
        };
        layers.push(Layer { input_norm, post_norm, mixer, linears });
    }
    let final_norm = norm(take("model.norm.weight", config.hidden)?);
    let head = if config.tied {
        FrozenLinear::new(&table, config.vocab, config.hidden)
    } else {
        FrozenLinear::new(&take("lm_head.weight", config.vocab * config.hidden)?, config.vocab, config.hidden)
    };
    Ok(Network {
        embedding: Tensor::from_vec(table, (config.vocab, config.hidden), &Device::Cpu)?,
        layers,
        final_norm,
        head,
        inverse_frequencies: config.inverse_frequencies().into(),
        config: config.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_told_apart_and_typos_get_a_hint() {
        assert_eq!(
            Source::parse("smollm2-135m-instruct").unwrap(),
            Source::Named("smollm2-135m-instruct".into())
        );
        assert_eq!(Source::parse("a/b.GGUF").unwrap(), Source::Gguf("a/b.GGUF".into()));
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().display().to_string();
        assert_eq!(Source::parse(&folder).unwrap(), Source::Folder(dir.path().into()));
        assert!(Source::parse("smollm2-135m-instrukt").unwrap_err().to_string().contains("did you mean"));
        assert!(Source::parse("/no/such/folder").unwrap_err().to_string().contains("models list"));
        assert!(Model::load(&Source::Folder(dir.path().into())).is_err());
    }

    #[test]
    fn a_tensor_of_another_size_is_refused_by_name() {
        let config = Model::tiny(&crate::model::TinySpec::default()).unwrap().config;
        let mut short = |name: &str, count: usize| {
            Ok(Numbers::Given(vec![0.0; count - usize::from(name.contains("up_proj"))]))
        };
        assert!(
            assemble(&config, &mut short)
                .err()
                .unwrap()
                .to_string()
                .contains("model.layers.0.mlp.up_proj.weight")
        );
    }
}
