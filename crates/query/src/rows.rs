//! Looks rows up one by one: by a list of keys, or by the keys in entries of an index.

use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow};

use pellucid_store::{Lookahead, Range, Reader, Row, Snapshot, StoreError, TableId, range_of_parts};

use crate::index::Keys;
use crate::sort::{KeyPart, SortedKeys};
use crate::walk::{Divide, LOOKUP_COUNT_MIN, RowKey, StepResult, Walk};

/// Rows that a reader looks up.
pub trait Lookups<R: Reader> {
    /// Calls `visit` with the next row, and with whether it has large values that are stored apart.
    /// None at the end. Bytes of a snapshot's rows stay valid while the snapshot lives.
    ///
    /// # Errors
    /// Damage, or a list of keys cannot be read.
    fn next<T>(
        &mut self,
        reader: &R,
        visit: impl FnOnce(Row<'_>, bool) -> T,
    ) -> Result<Option<T>, StoreError>;
}

impl<R: Reader, L: Lookups<R>> Lookups<R> for &mut L {
    fn next<T>(
        &mut self,
        reader: &R,
        visit: impl FnOnce(Row<'_>, bool) -> T,
    ) -> Result<Option<T>, StoreError> {
        L::next(self, reader, visit)
    }
}

/// Rows that are looked up, with their reader.
pub struct LookedUp<'a, L, R> {
    /// The rows.
    pub rows: L,
    /// What they are read from.
    pub reader: &'a R,
}

impl<R: Reader, L: Lookups<R>> Walk for LookedUp<'_, L, R> {
    fn step<B>(&mut self, mut visit: impl FnMut(Row<'_>) -> ControlFlow<B>) -> StepResult<B> {
        Ok(self.rows.next(self.reader, |row, _| visit(row))?)
    }
}

/// Looks up the rows under keys that come one by one.
struct Ahead {
    rows: Lookahead,
    /// What ended the keys, for the step after the last of them.
    failure: Option<StoreError>,
}

impl Ahead {
    fn new(table: TableId) -> Self {
        Self { rows: Lookahead::new(table), failure: None }
    }

    /// Calls `visit` with the row under the next key that has one. None if there is no further key.
    /// `push_next` adds the next key to the list; it returns false at the end.
    fn next<R: Reader, T>(
        &mut self,
        reader: &R,
        mut push_next: impl FnMut(&mut Lookahead) -> Result<bool, StoreError>,
        visit: impl FnOnce(Row<'_>, bool) -> T,
    ) -> Result<Option<T>, StoreError> {
        let rows = &mut self.rows;
        loop {
            if rows.key().is_none() {
                // A transaction may change what comes next while it walks.
                let count = if R::IS_COMMITTED { rows.restart() } else { rows.restart().min(1) };
                for _ in 0..count {
                    if self.failure.is_some() {
                        break;
                    }
                    match push_next(rows) {
                        Ok(true) => {}
                        Ok(false) => break,
                        Err(error) => self.failure = Some(error),
                    }
                }
            }
            let found = reader.get_next(rows);
            let Some((key, spelling)) = rows.key() else {
                return self.failure.take().map_or(Ok(None), Err);
            };
            let done = match found {
                Ok(Some(cell)) => {
                    Ok(Some(visit(Row { key, spelling, record: &cell.record }, cell.has_blobs())))
                }
                Ok(None) => {
                    rows.pass();
                    continue;
                }
                Err(error) => Err(error),
            };
            rows.pass();
            return done;
        }
    }
}

/// A list of keys.
pub trait KeyList {
    /// Adds the next key to a list of rows that are looked up. False at the end.
    ///
    /// # Errors
    /// The keys cannot be read.
    fn push_next(&mut self, rows: &mut Lookahead) -> Result<bool, StoreError>;
}

/// The rows under a list of keys, in the order of the list.
pub struct RowsByKey<K = SortedKeys> {
    table: TableId,
    keys: K,
    ahead: Box<Ahead>,
}

impl<K> RowsByKey<K> {
    /// The rows of this table under these keys.
    #[must_use]
    pub fn new(table: TableId, keys: K) -> Self {
        Self { table, keys, ahead: Box::new(Ahead::new(table)) }
    }
}

impl<R: Reader, K: KeyList> Lookups<R> for RowsByKey<K> {
    fn next<T>(
        &mut self,
        reader: &R,
        visit: impl FnOnce(Row<'_>, bool) -> T,
    ) -> Result<Option<T>, StoreError> {
        // The row exists: it did when the list was made, by the same reader.
        let keys = &mut self.keys;
        self.ahead.next(reader, |rows| keys.push_next(rows), visit)
    }
}

impl Divide for LookedUp<'_, &mut RowsByKey, Snapshot> {
    type Part<'a>
        = LookedUp<'a, RowsByKey<KeyPart<'a>>, Snapshot>
    where
        Self: 'a;

