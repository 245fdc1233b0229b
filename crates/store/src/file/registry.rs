//! Which databases does this process have open?
//!
//! One environment for one file, however often and under whatever names it is opened: LMDB's locks belong
//! to the process and would be dropped by closing a second one.
//!
//! The registry's own lock is held for moments only, and by the fork handlers while a fork happens; what takes
//! long (waiting for other processes, opening) happens under the lock of one file's place.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

/// A file, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// What is open; the registry need not know more.
pub(crate) type Opened = dyn Any + Send + Sync;

/// Whether a file's database is open here.
pub(crate) enum Place {
    /// Nobody has it open.
    Closed,
    /// Somebody has, or is about to finish closing it when the reference is dead.
    Open(Weak<Opened>),
}

type Places = HashMap<FileId, Arc<Mutex<Place>>>;

static PLACES: LazyLock<Mutex<Places>> = LazyLock::new(Mutex::default);

/// The place of a file. Whoever opens the file holds its lock until it is open.
pub(crate) fn place_of(file: FileId) -> Arc<Mutex<Place>> {
    Arc::clone(hold().places.entry(file).or_insert_with(|| Arc::new(Mutex::new(Place::Closed))))
}

/// Whether this process has a file open.
pub(crate) fn is_open(file: FileId) -> bool {
    let place = hold().places.get(&file).cloned();
    place.is_some_and(|place| matches!(&*lock(&place), Place::Open(opened) if opened.strong_count() > 0))
}

/// Say that a file is closed, and forget its place unless somebody is about to use it.
pub(crate) fn close(file: FileId) {
    let Some(place) = hold().places.get(&file).cloned() else { return };
    *lock(&place) = Place::Closed;
    drop(place);
    let mut registry = hold();
    if registry.places.get(&file).is_some_and(|place| Arc::strong_count(place) == 1) {
        registry.places.remove(&file);
    }
}

pub(crate) fn lock(place: &Mutex<Place>) -> MutexGuard<'_, Place> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The registry, for as long as the guard lives.
pub(crate) struct RegistryGuard {
    places: MutexGuard<'static, Places>,
}

/// Wait for the registry and keep it.
pub(crate) fn hold() -> RegistryGuard {
    RegistryGuard { places: PLACES.lock().unwrap_or_else(PoisonError::into_inner) }
}

impl RegistryGuard {
    /// In a forked child: nothing of what the parent has open is ours. The places are leaked, since their
    /// locks may be held by threads that do not exist here.
    pub(crate) fn forget_all(&mut self) {
        std::mem::forget(std::mem::take(&mut *self.places));
    }
}
