//! The memtable's hash index: finds the newest version of a key.
//!
//! A hash table of words that only grows. One thread at a time adds to it, and others read it
//! meanwhile without a lock. A word holds half of a key's hash and the number of its newest
//! version; the caller compares the keys. So growing reads no keys, and a lookup reads one slot. An
//! outgrown table stays allocated for its readers: all old tables together are as large as the
//! current one.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::sys::block::Block;
use crate::sys::os::prefetch;

/// The sizes of the first tables, as powers of two; each later table is twice as large as the one
/// before. Few keys need few slots, and growing step by step took a twentieth of ten thousand puts.
const FIRST_BITS: [u32; 3] = [6, 10, 14];
/// Enough tables for more slots than there can be version numbers.
const TABLE_COUNT: usize = 21;

/// The hash index; see the module.
pub(crate) struct Newest {
    tables: [OnceLock<Block>; TABLE_COUNT],
    /// The index of the current table.
    last: AtomicUsize,
    count: AtomicUsize,
}

impl Default for Newest {
    fn default() -> Self {
        Self {
            tables: [const { OnceLock::new() }; TABLE_COUNT],
            last: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
        }
    }
}

/// How many slots a table has, as a power of two.
fn bits_of(table: usize) -> u32 {
    let [.., last] = FIRST_BITS;
    FIRST_BITS.get(table).copied().unwrap_or_else(|| last + (table + 1 - FIRST_BITS.len()) as u32)
}

/// The word of a slot that is not empty.
#[inline]
fn word_of(hash: u32, version: u32) -> u64 {
    u64::from(hash) << 32 | (u64::from(version) + 1)
}