    fn is_long(&self) -> Result<bool, StoreError> {
        Ok(self.rows.keys.known_count() >= LOOKUP_COUNT_MIN)
    }

    fn parts(&self, count: usize) -> Result<Vec<Self::Part<'_>>, StoreError> {
        let part = |keys| LookedUp { rows: RowsByKey::new(self.rows.table, keys), reader: self.reader };
        Ok(self.rows.keys.parts(count).into_iter().map(part).collect())
    }
}

/// Adds a key to a list. False if there is none.
fn push(rows: &mut Lookahead, key: Result<Option<RowKey>, StoreError>) -> Result<bool, StoreError> {
    let key = key?;
    if let Some(key) = &key {
        rows.push(&key.code, &key.spelling);
    }
    Ok(key.is_some())
}

/// The rows to which entries of an index lead, in the order of the entries.
pub struct RowsByIndex<R: Reader> {
    table: TableId,
    entries: R::Scan,
    ahead: Box<Ahead>,
    keys: Keys,
    reversed: Option<Reversed<R>>,
}

/// Reverses a reverse walk within each run of entries with the same parts, so that these come in
/// the order of keys.
struct Reversed<R: Reader> {
    index: TableId,
    /// The start of the range, at which a reverse walk ends.
    start: Bound<Vec<u8>>,
    parts: Vec<u8>,
    run: Vec<RowKey>,
    /// A forward scan of a run that is too long to be read before its first entry is returned.
    long: Option<R::Scan>,
    /// The first entry after the run, which has other parts.
    next: Option<(Vec<u8>, RowKey)>,
}

impl<R: Reader> RowsByIndex<R> {
    /// The rows of this table to which these entries lead.
    #[must_use]
    pub fn new(entries: R::Scan, table: TableId, keys: Keys) -> Self {
        Self { table, entries, ahead: Box::new(Ahead::new(table)), keys, reversed: None }
    }

    /// The rows of this table to which the entries of an index in a range lead. In reverse, entries
    /// with the same parts still come in the order of keys.
    ///
    /// # Errors
    /// The engine's pages are damaged.
    pub fn ordered(
        reader: &R,
        table: TableId,
        (index, keys): (TableId, Keys),
        (range, is_reverse): (&Range, bool),
    ) -> Result<Self, StoreError> {
        let start = range.start.clone();
        let reversed = is_reverse.then(|| Reversed {
            index,
            start,
            parts: Vec::new(),
            run: Vec::new(),
            long: None,
            next: None,
        });
        Ok(Self { reversed, ..Self::new(reader.scan(index, range, is_reverse)?, table, keys) })
    }
}

impl<R: Reader> Lookups<R> for RowsByIndex<R> {
    fn next<T>(
        &mut self,
        reader: &R,
        visit: impl FnOnce(Row<'_>, bool) -> T,
    ) -> Result<Option<T>, StoreError> {
        let (entries, keys) = (&mut self.entries, &self.keys);
        if let Some(reversed) = &mut self.reversed {
            let push_next = |rows: &mut Lookahead| push(rows, reversed.next(entries, keys, reader));
            return self.ahead.next(reader, push_next, visit);
        }
        let push_next = |rows: &mut Lookahead| {
            // Bytes that are no entry are skipped here; `check` reports them. It also reports an
            // entry without a row, unless a transaction deletes rows while it walks.
            loop {
                let pushed = reader.next(entries, |entry| {
                    keys.split(&entry).map(|parts| rows.push(parts.key, parts.key_spelling))
                })?;
                match pushed {
                    None => return Ok(false),
                    Some(Some(())) => return Ok(true),
                    Some(None) => {}
                }
            }
        };
        self.ahead.next(reader, push_next, visit)
    }
}

impl Divide for LookedUp<'_, &mut RowsByIndex<Snapshot>, Snapshot> {
    type Part<'a>
        = LookedUp<'a, RowsByIndex<Snapshot>, Snapshot>
    where
        Self: 'a;

