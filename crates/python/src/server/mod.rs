//! The tables of a server, as far as they are bytes: encoding, reading in place, keys, changes.
//!
//! A connection and its SQL belong to Python (`pellucid.postgres`). This folder turns values into
//! the bytes that a server stores, and the bytes that a driver has fetched into values. What needs
//! the server, such as saving a changed field, calls methods of the table object.

pub mod calls;
pub mod codec;
pub mod copying;
pub mod edit;
pub mod encoded;
pub mod feed;
pub mod fetched_key;
pub mod functions;
pub mod held;
pub mod index;
pub mod rows;
pub mod stored;
pub mod table;
pub mod view;
