//! The cursor of readers: walks over the pages of one version, in the map, and checks each page.
//!
//! A walk goes from the root down to a leaf, and from there to the next leaf
//! (`engine/lmdb/page.rs`). It checks each page once, when it comes to it: its number, its kind,
//! where its entries are, and that its keys follow those of the leaf before. So a damaged page is
//! an error that names it. LMDB's own cursor takes some damaged pages for the end of the tree, and
//! reads beyond the map in others.
//!
//! Not for write transactions, whose changed pages are outside the map: they have LMDB's cursor
//! (`engine/lmdb/cursor.rs`).

use std::ops::Range;

use crate::engine::lmdb::format::{DEPTH_MAX, Fault, TreeHead};
use crate::engine::lmdb::page::{Leaf, PAGE_BRANCH, Pages};
use crate::engine::lmdb::search::Nodes;
use crate::engine::{Batch, Cursor, Direction, EngineError, Entry, EntryResult, Result, Start};
use crate::sys::os::prefetch;

/// A branch page on the way to a leaf, and which of its children the way leads to.
struct BranchStep<'t> {
    nodes: Nodes<'t>,
    number: u64,
    child: usize,
}

/// A place in one tree of one version.
pub(crate) struct PageCursor<'t> {
    pages: Pages<'t>,
    tree: &'t TreeHead,
    direction: Direction,
    /// The branches above the leaf, the root first.
    way: Vec<BranchStep<'t>>,
    leaf: Option<Leaf<'t>>,
    /// The leaf's entries that the walk has not given yet.
    rest: Range<usize>,
    /// The walk's last entry.
    last_key: Option<&'t [u8]>,
    /// What ended the walk.
    fault: Option<Fault>,
}

impl From<Fault> for EngineError {
    fn from(fault: Fault) -> Self {
        Self::BadPage { page: fault.page, what: fault.what }
    }
}

/// The value of a key, where a search was unsure.
pub(crate) fn get<'t>(pages: Pages<'t>, tree: &'t TreeHead, key: &[u8]) -> Result<Option<&'t [u8]>> {
    let found = first_from(pages, tree, Start::At(key), Direction::Forward)?;
    Ok(found.filter(|(own, _)| *own == key).map(|(_, value)| value))
}

/// The first entry of a walk, where a search was unsure.
pub(crate) fn first_from<'t>(
    pages: Pages<'t>,
    tree: &'t TreeHead,
    start: Start<'_>,
    direction: Direction,
) -> EntryResult<'t> {
    let mut cursor = PageCursor::new(pages, tree);
    cursor.start(start, direction)?;
    cursor.step()
}

impl<'t> PageCursor<'t> {
    pub(crate) fn new(pages: Pages<'t>, tree: &'t TreeHead) -> Self {
        let direction = Direction::Forward;
        Self { pages, tree, direction, way: Vec::new(), leaf: None, rest: 0..0, last_key: None, fault: None }
    }

    /// Go down from a page to a leaf: to where a key lies, or else along the edge where the walk
    /// begins.
    fn descend(&mut self, mut number: u64, key: Option<&[u8]>) -> Result<(), Fault> {
        let depth = self.tree.depth;
        if depth == 0 || depth > DEPTH_MAX {
            return Err(Fault { page: number, what: "its tree is deeper than any" });
        }
        while self.way.len() + 1 < usize::from(depth) {
            let fault = |what| Fault { page: number, what };
            let page = self.pages.page(number).ok_or_else(|| fault("no tree can have this page"))?;
            let nodes = Nodes::of(page, number, PAGE_BRANCH)
                .ok_or_else(|| fault("it is not the branch page that it should be"))?;
            let outside = || fault("an entry of it does not lie in it");
            let child = match (key, self.direction) {
                // A branch's first key is never looked at: all below the second one lies there.
                (Some(key), _) => first_where(1..nodes.count(), |index| Some(nodes.key(index)? > key))
                    .and_then(|behind| behind.checked_sub(1))
                    .ok_or_else(outside)?,
                (None, Direction::Forward) => 0,
                (None, Direction::Reverse) => nodes.count() - 1,
            };
            let below = nodes.child(child).ok_or_else(outside)?;
            self.way.push(BranchStep { nodes, number, child });
            number = below;
        }
        let fault = |what| Fault { page: number, what };
        let leaf = self.pages.leaf(number).filter(|leaf| leaf.count() > 0);
        let leaf = leaf.ok_or_else(|| fault("it is not the leaf page that it should be"))?;
        self.rest = match key {
            None => 0..leaf.count(),
            Some(key) => {
                let index = first_where(0..leaf.count(), |index| Some(leaf.entry(index)?.0 >= key));
                let index = index.ok_or_else(|| fault("an entry of it does not lie in it"))?;
                match self.direction {
                    Direction::Forward => index..leaf.count(),
                    Direction::Reverse => 0..index,
                }
            }
        };
        self.leaf = Some(leaf);
        Ok(())
    }

