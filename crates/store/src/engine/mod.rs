//! What must an ordered key-value engine do for the store?
//!
//! Three trees of byte strings in memcmp order; any number of readers that each see one version, one
//! writer at a time, savepoints inside it, and commits that are all or nothing. The store above knows
//! nothing else: the LMDB engine and the memory engine pass the same contract suite.
//!
//! Not here: key codes, cells, who may open a file; of tables, only that somebody may count their rows. The write log (`log`)
//! sits between this seam and the tables: it needs of an engine exactly what is here, and commits to it at checkpoints.

pub(crate) mod entry;
pub(crate) mod error;
pub(crate) mod estimate;
pub(crate) mod history;
pub mod lmdb;
pub mod memory;
pub(crate) mod memory_past;
pub(crate) mod parts;
pub(crate) mod pin;

use std::sync::Arc;
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::xxh3_64;

use crate::catalog::row_key::TableId;
pub use crate::engine::error::EngineError;
pub use crate::engine::history::{Commit, Keep, Next, Place, What, Written};
use crate::sys::reclaim::Reclaimer;

/// The trees of one database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tree {
    /// Header, counters, tables, shapes.
    Meta,
    /// Every row of every table.
    Rows,
    /// Values too large to lie among the rows.
    Blobs,
}

impl Tree {
    /// All trees, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Meta, Self::Rows, Self::Blobs];

    /// The tree's number, for arrays that hold something for each tree.
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

/// What is to become of a key: its tree, the key, and whether it is deleted. Trees come in the order of [`Tree::ALL`], the keys of each
/// in their order.
pub type Change<'k> = (Tree, &'k [u8], bool);

/// A key and its value, in the engine's own memory.
pub type Entry<'t> = (&'t [u8], &'t [u8]);

/// What one `fill` brought: some entries in walking order, at least one unless the walk is over.
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

/// What becomes of a row (`Engine::change_row`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// It gets the value that was written into the buffer.
    Put,
    /// It goes.
    Delete,
    /// It stays as it is: what should become of it is too much for this.
    Leave,
}

/// Decides what becomes of a row, and appends its new value to what stands in the buffer.
pub type Choose<'a> = dyn FnMut(Option<&[u8]>, &mut Vec<u8>) -> Choice + 'a;

/// A row's key, and XXH3-64 of it: the row's check and whatever looks it up want the same.
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

/// What became of something that is done at once or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtOnce<T> {
    /// It is done.
    Done(T),
    /// The catalog has changed since; read it, and try again.
    Stale,
    /// Somebody is in the way, or it is too much for this: the way through a transaction is open.
    Unable,
}

impl<T> AtOnce<T> {
    /// Make something else of what is done.
    pub fn map<U>(self, work: impl FnOnce(T) -> U) -> AtOnce<U> {
        match self {
            Self::Done(done) => AtOnce::Done(work(done)),
            Self::Stale => AtOnce::Stale,
            Self::Unable => AtOnce::Unable,
        }
    }
}

/// An ordered key-value engine with snapshots.
pub trait Engine: Send + Sync {
    /// The longest key that it stores.
    fn key_size_max(&self) -> usize;

    /// The version that a read transaction would see if it began now.
    fn version(&self) -> u64;

    /// Begin to read the newest committed version. Never waits for a writer.
    ///
    /// # Errors
    /// When the engine has no room for another reader, or its file cannot be read.
    fn begin_read(&self) -> Result<Box<dyn ReadTxn>, EngineError>;

    /// As `begin_read`, for several to share.
    ///
    /// # Errors
    /// As `begin_read`.
    fn begin_shared_read(&self) -> Result<Arc<dyn ReadTxn>, EngineError> {
        Ok(Arc::from(self.begin_read()?))
    }

    /// Begin to write. Waits, without a limit, until no other transaction writes; whoever wants a limit
    /// takes a lock of their own before.
    ///
    /// # Errors
    /// When the database cannot be written, or its writer lock is broken.
    fn begin_write(&self) -> Result<Box<dyn WriteTxn>, EngineError>;

    /// As `begin_write`, but not beyond a deadline: `None` when that passed. Whatever the transaction has to wait for later, it
    /// waits for with this patience. An engine that one process alone can have needs neither.
    ///
    /// # Errors
    /// As `begin_write`.
    fn begin_write_until(
        &self,
        _deadline: Instant,
        _patience: Duration,
    ) -> Result<Option<Box<dyn WriteTxn>>, EngineError> {
        self.begin_write().map(Some)
    }

    /// As `begin_write_until`, if nobody is in the way: waits for nobody, `None` where it would have to.
    ///
    /// # Errors
    /// As `begin_write`.
    fn begin_write_at_once(&self, _patience: Duration) -> Result<Option<Box<dyn WriteTxn>>, EngineError> {
        Ok(None)
    }

