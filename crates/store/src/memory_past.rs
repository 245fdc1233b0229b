//! Which commits of a database in memory can still be told one by one?
//!
//! The newest ones, up to a megabyte or to what `keep=` says. Keys and values are shared with the maps, so that
//! only what was replaced since takes room of its own. Nobody asks for the tree of large values, which would take more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::Tree;
use crate::entry;
use crate::history::{Commit, Keep, Next, Place};

/// Kept in any case.
const SIZE_MIN: u64 = 1 << 20;
/// What an entry takes beside its key and its value.
const ENTRY_SIZE: u64 = 64;
/// Bytes of commits that are given at once, or one commit.
const BATCH_SIZE: usize = 256 << 10;

/// One thing that a transaction wrote.
#[derive(Clone)]
pub(crate) struct Op {
    pub(crate) tree: Tree,
    pub(crate) mark: u8,
    pub(crate) key: Arc<[u8]>,
    pub(crate) value: Option<Arc<[u8]>>,
}

impl Op {
    fn size(&self) -> u64 {
        ENTRY_SIZE + (self.key.len() + self.value.as_ref().map_or(0, |value| value.len())) as u64
    }
}

/// What a transaction has written so far, unless it is too much to be kept.
#[derive(Default)]
pub(crate) struct Ops {
    list: Vec<Op>,
    size: u64,
    size_max: u64,
    is_lost: bool,
}

impl Ops {
    pub(crate) fn push(&mut self, op: Op) {
        if op.tree == Tree::Blobs {
            return;
        }
        self.size += op.size();
        self.is_lost |= self.size > self.size_max;
        if self.is_lost {
            self.list = Vec::new();
        } else {
            self.list.push(op);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.list.len()
    }

    /// Forget what came behind so many.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.list.truncate(count);
        if !self.is_lost {
            self.size = self.list.iter().map(Op::size).sum();
        }
    }
}

struct Known {
    ops: Arc<Vec<Op>>,
    size: u64,
    /// When it was committed, where it is not to be kept for ever.
    time: Option<Instant>,
}

/// The commits that made the newest versions, one behind the other.
pub(crate) struct Past {
    commits: VecDeque<Known>,
    /// The version that the last of them made.
    version: u64,
    size: u64,
    keep: Keep,
}

impl Default for Past {
    fn default() -> Self {
        Self { commits: VecDeque::new(), version: 0, size: 0, keep: Keep::NOTHING }
    }
}

impl Past {
    pub(crate) fn begin(&self) -> Ops {
        Ops { size_max: self.keep.size.max(SIZE_MIN), ..Ops::default() }
    }

    pub(crate) fn set_keep(&mut self, keep: Keep) {
        self.keep = keep;
        self.trim();
    }

    /// A transaction was committed.
    pub(crate) fn add(&mut self, version: u64, ops: Ops) {
        self.version = version;
        if ops.is_lost {
            self.commits.clear();
            self.size = 0;
            return;
        }
        self.size += ops.size;
        let time = (self.keep.seconds < u64::MAX).then(Instant::now);
        self.commits.push_back(Known { size: ops.size, ops: Arc::new(ops.list), time });
        self.trim();
    }

    fn trim(&mut self) {
        let age_max = Duration::from_secs(self.keep.seconds);
        while self.size > SIZE_MIN
            && let Some(oldest) = self.commits.front()
            && (self.size > self.keep.size || oldest.time.is_some_and(|time| time.elapsed() > age_max))
        {
            self.size -= oldest.size;
            self.commits.pop_front();
        }
    }

    /// Every commit behind this version is known.
    pub(crate) fn since(&self) -> u64 {
        self.version - self.commits.len() as u64
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// As `Engine::next_commits`, but only shares of what is to be told.
    pub(crate) fn next(&self, place: &Place) -> Result<Vec<Shared>, Next> {
        if place.version >= self.version {
            return Err(Next::Nothing);
        }
        let Some(index) = place.version.checked_sub(self.since()) else { return Err(Next::Gone) };
        let (mut batch, mut size) = (Vec::new(), 0);
        for (version, known) in (place.version + 1..).zip(self.commits.iter().skip(index as usize)) {
            size += known.size as usize;
            if size > BATCH_SIZE && !batch.is_empty() {
                break;
            }
            batch.push(Shared { version, ops: Arc::clone(&known.ops) });
        }
        Ok(batch)
    }
}

/// A commit that is still to be written out, without anybody waiting for it.
pub(crate) struct Shared {
    version: u64,
    ops: Arc<Vec<Op>>,
}

impl Shared {
    pub(crate) fn commit(&self) -> Commit {
        let mut bytes = Vec::new();
        for op in &*self.ops {
            let value: &[u8] = op.value.as_deref().unwrap_or_default();
            entry::push(&mut bytes, op.tree, op.mark, &op.key, &[value]);
        }
        Commit::new(self.version, bytes, 0, self.ops.len() as u32)
    }
}
