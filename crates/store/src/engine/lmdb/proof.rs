//! Verifies the pages that LMDB will read or change to write some keys.
//!
//! LMDB trusts its pages: one flipped bit in a page that it reads or changes can end the process or
//! corrupt its memory. Commits that a dead process left in the log are written into a file to which
//! anything may have happened since then. So before that, each page that LMDB will read or change
//! is read here, from the file, and each number in it is checked.
//!
//! The pages that are read: all of the tree of free pages, of the main tree and of the catalog; of
//! the rows and the large values all branch pages, the leaves where the keys belong, the last leaf
//! (LMDB tries to append there), the first page of each overflow value that is replaced or deleted,
//! and the neighbours with which LMDB fills up or merges a leaf that loses most of its entries. The
//! other leaves, which are nearly all of a large file, are not read: branch pages are about one
//! page in a hundred.
//!
//! All branch pages are read, not only those on the way to the keys, because they tell which pages
//! are in use: a page that two branches lead to, or that is also listed as free, would be reused
//! while it holds entries. For overflow values that are neither replaced nor deleted only the
//! number of pages is compared. Damage in entries that are not touched is not found here. It does
//! not disturb the replay, and `check` finds it.
//!
//! When LMDB reads a neighbour (`mdb_rebalance`): a leaf that is less than a quarter full after a
//! delete takes an entry from the leaf beside it, or is merged with it; so does a branch with one
//! child, and then LMDB looks up the first key below both. This module reads more than that, never
//! less.

use std::ops::Range;

use crate::engine::lmdb::format::{DEPTH_MAX, Fault, Meta, Page, PageFile, TreeHead, free_list};
use crate::engine::lmdb::page::PAGE_HEAD_SIZE;
use crate::engine::lmdb::page_walk::{Between, check_order};
use crate::engine::{Change, Tree};

/// LMDB rebalances a branch with one child, and so never one that keeps this many.
const CHILDREN_ENOUGH: usize = 4;

/// Verify each page that LMDB may touch to write these changes.
pub(crate) fn prove(
    pages: &PageFile<'_>,
    meta: &Meta,
    changes: &mut dyn Iterator<Item = Change<'_>>,
) -> Result<(), Fault> {
    meta.check_kinds()?;
    let page_count = pages.count_of(meta)?;
    let mut proof = Proof { pages, claimed: Claimed::new(page_count), counted: 2, free: Vec::new() };
    proof.whole(&meta.free, Kind::Free)?;
    proof.whole(&meta.main, Kind::Main)?;
    let mut changes = changes.peekable();
    for tree in Tree::ALL {
        let head = pages.tree(meta, tree.name().as_bytes())?;
        if !head.is_plain() {
            let what = "a tree is of a kind that this library does not make";
            return Err(Fault { page: meta.main.root, what });
        }
        let mut of_tree = std::iter::from_fn(|| changes.next_if(|change| change.0 == tree));
        if tree == Tree::Meta {
            proof.whole(&head, Kind::Catalog)?;
            of_tree.by_ref().for_each(drop);
        } else {
            proof.touched(&head, &mut of_tree)?;
        }
    }
    for page in std::mem::take(&mut proof.free) {
        proof.claim(page)?;
        proof.counted += 1;
    }
    if proof.counted != page_count {
        let what = "its trees and its free pages are not together as many as the file has";
        return Err(Fault { page: meta.number, what });
    }
    Ok(())
}

/// Whether the trees, by the counts in their heads, and the list of free pages together have as
/// many pages as the version.
pub(crate) fn counts_all(pages: &PageFile<'_>, meta: &Meta) -> bool {
    let of_tree = |head: &TreeHead| {
        head.branch_pages.saturating_add(head.leaf_pages).saturating_add(head.overflow_pages)
    };
    let count = || {
        let mut count = 2 + pages.free_pages(meta)?.len() as u64;
        for tree in Tree::ALL {
            count = count.saturating_add(of_tree(&pages.tree(meta, tree.name().as_bytes())?));
        }
        Ok::<u64, Fault>(count.saturating_add(of_tree(&meta.free)).saturating_add(of_tree(&meta.main)))
    };
    count().is_ok_and(|count| count == meta.last_page.saturating_add(1))
}

/// Pages that are in use or free.
struct Claimed {
    words: Vec<u64>,
    count: u64,
}

impl Claimed {
    /// For this many pages. The caller passes the count found in the file, so no forged number
    /// allocates memory.
    fn new(count: u64) -> Self {
        Self { words: vec![0; usize::try_from(count.div_ceil(64)).unwrap_or(0)], count }
    }

