//! Where other workers leave the fibers that they have woken.
//!
//! A stack of fiber numbers: anybody pushes, the owner takes all at once, so that no entry can be pushed again
//! between the two reads of a pop (there is no pop). A fiber is in it at most once: `queued` is set by who pushes it and
//! cleared by the owner before the fiber runs. Both are sequentially consistent exchanges: who finds `queued` set
//! has changed what the fiber waits for before, and the fiber looks at that after the owner cleared the mark.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Fibers of one chunk of the table.
const CHUNK: usize = 256;
/// Chunks of the table.
const CHUNKS: usize = 256;
/// Fibers that a worker can have at once. Each has two memory mappings, and Linux allows a process 65,530.
pub(crate) const MAX_FIBERS: usize = CHUNK * CHUNKS;

#[derive(Debug, Default)]
struct Entry {
    queued: AtomicBool,
    /// The fiber below, plus one; 0 at the bottom.
    below: AtomicU32,
}

#[derive(Debug)]
pub(crate) struct Inbox {
    /// The fiber on top, plus one; 0 when empty.
    top: AtomicU32,
    entries: Box<[OnceLock<Box<[Entry]>>]>,
}

impl Inbox {
    pub(crate) fn new() -> Inbox {
        Inbox {
            top: AtomicU32::new(0),
            entries: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Leaves a fiber here. False: it was here already.
    pub(crate) fn push(&self, fiber: u32) -> bool {
        let entry = self.entry(fiber);
        if entry.queued.swap(true, Ordering::SeqCst) {
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

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.top.load(Ordering::Relaxed) == 0
    }

    /// Takes all, the youngest first. For the owner.
    pub(crate) fn drain(&self, mut each: impl FnMut(u32)) {
        let mut top = self.top.swap(0, Ordering::SeqCst);
        while top != 0 {
            let fiber = top - 1;
            let entry = self.entry(fiber);
            // Read before the mark is cleared: from then on the entry may be pushed again.
            top = entry.below.load(Ordering::Relaxed);
            entry.queued.swap(false, Ordering::SeqCst);
            each(fiber);
        }
    }

    fn entry(&self, fiber: u32) -> &Entry {
        let at = fiber as usize;
        let chunk =
            self.entries[at / CHUNK].get_or_init(|| (0..CHUNK).map(|_| Entry::default()).collect());
        &chunk[at % CHUNK]
    }
}
