//! The buffer of a record under construction.

use crate::error::EncodeError;
use crate::layout::varint_size;

/// Bytes that grow at the end.
///
/// The memory after the end is initialized, too, once for each doubling. So a gap for slots only
/// moves the end, without a call of memset, and a short string takes two moves, without a call of
/// memcpy. (Both calls together took a fifth of the time of a small record.) A gap has old content;
/// the caller has to fill it.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    memory: Vec<u8>,
    size: usize,
}

impl Buffer {
    #[inline]
    pub(super) fn size(&self) -> usize {
        self.size
    }

    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.memory.len()
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.memory.get(..self.size).unwrap_or_default()
    }

    #[inline]
    pub(super) fn part(&self, start: usize, end: usize) -> &[u8] {
        self.memory.get(start..end).unwrap_or_default()
    }

    #[inline]
    pub(super) fn part_mut(&mut self, start: usize, end: usize) -> &mut [u8] {
        self.memory.get_mut(start..end).unwrap_or_default()
    }

    #[inline]
    pub(super) fn truncate(&mut self, size: usize) {
        self.size = self.size.min(size);
    }

    /// Returns the bytes and empties the buffer.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.memory);
        bytes.truncate(self.size);
        self.size = 0;
        bytes
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, size: usize) {
        let size = size.max(2 * self.memory.len()).max(256);
        if self.memory.try_reserve_exact(size - self.memory.len()).is_err() {
            // Not a `Result`: each push would have to check it. Unwind without the panic hook,
            // which needs memory, too.
            std::panic::resume_unwind(Box::new(EncodeError::NoMemory));
        }
        self.memory.resize(size, 0);
    }

    /// All memory after the end.
    #[inline]
    pub(super) fn rest(&mut self) -> &mut [u8] {
        self.memory.get_mut(self.size..).unwrap_or_default()
    }

    /// Makes sure that there are `size` bytes after the end.
    #[cold]
    pub(super) fn reserve(&mut self, size: usize) {
        let end = self.size + size;
        if end > self.memory.len() {
            self.grow(end);
        }
    }

    /// Moves the end by `size` and returns the bytes in between.
    #[inline]
    pub(super) fn gap(&mut self, size: usize) -> &mut [u8] {
        let start = self.size;
        let end = start + size;
        if end > self.memory.len() {
            self.grow(end);
        }
        self.size = end;
        self.memory.get_mut(start..end).unwrap_or_default()
    }

    #[inline]
    pub(super) fn push_array<const N: usize>(&mut self, bytes: [u8; N]) {
        self.gap(N).copy_from_slice(&bytes);
    }

    #[inline]
    pub(super) fn push_varint(&mut self, mut value: u32) {
        if value < 0x80 {
            return self.push_array([value as u8]);
        }
        let gap = self.gap(varint_size(value));
        let last = gap.len() - 1;
        for (index, byte) in gap.iter_mut().enumerate() {
            *byte = value as u8 & 0x7F | if index < last { 0x80 } else { 0 };
            value >>= 7;
        }
    }

    #[inline]
    pub(super) fn push(&mut self, bytes: &[u8]) {
        copy(self.gap(bytes.len()), bytes);
    }

    /// Pushes the size as a varint, then the bytes.
    #[inline]
    pub(super) fn push_sized(&mut self, bytes: &[u8]) {
        if bytes.len() >= 0x80 {
            self.push_varint(bytes.len() as u32);
            return self.push(bytes);
        }
        // Move the end once for both: each move waits for the store of the one before.
        if let Some((size, target)) = self.gap(1 + bytes.len()).split_first_mut() {
            *size = bytes.len() as u8;
            copy(target, bytes);
        }
    }

    /// Moves everything from `from` on to `to`.
    pub(super) fn move_tail(&mut self, from: usize, to: usize) {
        let end = self.size;
        if to > from {
            self.gap(to - from);
        }
        self.memory.copy_within(from..end, to);
        self.size = end + to - from;
    }
}

/// Copies a slice of the same size. Up to 32 bytes are copied by two moves that may overlap; a call
/// of memcpy would take as long as everything else that is done for a string.
#[inline]
pub fn copy(target: &mut [u8], source: &[u8]) {
    #[inline]
    fn ends<const N: usize>(target: &mut [u8], source: &[u8]) -> Option<()> {
        let (first, last) = (*source.first_chunk::<N>()?, *source.last_chunk::<N>()?);
        *target.first_chunk_mut()? = first;
        *target.last_chunk_mut()? = last;
        Some(())
    }
    match source.len() {
        0 => {}
        1 => drop(ends::<1>(target, source)),
        2..=3 => drop(ends::<2>(target, source)),
        4..=7 => drop(ends::<4>(target, source)),
        8..=16 => drop(ends::<8>(target, source)),
        17..=32 => drop(ends::<16>(target, source)),
        _ => target.copy_from_slice(source),
    }
}

/// The slot of a string or of bytes of at most 8 bytes, padded with zeros.
#[inline]
pub(super) fn inline_bits(text: &[u8]) -> u64 {
    // Two loads that may overlap, instead of a loop over bytes.
    let size = text.len();
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return u64::from(first) | u64::from(last) << ((8 * (size - 4)) & 63);
    }
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        let (first, last) = (u16::from_le_bytes(*first), u16::from_le_bytes(*last));
        return u64::from(first) | u64::from(last) << ((8 * (size - 2)) & 63);
    }
    text.first().map_or(0, |byte| u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_every_size_are_whole() {
        let bytes: Vec<u8> = (1..=80).collect();
        let mut buffer = Buffer::default();
        for size in 0..=80 {
            buffer.truncate(0);
            buffer.push(&bytes[..size]);
            assert_eq!(buffer.bytes(), &bytes[..size]);
            if size <= 8 {
                let mut slot = [0; 8];
                slot[..size].copy_from_slice(&bytes[..size]);
                assert_eq!(inline_bits(&bytes[..size]), u64::from_le_bytes(slot));
            }
        }
    }

    #[test]
    fn varints_are_those_of_the_layout() {
        for value in [0, 127, 128, 16383, 16384, 1 << 21, 1 << 28, u32::MAX] {
            let mut buffer = Buffer::default();
            buffer.push_varint(value);
            let mut expected = Vec::new();
            crate::layout::push_varint(&mut expected, value);
            assert_eq!(buffer.take(), expected);
        }
    }

    #[test]
    fn a_tail_moves_either_way() {
        let mut buffer = Buffer::default();
        buffer.push(&[1, 2, 3, 4, 5]);
        buffer.move_tail(2, 4);
        assert_eq!(buffer.bytes(), [1, 2, 3, 4, 3, 4, 5]);
        buffer.move_tail(4, 1);
        assert_eq!(buffer.bytes(), [1, 3, 4, 5]);
    }
}
