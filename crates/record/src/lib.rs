//! What do the bytes of one record mean?
#![forbid(unsafe_code)]

pub mod key;
