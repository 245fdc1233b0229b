//! Stored values as Python objects: encoding, decoding, and handles that read a record in place.
//!
//! This folder knows no tables and no databases; `table_ref.rs` has the trait by which a row asks
//! its table.
#![expect(clippy::inline_always, reason = "what a call returns in memory is waited for; each is measured")]
#![expect(
    clippy::vec_box,
    clippy::unnecessary_box_returns,
    reason = "names stay where they are: others point there"
)]

pub mod ahead;
pub mod alloc;
pub mod brief;
pub mod buffer;
pub mod bytes;
pub mod change;
pub mod dates;
pub mod decode;
pub mod dicts;
pub mod encode;
pub mod equal;
pub mod field;
pub mod foreign;
pub mod functions;
pub mod handles;
pub mod hooks;
pub mod instance_rows;
pub mod json;
pub mod keys;
pub mod large;
pub mod members;
pub mod missing_ids;
pub mod names;
pub mod node;
pub mod notebook;
pub mod path;
pub mod reading;
pub mod record;
pub mod record_list;
pub mod refill;
pub mod row;
pub mod row_errors;
pub mod scalars;
pub mod shortened;
pub mod spelling;
pub mod table_ref;
pub mod views;
