//! Tests of the audit as a whole: against reference values made with other people's software,
//! and against attacks planted in a copy of a small workspace.

mod adapter;
mod attacks;
mod claims;
mod forgeries;
mod formulas;
mod gates;
mod generated;
pub mod golden;
mod installed;
mod plan_rules;
mod reference;
mod stages;
mod statistics;
mod texts;
mod third_road;
mod workspace;
