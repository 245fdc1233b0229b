//! Reads the pages of a file without trusting them.
//!
//! LMDB trusts its pages. Here they are read from the file, not the map, and every number in them
//! is checked before it is used, so that no bytes can crash the reader. Used by `check`, for
//! truncated files, and for untrusted files. `engine/lmdb/page.rs` has the layout of leaf pages.
//! Branch pages are the same with child page numbers in place of sizes and flags. The other
//! layouts:
//!
//! ```text
//! meta page  := page head (16 bytes), u32 magic, u32 version, u64 0, u64 map size, free tree,
//!               main tree, u64 last page, u64 txn
//! tree       := u32 pad (page size, in the free tree), u16 flags, u16 depth, u64 branch pages,
//!               leaf pages, overflow pages, entries, root
//! ```

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::engine::lmdb::page::{
    NODE_BIG, NODE_HEAD_SIZE, NODE_TREE, PAGE_BRANCH, PAGE_HEAD_SIZE, PAGE_LEAF, PAGE_META, PAGE_OVERFLOW,
    read_u16, read_u32, read_u64,
};

/// LMDB's magic number.
pub(crate) const LMDB_MAGIC: u32 = 0xBEEF_C0DE;
const LMDB_VERSION: u32 = 1;
/// The root of a tree without entries.
const NO_PAGE: u64 = u64::MAX;
/// The deepest possible tree: with two keys a page it would have 2^32 entries.
pub(crate) const DEPTH_MAX: u16 = 32;
const TREE_SIZE: usize = 48;

/// The page size of the files that we create, on every machine: LMDB would use the machine's own
/// page size, and some files would have larger pages than others.
pub(crate) const PAGE_SIZE: usize = 4096;
/// The bytes of the first page, unused by LMDB, that say what file this is (`db/stamp.rs`).
pub(crate) const STAMP: std::ops::Range<usize> = 4032..4064;
/// Flags of the tree of free pages of our files: integer keys, and the file is no folder.
pub(crate) const FREE_TREE_FLAGS: u16 = 0x08 | 0x4000;
/// The map size in a new file. Each opener reserves as much as it can, and stores that.
const MAP_SIZE: u64 = 1 << 26;

/// The two meta pages of an empty file, as LMDB writes them.
pub(crate) fn new_metas() -> Vec<u8> {
    let mut pages = Vec::with_capacity(2 * PAGE_SIZE);
    for number in 0..2_u64 {
        pages.extend_from_slice(&number.to_le_bytes());
        pages.extend_from_slice(&0_u16.to_le_bytes());
        pages.extend_from_slice(&PAGE_META.to_le_bytes());
        pages.extend_from_slice(&0_u32.to_le_bytes());
        pages.extend_from_slice(&LMDB_MAGIC.to_le_bytes());
        pages.extend_from_slice(&LMDB_VERSION.to_le_bytes());
        pages.extend_from_slice(&0_u64.to_le_bytes());
        pages.extend_from_slice(&MAP_SIZE.to_le_bytes());
        for (pad, flags) in [(PAGE_SIZE as u32, FREE_TREE_FLAGS), (0, 0)] {
            pages.extend_from_slice(&pad.to_le_bytes());
            pages.extend_from_slice(&flags.to_le_bytes());
            // No depth, no pages, no entries, no root.
            pages.extend_from_slice(&[0; 2 + 4 * 8]);
            pages.extend_from_slice(&NO_PAGE.to_le_bytes());
        }
        pages.extend_from_slice(&1_u64.to_le_bytes());
        pages.extend_from_slice(&0_u64.to_le_bytes());
        pages.resize((number as usize + 1) * PAGE_SIZE, 0);
    }
    pages
}

/// LMDB's head of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeHead {
    pub(crate) pad: u32,
    pub(crate) flags: u16,
    pub(crate) depth: u16,
    pub(crate) branch_pages: u64,
    pub(crate) leaf_pages: u64,
    pub(crate) overflow_pages: u64,
    pub(crate) entries: u64,
    pub(crate) root: u64,
}

impl TreeHead {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            pad: read_u32(bytes, 0)?,
            flags: read_u16(bytes, 4)?,
            depth: read_u16(bytes, 6)?,
            branch_pages: read_u64(bytes, 8)?,
            leaf_pages: read_u64(bytes, 16)?,
            overflow_pages: read_u64(bytes, 24)?,
            entries: read_u64(bytes, 32)?,
            root: read_u64(bytes, 40)?,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.root == NO_PAGE
    }

    /// Whether it has the flags of all our trees except that of free pages: one value for a key, in
    /// byte order.
    pub(crate) fn is_plain(&self) -> bool {
        self.pad == 0 && self.flags == 0
    }
}

