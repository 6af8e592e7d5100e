//! Where a model computes: on the processor in f32, or on an NVIDIA card in bf16 or f32.

use super::config::Config;
use super::load::{Numbers, assemble};
use super::network::Network;
use crate::error::{Error, Result};

/// What computes, and in which arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Processor {
    /// The processor, in f32.
    #[default]
    Cpu,
    /// An NVIDIA card.
    Cuda {
        /// Its number, from 0.
        card: usize,
        /// Type of weights, keys and values.
        precision: Precision,
    },
}

/// Type of weights, keys, values and of what goes into a product on the card. Sums are f32 in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// 32-bit floats: slow on a card, for comparisons.
    F32,
    /// bfloat16.
    Bf16,
}

impl Precision {
    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        match self {
            Precision::F32 => 4,
            Precision::Bf16 => 2,
        }
    }

    /// Name as rows write it.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
        }
    }
}

impl Processor {
    /// Reads what a user writes: a device (`cpu`, `cuda`, `cuda:1`) and an arithmetic type (`f32`, `bf16`; the
    /// default is f32 on the processor and bf16 on a card).
    pub fn parse(device: &str, dtype: Option<&str>) -> Result<Processor> {
        let precision = match dtype {
            None => None,
            Some("f32") => Some(Precision::F32),
            Some("bf16") => Some(Precision::Bf16),
            Some(other) => {
                return Err(Error::invalid(format!("`{other}` is not an arithmetic type"))
                    .at("--dtype")
                    .hint("f32 or bf16"));
            }
        };
        let (kind, card) = device.split_once(':').unwrap_or((device, "0"));
        match (kind, card.parse::<usize>()) {
            ("cpu", _) if device == "cpu" => match precision {
                None | Some(Precision::F32) => Ok(Processor::Cpu),
                Some(Precision::Bf16) => Err(Error::invalid("the processor computes in f32")
                    .at("--dtype")
                    .hint("leave `--dtype` out: weights stored in bf16 are read exactly")),
            },
            ("cuda", Ok(card)) => {
                Ok(Processor::Cuda { card, precision: precision.unwrap_or(Precision::Bf16) })
            }
            _ => Err(Error::invalid(format!("`{device}` is not a device"))
                .at("--device")
                .hint("cpu, cuda, or cuda:1 for a second card")),
        }
    }

    /// Name of the arithmetic type.
    pub fn dtype(self) -> &'static str {
        match self {
            Processor::Cpu => Precision::F32.name(),
            Processor::Cuda { precision, .. } => precision.name(),
        }
    }
}

/// A network where it computes.
pub enum Compute {
    /// In main memory.
    Cpu(Network),
    /// On a card.
    #[cfg(feature = "cuda")]
    Cuda(std::sync::Arc<super::cuda::Network>),
}

impl Compute {
    /// Puts a network together where it is to compute, asking `numbers` for each tensor once: its name and number of
    /// elements in, its numbers out, row by row.
    pub(crate) fn new(
        processor: Processor,
        config: &Config,
        numbers: &mut dyn FnMut(&str, usize) -> Result<Numbers>,
    ) -> Result<Compute> {
        match processor {
            Processor::Cpu => Ok(Compute::Cpu(assemble(config, numbers)?)),
            #[cfg(feature = "cuda")]
            Processor::Cuda { card, precision } => {
                let gpu = std::sync::Arc::new(super::cuda::Gpu::open(card)?);
                Ok(Compute::Cuda(super::cuda::Network::new(gpu, config, precision, numbers)?.into()))
            }
            #[cfg(not(feature = "cuda"))]
            Processor::Cuda { .. } => Err(Error::invalid("this build cannot use a GPU")
                .hint("run with `--device cpu`, or build with `cargo build --release --features cuda`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_types_are_read_or_refused_with_a_remedy() {
        let cuda = |card, precision| Processor::Cuda { card, precision };
        assert_eq!(Processor::parse("cpu", None).unwrap(), Processor::Cpu);
        assert_eq!(Processor::parse("cpu", Some("f32")).unwrap(), Processor::Cpu);
        assert_eq!(Processor::parse("cuda", None).unwrap(), cuda(0, Precision::Bf16));
        assert_eq!(Processor::parse("cuda:3", Some("f32")).unwrap(), cuda(3, Precision::F32));
        for (device, dtype) in
            [("cpu", Some("bf16")), ("cpu:1", None), ("gpu", None), ("cuda:x", None), ("cuda", Some("f16"))]
        {
            let refused = Processor::parse(device, dtype).unwrap_err().to_string();
            assert!(refused.contains("hint"), "{refused}");
        }
    }

    #[test]
    fn a_card_that_is_not_there_is_an_error_that_says_how_to_go_on() {
        let config = crate::model::testing::model("llama_tied").config;
        let card = Processor::Cuda { card: 4096, precision: Precision::Bf16 };
        let mut none = |_: &str, count: usize| Ok(Numbers::Given(vec![0.0; count]));
        let refused = Compute::new(card, &config, &mut none).err().unwrap().to_string();
        assert!(refused.contains("GPU") && refused.contains("--device cpu"), "{refused}");
    }
}
