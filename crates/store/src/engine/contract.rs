//! The engine contract: what an ordered key-value engine does for the store.
//!
//! Three trees of byte strings in memcmp order. Any number of readers that each see one version,
//! one writer at a time, savepoints inside its transaction, and commits that are all or nothing.
//! The store above knows nothing else. The LMDB engine and the memory engine pass the same contract
//! suite.
//!
//! `Engine` is what each engine has, with `RowAccess` for single rows. The rest is behind an
//! `Option`: `CommitFeed` for watchers, `TreeFile` of an engine whose trees are in a file, and
//! `FileCare` of the log over it.
//!
//! Not here: key codes, cells, and which process may open a file. An engine knows nothing of tables
//! except how to count their rows. The write-ahead log (`wal`) is between this contract and the
//! tables: it needs exactly this of an engine, and commits to it at checkpoints.

use std::sync::Arc;
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::xxh3_64;

use crate::engine::error::Result;
use crate::engine::extents::Extents;
use crate::engine::history::{Keep, Next, WatchPosition};
use crate::engine::moves::{Fullness, MovesPages, TailEntry, Underfilled};
use crate::engine::other_rows::OtherRows;
use crate::engine::usage::{FileSize, OldestReader, Usage};
use crate::row_key::TableId;
use crate::sys::bell::Bell;
use crate::sys::reclaim::Reclaimer;

/// The trees of one database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tree {
    /// Header, counters, tables, shapes.
    Meta,
    /// Every row of every table.
    Rows,
    /// Values too large to be stored among the rows.
    Blobs,
}

impl Tree {
    /// All trees, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Meta, Self::Rows, Self::Blobs];

    /// The tree's number, to index arrays with one item for each tree.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name by which the tree is known on disk.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Rows => "rows",
            Self::Blobs => "blobs",
        }
    }
}

/// A change of a key: its tree, the key, and whether it is deleted. Trees come in the order of
/// [`Tree::ALL`], the keys of each in key order; one that is put and deleted in turn comes twice.
pub type Change<'k> = (Tree, &'k [u8], bool);

/// A key and its value, in the engine's own memory.
pub type Entry<'t> = (&'t [u8], &'t [u8]);

/// An entry, or `None` at the end of a walk.
pub type EntryResult<'t> = Result<Option<Entry<'t>>>;

/// Where `Contents::find_many` has found an entry. It is a hint, which is verified before it is
/// used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryPlace {
    /// A number for the version of the tree, which no other version in this process has; 0: not
    /// found.
    pub(crate) version: u64,
    pub(crate) page: u64,
    pub(crate) index: usize,
}

impl EntryPlace {
    /// Whether both entries are on one page.
    pub(crate) fn is_near(self, other: Self) -> bool {
        self.version != 0 && self.page == other.page
    }
}

/// The result of one `fill`: some entries in walking order, at least one unless the walk is over.
#[derive(Default)]
pub struct Batch<'t> {
    /// The entries, in walking order.
    pub entries: Vec<Entry<'t>>,
}

/// Which way a cursor walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Reverse,
}

/// Where a walk begins.
#[derive(Clone, Copy, Debug)]
pub enum Start<'k> {
    /// At the tree's first entry, or its last in reverse.
    Edge,
    /// Forward: at the first entry not below the key. Reverse: at the last entry below it.
    At(&'k [u8]),
}

/// What to do with a row (`RowAccess::change_row`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Put the value that was written into the buffer.
    Put,
    /// Delete the row.
    Delete,
    /// Leave all rows as they are: the change needs a transaction.
    Leave,
}

/// Takes a row: its key, and its value unless it is deleted.
pub type TakeRow<'a> = dyn FnMut(&[u8], Option<&[u8]>) + 'a;

/// Decides what to do with a row, appends its new value to the buffer, and adds what has to change
/// with it.
pub type Choose<'a> = dyn FnMut(Option<&[u8]>, &mut Vec<u8>, &mut OtherRows) -> Choice + 'a;