    /// Change one row in a commit of its own, if that can be done at once: `choose` is shown the row, and may append its new value
    /// to the buffer. `known` is the catalog's version on which all this builds. Waits for nobody.
    ///
    /// # Errors
    /// As `WriteTxn::commit`; then nothing is changed.
    fn change_row(
        &self,
        _key: &[u8],
        _known: u64,
        _choose: &mut Choose<'_>,
    ) -> Result<AtOnce<()>, EngineError> {
        Ok(AtOnce::Unable)
    }

    /// As `change_row`, for a value that is known: it is put where there is none, or one that `may_replace` agrees to. Says whether there
    /// was one.
    ///
    /// # Errors
    /// As `change_row`.
    #[inline]
    fn put_row(
        &self,
        key: HashedKey<'_>,
        known: u64,
        value: &[u8],
        may_replace: fn(&[u8]) -> bool,
    ) -> Result<AtOnce<bool>, EngineError> {
        let mut was_there = false;
        let changed = self.change_row(key.bytes, known, &mut |old, out| {
            was_there = old.is_some();
            if !old.is_none_or(may_replace) {
                return Choice::Leave;
            }
            out.extend_from_slice(value);
            Choice::Put
        })?;
        Ok(changed.map(|()| was_there))
    }

    /// Show one row as it is now, if that can be done without a transaction; `known` as for `change_row`.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn show_row(
        &self,
        _key: &[u8],
        _known: u64,
        _show: &mut dyn FnMut(Option<&[u8]>),
    ) -> Result<AtOnce<()>, EngineError> {
        Ok(AtOnce::Unable)
    }

    /// Look at each page that the transaction which writes now can come to by making these changes, where the engine would believe
    /// what its pages say.
    ///
    /// # Errors
    /// `BadPage` for the first that is not as it was written.
    fn prove(&self, _changes: &mut dyn Iterator<Item = Change<'_>>) -> Result<(), EngineError> {
        Ok(())
    }

    /// Believe the pages no more that were believed so far: prove them ahead of the next write that can wait for it.
    fn distrust(&self) {}

    /// The process that writes now, as far as is known.
    fn writer(&self) -> Option<u32> {
        None
    }

    /// Make what was committed so far survive a power cut.
    ///
    /// # Errors
    /// Whatever the operating system says.
    fn sync(&self) -> Result<(), EngineError>;

    /// Write every page of the engine's own file once more, as it is: behind a failed sync the system takes the pages that it has lost for
    /// written. For a process that is alone with the file.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    fn write_again(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Write what lies beside the engine's own file into it: before it is looked at by itself, and before the last one closes.
    /// False when a writer was in the way for so long, or others who do the same were for so long.
    ///
    /// # Errors
    /// When the file cannot be written; what lies beside it stays then.
    fn settle(&self, for_writers: Duration, for_others: Duration) -> Result<bool, EngineError> {
        self.settle_while(for_writers, for_others, &mut || true)
    }

    /// As `settle`; `go_on` is asked with each entry, until the engine's own file is about to be committed. False also where it said no; then
    /// nothing was written.
    ///
    /// # Errors
    /// As `settle`.
    fn settle_while(
        &self,
        _for_writers: Duration,
        _for_others: Duration,
        _go_on: &mut dyn FnMut() -> bool,
    ) -> Result<bool, EngineError> {
        Ok(true)
    }

    /// What the engine's own file is marked by while something that it has not may lie beside it; 0: nothing ever does.
    fn mark(&self) -> u64 {
        0
    }

    /// Bytes of commits that lie beside the engine's own file.
    fn pending(&self) -> u64 {
        0
    }

    /// End what goes on in the background, until the next transaction that writes: before others may believe that nobody has the
    /// database open here. Where there was anything, which is so once something was committed here, the thread that it went on in is left to
    /// end, or to be handed something.
    fn quiet(&self) -> Option<Reclaimer> {
        None
    }

    /// Have what was made, and committed if anything was, reach the disk, where others go on.
    ///
    /// # Errors
    /// `SyncFailed` when the disk refuses; the others are told as well.
    fn leave(&self, _has_committed: bool) -> Result<(), EngineError> {
        Ok(())
    }

    /// Some of the commits behind a place, in order, and move the place behind them. Waits for nobody.
    ///
    /// # Errors
    /// `Unsupported` when the engine does not know its commits one by one.
    fn next_commits(&self, _place: &mut Place) -> Result<Next, EngineError> {
        Err(EngineError::Unsupported("this database cannot be watched: nobody who may write has it open"))
    }

    /// The oldest version from which on `next_commits` knows all commits. Takes a look at each of them.
    ///
    /// # Errors
    /// When the engine cannot read its own books.
    fn known_since(&self) -> Result<u64, EngineError> {
        Ok(self.version())
    }

    /// How far back it is to go, for an engine that has no file to say it in.
    fn set_keep(&self, _keep: Keep) {}

    /// How many versions of the engine's pages the oldest one is behind that anybody reads, in any process; 0 when nobody does,
    /// or nobody needs to know.
    ///
    /// # Errors
    /// When the engine cannot read its own books.
    fn reader_lag(&self) -> Result<u64, EngineError>;

    /// How much room the database takes, and who reads it.
    ///
    /// # Errors
    /// When the engine cannot read its own books.
    fn usage(&self) -> Result<Usage, EngineError>;
}

