//! Workers: the threads of a pool.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`run`] | the loop of a thread: resumes fibers, gives them work |
//! | [`search`] | searches for work: the worker's own, published offers, jobs to steal |
//! | [`idle`] | the one place that waits: spins, then sleeps |
//! | [`wait`] | fibers that wait: block and wake, parking, spinning for a condition |
//! | [`interrupt`] | fibers that compute, spin or wait in the kernel while others could run |
//! | [`fork`] | what the forks and groups of `sys` need of a worker |

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_sys_os::clock::Clock;
use margay_sys_os::{cpu, fence};
use margay_sys_threads::deque::Owner;
use margay_sys_threads::inspect::ThreadEntry;
use margay_sys_threads::job::{Context, Home, Job, Nodes};

use crate::fiber_table::{FiberId, FiberTable};
use crate::offer::{Offer, PublishedOffer, RetractedOffer, STEALABLE};
use crate::pool_state::{PoolState, WorkerSlot};
use crate::time_slices::TimeSlices;

mod fork;
mod idle;
mod interrupt;
mod run;
mod search;
mod wait;

pub use fork::DequeMark;

/// Something to run.
enum Work {
    Job(Job<Worker>),
    Stolen(Job<Worker>),
    Offer(Arc<dyn Offer<Worker>>),
}

/// A thread that runs work: one of the pool's, or a program thread while it is in a call. Belongs
/// to that thread.
pub struct Worker {
    pool: Arc<PoolState<Worker>>,
    /// The number of its slot.
    slot: u16,
    own: Arc<WorkerSlot<Worker>>,
    /// 0 for a program thread, otherwise its number in the pool.
    number: usize,
    /// Which program thread the running work was forked for: the number of its slot, plus one.
    tag: Cell<u32>,
    deque: Owner<Job<Worker>>,
    home: Home,
    nodes: Nodes<Worker>,
    fibers: FiberTable<Work>,
    thief: search::Thief,
    idle: idle::IdleState,
    slices: RefCell<TimeSlices>,
    /// How many short offers it has published.
    short_offers: Cell<u64>,
    /// For the bodies of its fibers.
    this: Weak<Worker>,
    /// Lets debuggers know of the thread.
    _entry: ThreadEntry,
}

impl Worker {
    pub(crate) fn new(
        pool: Arc<PoolState<Worker>>,
        slot: u16,
        number: usize,
        deque: Owner<Job<Worker>>,
    ) -> Rc<Worker> {
        let own = Arc::clone(pool.slot(slot));
        let thread = cpu::thread_number();
        own.watched.thread.store(thread, Ordering::Relaxed);
        let fibers = FiberTable::new(Arc::clone(&own.watched.fibers));
        let thief = search::Thief::new(pool.clock.ticks());
        Rc::new_cyclic(|this| Worker {
            pool,
            slot,
            own,
            number,
            tag: Cell::new(u32::from(slot) + 1),
            deque,
            home: Home::new(),
            nodes: Nodes::new(),
            fibers,
            thief,
            idle: idle::IdleState::default(),
            slices: RefCell::new(TimeSlices::default()),
            short_offers: Cell::new(0),
            this: this.clone(),
            _entry: ThreadEntry::new(thread, number),
        })
    }

    /// A program thread ends, or leaves the pool: releases its slot. One of the pool's ends: its
    /// slot ends with the pool.
    pub(crate) fn leave(self: Rc<Self>) {
        self.end_idle_fibers();
        self.own.watched.thread.store(0, Ordering::Relaxed);
        let (pool, slot) = (Arc::clone(&self.pool), self.slot);
        // Fibers that wait for ever (a program that ends inside a parallel construct) keep the
        // worker and its slot.
        if let Some(worker) = Rc::into_inner(self)
            && worker.number == 0
        {
            pool.release_program_slot(slot, worker.deque);
        }
    }

    /// The worker's number: 0 for a program thread, from 1 on for the pool's.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Threads that may run work at the same time, as [`set_active`](Self::set_active) has set it.
    #[must_use]
    pub fn active(&self) -> usize {
        self.pool.active()
    }

