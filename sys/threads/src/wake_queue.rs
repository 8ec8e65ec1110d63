//! The wake queue of a worker: fibers of it that other threads have woken.
//!
//! A stack of fiber numbers. Any thread pushes; the owner takes all entries with one exchange, so
//! there is no pop that could read an entry twice. A fiber is in the queue at most once:
//! `is_queued` is set by the thread that pushes it and cleared by the owner before the fiber runs.
//! Both are sequentially consistent exchanges: a waker that finds `is_queued` set has changed what
//! the fiber waits for before, and the fiber reads that after the owner cleared the flag.

use std::sync::OnceLock;

use margay_sys_os::sync::{AtomicBool, AtomicU32, Ordering};

/// Fibers of one chunk of the queue's table.
const CHUNK: usize = if cfg!(loom) { 2 } else { 256 };
/// Chunks of the table.
const CHUNKS: usize = if cfg!(loom) { 1 } else { 256 };
/// Fibers that a worker can have at once. Each has two memory mappings, and Linux allows a process
/// 65,530.
pub const MAX_FIBERS: usize = CHUNK * CHUNKS;

#[derive(Debug)]
struct WakeEntry {
    is_queued: AtomicBool,
    /// The fiber below, plus one; 0 at the bottom.
    below: AtomicU32,
}

impl WakeEntry {
    fn new() -> WakeEntry {
        WakeEntry {
            is_queued: AtomicBool::new(false),
            below: AtomicU32::new(0),
        }
    }
}

/// See the module. Bounded by [`MAX_FIBERS`].
#[derive(Debug)]
pub struct WakeQueue {
    /// The fiber on top, plus one; 0 when empty.
    top: AtomicU32,
    entries: Box<[OnceLock<Box<[WakeEntry]>>]>,
}

impl Default for WakeQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl WakeQueue {
    /// An empty queue.
    #[must_use]
    pub fn new() -> WakeQueue {
        WakeQueue {
            top: AtomicU32::new(0),
            entries: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Enters a fiber. Returns false when it was in the queue already.
    pub fn push(&self, fiber: u32) -> bool {
        let entry = self.entry(fiber);
        if entry.is_queued.swap(true, Ordering::SeqCst) {
            return false;
        }
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            entry.below.store(top, Ordering::Relaxed);
            match self.top.compare_exchange_weak(
                top,
                fiber + 1,
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(seen) => top = seen,
            }
        }
    }

    /// Whether it seems to have no entry.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.top.load(Ordering::Relaxed) == 0
    }

    /// Takes all entries, the youngest first. For the owner.
    pub fn drain(&self, mut each: impl FnMut(u32)) {
        let mut top = self.top.swap(0, Ordering::SeqCst);
        while top != 0 {
            let fiber = top - 1;
            let entry = self.entry(fiber);
            // Read before the flag is cleared: from then on the entry may be pushed again.
            top = entry.below.load(Ordering::Relaxed);
            entry.is_queued.swap(false, Ordering::SeqCst);
            each(fiber);
        }
    }

    fn entry(&self, fiber: u32) -> &WakeEntry {
        let at = fiber as usize;
        let chunk =
            self.entries[at / CHUNK].get_or_init(|| (0..CHUNK).map(|_| WakeEntry::new()).collect());
        &chunk[at % CHUNK]
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::Arc;

    use super::*;

    /// Two threads change what the fibers of a worker wait for and wake one each, or both the same
    /// one: the worker sees each change.
    #[test]
    fn wake_queue_loses_no_wake() {
        for fibers in [[0, 1], [1, 1]] {
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(3);
            builder.check(move || {
                let shared = Arc::new((WakeQueue::new(), AtomicU32::new(0)));
                // The model does not know the standard library's lock by which a chunk is made.
                shared.0.entry(0);
                let wakers: Vec<_> = fibers
                    .into_iter()
                    .map(|fiber| {
                        let shared = shared.clone();
                        loom::thread::spawn(move || {
                            shared.1.fetch_add(1, Ordering::Relaxed);
                            shared.0.push(fiber);
                        })
                    })
                    .collect();
                let (queue, changes) = &*shared;
                let mut seen = 0;
                while seen < 2 {
                    // A fiber reads what it waits for only when it has been woken.
                    queue.drain(|fiber| {
                        assert!(fibers.contains(&fiber));
                        seen = changes.load(Ordering::Relaxed);
                    });
                    if seen < 2 {
                        loom::thread::yield_now();
                    }
                }
                for waker in wakers {
                    waker.join().unwrap();
                }
            });
        }
    }
}
