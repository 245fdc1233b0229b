//! Derives and sorts the entries of many rows, with several threads and bounded memory.
//!
//! The rows are cut into many small consecutive parts. Threads take one part after the other until
//! memory is full; what was taken by then is all rows up to one key. So any process can continue
//! the build after that key. The entries are kept in sorted runs (`index/runs.rs`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pellucid_record::Shapes;

use crate::error::{Result, StoreError};
use crate::index::Derive;
use crate::index::runs::{PERIOD, Runs, STEP};
use crate::txn::scan::Scan;

/// The rows that are still to be derived, and the workers.
pub(crate) struct Rows {
    todo: Mutex<Todo>,
    memory: usize,
    workers: Vec<Worker>,
}

/// Parts of the rows, in order. The taken rows have to be all rows up to one key. So when memory is
/// full, the first of the running parts is kept as far as it was read, and the parts after it are
/// dropped and put back.
struct Todo {
    parts: VecDeque<(usize, Scan)>,
    /// The parts that threads are reading.
    running: Vec<usize>,
    /// The first part that was put back because memory was full.
    first_back: usize,
}

struct Worker {
    derive: Box<dyn Derive>,
    runs: Runs,
    /// The key of the last row that was taken.
    last: Option<Vec<u8>>,
}

/// State that all threads share.
struct Shared<'s> {
    todo: &'s Mutex<Todo>,
    memory: usize,
    shapes: &'s (dyn Shapes + Sync),
    count: AtomicU64,
    size: AtomicUsize,
    is_stopped: AtomicBool,
}

impl Shared<'_> {
    fn todo(&self) -> MutexGuard<'_, Todo> {
        self.todo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_full(&self) -> bool {
        self.size.load(Ordering::Relaxed) >= self.memory
    }
}

/// The result of one round: entries of all rows up to a key.
pub(crate) struct Round<'r> {
    /// The number of rows.
    pub(crate) count: u64,
    /// The key of the last row.
    pub(crate) last: Option<Vec<u8>>,
    /// Whether there are no rows after it.
    pub(crate) is_last: bool,
    /// Their entries.
    pub(crate) runs: Vec<&'r Runs>,
}

impl Rows {
    /// The rows of `scan`, for as many threads as `derives` has items.
    pub(crate) fn new(scan: &Scan, count: u64, derives: Vec<Box<dyn Derive>>, memory: usize) -> Result<Self> {
        const ROWS_OF_PART: u64 = 1 << 14;
        const PARTS_MAX: u64 = 1 << 10;
        let parts = scan.parts((count / ROWS_OF_PART).clamp(derives.len() as u64, PARTS_MAX) as usize)?;
        let workers =
            derives.into_iter().map(|derive| Worker { derive, runs: Runs::new(memory), last: None });
        let todo = Todo {
            parts: parts.into_iter().enumerate().collect(),
            running: Vec::new(),
            first_back: usize::MAX,
        };
        Ok(Self { todo: Mutex::new(todo), memory, workers: workers.collect() })
    }

    /// Derive entries until there are no more rows, or memory is full. `go_on` gets the number of
    /// rows read.
    pub(crate) fn derive(
        &mut self,
        shapes: &(dyn Shapes + Sync),
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Round<'_>> {
        for worker in &mut self.workers {
            worker.runs.clear();
        }
        self.todo.get_mut().unwrap_or_else(PoisonError::into_inner).first_back = usize::MAX;
        let shared = Shared {
            todo: &self.todo,
            memory: self.memory,
            shapes,
            count: AtomicU64::new(0),
            size: AtomicUsize::new(0),
            is_stopped: AtomicBool::new(false),
        };
        let main = std::thread::current();
        std::thread::scope(|scope| {
            let running: Vec<_> = self
                .workers
                .iter_mut()
                .map(|worker| {
                    let (shared, main) = (&shared, main.clone());
                    scope.spawn(move || {
                        let ran = worker.run(shared);
                        // The rest is not needed.
                        shared.is_stopped.fetch_or(ran.is_err(), Ordering::Relaxed);
                        main.unpark();
                        ran
                    })
                })
                .collect();
            let mut is_stopped = false;
            while !running.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                // A thread counts as finished only a moment after it has unparked us.
                std::thread::park_timeout(PERIOD);
                let count = shared.count.load(Ordering::Relaxed);
                is_stopped = is_stopped || !go_on(count);
                shared.is_stopped.fetch_or(is_stopped, Ordering::Relaxed);
            }
            for thread in running {
                thread.join().unwrap_or(Err(StoreError::NoMemory { what: "the entries of an index" }))?;
            }
            if is_stopped { Err(StoreError::Stopped) } else { Ok(()) }
        })?;
        let count = shared.count.load(Ordering::Relaxed);
        let last = self.workers.iter_mut().filter_map(|worker| worker.last.take()).max();
        Ok(Round {
            count,
            last,
            is_last: shared.todo().parts.is_empty(),
            runs: self.workers.iter().map(|worker| &worker.runs).collect(),
        })
    }
}

impl Worker {
    fn run(&mut self, shared: &Shared<'_>) -> Result<()> {
        loop {
            let mut todo = shared.todo();
            if shared.is_full() || todo.first_back != usize::MAX {
                break;
            }
            let Some((number, mut part)) = todo.parts.pop_front() else { break };
            todo.running.push(number);
            drop(todo);
            let (is_over, count, last) = self.run_part(number, &mut part, shared)?;
            let mut todo = shared.todo();
            let is_first = todo.running.iter().all(|other| number <= *other);
            todo.running.retain(|other| *other != number);
            if todo.first_back < number || !is_over && !is_first {
                let size = self.runs.size();
                self.runs.forget_part();
                shared.size.fetch_sub(size - self.runs.size(), Ordering::Relaxed);
                shared.count.fetch_sub(count, Ordering::Relaxed);
                if let Some(anew) = part.parts(1)?.pop() {
                    part = anew;
                }
            } else {
                self.last = last.or(self.last.take());
                if is_over {
                    continue;
                }
            }
            todo.first_back = number.min(todo.first_back);
            let place = todo.parts.partition_point(|(other, _)| *other < number);
            todo.parts.insert(place, (number, part));
        }
        self.runs.end_run();
        Ok(())
    }

    /// Returns whether the part was read to its end, how many rows were read, and the key of the
    /// last one.
    fn run_part(
        &mut self,
        number: usize,
        part: &mut Scan,
        shared: &Shared<'_>,
    ) -> Result<(bool, u64, Option<Vec<u8>>)> {
        self.runs.begin_part();
        let (mut count, mut told, mut size) = (0, 0, self.runs.size());
        let mut runs = self.runs.count();
        let mut last: Option<Vec<u8>> = None;
        let mut is_over = true;
        while let Some(row) = part.next()? {
            self.runs.derive(&row, &mut *self.derive, shared.shapes)?;
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(row.key);
            count += 1;
            // One row may have many entries.
            if count % STEP == 0 || self.runs.count() > runs {
                runs = self.runs.count();
                shared.count.fetch_add(count - told, Ordering::Relaxed);
                let now = self.runs.size();
                shared.size.fetch_add(now - size, Ordering::Relaxed);
                (told, size) = (count, now);
                if shared.is_stopped.load(Ordering::Relaxed)
                    || shared.is_full()
                    || shared.todo().first_back < number
                {
                    is_over = false;
                    break;
                }
            }
        }
        shared.count.fetch_add(count - told, Ordering::Relaxed);
        shared.size.fetch_add(self.runs.size() - size, Ordering::Relaxed);
        Ok((is_over, count, last))
    }
}
