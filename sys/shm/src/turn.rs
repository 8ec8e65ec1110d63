//! The lock under which ranks accumulate to one target.
//!
//! Taking it is one atomic instruction, giving it back a plain store. A thread that finds it taken
//! counts itself as waiting before it sleeps on an [event count](margay_sys_os::event count) until
//! a look at the lock succeeds; the one that gives the lock back looks for waiters and wakes them.
//! That is the event count's protocol with one step more, and between giving back and looking for
//! waiters there is no fence either: the sleeper's heavy barrier pays for it too. Either the
//! holder's store came before that barrier, then the sleeper's last look finds the lock free; or
//! its look for waiters comes after, then it sees the count, which does not go back before the
//! sleeper has the lock. (A mark that the holder takes away could not do this: set again after the
//! barrier, it may not be seen.)

use margay_sys_os::event_count::light_barrier;
use margay_sys_os::sync::{AtomicU32, Ordering};

/// A lock that one rank holds, for moments; lies in shared memory. See the module.
#[repr(C)]
#[derive(Debug)]
pub struct Turn {
    /// 1 + who holds it.
    taken: AtomicU32,
    waiting: AtomicU32,
}

impl Turn {
    /// A free lock, for memory that is not shared. (Zeroed shared memory is one too.)
    #[must_use]
    pub fn new() -> Self {
        Turn {
            taken: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
        }
    }

    /// Takes the lock for `who` if it is free.
    #[inline]
    #[must_use]
    pub fn enter(&self, who: u32) -> bool {
        self.taken.load(Ordering::Relaxed) == 0
            && self
                .taken
                .compare_exchange(0, who + 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Who holds the lock. One that has died will hold it for ever.
    #[must_use]
    pub fn holder(&self) -> Option<u32> {
        self.taken.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Gives the lock back. Returns whether others may wait: then all of them must be woken.
    #[inline]
    #[must_use]
    pub fn leave(&self) -> bool {
        self.taken.store(0, Ordering::Release);
        light_barrier();
        self.waiting.load(Ordering::Relaxed) != 0
    }

    /// Counts the caller as waiting until the result is dropped.
    #[must_use]
    pub fn waits(&self) -> Waits<'_> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        Waits(self)
    }
}

impl Default for Turn {
    fn default() -> Self {
        Self::new()
    }
}

/// Somebody waits for the lock.
#[derive(Debug)]
pub struct Waits<'a>(&'a Turn);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use margay_sys_os::event_count::{EventCount, register};

    #[test]
    fn one_at_a_time() {
        let turn = Turn::new();
        assert!(turn.holder().is_none() && turn.enter(7));
        assert!(!turn.enter(0) && turn.holder() == Some(7));
        let waits = turn.waits();
        assert!(turn.leave());
        drop(waits);
        assert!(turn.enter(0) && !turn.leave());
    }

    #[test]
    fn who_waits_is_woken() {
        register();
        let (turn, event_count) = (Turn::new(), EventCount::new());
        let mut count = 0u32;
        let counter = std::ptr::from_mut(&mut count).addr();
        let add = || {
            // SAFETY: the lock is held, so no other thread touches the number, which outlives the
            // threads.
            unsafe { *(counter as *mut u32) += 1 };
            if turn.leave() {
                event_count.wake();
            }
        };
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..5_000 {
                        if !turn.enter(0) {
                            let _waits = turn.waits();
                            let mut has = turn.enter(0);
                            while !has {
                                event_count.sleep(20_000_000_000, || {
                                    has = turn.enter(0);
                                    has
                                });
                                has = has || turn.enter(0);
                            }
                        }
                        add();
                    }
                });
            }
        });
        assert_eq!(count, 20_000);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use margay_sys_os::event_count::EventCount;

    /// Every interleaving of one who gives the lock back and one who sleeps until it has it: no
    /// wake is lost, or the sleeper would never see the event count's word change.
    #[test]
    fn no_turn_is_lost_under_loom() {
        loom::model(|| {
            let shared = Arc::new((Turn::new(), EventCount::new()));
            let shared2 = shared.clone();
            assert!(shared.0.enter(1));
            let holder = loom::thread::spawn(move || {
                if shared2.0.leave() {
                    shared2.1.wake();
                }
            });
            let (turn, event_count) = &*shared;
            if !turn.enter(0) {
                let _waits = turn.waits();
                let mut has = false;
                while !has {
                    event_count.sleep(u64::MAX, || {
                        has = turn.enter(0);
                        has
                    });
                }
            }
            holder.join().unwrap();
        });
    }
}
