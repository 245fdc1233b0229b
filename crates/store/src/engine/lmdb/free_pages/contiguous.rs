//! Has large transactions take free pages that are next to each other.
//!
//! LMDB takes the lowest of the free pages that it has loaded, and it loads those first that were
//! freed first. Under random keys these are scattered over the whole file, and a checkpoint writes
//! single pages of 4 KiB, which a disk takes four times as long for as for the same bytes in one
//! stretch. But some parts of the file were written long ago, and nearly all of their pages are
//! free again. A transaction that will take many pages therefore loads the whole list and sets
//! aside what is not in such parts. It writes in key order, so that a walk over the tree finds its
//! pages near each other, too.
//!
//! **Invariant:** what is set aside is added again before the transaction commits or has another
//! one in it: LMDB forgets all that it has loaded and not listed again. If the transaction ends
//! without a commit, the list in the file is as it was.
#![allow(unsafe_code)]

use std::cmp::Reverse;
use std::slice;

use pellucid_lmdb_sys as ffi;

use crate::engine::lmdb::free_pages::SetAside;
use crate::engine::lmdb::txn::LmdbWrite;
use crate::engine::lmdb::{check, empty_stat};
use crate::engine::{EngineError, MovesPages as _, Result, Tree};
use crate::sys::{memory, os};

/// Pages of a part of the file.
const PART: usize = if cfg!(test) { 16 } else { 256 };
/// Least number of free pages of a dense part.
const DENSE: usize = PART / 4 * 3;
/// Least number of pages at hand before what was set aside is added again. One change takes fewer.
const LEFT_MIN: usize = if cfg!(test) { 32 } else { 512 };
/// Least number of pages in use of a file that may grow for contiguous pages: fewer are written
/// quickly wherever they are.
const LARGE_TREE: u64 = if cfg!(test) { 1 << 4 } else { 1 << 16 };
/// The file may grow to `LONGEST / LONGEST_BY` times its pages in use. Below that, no part of it is
/// free enough under load.
const LONGEST: u64 = 5;
const LONGEST_BY: u64 = 2;
/// It grows by this part of the free disk at most, and to this part of the machine's memory: a
/// longer file would drive pages that are in use out of the system's cache.
const DISK_SHARE: u64 = 8;
const MEMORY_SHARE: u64 = 2;
/// Least number of changed keys for which the file grows: it would soon be made shorter again.
const KEYS_MANY: u64 = if cfg!(test) { 16 } else { 1 << 17 };
/// A longer list of free pages is taken as LMDB loads it: all that is loaded is written again.
const FREE_MAX: u64 = if cfg!(test) { 1 << 13 } else { 1 << 22 };
/// How many times the list of free pages is in memory meanwhile.
const COPIES: usize = 4;

/// Part a list of free pages, which descend, into those to take first and the others. `wanted` are
/// taken if they are in dense parts of the file, and `needed` wherever they are, from the parts
/// first where most are free.
fn divide(pages: &[usize], wanted: usize, needed: usize) -> (Vec<usize>, Vec<usize>) {
    let mut parts: Vec<&[usize]> = pages.chunk_by(|one, other| one / PART == other / PART).collect();
    // The lowest first among equals.
    parts.reverse();
    parts.sort_by_key(|part| Reverse(part.len()));
    let (mut count, mut chosen) = (0, 0);
    for part in &parts {
        if count >= if part.len() >= DENSE { wanted.max(needed) } else { needed } {
            break;
        }
        count += part.len();
        chosen += 1;
    }
    let gather = |parts: &mut [&[usize]]| {
        parts.sort_unstable_by_key(|part| Reverse(part.first().copied()));
        parts.concat()
    };
    let (first, others) = parts.split_at_mut(chosen);
    (gather(first), gather(others))
}

/// About how many pages of `in_use` change with `keys` keys from anywhere. Some are split.
#[expect(clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "an estimate")]
fn pages_changed_by(keys: u64, in_use: u64) -> usize {
    let (keys, in_use) = (keys as f64, in_use.max(1) as f64);
    (in_use * -(-keys / in_use).exp_m1() + keys / 16.0) as usize
}

