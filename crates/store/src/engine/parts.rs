//! Cuts a range of a tree into parts of about the same size, for parallel walks.
//!
//! The cuts are keys of branch pages: from the root down, level by level, until there are as many
//! pages as parts were asked for. That reads a few pages for millions of rows, and needs no
//! statistics. A page that does not look as it should ends the search, and the keys found so far
//! are used: a walk can be cut at any key. (`engine/lmdb/page.rs` has the layout of pages,
//! `verify/pages.rs` that of branches.)

use crate::engine::lmdb::page::{NODE_HEAD_SIZE, PAGE_BRANCH, PAGE_HEAD_SIZE, read_u16, read_u32, read_u64};
use crate::verify::pages::{DEPTH_MAX, TreeHead};

/// A subtree: everything from its key on, up to the key of the next one. The first subtree of a
/// level has no key of its own.
#[derive(Clone, Copy)]
pub(crate) struct Child<'m> {
    pub(crate) key: &'m [u8],
    pub(crate) page: u64,
}

/// Keys between `start` and `end` that cut this range into `count` parts or fewer, of about as many
/// pages each. `page` returns a page's bytes, or `None` if there is no such page.
pub(crate) fn separators<'m>(
    tree: &TreeHead,
    start: &[u8],
    end: Option<&[u8]>,
    count: usize,
    page: impl Fn(u64) -> Option<&'m [u8]>,
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
        let Some(mut next) = below(&level, &page) else { break };
        let first = next.partition_point(|child| child.key <= start).saturating_sub(1);
        let behind = end.map_or(next.len(), |end| next.partition_point(|child| child.key < end));
        next.truncate(behind);
        level = next.split_off(first.min(behind));
    }
    let keys: Vec<&[u8]> = level.iter().map(|child| child.key).filter(|key| *key > start).collect();
    let parts = count.min(keys.len() + 1);
    (1..parts).filter_map(|part| Some(keys.get(part * (keys.len() + 1) / parts - 1)?.to_vec())).collect()
}

fn below<'m>(level: &[Child<'m>], page: impl Fn(u64) -> Option<&'m [u8]>) -> Option<Vec<Child<'m>>> {
    let mut next = Vec::new();
    for parent in level {
        let bytes = page(parent.page)?;
        let count = entry_count(bytes, parent.page, PAGE_BRANCH)?;
        for index in 0..count {
            next.push(child(bytes, *parent, index)?);
        }
    }
    Some(next)
}

/// The number of entries of a page. `None` if it is not a page of this kind.
pub(crate) fn entry_count(bytes: &[u8], number: u64, kind: u16) -> Option<usize> {
    let is_it = read_u64(bytes, 0)? == number && read_u16(bytes, 10)? == kind;
    let count = usize::from(read_u16(bytes, 12)?).checked_sub(PAGE_HEAD_SIZE)? / 2;
    (is_it && count > 0).then_some(count)
}

/// One child of a branch page.
pub(crate) fn child<'m>(bytes: &'m [u8], parent: Child<'m>, index: usize) -> Option<Child<'m>> {
    let node = bytes.get(usize::from(read_u16(bytes, PAGE_HEAD_SIZE + 2 * index)?)..)?;
    let page = u64::from(read_u32(node, 0)?) | u64::from(read_u16(node, 4)?) << 32;
    let key = node.get(NODE_HEAD_SIZE..NODE_HEAD_SIZE + usize::from(read_u16(node, 6)?))?;
    // A branch's first key is never compared: the first child has everything below the second key.
    Some(Child { key: if index == 0 { parent.key } else { key }, page })
}
