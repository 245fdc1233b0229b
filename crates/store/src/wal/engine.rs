//! The engine that combines log and tree: reads merge both, commits go into the log.
//!
//! The tree is written by checkpoints, and by transactions too large for the log.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::engine::error::check_memory;
use crate::engine::{CommitFeed, Engine, EngineError, FileCare, ReadTxn, Tree, TreeFile, Usage, WriteTxn};
use crate::sys::latch::{Latch, LatchGuard};
use crate::sys::memory;
use crate::sys::reclaim::Reclaimer;
use crate::sys::steps::{Step, reached};
use crate::wal::budget::size_at_rest;
use crate::wal::checkpointer::Checkpointer;
use crate::wal::history;
use crate::wal::lock::{self, Held, Taken};
use crate::wal::memtable::Memtable;
use crate::wal::read::LoggedRead;
use crate::wal::refill::Ahead;
use crate::wal::segments::{FORMAT, Foreign, Segments, words_for};
use crate::wal::space::{MemorySpace, Space};
use crate::wal::state::{State, check_version, newest};
use crate::wal::sync::{SyncError, SyncScope, Unsynced};
use crate::wal::takeover;
use crate::wal::write::LoggedWrite;
use crate::wal::write_batch::WriteBatch;

/// An engine whose commits are WAL records in a log.
pub struct LoggedEngine {
    /// Set by the first writer. Dropped before the rest, which its thread has released by then.
    checkpointer: Mutex<Option<Checkpointer>>,
    pub(crate) has_checkpointer: AtomicBool,
    pub(crate) shared: Arc<Shared>,
}

/// What the engine shares with its transactions.
pub(crate) struct Shared {
    pub(crate) tree: Box<dyn Engine>,
    pub(crate) segments: Segments,
    pub(crate) state: Latch<State>,
    /// How many WAL records the log had at open that the tree did not have.
    recovered: u64,
    /// Whether the pages that the next checkpoint touches must be verified first: a dead process
    /// left the file, and its state is unknown.
    pub(crate) is_unproven: AtomicBool,
    /// Where the log ended when this process opened it: what a dead process left is before that.
    pub(crate) found_until: u64,
    /// Whether a thread of this process writes a segment into the tree.
    pub(crate) is_applying: AtomicBool,
    /// Whether a writer has sealed a segment for the checkpointer.
    pub(crate) has_work: AtomicBool,
    /// Whether the checkpointer makes the file shorter when much of it is free.
    pub(super) compacts: AtomicBool,
    /// Held while a thread syncs a newly created file. Other threads wait for it and then need not
    /// sync again.
    birth: Mutex<()>,
    /// The reserve for large values, as far as this process refills it.
    pub(super) ahead: Mutex<Ahead>,
    /// Memtables that the tree has, for the checkpointer to free: to free a large one takes longer
    /// than a put should.
    retired: Mutex<Vec<Arc<Memtable>>>,
}

/// The circumstances in which a log is opened.
#[derive(Clone, Copy)]
pub(crate) struct Opened {
    /// No other member has the log or can become one meanwhile. Others may read a copy of it, or
    /// read it without joining.
    pub(crate) is_alone: bool,
    /// This process may write the log and becomes a member. One that does not, and is alone, has a
    /// copy of the log.
    pub(crate) joins: bool,
    /// The data file's inode.
    pub(crate) inode: u64,
}

/// What opening a log has found.
#[derive(Clone, Copy)]
pub(crate) struct Met {
    /// How many acknowledged WAL records were lost, and no writer was told so yet.
    pub(crate) lost: u64,
    /// The last WAL record that the tree has.
    pub(crate) applied: u64,
}

