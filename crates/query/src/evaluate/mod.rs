//! Evaluates expressions on rows.

pub mod compute;
mod evaluator;
pub mod found;
mod pairs;
mod quick;
pub mod reach;
mod spans;
mod text;

pub use evaluator::Evaluator;
