//! Builds an index while other transactions write.
//!
//! 1. A transaction declares the index as building. From then on every writer updates its entries
//!    for the rows that it writes, and notes the keys of these rows under an id of their own.
//! 2. The entries of all rows of a snapshot taken after that are derived and sorted.
//! 3. Transactions put them, a part each, skipping noted rows, and store the progress.
//! 4. The last one drops the notes and marks the index as ready.
//!
//! If the entries of all rows do not fit into memory, steps 2 and 3 are done in rounds: first the
//! rows up to a key, then those after it. With each part the catalog stores the last row of the
//! earlier rounds, the last row of this one, and the last entry that was put. It also stores which
//! process builds, by PID and start time.
//!
//! If that process died, the next one that creates the same index continues. It derives the rows of
//! the round again and goes on after the last entry: a row that was not noted has not changed. So
//! the builder may be killed at any point.

use std::ops::Bound;
use std::sync::PoisonError;
use std::time::Duration;

use crate::admin::derive_rows::{Round, Rows};
use crate::catalog::index_entries::{Building, IndexInfo, Reached};
use crate::db::database::Database;
use crate::db::store::Store;
use crate::error::index::{IndexError, NotUnique};
use crate::error::{Result, StoreError};
use crate::index::PART;
use crate::index::runs::SortedEntry;
use crate::index::runs::{Clock, Merge};
use crate::index::{Derive, Prepared};
use crate::row::Range;
use crate::row_key::TableId;
use crate::sys::process::{began, is_dead, own_number};
use crate::txn::snapshot::Snapshot;
use crate::txn::transaction::Transaction;

/// Tables with fewer rows are indexed in one transaction, without progress reports.
const FEW: u64 = 1 << 14;
/// Removes an index from those being built, however the build ends.
struct Own<'d>(&'d Database, TableId);

impl Drop for Own<'_> {
    fn drop(&mut self) {
        self.0.builds.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

/// Called with the number of rows done and the total; returns whether to go on.
pub type GoOn<'f> = &'f mut (dyn FnMut(u64, u64) -> bool + Send);

impl Store {
    /// Create an index, and fill it with the existing rows, in short transactions between which
    /// others write. An existing index with the same definition is left as it is, or its build is
    /// finished. Waits for other writers until the timeout, for each transaction. `go_on` counts a
    /// row half when it is derived, and fully when its entries are put.
    ///
    /// # Errors
    /// As [`Transaction::create_index`]; `BuiltByOther`; `Gone` when it was dropped meanwhile.
    pub fn create_index(
        &self,
        table: TableId,
        name: &str,
        (definition, is_unique): (&str, bool),
        timeout: Duration,
        go_on: GoOn<'_>,
    ) -> Result<()> {
        let database = self.database()?;
        let mut transaction = self.begin(timeout)?;
        let (info, is_fresh) = match transaction.index_to_make(table, name, definition, is_unique)? {
            Some(info) if info.building.is_none() => return Ok(()),
            Some(info) => (transaction.take_over(info)?, false),
            None if transaction.count(table)? < FEW => {
                transaction.create_index(table, name, definition, is_unique, go_on)?;
                transaction.commit()?;
                let rows = self.snapshot()?.count(table)?;
                go_on(rows, rows);
                return Ok(());
            }
            None => (transaction.declare_index(table, name, definition, is_unique, true)?, true),
        };
        database.builds.lock().unwrap_or_else(PoisonError::into_inner).insert(info.id);
        let _own = Own(&database, info.id);
        transaction.commit()?;
        drop(transaction);
        let built = self.build(&info, is_fresh, timeout, go_on);
        if let Err(error) = &built {
            self.leave_build(&info, error, timeout)?;
        }
        built
    }

    /// After a failed build: drop the index if it can never be built; otherwise clear the builder,
    /// so that another process can continue.
    fn leave_build(&self, info: &IndexInfo, why: &StoreError, timeout: Duration) -> Result<()> {
        let is_refused =
            matches!(why, StoreError::Index(error) if matches!(**error, IndexError::NotUnique(_)));
        let mut transaction = self.begin(timeout)?;
        let Ok(now) = transaction.index(info.table, &info.name) else { return Ok(()) };
        let Some(building) = now.building.clone().filter(|_| now.id == info.id) else { return Ok(()) };
        if is_refused {
            transaction.drop_index(info.table, &info.name, &mut || true)?;
        } else {
            let left = IndexInfo { building: Some(Building { builder: 0, ..building }), ..now };
            transaction.put_entries(&[left.entry()])?;
        }
        transaction.commit()
    }

    fn build(&self, info: &IndexInfo, is_fresh: bool, timeout: Duration, go_on: GoOn<'_>) -> Result<()> {
        let snapshot = self.snapshot()?;
        let shapes = snapshot.overflow_reader();
        let prepared = snapshot.database().prepare(info.clone())?;
        let building = info.building.clone();
        let (mut done, mut put) = building.as_ref().map_or((0, 0), |building| (building.done, building.put));
        let exact = building.and_then(|building| building.exact);
        let is_exact = exact.is_some();
        let mut reached = exact.unwrap_or_default();
        let mut putter = Putter { store: self, info, timeout, is_exact, is_alone: is_fresh };
        let mut progress = BuildProgress { last: 0, total: snapshot.count(info.table)?, go_on };
        // A small table is done before a report is due; report its begin in any case.
        if !progress.tell(done + put) {
            return Err(StoreError::Stopped);
        }
        // First finish a round that was begun before, then go on with the rows after it.
        let mut is_begun = reached.upto.is_some();
        loop {
            let mut rows = rows_of(&snapshot, info, &prepared, &reached, is_begun)?;
            loop {
                let round = rows.derive(&shapes, &mut |found| progress.tell(done + put + (found / 2)))?;
                let is_last = round.is_last && !is_begun;
                if !is_begun {
                    reached.upto = round.last.clone().or_else(|| reached.from.clone());
                }
                putter.is_alone &= is_last;
                putter.put_round(&round, (done, put), &reached, is_last, &mut |put| {
                    progress.tell(done + put)
                })?;
                if is_last {
                    // Rows that were added or deleted since the build began are not counted.
                    progress.tell(u64::MAX);
                    return Ok(());
                }
                done += round.count;
                put = 0;
                reached = Reached { from: reached.upto.take(), ..Reached::default() };
                if is_begun {
                    break;
                }
            }
            is_begun = false;
        }
    }
}

/// Reports progress that never decreases and never exceeds the total.
struct BuildProgress<'f> {
    last: u64,
    total: u64,
    go_on: GoOn<'f>,
}

