//! Watches commits: which rows and tables each one changed.
//!
//! A [`Watch`] reads the commits after a version one by one (`engine/history.rs`), of all
//! processes, and reports what each did to tables and rows: only the last change of a row, and no
//! rows of a dropped table. Between calls it holds no transaction and no lock, and keeps no file
//! open.
//!
//! The names of tables are known for the newest version. For an older version, later name changes
//! are undone; that takes a first pass over the commits in between.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::catalog::blob;
use crate::catalog::cell::Cell;
use crate::catalog::{self, NAME, TABLE};
use crate::db::database::Database;
use crate::db::store::Store;
use crate::engine::history::{Commit, Next, WatchPosition, What, Written};
use crate::engine::{CommitFeed, EngineError, Tree};
use crate::error::{Result, StoreError};
use crate::row::Range;
use crate::row_key::{TableId, is_long, split};
use crate::sys::bell::Bell;

/// What happened to a row or a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A row was put, with this record.
    Put {
        /// The key's code.
        key: Vec<u8>,
        /// What the code leaves out of the key.
        spelling: Vec<u8>,
        /// The record.
        record: Vec<u8>,
        /// Its large values.
        large: Vec<LargeValue>,
    },
    /// A row was deleted.
    Delete {
        /// The key's code.
        key: Vec<u8>,
        /// What the code leaves out of the key.
        spelling: Vec<u8>,
    },
    /// All rows of the table were deleted.
    Clear,
    /// The table was made.
    Create,
    /// The table was deleted with all its rows.
    Drop,
    /// The table was renamed.
    Rename {
        /// The new name.
        name: Arc<str>,
    },
}

/// A large value that a record refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargeValue {
    /// Its id. A snapshot finds it as long as the row has it.
    pub id: u64,
    /// Its bytes, if the same commit wrote them and the history has them.
    pub bytes: Option<Arc<[u8]>>,
}

/// One change of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The table.
    pub table: TableId,
    /// Its name before the change.
    pub name: Arc<str>,
    /// What happened.
    pub happened: Happened,
}

/// The watched changes of one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The version that it made.
    pub version: u64,
    /// In the order in which they were made.
    pub changes: Vec<Change>,
}

/// What to watch.
#[derive(Clone, Debug)]
pub enum Watched {
    /// Everything.
    All,
    /// One table, and of its rows those in a range.
    Table {
        /// The table, or `None` if it does not exist yet.
        table: Option<TableId>,
        /// The name that identifies it when it is created.
        name: String,
        /// The keys.
        range: Range,
    },
}

/// The result of a step of a [`Watch`].
#[derive(Debug)]
pub enum WatchStep {
    /// A commit that changed something.
    Changes(Changes),
    /// Nothing so far.
    Nothing,
    /// The table was dropped: nothing will follow.
    Over,
}

/// A position in the commits of a database.
pub struct Watch {
    place: WatchPosition,
    /// Everything up to this version was read.
    version: u64,
    commits: VecDeque<Commit>,
    names: BTreeMap<TableId, Arc<str>>,
    watched: Watched,
    is_over: bool,
    idle_since: Option<Instant>,
}

impl Store {
    /// The newest version. One atomic load, so it may be called again and again.
    ///
    /// # Errors
    /// `Closed`.
    pub fn version(&self) -> Result<u64> {
        self.with_database(Database::version)?
    }

    /// Watch the commits after a version, or from now on.
    ///
    /// # Errors
    /// `HistoryGone` when that is too far back; `VersionAhead`; `Unsupported`; `Closed`.
    pub fn watch(&self, since: Option<u64>, mut watched: Watched) -> Result<Watch> {
        let snapshot = self.snapshot()?;
        let version = snapshot.version();
        let since = since.unwrap_or(version);
        let database = self.database()?;
        if since > version {
            return Err(StoreError::VersionAhead { path: database.path.clone(), since, version });
        }
        // Even if nothing was committed: an error shows at once if the database cannot be watched.
        let mut place = WatchPosition::after(since);
        let mut names: BTreeMap<TableId, Arc<str>> =
            snapshot.tables()?.into_iter().map(|(name, table)| (table, name.into())).collect();
        let mut ops = Vec::new();
        loop {
            match next_of(&database, &mut place)? {
                Next::Commits(commits) => {
                    for commit in commits.iter().filter(|commit| commit.version <= version) {
                        ops.extend(commit.written().filter_map(|written| NameOp::of(&written)));
                    }
                }
                Next::Nothing => break,
                Next::Gone => return Err(gone(&database, since)),
            }
            if place.version >= version {
                break;
            }
        }
        roll_back(&mut names, &ops);
        if let Watched::Table { table: table @ None, name: wanted, .. } = &mut watched {
            *table = names.iter().find(|(_, name)| ***name == **wanted).map(|(table, _)| *table);
        }
        let is_over = match &watched {
            Watched::All | Watched::Table { table: None, .. } => false,
            // Dropped before it is watched.
            Watched::Table { table: Some(table), .. } => {
                !names.contains_key(table) && !ops.iter().any(|op| op.table() == Some(*table))
            }
        };
        let (place, commits) = (WatchPosition::after(since), VecDeque::new());
        Ok(Watch { place, version: since, commits, names, watched, is_over, idle_since: None })
    }
}

