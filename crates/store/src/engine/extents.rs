//! Pages that an engine sets aside for large values, which are written before their commit.
//!
//! The contract is in docs/internals/large-values.md. A *reserve* is a list of page ranges that no
//! tree and no transaction uses. Values are written there straight into the file (`Extents`), and
//! a later write transaction puts them into a tree where they are (`KeepsPages`).

use std::io;
use std::ops::Range;

use crate::engine::{Result, Tree};

/// The engine's file, in which reserved pages are written and read.
pub trait Extents: Send + Sync {
    /// How many pages a value of this many bytes takes.
    fn pages_for(&self, size: u64) -> u64;

    /// Write a value, in parts, to pages from `first` on. They are reserved, and no reader knows
    /// them.
    ///
    /// # Errors
    /// Any error of the operating system.
    fn write(&self, first: u64, parts: &[&[u8]]) -> io::Result<()>;

    /// The value of `size` bytes at these pages, in the map. `None` if the file has no such pages.
    /// The bytes stay as they are while the caller has a read transaction in which no other use of
    /// the pages was made.
    fn bytes(&self, first: u64, size: u64) -> Option<&[u8]>;

    /// What is at these pages now, which may be anything. Unlike the map, it can be read while
    /// another process makes the file shorter. `None` if the file has no such pages.
    fn read(&self, first: u64, size: u64) -> Option<Vec<u8>>;

    /// Sync the file's content to the disk.
    ///
    /// # Errors
    /// Any error of the operating system.
    fn sync(&self) -> io::Result<()>;

    /// Bytes that are free on the file's disk. `None` if the system does not say.
    fn disk_room(&self) -> Option<u64>;
}

/// What a write transaction can do with the reserve.
pub trait KeepsPages {
    /// The reserve, in ascending order.
    ///
    /// # Errors
    /// When the engine finds its list damaged.
    fn reserve(&mut self) -> Result<Vec<Range<u64>>>;

    /// Replace the reserve. The caller has taken what comes in and has used or given what goes out.
    ///
    /// # Errors
    /// When no room is left.
    fn set_reserve(&mut self, ranges: &[Range<u64>]) -> Result<()>;

    /// Take this many pages, two or more, that no reader can see.
    ///
    /// # Errors
    /// When no room is left.
    fn take_pages(&mut self, count: u64) -> Result<Range<u64>>;

    /// Give pages that were taken room on the disk. False if the file system cannot do that.
    ///
    /// # Errors
    /// When no room is left.
    fn give_room(&mut self, pages: &Range<u64>) -> Result<bool>;

    /// Free pages of the reserve. They are used again when no reader has an older version.
    ///
    /// # Errors
    /// `NoMemory`.
    fn give_pages(&mut self, pages: &Range<u64>) -> Result<()>;

    /// Give a key the value that was written to reserved pages from `first` on.
    ///
    /// # Errors
    /// As `WriteTxn::put`.
    fn put_placed(&mut self, tree: Tree, key: &[u8], first: u64, size: u64) -> Result<()>;
}
