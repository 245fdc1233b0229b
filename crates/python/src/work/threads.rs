//! How do several threads share a walk over a large table?
//!
//! The walk is cut where the tree of the file has branches, in more parts than there are threads, and each thread takes the next part as soon as
//! it is done with one: parts are of different sizes, and other programs want the processors too. The thread that Python
//! called takes its share, and looks for signals.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pellucid_query::{Fault, Selection};
use pellucid_record::Shapes;
use pellucid_store::Scan;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

use crate::errors;
use crate::hot::callbacks;
use crate::signals::is_interrupted;
use crate::store_errors;
use crate::table::handle::Table;
use crate::table::reading::Rows;
use crate::work::walks::{Source, Stop, Work, of_fault, over};

/// Tables with fewer rows are done before threads have begun.
pub const ROW_COUNT_MIN: u64 = 100_000;
/// More threads wait for memory, not for processors.
const THREAD_COUNT_MAX: usize = 16;
/// Parts of a walk for each thread. Two threads that count the same rows take no more of the processors together than one does, so that
/// nothing is shared that is waited for; what is lost is their start, and the end, when one has no part left: with 8 parts for each
/// that was 6 % of a count of a million rows.
const PARTS: usize = 16;
/// Time between two looks at signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(20);

/// What `set_threads` was told; 0: as many as there are processors for this process.
static WANTED: AtomicUsize = AtomicUsize::new(0);

/// Says how many threads a query or an aggregate over a large table runs on; None, which it begins with: as many as there are processors
/// for this process, 16 at most. Raises `ValueError` where it is less than 1.
///
/// It holds for the whole process, from the next query on. Tables of fewer than 100,000 rows, tables in memory and the changed tables of
/// a running transaction are walked by one thread.
///
/// >>> import pellucid
/// >>> pellucid.set_threads(1)
/// >>> pellucid.set_threads(None)
#[pyfunction]
#[pyo3(signature = (count))]
pub fn set_threads(count: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let wanted = match count {
        None => 0,
        Some(count) if !count.hasattr("__index__")? => {
            let kind = count.get_type();
            return Err(errors::type_error(format!(
                "set_threads() takes a count, an int, or None, not {}",
                kind.name()?
            )));
        }
        Some(count) if count.lt(1)? => {
            let message = format!("set_threads() takes a count from 1 on, or None, not {}", count.repr()?);
            return Err(errors::value_error(message));
        }
        // Too large for us is more than the maximum all the same.
        Some(count) => match count.extract::<usize>() {
            Err(error) if error.is_instance_of::<PyOverflowError>(count.py()) => THREAD_COUNT_MAX,
            count => count?.min(THREAD_COUNT_MAX),
        },
    };
    WANTED.store(wanted, Ordering::Relaxed);
    Ok(())
}

fn thread_count() -> usize {
    // The system is asked once: it looks into several files for that, which takes as long as to find some rows by an index.
    static AVAILABLE: OnceLock<usize> = OnceLock::new();
    match WANTED.load(Ordering::Relaxed) {
        0 => *AVAILABLE
            .get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get).min(THREAD_COUNT_MAX)),
        count => count,
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

/// A walk cut into parts, and how many threads are to share them; None where one thread walks over all.
fn parts_of(py: Python<'_>, source: &Source) -> PyResult<Option<(Vec<Scan>, usize)>> {
    let Rows::Pinned(scan) = &source.rows else { return Ok(None) };
    if source.selection.as_ref().is_some_and(|selection| selection.offset > 0 || selection.limit < u64::MAX) {
        // Which rows are wanted depends on those before them.
        return Ok(None);
    }
    let wanted = thread_count();
    let of_store = |error| store_errors::of_store(py, error);
    if wanted == 1 || scan.snapshot().count(scan.table()).map_err(of_store)? < ROW_COUNT_MIN {
        return Ok(None);
    }
    let parts = scan.parts(wanted * PARTS).map_err(of_store)?;
    let count = parts.len().min(wanted);
    Ok((count > 1).then_some((parts, count)))
}

/// On how many threads work over a table of so many rows would run, roughly.
pub fn thread_count_over(row_count: u64, is_in_file: bool) -> usize {
    if is_in_file && row_count >= ROW_COUNT_MIN { thread_count() } else { 1 }
}

/// On how many threads work over these rows would run.
///
/// # Errors
/// What the store raises.
pub fn threads_for(py: Python<'_>, source: &Source) -> PyResult<usize> {
    Ok(parts_of(py, source)?.map_or(1, |(_, count)| count))
}

