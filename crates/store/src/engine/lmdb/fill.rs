//! How full the leaves of a tree are, and which of them hold so little that fewer leaves would do.
//!
//! Random puts split leaves in the middle, and deletes leave them half empty: LMDB joins two leaves
//! only when one of them is nearly empty.

use crate::engine::lmdb::format::{DEPTH_MAX, Fault, TreeHead};
use crate::engine::lmdb::page::{Leaf, NODE_HEAD_SIZE, PAGE_BRANCH, PAGE_HEAD_SIZE, Pages};
use crate::engine::moves::{Fullness, Underfilled};
use crate::engine::{Entry, Result, Tree};

/// Leaves that are looked at together.
const STRETCH: usize = 16;
/// Least number of leaves by which a stretch must shrink to be filled anew: where one stretch ends
/// and the next begins, a leaf may be half full, and stays so.
const SAVED_MIN: usize = 2;
/// How many leaves are asked to know about all.
const SAMPLES: u64 = 256;

/// How many bytes stay free in each leaf when entries are put into fewer leaves: if leaves were
/// full, few random puts would split most of them, and the file would be twice as long. Where no
/// entry would fit into that room, none is left.
pub(crate) fn spare_room(page_size: usize, entry_sizes: impl Iterator<Item = usize>) -> usize {
    const ROOM_SHARE: usize = 10;
    let room = page_size / ROOM_SHARE;
    if entry_sizes.max().is_some_and(|largest| largest <= room) { room } else { 0 }
}

/// How many bytes an entry takes in a leaf.
pub(crate) fn size_in_leaf((key, value): Entry<'_>) -> usize {
    (NODE_HEAD_SIZE + key.len() + value.len()).next_multiple_of(2) + size_of::<u16>()
}

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
pub(crate) fn fullness(pages: Pages<'_>, head: &TreeHead) -> Result<Fullness> {
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
        room += free_entries(&leaf_at(pages, number)?) as u64;
    }
    Ok(Fullness { leaf_pages, large_pages, unfilled: (room / SAMPLES).saturating_mul(leaf_pages) })
}

/// The bytes of a leaf into which further entries of its entries' mean size would fit.
fn free_entries(leaf: &Leaf<'_>) -> usize {
    let usable = leaf.size() - PAGE_HEAD_SIZE;
    let mean = (usable - leaf.room()).div_ceil(leaf.count().max(1)).max(1);
    leaf.room() / mean * mean
}

/// The underfilled stretches of a tree, in key order.
pub(crate) fn underfilled(
    pages: Pages<'_>,
    (tree, head): (Tree, &TreeHead),
    most: usize,
) -> Result<Vec<Underfilled>> {
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
    entry_sizes: Vec<usize>,
}

struct Search<'m> {
    pages: Pages<'m>,
    tree: Tree,
    most: usize,
    /// How many pages the tree has that were not seen yet.
    left: u64,
    found: Vec<Underfilled>,
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
        let outside = || fault(number, "an entry of it does not lie in it");
        for index in 0..leaf.count() {
            if leaf.large_page(index).ok_or_else(outside)? != 0 {
                // To put a large value anew would write all of it.
                return self.end_stretch();
            }
        }
        let stretch = &mut self.stretch;
        if stretch.leaves == 0 {
            stretch.first = number;
        }
        stretch.leaves += 1;
        for index in 0..leaf.count() {
            stretch.entry_sizes.push(size_in_leaf(leaf.entry(index).ok_or_else(outside)?));
        }
        if stretch.leaves == STRETCH { self.end_stretch() } else { Ok(()) }
    }

    fn end_stretch(&mut self) -> Result<(), Fault> {
        let stretch = std::mem::take(&mut self.stretch);
        if stretch.leaves < 2 {
            return Ok(());
        }
        let leaf = leaf_at(self.pages, stretch.first)?;
        let needed = stretch.leaves_needed(leaf.size());
        if needed + SAVED_MIN <= stretch.leaves {
            let entry = leaf.entry(0);
            let (key, _) = entry.ok_or_else(|| fault(stretch.first, "an entry of it does not lie in it"))?;
            let entries = stretch.entry_sizes.len();
            self.found.push(Underfilled { tree: self.tree, first: key.to_vec(), entries });
        }
        Ok(())
    }
}

