//! Where does a log lie?
//!
//! In words that all who have the database open share, and that outlive each of them: a mapped file, or for tests a
//! piece of memory.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::sys::wait;

use crate::sys::map::Words;

/// Words that processes share.
pub(crate) trait Space: Send + Sync {
    /// All of them, reserved or not: always the same.
    fn words(&self) -> &Arc<Words>;

    /// Make sure that these words can be written: the system has room for them. Where commits wait for the disk one by one, the system had
    /// better keep them in small pages.
    ///
    /// # Errors
    /// When the disk is full.
    fn reserve(&self, words: Range<usize>, in_small_pages: bool) -> io::Result<()>;

    /// Whether to reserve these words, which begin a piece, takes no time any more.
    fn is_ready(&self, _words: Range<usize>) -> bool {
        true
    }

    /// Have it so, that whoever appends need not wait for it. Another thread may append meanwhile, even there: nothing in them changes.
    /// Where there is no room, whoever appends is told.
    fn prepare(&self, _words: Range<usize>) {}

    /// Write bytes to words that were reserved, from this one on, by asking the system; false where that is not done, and they are
    /// to be stored. To store into a page that was just written to the disk takes a fault, and takes the page from all who have it
    /// mapped when it is written again: both together take longer than to ask.
    ///
    /// # Errors
    /// Whatever the operating system says.
    fn write(&self, _start: usize, _bytes: &[u8]) -> io::Result<bool> {
        Ok(false)
    }

    /// Bytes that the disk has room for; `None` where nobody knows.
    fn disk_room(&self) -> Option<u64> {
        None
    }

    /// Whether the words below `end` are there to be read: what nobody has reserved need not be.
    fn has(&self, end: usize) -> bool;

    /// Make what was written so far survive a power cut, once `sync_names` has done its part.
    ///
    /// # Errors
    /// Whatever the operating system says.
    fn sync(&self) -> io::Result<()>;

    /// Make the names that lead to the database survive a power cut.
    ///
    /// # Errors
    /// Whatever the operating system says.
    fn sync_names(&self) -> io::Result<()>;

    /// As `sync`, of these words alone, where that is possible; what was written to others need not survive.
    ///
    /// # Errors
    /// Whatever the operating system says.
    fn sync_words(&self, words: Range<usize>) -> io::Result<()>;

    /// Have the disk begin with what `sync_words` is to be asked for soon: where that is possible, and nobody may rely on it.
    fn begin_sync(&self, _words: Range<usize>) {}

    /// Wait until somebody wakes those who wait for a word on this channel, one of 32, at most for so long; not at all if the lower
    /// half of the word is another value. May end for no reason.
    fn wait(&self, word: usize, value: u32, channel: u32, limit: Duration);

    /// Wake so many, in whichever process, who wait for a word on a channel.
    fn wake(&self, word: usize, channel: u32, count: u32);

    /// The number of this opener, from 1 on; no other that lives has the same.
    fn member(&self) -> u64;

    /// Run this if the opener with this number is gone; nobody gets its number meanwhile. Says whether it is gone.
    fn if_gone(&self, member: u64, act: &mut dyn FnMut()) -> bool;
}

/// How many openers there can be at once.
pub(crate) const MEMBER_MAX: u64 = 4000;
/// A number that no opener has: what belongs to it is for whoever comes next.
pub(crate) const GONE: u64 = MEMBER_MAX + 1;

/// A space in this process's memory: nothing outlives it. For tests of what goes on above.
pub(crate) struct MemorySpace {
    words: Arc<Words>,
}

impl MemorySpace {
    /// This many words, all zero.
    pub(crate) fn new(words: usize) -> Self {
        Self::of(std::iter::repeat_with(AtomicU64::default).take(words))
    }
}

impl MemorySpace {
    /// What another space holds now.
    pub(crate) fn copy_of(space: &dyn Space) -> Self {
        let words = space.words();
        // Words behind the first that is not there are asked for no more: that is a system call each.
        let there = words.iter().enumerate().take_while(|(number, _)| space.has(number + 1));
        let there = there.map(|(_, word)| AtomicU64::new(word.load(Ordering::Relaxed)));
        Self::of(there.chain(std::iter::repeat_with(AtomicU64::default)).take(words.len()))
    }

    fn of(words: impl Iterator<Item = AtomicU64>) -> Self {
        Self { words: Arc::new(Words::in_memory(words.collect())) }
    }
}

impl Space for MemorySpace {
    fn words(&self) -> &Arc<Words> {
        &self.words
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

/// A space that notes what it is asked for, beside what it is written.
#[cfg(test)]
pub(crate) mod noted {
    use std::sync::Mutex;

    use super::*;

    /// What was asked for, and of which words.
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
