//! Where does this project touch CPython's objects by hand?
//!
//! In this folder alone, because a user's loop runs through it. Each file says its invariants on top;
//! common to all: the GIL is held (`Python<'py>` tokens prove it, or CPython's contract for a slot),
//! borrowed references are used before any code of the user's can run, and every number read
//! from a record is checked against its bytes before it becomes an address.
#![expect(clippy::inline_always, reason = "what a call returns in memory is waited for; each is measured")]

pub mod arrow;
pub mod call_site;
pub mod callbacks;
pub mod collector;
pub mod gil;
pub mod item;
pub mod modules;
pub mod prefetch;
pub mod small;
pub mod text;
