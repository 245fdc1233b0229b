//! How is one row changed, or read, without a transaction?
//!
//! What a dict is used for mostly is one key at a time. A transaction would gather a draft, read and write the counters, and make
//! a snapshot to read by: ten times the work. Here the row is looked up in the layers and the tree and its group is appended,
//! all under the two locks that a commit needs. Whatever is more than that, or would have to wait, goes the long way.

use std::sync::atomic::Ordering;

use crate::engine::{AtOnce, Choice, Choose, EngineError, HashedKey};
use crate::log::areas::Areas;
use crate::log::checkpoint::group_size_max;
use crate::log::engine::{LoggedEngine, Shared};
use crate::log::group::{self, Change};
use crate::log::layer::Place;
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
        self.alone(|shared| shared.change_row(key, known, choose))
    }

    /// See [`crate::engine::Engine::put_row`].
    #[inline]
    pub(crate) fn put_row_at_once(
        &self,
        key: HashedKey<'_>,
        known: u64,
        value: &[u8],
        may_replace: fn(&[u8]) -> bool,
    ) -> Result<AtOnce<bool>, EngineError> {
        self.alone(|shared| shared.put_row(key, known, value, may_replace))
    }

    /// Does `work` with the writer lock, if it can be had at once.
    #[inline]
    fn alone<R>(
        &self,
        work: impl FnOnce(&Shared) -> Result<AtOnce<R>, EngineError>,
    ) -> Result<AtOnce<R>, EngineError> {
        // The first commit starts the keeper, on the long way.
        if !self.has_keeper.load(Ordering::Relaxed) {
            return Ok(AtOnce::Unable);
        }
        self.shared.check_sound()?;
        if !lock::try_acquire(&self.shared.areas) {
            return Ok(AtOnce::Unable);
        }
        let _held = Held(&self.shared.areas);
        work(&self.shared)
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
        let Some(mut state) = shared.state_at_once() else { return Ok(AtOnce::Unable) };
        let below = state.read_row(&*shared.tree, &shared.areas)?;
        if state.catalog_version() > known {
            return Ok(AtOnce::Stale);
        }
        show(state.find(below.as_ref(), HashedKey::of(key))?);
        Ok(AtOnce::Done(()))
    }
}

/// What became of an append. Where room or memory was short nothing was done, and a transaction can make some.
#[inline]
fn able<R>(appended: Result<(), EngineError>, done: R) -> Result<AtOnce<R>, EngineError> {
    match appended {
        Ok(()) => Ok(AtOnce::Done(done)),
        Err(EngineError::DiskFull(_) | EngineError::NoMemory(_)) => Ok(AtOnce::Unable),
        Err(error) => Err(error),
    }
}

impl Shared {
    /// For whoever holds the writer lock.
    #[inline]
    fn change_row(&self, key: &[u8], known: u64, choose: &mut Choose<'_>) -> Result<AtOnce<()>, EngineError> {
        let Some(mut state) = self.state_at_once() else { return Ok(AtOnce::Unable) };
        let areas = &self.areas;
        let below = state.read_row(&*self.tree, areas)?;
        if state.catalog_version() > known {
            return Ok(AtOnce::Stale);
        }
        let Some(last) = state.last_to_append(areas) else { return Ok(AtOnce::Unable) };
        // Looked up once, to read it and to add to it: each takes a hash of the key, and a look at what has the same.
        let hashed = HashedKey::of(key);
        let place = last.layer.place_of_row(hashed);
        let mut bytes = std::mem::take(&mut state.spare);
        let key_at = group::begin_row(&mut bytes, key);
        let old = state.find_at(place, below.as_ref(), hashed)?;
        let was_there = old.is_some();
        let choice = choose(old, &mut bytes);
        let change = match choice {
            Choice::Put => Some(group::end_put(&mut bytes, key_at)),
            Choice::Delete => Some(group::end_delete(&mut bytes, key_at)),
            Choice::Leave => None,
        };
        let done = match change {
            Some(change) => {
                self.append_row(&mut state, place, &mut bytes, change, was_there != (choice == Choice::Put))
            }
            None => Ok(AtOnce::Unable),
        };
        if bytes.capacity() <= SPARE_SIZE_MAX {
            state.spare = bytes;
        }
        done
    }

    /// As `change_row`, for a row of which all is known, if it is as short as nearly all are.
    #[inline]
    fn put_row(
        &self,
        key: HashedKey<'_>,
        known: u64,
        value: &[u8],
        may_replace: fn(&[u8]) -> bool,
    ) -> Result<AtOnce<bool>, EngineError> {
        let Some(mut state) = self.state_at_once() else { return Ok(AtOnce::Unable) };
        let areas = &self.areas;
        let below = state.read_row(&*self.tree, areas)?;
        if state.catalog_version() > known {
            return Ok(AtOnce::Stale);
        }
        let Some(last) = state.last_to_append(areas) else { return Ok(AtOnce::Unable) };
        let (place, used) = (last.layer.place_of_row(key), last.end - last.head.begin);
        let old = state.find_at(place, below.as_ref(), key)?;
        if !old.is_none_or(may_replace) {
            return Ok(AtOnce::Unable);
        }
        let was_there = old.is_some();
        let Some(size) = state.short.begin(key, value, !was_there) else { return Ok(AtOnce::Unable) };
        if size > group_size_max(areas) || used + size as u64 > areas.room() || areas.has_found() {
            return Ok(AtOnce::Unable);
        }
        able(state.append_short(areas, place), was_there)
    }

    /// Append the group of one row, if there is room.
    #[inline]
    fn append_row(
        &self,
        state: &mut State,
        place: Place,
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
        able(state.append_one(areas, place, bytes, &change), ())
    }
}
