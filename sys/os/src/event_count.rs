//! The futex word on which a rank sleeps.
//!
//! Protocol (Dekker's, with the futex as the arbiter). A waiter announces itself in `sleepers`,
//! executes a heavy barrier, looks once more for work and only then sleeps on `word` with the value
//! that it read before it looked. A notifier publishes its work and reads `sleepers`; when somebody
//! is announced it changes `word` and wakes.
//!
//! Between publishing and reading, a notifier would need a full fence, which costs more than all
//! the rest of a small message (70 ns where a fence has to wait for a line that another core
//! polls). Sleeping is rare and notifying is not, so the waiter pays for both: its heavy barrier is
//! `membarrier(2)`, which makes every core that runs a registered process execute a full fence.
//! Either the notifier's store came before that fence, then the waiter's last look sees the work;
//! or its load comes after, then it sees the waiter. Where the kernel has no such call, the waiter
//! fences for itself and sleeps in short pieces, so that a wake which the other side's missing
//! fence lost costs a millisecond.

#[cfg(not(loom))]
use std::num::NonZeroU32;

#[cfg(not(loom))]
use rustix::thread::{MembarrierCommand, futex, membarrier};
#[cfg(not(loom))]
use rustix::time::{ClockId, clock_gettime};

use crate::sync::{AtomicU32, Ordering, fence};

/// Longest sleep where notifiers cannot be made to fence, in nanoseconds.
const PIECE_NS: u64 = 1_000_000;

/// The sleepers that a wake is for, by their bits: all.
#[cfg(not(loom))]
const EVERY_WAKE: NonZeroU32 = NonZeroU32::MAX;

/// A futex word and the count of those who sleep on it; lies in shared memory.
///
/// Or, as an `EventCount<true>`, in memory of one process, whose threads alone wake and sleep: that
/// costs the kernel less.
#[repr(C)]
#[derive(Debug)]
pub struct EventCount<const IS_PRIVATE: bool = false> {
    word: AtomicU32,
    sleepers: AtomicU32,
}

impl EventCount<true> {
    /// An event count at rest, for a process that has called
    /// [`fence::register`](crate::fence::register).
    #[must_use]
    pub fn of_threads() -> Self {
        EventCount {
            word: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
        }
    }
}

impl EventCount {
    /// An event count at rest, for memory that is not shared. (Zeroed shared memory is one too.)
    #[must_use]
    pub fn new() -> Self {
        EventCount {
            word: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
        }
    }
}

impl<const IS_PRIVATE: bool> EventCount<IS_PRIVATE> {
    /// Wakes the threads that sleep here. Call after the work has been published. Returns whether
    /// there were any: one that sleeps elsewhere ([`sleep_by`](Self::sleep_by)) needs more.
    #[inline]
    pub fn wake(&self) -> bool {
        light_barrier();
        let any = self.sleepers.load(Ordering::Relaxed) != 0;
        if any {
            self.wake_sleepers();
        }
        any
    }

    /// Sleeps until [`wake`](Self::wake) is called, `look` finds work, or `timeout_ns` has passed.
    /// `look` is called once, after this thread has announced itself: when it returns true nobody
    /// sleeps. May return early without a reason, as futexes do.
    pub fn sleep(&self, timeout_ns: u64, look: impl FnOnce() -> bool) {
        let seen = self.word.load(Ordering::SeqCst);
        self.sleep_by(timeout_ns, look, |timeout_ns| {
            wait(&self.word, seen, timeout_ns, IS_PRIVATE);
        });
    }

    /// As [`sleep`](Self::sleep), but `wait` sleeps, for at most the time that it is called with.
    /// Who wakes must then do more than [`wake`](Self::wake), which returns true for this thread.
    pub fn sleep_by(&self, timeout_ns: u64, look: impl FnOnce() -> bool, wait: impl FnOnce(u64)) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let timeout_ns = if heavy_barrier(IS_PRIVATE) {
            timeout_ns
        } else {
            timeout_ns.min(PIECE_NS)
        };
        if !look() {
            wait(timeout_ns);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether somebody sleeps here now.
    #[must_use]
    pub fn has_sleepers(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) != 0
    }

    #[cold]
    fn wake_sleepers(&self) {
        self.word.fetch_add(1, Ordering::SeqCst);
        wake(&self.word, IS_PRIVATE);
    }
}

impl Default for EventCount {
    fn default() -> Self {
        Self::new()
    }
}