/// A row's key and its XXH3-64. The row's check and the hash indexes need the same hash.
#[derive(Clone, Copy, Debug)]
pub struct HashedKey<'a> {
    /// The key.
    pub bytes: &'a [u8],
    /// The hash.
    pub hash: u64,
}

impl<'a> HashedKey<'a> {
    /// A key with its hash.
    #[inline]
    #[must_use]
    pub fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, hash: xxh3_64(bytes) }
    }
}

/// The outcome of an operation that never waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryResult<T> {
    /// It is done.
    Done(T),
    /// The catalog has changed since. Read it and try again.
    CatalogChanged,
    /// A lock is taken, or the operation needs a transaction: use one.
    UseTransaction,
}

/// The outcome of an access to one row.
pub type TryRow = Result<TryResult<()>>;

impl<T> TryResult<T> {
    /// Convert the result.
    pub fn map<U>(self, work: impl FnOnce(T) -> U) -> TryResult<U> {
        match self {
            Self::Done(done) => TryResult::Done(work(done)),
            Self::CatalogChanged => TryResult::CatalogChanged,
            Self::UseTransaction => TryResult::UseTransaction,
        }
    }
}

/// An ordered key-value engine with snapshots.
pub trait Engine: RowAccess + Send + Sync {
    /// The longest key that it stores.
    fn key_size_max(&self) -> usize;

    /// The version that a read transaction would see if it began now, as far as this process knows
    /// (`catch_up`).
    fn version(&self) -> u64;

    /// Find out what other processes have committed, where `version` does not know that by itself.
    ///
    /// # Errors
    /// As `begin_read`.
    fn catch_up(&self) -> Result<()> {
        Ok(())
    }

    /// Begin to read the newest committed version. Never waits for a writer.
    ///
    /// # Errors
    /// When the engine has no room for another reader, or its file cannot be read.
    fn begin_read(&self) -> Result<Box<dyn ReadTxn>>;

    /// Begin to write. Waits, without a limit, until no other transaction writes. A caller that
    /// wants a limit takes a lock of its own first.
    ///
    /// # Errors
    /// When the database cannot be written, or its writer lock is broken.
    fn begin_write(&self) -> Result<Box<dyn WriteTxn>>;

    /// Make what was committed so far survive a power cut.
    ///
    /// # Errors
    /// Any error of the operating system.
    fn sync(&self) -> Result<()>;

    /// How much room the database takes, and its readers.
    ///
    /// # Errors
    /// When the engine cannot read its own pages.
    fn usage(&self) -> Result<Usage>;

    /// The commits, for watchers. `None` if the engine cannot tell its commits apart.
    fn commit_feed(&self) -> Option<&dyn CommitFeed> {
        None
    }

    /// The file with the pages of the trees. `None` in memory.
    fn tree_file(&self) -> Option<&dyn TreeFile> {
        None
    }

    /// The care of a file that has a log. `None` without a log.
    fn file_care(&self) -> Option<&dyn FileCare> {
        None
    }
}

/// Single rows without a transaction. An engine that cannot do that leaves them to transactions.
pub trait RowAccess {
    /// Change one row in a commit of its own, if that is possible without waiting. `choose` gets
    /// the row, and may append its new value to the buffer, and add to `others`, which is empty.
    /// `known` is the version of the catalog that the caller has read.
    ///
    /// # Errors
    /// As `WriteTxn::commit`; then nothing is changed.
    fn change_row(
        &self,
        _key: HashedKey<'_>,
        _known: u64,
        _others: &mut OtherRows,
        _choose: &mut Choose<'_>,
    ) -> TryRow {
        Ok(TryResult::UseTransaction)
    }

    /// Read one row without a transaction, if that is possible. `known` as for `change_row`.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn show_row(&self, _key: &[u8], _known: u64, _show: &mut dyn FnMut(Option<&[u8]>)) -> TryRow {
        Ok(TryResult::UseTransaction)
    }
}

