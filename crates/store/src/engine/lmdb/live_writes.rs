//! The write transactions of this process that have not ended, and what a fork does to them.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use pellucid_lmdb_sys as ffi;

use crate::engine::lmdb::Environment;
use crate::sys::os;

/// A number for the current thread, cheaper to compare than the standard library's, and never used
/// twice.
pub(super) fn current_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    struct Token(u64);
    impl Drop for Token {
        fn drop(&mut self) {
            abort_writes_of(self.0, |_| true);
        }
    }
    thread_local! {
        static TOKEN: Token = Token(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    TOKEN.try_with(|token| token.0).unwrap_or(0)
}

/// A write transaction that has not ended. Only its own thread can release LMDB's lock. So if
/// another thread drops the transaction, it waits here until its own thread writes next, or ends. A
/// thread that ends aborts its transactions.
pub(super) struct LiveWrite {
    pub(super) txn: *mut ffi::MDB_txn,
    pub(super) environment: Arc<Environment>,
    pub(super) owner: u64,
    pub(super) is_dropped: bool,
}

// SAFETY: only the thread that owns the transaction touches it again (`abort_writes_of`).
unsafe impl Send for LiveWrite {}

static LIVE_WRITES: Mutex<Vec<LiveWrite>> = Mutex::new(Vec::new());

/// The list, locked while the guard lives.
type LiveWrites = MutexGuard<'static, Vec<LiveWrite>>;

pub(super) fn live_writes() -> LiveWrites {
    LIVE_WRITES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Called by the thread `owner`.
pub(super) fn abort_writes_of(owner: u64, which: fn(&LiveWrite) -> bool) {
    for live in live_writes().extract_if(.., |live| live.owner == owner && which(live)) {
        if live.environment.is_ours() {
            // SAFETY: we are the thread that began it, and it has no user any more: it was dropped,
            // or this thread ends, and its other methods refuse to work in other threads.
            unsafe { ffi::mdb_txn_abort(live.txn) };
        }
    }
}

thread_local! {
    static HELD_WHILE_FORKING: RefCell<Option<LiveWrites>> = const { RefCell::new(None) };
}

/// Let a fork wait until no other thread is changing the list, and a child begin with an empty one.
pub(super) fn watch_forks() {
    static AT_FORK: Once = Once::new();
    AT_FORK.call_once(|| os::at_fork(hold_while_forking, release_in_parent, forget_in_child));
}

extern "C" fn hold_while_forking() {
    let guard = live_writes();
    HELD_WHILE_FORKING.with(|held| *held.borrow_mut() = Some(guard));
}

extern "C" fn release_in_parent() {
    HELD_WHILE_FORKING.with(|held| held.borrow_mut().take());
}

extern "C" fn forget_in_child() {
    if let Some(mut live_writes) = HELD_WHILE_FORKING.with(|held| held.borrow_mut().take()) {
        std::mem::forget(std::mem::take(&mut *live_writes));
    }
}
