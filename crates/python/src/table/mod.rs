//! Tables: the object, which table it stands for, and how its rows are read.

pub mod at_once;
pub mod edit;
pub mod handle;
pub mod home;
pub mod identity;
pub mod methods;
pub mod reading;
pub mod ready_indexes;
pub mod rows;
pub mod slots;
pub mod typed;
