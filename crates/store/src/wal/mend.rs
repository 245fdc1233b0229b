//! Mends a copy of a damaged log, so that everything that is whole can be read.
//!
//! Bytes that had been synced and do not check are damaged: no power cut explains them. Such a log
//! is not written to. A reader gets a copy in memory, in which each commit stays at its place, and
//! only what is damaged is left out: a large value, or those changes of a commit whose own checks
//! do not hold. The chain of checks is made anew from there on.

use std::fmt::{self, Write as _};
use std::ops::Range;
use std::sync::Arc;

use pellucid_record::Dictionary;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::catalog::cell::{CHECK_SIZE as CELL_CHECK_SIZE, Cell};
use crate::catalog::{self, Applied, blob, parse_entry};
use crate::engine::entry::{self, COUNTED, DELETED, Entries, Entry, PLACED, PUT};
use crate::engine::{Engine, EngineError, Extents, Tree};
use crate::wal::extents::Extent;
use crate::wal::lock::Held;
use crate::wal::read::LoggedRead;
use crate::wal::record::{self, CHECK_SIZE, HEAD_SIZE};
use crate::wal::segments::{SYNCED, SegmentHead, Segments};
use crate::wal::space::{MemorySpace, Space, word_count};
use crate::wal::state::{State, check_version, newest};
use crate::wal::takeover::{is_damaged, take_over};

/// Bytes of the shortest WAL record, which has no entry.
const SIZE_LEAST: u64 = (HEAD_SIZE + CHECK_SIZE) as u64;

/// Something of a log that is not as it was written, though it had been synced to the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFault {
    /// The version of the database that the damaged commit made.
    pub commit: u64,
    /// Where the commit begins in the log, in bytes.
    pub offset: u64,
    /// What is damaged, and what is lost with it.
    pub what: String,
}

impl fmt::Display for LogFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "commit {} (byte {}): {}", self.commit, self.offset, self.what)
    }
}

/// The log in a space, or a mended copy of it in memory if it is damaged, with what is lost. The
/// caller is alone with the log. The log itself is not changed.
pub(crate) fn mended(
    tree: &dyn Engine,
    space: Box<dyn Space>,
    identity: [u8; 16],
    may_write: bool,
) -> Result<(Box<dyn Space>, Vec<LogFault>), EngineError> {
    let segments = Segments::new(space, identity).over(tree);
    if segments.known_synced() == 0 {
        return Ok((segments.into_space(), Vec::new()));
    }
    check_version(tree)?;
    if may_write {
        // Readers do not see the commit of a writer that died right after it until the tree's lock
        // was taken once.
        drop(tree.begin_write()?);
    }
    let (_, applied) = newest(tree)?;
    if !is_damaged(&segments, applied)? {
        return Ok((segments.into_space(), Vec::new()));
    }
    // The file may be shorter than when it was synced, and the mender writes up to that position.
    // Or that is damaged itself: the commits that the tree lacks lie in two segments at most.
    let room = segments.bytes_within(word_count(segments.space()));
    let begins = [0, 1].into_iter().filter_map(|segment| segments.head(segment)).map(|head| head.begin);
    let last = begins.map(|begin| begin.saturating_sub(applied.position)).max().unwrap_or(0);
    let last = last.min(segments.capacity());
    let synced = segments.known_synced().saturating_sub(applied.position).min(last + 2 * room);
    let words = segments.words_until(synced.max(last) + SIZE_LEAST);
    let copied = || -> Result<Segments, EngineError> {
        let copy = MemorySpace::copy_of(segments.space(), words)?;
        Ok(Segments::new(Box::new(copy), identity).over(tree))
    };
    let copy = copied()?;
    let mut mender = Mender { segments: &copy, known: applied.position + synced, room, faults: Vec::new() };
    mender.mend(applied)?;
    let mut faults = mender.faults;
    take_over(&copy, applied)?;
    if faults.is_empty() {
        // It is damaged all the same: a writer must not take the copy for its log.
        let what = "the log ends before what its head says was synced".to_owned();
        faults.push(LogFault { commit: copy.sequence() + 1, offset: SYNCED as u64 * 8, what });
    }
    if is_readable(tree, &copy) {
        return Ok((copy.into_space(), faults));
    }
    // The commits before the damage have a catalog of their own.
    if let Some(first) = faults.first_mut() {
        first
            .what
            .push_str("; the catalog cannot be read without it, so that all commits after it are left out");
    }
    Ok((copied()?.into_space(), faults))
}

