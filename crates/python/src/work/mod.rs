//! Runs native work over many rows, with the GIL released.

pub mod threads;
pub mod walks;
