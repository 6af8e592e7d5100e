//! Training of LoRA adapters on rows with a weight for each token: supervised fine-tuning with
//! a backward pass that goes layer by layer, a loss in chunks, and runs that can be stopped and
//! continued without changing their outcome.

mod backward;
mod batch;
mod checkpoint;
mod loss;
mod optimizer;
mod settings;
mod sft;
#[cfg(test)]
mod tests;

pub use batch::Example;
pub use settings::{Schedule, Settings};
pub use sft::{Step, Trained, sft};