impl Stretch {
    /// How many leaves of this size its entries take, put there in their order.
    fn leaves_needed(&self, page_size: usize) -> usize {
        let usable = page_size - PAGE_HEAD_SIZE - spare_room(page_size, self.entry_sizes.iter().copied());
        let (mut leaves, mut left) = (0, 0);
        for size in &self.entry_sizes {
            if *size > left {
                (leaves, left) = (leaves + 1, usable);
            }
            left = left.saturating_sub(*size);
        }
        leaves
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::engine::lmdb::lock_path_of;
    use crate::engine::lmdb::{LmdbEngine, LmdbOptions};
    use crate::engine::{Direction, Engine, Start, Tree, Underfilled};

    /// Numbers that look random, each once.
    fn mixed(number: u64) -> u64 {
        let number = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (number ^ (number >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93)
    }

    struct Rows {
        engine: LmdbEngine,
        rows: BTreeMap<[u8; 8], Vec<u8>>,
    }

    impl Rows {
        /// Rows of these sizes, put under random keys in transactions of a hundred.
        fn new(name: &str, count: u64, size_of: impl Fn(u64) -> usize) -> Self {
            let path = std::env::temp_dir().join(format!("pellucid-fill-{name}-{}", std::process::id()));
            let _ = std::fs::remove_file(&path);
            let options = LmdbOptions::default();
            let engine = LmdbEngine::create(&path, options, &mut |_, _| vec![(vec![1], vec![2])]).unwrap();
            let mut all = Self { engine, rows: BTreeMap::new() };
            for from in (0..count).step_by(100) {
                let mut txn = all.engine.begin_write().unwrap();
                for number in from..count.min(from + 100) {
                    let (key, value) = (mixed(number).to_be_bytes(), vec![number as u8; size_of(number)]);
                    txn.put(Tree::Rows, &key, &[&value]).unwrap();
                    all.rows.insert(key, value);
                }
                txn.commit().unwrap();
            }
            std::fs::remove_file(&path).unwrap();
            let _ = std::fs::remove_file(lock_path_of(&path));
            all
        }

        fn underfilled(&self) -> Vec<Underfilled> {
            self.engine.begin_read().unwrap().underfilled(Tree::Rows, 1 << 16).unwrap()
        }

        fn leaves(&self) -> u64 {
            self.engine.begin_read().unwrap().fullness(Tree::Rows).unwrap().leaf_pages
        }

        /// Which share of its leaves is empty, in percent.
        fn unfilled(&self) -> u64 {
            let fullness = self.engine.begin_read().unwrap().fullness(Tree::Rows).unwrap();
            fullness.unfilled * 100 / (fullness.leaf_pages * 4096)
        }

        fn fill(&self, underfilled: &[Underfilled]) {
            let mut txn = self.engine.begin_write().unwrap();
            for one in underfilled {
                assert_eq!(txn.pages().unwrap().fill(one).unwrap(), one.entries);
            }
            txn.commit().unwrap();
        }

        /// The rows are all there and in order.
        fn verify(&self) {
            let read = self.engine.begin_read().unwrap();
            let mut cursor = read.cursor(Tree::Rows).unwrap();
            cursor.start(Start::Edge, Direction::Forward).unwrap();
            for (key, value) in &self.rows {
                assert_eq!(cursor.step().unwrap(), Some((&key[..], &value[..])));
            }
            assert_eq!(cursor.step().unwrap(), None);
        }
    }

    #[test]
    fn entries_of_half_empty_leaves_move_into_fewer_which_keep_some_room() {
        // Small rows, large ones of which few share a leaf, and mixed ones.
        let sizes: [(&str, &dyn Fn(u64) -> usize); 3] =
            [("small", &|_| 200), ("large", &|_| 1_200), ("mixed", &|number| (number % 7 * 150) as usize)];
        for (name, size_of) in sizes {
            let mut rows = Rows::new(name, 20_000, size_of);
            let (before, unfilled) = (rows.leaves(), rows.unfilled());
            let underfilled = rows.underfilled();
            rows.fill(&underfilled);
            rows.verify();
            let after = rows.leaves();
            assert!(after < before * 9 / 10 && rows.unfilled() < unfilled, "{name}: {before}, {after}");
            // To fill them once more is of no use.
            let left = rows.underfilled();
            assert!(left.len() * 10 <= underfilled.len(), "{name}: {} of {}", left.len(), underfilled.len());
            assert!(rows.unfilled() < 20, "{name}: {}", rows.unfilled());
            if name == "small" {
                // A few more rows do not split most leaves.
                let mut txn = rows.engine.begin_write().unwrap();
                for number in 20_000..20_400 {
                    let (key, value) = (mixed(number).to_be_bytes(), vec![7; 200]);
                    txn.put(Tree::Rows, &key, &[&value]).unwrap();
                    rows.rows.insert(key, value);
                }
                txn.commit().unwrap();
                let split = rows.leaves() - after;
                assert!(split < 100, "{split} of {after}");
                rows.verify();
            }
        }
    }
}