impl LoggedEngine {
    /// Put a log over a tree. If no other process has it open, an empty space becomes a log. Also
    /// returns what the user should know.
    pub(crate) fn open(
        tree: Box<dyn Engine>,
        space: Box<dyn Space>,
        identity: [u8; 16],
        opened: Opened,
    ) -> Result<(Self, Met), EngineError> {
        let mut segments = Segments::new(space, identity).over(&*tree);
        segments.is_copy = opened.is_alone && !opened.joins;
        if opened.is_alone {
            check_version(&*tree)?;
        }
        let is_found = opened.is_alone && opened.joins && !segments.is_new();
        if is_found {
            sync_found_tree(&*tree, &segments)?;
        }
        let (_, applied) = newest(&*tree)?;
        match segments.identify(opened.is_alone) {
            Ok(()) if opened.is_alone => {
                takeover::take_over(&segments, applied)?;
                if opened.joins && segments.has_unsynced_file() {
                    // `sync_found_tree` has synced the file itself.
                    segments.space().sync_names().map_err(|error| {
                        segments.note_failure(Unsynced::Log, &error);
                        EngineError::of_system(error)
                    })?;
                    segments.set_unsynced_file(0);
                }
            }
            Ok(()) => {}
            Err(Foreign::Empty) if opened.is_alone => {
                // The process that made the file may have died before it made a log. Only the
                // second commit proves that the first is on the disk.
                let unsynced_file = if tree.version() <= 1 { opened.inode } else { 0 };
                let created = segments.create(applied.position, applied.sequence, unsynced_file);
                created.map_err(EngineError::of_system)?;
            }
            Err(foreign) => return Err(foreign_log_error(foreign)),
        }
        if opened.joins {
            segments.introduce();
            segments.show_memory(false);
            // We have only just joined: if our number stands in a word, a dead member with the same
            // number left it.
            lock::leave_to_recovery(&segments);
            lock::release_tree(&segments);
            segments.leave_syncer();
        }
        let state = State::new(&*tree)?;
        let recovered = segments.sequence().saturating_sub(applied.sequence);
        // A second process may have to write the records that the first one found and has not
        // written.
        let is_unproven = if opened.is_alone { recovered > 0 } else { segments.has_found() };
        give_back_tail(&*tree, is_found, is_unproven)?;
        let shared = Arc::new(Shared {
            tree,
            found_until: segments.tail(),
            segments,
            state: Latch::new(state),
            is_unproven: AtomicBool::new(is_unproven),
            is_applying: AtomicBool::new(false),
            recovered: if opened.is_alone { recovered } else { 0 },
            has_work: AtomicBool::new(false),
            compacts: AtomicBool::new(false),
            birth: Mutex::new(()),
            ahead: Mutex::default(),
            retired: Mutex::default(),
        });
        let met = Met { lost: shared.segments.lost(), applied: applied.sequence };
        Ok((Self { checkpointer: Mutex::new(None), has_checkpointer: AtomicBool::new(false), shared }, met))
    }

