//! Large values in the log: a WAL record has their extent in the data file, not their bytes.
//!
//! The contract is docs/internals/large-values.md. The head of the log says which pages of the
//! tree's reserve are not used yet. The words are written under the writer lock alone:
//!
//! ```text
//! word 56  placed    the position after the last WAL record that has a place
//!      57  ranges    how many ranges of pages follow
//!      58  reserves  1 after a process has made a reserve, until it is freed
//!      59  renewals  how often what was left of the reserve was freed
//!      64  next page, end page    of each range
//! ```

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use xxhash_rust::xxh3::Xxh3;

use crate::engine::{EngineError, Extents, Tree, WriteTxn};
use crate::sys::steps::{Step, reached};
use crate::wal::engine::Shared;
use crate::wal::lock::{self, Held};
use crate::wal::memtable::Memtable;
use crate::wal::read::LoggedRead;
use crate::wal::record;
use crate::wal::segments::Segments;

/// Values of this size or more are written to the data file once, ahead of their commit. For
/// smaller ones the log is as quick, and their pages would be more than an eighth longer.
pub const SIZE_MIN: usize = 128 << 10;

const PLACED: usize = 56;
const RANGES: usize = 57;
const RESERVES: usize = 58;
const RENEWALS: usize = 59;
const FIRST_RANGE: usize = 64;
pub(super) const RANGES_MAX: usize = 200;

/// Where a large value is in the data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Its first page.
    pub(crate) first: u64,
    pub(crate) size: u64,
    /// XXH3-64 of its bytes, seeded by its first page.
    check: u64,
}

impl Extent {
    pub(crate) const SIZE: usize = 24;

    fn of(first: u64, parts: &[&[u8]]) -> Self {
        let mut hasher = Xxh3::with_seed(first);
        let mut size = 0;
        for part in parts {
            hasher.update(part);
            size += part.len() as u64;
        }
        Self { first, size, check: hasher.digest() }
    }

    pub(crate) fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        for (target, field) in
            bytes.as_chunks_mut::<8>().0.iter_mut().zip([self.first, self.size, self.check])
        {
            *target = field.to_le_bytes();
        }
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let fields: &[u8; Self::SIZE] = bytes.try_into().ok()?;
        let [first, size, check] = fields.as_chunks::<8>().0 else { return None };
        let [first, size, check] = [first, size, check].map(|field| u64::from_le_bytes(*field));
        Some(Self { first, size, check })
    }

    /// Whether the value is there as it was written: not if a power cut took it.
    pub(crate) fn is_intact(&self, extents: &dyn Extents) -> bool {
        extents.bytes(self.first, self.size).is_some_and(|bytes| Self::of(self.first, &[bytes]) == *self)
    }

    /// A copy of the value. `None` if the pages have another content by now.
    pub(crate) fn copy(&self, extents: &dyn Extents) -> Option<Vec<u8>> {
        // Verified afterwards, since the pages may be used again meanwhile.
        let copy = extents.read(self.first, self.size)?;
        (Self::of(self.first, &[&copy]) == *self).then_some(copy)
    }

    fn pages(&self, extents: &dyn Extents) -> Range<u64> {
        self.first..self.first + extents.pages_for(self.size)
    }
}

impl Segments {
    /// The pages of the reserve that are not used yet.
    pub(crate) fn reserve(&self, _held: &Held) -> Vec<Range<u64>> {
        self.reserve_ranges().collect()
    }

