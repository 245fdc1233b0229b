//! Keeps the newest commits of a database in memory, for watchers.
//!
//! It keeps a megabyte, or what `keep=` says. Keys and values are shared with the maps, so only
//! replaced ones take extra memory. Large values have a limit of their own: an old commit can lose
//! them and still report its other changes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::Tree;
use crate::engine::entry;
use crate::engine::history::{Commit, Keep, Next, WatchPosition};

/// Kept in any case.
const SIZE_MIN: u64 = 1 << 20;
/// Memory of an entry besides its key and its value.
const ENTRY_SIZE: u64 = 64;
/// Return commits of up to this many bytes at once, or one commit.
const BATCH_SIZE: usize = 256 << 10;

/// One change of a transaction.
#[derive(Clone)]
pub(crate) struct Op {
    pub(crate) tree: Tree,
    pub(crate) flags: u8,
    pub(crate) key: Arc<[u8]>,
    pub(crate) value: Option<Arc<[u8]>>,
}

impl Op {
    fn size(&self) -> u64 {
        ENTRY_SIZE + (self.key.len() + self.value.as_ref().map_or(0, |value| value.len())) as u64
    }
}

/// The changes of a transaction so far, unless they are too many to keep.
#[derive(Default)]
pub(crate) struct Ops {
    list: Vec<Op>,
    size: u64,
    /// Bytes of the large values in the list, which `size` leaves out.
    large_size: u64,
    size_max: u64,
    is_lost: bool,
}

impl Ops {
    pub(crate) fn push(&mut self, op: Op) {
        if op.tree == Tree::Blobs {
            let size = self.large_size + op.size();
            // A delete or clear of large values is not needed: the rows say the same.
            if op.flags == entry::PUT && !self.is_lost && size <= self.size_max {
                self.large_size = size;
                self.list.push(op);
            }
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

    /// Drop all changes but the first `count`.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.list.truncate(count);
        if !self.is_lost {
            let sizes = |is_large| {
                let ops = self.list.iter().filter(move |op| (op.tree == Tree::Blobs) == is_large);
                ops.map(Op::size).sum()
            };
            (self.size, self.large_size) = (sizes(false), sizes(true));
        }
    }
}

struct PastCommit {
    ops: Arc<Vec<Op>>,
    size: u64,
    large_size: u64,
    /// The time of the commit. `None` if there is no age limit.
    time: Option<Instant>,
}

/// The newest commits, in order.
pub(crate) struct Past {
    commits: VecDeque<PastCommit>,
    /// The version that the last of them made.
    version: u64,
    size: u64,
    /// Bytes of all large values, and the versions of the commits that have some.
    large_size: u64,
    with_large: VecDeque<u64>,
    keep: Keep,
}

impl Default for Past {
    fn default() -> Self {
        let (commits, with_large) = (VecDeque::new(), VecDeque::new());
        Self { commits, version: 0, size: 0, large_size: 0, with_large, keep: Keep::NOTHING }
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

    /// Add the commit of a transaction.
    pub(crate) fn add(&mut self, version: u64, ops: Ops) {
        self.version = version;
        if ops.is_lost {
            self.commits.clear();
            self.with_large.clear();
            (self.size, self.large_size) = (0, 0);
            return;
        }
        let Ops { list, size, large_size, .. } = ops;
        self.size += size;
        if large_size > 0 {
            self.large_size += large_size;
            self.with_large.push_back(version);
        }
        let time = (self.keep.seconds < u64::MAX).then(Instant::now);
        self.commits.push_back(PastCommit { ops: Arc::new(list), size, large_size, time });
        self.trim();
    }

    fn trim(&mut self) {
        let age_max = Duration::from_secs(self.keep.seconds);
        while self.size > SIZE_MIN
            && let Some(oldest) = self.commits.front()
            && (self.size > self.keep.size || oldest.time.is_some_and(|time| time.elapsed() > age_max))
        {
            self.size -= oldest.size;
            self.large_size -= oldest.large_size;
            self.commits.pop_front();
        }
        let since = self.since();
        while let Some(oldest) = self.with_large.front() {
            if *oldest > since && self.large_size <= self.keep.size.max(SIZE_MIN) {
                break;
            }
            let known = oldest.checked_sub(since + 1).and_then(|index| self.commits.get_mut(index as usize));
            if let Some(known) = known {
                let ops = known.ops.iter().filter(|op| op.tree != Tree::Blobs).cloned();
                known.ops = Arc::new(ops.collect());
                self.large_size -= std::mem::take(&mut known.large_size);
            }
            self.with_large.pop_front();
        }
    }

    /// Every commit after this version is known.
    pub(crate) fn since(&self) -> u64 {
        self.version - self.commits.len() as u64
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// See `CommitFeed::next_commits`. Returns shared references, which are converted outside of
    /// the lock.
    pub(crate) fn next(&self, place: &WatchPosition) -> Result<Vec<Shared>, Next> {
        if place.version >= self.version {
            return Err(Next::Nothing);
        }
        let Some(index) = place.version.checked_sub(self.since()) else { return Err(Next::Gone) };
        let (mut batch, mut size) = (Vec::new(), 0);
        for (version, known) in (place.version + 1..).zip(self.commits.iter().skip(index as usize)) {
            size += (known.size + known.large_size) as usize;
            if size > BATCH_SIZE && !batch.is_empty() {
                break;
            }
            batch.push(Shared { version, ops: Arc::clone(&known.ops) });
        }
        Ok(batch)
    }
}

/// A commit that is converted to bytes later, without the lock.
pub(crate) struct Shared {
    version: u64,
    ops: Arc<Vec<Op>>,
}

impl Shared {
    pub(crate) fn commit(&self) -> Commit {
        let mut bytes = Vec::new();
        for op in &*self.ops {
            let value: &[u8] = op.value.as_deref().unwrap_or_default();
            entry::push(&mut bytes, op.tree, op.flags, &op.key, &[value]);
        }
        Commit::new(self.version, bytes, 0, self.ops.len() as u32)
    }
}
