//! What is in the fields of many records?
//!
//! Runs over the rows of a table without Python: a field is found once for each shape, not for each
//! row. Useful for: sums, extremes and columns. Not here: filters, sorts and plans, which will stand
//! on the same readers.
//!
//! Invariant: this crate knows no Python and no engine; it sees rows of the store and views of records.
#![forbid(unsafe_code)]

pub mod aggregate;
pub mod evaluate;
pub mod expression;
pub mod field;
pub mod order;
pub mod sum;
pub mod walk;

pub use aggregate::{Extreme, Extremes, Fault, Outcome};
pub use evaluate::Evaluator;
pub use expression::Expression;
pub use field::{FieldReader, Number, Step};
pub use sum::Sum;
pub use walk::{Inside, Walk};
