//! Sizes, formatted for people.

use std::fmt;

/// A number of bytes, formatted for people.
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const KILO: u64 = 1000;
        const MEGA: u64 = 1_000_000;
        if self.0 < MEGA {
            write!(out, "{} KB", self.0.div_ceil(KILO))
        } else {
            write!(out, "{} MB", self.0.div_ceil(MEGA))
        }
    }
}
