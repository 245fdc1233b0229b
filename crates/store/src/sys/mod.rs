//! What the operating system is asked for: memory maps, latches, waits and memory.

pub(crate) mod block;
pub(crate) mod cgroup;
pub(crate) mod grown_bytes;
pub(crate) mod latch;
pub(crate) mod map;
pub(crate) mod memory;
pub(crate) mod os;
pub(crate) mod reclaim;
pub(crate) mod short;
pub(crate) mod steps;
pub(crate) mod wait;
