//! The pellucid record format: encode values to bytes, read and change them in place.
//!
//! `docs/format.md` is the specification; the modules here are its chapters. [`layout`] has every
//! number, [`shape`] the lists of field names, [`encode`] writes, [`view`] reads in place,
//! [`mod@validate`] checks untrusted bytes, [`envelope`] carries records from one database to
//! another, [`key`] makes ordered keys, [`path`] finds a part of a record, [`patch`] changes it,
//! [`mod@dump`] shows it to people.
//!
//! Invariant: this crate does no I/O and knows no clock; the same value and dictionary give the
//! same bytes. Invariant: every read checks its own bounds; no read relies on an earlier check.
#![forbid(unsafe_code)]

pub mod calendar;
mod dtype;
pub mod dump;
pub mod encode;
pub mod envelope;
pub mod error;
pub mod json;
pub mod key;
pub mod keyed;
pub mod large_ids;
pub mod layout;
pub mod patch;
pub mod path;
pub mod payload;
pub mod pickles;
pub mod place;
pub mod shape;
pub mod validate;
pub mod value;
pub mod view;
pub mod visit;
mod walk;

pub use encode::Encoder;
pub use envelope::{Envelope, Tables};
pub use error::{Corrupt, Damage, EncodeError};
pub use layout::Kind;
pub use shape::{Admission, Dictionary, Shape, ShapeDecision, ShapeError, Shapes};
pub use validate::validate;
pub use value::{Value, decode, encode_value};
pub use view::{Container, Root, Slot, Walker};
