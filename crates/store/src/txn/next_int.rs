//! The keys of appended rows: the next int of a table.
//!
//! The next int is one more than the greatest number that is a key of the table, or ever was one.
//! While the row with the greatest number exists, it tells the next int. A transaction that deletes
//! that row, or all rows, writes the next int into the catalog (`Header::marks`). So a key that was
//! given once is never given again, and appending does not write the catalog.
//!
//! The next int of a table never decreases. So any value seen once is a lower bound for ever, which
//! each process keeps (`Floors`): deleting a row with a smaller number needs no lookup. Numbers
//! beyond 64 bits are never given to a row, and are not kept.

use std::ops::Bound;

use pellucid_record::key::{KeyEncoder, KeyPart, KeyReader};

use crate::catalog::{self, Header};
use crate::db::floors::Floors;
use crate::error::Result;
use crate::row::{Range, Row};
use crate::row_key::TableId;
use crate::txn::single::CachedDatabase;
use crate::txn::snapshot::Snapshot;
use crate::txn::transaction::Transaction;

/// What a transaction knows of next ints. A rollback discards it.
#[derive(Default)]
pub(crate) struct NextInts {
    /// The marks of the catalog, once they have been read.
    marks: Option<Vec<(TableId, i64)>>,
    /// Lower bounds that this transaction has seen.
    floors: Vec<(TableId, i64)>,
}

impl NextInts {
    fn raise(&mut self, table: TableId, floor: i64) {
        match self.floors.iter_mut().find(|(of, _)| *of == table) {
            Some((_, known)) => *known = floor.max(*known),
            None => self.floors.push((table, floor)),
        }
    }

    fn floor(&self, table: TableId) -> i64 {
        mark_of(&self.floors, table)
    }

    /// Make the bounds known to the process, after the commit.
    pub(crate) fn publish(&self, floors: &Floors) {
        for (table, floor) in &self.floors {
            floors.raise(*table, *floor);
        }
    }
}

fn mark_of(marks: &[(TableId, i64)], table: TableId) -> i64 {
    marks.iter().find(|(of, _)| *of == table).map_or(0, |(_, mark)| *mark)
}

/// The codes of numbers, from -inf on (`docs/format.md`, "Ordered keys").
const NUMBERS: std::ops::Range<u8> = 0x0A..0x1F;

fn all_numbers() -> Range {
    Range { start: Bound::Included(vec![NUMBERS.start]), end: Bound::Excluded(vec![NUMBERS.end]) }
}

/// The numbers from an int on.
fn numbers_from(least: i64) -> Range {
    Range { start: Bound::Included(code_of(least)), ..all_numbers() }
}

/// The numbers that have a next int of 64 bits, from `start` on.
fn numbers_with_next(start: Bound<Vec<u8>>) -> Range {
    Range { start, end: Bound::Included(code_of(i64::MAX - 1)) }
}

fn code_of(int: i64) -> Vec<u8> {
    let mut key = KeyEncoder::new();
    key.int(int);
    key.as_bytes().to_vec()
}

/// One more than a number, rounded down. `None` for keys that are no number, and beyond 64 bits.
fn int_after(key: &[u8], spelling: &[u8]) -> Option<i64> {
    if !key.first().is_some_and(|code| NUMBERS.contains(code)) {
        return None;
    }
    match KeyReader::new(key, spelling).next() {
        Some(Ok(KeyPart::Int(value))) => value.checked_add(1),
        Some(Ok(KeyPart::Bool(value))) => Some(i64::from(value) + 1),
        Some(Ok(KeyPart::BigInt { negative, .. })) => negative.then_some(0),
        Some(Ok(KeyPart::Float(value))) if value < 9.2e18 => Some((value.floor() as i64).saturating_add(1)),
        _ => None,
    }
}

fn row_behind(row: Row<'_>) -> Option<i64> {
    int_after(row.key, row.spelling)
}

/// The next int of a table with this mark. `first` returns the int after the first row of a walk.
fn next_int(
    mark: i64,
    mut first: impl FnMut(&Range, bool) -> Result<Option<Option<i64>>>,
) -> Result<Option<i64>> {
    // Checked first: the rows below the mark may be many deleted ones that are still in the tree.
    if mark > 0 && first(&numbers_from(mark), false)?.is_none() {
        return Ok(Some(mark));
    }
    Ok(first(&all_numbers(), true)?.map_or(Some(mark), |next| next.map(|next| next.max(mark))))
}

impl Snapshot {
    /// The int under which a row is to be appended. `None` if a number among the keys is too great
    /// for one.
    ///
    /// # Errors
    /// When the catalog or the row with the greatest number is damaged.
    pub fn next_int(&self, table: TableId) -> Result<Option<i64>> {
        let mark = self.int_mark(table)?;
        next_int(mark, |range, reverse| self.with_first(table, range, reverse, row_behind))
    }

