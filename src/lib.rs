//! An embedded evaluation lab for small language models: paired base-versus-treatment runs on a
//! local candle engine, raw rows in Parquet, statistics recomputed from those rows, an
//! adversarial audit by a second road, and a website on which every number is checked.
//!
//! `docs/ARCHITECTURE.md` is the map: what each module turns into what, and what it must not know.

pub mod audit;
#[cfg(feature = "engine")]
pub mod bench;
pub mod claims;
pub mod cli;
pub mod clock;
pub mod compare;
#[cfg(all(feature = "engine", feature = "site"))]
pub mod demo;
pub mod engine;
pub mod environment;
pub mod episode;
pub mod error;
pub mod experiment;
pub mod hash;
pub mod import;
#[cfg(feature = "engine")]
pub mod model;
pub mod philox;
#[cfg(feature = "site")]
pub mod publish;
#[cfg(all(feature = "engine", feature = "site"))]
pub mod quick;
pub mod regular;
pub mod rescore;
#[cfg(feature = "serve")]
pub mod serve;
#[cfg(feature = "site")]
pub mod site;
pub mod stages;
pub mod stats;
#[cfg(feature = "engine")]
pub mod train;
pub mod workspace;
pub mod write_lock;

pub use error::{Error, Result};
