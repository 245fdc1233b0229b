//! What does a leaf page of LMDB hold?
//!
//! ```text
//! page   := number: u64, pad: u16 = 0, flags: u16, lower: u16, upper: u16, node offset: u16 * n ... nodes
//! node   := size low: u16, size high: u16, flags: u16, key size: u16, key, data
//! data   := the value, or with flag 1 the u64 number of the overflow page where it begins
//! ```
//!
//! Host byte order; node offsets count from the page's first byte and stand in key order; nodes fill the page
//! from its end down to `upper`. (LMDB's `mdb.c`: `MDB_page`, `MDB_node`.)
//!
//! LMDB's own cursor costs some 20 ns a row, most of it calls and checks. A scan therefore asks LMDB for the
//! first entry of a page and reads the others here, in the map. Every number is checked against the page
//! and the map before it is used; whatever does not fit makes the scan fall back to the plain cursor, which
//! is also the oracle in the tests. `pages.rs` reads the same layout from the file for `check`.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use crate::engine::{Direction, Entry};
use crate::os::prefetch;

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
/// What a processor brings from memory at once.
const LINE_SIZE: usize = 64;

/// Where the file is mapped in this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapBounds {
    base: usize,
    page_size: usize,
}

impl MapBounds {
    /// Find the mapping that holds an address. LMDB has no call that tells, the system does.
    #[cfg(all(target_os = "linux", target_endian = "little"))]
    pub(crate) fn find(address: usize, page_size: usize) -> Option<Self> {
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        for line in maps.lines() {
            // "7f1c0000-7f1d0000 r--s 00000000 fd:00 1234 /path"
            let mut words = line.split_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
            if (start..end).contains(&address) {
                let is_from_offset_zero =
                    words.nth(1).is_some_and(|offset| offset.bytes().all(|b| b == b'0'));
                return is_from_offset_zero.then_some(Self { base: start, page_size });
            }
        }
        None
    }

    /// Elsewhere the plain cursor has to do.
    #[cfg(not(all(target_os = "linux", target_endian = "little")))]
    pub(crate) fn find(_address: usize, _page_size: usize) -> Option<Self> {
        None
    }

    /// The page with a number.
    ///
    /// # Safety
    /// Pages 0 to `page_count` lie in the map, and for `'m` none of those that the caller's transaction
    /// reaches is written to; `number` came from that transaction.
    pub(crate) unsafe fn page<'m>(self, number: u64, page_count: u64) -> Option<&'m [u8]> {
        if number >= page_count {
            return None;
        }
        let offset = usize::try_from(number).ok()?.checked_mul(self.page_size)?;
        // SAFETY: the page lies in the map (checked above against the last page), where it stays and is
        // not written to, as the caller promises.
        Some(unsafe { std::slice::from_raw_parts((self.base + offset) as *const u8, self.page_size) })
    }

    /// The leaf page around an address.
    ///
    /// # Safety
    /// Pages 0 to `page_count` lie in the map, and for `'m` none of those that the caller's transaction
    /// reaches is written to; `address` came from that transaction.
    pub(crate) unsafe fn leaf_around<'m>(self, address: usize, page_count: u64) -> Option<Leaf<'m>> {
        let number = (address.checked_sub(self.base)? / self.page_size) as u64;
        // SAFETY: as the caller promises.
        Leaf::of(unsafe { self.page(number, page_count) }?, number, self, page_count)
    }
}

/// The pages of one version, in the map.
#[derive(Clone, Copy)]
pub(crate) struct Pages<'m> {
    bounds: MapBounds,
    page_count: u64,
    _version: PhantomData<&'m ()>,
}

impl<'m> Pages<'m> {
    /// # Safety
    /// Pages 0 to `page_count` lie in the map, and for `'m` none of those that the caller's transaction reaches is written to; numbers
    /// that are asked for come from that transaction.
    pub(crate) unsafe fn new(bounds: MapBounds, page_count: u64) -> Self {
        Self { bounds, page_count, _version: PhantomData }
    }

