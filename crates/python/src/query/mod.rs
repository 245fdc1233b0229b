//! Implements queries: what they ask for, how their rows are found, and what is made of them.

pub mod after;
pub mod asked;
pub mod change;
pub mod explain;
pub mod group;
pub mod handle;
pub mod hints;
pub mod indexes;
pub mod measured;
pub mod methods;
pub mod of;
pub mod pushed;
pub mod reader;
pub mod served;
pub mod served_change;
pub mod served_explain;
pub mod source;
pub mod spec;
pub mod terminals;
pub mod whole_table;
pub mod words;
