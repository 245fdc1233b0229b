//! Raw access to CPython's objects: the lowest layer of the binding.
//!
//! This folder has the unsafe code that knows no pellucid type; each file states its invariants at
//! the top. Common to all: the GIL is held (a `Python<'py>` token proves it, or CPython's contract
//! for a slot), borrowed references are used before any of the user's code can run, and every
//! number read from a record is checked against its bytes before it becomes an address.
#![expect(clippy::inline_always, reason = "what a call returns in memory is waited for; each is measured")]

pub mod arrow;
pub mod bytes;
pub mod call_site;
pub mod callbacks;
pub mod collector;
pub mod gil;
pub mod held_bytes;
pub mod item;
pub mod metaclass;
pub mod modules;
pub mod prefetch;
pub mod shared_numbers;
pub mod small;
pub mod text;
#[cfg(all(target_os = "linux", target_env = "gnu", not(Py_3_14)))]
pub mod thread_end;
