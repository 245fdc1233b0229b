//! Makes the system write only a part of what is asked for.
//!
//! This program's own `pwrite` and others replace those of the C library, for everything linked
//! into it, including the engine. They write a limited number of bytes per call, as Linux does
//! beyond 2 GiB, and after a limited number in all there is no room, as on a disk that is almost
//! full.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicI64, Ordering};

use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};

static ONCE_MAX: AtomicI64 = AtomicI64::new(i64::MAX);
static ROOM: AtomicI64 = AtomicI64::new(i64::MAX);

/// From now on write at most `once_max` bytes in one call, and `room` bytes in all.
pub fn limit(once_max: i64, room: i64) {
    ONCE_MAX.store(once_max, Ordering::SeqCst);
    ROOM.store(room, Ordering::SeqCst);
}

/// Remove the limits.
pub fn unlimit() {
    limit(i64::MAX, i64::MAX);
}

fn write(fd: c_int, bytes: *const c_void, size: size_t, offset: off_t) -> ssize_t {
    let room = ROOM.load(Ordering::SeqCst);
    if room <= 0 && size > 0 {
        // SAFETY: this thread's error number is always there.
        unsafe { *libc::__errno_location() = libc::ENOSPC };
        return -1;
    }
    let size = size.min(usize::try_from(room.min(ONCE_MAX.load(Ordering::SeqCst))).unwrap_or(0));
    // SAFETY: what the caller has promised of `bytes` holds for a part of them, too.
    let written = unsafe { libc::syscall(libc::SYS_pwrite64, fd, bytes, size, offset) };
    if room != i64::MAX {
        ROOM.fetch_sub(written.max(0), Ordering::SeqCst);
    }
    written as ssize_t
}

// Replace the C library's functions, under both of the names that each of them has there.

/// `pwrite`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(fd: c_int, bytes: *const c_void, size: size_t, offset: off_t) -> ssize_t {
    write(fd, bytes, size, offset)
}

/// `pwrite64`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(fd: c_int, bytes: *const c_void, size: size_t, offset: off_t) -> ssize_t {
    write(fd, bytes, size, offset)
}

/// `pwritev`: writes parts up to the limit.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    // SAFETY: the caller has promised that many parts.
    let parts = unsafe { std::slice::from_raw_parts(parts, count as usize) };
    let most = ONCE_MAX.load(Ordering::SeqCst);
    let mut total: ssize_t = 0;
    for part in parts {
        let size = part.iov_len.min(usize::try_from(most - total as i64).unwrap_or(0));
        let written = write(fd, part.iov_base, size, offset + total as off_t);
        if written < 0 {
            return if total > 0 { total } else { -1 };
        }
        total += written;
        if (written as usize) < part.iov_len {
            break;
        }
    }
    total
}

/// `pwritev64`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    // SAFETY: the same function.
    unsafe { pwritev(fd, parts, count, offset) }
}