    /// Take over the commits in the log, as a process that may write the tree or not.
    pub(crate) fn begin(&self, opened: Opened, writes: bool) -> Result<(), EngineError> {
        const PATIENCE: Duration = Duration::from_secs(3);
        if writes && opened.is_alone {
            return self.take_over();
        }
        // If there is no checkpoint now, this process's memtables take the memory.
        let begin = Instant::now();
        while opened.joins
            && !opened.is_alone
            && self.shared.segments.takes_too_much(self.shared.pending())
            && begin.elapsed() < PATIENCE
        {
            if writes {
                self.shared.checkpoint_all(PATIENCE, PATIENCE, &mut || true)?;
            } else {
                // The writers have less room from now on, and run one soon.
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.shared.read().map(drop)
    }

    /// Write the recovered records into the tree. The caller is alone and writes. It has no
    /// memtable of them, for which there may be no memory.
    fn take_over(&self) -> Result<(), EngineError> {
        if self.shared.recovered > 0 {
            self.shared.checkpoint_all(Duration::ZERO, Duration::ZERO, &mut || true)?;
            // What dead processes had set aside. The list of free pages was proved before.
            let freed = match self.shared.lock(Some(Instant::now()))? {
                Some(lock) => self.shared.free_reserve(&lock, Instant::now()),
                None => Ok(()),
            };
            match freed {
                // It is freed when a large value is written next.
                Err(EngineError::DiskFull(_)) => {}
                done => done?,
            }
        }
        self.shared.segments.forget_failure();
        Ok(())
    }

    /// Set how much memory this process may take for its memtables.
    pub(crate) fn set_memory(&self, memory: u64) {
        self.shared.segments.set_memory(memory);
    }

    /// Set whether the file is made shorter when much of it is free and little is written.
    pub(crate) fn set_auto_compact(&self, compacts: bool) {
        self.shared.compacts.store(compacts, Ordering::Relaxed);
    }

    /// Store the PID namespace of the log's processes. True if another namespace stood there
    /// before.
    pub(crate) fn meet_namespace(&self, own: u64) -> bool {
        self.shared.segments.meet_namespace(own)
    }

    /// Whether the log token of the data file names another log than this one. That log may have
    /// commits which neither the file nor this log has.
    pub(crate) fn misses_log(&self, log_token: u64) -> bool {
        let segments = &self.shared.segments;
        if segments.token() == 0 {
            // A power cut took the token. That this log lies here makes it the right one.
            let other = segments.head(segments.active()).map_or(1, |head| head.salt);
            segments.set_token(if log_token == 0 { other } else { log_token });
        }
        log_token != 0 && segments.token() != log_token
    }

    /// Put a log in this process's memory over a tree, with segments of this many bytes. For tests.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub fn in_memory(tree: Box<dyn Engine>, segment_size: usize) -> Result<Self, EngineError> {
        let space = Box::new(MemorySpace::new(words_for(segment_size)));
        Ok(Self::open(tree, space, [0; 16], Opened { is_alone: true, joins: true, inode: 1 })?.0)
    }
}

impl LoggedEngine {
    /// The first step of a transaction that may wait.
    fn prepare_to_write(&self) -> Result<(), EngineError> {
        if !memory::has_room(memory::HEADROOM) {
            // Memtables of the last commits take most of the memory until the tree has them. A
            // later caller sees any error.
            let _ = self.shared.checkpoint_all(Duration::ZERO, Duration::ZERO, &mut || true);
            drop(self.shared.read()?);
            check_memory(0, "a transaction")?;
        }
        self.start_checkpointer()
    }