/// Whether the catalog that these commits make can be read.
fn is_readable(tree: &dyn Engine, segments: &Segments) -> bool {
    let read = || {
        let mut state = State::new(tree).ok()?;
        let below = state.read(tree, segments).ok()?;
        let read = LoggedRead::new(&state, below);
        let counters = catalog::counters(&read).ok()?;
        catalog::tables(&read).ok()?;
        catalog::load_shapes(&read, &Dictionary::default(), counters.shape_count).ok()
    };
    read().is_some()
}

/// Where the chain goes on behind damage.
struct Resumed {
    end: u64,
    /// The sequence number of the WAL record there.
    sequence: u64,
    /// What seeds its check. `None` if that is not known.
    seed: Option<u64>,
    /// Whether nothing but the check between is damaged.
    is_whole: bool,
}

struct Mender<'a> {
    segments: &'a Segments,
    /// The position up to which everything had been synced.
    known: u64,
    /// How many bytes each segment can have in the file.
    room: u64,
    faults: Vec<LogFault>,
}

/// A use of a segment.
#[derive(Clone, Copy)]
struct Use {
    segment: usize,
    head: SegmentHead,
}

impl Mender<'_> {
    fn mend(&mut self, applied: Applied) -> Result<(), EngineError> {
        let heads = [0, 1].map(|segment| self.segments.head(segment));
        let begins = |segment: &usize| {
            heads.get(*segment).copied().flatten().is_some_and(|head| head.begin == applied.position)
        };
        let is_next = |segment: &usize| self.sequence_at(*segment, 0) == Some(applied.sequence + 1);
        let both = || [0, 1].into_iter();
        let first = both().find(begins).or_else(|| both().find(is_next)).unwrap_or(self.segments.active());
        let head_of = |segment: usize| heads.get(segment).copied().flatten();
        let other = 1 - first;
        let until = head_of(other).map(|head| head.begin).filter(|begin| {
            *begin > applied.position && *begin - applied.position <= self.segments.capacity()
        });
        // Without a sign of the other segment, everything that was synced is in the first one.
        if head_of(other).is_none()
            && !self.segments.is_head_damaged(other)
            && self.sequence_at(other, 0).is_none_or(|sequence| sequence == 0)
        {
            self.known = self.known.min(applied.position + self.room);
        }
        let head = head_of(first).filter(|_| begins(&first));
        let (end, sequence) = self.mend_segment(first, head, applied.position, until, applied.sequence)?;
        match head_of(other) {
            Some(head) if head.begin == end => {
                self.mend_segment(other, Some(head), end, None, sequence)?;
            }
            None if end < self.known => {
                self.mend_segment(other, None, end, None, sequence)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Mend a segment from its begin to the end of its chain, or to `until`, where the other one
    /// begins. Without a head, that is lost. Returns where its chain ends, and the last sequence
    /// number.
    fn mend_segment(
        &mut self,
        segment: usize,
        head: Option<SegmentHead>,
        begin: u64,
        until: Option<u64>,
        mut sequence: u64,
    ) -> Result<(u64, u64), EngineError> {
        let mut seed = head.map(|head| head.salt);
        if head.is_none() {
            self.segments.begin_segment(&Held::alone(), segment, begin);
        }
        let head = self.segments.head(segment).ok_or(DAMAGED)?;
        let place = Use { segment, head };
        let (mut position, mut new_seed, mut bytes) = (begin, head.salt, Vec::new());
        while until != Some(position) {
            // A head that is damaged may name an end before this, or inside of a WAL record.
            let until = until.filter(|end| *end >= position + SIZE_LEAST);
            let next = sequence + 1;
            let check = match seed {
                Some(seed) => self.segments.wal_record(segment, head, position, next, seed, &mut bytes)?,
                None => None,
            };
            let size = bytes.len() as u64;
            if let Some(check) = check {
                let is_synced = position + size <= self.known;
                if !is_synced && !self.segments.has_values_of(&bytes) {
                    break;
                }
                let changed = self.without_lost_values(place, position, next, &bytes);
                new_seed = match changed {
                    None if seed == Some(new_seed) => check,
                    changed => {
                        let (body, count) = changed.unwrap_or_else(|| body_of(&bytes));
                        self.write(place, position..position + size, (body, count), next, new_seed)?
                    }
                };
                (position, sequence, seed) = (position + size, next, Some(check));
                continue;
            }
            let is_end = position >= self.known || self.sequence_at(1 - segment, 0) == Some(next);
            if until.is_none() && is_end {
                break;
            }
            let resumed = self.resume(place, position, next, seed, until)?;
            new_seed = self.replace(place, position, next, &resumed, new_seed)?;
            (position, sequence, seed) = (resumed.end, resumed.sequence - 1, resumed.seed);
            if seed.is_none() {
                break;
            }
        }
        Ok((position, sequence))
    }

    /// Find where the chain goes on behind the WAL record at a position, which is damaged.
    fn resume(
        &self,
        place: Use,
        position: u64,
        sequence: u64,
        seed: Option<u64>,
        until: Option<u64>,
    ) -> Result<Resumed, EngineError> {
        let limit = until.unwrap_or(place.head.begin + self.room).max(position);
        let mut bytes = Vec::new();
        let mut goes_on = |at: u64, sequence: u64, seed: u64| {
            let Use { segment, head } = place;
            self.segments
                .wal_record(segment, head, at, sequence, seed, &mut bytes)
                .map(|found| found.is_some())
        };
        let size = self.word(place, position).map(|word| word & u64::from(u32::MAX));
        let size =
            size.filter(|size| size.is_multiple_of(8) && (SIZE_LEAST..=limit - position).contains(size));
        let is_there = |size: &u64| self.word(place, position + size - CHECK_SIZE as u64).is_some();
        if let (Some(seed), Some(size)) = (seed, size.filter(is_there)) {
            // If the next WAL record was seeded by what this one's check ought to be, only that is
            // damaged.
            let whole = self.bytes(place, position..position + size - CHECK_SIZE as u64)?;
            let check = xxh3_64_with_seed(&whole, seed);
            if goes_on(position + size, sequence + 1, check)? {
                let (end, sequence, seed) = (position + size, sequence + 1, Some(check));
                return Ok(Resumed { end, sequence, seed, is_whole: true });
            }
        }
        for at in (position + SIZE_LEAST..limit.saturating_sub(SIZE_LEAST - 1)).step_by(8) {
            let Some(found) = self.word(place, at + 8) else { break };
            let is_near = found > sequence && found - sequence <= (at - position) / SIZE_LEAST;
            if is_near
                && let Some(seed) = self.word(place, at - 8)
                && goes_on(at, found, seed)?
            {
                return Ok(Resumed { end: at, sequence: found, seed: Some(seed), is_whole: false });
            }
        }
        let end = until.unwrap_or_else(|| {
            let last = size.map(|size| position + size).filter(|end| *end <= self.known);
            last.unwrap_or(self.known.min(limit).next_multiple_of(8).max(position + SIZE_LEAST))
        });
        let after = until.and_then(|_| self.sequence_at(1 - place.segment, 0)).unwrap_or(sequence + 1);
        let is_near = after > sequence && after - sequence <= (end - position) / SIZE_LEAST;
        let sequence = if is_near { after } else { sequence + 1 };
        Ok(Resumed { end, sequence, seed: None, is_whole: false })
    }

    /// Replace what is damaged by what is whole of it. Returns the check of the last WAL record.
    fn replace(
        &mut self,
        place: Use,
        position: u64,
        sequence: u64,
        resumed: &Resumed,
        seed: u64,
    ) -> Result<u64, EngineError> {
        let bytes = self.bytes(place, position..resumed.end)?;
        let more = resumed.sequence - sequence - 1;
        let first = position..resumed.end - more * SIZE_LEAST;
        let (kept, what) = if resumed.is_whole {
            (body_of(&bytes), "only its check is damaged: nothing is lost".to_owned())
        } else {
            self.salvage(&bytes, more)
        };
        self.note(place, position, sequence, what);
        let mut seed = self.write(place, first.clone(), kept, sequence, seed)?;
        for number in 0..more {
            let begin = first.end + number * SIZE_LEAST;
            let empty = (record::begin(0), 0);
            seed = self.write(place, begin..begin + SIZE_LEAST, empty, sequence + 1 + number, seed)?;
        }
        Ok(seed)
    }

    /// The changes of a damaged WAL record whose own checks hold, and what is lost; `more` is how
    /// many WAL records behind it are lost as a whole. Deletes have no check. They are kept if the
    /// damage was found elsewhere.
    fn salvage(&self, bytes: &[u8], more: u64) -> ((Vec<u8>, u32), String) {
        let size = word_in(bytes, 0) as usize;
        let is_size = size.is_multiple_of(8) && (SIZE_LEAST as usize..=bytes.len()).contains(&size);
        let end = if is_size { size } else { bytes.len() } - CHECK_SIZE;
        let body = bytes.get(..end).unwrap_or_default();
        // Their number may be damaged, too. Zeros at the end look like entries with an empty key.
        let entries = Entries::new(body, HEAD_SIZE, u32::MAX).filter(|entry| !entry.key.is_empty());
        let entries: Vec<Entry> = entries.collect();
        let intact: Vec<_> = entries.iter().map(|entry| self.is_intact(body, entry)).collect();
        let is_read = entries.last().is_some_and(|last| last.value.end.next_multiple_of(8) == end);
        let is_found = is_read && intact.contains(&Some(false));
        let (mut kept, mut kept_count, mut is_renamed) = (record::begin(body.len()), 0, false);
        for (entry, intact) in entries.iter().zip(intact) {
            if intact.unwrap_or(is_found) {
                let (key, value) = (part(body, &entry.key), part(body, &entry.value));
                entry::push(&mut kept, entry.tree, entry.flags, key, &[value]);
                kept_count += 1;
            } else if let Some(value) = resealed(body, entry) {
                entry::push(&mut kept, entry.tree, entry.flags, part(body, &entry.key), &[&value]);
                kept_count += 1;
                is_renamed = true;
            }
        }
        let mut what = match entries.len() - kept_count as usize {
            lost if is_read => format!("{lost} of its {} changes are lost", entries.len()),
            _ => format!("{kept_count} of its changes are whole, and the others are lost"),
        };
        if is_renamed {
            what.push_str(", and the name of a table or a field, or a count, may be another one");
        }
        if more > 0 {
            let _ = write!(what, ", and so are the {more} commits after it");
        }
        ((kept, kept_count), what)
    }

    /// Whether the check of an entry itself holds. `None` for a delete, which has none.
    fn is_intact(&self, bytes: &[u8], entry: &Entry) -> Option<bool> {
        let (key, value) = (part(bytes, &entry.key), part(bytes, &entry.value));
        let placed;
        let value = match entry.flags & !COUNTED {
            PUT => value,
            DELETED if value.is_empty() => return None,
            PLACED => {
                let extents = self.segments.extents()?;
                let extent = Extent::parse(value).filter(|extent| extent.is_intact(&**extents));
                placed = extent.and_then(|extent| extent.copy(&**extents));
                let Some(placed) = &placed else { return Some(false) };
                placed
            }
            _ => return Some(false),
        };
        Some(match entry.tree {
            Tree::Meta => parse_entry(key, value).is_some(),
            Tree::Rows => Cell::parse(value).is_some_and(|cell| cell.is_intact(key, value)),
            Tree::Blobs => {
                let id = key.try_into().ok().map(u64::from_be_bytes);
                let parts = value.split_last_chunk::<{ blob::CHECK_SIZE }>();
                id.zip(parts)
                    .is_some_and(|(id, (payload, check))| blob::check_of(id, payload).to_le_bytes() == *check)
            }
        })
    }

    /// A WAL record in which each large value that is damaged is replaced by one that no reader
    /// takes for a value. `None` if all are whole.
    fn without_lost_values(
        &mut self,
        place: Use,
        position: u64,
        sequence: u64,
        bytes: &[u8],
    ) -> Option<(Vec<u8>, u32)> {
        if self.segments.has_values_of(bytes) {
            return None;
        }
        let extents = self.segments.extents().cloned();
        let (mut body, mut count) = (record::begin(bytes.len()), 0);
        for change in record::changes(bytes) {
            let key = part(bytes, &change.key);
            let value = change.value.as_ref().map(|value| part(bytes, value));
            let counted = if change.is_counted { COUNTED } else { 0 };
            let large = value.filter(|_| change.is_placed).and_then(Extent::parse);
            let is_lost =
                |large: &Extent| !extents.as_ref().is_some_and(|extents| large.is_intact(&**extents));
            count += 1;
            match (value, large) {
                (_, Some(large)) if is_lost(&large) => {
                    let cell = match change.tree {
                        Tree::Rows => unreadable_cell(&large, extents.as_ref()),
                        _ => Vec::new(),
                    };
                    entry::push(&mut body, change.tree, PUT | counted, key, &[&cell]);
                    let whose = match (change.tree, <[u8; 8]>::try_from(key)) {
                        (Tree::Blobs, Ok(id)) => format!("large value {}", u64::from_be_bytes(id)),
                        _ => "the large value of a row".to_owned(),
                    };
                    let (size, first) = (large.size, large.first);
                    let what =
                        format!("{whose}, {size} bytes from page {first} of the data file on, is damaged");
                    self.note(place, position, sequence, what);
                }
                (Some(value), large) => {
                    let flags = if large.is_some() { PLACED } else { PUT };
                    entry::push(&mut body, change.tree, flags | counted, key, &[value]);
                }
                (None, _) => {
                    entry::push(&mut body, change.tree, DELETED | counted, key, &[]);
                }
            }
        }
        Some((body, count))
    }

    /// Write a WAL record that takes exactly this room. Returns its check.
    fn write(
        &self,
        place: Use,
        room: Range<u64>,
        (mut body, count): (Vec<u8>, u32),
        sequence: u64,
        seed: u64,
    ) -> Result<u64, EngineError> {
        body.resize((room.end - room.start) as usize - CHECK_SIZE, 0);
        let check = record::finish(&mut body, count, sequence, seed);
        let written = self.segments.write(place.segment, place.head, room.start, &body);
        written.map_err(EngineError::of_system)?;
        Ok(check)
    }

    fn note(&mut self, place: Use, position: u64, commit: u64, what: String) {
        let words = ((position - place.head.begin) / 8) as usize;
        let offset = self.segments.word_at(place.segment, words) as u64 * 8;
        self.faults.push(LogFault { commit, offset, what });
    }

    /// The sequence number of the WAL record that stands at a word of a segment, if there is one.
    fn sequence_at(&self, segment: usize, offset: usize) -> Option<u64> {
        let at = self.segments.word_at(segment, offset + 1);
        self.segments.space().words().get(at).map(|_| self.segments.load(at))
    }

    fn word(&self, place: Use, position: u64) -> Option<u64> {
        let offset = ((position - place.head.begin) / 8) as usize;
        let at = self.segments.word_at(place.segment, offset);
        self.segments.space().words().get(at).map(|_| self.segments.load(at))
    }

    /// The bytes between two positions. What the log does not have is zero.
    fn bytes(&self, place: Use, positions: Range<u64>) -> Result<Vec<u8>, EngineError> {
        let mut bytes = Vec::new();
        let size = (positions.end - positions.start) as usize;
        bytes.try_reserve(size).map_err(|_| EngineError::NoMemory("a commit in the log"))?;
        for position in positions.step_by(8) {
            bytes.extend_from_slice(&self.word(place, position).unwrap_or(0).to_le_bytes());
        }
        Ok(bytes)
    }
}

const DAMAGED: EngineError = EngineError::Damaged { what: "the head of a segment of the log", code: 0 };

/// The value of an entry of the catalog that everything after it needs, with a check that holds:
/// a name with a wrong letter is more than no table, and perhaps only the check was damaged.
fn resealed(bytes: &[u8], entry: &Entry) -> Option<Vec<u8>> {
    let (key, value) = (part(bytes, &entry.key), part(bytes, &entry.value));
    let body = value.get(..value.len().checked_sub(CHECK_SIZE)?)?;
    let sealed = catalog::sealed(key, body.to_vec());
    let is_needed = entry.tree == Tree::Meta
        && entry.flags & !COUNTED == PUT
        && matches!(
            parse_entry(key, &sealed),
            Some(catalog::Entry::Shape(..) | catalog::Entry::Name(..) | catalog::Entry::Table(..))
        );
    is_needed.then_some(sealed)
}

/// The cell of a row whose large value is damaged: the key can be read, and the value cannot.
fn unreadable_cell(extent: &Extent, extents: Option<&Arc<dyn Extents>>) -> Vec<u8> {
    let value = extents.and_then(|extents| extents.read(extent.first, extent.size)).unwrap_or_default();
    let head_size = Cell::parse(&value).map_or(0, |cell| value.len() - cell.record.len() - CELL_CHECK_SIZE);
    let mut cell = value.get(..head_size).unwrap_or_default().to_vec();
    cell.resize(head_size + CELL_CHECK_SIZE, 0);
    cell
}

fn part<'a>(bytes: &'a [u8], range: &Range<usize>) -> &'a [u8] {
    bytes.get(range.clone()).unwrap_or_default()
}

