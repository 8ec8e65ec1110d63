//! What the workers of a pool share: the worker slots, who sleeps, and whom to wake.
//!
//! `W` is the worker's type, which only jobs and offers carry.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use margay_sys_os::clock::{AnyClock, Clock};
use margay_sys_os::cpu;
use margay_sys_threads::deque::{Owner, Stealer, deque};
use margay_sys_threads::job::Job;
use margay_sys_threads::sleepers::{SleepState, Sleepers, WakeRequest};

use crate::config::Config;
use crate::contention::{Contention, RunDelay};
use crate::fiber_table::FiberId;
use crate::offer::Offers;
use crate::parking::ParkingLot;
use crate::watched::{Watch, Watched};
use margay_sys_threads::wake_queue::WakeQueue;

/// Worker slots of a pool: for its own workers and the program threads that call in. The thousandth
/// thread at once is a mistake of the program rather than a use.
const MAX_SLOTS: usize = 1024;

/// How long an offer has to be expected to take for a sleeping worker to be woken for it: a few
/// times less than it takes that worker to come ...
const WAKE_NS: u64 = 10_000;
/// ... and while other processes contend for the cores. The worker may lose its core in the middle
/// of the work, which then takes a time slice longer.
const CONTENDED_WAKE_NS: u64 = 100_000;
/// Shorter ones that follow each other are worth it together, when what they would have gained from
/// a worker that is awake comes to what waking one costs. So at most as much is lost again ...
const MISSED_NS: u64 = 30_000;
/// ... and what two workers share takes half its time and this.
const SHARING_NS: u64 = 600;

/// Workers that a pool can start.
pub(crate) const MAX_WORKERS: usize = MAX_SLOTS / 2;

/// The part of a worker that other threads use.
pub(crate) struct WorkerSlot<W: 'static> {
    pub(crate) stealer: Stealer<Job<W>>,
    pub(crate) offers: Offers<W>,
    pub(crate) wake_queue: WakeQueue,
    /// Where it sleeps.
    pub(crate) sleep: SleepState,
    /// Jobs that this worker has enqueued, and enqueued jobs that it has completed, ever. Only it
    /// writes them.
    pub(crate) enqueued: AtomicU64,
    pub(crate) completed: AtomicU64,
    pub(crate) watched: Watched,
}

/// See the module.
// Fields: each is a word or a structure that several workers use, with a protocol of its own; a
// group would share nothing.
pub(crate) struct PoolState<W: 'static> {
    pub(crate) config: Config,
    pub(crate) clock: AnyClock,
    slots: Box<[OnceLock<Arc<WorkerSlot<W>>>]>,
    /// Slots that have been used; those above are empty.
    used_slots: AtomicUsize,
    /// Slots whose program threads have gone, with their deques.
    free_slots: Mutex<Vec<(u16, Owner<Job<W>>)>>,
    /// Program threads that are workers now.
    program_threads: AtomicU32,
    /// Workers that there are, a calling program thread included.
    workers: AtomicUsize,
    /// Workers that may take work, a calling program thread included.
    active: AtomicUsize,
    pub(crate) sleepers: Sleepers,
    /// How many fibers wait for enqueued jobs.
    pub(crate) enqueue_waiters: AtomicU32,
    /// The workers end when they have nothing left to do.
    pub(crate) is_over: AtomicBool,
    /// They end when the last program thread leaves.
    ends_with_last_thread: AtomicBool,
    /// The bytes of the stacks that fibers get now: less than was asked for when the system has
    /// refused that.
    pub(crate) stack_bytes: AtomicUsize,
    pub(crate) parking: ParkingLot,
    contention: Contention,
    pub(crate) watch: Watch,
    pub(crate) announced: Announced,
    /// What offers would have gained for which no worker has been woken. Some may be forgotten.
    missed_ns: AtomicU64,
}

/// Tells workers that spin of a new offer: a word that changes, on a cache line of its own, so that
/// they may look at it all the time. Two announcements at the same time may count as one, and one
/// may be missed: workers also look by themselves now and then.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Announced(AtomicU32);

impl Announced {
    #[inline]
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// An offer has been published before. Two plain accesses: an exchange would wait for them.
    #[inline]
    pub(crate) fn announce(&self) {
        self.0.store(self.get().wrapping_add(1), Ordering::Release);
    }
}

