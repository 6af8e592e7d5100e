//! `experiment.toml` turned into a validated, hash-locked plan. Knows nothing of how
//! anything is run.

mod endpoint;
pub mod ledger;
pub mod lock;
pub mod plan;
pub mod receipts;
mod validate;

pub use endpoint::EndpointSection;
pub use lock::Stage;
pub use plan::{Arm, Deploy, Gate, Harness, Plan, Purpose};
pub use validate::MOST_SLOTS;
