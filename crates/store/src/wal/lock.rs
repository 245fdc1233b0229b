//! Who may append?
//!
//! The member whose number stands in the log's writer word. It stands there however its process ends, so that whoever waits long
//! enough asks the system whether the owner lives, and takes the lock over if not: by compare-and-swap, so that of
//! two takers one wins.
//!
//! Who may write the tree is settled in the same way, ahead of the engine's own lock: that one cannot be waited for with a limit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::wal::segments::{Segments, WRITER};
use crate::wal::space::GONE;

/// How the lock was got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It was free.
    Free,
    /// From a member that died with it: the log has to be recovered before anything else.
    OverFromDead,
}

const SPINS: u32 = 64;
/// How often whoever waits gives way before it sleeps: to be woken takes longer than most hold the lock.
const YIELDS: u32 = 5;
const PAUSE_MIN: Duration = Duration::from_micros(125);
const PAUSE_MAX: Duration = Duration::from_millis(1);
/// Where who waits for it sleeps.
const CHANNEL: u32 = 0;
/// How long whoever comes back lets those who wait go first.
const COURTESY: Duration = Duration::from_micros(60);

/// Take the lock if it is free and nobody waits for it.
#[inline]
pub(crate) fn try_acquire(segments: &Segments) -> bool {
    let own = segments.space().member();
    segments.wanted().load(Ordering::Relaxed) == 0
        && segments.writer().compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Wait for the lock until the deadline, or for ever; `None` when it passed.
pub(crate) fn acquire(segments: &Segments, deadline: Option<Instant>) -> Option<Taken> {
    let own = segments.space().member();
    let (word, wanted) = (segments.writer(), segments.wanted());
    let waiting = wanted.load(Ordering::Relaxed);
    if waiting != 0 && waiting != own && segments.left_at.load(Ordering::Relaxed) == segments.sequence() {
        // Else a process that writes all the time would always be back before those that look now and then. Whoever waits says so
        // again and again; whoever died waiting does not.
        let _ = wanted.compare_exchange(waiting, 0, Ordering::Relaxed, Ordering::Relaxed);
        std::thread::sleep(COURTESY);
    }
    let mut spins = 0;
    let mut pause = PAUSE_MIN;
    loop {
        let Err(owner) = word.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) else {
            let _ = wanted.compare_exchange(own, 0, Ordering::Relaxed, Ordering::Relaxed);
            return Some(Taken::Free);
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
        // Not at once: to ask costs as much as many who hold it take. But who will not wait has nothing else to lose: it would be told
        // for ever that a dead one is in the way.
        let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if owner != own && (is_over || pause == PAUSE_MAX) && take_over(segments, word, owner) {
            return Some(Taken::OverFromDead);
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
    // While the owner's number belongs to nobody: else another one could get it, and the lock, before the swap.
    segments.space().if_gone(owner, &mut || {
        is_taken = word.compare_exchange(owner, own, Ordering::Acquire, Ordering::Relaxed).is_ok();
    });
    is_taken
}

/// Leave the lock to whoever comes next, as if its owner had died: the log has still to be recovered.
pub(crate) fn abandon(segments: &Segments) {
    let own = segments.space().member();
    let _ = segments.writer().compare_exchange(own, GONE, Ordering::Release, Ordering::Relaxed);
}

/// Give the lock back.
pub(crate) fn release(segments: &Segments) {
    let own = segments.space().member();
    segments.left_at.store(segments.sequence(), Ordering::Relaxed);
    // A plain store: nobody else changes the word while it says a member that lives [W5], and an exchange would hold back all that
    // follows. In a forked child it says another one.
    if segments.writer().load(Ordering::Relaxed) == own {
        segments.writer().store(0, Ordering::Release);
    }
    if segments.wanted().load(Ordering::Relaxed) != 0 {
        // Not all who wait may have said so last; who is not woken looks again soon.
        segments.space().wake(WRITER, CHANNEL, 1);
    }
}

/// [C5] Wait until nobody else writes the tree; false when the deadline passed. A dead one is followed at once: what it left
/// undone, the engine takes back.
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

/// Let others write the tree.
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
        assert_eq!(acquire(&segments, Some(Instant::now())), Some(Taken::OverFromDead));
        assert_eq!(acquire(&segments, Some(Instant::now())), None, "it lives");
        release(&segments);
        assert_eq!(acquire(&segments, Some(Instant::now())), Some(Taken::Free));
    }
}
