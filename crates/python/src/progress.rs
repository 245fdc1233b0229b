//! Reports the progress of long work to a function of the caller.

use std::time::{Duration, Instant};

use pellucid_store::Store;
use pyo3::prelude::*;

use crate::errors;
use crate::hot::callbacks;
use crate::signals::Signals;

/// Time between two reports of work that is counted step by step.
const INTERVAL: Duration = Duration::from_millis(100);

/// The function that reports progress, and the exception that it raised.
pub struct Progress {
    function: Option<Py<PyAny>>,
    raised: Option<PyErr>,
    reported_at: Option<Instant>,
}

impl Progress {
    /// Progress that is reported to `function`, which gets the number of `what` that are done, and
    /// of all.
    ///
    /// # Errors
    /// `TypeError` if `function` cannot be called.
    pub fn new(function: Option<&Bound<'_, PyAny>>, what: &str) -> PyResult<Self> {
        errors::check_progress(function, what)?;
        Ok(Self {
            function: function.map(|function| function.clone().unbind()),
            raised: None,
            reported_at: None,
        })
    }

    /// Whether the last report was `INTERVAL` ago. If so, the caller makes the next one.
    fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.reported_at.is_none_or(|at| now - at >= INTERVAL);
        if is_due {
            self.reported_at = Some(now);
        }
        is_due
    }

    /// Reports progress; false if the work should stop.
    pub fn tell(&mut self, done: u64, total: u64) -> bool {
        let outcome = Python::attach(|py| {
            callbacks::check_signals(py)?;
            match &self.function {
                Some(function) => function.call1(py, (done, total)).map(|_| ()),
                None => Ok(()),
            }
        });
        self.raised = outcome.err();
        self.raised.is_none()
    }

    /// What the work came to, or the exception that ended it.
    ///
    /// # Errors
    /// What the function or a signal handler raised, or the error of the work.
    pub fn end<T>(&mut self, done: PyResult<T>) -> PyResult<T> {
        match self.raised.take() {
            Some(raised) => Err(raised),
            None => done,
        }
    }
}

/// Work on every entry of a database: counts the entries, handles signals, and reports progress.
pub struct Entries {
    signals: Signals,
    progress: Progress,
    done: u64,
    total: u64,
}

impl Entries {
    /// Counts the entries of `store`, those of its indexes `index_passes` times, and reports to
    /// `function`.
    ///
    /// # Errors
    /// `TypeError` if `function` cannot be called.
    pub fn new(function: Option<&Bound<'_, PyAny>>, store: &Store, index_passes: u64) -> PyResult<Self> {
        let progress = Progress::new(function, "entries")?;
        // If the catalog cannot be read, the work itself says so. The total is only what is shown.
        let total = function.and_then(|_| store.stats().ok()).map_or(0, |stats| {
            stats.rows + stats.index_entries * index_passes + stats.blobs + stats.shapes + 2 * stats.tables
        });
        Ok(Self { signals: Signals::new(), progress, done: 0, total })
    }

    /// Counts an entry, and says whether to go on.
    #[inline]
    pub fn go_on(&mut self) -> bool {
        self.done += 1;
        self.signals.go_on() && (self.progress.function.is_none() || self.report())
    }

    fn report(&mut self) -> bool {
        if !self.progress.is_due() {
            return true;
        }
        // What was stored meanwhile is not in the total.
        self.total = self.total.max(self.done);
        self.progress.tell(self.done, self.total)
    }

    /// Reports the end of work that has succeeded, and returns its result or what was raised.
    ///
    /// # Errors
    /// What the function or a signal handler raised, or the error of the work.
    pub fn end<T>(&mut self, done: PyResult<T>) -> PyResult<T> {
        if done.is_ok() && self.progress.function.is_some() {
            let total = self.total.max(self.done);
            self.progress.tell(total, total);
        }
        self.progress.end(done)
    }
}

/// Work that makes a file shorter: handles signals, and reports the pages that are saved and those
/// that can be.
pub struct Pages {
    signals: Signals,
    progress: Progress,
    most: u64,
    last: (u64, u64),
}

impl Pages {
    /// Reports to `function`.
    ///
    /// # Errors
    /// `TypeError` if `function` cannot be called.
    pub fn new(function: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let progress = Progress::new(function, "pages")?;
        Ok(Self { signals: Signals::new(), progress, most: 0, last: (0, 0) })
    }

    /// Notes how many pages the file has and should have; 0 as long as that is not known. Says
    /// whether to go on.
    pub fn go_on(&mut self, pages: u64, wanted: u64) -> bool {
        if !self.signals.go_on() {
            return false;
        }
        if wanted == 0 || self.progress.function.is_none() {
            return true;
        }
        self.most = self.most.max(pages);
        let (total, left) = (self.most - wanted.min(self.most), pages.saturating_sub(wanted));
        self.last = (total - left.min(total), total);
        if !self.progress.is_due() {
            return true;
        }
        self.progress.tell(self.last.0, self.last.1)
    }

    /// Reports the end of work that has succeeded, and returns its result or what was raised.
    ///
    /// # Errors
    /// What the function or a signal handler raised, or the error of the work.
    pub fn end<T>(&mut self, done: PyResult<T>) -> PyResult<T> {
        if done.is_ok() && self.progress.function.is_some() {
            self.progress.tell(self.last.0, self.last.1);
        }
        self.progress.end(done)
    }
}