    fn claim(&mut self, page: u64) -> Result<(), Fault> {
        let fault = |what| Fault { page, what };
        let word = usize::try_from(page / 64).ok().and_then(|place| self.words.get_mut(place));
        let Some(word) = word.filter(|_| page >= 2 && page < self.count) else {
            return Err(fault("it is referred to, but lies beyond the last page"));
        };
        let bit = 1 << (page % 64);
        if *word & bit != 0 {
            return Err(fault("two things claim it"));
        }
        *word |= bit;
        Ok(())
    }
}

/// A tree that is verified as a whole.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Free,
    Main,
    Catalog,
}

struct Proof<'p> {
    pages: &'p PageFile<'p>,
    claimed: Claimed,
    /// Pages that are in use or free, by the heads of the trees.
    counted: u64,
    free: Vec<u64>,
}

impl Proof<'_> {
    fn claim(&mut self, page: u64) -> Result<(), Fault> {
        self.claimed.claim(page)
    }

    /// Claim the pages of an overflow value.
    fn claim_large(&mut self, first: u64, size: usize) -> Result<u64, Fault> {
        let count = self.pages.overflow(first, size)?;
        for page in first..first.saturating_add(count) {
            self.claim(page)?;
        }
        Ok(count)
    }

    /// Read a page of a tree at this depth.
    fn page(&self, number: u64, depth: u16, between: Between<'_>, is_free: bool) -> Result<Page, Fault> {
        let page = self.pages.page_of_tree(number, depth, is_free)?;
        check_order(&page, between, is_free)?;
        Ok(page)
    }

    fn check_head(head: &TreeHead) -> Result<bool, Fault> {
        if head.is_empty() != (head.depth == 0) || head.depth > DEPTH_MAX {
            return Err(Fault { page: head.root, what: "its tree has a depth that no tree has" });
        }
        Ok(!head.is_empty())
    }

    fn check_counts(head: &TreeHead, found: [u64; 3]) -> Result<(), Fault> {
        if found == [head.branch_pages, head.leaf_pages, head.overflow_pages] {
            return Ok(());
        }
        Err(Fault { page: head.root, what: "its tree has other counts of pages than its head says" })
    }

    /// Verify every page of a tree.
    fn whole(&mut self, head: &TreeHead, kind: Kind) -> Result<(), Fault> {
        let mut found = [0; 3];
        if Self::check_head(head)? {
            self.whole_page(head.root, head.depth, Between(None, None), kind, &mut found)?;
        }
        self.counted = self.counted.saturating_add(found.iter().sum());
        Self::check_counts(head, found)
    }

    fn whole_page(
        &mut self,
        number: u64,
        depth: u16,
        between: Between<'_>,
        kind: Kind,
        found: &mut [u64; 3],
    ) -> Result<(), Fault> {
        self.claim(number)?;
        let page = self.page(number, depth, between, kind == Kind::Free)?;
        let [branch_pages, leaf_pages, overflow_pages] = found;
        if !page.is_branch() {
            *leaf_pages += 1;
            for index in 0..page.count() {
                *overflow_pages += self.whole_node(&page, index, kind)?;
            }
            return Ok(());
        }
        *branch_pages += 1;
        for index in 0..page.count() {
            let between = between.of_child(&page, index)?;
            self.whole_page(page.child(index)?, depth - 1, between, kind, found)?;
        }
        Ok(())
    }

    /// How many overflow pages an entry has.
    fn whole_node(&mut self, page: &Page, index: usize, kind: Kind) -> Result<u64, Fault> {
        let fault = |what| Fault { page: page.number, what };
        let node = page.leaf_node(index)?;
        if node.is_tree() != (kind == Kind::Main) {
            return Err(fault("an entry is of a kind that its tree does not have"));
        }
        let count = match node.overflow_page() {
            Some(first) => self.claim_large(first, node.size)?,
            None => 0,
        };
        if kind == Kind::Free {
            let list = free_list(&self.pages.value(&node)?);
            self.free.extend(list.ok_or_else(|| fault("its list of free pages is malformed"))?);
        }
        Ok(count)
    }

    /// Verify the branch pages of a tree, and the leaves that the changes lead to.
    fn touched(
        &mut self,
        head: &TreeHead,
        changes: &mut dyn Iterator<Item = Change<'_>>,
    ) -> Result<(), Fault> {
        let mut shape = Shape::default();
        if Self::check_head(head)? {
            let mut changes = Changes { next: changes.next(), rest: changes };
            let is_changed = changes.next.is_some();
            self.descend(head.root, head.depth, Between(None, None), &mut shape, &mut changes)?;
            if let Some(last) = shape.leaves.len().checked_sub(1).filter(|_| is_changed) {
                self.look(&mut shape, last)?;
            }
            self.neighbours(&mut shape)?;
        }
        let branch_pages: usize = shape.branches.iter().map(Vec::len).sum();
        let pages = [branch_pages as u64, shape.leaves.len() as u64, head.overflow_pages];
        self.counted =
            self.counted.saturating_add(pages.iter().fold(0, |sum, count| count.saturating_add(sum)));
        Self::check_counts(head, pages)
    }

    fn descend(
        &mut self,
        number: u64,
        depth: u16,
        between: Between<'_>,
        shape: &mut Shape,
        changes: &mut Changes<'_, '_>,
    ) -> Result<(), Fault> {
        self.claim(number)?;
        let Some(level) = usize::from(depth).checked_sub(2) else {
            return self.leaf(number, between, shape, changes);
        };
        let page = self.page(number, depth, between, false)?;
        let first = shape.count(level);
        for index in 0..page.count() {
            let between = between.of_child(&page, index)?;
            self.descend(page.child(index)?, depth - 1, between, shape, changes)?;
        }
        if shape.branches.len() <= level {
            shape.branches.resize_with(level + 1, Vec::new);
        }
        let children = first..shape.count(level);
        if let Some(branches) = shape.branches.get_mut(level) {
            branches.push(Branch { children, is_suspect: false });
        }
        Ok(())
    }

    /// Read a leaf only if a change belongs there.
    fn leaf(
        &mut self,
        number: u64,
        between: Between<'_>,
        shape: &mut Shape,
        changes: &mut Changes<'_, '_>,
    ) -> Result<(), Fault> {
        let mut leaf = Leaf { number, ..Leaf::default() };
        if changes.is_below(between.1) {
            let page = self.leaf_page(number, between)?;
            let mut used = page.used();
            let (mut place, mut puts) = (0, 0);
            let mut before = None;
            while let Some((_, key, is_deleted)) = changes.take_below(between.1) {
                let is_again = before.replace(key) == Some(key);
                puts += usize::from(!is_deleted);
                while place < page.count() && page.key(place)? < key {
                    place += 1;
                }
                if place == page.count() || page.key(place)? != key {
                    // It is put before it is deleted, and may be the last one then.
                    leaf.loses |= is_again;
                    leaf.loses_last |= is_again && place == page.count();
                    continue;
                }
                let node = page.leaf_node(place)?;
                if let Some(first) = node.overflow_page().filter(|_| !is_again) {
                    self.claim_large(first, node.size)?;
                }
                if is_deleted {
                    let (start, end) = page.extent(place)?;
                    used = used.saturating_sub((end - start + 2) as u16);
                    leaf.loses = true;
                    leaf.loses_last |= place + 1 == page.count();
                }
            }
            // Puts may split the leaf before it loses other entries.
            leaf.is_suspect = leaf.loses && (puts > 0 || usize::from(used) < self.room() / 3);
            leaf.used = Some(used);
        }
        shape.leaves.push(leaf);
        Ok(())
    }

    fn leaf_page(&self, number: u64, between: Between<'_>) -> Result<Page, Fault> {
        let page = self.page(number, 1, between, false)?;
        for index in 0..page.count() {
            if page.leaf_node(index)?.is_tree() {
                return Err(Fault { page: number, what: "a value says that it is a tree" });
            }
        }
        Ok(page)
    }

    /// Bytes for entries in a page.
    fn room(&self) -> usize {
        self.pages.page_size() - PAGE_HEAD_SIZE
    }

    /// Read a leaf that has not been read yet.
    fn look(&self, shape: &mut Shape, place: usize) -> Result<(), Fault> {
        let Some(leaf) = shape.leaves.get_mut(place).filter(|leaf| leaf.used.is_none()) else {
            return Ok(());
        };
        let page = self.leaf_page(leaf.number, Between(None, None))?;
        leaf.used = Some(page.used());
        Ok(())
    }

    /// Read the leaves that LMDB may use to fill up leaves that lose entries.
    fn neighbours(&self, shape: &mut Shape) -> Result<(), Fault> {
        let count = shape.leaves.len();
        self.sweep(shape, &mut (0..count))?;
        self.sweep(shape, &mut (0..count).rev())?;
        for level in 0..shape.branches.len() {
            shape.suspect_branches(level);
            let is_suspect = |place: usize| {
                let branches = shape.branches.get(level);
                branches.and_then(|branches| branches.get(place)).is_some_and(|branch| branch.is_suspect)
            };
            let count = shape.branches.get(level).map_or(0, Vec::len);
            // The branches beside them too: LMDB may use the children that these can spare.
            let beside = (0..count).filter(|place| {
                is_suspect(*place) || is_suspect(place + 1) || place.checked_sub(1).is_some_and(is_suspect)
            });
            for place in beside.collect::<Vec<usize>>() {
                for leaf in shape.first_leaves(level, place) {
                    self.look(shape, leaf)?;
                }
            }
        }
        Ok(())
    }

    /// After each leaf that may be merged, read the following ones, until they have so many entries
    /// that no page merged with them can be merged again.
    fn sweep(&self, shape: &mut Shape, places: &mut dyn Iterator<Item = usize>) -> Result<(), Fault> {
        // Bytes of entries in the pages after the last leaf that loses entries. `None` if no more
        // pages are needed.
        let mut kept = None;
        let mut is_after_last = false;
        for place in places {
            let is_reached = kept.is_some();
            if is_reached || is_after_last {
                self.look(shape, place)?;
            }
            let Some(leaf) = shape.leaves.get_mut(place) else { break };
            leaf.is_suspect |= is_reached && leaf.loses;
            is_after_last = leaf.loses_last;
            kept = match kept {
                _ if leaf.is_suspect => Some(0),
                Some(bytes) => {
                    let bytes = bytes + usize::from(leaf.used.unwrap_or(0));
                    (bytes < self.room() / 2).then_some(bytes)
                }
                None => None,
            };
        }
        Ok(())
    }
}

