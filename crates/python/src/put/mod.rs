//! Writing rows: one value, many, and columns of other libraries.

pub mod columns;
pub mod keywords;
pub mod write;