impl BuildProgress<'_> {
    fn tell(&mut self, done: u64) -> bool {
        self.last = done.min(self.total).max(self.last);
        (self.go_on)(self.last, self.total)
    }
}

/// The rows to derive. A round that was begun before is derived as a whole, without a memory limit:
/// it fitted before.
fn rows_of(
    snapshot: &Snapshot,
    info: &IndexInfo,
    prepared: &Prepared,
    reached: &Reached,
    is_begun: bool,
) -> Result<Rows> {
    const THREADS_MAX: usize = 4;
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let upto = reached.upto.clone().filter(|_| is_begun);
    let range = Range {
        start: reached.from.clone().map_or(Bound::Unbounded, Bound::Excluded),
        end: upto.map_or(Bound::Unbounded, Bound::Included),
    };
    let scan = snapshot.scan(info.table, &range, false)?;
    let derive = prepared.derive.lock().unwrap_or_else(PoisonError::into_inner);
    let derives: Vec<Box<dyn Derive>> = (0..threads).map(|_| derive.again()).collect();
    let memory = if is_begun { usize::MAX } else { snapshot.database().index_memory() };
    Rows::new(&scan, snapshot.count(info.table)?, derives, memory)
}

impl Transaction {
    /// Delete the notes of a finished build.
    fn drop_notes(&mut self, notes: TableId) -> Result<()> {
        if self.count(notes)? == 0 {
            // Searching for notes would sort everything in the memtables, including all entries of
            // the build.
            return self.forget_rows(notes);
        }
        self.drop_rows(notes, &mut || true)
    }

    /// Continue a build that another process or thread has begun.
    fn take_over(&mut self, info: IndexInfo) -> Result<IndexInfo> {
        let Some(building) = info.building.clone() else { return Ok(info) };
        if let Some(pid) = living(building.builder, &self.database, info.id) {
            return Err(StoreError::of_index(IndexError::BuiltByOther {
                table: self.table_name(info.table),
                index: info.name.into(),
                pid,
            }));
        }
        let mine = IndexInfo { building: Some(Building { builder: own_number(), ..building }), ..info };
        self.put_entries(&[mine.entry()])?;
        Ok(mine)
    }
}

/// The building process, if it lives. If the system cannot tell, it is assumed to be gone: each
/// transaction of a build checks that the build is still its own.
fn living(builder: u64, database: &Database, id: TableId) -> Option<u32> {
    let pid = builder as u32;
    if builder == own_number() {
        let builds = database.builds.lock().unwrap_or_else(PoisonError::into_inner);
        return builds.contains(&id).then_some(pid);
    }
    (pid != 0 && !is_dead(pid) && began(pid) == Some(builder >> 32)).then_some(pid)
}

/// The last entry that was put: its code, the size of the parts in it, and its spelling.
type LastEntry = (Vec<u8>, usize, Vec<u8>);

