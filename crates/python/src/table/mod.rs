//! Tables: the class, the identity of a table behind a handle, and reading and iterating its rows.

pub mod buffer;
pub mod bytes_map;
pub mod calls;
pub mod edit;
pub mod file;
pub mod handle;
pub mod identity;
pub mod increment;
pub mod methods;
pub mod object_map;
pub mod reading;
pub mod ready_indexes;
pub mod rows;
pub mod slots;
pub mod try_row;
pub mod typed;
pub mod unreadable;
pub mod verbs;
pub mod wrong_names;