/// Changes of one tree.
struct Changes<'c, 'k> {
    next: Option<Change<'k>>,
    rest: &'c mut dyn Iterator<Item = Change<'k>>,
}

impl<'k> Changes<'_, 'k> {
    fn is_below(&self, end: Option<&[u8]>) -> bool {
        self.next.is_some_and(|(_, key, _)| end.is_none_or(|end| key < end))
    }

    fn take_below(&mut self, end: Option<&[u8]>) -> Option<Change<'k>> {
        if self.is_below(end) { std::mem::replace(&mut self.next, self.rest.next()) } else { None }
    }
}

/// What is known of a leaf.
#[derive(Default)]
struct Leaf {
    number: u64,
    /// Bytes of the entries that it keeps, after it was read.
    used: Option<u16>,
    /// Whether entries of it are deleted, and whether the last one is.
    loses: bool,
    loses_last: bool,
    /// Whether it may be filled up or merged.
    is_suspect: bool,
}

struct Branch {
    /// Their indexes in the level below.
    children: Range<usize>,
    is_suspect: bool,
}

/// The pages of a tree, in key order.
#[derive(Default)]
struct Shape {
    leaves: Vec<Leaf>,
    /// By their distance from the leaves.
    branches: Vec<Vec<Branch>>,
}

