//! Indexes: finding rows by them, creating and describing them.

pub mod asked;
pub mod describe;
pub mod handle;
pub mod making;
pub mod pairs;
