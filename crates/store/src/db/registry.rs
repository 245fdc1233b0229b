//! The registry: which databases this process has open.
//!
//! A process has one environment for one file, however often and under whatever names the file is
//! opened. LMDB's locks belong to the process, and closing a second environment would release them.
//!
//! The registry's own lock is held only for moments, and by the fork handlers during a fork. Slow
//! steps (waiting for other processes, opening) happen under the lock of one file's place.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use crate::sys::file_id::FileId;
use crate::sys::os;

/// An open database; the registry need not know more.
pub(crate) type Opened = dyn Any + Send + Sync;

/// Whether a file's database is open in this process.
pub(crate) enum Registration {
    /// It is closed.
    Closed,
    /// It is open, or about to be closed if the reference is dead.
    Open(Weak<Opened>),
}

type Registrations = HashMap<FileId, Arc<Mutex<Registration>>>;

static PLACES: LazyLock<Mutex<Registrations>> = LazyLock::new(|| {
    os::at_fork(hold_while_forking, release_in_parent, forget_in_child);
    Mutex::default()
});

thread_local! {
    static HELD_WHILE_FORKING: RefCell<Option<RegistryGuard>> = const { RefCell::new(None) };
}

/// So that no other thread is changing the registry when the child gets its copy.
extern "C" fn hold_while_forking() {
    let guard = hold();
    HELD_WHILE_FORKING.with(|held| *held.borrow_mut() = Some(guard));
}

extern "C" fn release_in_parent() {
    HELD_WHILE_FORKING.with(|held| held.borrow_mut().take());
}

/// Nothing that the parent has open is ours. The places are leaked, since threads that do not exist
/// here may hold their locks.
extern "C" fn forget_in_child() {
    if let Some(mut registry) = HELD_WHILE_FORKING.with(|held| held.borrow_mut().take()) {
        std::mem::forget(std::mem::take(&mut *registry.places));
    }
}

/// The place of a file. A thread that opens the file holds the place's lock until it is open.
pub(crate) fn place_of(file: FileId) -> Arc<Mutex<Registration>> {
    Arc::clone(hold().places.entry(file).or_insert_with(|| Arc::new(Mutex::new(Registration::Closed))))
}

/// Whether this process has a file open.
pub(crate) fn is_open(file: FileId) -> bool {
    let place = hold().places.get(&file).cloned();
    place.is_some_and(
        |place| matches!(&*lock(&place), Registration::Open(opened) if opened.strong_count() > 0),
    )
}

/// Mark a file as closed, and remove its place unless another thread is about to use it.
pub(crate) fn close(file: FileId) {
    let Some(place) = hold().places.get(&file).cloned() else { return };
    *lock(&place) = Registration::Closed;
    drop(place);
    let mut registry = hold();
    if registry.places.get(&file).is_some_and(|place| Arc::strong_count(place) == 1) {
        registry.places.remove(&file);
    }
}

pub(crate) fn lock(place: &Mutex<Registration>) -> MutexGuard<'_, Registration> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The registry, locked while the guard lives.
pub(crate) struct RegistryGuard {
    places: MutexGuard<'static, Registrations>,
}

/// Lock the registry.
pub(crate) fn hold() -> RegistryGuard {
    RegistryGuard { places: PLACES.lock().unwrap_or_else(PoisonError::into_inner) }
}
