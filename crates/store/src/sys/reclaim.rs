//! Who gives back what takes the system a while?
//!
//! The map of a log and its room on the disk take as long as a tenth of closing a small database, and longer where the log was long or the
//! disk is told of each piece that it gets back (`discard`). A thread gives them back while whoever has closed goes on: the one that
//! kept the log, where there is one, since to begin another takes as long again.

use std::sync::mpsc::{Sender, channel};
use std::thread::{self, Thread};

use crate::sys::os;

/// Something that is given back by being dropped.
type Spent = Box<dyn Send>;

/// A thread that drops what it is handed, and ends when this is dropped.
pub struct Reclaimer {
    hand: Option<Sender<Spent>>,
    thread: Thread,
    generation: u64,
}

impl Reclaimer {
    /// Begin a thread that does some `work` first, and then has nothing else to do than this.
    pub(crate) fn begin(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<Self> {
        let (hand, handed) = channel::<Spent>();
        let all = move || {
            work();
            // Until nothing more can come.
            handed.into_iter().for_each(drop);
        };
        let handle = thread::Builder::new().name(name.to_owned()).spawn(all)?;
        Ok(Self { hand: Some(hand), thread: handle.thread().clone(), generation: os::generation() })
    }

    /// The thread, to wake it from its work.
    pub(crate) fn thread(&self) -> &Thread {
        &self.thread
    }

    /// Hand it something to drop.
    pub(crate) fn hand(&self, spent: impl Send + 'static) {
        if let Some(hand) = &self.hand {
            // Where the thread is no more it is dropped here.
            let _ = hand.send(Box::new(spent));
        }
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        let hand = self.hand.take();
        if self.generation == os::generation() {
            drop(hand);
            // It may be asleep at its work.
            self.thread.unpark();
        } else {
            // The thread is the parent's, and so is whatever lock it had when the process forked.
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
        struct Told(Sender<thread::ThreadId>);
        impl Drop for Told {
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
        reclaimer.hand(Told(tell.clone()));
        reclaimer.hand(Told(tell));
        assert!(told.try_recv().is_err(), "it is at work");
        is_over.store(true, Ordering::Release);
        // Wakes it.
        drop(reclaimer);
        assert_eq!(told.iter().collect::<Vec<_>>(), [own, own]);
    }
}
