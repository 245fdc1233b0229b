//! Expressions: conditions on a record, and values computed from it.
//!
//! Each expression has one canonical text, which `show.rs` writes and `parse.rs` reads.

mod chain;
mod constant;
mod error;
mod literal;
mod moment;
mod node;
mod parse;
mod show;
mod token;

pub use crate::in_list::InList;
pub use chain::Chain;
pub use constant::many;
pub use error::ParseError;
pub use node::{
    Comparison, DEPTH_MAX, Expression, Function, Kind, Node, Operation, Part, Source, Step, TooDeep,
};
pub use parse::{IndexParts, parse, parse_index};
pub use show::is_plain_name;