    /// Go to the next leaf, if there is one.
    fn next_leaf(&mut self) -> Result<bool, Fault> {
        while let Some(BranchStep { nodes, number, child }) = self.way.pop() {
            let next = match self.direction {
                Direction::Forward => Some(child + 1).filter(|next| *next < nodes.count()),
                Direction::Reverse => child.checked_sub(1),
            };
            if let Some(child) = next {
                let below = nodes.child(child);
                self.way.push(BranchStep { nodes, number, child });
                let below = below.ok_or(Fault { page: number, what: "an entry of it does not lie in it" })?;
                self.descend(below, None)?;
                return self.check_order().map(|()| true);
            }
        }
        self.leaf = None;
        Ok(false)
    }

    /// The keys of a leaf follow those of the leaf before.
    fn check_order(&self) -> Result<(), Fault> {
        let (Some(last), Some(leaf)) = (self.last_key, self.leaf) else { return Ok(()) };
        let follows = self.peek().is_some_and(|(key, _)| match self.direction {
            Direction::Forward => key > last,
            Direction::Reverse => key < last,
        });
        if follows { Ok(()) } else { Err(out_of_order(leaf)) }
    }

    fn peek(&self) -> Option<Entry<'t>> {
        let index = match self.direction {
            Direction::Forward => self.rest.start,
            Direction::Reverse => self.rest.end.checked_sub(1)?,
        };
        self.leaf?.entry(index)
    }

    fn begin(&mut self, start: Start<'_>) -> Result<(), Fault> {
        if self.tree.is_empty() {
            return Ok(());
        }
        let Start::At(at) = start else { return self.descend(self.tree.root, None) };
        self.descend(self.tree.root, Some(at))?;
        if self.rest.is_empty() && !self.next_leaf()? {
            return Ok(());
        }
        let Some(leaf) = self.leaf else { return Ok(()) };
        let is_behind = self.peek().is_some_and(|(key, _)| match self.direction {
            Direction::Forward => key >= at,
            Direction::Reverse => key < at,
        });
        if is_behind { Ok(()) } else { Err(out_of_order(leaf)) }
    }

    /// Have a leaf that has entries to give, unless the walk is over.
    fn leaf(&mut self) -> Result<Option<Leaf<'t>>> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone().into());
        }
        if self.rest.is_empty() && self.leaf.is_some() {
            self.next_leaf().map_err(|fault| self.fail(fault))?;
        }
        Ok(self.leaf)
    }

    /// The leaf that comes next, below the same branch. The heads of those after it are prefetched,
    /// so that the head of this one has come.
    ///
    /// Several heads are prefetched at once: where leaves are scattered in a large file, most of
    /// the time is for the address of a page that is touched for the first time. A processor finds
    /// the addresses of several pages together, but not while it does anything else. One head for
    /// each leaf took three quarters of the time of a sum.
    fn next_below(&self) -> Option<&'t [u8]> {
        const TOGETHER: usize = 8;
        let BranchStep { nodes, child, .. } = self.way.last()?;
        let page = |distance: usize| {
            let child = match self.direction {
                Direction::Forward => child.checked_add(distance),
                Direction::Reverse => child.checked_sub(distance),
            };
            self.pages.page(nodes.child(child?)?)
        };
        let edge = match self.direction {
            Direction::Forward => 0,
            Direction::Reverse => nodes.count() - 1,
        };
        let asked = match *child {
            child if child == edge => 1..2 * TOGETHER,
            child if child % TOGETHER == 0 => TOGETHER..2 * TOGETHER,
            _ => 0..0,
        };
        for page in asked.map_while(page) {
            prefetch(page.as_ptr());
        }
        page(1)
    }

    fn fail(&mut self, fault: Fault) -> EngineError {
        self.fault = Some(fault.clone());
        fault.into()
    }
}

fn out_of_order(leaf: Leaf<'_>) -> Fault {
    Fault { page: leaf.number() as u64, what: "its keys do not follow those before it" }
}

/// The first index of a range for which `holds` is true, or else the range's end. It must be true
/// for all indexes after that too. `None` if `holds` does not know.
fn first_where(range: Range<usize>, holds: impl Fn(usize) -> Option<bool>) -> Option<usize> {
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = low.midpoint(high);
        if holds(middle)? { high = middle } else { low = middle + 1 }
    }
    Some(low)
}

impl<'t> Cursor<'t> for PageCursor<'t> {
    fn start(&mut self, start: Start<'_>, direction: Direction) -> Result<()> {
        self.direction = direction;
        self.way.clear();
        (self.leaf, self.rest, self.last_key, self.fault) = (None, 0..0, None, None);
        self.begin(start).map_err(|fault| self.fail(fault))
    }

    fn step(&mut self) -> EntryResult<'t> {
        let Some(leaf) = self.leaf()? else { return Ok(None) };
        let Some(entry) = self.peek() else { return Err(self.fail(outside(leaf))) };
        match self.direction {
            Direction::Forward => self.rest.start += 1,
            Direction::Reverse => self.rest.end -= 1,
        }
        self.last_key = Some(entry.0);
        Ok(Some(entry))
    }

    fn fill(&mut self, batch: &mut Batch<'t>) -> Result<()> {
        batch.entries.clear();
        let Some(leaf) = self.leaf()? else { return Ok(()) };
        let rest = std::mem::replace(&mut self.rest, 0..0);
        let count = rest.len();
        leaf.push_entries(rest, self.direction, self.next_below(), &mut batch.entries);
        self.last_key = batch.entries.last().map(|entry| entry.0);
        if batch.entries.len() < count {
            // Those ahead of it are given first.
            let error = self.fail(outside(leaf));
            return if batch.entries.is_empty() { Err(error) } else { Ok(()) };
        }
        Ok(())
    }
}

