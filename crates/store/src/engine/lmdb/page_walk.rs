//! Walks over all pages of a file: each must belong to exactly one thing and have the right
//! content.
//!
//! The walk goes from a meta page down: the tree of free pages, the main tree, and the three trees
//! named in it. Every page up to the last must be reached once, as a branch, a leaf, part of a
//! large value, or free. Keys ascend and lie between the keys of the branches above. Counts are
//! those that LMDB keeps. The entries of the leaves are passed to a visitor.

use crate::engine::Tree;
use crate::engine::lmdb::format::{
    DEPTH_MAX, Fault, LeafNode, META_SIZE, Meta, Page, PageFile, STAMP, TreeHead, free_list,
};
use crate::engine::lmdb::is_map_size;
use crate::engine::lmdb::page::{PAGE_HEAD_SIZE, read_u64};

const KEY_SIZE_MAX: usize = 511;

/// What a page is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Not reached yet.
    Nothing,
    Free,
    /// A branch or leaf of any tree but that of free pages.
    Node,
    FreeTreeNode,
    /// The first page of a large value of this size.
    LargeHead(u32),
    /// Another page of a large value.
    Large,
}

/// Receives what the walk finds.
pub(crate) trait Visitor {
    /// Whether to stop. Called for each entry and page.
    fn is_stopped(&mut self) -> bool;
    /// A fault of a page.
    fn fault(&mut self, fault: Fault);
    /// An entry of one of our trees. `value` reads its value.
    fn entry(&mut self, tree: Tree, key: &[u8], value: &Value<'_, '_>);
}

/// A value that can be read in parts.
pub(crate) struct Value<'w, 'f> {
    pages: &'w PageFile<'f>,
    node: &'w LeafNode<'w>,
}

impl Value<'_, '_> {
    pub(crate) fn size(&self) -> usize {
        self.node.size
    }

    /// Some bytes of the value.
    pub(crate) fn read(&self, offset: usize, size: usize) -> Result<Vec<u8>, Fault> {
        match self.node.overflow_page() {
            Some(page) => self.pages.read(page, PAGE_HEAD_SIZE + offset, size),
            None => Ok(self.node.data.get(offset..offset + size).unwrap_or_default().to_vec()),
        }
    }
}

/// What a walk has found each page to be used for.
pub(crate) struct PageMap {
    uses: Vec<Use>,
    meta: Meta,
}

/// Walk over all pages of a version.
pub(crate) fn walk(pages: &PageFile<'_>, meta: &Meta, visitor: &mut dyn Visitor) -> PageMap {
    // No forged number allocates memory.
    let count = match pages.count_of(meta) {
        Ok(count) => count,
        Err(fault) => {
            visitor.fault(fault);
            pages.page_count()
        }
    };
    let count = usize::try_from(count).unwrap_or(0);
    let mut walk = Walk {
        pages,
        visitor,
        uses: vec![Use::Nothing; count],
        counted: Counted::default(),
        free: Vec::new(),
    };
    walk.check_heads(meta);
    walk.tree(&meta.free, Kind::Free);
    walk.tree(&meta.main, Kind::Main);
    walk.claim_free();
    walk.report_unreached();
    PageMap { uses: walk.uses, meta: *meta }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Free,
    Main,
    Ours(Tree),
}

/// The counts that LMDB keeps for each tree.
#[derive(Clone, Copy, Default)]
struct Counted {
    branch_pages: u64,
    leaf_pages: u64,
    overflow_pages: u64,
    entries: u64,
}

struct Walk<'w, 'f> {
    pages: &'w PageFile<'f>,
    visitor: &'w mut dyn Visitor,
    uses: Vec<Use>,
    counted: Counted,
    /// Page numbers from the tree of free pages.
    free: Vec<u64>,
}

/// The bounds of a page's keys: from the first, below the second.
#[derive(Clone, Copy)]
pub(crate) struct Between<'k>(pub(crate) Option<&'k [u8]>, pub(crate) Option<&'k [u8]>);

