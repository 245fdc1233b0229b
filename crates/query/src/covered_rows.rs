//! Keeps rows that were read from the entries of an index, in memory: rows of a covering index, or
//! keys of rows.
//!
//! Most of them come from an index of one part that is an int or a short name, and have a short
//! key. Such a plain row takes 24 bytes: a number for the key and one for the value. They are
//! sorted as they are. For all other rows, key and record lie one after another in a buffer.

use std::ops::{ControlFlow, Range};

use pellucid_record::layout::{Kind as Container, ROOT_HEAD_SIZE, ROOT_WIDTH_LOG2, root_head, tag};
use pellucid_store::sort::number_of;
use pellucid_store::{Row, StoreError};

use crate::walk::{Divide, RowKey, SCAN_COUNT_MIN, StepResult, Walk, ranges};

/// The size of a record of one part that stands in its slot.
pub(crate) const PLAIN_SIZE: usize = ROOT_HEAD_SIZE + 9;

/// Rows from entries, in memory.
#[derive(Clone)]
pub struct CoveredRows {
    /// The rows, as long as all are plain; empty after that.
    plain: Vec<Plain>,
    /// The rows, from the first one that is not plain on. `bytes` has the key, the key's spelling
    /// and the record of each.
    places: Vec<RowSpan>,
    bytes: Vec<u8>,
    /// Whether the rows were added in the order of their keys, each key once.
    is_in_order: bool,
    /// The row to return next.
    next: usize,
}

impl Default for CoveredRows {
    fn default() -> Self {
        Self { plain: Vec::new(), places: Vec::new(), bytes: Vec::new(), is_in_order: true, next: 0 }
    }
}

/// A row whose key has at most eight bytes and no spelling, and whose one part stands in its slot.
#[derive(Clone, Copy)]
struct Plain {
    prefix: u64,
    /// The slot, its tag, and the size of the key.
    bits: u64,
    tag: u8,
    key: u8,
}

/// The tag of a row without a record.
const NO_RECORD: u8 = u8::MAX;

impl Plain {
    /// The row's position in the order of keys.
    #[inline]
    fn order(&self) -> (u64, u8) {
        (self.prefix, self.key)
    }

    #[inline]
    fn with_row<R>(&self, visit: impl FnOnce(Row<'_>) -> R) -> R {
        let mut record = [0; PLAIN_SIZE];
        let (head, rest) = record.split_at_mut(ROOT_HEAD_SIZE);
        head.copy_from_slice(&PLAIN_HEAD.to_le_bytes());
        if let Some((tag, slot)) = rest.split_first_mut() {
            *tag = self.tag;
            slot.copy_from_slice(&self.bits.to_le_bytes());
        }
        let key = self.prefix.to_be_bytes();
        let key = key.get(..usize::from(self.key)).unwrap_or_default();
        visit(Row { key, spelling: &[], record: if self.tag == NO_RECORD { &[] } else { &record } })
    }
}

/// The head of a record of one part.
const PLAIN_HEAD: u64 = root_head(Container::Tuple, ROOT_WIDTH_LOG2, 0, 1);

/// A row of any other kind.
#[derive(Clone, Copy)]
struct RowSpan {
    /// The first bytes of the key, which decide nearly every comparison.
    prefix: u64,
    start: usize,
    key: u32,
    spelling: u32,
    record: u32,
}

impl RowSpan {
    fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.start..self.start + self.key as usize).unwrap_or_default()
    }

    #[inline]
    fn row<'a>(&self, bytes: &'a [u8]) -> Row<'a> {
        let all = bytes.get(self.start..).unwrap_or_default();
        let (key, rest) = all.split_at_checked(self.key as usize).unwrap_or_default();
        let (spelling, rest) = rest.split_at_checked(self.spelling as usize).unwrap_or_default();
        Row { key, spelling, record: rest.get(..self.record as usize).unwrap_or_default() }
    }
}

impl CoveredRows {
    /// An empty list, with room for this many plain rows.
    #[must_use]
    pub fn with_room(count: usize) -> Self {
        Self { plain: Vec::with_capacity(count), ..Self::default() }
    }