/// The four bytes at an offset, as a number.
fn word_in(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..offset + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// A WAL record without its check, and how many entries it has.
fn body_of(bytes: &[u8]) -> (Vec<u8>, u32) {
    (bytes.get(..bytes.len() - CHECK_SIZE).unwrap_or_default().to_vec(), word_in(bytes, 4))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::Contents;
    use crate::engine::FileCare;
    use crate::engine::memory::MemoryEngine;
    use crate::wal::engine::LoggedEngine;
    use crate::wal::segments::TAIL;

    /// The versions of the commits at which a log of ten synced commits is damaged, and how many
    /// rows can be read.
    fn mended_after(damage: impl FnOnce(&Segments)) -> (Vec<u64>, usize) {
        let engine = LoggedEngine::in_memory(Box::new(MemoryEngine::new()), 1 << 16).unwrap();
        for number in 0..10 {
            let mut txn = engine.begin_write().unwrap();
            txn.put(Tree::Rows, &[number], &[b"row"]).unwrap();
            txn.commit().unwrap();
        }
        engine.sync().unwrap();
        engine.quiet();
        let (tree, segments) = (&*engine.shared.tree, &engine.shared.segments);
        damage(segments);
        let space = MemorySpace::copy_of(segments.space(), 0).unwrap();
        let (space, faults) = mended(tree, Box::new(space), [0; 16], false).unwrap();
        let mended = Segments::new(space, [0; 16]);
        let mut state = State::new(tree).unwrap();
        let below = state.read(tree, &mended).unwrap();
        let read = LoggedRead::new(&state, below);
        let count = (0..10).filter(|number| read.get(Tree::Rows, &[*number]).unwrap().is_some()).count();
        (faults.into_iter().map(|fault| fault.commit).collect(), count)
    }

    #[test]
    fn a_head_that_says_that_more_was_synced_than_a_log_can_have_is_damaged() {
        assert_eq!(mended_after(|_| ()), (vec![], 10));
        for synced in [1 << 20, (1 << 33) + 1, 1 << 60, u64::MAX] {
            let found = mended_after(|segments| {
                segments.store(TAIL, synced);
                segments.store(SYNCED, synced);
            });
            assert_eq!(found, (vec![11], 10), "{synced}");
        }
    }

    #[test]
    fn a_log_that_is_full_and_says_that_more_was_synced_is_damaged() {
        const SIZE: u64 = 1 << 16;
        let engine = LoggedEngine::in_memory(Box::new(MemoryEngine::new()), SIZE as usize).unwrap();
        let segments = &engine.shared.segments;
        let put = |number: u8, size: usize| {
            let before = segments.load(TAIL);
            let mut txn = engine.begin_write().unwrap();
            txn.put(Tree::Rows, &[number], &[&vec![b'r'; size]]).unwrap();
            txn.commit().unwrap();
            segments.load(TAIL) - before
        };
        let size = put(0, 400) as usize;
        let mut count = 1;
        while SIZE as usize - segments.load(TAIL) as usize >= 2 * size {
            put(count, 400);
            count += 1;
        }
        put(count, 400 + SIZE as usize - segments.load(TAIL) as usize - size);
        assert_eq!(segments.load(TAIL), SIZE);
        engine.sync().unwrap();
        engine.quiet();
        segments.store(TAIL, SIZE + 64);
        segments.store(SYNCED, SIZE + 64);
        let space = MemorySpace::copy_of(segments.space(), 0).unwrap();
        let (_, faults) = mended(&*engine.shared.tree, Box::new(space), [0; 16], false).unwrap();
        assert_eq!(faults.iter().map(|fault| fault.commit).collect::<Vec<_>>(), [u64::from(count) + 2]);
    }

    /// Begins of segments that no log reaches.
    const BEYOND: [u64; 4] = [u64::MAX, u64::MAX - 7, u64::MAX - (1 << 17), (1 << 62) + 8];

    #[test]
    fn a_segment_that_seems_to_begin_where_no_log_ends_is_damaged() {
        for begin in BEYOND {
            let found = mended_after(|segments| {
                let other = 1 - segments.active();
                segments.begin_segment(&Held::alone(), other, begin);
                assert!(segments.head(other).is_none() && segments.is_head_damaged(other));
                segments.store(TAIL, u64::MAX);
                segments.store(SYNCED, u64::MAX);
            });
            // In this segment and in the other one something is missing.
            assert_eq!(found, (vec![11, 12], 10), "{begin}");
        }
    }

    #[test]
    fn a_tree_that_is_applied_where_no_log_ends_is_damaged() {
        let at = |position: u64, sequence: u64| {
            let tree = MemoryEngine::new();
            let mut txn = tree.begin_write().unwrap();
            let (key, value) = Applied { position, sequence, version: 0 }.entry();
            txn.put(Tree::Meta, &key, &[&value]).unwrap();
            txn.commit().unwrap();
            LoggedEngine::in_memory(Box::new(tree), 1 << 16).map(drop)
        };
        at(1 << 40, 1 << 40).unwrap();
        for beyond in BEYOND {
            for opened in [at(beyond, 1), at(1, beyond)] {
                assert!(matches!(opened, Err(EngineError::Damaged { .. })), "{beyond}: {opened:?}");
            }
        }
    }

    #[test]
    fn a_log_whose_tail_is_beyond_all_logs_is_not_one_of_an_earlier_state() {
        let engine = LoggedEngine::in_memory(Box::new(MemoryEngine::new()), 1 << 16).unwrap();
        for turn in 0..3 {
            let mut txn = engine.begin_write().unwrap();
            txn.put(Tree::Rows, &[turn], &[b"row"]).unwrap();
            txn.commit().unwrap();
            engine.sync().unwrap();
        }
        engine.quiet();
        assert!(engine.checkpoint(Duration::ZERO, Duration::ZERO).unwrap());
        let segments = &engine.shared.segments;
        let token = segments.token();
        segments.store(TAIL, u64::MAX);
        take_over(segments, newest(&*engine.shared.tree).unwrap().1).unwrap();
        assert_eq!(segments.token(), token);
        assert_eq!(segments.tail(), newest(&*engine.shared.tree).unwrap().1.position);
    }

    #[test]
    fn a_segment_that_seems_to_begin_before_the_damage_ends_nothing() {
        let found = mended_after(|segments| {
            segments.begin_segment(&Held::alone(), 1 - segments.active(), 8);
            let synced = segments.load(TAIL) + 64;
            segments.store(TAIL, synced);
            segments.store(SYNCED, synced);
        });
        assert_eq!(found, (vec![11], 10));
    }
}
