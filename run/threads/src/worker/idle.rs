//! The one place that waits: an idle worker spins, then sleeps.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use margay_sys_os::cpu;
use margay_sys_os::process::ProcessFacts;

use super::Worker;
use crate::contention::RunDelay;

/// Longest sleep of an idle worker. A wake-up ends each sleep; this bounds the cost of a lost one.
const SLEEP_NS: u64 = 500_000_000;

/// Longest sleep of an idle worker with an offer that may open later.
const LATER_NS: u64 = 1_000_000;

/// How often a spinning worker scans what others have published: each scan takes cache lines from
/// the cores that write them. Between scans it checks what comes for itself, and whether an offer
/// has been announced.
pub(super) const SCAN_NS: u64 = 1_000;

/// For so long a worker spins on where a core is free, before it asks for that again.
const RECHECK_NS: u64 = 250_000;

/// How long a worker has been idle.
#[derive(Default)]
pub(super) struct IdleState {
    /// When it ran out of work, or 0.
    since_ns: Cell<u64>,
    delay: RunDelay,
    pub(super) brief: SpinHistory,
    /// Of spinning on where a core is free.
    long: SpinHistory,
}

/// Whether spinning is worth it: not where it has been in vain, except now and then. For spinning
/// for a moment on contended cores, as what the worker waits for has a core by turns; and for
/// spinning on where a core is free, as a program that seldom needs its threads is to leave the
/// cores alone.
#[derive(Default)]
pub(super) struct SpinHistory {
    /// How often it has been in vain since it last was not.
    in_vain: Cell<u32>,
    /// As many waits do without.
    pause: Cell<u32>,
}

/// The longest pause, as a power of two.
const LONGEST_PAUSE: u32 = 5;

impl SpinHistory {
    #[inline]
    pub(super) fn are_paused(&self) -> bool {
        self.pause.get() != 0
    }

    fn is_due(&self) -> bool {
        let pause = self.pause.get();
        self.pause.set(pause.saturating_sub(1));
        pause == 0
    }

    /// What is waited for has come, or has not.
    pub(super) fn record(&self, has_come: bool) {
        let in_vain = if has_come {
            0
        } else {
            (self.in_vain.get() + 1).min(LONGEST_PAUSE)
        };
        self.in_vain.set(in_vain);
        self.pause.set((1 << in_vain) - 1);
    }
}

/// One wait that spins: how long.
pub(super) struct SpinTime {
    pub(super) until_ns: u64,
    /// To be extended until then at most.
    limit_ns: u64,
    /// It is longer than [`Config::spin_ns`](crate::Config::spin_ns).
    is_long: bool,
}

impl IdleState {
    /// The worker has work again.
    pub(super) fn end(&self) {
        self.since_ns.set(0);
    }

    /// Idle now. Returns since when, in nanoseconds.
    fn continue_at(&self, now_ns: u64) -> u64 {
        if self.since_ns.get() == 0 {
            self.since_ns.set(now_ns);
        }
        self.since_ns.get()
    }
}

impl Worker {
    /// Spins, then sleeps. Returns when there may be something to run.
    pub(super) fn wait_for_work(&self) {
        let is_idle = &self.own.watched.is_idle;
        is_idle.store(true, Ordering::Relaxed);
        self.spin_and_sleep();
        is_idle.store(false, Ordering::Relaxed);
    }

    fn spin_and_sleep(&self) {
        let since_ns = self.idle.continue_at(self.now_ns());
        let mut time = self.spin_time(since_ns, self.spin_ns(), 0);
        let has_found = self.spin_for_work(&mut time);
        self.spun(&time, has_found);
        if has_found {
            return;
        }
        // One that may take no work is not worth waking for a publication; it is woken when it may.
        let is_active = || self.number < self.pool.active().max(1);
        if is_active() {
            self.sleep_until_woken();
        } else {
            let event_count = self.own.sleep.event_count();
            event_count.sleep(SLEEP_NS, || is_active() || self.sees_work(true));
        }
    }

    /// How long to spin for something now, in nanoseconds.
    pub(super) fn spin_ns(&self) -> u64 {
        if self.pool.sample_contention(&self.idle.delay) {
            self.leave_shared_processor();
        }
        if self.pool.is_contended() {
            // What it waits for may itself wait for the core.
            0
        } else {
            self.pool.config.spin_ns
        }
    }

