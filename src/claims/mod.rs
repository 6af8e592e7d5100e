//! The ledger: what reports and claims state, the derivations behind every number in them, and
//! the check that what is printed is what the rows give. Knows nothing of HTML.

mod as_read;
pub(crate) mod beside;
pub mod book;
pub mod check;
mod code;
mod compose;
pub mod conflicts;
pub mod data;
pub mod day;
pub mod declare;
pub mod derivation;
mod evaluate;
pub mod family;
pub mod fill;
pub mod formula;
pub mod front_matter;
pub mod grounds;
pub mod ledger;
pub mod links;
mod lookup;
pub mod number;
pub mod report;
mod select;
#[cfg(test)]
pub(crate) mod testing;
pub mod texts;
pub mod toml_text;
pub mod unbound;
pub mod value;
mod visible;
pub mod wording;

pub use book::{Book, Resolved};
pub use texts::Texts;
