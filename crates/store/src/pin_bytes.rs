//! Where do bytes stand that are added to while others read them?
//!
//! In buckets that double in size and never move, so that whoever has been given some may keep them as long as the whole lives.
//! Whoever holds the lock of what is kept beside them appends, everybody reads. A vector for each entry would cost an allocation each, and three places to look
//! at where one is enough: that was a third of a single put.
//!
//! Invariants:
//!
//! 1. A bucket's memory is made once, and neither moved nor freed before the `Pinned`.
//! 2. Bytes below `end` never change again, and only such are given out.
//! 3. Only whoever holds the lock writes, and only at `end` and behind it.
//! 4. What `starts` says of a bucket is null, or where its `size_of` bytes begin.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use pellucid_record::encode::copy;

use crate::os::{prefer_large_pages, prefetch};
use crate::os_latch::{Held, Latch};

/// The size of the first bucket, as a power of two; each has twice the size of the one before.
const FIRST_BITS: u32 = 14;
const BUCKET_COUNT: usize = 22;
/// Places are multiples of this.
const UNIT: u64 = 8;
/// Bytes whose address matters are placed relative to multiples of this.
const LINE: usize = 64;

/// Bytes that stay where they are, and beside them something that is locked while some are appended.
pub(crate) struct Pinned<T> {
    buckets: [OnceLock<Bucket>; BUCKET_COUNT],
    /// Where each begins, beside the others: one look for each row that is read or put.
    starts: [AtomicPtr<u8>; BUCKET_COUNT],
    end: AtomicU64,
    beside: Latch<T>,
}

/// The lock of a [`Pinned`].
pub(crate) struct Appender<'a, T> {
    of: &'a Pinned<T>,
    beside: Held<'a, T>,
}

struct Bucket {
    memory: Box<[UnsafeCell<u8>]>,
    /// Where in it the first multiple of `LINE` is.
    start: usize,
}

// SAFETY: what is read is not written any more, and what is written is not read yet (invariants 2 and 3).
unsafe impl Sync for Bucket {}

impl Bucket {
    fn new(size: usize) -> Self {
        // Zeros that the system gives cost nothing before they are touched.
        let memory = vec![0_u8; size + LINE].into_boxed_slice();
        prefer_large_pages(&memory);
        let memory = Box::into_raw(memory);
        // SAFETY: a box of the same memory; `UnsafeCell<u8>` is laid out as `u8`.
        let memory = unsafe { Box::from_raw(memory as *mut [UnsafeCell<u8>]) };
        let start = memory.as_ptr().align_offset(LINE).min(LINE);
        Self { memory, start }
    }

    /// A pointer to a place in it, with so many bytes behind it.
    #[inline]
    fn at(&self, offset: usize, size: usize) -> Option<*mut u8> {
        let start = self.start.checked_add(offset)?;
        let cells = self.memory.get(start..start.checked_add(size)?)?;
        Some(UnsafeCell::raw_get(cells.as_ptr()))
    }
}

/// How many bytes a bucket has.
const fn size_of(bucket: usize) -> usize {
    1 << (FIRST_BITS as usize + bucket)
}

/// The bucket in which a place is, and where in it.
#[inline]
fn locate(place: u64) -> (usize, usize) {
    let from_one = place + (1 << FIRST_BITS);
    let bits = u64::BITS - 1 - from_one.leading_zeros();
    ((bits - FIRST_BITS) as usize, (from_one - (1 << bits)) as usize)
}

impl<T> Pinned<T> {
    /// No bytes yet.
    pub(crate) fn new(beside: T) -> Self {
        let buckets = [const { OnceLock::new() }; BUCKET_COUNT];
        let starts = [const { AtomicPtr::new(std::ptr::null_mut()) }; BUCKET_COUNT];
        Self { buckets, starts, end: AtomicU64::new(0), beside: Latch::new(beside) }
    }

    /// Take the lock.
    #[inline]
    pub(crate) fn lock(&self) -> Appender<'_, T> {
        // Whoever panicked while holding it has appended all of an entry or nothing.
        let beside = self.beside.lock();
        Appender { of: self, beside }
    }

    /// Where a bucket begins, or null.
    #[inline]
    fn start_of(&self, bucket: usize) -> *mut u8 {
        self.starts.get(bucket).map_or(std::ptr::null_mut(), |start| start.load(Ordering::Acquire))
    }

    /// The bytes at a place and behind it, as far as they lie beside each other; empty where there are none.
    #[inline]
    pub(crate) fn from(&self, place: u64) -> &[u8] {
        let Some(there) = self.end.load(Ordering::Acquire).checked_sub(place) else { return &[] };
        let (number, offset) = locate(place);
        let start = self.start_of(number);
        if start.is_null() {
            return &[];
        }
        let size = (size_of(number) - offset).min(there as usize);
        // SAFETY: the bytes are in the bucket (4; `locate` gives an offset within it) and below `end`: they stay there and do not
        // change (1, 2).
        unsafe { std::slice::from_raw_parts(start.add(offset), size) }
    }

    /// Ask the processor for the first bytes at a place.
    #[inline]
    pub(crate) fn ask_for(&self, place: u64) {
        let (number, offset) = locate(place);
        prefetch(self.start_of(number).wrapping_add(offset));
    }
}