    fn reserve_ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let count = (self.load(RANGES) as usize).min(RANGES_MAX);
        let word = |number: usize| self.load(FIRST_RANGE + number);
        (0..count).map(move |number| word(2 * number)..word(2 * number + 1))
    }

    /// About how many pages the reserve has: a writer may change it meanwhile.
    pub(super) fn reserve_count(&self) -> u64 {
        self.reserve_ranges().map(|range| range.end.saturating_sub(range.start)).sum()
    }

    /// Replace the reserve.
    pub(crate) fn set_reserve(&self, _held: &Held, ranges: &[Range<u64>]) {
        // If this process dies in between there is none.
        self.store(RANGES, 0);
        let ranges = ranges.get(..ranges.len().min(RANGES_MAX)).unwrap_or_default();
        for (number, range) in ranges.iter().enumerate() {
            self.store(FIRST_RANGE + 2 * number, range.start);
            self.store(FIRST_RANGE + 2 * number + 1, range.end);
        }
        self.word(RANGES).store(ranges.len() as u64, Ordering::Release);
    }

    /// Whether the large values of a WAL record are in the data file.
    pub(crate) fn has_values_of(&self, wal_record: &[u8]) -> bool {
        record::extents_in(wal_record)
            .all(|extent| self.extents().is_some_and(|extents| extent.is_intact(&**extents)))
    }

    /// Note what is left of each range, before the WAL record that has the rest. It ends at `end`.
    pub(crate) fn note_taken(&self, _held: &Held, ranges: &[Range<u64>], end: u64) {
        for (number, range) in ranges.iter().enumerate().take(RANGES_MAX) {
            if self.load(FIRST_RANGE + 2 * number) != range.start {
                self.store(FIRST_RANGE + 2 * number, range.start);
            }
        }
        self.word(PLACED).store(end, Ordering::Release);
    }

    /// Roll back to the innermost savepoint: the pages that were taken since can be taken again.
    pub(crate) fn take_back(&self, held: &Held, taken: &mut Taken) {
        let used = taken.roll_back();
        self.give_back(held, taken, used);
    }

    /// The transaction has ended: without a commit, the pages that it took can be taken again. The
    /// words lack those from before its last refill.
    pub(crate) fn take_all_back(&self, held: &Held, taken: &mut Taken) {
        let used = std::mem::take(&mut taken.used);
        // In a forked child the lock, and with it the words, are the parent's.
        if !taken.is_noted && lock::is_held(self) {
            self.give_back(held, taken, used);
        }
    }

    /// Have the words name pages that were taken, as long as they are in the reserve for certain.
    fn give_back(&self, held: &Held, taken: &mut Taken, used: Vec<Range<u64>>) {
        let Some(left) = taken.left.as_mut().filter(|_| !used.is_empty()) else { return };
        if taken.renewals == self.renewals() {
            left.extend(used);
            left.retain(|range| range.start < range.end);
            *left = merged(std::mem::take(left));
            self.set_reserve(held, left);
        }
    }

    /// The position after the last WAL record that has an extent.
    pub(crate) fn placed(&self) -> u64 {
        self.word(PLACED).load(Ordering::Acquire)
    }

    /// Whether the tree has a reserve, as far as the head tells: not if all who knew it have died.
    pub(crate) fn has_reserve(&self) -> bool {
        self.load(RESERVES) != 0
    }

    /// Note that there is a reserve, or that it was freed.
    pub(super) fn set_has_reserve(&self, _held: &Held, has_reserve: bool) {
        self.store(RESERVES, u64::from(has_reserve));
    }

    /// How often what was left of the reserve was freed.
    pub(super) fn renewals(&self) -> u64 {
        self.word(RENEWALS).load(Ordering::Acquire)
    }

    /// Empty the words, before what is left of the reserve is freed.
    pub(super) fn begin_renewal(&self, held: &Held) {
        self.set_reserve(held, &[]);
        self.word(RENEWALS).fetch_add(1, Ordering::AcqRel);
    }

    /// Forget the reserve, whose words a power cut may have changed.
    pub(crate) fn forget_reserve(&self, held: &Held, tail: u64) {
        self.set_reserve(held, &[]);
        self.store(RESERVES, 0);
        // Perhaps all of them have extents.
        self.store(PLACED, tail);
    }
}

/// The extents that a transaction takes, before its commit tells the others.
#[derive(Default)]
pub(crate) struct Taken {
    /// What is left of the reserve.
    left: Option<Vec<Range<u64>>>,
    /// The pages with values of this transaction.
    used: Vec<Range<u64>>,
    /// How many of these there were at each savepoint, the outermost first.
    savepoints: Vec<usize>,
    /// `renewals` when the words named what is left: if that has changed, no page is known to be
    /// in the reserve any more.
    renewals: u64,
    /// Whether a commit has noted what is left, so that a WAL record may have the pages.
    is_noted: bool,
}

impl Taken {
    /// Note what can be taken from now on.
    fn begin(&mut self, left: Vec<Range<u64>>, renewals: u64) {
        (self.left, self.renewals) = (Some(left), renewals);
    }

    /// Take this many pages of the smallest range that has them.
    fn take(&mut self, pages: u64) -> Option<u64> {
        let fits = self.left.iter_mut().flatten().filter(|range| range.end - range.start >= pages);
        let range = fits.min_by_key(|range| range.end - range.start)?;
        let first = range.start;
        range.start += pages;
        Some(first)
    }

    /// What is left of the reserve, for a commit that has the rest. `None` if nothing was taken.
    pub(crate) fn note(&mut self) -> Option<&[Range<u64>]> {
        self.is_noted = !self.used.is_empty();
        if self.is_noted { self.left.as_deref() } else { None }
    }

