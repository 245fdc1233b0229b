//! Moves pages of an LMDB file towards its beginning, so that it can become shorter.
//!
//! LMDB copies each page that it changes, and takes the copy from the free pages. So a page is
//! moved by being changed as it is. LMDB loads its list of free pages in parts, as it needs them;
//! here all of it is loaded first, and then the lowest pages are taken.
#![allow(unsafe_code)]

use std::cmp::Reverse;

use pellucid_lmdb_sys as ffi;

use crate::engine::extents::KeepsPages as _;
use crate::engine::lmdb::cursor::value_of;
use crate::engine::lmdb::extents::{pages_for, write_value};
use crate::engine::lmdb::fill::{size_in_leaf, spare_room};
use crate::engine::lmdb::format::{DEPTH_MAX, Fault, TreeHead};
use crate::engine::lmdb::page::{PAGE_BRANCH, Pages};
use crate::engine::lmdb::txn::{LmdbWrite, get, room_for, write_parts};
use crate::engine::moves::{MovesPages, TailEntry, Underfilled};
use crate::engine::{Contents as _, Direction, EngineError, Result, Start, Tree, WriteTxn as _};

/// The entries of a tree that are not below a page, or are reached through one that is not: the
/// first entry of each such page, and each large value. Those on the last pages come first, and no
/// more than `most` are given.
pub(crate) fn tail_entries(
    pages: Pages<'_>,
    (tree, head): (Tree, &TreeHead),
    from: u64,
    most: usize,
) -> Result<Vec<TailEntry>> {
    let left = head.branch_pages.saturating_add(head.leaf_pages);
    let has_large = head.overflow_pages > 0;
    let mut search = Search { pages, tree, from, most, has_large, left, found: Vec::new() };
    if !head.is_empty() {
        search.below(head.root, head.depth, None)?;
    }
    search.keep_last();
    Ok(search.found)
}

struct Search<'m> {
    pages: Pages<'m>,
    tree: Tree,
    from: u64,
    most: usize,
    /// Whether the tree has large values: if not, no leaf below `from` has to be read.
    has_large: bool,
    /// How many pages the tree has that were not seen yet.
    left: u64,
    found: Vec<TailEntry>,
}

impl Search<'_> {
    /// Look at a page, with the last of the pages above it that are to be moved with its first
    /// entry.
    fn below(&mut self, number: u64, depth: u16, above: Option<u64>) -> Result<(), Fault> {
        let fault = |what| Fault { page: number, what };
        let left = self.left.checked_sub(1);
        self.left = left.ok_or_else(|| fault("its tree has more pages than its head says"))?;
        let own = (number >= self.from).then_some(number).max(above);
        match depth {
            0 => Err(fault("its tree has a depth that no tree has")),
            1 => self.leaf(number, own),
            2..=DEPTH_MAX => {
                let nodes = self.pages.nodes(number, PAGE_BRANCH);
                let nodes = nodes.ok_or_else(|| fault("it is not the branch page that it should be"))?;
                for index in 0..nodes.count() {
                    let child =
                        nodes.child(index).ok_or_else(|| fault("an entry of it does not lie in it"))?;
                    self.below(child, depth - 1, own.filter(|_| index == 0))?;
                }
                Ok(())
            }
            _ => Err(fault("its tree is deeper than any")),
        }
    }

    fn leaf(&mut self, number: u64, own: Option<u64>) -> Result<(), Fault> {
        if own.is_none() && !self.has_large {
            return Ok(());
        }
        let fault = |what| Fault { page: number, what };
        let leaf = self.pages.leaf(number).filter(|leaf| leaf.count() > 0);
        let leaf = leaf.ok_or_else(|| fault("it is not the leaf page that it should be"))?;
        let outside = || fault("an entry of it does not lie in it");
        let count = if self.has_large { leaf.count() } else { 1 };
        for index in 0..count {
            let large = leaf.large_page(index).ok_or_else(outside)?;
            let large = (large >= self.from).then_some(large);
            if let Some(page) = large.max(own.filter(|_| index == 0)) {
                let (key, _) = leaf.entry(index).ok_or_else(outside)?;
                let (tree, is_large) = (self.tree, large.is_some());
                self.found.push(TailEntry { page, is_large, tree, key: key.to_vec() });
            }
        }
        if self.found.len() > self.most.saturating_mul(2) {
            self.keep_last();
        }
        Ok(())
    }

    fn keep_last(&mut self) {
        self.found.sort_unstable_by_key(|entry| Reverse(entry.page));
        self.found.truncate(self.most);
    }
}

