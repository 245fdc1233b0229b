//! Runs queries over the fields of many records, without Python.
//!
//! It finds a field once for each shape, not once for each row. It evaluates conditions, orders,
//! groups, sums, extremes and columns.
//!
//! Invariant: this crate knows no Python and no engine. It sees rows of the store and views of
//! records.
#![forbid(unsafe_code)]

mod array;
pub mod arrays;
pub mod arrow;
mod batch;
pub mod code;
pub mod column;
mod covered_rows;
pub mod covering;
mod decimal;
mod decimal_sum;
mod digits;
pub mod evaluate;
pub mod exec;
pub mod expression;
pub mod fault;
pub mod field;
pub mod group;
mod in_list;
pub mod index;
pub mod jsonb;
pub mod key_code;
pub mod key_range;
mod number;
pub mod numbers;
pub mod numpy;
pub mod order;
pub mod paged_rows;
pub mod pattern;
pub mod plan;
pub mod rows;
pub mod selection;
pub mod server;
pub mod sort;
pub mod stoppable;
pub mod sum;
pub mod survey;
pub mod walk;
pub mod work;

pub use column::Column;
pub use covered_rows::CoveredRows;
pub use covering::EntryReader;
pub use decimal_sum::DecimalSum;
pub use evaluate::Evaluator;
pub use expression::Expression;
pub use fault::Fault;
pub use field::{FieldReader, Number};
pub use group::Extremes;
pub use numbers::Outcome;
pub use paged_rows::{Page, PagedRows, Pages};
pub use pattern::Pattern;
pub use rows::{CopiedRows, LookedUp, Lookups, RowsByIndex, RowsByKey};
pub use selection::{Selected, Selection};
pub use sum::Sum;
pub use walk::{RowKey, Scanned, Walk};
