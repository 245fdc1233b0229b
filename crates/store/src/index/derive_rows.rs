//! Derives and sorts the entries of many rows, with several threads and bounded memory.
//!
//! The rows are cut into many small consecutive parts. Threads take one part after the other until
//! memory is full; what was taken by then is all rows up to one key. So any process can continue
//! the build after that key. The entries are kept in runs, each sorted by itself, so that no
//! single sort delays a stop for long; `Merge` merges the runs.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque, binary_heap::PeekMut};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pellucid_record::Shapes;
use pellucid_record::key::join_spellings;

use super::sorter::{SortedEntry, Sorter};
use super::{Derive, Derived};
use crate::error::StoreError;
use crate::txn::scan::{Row, Scan};

/// Bytes of entries that are sorted at once: some 30 ms.
const RUN_SIZE: usize = 16 << 20;
/// Rows between two looks at the clock.
pub(crate) const STEP: u64 = 1 << 10;
/// Time between two calls of `go_on`.
const PERIOD: Duration = Duration::from_millis(10);

/// Entries in sorted runs.
pub(crate) struct Runs {
    sorted: Vec<Sorter>,
    filling: Sorter,
    memory: usize,
    run_size: usize,
    /// The number of runs and of unsorted entries when the current part of the rows began.
    before: (usize, usize),
    entries: Derived,
    spelling: Vec<u8>,
}

impl Runs {
    /// Runs with this memory limit.
    pub(crate) fn new(memory: usize) -> Self {
        Self {
            sorted: Vec::new(),
            filling: Sorter::default(),
            memory,
            run_size: RUN_SIZE.min(memory / 8),
            before: (0, 0),
            entries: Derived::default(),
            spelling: Vec::new(),
        }
    }

    /// Begin a part of the rows, which may be dropped later.
    fn begin_part(&mut self) {
        if self.filling.size() > self.run_size / 4 {
            self.end_run();
        }
        self.before = (self.sorted.len(), self.filling.len());
    }

    fn forget_part(&mut self) {
        self.sorted.truncate(self.before.0);
        self.filling.truncate(self.before.1);
    }

    /// Add the entries of a row.
    pub(crate) fn derive(
        &mut self,
        row: &Row<'_>,
        derive: &mut dyn Derive,
        shapes: &dyn Shapes,
    ) -> Result<(), StoreError> {
        self.entries.clear();
        derive.derive(row, shapes, &mut self.entries).map_err(StoreError::Record)?;
        self.entries.settle();
        for (parts, parts_spelling) in self.entries.iter() {
            join_spellings(parts_spelling, row.spelling, &mut self.spelling);
            self.filling.push_parts(parts, row.key, &self.spelling);
        }
        if self.filling.size() > self.run_size {
            if self.before.1 > 0 {
                // Keep entries of earlier parts and of this part in different runs.
                let own = self.filling.split_off(self.before.1);
                self.end_run();
                self.filling = own;
                self.before = (self.sorted.len(), 0);
            } else {
                self.end_run();
            }
        }
        Ok(())
    }

    /// Sort the entries that are not sorted yet.
    pub(crate) fn end_run(&mut self) {
        if self.filling.len() > 0 {
            let mut run = std::mem::take(&mut self.filling);
            run.sort();
            self.sorted.push(run);
        }
    }

    /// Whether the memory limit is reached.
    pub(crate) fn is_full(&self) -> bool {
        // Called for each row, so an estimate.
        self.sorted.len() * self.run_size >= self.memory
    }

    /// About how much memory they take.
    pub(crate) fn size(&self) -> usize {
        self.filling.size() + self.sorted.iter().map(Sorter::size).sum::<usize>()
    }

    pub(crate) fn len(&self) -> u64 {
        self.sorted.iter().map(|run| run.len() as u64).sum()
    }

    pub(crate) fn clear(&mut self) {
        self.filling.clear();
        self.sorted.clear();
    }
}