impl<W> PoolState<W> {
    /// The state of a pool that has no workers yet.
    pub(crate) fn new(config: Config, clock: AnyClock) -> PoolState<W> {
        PoolState {
            config,
            clock,
            slots: (0..MAX_SLOTS).map(|_| OnceLock::new()).collect(),
            used_slots: AtomicUsize::new(0),
            free_slots: Mutex::new(Vec::new()),
            program_threads: AtomicU32::new(0),
            workers: AtomicUsize::new(config.workers),
            active: AtomicUsize::new(config.workers),
            sleepers: Sleepers::new(),
            enqueue_waiters: AtomicU32::new(0),
            is_over: AtomicBool::new(false),
            ends_with_last_thread: AtomicBool::new(false),
            stack_bytes: AtomicUsize::new(config.stack_bytes),
            parking: ParkingLot::new(),
            contention: Contention::new(cpu::affinity().len()),
            watch: Watch::default(),
            announced: Announced::default(),
            missed_ns: AtomicU64::new(0),
        }
    }

    /// The slots that are or were in use.
    #[inline]
    pub(crate) fn slots(&self) -> impl Iterator<Item = &WorkerSlot<W>> {
        let used = self.used_slots.load(Ordering::Acquire);
        self.slots[..used]
            .iter()
            .filter_map(OnceLock::get)
            .map(|slot| &**slot)
    }

    #[inline]
    pub(crate) fn used_slots(&self) -> usize {
        self.used_slots.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn slot(&self, slot: u16) -> &Arc<WorkerSlot<W>> {
        self.slots[usize::from(slot)]
            .get()
            .expect("a worker's slot exists as long as the pool")
    }

    /// A slot for a worker of the pool. Fails when all are in use.
    pub(crate) fn acquire_slot(&self) -> (u16, Owner<Job<W>>) {
        let mut free = self
            .free_slots
            .lock()
            .expect("nothing panics with this lock held");
        if let Some(slot) = free.pop() {
            return slot;
        }
        let number = self.used_slots.load(Ordering::Relaxed);
        if number >= MAX_SLOTS {
            drop(free);
            (self.config.refusal.fail)(&format!(
                "{MAX_SLOTS} threads of the program run parallel work at the same time, and no more can: let threads \
                 end, or use fewer"
            ));
        }
        let (deque, stealer) = deque();
        let slot = WorkerSlot {
            stealer,
            offers: Offers::new(),
            wake_queue: WakeQueue::new(),
            sleep: SleepState::new(),
            enqueued: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            watched: Watched::default(),
        };
        assert!(
            self.slots[number].set(Arc::new(slot)).is_ok(),
            "slots are made once"
        );
        self.used_slots.store(number + 1, Ordering::Release);
        (number as u16, deque)
    }

    /// A slot for a program thread; see [`acquire_slot`](Self::acquire_slot).
    pub(crate) fn acquire_program_slot(&self) -> (u16, Owner<Job<W>>) {
        let slot = self.acquire_slot();
        self.program_threads.fetch_add(1, Ordering::SeqCst);
        slot
    }

    /// A program thread gives its slot back.
    pub(crate) fn release_program_slot(&self, slot: u16, deque: Owner<Job<W>>) {
        self.free_slots
            .lock()
            .expect("nothing panics with this lock held")
            .push((slot, deque));
        self.program_threads.fetch_sub(1, Ordering::SeqCst);
        if self.ends_with_last_thread.load(Ordering::SeqCst) {
            self.end_if_unused_but_by(0);
        }
    }

    /// Whether all work is that of one program thread.
    pub(crate) fn has_one_program_thread(&self) -> bool {
        self.program_threads.load(Ordering::Relaxed) <= 1
    }

    pub(crate) fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Sets how many workers may take work: at least 1, at most as many as there are. Returns how
    /// many may now.
    pub(crate) fn set_active(&self, workers: usize) -> usize {
        let workers = workers.clamp(1, self.workers());
        self.active.store(workers, Ordering::SeqCst);
        self.wake_all();
        workers
    }

    pub(crate) fn workers(&self) -> usize {
        self.workers.load(Ordering::Relaxed)
    }

    /// The system has refused threads: there are `workers` and no more.
    pub(crate) fn set_workers(&self, workers: usize) {
        self.workers.store(workers, Ordering::Relaxed);
        self.set_active(workers);
    }

    pub(crate) fn end_with_last_thread(&self) {
        self.ends_with_last_thread.store(true, Ordering::SeqCst);
    }

    /// Ends the pool if no program thread uses it, this many aside, which count as left for good.
    pub(crate) fn end_if_unused_but_by(&self, threads: u32) {
        if self.program_threads.fetch_sub(threads, Ordering::SeqCst) == threads {
            self.end();
        }
    }

    /// The pool ends when its workers have nothing left to do.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.wake_all();
        self.watch.start();
    }