/// One of the two meta pages, where a version begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Its page number: 0 or 1.
    pub(crate) number: u64,
    pub(crate) page_size: u32,
    pub(crate) address: u64,
    pub(crate) map_size: u64,
    pub(crate) free: TreeHead,
    pub(crate) main: TreeHead,
    pub(crate) last_page: u64,
    pub(crate) txn: u64,
}

/// The bytes of a meta page that have a meaning.
pub(crate) const META_SIZE: usize = PAGE_HEAD_SIZE + 24 + 2 * TREE_SIZE + 16;

impl Meta {
    pub(crate) fn parse(bytes: &[u8], number: u64) -> Option<Self> {
        let is_meta = read_u64(bytes, 0)? == number
            && read_u16(bytes, 10)? == PAGE_META
            && read_u32(bytes, 16)? == LMDB_MAGIC
            && read_u32(bytes, 20)? == LMDB_VERSION;
        let free = TreeHead::parse(bytes.get(40..)?)?;
        let main = TreeHead::parse(bytes.get(40 + TREE_SIZE..)?)?;
        let is_size = free.pad.is_power_of_two() && (512..=0x8000).contains(&free.pad);
        (is_meta && is_size).then_some(Self {
            number,
            page_size: free.pad,
            address: read_u64(bytes, 24)?,
            map_size: read_u64(bytes, 32)?,
            free,
            main,
            last_page: read_u64(bytes, 136)?,
            txn: read_u64(bytes, 144)?,
        })
    }

    /// Check that its two trees have the flags of our files: with others the engine would follow
    /// references that do not exist.
    pub(crate) fn check_kinds(&self) -> Result<(), Fault> {
        if self.free.flags == FREE_TREE_FLAGS && self.main.is_plain() {
            return Ok(());
        }
        Err(Fault { page: self.number, what: "its trees are of a kind that this library does not make" })
    }

    /// Whether nothing was ever committed.
    pub(crate) fn is_new(&self) -> bool {
        self.txn == 0 && self.main.is_empty() && self.free.is_empty()
    }
}

/// A fault of a page.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) page: u64,
    pub(crate) what: &'static str,
}

/// A file of pages.
pub(crate) struct PageFile<'f> {
    file: &'f File,
    page_size: u32,
    size: u64,
}

/// One page, read and checked as a whole.
pub(crate) struct Page {
    pub(crate) number: u64,
    pub(crate) flags: u16,
    pub(crate) bytes: Vec<u8>,
    pub(crate) upper: usize,
    /// Where its nodes begin, in key order.
    pub(crate) offsets: Vec<u16>,
}

/// A node of a leaf page.
pub(crate) struct LeafNode<'p> {
    pub(crate) key: &'p [u8],
    pub(crate) flags: u16,
    /// The value's size, in the leaf or on overflow pages.
    pub(crate) size: usize,
    /// The value, or the number of its first overflow page.
    pub(crate) data: &'p [u8],
}

impl LeafNode<'_> {
    pub(crate) fn overflow_page(&self) -> Option<u64> {
        if self.flags & NODE_BIG == 0 { None } else { read_u64(self.data, 0) }
    }

    pub(crate) fn is_tree(&self) -> bool {
        self.flags == NODE_TREE
    }
}

impl<'f> PageFile<'f> {
    pub(crate) fn new(file: &'f File, page_size: u32, size: u64) -> Self {
        Self { file, page_size, size }
    }