impl<'k> Between<'k> {
    /// The bounds of a branch's child.
    pub(crate) fn of_child<'p>(self, page: &'p Page, index: usize) -> Result<Between<'p>, Fault>
    where
        'k: 'p,
    {
        // A branch's first key is never compared: the first child has everything below the second
        // key.
        let low = if index == 0 { self.0 } else { Some(page.key(index)?) };
        let high = if index + 1 < page.count() { Some(page.key(index + 1)?) } else { self.1 };
        Ok(Between(low, high))
    }
}

impl Walk<'_, '_> {
    fn fault(&mut self, page: u64, what: &'static str) {
        self.visitor.fault(Fault { page, what });
    }

    fn check_heads(&mut self, meta: &Meta) {
        if meta.address != 0 || !is_map_size(meta.map_size) {
            self.fault(meta.number, "its map is none that this library makes");
        }
        if let Err(fault) = meta.check_kinds() {
            self.visitor.fault(fault);
        }
        if meta.txn & 1 != meta.number {
            self.fault(meta.number, "its version belongs into the other meta page");
        }
    }

    /// Note what a page is used for. An error if it is in use already or does not exist.
    fn claim(&mut self, page: u64, what: Use) -> Result<(), Fault> {
        let place =
            usize::try_from(page).ok().filter(|_| page >= 2).and_then(|index| self.uses.get_mut(index));
        match place {
            Some(place) if *place == Use::Nothing => {
                *place = what;
                Ok(())
            }
            Some(_) => Err(Fault { page, what: "two things claim it" }),
            None => Err(Fault { page, what: "it is referred to, but lies beyond the last page" }),
        }
    }

    fn tree(&mut self, head: &TreeHead, kind: Kind) {
        let outer = std::mem::take(&mut self.counted);
        if head.is_empty() {
            if head.depth != 0 {
                self.fault(0, "a tree without a root has a depth");
            }
        } else if head.depth > DEPTH_MAX {
            // Do not overflow the stack because of an untrusted file.
            self.fault(head.root, "its tree is deeper than any tree can be");
        } else if let Err(fault) = self.page(head.root, head.depth, Between(None, None), kind) {
            self.visitor.fault(fault);
        }
        let counted = std::mem::replace(&mut self.counted, outer);
        let is_right = counted.branch_pages == head.branch_pages
            && counted.leaf_pages == head.leaf_pages
            && counted.overflow_pages == head.overflow_pages
            && counted.entries == head.entries;
        if !is_right {
            let what = match kind {
                Kind::Free => "the tree of free pages has other counts than its head says",
                Kind::Main => "the main tree has other counts than its head says",
                Kind::Ours(Tree::Meta) => "the tree 'meta' has other counts than its head says",
                Kind::Ours(Tree::Rows) => "the tree 'rows' has other counts than its head says",
                Kind::Ours(Tree::Blobs) => "the tree 'blobs' has other counts than its head says",
            };
            self.fault(head.root, what);
        }
    }

    /// Walk over a page and all below it. An error means that nothing below it could be read.
    fn page(&mut self, number: u64, depth: u16, between: Between<'_>, kind: Kind) -> Result<(), Fault> {
        let what = if kind == Kind::Free { Use::FreeTreeNode } else { Use::Node };
        self.claim(number, what)?;
        let page = self.pages.page_of_tree(number, depth, kind == Kind::Free)?;
        if let Err(fault) = check_order(&page, between, kind == Kind::Free) {
            self.visitor.fault(fault);
        }
        if page.is_branch() {
            self.counted.branch_pages += 1;
            self.children(&page, depth, between, kind)
        } else {
            self.counted.leaf_pages += 1;
            self.leaf(&page, kind)
        }
    }

