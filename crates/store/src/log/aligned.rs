//! How does a large value stand at the address that its reader expects?
//!
//! Arrays are padded so that their data is aligned when the value begins where LMDB would put it: 16 bytes behind a multiple
//! of the page size. A multiple of 64 is what they ask for.

use crate::blob::BLOB_ADDRESS_REMAINDER;

const ALIGNMENT: usize = 64;

/// Bytes that begin `BLOB_ADDRESS_REMAINDER` behind a multiple of 64.
pub(crate) struct Aligned {
    buffer: Vec<u8>,
    start: usize,
}

impl Aligned {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut buffer: Vec<u8> = Vec::with_capacity(bytes.len() + 2 * ALIGNMENT);
        // An allocation that cannot say where it lies (none that runs) is taken as it is.
        let aligned = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        let start = aligned + BLOB_ADDRESS_REMAINDER;
        buffer.resize(start, 0);
        // Within the capacity, so it stays where it is.
        buffer.extend_from_slice(bytes);
        Self { buffer, start }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_where_a_page_would_put_it() {
        for size in [0, 1, 63, 64, 65, 4096, 100_001] {
            let bytes: Vec<u8> = (0..size).map(|number: usize| number as u8).collect();
            let aligned = Aligned::new(&bytes);
            assert_eq!(aligned.bytes(), bytes);
            assert_eq!(aligned.bytes().as_ptr() as usize % ALIGNMENT, BLOB_ADDRESS_REMAINDER % ALIGNMENT);
        }
    }
}
