//! What a rank's threads and its [progress thread](crate::ProgressThread) know of each other.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::Thread;

use margay_sys_os::lock::RankLock;

use crate::engine::Engine;

/// The state that a rank's threads and its progress thread share.
#[derive(Debug)]
pub(crate) struct Helper {
    pub(crate) is_there: AtomicBool,
    /// It sleeps until somebody unparks it: arrivals do not concern it.
    pub(crate) is_parked: AtomicBool,
    /// Threads of the program that wait in a call and make progress there.
    pub(crate) waiting: AtomicU32,
    thread: Mutex<Option<Thread>>,
    /// How long the progress thread spins after something has moved, in nanoseconds.
    pub(crate) spin_ns: AtomicU64,
}

impl Default for Helper {
    fn default() -> Self {
        Helper {
            is_there: AtomicBool::default(),
            is_parked: AtomicBool::default(),
            waiting: AtomicU32::default(),
            thread: Mutex::default(),
            spin_ns: AtomicU64::new(SPIN_NS),
        }
    }
}

/// A thread of the program is waiting.
pub(crate) struct InWait<'a> {
    helper: &'a Helper,
    engine: &'a RankLock<Engine>,
}

impl Helper {
    pub(crate) fn thread(&self) -> std::sync::MutexGuard<'_, Option<Thread>> {
        self.thread.lock().expect("no panic under this lock")
    }

    /// Whether there is a progress thread.
    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Relaxed)
    }

    /// A thread of the program is about to wait and make progress.
    #[inline]
    pub(crate) fn pause<'a>(&'a self, engine: &'a RankLock<Engine>) -> Option<InWait<'a>> {
        self.is_there().then(|| {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            InWait {
                helper: self,
                engine,
            }
        })
    }

    /// Something is under way that nobody waits for. Call with the engine locked, or after a wait:
    /// then either this sees that the progress thread has parked, or the progress thread sees what
    /// is under way before it parks.
    #[inline]
    pub(crate) fn resume(&self) {
        if self.is_parked.load(Ordering::SeqCst) && self.waiting.load(Ordering::SeqCst) == 0 {
            self.unpark();
        }
    }

    #[cold]
    fn unpark(&self) {
        if let Some(thread) = &*self.thread() {
            thread.unpark();
        }
    }
}

impl Drop for InWait<'_> {
    fn drop(&mut self) {
        let helper = self.helper;
        helper.waiting.fetch_sub(1, Ordering::SeqCst);
        if helper.is_parked.load(Ordering::SeqCst) && self.engine.lock().has_requests() {
            helper.resume();
        }
    }
}

/// The default of [`Helper::spin_ns`].
const SPIN_NS: u64 = 200_000;
