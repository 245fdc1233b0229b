//! The memory that a log is in.
//!
//! Words that all openers of the database share, and that outlive each process: a mapped file or,
//! for tests, memory of one process.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::engine::EngineError;
use crate::sys::memory;
use crate::sys::wait;

use crate::sys::words::Words;
use crate::wal::segments::words_for;

/// Words that processes share.
pub(crate) trait Space: Send + Sync {
    /// The words in memory, reserved or not: all of them, or the first ones if the address space
    /// has no room for more. Always the same slice.
    fn words(&self) -> &Arc<Words>;

    /// How many words there can be.
    fn capacity(&self) -> usize {
        self.words().len()
    }

    /// How many of `words()` may be read in memory. The others may be a hole that takes room when
    /// it is read there, though not with a system call.
    fn readable(&self) -> usize {
        self.words().len()
    }

    /// Read words from `start` on with a system call: those after `readable()`, which may not
    /// exist.
    ///
    /// # Errors
    /// Any error of the operating system.
    fn read(&self, _start: usize, _bytes: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    /// Give back the room of these words, which read as zeros from then on. The caller holds the
    /// writer lock, and no process needs their content. Does nothing if that is not supported.
    ///
    /// # Errors
    /// Any error of the operating system.
    fn punch(&self, _words: Range<usize>) -> io::Result<()> {
        Ok(())
    }

    /// How many bytes on the disk it takes.
    fn size(&self) -> u64 {
        self.words().len() as u64 * 8
    }

    /// Reserve these words, so that they can be written without running out of disk space.
    /// `in_small_pages` is a hint for commits that wait for the disk one by one: the system should
    /// cache them in small pages.
    ///
    /// # Errors
    /// When the disk is full.
    fn reserve(&self, words: Range<usize>, in_small_pages: bool) -> io::Result<()>;

    /// Whether these words, which begin a chunk, can be reserved without delay.
    fn is_ready(&self, _words: Range<usize>) -> bool {
        true
    }

    /// Prepare these words so that a writer need not wait for them. Another thread may write to
    /// them meanwhile, so their content does not change. If the disk is full nothing happens; the
    /// writer gets the error.
    fn prepare(&self, _words: Range<usize>) {}

    /// Write bytes to reserved words, from `start` on, with a system call. False if this is not
    /// supported and the caller has to store them. A store into a page that was just written to the
    /// disk causes a page fault, and the next write-back unmaps the page in all processes: both
    /// together take longer than the system call.
    ///
    /// # Errors
    /// Any error of the operating system.
    fn write(&self, _start: usize, _bytes: &[u8]) -> io::Result<bool> {
        Ok(false)
    }

    /// Free bytes on the disk. `None` if unknown.
    fn disk_room(&self) -> Option<u64> {
        None
    }

    /// Whether the words below `end` can be read. Words that were never reserved may not exist.
    fn has(&self, end: usize) -> bool;

    /// Make what was written so far survive a power cut. The file's name needs `sync_names` too.
    ///
    /// # Errors
    /// Any error of the operating system.
    fn sync(&self) -> io::Result<()>;

    /// Make the names that lead to the database survive a power cut.
    ///
    /// # Errors
    /// Any error of the operating system.
    fn sync_names(&self) -> io::Result<()>;

    /// As `sync`, but for these words alone, if that is possible. Other words need not survive.
    ///
    /// # Errors
    /// Any error of the operating system.
    fn sync_words(&self, words: Range<usize>) -> io::Result<()>;

    /// Start to write these words to the disk: a hint, ahead of `sync_words`.
    fn begin_sync(&self, _words: Range<usize>) {}

    /// Wait until `wake` is called for a word and this channel, one of 32, or until the limit.
    /// Returns at once if the lower half of the word is not `value`. May return without a reason.
    fn wait(&self, word: usize, value: u32, channel: u32, limit: Duration);

    /// Wake up to `count` waiters, in any process, on a word and a channel.
    fn wake(&self, word: usize, channel: u32, count: u32);

    /// The member number of this opener, from 1 on. No other living opener has the same.
    fn member(&self) -> u64;

    /// Run `act` if the member with this number is gone; no opener can get the number meanwhile.
    /// Returns whether the member is gone.
    fn if_gone(&self, member: u64, act: &mut dyn FnMut()) -> bool;
}

/// How many openers there can be at once.
pub(crate) const MEMBER_MAX: u64 = 4000;
/// A number that no opener has. A lock with this owner can be taken over.
pub(crate) const GONE: u64 = MEMBER_MAX + 1;

/// A space in this process's memory, for tests of the layers above.
pub(crate) struct MemorySpace {
    words: Arc<Words>,
    capacity: usize,
}

impl MemorySpace {
    /// This many words, all zero.
    pub(crate) fn new(words: usize) -> Self {
        Self::of(std::iter::repeat_with(AtomicU64::default).take(words))
    }
}

/// How many words of a space there are: its file may be shorter than its capacity.
pub(crate) fn word_count(space: &dyn Space) -> usize {
    let (mut count, mut missing) = (0, space.capacity() + 1);
    while missing - count > 1 {
        let middle = count.midpoint(missing);
        if space.has(middle) {
            count = middle;
        } else {
            missing = middle;
        }
    }
    count
}

impl MemorySpace {
    /// A copy of another space, with `least` words at least: those that the other one lacks are
    /// zero. Zeros take no memory: much of a log may be holes.
    ///
    /// # Errors
    /// `NoMemory`, or any error of the operating system.
    pub(crate) fn copy_of(space: &dyn Space, least: usize) -> Result<Self, EngineError> {
        const PART: usize = 1 << 13;
        let (words, capacity, readable) = (space.words(), space.capacity(), space.readable());
        let count = word_count(space);
        // The head is there in any case.
        let least = words_for(0).min(words.len()).max(least);
        let copy = memory::zeros(count.max(least)).ok_or(EngineError::NoMemory("a copy of the log"))?;
        for (to, word) in copy.iter().zip(words.iter().take(count.min(readable))) {
            let word = word.load(Ordering::Relaxed);
            if word != 0 {
                to.store(word, Ordering::Relaxed);
            }
        }
        let mut bytes = vec![0; 8 * PART];
        for start in (readable..count).step_by(PART) {
            let to = copy.get(start..count.min(start + PART)).unwrap_or_default();
            let bytes = bytes.get_mut(..8 * to.len()).unwrap_or_default();
            space.read(start, bytes).map_err(EngineError::of_system)?;
            for (to, word) in to.iter().zip(bytes.as_chunks().0) {
                if *word != [0; 8] {
                    to.store(u64::from_le_bytes(*word), Ordering::Relaxed);
                }
            }
        }
        Ok(Self { capacity, words: Arc::new(Words::in_memory(copy)) })
    }

