//! What the forks and groups of `sys` need of a worker.

use margay_sys_threads::deque::Owner;
use margay_sys_threads::job::{self, Context, Count, Home, Job, Latch, Nodes};

use super::Worker;
use crate::fiber_table::FiberId;

/// The end of a worker's deque at some time; see [`Context::mark`].
#[derive(Clone, Copy, Debug)]
pub struct DequeMark {
    end: u64,
    switches: u64,
}

impl Context for Worker {
    #[inline]
    fn deque(&self) -> &Owner<Job<Self>> {
        &self.deque
    }

    #[inline]
    fn tag(&self) -> u32 {
        self.tag.get()
    }

    #[inline]
    fn pushed(&self) {
        let request = self.deque.call();
        if request.is_raised() {
            self.pool.answer_wake_request(request, self.tag.get());
        }
    }

    fn wait(&self, latch: &Latch) {
        if self.spin_until(&|| latch.is_done()) {
            return;
        }
        if latch.announce(self.fiber_id().to_word()) {
            self.block();
        }
    }

    fn wake(&self, waiter: u32) {
        Worker::wake(self, FiberId::from_word(waiter));
    }

    type Mark = DequeMark;

    #[inline]
    fn mark(&self) -> DequeMark {
        DequeMark {
            end: self.deque.end(),
            switches: self.fibers.switches(),
        }
    }

    fn wait_for_tasks(&self, count: &Count, mark: DequeMark) {
        // What lies above the mark was forked by the waiter or below it, and may run on its stack.
        // Not so when another fiber has run in between, whose entries may be among them: what that
        // one waits for may be the waiter itself.
        while self.fibers.switches() == mark.switches
            && self.deque.end().wrapping_sub(mark.end) as i64 > 0
        {
            let Some(job) = job::pop(self) else { break };
            let tag = self.tag.replace(job.tag());
            job.run(self);
            self.tag.set(tag);
        }
        if count.is_zero(&self.home) || self.spin_until(&|| count.is_zero(&self.home)) {
            return;
        }
        count.announce(u32::from(self.fibers.current()) + 1);
        while !count.is_zero(&self.home) {
            self.block();
        }
        count.announce(0);
    }

    #[inline]
    fn worker_slot(&self) -> u16 {
        self.slot
    }

    fn wake_task(&self, worker: u16, waiter: u32) {
        let fiber = (waiter - 1) as u16;
        Worker::wake(self, FiberId { worker, fiber });
    }

    #[inline]
    fn nodes(&self) -> &Nodes<Self> {
        &self.nodes
    }

    #[inline]
    fn home(&self) -> &Home {
        &self.home
    }
}
