//! The checkpointer: a thread that keeps the log short and synced.
//!
//! Each process that has written runs one, from its first commit on. It does seven things:
//!
//! - It syncs a newly created data file once.
//! - Every second it syncs the WAL records that nothing else has synced.
//! - It runs a checkpoint when the active segment is so full that writers would soon find no room,
//!   or its oldest WAL record is some seconds old.
//! - It sets how long the log may be (`budget.rs`), and gives its room back when nothing is
//!   written.
//! - It makes the file shorter when much of it is free and little is written (`compaction.rs`).
//! - It takes pages for large values ahead, and gives them back (`refill.rs`).
//! - It prepares the log's next chunks, which took an eighth of the time of ten thousand puts.
//!
//! It waits for no writer, and a writer waits for it only if the log is full. A large checkpoint
//! has a thread of its own, so that the others are done meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::engine::EngineError;
use crate::sys::os;
use crate::sys::reclaim::Reclaimer;
use crate::wal::checkpoint::Done;
use crate::wal::engine::Shared;
use crate::wal::sync::SyncScope;

/// The longest time that a `process` commit stays unsynced. Less than a second, so that it is one
/// second including a tick and the sync itself.
const SYNC_INTERVAL: Duration = Duration::from_millis(900);
/// The longest time that a WAL record stays out of the tree.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(5);
/// The same while a load fills the log: then few bytes are not worth a checkpoint.
const CHECKPOINT_INTERVAL_MAX: Duration = Duration::from_secs(30);
/// Least bytes of WAL records of a checkpoint that counts as a load's, and takes its time.
const LARGE: u64 = 16 << 20;
/// Writers that are slower than that, in bytes a second, are no load.
const LOAD: f64 = 1e6;
/// The time over which the speed of writers is measured.
const PACE_INTERVAL: Duration = Duration::from_millis(500);
/// How long nothing is committed before the log's room is given back. Watchers that are slower get
/// older commits from `keep=` alone, as after a checkpoint.
const REST_INTERVAL: Duration = Duration::from_secs(10);
/// Interval between checks for free pages; the longer one after a compaction that freed nothing,
/// for example because of a snapshot.
const FREE_INTERVAL: Duration = Duration::from_secs(10);
const FREE_INTERVAL_MAX: Duration = Duration::from_secs(600);
/// Bytes that writers commit meanwhile which end the work on the file.
const SHORTENS_BESIDE: u64 = 1 << 20;
/// Writers that are slower than that, in bytes a second, leave the disk to others.
const LOW_LOAD: f64 = 1e5;
/// The two intervals of a thread that rests soon.
const SOON_INTERVAL: Duration = Duration::from_millis(20);
/// How often the thread looks how full the segment is.
const TICK: Duration = Duration::from_millis(50);
/// How often, and at which interval, the thread looks for the first commit.
const FIRST_LOOKS: u32 = 50;
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// See [`rest_soon`].
static RESTS_SOON: AtomicBool = AtomicBool::new(false);

/// Let this process do at once, and beside any load, what a database does after a while in which
/// little is written: give back the log's room, and make the file shorter, however small it is. So
/// tests meet it.
pub fn rest_soon(is_soon: bool) {
    RESTS_SOON.store(is_soon, Ordering::Relaxed);
}

/// Whether this process does so.
pub(crate) fn rests_soon() -> bool {
    RESTS_SOON.load(Ordering::Relaxed)
}

/// How long to wait before work that is done at rest.
fn interval(usual: Duration) -> Duration {
    if rests_soon() { SOON_INTERVAL } else { usual }
}

/// A handle to the checkpointer thread. When it is dropped the thread has released the log and is
/// about to end. Dropping does not join the thread: to wake and end a thread takes a tenth of the
/// time of closing.
pub(crate) struct Checkpointer {
    kept: Arc<Job>,
    thread: Option<Reclaimer>,
    generation: u64,
}

/// What the thread works on; `None` tells it to end. Locked while the thread works.
struct Job {
    shared: Mutex<Option<Arc<Shared>>>,
    /// A caller waits for the thread to release the log.
    ends: AtomicBool,
}

