//! Blocks of memory for the memtables, with reuse of freed blocks.
//!
//! Some freed blocks are kept for later use. The first touch of a page costs the system three
//! quarters of a microsecond: for ten thousand rows that were put one by one this was a tenth of
//! the time, and each new memtable or database would pay it again. Larger blocks consist of large
//! pages and are freed. If there is no memory for a block, the caller gets `None`, at a point where
//! it has done nothing yet.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use crate::sys::memory;
use crate::sys::os::prefer_large_pages;

/// Words of a cache line.
const LINE_WORDS: usize = LINE / 8;
/// The alignment of a block's first byte.
pub(crate) const LINE: usize = 64;
/// The sizes that are kept, as powers of two of words, and how many blocks of each: 6 MiB at most.
const KEPT_BITS: std::ops::Range<u32> = 11..18;
const KEPT_OF_EACH: usize = 3;

/// A power of two of words, the first of them at an address that is a multiple of 64.
pub(crate) struct Block {
    memory: Box<[AtomicU64]>,
    start: usize,
}

/// The kept blocks, by size. A thread that finds the lock taken does without: in a forked child it
/// may be taken for ever.
static KEPT: Mutex<[Vec<Box<[AtomicU64]>>; KEPT_BITS.end as usize]> =
    Mutex::new([const { Vec::new() }; KEPT_BITS.end as usize]);

impl Block {
    /// This many words, a power of two, with arbitrary content of an earlier block. `None` if there
    /// is no memory.
    pub(crate) fn any(count: usize) -> Option<Self> {
        Self::kept(count).or_else(|| zeros(count)).map(Self::of)
    }

    /// The same, filled with zeros.
    pub(crate) fn zeroed(count: usize) -> Option<Self> {
        let Some(mut memory) = Self::kept(count) else { return zeros(count).map(Self::of) };
        memory.iter_mut().for_each(|word| *word.get_mut() = 0);
        Some(Self::of(memory))
    }

    fn kept(count: usize) -> Option<Box<[AtomicU64]>> {
        KEPT.try_lock().ok()?.get_mut(count.ilog2() as usize)?.pop()
    }

    fn of(memory: Box<[AtomicU64]>) -> Self {
        let start = memory.as_ptr().cast::<u8>().align_offset(LINE) / 8;
        Self { memory, start: start.min(LINE_WORDS) }
    }

    fn len(&self) -> usize {
        self.memory.len() - LINE_WORDS
    }

    /// The words of the block.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.memory.get(self.start..self.start + self.len()).unwrap_or_default()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let bits = self.len().ilog2();
        if KEPT_BITS.contains(&bits)
            && let Ok(mut kept) = KEPT.try_lock()
            && let Some(kept) = kept.get_mut(bits as usize)
            && kept.len() < KEPT_OF_EACH
        {
            kept.push(std::mem::take(&mut self.memory));
        }
    }
}

/// New memory for a block.
fn zeros(count: usize) -> Option<Box<[AtomicU64]>> {
    let memory = memory::zeros(count + LINE_WORDS)?;
    prefer_large_pages(&memory);
    Some(memory)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_block_is_used_again_and_has_zeros_where_they_are_asked_for() {
        for bits in [11, 17, 18] {
            for _ in 0..2 * KEPT_OF_EACH {
                let blocks: Vec<_> = (0..2 * KEPT_OF_EACH)
                    .map(|number| {
                        if number % 2 == 0 { Block::any(1 << bits) } else { Block::zeroed(1 << bits) }
                            .unwrap()
                    })
                    .collect();
                for (number, block) in blocks.iter().enumerate() {
                    assert_eq!((block.words().len(), block.words().as_ptr().addr() % LINE), (1 << bits, 0));
                    let is_zero = block.words().iter().all(|word| word.load(Ordering::Relaxed) == 0);
                    assert!(number % 2 == 0 || is_zero);
                }
                for (number, block) in blocks.iter().enumerate() {
                    for word in block.words() {
                        word.store(number as u64, Ordering::Relaxed);
                    }
                }
                let mixed = blocks.iter().enumerate().any(|(number, block)| {
                    block.words().iter().any(|word| word.load(Ordering::Relaxed) != number as u64)
                });
                assert!(!mixed, "no two are the same memory");
                drop(blocks);
            }
            let kept = KEPT.lock().unwrap();
            assert!(kept.get(bits).is_none_or(|kept| kept.len() <= KEPT_OF_EACH));
        }
    }
}