    fn of(words: impl Iterator<Item = AtomicU64>) -> Self {
        let words: Box<[_]> = words.collect();
        Self { capacity: words.len(), words: Arc::new(Words::in_memory(words)) }
    }
}

impl Space for MemorySpace {
    fn words(&self) -> &Arc<Words> {
        &self.words
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn reserve(&self, words: Range<usize>, _in_small_pages: bool) -> io::Result<()> {
        if words.end <= self.words.len() {
            Ok(())
        } else {
            Err(io::Error::other("beyond the end of the log"))
        }
    }

    fn has(&self, end: usize) -> bool {
        end <= self.words.len()
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_words(&self, _words: Range<usize>) -> io::Result<()> {
        Ok(())
    }

    fn wait(&self, word: usize, value: u32, channel: u32, limit: Duration) {
        if let Some(word) = self.words.get(word) {
            wait::wait(word, value, channel, limit);
        }
    }

    fn wake(&self, word: usize, channel: u32, count: u32) {
        if let Some(word) = self.words.get(word) {
            wait::wake(word, channel, count);
        }
    }

    fn member(&self) -> u64 {
        1
    }

    fn if_gone(&self, member: u64, act: &mut dyn FnMut()) -> bool {
        let is_gone = member == GONE;
        if is_gone {
            act();
        }
        is_gone
    }
}

/// A space that records the calls it gets.
#[cfg(test)]
pub(crate) mod noted {
    use std::sync::Mutex;

    use super::*;

    /// The name of each call, and its words.
    pub(crate) type Asked = Arc<Mutex<Vec<(&'static str, Range<usize>)>>>;

    pub(crate) struct Noted(pub(crate) MemorySpace, pub(crate) Asked);

    impl Noted {
        fn note(&self, what: &'static str, words: Range<usize>) {
            self.1.lock().unwrap().push((what, words));
        }
    }

    impl Space for Noted {
        fn words(&self) -> &Arc<Words> {
            self.0.words()
        }
        fn reserve(&self, words: Range<usize>, in_small_pages: bool) -> io::Result<()> {
            self.0.reserve(words, in_small_pages)
        }
        fn is_ready(&self, words: Range<usize>) -> bool {
            self.1.lock().unwrap().contains(&("prepare", words))
        }
        fn prepare(&self, words: Range<usize>) {
            self.note("prepare", words);
        }
        fn has(&self, end: usize) -> bool {
            self.0.has(end)
        }
        fn sync(&self) -> io::Result<()> {
            self.note("sync of all", 0..self.words().len());
            self.0.sync()
        }
        fn sync_names(&self) -> io::Result<()> {
            self.0.sync_names()
        }
        fn sync_words(&self, words: Range<usize>) -> io::Result<()> {
            self.note("sync", words);
            Ok(())
        }
        fn begin_sync(&self, words: Range<usize>) {
            self.note("begin", words);
        }
        fn wait(&self, word: usize, value: u32, channel: u32, limit: Duration) {
            self.0.wait(word, value, channel, limit);
        }
        fn wake(&self, word: usize, channel: u32, count: u32) {
            self.0.wake(word, channel, count);
        }
        fn member(&self) -> u64 {
            self.0.member()
        }
        fn if_gone(&self, member: u64, act: &mut dyn FnMut()) -> bool {
            self.0.if_gone(member, act)
        }
    }
}