    /// The first writer starts the checkpointer.
    fn start_checkpointer(&self) -> Result<(), EngineError> {
        if self.has_checkpointer.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut checkpointer = self.checkpointer.lock().unwrap_or_else(PoisonError::into_inner);
        if checkpointer.is_none() {
            *checkpointer = Some(Checkpointer::start(&self.shared).map_err(EngineError::Io)?);
            self.shared.state().keeps = true;
            self.shared.segments.show_memory(true);
            self.shared.segments.learn_memory();
            self.shared.segments.fit_to(self.shared.tree.tree_file());
            self.has_checkpointer.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Make sure that the tree is on the disk and shows its newest commit, although its last writer may
/// have died. The segment that holds the same commits is about to be begun anew. The log cannot
/// tell whether this is needed: its first page is not trusted.
pub(crate) fn sync_found_tree(tree: &dyn Engine, segments: &Segments) -> Result<(), EngineError> {
    // As in `recover`: readers do not see the commit of a writer that died right after it until the
    // tree's lock was taken once.
    drop(tree.begin_write()?);
    if segments.has_failed_tree()
        && let Some(file) = tree.tree_file()
    {
        file.write_again()?;
    }
    if let Err(error) = tree.sync() {
        // Do not note the failure in the log of another database: its owner would see it.
        let is_ours = matches!(segments.identify(false), Ok(()) | Err(Foreign::Empty));
        return Err(if is_ours { segments.tree_not_synced(error) } else { error });
    }
    segments.forget_failed_tree();
    Ok(())
}

/// Give back what a dead process has left after the end of the tree's file, now that its log is not
/// refused. If commits of it are to be replayed, its pages are proved before that.
fn give_back_tail(tree: &dyn Engine, is_found: bool, is_unproven: bool) -> Result<(), EngineError> {
    let Some(file) = tree.tree_file() else { return Ok(()) };
    file.keep_tail(is_unproven);
    if is_found && !is_unproven {
        drop(tree.begin_write()?);
    }
    Ok(())
}

impl Segments {
    /// Note in the log that the tree could not be synced, if that is what the error says.
    pub(crate) fn tree_not_synced(&self, error: EngineError) -> EngineError {
        if let EngineError::Io(source) | EngineError::DiskFull(source) = &error {
            self.note_failure(Unsynced::Tree, source);
        }
        error
    }
}

/// The message for the log of another database. It comes before any message about its content.
pub(crate) const OF_ANOTHER: &str = "it is the log of another database";

/// The error for a file that lies where the log should be, with what to do about it.
fn foreign_log_error(foreign: Foreign) -> EngineError {
    EngineError::ForeignLog(match foreign {
        Foreign::Newer(found) => return EngineError::NewerLog { found, newest: FORMAT as u16 },
        Foreign::Identity => OF_ANOTHER,
        Foreign::Empty | Foreign::NoLog => {
            "it is no log, or one whose first page is damaged; move it away if you can do without the last commits"
        }
    })
}

impl Shared {
    pub(crate) fn state(&self) -> LatchGuard<'_, State> {
        // Memtables only grow, so a thread that panicked has left at worst a WAL record to be read
        // again.
        self.state.lock()
    }

    /// The same, or `None` if another thread holds it.
    #[inline]
    pub(crate) fn try_state(&self) -> Option<LatchGuard<'_, State>> {
        self.state.try_lock()
    }

    /// A snapshot of the newest version.
    pub(crate) fn read(&self) -> Result<LoggedRead, EngineError> {
        let mut state = self.state();
        let tree = state.read(&*self.tree, &self.segments)?;
        Ok(LoggedRead::new(&state, tree))
    }

    /// As `read`, for a writer; also returns memory for its writes.
    pub(crate) fn read_to_write(&self, _held: &Held) -> Result<(LoggedRead, WriteBatch), EngineError> {
        let mut state = self.state();
        let tree = state.read(&*self.tree, &self.segments)?;
        Ok((LoggedRead::new(&state, tree), state.take_write_batch(&self.segments)))
    }

    /// As `read_to_write`; `None` if another thread holds the state.
    fn try_read_to_write(&self, _held: &Held) -> Result<Option<(LoggedRead, WriteBatch)>, EngineError> {
        let Some(mut state) = self.try_state() else { return Ok(None) };
        let tree = state.read(&*self.tree, &self.segments)?;
        Ok(Some((LoggedRead::new(&state, tree), state.take_write_batch(&self.segments))))
    }

    /// Sync all commits that are acknowledged now to the disk.
    pub(crate) fn sync(&self, scope: SyncScope) -> Result<(), EngineError> {
        if !self.segments.is_of_member() {
            // A process without the right to write leaves the sync to the processes that write.
            return Ok(());
        }
        self.sync_new_file().map_err(|error| match error {
            EngineError::Broken => self.failed_before(self.segments.failure()),
            error => error,
        })?;
        self.segments.sync(scope).map_err(|error| match error {
            SyncError::Now(source) => EngineError::SyncFailed(source),
            SyncError::Before(source) => self.failed_before(source),
        })
    }

    /// The error for a caller if another thread or process got the error of a failed sync. It is
    /// `SyncFailed` if this process has commits that are not on the disk.
    fn failed_before(&self, source: std::io::Error) -> EngineError {
        if self.segments.has_unsynced_of_own() {
            EngineError::SyncFailed(source)
        } else {
            EngineError::Broken
        }
    }

    /// [D5] Sync the newly created data file and its name. This happens before any commit is
    /// reported as durable and before the tree is written to, so a file whose creation a power cut
    /// interrupted is never longer than it was made.
    pub(crate) fn sync_new_file(&self) -> Result<(), EngineError> {
        if !self.segments.has_unsynced_file() {
            return Ok(());
        }
        let _birth = self.birth.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.segments.has_unsynced_file() {
            return Ok(());
        }
        self.check_sound()?;
        let synced =
            self.tree.sync().and_then(|()| self.segments.space().sync_names().map_err(EngineError::Io));
        synced.map_err(|error| self.not_synced(error))?;
        self.segments.set_unsynced_file(0);
        Ok(())
    }

    /// Note that the newly created file, or its name, could not be synced.
    fn not_synced(&self, error: EngineError) -> EngineError {
        match error {
            EngineError::Io(source) | EngineError::DiskFull(source) => {
                self.segments.note_failure(Unsynced::Log, &source);
                EngineError::SyncFailed(source)
            }
            error => error,
        }
    }

    /// [D3] Refuse a new commit if earlier ones may be lost.
    pub(crate) fn check_sound(&self) -> Result<(), EngineError> {
        if self.segments.has_failed() { Err(EngineError::Broken) } else { Ok(()) }
    }

    /// Leave a memtable that the tree has to the checkpointer, if there is one.
    pub(crate) fn retire(&self, memtable: Arc<Memtable>) {
        if self.state().keeps {
            self.retired.lock().unwrap_or_else(PoisonError::into_inner).push(memtable);
        }
    }

    /// Free the retired memtables that have no other user.
    pub(crate) fn free_retired(&self) {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        let spent = retired.extract_if(.., |memtable| Arc::strong_count(memtable) == 1);
        let spent: Vec<_> = spent.collect();
        drop(retired);
        drop(spent);
    }

    /// Set the limit of the log for what is known now.
    pub(crate) fn fit_log(&self) {
        self.segments.learn_memory();
        if let Some(last) = self.state().memtables.last() {
            self.segments.weigh(&last.memtable, last.end - last.head.begin);
        }
        self.segments.fit_to(self.tree.tree_file());
    }

    /// Give back what the log has taken under load. Returns false, and does nothing, if a commit is
    /// not in the tree yet or a writer is at work.
    pub(crate) fn rest(self: &Arc<Self>) -> Result<bool, EngineError> {
        {
            let mut state = self.state();
            state.catch_up(&*self.tree, &self.segments)?;
            state.forget_applied(&*self.tree, &self.segments)?;
        }
        self.free_retired();
        let size = size_at_rest(self.tree.tree_file().map_or(0, TreeFile::size));
        if self.segments.space().size() <= size + size / 2 {
            return Ok(true);
        }
        let Some(lock) = self.lock(Some(Instant::now()))? else { return Ok(false) };
        // What was found after a death is in the tree by now, but still in the segment as well.
        if self.pending() > 0 || self.seal(&lock)? {
            return Ok(false);
        }
        self.segments.shrink(&lock, size).map_err(EngineError::of_system)?;
        Ok(true)
    }

    /// Close the cached read transaction of the tree: it would keep old pages from being used
    /// again.
    pub(crate) fn release(&self) {
        self.state().release();
    }

    /// The same, if it is not of the newest version.
    pub(crate) fn release_older(&self) {
        self.state().release_older(&*self.tree);
    }

    /// Take the writer lock, and recover the log if the last owner died. `None` when the deadline
    /// passed.
    pub(crate) fn lock(
        self: &Arc<Self>,
        deadline: Option<Instant>,
    ) -> Result<Option<WriterLock>, EngineError> {
        let Some((taken, held)) = lock::acquire(&self.segments, deadline) else { return Ok(None) };
        if taken == Taken::OverFromDead {
            reached(Step::TakenOver);
            let recovered = self.recover(&held, deadline);
            if !matches!(recovered, Ok(true)) {
                // If the lock were released, the next process would take it as free, and the log as
                // complete.
                lock::leave_to_recovery(&self.segments);
                return recovered.map(|_| None).map_err(EngineError::before_commit);
            }
        }
        Ok(Some(WriterLock { shared: Arc::clone(self), held }))
    }

    /// Recover the log after the owner of the writer lock died. False if the tree was locked until
    /// the deadline.
    fn recover(self: &Arc<Self>, held: &Held, deadline: Option<Instant>) -> Result<bool, EngineError> {
        const WITHOUT_END: Duration = Duration::from_secs(1 << 30);
        // The owner may have died in a commit of the tree, which readers do not see until the
        // tree's lock is taken once. If a bulk commit appeared only after others had been appended,
        // it would have taken their place.
        let Some((_lock, txn)) = self.begin_tree(deadline.unwrap_or_else(|| Instant::now() + WITHOUT_END))?
        else {
            return Ok(false);
        };
        drop(txn);
        let (_, applied) = newest(&*self.tree)?;
        self.tell_applied(applied)?;
        takeover::recover(&self.segments, held, applied)?;
        reached(Step::Recovered);
        Ok(true)
    }
}

/// The writer lock: the right to append. Dropping it releases the lock.
pub(crate) struct WriterLock {
    shared: Arc<Shared>,
    held: Held,
}

impl Deref for WriterLock {
    type Target = Held;

