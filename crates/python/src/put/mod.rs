//! Writing rows: single values, several values, and columns of other libraries.

pub mod cell_kinds;
pub mod cells;
pub mod columns;
pub mod keywords;
pub mod write;