impl Shape {
    /// The number of pages in the level below a level of branches.
    fn count(&self, level: usize) -> usize {
        match level.checked_sub(1) {
            None => self.leaves.len(),
            Some(below) => self.branches.get(below).map_or(0, Vec::len),
        }
    }

    fn is_suspect(&self, level: usize, child: usize) -> bool {
        match level.checked_sub(1) {
            None => self.leaves.get(child).is_some_and(|leaf| leaf.is_suspect),
            Some(below) => {
                let branches = self.branches.get(below);
                branches.and_then(|branches| branches.get(child)).is_some_and(|branch| branch.is_suspect)
            }
        }
    }

    /// Mark the branches of a level that may keep only a single child.
    fn suspect_branches(&mut self, level: usize) {
        let suspect: Vec<bool> = self.branches.get(level).map_or(Vec::new(), |branches| {
            let may_be = |branch: &Branch| {
                let calm = branch.children.clone().filter(|child| !self.is_suspect(level, *child)).count();
                calm < CHILDREN_ENOUGH && calm < branch.children.len()
            };
            branches.iter().map(may_be).collect()
        });
        for (branch, is_suspect) in self.branches.get_mut(level).into_iter().flatten().zip(suspect) {
            branch.is_suspect = is_suspect;
        }
    }

    /// The first leaf below each of the first and the last children of a branch.
    fn first_leaves(&self, level: usize, place: usize) -> Vec<usize> {
        let Some(branch) = self.branches.get(level).and_then(|branches| branches.get(place)) else {
            return Vec::new();
        };
        let (start, end) = (branch.children.start, branch.children.end);
        let head = start..end.min(start.saturating_add(CHILDREN_ENOUGH));
        let tail = start.max(end.saturating_sub(CHILDREN_ENOUGH))..end;
        head.chain(tail).filter_map(|child| self.first_leaf(level, child)).collect()
    }

    fn first_leaf(&self, level: usize, mut child: usize) -> Option<usize> {
        for below in (0..level).rev() {
            child = self.branches.get(below)?.get(child)?.children.start;
        }
        Some(child)
    }
}
