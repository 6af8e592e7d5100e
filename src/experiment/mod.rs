//! `experiment.toml` turned into a validated, hash-locked plan. Knows nothing of how
//! anything is run.

mod endpoint;
mod gate;
pub mod ledger;
pub mod lock;
pub mod plan;
pub mod receipts;
mod rule;
mod validate;

pub use endpoint::EndpointSection;
pub use gate::{Gate, Headroom, Kill, Reasons, Shape};
pub use lock::Stage;
pub use plan::{Arm, Deploy, Harness, Plan, Purpose};
pub use rule::{Decision, Metric, Rule};
pub use validate::MOST_SLOTS;
