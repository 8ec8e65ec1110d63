//! Fibers that compute, spin or wait in the kernel while others could run.

use std::sync::atomic::Ordering;

use margay_sys_threads::preempt::{Interrupted, Reason};

use super::{Work, Worker};
use crate::time_slices::SLICE_NS;

/// Between two members that a worker begins because another one waits in the kernel: as long as it
/// takes a sleeping worker to come for some.
const START_PAUSE_NS: u64 = 100_000;

impl Worker {
    /// From now on no fiber of this worker computes or waits in the kernel for ever while others of
    /// it could run. Needs [`preempt_by`](crate::preempt_by). Costs next to nothing when it is on.
    #[inline]
    pub fn enable_time_slices(&self) {
        if !self.slices.borrow().is_on() {
            self.slices.borrow_mut().enable();
        }
        self.pool.watch.start();
    }

    /// The running fiber has been interrupted in the program, or calls `sched_yield`: lets others
    /// run if it is their turn. Returns whether it should yield, spin or wait again for their sake,
    /// and not in the kernel.
    pub fn interrupted(&self, how: Interrupted, reason: Reason) -> bool {
        let is_yielding = &self.own.watched.is_yielding;
        match (how, reason) {
            (Interrupted::Computing, Reason::Observer) => {
                // It spins no longer.
                is_yielding.store(false, Ordering::Relaxed);
            }
            (Interrupted::Computing | Interrupted::Yielding, Reason::Timer) => {
                let is_their_turn = self.slice_ended();
                // However short slices are.
                if self.start_offered_work(SLICE_NS) || is_their_turn {
                    let yields = how == Interrupted::Yielding;
                    is_yielding.store(yields, Ordering::Relaxed);
                    self.yield_now();
                }
            }
            (Interrupted::Yielding, Reason::Observer) => self.yield_now(),
            (Interrupted::Yielding | Interrupted::Computing, Reason::Call) => {
                return self.yielded();
            }
            (Interrupted::Waiting, _) => self.replace_waiting(),
        }
        self.has_other_work()
    }

    /// The running fiber has called `sched_yield`. Returns whether another one has had its turn,
    /// and the kernel need not be asked.
    fn yielded(&self) -> bool {
        let is_kernels_turn = self.slices.borrow_mut().kernel_has_turn();
        // All that have begun may spin for a member that another worker has not come to begin. (At
        // once it is not taken from that worker: OpenBLAS' products would have one core of two.)
        if is_kernels_turn && let Some(work) = self.find_work() {
            self.assign(work);
        }
        if !self.has_other_work() {
            return false;
        }
        self.yield_now();
        !is_kernels_turn
    }

    /// A time slice has ended. Returns whether the running fiber should yield.
    fn slice_ended(&self) -> bool {
        let has_other_work = self.has_other_work();
        self.slices
            .borrow_mut()
            .ended(self.fibers.switches(), has_other_work, || {
                self.fibers.has_waiting()
            })
    }

    /// Gives a fiber to an open offer of any worker, and returns whether there was one: members
    /// that spin may wait for a member that nobody has begun.
    fn start_offered_work(&self, pause_ns: u64) -> bool {
        if !self.slices.borrow_mut().may_start(self.now_ns(), pause_ns) {
            return false;
        }
        let Some(offer) = self.any_open_offer() else {
            return false;
        };
        self.assign(Work::Offer(offer));
        true
    }

    /// The running fiber waits in the kernel: whatever else there is has its turn. That includes
    /// members that nobody has begun, also while others are ready: those may all wait for them.
    fn replace_waiting(&self) {
        self.start_offered_work(START_PAUSE_NS);
        self.yield_now();
    }
}