    /// This worker's thread has waited for its core. If another worker runs there, and none on some
    /// other processor, it goes to that one: the kernel may leave two threads that wake each other
    /// on one processor for many milliseconds while another one is free.
    #[cold]
    fn leave_shared_processor(&self) {
        let Some(here) = cpu::current() else { return };
        let others: Vec<usize> = (self.pool.slots())
            .filter(|slot| slot.watched.is_other_than(&self.own.watched))
            .filter_map(|slot| ProcessFacts::of(slot.watched.thread.load(Ordering::Relaxed)))
            .filter(|facts| facts.state == 'R')
            .map(|facts| facts.last_core as usize)
            .collect();
        if others.contains(&here) {
            let usable = cpu::affinity();
            let is_free = |processor: &&usize| **processor != here && !others.contains(processor);
            // Best effort: where the kernel refuses, it stays to be moved by the kernel.
            if let Some(&free) = usable.iter().find(is_free)
                && cpu::bind_to(free)
            {
                let _ = cpu::bind_thread(0, &usable);
            }
        }
    }

    /// For spinning for `spin_ns` since a time, and for longer where [`spins_on`](Self::spins_on)
    /// says so; for a moment only if it is 0.
    pub(super) fn spin_time(&self, since_ns: u64, spin_ns: u64, moment_ns: u64) -> SpinTime {
        let most_ns = if spin_ns == 0 {
            moment_ns
        } else {
            self.pool.config.free_spin_ns
        };
        SpinTime {
            until_ns: since_ns + spin_ns.max(moment_ns),
            limit_ns: since_ns + most_ns,
            is_long: false,
        }
    }

    /// The time of a spinning wait is over. Extends it where a core is free and it may be worth it.
    #[cold]
    pub(super) fn spins_on(&self, time: &mut SpinTime, now_ns: u64) -> bool {
        if now_ns >= time.limit_ns {
            return false;
        }
        if !time.is_long && !self.idle.long.is_due() {
            return false;
        }
        time.is_long = true;
        time.until_ns = now_ns + RECHECK_NS;
        self.pool.may_keep_core(&self.idle.delay, now_ns)
    }

    /// A spinning wait is over: what is waited for has come, or has not.
    pub(super) fn spun(&self, time: &SpinTime, has_come: bool) {
        if time.is_long {
            self.idle.long.record(has_come);
        }
    }

    /// Whether to spin for a moment where others want the core.
    pub(super) fn may_spin_briefly(&self) -> bool {
        self.pool.config.spin_ns != 0 && self.idle.brief.is_due()
    }

    /// Spins until there may be something to run, or for a time. Returns whether there may be.
    fn spin_for_work(&self, time: &mut SpinTime) -> bool {
        let mut now = self.now_ns();
        let mut scan_at = now;
        let announced = &self.pool.announced;
        while now < time.until_ns || self.spins_on(time, now) {
            let seen = announced.get();
            if now >= scan_at {
                if self.sees_work(false) {
                    return true;
                }
                scan_at = now + SCAN_NS;
            }
            for _ in 0..8 {
                if self.has_other_work() {
                    return true;
                }
                if announced.get() != seen {
                    scan_at = 0;
                    break;
                }
                cpu::pause();
            }
            now = self.now_ns();
        }
        false
    }

    /// Sleeps as one that publications may wake.
    fn sleep_until_woken(&self) {
        let opens_later = self
            .own
            .offers
            .find(|_| true, |offer| offer.opens_later())
            .is_some();
        let limit_ns = if opens_later { LATER_NS } else { SLEEP_NS };
        let asleep_at = self.now_ns();
        let requests = self.pool.slots().map(|slot| slot.stealer.call());
        self.pool
            .sleepers
            .sleep(&self.own.sleep, limit_ns, requests, || self.sees_work(true));
        if self.now_ns() - asleep_at < limit_ns {
            // Woken: spins again even when what it was woken for is over. Being woken once more
            // costs more than that.
            self.idle.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spins_in_vain_become_rare() {
        let spins = SpinHistory::default();
        let spun = |waits: u32, has_come: bool| {
            let due = (0..waits).filter(|_| {
                let is_due = spins.is_due();
                if is_due {
                    spins.record(has_come);
                }
                is_due
            });
            due.count()
        };
        assert_eq!(spun(10, true), 10);
        // After 1, 2, 4, ... waits, and then every 32.
        assert_eq!(spun(63, false), 6);
        assert_eq!(spun(320, false), 10);
        spun(32, true);
        assert_eq!(spun(10, true), 10);
    }
}
