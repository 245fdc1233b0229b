//! How is an index built while others write?
//!
//! 1. A transaction declares it as building. From then on every writer keeps it in step for the rows that it touches, and notes their keys under
//!    an id of its own.
//! 2. The entries of all rows of a snapshot that is taken after that are derived and put in order.
//! 3. Transactions put them, a part each, past rows that were noted, and say how far they are.
//! 4. The last one drops the notes and says that it is ready.
//!
//! Whoever builds says so, by the process's number and when it began; one that is gone is followed by the next to create the same index. That
//! derives anew, but goes on behind the place: a row that was not noted is what it was. So it may be killed at any point.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pellucid_record::key::join_spellings;

use super::error::{IndexError, NotUnique};
use super::sorter::{SortedEntry, Sorter};
use super::{Building, Derive, Derived, IndexInfo, Prepared};
use crate::database::Database;
use crate::error::StoreError;
use crate::row_key::TableId;
use crate::scan::{Range, Scan};
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::transaction::Transaction;
use crate::writer_lock::is_dead;

/// Tables with fewer rows are built in one transaction, while which nobody is told how far it is.
const FEW: u64 = STEP;
/// Entries of one transaction: some 20 ms, for which other writers wait.
const PART: usize = 1 << 15;
/// Rows between two calls of `go_on`.
const STEP: u64 = 1 << 14;

/// Ids of indexes that threads of this process build.
pub(crate) type Builds = Mutex<HashSet<TableId>>;

/// Takes an index out of those that are being built, however that ends.
struct Own<'d>(&'d Database, TableId);

