//! Shares a walk over many rows among several threads.
//!
//! A scan is cut where the file's tree has branches, as are the entries of an index that is walked
//! along, and a list of keys or rows anywhere; in more parts than there are threads. Each thread
//! takes the next part when it is done with one, because parts differ in size and other programs
//! use the processors too. The calling thread works as well, and asks its caller whether to stop.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pellucid_record::Shapes;
use pellucid_store::StoreError;

use crate::fault::Fault;
use crate::selection::Selection;
use crate::walk::{Divide, Walk};
use crate::work::{Parallel, Stop, Work, WorkResult};

/// Time between two checks whether to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(20);

/// Parts of a walk, and the number of threads for them.
type Parts<P> = (Vec<P>, usize);

/// Cuts a walk into `part_count` parts for each thread, and says how many threads share them. None
/// if one thread walks over all rows.
///
/// # Errors
/// When the engine's pages are damaged.
pub fn parts_of<'r, D: Divide>(
    rows: &'r D,
    selection: Option<&Selection>,
    (thread_count, part_count): (usize, usize),
) -> Result<Option<Parts<D::Part<'r>>>, StoreError> {
    if selection.is_some_and(|selection| selection.offset > 0 || selection.limit < u64::MAX) {
        // With an offset or a limit, a row is wanted or not depending on the rows before it.
        return Ok(None);
    }
    if thread_count == 1 || !rows.is_long()? {
        return Ok(None);
    }
    let parts = rows.parts(thread_count * part_count)?;
    let count = parts.len().min(thread_count);
    Ok((count > 1).then_some((parts, count)))
}

/// Runs work over rows, on several threads if they are many.
///
/// # Errors
/// As [`Work::run`].
pub fn over_rows<W: Parallel, S: Shapes + Sync>(
    rows: &mut impl Divide,
    mut selection: Option<Selection>,
    shapes: &S,
    work: W,
    (thread_count, stop): (usize, Stop<'_>),
) -> WorkResult<W> {
    if let Some((parts, thread_count)) =
        parts_of(rows, selection.as_ref(), (thread_count, work.part_count()))?
    {
        let shared = work.in_parts(parts.len());
        match in_threads(parts, (thread_count, stop), selection.as_ref(), shapes, &shared) {
            // One thread needs less memory, as it has each group once: it tries again alone.
            Err(Fault::Groups(_)) => {}
            done => return done,
        }
    }
    work.run_over(rows, selection.as_mut(), shapes, stop)
}

/// The number of a part, and its result.
type Done<R> = (usize, Result<R, Fault>);

/// What the threads share.
struct Shared<'a, P, W: Work, S> {
    parts: Vec<Mutex<Option<P>>>,
    /// The next part to take.
    next: AtomicUsize,
    is_stopped: AtomicBool,
    results: Mutex<Vec<Done<W::Result>>>,
    selection: Option<&'a Selection>,
    shapes: &'a S,
    work: &'a W,
}

impl<P: Walk + Send, W: Parallel, S: Shapes + Sync> Shared<'_, P, W, S> {
    /// Takes part after part. True if this thread asked `stop` and has to stop.
    fn run(&self, stop: Stop<'_>) -> bool {
        // The work itself asks whether to stop, but not in parts that are done before its first
        // check.
        let mut asked = Instant::now();
        while !self.is_stopped.load(Ordering::Relaxed) {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(part) = self.parts.get(index) else { return false };
            let Some(mut rows) = part.lock().unwrap_or_else(PoisonError::into_inner).take() else { continue };
            let mut selection = self.selection.cloned();
            let mut result = self.work.clone().run_over(&mut rows, selection.as_mut(), self.shapes, stop);
            if asked.elapsed() > STOP_INTERVAL {
                asked = Instant::now();
                if result.is_ok() && stop.is_set() {
                    result = Err(Fault::Stopped);
                }
            }
            let is_stopped_here = matches!(result, Err(Fault::Stopped));
            if result.is_err() {
                self.is_stopped.store(true, Ordering::Relaxed);
            }
            self.results.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
            if is_stopped_here {
                return true;
            }
        }
        false
    }
}

fn in_threads<P: Walk + Send, W: Parallel, S: Shapes + Sync>(
    parts: Vec<P>,
    (thread_count, stop): (usize, Stop<'_>),
    selection: Option<&Selection>,
    shapes: &S,
    work: &W,
) -> WorkResult<W> {
    let shared = Shared {
        parts: parts.into_iter().map(|part| Mutex::new(Some(part))).collect(),
        next: AtomicUsize::new(0),
        is_stopped: AtomicBool::new(false),
        results: Mutex::new(Vec::new()),
        selection,
        shapes,
        work,
    };
    let is_stopped_here = thread::scope(|scope| {
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
        // This thread works as well: waking a thread takes as long as 10,000 rows, and this way one
        // fewer has to be woken.
        let is_stopped_here = shared.run(stop);
        loop {
            match ended.recv_timeout(STOP_INTERVAL) {
                Err(RecvTimeoutError::Timeout) if !is_stopped_here && stop.is_set() => {
                    shared.is_stopped.store(true, Ordering::Relaxed);
                    return true;
                }
                Err(RecvTimeoutError::Timeout) | Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => return is_stopped_here,
            }
        }
    });
    if is_stopped_here {
        return Err(Fault::Stopped);
    }
    let mut results = shared.results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(index, _)| *index);
    // A part that stopped because another one failed reports only the stop.
    let (done, failed): (Vec<_>, Vec<_>) =
        results.into_iter().map(|(_, result)| result).partition(Result::is_ok);
    let mut failed = failed.into_iter().filter_map(Result::err);
    if let Some(first) = failed.next() {
        return Err(if matches!(first, Fault::Stopped) { failed.next().unwrap_or(first) } else { first });
    }
    work.merge(done.into_iter().filter_map(Result::ok).collect(), stop)
}