fn next_of(database: &Database, place: &mut WatchPosition) -> Result<Next> {
    feed(database).and_then(|feed| feed.next_commits(place)).map_err(|error| database.error(error))
}

fn gone(database: &Database, since: u64) -> StoreError {
    match feed(database).and_then(CommitFeed::known_since) {
        Ok(oldest) => StoreError::HistoryGone { path: database.path.clone(), since, oldest },
        Err(error) => database.error(error),
    }
}

/// The bell of the commits. It does not hold the database, which may be closed meanwhile.
fn bell_of(store: &Store) -> Result<Option<Bell>> {
    let database = store.database()?;
    // Elsewhere, sleepers look every tenth of a millisecond.
    let has_futex = cfg!(target_os = "linux");
    Ok(database.engine.commit_feed().filter(|_| has_futex).and_then(CommitFeed::bell))
}

fn feed(database: &Database) -> Result<&dyn CommitFeed, EngineError> {
    const UNWATCHED: &str = "this database cannot be watched: no process has it open for writing";
    database.engine.commit_feed().ok_or(EngineError::Unsupported(UNWATCHED))
}

/// A change of a table's name.
#[derive(Debug)]
enum NameOp {
    Given(Arc<str>, TableId),
    Taken(Arc<str>),
    /// The table's own entry is deleted, right after its name.
    Dropped(TableId),
}

impl NameOp {
    fn of(written: &Written<'_>) -> Option<Self> {
        let (kind, rest) = written.key.split_first().filter(|_| written.tree == Tree::Meta)?;
        let name = || std::str::from_utf8(rest).ok().map(Arc::from);
        match (*kind, written.what) {
            (NAME, What::Value(value)) => Some(Self::Given(name()?, catalog::named_table(value)?)),
            (NAME, What::Deleted) => Some(Self::Taken(name()?)),
            (TABLE, What::Deleted) => Some(Self::Dropped(catalog::table_of_key(written.key)?)),
            _ => None,
        }
    }

    fn table(&self) -> Option<TableId> {
        match self {
            Self::Given(_, table) | Self::Dropped(table) => Some(*table),
            Self::Taken(_) => None,
        }
    }
}

/// Undo these changes of names. A name was taken from the table of the operation that follows: a
/// rename or a drop.
fn roll_back(names: &mut BTreeMap<TableId, Arc<str>>, ops: &[NameOp]) {
    let mut table = None;
    for op in ops.iter().rev() {
        match op {
            NameOp::Given(name, given) => {
                if names.get(given) == Some(name) {
                    names.remove(given);
                }
                table = Some(*given);
            }
            NameOp::Dropped(dropped) => table = Some(*dropped),
            NameOp::Taken(name) => {
                if let Some(table) = table.take() {
                    names.insert(table, Arc::clone(name));
                }
            }
        }
    }
}

impl Watch {
    /// Everything up to this version was returned. Only `next` changes it.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The next commit that changed something watched, if there is one already.
    ///
    /// # Errors
    /// `HistoryGone` when the next commits are no longer kept; `Closed`; when the file is damaged.
    pub fn next(&mut self, store: &Store) -> Result<WatchStep> {
        loop {
            if self.is_over {
                return Ok(WatchStep::Over);
            }
            let Some(commit) = self.commits.pop_front() else {
                if store.version()? <= self.place.version {
                    return Ok(WatchStep::Nothing);
                }
                let database = store.database()?;
                match next_of(&database, &mut self.place)? {
                    Next::Commits(commits) => self.commits = commits.into(),
                    Next::Nothing => return Ok(WatchStep::Nothing),
                    Next::Gone => return Err(gone(&database, self.place.version)),
                }
                // Load the names of new shapes.
                drop(database);
                store.snapshot()?;
                continue;
            };
            let limit = store.with_database(|database| database.key_size_max)?;
            let changes = self.changes_of(&commit, limit);
            self.version = commit.version;
            if !changes.is_empty() {
                self.idle_since = None;
                return Ok(WatchStep::Changes(Changes { version: commit.version, changes }));
            }
        }
    }

