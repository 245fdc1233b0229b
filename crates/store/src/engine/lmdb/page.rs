//! Reads the entries of LMDB's leaf pages directly in the map.
//!
//! ```text
//! page   := number: u64, pad: u16 = 0, flags: u16, lower: u16, upper: u16,
//!           node offset: u16 * n ... nodes
//! node   := size low: u16, size high: u16, flags: u16, key size: u16, key, data
//! data   := the value, or with flag 1 the u64 number of the overflow page where it begins
//! ```
//!
//! Host byte order. Node offsets count from the page's first byte and are in key order. Nodes fill
//! the page from its end down to `upper`. (LMDB's `mdb.c`: `MDB_page`, `MDB_node`.)
//!
//! LMDB's own cursor costs some 20 ns a row, most of it calls and checks. So a scan reads the pages
//! here, in the map (`engine/lmdb/walk.rs`). Every number is checked against the page and the map
//! before it is used. If anything does not fit, the scan ends with an error.
//! `engine/lmdb/format.rs` reads the same layout from the file for `check`.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::lmdb::search::Nodes;
use crate::engine::{Direction, Entry};
use crate::sys::os::prefetch_many;

/// Bytes before a page's node offsets, and before an overflow page's data.
pub(crate) const PAGE_HEAD_SIZE: usize = 16;
/// Bytes before a node's key.
pub(crate) const NODE_HEAD_SIZE: usize = 8;
/// Page flag: branch.
pub(crate) const PAGE_BRANCH: u16 = 0x01;
/// Page flag: leaf.
pub(crate) const PAGE_LEAF: u16 = 0x02;
/// Page flag: the first of one or more pages that hold one large value.
pub(crate) const PAGE_OVERFLOW: u16 = 0x04;
/// Page flag: meta page.
pub(crate) const PAGE_META: u16 = 0x08;
/// Node flag: the data lies on overflow pages.
pub(crate) const NODE_BIG: u16 = 0x01;
/// Node flag: the data describes a named tree.
pub(crate) const NODE_TREE: u16 = 0x02;
/// The size of a cache line.
const LINE_SIZE: usize = 64;
/// The first page after the two meta pages, which are overwritten while others read.
const TREE_PAGE_MIN: u64 = 2;

/// Where the file is mapped in this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapBounds {
    base: usize,
    page_size: usize,
    /// How many pages the map has room for: other processes may have made the file longer.
    page_count_max: u64,
}

impl MapBounds {
    /// Find the mapping that holds an address. LMDB has no call for it, but the system does.
    #[cfg(all(target_os = "linux", target_endian = "little"))]
    pub(crate) fn find(address: usize, page_size: usize) -> Option<Self> {
        use std::io::BufRead as _;
        // Read line by line: each line costs the system time, and a map of this size mostly comes
        // before all libraries.
        let maps = std::io::BufReader::new(std::fs::File::open("/proc/self/maps").ok()?);
        for line in maps.lines() {
            let line = line.ok()?;
            // "7f1c0000-7f1d0000 r--s 00000000 fd:00 1234 /path"
            let mut words = line.split_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
            if (start..end).contains(&address) {
                let is_from_offset_zero =
                    words.nth(1).is_some_and(|offset| offset.bytes().all(|b| b == b'0'));
                let page_count_max = ((end - start) / page_size) as u64;
                return is_from_offset_zero.then_some(Self { base: start, page_size, page_count_max });
            }
        }
        None
    }

    /// `None` on other systems: reads use LMDB's cursor.
    #[cfg(not(all(target_os = "linux", target_endian = "little")))]
    pub(crate) fn find(_address: usize, _page_size: usize) -> Option<Self> {
        None
    }

    /// The page with a number, if a tree can contain it.
    ///
    /// # Safety
    /// The file has `page_count` pages, and for `'m` no page that the caller's transaction reaches
    /// is written to. `number` came from that transaction.
    #[inline]
    pub(crate) unsafe fn page<'m>(self, number: u64, page_count: u64) -> Option<&'m [u8]> {
        if number < TREE_PAGE_MIN || number >= page_count.min(self.page_count_max) {
            return None;
        }
        let offset = usize::try_from(number).ok()?.checked_mul(self.page_size)?;
        // SAFETY: the page is in the file and in the map (both checked above). It stays there and
        // is not written to, as the caller promises.
        Some(unsafe { std::slice::from_raw_parts((self.base + offset) as *const u8, self.page_size) })
    }
}

/// A number for one version of one file, which no other version in this process has.
pub(crate) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The pages of one version, in the map.
#[derive(Clone, Copy)]
pub(crate) struct Pages<'m> {
    bounds: MapBounds,
    page_count: u64,
    number: u64,
    _version: PhantomData<&'m ()>,
}

impl<'m> Pages<'m> {
    /// `number` is no other version's, in this file or another, as long as the process lives.
    ///
    /// # Safety
    /// As for [`MapBounds::page`], for all numbers that are asked for.
    pub(crate) unsafe fn new(bounds: MapBounds, page_count: u64, number: u64) -> Self {
        Self { bounds, page_count, number, _version: PhantomData }
    }

