//! A model from its config alone, with random weights: for measurements of speed and memory,
//! which do not depend on what the weights are.

use super::load::Numbers;
use super::processor::{Compute, Processor};
use super::{Config, Model, Origin};
use crate::error::Result;
use crate::hash;
use std::path::Path;

impl Model {
    /// A network of the dimensions of a `config.json` (a file, or a folder that holds one), with weights drawn from
    /// `seed`, without tokenizer and template.
    pub fn random(path: &Path, processor: Processor, seed: u64) -> Result<Model> {
        let path = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
        let config = Config::parse(&fs_err::read_to_string(&path)?, &path.display().to_string())?;
        let offset = config.norm_offset();
        let mut number = 0u64;
        let mut numbers = |name: &str, count: usize| -> Result<Numbers> {
            number += 1;
            let is_norm = name.ends_with("norm.weight");
            Ok(if is_norm && name.contains("linear_attn") {
                Numbers::Given(vec![1.0; count])
            } else if is_norm {
                Numbers::Given(vec![1.0 - offset; count])
            } else if name.ends_with("A_log") || name.ends_with("dt_bias") {
                Numbers::Given(vec![0.0; count])
            } else {
                // Uniform numbers with the standard deviation of a fresh checkpoint.
                Numbers::Uniform {
                    seed: seed.wrapping_mul(1_000_003).wrapping_add(number),
                    bound: 0.02 * 3f32.sqrt(),
                }
            })
        };
        let compute = Compute::new(processor, &config, &mut numbers).map_err(|e| e.at(path.display()))?;
        Ok(Model {
            origin: Origin {
                name: path.display().to_string(),
                path: None,
                format: "memory",
                sha256: hash::sha256_json(&(format!("{config:?}"), seed))?,
                dtype: processor.dtype(),
                stored: "random".to_owned(),
                multimodal: false,
            },
            config,
            compute,
            tokenizer: None,
            template: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_alone_makes_a_network_of_each_architecture() {
        for name in ["llama_tied", "qwen3_untied", "qwen3_5_tied_vl_layout"] {
            let folder = crate::model::testing::fixtures().join(name);
            let model = Model::random(&folder, Processor::Cpu, 1).unwrap();
            let logits = model.logits(&[1, 2, 3], None).unwrap();
            assert_eq!(logits.dims(), [3, model.config.vocab]);
            let numbers = crate::model::testing::numbers(&logits);
            assert!(
                numbers.iter().all(|x| x.is_finite()) && numbers.iter().any(|x| *x != numbers[0]),
                "{name}"
            );
            let again = Model::random(&folder.join("config.json"), Processor::Cpu, 1).unwrap();
            assert_eq!(crate::model::testing::numbers(&again.logits(&[1, 2, 3], None).unwrap()), numbers);
        }
    }
}
