//! Cells: the stored value of a row, which is its record with a check and sometimes a head.
//!
//! ```text
//! cell   := head? record check
//! head   := 0xE1, flags: u8, a part for each flag in this order: size varint, bytes
//! flags  := 1 spelling of the key | 2 the whole key, table id included
//!           | 4 ids of the large values, u64 each | 8 packed
//! check  := u32: the low half of XXH3-64 over the record, seeded by that over the head,
//!           seeded by that over the row key
//! packed := head, number of the dictionary: varint, frame, check
//! ```
//!
//! A packed cell has a zstd frame (`pack/codec.rs`) in place of the record. Its check is that of
//! the same cell before it was packed, so packing changes no check, and opening verifies it.
//! Whatever parses a cell refuses a packed one; `Database::open_packed` opens it.
//!
//! Most cells have no head: a record's first byte is never 0xE1. The check is there because LMDB's
//! pages have none: a flipped bit in a string is still a string. It costs four bytes and some 10 ns
//! a write. Seeding by the key also finds a record under a wrong key.
//!
//! Reads do not verify the check. `check` does, and so do the copy of an untrusted file and a
//! change of a part of a record, which would give damage a valid check otherwise.

use std::borrow::Cow;

use pellucid_record::layout::{push_varint, read_varint};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// `14 << 4 | 1`: kind "cell" of format version 1.
const HEAD_BYTE: u8 = 0xE1;
const HAS_SPELLING: u8 = 1;
const HAS_KEY: u8 = 2;
const HAS_BLOBS: u8 = 4;
const IS_PACKED: u8 = 8;
/// Bytes of the check at a cell's end.
pub(crate) const CHECK_SIZE: usize = 4;

/// A row that was looked up.
#[derive(Clone, Debug)]
pub struct FoundRow<'a> {
    /// The record's bytes: where they lie, or a copy if the row is packed.
    pub record: Cow<'a, [u8]>,
    /// What the key's bytes leave out; mostly empty.
    pub spelling: &'a [u8],
    blobs: &'a [u8],
}

impl<'a> FoundRow<'a> {
    /// The row of a cell, and its record if that was packed.
    #[inline]
    pub(crate) fn new(cell: &Cell<'a>, opened: Option<Vec<u8>>) -> Self {
        let record = opened.map_or(Cow::Borrowed(cell.record), Cow::Owned);
        Self { record, spelling: cell.spelling, blobs: cell.blobs }
    }

    /// Whether the record is not packed, so that its bytes are those of the snapshot or transaction
    /// that it was read from.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        matches!(self.record, Cow::Borrowed(_))
    }

    /// The record, if it is not packed.
    #[must_use]
    pub fn record_in_place(self) -> Option<&'a [u8]> {
        match self.record {
            Cow::Borrowed(record) => Some(record),
            Cow::Owned(_) => None,
        }
    }

    /// The ids of the large values that the record refers to.
    pub fn blobs(&self) -> impl Iterator<Item = u64> + use<'a> {
        ids_in(self.blobs)
    }

    /// Whether the record has large values that are stored apart.
    #[must_use]
    pub fn has_blobs(&self) -> bool {
        !self.blobs.is_empty()
    }
}

fn ids_in(blobs: &[u8]) -> impl Iterator<Item = u64> + use<'_> {
    blobs.chunks_exact(8).map(|bytes| bytes.iter().rev().fold(0, |id, byte| id << 8 | u64::from(*byte)))
}

/// A parsed cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell<'a> {
    /// The record's bytes.
    pub(crate) record: &'a [u8],
    /// What the key's bytes leave out; mostly empty.
    pub(crate) spelling: &'a [u8],
    /// The whole key after the table id, if the row key is shortened.
    pub(crate) whole_key: &'a [u8],
    blobs: &'a [u8],
    check: u32,
}

