//! Uses pages again that were written and freed between two snapshots.
//!
//! LMDB lists freed pages by the version that freed them, and uses them once no reader is as old as
//! that version. One snapshot that stays would so keep all pages that are freed after it, also
//! those that were written after it. This process therefore remembers in which version it has
//! written each page, for as long as a reader is behind. A page that version `w` has written and
//! version `f` has freed belongs to the versions from `w` to `f - 1`. If no reader has one of
//! them, the next transaction may use it.
//!
//! **Invariant:** the version that is remembered for a page is not newer than the one that has
//! written what `f` freed. Only pages count that LMDB itself has written in this process. If
//! another process has committed, all is forgotten. So are pages that are taken for large values
//! (`engine/lmdb/extents.rs`): these are read from places that the log names, by readers of older
//! trees ([L5] in docs/internals/large-values.md). An older version than the true one only keeps
//! pages for longer, and 0 stands for unknown.
//!
//! **Invariant:** no reader takes a version between the decision and the use. The decision is made
//! under LMDB's writer lock, so that the newest version stays the same, and a reader that begins
//! takes that one: it stores a version in its place, and reads again which one is the newest. The
//! processor may delay the store beyond that read. So pages that the newest version has freed are
//! taken only after the system has made all threads complete their stores (`os::memory_barrier`):
//! a reader that still has the version before is then seen, or reads that there is a newer one. Of
//! other pages a reader would have to be delayed while two versions are committed. LMDB has the
//! same rule for all pages, and that margin.
//!
//! **Invariant:** a power cut leads back to the newest version, not to the one before. This process
//! has committed it, so that its pages and then its meta page are on the disk (`O_DSYNC`). If
//! another process has committed it, which may have died before that, nothing is taken.
//!
//! **Invariant:** what is decided is done in the transaction (`pellucid_reuse`). If it is not
//! committed, the list of free pages is as it was, and nothing in the file refers to the pages.
#![allow(unsafe_code)]

use std::collections::HashMap;

use pellucid_lmdb_sys as ffi;

use crate::engine::lmdb::cursor::{EMPTY, bytes_of};
use crate::engine::lmdb::format::free_list;
use crate::engine::lmdb::{Environment, check};
use crate::engine::{EngineError, Result};
use crate::sys::os;

/// Pages that are remembered together.
const CHUNK: u64 = 512;
/// The largest number of chunks, of 4 KiB each.
const CHUNKS_MAX: usize = 4096;
/// The largest number of pages that one transaction is given.
const REUSED_MAX: usize = 1 << 20;
/// A list is written anew if one page in `KEPT_SHARE` of those that it keeps can be used: with
/// fewer, it would take more room than it gives.
const KEPT_SHARE: usize = 256;
/// Least number of pages of a commit after which what it has freed is worth the wait for all
/// threads.
const LARGE_COMMIT: usize = if cfg!(test) { 32 } else { 1024 };

/// The versions that have written some pages one after the other; 0 where it is unknown.
struct Chunk {
    newest: u64,
    versions: [u64; CHUNK as usize],
}

/// How far the list of free pages was read, and with which readers: what was kept is still needed
/// as long as these are there.
#[derive(Default)]
struct Seen {
    end: u64,
    readers: Vec<u64>,
}

/// What this process knows of the pages that it has written.
#[derive(Default)]
pub(super) struct WrittenPages {
    chunks: HashMap<u64, Box<Chunk>>,
    /// The version that this process has committed last.
    committed: u64,
    /// The newest version at the last begin of a transaction, if this process has made it.
    own: u64,
    /// Whether that commit was large.
    is_large: bool,
    seen: Seen,
}

impl WrittenPages {
    fn clear(&mut self) {
        self.chunks = HashMap::new();
        self.own = 0;
        self.seen = Seen::default();
    }

    /// Note that a transaction was committed.
    pub(super) fn note_commit(&mut self, version: u64) {
        self.committed = version;
    }