    /// Set a savepoint.
    pub(crate) fn savepoint(&mut self) {
        self.savepoints.push(self.used.len());
    }

    /// Remove the innermost savepoint and keep what was taken since.
    pub(crate) fn release(&mut self) {
        self.savepoints.pop();
    }

    /// Take the pages out that were used since the innermost savepoint.
    fn roll_back(&mut self) -> Vec<Range<u64>> {
        let kept = self.savepoints.pop().unwrap_or(self.used.len());
        self.used.split_off(kept.min(self.used.len()))
    }
}

impl Shared {
    /// Write a large value into the data file. `None` if it has to go into the log as it is. `base`
    /// is what the caller's transaction reads.
    pub(crate) fn write_extent(
        self: &Arc<Self>,
        (held, base): (&Held, &mut LoggedRead),
        taken: &mut Taken,
        parts: &[&[u8]],
        until: Instant,
    ) -> Result<Option<Extent>, EngineError> {
        let size: usize = parts.iter().map(|part| part.len()).sum();
        let Some(extents) =
            self.segments.extents().filter(|_| size >= SIZE_MIN && self.segments.may_have_extents())
        else {
            return Ok(None);
        };
        let pages = extents.pages_for(size as u64);
        if taken.left.is_none() {
            taken.begin(self.segments.reserve(held), self.segments.renewals());
        }
        let mut first = taken.take(pages);
        if first.is_none() {
            let in_use = (&taken.used[..], taken.left.as_deref().unwrap_or_default());
            let Some(new) = self.refill((held, base), &**extents, in_use, pages, until)? else {
                return Ok(None);
            };
            taken.begin(new, self.segments.renewals());
            first = taken.take(pages);
        }
        if self.is_reserve_low(taken.left.as_deref()) {
            self.segments.wake_checkpointer();
        }
        let Some(first) = first else { return Ok(None) };
        // Also where the write fails: a rollback gives the pages back.
        taken.used.push(first..first + pages);
        extents.write(first, parts).map_err(EngineError::of_system)?;
        reached(Step::ValueWritten);
        Ok(Some(Extent::of(first, parts)))
    }
}

/// How many pages some ranges have.
pub(super) fn count_of(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// The parts of a range that no `used` range covers, which are in ascending order.
pub(super) fn without(range: &Range<u64>, used: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut parts, mut start) = (Vec::new(), range.start);
    for one in used.iter().filter(|one| one.start < range.end && one.end > range.start) {
        if one.start > start {
            parts.push(start..one.start);
        }
        start = start.max(one.end);
    }
    if start < range.end {
        parts.push(start..range.end);
    }
    parts
}

/// Ranges in ascending order; those that touch or overlap are one.
pub(super) fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = range.end.max(last.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// Take the extents of a memtable out of the reserve, in the transaction that has put the newest of
/// them, `assigned`, into the tree. The pages of the others, whose values were replaced since, are
/// freed. What a commit took that never came stays in the reserve, until that is taken anew.
pub(crate) fn take_from_reserve(
    txn: &mut dyn WriteTxn,
    extents: Option<&dyn Extents>,
    memtable: &Memtable,
    assigned: &[Extent],
) -> Result<(), EngineError> {
    let all = memtable.value_extents();
    let (Some(extents), Some(page_txn)) = (extents.filter(|_| !all.is_empty()), txn.pages()) else {
        return Ok(());
    };
    let pages_of = |these: &[Extent]| {
        let pages: Vec<_> = these.iter().map(|extent| extent.pages(extents)).collect();
        (count_of(&pages), merged(pages))
    };
    let ((count, used), (_, assigned)) = (pages_of(&all), pages_of(assigned));
    let reserve = page_txn.reserve()?;
    let left: Vec<_> = reserve.iter().flat_map(|range| without(range, &used)).collect();
    // Each page is in the reserve once.
    if count_of(&reserve) != count_of(&left) + count {
        let what = "a large value in the log lies outside of the pages reserved for it";
        return Err(EngineError::Damaged { what, code: 0 });
    }
    for free in used.iter().flat_map(|range| without(range, &assigned)) {
        page_txn.give_pages(&free)?;
    }
    page_txn.set_reserve(&left)
}

/// Put a value into a tree where it was written, or as a copy where the transaction cannot do that.
pub(crate) fn put_placed(
    txn: &mut dyn WriteTxn,
    (tree, key): (Tree, &[u8]),
    extent: Extent,
    bytes: &[u8],
) -> Result<(), EngineError> {
    match txn.pages() {
        Some(page_txn) => page_txn.put_placed(tree, key, extent.first, extent.size),
        None => txn.put(tree, key, &[bytes]),
    }
}