    fn wake_all(&self) {
        for slot in self.slots() {
            slot.sleep.event_count().wake();
        }
    }

    /// Whether all enqueued jobs were complete at a moment during this call. No job is completed
    /// before it is enqueued and both sums only grow, so they were complete if the sum of completed
    /// jobs, read first, equals the sum of enqueued ones.
    pub(crate) fn has_completed_all(&self) -> bool {
        let completed: u64 = self
            .slots()
            .map(|slot| slot.completed.load(Ordering::Acquire))
            .sum();
        let enqueued: u64 = self
            .slots()
            .map(|slot| slot.enqueued.load(Ordering::Acquire))
            .sum();
        completed == enqueued
    }

    /// A worker with this tag has published something. Wakes at most one sleeper, which wakes the
    /// next one when it sees more.
    #[inline]
    pub(crate) fn published(&self, tag: u32) {
        if self.sleepers.are_there() {
            self.wake_one(tag);
        }
    }

    /// The same for a publisher that has found a wake request.
    #[cold]
    pub(crate) fn answer_wake_request(&self, request: &WakeRequest, tag: u32) {
        self.sleepers.answer(request, || self.wake_one(tag));
    }

    /// See [`Worker::call_for_help`](crate::Worker::call_for_help); some worker sleeps.
    #[cold]
    pub(crate) fn wake_for_offer(&self, tag: u32, expected_ns: u64) -> bool {
        let gain_ns = (expected_ns / 2).saturating_sub(SHARING_NS);
        let missed_ns = self.missed_ns.load(Ordering::Relaxed) + gain_ns;
        let pays = expected_ns >= WAKE_NS || missed_ns >= MISSED_NS;
        if expected_ns >= CONTENDED_WAKE_NS || pays && !self.is_contended() {
            self.missed_ns.store(0, Ordering::Relaxed);
            self.wake_one(tag);
            return true;
        }
        self.missed_ns.store(missed_ns, Ordering::Relaxed);
        // A program thread comes for its own work only: there is no telling whether for this one.
        self.sleepers.count() as usize + 1 < self.workers()
    }

    #[cold]
    fn wake_one(&self, tag: u32) {
        let active = self.active();
        for (number, slot) in self.slots().enumerate() {
            // The pool's workers have the first slots, worker 1 the first of all. A program thread
            // takes only what was forked for it.
            let can_take = number + 1 < active || number as u32 + 1 == tag;
            if can_take && slot.sleep.is_marked() && self.sleepers.rouse(&slot.sleep) {
                return;
            }
        }
    }

    /// Enters a fiber of another worker into that one's wake queue, and wakes the worker.
    pub(crate) fn wake_remote(&self, id: FiberId) {
        let slot = self.slot(id.worker);
        if slot.wake_queue.push(u32::from(id.fiber)) {
            slot.sleep.event_count().wake();
        }
    }

    /// A worker is about to wait: its thread may tell of contention.
    #[inline]
    pub(crate) fn sample_contention(&self, delay: &RunDelay) -> bool {
        self.contention.sample(delay, self.clock.now_ns())
    }

    /// Whether a thread that spins may keep its core; see [`Contention::may_keep_core`].
    pub(crate) fn may_keep_core(&self, delay: &RunDelay, now_ns: u64) -> bool {
        self.contention.may_keep_core(delay, now_ns)
    }

    /// Whether other processes contend for the cores.
    pub(crate) fn is_contended(&self) -> bool {
        self.contention.is_on(self.clock.now_ns())
    }
}
