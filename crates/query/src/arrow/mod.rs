//! Turns rows into Arrow columns, and Arrow columns into records.
//!
//! The files here know only Arrow's memory layout; their callers hand the columns to other
//! libraries.

mod builder;
mod cells;
mod data;
mod decimal;
mod fields;
mod freeze;
mod gather;
mod kind;
mod ndarray;
pub(crate) mod text;
pub mod writer;

pub use builder::NothingLarge;
pub use gather::{Gathered, Kinds, Part, Refusal, Table, Wanted, gather, nothing, unnamable};
pub use kind::{Type, double};
