//! Writing rows: single values, several values, and columns of other libraries.

pub mod columns;
pub mod keywords;
pub mod write;
