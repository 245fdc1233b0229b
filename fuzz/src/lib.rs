//! The fuzz targets of records: no bytes may make a reader panic, or two readers disagree.
//!
//! Each function takes the bytes of one fuzz target. `crates/record/tests/corpus.rs` includes this file and calls them with all
//! inputs that are kept in `corpus/`, so that everyone who runs the tests runs these, too.
#![allow(missing_docs, reason = "the functions are named after their targets")]

mod change;
mod decode;
mod envelope;
mod input;
mod keys;
mod paths;
mod views;

pub use change::change_in_place;
pub use decode::decode;
pub use envelope::envelope_import;
pub use keys::keys;
pub use paths::path_expressions;
pub use views::validate_against_accessors;
