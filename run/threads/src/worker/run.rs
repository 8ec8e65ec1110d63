//! The loop of a thread: resumes fibers and gives them work.

use std::sync::atomic::Ordering;

use margay_sys_threads::fiber::{self, Fiber, Status};

use super::{Work, Worker};
use crate::fiber_table::ROOT;

impl Worker {
    /// The life of one of the pool's threads.
    pub(crate) fn run_until_end(&self) {
        self.run_loop();
        self.end_idle_fibers();
    }

    /// Lets idle fibers return, which frees their stacks.
    pub(super) fn end_idle_fibers(&self) {
        while let Some(fiber) = self.fibers.pop_idle() {
            self.resume(fiber);
        }
    }

    /// Resumes ready fibers, begins new work, waits for work. Returns when the root is ready, or
    /// when the pool ends.
    pub(super) fn run_loop(&self) {
        loop {
            self.drain_wake_queue();
            match self.fibers.pop_ready() {
                Some(ROOT) => {
                    self.fibers.count_switch();
                    return;
                }
                Some(fiber) => self.resume(fiber),
                None => match self.find_work() {
                    Some(work) => self.assign(work),
                    None if self.number != 0 && self.pool.is_over.load(Ordering::Acquire) => return,
                    None => self.wait_for_work(),
                },
            }
        }
    }

    fn resume(&self, fiber: u16) {
        self.idle.end();
        let mut body = self.fibers.start(fiber);
        match body.resume() {
            Status::Suspended => self.fibers.put_back(fiber, body),
            Status::Finished => self.fibers.remove(fiber),
        }
    }

    /// Gives work to an idle or a new fiber, which is ready then.
    pub(super) fn assign(&self, work: Work) {
        let idle = self.fibers.pop_idle();
        let fiber = idle.unwrap_or_else(|| self.new_fiber());
        self.fibers.assign(fiber, work);
    }

    fn new_fiber(&self) -> u16 {
        let this = self.this.clone();
        let body = move || {
            // The worker lives as long as its loop, which resumed this fiber.
            if let Some(worker) = this.upgrade() {
                worker.run_fiber();
            }
        };
        let stack_bytes = self.pool.config.stack_bytes;
        let fiber = Fiber::new(stack_bytes, body).unwrap_or_else(|error| {
            panic!(
                "no stack of {stack_bytes} bytes for another blocked task: {error}; ask for smaller \
                 stacks, or let fewer tasks wait at the same time"
            )
        });
        self.fibers.insert(fiber)
    }

    /// The body of a fiber: runs work until another fiber of this worker is ready or no work is
    /// left.
    fn run_fiber(&self) {
        let me = self.fibers.current();
        // Resumed without work: the worker ends.
        while let Some(mut work) = self.fibers.take_work(me) {
            loop {
                self.run(work);
                self.drain_wake_queue();
                if self.fibers.has_ready() {
                    break;
                }
                match self.find_work() {
                    Some(next) => work = next,
                    None => break,
                }
            }
            if !self.fibers.keep_idle(me) {
                return;
            }
            fiber::suspend();
            self.fibers.set_current(me);
        }
    }

    fn run(&self, work: Work) {
        match work {
            Work::Job(job) => {
                self.tag.set(job.tag());
                job.run(self);
            }
            Work::Stolen(job) => {
                let began = self.now_ns();
                self.tag.set(job.tag());
                job.run(self);
                self.thief.backoff.record(self.now_ns() - began);
            }
            Work::Offer(offer) => {
                self.tag.set(offer.tag());
                offer.help(self);
            }
        }
    }
}
