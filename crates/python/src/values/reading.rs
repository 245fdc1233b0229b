//! Keep one state of a row readable while Python code or another thread changes the row.
//!
//! A decoder of a whole value calls Python code between two fields: a decode function, an import, a
//! `__hash__`. That code can change the record that is being decoded, or let another thread change
//! it. A `Reading` keeps the bytes unchanged for that long: it counts itself in the row, and a
//! change of a row with readings goes to a copy. A change of any other row is made in place, so
//! this costs one test of a counter.
//!
//! The one exception is a view of a buffer that the program itself can write to: those bytes belong
//! to the program. They stay in memory at their place, and each read checks its bounds, but a read
//! sees what the program has written meanwhile.
#![allow(unsafe_code)]

use std::mem::ManuallyDrop;

use crate::hot::gil::GilRc;
use crate::values::row::Row;

/// The bytes of a row as they were when the reading began.
pub struct Reading<'a> {
    row: &'a GilRc<Row>,
    data: *const u8,
    size: usize,
    version: u32,
}

impl<'a> Reading<'a> {
    /// A reading of the current bytes of `row`.
    #[inline]
    pub fn new(row: &'a GilRc<Row>) -> Self {
        let (data, size) = row.begin_reading();
        Self { row, data, size, version: row.version() }
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the row keeps these bytes where they are until `end_reading` (row.rs), which the
        // drop of `self` calls.
        unsafe { std::slice::from_raw_parts(self.data, self.size) }
    }

    /// The row, which may have other bytes by now.
    #[inline]
    pub fn row(&self) -> &'a GilRc<Row> {
        self.row
    }

    /// The version of the row that places in these bytes belong to.
    #[inline]
    pub fn version(&self) -> u32 {
        self.version
    }
}

/// A reading that lasts from one call of Python code to the next.
pub struct Held {
    row: GilRc<Row>,
    data: *const u8,
    size: usize,
    version: u32,
}

// SAFETY: the pointer leads into memory that `row` keeps; both are used only with the GIL held.
unsafe impl Send for Held {}
// SAFETY: as above.
unsafe impl Sync for Held {}

impl Held {
    /// A reading of the current bytes of `row`.
    pub fn new(row: &GilRc<Row>) -> Self {
        let (data, size) = row.begin_reading();
        Self { row: row.clone(), data, size, version: row.version() }
    }

    /// The reading, which the drop of `self` ends.
    #[inline]
    pub fn reading(&self) -> ManuallyDrop<Reading<'_>> {
        ManuallyDrop::new(Reading { row: &self.row, data: self.data, size: self.size, version: self.version })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.row.end_reading(self.data);
    }
}

impl Drop for Reading<'_> {
    #[inline]
    fn drop(&mut self) {
        self.row.end_reading(self.data);
    }
}
