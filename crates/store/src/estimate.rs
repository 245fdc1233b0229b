//! How many entries does a tree have between two keys, roughly?
//!
//! As many as there are leaf pages, which the branch pages above them tell, by what the outermost of these have. So the tree itself is the
//! histogram, which is never out of date and costs nothing to keep. Whatever does not look as it should ends the search without an answer.
//! (`parts.rs` cuts walks by the same pages.)

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "rough numbers of pages and entries, none below zero"
)]

use crate::lmdb_page::{PAGE_BRANCH, PAGE_LEAF};
use crate::pages::{DEPTH_MAX, TreeHead};
use crate::parts::{Child, child, entry_count};

/// Branch pages that are looked at; of others it is taken that they have as many entries as these on average.
const PAGE_COUNT_MAX: usize = 256;

/// A search, and what it has met.
struct Search<'k, P> {
    start: &'k [u8],
    end: Option<&'k [u8]>,
    page: P,
    looked_at: usize,
    /// Leaf pages below the lowest branches that were looked at, and how many of these there were.
    leaves: f64,
    lowest: f64,
    /// Entries of the leaves at the edges, and how many these are.
    edge_entries: f64,
    edge_leaves: f64,
}

/// How many entries there are from `start` on, below `end`; `page` gives a page's bytes, None where there is no such page.
pub(crate) fn entries_between<'m>(
    tree: &TreeHead,
    start: &[u8],
    end: Option<&[u8]>,
    page: impl Fn(u64) -> Option<&'m [u8]>,
) -> Option<u64> {
    if tree.is_empty() {
        return Some(0);
    }
    if tree.depth > DEPTH_MAX {
        return None;
    }
    let mut search = Search {
        start,
        end,
        page,
        looked_at: 0,
        leaves: 0.0,
        lowest: 0.0,
        edge_entries: 0.0,
        edge_leaves: 0.0,
    };
    let leaves = search.leaves_below(Child { key: &[], page: tree.root }, None, tree.depth)?;
    let of_one = if search.edge_leaves > 0.0 { search.edge_entries / search.edge_leaves } else { 0.0 };
    Some((leaves * of_one) as u64)
}

/// The last child of a branch that begins at a key or below it; the first one, where none does.
fn last_at_or_below<'m>(bytes: &'m [u8], branch: Child<'m>, count: usize, key: &[u8]) -> Option<usize> {
    let (mut low, mut high) = (0, count);
    while high - low > 1 {
        let middle = usize::midpoint(low, high);
        if child(bytes, branch, middle)?.key <= key { low = middle } else { high = middle }
    }
    Some(low)
}

impl<'m, P: Fn(u64) -> Option<&'m [u8]>> Search<'_, P> {
    /// The leaf pages below `branch`, of which `depth` levels are left, its own included; all its keys lie below `behind`.
    fn leaves_below(&mut self, branch: Child<'m>, behind: Option<&[u8]>, depth: u16) -> Option<f64> {
        if depth <= 1 {
            // A tree of one page.
            return self.edge(branch);
        }
        let bytes = (self.page)(branch.page)?;
        let count = entry_count(bytes, branch.page, PAGE_BRANCH)?;
        self.looked_at += 1;
        let first = last_at_or_below(bytes, branch, count, self.start)?;
        if depth == 2 {
            (self.leaves, self.lowest) = (self.leaves + count as f64, self.lowest + 1.0);
            return self.leaves_of(bytes, (branch, behind), count, first);
        }
        let (mut total, mut left_out) = (0.0, 0usize);
        let mut next = child(bytes, branch, first)?;
        for index in first..count {
            let this = next;
            if index > first && self.end.is_some_and(|end| this.key >= end) {
                break;
            }
            let above = if index + 1 < count {
                next = child(bytes, branch, index + 1)?;
                Some(next.key)
            } else {
                behind
            };
            let is_child_inside =
                this.key >= self.start && above.is_some_and(|above| self.end.is_none_or(|end| above <= end));
            if is_child_inside && self.looked_at >= PAGE_COUNT_MAX {
                left_out += 1;
            } else {
                total += self.leaves_below(this, above, depth - 1)?;
            }
        }
        let fan_out = if self.lowest > 0.0 { self.leaves / self.lowest } else { 1.0 };
        Some(total + left_out as f64 * fan_out.powi(i32::from(depth) - 2))
    }

    /// The leaves of one of the lowest branches; those at the edges of the search are looked at.
    fn leaves_of(
        &mut self,
        bytes: &'m [u8],
        (branch, behind): (Child<'m>, Option<&[u8]>),
        count: usize,
        first: usize,
    ) -> Option<f64> {
        let last = match self.end {
            Some(end) => last_at_or_below(bytes, branch, count, end)?,
            None => count - 1,
        };
        let is_end_inside = match self.end {
            Some(end) => last + 1 == count && behind.is_some_and(|behind| behind <= end),
            None => true,
        };
        let is_start_inside = child(bytes, branch, first)?.key >= self.start;
        let mut leaves = (last + 1 - first) as f64;
        if self.edge_leaves == 0.0 || !is_start_inside {
            leaves -= 1.0 - self.edge(child(bytes, branch, first)?)?;
        }
        if !is_end_inside && last > first {
            leaves -= 1.0 - self.edge(child(bytes, branch, last)?)?;
        }
        Some(leaves)
    }

    /// How much of a leaf at an edge lies between the bounds: half of it, as far as is known.
    fn edge(&mut self, leaf: Child<'m>) -> Option<f64> {
        let bytes = (self.page)(leaf.page)?;
        self.edge_entries += entry_count(bytes, leaf.page, PAGE_LEAF)? as f64;
        self.edge_leaves += 1.0;
        Some(0.5)
    }
}

/// What a part of `whole` would be of `total`, in the same share.
pub(crate) fn in_share(part: u64, whole: u64, total: u64) -> u64 {
    (part as f64 / whole.max(1) as f64 * total as f64) as u64
}