/// The past commits of an engine.
pub trait CommitFeed {
    /// Return some of the commits after a place, in order, and move the place after them.
    ///
    /// # Errors
    /// `Unsupported` when the engine cannot tell its commits apart.
    fn next_commits(&self, place: &mut WatchPosition) -> Result<Next>;

    /// The oldest version from which on `next_commits` has all commits. Reads each of them.
    ///
    /// # Errors
    /// When the engine cannot read its own pages.
    fn known_since(&self) -> Result<u64>;

    /// Set the limit of the history. For an engine without a file to store it in.
    fn set_keep(&self, _keep: Keep) {}

    /// The bell that each commit rings. Without one, a watch polls.
    fn bell(&self) -> Option<Bell>;
}

/// What the log above an engine needs of the file that has the engine's trees.
pub trait TreeFile {
    /// Refuse another reader if this process has many, and all processes together have so many that
    /// the rest is set aside: for checkpoints, writers and openers, which do not ask, and for
    /// processes with few readers. More is set aside from a snapshot that a program `keeps`.
    ///
    /// # Errors
    /// `ReadersFull`, or when the engine cannot read its reader table.
    fn check_reader_room(&self, keeps: bool) -> Result<()>;

    /// Verify each page that the current write transaction can touch by making these changes. Only
    /// for an engine that would trust its pages otherwise.
    ///
    /// # Errors
    /// `BadPage` for the first page that is not as it was written.
    fn prove(&self, changes: &mut dyn Iterator<Item = Change<'_>>) -> Result<()>;

    /// The file, for large values that are written before their commit. `None` if the engine does
    /// not do that.
    fn extents(&self) -> Option<Arc<dyn Extents>>;

    /// Write every page of the engine's own file once more, unchanged: after a failed sync the
    /// system considers the pages that it has lost as written. The caller is alone with the file.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    fn write_again(&self) -> Result<()>;

    /// Whether to keep the tail of the file: what lies after the last page of the newest version. A
    /// process that died in a transaction may have left pages there. Unless it is kept, each write
    /// transaction cuts the tail when it begins, and when it ends without a commit.
    fn keep_tail(&self, keeps: bool);

    /// Cut the tail, unless it is to be kept. The caller has begun a write transaction, and has
    /// changed nothing yet.
    fn cut_tail(&self);

    /// The oldest read transaction of any process. All is 0 if none sees older pages.
    ///
    /// # Errors
    /// When the engine cannot read its own pages.
    fn oldest_reader(&self) -> Result<OldestReader>;

    /// Bytes of the file up to the last page of the newest version. 0 for an engine without a file.
    fn size(&self) -> u64;
}

/// What an engine with a log does so that several processes can write its file: it waits for
/// writers, copies the log into the trees, and leaves the file to others.
pub trait FileCare {
    /// As `begin_write`, with a deadline: `None` when it passed. `patience` limits later waits of
    /// the transaction. An engine for a single process needs neither.
    ///
    /// # Errors
    /// As `begin_write`.
    fn begin_write_until(&self, deadline: Instant, patience: Duration) -> Result<Option<Box<dyn WriteTxn>>>;

    /// As `begin_write_until`, without waiting: `None` if it would have to wait.
    ///
    /// # Errors
    /// As `begin_write`.
    fn try_begin_write(&self, patience: Duration) -> Result<Option<Box<dyn WriteTxn>>>;

    /// The process that writes now, if known.
    fn writer(&self) -> Option<u32>;

    /// Let the next snapshot read the newest pages, though no entry has changed since the last one.
    fn forget_pages(&self);

    /// Whether to trust the pages from now on. If not, they are verified before the next write that
    /// can wait for it. Returns whether they were trusted.
    fn trust(&self, is_trusted: bool) -> bool;

    /// Free what is set aside for large values. The caller is alone with the database, and the log
    /// has nothing that the engine's own file lacks.
    ///
    /// # Errors
    /// When the file cannot be written; then it stays set aside.
    fn free_reserve(&self) -> Result<()>;

