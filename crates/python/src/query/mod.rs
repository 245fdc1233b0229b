//! Implements queries: what they ask for, how their rows are found, and what is made of them.

pub mod after;
pub mod change;
pub mod claim;
pub mod cursor;
pub mod edits;
pub mod explain;
pub mod group;
pub mod handle;
pub mod hints;
pub mod indexes;
pub mod measured;
pub mod methods;
pub mod projection;
pub mod pushdown;
pub mod reader;
pub mod remote;
pub mod remote_change;
pub mod remote_explain;
pub mod source;
pub mod spec;
pub mod target;
pub mod terminals;
pub mod update_same;
pub mod whole_table;
pub mod words;