    /// Wait for a commit, not much longer than `patience`. Returns whether there was one. After a
    /// commit, the version is polled for some milliseconds, so that a busy writer need not wake the
    /// watch for each commit; then it sleeps until a commit rings its bell. Without a bell, the
    /// version is polled after a 32nd of the time waited so far.
    ///
    /// # Errors
    /// `Closed`.
    pub fn wait(&mut self, store: &Store, patience: Duration) -> Result<bool> {
        const SHORTEST: Duration = Duration::from_micros(50);
        const LONGEST: Duration = Duration::from_millis(10);
        const POLLED: Duration = Duration::from_millis(3);
        const SHARE: u32 = 32;
        let begin = Instant::now();
        let idle_since = *self.idle_since.get_or_insert(begin);
        loop {
            let is_there =
                || -> Result<bool> { Ok(!self.commits.is_empty() || store.version()? > self.place.version) };
            if is_there()? {
                return Ok(true);
            }
            let left = patience.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            let idle = idle_since.elapsed();
            match bell_of(store)?.filter(|_| idle >= POLLED) {
                Some(bell) => bell.sleep_unless(is_there, left)?,
                None => std::thread::sleep((idle / SHARE).clamp(SHORTEST, LONGEST).min(left)),
            }
        }
    }

    /// The watched changes of a commit. Also applies its name changes.
    fn changes_of(&mut self, commit: &Commit, key_size_max: usize) -> Vec<Change> {
        let written: Vec<Written<'_>> = commit.written().collect();
        let ops: Vec<NameOp> = written.iter().filter_map(NameOp::of).collect();
        let dropped: HashSet<TableId> = ops
            .iter()
            .filter_map(|op| if let NameOp::Dropped(table) = op { Some(*table) } else { None })
            .collect();
        self.meet(&ops, &dropped);
        let counted = counted_anew(&written);
        let holding = last_of_each(&written);
        let blobs = blobs_of(&written);
        let mut key_texts: HashMap<&[u8], KeyText<'_>> = HashMap::new();
        let mut changes = Vec::new();
        for (written, holds) in written.iter().zip(holding) {
            match written.tree {
                Tree::Meta => changes.extend(self.name_change(written)),
                Tree::Blobs => {}
                Tree::Rows => {
                    let mut key = key_text_of(written, &mut key_texts);
                    if !is_long(written.key, key_size_max) {
                        key.whole_key = written.key;
                    }
                    if holds {
                        self.row_changes(written, key, (&dropped, &counted, &blobs), &mut changes);
                    }
                }
            }
        }
        changes
    }

    /// Find the table that did not exist yet: the one to which the commit gives the watched name,
    /// perhaps by renaming it. All changes of that commit to it are reported, under any name.
    fn meet(&mut self, ops: &[NameOp], dropped: &HashSet<TableId>) {
        let Watched::Table { table: table @ None, name: wanted, .. } = &mut self.watched else { return };
        let given = ops.iter().filter_map(|op| match op {
            NameOp::Given(name, table) if **name == **wanted => Some(*table),
            _ => None,
        });
        *table = given.clone().rfind(|table| !dropped.contains(table)).or_else(|| given.clone().next());
    }

    /// Whether a table is watched.
    fn is_watched(&self, id: TableId) -> bool {
        match &self.watched {
            Watched::All => true,
            Watched::Table { table, .. } => *table == Some(id),
        }
    }

    fn is_key_watched(&self, key: &[u8]) -> bool {
        match &self.watched {
            Watched::All => true,
            Watched::Table { range, .. } => {
                (range.start.as_ref().map(|key| &key[..]), range.end.as_ref().map(|key| &key[..]))
                    .contains(key)
            }
        }
    }

    fn name_of(&self, table: TableId) -> Arc<str> {
        self.names.get(&table).cloned().unwrap_or_else(|| Arc::from(""))
    }

    fn name_change(&mut self, written: &Written<'_>) -> Option<Change> {
        let (id, name, happened) = match NameOp::of(written)? {
            NameOp::Given(name, id) => match self.names.insert(id, Arc::clone(&name)) {
                Some(old) => (id, old, Happened::Rename { name }),
                None => (id, name, Happened::Create),
            },
            NameOp::Dropped(id) => (id, self.names.remove(&id)?, Happened::Drop),
            NameOp::Taken(_) => return None,
        };
        let is_watched = self.is_watched(id);
        self.is_over |= is_watched && happened == Happened::Drop && !matches!(self.watched, Watched::All);
        is_watched.then_some(Change { table: id, name, happened })
    }

