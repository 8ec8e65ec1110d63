//! The search for work: the worker's own, published offers, jobs to steal.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fastrand::Rng;
use margay_sys_threads::job;

use super::{Work, Worker};
use crate::offer::{Offer, StealDelay};
use crate::pool_state::WorkerSlot;
use crate::steal_backoff::StealBackoff;

/// A worker in its role as a thief.
pub(super) struct Thief {
    seed: Cell<u64>,
    delay: StealDelay,
    pub(super) backoff: StealBackoff,
}

impl Thief {
    /// `seed` decides which victims it chooses.
    pub(super) fn new(seed: u64) -> Thief {
        Thief {
            seed: Cell::new(seed),
            delay: StealDelay::default(),
            backoff: StealBackoff::default(),
        }
    }

    /// A random number below `n`, which is not 0.
    fn random_below(&self, n: usize) -> usize {
        // The generator is its seed, so that a cell can hold it.
        let mut random = Rng::with_seed(self.seed.get());
        let below = random.usize(..n);
        self.seed.set(random.get_seed());
        below
    }
}

impl Worker {
    /// Whether this worker may take work with this tag. A program thread takes only what was forked
    /// for it: it is thread 0 of that, and it should return as soon as that is done.
    fn may_take(&self, tag: u32) -> bool {
        if self.number == 0 {
            tag == u32::from(self.slot) + 1
        } else {
            self.number < self.pool.active()
        }
    }

    /// Finds something to run: its own youngest job, an open offer of its own, then, from a random
    /// worker on, an open offer or the oldest job of another worker.
    pub(super) fn find_work(&self) -> Option<Work> {
        if let Some(job) = job::pop(self) {
            return Some(Work::Job(job));
        }
        if let Some(offer) = self.own_open_offer() {
            return Some(Work::Offer(offer));
        }
        if self.number != 0 && self.number >= self.pool.active() {
            return None;
        }
        if !self.back_off() {
            return None;
        }
        self.thief.delay.begin();
        let slots = self.pool.used_slots();
        let first = self.thief.random_below(slots);
        for step in 0..slots {
            let at = (first + step) % slots;
            if at == usize::from(self.slot) {
                continue;
            }
            let victim = self.pool.slot(at as u16);
            if let Some(offer) = self.open_offer(victim, |mark| {
                self.thief.delay.is_over(mark, || self.now_ns())
            }) {
                return Some(Work::Offer(offer));
            }
            if let Some(job) = victim.stealer.steal_if(|job| self.may_take(job.tag())) {
                // There is more: wake the next sleeper.
                if !victim.stealer.is_empty() {
                    self.pool.published(job.tag());
                }
                return Some(Work::Stolen(job));
            }
        }
        self.thief.delay.end(|| self.now_ns());
        None
    }

    /// The steal back-off, if there is one. Returns false when work of its own has come up.
    fn back_off(&self) -> bool {
        let backoff_ns = self.thief.backoff.ns();
        if backoff_ns == 0 {
            return true;
        }
        self.spin_for(backoff_ns, &|| false)
    }

    fn open_offer(
        &self,
        slot: &WorkerSlot<Worker>,
        accepts_mark: impl Fn(u64) -> bool,
    ) -> Option<Arc<dyn Offer<Worker>>> {
        slot.offers.find(accepts_mark, |offer| {
            offer.is_open() && self.may_take(offer.tag())
        })
    }

    fn own_open_offer(&self) -> Option<Arc<dyn Offer<Worker>>> {
        self.open_offer(&self.own, |_| true)
    }

    /// An open offer of any worker that this one may take, whatever its steal delay.
    pub(super) fn any_open_offer(&self) -> Option<Arc<dyn Offer<Worker>>> {
        let mut slots = self.pool.slots();
        slots.find_map(|slot| self.open_offer(slot, |_| true))
    }

    /// Whether this worker has something else to run than the current fiber, without stealing.
    #[must_use]
    pub fn has_other_work(&self) -> bool {
        self.fibers.has_ready()
            || !self.deque.is_empty()
            || self.has_wakeups()
            || self.own_open_offer().is_some()
    }

    /// Whether there seems to be something to run. Jobs that this worker may not take count where
    /// their tags cannot be seen without taking them. Offers of other workers count if their steal
    /// delay is over, or if `any_offer`.
    pub(super) fn sees_work(&self, any_offer: bool) -> bool {
        if self.has_other_work() {
            return true;
        }
        if self.number != 0
            && (self.number >= self.pool.active() || self.pool.is_over.load(Ordering::Acquire))
        {
            return self.has_ended();
        }
        let takes_any_job = self.number != 0 || self.pool.has_one_program_thread();
        let delay = &self.thief.delay;
        delay.begin();
        let accepts_mark = |mark| any_offer || delay.is_over(mark, || self.now_ns());
        let is_there = self.pool.slots().any(|slot| {
            (takes_any_job && !slot.stealer.is_empty())
                || self.open_offer(slot, accepts_mark).is_some()
        });
        if !is_there {
            delay.end(|| self.now_ns());
        }
        is_there
    }
}
