//! Runs native work over many rows, with the GIL released.

pub mod plain;
pub mod threads;
pub mod walks;
