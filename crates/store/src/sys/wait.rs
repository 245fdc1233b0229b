//! How does one process wait for another without asking again and again?
//!
//! On a word of memory that both have mapped, by the system's futex. Not for mutual exclusion: whoever is woken looks for
//! itself, and whoever is not, because the other one died, has a limit.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicU64;
#[cfg(not(target_os = "linux"))]
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Wait until somebody wakes this channel of the word, one of 32, at most for so long; not at all if the lower half of the word is
/// not `value`. May end for no reason.
#[cfg(target_os = "linux")]
pub(crate) fn wait(word: &AtomicU64, value: u32, channel: u32, limit: Duration) {
    // This operation wants a moment, not a duration.
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is ours to be filled.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let until = Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned() as u32) + limit;
    let until =
        libc::timespec { tv_sec: until.as_secs().cast_signed(), tv_nsec: i64::from(until.subsec_nanos()) };
    let nowhere = std::ptr::null::<u32>();
    // SAFETY: the address is that of a word which lives during the call, of which the system reads the lower half (logs are
    // little-endian only); the time is read. Nothing is kept.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET,
            value,
            &raw const until,
            nowhere,
            1_u32 << (channel % 32),
        );
    }
}

/// Wake so many of those who wait for this channel of the word.
#[cfg(target_os = "linux")]
pub(crate) fn wake(word: &AtomicU64, channel: u32, count: u32) {
    let nowhere = std::ptr::null::<u32>();
    // SAFETY: the address is that of a word which lives during the call; nothing is read, written or kept.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE_BITSET,
            count.min(i32::MAX as u32),
            nowhere,
            nowhere,
            1_u32 << (channel % 32),
        );
    }
}

/// Elsewhere whoever waits looks now and then.
#[cfg(not(target_os = "linux"))]
pub(crate) fn wait(word: &AtomicU64, value: u32, _channel: u32, limit: Duration) {
    const PAUSE: Duration = Duration::from_micros(100);
    if word.load(Ordering::Acquire) as u32 == value {
        std::thread::sleep(PAUSE.min(limit));
    }
}

/// Elsewhere nobody is asleep for long.
#[cfg(not(target_os = "linux"))]
pub(crate) fn wake(_word: &AtomicU64, _channel: u32, _count: u32) {}