    fn int_mark(&self, table: TableId) -> Result<i64> {
        let header =
            catalog::header(self.read_txn()).map_err(|error| self.database().catalog_error(error))?;
        Ok(header.map_or(0, |header| mark_of(&header.marks, table)))
    }
}

impl CachedDatabase {
    /// Whether a row can be deleted without writing the next int: its key is no number, or one that
    /// does not determine the next int.
    pub(crate) fn keeps_next_int(&self, table: TableId, key: &[u8]) -> Result<bool> {
        // A number that is more than its code, such as a float with a fraction, is left to a
        // transaction in any case.
        let Some(behind) = int_after(key, &[]).filter(|behind| *behind > 0) else { return Ok(true) };
        if self.database.int_floors.of(table) > behind {
            return Ok(true);
        }
        let snapshot = self.database.brief_snapshot()?;
        let Some(next) = snapshot.next_int(table)? else { return Ok(false) };
        snapshot.database().int_floors.raise(table, next);
        Ok(next > behind || snapshot.int_mark(table)? >= behind)
    }
}

impl Transaction {
    /// The int under which a row is to be appended. `None` if a number among the keys is too great
    /// for one.
    ///
    /// # Errors
    /// When the catalog or the row with the greatest number is damaged.
    pub fn next_int(&mut self, table: TableId) -> Result<Option<i64>> {
        if self.has_unflushed_rows() {
            self.flush_rows()?;
        }
        let mark = self.int_mark(table)?;
        next_int(mark, |range, reverse| self.with_first(table, range, reverse, row_behind))
    }

    fn int_mark(&mut self, table: TableId) -> Result<i64> {
        if self.next_ints.marks.is_none() {
            self.next_ints.marks = Some(self.header()?.marks);
        }
        Ok(self.next_ints.marks.as_ref().map_or(0, |marks| mark_of(marks, table)))
    }

    fn header(&self) -> Result<Header> {
        let header = catalog::header(self.reader()?).map_err(|error| self.database.catalog_error(error))?;
        header.ok_or_else(|| self.database.corrupt("its catalog", "the header is missing"))
    }

    /// Called after a row was deleted: if it had the greatest number, store the next int.
    #[inline]
    pub(crate) fn keep_next_int(&mut self, table: TableId, key: &[u8], spelling: &[u8]) -> Result<()> {
        match int_after(key, spelling) {
            Some(behind) if behind > 0 => self.keep_next_int_after(table, key, behind),
            _ => Ok(()),
        }
    }

    fn keep_next_int_after(&mut self, table: TableId, key: &[u8], behind: i64) -> Result<()> {
        if self.next_ints.floor(table) > behind
            || self.database.int_floors.of(table) > behind
            || self.int_mark(table)? >= behind
        {
            return Ok(());
        }
        let above = numbers_with_next(Bound::Excluded(key.to_vec()));
        let next = self.with_first(table, &above, false, row_behind)?.flatten();
        if next.is_none_or(|next| next < behind) {
            return self.put_int_mark(table, behind);
        }
        // With this bound, deleting further rows below the greatest one needs no lookup.
        if let Some(floor) = self.with_first(table, &above, true, row_behind)?.flatten() {
            self.next_ints.raise(table, floor);
        }
        Ok(())
    }

    /// Called before all rows of a table are deleted: store the next int.
    pub(crate) fn keep_next_int_of_all(&mut self, table: TableId) -> Result<()> {
        let all = numbers_with_next(Bound::Included(vec![NUMBERS.start]));
        match self.with_first(table, &all, true, row_behind)?.flatten() {
            Some(next) if next > self.int_mark(table)? => self.put_int_mark(table, next),
            _ => Ok(()),
        }
    }

    fn put_int_mark(&mut self, table: TableId, next: i64) -> Result<()> {
        self.change_marks(|marks| match marks.iter_mut().find(|(of, _)| *of == table) {
            Some((_, mark)) => *mark = next,
            None => marks.push((table, next)),
        })?;
        self.next_ints.raise(table, next);
        Ok(())
    }

    /// Forget the next int of a dropped table, or of all.
    pub(crate) fn forget_next_int(&mut self, table: Option<TableId>) -> Result<()> {
        let is_of = |of: &TableId| table.is_none_or(|table| *of == table);
        self.next_ints.floors.retain(|(of, _)| !is_of(of));
        if self.header()?.marks.iter().any(|(of, _)| is_of(of)) {
            self.change_marks(|marks| marks.retain(|(of, _)| !is_of(of)))?;
        }
        Ok(())
    }

    fn change_marks(&mut self, change: impl FnOnce(&mut Vec<(TableId, i64)>)) -> Result<()> {
        let mut header = self.header()?;
        change(&mut header.marks);
        self.put_entries(&[header.entry()])?;
        self.next_ints.marks = Some(header.marks);
        Ok(())
    }
}