impl LmdbWrite {
    /// The free pages that are at hand, descending.
    fn loaded(&self) -> Result<&[usize]> {
        // SAFETY: the transaction is live. The list begins with its length, and stays as it is
        // while `self` is borrowed.
        Ok(unsafe {
            let list = ffi::pellucid_free_list(self.txn()?);
            if list.is_null() { &[] } else { slice::from_raw_parts(list.add(1), *list) }
        })
    }

    /// How many pages the file has as the transaction leaves it.
    fn pages(&self) -> Result<usize> {
        // SAFETY: the transaction is live.
        Ok(unsafe { ffi::pellucid_txn_pages(self.txn()?) })
    }

    /// How many pages the trees have.
    fn pages_in_use(&self) -> Result<u64> {
        let mut in_use: u64 = 0;
        for tree in Tree::ALL {
            let mut stat = empty_stat();
            // SAFETY: the transaction is live.
            check(unsafe { ffi::mdb_stat(self.txn()?, self.environment().handle(tree), &raw mut stat) })?;
            in_use += (stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages) as u64;
        }
        Ok(in_use)
    }

    /// How many pages the file may have before the transaction takes scattered ones.
    fn longest(&self, in_use: u64, keys: u64) -> Result<usize> {
        if in_use < LARGE_TREE || keys < KEYS_MANY || !self.environment().may_grow() {
            return Ok(0);
        }
        let page_size = self.environment().page_size() as u64;
        let file = self.environment().file()?;
        let disk = os::room_beside(&file).unwrap_or(0) / page_size;
        let beyond = (self.pages()? as u64).saturating_sub(in_use);
        let map = self.environment().info().me_mapsize as u64 / page_size;
        let longest = (in_use.saturating_mul(LONGEST) / LONGEST_BY)
            .min(in_use + disk.saturating_add(beyond) / DISK_SHARE)
            .min(memory::of_machine() / page_size / MEMORY_SHARE)
            .min(map.saturating_sub(2 * LEFT_MIN as u64));
        Ok(longest as usize)
    }

    /// Load free pages that are next to each other, for a transaction that changes `keys` keys.
    pub(super) fn set_sparse_aside(&mut self, keys: u64) -> Result<()> {
        let in_use = self.pages_in_use()?;
        if (self.pages()? as u64).saturating_sub(in_use) > FREE_MAX {
            return Ok(());
        }
        match self.gather_free() {
            // What is loaded is taken as it comes.
            Err(EngineError::NoMemory(_)) => return Ok(()),
            done => done?,
        };
        let longest = self.longest(in_use, keys)?;
        let wanted = pages_changed_by(keys, in_use) + LEFT_MIN;
        let growth = longest.saturating_sub(self.pages()?);
        let loaded = self.loaded()?;
        if !memory::has_room(size_of_val(loaded).saturating_mul(COPIES)) {
            return Ok(());
        }
        let (first, mut others) = divide(loaded, wanted, wanted.saturating_sub(growth));
        if others.is_empty() {
            return Ok(());
        }
        // SAFETY: the transaction is live, and this many pages are given.
        let code = unsafe { ffi::pellucid_keep_free(self.txn()?, first.as_ptr(), first.len()) };
        self.environment().check(code)?;
        others.insert(0, others.len());
        self.set_aside = SetAside { pages: others, longest };
        Ok(())
    }

    /// Whether pages are at hand for one change, or the file may grow for it.
    pub(super) fn has_enough(&self) -> Result<bool> {
        Ok(self.loaded()?.len() >= LEFT_MIN || self.pages()? < self.set_aside.longest)
    }
}

/// The address at which a file is mapped.
#[cfg(test)]
fn map_of(environment: &crate::engine::lmdb::Environment) -> usize {
    // SAFETY: the environment is open.
    unsafe { ffi::pellucid_map(environment.raw()) as usize }
}

#[cfg(test)]
mod tests;
