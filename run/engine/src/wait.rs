//! The one place that waits, and its policy.
//!
//! A waiting rank goes through three stages. It *spins*: polls without yielding its core. It
//! *yields*: lets others on its core run between polls. It *sleeps* on its futex word. When every
//! rank has a core, spinning longest is right: a message comes 60 ns after it was sent, a yield
//! costs 0.4 µs, and waking a core that ran dry costs 25 µs in a virtual machine. When ranks
//! outnumber the cores, spinning steals the core from the very rank that is waited for, so the rank
//! yields at once and goes to sleep only when nothing has come for a while. In both cases a long
//! wait ends asleep.
//!
//! The number of usable cores is the job's: affinity mask and CPU quota, not the machine's count.
//! Where a quota or foreign processes take the core away, the rank sleeps instead of yielding, for
//! a yield would forfeit its turn to all the others. A rank that should have a core for itself
//! notices by involuntary switches and keeps to it for a while. Where ranks outnumber the cores
//! every yield counts as such a switch; there the rank notices by a yield that takes long, and
//! sleeps for the rest of this wait only: a rank that yields among ranks that sleep and wake is
//! starved by them, so what one does for long all would have to do.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use margay_net_platform::Clock;
use margay_net_transport::WakeUp;
use margay_sys_os::cpu;

use crate::monitor::WaitCounters;
use crate::policy::Policy;

/// Longest single sleep in nanoseconds. Every sleep ends by a wake; this bounds what a lost one
/// could cost.
pub(crate) const SLEEP_NS: u64 = 500_000_000;

/// Waiting is noted for displays from this many nanoseconds on.
const NOTE_AFTER_NS: u64 = 100_000;

/// Whether somebody else wants the core of a rank that should have it alone: foreign processes, or
/// a quota. Found out from the kernel's count of involuntary switches.
#[derive(Debug, Default)]
pub(crate) struct Contention {
    contended: AtomicBool,
    /// Ranks of several jobs outnumber the cores.
    oversubscribed: AtomicBool,
    switches: AtomicU64,
    checked_ns: AtomicU64,
}

/// How often the count is read, in nanoseconds of waiting.
const CHECK_NS: u64 = 5_000_000;
/// Involuntary switches between two checks from which on cores count as short: the timer alone
/// takes the core away now and then.
const SWITCHES: u64 = 3;

impl Contention {
    /// Returns the policy for now.
    #[inline]
    pub(crate) fn policy(&self, usual: Policy) -> Policy {
        if usual.is_oversubscribed() {
            usual
        } else if self.oversubscribed.load(Ordering::Relaxed) {
            Policy::OVERSUBSCRIBED
        } else if self.contended.load(Ordering::Relaxed) {
            Policy::CONTENDED
        } else {
            usual
        }
    }

    /// From now on ranks count as more than cores.
    pub(crate) fn set_oversubscribed(&self) {
        self.oversubscribed.store(true, Ordering::Relaxed);
    }

    fn check(&self, now: u64) {
        if now.saturating_sub(self.checked_ns.load(Ordering::Relaxed)) < CHECK_NS {
            return;
        }
        self.checked_ns.store(now, Ordering::Relaxed);
        let count = cpu::involuntary_switches();
        let before = self.switches.swap(count, Ordering::Relaxed);
        let contended = count.saturating_sub(before) >= SWITCHES;
        self.contended.store(contended, Ordering::Relaxed);
    }
}

/// One wait.
pub(crate) struct Wait<'a> {
    policy: Policy,
    wake_up: &'a dyn WakeUp,
    clock: &'a dyn Clock,
    contention: &'a Contention,
    counters: &'a WaitCounters,
    spins: u32,
    untimed: u32,
    since_ns: u64,
    /// When it was counted last, and what was counted.
    counted_ns: u64,
    spent_ns: u64,
    yields: u64,
    noted: bool,
}

/// Where cores are short, this many yields come before the clock is first read. In a collective a
/// rank is awaited once a turn, and reading the clock each time would be a tenth of the turn.
const YIELDS_UNTIMED: u32 = 8;

/// Where cores are short, a yield that took this many [`clock::ticks`] went to a process that
/// computes, for half a millisecond or more. (Sixteen ranks of a core that all wait need a
/// twentieth of it.)
const SLOW_YIELD: u64 = 1 << 21;

