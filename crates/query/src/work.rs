//! Runs work over rows from any walk, and stops it when the caller says so.

use std::sync::atomic::{AtomicBool, Ordering};

use pellucid_record::Shapes;

use crate::fault::Fault;
use crate::selection::{Selected, Selection};
use crate::walk::Walk;

/// Tells a walk that it has to stop.
#[derive(Clone, Copy)]
pub enum Stop<'a> {
    /// The caller of the work, asked in the thread that called: for signals, as Ctrl-C.
    Caller(&'a (dyn Fn() -> bool + Sync)),
    /// A flag, set by a thread that asked for the others.
    Flag(&'a AtomicBool),
}

impl Stop<'_> {
    /// Whether to stop now.
    #[must_use]
    pub fn is_set(self) -> bool {
        match self {
            Stop::Caller(is_stopped) => is_stopped(),
            Stop::Flag(flag) => flag.load(Ordering::Relaxed),
        }
    }

    /// The same as a function, for walks.
    pub fn check(&self) -> impl Fn() -> bool {
        || self.is_set()
    }
}

/// The result of work, or damage, or a stop.
pub type WorkResult<W> = Result<<W as Work>::Result, Fault>;

/// Work that runs over any kind of walk.
pub trait Work: Send {
    /// The result of the work.
    type Result: Send;

    /// Does the work.
    ///
    /// # Errors
    /// Damage, or a stop.
    fn run<S: Shapes>(self, rows: &mut impl Walk, shapes: &S, stop: Stop<'_>) -> WorkResult<Self>;

    /// Does the work over the selected rows only.
    ///
    /// # Errors
    /// As `run`.
    fn run_over<S: Shapes>(
        self,
        rows: &mut impl Walk,
        selection: Option<&mut Selection>,
        shapes: &S,
        stop: Stop<'_>,
    ) -> WorkResult<Self>
    where
        Self: Sized,
    {
        match selection {
            Some(selection) if !selection.takes_all() => {
                self.run(&mut Selected { rows, selection, shapes }, shapes, stop)
            }
            _ => self.run(rows, shapes, stop),
        }
    }
}

/// Parts of a walk for each thread. Two threads that count the same rows use no more processor time
/// together than one does, so they do not wait for each other. What is lost is the start of the
/// threads, and the end, when a thread has no part left: with 8 parts for each thread that was 6 %
/// of a count of a million rows.
pub const PART_COUNT: usize = 16;

/// Work that can be done in parts, each over rows that follow each other.
pub trait Parallel: Work + Clone + Sync {
    /// The number of parts for each thread. More of them take more time to merge.
    fn part_count(&self) -> usize {
        PART_COUNT
    }

    /// Merges the results of parts, in the order of their rows, into the result of the whole.
    ///
    /// # Errors
    /// They cannot stand together, or a stop.
    fn merge(&self, parts: Vec<Self::Result>, stop: Stop<'_>) -> WorkResult<Self>;

    /// The work for each of this many parts. The clones may share what bounds their memory.
    #[must_use]
    fn in_parts(&self, _count: usize) -> Self {
        self.clone()
    }
}
