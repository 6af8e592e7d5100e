//! Where a command computes, as its user says it.

use crate::error::Result;
use crate::model::Processor;

/// Options of commands that run a model.
#[derive(Debug, clap::Args)]
pub struct DeviceArgs {
    /// Where to compute: cpu, cuda, or cuda:1 for a second card
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: String,
    /// Arithmetic type: f32 or bf16 [default: f32 on the processor, bf16 on a card]
    #[arg(long, value_name = "TYPE")]
    dtype: Option<String>,
}

impl DeviceArgs {
    /// What was asked for. Whether it is there is found out when a model is loaded.
    pub fn processor(&self) -> Result<Processor> {
        Processor::parse(&self.device, self.dtype.as_deref())
    }
}