    /// Adds a row that has only its key.
    #[inline]
    pub fn push_key(&mut self, key: &[u8], spelling: &[u8]) {
        if !(spelling.is_empty() && self.push_short(key, NO_RECORD, 0)) {
            self.push_with(key, spelling, |_| true);
        }
    }

    /// Adds a row, if it and all others are plain. `record` is the record of its part.
    #[inline]
    pub(crate) fn push_plain(&mut self, key: &[u8], record: &[u8; PLAIN_SIZE]) -> bool {
        let Some((tag, slot)) = record.get(ROOT_HEAD_SIZE..).and_then(<[u8]>::split_first) else {
            return false;
        };
        self.push_short(key, *tag, slot.first_chunk().map_or(0, |slot| u64::from_le_bytes(*slot)))
    }

    #[inline]
    fn push_short(&mut self, key: &[u8], tag: u8, bits: u64) -> bool {
        if !self.places.is_empty() || key.len() > size_of::<u64>() {
            return false;
        }
        let row = Plain { prefix: number_of(key, 0), bits, tag, key: key.len() as u8 };
        self.is_in_order &= self.plain.last().is_none_or(|last| last.order() < row.order());
        self.plain.push(row);
        true
    }

    /// Adds a row, whose record `fill` appends to the bytes. Adds nothing if `fill` returns false.
    pub(crate) fn push_with(
        &mut self,
        key: &[u8],
        spelling: &[u8],
        fill: impl FnOnce(&mut Vec<u8>) -> bool,
    ) -> bool {
        self.spread();
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(spelling);
        let record = self.bytes.len();
        if !fill(&mut self.bytes) {
            self.bytes.truncate(start);
            return false;
        }
        let record = (self.bytes.len() - record) as u32;
        let (prefix, spelling) = (number_of(key, 0), spelling.len() as u32);
        let place = RowSpan { prefix, start, key: key.len() as u32, spelling, record };
        if let (true, Some(last)) = (self.is_in_order, self.places.last()) {
            self.is_in_order = last.prefix < prefix || last.prefix == prefix && last.key(&self.bytes) < key;
        }
        self.places.push(place);
        true
    }

    /// Converts plain rows to the general form, to keep them with other rows.
    fn spread(&mut self) {
        if self.plain.is_empty() {
            return;
        }
        let is_in_order = self.is_in_order;
        for row in std::mem::take(&mut self.plain) {
            row.with_row(|row| {
                self.push_with(row.key, row.spelling, |out| {
                    out.extend_from_slice(row.record);
                    true
                })
            });
        }
        self.is_in_order = is_in_order;
    }