    fn children(&mut self, page: &Page, depth: u16, between: Between<'_>, kind: Kind) -> Result<(), Fault> {
        for index in 0..page.count() {
            if self.visitor.is_stopped() {
                break;
            }
            let between = between.of_child(page, index)?;
            if let Err(fault) = self.page(page.child(index)?, depth - 1, between, kind) {
                self.visitor.fault(fault);
            }
        }
        Ok(())
    }

    fn leaf(&mut self, page: &Page, kind: Kind) -> Result<(), Fault> {
        for index in 0..page.count() {
            if self.visitor.is_stopped() {
                break;
            }
            let node = page.leaf_node(index)?;
            self.counted.entries += 1;
            if let Some(first) = node.overflow_page() {
                match self.large(first, node.size) {
                    Ok(()) => {}
                    Err(fault) => {
                        self.visitor.fault(fault);
                        continue;
                    }
                }
            }
            if let Err(fault) = self.node(page, &node, kind) {
                self.visitor.fault(fault);
            }
        }
        Ok(())
    }

    fn large(&mut self, first: u64, size: usize) -> Result<(), Fault> {
        let count = self.pages.overflow(first, size)?;
        self.claim(first, Use::LargeHead(size as u32))?;
        for page in first + 1..first + count {
            self.claim(page, Use::Large)?;
        }
        self.counted.overflow_pages += count;
        Ok(())
    }

    fn node(&mut self, page: &Page, node: &LeafNode<'_>, kind: Kind) -> Result<(), Fault> {
        let fault = |what| Fault { page: page.number, what };
        match kind {
            Kind::Free => {
                let list = free_list(&self.pages.value(node)?);
                self.free.extend(list.ok_or_else(|| fault("its list of free pages is malformed"))?);
            }
            Kind::Main => {
                let tree = Tree::ALL.into_iter().find(|tree| tree.name().as_bytes() == node.key);
                let (Some(tree), true) = (tree, node.is_tree()) else {
                    return Err(fault("it names a tree that this library does not have"));
                };
                let head = TreeHead::parse(node.data).ok_or_else(|| fault("a tree's head is cut off"))?;
                if !head.is_plain() {
                    return Err(fault("a tree is of a kind that this library does not make"));
                }
                self.tree(&head, Kind::Ours(tree));
            }
            Kind::Ours(_) if node.is_tree() => return Err(fault("a value says that it is a tree")),
            Kind::Ours(tree) => {
                let value = Value { pages: self.pages, node };
                self.visitor.entry(tree, node.key, &value);
            }
        }
        Ok(())
    }

    fn claim_free(&mut self) {
        for page in std::mem::take(&mut self.free) {
            if let Err(fault) = self.claim(page, Use::Free) {
                self.visitor.fault(fault);
            }
        }
    }

    fn report_unreached(&mut self) {
        const REPORTS_MAX: usize = 16;
        let is_lost = |place: &(usize, &Use)| place.0 >= 2 && *place.1 == Use::Nothing;
        let lost: Vec<u64> = self
            .uses
            .iter()
            .enumerate()
            .filter(is_lost)
            .map(|(page, _)| page as u64)
            .take(REPORTS_MAX)
            .collect();
        for page in lost {
            self.fault(page, "it is neither used nor free");
        }
    }
}

/// Check that the keys of a page ascend and lie between those of the branches above it.
pub(crate) fn check_order(page: &Page, between: Between<'_>, is_free: bool) -> Result<(), Fault> {
    let fault = |what| Fault { page: page.number, what };
    let below = |one: &[u8], other: &[u8]| {
        // The tree of free pages has version numbers as keys, in the machine's byte order.
        if is_free { read_u64(one, 0) < read_u64(other, 0) } else { one < other }
    };
    let mut before = between.0;
    let mut may_equal = true;
    // A branch's first key is never compared: the first child has everything below the second key.
    let first = usize::from(page.is_branch());
    for index in first..page.count() {
        let key = page.key(index)?;
        if key.is_empty() || key.len() > KEY_SIZE_MAX || (is_free && key.len() != 8) {
            return Err(fault("a key has a size that keys do not have"));
        }
        if !before.is_none_or(|before| below(before, key) || (may_equal && before == key)) {
            return Err(fault("its keys are out of order"));
        }
        may_equal = false;
        before = Some(key);
    }
    match (before, between.1) {
        (Some(last), Some(end)) if !below(last, end) => Err(fault("its keys belong into the next page")),
        _ => Ok(()),
    }
}