    fn deref(&self) -> &Held {
        &self.held
    }
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        lock::release(&self.shared.segments);
    }
}

impl Engine for LoggedEngine {
    fn key_size_max(&self) -> usize {
        self.shared.tree.key_size_max()
    }

    fn version(&self) -> u64 {
        self.shared.segments.sequence()
    }

    fn catch_up(&self) -> Result<(), EngineError> {
        // Otherwise the log tells.
        if self.shared.segments.is_copy { self.shared.read().map(drop) } else { Ok(()) }
    }

    fn begin_read(&self) -> Result<Box<dyn ReadTxn>, EngineError> {
        Ok(Box::new(self.shared.read()?))
    }

    fn begin_write(&self) -> Result<Box<dyn WriteTxn>, EngineError> {
        self.prepare_to_write()?;
        let lock = self.shared.lock(None)?.ok_or(EngineError::Misuse("a wait without end has ended"))?;
        Ok(Box::new(LoggedWrite::begin(&self.shared, lock, Duration::MAX)?))
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.shared.sync(SyncScope::Commits)
    }

    fn usage(&self) -> Result<Usage, EngineError> {
        let (read, mut usage) = (self.shared.read()?, self.shared.tree.usage()?);
        for (count, tree) in usage.entries.iter_mut().zip(Tree::ALL) {
            *count = count.saturating_add_signed(read.entries_over(tree)?);
        }
        usage.pending = self.shared.pending();
        usage.recovered = self.shared.recovered;
        usage.log = self.shared.segments.space().size();
        usage.log_limit = words_for(self.shared.segments.room() as usize) as u64 * 8;
        usage.history = history::size(&*self.shared.tree.begin_read()?)?;
        Ok(usage)
    }