    /// The number of bytes of memory that the rows take.
    #[inline]
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len() + self.places.len() * size_of::<RowSpan>() + self.plain.len() * size_of::<Plain>()
    }

    /// How many rows there are.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.plain.len() + self.places.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many rows `next` has not returned yet.
    pub(crate) fn left(&self) -> usize {
        self.len() - self.next
    }

    /// Cuts the rows that are left into `count` parts or fewer.
    pub(crate) fn cut_in(&self, count: usize) -> impl Iterator<Item = CoveredPart<'_>> {
        ranges(self.next..self.len(), count).map(|left| CoveredPart { rows: self, left })
    }

    /// Calls `visit` with the row that was added last.
    pub fn with_last<R>(&self, visit: impl FnOnce(Row<'_>) -> R) -> Option<R> {
        self.with_row(self.len().checked_sub(1)?, visit)
    }

    #[inline]
    fn with_row<R>(&self, index: usize, visit: impl FnOnce(Row<'_>) -> R) -> Option<R> {
        if let Some(row) = self.plain.get(index) {
            return Some(row.with_row(visit));
        }
        self.places.get(index).map(|place| visit(place.row(&self.bytes)))
    }

    /// The values of the rows from the next one on, if the one part of each is an int.
    #[must_use]
    pub fn ints(&self) -> Option<impl ExactSizeIterator<Item = i64>> {
        let rest = self.plain.get(self.next..)?;
        let is_int = self.places.is_empty() && rest.iter().all(|row| row.tag == tag::INT);
        is_int.then(|| rest.iter().map(|row| row.bits.cast_signed()))
    }

    /// Removes the row that was added last.
    pub fn pop(&mut self) {
        if self.plain.pop().is_none()
            && let Some(place) = self.places.pop()
        {
            self.bytes.truncate(place.start);
        }
    }

    /// Reverses the order of the rows from this one on.
    pub fn turn(&mut self, from: usize) {
        self.plain.get_mut(from..).unwrap_or_default().reverse();
        self.places.get_mut(from..).unwrap_or_default().reverse();
        self.is_in_order = false;
    }

    /// Appends other rows.
    pub fn append(&mut self, mut others: Self) {
        if self.is_empty() {
            *self = others;
            return;
        }
        let is_behind = || {
            let last = self.with_last(|row| RowKey::new(row.key, &[]));
            last.zip(others.with_row(0, |row| RowKey::new(row.key, &[])))
                .is_none_or(|(last, first)| last.code < first.code)
        };
        self.is_in_order = self.is_in_order && others.is_in_order && is_behind();
        if self.places.is_empty() && others.places.is_empty() {
            self.plain.append(&mut others.plain);
            return;
        }
        self.spread();
        others.spread();
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&others.bytes);
        let moved = |place: RowSpan| RowSpan { start: start + place.start, ..place };
        self.places.extend(others.places.into_iter().map(moved));
    }

    /// Skips the first `offset` rows, and keeps at most `limit` of the rest.
    pub fn cut(&mut self, offset: u64, limit: u64) {
        let start = offset.min(self.len() as u64) as usize;
        let count = limit.min((self.len() - start) as u64) as usize;
        self.plain.drain(..start.min(self.plain.len()));
        self.places.drain(..start.min(self.places.len()));
        self.plain.truncate(count);
        self.places.truncate(count);
    }

    /// Sorts the rows by key, and keeps each key once.
    pub fn put_in_order(&mut self) {
        if self.is_in_order {
            return;
        }
        self.is_in_order = true;
        let bytes = &self.bytes;
        // Entries come in sorted runs, which make a stable sort faster.
        self.plain.sort_by_key(Plain::order);
        self.plain.dedup_by_key(|row| row.order());
        self.places.sort_by(|one, other| {
            one.prefix.cmp(&other.prefix).then_with(|| one.key(bytes).cmp(other.key(bytes)))
        });
        self.places.dedup_by(|one, other| one.prefix == other.prefix && one.key(bytes) == other.key(bytes));
    }

    /// Keeps only the rows whose keys other rows have as well. Both must be sorted by key.
    pub fn keep_common(&mut self, mut others: Self) {
        let next = || others.next(|row| Ok::<_, std::convert::Infallible>(RowKey::new(row.key, &[])));
        let Ok(()) = self.pick(std::iter::from_fn(next));
    }

    /// Keeps only the rows with these keys, in the order of these keys. The rows must be sorted by
    /// key.
    ///
    /// # Errors
    /// An error of the keys' iterator.
    pub fn pick<E>(&mut self, keys: impl Iterator<Item = Result<RowKey, E>>) -> Result<(), E> {
        let (mut plain, mut places) = (Vec::new(), Vec::new());
        for key in keys {
            let key = key?.code;
            let prefix = number_of(&key, 0);
            let found = self.plain.binary_search_by_key(&(prefix, key.len()), |row| {
                let (prefix, size) = row.order();
                (prefix, usize::from(size))
            });
            plain.extend(found.ok().and_then(|found| self.plain.get(found)));
            let order =
                |place: &RowSpan| place.prefix.cmp(&prefix).then_with(|| place.key(&self.bytes).cmp(&key));
            places.extend(self.places.binary_search_by(order).ok().and_then(|found| self.places.get(found)));
        }
        (self.plain, self.places) = (plain, places);
        Ok(())
    }

    /// Calls `visit` with the next row; None at the end.
    pub fn next<R>(&mut self, visit: impl FnOnce(Row<'_>) -> R) -> Option<R> {
        let found = self.with_row(self.next, visit)?;
        self.next += 1;
        Some(found)
    }
}

impl Walk for CoveredRows {
    fn step<B>(&mut self, visit: impl FnMut(Row<'_>) -> ControlFlow<B>) -> StepResult<B> {
        let mut rest = CoveredPart { rows: self, left: self.next..self.len() };
        let step = rest.step(visit);
        self.next = rest.left.start;
        step
    }
}

/// Rows of a list that follow each other.
pub struct CoveredPart<'a> {
    rows: &'a CoveredRows,
    left: Range<usize>,
}

impl CoveredPart<'_> {
    /// Calls `visit` with the next row; None at the end.
    pub fn next<R>(&mut self, visit: impl FnOnce(Row<'_>) -> R) -> Option<R> {
        self.rows.with_row(self.left.next()?, visit)
    }
}

impl Walk for CoveredPart<'_> {
    fn step<B>(&mut self, mut visit: impl FnMut(Row<'_>) -> ControlFlow<B>) -> StepResult<B> {
        const COUNT: usize = 64;
        if self.left.is_empty() {
            return Ok(None);
        }
        let (rows, now) = (self.rows, self.left.start..self.left.end.min(self.left.start + COUNT));
        for row in rows.plain.get(now.clone()).unwrap_or_default() {
            self.left.start += 1;
            if let ControlFlow::Break(value) = row.with_row(&mut visit) {
                return Ok(Some(ControlFlow::Break(value)));
            }
        }
        for place in rows.places.get(now).unwrap_or_default() {
            self.left.start += 1;
            if let ControlFlow::Break(value) = visit(place.row(&rows.bytes)) {
                return Ok(Some(ControlFlow::Break(value)));
            }
        }
        Ok(Some(ControlFlow::Continue(())))
    }
}

impl Divide for CoveredRows {
    type Part<'a> = CoveredPart<'a>;

    fn is_long(&self) -> Result<bool, StoreError> {
        Ok(self.left() as u64 >= SCAN_COUNT_MIN)
    }

    fn parts(&self, count: usize) -> Result<Vec<CoveredPart<'_>>, StoreError> {
        Ok(self.cut_in(count).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn awkward_keys() -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = (0..12).map(|size| (1..=size).collect()).collect();
        keys.extend((0..10).map(|size| vec![0; size]));
        keys.extend([vec![0xFF; 3], vec![0xFF; 7], vec![1, 2, 3, 4, 0xFF], vec![1, 2, 3, 4, 5, 6, 0xFF]]);
        keys
    }

    fn drained(mut rows: CoveredRows) -> Vec<(Vec<u8>, Vec<u8>, Vec<u8>)> {
        let copied = |row: Row<'_>| (row.key.to_vec(), row.spelling.to_vec(), row.record.to_vec());
        std::iter::from_fn(|| rows.next(copied)).collect()
    }

    #[test]
    fn keys_are_ordered_as_their_first_bytes() {
        let mut keys = awkward_keys();
        for one in &keys {
            let padded: Vec<u8> = one.iter().copied().chain([0; 8]).take(8).collect();
            assert_eq!(number_of(one, 0).to_be_bytes(), padded[..], "{one:?}");
        }
        let row_key = |code: &Vec<u8>| RowKey { code: code.as_slice().into(), spelling: [7].into() };
        let mut rows = CoveredRows::default();
        for key in keys.iter().chain(&keys) {
            rows.push_key(key, &[7]);
        }
        rows.put_in_order();
        keys.sort();
        keys.dedup();
        let expected: Vec<_> = keys.iter().map(|key| (key.clone(), vec![7], vec![])).collect();
        assert_eq!(drained(rows.clone()), expected);
        rows.pick(keys.iter().rev().map(|key| Ok::<_, ()>(row_key(key)))).unwrap();
        assert!(drained(rows).iter().eq(expected.iter().rev()));
    }

    #[test]
    fn rows_are_the_same_whether_all_are_plain_or_not() {
        let record = |value: i64| {
            let mut record = [0; PLAIN_SIZE];
            record[..ROOT_HEAD_SIZE].copy_from_slice(&PLAIN_HEAD.to_le_bytes());
            record[ROOT_HEAD_SIZE] = tag::INT;
            record[ROOT_HEAD_SIZE + 1..].copy_from_slice(&value.to_le_bytes());
            record
        };
        let keys: Vec<Vec<u8>> = awkward_keys().into_iter().filter(|key| key.len() <= 8).collect();
        let (mut plain, mut any, mut late) =
            (CoveredRows::default(), CoveredRows::default(), CoveredRows::default());
        for (value, key) in (0..).zip(keys.iter().chain(&keys)) {
            let record = record(value);
            let fill = |out: &mut Vec<u8>| {
                out.extend_from_slice(&record);
                true
            };
            assert!(plain.push_plain(key, &record));
            assert!(any.push_with(key, &[], fill));
            // After the first row that is not plain, all rows are kept in the general form.
            let is_plain = late.push_plain(key, &record);
            assert_eq!(is_plain, value <= 3);
            if !is_plain || value == 3 {
                late.push_with(key, &[], fill);
            }
        }
        assert!(plain.ints().unwrap().eq((0..).take(2 * keys.len())));
        assert!(any.ints().is_none());
        for rows in [&mut plain, &mut any, &mut late] {
            rows.put_in_order();
            rows.turn(1);
            rows.cut(2, 9);
        }
        assert_eq!(plain.len(), 9);
        assert_eq!(drained(plain.clone()), drained(any.clone()));
        assert_eq!(drained(plain.clone()), drained(late));
        let both = |one: &CoveredRows, other: &CoveredRows| {
            let mut both = one.clone();
            both.append(other.clone());
            drained(both)
        };
        assert_eq!(both(&plain, &any), both(&plain, &plain));
        assert_eq!(both(&any, &plain), both(&any, &any));
    }

    #[test]
    fn parts_have_the_rows_of_the_whole_in_their_order() {
        let keys: Vec<Vec<u8>> = (0_u16..20_000).map(|number| number.to_be_bytes().to_vec()).collect();
        let long: Vec<Vec<u8>> = keys.iter().map(|key| [key.as_slice(), &[7; 20]].concat()).collect();
        for keys in [keys, long] {
            let mut rows = CoveredRows::default();
            for key in &keys {
                rows.push_key(key, &[]);
            }
            // Rows that were returned before are in no part.
            rows.next(|_| ()).unwrap();
            for count in [1, 2, 5, 1000] {
                let mut found = Vec::new();
                let parts = rows.parts(count).unwrap();
                assert_eq!(parts.len(), count.min(5));
                for mut part in parts {
                    found.push(part.next(|row| row.key.to_vec()).unwrap());
                    crate::walk::for_each::<()>(
                        &mut part,
                        || false,
                        |row| {
                            found.push(row.key.to_vec());
                            ControlFlow::Continue(())
                        },
                    )
                    .unwrap();
                }
                assert_eq!(found, keys[1..], "{count}");
            }
        }
    }

    #[test]
    fn rows_appended_behind_the_last_need_no_sort_and_others_do() {
        let list = |keys: &[u8]| {
            let mut rows = CoveredRows::default();
            for key in keys {
                rows.push_key(&[*key], &[]);
            }
            rows
        };
        for (one, other, is_in_order) in [
            ([1, 2], [3, 4], true),
            ([1, 2], [2, 3], false),
            ([3, 4], [1, 2], false),
            ([2, 1], [3, 4], false),
        ] {
            let mut rows = list(&one);
            rows.append(list(&other));
            assert_eq!(rows.is_in_order, is_in_order, "{one:?} {other:?}");
            rows.put_in_order();
            let keys: Vec<u8> = drained(rows).into_iter().map(|(key, ..)| key[0]).collect();
            let mut expected = [one, other].concat();
            expected.sort_unstable();
            expected.dedup();
            assert_eq!(keys, expected);
        }
    }
}
