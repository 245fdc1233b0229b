//! Sleeps until another thread or process wakes it: a futex on a shared word.
//!
//! It is not for mutual exclusion. A woken waiter has to check the word itself, and a waiter that
//! is not woken, because the other process died, has a timeout.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicU64;
#[cfg(not(target_os = "linux"))]
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Wait until `wake` is called for this channel of the word, one of 32, or until the limit. Returns
/// at once if the lower half of the word is not `value`. May return without a reason.
#[cfg(target_os = "linux")]
pub(crate) fn wait(word: &AtomicU64, value: u32, channel: u32, limit: Duration) {
    // This operation takes a moment, not a duration.
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is ours to be filled.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let until = Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned() as u32) + limit;
    let until =
        libc::timespec { tv_sec: until.as_secs().cast_signed(), tv_nsec: i64::from(until.subsec_nanos()) };
    let nowhere = std::ptr::null::<u32>();
    // SAFETY: the address is that of a word which lives during the call, of which the system reads
    // the lower half (logs are little-endian only); the time is read. Nothing is kept.
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

/// Wake up to `count` waiters on this channel of the word.
#[cfg(target_os = "linux")]
pub(crate) fn wake(word: &AtomicU64, channel: u32, count: u32) {
    let nowhere = std::ptr::null::<u32>();
    // SAFETY: the address is that of a word which lives during the call; nothing is read, written
    // or kept.
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

/// On other systems waiters look at intervals.
#[cfg(not(target_os = "linux"))]
pub(crate) fn wait(word: &AtomicU64, value: u32, _channel: u32, limit: Duration) {
    const PAUSE: Duration = Duration::from_micros(100);
    if word.load(Ordering::Acquire) as u32 == value {
        std::thread::sleep(PAUSE.min(limit));
    }
}

/// On other systems waiters never sleep for long.
#[cfg(not(target_os = "linux"))]
pub(crate) fn wake(_word: &AtomicU64, _channel: u32, _count: u32) {}