    fn note(&mut self, run: ffi::pellucid_run, version: u64, oldest: u64) {
        let (first, count) = (run.first as u64, run.count as u64);
        for page in first..first.saturating_add(count) {
            let number = page / CHUNK;
            if !self.chunks.contains_key(&number) {
                if self.chunks.len() >= CHUNKS_MAX {
                    // No reader is older than these pages.
                    self.chunks.retain(|_, chunk| chunk.newest > oldest);
                }
                if self.chunks.len() >= CHUNKS_MAX {
                    continue;
                }
                self.chunks.insert(number, Box::new(Chunk { newest: 0, versions: [0; CHUNK as usize] }));
            }
            if let Some(chunk) = self.chunks.get_mut(&number)
                && let Some(of_page) = chunk.versions.get_mut((page % CHUNK) as usize)
            {
                chunk.newest = version;
                *of_page = version;
            }
        }
    }

    /// Forget pages that something else than LMDB writes.
    pub(super) fn forget(&mut self, first: u64, count: u64) {
        for page in first..first.saturating_add(count) {
            if let Some(chunk) = self.chunks.get_mut(&(page / CHUNK))
                && let Some(of_page) = chunk.versions.get_mut((page % CHUNK) as usize)
            {
                *of_page = 0;
            }
        }
    }

    /// The version that has written a page, or an earlier one.
    fn of(&self, page: u64) -> u64 {
        let chunk = self.chunks.get(&(page / CHUNK));
        chunk.and_then(|chunk| chunk.versions.get((page % CHUNK) as usize)).copied().unwrap_or(0)
    }

    /// Whether one of these readers, in ascending order, needs a page that version `freed` has
    /// freed.
    pub(super) fn is_pinned(&self, page: u64, freed: u64, readers: &[u64]) -> bool {
        let end = readers.partition_point(|reader| *reader < freed);
        let needing = readers.get(..end).unwrap_or_default();
        // A page cannot be freed before it was written, unless the file is damaged.
        needing.last().is_some_and(|last| {
            let written = self.of(page);
            *last >= written || written >= freed
        })
    }

    /// Where to begin to read the list of free pages: before that, all that is kept is needed as
    /// before.
    fn unseen_from(&self, readers: &[u64], oldest: u64) -> u64 {
        let gone = self.seen.readers.iter().find(|reader| readers.binary_search(reader).is_err());
        gone.map_or(self.seen.end, |gone| self.seen.end.min(*gone)).max(oldest)
    }
}

/// What is taken from the list of free pages, and what is left.
#[derive(Default)]
struct Choice {
    /// The versions whose entries change, ascending.
    versions: Vec<usize>,
    /// The pages that each of them keeps, descending.
    kept: Vec<Vec<u64>>,
    /// The pages that are used, descending.
    pages: Vec<u64>,
}

/// A list of pages, as the list of free pages has it.
fn list_of(pages: &[u64]) -> Vec<u64> {
    let mut list = Vec::with_capacity(pages.len() + 1);
    list.push(pages.len() as u64);
    list.extend(pages);
    list
}

fn value_of_list(list: &[u64]) -> ffi::MDB_val {
    ffi::MDB_val { mv_size: size_of_val(list), mv_data: list.as_ptr().cast_mut().cast() }
}

impl Environment {
    /// Let a transaction that has just begun use the pages that no reader needs. Returns false if
    /// it has to be begun again without that.
    pub(super) fn reuse_pages(&self, txn: *mut ffi::MDB_txn) -> Result<bool> {
        let written = &mut *self.free_pages.written();
        let mut count = 0;
        // SAFETY: the transaction is live, and the number ours to fill.
        let runs = unsafe { ffi::pellucid_take_written(txn, &raw mut count) };
        // SAFETY: the transaction is live.
        let newest = (unsafe { ffi::mdb_txn_id(txn) } as u64).saturating_sub(1);
        // A commit that changed nothing has written nothing, and made no version.
        let is_new = count > 0 && written.committed == newest;
        written.committed = 0;
        let is_own = is_new || written.own == newest;
        let mut readers = self.reader_versions();
        let is_behind = |readers: &[u64]| readers.first().is_some_and(|oldest| *oldest < newest);
        // SAFETY: these are as many runs, and nothing is written while they are used.
        let runs = if is_new { unsafe { std::slice::from_raw_parts(runs, count) } } else { &[] };
        if is_new {
            written.is_large = runs.iter().map(|run| run.count).sum::<usize>() >= LARGE_COMMIT;
        }
        let is_visible = is_own && written.is_large && is_behind(&readers) && os::memory_barrier();
        if is_visible {
            readers = self.reader_versions();
        }
        let oldest = readers.first().copied().filter(|_| is_behind(&readers));
        // What is used is listed under a version before the oldest one, and there is none before 1.
        let may_reuse = |oldest: &u64| is_own && *oldest > 1 && cfg!(target_endian = "little");
        let Some(oldest) = oldest.filter(may_reuse) else {
            written.clear();
            written.own = if is_own { newest } else { 0 };
            return Ok(true);
        };
        if !is_new {
            // What an aborted transaction has used is in the list again.
            written.seen = Seen::default();
        }
        written.own = newest;
        for run in runs {
            written.note(*run, newest, oldest);
        }
        let end = newest + u64::from(is_visible);
        let choice = choose(written, txn, &readers, (oldest, end))?;
        let is_taken = choice.pages.is_empty() || take(txn, oldest, &choice)?;
        if !is_taken {
            written.seen = Seen::default();
        }
        Ok(is_taken)
    }
}

