//! Fibers that wait: block and wake, parking, spinning for a condition.

use margay_sys_os::cpu;
use margay_sys_threads::fiber;

use super::Worker;
use super::idle::{SCAN_NS, SpinTime};
use crate::fiber_table::{FiberId, ROOT};

/// Spins before the clock is read. A line that another core writes comes in 100 to 200 ns.
const SPINS: u32 = 40;

/// How long to spin on contended cores, if at all: somewhat longer than it takes to wake the worker
/// that is waited for. Two that wait for each other in turns would otherwise fall asleep each
/// before the other is awake. Where that is in vain, as on one core, they do not spin at all for a
/// while.
const BRIEF_NS: u64 = 10_000;

/// Between the first two attempts of a fiber that attempts rarely: the next ones are twice as far
/// apart each, ...
const FIRST_INTERVAL_NS: u64 = 100;
/// ... up to this. In between the other core does a dozen short things, and a long one ends at most
/// this much unnoticed.
const LAST_INTERVAL_NS: u64 = 1_500;
/// When attempts have failed for so long the fiber looks all the time, so that it gets its turn.
const RARELY_NS: u64 = 60_000;

impl Worker {
    /// Suspends the running fiber until [`wake`](Self::wake) is called with its
    /// [`fiber_id`](Self::fiber_id); the worker runs other work meanwhile. May return without a
    /// reason: callers check their condition again.
    pub fn block(&self) {
        let me = self.fibers.current();
        if self.fibers.start_waiting() {
            self.switch_away(me);
        }
    }

    /// Wakes a fiber of any worker of the pool.
    pub fn wake(&self, id: FiberId) {
        if id.worker == self.slot {
            self.fibers.wake(id.fiber);
        } else {
            self.pool.wake_remote(id);
        }
    }

    /// Lets the other fibers of this worker run; if none is ready, begins work that nobody has
    /// begun.
    pub fn yield_now(&self) {
        self.drain_wake_queue();
        if !self.fibers.has_ready() {
            match self.find_work() {
                Some(work) => self.assign(work),
                None => return,
            }
        }
        self.run_others();
    }

    /// Lets the fibers run that are ready.
    pub(super) fn run_others(&self) {
        let me = self.fibers.current();
        self.fibers.requeue_current();
        self.switch_away(me);
    }

    /// Runs other work until the running fiber, which is ready or waiting, is resumed.
    fn switch_away(&self, me: u16) {
        let tag = self.tag.get();
        if me == ROOT {
            self.run_loop();
        } else {
            fiber::suspend();
        }
        self.fibers.continue_as(me);
        self.tag.set(tag);
    }

    /// Whether other threads have woken fibers of this worker.
    pub(super) fn has_wakeups(&self) -> bool {
        !self.own.wake_queue.is_empty()
    }

    /// Makes the fibers ready that other threads have woken.
    pub(super) fn drain_wake_queue(&self) {
        if self.has_wakeups() {
            self.own
                .wake_queue
                .drain(|fiber| self.fibers.wake(fiber as u16));
        }
    }

    /// Waits under an address if `must_wait` returns true, until [`unpark_one`](Self::unpark_one)
    /// or [`unpark_all`](Self::unpark_all) is called for that address. A worker that
    /// changes what `must_wait` reads does so before it calls `unpark`.
    pub fn park(&self, address: usize, must_wait: impl FnOnce() -> bool) {
        let id = self.fiber_id();
        if !self.pool.parking.enter(address, id, must_wait) {
            return;
        }
        loop {
            self.block();
            if !self.pool.parking.is_entered(address, id) {
                return;
            }
        }
    }

    /// Waits until `is_over`, under an address. [Spins](Self::spin_until) first.
    pub fn wait_until(&self, address: usize, is_over: impl Fn() -> bool) {
        if is_over() || self.spin_until(&is_over) {
            return;
        }
        self.park_until(address, is_over);
    }

    /// The same without spinning.
    pub fn park_until(&self, address: usize, is_over: impl Fn() -> bool) {
        while !is_over() {
            self.park(address, || !is_over());
        }
    }