    /// Write the log into the engine's own file: before that file is read by itself, and before the
    /// last process closes it. False if a writer held its lock, or another process wrote the
    /// file, until the wait for it was over.
    ///
    /// # Errors
    /// When the file cannot be written; then the log stays.
    fn checkpoint(&self, for_writers: Duration, for_others: Duration) -> Result<bool> {
        self.checkpoint_while(for_writers, for_others, &mut || true)
    }

    /// As `checkpoint`. `go_on` is called for each entry until the engine's own file is about to be
    /// committed. If it returns false nothing is written, and the result is false.
    ///
    /// # Errors
    /// As `checkpoint`.
    fn checkpoint_while(
        &self,
        for_writers: Duration,
        for_others: Duration,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<bool>;

    /// Make the engine's file shorter while others use it. `go_on` is called with the pages of the
    /// file and those that it should have. Returns false if `go_on` did.
    ///
    /// # Errors
    /// `FileBusy` if others have the file locked for longer than `patience`, or when the file
    /// cannot be written; no entry is lost.
    fn compact_online(&self, patience: Duration, go_on: &mut dyn FnMut(u64, u64) -> bool) -> Result<bool>;

    /// The token that the file has while a log may have commits that it lacks; 0 if none ever has.
    fn log_token(&self) -> u64;

    /// Bytes of commits that are only in the log.
    fn pending(&self) -> u64;

    /// How many commits a power cut took, until a caller that writes `is_told`.
    fn lost(&self, is_told: bool) -> u64;

    /// Stop the background thread until the next write transaction, before other processes may
    /// assume that none has the database open. Returns the thread: it can be given memory to free.
    fn quiet(&self) -> Option<Reclaimer>;

    /// Sync the file and, with `has_committed`, this process's commits, while others go on.
    ///
    /// # Errors
    /// `SyncFailed` when the disk refuses; the other processes get the error as well.
    fn leave(&self, has_committed: bool) -> Result<()>;
}

/// What a transaction sees: one version of the database, with the changes that it has made itself.
pub trait Contents: Send + Sync {
    /// How many more rows a table has than its entry in the catalog says.
    fn rows_beyond(&self, _table: TableId) -> i64 {
        0
    }

    /// The value of a key.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<&[u8]>>;

    /// Find where the entries of several keys are, for `get_at`, as far as that is easily found.
    fn find_many(&self, _tree: Tree, _keys: &[&[u8]], _places: &mut [EntryPlace]) {}

    /// Have the processor fetch what searches for these keys read, in a tree too large for a cache.
    fn ask_for(&self, _tree: Tree, _keys: &[&[u8]]) {}

    /// As `get`, for a key that `find_many` has perhaps found.
    ///
    /// # Errors
    /// As `get`.
    fn get_at(&self, tree: Tree, key: &[u8], _place: EntryPlace) -> Result<Option<&[u8]>> {
        self.get(tree, key)
    }

    /// A new cursor over one tree.
    ///
    /// # Errors
    /// When memory is short.
    fn cursor(&self, tree: Tree) -> Result<Box<dyn Cursor<'_> + '_>>;

    /// The first entry of a walk, for callers that need no more.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn first_from(&self, tree: Tree, start: Start<'_>, direction: Direction) -> EntryResult<'_> {
        let mut cursor = self.cursor(tree)?;
        cursor.start(start, direction)?;
        cursor.step()
    }
}

/// One version of the database, which stays as it is while the transaction lives.
pub trait ReadTxn: Contents {
    /// The version that it sees: the count of commits, or a number that grows with each.
    fn version(&self) -> u64;

    /// The version of the pages that it keeps in place, which a log above them counts separately.
    fn tree_version(&self) -> u64 {
        self.version()
    }

    /// The version that last changed the catalog, or a later one. What was read from the catalog
    /// since then still holds.
    fn catalog_version(&self) -> u64 {
        self.version()
    }