    fn row_changes(
        &self,
        written: &Written<'_>,
        KeyText { whole_key, spelling }: KeyText<'_>,
        (dropped, counted, blobs): (&HashSet<TableId>, &HashSet<TableId>, &HashMap<u64, &[u8]>),
        changes: &mut Vec<Change>,
    ) {
        let mut add = |table: TableId, happened: Happened| {
            if self.is_watched(table) && !dropped.contains(&table) {
                changes.push(Change { table, name: self.name_of(table), happened });
            }
        };
        if let What::ClearedUpTo(_) = written.what {
            // Rows of other tables that were deleted earlier in this commit are not reported: those
            // tables are empty as well.
            let cleared = self.names.keys().filter(|table| counted.contains(table));
            return cleared.for_each(|table| add(*table, Happened::Clear));
        }
        let Some((table, key)) = split(whole_key) else { return };
        // A table id without a name is an index.
        if !self.is_watched(table) || !self.is_key_watched(key) || !self.names.contains_key(&table) {
            return;
        }
        let (key, spelling) = (key.to_vec(), spelling.to_vec());
        match written.what {
            // A damaged cell is skipped here; reading the row reports it.
            What::Value(bytes) => {
                if let Some(cell) = Cell::parse(bytes) {
                    let large = |id| LargeValue { id, bytes: blobs.get(&id).map(|bytes| Arc::from(*bytes)) };
                    let (record, large) = (cell.record.to_vec(), cell.blobs().map(large).collect());
                    add(table, Happened::Put { key, spelling, record, large });
                }
            }
            _ => add(table, Happened::Delete { key, spelling }),
        }
    }
}

/// The tables whose row counts are written by a commit that clears all rows. All tables that had
/// rows before it are among them.
fn counted_anew(written: &[Written<'_>]) -> HashSet<TableId> {
    if !written.iter().any(|written| matches!(written.what, What::ClearedUpTo(_))) {
        return HashSet::new();
    }
    let is_value = |written: &&Written<'_>| matches!(written.what, What::Value(_));
    let counts = written.iter().filter(|written| written.tree == Tree::Meta).filter(is_value);
    counts.filter_map(|written| catalog::table_of_key(written.key)).collect()
}

/// The large values that a commit wrote, by id, as far as its history has them.
fn blobs_of<'a>(written: &[Written<'a>]) -> HashMap<u64, &'a [u8]> {
    let blobs = written.iter().filter(|written| written.tree == Tree::Blobs);
    let blobs = blobs.filter_map(|written| match written.what {
        What::Value(bytes) => Some((u64::from_be_bytes(written.key.try_into().ok()?), blob::body(bytes)?)),
        _ => None,
    });
    blobs.collect()
}

/// What a row's cell says of its key: the whole key with the table id, if it is long, and its
/// spelling.
#[derive(Clone, Copy, Default)]
struct KeyText<'a> {
    whole_key: &'a [u8],
    spelling: &'a [u8],
}

/// What this entry, or an earlier one of the same row in the commit, says of the row's key. A row
/// whose row key does not identify it is put again without a record before it is deleted
/// (`Transaction::say_key`).
fn key_text_of<'a>(written: &Written<'a>, key_texts: &mut HashMap<&'a [u8], KeyText<'a>>) -> KeyText<'a> {
    let What::Value(bytes) = written.what else {
        return key_texts.get(written.key).copied().unwrap_or_default();
    };
    let Some(cell) = Cell::parse(bytes) else { return KeyText::default() };
    let key = KeyText { whole_key: cell.whole_key, spelling: cell.spelling };
    if !key.whole_key.is_empty() || !key.spelling.is_empty() {
        key_texts.insert(written.key, key);
    }
    key
}

/// Whether each entry is the last one of its row, and the row was not cleared afterwards.
fn last_of_each(written: &[Written<'_>]) -> Vec<bool> {
    let mut holding = vec![true; written.len()];
    let mut seen: HashSet<&[u8]> = HashSet::new();
    let mut is_cleared = false;
    let is_row = |written: &&Written<'_>| written.tree == Tree::Rows;
    if written.iter().filter(is_row).count() < 2 {
        return holding;
    }
    for (written, holds) in written.iter().zip(&mut holding).rev().filter(|(written, _)| is_row(written)) {
        if matches!(written.what, What::ClearedUpTo(_)) {
            is_cleared = true;
        } else {
            *holds = !is_cleared && seen.insert(written.key);
        }
    }
    holding
}
