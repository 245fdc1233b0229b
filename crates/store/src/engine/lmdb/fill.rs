//! How full the leaves of a tree are, and which of them hold so little that fewer leaves would do.
//!
//! Random puts split leaves in the middle, and deletes leave them half empty: LMDB joins two leaves
//! only when one of them is nearly empty.

use crate::engine::lmdb::page::{Leaf, PAGE_BRANCH, PAGE_HEAD_SIZE, Pages};
use crate::engine::moves::{Fullness, Loose};
use crate::engine::{EngineError, Tree};
use crate::verify::pages::{DEPTH_MAX, Fault, TreeHead};

/// Leaves that are looked at together.
const STRETCH: usize = 16;
/// They are loose if less than three quarters of them is in use.
const FULL_SHARE: (usize, usize) = (3, 4);
/// How many leaves are asked to know about all.
const SAMPLES: u64 = 256;

fn fault(page: u64, what: &'static str) -> Fault {
    Fault { page, what }
}

fn leaf_at(pages: Pages<'_>, number: u64) -> Result<Leaf<'_>, Fault> {
    let leaf = pages.leaf(number).filter(|leaf| leaf.count() > 0);
    leaf.ok_or_else(|| fault(number, "it is not the leaf page that it should be"))
}

fn child_of(pages: Pages<'_>, number: u64, choose: impl FnOnce(usize) -> usize) -> Result<u64, Fault> {
    let nodes = pages.nodes(number, PAGE_BRANCH);
    let nodes = nodes.ok_or_else(|| fault(number, "it is not the branch page that it should be"))?;
    let child = nodes.child(choose(nodes.count()));
    child.ok_or_else(|| fault(number, "an entry of it does not lie in it"))
}

/// How full the pages of a tree are; small trees count as full.
pub(crate) fn fullness(pages: Pages<'_>, head: &TreeHead) -> Result<Fullness, EngineError> {
    let (leaf_pages, large_pages) = (head.leaf_pages, head.overflow_pages);
    if leaf_pages < SAMPLES || head.depth > DEPTH_MAX {
        return Ok(Fullness { leaf_pages, large_pages, unfilled: 0 });
    }
    let mut room = 0;
    for sample in 0..SAMPLES {
        // Any even spread will do, on each level another one.
        let mut chance = sample.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut number = head.root;
        for _ in 1..head.depth {
            chance = (chance ^ (chance >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            number = child_of(pages, number, |count| (chance >> 33) as usize % count.max(1))?;
        }
        room += leaf_at(pages, number)?.room() as u64;
    }
    Ok(Fullness { leaf_pages, large_pages, unfilled: (room / SAMPLES).saturating_mul(leaf_pages) })
}

/// The loose stretches of a tree, in key order.
pub(crate) fn loose(
    pages: Pages<'_>,
    (tree, head): (Tree, &TreeHead),
    most: usize,
) -> Result<Vec<Loose>, EngineError> {
    let left = head.branch_pages.saturating_add(head.leaf_pages);
    let mut search = Search { pages, tree, most, left, found: Vec::new(), stretch: Stretch::default() };
    if !head.is_empty() {
        search.below(head.root, head.depth)?;
        search.end_stretch()?;
    }
    Ok(search.found)
}

/// Some leaves side by side.
#[derive(Default)]
struct Stretch {
    first: u64,
    leaves: usize,
    entries: usize,
    used: usize,
    usable: usize,
}

struct Search<'m> {
    pages: Pages<'m>,
    tree: Tree,
    most: usize,
    /// How many pages the tree has that were not seen yet.
    left: u64,
    found: Vec<Loose>,
    stretch: Stretch,
}

impl Search<'_> {
    fn below(&mut self, number: u64, depth: u16) -> Result<(), Fault> {
        let left = self.left.checked_sub(1);
        self.left = left.ok_or_else(|| fault(number, "its tree has more pages than its head says"))?;
        match depth {
            0 => return Err(fault(number, "its tree has a depth that no tree has")),
            1 => return self.leaf(number),
            2..=DEPTH_MAX => {}
            _ => return Err(fault(number, "its tree is deeper than any")),
        }
        let nodes = self.pages.nodes(number, PAGE_BRANCH);
        let count = nodes.map_or(0, |nodes| nodes.count());
        for index in 0..count.max(1) {
            if self.found.len() >= self.most {
                break;
            }
            self.below(child_of(self.pages, number, |_| index)?, depth - 1)?;
        }
        Ok(())
    }

    fn leaf(&mut self, number: u64) -> Result<(), Fault> {
        let leaf = leaf_at(self.pages, number)?;
        for index in 0..leaf.count() {
            let large = leaf.large_page(index);
            if large.ok_or_else(|| fault(number, "an entry of it does not lie in it"))? != 0 {
                // To put a large value anew would write all of it.
                return self.end_stretch();
            }
        }
        let stretch = &mut self.stretch;
        if stretch.leaves == 0 {
            stretch.first = number;
        }
        let usable = leaf.size() - PAGE_HEAD_SIZE;
        stretch.leaves += 1;
        stretch.entries += leaf.count();
        stretch.usable += usable;
        stretch.used += usable - leaf.room();
        if stretch.leaves == STRETCH { self.end_stretch() } else { Ok(()) }
    }

    fn end_stretch(&mut self) -> Result<(), Fault> {
        let stretch = std::mem::take(&mut self.stretch);
        let (part, whole) = FULL_SHARE;
        if stretch.leaves > 1 && stretch.used * whole < stretch.usable * part {
            let leaf = leaf_at(self.pages, stretch.first)?;
            let entry = leaf.entry(0);
            let (key, _) = entry.ok_or_else(|| fault(stretch.first, "an entry of it does not lie in it"))?;
            self.found.push(Loose { tree: self.tree, first: key.to_vec(), entries: stretch.entries });
        }
        Ok(())
    }
}