impl<T> Appender<'_, T> {
    /// Append the concatenation of `parts`, and say where it stands: at a multiple of 8, within one bucket. With an
    /// `address`, the byte with that number among them gets an address that has this remainder by 64. `None` when there is no
    /// more room, which is after gigabytes.
    #[inline]
    pub(crate) fn append(&mut self, parts: [&[u8]; 2], address: Option<(usize, usize)>) -> Option<u64> {
        let size = parts.iter().map(|part| part.len()).sum::<usize>();
        let mut place = self.of.end.load(Ordering::Relaxed);
        let (bucket, mut offset) = loop {
            let (number, offset) = locate(place);
            let skip =
                address.map_or(0, |(byte, remainder)| (LINE + remainder - (offset + byte) % LINE) % LINE);
            let bucket = self.of.buckets.get(number)?;
            if offset + skip + size <= size_of(number) {
                place += skip as u64;
                let bucket = bucket.get_or_init(|| Bucket::new(size_of(number)));
                if let (Some(start), Some(at)) = (self.of.starts.get(number), bucket.at(0, size_of(number))) {
                    start.store(at, Ordering::Release);
                }
                break (bucket, offset + skip);
            }
            place += (size_of(number) - offset) as u64;
        };
        for part in parts {
            let target = bucket.at(offset, part.len())?;
            // SAFETY: the target is in the bucket, and behind `end`: nobody reads it, and nobody else writes it (3).
            copy(unsafe { std::slice::from_raw_parts_mut(target, part.len()) }, part);
            offset += part.len();
        }
        self.of.end.store((place + size as u64).next_multiple_of(UNIT), Ordering::Release);
        Some(place)
    }

    /// As `append`, of bytes that lie beside each other already.
    #[inline]
    pub(crate) fn append_whole(&mut self, bytes: &[u8]) -> Option<u64> {
        let place = self.of.end.load(Ordering::Relaxed);
        let (number, offset) = locate(place);
        let start = self.of.start_of(number);
        if start.is_null() || bytes.len() > size_of(number) - offset {
            return self.append([bytes, &[]], None);
        }
        // SAFETY: the target is in the bucket (4), and at `end`: nobody reads it, and nobody else writes it (3).
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.add(offset), bytes.len()) };
        self.of.end.store((place + bytes.len() as u64).next_multiple_of(UNIT), Ordering::Release);
        Some(place)
    }
}

impl<T> Deref for Appender<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.beside
    }
}

impl<T> DerefMut for Appender<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.beside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_appended_stays_where_it_is() {
        let pinned = Pinned::new(());
        let sizes = [0, 1, 7, 8, 9, 4000, 16_384, 16_385, 1 << 20, 5, (1 << 20) + 1, 3];
        let entries: Vec<Vec<u8>> =
            sizes.iter().enumerate().map(|(number, size)| vec![number as u8 + 1; *size]).collect();
        let mut places = Vec::new();
        for entry in &entries {
            let (head, tail) = entry.split_at(entry.len() / 2);
            let place = pinned.lock().append([head, tail], None).unwrap();
            assert_eq!(place % UNIT, 0);
            places.push((place, pinned.from(place).as_ptr()));
            let place = pinned.lock().append_whole(entry).unwrap();
            assert_eq!(place % UNIT, 0);
            places.push((place, pinned.from(place).as_ptr()));
        }
        for (entry, (place, address)) in entries.iter().flat_map(|entry| [entry, entry]).zip(places) {
            assert_eq!(pinned.from(place).as_ptr(), address);
            assert!(pinned.from(place).starts_with(entry));
        }
        assert_eq!((pinned.from(u64::MAX), pinned.from(1 << 40)), (&b""[..], &b""[..]));
    }

    #[test]
    fn a_byte_gets_the_address_that_it_asks_for() {
        let pinned = Pinned::new(());
        for size in [1, 100, 20_000, 3, 1 << 18] {
            pinned.lock().append([b"some", b"thing"], None).unwrap();
            let entry = vec![7; size];
            let place = pinned.lock().append([b"a head of 24 bytes......", &entry], Some((24, 16))).unwrap();
            let value = &pinned.from(place + 24)[..size];
            assert_eq!((value, value.as_ptr() as usize % LINE), (&entry[..], 16));
        }
    }

    #[test]
    fn readers_go_on_while_somebody_appends() {
        let pinned = Pinned::new(Vec::new());
        std::thread::scope(|scope| {
            let append = || {
                for number in 0..20_000_u64 {
                    let mut appender = pinned.lock();
                    let place = appender.append([&number.to_le_bytes(), b""], None).unwrap();
                    appender.push(place);
                }
            };
            scope.spawn(append);
            let mut seen = 0;
            while seen < 20_000 {
                let places: Vec<u64> = pinned.lock().iter().skip(seen).copied().collect();
                for place in places {
                    assert_eq!(pinned.from(place)[..8], (seen as u64).to_le_bytes());
                    seen += 1;
                }
            }
        });
    }
}