impl Drop for Own<'_> {
    fn drop(&mut self) {
        self.0.builds.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

/// What is told how many rows were looked at, of how many, and says whether to go on.
pub type GoOn<'f> = &'f mut (dyn FnMut(u64, u64) -> bool + Send);

impl Store {
    /// Make an index, and fill it with the rows that are there, in short transactions between which others write; one that is there already and is
    /// made of the same is left as it is, or built to its end. Waits for others who write until the timeout, each time. While rows are derived
    /// `go_on` counts them half, and again when their entries are put.
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
    ) -> Result<(), StoreError> {
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

    /// What becomes of an index that could not be built: it goes where no index can be, else whoever wants it goes on.
    fn leave_build(&self, info: &IndexInfo, why: &StoreError, timeout: Duration) -> Result<(), StoreError> {
        let is_refused =
            matches!(why, StoreError::Index(error) if matches!(**error, IndexError::NotUnique(_)));
        let mut transaction = self.begin(timeout)?;
        let Ok(now) = transaction.index(info.table, &info.name) else { return Ok(()) };
        let Some(building) = now.building.clone().filter(|_| now.id == info.id) else { return Ok(()) };
        if is_refused {
            transaction.drop_index(info.table, &info.name)?;
        } else {
            let left = IndexInfo { building: Some(Building { builder: 0, ..building }), ..now };
            transaction.put_entries(&[left.entry()])?;
        }
        transaction.commit()
    }

    fn build(
        &self,
        info: &IndexInfo,
        is_fresh: bool,
        timeout: Duration,
        go_on: GoOn<'_>,
    ) -> Result<(), StoreError> {
        let snapshot = self.snapshot()?;
        let total = snapshot.count(info.table)?;
        let prepared = snapshot.database().prepare(info.clone())?;
        let mut gatherers = gatherers(&snapshot, info, &prepared)?;
        let mut putter = Putter {
            store: self,
            info,
            timeout,
            place: info.building.as_ref().and_then(|building| building.place.clone()),
            is_fresh,
            is_alone: true,
        };
        let mut done = 0;
        loop {
            let found = gather(&mut gatherers, &snapshot, &mut |found| go_on(done + found / 2, total))?;
            let is_last = gatherers.iter().all(|gatherer| gatherer.is_over);
            putter.is_alone &= is_last;
            let sorters: Vec<&Sorter> = gatherers.iter().map(|gatherer| &gatherer.sorter).collect();
            let entries = sorters.iter().map(|sorter| sorter.len() as u64).sum::<u64>().max(1);
            putter.put_all(&sorters, is_last, &mut |put| {
                go_on(done + found / 2 + (found - found / 2) * put / entries, total)
            })?;
            done += found;
            if is_last {
                return Ok(());
            }
            for gatherer in &mut gatherers {
                gatherer.sorter.clear();
            }
        }
    }
}

impl Transaction {
    /// Go on with what another one has begun to build.
    fn take_over(&mut self, info: IndexInfo) -> Result<IndexInfo, StoreError> {
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

/// This process and when it began, as one number.
pub(crate) fn own_number() -> u64 {
    let pid = std::process::id();
    u64::from(pid) | began(pid).unwrap_or(0) << 32
}

/// When a process began, as far as the system says so.
fn began(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the command, which may have anything in it, the 20th field.
    stat.rsplit(") ").next()?.split(' ').nth(19)?.parse::<u64>().ok().map(|ticks| ticks & 0xFFFF_FFFF)
}

/// The process that builds, if it lives. Where nobody can be asked it is taken for gone: each transaction of a build looks whose it is.
fn living(builder: u64, database: &Database, id: TableId) -> Option<u32> {
    let pid = builder as u32;
    if builder == own_number() {
        let builds = database.builds.lock().unwrap_or_else(PoisonError::into_inner);
        return builds.contains(&id).then_some(pid);
    }
    (pid != 0 && !is_dead(pid) && began(pid) == Some(builder >> 32)).then_some(pid)
}

/// Derives entries of a part of the rows.
struct Gatherer {
    scan: Scan,
    derive: Box<dyn Derive>,
    sorter: Sorter,
    is_over: bool,
}

fn gatherers(
    snapshot: &Snapshot,
    info: &IndexInfo,
    prepared: &Prepared,
) -> Result<Vec<Gatherer>, StoreError> {
    const THREADS_MAX: usize = 4;
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let derive = prepared.derive.lock().unwrap_or_else(PoisonError::into_inner);
    let parts = snapshot.scan(info.table, &Range::ALL, false)?.parts(threads)?;
    let gatherer =
        |scan| Gatherer { scan, derive: derive.again(), sorter: Sorter::default(), is_over: false };
    Ok(parts.into_iter().map(gatherer).collect())
}

impl Gatherer {
    /// Derive until the end, or until memory is full; says how many rows there were.
    fn run(
        &mut self,
        shapes: &pellucid_record::Dictionary,
        size_max: usize,
        step: &dyn Fn(u64) -> bool,
    ) -> Result<u64, StoreError> {
        let (mut entries, mut spelling, mut count) = (Derived::default(), Vec::new(), 0);
        while self.sorter.size() < size_max {
            let Some(row) = self.scan.next()? else {
                self.is_over = true;
                break;
            };
            entries.clear();
            self.derive.derive(&row, shapes, &mut entries).map_err(StoreError::Record)?;
            entries.settle();
            for (parts, parts_spelling) in entries.iter() {
                join_spellings(parts_spelling, row.spelling, &mut spelling);
                self.sorter.push_parts(parts, row.key, &spelling);
            }
            count += 1;
            if count % STEP == 0 && !step(STEP) {
                return Err(StoreError::Closed { what: "build" });
            }
        }
        step(count % STEP);
        self.sorter.sort();
        Ok(count)
    }
}

/// Derive on several threads; how many rows there were.
fn gather(
    gatherers: &mut [Gatherer],
    snapshot: &Snapshot,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<u64, StoreError> {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    const SIZE_MAX: usize = 512 << 20;
    let shapes = Arc::clone(snapshot.dictionary());
    let size_max = SIZE_MAX / gatherers.len().max(1);
    let (count, is_stopped) = (AtomicU64::new(0), AtomicBool::new(false));
    let Some((own, others)) = gatherers.split_first_mut() else { return Ok(0) };
    let told = std::cell::RefCell::new(go_on);
    std::thread::scope(|scope| {
        let running: Vec<_> = others
            .iter_mut()
            .filter(|other| !other.is_over)
            .map(|other| {
                let (shapes, count, is_stopped) = (&shapes, &count, &is_stopped);
                scope.spawn(move || {
                    other.run(shapes, size_max, &|more| {
                        count.fetch_add(more, Ordering::Relaxed);
                        !is_stopped.load(Ordering::Relaxed)
                    })
                })
            })
            .collect();
        let mut total = 0;
        let mut done = Ok(());
        if !own.is_over {
            let ran = own.run(&shapes, size_max, &|more| {
                let all = count.fetch_add(more, Ordering::Relaxed) + more;
                (told.borrow_mut())(all)
            });
            is_stopped.store(ran.is_err(), Ordering::Relaxed);
            done = ran.map(|count| total += count);
        }
        for thread in running {
            let ran = thread.join().unwrap_or(Err(StoreError::NoMemory { what: "the entries of an index" }));
            done = done.and_then(|()| ran.map(|count| total += count));
        }
        done.map(|()| total)
    })
}

/// Puts entries that are in order, a part in each transaction.
struct Putter<'p> {
    store: &'p Store,
    info: &'p IndexInfo,
    timeout: Duration,
    place: Option<Vec<u8>>,
    /// No entry was put before.
    is_fresh: bool,
    /// All entries come in one order.
    is_alone: bool,
}

impl Putter<'_> {
    fn put_all(
        &mut self,
        sorters: &[&Sorter],
        is_last: bool,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), StoreError> {
        let mut merge = Merge { sorters, next: vec![0; sorters.len()] };
        let mut last: Option<(Vec<u8>, usize, Vec<u8>)> = None;
        let mut put = 0;
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
            put += count as u64;
            let is_over = count < PART;
            if is_over && is_last {
                transaction.drop_rows(building.notes)?;
                transaction.put_index(&now)?;
                transaction.commit()?;
                go_on(put);
                return Ok(());
            }
            building.done += count as u64;
            building.place = last.as_ref().filter(|_| self.is_alone).map(|(code, _, _)| code.clone());
            now.building = Some(building);
            transaction.put_entries(&[now.entry()])?;
            transaction.commit()?;
            if !go_on(put) {
                return Err(StoreError::Closed { what: "build" });
            }
            if is_over {
                return Ok(());
            }
        }
    }

    /// What the catalog says of the index now, if it is still the one that is built here.
    fn still_mine(&self, transaction: &Transaction) -> Result<IndexInfo, StoreError> {
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
        last: &mut Option<(Vec<u8>, usize, Vec<u8>)>,
    ) -> Result<(), StoreError> {
        if self.place.as_deref().is_some_and(|place| entry.code <= place) {
            return Ok(());
        }
        if let Some(notes) = notes
            && transaction.get(notes, entry.key())?.is_some()
        {
            return Ok(());
        }
        if self.info.is_unique {
            if let Some((code, parts_size, spelling)) = last.as_ref()
                && code.get(..*parts_size) == Some(entry.parts())
            {
                let first = SortedEntry { code, parts_size: *parts_size, spelling, ..*entry };
                return self.refuse(transaction, &first, entry);
            }
            if (notes.is_some() || !self.is_alone || !self.is_fresh)
                && let Some((code, spelling)) = transaction.first_with(self.info.id, entry.parts())?
                && code != entry.code
            {
                let first = SortedEntry { code: &code, spelling: &spelling, ..*entry };
                return self.refuse(transaction, &first, entry);
            }
        }
        let is_new = self.is_fresh || self.place.is_some();
        transaction.put_entry(self.info.id, entry.code, entry.spelling, is_new)?;
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
    ) -> Result<(), StoreError> {
        let clash: NotUnique = transaction.clash(self.info, first, second);
        Err(StoreError::of_index(IndexError::NotUnique(clash)))
    }
}

/// Entries of several sorters, in one order.
struct Merge<'m> {
    sorters: &'m [&'m Sorter],
    next: Vec<usize>,
}

impl<'m> Merge<'m> {
    fn next(&mut self) -> Option<SortedEntry<'m>> {
        let mut least: Option<(usize, SortedEntry<'m>)> = None;
        for (place, (sorter, next)) in self.sorters.iter().zip(&self.next).enumerate() {
            let Some(entry) = sorter.get(*next) else { continue };
            if least.as_ref().is_none_or(|(_, least)| entry.code < least.code) {
                least = Some((place, entry));
            }
        }
        let (place, entry) = least?;
        if let Some(next) = self.next.get_mut(place) {
            *next += 1;
        }
        Some(entry)
    }
}