/// The next entry of a run: its first bytes as a number, which mostly decide, its code, the run,
/// and the index in the run.
type Head<'m> = (u64, &'m [u8], usize, usize);

/// Merges the entries of sorted runs.
pub(crate) struct Merge<'m> {
    runs: Vec<&'m Sorter>,
    next: BinaryHeap<Reverse<Head<'m>>>,
}

impl<'m> Merge<'m> {
    /// All runs have to be sorted.
    pub(crate) fn new(all: impl IntoIterator<Item = &'m Runs>) -> Self {
        let runs: Vec<&Sorter> = all.into_iter().flat_map(|runs| &runs.sorted).collect();
        let first = |(run, sorter): (usize, &&'m Sorter)| {
            let (number, code) = sorter.code(0)?;
            Some(Reverse((number, code, run, 0)))
        };
        let next = runs.iter().enumerate().filter_map(first).collect();
        Self { runs, next }
    }

    /// Skip the next entry if its code is at most `place`. True if it was skipped.
    pub(crate) fn pass(&mut self, place: Option<&[u8]>) -> bool {
        let is_passed = place.is_some_and(|place| self.next.peek().is_some_and(|head| head.0.1 <= place));
        is_passed && self.next().is_some()
    }

    pub(crate) fn next(&mut self) -> Option<SortedEntry<'m>> {
        let mut head = self.next.peek_mut()?;
        let Reverse((_, _, run, place)) = *head;
        let sorter = *self.runs.get(run)?;
        match sorter.code(place + 1) {
            Some((number, code)) => *head = Reverse((number, code, run, place + 1)),
            None => drop(PeekMut::pop(head)),
        }
        sorter.get(place)
    }
}

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
    pub(crate) fn new(
        scan: &Scan,
        count: u64,
        derives: Vec<Box<dyn Derive>>,
        memory: usize,
    ) -> Result<Self, StoreError> {
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
    ) -> Result<Round<'_>, StoreError> {
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
    fn run(&mut self, shared: &Shared<'_>) -> Result<(), StoreError> {
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
    ) -> Result<(bool, u64, Option<Vec<u8>>), StoreError> {
        self.runs.begin_part();
        let (mut count, mut told, mut size) = (0, 0, self.runs.size());
        let mut runs = self.runs.sorted.len();
        let mut last: Option<Vec<u8>> = None;
        let mut is_over = true;
        while let Some(row) = part.next()? {
            self.runs.derive(&row, &mut *self.derive, shared.shapes)?;
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(row.key);
            count += 1;
            // One row may have many entries.
            if count % STEP == 0 || self.runs.sorted.len() > runs {
                runs = self.runs.sorted.len();
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

/// Tells when the next progress report is due.
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn is_time(&mut self) -> bool {
        let is_time = self.0.elapsed() >= PERIOD;
        if is_time {
            self.0 = Instant::now();
        }
        is_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_become_one_order_where_eight_bytes_do_not_decide() {
        let codes: Vec<String> = (0..300)
            .map(|number| format!("{}{:03}", if number % 3 == 0 { "" } else { "the same" }, number))
            .collect();
        let mut all: Vec<Runs> = (0..2).map(|_| Runs::new(1 << 20)).collect();
        for (number, code) in codes.iter().enumerate() {
            let runs = &mut all[number % 2];
            runs.filling.push_parts(code.as_bytes(), b"", b"");
            if number % 50 < 2 {
                runs.end_run();
            }
        }
        all.iter_mut().for_each(Runs::end_run);
        let mut sorted: Vec<&[u8]> = codes.iter().map(String::as_bytes).collect();
        sorted.sort_unstable();
        let mut merge = Merge::new(&all);
        assert!(merge.runs.len() > 4);
        let merged: Vec<&[u8]> = std::iter::from_fn(|| merge.next()).map(|entry| entry.code).collect();
        assert_eq!(merged, sorted);
    }
}