fn outside(leaf: Leaf<'_>) -> Fault {
    Fault { page: leaf.number() as u64, what: "an entry of it does not lie in it" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::lmdb::page::{PAGE_LEAF, read_u16};
    use crate::engine::lmdb::search::tests::{PAGE_SIZE, entries, file_of};

    type Entries = Vec<(Vec<u8>, Vec<u8>)>;

    /// All entries that a walk gives, by leaf or one by one, and what ended it.
    fn walked(bytes: &[u8], tree: &TreeHead, direction: Direction, by_leaf: bool) -> (Entries, Option<u64>) {
        let mut cursor = PageCursor::new(Pages::of_bytes(bytes, PAGE_SIZE), tree);
        let mut found = Entries::new();
        let mut take = |(key, value): Entry<'_>| found.push((key.to_vec(), value.to_vec()));
        let mut work = || {
            cursor.start(Start::Edge, direction)?;
            let mut batch = Batch::default();
            loop {
                if by_leaf {
                    cursor.fill(&mut batch)?;
                    batch.entries.iter().copied().for_each(&mut take);
                    if batch.entries.is_empty() {
                        return Ok(());
                    }
                } else {
                    match cursor.step()? {
                        Some(entry) => take(entry),
                        None => return Ok(()),
                    }
                }
            }
        };
        let fault = match work() {
            Ok(()) => None,
            Err(EngineError::BadPage { page, .. }) => {
                assert!(
                    matches!(cursor.step(), Err(EngineError::BadPage { .. })),
                    "it does not go on after that"
                );
                Some(page)
            }
            Err(error) => panic!("{error}"),
        };
        (found, fault)
    }

    #[test]
    fn a_walk_gives_all_entries_both_ways() {
        let entries = entries();
        let (bytes, tree) = file_of(&entries);
        let mut all: Entries = entries.into_iter().collect();
        for direction in [Direction::Forward, Direction::Reverse] {
            for by_leaf in [true, false] {
                assert!(walked(&bytes, &tree, direction, by_leaf) == (all.clone(), None));
            }
            all.reverse();
        }
    }

    #[test]
    fn a_walk_never_ends_silently_at_a_page_that_is_none_of_its_tree() {
        let entries = entries();
        let (sound, tree) = file_of(&entries);
        let kind = |page: &usize| read_u16(&sound, page * PAGE_SIZE + 10);
        let pages: Vec<usize> = (2..sound.len() / PAGE_SIZE).collect();
        let leaves = pages.iter().filter(|page| kind(page) == Some(PAGE_LEAF)).count();
        let mut noticed = 0;
        for page in pages {
            for byte in [0, 0x55, 0xFF] {
                let mut bytes = sound.clone();
                bytes[page * PAGE_SIZE..(page + 1) * PAGE_SIZE].fill(byte);
                for direction in [Direction::Forward, Direction::Reverse] {
                    let (found, fault) = walked(&bytes, &tree, direction, byte == 0x55);
                    let is_all = found.len() == entries.len();
                    assert_eq!(fault, (!is_all).then_some(page as u64), "{} of all entries", found.len());
                    noticed += usize::from(fault.is_some());
                }
            }
        }
        assert!(noticed >= leaves * 6);
    }

    #[test]
    fn a_walk_gives_no_page_twice_and_no_entry_out_of_order() {
        let entries = entries();
        let (sound, tree) = file_of(&entries);
        // Two leaves that change places, each with the other's number.
        let is_leaf = |page: &usize| read_u16(&sound, page * PAGE_SIZE + 10) == Some(PAGE_LEAF);
        let leaves: Vec<usize> = (2..sound.len() / PAGE_SIZE).filter(is_leaf).collect();
        let (one, other) = (leaves[3] * PAGE_SIZE, leaves[leaves.len() / 2] * PAGE_SIZE);
        let mut bytes = sound.clone();
        bytes[one + 8..one + PAGE_SIZE].copy_from_slice(&sound[other + 8..other + PAGE_SIZE]);
        bytes[other + 8..other + PAGE_SIZE].copy_from_slice(&sound[one + 8..one + PAGE_SIZE]);
        for direction in [Direction::Forward, Direction::Reverse] {
            let (found, fault) = walked(&bytes, &tree, direction, true);
            assert!(fault.is_some());
            let keys: Vec<&[u8]> = found.iter().map(|(key, _)| &key[..]).collect();
            match direction {
                Direction::Forward => assert!(keys.is_sorted()),
                Direction::Reverse => assert!(keys.iter().rev().is_sorted()),
            }
            assert!(keys.iter().all(|key| entries.contains_key(*key)));
        }
    }
}
