//! How does a decoder read one state of a row, while Python code that it calls, or another thread, changes the row?
//!
//! A decoder of a whole value calls Python code between two fields: a decode function, an import, a `__hash__`. That code can
//! change the record that is being decoded, or let another thread do it. A `Reading` keeps the bytes as they are for that
//! long: it counts itself in the row, and a change of a row that is being read goes to a copy. A change of any other row
//! stays in place, so the price of this is one look at a counter.
//!
//! The one exception is a view of a buffer that the program itself can write to: its bytes are the program's. They stay in
//! place and in memory, and each read checks its bounds, but what the program writes there meanwhile is what is read.
#![allow(unsafe_code)]

use crate::hot::gil::GilRc;
use crate::values::row::Row;

/// The bytes of a row as they were when this was made.
pub struct Reading<'a> {
    row: &'a GilRc<Row>,
    data: *const u8,
    size: usize,
    version: u32,
}

impl<'a> Reading<'a> {
    /// A reading of the present bytes of `row`.
    #[inline]
    pub fn new(row: &'a GilRc<Row>) -> Self {
        let (data, size) = row.begin_reading();
        Self { row, data, size, version: row.version() }
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the row keeps these bytes where they are until `end_reading` (row.rs), which the drop of `self` calls.
        unsafe { std::slice::from_raw_parts(self.data, self.size) }
    }

    /// The row, whose bytes may be others by now.
    #[inline]
    pub fn row(&self) -> &'a GilRc<Row> {
        self.row
    }

    /// The version of the row to which places in these bytes belong.
    #[inline]
    pub fn version(&self) -> u32 {
        self.version
    }
}

impl Drop for Reading<'_> {
    #[inline]
    fn drop(&mut self) {
        self.row.end_reading(self.data);
    }
}
