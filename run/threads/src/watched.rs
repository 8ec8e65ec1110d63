//! What the workers of a pool and its [watcher](crate::watcher) let each other know: what a worker
//! does, and whether the watcher polls.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

use crate::fiber_table::FiberCounts;

/// What a worker lets the watcher know.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// The kernel's number of its thread; 0 for none.
    pub(crate) thread: AtomicU32,
    /// It waits for work.
    pub(crate) is_idle: AtomicBool,
    /// Its fibers spend their time in `sched_yield`.
    pub(crate) is_yielding: AtomicBool,
    pub(crate) fibers: Arc<FiberCounts>,
}

impl Watched {
    /// Whether this is another worker's, and that one has a thread.
    pub(crate) fn is_other_than(&self, one: &Watched) -> bool {
        !std::ptr::eq(self, one) && self.thread.load(Ordering::Relaxed) != 0
    }
}

/// Whether there is a watcher and what it does.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub(crate) is_on: AtomicBool,
    pub(crate) thread: OnceLock<Thread>,
}

impl Watch {
    /// Lets it poll, if it does not.
    #[inline]
    pub(crate) fn start(&self) {
        if !self.is_on.load(Ordering::Relaxed) {
            self.start_polling();
        }
    }

    #[cold]
    fn start_polling(&self) {
        self.is_on.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}