/// Choose the pages that no reader needs, of those that LMDB does not use by itself and that were
/// freed by a version before `end`.
fn choose(
    written: &mut WrittenPages,
    txn: *mut ffi::MDB_txn,
    readers: &[u64],
    (oldest, end): (u64, u64),
) -> Result<Choice> {
    let mut choice = Choice::default();
    let mut from = written.unseen_from(readers, oldest);
    while choice.pages.len() < REUSED_MAX {
        let (mut version, mut list) = (from as usize, EMPTY);
        // SAFETY: the transaction is live, the two values ours to fill.
        let code = unsafe { ffi::pellucid_next_free(txn, &raw mut version, &raw mut list) };
        if code == ffi::MDB_NOTFOUND || (code == 0 && version as u64 >= end) {
            from = end;
            break;
        }
        check(code)?;
        from = version as u64 + 1;
        // SAFETY: nothing is written in the transaction before the list is copied.
        let pages = free_list(unsafe { bytes_of(list) });
        let pages =
            pages.ok_or(EngineError::Damaged { what: "the list of free pages is malformed", code: 0 })?;
        let is_kept = |page: &u64| written.is_pinned(*page, version as u64, readers);
        let (kept, used): (Vec<u64>, Vec<u64>) = pages.into_iter().partition(is_kept);
        if !used.is_empty() && used.len() >= kept.len() / KEPT_SHARE {
            choice.pages.extend(used);
            choice.versions.push(version);
            choice.kept.push(kept);
        }
    }
    let needing = readers.iter().copied().take_while(|reader| *reader < from);
    written.seen = Seen { end: from, readers: needing.collect() };
    choice.pages.sort_unstable_by(|one, other| other.cmp(one));
    Ok(choice)
}

/// Have the transaction take what was chosen. Returns false if it has to be begun again.
fn take(txn: *mut ffi::MDB_txn, oldest: u64, choice: &Choice) -> Result<bool> {
    let pages = list_of(&choice.pages);
    let kept: Vec<Vec<u64>> = choice.kept.iter().map(|pages| list_of(pages)).collect();
    let lists: Vec<ffi::MDB_val> = kept.iter().map(|list| value_of_list(list)).collect();
    let pages = value_of_list(&pages);
    let (versions, lists) = (&choice.versions, &lists);
    // SAFETY: the transaction is live and has changed nothing. The lists live during the call,
    // which copies them, and there is one for each version.
    let code = unsafe {
        ffi::pellucid_reuse(
            txn,
            oldest as usize,
            &raw const pages,
            versions.as_ptr(),
            lists.as_ptr(),
            versions.len(),
        )
    };
    match code {
        // A reader has ended meanwhile, or there is no memory or address space for it.
        ffi::MDB_NOTFOUND | ffi::MDB_MAP_FULL | libc::ENOMEM => Ok(false),
        ffi::MDB_CORRUPTED => {
            Err(EngineError::Damaged { what: "the list of free pages has a page twice", code })
        }
        code => check(code).map(|()| true),
    }
}

#[cfg(test)]
mod tests;