impl LmdbWrite {
    /// Move a value that has pages of its own, from the page `first` on, to free pages before them.
    fn move_large(&mut self, tree: Tree, key: &[u8], first: u64) -> Result<bool> {
        let txn = self.txn()?;
        // SAFETY: the transaction is live. Nothing is written to the value's pages, nor are they
        // freed, before `put` has a copy, or `put_placed` is called and the value is not used any
        // more.
        let Some(value) = (unsafe { get(txn, self.environment().handle(tree), key) })? else {
            return Ok(false);
        };
        let page_size = self.environment().page_size() as u64;
        let count = pages_for(value.len() as u64, page_size);
        // SAFETY: the transaction is live, and the call changes nothing.
        if unsafe { ffi::pellucid_has_free(txn, count as usize, first as usize) } == 0 {
            return Ok(false);
        }
        if count == 1 {
            let copy = value.to_vec();
            return self.put(tree, key, &[&copy]).map(|()| true);
        }
        let taken = self.take_pages(count)?;
        let file = self.environment().file()?;
        write_value(&file, page_size, taken.start, &[value]).map_err(EngineError::of_system)?;
        self.put_placed(tree, key, taken.start, value.len() as u64)?;
        Ok(true)
    }

    /// Put an entry whose key is greater than that of the last one put, so that `room` bytes stay
    /// free in each leaf that these fill.
    fn put_ascending(&mut self, tree: Tree, key: &[u8], value: &[u8], room: usize) -> Result<()> {
        self.check_key(key)?;
        self.set_found(tree, false);
        let cursor = self.write_cursor(tree)?;
        let (mut bytes, mut data) = (value_of(key), room_for(&[value]));
        // SAFETY: the cursor is open and its transaction live; LMDB copies the key and reads only
        // the value's size. No other cursor is open in this tree while it is written.
        let code = unsafe { ffi::pellucid_put_ascending(cursor, &raw mut bytes, &raw mut data, room) };
        if code == 0 {
            // SAFETY: LMDB has just reserved the room.
            unsafe { write_parts(data, &[value]) };
            return Ok(());
        }
        let code = if code == ffi::MDB_NOTFOUND { self.put_with(tree, key, &[value], 0)? } else { code };
        self.environment().check(code)
    }
}

impl MovesPages for LmdbWrite {
    fn gather_free(&mut self) -> Result<u64> {
        self.add_set_aside()?;
        let mut count = 0;
        // SAFETY: the transaction is live, the number ours to fill.
        let code = unsafe { ffi::pellucid_load_free(self.txn()?, &raw mut count) };
        self.environment().check(code).map(|()| count as u64)
    }

    fn take_neighbours(&mut self, keys: u64) -> Result<()> {
        self.prepare_contiguous_pages(keys)
    }

    fn cut_end(&mut self) -> Result<u64> {
        // SAFETY: the transaction is live.
        Ok(unsafe { ffi::pellucid_cut_free(self.txn()?) } as u64)
    }

    fn move_entry(&mut self, tree: Tree, key: &[u8], from: u64) -> Result<bool> {
        self.check_key(key)?;
        self.set_found(tree, false);
        let cursor = self.write_cursor(tree)?;
        let (mut wanted, mut large) = (value_of(key), 0);
        // SAFETY: the cursor is open and its transaction live; LMDB copies nothing of the key.
        let code = unsafe { ffi::pellucid_move_page(cursor, &raw mut wanted, from as usize, &raw mut large) };
        match code {
            ffi::MDB_NOTFOUND => Ok(false),
            0 if (large as u64) < from => Ok(true),
            0 => self.move_large(tree, key, large as u64),
            code => self.environment().check(code).map(|()| false),
        }
    }

    fn fill(&mut self, underfilled: &Underfilled) -> Result<usize> {
        let Underfilled { tree, first, entries } = underfilled;
        let mut kept = Vec::with_capacity(*entries);
        {
            let mut cursor = self.cursor(*tree)?;
            cursor.start(Start::At(first), Direction::Forward)?;
            while let Some((key, value)) = cursor.step()?.filter(|_| kept.len() < *entries) {
                kept.push((key.to_vec(), value.to_vec()));
            }
        }
        for (key, _) in &kept {
            self.delete(*tree, key)?;
        }
        let sizes = kept.iter().map(|(key, value)| size_in_leaf((key, value)));
        let room = spare_room(self.environment().page_size(), sizes);
        for (key, value) in &kept {
            self.put_ascending(*tree, key, value, room)?;
        }
        Ok(kept.len())
    }
}
