//! A background thread that frees resources, so that closing does not wait for it.
//!
//! Unmapping a log and freeing its disk space take as long as a tenth of closing a small database,
//! and longer if the log was long or each freed block is reported to the disk (`discard`). A thread
//! does this while the closing thread goes on. It is the checkpointer's thread if there is one,
//! since starting another takes as long again.

use std::sync::mpsc::{Sender, channel};
use std::thread::{self, Thread};

use crate::sys::os;

/// Something that is freed by being dropped.
type Spent = Box<dyn Send>;

/// A thread that drops what it is given. It ends when this is dropped.
pub struct Reclaimer {
    hand: Option<Sender<Spent>>,
    thread: Thread,
    generation: u64,
}

impl Reclaimer {
    /// Start a thread that does some `work` first, and then only drops what it is given.
    pub(crate) fn begin(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<Self> {
        let (hand, handed) = channel::<Spent>();
        let all = move || {
            work();
            // Until the sender is dropped.
            handed.into_iter().for_each(drop);
        };
        let handle = thread::Builder::new().name(name.to_owned()).spawn(all)?;
        Ok(Self { hand: Some(hand), thread: handle.thread().clone(), generation: os::generation() })
    }

    /// The thread, to wake it from its work.
    pub(crate) fn thread(&self) -> &Thread {
        &self.thread
    }

    /// Give it something to drop.
    pub(crate) fn hand(&self, spent: impl Send + 'static) {
        if let Some(hand) = &self.hand {
            // If the thread has ended, it is dropped here.
            let _ = hand.send(Box::new(spent));
        }
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        let hand = self.hand.take();
        if self.generation == os::generation() {
            drop(hand);
            // It may be asleep in its work.
            self.thread.unpark();
        } else {
            // The thread is the parent's, and so is any lock that it held when the process forked.
            std::mem::forget(hand);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn what_is_handed_over_is_dropped_by_another_thread_once_its_work_is_done() {
        struct ReportsDrop(Sender<thread::ThreadId>);
        impl Drop for ReportsDrop {
            fn drop(&mut self) {
                self.0.send(thread::current().id()).unwrap();
            }
        }
        let (tell, told) = channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let work = move || {
            while !ends.load(Ordering::Acquire) {
                thread::park();
            }
        };
        let reclaimer = Reclaimer::begin("reclaims", work).unwrap();
        let own = reclaimer.thread().id();
        reclaimer.hand(ReportsDrop(tell.clone()));
        reclaimer.hand(ReportsDrop(tell));
        assert!(told.try_recv().is_err(), "it is at work");
        is_over.store(true, Ordering::Release);
        // Dropping wakes it.
        drop(reclaimer);
        assert_eq!(told.iter().collect::<Vec<_>>(), [own, own]);
    }
}
