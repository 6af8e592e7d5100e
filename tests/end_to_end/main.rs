//! End-to-end tests: they drive the real binary, and share one finished quick demo.

mod common;
mod compare;
mod damaged;
#[cfg(all(feature = "engine", feature = "site", unix))]
mod demo;
#[cfg(all(feature = "engine", feature = "site", unix))]
mod endpoint;
#[cfg(all(feature = "engine", feature = "site", unix))]
mod evidence;
mod import;
#[cfg(all(feature = "engine", feature = "site", unix))]
mod invariance;
#[cfg(all(feature = "engine", feature = "site"))]
mod planned;
mod published;
mod reference;
#[cfg(all(feature = "engine", feature = "site", unix))]
mod rescore;
#[cfg(all(feature = "serve", unix))]
mod serve;
#[cfg(all(feature = "engine", feature = "site", unix))]
mod site;
#[cfg(all(feature = "engine", feature = "site", unix))]
mod tasks;
#[cfg(all(feature = "engine", feature = "site", unix))]
mod writers;