impl<'a> Cell<'a> {
    /// Parse a cell. `None` if the bytes cannot be one.
    #[inline]
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (body, check) = bytes.split_last_chunk::<CHECK_SIZE>()?;
        let check = u32::from_le_bytes(*check);
        if body.first() != Some(&HEAD_BYTE) {
            return Some(Self { record: body, spelling: &[], whole_key: &[], blobs: &[], check });
        }
        Self::parse_with_head(body, check)
    }

    #[cold]
    fn parse_with_head(body: &'a [u8], check: u32) -> Option<Self> {
        let flags = *body.get(1)?;
        if flags == 0 { None } else { Self::parse_parts(body, flags, check) }
    }

    /// Parse a cell with a head. What follows the head's parts counts as the record.
    fn parse_parts(body: &'a [u8], flags: u8, check: u32) -> Option<Self> {
        if flags & !(HAS_SPELLING | HAS_KEY | HAS_BLOBS) != 0 {
            return None;
        }
        let mut offset = 2;
        let mut part = |flag: u8| -> Option<&'a [u8]> {
            if flags & flag == 0 {
                return Some(&[]);
            }
            let (size, start) = read_varint(body, offset)?;
            let end = start.checked_add(size as usize)?;
            offset = end;
            body.get(start..end)
        };
        let spelling = part(HAS_SPELLING)?;
        let whole_key = part(HAS_KEY)?;
        let blobs = part(HAS_BLOBS)?;
        if blobs.len() % 8 != 0 {
            return None;
        }
        Some(Self { record: body.get(offset..)?, spelling, whole_key, blobs, check })
    }

    /// As `parse`. Of a packed cell, all but its record, which is empty then.
    pub(crate) fn outside(bytes: &'a [u8]) -> Option<Self> {
        Self::parse(bytes).or_else(|| Packed::parse(bytes).map(|packed| packed.outside))
    }

    /// The same cell with a record: that of a packed one, which was opened.
    pub(crate) fn with_record<'b>(self, record: &'b [u8]) -> Cell<'b>
    where
        'a: 'b,
    {
        Cell { record, ..self }
    }

    /// The spelling in the head of a cell. `None` if there is no head.
    pub(crate) fn parse_head(head: &'a [u8]) -> Option<&'a [u8]> {
        if head.is_empty() { None } else { Self::parse_with_head(head, 0).map(|cell| cell.spelling) }
    }

    /// The ids of the large values that the record refers to.
    pub(crate) fn blobs(&self) -> impl Iterator<Item = u64> + use<'a> {
        ids_in(self.blobs)
    }

    /// Whether a cell refers to large values.
    #[inline]
    pub(crate) fn lists_blobs(bytes: &[u8]) -> bool {
        bytes.first() == Some(&HEAD_BYTE) && bytes.get(1).is_some_and(|flags| flags & HAS_BLOBS != 0)
    }

    /// Whether the cell is a record alone.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.spelling.is_empty() && self.whole_key.is_empty() && self.blobs.is_empty()
    }

    /// The record of a cell, for reading. `None` if the bytes cannot be a cell.
    #[inline]
    pub(crate) fn record_of(bytes: &'a [u8]) -> Option<&'a [u8]> {
        let (body, _) = bytes.split_last_chunk::<CHECK_SIZE>()?;
        if body.first() == Some(&HEAD_BYTE) {
            return Self::parse_with_head(body, 0).map(|cell| cell.record);
        }
        Some(body)
    }

    /// As `is_intact`, for a plain cell. `key_hash` is the hash of the row key.
    #[inline]
    pub(crate) fn is_intact_alone(&self, key_hash: u64) -> bool {
        check_alone(key_hash, self.record) == self.check
    }

    /// Whether head and record are as they were written under this row key.
    pub(crate) fn is_intact(&self, row_key: &[u8], bytes: &[u8]) -> bool {
        let head_size = bytes.len().saturating_sub(CHECK_SIZE + self.record.len());
        let head = bytes.get(..head_size).unwrap_or_default();
        check_of(row_key, head, self.record) == self.check
    }
}

/// A parsed cell whose record is packed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed<'a> {
    /// The cell without a record.
    pub(crate) outside: Cell<'a>,
    /// The number of the dictionary among those of the table.
    pub(crate) dictionary: u32,
    pub(crate) frame: &'a [u8],
}

impl<'a> Packed<'a> {
    /// Parse a packed cell. `None` if the bytes cannot be one.
    #[cold]
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (body, check) = bytes.split_last_chunk::<CHECK_SIZE>()?;
        let flags = match body {
            [HEAD_BYTE, flags, ..] if flags & IS_PACKED != 0 => flags & !IS_PACKED,
            _ => return None,
        };
        let outside = Cell::parse_parts(body, flags, u32::from_le_bytes(*check))?;
        let (dictionary, start) = read_varint(outside.record, 0)?;
        let frame = outside.record.get(start..)?;
        Some(Self { outside: Cell { record: &[], ..outside }, dictionary, frame })
    }

    /// Whether this is the record that was packed under this row key.
    pub(crate) fn is_of(&self, row_key: &[u8], record: &[u8]) -> bool {
        let outside = &self.outside;
        if outside.is_plain() {
            return check_of(row_key, &[], record) == outside.check;
        }
        let mut head = Vec::new();
        write_head_of(&mut head, outside.spelling, outside.whole_key, outside.blobs);
        check_of(row_key, &head, record) == outside.check
    }
}

