//! Measurements that a reader can repeat: each row is one JSON object with what was measured,
//! where, and every single run. Nothing here is a test: a number never fails a build.

pub mod audit;
pub mod bootstrap;
pub mod coverage;
pub mod engine;
mod machine;
