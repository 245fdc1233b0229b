//! Reads WAL records out of the segments of a log.
//!
//! Only the check tells where a chain ends: after its end are the bytes of an earlier use of the
//! segment, and other processes may write there meanwhile.

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::catalog::POSITION_MAX;
use crate::engine::EngineError;
use crate::wal::record;
use crate::wal::segments::{SegmentHead, Segments};

impl Segments {
    /// The sequence number of a segment's first WAL record, if it has one.
    ///
    /// # Errors
    /// As `wal_record`.
    pub(crate) fn first_wal_record(
        &self,
        segment: usize,
        head: SegmentHead,
    ) -> Result<Option<u64>, EngineError> {
        let at = self.word_at(segment, 1);
        let sequence = if self.space().has(at + 1) { self.load_far(at)? } else { return Ok(None) };
        if sequence > POSITION_MAX {
            return Ok(None);
        }
        let found = self.wal_record(segment, head, head.begin, sequence, head.salt, &mut Vec::new())?;
        Ok(found.map(|_| sequence))
    }

    /// Copy the WAL record at a position into `bytes`, if it continues the chain. Returns its
    /// check.
    ///
    /// # Errors
    /// `NoMemory`, for one that may continue the chain; or any error of the operating system.
    pub(crate) fn wal_record(
        &self,
        segment: usize,
        head: SegmentHead,
        position: u64,
        sequence: u64,
        seed: u64,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<u64>, EngineError> {
        bytes.clear();
        let words = self.words_of_record(segment, head, position, sequence)?;
        let Some(words) = words else { return Ok(None) };
        let size = words.len() * 8;
        bytes.try_reserve(size).map_err(|_| EngineError::NoMemory("a commit in the log"))?;
        bytes.resize(size, 0);
        self.copy_words(segment, words, bytes)?;
        // The check also fails if a writer overwrote the bytes meanwhile: a segment that is begun
        // anew has another salt.
        Ok(record::verified(bytes, sequence, seed))
    }

    /// The words of the segment that the WAL record at a position has by its head. `None` if that
    /// is not the head of one with this sequence number: after the end of a chain are the bytes of
    /// an earlier use, which may look like the head of a record as long as the segment.
    #[inline]
    fn words_of_record(
        &self,
        segment: usize,
        head: SegmentHead,
        position: u64,
        sequence: u64,
    ) -> Result<Option<Range<usize>>, EngineError> {
        const WORDS_MIN: usize = (record::HEAD_SIZE + record::CHECK_SIZE) / 8;
        let offset = position.checked_sub(head.begin).and_then(|bytes| usize::try_from(bytes / 8).ok());
        let offset = offset.unwrap_or(usize::MAX);
        let left = (self.capacity() as usize / 8).saturating_sub(offset);
        if left < WORDS_MIN {
            return Ok(None);
        }
        let [first, second] = [offset, offset + 1].map(|offset| self.word_at(segment, offset));
        if !self.space().has(first.max(second) + 1) || self.load_far(second)? != sequence {
            return Ok(None);
        }
        let size = (self.load_far(first)? & u64::from(u32::MAX)) as usize;
        if !size.is_multiple_of(8) || !(WORDS_MIN..=left).contains(&(size / 8)) {
            return Ok(None);
        }
        let words = offset..offset + size / 8;
        Ok(self.space().has(self.word_at(segment, words.end - 1) + 1).then_some(words))
    }

    /// Copy words of a segment, which has all of them, to as many bytes.
    #[inline]
    fn copy_words(
        &self,
        segment: usize,
        words: Range<usize>,
        mut rest: &mut [u8],
    ) -> Result<(), EngineError> {
        for words in self.parts(segment, words) {
            let (here, behind) = rest.split_at_mut_checked(words.len() * 8).unwrap_or_default();
            rest = behind;
            let Some(words) = self.readable().get(words.clone()) else {
                self.space().read(words.start, here).map_err(EngineError::of_system)?;
                continue;
            };
            for (word, chunk) in words.iter().zip(here.as_chunks_mut::<8>().0) {
                *chunk = word.load(Ordering::Relaxed).to_le_bytes();
            }
        }
        Ok(())
    }

    /// As `load`, for a word that may not be readable in memory.
    fn load_far(&self, index: usize) -> Result<u64, EngineError> {
        if let Some(word) = self.readable().get(index) {
            return Ok(word.load(Ordering::Relaxed));
        }
        let mut bytes = [0; 8];
        self.space().read(index, &mut bytes).map_err(EngineError::of_system)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Tree;
    use crate::wal::segments::words_for;
    use crate::wal::space::MemorySpace;

    #[test]
    fn what_stands_after_the_end_of_a_chain_takes_no_memory() {
        let segments = Segments::new(Box::new(MemorySpace::new(words_for(1 << 22))), [7; 16]);
        segments.create(0, 0, 0).unwrap();
        let head = segments.head(0).unwrap();
        let mut bytes = record::begin(0);
        record::push_put(&mut bytes, Tree::Rows, b"key", &[b"value"]);
        let check = record::finish(&mut bytes, 1, 1, head.salt);
        segments.write(0, head, 0, &bytes).unwrap();
        let end = bytes.len() as u64;
        // Bytes of an earlier use, whose first four look like the size of a WAL record of 3 MiB.
        let text = [(3_u64 << 20).to_le_bytes(), *b"00000000", *b"00000000"].concat();
        segments.write(0, head, end, &text).unwrap();
        assert_eq!(segments.wal_record(0, head, 0, 1, head.salt, &mut bytes).unwrap(), Some(check));
        assert_eq!(segments.wal_record(0, head, end, 2, check, &mut bytes).unwrap(), None);
        assert!(bytes.capacity() < 1 << 12, "{} bytes", bytes.capacity());
    }
}