    fn is_long(&self) -> Result<bool, StoreError> {
        Ok(self.rows.entries.estimate()? >= LOOKUP_COUNT_MIN)
    }

    fn parts(&self, count: usize) -> Result<Vec<Self::Part<'_>>, StoreError> {
        let RowsByIndex { table, entries, keys, reversed, .. } = &*self.rows;
        if reversed.is_some() {
            // Where one part ends, a run of entries with the same parts may go on.
            return Ok(Vec::new());
        }
        let part =
            |entries| LookedUp { rows: RowsByIndex::new(entries, *table, keys.clone()), reader: self.reader };
        Ok(entries.parts(count)?.into_iter().map(part).collect())
    }
}

impl<R: Reader> Reversed<R> {
    fn next(&mut self, entries: &mut R::Scan, keys: &Keys, reader: &R) -> Result<Option<RowKey>, StoreError> {
        const RUN_MAX: usize = 100;
        if let Some(long) = &mut self.long {
            while let Some(key) = reader.next(long, |entry| keys.row_key(&entry))? {
                if key.is_some() {
                    return Ok(key);
                }
            }
            self.long = None;
        }
        if let Some(key) = self.run.pop() {
            return Ok(Some(key));
        }
        if let Some((parts, key)) = self.next.take() {
            self.parts = parts;
            self.run.push(key);
        }
        loop {
            let (own_parts, run, next) = (&mut self.parts, &mut self.run, &mut self.next);
            let is_over = reader.next(entries, |entry| {
                let Some(parts) = keys.split(&entry) else { return false };
                let key = RowKey::new(parts.key, parts.key_spelling);
                if run.is_empty() {
                    *own_parts = parts.parts.to_vec();
                } else if *parts.parts != **own_parts {
                    *next = Some((parts.parts.to_vec(), key));
                    return true;
                }
                run.push(key);
                false
            })?;
            if is_over.unwrap_or(true) {
                return Ok(self.run.pop());
            }
            if self.run.len() == RUN_MAX {
                self.run.clear();
                let run = range_of_parts(&self.parts);
                let behind = Range { start: self.start.clone(), end: Bound::Excluded(self.parts.clone()) };
                *entries = reader.scan(self.index, &behind, true)?;
                self.long = Some(reader.scan(self.index, &run, false)?);
                return self.next(entries, keys, reader);
            }
        }
    }
}

/// Copies of rows, in an order of their own.
#[derive(Default)]
pub struct CopiedRows {
    rows: VecDeque<(RowKey, Box<[u8]>, bool)>,
}

impl CopiedRows {
    /// Appends a row. `has_large` says whether it has large values that are stored apart.
    pub fn push(&mut self, row: &Row<'_>, has_large: bool) {
        self.rows.push_back((RowKey::new(row.key, row.spelling), row.record.into(), has_large));
    }

    /// Calls `visit` with the next row, and with whether it has large values that are stored apart.
    /// None at the end.
    pub fn next<T>(&mut self, visit: impl FnOnce(Row<'_>, bool) -> T) -> Option<T> {
        let (key, record, has_large) = self.rows.pop_front()?;
        Some(visit(Row { key: &key.code, spelling: &key.spelling, record: &record }, has_large))
    }
}

impl Walk for CopiedRows {
    fn step<B>(&mut self, mut visit: impl FnMut(Row<'_>) -> ControlFlow<B>) -> StepResult<B> {
        Ok(self.next(|row, _| visit(row)))
    }
}
