//! Named steps of the write path, for the crash campaign.
//!
//! In a build with the feature `failpoints`, a process can be told to die, to stop or to sleep
//! where it takes a step, and counts the steps that it takes in memory that outlives it. In other
//! builds a step is nothing, and neither the table of counts nor the way to it exists.

/// Declare the steps and their names, which are written as the campaign writes them.
macro_rules! steps {
    ($($step:ident = $name:literal,)*) => {
        /// A step of the write path, named after what the process is about to do or has just done.
        #[derive(Clone, Copy)]
        pub(crate) enum Step {
            $(#[doc = $name] $step,)*
        }

        /// The names of all steps, in the order of their numbers.
        #[cfg(feature = "failpoints")]
        pub const STEP_NAMES: &[&str] = &[$($name,)*];
    };
}

steps! {
    LogCreates = "log: a new one is about to be valid",
    ReplayBegins = "replay: the end of the log is known",
    ReplayEnds = "replay: all words of the head are set",
    RecordWritten = "append: written, not acknowledged",
    TailStored = "append: between tail and sequence",
    LogGrown = "log: has grown",
    LogPunches = "log: is about to give room back",
    LogPunched = "log: has given room back",
    SegmentBegun = "seal: the next segment is begun",
    SegmentSwitched = "seal: the next segment is active",
    CheckpointWrites = "checkpoint: writes an entry",
    CheckpointCommits = "checkpoint: is about to commit",
    CheckpointCommitted = "checkpoint: committed, not told",
    DictionaryTrained = "dictionary: trained, not stored",
    LeavesFilled = "online compaction: leaves are filled",
    PagesMoved = "online compaction: pages are moved",
    AutomaticBegins = "automatic compaction: begins",
    CompactReplaces = "compact: the log is gone, the old file there",
    CompactReplaced = "compact: the new file is in its place",
    ReserveTaken = "large value: pages are reserved, not known",
    ReserveFreed = "large value: the reserve is freed, and still known",
    ValueWritten = "large value: written, not in the log",
    RunWritten = "sorted load: a run is written",
    RowsMerge = "sorted load: rows are about to be merged",
    BulkCommits = "bulk: is about to commit",
    TakenOver = "takeover: the lock is taken from the dead",
    Recovered = "takeover: the log is recovered",
    EntriesBuilt = "index: entries are built, not put",
    LastCloses = "close: the last process is about to remove the log",
    LogRemoved = "close: the log is removed",
}

/// Take a step: where the campaign has chosen it, the process ends or stops here.
#[cfg(not(feature = "failpoints"))]
#[inline]
pub(crate) fn reached(_step: Step) {}

#[cfg(feature = "failpoints")]
pub(crate) use chosen::reached;
#[cfg(feature = "failpoints")]
pub use chosen::watch_steps;

/// What the campaign sees and says, in a page that it shares with the process.
#[cfg(feature = "failpoints")]
#[allow(unsafe_code)]
mod chosen {
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;
    use std::path::Path;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::{STEP_NAMES, Step};

    /// Words of the page: the number of the chosen step plus one; how many times it is taken until
    /// it matters; 1 if the thread is to stop there, while the others go on; for how many
    /// milliseconds it is to sleep there instead, from then on each time. From `COUNTS` on, how
    /// often each step was taken.
    const CHOSEN: usize = 0;
    const LEFT: usize = 1;
    const STOPS: usize = 2;
    const SLEEPS: usize = 3;
    const COUNTS: usize = 16;
    const WORDS: usize = 512;
    const _: () = assert!(COUNTS + STEP_NAMES.len() <= WORDS);

    static PAGE: OnceLock<&'static [AtomicU64]> = OnceLock::new();

    /// Count steps in this file, of a page at least, and die, stop or sleep at the step that is
    /// chosen there. For the rest of the life of the process.
    ///
    /// # Errors
    /// Of the system, if the file cannot be mapped; `AlreadyExists` in a second call.
    pub fn watch_steps(path: &Path) -> io::Result<()> {
        let file = File::options().read(true).write(true).open(path)?;
        if file.metadata()?.len() < WORDS as u64 * 8 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the system's choice.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), WORDS * 8, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping has this many words, begins with a page, and is never ended; the
        // campaign does not cut the file, and changes the words as whole words.
        let words = unsafe { std::slice::from_raw_parts(base.cast::<AtomicU64>(), WORDS) };
        PAGE.set(words).map_err(|_| io::ErrorKind::AlreadyExists.into())
    }

    /// Take a step: where the campaign has chosen it, the process ends, or the thread stops or
    /// sleeps here.
    pub(crate) fn reached(step: Step) {
        let Some(page) = PAGE.get() else { return };
        let add = |index: usize| page.get(index).map(|word| word.fetch_add(1, Ordering::Relaxed));
        let read = |index: usize| page.get(index).map_or(0, |word| word.load(Ordering::Relaxed));
        add(COUNTS + step as usize);
        if read(CHOSEN) != step as u64 + 1 {
            return;
        }
        let left = page.get(LEFT).map_or(0, |left| left.fetch_sub(1, Ordering::Relaxed));
        let sleeps = read(SLEEPS);
        if sleeps > 0 {
            if left.cast_signed() <= 1 {
                std::thread::sleep(Duration::from_millis(sleeps));
            }
            return;
        }
        if left != 1 {
            return;
        }
        if read(STOPS) == 0 {
            // SAFETY: a signal to the process itself, which ends it.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        loop {
            std::thread::park();
        }
    }
}
