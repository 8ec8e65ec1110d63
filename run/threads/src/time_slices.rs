//! Time slices: fibers of one worker that compute, or spin for each other, take turns.

use margay_sys_threads::preempt::{self, Timer};

/// Processor time of one fiber after which the other fibers of its worker have their turn: longer
/// than any wait for something that is under way, and short enough that nobody notices.
pub(crate) const SLICE_NS: u64 = 10_000_000;
/// The slice where fibers use theirs up while others wait, since they may spin for each other and
/// each such wait costs slices: this, or the time to the kernel's next tick. (Half a millisecond,
/// by the kernel's clock for profiling, let NPB's LU with 4 members on 2 cores use a quarter of the
/// time, and took 7 % from teams that compute.)
const SHORT_SLICE_NS: u64 = 3_000_000;
/// Short slices in a row that were not used up, or in which no fiber waited, after which slices are
/// long again.
const SHORT_SLICES: u32 = 50;

/// Of this many calls of `sched_yield` in a row the kernel sees one. It costs five times a switch.
const YIELDS: u32 = 16;

/// Slices in which no fiber waited for anything, after which the timer is switched off.
const QUIET_SLICES: u32 = 100;

/// The time slices of one worker. Off until [`enable`](Self::enable), and off again by themselves.
#[derive(Default)]
pub(crate) struct TimeSlices {
    timer: Option<Timer>,
    is_on: bool,
    /// When this worker started offered work in the middle of something else last.
    started_ns: u64,
    /// Short slices to come unless another one is used up.
    short_slices: u32,
    /// The worker's count of fiber switches when the current slice began.
    switches: u64,
    quiet_slices: u32,
    /// Calls of `sched_yield` since the kernel has seen one.
    yields: u32,
}

impl TimeSlices {
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    #[cold]
    pub(crate) fn enable(&mut self) {
        self.is_on = true;
        self.quiet_slices = 0;
        self.short_slices = 0;
        preempt::refresh();
        if self.timer.is_none() {
            // Without a timer everything works except fibers that spin for each other.
            self.timer = Timer::new().ok();
        }
        self.set_period(SLICE_NS);
    }

    fn set_period(&self, period_ns: u64) {
        if let Some(timer) = &self.timer {
            timer.set(period_ns);
        }
    }

    /// A slice has ended. `switches` is the worker's count of fiber switches; `has_other_work` says
    /// whether it could run something else, `has_waiting` whether a fiber of it waits for
    /// something. Returns whether the running fiber should yield.
    pub(crate) fn ended(
        &mut self,
        switches: u64,
        has_other_work: bool,
        has_waiting: impl FnOnce() -> bool,
    ) -> bool {
        let has_used_slice = std::mem::replace(&mut self.switches, switches) == switches;
        if has_other_work && has_used_slice {
            if self.short_slices == 0 {
                self.set_period(SHORT_SLICE_NS);
            }
            self.short_slices = SHORT_SLICES;
        } else if self.short_slices > 0 {
            self.short_slices -= 1;
            if self.short_slices == 0 {
                self.set_period(SLICE_NS);
            }
        }
        if has_other_work {
            self.quiet_slices = 0;
            if has_used_slice {
                // The next fiber's slice begins when the caller yields.
                self.switches += 1;
            }
            return has_used_slice;
        }
        // Another worker may wake a fiber that waits here; only the next tick would give it its
        // turn.
        if has_waiting() {
            self.quiet_slices = 0;
            return false;
        }
        self.quiet_slices += 1;
        if self.quiet_slices >= QUIET_SLICES {
            self.is_on = false;
            self.set_period(0);
        }
        false
    }

    /// A fiber has called `sched_yield` and another one has had its turn instead. Returns whether
    /// the kernel's turn has come: other threads may wait for this core.
    pub(crate) fn kernel_has_turn(&mut self) -> bool {
        self.yields = (self.yields + 1) % YIELDS;
        self.yields == 0
    }

    /// Whether offered work may be started in the middle of something else: `pause_ns` after the
    /// last time at the earliest, so that workers on their way find some left. What has begun stays
    /// here.
    pub(crate) fn may_start(&mut self, now_ns: u64, pause_ns: u64) -> bool {
        if now_ns < self.started_ns + pause_ns {
            return false;
        }
        self.started_ns = now_ns;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fiber_that_uses_its_slice_up_yields_to_others_only() {
        let mut slices = TimeSlices::default();
        assert!(!slices.ended(7, true, || false), "its slice has just begun");
        assert!(slices.ended(7, true, || false));
        assert!(!slices.ended(9, false, || false), "nothing else to run");
        assert!(
            !slices.ended(10, true, || false),
            "another fiber ran meanwhile"
        );
    }

    #[test]
    fn slices_end_when_no_fiber_waits_for_long() {
        let mut slices = TimeSlices {
            is_on: true,
            ..TimeSlices::default()
        };
        for _ in 0..QUIET_SLICES {
            assert!(slices.is_on());
            slices.ended(1, false, || true);
        }
        for _ in 0..QUIET_SLICES {
            assert!(slices.is_on());
            slices.ended(1, false, || false);
        }
        assert!(!slices.is_on());
    }

    #[test]
    fn work_is_started_once_in_a_slice() {
        let mut slices = TimeSlices::default();
        let now = 2 * SLICE_NS;
        assert!(slices.may_start(now, SLICE_NS) && !slices.may_start(now + 1, SLICE_NS));
        assert!(slices.may_start(now + SLICE_NS, SLICE_NS));
    }
}