    /// Wakes the fiber that has waited longest under an address. `change` is called before that,
    /// while no fiber can begin to wait there; its arguments are whether one was found and whether
    /// more wait.
    pub fn unpark_one(&self, address: usize, change: impl FnOnce(bool, bool)) {
        if let Some(id) = self.pool.parking.remove_one(address, change) {
            self.wake(id);
        }
    }

    /// Wakes all fibers that wait under an address.
    pub fn unpark_all(&self, address: usize) {
        for id in self.pool.parking.remove_all(address) {
            self.wake(id);
        }
    }

    /// Spins while this worker has nothing else to run and sees nothing to steal, as long as an
    /// idle worker does. Returns whether the condition holds.
    #[inline]
    pub fn spin_until(&self, is_over: &impl Fn() -> bool) -> bool {
        if !self.idle.brief.are_paused() {
            for _ in 0..SPINS {
                if is_over() {
                    return true;
                }
                if self.has_other_work() {
                    return false;
                }
                cpu::pause();
            }
        }
        self.spin_longer(is_over)
    }

    /// The rest of [`spin_until`](Self::spin_until). On the stack of the fiber that waits:
    /// suspending it and waking it again would cost more than what it mostly waits for.
    #[inline(never)]
    fn spin_longer(&self, is_over: &impl Fn() -> bool) -> bool {
        let spin_ns = self.spin_ns();
        if spin_ns == 0 && !self.may_spin_briefly() {
            return false;
        }
        let mut time = self.spin_time(self.now_ns(), spin_ns, BRIEF_NS);
        let is_met = self.spin_until_time(&mut time, is_over);
        self.idle.brief.record(is_met || spin_ns != 0);
        self.spun(&time, is_met);
        is_met
    }

    fn spin_until_time(&self, time: &mut SpinTime, is_over: &impl Fn() -> bool) -> bool {
        let mut now = self.now_ns();
        let mut scan_at = now;
        while now < time.until_ns || self.spins_on(time, now) {
            if now >= scan_at {
                if self.sees_work(false) {
                    return is_over();
                }
                scan_at = now + SCAN_NS;
            }
            for _ in 0..8 {
                if is_over() {
                    return true;
                }
                if self.has_other_work() {
                    return false;
                }
                cpu::pause();
            }
            now = self.now_ns();
        }
        false
    }

    /// Attempts what fails while another core holds something, at growing intervals and not for
    /// long, as long as [`spin_until`](Self::spin_until) would spin. Between attempts the other
    /// core keeps the cache line: it mostly wants the same again. Returns whether an attempt has
    /// succeeded.
    pub fn attempt_rarely(&self, attempt: &impl Fn() -> bool) -> bool {
        let spin_ns = self.spin_ns();
        let is_contended = spin_ns == 0;
        if is_contended && !self.may_spin_briefly() {
            return false;
        }
        let most_ns = if is_contended { BRIEF_NS } else { spin_ns };
        let has_succeeded = self.attempt_until(self.now_ns() + most_ns.min(RARELY_NS), attempt);
        if is_contended {
            self.idle.brief.record(has_succeeded);
        }
        has_succeeded
    }

    fn attempt_until(&self, until_ns: u64, attempt: &impl Fn() -> bool) -> bool {
        let mut now = self.now_ns();
        let mut scan_at = now + SCAN_NS;
        let mut interval_ns = FIRST_INTERVAL_NS;
        while now < until_ns {
            let next = now + interval_ns;
            interval_ns = (interval_ns * 2).min(LAST_INTERVAL_NS);
            while now < next {
                if self.has_other_work() {
                    return false;
                }
                cpu::pause();
                now = self.now_ns();
            }
            if attempt() {
                return true;
            }
            if now >= scan_at {
                if self.sees_work(false) {
                    return false;
                }
                scan_at = now + SCAN_NS;
            }
        }
        false
    }

    /// Spins for a time, in nanoseconds, or until a condition holds. Returns false when this worker
    /// has something else to run.
    pub fn spin_for(&self, time_ns: u64, is_over: &impl Fn() -> bool) -> bool {
        let until = self.now_ns() + time_ns;
        while !is_over() && self.now_ns() < until {
            if self.has_other_work() {
                return false;
            }
            cpu::pause();
        }
        true
    }
}