    /// Whether a tree has no entry.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn is_empty(&self, tree: Tree) -> Result<bool> {
        let mut cursor = self.cursor(tree)?;
        cursor.start(Start::Edge, Direction::Forward)?;
        Ok(cursor.step()?.is_none())
    }

    /// Keys from `start` on and below `end` that cut this range into `count` parts or fewer, of
    /// about the same size. None if the engine knows no such keys. They need not be keys of
    /// entries.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn separators(
        &self,
        _tree: Tree,
        _start: &[u8],
        _end: Option<&[u8]>,
        _count: usize,
    ) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    /// The entries of a tree that lie on pages from `from` on, or are reached through such pages,
    /// as far as they have to be known to move these pages. Those on the last pages come first, and
    /// no more than `most` of them. None where the engine has no pages.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn tail_entries(&self, _tree: Tree, _from: u64, _most: usize) -> Result<Vec<TailEntry>> {
        Ok(Vec::new())
    }

    /// How full the pages of a tree are. All is 0 where the engine has no pages.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn fullness(&self, _tree: Tree) -> Result<Fullness> {
        Ok(Fullness::default())
    }

    /// Neighbouring leaves of a tree that are so empty that their entries fit into fewer, in key
    /// order, and no more than `most` times. None where the engine has no pages.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn underfilled(&self, _tree: Tree, _most: usize) -> Result<Vec<Underfilled>> {
        Ok(Vec::new())
    }

    /// Roughly how many entries there are from `start` on and below `end`. `None` if that cannot be
    /// told without counting. Entries that are only in the log are left out.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn entries_between(&self, _tree: Tree, _start: &[u8], _end: Option<&[u8]>) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Let go of the version, and keep what it takes to begin with it again. `None` where that
    /// would save nothing.
    #[must_use]
    fn park(self: Box<Self>) -> Option<Box<dyn Parked>> {
        None
    }
}

/// A read transaction that keeps no version, until it begins again.
pub trait Parked: Send {
    /// Begin again with the same version. `None` if it is not the newest one any more.
    fn begin(self: Box<Self>) -> Option<Box<dyn ReadTxn>>;
}

/// A place in a tree, and a direction.
///
/// Call `start` first. Afterwards `step` and `fill` may be mixed; each continues after the last
/// entry that the other returned.
pub trait Cursor<'t>: Send {
    /// Stand before the first entry of a walk.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn start(&mut self, start: Start<'_>, direction: Direction) -> Result<()>;

    /// The next entry of the walk, or `None` at its end.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn step(&mut self) -> EntryResult<'t>;

    /// Replace the batch by the next entries of the walk: as many as come at no extra cost (LMDB:
    /// the rest of a page). An empty batch is the end.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn fill(&mut self, batch: &mut Batch<'t>) -> Result<()> {
        const STEPS: usize = 32;
        batch.entries.clear();
        for _ in 0..STEPS {
            match self.step()? {
                Some(entry) => batch.entries.push(entry),
                None => break,
            }
        }
        Ok(())
    }
}

/// The write transaction. Dropping it rolls everything back.
///
/// It has no lifetime, but belongs to the thread that began it: `commit`, `abort` and dropping must
/// happen there (`is_owner` tells), because LMDB's writer lock belongs to a thread.
pub trait WriteTxn: Contents + LogBatch {
    /// The version that its commit will have.
    fn version(&self) -> u64;

    /// Whether the calling thread began this transaction.
    fn is_owner(&self) -> bool;

    /// Look a key up and keep its position, for `replace_found` or `delete_found`.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn find(&mut self, tree: Tree, key: &[u8]) -> Result<Option<&[u8]>>;

    /// Replace the value of the entry that the last `find` found by the concatenation of `parts`.
    ///
    /// # Errors
    /// As `put`; `Misuse` when the last call in this tree was not a `find` that found this key.
    fn replace_found(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) -> Result<()>;

    /// Delete the entry that the last `find` found.
    ///
    /// # Errors
    /// As `replace_found`.
    fn delete_found(&mut self, tree: Tree, key: &[u8]) -> Result<()>;

