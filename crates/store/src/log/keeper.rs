//! Who keeps the log short and synced?
//!
//! A thread of each process that has written, from its first commit on: once a second it syncs what nobody has synced, and it
//! runs a checkpoint when the active area is half full or its oldest group has waited for some seconds. It waits for no
//! writer, and nobody waits for it unless the log is full.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::engine::EngineError;
use crate::log::checkpoint::Done;
use crate::log::engine::Shared;
use crate::log::sync::Extent;
use crate::os;

/// How long a commit of `process` may stay unsynced: less than a second, so that it is one with a tick and the sync itself.
const SYNC_INTERVAL: Duration = Duration::from_millis(900);
/// How long a group may stay out of the tree.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(5);
/// How often it looks how full the area is.
const TICK: Duration = Duration::from_millis(50);

/// The right to have a log kept: when this is dropped, the thread has let go of it, and is about to end. Nobody waits for that: to be woken
/// and to end takes a thread as long as a tenth of closing.
pub(crate) struct Keeper {
    kept: Arc<Kept>,
    generation: u64,
}

/// What the thread keeps; none when it is to end. Locked while it works.
struct Kept {
    shared: Mutex<Option<Arc<Shared>>>,
    changed: Condvar,
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Shared>>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keeper {
    /// Begin to keep a log.
    pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<Self> {
        let kept = Kept { shared: Mutex::new(Some(Arc::clone(shared))), changed: Condvar::new() };
        let kept = Arc::new(kept);
        let own = Arc::clone(&kept);
        thread::Builder::new().name("pellucid-log".to_owned()).spawn(move || keep(&own))?;
        Ok(Self { kept, generation: os::generation() })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if self.generation != os::generation() {
            // The thread is the parent's, and its locks may be held for ever here.
            std::mem::forget(Arc::clone(&self.kept));
            return;
        }
        let shared = self.kept.lock().take();
        self.kept.changed.notify_one();
        drop(shared);
    }
}

/// Since when the oldest group has waited, after a checkpoint that ended so. Whoever was in the way has made none of them younger.
fn waiting_since(since: Option<Instant>, done: &Result<Done, EngineError>) -> Option<Instant> {
    since.filter(|_| matches!(done, Ok(Done::InTheWay)))
}

fn keep(kept: &Kept) {
    let mut synced = Instant::now();
    let mut unapplied_since: Option<Instant> = None;
    let mut place = kept.lock();
    while place.is_some() {
        place = kept.changed.wait_timeout(place, TICK).unwrap_or_else(PoisonError::into_inner).0;
        let Some(shared) = &*place else { return };
        if synced.elapsed() >= SYNC_INTERVAL {
            synced = Instant::now();
            // An error is seen by whoever asks for a sync, and by the checkpoint.
            let _ = shared.sync(Extent::Whole);
            shared.let_go();
        }
        let (pending, room) = (shared.pending(), shared.areas.room());
        if pending == 0 {
            unapplied_since = None;
        }
        let since = if pending == 0 { None } else { Some(*unapplied_since.get_or_insert_with(Instant::now)) };
        let is_old = since.is_some_and(|since| since.elapsed() >= CHECKPOINT_INTERVAL);
        if pending >= room / 2 || is_old {
            // What fails is tried again, and is told to the writer that finds no room.
            let until = Instant::now() + TICK;
            let done = shared.checkpoint_until(until, until, &mut || true);
            unapplied_since = waiting_since(since, &done);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_that_found_somebody_in_the_way_is_tried_again_at_once() {
        let since = Some(Instant::now());
        assert_eq!(waiting_since(since, &Ok(Done::InTheWay)), since);
        assert_eq!(waiting_since(since, &Ok(Done::Nothing)), None);
        // What fails at the disk is not tried twenty times a second.
        assert_eq!(waiting_since(since, &Err(EngineError::Broken)), None);
    }
}
