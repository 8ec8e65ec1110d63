//! Whether other processes contend for the cores.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use margay_sys_os::cpu;

/// How often the kernel's count is read.
const CHECK_NS: u64 = 5_000_000;
/// Involuntary context switches between two checks from which on the cores count as contended.
const SWITCHES: u64 = 3;
/// How long they count as contended after that.
const LASTS_NS: u64 = 100_000_000;

/// A thread that has waited for a core for more than one part in this many of the time ...
const DELAY_PARTS: u64 = 10;
/// ... since it was looked at last, or of this, where that is longer ago.
const DELAY_WINDOW_NS: u64 = 20_000_000;

/// Detects contention from the kernel's count of involuntary context switches of all threads of
/// this process, and from how long a worker's thread has waited for a core: one that sleeps often is
/// never preempted. A woken thread of this process can also preempt another one for a moment, so the
/// number of runnable threads on the machine has to exceed the number of cores as well.
#[derive(Debug, Default)]
pub(crate) struct Contention {
    /// All cores of the machine are usable: then each worker of the pool has a core unless more
    /// threads are runnable than there are cores. Otherwise the number of threads that compete for
    /// the usable cores is unknown.
    has_all_cores: bool,
    checked_ns: AtomicU64,
    switches: AtomicU64,
    contended_until_ns: AtomicU64,
}

impl Contention {
    /// For a process that may use this many cores.
    pub(crate) fn new(usable_cores: usize) -> Contention {
        Contention {
            has_all_cores: usable_cores >= cpu::online_cores(),
            ..Contention::default()
        }
    }

    /// Whether the cores are contended now, at `now` nanoseconds.
    pub(crate) fn is_on(&self, now: u64) -> bool {
        let checked = self.checked_ns.load(Ordering::Relaxed);
        let due = now.saturating_sub(checked) >= CHECK_NS;
        if due
            && self
                .checked_ns
                .compare_exchange(checked, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            let count = cpu::involuntary_switches_of_process();
            let before = self.switches.swap(count, Ordering::Relaxed);
            // The first check has nothing to compare with. A rate, since the last check may be long
            // ago.
            let since_ns = now - checked;
            let allowed = SWITCHES.saturating_mul(since_ns / CHECK_NS);
            if checked != 0 && count.saturating_sub(before) >= allowed && self.is_oversubscribed() {
                self.contended_until_ns
                    .store(now + LASTS_NS, Ordering::Relaxed);
            }
        }
        now < self.contended_until_ns.load(Ordering::Relaxed)
    }

    /// A worker is about to wait: looks at what `delay` keeps of its thread, if that is due.
    #[inline]
    pub(crate) fn sample(&self, delay: &RunDelay, now: u64) {
        if now.saturating_sub(delay.sampled_ns.get()) >= CHECK_NS {
            self.renew(delay, now);
        }
    }

    #[cold]
    fn renew(&self, delay: &RunDelay, now: u64) {
        let sampled_ns = delay.sampled_ns.replace(now);
        let Some(after) = cpu::run_delay_ns() else {
            return;
        };
        let before = delay.total_ns.replace(after);
        let window_ns = (now - sampled_ns).min(DELAY_WINDOW_NS);
        if sampled_ns != 0
            && after.saturating_sub(before) > window_ns / DELAY_PARTS
            && self.is_oversubscribed()
        {
            self.contended_until_ns
                .store(now + LASTS_NS, Ordering::Relaxed);
        }
    }

    /// Whether more threads may be runnable than there are cores.
    fn is_oversubscribed(&self) -> bool {
        !self.has_all_cores
            || cpu::runnable_threads().is_none_or(|threads| threads > cpu::online_cores())
    }
}

/// How long the thread of one worker has waited for a core, and when that was looked at. Belongs to
/// that thread.
#[derive(Debug, Default)]
pub(crate) struct RunDelay {
    sampled_ns: Cell<u64>,
    total_ns: Cell<u64>,
}