/// Puts sorted entries, one part per transaction.
struct Putter<'p> {
    store: &'p Store,
    info: &'p IndexInfo,
    timeout: Duration,
    /// Whether it is known which entries were put before.
    is_exact: bool,
    /// Whether no entries were put before and none come later, except those of noted rows.
    is_alone: bool,
}

impl Putter<'_> {
    /// Put the entries of a round. The pair has the number of rows done, and how many of this round
    /// count as done. Reports how many of the round are done.
    fn put_round(
        &mut self,
        round: &Round<'_>,
        (done, put_before): (u64, u64),
        reached: &Reached,
        is_last: bool,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<()> {
        let stopped = || Err(StoreError::Stopped);
        let entries = round.runs.iter().map(|runs| runs.len()).sum::<u64>().max(1);
        let mut merge = Merge::new(round.runs.iter().copied());
        let (mut last, mut put, mut clock) = (None, 0, Clock::new());
        // Deriving a row is half of its work.
        let half = round.count / 2;
        let share = |put: u64| put_before.max((round.count - half) * put / entries);
        while merge.pass(reached.place.as_deref()) {
            put += 1;
            if put % PART == 0 && clock.is_time() && !go_on(half + put_before) {
                return stopped();
            }
        }
        loop {
            let mut transaction = self.store.begin(self.timeout)?;
            let mut now = self.still_mine(&transaction)?;
            let Some(mut building) = now.building.take() else {
                return Err(StoreError::of_index(IndexError::Gone { index: now.name.into() }));
            };
            let has_notes = transaction.count(building.notes)? > 0;
            let mut count = 0;
            while count < PART
                && let Some(entry) = merge.next()
            {
                count += 1;
                self.put(&mut transaction, &entry, has_notes.then_some(building.notes), &mut last)?;
            }
            put += count;
            let is_over = count < PART;
            if is_over && is_last {
                transaction.drop_notes(building.notes)?;
                transaction.put_index(&now)?;
                transaction.commit()?;
                return Ok(());
            }
            let place =
                last.as_ref().map(|(code, _, _): &LastEntry| code).or(reached.place.as_ref()).cloned();
            building = if is_over {
                let next = Reached { from: reached.upto.clone(), ..Reached::default() };
                Building {
                    done: done + round.count,
                    put: 0,
                    exact: self.is_exact.then_some(next),
                    ..building
                }
            } else {
                let here = Reached { place, ..reached.clone() };
                Building { done, put: share(put), exact: self.is_exact.then_some(here), ..building }
            };
            now.building = Some(building);
            transaction.put_entries(&[now.entry()])?;
            transaction.commit()?;
            if !go_on(if is_over { round.count } else { half + share(put) }) {
                return stopped();
            }
            if is_over {
                return Ok(());
            }
        }
    }

    /// The index's catalog entry, if this process is still its builder.
    fn still_mine(&self, transaction: &Transaction) -> Result<IndexInfo> {
        let gone = || StoreError::of_index(IndexError::Gone { index: self.info.name.to_string() });
        let now = transaction.index(self.info.table, &self.info.name).map_err(|_| gone())?;
        let is_mine = now.building.as_ref().is_some_and(|building| building.builder == own_number());
        if now.id == self.info.id && is_mine { Ok(now) } else { Err(gone()) }
    }

    fn put(
        &self,
        transaction: &mut Transaction,
        entry: &SortedEntry<'_>,
        notes: Option<TableId>,
        last: &mut Option<LastEntry>,
    ) -> Result<()> {
        if let Some(notes) = notes
            && transaction.get(notes, entry.key())?.is_some()
        {
            return Ok(());
        }
        if self.info.is_unique {
            if let Some((code, parts_size, spelling)) = last.as_ref()
                && code.get(..*parts_size) == Some(entry.parts())
            {
                let first = SortedEntry { code, parts_size: *parts_size, spelling };
                return self.refuse(transaction, &first, entry);
            }
            if (notes.is_some() || !self.is_alone)
                && let Some((code, spelling)) = transaction.first_with(self.info.id, entry.parts())?
                && code != entry.code
            {
                let first = SortedEntry { code: &code, spelling: &spelling, ..*entry };
                return self.refuse(transaction, &first, entry);
            }
        }
        transaction.put_entry(self.info.id, entry.code, entry.spelling, self.is_exact)?;
        let (code, parts_size, spelling) = last.get_or_insert_with(Default::default);
        code.clear();
        code.extend_from_slice(entry.code);
        spelling.clear();
        spelling.extend_from_slice(entry.spelling);
        *parts_size = entry.parts().len();
        Ok(())
    }

    fn refuse(
        &self,
        transaction: &Transaction,
        first: &SortedEntry<'_>,
        second: &SortedEntry<'_>,
    ) -> Result<()> {
        let clash: NotUnique = transaction.clash(self.info, first, second);
        Err(StoreError::of_index(IndexError::NotUnique(clash)))
    }
}
