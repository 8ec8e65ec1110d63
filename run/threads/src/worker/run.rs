//! The loop of a thread: resumes fibers and gives them work.

use std::io;
use std::sync::atomic::Ordering;

use margay_sys_threads::fiber::{self, Fiber, Status};

use super::{Work, Worker};
use crate::config::Config;
use crate::fiber_table::ROOT;

/// Bytes of the stacks that are tried, one after another, when the system refuses what was asked
/// for. A program that needs more than the least overflows into a guard page.
const SMALLER_STACKS: [usize; 7] = [
    8 << 20,
    4 << 20,
    2 << 20,
    1 << 20,
    512 << 10,
    256 << 10,
    128 << 10,
];

/// A number of bytes for people.
fn size_text(bytes: usize) -> String {
    match bytes {
        0..0x10_0000 => format!("{} KiB", bytes >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

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
                    None if self.number != 0 && self.has_ended() => return,
                    None => self.wait_for_work(),
                },
            }
        }
    }

    /// Whether a worker of the pool has nothing left to do for good. A fiber that waits has: what
    /// it waits for may be done by a thread that came when the others had left.
    pub(super) fn has_ended(&self) -> bool {
        self.pool.is_over.load(Ordering::Acquire) && !self.fibers.has_waiting()
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
        let fiber = self.try_new_fiber(self.pool.stack_bytes.load(Ordering::Relaxed));
        match fiber {
            Ok(fiber) => self.fibers.insert(fiber),
            Err(error) => self.new_fiber_with_less(&error),
        }
    }

    fn try_new_fiber(&self, stack_bytes: usize) -> io::Result<Fiber> {
        if !self.fibers.has_room() {
            return Err(io::Error::other("too many tasks of one thread are blocked"));
        }
        let this = self.this.clone();
        Fiber::new(stack_bytes, move || {
            // The worker lives as long as its loop, which resumed this fiber.
            if let Some(worker) = this.upgrade() {
                worker.run_fiber();
            }
        })
    }

    /// The system has refused a stack: tries smaller ones, which those that come later get, too.
    #[cold]
    fn new_fiber_with_less(&self, error: &io::Error) -> u16 {
        let Config {
            stack_bytes: wanted,
            refusal,
            ..
        } = self.pool.config;
        let before = self.pool.stack_bytes.load(Ordering::Relaxed);
        for stack_bytes in SMALLER_STACKS.into_iter().filter(|&less| less < before) {
            let Ok(fiber) = self.try_new_fiber(stack_bytes) else {
                continue;
            };
            self.pool.stack_bytes.store(stack_bytes, Ordering::Relaxed);
            if before == wanted {
                (refusal.warn)(&format!(
                    "the system has no memory for another stack of {} ({error}); stacks are smaller from here on, {} \
                     now. Ask for smaller stacks or fewer threads, or raise the limit of address space (ulimit -v)",
                    size_text(wanted),
                    size_text(stack_bytes)
                ));
            }
            return self.fibers.insert(fiber);
        }
        (refusal.fail)(&format!(
            "the system has no memory for another stack, not even of {} ({error}); ask for fewer threads, let fewer \
             tasks wait at the same time, or raise the limits of address space (ulimit -v) and of mappings \
             (vm.max_map_count)",
            size_text(SMALLER_STACKS[SMALLER_STACKS.len() - 1])
        ))
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
