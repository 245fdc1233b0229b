//! Cuts a range of a tree into parts of about the same size, for parallel walks.
//!
//! The cuts are keys of branch pages: from the root down, level by level, until there are as many
//! pages as parts were asked for. That reads a few pages for millions of rows, and needs no
//! statistics. A page that does not look as it should ends the search, and the keys found so far
//! are used: a walk can be cut at any key. (`engine/lmdb/page.rs` has the layout of pages,
//! `engine/lmdb/format.rs` that of branches.)

use crate::engine::lmdb::format::{DEPTH_MAX, TreeHead};
use crate::engine::lmdb::page::{PAGE_BRANCH, Pages};
use crate::engine::lmdb::search::Nodes;

/// A subtree: everything from its key on, up to the key of the next one. The first subtree of a
/// level has no key of its own.
#[derive(Clone, Copy)]
pub(crate) struct Child<'m> {
    pub(crate) key: &'m [u8],
    pub(crate) page: u64,
}

/// Keys between `start` and `end` that cut this range into `count` parts or fewer, of about as many
/// pages each.
pub(crate) fn separators(
    pages: Pages<'_>,
    tree: &TreeHead,
    start: &[u8],
    end: Option<&[u8]>,
    count: usize,
) -> Vec<Vec<u8>> {
    if tree.is_empty() || tree.depth > DEPTH_MAX {
        return Vec::new();
    }
    let mut level = vec![Child { key: &[], page: tree.root }];
    // The lowest level are leaves: their keys are in the branches above them.
    for _ in 1..tree.depth {
        if level.len() >= count {
            break;
        }
        let Some(mut next) = below(pages, &level) else { break };
        let first = next.partition_point(|child| child.key <= start).saturating_sub(1);
        let behind = end.map_or(next.len(), |end| next.partition_point(|child| child.key < end));
        next.truncate(behind);
        level = next.split_off(first.min(behind));
    }
    let keys: Vec<&[u8]> = level.iter().map(|child| child.key).filter(|key| *key > start).collect();
    let parts = count.min(keys.len() + 1);
    (1..parts).filter_map(|part| Some(keys.get(part * (keys.len() + 1) / parts - 1)?.to_vec())).collect()
}

fn below<'m>(pages: Pages<'m>, level: &[Child<'m>]) -> Option<Vec<Child<'m>>> {
    let mut next = Vec::new();
    for parent in level {
        let nodes = pages.nodes(parent.page, PAGE_BRANCH)?;
        for index in 0..nodes.count() {
            next.push(child(nodes, *parent, index)?);
        }
    }
    Some(next)
}

/// One child of a branch page.
pub(crate) fn child<'m>(nodes: Nodes<'m>, parent: Child<'m>, index: usize) -> Option<Child<'m>> {
    // A branch's first key is never compared: the first child has everything below the second key.
    let key = if index == 0 { parent.key } else { nodes.key(index)? };
    Some(Child { key, page: nodes.child(index)? })
}
