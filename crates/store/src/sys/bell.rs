//! The bell of a database, which wakes sleeping watches.
//!
//! It is a word, of shared memory if processes have the database open: 1 while a watch may sleep on
//! it. Each commit reads it after it has released the writer lock, and rings if it is 1.
//!
//! There is no fence between the commit and that read, for which every commit would pay. So a watch
//! that falls asleep within tens of nanoseconds of the commit may be missed. Sleeps are therefore
//! limited, and a watch looks for a commit after each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use crate::sys::wait;
use crate::sys::words::Words;

const CHANNEL: u32 = 0;
const AWAKE: u64 = 0;
const MAY_SLEEP: u64 = 1;

/// The bell of a database.
#[derive(Clone)]
pub struct Bell {
    words: Arc<Words>,
    at: usize,
}

impl Bell {
    /// The bell whose word is this one.
    pub(crate) fn new(words: Arc<Words>, at: usize) -> Self {
        Self { words, at }
    }

    /// Sleep until the bell rings, or until the limit, unless `is_late`: there is what the caller
    /// waits for. May return without a reason.
    pub(crate) fn sleep_unless<E>(
        &self,
        is_late: impl FnOnce() -> Result<bool, E>,
        limit: Duration,
    ) -> Result<(), E> {
        if let Some(word) = self.words.get(self.at) {
            word.store(MAY_SLEEP, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if !is_late()? {
                wait::wait(word, MAY_SLEEP as u32, CHANNEL, limit);
            }
        }
        Ok(())
    }

    /// Wake all sleepers.
    #[inline]
    pub(crate) fn ring(&self) {
        if let Some(word) = self.words.get(self.at) {
            ring(word);
        }
    }
}

/// Wake all that sleep on the word of a bell.
#[inline]
pub(crate) fn ring(word: &AtomicU64) {
    if word.load(Ordering::Relaxed) != AWAKE {
        wake(word);
    }
}

#[cold]
fn wake(word: &AtomicU64) {
    word.store(AWAKE, Ordering::Relaxed);
    wait::wake(word, CHANNEL, u32::MAX);
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_bell_wakes_all_sleepers_and_no_one_who_is_late_sleeps() {
        let bell = Bell::new(Arc::new(Words::in_memory(Box::new([AtomicU64::new(0)]))), 0);
        let begin = Instant::now();
        let limit = Duration::from_secs(600);
        std::thread::scope(|scope| {
            let sleepers: Vec<_> =
                (0..3).map(|_| scope.spawn(|| bell.sleep_unless(|| Ok::<_, ()>(false), limit))).collect();
            while !sleepers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                bell.ring();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        bell.sleep_unless(|| Ok::<_, ()>(true), limit).unwrap();
        assert_eq!(bell.sleep_unless(|| Err("closed"), limit), Err("closed"));
        assert!(begin.elapsed() < limit);
    }
}
