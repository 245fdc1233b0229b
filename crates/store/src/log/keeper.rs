//! Who keeps the log short and synced?
//!
//! A thread of each process that has written, from its first commit on: once a second it syncs what nobody has synced, and it
//! runs a checkpoint when the active area is half full or its oldest group has waited for some seconds. It waits for no
//! writer, and nobody waits for it unless the log is full.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
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

/// The thread, which ends when this is dropped.
pub(crate) struct Keeper {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
    generation: u64,
}

#[derive(Default)]
struct Stop {
    is_asked: Mutex<bool>,
    asked: Condvar,
}

impl Keeper {
    /// Begin to keep a log.
    pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<Self> {
        let stop = Arc::new(Stop::default());
        let (shared, own_stop) = (Arc::clone(shared), Arc::clone(&stop));
        let thread =
            thread::Builder::new().name("pellucid-log".to_owned()).spawn(move || keep(&shared, &own_stop))?;
        Ok(Self { stop, thread: Some(thread), generation: os::generation() })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.generation != os::generation() {
            // The thread is the parent's, and its locks may be held for ever here.
            std::mem::forget(thread);
            std::mem::forget(Arc::clone(&self.stop));
            return;
        }
        *self.stop.is_asked.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.asked.notify_one();
        let _ = thread.join();
    }
}

/// Since when the oldest group has waited, after a checkpoint that ended so. Whoever was in the way has made none of them younger.
fn waiting_since(since: Option<Instant>, done: &Result<Done, EngineError>) -> Option<Instant> {
    since.filter(|_| matches!(done, Ok(Done::InTheWay)))
}

fn keep(shared: &Arc<Shared>, stop: &Stop) {
    let mut synced = Instant::now();
    let mut unapplied_since: Option<Instant> = None;
    let mut is_asked = stop.is_asked.lock().unwrap_or_else(PoisonError::into_inner);
    while !*is_asked {
        is_asked = stop.asked.wait_timeout(is_asked, TICK).unwrap_or_else(PoisonError::into_inner).0;
        drop(is_asked);
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
        is_asked = stop.is_asked.lock().unwrap_or_else(PoisonError::into_inner);
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
