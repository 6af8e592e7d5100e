//! An embedded evaluation lab for small language models.
pub mod clock;
pub mod error;
pub mod experiment;
pub mod hash;
pub mod philox;
pub use error::{Error, Result};