    fn commit_feed(&self) -> Option<&dyn CommitFeed> {
        Some(&*self.shared)
    }

    fn tree_file(&self) -> Option<&dyn TreeFile> {
        self.shared.tree.tree_file()
    }

    fn file_care(&self) -> Option<&dyn FileCare> {
        Some(self)
    }
}

impl FileCare for LoggedEngine {
    fn begin_write_until(
        &self,
        deadline: Instant,
        patience: Duration,
    ) -> Result<Option<Box<dyn WriteTxn>>, EngineError> {
        self.prepare_to_write()?;
        match self.shared.lock(Some(deadline))? {
            Some(lock) => Ok(Some(Box::new(LoggedWrite::begin(&self.shared, lock, patience)?))),
            None => Ok(None),
        }
    }

    fn try_begin_write(&self, patience: Duration) -> Result<Option<Box<dyn WriteTxn>>, EngineError> {
        // The first commit starts the checkpointer, on the slow path.
        if !self.has_checkpointer.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Some(held) = lock::try_acquire(&self.shared.segments) else { return Ok(None) };
        let lock = WriterLock { shared: Arc::clone(&self.shared), held };
        self.shared.check_sound()?;
        let Some(begun) = self.shared.try_read_to_write(&lock)? else { return Ok(None) };
        Ok(Some(Box::new(LoggedWrite::new(&self.shared, lock, begun, patience))))
    }

