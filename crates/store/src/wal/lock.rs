//! The writer lock and the tree lock, shared by all processes.
//!
//! The log's writer word holds the number of the member that may append. The number stays there
//! however its process ends. So a waiter asks the system after a while whether the owner lives, and
//! takes the lock over if not. The takeover is a compare-and-swap, so of two takers one wins.
//!
//! The right to write the tree works the same way, in a word of its own, and is taken before LMDB's
//! own lock, which has no timed wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::sys::bell;
use crate::wal::segments::{Segments, WRITER};
use crate::wal::space::GONE;

/// How the lock was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It was free.
    Free,
    /// From a member that died with it: recover the log before anything else.
    OverFromDead,
}

/// The right to append: its owner holds the writer lock, or is alone with the log. It takes no
/// memory. What relies on that right takes a reference to it, so that nothing else can call it.
pub(crate) struct Held(());

impl Held {
    /// For a process that is alone with the log: no other has it open, or can open it meanwhile.
    pub(crate) const fn alone() -> Self {
        Self(())
    }
}

const SPINS: u32 = 64;
/// Yield this often before sleeping: to be woken takes longer than most critical sections.
const YIELDS: u32 = 5;
const PAUSE_MIN: Duration = Duration::from_micros(125);
const PAUSE_MAX: Duration = Duration::from_millis(1);
/// The wait channel of the writer lock.
const CHANNEL: u32 = 0;
/// Back-off of the last lock holder, for fairness.
const COURTESY: Duration = Duration::from_micros(60);

/// Take the lock if it is free and no process waits for it.
#[inline]
pub(crate) fn try_acquire(segments: &Segments) -> Option<Held> {
    let own = segments.space().member();
    let is_taken = segments.wanted().load(Ordering::Relaxed) == 0
        && segments.writer().compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed).is_ok();
    is_taken.then_some(Held(()))
}

/// Wait for the lock until the deadline, or for ever. `None` when the deadline passed.
pub(crate) fn acquire(segments: &Segments, deadline: Option<Instant>) -> Option<(Taken, Held)> {
    let own = segments.space().member();
    let (word, wanted) = (segments.writer(), segments.wanted());
    let waiting = wanted.load(Ordering::Relaxed);
    if waiting != 0 && waiting != own && segments.left_at.load(Ordering::Relaxed) == segments.sequence() {
        // Otherwise a process that writes all the time would always be back before the waiters,
        // which look at intervals. A living waiter sets `wanted` again and again; a dead one does
        // not.
        let _ = wanted.compare_exchange(waiting, 0, Ordering::Relaxed, Ordering::Relaxed);
        std::thread::sleep(COURTESY);
    }
    let mut spins = 0;
    let mut pause = PAUSE_MIN;
    loop {
        let Err(owner) = word.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) else {
            let _ = wanted.compare_exchange(own, 0, Ordering::Relaxed, Ordering::Relaxed);
            return Some((Taken::Free, Held(())));
        };
        if spins < SPINS + YIELDS {
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
            spins += 1;
            continue;
        }
        // Do not ask at once whether the owner lives: asking costs as much as most critical
        // sections take. But ask before giving up, or a caller without patience would be told for
        // ever that a dead process is in the way.
        let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if owner != own && (is_over || pause == PAUSE_MAX) && take_over(segments, word, owner) {
            return Some((Taken::OverFromDead, Held(())));
        }
        if is_over {
            return None;
        }
        wanted.store(own, Ordering::Relaxed);
        segments.space().wait(WRITER, owner as u32, CHANNEL, pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// [W5] Take the lock over from an owner that is gone.
fn take_over(segments: &Segments, word: &AtomicU64, owner: u64) -> bool {
    let own = segments.space().member();
    let mut is_taken = false;
    // Swap while the owner's number is reserved. Otherwise a new member could get that number, and
    // the lock with it, before the swap.
    segments.space().if_gone(owner, &mut || {
        is_taken = word.compare_exchange(owner, own, Ordering::Acquire, Ordering::Relaxed).is_ok();
    });
    is_taken
}

/// Leave the lock as if its owner had died: the next holder has to recover the log.
pub(crate) fn leave_to_recovery(segments: &Segments) {
    let own = segments.space().member();
    let _ = segments.writer().compare_exchange(own, GONE, Ordering::Release, Ordering::Relaxed);
}

/// Whether this opener has the lock.
pub(crate) fn is_held(segments: &Segments) -> bool {
    segments.writer().load(Ordering::Relaxed) == segments.space().member()
}

/// Release the lock, after a commit or without one.
pub(crate) fn release(segments: &Segments) {
    let own = segments.space().member();
    segments.left_at.store(segments.sequence(), Ordering::Relaxed);
    // A plain store: no other process changes the word while it names a living member [W5], and a
    // compare-and-swap would hold back all loads and stores that follow. In a forked child the word
    // names another member.
    if segments.writer().load(Ordering::Relaxed) == own {
        segments.writer().store(0, Ordering::Release);
    }
    bell::ring(segments.watched());
    if segments.wanted().load(Ordering::Relaxed) != 0 {
        // `wanted` may name only one of several waiters. Those that are not woken look again soon.
        segments.space().wake(WRITER, CHANNEL, 1);
    }
}

/// [C5] Wait until no other process writes the tree. False when the deadline passed. A dead owner
/// is replaced at once: the engine rolls back what it left unfinished.
pub(crate) fn acquire_tree(segments: &Segments, deadline: Instant) -> bool {
    let own = segments.space().member();
    let word = segments.tree_writer();
    let mut pause = PAUSE_MIN / 8;
    loop {
        match word.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(owner) if owner != own && take_over(segments, word, owner) => return true,
            Err(_) => {}
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Release the tree lock.
pub(crate) fn release_tree(segments: &Segments) {
    let own = segments.space().member();
    let _ = segments.tree_writer().compare_exchange(own, 0, Ordering::Release, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::segments::words_for;
    use crate::wal::space::MemorySpace;

    #[test]
    fn a_dead_owner_is_followed_by_one_who_will_not_wait() {
        let segments = Segments::new(Box::new(MemorySpace::new(words_for(1 << 16))), [0; 16]);
        segments.create(0, 0, 0).unwrap();
        segments.writer().store(GONE, Ordering::Relaxed);
        let taken = || acquire(&segments, Some(Instant::now())).map(|(taken, _)| taken);
        assert_eq!(taken(), Some(Taken::OverFromDead));
        assert_eq!(taken(), None, "it lives");
        release(&segments);
        assert_eq!(taken(), Some(Taken::Free));
    }
}