/// Write the head of a packed cell, up to the frame. `head` is that of the cell before.
pub(crate) fn write_packed_head(out: &mut Vec<u8>, head: &[u8], dictionary: u32) {
    out.clear();
    match head {
        [byte, flags, parts @ ..] => {
            out.extend_from_slice(&[*byte, flags | IS_PACKED]);
            out.extend_from_slice(parts);
        }
        _ => out.extend_from_slice(&[HEAD_BYTE, IS_PACKED]),
    }
    push_varint(out, dictionary);
}

/// Write the head of a cell. It is empty if all parts are.
pub(crate) fn write_head(head: &mut Vec<u8>, spelling: &[u8], whole_key: &[u8], blobs: &[u64]) {
    let blobs: Vec<u8> = blobs.iter().flat_map(|id| id.to_le_bytes()).collect();
    write_head_of(head, spelling, whole_key, &blobs);
}

fn write_head_of(head: &mut Vec<u8>, spelling: &[u8], whole_key: &[u8], blobs: &[u8]) {
    head.clear();
    let flag = |is_there: bool, flag: u8| if is_there { flag } else { 0 };
    let flags = flag(!spelling.is_empty(), HAS_SPELLING)
        | flag(!whole_key.is_empty(), HAS_KEY)
        | flag(!blobs.is_empty(), HAS_BLOBS);
    if flags == 0 {
        return;
    }
    head.extend_from_slice(&[HEAD_BYTE, flags]);
    for part in [spelling, whole_key, blobs] {
        if !part.is_empty() {
            push_varint(head, part.len() as u32);
            head.extend_from_slice(part);
        }
    }
}

/// The check of a cell that is a record alone. `key_hash` is the hash of the row key.
#[inline]
pub(crate) fn check_alone(key_hash: u64, record: &[u8]) -> u32 {
    xxh3_64_with_seed(record, key_hash) as u32
}

/// The check of a cell.
#[inline]
pub(crate) fn check_of(row_key: &[u8], head: &[u8], record: &[u8]) -> u32 {
    check_hashed(xxh3_64(row_key), head, record)
}

/// The same, for the hash of a row key.
#[inline]
pub(crate) fn check_hashed(key_hash: u64, head: &[u8], record: &[u8]) -> u32 {
    let seed = if head.is_empty() { key_hash } else { xxh3_64_with_seed(head, key_hash) };
    check_alone(seed, record)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(spelling: &[u8], whole_key: &[u8], blobs: &[u64], record: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_head(&mut bytes, spelling, whole_key, blobs);
        let check = check_of(b"row", &bytes, record);
        bytes.extend_from_slice(record);
        bytes.extend_from_slice(&check.to_le_bytes());
        bytes
    }

    #[test]
    fn every_part_comes_back() {
        let long = [7; 300];
        for spelling in [&b""[..], b"\x01", &long] {
            for whole_key in [&b""[..], &long] {
                for blobs in [&[][..], &[1, u64::MAX]] {
                    let bytes = cell(spelling, whole_key, blobs, b"\x91\x04\x05");
                    let parsed = Cell::parse(&bytes).unwrap();
                    assert_eq!(parsed.record, b"\x91\x04\x05");
                    assert_eq!((parsed.spelling, parsed.whole_key), (spelling, whole_key));
                    assert_eq!(parsed.blobs().collect::<Vec<_>>(), blobs);
                    assert_eq!(Cell::lists_blobs(&bytes), !blobs.is_empty());
                    assert!(parsed.is_intact(b"row", &bytes));
                    assert!(!parsed.is_intact(b"raw", &bytes), "another key");
                }
            }
        }
    }

    #[test]
    fn a_plain_cell_is_the_record_and_four_bytes() {
        assert_eq!(cell(b"", b"", &[], &[0x11; 169]).len(), 173);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let bytes = cell(b"\x01", b"whole", &[9], b"\x91\x14abcd");
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let is_found = Cell::parse(&damaged).is_none_or(|cell| !cell.is_intact(b"row", &damaged));
            assert!(is_found, "bit {bit}");
        }
    }
}
