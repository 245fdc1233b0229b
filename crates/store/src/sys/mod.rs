//! What the operating system is asked for: memory maps, latches, waits and memory.

pub(crate) mod arena;
pub(crate) mod bell;
pub(crate) mod block;
pub(crate) mod cgroup;
pub(crate) mod file_id;
pub(crate) mod latch;
pub(crate) mod memory;
pub(crate) mod os;
pub(crate) mod own_file;
pub(crate) mod process;
pub(crate) mod reclaim;
pub(crate) mod rights;
pub(crate) mod short;
pub(crate) mod side_file;
pub(crate) mod size;
pub(crate) mod steps;
pub(crate) mod turnstile;
pub(crate) mod wait;
pub(crate) mod words;