/// Keeps the compiler from moving the read of `sleepers` before the publishing; the processor is
/// kept from it by the waiter's heavy barrier.
#[cfg(not(loom))]
#[inline]
pub fn light_barrier() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// A full fence on every core that runs a process which has called [`register`], or a thread of
/// this process, and on this one. Returns false when the kernel cannot do that; then only this core
/// has executed a fence.
#[cfg(not(loom))]
fn heavy_barrier(is_private: bool) -> bool {
    if is_private {
        crate::fence::heavy();
        return crate::fence::is_light();
    }
    fence(Ordering::SeqCst);
    // Miri has no such call.
    if cfg!(miri) {
        return false;
    }
    membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

/// Registers this process for the heavy barriers of others. Every process that rings event counts
/// calls it once before; forked children inherit it.
#[cfg(not(loom))]
pub fn register() {
    // Miri has no such call.
    if cfg!(miri) {
        return;
    }
    // Where it fails, sleepers find out for themselves.
    let _ = membarrier(MembarrierCommand::RegisterGlobalExpedited);
}

/// Loom has no membarrier; the model has the two fences that it amounts to.
#[cfg(loom)]
pub fn light_barrier() {
    fence(Ordering::SeqCst);
}

#[cfg(loom)]
fn heavy_barrier(_: bool) -> bool {
    fence(Ordering::SeqCst);
    true
}

/// Waits for a futex that may be shared with other processes.
#[cfg(not(loom))]
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: u64) {
    wait(word, expected, timeout_ns, false);
}

#[cfg(not(loom))]
fn wait(word: &AtomicU32, expected: u32, timeout_ns: u64, is_private: bool) {
    // Until a time, not for one: a wait that goes on after a signal ends when it would have ended.
    // So a worker of OpenMP may be interrupted here for another member that the caller waits for.
    let now = clock_gettime(ClockId::Monotonic);
    let end_ns = (now.tv_nsec as u64).saturating_add(timeout_ns);
    let end = futex::Timespec {
        tv_sec: (now.tv_sec as u64).saturating_add(end_ns / 1_000_000_000) as futex::Secs,
        tv_nsec: (end_ns % 1_000_000_000) as futex::Nsecs,
    };
    // A wait that ends early, for whatever reason, is looked at by who sleeps.
    let _ = futex::wait_bitset(word, flags(is_private), expected, Some(&end), EVERY_WAKE);
}

#[cfg(not(loom))]
fn flags(is_private: bool) -> futex::Flags {
    if is_private {
        futex::Flags::PRIVATE
    } else {
        futex::Flags::empty()
    }
}

#[cfg(not(loom))]
fn wake(word: &AtomicU32, is_private: bool) {
    wake_sleepers(word, i32::MAX as u32, is_private);
}

#[cfg(not(loom))]
pub fn futex_wake_one(word: &AtomicU32) {
    wake_sleepers(word, 1, false);
}

#[cfg(not(loom))]
fn wake_sleepers(word: &AtomicU32, most: u32, is_private: bool) {
    let _ = futex::wake(word, flags(is_private), most);
}

/// Under loom the kernel's futex is modelled by waiting for the word to change; a wait with a time
/// limit may end at once.
#[cfg(loom)]
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: u64) {
    while word.load(Ordering::SeqCst) == expected {
        loom::thread::yield_now();
        if timeout_ns != u64::MAX {
            break;
        }
    }
}

#[cfg(loom)]
fn wait(word: &AtomicU32, expected: u32, timeout_ns: u64, _: bool) {
    futex_wait(word, expected, timeout_ns);
}

#[cfg(loom)]
fn wake(_word: &AtomicU32, _: bool) {}

#[cfg(loom)]
pub fn futex_wake_one(_word: &AtomicU32) {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn the_event_count_is_as_drawn() {
        assert_eq!(size_of::<EventCount>(), 8);
        assert_eq!(std::mem::offset_of!(EventCount, word), 0);
        assert_eq!(std::mem::offset_of!(EventCount, sleepers), 4);
    }

    #[test]
    fn a_ring_after_the_work_always_wakes() {
        register();
        always_wakes(EventCount::new);
    }

    #[test]
    fn a_ring_of_a_thread_always_wakes() {
        crate::fence::register();
        always_wakes(EventCount::of_threads);
    }

    fn always_wakes<const IS_PRIVATE: bool>(make: fn() -> EventCount<IS_PRIVATE>) {
        for _ in 0..2000 {
            let event_count = Arc::new(make());
            let work = Arc::new(AtomicBool::new(false));
            let (event2, work2) = (event_count.clone(), work.clone());
            let waiter = std::thread::spawn(move || {
                while !work2.load(Ordering::Acquire) {
                    event2.sleep(20_000_000_000, || work2.load(Ordering::Acquire));
                }
            });
            work.store(true, Ordering::Release);
            event_count.wake();
            waiter.join().unwrap();
            assert!(!event_count.has_sleepers());
        }
    }

    #[test]
    fn a_sleep_ends_at_its_timeout() {
        let event_count = EventCount::new();
        event_count.sleep(1_000_000, || false);
        assert!(!event_count.has_sleepers());
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;

    /// Every interleaving of one who sleeps and one who publishes and wakes: no wake is lost, or
    /// the sleeper would never see the word change.
    #[test]
    fn no_ring_is_lost_under_loom() {
        loom::model(|| {
            let event_count = Arc::new(EventCount::new());
            let work = Arc::new(AtomicU32::new(0));
            let (event2, work2) = (event_count.clone(), work.clone());
            let notifier = loom::thread::spawn(move || {
                work2.store(1, Ordering::Release);
                event2.wake();
            });
            while work.load(Ordering::Acquire) == 0 {
                event_count.sleep(u64::MAX, || work.load(Ordering::Acquire) != 0);
            }
            notifier.join().unwrap();
        });
    }
}