    fn forget_pages(&self) {
        self.shared.state().forget_tree();
    }

    fn trust(&self, is_trusted: bool) -> bool {
        !self.shared.is_unproven.swap(!is_trusted, Ordering::Relaxed)
    }

    fn free_reserve(&self) -> Result<(), EngineError> {
        if !self.shared.segments.has_reserve() {
            return Ok(());
        }
        match self.shared.lock(Some(Instant::now()))? {
            Some(lock) => self.shared.free_reserve(&lock, Instant::now()),
            None => Ok(()),
        }
    }

    fn writer(&self) -> Option<u32> {
        self.shared.segments.writer_pid()
    }

    fn log_token(&self) -> u64 {
        self.shared.segments.token()
    }

    fn pending(&self) -> u64 {
        self.shared.pending()
    }

    fn lost(&self, is_told: bool) -> u64 {
        if is_told {
            self.shared.segments.forget_lost();
        }
        self.shared.segments.lost()
    }

    fn quiet(&self) -> Option<Reclaimer> {
        let mut checkpointer = self.checkpointer.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_checkpointer.store(false, Ordering::Relaxed);
        // The thread touches nothing of the log any more when this returns.
        let reclaimer = checkpointer.take().and_then(Checkpointer::release);
        let mut state = self.shared.state();
        state.keeps = false;
        state.release();
        drop(state);
        self.shared.segments.show_memory(false);
        self.shared.free_retired();
        reclaimer
    }

    fn leave(&self, has_committed: bool) -> Result<(), EngineError> {
        let segments = &self.shared.segments;
        // Only members of the log may note a successful sync. Any process that can write it may
        // note a failed one.
        if segments.has_unsynced_file() && segments.is_of_member() {
            let synced =
                self.shared.tree.sync().and_then(|()| segments.space().sync_names().map_err(EngineError::Io));
            synced.map_err(|error| self.shared.not_synced(error))?;
        }
        if has_committed {
            segments.sync_in_leaving().map_err(EngineError::SyncFailed)?;
        }
        Ok(())
    }

