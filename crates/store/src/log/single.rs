//! How is one row changed, or read, without a transaction?
//!
//! What a dict is used for mostly is one key at a time. A transaction would gather a draft, read and write the counters, and make
//! a snapshot to read by: ten times the work. Here the row is looked up in the layers and the tree and its group is appended,
//! all under the two locks that a commit needs. Whatever is more than that, or would have to wait, goes the long way.

use std::sync::TryLockError;
use std::sync::atomic::Ordering;

use crate::engine::{AtOnce, Choice, Choose, EngineError, ReadTxn, Tree};
use crate::log::areas::Areas;
use crate::log::checkpoint::group_size_max;
use crate::log::engine::{LoggedEngine, Shared};
use crate::log::group::{self, Change};
use crate::log::lock;
use crate::log::state::State;

/// Memory beyond this is given back after a commit.
const SPARE_SIZE_MAX: usize = 1 << 20;

/// The writer lock for as long as a row takes.
struct Held<'a>(&'a Areas);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        lock::release(self.0);
    }
}

impl LoggedEngine {
    /// See [`crate::engine::Engine::change_row`].
    #[inline]
    pub(crate) fn change_row_at_once(
        &self,
        key: &[u8],
        known: u64,
        choose: &mut Choose<'_>,
    ) -> Result<AtOnce<()>, EngineError> {
        // The first commit starts the keeper, on the long way.
        if !self.has_keeper.load(Ordering::Relaxed) {
            return Ok(AtOnce::Unable);
        }
        self.shared.check_sound()?;
        if !lock::try_acquire(&self.shared.areas) {
            return Ok(AtOnce::Unable);
        }
        let _held = Held(&self.shared.areas);
        self.shared.change_row(key, known, choose)
    }

    /// See [`crate::engine::Engine::show_row`].
    #[inline]
    pub(crate) fn show_row_at_once(
        &self,
        key: &[u8],
        known: u64,
        show: &mut dyn FnMut(Option<&[u8]>),
    ) -> Result<AtOnce<()>, EngineError> {
        let shared = &self.shared;
        let mut state = match shared.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(AtOnce::Unable),
        };
        let tree = state.read(&*shared.tree, &shared.areas)?;
        if state.catalog_version() > known {
            return Ok(AtOnce::Stale);
        }
        show(state.find(&*tree, key)?);
        Ok(AtOnce::Done(()))
    }
}

impl Shared {
    /// For whoever holds the writer lock.
    #[inline]
    fn change_row(&self, key: &[u8], known: u64, choose: &mut Choose<'_>) -> Result<AtOnce<()>, EngineError> {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(AtOnce::Unable),
        };
        let (tree, areas) = (&*self.tree, &self.areas);
        let below = state.read(tree, areas)?;
        if state.catalog_version() > known {
            return Ok(AtOnce::Stale);
        }
        let (mut value, mut bytes) = std::mem::take(&mut state.spare);
        value.clear();
        let old = state.find(&*below, key)?;
        let was_there = old.is_some();
        let choice = choose(old, &mut value);
        group::begin_in(&mut bytes);
        let change = match choice {
            Choice::Put => Some(group::push_put(&mut bytes, Tree::Rows, key, &[&value])),
            Choice::Delete => Some(group::push_delete(&mut bytes, Tree::Rows, key)),
            Choice::Leave => None,
        };
        let done = match change {
            Some(change) => {
                self.append_row(&mut state, &mut bytes, change, was_there != (choice == Choice::Put))
            }
            None => Ok(AtOnce::Unable),
        };
        if value.capacity() + bytes.capacity() <= SPARE_SIZE_MAX {
            state.spare = (value, bytes);
        }
        done
    }

    /// Append the group of one row, if there is room.
    #[inline]
    fn append_row(
        &self,
        state: &mut State,
        bytes: &mut Vec<u8>,
        mut change: Change,
        is_counted: bool,
    ) -> Result<AtOnce<()>, EngineError> {
        let areas = &self.areas;
        if is_counted {
            group::count_first(bytes, &mut change);
        }
        let size = group::size_of(bytes);
        let used = areas.tail().saturating_sub(areas.begin_of(areas.active()));
        if size > group_size_max(areas) || used + size as u64 > areas.room() || areas.has_found() {
            return Ok(AtOnce::Unable);
        }
        state.append_one(&*self.tree, areas, bytes, &change)?;
        Ok(AtOnce::Done(()))
    }
}

impl State {
    /// The newest value of a row, over the tree that goes with the layers.
    #[inline]
    fn find<'a>(&'a self, tree: &'a dyn ReadTxn, key: &[u8]) -> Result<Option<&'a [u8]>, EngineError> {
        let live = self.layers.iter().rev().filter(|placed| placed.end > self.applied.position);
        for placed in live {
            if let Some(said) = placed.layer.find(Tree::Rows, key, u64::MAX) {
                return Ok(said.value());
            }
        }
        tree.get(Tree::Rows, key)
    }
}