    /// Both meta pages, if they are valid.
    pub(crate) fn metas(file: &File) -> io::Result<[Option<Meta>; 2]> {
        let mut bytes = [0; META_SIZE];
        let read = |bytes: &mut [u8], offset| match file.read_exact_at(bytes, offset) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            other => other.map(|()| true),
        };
        let first = if read(&mut bytes, 0)? { Meta::parse(&bytes, 0) } else { None };
        // Only the first one tells where the second one is; if the first is damaged, 4096 is a
        // guess.
        let page_size = first.map_or(4096, |meta| meta.page_size);
        let second = if read(&mut bytes, u64::from(page_size))? { Meta::parse(&bytes, 1) } else { None };
        Ok([first, second])
    }

    pub(crate) fn page_size(&self) -> usize {
        self.page_size as usize
    }

    /// How many whole pages the file has.
    pub(crate) fn page_count(&self) -> u64 {
        self.size / u64::from(self.page_size)
    }

    /// Read some bytes of a page. Fails if they are not in the file.
    pub(crate) fn read(&self, page: u64, offset: usize, size: usize) -> Result<Vec<u8>, Fault> {
        let fault = |what| Fault { page, what };
        let start =
            page.checked_mul(u64::from(self.page_size)).and_then(|start| start.checked_add(offset as u64));
        let end = start.and_then(|start| start.checked_add(size as u64));
        let (Some(start), Some(end)) = (start, end) else {
            return Err(fault("its number is beyond all files"));
        };
        if end > self.size {
            return Err(fault("it lies beyond the end of the file"));
        }
        let mut bytes = vec![0; size];
        self.file.read_exact_at(&mut bytes, start).map_err(|_| fault("it cannot be read"))?;
        Ok(bytes)
    }

    /// Read a branch or leaf page and check that its nodes fill it correctly.
    pub(crate) fn page(&self, number: u64) -> Result<Page, Fault> {
        let fault = |what| Fault { page: number, what };
        let bytes = self.read(number, 0, self.page_size())?;
        let cut = || fault("its head is cut off");
        let (flags, lower, upper) = (
            read_u16(&bytes, 10).ok_or_else(cut)?,
            usize::from(read_u16(&bytes, 12).ok_or_else(cut)?),
            usize::from(read_u16(&bytes, 14).ok_or_else(cut)?),
        );
        if read_u64(&bytes, 0) != Some(number) {
            return Err(fault("it says that it is another page"));
        }
        if flags != PAGE_BRANCH && flags != PAGE_LEAF {
            return Err(fault("it is neither a branch nor a leaf"));
        }
        if read_u16(&bytes, 8) != Some(0) {
            return Err(fault("its padding is not zero"));
        }
        if lower < PAGE_HEAD_SIZE || lower > upper || upper > bytes.len() || lower % 2 != 0 {
            return Err(fault("its free space does not lie inside it"));
        }
        let offsets: Vec<u16> = bytes
            .get(PAGE_HEAD_SIZE..lower)
            .unwrap_or_default()
            .chunks_exact(2)
            .filter_map(|offset| read_u16(offset, 0))
            .collect();
        let page = Page { number, flags, bytes, upper, offsets };
        page.check_nodes()?;
        Ok(page)
    }

    /// Read a page of a tree that has this many levels from it on; `is_free`: of the tree of free
    /// pages.
    pub(crate) fn page_of_tree(&self, number: u64, depth: u16, is_free: bool) -> Result<Page, Fault> {
        let page = self.page(number)?;
        if page.is_branch() != (depth > 1) || depth == 0 {
            return Err(Fault { page: number, what: "its tree is not as deep as it says" });
        }
        let least = if page.is_branch() && !is_free { 2 } else { 1 };
        if page.count() < least {
            return Err(Fault { page: number, what: "it has fewer entries than any page has" });
        }
        Ok(page)
    }

    /// Check the first page of an overflow value. Returns the number of its pages.
    pub(crate) fn overflow(&self, number: u64, size: usize) -> Result<u64, Fault> {
        let fault = |what| Fault { page: number, what };
        let head = self.read(number, 0, PAGE_HEAD_SIZE)?;
        let count = (PAGE_HEAD_SIZE + size).div_ceil(self.page_size()) as u64;
        if read_u64(&head, 0) != Some(number) || read_u16(&head, 10) != Some(PAGE_OVERFLOW) {
            return Err(fault("it is not the first page of a large value"));
        }
        if read_u16(&head, 8) != Some(0) {
            return Err(fault("its padding is not zero"));
        }
        // A shorter value that replaced a longer one keeps its pages.
        match read_u32(&head, 12).map(u64::from) {
            Some(own) if own >= count => Ok(own),
            _ => Err(fault("it has fewer pages than the value needs")),
        }
    }

    /// Check that an overflow value is inside the file, after the meta pages.
    fn check_extent(&self, first: u64, size: usize) -> Result<(), Fault> {
        let count = (PAGE_HEAD_SIZE + size).div_ceil(self.page_size()) as u64;
        let end = first.checked_add(count).filter(|end| first >= 2 && *end <= self.page_count());
        end.map(|_| ()).ok_or(Fault { page: first, what: "it lies beyond the end of the file" })
    }

    /// A leaf node's value, from the leaf or from overflow pages.
    pub(crate) fn value(&self, node: &LeafNode<'_>) -> Result<Vec<u8>, Fault> {
        match node.overflow_page() {
            Some(page) => self.read(page, PAGE_HEAD_SIZE, node.size),
            None => Ok(node.data.to_vec()),
        }
    }

    /// The head of one of our trees, from the main tree of a version.
    pub(crate) fn tree(&self, meta: &Meta, name: &[u8]) -> Result<TreeHead, Fault> {
        let missing = Fault { page: meta.main.root, what: "it lacks a tree that every database has" };
        let node = self.lookup(&meta.main, name)?.ok_or_else(|| missing.clone())?;
        TreeHead::parse(&node).ok_or(missing)
    }

    /// The value of a key, found as the engine would find it.
    pub(crate) fn lookup(&self, tree: &TreeHead, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        if tree.is_empty() {
            return Ok(None);
        }
        let mut page = self.page(tree.root)?;
        for _ in 0..DEPTH_MAX {
            if !page.is_branch() {
                break;
            }
            let mut child = page.child(0)?;
            for index in 1..page.count() {
                if page.key(index)? > key {
                    break;
                }
                child = page.child(index)?;
            }
            page = self.page(child)?;
        }
        for index in 0..page.count() {
            if !page.is_branch() && page.key(index)? == key {
                return self.value(&page.leaf_node(index)?).map(Some);
            }
        }
        Ok(None)
    }

    /// Check all pages of a tree, so that the engine may read it. The budget is the number of pages
    /// in the file.
    pub(crate) fn probe(&self, number: u64, depth: u16, budget: &mut u64) -> Result<(), Fault> {
        let too_many = Fault { page: number, what: "its tree has more pages than the file" };
        *budget = budget.checked_sub(1).ok_or(too_many)?;
        let page = self.page(number)?;
        if page.is_branch() != (depth > 1) || depth == 0 || depth > DEPTH_MAX || page.count() == 0 {
            return Err(Fault { page: number, what: "its tree is not as deep as it says" });
        }
        for index in 0..page.count() {
            if page.is_branch() {
                self.probe(page.child(index)?, depth - 1, budget)?;
                continue;
            }
            let node = page.leaf_node(index)?;
            if let Some(first) = node.overflow_page() {
                // Check that it is inside the file with its whole size. Its first page is not read:
                // a catalog may have thousands of such values, of the history of changes, and LMDB
                // reads their first pages only to free them.
                self.check_extent(first, node.size)?;
            }
        }
        Ok(())
    }

    /// The number of pages of a version, by its meta page. Fails if it is impossible: pages beyond
    /// the end of the file must be free; they were freed before they were ever written.
    pub(crate) fn count_of(&self, meta: &Meta) -> Result<u64, Fault> {
        let count = meta.last_page.saturating_add(1);
        let beyond = count.saturating_sub(self.page_count());
        if beyond > 0 && (self.free_pages(meta)?.len() as u64) < beyond {
            return Err(Fault {
                page: meta.number,
                what: "it says that there are more pages than the file has",
            });
        }
        Ok(count)
    }

    /// The pages that the free tree of a version lists, sorted.
    pub(crate) fn free_pages(&self, meta: &Meta) -> Result<Vec<u64>, Fault> {
        let mut free = Vec::new();
        if !meta.free.is_empty() {
            let mut budget = self.page_count();
            self.collect_free(meta.free.root, meta.free.depth, &mut budget, &mut free)?;
        }
        free.sort_unstable();
        Ok(free)
    }

    fn collect_free(
        &self,
        number: u64,
        depth: u16,
        budget: &mut u64,
        free: &mut Vec<u64>,
    ) -> Result<(), Fault> {
        let fault = |what| Fault { page: number, what };
        if depth == 0 || depth > DEPTH_MAX {
            return Err(fault("its tree is deeper than it says"));
        }
        *budget = budget.checked_sub(1).ok_or_else(|| fault("its tree has more pages than the file"))?;
        let page = self.page(number)?;
        for index in 0..page.count() {
            if page.is_branch() {
                self.collect_free(page.child(index)?, depth - 1, budget, free)?;
            } else {
                free.extend(
                    free_list(&self.value(&page.leaf_node(index)?)?)
                        .ok_or_else(|| fault("its list of free pages is malformed"))?,
                );
            }
        }
        Ok(())
    }
}