/// What the wait asks for next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Spin,
    /// As `Spin`, and tell displays what is waited for.
    Note,
    /// Sleep with this timeout.
    Sleep(u64),
}

impl<'a> Wait<'a> {
    pub(crate) fn new(
        policy: Policy,
        contention: &'a Contention,
        counters: &'a WaitCounters,
        wake_up: &'a dyn WakeUp,
        clock: &'a dyn Clock,
    ) -> Self {
        Wait {
            policy: contention.policy(policy),
            wake_up,
            clock,
            contention,
            counters,
            spins: 0,
            untimed: 0,
            since_ns: 0,
            counted_ns: 0,
            spent_ns: 0,
            yields: 0,
            noted: false,
        }
    }

    /// Decides what comes next, after a poll that found nothing (`moved`: something else moved, so
    /// the machine is alive and the wait begins anew).
    #[inline]
    pub(crate) fn step(&mut self, moved: bool) -> Next {
        if moved {
            self.spins = 0;
            self.untimed = 0;
            self.since_ns = 0;
            return Next::Spin;
        }
        self.spins += 1;
        if self.spins <= self.policy.spins {
            return Next::Spin;
        }
        if self.policy.is_oversubscribed() && self.untimed < YIELDS_UNTIMED {
            self.untimed += 1;
            self.yield_core();
            return Next::Spin;
        }
        self.later()
    }

    fn later(&mut self) -> Next {
        let now = self.clock.now_ns();
        if self.since_ns == 0 {
            self.since_ns = now;
            self.counted_ns = now;
            if !self.policy.is_oversubscribed() {
                self.contention.check(now);
            }
        }
        self.spent_ns += now - self.counted_ns;
        self.counted_ns = now;
        let waited = now - self.since_ns;
        if waited >= self.policy.sleep_after_ns {
            if !self.noted {
                self.noted = true;
                return Next::Note;
            }
            return Next::Sleep(SLEEP_NS);
        }
        if !self.noted && waited >= NOTE_AFTER_NS {
            self.noted = true;
            return Next::Note;
        }
        if waited >= self.policy.yield_after_ns {
            self.yield_core();
        } else {
            for _ in 0..8 {
                self.wake_up.pause();
            }
            self.spins = self.policy.spins;
        }
        Next::Spin
    }

    fn yield_core(&mut self) {
        self.yields += 1;
        let before = self.clock.ticks();
        self.wake_up.yield_core();
        if self.policy.is_oversubscribed()
            && self.clock.ticks().saturating_sub(before) >= SLOW_YIELD
        {
            self.policy = Policy::OVERSUBSCRIBED_AND_CONTENDED;
        }
    }

    /// Something has moved since the wait was noted, so that it may be for something else now.
    #[cold]
    pub(crate) fn note_again(&mut self) {
        self.noted = false;
    }

    /// When the wait began, in clock nanoseconds.
    pub(crate) fn since_ns(&self) -> u64 {
        self.since_ns
    }

    /// Sleeps for at most `timeout_ns`; `has_work` is called once more before. Returns the
    /// nanoseconds asleep.
    pub(crate) fn sleep(&mut self, timeout_ns: u64, has_work: &mut dyn FnMut() -> bool) -> u64 {
        let counters = self.counters;
        counters.asleep.fetch_add(1, Ordering::Relaxed);
        self.wake_up.sleep(timeout_ns, has_work);
        counters.asleep.fetch_sub(1, Ordering::Relaxed);
        let now = self.clock.now_ns();
        let slept = now - self.counted_ns;
        self.spent_ns += slept;
        self.counted_ns = now;
        WaitCounters::add(&counters.sleeps, 1);
        WaitCounters::add(&counters.sleep_ns, slept);
        slept
    }

    #[cold]
    fn count(&self) {
        WaitCounters::add(&self.counters.waits, 1);
        WaitCounters::add(&self.counters.wait_ns, self.spent_ns);
        WaitCounters::add(&self.counters.yields, self.yields);
    }
}

impl Drop for Wait<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.yields != 0 || self.counted_ns != 0 {
            self.count();
        }
    }
}
