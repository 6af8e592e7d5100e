//! How a long-running stage tells what it is doing. The command line draws bars from it,
//! a program that embeds the library may ignore it.

use std::sync::atomic::{AtomicBool, Ordering};

/// Receives progress; every method has an empty default.
pub trait Observer {
    /// A piece of work begins; `total` is its size in `unit`s when known.
    fn begin(&self, what: &str, total: Option<u64>, unit: &str) {
        let _ = (what, total, unit);
    }
    /// `done` units of the current piece are finished; `note` is a short remark.
    fn advance(&self, done: u64, note: &str) {
        let _ = (done, note);
    }
    /// The current piece ended; `summary` is one line.
    fn end(&self, summary: &str) {
        let _ = summary;
    }
}

/// Ignores everything.
pub struct Silent;

impl Observer for Silent {}

/// What every stage is handed: who watches, and whether to stop.
pub struct Context<'a> {
    /// Receives progress.
    pub observer: &'a dyn Observer,
    /// Set by Ctrl-C.
    pub stop: &'a AtomicBool,
    /// Continue rows that another build of the engine began, and record it.
    pub accept_engine: bool,
}

impl Context<'_> {
    /// `Err(Interrupted)` once the user asked to stop.
    pub fn check(&self) -> crate::Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(crate::Error::Interrupted) } else { Ok(()) }
    }
}