    /// Threads that exist to run work, the calling one included.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.pool.workers()
    }

    /// Sets how many workers may take work: at least 1, at most [`workers`](Self::workers). Returns
    /// how many may now. A worker finishes what it has begun.
    pub fn set_active(&self, workers: usize) -> usize {
        self.pool.set_active(workers)
    }

    pub(crate) fn is_in(&self, pool: &Arc<PoolState<Worker>>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }

    /// The time of the pool's clock, in nanoseconds.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.pool.clock.now_ns()
    }

    /// Which program thread the running work was forked for.
    #[inline]
    #[must_use]
    pub fn tag(&self) -> u32 {
        self.tag.get()
    }

    /// The running fiber, for [`wake`](Self::wake).
    #[inline]
    #[must_use]
    pub fn fiber_id(&self) -> FiberId {
        FiberId {
            worker: self.slot,
            fiber: self.fibers.current(),
        }
    }

    /// Publishes an offer, of which workers that are awake may take parts; for those that sleep see
    /// [`call_for_help`](Self::call_for_help). The caller goes on by taking parts itself. If
    /// `is_short`, the offer may be over within microseconds: other workers leave it to the caller
    /// for [`STEAL_DELAY_NS`](crate::STEAL_DELAY_NS).
    pub fn publish_offer(&self, offer: Arc<dyn Offer<Worker>>, is_short: bool) -> PublishedOffer {
        let mark = self.offer_mark(is_short);
        let published = self.own.offers.publish(offer, mark, self.slot);
        self.announce(is_short);
        published
    }

    /// Wakes at most one sleeping worker for an offer with this tag, which has just been published
    /// and is expected to take this long, unless waking one costs more. Returns whether another
    /// worker may come soon: false where all of them sleep on.
    #[inline]
    pub fn call_for_help(&self, tag: u32, expected_ns: u64) -> bool {
        !self.pool.sleepers.are_there() || self.pool.wake_for_offer(tag, expected_ns)
    }

    /// Publishes a retracted offer again, if it is still on this worker's shelf. Costs next to
    /// nothing, unlike publishing another one.
    #[inline]
    pub fn republish_offer(
        &self,
        retracted: RetractedOffer,
        is_short: bool,
    ) -> Option<PublishedOffer> {
        if retracted.worker() != self.slot {
            return None;
        }
        let mark = self.offer_mark(is_short);
        let published = self.own.offers.republish(retracted, mark);
        self.announce(is_short);
        published
    }

    #[inline]
    fn announce(&self, is_short: bool) {
        if !is_short {
            self.pool.announced.announce();
        }
    }

    #[inline]
    fn offer_mark(&self, is_short: bool) -> u64 {
        if !is_short {
            return STEALABLE;
        }
        let number = self.short_offers.get().wrapping_add(1);
        self.short_offers.set(number);
        // Not that of another worker, nor STEALABLE, nor the shelf's mark of retracted offers.
        u64::from(self.slot + 1) << 48 | number & 0xffff_ffff_ffff
    }

    /// Ends the steal delay of an offer of this worker.
    pub fn make_stealable(&self, published: &PublishedOffer) {
        self.own.offers.mark(published, STEALABLE);
    }

    /// Retracts an offer of this worker. Returns its place on the shelf, if it had one there.
    #[inline]
    pub fn retract_offer(&self, published: PublishedOffer) -> Option<RetractedOffer> {
        self.own.offers.retract(published)
    }

    /// Enqueues a job that any worker runs once. [`wait_enqueued`](Self::wait_enqueued) waits for
    /// it.
    #[inline]
    pub fn enqueue(&self, work: impl FnOnce(&Worker) + Send + 'static) {
        let enqueued = &self.own.enqueued;
        // Only this thread writes it.
        enqueued.store(enqueued.load(Ordering::Relaxed) + 1, Ordering::Release);
        let job = self.nodes.job(self.tag(), move |worker: &Worker| {
            work(worker);
            worker.completed();
        });
        self.deque.push(job);
        self.pushed();
    }

    #[inline]
    fn completed(&self) {
        let completed = &self.own.completed;
        completed.store(completed.load(Ordering::Relaxed) + 1, Ordering::Release);
        fence::light();
        if self.pool.enqueue_waiters.load(Ordering::Relaxed) == 0 {
            return;
        }
        // Of two workers that complete the last two jobs at the same time, at least one has to see
        // both.
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.pool.has_completed_all() {
            self.unpark_all(self.enqueue_address());
        }
    }

    /// Returns when all enqueued jobs, of all threads, are complete. Not to be called by an
    /// enqueued job, which would wait for itself.
    pub fn wait_enqueued(&self) {
        while !self.pool.has_completed_all() {
            self.pool.enqueue_waiters.fetch_add(1, Ordering::SeqCst);
            fence::heavy();
            self.park(self.enqueue_address(), || !self.pool.has_completed_all());
            self.pool.enqueue_waiters.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn enqueue_address(&self) -> usize {
        std::ptr::from_ref(&self.pool.enqueue_waiters).addr()
    }
}