    /// The number of the version.
    pub(crate) fn number(self) -> u64 {
        self.number
    }

    /// The pages of a file that was read into memory.
    #[cfg(test)]
    pub(crate) fn of_bytes(bytes: &'m [u8], page_size: usize) -> Self {
        let page_count = (bytes.len() / page_size) as u64;
        let bounds = MapBounds { base: bytes.as_ptr() as usize, page_size, page_count_max: page_count };
        // SAFETY: the bytes contain this many pages, and are borrowed for `'m`.
        unsafe { Self::new(bounds, page_count, next_number()) }
    }

    /// The page with a number.
    #[inline]
    pub(crate) fn page(self, number: u64) -> Option<&'m [u8]> {
        // SAFETY: as the caller of `new` promises.
        unsafe { self.bounds.page(number, self.page_count) }
    }

    /// The nodes of the page with a number, if it is of this kind and has any.
    #[inline]
    pub(crate) fn nodes(self, number: u64, kind: u16) -> Option<Nodes<'m>> {
        Nodes::of(self.page(number)?, number, kind)
    }

    /// The leaf page with a number.
    #[inline]
    pub(crate) fn leaf(self, number: u64) -> Option<Leaf<'m>> {
        Leaf::of(self.page(number)?, number, self.bounds, self.page_count)
    }
}

/// The nodes of a leaf that are read soon. A leaf that was split is half empty, and its nodes lie
/// in any order.
struct NodesAhead<'m> {
    page: &'m [u8],
    offsets: std::slice::Iter<'m, [u8; 2]>,
    part: usize,
    node_size: usize,
}

impl<'m> NodesAhead<'m> {
    #[inline]
    fn of(page: &'m [u8], count: usize) -> Self {
        // Many walks read a field or two, and the processor itself looks ahead in longer nodes.
        const SIZE_MAX: usize = 4 * LINE_SIZE;
        let end = usize::from(read_u16(page, 12).unwrap_or_default());
        let upper = usize::from(read_u16(page, 14).unwrap_or_default());
        let (offsets, _) = page.get(PAGE_HEAD_SIZE..end).unwrap_or_default().as_chunks();
        let node_size = page.len().saturating_sub(upper) / offsets.len().max(1);
        let part = offsets.len().div_ceil(count.max(1));
        Self { page, offsets: offsets.iter(), part, node_size: node_size.min(SIZE_MAX) }
    }

    #[inline]
    fn ask(&mut self) {
        for offset in self.offsets.by_ref().take(self.part) {
            let node = self.page.as_ptr().wrapping_add(usize::from(u16::from_le_bytes(*offset)));
            for line in (0..self.node_size).step_by(LINE_SIZE) {
                prefetch_many(node.wrapping_add(line));
            }
        }
    }
}

/// A leaf page in the map, its head checked.
#[derive(Clone, Copy)]
pub(crate) struct Leaf<'m> {
    page: &'m [u8],
    bounds: MapBounds,
    limit: usize,
    upper: usize,
    count: usize,
}

impl<'m> Leaf<'m> {
    #[inline]
    fn of(page: &'m [u8], number: u64, bounds: MapBounds, page_count: u64) -> Option<Self> {
        let limit =
            usize::try_from(page_count.min(bounds.page_count_max)).ok()?.checked_mul(bounds.page_size)?;
        Leaf { page, bounds, limit, upper: usize::from(read_u16(page, 14)?), count: 0 }.checked(number)
    }

