//! Evaluates expressions on rows.

pub mod compute;
mod evaluator;
pub mod found;
mod pairs;
mod quick;
pub mod reach;
pub mod spread;
mod text;
mod timedelta;

pub use evaluator::Evaluator;
