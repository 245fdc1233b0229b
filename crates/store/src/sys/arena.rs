//! Append-only bytes with stable addresses, which are read without a lock while one thread appends.
//!
//! The bytes are in buckets that double in size and never move, so a reader may keep references to
//! them as long as the `Arena` lives. The holder of the writer appends; any thread reads. A vector
//! for each entry would cost an allocation for each, and three memory reads where one is enough:
//! that was a third of a single put.
//!
//! Invariants:
//!
//! 1. A bucket's memory is allocated once, and neither moved nor freed before the `Arena`.
//! 2. Bytes below `end` never change again, and only these are returned. The gaps between entries
//!    have arbitrary content.
//! 3. Only the holder of the `Arena`'s own writer, of which there is one, writes, and only from
//!    `end` on.
//! 4. A pointer in `starts` is null, or the address of the bucket's `size_of` bytes.
#![allow(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use pellucid_record::encode::copy;

use crate::sys::block::{Block, LINE};
use crate::sys::os::prefetch;

/// The size of the first bucket, as a power of two; each bucket has twice the size of the one
/// before.
const FIRST_BITS: u32 = 14;
const BUCKET_COUNT: usize = 22;
/// Places are multiples of this.
const UNIT: u64 = 8;

/// The first word of a gap between entries: this plus the gap's size. No entry begins with such a
/// word.
pub(crate) const GAP: u64 = 1 << 63;

/// Bytes that stay in place.
pub(crate) struct Arena {
    buckets: [OnceLock<Block>; BUCKET_COUNT],
    /// The address of each bucket, kept apart from the blocks: one memory read for each row that is
    /// read or put.
    starts: [AtomicPtr<u8>; BUCKET_COUNT],
    end: AtomicU64,
    /// The number of its writer.
    number: u64,
}

/// The right to append to one [`Arena`]. Each `Arena` has exactly one, so appending takes no
/// lock.
pub(crate) struct ArenaWriter {
    number: u64,
}

/// The size of a bucket in bytes.
const fn size_of(bucket: usize) -> usize {
    1 << (FIRST_BITS as usize + bucket)
}

/// The bucket of a place, and the offset in it.
#[inline]
fn locate(place: u64) -> (usize, usize) {
    let from_one = place + (1 << FIRST_BITS);
    let bits = u64::BITS - 1 - from_one.leading_zeros();
    ((bits - FIRST_BITS) as usize, (from_one - (1 << bits)) as usize)
}