    /// The page with a number.
    #[inline]
    pub(crate) fn page(self, number: u64) -> Option<&'m [u8]> {
        // SAFETY: as the caller of `new` promises.
        unsafe { self.bounds.page(number, self.page_count) }
    }

    /// The leaf page with a number.
    #[inline]
    pub(crate) fn leaf(self, number: u64) -> Option<Leaf<'m>> {
        Leaf::of(self.page(number)?, number, self.bounds, self.page_count)
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
        let limit = usize::try_from(page_count).ok()?.checked_mul(bounds.page_size)?;
        Leaf { page, bounds, limit, upper: usize::from(read_u16(page, 14)?), count: 0 }.checked(number)
    }

    /// How many entries it has.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// An entry, in the order of keys.
    #[inline]
    pub(crate) fn entry(&self, index: usize) -> Option<Entry<'m>> {
        self.entry_at(usize::from(read_u16(self.page, PAGE_HEAD_SIZE + 2 * index)?))
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

    /// Which entry has its key at this address.
    pub(crate) fn index_of_key(&self, address: usize) -> Option<usize> {
        let offset = address.checked_sub(self.page.as_ptr() as usize)?.checked_sub(NODE_HEAD_SIZE)?;
        let offset = u16::try_from(offset).ok()?.to_le_bytes();
        let offsets = self.page.get(PAGE_HEAD_SIZE..PAGE_HEAD_SIZE + 2 * self.count)?;
        offsets.chunks_exact(2).position(|found| found == offset)
    }

    /// Add the entries that follow `index` in a walk, up to one that does not lie in the page or the map.
    ///
    /// Meanwhile ask the processor, where `asks_ahead` says so, for the page behind this one in the file, or before it. A walk
    /// over pages that were written in order would otherwise wait for memory at each row: processors look ahead only
    /// within a page. It is asked for a few lines at each entry: with all 64 at once rows were waited for all the
    /// same, and a sum over them took twice the time. (Why is not known; a bare loop over the pages may ask for all at once.)
    #[inline]
    pub(crate) fn push_entries(
        &self,
        index: usize,
        direction: Direction,
        asks_ahead: bool,
        entries: &mut Vec<Entry<'m>>,
    ) {
        let page_size = self.page.len();
        let (indexes, neighbour) = match direction {
            Direction::Forward => (index + 1..self.count, self.page.as_ptr().wrapping_add(page_size)),
            Direction::Reverse => (0..index, self.page.as_ptr().wrapping_sub(page_size)),
        };
        let offsets = self.page.get(PAGE_HEAD_SIZE + 2 * indexes.start..PAGE_HEAD_SIZE + 2 * indexes.end);
        let (offsets, _) = offsets.unwrap_or_default().as_chunks();
        entries.reserve(offsets.len());
        let part = page_size.div_ceil(offsets.len().max(1)).next_multiple_of(LINE_SIZE);
        let mut ahead = if asks_ahead { page_size } else { 0 };
        let mut push = |offset: &[u8; 2]| {
            // From the end of the page on, where its first entries are.
            let end = ahead.saturating_sub(part);
            while ahead > end {
                ahead = ahead.saturating_sub(LINE_SIZE);
                prefetch(neighbour.wrapping_add(ahead));
            }
            self.entry_at(usize::from(u16::from_le_bytes(*offset)))
        };
        match direction {
            Direction::Forward => entries.extend(offsets.iter().map_while(&mut push)),
            Direction::Reverse => entries.extend(offsets.iter().rev().map_while(&mut push)),
        }
    }

    /// The entry at a node's offset, or `None` where it does not lie in the page or the map.
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
        let number = usize::try_from(read_u64(data, 0)?).ok()?;
        let start = number.checked_mul(self.bounds.page_size)?.checked_add(PAGE_HEAD_SIZE)?;
        if number < 2 || start.checked_add(size)? > self.limit {
            return None;
        }
        // SAFETY: the range ends before the map's last page does; that it belongs to the same version as
        // this page, and so stays as it is, is what LMDB itself relies on.
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
