//! Who of several sleeps and may be woken for work: a mark for each, and how many marks are set.
//!
//! A sleeper sets its mark, raises the count, and goes to its doorbell, which executes the heavy fence and lets it look once more before
//! it sleeps. Who publishes work executes the light fence and reads the count: either that look sees the work or the count
//! is seen. Then the publisher takes one mark away, whoever takes it first, and rings that bell; the bell's own protocol covers a sleeper that has set
//! its mark and is not asleep yet.

use crate::doorbell::Doorbell;
use crate::fence;
use crate::sync::{AtomicU32, Ordering};

/// Where one of them sleeps.
#[derive(Debug)]
pub struct Bed {
    is_marked: AtomicU32,
    bell: Doorbell,
}

impl Bed {
    #[must_use]
    pub fn new() -> Bed {
        Bed {
            is_marked: AtomicU32::new(0),
            bell: Doorbell::new(),
        }
    }

    /// The bell, for waking this one for something of its own.
    #[inline]
    #[must_use]
    pub fn bell(&self) -> &Doorbell {
        &self.bell
    }

    /// Whether it seems to sleep.
    #[inline]
    #[must_use]
    pub fn is_marked(&self) -> bool {
        self.is_marked.load(Ordering::Relaxed) != 0
    }
}

impl Default for Bed {
    fn default() -> Self {
        Self::new()
    }
}

/// How many marks are set.
#[derive(Debug)]
pub struct Sleepers(AtomicU32);

impl Sleepers {
    #[must_use]
    pub fn new() -> Sleepers {
        Sleepers(AtomicU32::new(0))
    }

    /// Whether somebody sleeps, asked after work has been published.
    #[inline]
    #[must_use]
    pub fn are_there(&self) -> bool {
        fence::light();
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Sleeps until roused, until the bell is rung, or for `timeout_ns`; not at all when `look` finds something.
    pub fn sleep(&self, bed: &Bed, timeout_ns: u64, look: impl FnOnce() -> bool) {
        bed.is_marked.store(1, Ordering::SeqCst);
        self.0.fetch_add(1, Ordering::SeqCst);
        bed.bell.sleep(timeout_ns, look);
        self.take_mark(bed);
    }

    /// Wakes one, if nobody has done so already. Tells whether it was this call.
    pub fn rouse(&self, bed: &Bed) -> bool {
        let was_marked = self.take_mark(bed);
        if was_marked {
            bed.bell.ring();
        }
        was_marked
    }

    fn take_mark(&self, bed: &Bed) -> bool {
        let was_marked = bed.is_marked.swap(0, Ordering::SeqCst) != 0;
        if was_marked {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
        was_marked
    }
}

impl Default for Sleepers {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::Arc;

    use super::*;

    /// One sleeper, and two who publish one piece of work each and wake at most one: the sleeper sees both.
    #[test]
    fn sleepers_miss_no_publication() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let all = Arc::new((Sleepers::new(), Bed::new(), AtomicU32::new(0)));
            let publishers: Vec<_> = (0..2)
                .map(|_| {
                    let all = all.clone();
                    loom::thread::spawn(move || {
                        let (sleepers, bed, work) = &*all;
                        work.fetch_add(1, Ordering::Release);
                        if sleepers.are_there() && bed.is_marked() {
                            sleepers.rouse(bed);
                        }
                    })
                })
                .collect();
            let (sleepers, bed, work) = &*all;
            for seen in 0..2 {
                while work.load(Ordering::Acquire) == seen {
                    sleepers.sleep(bed, u64::MAX, || work.load(Ordering::Acquire) != seen);
                }
            }
            for publisher in publishers {
                publisher.join().unwrap();
            }
            assert!(!bed.is_marked());
        });
    }
}