impl Arena {
    /// An empty `Arena`, and its writer.
    pub(crate) fn new() -> (Self, ArenaWriter) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let buckets = [const { OnceLock::new() }; BUCKET_COUNT];
        let starts = [const { AtomicPtr::new(std::ptr::null_mut()) }; BUCKET_COUNT];
        (Self { buckets, starts, end: AtomicU64::new(0), number }, ArenaWriter { number })
    }

    /// The address of a bucket, or null.
    #[inline]
    fn start_of(&self, bucket: usize) -> *mut u8 {
        self.starts.get(bucket).map_or(std::ptr::null_mut(), |start| start.load(Ordering::Acquire))
    }

    /// The bytes from a place on, as far as they are contiguous. Empty if there are none.
    #[inline]
    pub(crate) fn from(&self, place: u64) -> &[u8] {
        let Some(there) = self.end.load(Ordering::Acquire).checked_sub(place) else { return &[] };
        let (number, offset) = locate(place);
        let start = self.start_of(number);
        if start.is_null() {
            return &[];
        }
        let size = (size_of(number) - offset).min(there as usize);
        // SAFETY: the bytes are in the bucket (4; `locate` gives an offset within it) and below
        // `end`: they stay there and do not change (1, 2).
        unsafe { std::slice::from_raw_parts(start.add(offset), size) }
    }

    /// The size of the appended bytes, gaps included.
    pub(crate) fn size(&self) -> usize {
        usize::try_from(self.end.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// Prefetch the first bytes at a place.
    #[inline]
    pub(crate) fn ask_for(&self, place: u64) {
        let (number, offset) = locate(place);
        prefetch(self.start_of(number).wrapping_add(offset));
    }

    /// The first place from `place` on where an entry begins. `None` if nothing was appended there
    /// yet. For callers that know where each entry ends.
    pub(crate) fn entry_from(&self, mut place: u64) -> Option<u64> {
        let end = self.end.load(Ordering::Acquire);
        while place < end {
            let (number, offset) = locate(place);
            if self.start_of(number).is_null() {
                // This bucket was too small for the next entry, and was skipped.
                place += (size_of(number) - offset) as u64;
                continue;
            }
            let word = self.from(place).first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            match word.checked_sub(GAP) {
                // Not 0: no other writer writes such a word.
                Some(gap) => place = place.saturating_add(gap.max(UNIT)),
                None => return Some(place),
            }
        }
        None
    }

    /// Allocate memory for this many bytes, as entries of any size and alignment. False if there is
    /// none. Only for the thread that is about to append them, at a point where it can still give
    /// up.
    #[inline]
    pub(crate) fn reserve(&self, size: usize) -> bool {
        let (number, offset) = locate(self.end.load(Ordering::Relaxed));
        (!self.start_of(number).is_null() && size <= size_of(number) - offset)
            || self.reserve_buckets(number, size)
    }

    #[cold]
    fn reserve_buckets(&self, first: usize, size: usize) -> bool {
        // An entry that does not fit into one bucket goes into the next, and the last of these has
        // room for all of them.
        for (number, bucket) in self.buckets.iter().enumerate().skip(first) {
            if bucket.get().is_none() {
                let Some(block) = Block::any(size_of(number) / UNIT as usize) else { return false };
                // There is one writer, so no other thread does this meanwhile.
                let _ = bucket.set(block);
            }
            // The first bucket may be full.
            if number > first && size <= size_of(number) {
                return true;
            }
        }
        false
    }

    /// Append the concatenation of `parts`. Returns its place: a multiple of 8, within one bucket.
    /// With an `address`, the byte of that index gets an address with that remainder modulo 64.
    /// `None` if there is no more room, which is after gigabytes, if memory was not reserved and
    /// there is none, or with the writer of another `Arena`. The appended bytes must begin with a
    /// word below 2^63.
    #[inline]
    pub(crate) fn append(
        &self,
        arena_writer: &mut ArenaWriter,
        parts: [&[u8]; 2],
        address: Option<(usize, usize)>,
    ) -> Option<u64> {
        if arena_writer.number != self.number {
            return None;
        }
        let size = parts[0].len() + parts[1].len();
        let mut place = self.end.load(Ordering::Relaxed);
        let (number, mut at) = locate(place);
        let start = self.start_of(number);
        // The usual case.
        if address.is_none() && !start.is_null() && size <= size_of(number) - at {
            for part in parts {
                // SAFETY: the target is in the bucket (4), and after `end`: no thread reads it,
                // and no other writes it (3).
                copy(unsafe { std::slice::from_raw_parts_mut(start.add(at), part.len()) }, part);
                at += part.len();
            }
            self.end.store((place + size as u64).next_multiple_of(UNIT), Ordering::Release);
            return Some(place);
        }
        let (start, mut offset) = loop {
            let (number, offset) = locate(place);
            let skip =
                address.map_or(0, |(byte, remainder)| (LINE + remainder - (offset + byte) % LINE) % LINE);
            let bucket = self.buckets.get(number)?;
            if offset + skip + size <= size_of(number) {
                if bucket.get().is_none() {
                    let _ = bucket.set(Block::any(size_of(number) / UNIT as usize)?);
                }
                let bucket = bucket.get()?;
                let start = bucket.words().as_ptr().cast_mut().cast::<u8>();
                self.starts.get(number)?.store(start, Ordering::Release);
                self.leave_out(arena_writer, place, skip);
                place += skip as u64;
                break (start, offset + skip);
            }
            self.leave_out(arena_writer, place, size_of(number) - offset);
            place += (size_of(number) - offset) as u64;
        };
        for part in parts {
            // SAFETY: the target is in the bucket (4; the loop has looked for one with room for all
            // parts), and after `end`: no thread reads it, and no other writes it (3).
            copy(unsafe { std::slice::from_raw_parts_mut(start.add(offset), part.len()) }, part);
            offset += part.len();
        }
        self.end.store((place + size as u64).next_multiple_of(UNIT), Ordering::Release);
        Some(place)
    }

    /// Mark this many bytes after `end` as a gap, if their bucket exists.
    fn leave_out(&self, _arena_writer: &mut ArenaWriter, place: u64, size: usize) {
        let (number, offset) = locate(place);
        let start = self.start_of(number);
        if size > 0 && !start.is_null() {
            let word = (GAP + size as u64).to_le_bytes();
            // SAFETY: the target is in the bucket (4), and after `end`: no thread reads it, and no
            // other writes it (3). Places, and so the rest of a bucket after one, are multiples of
            // a word's size.
            copy(unsafe { std::slice::from_raw_parts_mut(start.add(offset), word.len()) }, &word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_appended_stays_where_it_is() {
        let (arena, mut arena_writer) = Arena::new();
        let sizes = [0, 1, 7, 8, 9, 4000, 16_384, 16_385, 1 << 20, 5, (1 << 20) + 1, 3];
        let entries: Vec<Vec<u8>> =
            sizes.iter().enumerate().map(|(number, size)| vec![number as u8 + 1; *size]).collect();
        let mut places = Vec::new();
        for entry in &entries {
            let (head, tail) = entry.split_at(entry.len() / 2);
            let place = arena.append(&mut arena_writer, [head, tail], None).unwrap();
            assert_eq!(place % UNIT, 0);
            places.push((place, arena.from(place).as_ptr()));
            let place = arena.append(&mut arena_writer, [entry, &[]], None).unwrap();
            assert_eq!(place % UNIT, 0);
            places.push((place, arena.from(place).as_ptr()));
        }
        for (entry, (place, address)) in entries.iter().flat_map(|entry| [entry, entry]).zip(places) {
            assert_eq!(arena.from(place).as_ptr(), address);
            assert!(arena.from(place).starts_with(entry));
        }
        assert_eq!((arena.from(u64::MAX), arena.from(1 << 40)), (&b""[..], &b""[..]));
    }

    #[test]
    fn a_byte_gets_the_address_that_it_asks_for() {
        let (arena, mut arena_writer) = Arena::new();
        for size in [1, 100, 20_000, 3, 1 << 18] {
            arena.append(&mut arena_writer, [b"some", b"thing"], None).unwrap();
            let entry = vec![7; size];
            let parts = [&b"a head of 24 bytes......"[..], &entry];
            let place = arena.append(&mut arena_writer, parts, Some((24, 16))).unwrap();
            let value = &arena.from(place + 24)[..size];
            assert_eq!((value, value.as_ptr() as usize % LINE), (&entry[..], 16));
        }
    }

    #[test]
    fn entries_are_found_one_after_the_other_whatever_lies_between() {
        let (arena, mut arena_writer) = Arena::new();
        // Sizes that leave a rest of a bucket, or all of one, or some bytes for an alignment, or
        // nothing.
        let sizes = [16, 16_360, 8, 16_384, 40_000, 400_000, 24, 100, 32_768, 8, 1 << 20, 1 << 22, 8, 8];
        let mut appended = Vec::new();
        for (number, size) in sizes.into_iter().cycle().take(60).enumerate() {
            let entry = [(size as u64).to_le_bytes().to_vec(), vec![0xFF; size - 8]].concat();
            let address = (number % 3 == 0).then_some((0, 48));
            appended.push((arena.append(&mut arena_writer, [&entry, &[]], address).unwrap(), size));
        }
        let (mut found, mut place) = (Vec::new(), 0);
        while let Some(at) = arena.entry_from(place) {
            let size = u64::from_le_bytes(*arena.from(at).first_chunk().unwrap());
            found.push((at, size as usize));
            place = (at + size).next_multiple_of(UNIT);
        }
        assert_eq!(found, appended);
    }

    #[test]
    fn nobody_writes_with_the_pen_of_another() {
        let ((arena, _arena_writer), (_other, mut arena_writer)) = (Arena::new(), Arena::new());
        assert_eq!(arena.append(&mut arena_writer, [b"some", b"thing"], None), None);
        assert_eq!(arena.append(&mut arena_writer, [b"something", &[]], None), None);
        assert_eq!(arena.from(0), b"");
    }

    #[test]
    fn readers_go_on_while_somebody_appends() {
        let (arena, mut arena_writer) = Arena::new();
        std::thread::scope(|scope| {
            let append = || {
                for number in 0..20_000_u64 {
                    arena.append(&mut arena_writer, [&number.to_le_bytes(), b""], None).unwrap();
                }
            };
            scope.spawn(append);
            let (mut seen, mut place) = (0_u64, 0);
            while seen < 20_000 {
                while let Some(at) = arena.entry_from(place) {
                    assert_eq!(arena.from(at)[..8], seen.to_le_bytes());
                    (seen, place) = (seen + 1, at + 8);
                }
            }
        });
    }
}