/// The page numbers of one entry of the free tree: a count, then that many numbers, descending.
pub(crate) fn free_list(value: &[u8]) -> Option<Vec<u64>> {
    let count = usize::try_from(read_u64(value, 0)?).ok()?;
    let numbers: Vec<u64> =
        value.get(8..)?.chunks_exact(8).take(count).filter_map(|bytes| read_u64(bytes, 0)).collect();
    let is_descending = numbers.windows(2).all(|pair| matches!(pair, [high, low] if high > low));
    (numbers.len() == count && is_descending).then_some(numbers)
}

impl Page {
    pub(crate) fn is_branch(&self) -> bool {
        self.flags == PAGE_BRANCH
    }

    pub(crate) fn count(&self) -> usize {
        self.offsets.len()
    }

    /// Bytes of its entries and their offsets. No page is longer than 32,768 bytes.
    pub(crate) fn used(&self) -> u16 {
        (self.bytes.len() - self.upper + 2 * self.count()) as u16
    }

    fn fault(&self, what: &'static str) -> Fault {
        Fault { page: self.number, what }
    }

    /// Check that nodes fill the page from `upper` to its end without gaps or overlaps, and that
    /// any two of them fit into a page: LMDB stores longer values on overflow pages.
    fn check_nodes(&self) -> Result<(), Fault> {
        let size_max = (self.bytes.len() - PAGE_HEAD_SIZE) / 2 - 2;
        let mut extents = Vec::with_capacity(self.count());
        for index in 0..self.count() {
            let (start, end) = self.extent(index)?;
            if end - start > size_max {
                return Err(self.fault("a node is larger than nodes are"));
            }
            extents.push((start, end));
        }
        extents.sort_unstable();
        let mut next = self.upper;
        for (start, end) in extents {
            if start != next {
                return Err(self.fault("its nodes overlap, or leave a gap"));
            }
            next = end;
        }
        if next != self.bytes.len() {
            return Err(self.fault("its nodes do not end where it does"));
        }
        Ok(())
    }

