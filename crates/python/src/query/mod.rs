//! Queries: what they ask for, how their rows are found, and what is made of them.

pub mod access;
pub mod after;
pub mod change;
pub mod ends;
pub mod explain;
pub mod extremes;
pub mod few;
pub mod group;
pub mod handle;
pub mod indexes;
pub mod known;
pub mod measured;
pub mod methods;
pub mod named;
pub mod plan;
pub mod remarks;
pub mod source;
pub mod whole_table;
pub mod words;