    fn checkpoint_while(
        &self,
        for_writers: Duration,
        for_others: Duration,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<bool, EngineError> {
        Ok(self.shared.checkpoint_all(for_writers, for_others, go_on)?.is_complete())
    }

    fn compact_online(
        &self,
        patience: Duration,
        go_on: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<bool, EngineError> {
        self.shared.compact_online(patience, go_on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::memory::MemoryEngine;

    #[test]
    fn a_quiet_engine_has_no_thread_until_it_is_written_to_again() {
        let engine = LoggedEngine::in_memory(Box::new(MemoryEngine::new()), 1 << 16).unwrap();
        for _ in 0..2 {
            engine.begin_write().unwrap().commit().unwrap();
            assert_eq!(Arc::strong_count(&engine.shared), 2, "the checkpointer's and the engine's own");
            engine.quiet();
            assert_eq!(Arc::strong_count(&engine.shared), 1);
        }
    }

    #[test]
    fn a_commit_of_more_than_a_sixteenth_of_a_segment_is_written_into_the_tree() {
        let engine = LoggedEngine::in_memory(Box::new(MemoryEngine::new()), 1 << 20).unwrap();
        for (size, is_in_log) in [((1 << 16) + 1, false), ((1 << 16) - 100, true), ((1 << 16) + 1, false)] {
            let (begin, value) = (engine.shared.segments.tail(), vec![size as u8; size]);
            let mut txn = engine.begin_write().unwrap();
            txn.put(Tree::Rows, b"key", &[&value]).unwrap();
            txn.commit().unwrap();
            // It takes a position among the other commits either way.
            assert_eq!(engine.shared.segments.tail() - begin > size as u64, is_in_log);
            assert_eq!(engine.pending() > 0, is_in_log);
            assert_eq!(engine.begin_read().unwrap().get(Tree::Rows, b"key").unwrap(), Some(&value[..]));
        }
    }

    #[test]
    fn a_writer_goes_on_in_the_other_segment_while_the_tree_is_locked() {
        const PATIENCE: Duration = Duration::from_secs(60);
        let engine = LoggedEngine::in_memory(Box::new(MemoryEngine::new()), 1 << 16).unwrap();
        let until = Instant::now() + PATIENCE;
        let put = |number: u32| {
            let mut txn = engine.begin_write_until(until, PATIENCE).unwrap().unwrap();
            txn.put(Tree::Rows, &number.to_be_bytes(), &[&[7; 4_000]]).unwrap();
            txn.commit().unwrap();
        };
        put(0);
        // Who runs a checkpoint waits for this.
        let held = engine.shared.begin_tree(until).unwrap().unwrap();
        let (active, begin) = (engine.shared.segments.active(), Instant::now());
        let numbers: Vec<u32> = (1..)
            .inspect(|number| put(*number))
            .take_while(|_| engine.shared.segments.active() == active)
            .collect();
        assert!(begin.elapsed() < PATIENCE / 2, "it has waited for the tree");
        drop(held);
        let read = engine.begin_read().unwrap();
        assert!(numbers.iter().all(|number| read.get(Tree::Rows, &number.to_be_bytes()).unwrap().is_some()));
    }

    #[test]
    fn what_is_tried_waits_for_nobody() {
        let engine = LoggedEngine::in_memory(Box::new(MemoryEngine::new()), 1 << 16).unwrap();
        let begin = || engine.try_begin_write(Duration::ZERO).unwrap();
        assert!(begin().is_none(), "the checkpointer has yet to be started");
        let txn = engine.begin_write().unwrap();
        assert!(begin().is_none(), "another one writes");
        drop(txn);
        let state = engine.shared.state();
        assert!(begin().is_none(), "another thread takes over what was committed");
        drop(state);
        let put = |mut txn: Box<dyn WriteTxn>, size: usize| {
            txn.put(Tree::Rows, b"key", &[&vec![0; size]]).unwrap();
            txn
        };
        let txn = put(begin().expect("nobody is in the way"), 4_000);
        assert!(txn.commits_without_waiting());
        let state = engine.shared.state();
        assert!(!txn.commits_without_waiting(), "another thread takes over what was committed");
        drop(state);
        txn.commit().unwrap();
        assert!(
            !put(engine.begin_write().unwrap(), 5_000).commits_without_waiting(),
            "it goes into the tree"
        );
        // Until a checkpoint has to make room.
        loop {
            let txn = put(engine.begin_write().unwrap(), 4_000);
            if !txn.commits_without_waiting() {
                break;
            }
            txn.commit().unwrap();
        }
        let read = engine.begin_read().unwrap();
        assert_eq!(read.get(Tree::Rows, b"key").unwrap().map(<[u8]>::len), Some(4_000));
    }
}
