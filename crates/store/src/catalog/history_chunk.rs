//! A chunk of the history of changes: its key, its head and its check (`wal/history.rs`).

use crate::catalog;

/// The first byte of a chunk's key in the catalog.
pub(crate) const CHUNK: u8 = b'g';
const HEAD_SIZE: usize = 25;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    WalRecords,
    Part,
    LastPart,
}

/// The head of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// The version of its first commit, and the part number within that commit.
    pub(crate) first: u64,
    pub(crate) part: u32,
    /// The version of its last commit.
    pub(crate) last: u64,
    /// Bytes of all chunks that were ever written, this one included.
    pub(crate) total: u64,
    /// When the chunk was written, in seconds since 1970.
    pub(crate) time: u64,
    pub(crate) kind: Kind,
}

impl Chunk {
    pub(crate) fn key(first: u64, part: u32) -> [u8; 13] {
        let mut key = [CHUNK; 13];
        if let Some((version, number)) = key.get_mut(1..).and_then(|rest| rest.split_at_mut_checked(8)) {
            version.copy_from_slice(&first.to_be_bytes());
            number.copy_from_slice(&part.to_be_bytes());
        }
        key
    }

    /// The key and value of a chunk with this body.
    pub(crate) fn entry(&self, body: &[u8]) -> ([u8; 13], Vec<u8>) {
        let key = Self::key(self.first, self.part);
        let mut bytes = Vec::with_capacity(HEAD_SIZE + body.len() + 8);
        for field in [self.last, self.total, self.time] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.push(self.kind as u8);
        bytes.extend_from_slice(body);
        (key, catalog::sealed(&key, bytes))
    }

    /// Read the head of a chunk alone. `None` if the key is not a chunk's or the value is too
    /// short.
    pub(crate) fn parse(key: &[u8], value: &[u8]) -> Option<Self> {
        let (mark, rest) = key.split_first()?;
        let (first, part) = rest.split_at_checked(8)?;
        let field = |at: usize| {
            value.get(at..).and_then(|rest| rest.first_chunk::<8>()).map(|field| u64::from_le_bytes(*field))
        };
        let kind = match value.get(HEAD_SIZE - 1)? {
            0 => Kind::WalRecords,
            1 => Kind::Part,
            2 => Kind::LastPart,
            _ => return None,
        };
        let chunk = Self {
            first: u64::from_be_bytes(first.try_into().ok()?),
            part: u32::from_be_bytes(part.try_into().ok()?),
            last: field(0)?,
            total: field(8)?,
            time: field(16)?,
            kind,
        };
        (*mark == CHUNK && chunk.last >= chunk.first).then_some(chunk)
    }

    /// The body of a chunk. `None` if its check fails.
    pub(crate) fn body<'a>(key: &[u8], value: &'a [u8]) -> Option<&'a [u8]> {
        catalog::unsealed(key, value)?.get(HEAD_SIZE..)
    }
}
