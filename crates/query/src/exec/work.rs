//! Runs work over rows from any walk, and stops it when the caller says so.

use std::sync::atomic::{AtomicBool, Ordering};

use pellucid_record::Shapes;

use crate::fault::Fault;
use crate::selection::{Selected, Selection};
use crate::walk::Walk;

/// Who says that a walk is to stop.
#[derive(Clone, Copy)]
pub enum Stop<'a> {
    /// The caller of the work, asked in the thread in which it called: for signals, as Ctrl-C.
    Caller(&'a (dyn Fn() -> bool + Sync)),
    /// A thread that has asked, for others.
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
}

/// Work that runs over any kind of walk.
pub trait Work: Send {
    /// What comes of it.
    type Result: Send;

    /// Does it.
    ///
    /// # Errors
    /// Damage, or a stop.
    fn run<S: Shapes>(self, rows: &mut impl Walk, shapes: &S, stop: Stop<'_>) -> Result<Self::Result, Fault>;

    /// Does it over those rows that are wanted.
    ///
    /// # Errors
    /// As `run`.
    fn run_over<S: Shapes>(
        self,
        rows: &mut impl Walk,
        selection: Option<&mut Selection>,
        shapes: &S,
        stop: Stop<'_>,
    ) -> Result<Self::Result, Fault>
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

/// Work that may be done in parts, of rows that follow each other.
pub trait Parallel: Work + Clone + Sync {
    /// What comes of the whole, from what came of its parts, in the order of their rows.
    ///
    /// # Errors
    /// They cannot stand together, or a stop.
    fn merge(&self, parts: Vec<Self::Result>, stop: Stop<'_>) -> Result<Self::Result, Fault>;

    /// What is done in each of so many parts; its clones may share what bounds their memory.
    #[must_use]
    fn in_parts(&self, _count: usize) -> Self {
        self.clone()
    }
}
