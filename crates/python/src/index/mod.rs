//! Indexes: finding rows by them, creating and describing them.

pub mod describe;
pub mod handle;
pub mod lookup;
pub mod making;
pub mod pairs;
