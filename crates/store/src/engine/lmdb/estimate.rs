//! Estimates how many entries a tree has between two keys.
//!
//! The estimate is the number of leaf pages, from the branch pages above them, times the average
//! entry count of some of these leaves. So the tree itself is the histogram: never out of date, and
//! free to maintain. A page that does not look as it should ends the search without an answer.
//! (`engine/lmdb/parts.rs` cuts walks by the same pages.)

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "rough numbers of pages and entries, none below zero"
)]

use std::ops::Range;

use crate::engine::lmdb::format::{DEPTH_MAX, TreeHead};
use crate::engine::lmdb::page::{PAGE_BRANCH, PAGE_LEAF, Pages};
use crate::engine::lmdb::parts::{Child, child};
use crate::engine::lmdb::search::Nodes;

/// How many branch pages between the edges are read, evenly spread. The others are assumed to have
/// as many entries on average. Pages of a large tree are in no cache: reading 256 of them took
/// longer than reading a thousand entries.
const PAGE_COUNT_MAX: usize = 16;

/// A search, and what it has counted.
struct Search<'k, 'm> {
    start: &'k [u8],
    end: Option<&'k [u8]>,
    pages: Pages<'m>,
    /// Entries of the leaves at the edges, and the number of these leaves. An edge leaf may also
    /// hold entries of another table, of another size.
    edge_entries: f64,
    edge_leaves: f64,
    /// The same for a leaf or two in between.
    inner_entries: f64,
    inner_leaves: f64,
}

/// Roughly how many entries there are from `start` on and below `end`.
pub(crate) fn entries_between(
    pages: Pages<'_>,
    tree: &TreeHead,
    start: &[u8],
    end: Option<&[u8]>,
) -> Option<u64> {
    if tree.is_empty() {
        return Some(0);
    }
    if tree.depth > DEPTH_MAX {
        return None;
    }
    let (edge_entries, edge_leaves, inner_entries, inner_leaves) = (0.0, 0.0, 0.0, 0.0);
    let mut search = Search { start, end, pages, edge_entries, edge_leaves, inner_entries, inner_leaves };
    let leaves = search.leaves_below(Child { key: &[], page: tree.root }, None, tree.depth)?;
    let of_one = match &search {
        Search { inner_entries, inner_leaves, .. } if *inner_leaves > 0.0 => inner_entries / inner_leaves,
        Search { edge_entries, edge_leaves, .. } if *edge_leaves > 0.0 => edge_entries / edge_leaves,
        _ => 0.0,
    };
    Some((leaves * of_one) as u64)
}

/// The last child of a branch whose key is at or below `key`, or the first child if there is none.
fn last_at_or_below<'m>(nodes: Nodes<'m>, branch: Child<'m>, key: &[u8]) -> Option<usize> {
    let (mut low, mut high) = (0, nodes.count());
    while high - low > 1 {
        let middle = usize::midpoint(low, high);
        if child(nodes, branch, middle)?.key <= key { low = middle } else { high = middle }
    }
    Some(low)
}

/// The last child of a branch whose key is below `key`, or the first child if there is none.
fn last_below<'m>(nodes: Nodes<'m>, branch: Child<'m>, key: &[u8]) -> Option<usize> {
    let last = last_at_or_below(nodes, branch, key)?;
    Some(if last > 0 && child(nodes, branch, last)?.key == key { last - 1 } else { last })
}

impl<'m> Search<'_, 'm> {
    /// The number of leaf pages below `branch`, which has `depth` levels including its own. All its
    /// keys are below `behind`.
    fn leaves_below(&mut self, branch: Child<'m>, behind: Option<&[u8]>, depth: u16) -> Option<f64> {
        if depth <= 1 {
            // A tree of one page.
            return self.edge(branch);
        }
        let nodes = self.pages.nodes(branch.page, PAGE_BRANCH)?;
        let first = last_at_or_below(nodes, branch, self.start)?;
        if depth == 2 {
            return self.leaves_of(nodes, (branch, behind), first);
        }
        let last = match self.end {
            Some(end) => last_below(nodes, branch, end)?.max(first),
            None => nodes.count() - 1,
        };
        let above = |index: usize| {
            if index + 1 < nodes.count() {
                child(nodes, branch, index + 1).map(|next| Some(next.key))
            } else {
                Some(behind)
            }
        };
        // The subtrees between the two at the edges lie entirely inside the range.
        let mut total = self.leaves_below(child(nodes, branch, first)?, above(first)?, depth - 1)?;
        if last > first {
            total += self.leaves_below(child(nodes, branch, last)?, above(last)?, depth - 1)?;
            let inside = first + 1..last;
            total += self.leaves_inside(nodes, branch, inside, (depth - 1, PAGE_COUNT_MAX))?;
        }
        Some(total)
    }

    /// The number of leaf pages below some children of a branch, with `depth` levels left. Reads
    /// `budget` branches, at least one.
    fn leaves_inside(
        &self,
        nodes: Nodes<'m>,
        branch: Child<'m>,
        children: Range<usize>,
        (depth, budget): (u16, usize),
    ) -> Option<f64> {
        let count = children.len();
        let looked_at = count.min(budget.max(1));
        let mut total = 0.0;
        for place in 0..looked_at {
            let this = child(nodes, branch, children.start + place * count / looked_at)?;
            let below = self.pages.nodes(this.page, PAGE_BRANCH)?;
            total += match depth {
                2 => below.count() as f64,
                _ => self.leaves_inside(below, this, 0..below.count(), (depth - 1, budget / looked_at))?,
            };
        }
        Some(if looked_at == 0 { 0.0 } else { total / looked_at as f64 * count as f64 })
    }

    /// The leaves of one of the lowest branches. Leaves at the edges of the range are read.
    fn leaves_of(
        &mut self,
        nodes: Nodes<'m>,
        (branch, behind): (Child<'m>, Option<&[u8]>),
        first: usize,
    ) -> Option<f64> {
        let count = nodes.count();
        let last = match self.end {
            Some(end) => last_at_or_below(nodes, branch, end)?,
            None => count - 1,
        };
        let is_end_inside = match self.end {
            Some(end) => last + 1 == count && behind.is_some_and(|behind| behind <= end),
            None => true,
        };
        let is_start_inside = child(nodes, branch, first)?.key >= self.start;
        let mut leaves = (last + 1 - first) as f64;
        if self.edge_leaves == 0.0 || !is_start_inside {
            leaves -= 1.0 - self.edge(child(nodes, branch, first)?)?;
        }
        if !is_end_inside && last > first {
            leaves -= 1.0 - self.edge(child(nodes, branch, last)?)?;
        }
        let middle = usize::midpoint(first, last);
        if middle > first && middle < last {
            let inner = child(nodes, branch, middle)?.page;
            self.inner_entries += self.pages.nodes(inner, PAGE_LEAF)?.count() as f64;
            self.inner_leaves += 1.0;
        }
        Some(leaves)
    }

    /// The share of an edge leaf that is inside the range: assumed to be half.
    fn edge(&mut self, leaf: Child<'m>) -> Option<f64> {
        self.edge_entries += self.pages.nodes(leaf.page, PAGE_LEAF)?.count() as f64;
        self.edge_leaves += 1.0;
        Some(0.5)
    }
}

/// Scale `total` by `part / whole`.
pub(crate) fn in_share(part: u64, whole: u64, total: u64) -> u64 {
    (part as f64 / whole.max(1) as f64 * total as f64) as u64
}