    /// Set a key to the concatenation of `parts`.
    ///
    /// # Errors
    /// When the key is too long, or no room is left.
    fn put(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) -> Result<()>;

    /// As `put`, for a key above every key in the tree; fills pages completely. Returns false, and
    /// writes nothing, when the key is not above.
    ///
    /// # Errors
    /// As `put`.
    fn append(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) -> Result<bool>;

    /// Delete a key. Returns whether it was there.
    ///
    /// # Errors
    /// When no room is left to copy a page.
    fn delete(&mut self, tree: Tree, key: &[u8]) -> Result<bool> {
        if self.find(tree, key)?.is_none() {
            return Ok(false);
        }
        self.delete_found(tree, key)?;
        Ok(true)
    }

    /// Delete everything in one tree.
    ///
    /// # Errors
    /// As `delete`.
    fn clear(&mut self, tree: Tree) -> Result<()>;

    /// Set a savepoint. Savepoints nest.
    ///
    /// # Errors
    /// When memory is short.
    fn savepoint(&mut self) -> Result<()>;

    /// Roll back to the innermost savepoint, and remove it.
    ///
    /// # Errors
    /// `Misuse` when there is none.
    fn rollback(&mut self) -> Result<()>;

    /// Remove the innermost savepoint and keep what was written since.
    ///
    /// # Errors
    /// `Misuse` when there is none.
    fn release(&mut self) -> Result<()>;

    /// The transaction, to take, give and move pages. `None` where it has savepoints, or no pages.
    fn pages(&mut self) -> Option<&mut dyn MovesPages> {
        None
    }

    /// The file's size after the commit.
    ///
    /// # Errors
    /// Any error of the operating system.
    fn file_size(&self) -> Result<FileSize> {
        Ok(FileSize::default())
    }

    /// Make all changes visible and durable, open savepoints included.
    ///
    /// # Errors
    /// When they could not be written; then none of them is visible.
    fn commit(self: Box<Self>) -> Result<()>;
}

/// What a write transaction does better where a log keeps its changes in memory until the commit.
/// One without a log does nothing of it.
pub trait LogBatch {
    /// Whether `commit` would finish soon, without waiting for another thread, a process or the
    /// disk.
    fn commits_without_waiting(&self) -> bool {
        false
    }

    /// The version that last changed the catalog before this transaction
    /// (`ReadTxn::catalog_version`), if known.
    fn catalog_version(&self) -> Option<u64> {
        None
    }

    /// How many more bytes the transaction can write before it becomes too large for the log, and
    /// writes into the tree. `None` if that makes no difference.
    fn room_in_log(&self) -> Option<usize> {
        None
    }

    /// Take back the rows that were written since the last savepoint and are not in the tree yet,
    /// in the order in which they were written: for each its key and value, or no value for a
    /// delete.
    ///
    /// # Errors
    /// As `put`.
    fn take_rows(&mut self, _take: &mut TakeRow<'_>) -> Result<()> {
        Ok(())
    }

    /// Make the commit count the rows that came and went, so that row counts need not be written to
    /// the catalog. False, and nothing is counted, if that is not possible. Call it before the
    /// commit, after all changes.
    fn counts_rows(&mut self) -> bool {
        false
    }

    /// Put a row whose value is the concatenation of two parts, if the key has no value, or one for
    /// which `may_replace` is true. Returns whether there was one. `None`, and nothing is done, if
    /// the caller has to use `find` first.
    ///
    /// # Errors
    /// As `put`.
    fn put_row(
        &mut self,
        _key: HashedKey<'_>,
        _parts: [&[u8]; 2],
        _may_replace: fn(&[u8]) -> bool,
    ) -> Result<Option<bool>> {
        Ok(None)
    }

    /// Whether `append` is cheaper than `put`, so that it pays to know the tree's last key.
    fn prefers_append(&self) -> bool {
        true
    }
}