    /// Where a node begins and ends, padding included.
    pub(crate) fn extent(&self, index: usize) -> Result<(usize, usize), Fault> {
        let outside = || self.fault("a node lies outside of it");
        let start = usize::from(*self.offsets.get(index).ok_or_else(outside)?);
        if start < self.upper {
            return Err(outside());
        }
        let size = self.node_size(start).ok_or_else(outside)?;
        let end = start + size + size % 2;
        if end > self.bytes.len() {
            return Err(outside());
        }
        Ok((start, end))
    }

    /// A node's size without padding.
    pub(crate) fn node_size(&self, start: usize) -> Option<usize> {
        let key_size = usize::from(read_u16(&self.bytes, start + 6)?);
        if self.is_branch() {
            return Some(NODE_HEAD_SIZE + key_size);
        }
        let size = read_u32(&self.bytes, start)? as usize;
        let flags = read_u16(&self.bytes, start + 4)?;
        let data_size = match flags {
            0 => size,
            NODE_BIG => 8,
            NODE_TREE if size == TREE_SIZE => size,
            _ => return None,
        };
        Some(NODE_HEAD_SIZE + key_size + data_size)
    }

    pub(crate) fn key(&self, index: usize) -> Result<&[u8], Fault> {
        let (start, _) = self.extent(index)?;
        let key_size = usize::from(read_u16(&self.bytes, start + 6).unwrap_or(0));
        self.bytes
            .get(start + NODE_HEAD_SIZE..start + NODE_HEAD_SIZE + key_size)
            .ok_or_else(|| self.fault("a key lies outside of it"))
    }

    /// The page that a branch node leads to: 48 bits.
    pub(crate) fn child(&self, index: usize) -> Result<u64, Fault> {
        let (start, _) = self.extent(index)?;
        let outside = || self.fault("a node lies outside of it");
        let low = read_u32(&self.bytes, start).ok_or_else(outside)?;
        let high = read_u16(&self.bytes, start + 4).ok_or_else(outside)?;
        Ok(u64::from(low) | u64::from(high) << 32)
    }

    pub(crate) fn leaf_node(&self, index: usize) -> Result<LeafNode<'_>, Fault> {
        let (start, end) = self.extent(index)?;
        let outside = || self.fault("a node lies outside of it");
        let node = self.bytes.get(start..end).ok_or_else(outside)?;
        let size = read_u32(node, 0).ok_or_else(outside)? as usize;
        let flags = read_u16(node, 4).ok_or_else(outside)?;
        let key_size = usize::from(read_u16(node, 6).ok_or_else(outside)?);
        let (key, data) = node
            .get(NODE_HEAD_SIZE..)
            .and_then(|rest| rest.split_at_checked(key_size))
            .ok_or_else(outside)?;
        let data_size = if flags & NODE_BIG == 0 { size } else { 8 };
        Ok(LeafNode { key, flags, size, data: data.get(..data_size).ok_or_else(outside)? })
    }
}