/// One version of the database, which stays as it is while the transaction lives.
pub trait ReadTxn: Send + Sync {
    /// The version it sees: the count of commits, or a number that grows with each.
    fn version(&self) -> u64;

    /// The version of the pages that it keeps in place, where what lies over them counts otherwise.
    fn tree_version(&self) -> u64 {
        self.version()
    }

    /// The version that changed the catalog last, or a later one: what was read there since then still holds.
    fn catalog_version(&self) -> u64 {
        self.version()
    }

    /// How many more rows a table has than its entry in the catalog says.
    fn rows_beyond(&self, _table: TableId) -> i64 {
        0
    }

    /// The value of a key.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<&[u8]>, EngineError>;

    /// A new cursor over one tree.
    ///
    /// # Errors
    /// When memory is short.
    fn cursor(&self, tree: Tree) -> Result<Box<dyn Cursor<'_> + '_>, EngineError>;

    /// The first entry of a walk, where no more than that is wanted.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn first_from(
        &self,
        tree: Tree,
        start: Start<'_>,
        direction: Direction,
    ) -> Result<Option<Entry<'_>>, EngineError> {
        let mut cursor = self.cursor(tree)?;
        cursor.start(start, direction)?;
        cursor.step()
    }

    /// Whether a tree has no entry.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn is_empty(&self, tree: Tree) -> Result<bool, EngineError> {
        let mut cursor = self.cursor(tree)?;
        cursor.start(Start::Edge, Direction::Forward)?;
        Ok(cursor.step()?.is_none())
    }

    /// Keys from `start` on, below `end`, that part what lies there in `count` parts or fewer, of about the same size; none where the engine
    /// does not know of any. They need not be keys of entries.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn separators(
        &self,
        _tree: Tree,
        _start: &[u8],
        _end: Option<&[u8]>,
        _count: usize,
    ) -> Result<Vec<Vec<u8>>, EngineError> {
        Ok(Vec::new())
    }

    /// How many entries there are from `start` on, below `end`, roughly; `None` where only counting tells. What is not in the tree itself yet
    /// is left out.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn entries_between(
        &self,
        _tree: Tree,
        _start: &[u8],
        _end: Option<&[u8]>,
    ) -> Result<Option<u64>, EngineError> {
        Ok(None)
    }
}

/// A place in a tree, and a direction.
///
/// `start` comes first; afterwards `step` and `fill` may be mixed, and each continues behind what the
/// other gave last.
pub trait Cursor<'t>: Send {
    /// Stand before the first entry of a walk.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn start(&mut self, start: Start<'_>, direction: Direction) -> Result<(), EngineError>;

    /// The next entry of the walk, or `None` at its end.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn step(&mut self) -> Result<Option<Entry<'t>>, EngineError>;

    /// Replace what the batch holds with the next entries of the walk: as many as come at no extra cost
    /// (LMDB: what is left of a page). An empty batch is the end.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn fill(&mut self, batch: &mut Batch<'t>) -> Result<(), EngineError> {
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

/// The one transaction that writes. Dropping it takes everything back.
///
/// Not bound to lifetimes, but to the thread that began it: `commit`, `abort` and dropping must happen
/// there (`is_owner` tells), because LMDB's writer lock belongs to a thread.
pub trait WriteTxn: Send + Sync {
    /// The version that its commit will have.
    fn version(&self) -> u64;

    /// Whether the calling thread began this transaction.
    fn is_owner(&self) -> bool;

    /// Whether `commit` would wait for nobody, neither a disk, and be done soon.
    fn commits_at_once(&self) -> bool {
        false
    }

    /// As [`ReadTxn::rows_beyond`], with the changes made so far.
    fn rows_beyond(&self, _table: TableId) -> i64 {
        0
    }

    /// The version that changed the catalog last ahead of this transaction (`ReadTxn::catalog_version`), where that is known.
    fn catalog_version(&self) -> Option<u64> {
        None
    }

    /// Have the commit count the rows that came and went, so that the catalog need not say how many there are; false, and nothing is
    /// counted, where it cannot tell. Asked ahead of the commit, behind all changes.
    fn counts_rows(&mut self) -> bool {
        false
    }