impl PageMap {
    pub(crate) fn page_size(&self) -> u32 {
        self.meta.page_size
    }

    /// Why a byte of the file has no meaning, if so.
    pub(crate) fn unused(&self, pages: &PageFile<'_>, offset: u64) -> Option<&'static str> {
        let page_size = pages.page_size() as u64;
        let (number, inside) = (offset / page_size, (offset % page_size) as usize);
        if number < 2 {
            return self.unused_in_meta(number, inside);
        }
        let Some(what) = self.uses.get(usize::try_from(number).ok()?) else {
            return Some("after the last page");
        };
        match what {
            Use::Nothing => None,
            Use::Free => Some("a free page"),
            Use::LargeHead(size) => unused_in_large(inside, *size as usize),
            Use::Large => {
                let head = (0..number).rev().find_map(|page| match self.uses.get(page as usize) {
                    Some(Use::LargeHead(size)) => Some((page, *size as usize)),
                    _ => None,
                })?;
                unused_in_large(inside + ((number - head.0) * page_size) as usize, head.1)
            }
            Use::Node | Use::FreeTreeNode => {
                unused_in_page(&pages.page(number).ok()?, inside, *what == Use::FreeTreeNode)
            }
        }
    }

    fn unused_in_meta(&self, number: u64, inside: usize) -> Option<&'static str> {
        if number == 0 && STAMP.contains(&inside) {
            return None;
        }
        if inside >= META_SIZE {
            return Some("after what a meta page holds");
        }
        // Number, flags and the two magic numbers are checked; padding, `lower` and `upper` have no
        // meaning there.
        let is_checked = (0..8).contains(&inside) || (10..12).contains(&inside) || (16..24).contains(&inside);
        if (8..10).contains(&inside) || (12..16).contains(&inside) {
            return Some("padding of a meta page");
        }
        // Bytes 32 to 40. That they are whole MiB is checked, which leaves these.
        if (34..40).contains(&inside) {
            return Some("the size of a map, which each process chooses anew");
        }
        let is_old = number != self.meta.number;
        (is_old && !is_checked).then_some("the meta page of the version before")
    }
}

fn unused_in_large(inside: usize, size: usize) -> Option<&'static str> {
    (inside >= PAGE_HEAD_SIZE + size).then_some("after the end of a large value")
}

fn unused_in_page(page: &Page, inside: usize, is_free_tree: bool) -> Option<&'static str> {
    let lower = PAGE_HEAD_SIZE + 2 * page.count();
    if (lower..page.upper).contains(&inside) {
        return Some("free space of a page");
    }
    for index in 0..page.count() {
        let (start, end) = page.extent(index).ok()?;
        if !(start..end).contains(&inside) {
            continue;
        }
        let key_start = start + crate::engine::lmdb::page::NODE_HEAD_SIZE;
        let key_end = key_start + page.key(index).ok()?.len();
        let is_key = (key_start..key_end).contains(&inside);
        let node_end = start + page.node_size(start)?;
        if inside >= node_end {
            return Some("padding between nodes");
        }
        if is_key && page.is_branch() {
            // Any key that still separates the subtrees left and right of it is right; `check`
            // verifies that.
            return Some("the slack of a branch's key");
        }
        if is_key && is_free_tree {
            return Some("when a page became free, which only matters while a process reads that version");
        }
        if is_free_tree && !page.is_branch() {
            let node = page.leaf_node(index).ok()?;
            let used = free_list(node.data).map(|list| 8 + 8 * list.len())?;
            if inside >= key_end + used {
                return Some("after the end of a list of free pages");
            }
        }
    }
    None
}