impl Newest {
    #[inline]
    fn slots(&self) -> &[AtomicU64] {
        let table = self.tables.get(self.last.load(Ordering::Acquire)).and_then(OnceLock::get);
        table.map_or(&[], Block::words)
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// How many bytes the tables take. The earlier ones stay too, each half as large as the next.
    pub(crate) fn memory(&self) -> usize {
        2 * size_of_val(self.slots())
    }

    /// The version with this hash for which `is_it` is true, if any, and the slot where the search
    /// ended.
    #[inline]
    pub(crate) fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> (Option<u32>, u32) {
        let slots = self.slots();
        let mask = slots.len().wrapping_sub(1);
        let mut at = hash as usize & mask;
        // Terminates: at most five eighths of the slots are taken.
        while let Some(slot) = slots.get(at) {
            let word = slot.load(Ordering::Acquire);
            let Some(version) = (word as u32).checked_sub(1) else { break };
            if (word >> 32) as u32 == hash && is_it(version) {
                return (Some(version), at as u32);
            }
            at = (at + 1) & mask;
        }
        (None, at as u32)
    }

    /// Prefetch the slot of a hash that is looked up soon.
    #[inline]
    pub(crate) fn ask_for(&self, hash: u32) {
        let slots = self.slots();
        if let Some(slot) = slots.get(hash as usize & slots.len().wrapping_sub(1)) {
            prefetch(std::ptr::from_ref(slot).cast());
        }
    }

    /// Add a key that is not in the table. `slot` is where the search for it ended; nothing was
    /// added since. One thread at a time.
    #[inline]
    pub(crate) fn insert(&self, hash: u32, slot: u32, version: u32) {
        let (count, slots, word) = (self.len() + 1, self.slots(), word_of(hash, version));
        match slots.get(slot as usize) {
            Some(slot) if count * 8 <= slots.len() * 5 => slot.store(word, Ordering::Release),
            _ => {
                self.grow();
                Self::put(self.slots(), word);
            }
        }
        self.count.store(count, Ordering::Relaxed);
    }

    /// Store another version for the key in a slot; nothing was added since it was found. One
    /// thread at a time.
    #[inline]
    pub(crate) fn replace(&self, hash: u32, slot: u32, version: u32) {
        if let Some(slot) = self.slots().get(slot as usize) {
            slot.store(word_of(hash, version), Ordering::Release);
        }
    }

    #[inline]
    fn put(slots: &[AtomicU64], word: u64) {
        let mut at = (word >> 32) as usize;
        while let Some(slot) = slots.get(at & slots.len().wrapping_sub(1)) {
            if slot.load(Ordering::Relaxed) == 0 {
                return slot.store(word, Ordering::Release);
            }
            at += 1;
        }
    }

    /// Allocate memory for this many more keys. False if there is none. Only for the thread that
    /// inserts.
    #[inline]
    pub(crate) fn reserve(&self, more: usize) -> bool {
        let count = self.len() + more;
        count * 8 <= self.slots().len() * 5 || self.reserve_tables(count)
    }

    #[cold]
    fn reserve_tables(&self, count: usize) -> bool {
        let first = if self.slots().is_empty() { 0 } else { self.last.load(Ordering::Relaxed) + 1 };
        for (number, table) in self.tables.iter().enumerate().skip(first) {
            if table.get().is_none() {
                let Some(block) = Block::zeroed(1 << bits_of(number)) else { return false };
                let _ = table.set(block);
            }
            if count * 8 <= (1_usize << bits_of(number)) * 5 {
                return true;
            }
        }
        false
    }

    #[cold]
    fn grow(&self) {
        let old = self.slots();
        let next = if old.is_empty() { 0 } else { self.last.load(Ordering::Relaxed) + 1 };
        // Skip the call if memory was reserved.
        let is_there = self.tables.get(next).is_some_and(|table| table.get().is_some());
        if !is_there && !self.reserve_tables(self.len() + 1) {
            return;
        }
        let Some(slots) = self.tables.get(next).and_then(OnceLock::get).map(Block::words) else { return };
        for slot in old {
            let word = slot.load(Ordering::Relaxed);
            if word != 0 {
                Self::put(slots, word);
            }
        }
        self.last.store(next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few different hashes, some of them at the end of every table, so that searches have to probe
    /// past other keys and wrap around.
    fn hash_of(key: u32) -> u32 {
        if key.is_multiple_of(3) { u32::MAX - key % 7 } else { key.wrapping_mul(0x9E37_79B9) }
    }

    fn insert(newest: &Newest, hash: u32, version: u32) {
        let (found, slot) = newest.find(hash, |found| found == version);
        assert_eq!(found, None);
        newest.insert(hash, slot, version);
    }

    #[test]
    fn every_key_has_the_version_that_it_got_last() {
        const KEYS: u32 = 5_000;
        let newest = Newest::default();
        assert_eq!(newest.find(0, |_| true), (None, 0));
        // Version numbers identify the key: the key's number, or that plus a multiple of `KEYS`.
        let of = |key: u32| move |version: u32| version % KEYS == key;
        for key in 0..KEYS {
            insert(&newest, hash_of(key), key);
            if key % 2 == 0 {
                let (found, slot) = newest.find(hash_of(key / 2), of(key / 2));
                assert_eq!(found, Some(key / 2));
                newest.replace(hash_of(key / 2), slot, key / 2 + KEYS);
            }
        }
        assert_eq!(newest.len(), KEYS as usize);
        for key in 0..KEYS {
            let expected = if key < KEYS / 2 { key + KEYS } else { key };
            assert_eq!(newest.find(hash_of(key), of(key)).0, Some(expected));
            assert_eq!(newest.find(hash_of(key), |_| false).0, None);
        }
    }

    #[test]
    fn readers_find_what_was_there_while_it_grows() {
        const KEYS: u32 = 100_000;
        let (newest, added) = (Newest::default(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for key in 0..KEYS {
                    insert(&newest, hash_of(key * 2 + 1), key);
                    added.store(key as usize + 1, Ordering::Release);
                }
            });
            let mut seen = 0;
            while seen < KEYS {
                seen = added.load(Ordering::Acquire) as u32;
                for key in (0..seen).rev().step_by(97).take(50) {
                    let (found, _) = newest.find(hash_of(key * 2 + 1), |version| version == key);
                    assert_eq!(found, Some(key));
                }
            }
        });
    }
}
