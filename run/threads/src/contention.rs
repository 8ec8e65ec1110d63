//! Whether other processes contend for the cores.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use margay_sys_os::cpu;

/// How often the kernel's count is read.
const CHECK_NS: u64 = 5_000_000;
/// Involuntary context switches between two checks from which on the cores count as contended.
const SWITCHES: u64 = 3;
/// How long they count as contended after that for the first time: threads of this process may only
/// have been put on one core ...
const LASTS_LEAST_NS: u64 = 10_000_000;
/// ... and at most: twice as long as the last time if that is not long ago.
const LASTS_NS: u64 = 100_000_000;

/// A thread that has waited for a core for more than one part in this many of the time ...
const DELAY_PARTS: u64 = 10;
/// ... since it was looked at last, or of this, where that is longer ago.
const DELAY_WINDOW_NS: u64 = 20_000_000;

/// How often it is asked whether a core is free for a thread that spins.
const FREE_CHECK_NS: u64 = 250_000;

/// Detects contention from the kernel's count of involuntary context switches of all threads of
/// this process, and from how long a worker's thread has waited for a core: one that sleeps often
/// is never preempted. A woken thread of this process can also preempt another one for a moment, so
/// the number of runnable threads on the machine has to exceed the number of cores as well.
#[derive(Debug, Default)]
pub(crate) struct Contention {
    /// All cores of the machine are usable, for all its threads alike: then each worker of the pool
    /// has a core unless more threads are runnable than there are cores. Otherwise the number of
    /// threads that compete for the usable cores is unknown.
    has_all_cores: bool,
    checked_ns: AtomicU64,
    switches: AtomicU64,
    contended_until_ns: AtomicU64,
    /// How long that time was when it began.
    lasts_ns: AtomicU64,
    /// When threads that may run were counted last, and whether each had a core.
    counted_ns: AtomicU64,
    has_cores: AtomicBool,
}

impl Contention {
    /// For a process that may use this many cores, and whose threads have the policy of this one.
    pub(crate) fn new(usable_cores: usize) -> Contention {
        Contention {
            has_all_cores: usable_cores >= cpu::online_cores() && !cpu::has_real_time_policy(),
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
                self.found(now);
            }
        }
        now < self.contended_until_ns.load(Ordering::Relaxed)
    }

    /// The cores are contended at `now`.
    fn found(&self, now: u64) {
        let lasts = self.lasts_ns.load(Ordering::Relaxed);
        let until = self.contended_until_ns.load(Ordering::Relaxed);
        if now < until && lasts < LASTS_NS {
            return;
        }
        let lasts = if until != 0 && now < until + 2 * lasts {
            (2 * lasts).min(LASTS_NS)
        } else {
            LASTS_LEAST_NS
        };
        self.lasts_ns.store(lasts, Ordering::Relaxed);
        self.contended_until_ns
            .store(now + lasts, Ordering::Relaxed);
    }

    /// A worker is about to wait: looks at what `delay` keeps of its thread, if that is due.
    /// Returns whether the thread has waited for a core for long.
    #[inline]
    pub(crate) fn sample(&self, delay: &RunDelay, now: u64) -> bool {
        now.saturating_sub(delay.sampled_ns.get()) >= CHECK_NS && self.renew(delay, now)
    }

    #[cold]
    fn renew(&self, delay: &RunDelay, now: u64) -> bool {
        let sampled_ns = delay.sampled_ns.replace(now);
        let Some(after) = cpu::run_delay_ns() else {
            return false;
        };
        let before = delay.total_ns.replace(after);
        let window_ns = (now - sampled_ns).min(DELAY_WINDOW_NS);
        let has_waited = sampled_ns != 0 && after.saturating_sub(before) > window_ns / DELAY_PARTS;
        if has_waited && self.is_oversubscribed() {
            self.found(now);
        }
        has_waited
    }

    /// Whether the calling thread, which spins and has this `delay`, may keep its core: nobody else
    /// seems to want it. To be asked now and then, since it costs some microseconds. Where the
    /// number of runnable threads says nothing, it goes by how long this thread has waited.
    #[cold]
    pub(crate) fn may_keep_core(&self, delay: &RunDelay, now: u64) -> bool {
        if self.is_on(now) {
            return false;
        }
        if !self.has_all_cores {
            return !self.renew(delay, now);
        }
        let counted = self.counted_ns.load(Ordering::Relaxed);
        if now.saturating_sub(counted) < FREE_CHECK_NS {
            return self.has_cores.load(Ordering::Relaxed);
        }
        self.counted_ns.store(now, Ordering::Relaxed);
        let has_cores = !self.is_oversubscribed();
        self.has_cores.store(has_cores, Ordering::Relaxed);
        has_cores
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contention_that_comes_back_lasts_longer() {
        let contention = Contention::default();
        let lasts = |now: u64| {
            contention.found(now);
            contention.contended_until_ns.load(Ordering::Relaxed) - now
        };
        assert_eq!(lasts(1_000_000_000), LASTS_LEAST_NS);
        assert_eq!(lasts(1_005_000_000), LASTS_LEAST_NS - 5_000_000, "the same");
        let mut now = 1_000_000_000 + LASTS_LEAST_NS;
        for expected in [20_000_000, 40_000_000, 80_000_000, LASTS_NS, LASTS_NS] {
            now += 5_000_000;
            assert_eq!(lasts(now), expected);
            now += expected;
        }
        assert_eq!(lasts(now - 1), LASTS_NS, "it goes on");
        assert_eq!(lasts(now + 3 * LASTS_NS), LASTS_LEAST_NS, "another one");
    }
}