    /// Put a row whose value is the concatenation of two parts where there is none, or one that `may_replace` agrees to, and say whether there
    /// was one; `None`, and nothing is done, where that takes a look (`find`).
    ///
    /// # Errors
    /// As `put`.
    fn put_row(
        &mut self,
        _key: HashedKey<'_>,
        _parts: [&[u8]; 2],
        _may_replace: fn(&[u8]) -> bool,
    ) -> Result<Option<bool>, EngineError> {
        Ok(None)
    }

    /// The value of a key, with the changes made so far.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<&[u8]>, EngineError>;

    /// A new cursor over one tree, with the changes made so far.
    ///
    /// # Errors
    /// When memory is short.
    fn cursor(&self, tree: Tree) -> Result<Box<dyn Cursor<'_> + '_>, EngineError>;

    /// The first entry of a walk, where no more than that is wanted.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn first_from(
        &self,
        tree: Tree,
        start: Start<'_>,
        direction: Direction,
    ) -> Result<Option<Entry<'_>>, EngineError> {
        let mut cursor = self.cursor(tree)?;
        cursor.start(start, direction)?;
        cursor.step()
    }

    /// Look a key up and stay there, for `replace_found` or `delete_found`.
    ///
    /// # Errors
    /// When the engine finds its pages damaged.
    fn find(&mut self, tree: Tree, key: &[u8]) -> Result<Option<&[u8]>, EngineError>;

    /// Give the entry where the last `find` stayed another value, the concatenation of `parts`.
    ///
    /// # Errors
    /// As `put`; `Misuse` when the last call in this tree was not a `find` that found this key.
    fn replace_found(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) -> Result<(), EngineError>;

    /// Delete the entry where the last `find` stayed.
    ///
    /// # Errors
    /// As `replace_found`.
    fn delete_found(&mut self, tree: Tree, key: &[u8]) -> Result<(), EngineError>;

    /// Set a key to the concatenation of `parts`.
    ///
    /// # Errors
    /// When the key is too long, or no room is left.
    fn put(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) -> Result<(), EngineError>;

    /// As `put`, for a key above every key in the tree; fills pages completely. Says false, and writes
    /// nothing, when the key is not above.
    ///
    /// # Errors
    /// As `put`.
    fn append(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) -> Result<bool, EngineError>;

    /// Whether `append` is the cheaper way, so that it pays to know the tree's last key.
    fn prefers_append(&self) -> bool {
        true
    }

    /// Delete a key; says whether it was there.
    ///
    /// # Errors
    /// When no room is left to copy a page.
    fn delete(&mut self, tree: Tree, key: &[u8]) -> Result<bool, EngineError> {
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
    fn clear(&mut self, tree: Tree) -> Result<(), EngineError>;

    /// Begin a part that can be taken back on its own. Parts nest.
    ///
    /// # Errors
    /// When memory is short.
    fn savepoint(&mut self) -> Result<(), EngineError>;

    /// Take back everything since the innermost savepoint, and forget it.
    ///
    /// # Errors
    /// `Misuse` when there is none.
    fn rollback(&mut self) -> Result<(), EngineError>;

    /// Forget the innermost savepoint and keep what was written since.
    ///
    /// # Errors
    /// `Misuse` when there is none.
    fn release(&mut self) -> Result<(), EngineError>;

    /// How long the file will be.
    ///
    /// # Errors
    /// Whatever the operating system says.
    fn file_size(&self) -> Result<FileSize, EngineError> {
        Ok(FileSize::default())
    }

    /// Make all changes visible and lasting, open savepoints included.
    ///
    /// # Errors
    /// When they could not be written; then none of them is visible.
    fn commit(self: Box<Self>) -> Result<(), EngineError>;
}

/// How long a transaction makes the engine's file, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileSize {
    /// What the file has on the disk now.
    pub now: u64,
    /// What it will have behind the commit.
    pub after: u64,
}

/// How much room a database takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of one page; 0 where there are no pages.
    pub page_size: u64,
    /// Pages up to the last one in use.
    pub pages: u64,
    /// Pages among them that hold nothing.
    pub free_pages: u64,
    /// Bytes of address space reserved for the file.
    pub map_size: u64,
    /// Room for readers, and how much of it is taken by any process.
    pub reader_slots: u32,
    /// Reader places in use by any process.
    pub readers: u32,
    /// As [`Engine::reader_lag`].
    pub reader_lag: u64,
    /// Bytes of commits that lie beside the engine's own file.
    pub pending: u64,
    /// Commits that were found there when it was opened, left by somebody who died.
    pub recovered: u64,
    /// Bytes of changes that are kept for those who watch.
    pub history: u64,
    /// Entries in each tree, by [`Tree::index`].
    pub entries: [u64; 3],
}