    /// The number of its entries.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Its nodes, for a search; `None` if it has none.
    #[inline]
    pub(crate) fn nodes(&self) -> Option<Nodes<'m>> {
        Nodes::of_leaf(self.page, self.count)
    }

    /// How many bytes it has.
    pub(crate) fn size(&self) -> usize {
        self.page.len()
    }

    /// How many of its bytes have nothing in them.
    pub(crate) fn room(&self) -> usize {
        self.upper.saturating_sub(PAGE_HEAD_SIZE + 2 * self.count)
    }

    /// An entry, in the order of keys.
    #[inline]
    pub(crate) fn entry(&self, index: usize) -> Option<Entry<'m>> {
        if index >= self.count {
            return None;
        }
        self.entry_at(usize::from(read_u16(self.page, PAGE_HEAD_SIZE + 2 * index)?))
    }

    /// The first page of an entry's value, or 0 if that has no pages of its own; `None` if the
    /// entry is not inside the page.
    pub(crate) fn large_page(&self, index: usize) -> Option<u64> {
        let (key, _) = self.entry(index)?;
        let node = self.page.get(usize::from(read_u16(self.page, PAGE_HEAD_SIZE + 2 * index)?)..)?;
        let is_large = read_u16(node, 4)? == NODE_BIG;
        if is_large { read_u64(node, NODE_HEAD_SIZE + key.len()) } else { Some(0) }
    }

    fn checked(self, number: u64) -> Option<Self> {
        let lower = usize::from(read_u16(self.page, 12)?);
        let is_sound = read_u64(self.page, 0)? == number
            && read_u16(self.page, 10)? == PAGE_LEAF
            && lower >= PAGE_HEAD_SIZE
            && lower <= self.upper
            && self.upper <= self.page.len();
        is_sound.then(|| Self { count: (lower - PAGE_HEAD_SIZE) / 2, ..self })
    }

    /// The page's number.
    pub(crate) fn number(&self) -> usize {
        (self.page.as_ptr() as usize - self.bounds.base) / self.bounds.page_size
    }

    /// Add these entries in a walk's order, up to the first that is not inside the page or the map.
    ///
    /// Meanwhile prefetch the nodes of the page that comes next, if it is known, some with each
    /// entry, and into the second cache: a processor waits for few lines of the first one at a
    /// time, fewer than a page has, and then waits with the prefetch itself.
    #[inline]
    pub(crate) fn push_entries(
        &self,
        indexes: Range<usize>,
        direction: Direction,
        next: Option<&[u8]>,
        entries: &mut Vec<Entry<'m>>,
    ) {
        let offsets = self.page.get(PAGE_HEAD_SIZE + 2 * indexes.start..PAGE_HEAD_SIZE + 2 * indexes.end);
        let (offsets, _) = offsets.unwrap_or_default().as_chunks();
        entries.reserve(offsets.len());
        let mut ahead = NodesAhead::of(next.unwrap_or_default(), offsets.len());
        let entry = |offset: &[u8; 2]| {
            ahead.ask();
            self.entry_at(usize::from(u16::from_le_bytes(*offset)))
        };
        match direction {
            Direction::Forward => entries.extend(offsets.iter().map_while(entry)),
            Direction::Reverse => entries.extend(offsets.iter().rev().map_while(entry)),
        }
    }

    /// The entry at a node's offset. `None` if it is not inside the page or the map.
    #[inline]
    fn entry_at(&self, offset: usize) -> Option<Entry<'m>> {
        if offset < self.upper {
            return None;
        }
        let node = self.page.get(offset..)?;
        let (head, rest) = node.split_first_chunk::<NODE_HEAD_SIZE>()?;
        let head = u64::from_le_bytes(*head);
        let (size, flags, key_size) =
            (head as u32 as usize, (head >> 32) as u16, usize::from((head >> 48) as u16));
        let key = rest.get(..key_size)?;
        let data = rest.get(key_size..)?;
        match flags {
            0 => Some((key, data.get(..size)?)),
            NODE_BIG => Some((key, self.overflow(data, size)?)),
            _ => None,
        }
    }

    fn overflow(&self, data: &[u8], size: usize) -> Option<&'m [u8]> {
        let number = read_u64(data, 0)?;
        let start = usize::try_from(number).ok()?.checked_mul(self.bounds.page_size)?;
        let start = start.checked_add(PAGE_HEAD_SIZE)?;
        if number < TREE_PAGE_MIN || start.checked_add(size)? > self.limit {
            return None;
        }
        // SAFETY: the range ends before the last page of file and map does. That it belongs to the
        // same version as this page, and so does not change, is what LMDB itself relies on.
        Some(unsafe { std::slice::from_raw_parts((self.bounds.base + start) as *const u8, size) })
    }
}

pub(crate) fn read_u16(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

pub(crate) fn read_u32(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

pub(crate) fn read_u64(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_SIZE: usize = 4096;

    #[test]
    fn no_page_is_looked_at_that_a_tree_cannot_have() {
        let bytes = vec![0; 5 * PAGE_SIZE];
        let found = |map: u64, file: u64| {
            let bounds =
                MapBounds { base: bytes.as_ptr() as usize, page_size: PAGE_SIZE, page_count_max: map };
            // SAFETY: there is memory for as many pages as the greater of the two says.
            let pages = unsafe { Pages::new(bounds, file, 1) };
            (0..7).filter(|number| pages.page(*number).is_some()).collect::<Vec<u64>>()
        };
        assert_eq!(found(5, 5), [2, 3, 4], "without those that are written over");
        assert_eq!(found(4, 5), [2, 3], "the map ends ahead of the file");
        assert_eq!(found(5, 4), [2, 3]);
    }

    #[test]
    fn a_leaf_has_no_entries_behind_its_count() {
        let mut bytes = vec![0; 3 * PAGE_SIZE];
        let page = &mut bytes[2 * PAGE_SIZE..];
        let node = 4000_u16.to_le_bytes();
        page[0] = 2;
        page[10..12].copy_from_slice(&PAGE_LEAF.to_le_bytes());
        page[14..16].copy_from_slice(&node);
        page[16..18].copy_from_slice(&node);
        let entries = |count: u8, mut bytes: Vec<u8>| {
            bytes[2 * PAGE_SIZE + 12] = PAGE_HEAD_SIZE as u8 + 2 * count;
            let leaf = Pages::of_bytes(&bytes, PAGE_SIZE).leaf(2).unwrap();
            (leaf.entry(0).is_some(), leaf.entry(1).is_some())
        };
        assert_eq!(entries(1, bytes.clone()), (true, false));
        assert_eq!(entries(0, bytes), (false, false));
    }
}