impl Job {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Shared>>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Checkpointer {
    /// Start the thread for a log.
    pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<Self> {
        let kept = Job { shared: Mutex::new(Some(Arc::clone(shared))), ends: AtomicBool::new(false) };
        let kept = Arc::new(kept);
        let own = Arc::clone(&kept);
        let thread = Reclaimer::begin("pellucid-log", move || keep(&own))?;
        shared.segments.set_checkpointer(Some(thread.thread().clone()));
        Ok(Self { kept, thread: Some(thread), generation: os::generation() })
    }

    /// Make the thread release the log. The thread itself lives on, so that it can free memory in
    /// the background; it has the log's map already.
    pub(crate) fn release(mut self) -> Option<Reclaimer> {
        self.end()
    }

    fn end(&mut self) -> Option<Reclaimer> {
        let thread = self.thread.take()?;
        if self.generation != os::generation() {
            // After a fork: the thread belongs to the parent, and its locks may be held for ever
            // here.
            std::mem::forget(Arc::clone(&self.kept));
            return Some(thread);
        }
        self.kept.ends.store(true, Ordering::Relaxed);
        if let Some(shared) = self.kept.lock().take() {
            shared.segments.set_checkpointer(None);
            thread.hand(Arc::clone(shared.segments.space().words()));
        }
        Some(thread)
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Since when the oldest WAL record has waited, given the result of a checkpoint. A checkpoint that
/// did not get its locks has made no record younger.
fn waiting_since(since: Option<Instant>, done: &Result<Done, EngineError>) -> Option<Instant> {
    since.filter(|_| matches!(done, Ok(Done::InTheWay(_))))
}

/// How fast the log is filled, and how long checkpoints take: they decide how full a segment is
/// when it is sealed. The later that is, the more rows share a page that is written. But while it
/// is written, the writers need the other segment.
#[derive(Default)]
struct Pace {
    /// The tail at the last look, and when that was.
    looked: Option<(u64, Instant)>,
    bytes_per_second: f64,
    /// How long the last checkpoint took for each byte. `None` before the first.
    seconds_per_byte: Option<f64>,
}

/// Bytes of a log, which are far fewer than a float is exact for.
#[expect(clippy::cast_precision_loss, reason = "the log has at most 2 GiB")]
fn float(bytes: u64) -> f64 {
    bytes as f64
}

impl Pace {
    fn look(&mut self, tail: u64) {
        let now = Instant::now();
        match self.looked {
            Some((_, then)) if now - then < PACE_INTERVAL => {}
            Some((before, then)) => {
                self.bytes_per_second = float(tail.saturating_sub(before)) / (now - then).as_secs_f64();
                self.looked = Some((tail, now));
            }
            None => self.looked = Some((tail, now)),
        }
    }

    fn note(&mut self, size: u64, took: Duration) {
        if size > 0 {
            self.seconds_per_byte = Some(took.as_secs_f64() / float(size));
        }
    }

    /// How many bytes are pending when a checkpoint begins.
    fn due_at(&self, room: u64) -> u64 {
        let half = room / 2;
        let Some(seconds_per_byte) = self.seconds_per_byte else { return half };
        // What writers add while a full segment is written, and until this thread looks again.
        let seconds = seconds_per_byte * float(room) * 1.25 + 4.0 * TICK.as_secs_f64();
        #[expect(clippy::cast_sign_loss, reason = "bytes and seconds are not negative")]
        let added = (self.bytes_per_second * seconds) as u64;
        room.saturating_sub(added).clamp(half, room - room / 8)
    }
}

/// What the thread knows between two looks.
struct Watch {
    synced: Instant,
    unapplied_since: Option<Instant>,
    pace: Pace,
    /// The tail, and when the log's room is given back if the tail does not change until then.
    /// `None` after that.
    rests: Option<(u64, Option<Instant>)>,
    /// When the thread looks how much of the file is free, and how long it waits after that.
    free_at: Instant,
    free_interval: Duration,
}

impl Watch {
    fn new() -> Self {
        Self {
            synced: Instant::now(),
            unapplied_since: None,
            pace: Pace::default(),
            rests: None,
            free_at: Instant::now() + interval(FREE_INTERVAL),
            free_interval: interval(FREE_INTERVAL),
        }
    }

    /// What cannot wait for a long checkpoint.
    fn look_after(&mut self, shared: &Arc<Shared>, ends: &AtomicBool) {
        let mut has_prepared = true;
        while has_prepared && !ends.load(Ordering::Relaxed) {
            has_prepared = shared.segments.prepare();
        }
        if self.synced.elapsed() >= SYNC_INTERVAL {
            self.synced = Instant::now();
            // The error is seen by the next caller of `sync`, and by the checkpoint.
            let _ = shared.sync(SyncScope::Whole);
            shared.release();
            shared.fit_log();
        }
        // Other processes write the tree too, and this one may be idle.
        shared.release_older();
        self.pace.look(shared.segments.tail());
        shared.free_retired();
    }

    /// Run a checkpoint if it is time.
    fn keep_short(&mut self, shared: &Arc<Shared>, ends: &AtomicBool) {
        let (pending, room) = (shared.pending(), shared.segments.room());
        if pending == 0 {
            self.unapplied_since = None;
        }
        let since =
            if pending == 0 { None } else { Some(*self.unapplied_since.get_or_insert_with(Instant::now)) };
        // Under load a segment is sealed when it is full, so that it is worth the pages.
        let is_loaded = pending >= LARGE && self.pace.bytes_per_second >= LOAD;
        let age_max = if is_loaded { CHECKPOINT_INTERVAL_MAX } else { CHECKPOINT_INTERVAL };
        let is_old = since.is_some_and(|since| since.elapsed() >= age_max);
        let is_reserve_low = shared.is_reserve_low(None);
        let is_sealed = shared.has_work.swap(false, Ordering::Relaxed);
        if pending < self.pace.due_at(room) && !is_old && !is_reserve_low && !is_sealed {
            return;
        }
        // A failed checkpoint is tried again, and the writer that finds no room gets its error.
        let until = Instant::now() + TICK;
        let begin = Instant::now();
        let work = || {
            if is_reserve_low {
                shared.checkpoint_ahead(until)
            } else {
                shared.checkpoint_until(until, until, &mut || true)
            }
        };
        let done = if pending < LARGE { work() } else { self.run_beside(shared, ends, &work) };
        if matches!(done, Ok(Done::Applied(_))) {
            self.pace.note(pending, begin.elapsed());
            shared.fit_log();
        }
        self.unapplied_since = waiting_since(since, &done);
    }

    /// Run a checkpoint that takes some time on a thread of its own, since commits are to be on the
    /// disk within a second meanwhile.
    fn run_beside<R: Send>(
        &mut self,
        shared: &Arc<Shared>,
        ends: &AtomicBool,
        work: &(dyn Fn() -> Result<R, EngineError> + Sync),
    ) -> Result<R, EngineError> {
        let own = thread::current();
        thread::scope(|scope| {
            let beside = thread::Builder::new().name("pellucid-tree".to_owned());
            let started = beside.spawn_scoped(scope, || {
                let done = work();
                own.unpark();
                done
            });
            let Ok(started) = started else { return work() };
            while !started.is_finished() {
                thread::park_timeout(TICK);
                self.look_after(shared, ends);
            }
            started.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Make the file shorter if much of it is free and little is written. The thread goes on with
    /// what cannot wait meanwhile; it ends the work when the load rises or the log is closed.
    fn shorten(&mut self, shared: &Arc<Shared>, ends: &AtomicBool) {
        if self.pace.bytes_per_second >= LOAD && !rests_soon() {
            // A load pauses now and then, and it is another file afterwards.
            self.free_interval = FREE_INTERVAL;
            self.free_at = Instant::now() + FREE_INTERVAL;
        }
        if !shared.compacts.load(Ordering::Relaxed)
            || Instant::now() < self.free_at
            || self.pace.bytes_per_second >= LOW_LOAD && !rests_soon()
            || shared.is_unproven.load(Ordering::Relaxed)
        {
            return;
        }
        let Some(file) = shared.tree.tree_file() else { return };
        let (size, tail) = (file.size(), shared.segments.tail());
        let go_on = || {
            let written = shared.segments.tail().saturating_sub(tail);
            !ends.load(Ordering::Relaxed) && (written < SHORTENS_BESIDE || rests_soon())
        };
        // A process that is in the way has the file, or the disk is full: it is tried again.
        let done = self.run_beside(shared, ends, &|| shared.compact_if_worth(&mut || go_on()));
        let is_in_vain = !matches!(done, Ok(false)) && file.size() >= size && go_on();
        self.free_interval =
            if is_in_vain { self.free_interval * 2 } else { FREE_INTERVAL }.min(interval(FREE_INTERVAL_MAX));
        self.free_at = Instant::now() + self.free_interval;
    }

    /// Give back the log's room after a while without a commit.
    fn work_when_idle(&mut self, shared: &Arc<Shared>) {
        let (tail, now) = (shared.segments.tail(), Instant::now());
        let due = match self.rests {
            Some((before, due)) if before == tail => due,
            _ => Some(now + interval(REST_INTERVAL)),
        };
        let comes = due.is_some_and(|due| now >= due) && shared.pending() == 0;
        // A writer may be in the way. What fails for good is done by the last process that closes.
        let is_done = comes && matches!(shared.rest(), Ok(true));
        let due = if comes { (!is_done).then_some(now + interval(REST_INTERVAL)) } else { due };
        self.rests = Some((tail, due));
    }
}

fn keep(kept: &Job) {
    // The thread was started for the first commit, which follows at once. Do not sync before it: if
    // the sync failed, that commit would be refused instead of being reported as possibly lost.
    for _ in 0..FIRST_LOOKS {
        if kept.lock().as_ref().is_none_or(|shared| shared.pending() > 0) {
            break;
        }
        thread::park_timeout(FIRST_PAUSE);
    }
    if let Some(shared) = &*kept.lock()
        && shared.pending() > 0
    {
        // Otherwise the next sync or close would have to wait for this. It also sees the error.
        let _ = shared.sync_new_file();
    }
    let mut watch = Watch::new();
    loop {
        thread::park_timeout(TICK);
        let place = kept.lock();
        let Some(shared) = &*place else { return };
        watch.look_after(shared, &kept.ends);
        watch.keep_short(shared, &kept.ends);
        watch.work_when_idle(shared);
        watch.shorten(shared, &kept.ends);
        // What fails here is tried again, or done by the last one that closes.
        let _ = shared.give_back_reserve();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::BusyLock;
    use crate::engine::memory::MemoryEngine;
    use crate::engine::{Engine, FileCare, Tree};
    use crate::wal::engine::{LoggedEngine, Opened};
    use crate::wal::lock::Held;
    use crate::wal::segments::words_for;
    use crate::wal::space::MemorySpace;
    use crate::wal::space::noted::{Asked, Noted};

    #[test]
    fn what_nobody_asks_for_is_synced_and_then_written_into_the_tree_all_the_same() {
        let asked = Asked::default();
        let space = Noted(MemorySpace::new(words_for(1 << 20)), Arc::clone(&asked));
        let opened = Opened { is_alone: true, joins: true, inode: 1 };
        let tree = Box::new(MemoryEngine::new());
        let (engine, _) = LoggedEngine::open(tree, Box::new(space), [0; 16], opened).unwrap();
        let mut txn = engine.begin_write().unwrap();
        txn.put(Tree::Rows, b"key", &[b"value"]).unwrap();
        txn.commit().unwrap();
        assert!(engine.pending() > 0);
        // Far less than half a segment, so only the age of the record starts the checkpoint.
        let comes = |is_so: &dyn Fn() -> bool| {
            let begin = Instant::now();
            while !is_so() {
                assert!(begin.elapsed().as_secs() < 60, "it did not come");
                thread::sleep(TICK);
            }
        };
        comes(&|| asked.lock().unwrap().iter().any(|(what, _)| *what == "sync of all"));
        comes(&|| engine.pending() == 0);
        let kept = engine.begin_read().unwrap();
        assert_eq!(kept.get(Tree::Rows, b"key").unwrap(), Some(&b"value"[..]));
    }

    /// Put rows, each half as long as a chunk of the log, through an engine whose space records
    /// which chunks were prepared.
    fn prepared_by(puts: u32, syncs: bool, awaited: Option<usize>) -> Vec<usize> {
        const SEGMENT_SIZE: usize = 64 << 16;
        let asked = Asked::default();
        let space = Noted(MemorySpace::new(words_for(SEGMENT_SIZE)), Arc::clone(&asked));
        let opened = Opened { is_alone: true, joins: true, inode: 1 };
        let tree = Box::new(MemoryEngine::new());
        let (engine, _) = LoggedEngine::open(tree, Box::new(space), [0; 16], opened).unwrap();
        let prepared = || {
            let asked = asked.lock().unwrap();
            let words = asked.iter().filter(|(what, _)| *what == "prepare").map(|(_, words)| words.start);
            // Chunk numbers, of both segments in turn.
            words.map(|start| (start - words_for(0)) / (1 << 13)).collect::<Vec<_>>()
        };
        for number in 0..puts {
            let mut txn = engine.begin_write().unwrap();
            txn.put(Tree::Rows, &number.to_be_bytes(), &[&vec![7; 30 << 10]]).unwrap();
            txn.commit().unwrap();
            if syncs {
                engine.sync().unwrap();
            }
        }
        thread::sleep(2 * TICK);
        // The thread looks at intervals, even if nothing wakes it.
        let begin = Instant::now();
        while awaited.is_some_and(|awaited| !prepared().contains(&awaited)) && begin.elapsed().as_secs() < 20
        {
            thread::sleep(TICK);
        }
        prepared()
    }

    #[test]
    fn the_chunks_that_are_written_to_next_are_made_ready() {
        let prepared = prepared_by(12, false, Some(12));
        // Six chunks are in use; the other segment's chunks lie between.
        assert!(prepared.iter().all(|chunk| chunk % 2 == 0 && *chunk >= 4), "{prepared:?}");
        assert!(prepared.contains(&12) && prepared.iter().all(|chunk| *chunk <= 2 * (5 + 5)), "{prepared:?}");
        assert_eq!(prepared_by(1, false, None), [], "a second chunk may not be needed");
        assert_eq!(prepared_by(12, true, None), [], "to wait for the disk takes longer");
    }

    #[test]
    fn a_writer_in_the_way_puts_the_rest_of_the_log_off() {
        let tree = Box::new(MemoryEngine::new());
        let engine = LoggedEngine::in_memory(tree, 16 << 20).unwrap();
        let (shared, tail) = (&engine.shared, engine.shared.segments.tail());
        let mut watch = Watch::new();
        let mut is_done_when_due = || {
            watch.rests = Some((tail, Some(Instant::now())));
            watch.work_when_idle(shared);
            matches!(watch.rests, Some((_, None)))
        };
        let lock = shared.lock(None).unwrap();
        assert!(lock.is_some() && !is_done_when_due());
        drop(lock);
        // What a dead process has left in a segment is no reason to keep it.
        shared.segments.set_found(&Held::alone(), true);
        assert!(is_done_when_due() && !shared.segments.has_found());
        watch.work_when_idle(shared);
        assert!(matches!(watch.rests, Some((_, None))), "it is done once");
        watch.rests = Some((tail + 1, None));
        watch.work_when_idle(shared);
        assert!(matches!(watch.rests, Some((_, Some(_)))), "there was a commit");
    }

    #[test]
    fn the_file_is_looked_at_some_seconds_after_a_load_whatever_was_in_vain_before() {
        let engine = LoggedEngine::in_memory(Box::new(MemoryEngine::new()), 1 << 20).unwrap();
        let mut watch = Watch::new();
        let (begin, ends) = (Instant::now(), AtomicBool::new(false));
        let mut free_at_after = |bytes_per_second| {
            (watch.free_at, watch.free_interval) = (begin, FREE_INTERVAL_MAX);
            watch.pace.bytes_per_second = bytes_per_second;
            watch.shorten(&engine.shared, &ends);
            (watch.free_at >= begin + FREE_INTERVAL, watch.free_interval)
        };
        assert_eq!(free_at_after(LOAD), (true, FREE_INTERVAL));
        // Some commits now and then do not put it off: what they wait for may never come.
        assert_eq!(free_at_after(LOW_LOAD), (false, FREE_INTERVAL_MAX));
    }

    #[test]
    fn a_checkpoint_that_found_somebody_in_the_way_is_tried_again_at_once() {
        let since = Some(Instant::now());
        assert_eq!(waiting_since(since, &Ok(Done::InTheWay(BusyLock::Writer))), since);
        assert_eq!(waiting_since(since, &Ok(Done::Nothing)), None);
        // A checkpoint that fails at the disk is not tried twenty times a second.
        assert_eq!(waiting_since(since, &Err(EngineError::Broken)), None);
    }
}