/// As [`over`], on several threads where the rows are many.
///
/// # Errors
/// As `over`.
pub fn over_parts<W: Parallel>(table: &Bound<'_, Table>, source: Source, work: W) -> PyResult<W::Result> {
    let py = table.py();
    let Some((parts, thread_count)) = parts_of(py, &source)? else { return over(table, source, work) };
    let Rows::Pinned(scan) = &source.rows else { return over(table, source, work) };
    let snapshot = scan.snapshot();
    let whole = snapshot.whole();
    let (selection, shared) = (source.selection.as_ref(), work.in_parts(parts.len()));
    match callbacks::released(py, || in_threads(parts, thread_count, selection, &whole, &shared)) {
        // One thread has each group once.
        Err(Fault::Groups(_)) => over(table, source, work),
        done => done.map_err(|fault| of_fault(table, fault)),
    }
}

/// What came of which part.
type Done<R> = (usize, Result<R, Fault>);

/// What threads have in common.
struct Shared<'a, W: Work, S> {
    parts: Vec<Mutex<Option<Scan>>>,
    /// The part that is taken next.
    next: AtomicUsize,
    is_stopped: AtomicBool,
    results: Mutex<Vec<Done<W::Result>>>,
    selection: Option<&'a Selection>,
    shapes: &'a S,
    work: &'a W,
}

impl<W: Parallel, S: Shapes + Sync> Shared<'_, W, S> {
    /// Takes part after part. True where this thread, asked by `stop`, was told to stop.
    fn run(&self, stop: Stop<'_>) -> bool {
        // The work asks by itself, but not in parts that are done before it has begun to wonder.
        let mut asked = Instant::now();
        while !self.is_stopped.load(Ordering::Relaxed) {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(part) = self.parts.get(index) else { return false };
            let Some(mut rows) = part.lock().unwrap_or_else(PoisonError::into_inner).take() else { continue };
            let mut selection = self.selection.cloned();
            let mut result = self.work.clone().run_over(&mut rows, selection.as_mut(), self.shapes, stop);
            if asked.elapsed() > SIGNAL_INTERVAL {
                asked = Instant::now();
                if result.is_ok() && stop.is_set() {
                    result = Err(Fault::Stopped);
                }
            }
            let is_told = matches!(result, Err(Fault::Stopped));
            if result.is_err() {
                self.is_stopped.store(true, Ordering::Relaxed);
            }
            self.results.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
            if is_told {
                return true;
            }
        }
        false
    }
}

fn in_threads<W: Parallel, S: Shapes + Sync>(
    parts: Vec<Scan>,
    thread_count: usize,
    selection: Option<&Selection>,
    shapes: &S,
    work: &W,
) -> Result<W::Result, Fault> {
    let shared = Shared {
        parts: parts.into_iter().map(|part| Mutex::new(Some(part))).collect(),
        next: AtomicUsize::new(0),
        is_stopped: AtomicBool::new(false),
        results: Mutex::new(Vec::new()),
        selection,
        shapes,
        work,
    };
    let is_told = thread::scope(|scope| {
        let (alive, ended) = mpsc::channel::<()>();
        for _ in 1..thread_count {
            let (shared, alive) = (&shared, alive.clone());
            let run = move || {
                let _alive = alive;
                shared.run(Stop::Flag(&shared.is_stopped))
            };
            if thread::Builder::new().spawn_scoped(scope, run).is_err() {
                // The system has no room for more threads; those that are there take all parts.
                break;
            }
        }
        drop(alive);
        // This thread does its share: to wake a thread takes as long as 10,000 rows do, and one fewer has to be woken.
        let is_told = shared.run(Stop::Signals);
        loop {
            match ended.recv_timeout(SIGNAL_INTERVAL) {
                Err(RecvTimeoutError::Timeout) if !is_told && is_interrupted() => {
                    shared.is_stopped.store(true, Ordering::Relaxed);
                    return true;
                }
                Err(RecvTimeoutError::Timeout) | Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => return is_told,
            }
        }
    });
    if is_told {
        return Err(Fault::Stopped);
    }
    let mut results = shared.results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(index, _)| *index);
    // Those that stopped because another one failed say only that.
    let (done, failed): (Vec<_>, Vec<_>) =
        results.into_iter().map(|(_, result)| result).partition(Result::is_ok);
    let mut failed = failed.into_iter().filter_map(Result::err);
    if let Some(first) = failed.next() {
        return Err(if matches!(first, Fault::Stopped) { failed.next().unwrap_or(first) } else { first });
    }
    work.merge(done.into_iter().filter_map(Result::ok).collect(), Stop::Signals)
}
