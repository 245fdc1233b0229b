//! A wait for a lock on a byte of a file, in which processes that will write come first.
//!
//! The lock is asked for again and again, and is free for moments only where many processes open
//! and close a database. So a process that will write announces itself by a lock on a second byte,
//! and readers do not ask while it waits. It gets the lock as soon as its holders have gone.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use crate::sys::os;

/// How long to wait before asking again.
const PAUSE: Duration = Duration::from_millis(1);

/// The two bytes, and who asks.
pub(crate) struct Turnstile {
    /// The byte to lock.
    pub(crate) at: i64,
    /// The byte that a process has alone which will write, and waits.
    pub(crate) waiting_at: i64,
    /// Share the byte with others that share it.
    pub(crate) is_shared: bool,
    /// Come before processes that only read.
    pub(crate) will_write: bool,
}

impl Turnstile {
    /// Lock the byte, for as long as this open file lives. False if that took longer than `limit`.
    pub(crate) fn pass(&self, file: &File, limit: Duration) -> io::Result<bool> {
        let begin = Instant::now();
        let mut is_announced = false;
        let is_locked = loop {
            if self.will_write && !is_announced {
                is_announced = os::lock_byte(file, self.waiting_at, true)?;
            }
            // Where the system cannot tell, no process comes first.
            let is_turn = if self.will_write {
                is_announced
            } else {
                !os::is_byte_locked(file, self.waiting_at).unwrap_or(false)
            };
            if is_turn && self.lock(file)? {
                break true;
            }
            if begin.elapsed() >= limit {
                break false;
            }
            std::thread::sleep(PAUSE);
        };
        if is_announced {
            os::lock_byte(file, self.waiting_at, false)?;
        }
        Ok(is_locked)
    }

    fn lock(&self, file: &File) -> io::Result<bool> {
        if self.is_shared { os::share_byte(file, self.at) } else { os::lock_byte(file, self.at, true) }
    }
}
