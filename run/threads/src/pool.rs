//! The pool: seats for workers, who sleeps, and whom to wake.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;

use margay_sys_os::doorbell;
use margay_sys_os::{clock, cpu, fence};
use margay_sys_threads::deque::{Owner, Stealer, deque};
use margay_sys_threads::job::Job;
use margay_sys_threads::preempt;
use margay_sys_threads::sleepers::{Bed, Call, Sleepers};

use crate::inbox::Inbox;
use crate::offer::Offers;
use crate::parking::ParkingLot;
use crate::worker::Worker;

/// Seats of a pool: its own workers and the user's threads that call in. The thousandth thread at once is a mistake of the
/// program rather than a use.
const MAX_SEATS: usize = 1024;

/// A fiber of a worker: where to wake it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    pub(crate) seat: u16,
    pub(crate) fiber: u16,
}

impl Token {
    pub(crate) fn to_number(self) -> u32 {
        u32::from(self.seat) << 16 | u32::from(self.fiber)
    }

    pub(crate) fn of_number(number: u32) -> Token {
        Token {
            seat: (number >> 16) as u16,
            fiber: number as u16,
        }
    }
}

/// What the others see of a worker.
pub(crate) struct Seat {
    pub(crate) stealer: Stealer<Job<Worker>>,
    pub(crate) offers: Offers,
    pub(crate) inbox: Inbox,
    pub(crate) bed: Bed,
    /// What this worker has enqueued and what enqueued work it has completed, ever; only it writes.
    pub(crate) enqueued: AtomicU64,
    pub(crate) completed: AtomicU64,
}

/// How a pool is made.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Threads that run work at the same time, the calling one included. At least 1.
    pub workers: usize,
    /// Bytes of a fiber's stack.
    pub stack_bytes: usize,
    /// How long an idle worker looks for work before it sleeps, in nanoseconds.
    pub spin_ns: u64,
    /// Whether each worker of the pool is bound to one core.
    pub bind: bool,
}

/// An idle worker looks so long before it sleeps: a few times what waking it costs.
const SPIN_NS: u64 = 100_000;

impl Default for Config {
    /// As many workers as this process has usable cores (affinity mask and CPU quota), and stacks as large as the system gives
    /// a thread, up to 8 MiB. Stacks cost memory where they are touched.
    fn default() -> Self {
        Config {
            workers: cpu::usable_cores(),
            stack_bytes: 8 << 20,
            spin_ns: SPIN_NS,
            bind: false,
        }
    }
}

pub(crate) struct Shared {
    pub(crate) config: Config,
    seats: Box<[OnceLock<Arc<Seat>>]>,
    /// Seats that have been used; those above are empty.
    seats_used: AtomicUsize,
    /// Seats of user's threads that have gone, with what they left.
    vacant: Mutex<Vec<(u16, Owner<Job<Worker>>)>>,
    /// The user's threads that are workers now.
    users: AtomicU32,
    /// Workers of the pool that may take work, the calling thread included.
    active: AtomicUsize,
    pub(crate) sleepers: Sleepers,
    /// How many wait for enqueued work.
    pub(crate) enqueue_waiters: AtomicU32,
    pub(crate) is_over: AtomicBool,
    pub(crate) parking: ParkingLot,
    pressure: Pressure,
}

/// Workers, and the state that they share. Dropping it ends the workers when they have nothing left to do.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts `config.workers - 1` threads; a thread that calls [`enter`](Self::enter) is the other worker.
    #[must_use]
    pub fn new(config: Config) -> Pool {
        fence::register();
        doorbell::register();
        let workers = config.workers.clamp(1, MAX_SEATS / 2);
        let cores = cpu::affinity();
        let shared = Arc::new(Shared {
            config: Config { workers, ..config },
            seats: (0..MAX_SEATS).map(|_| OnceLock::new()).collect(),
            seats_used: AtomicUsize::new(0),
            vacant: Mutex::new(Vec::new()),
            users: AtomicU32::new(0),
            active: AtomicUsize::new(workers),
            sleepers: Sleepers::new(),
            enqueue_waiters: AtomicU32::new(0),
            is_over: AtomicBool::new(false),
            parking: ParkingLot::new(),
            pressure: Pressure {
                has_machine: cores.len() >= cpu::online_cores(),
                ..Pressure::default()
            },
        });
        let threads = (1..workers)
            .map(|number| {
                let (seat, deque) = shared.take_seat();
                let shared = Arc::clone(&shared);
                let core = cores[number % cores.len()];
                std::thread::Builder::new()
                    .name(format!("margay-{number}"))
                    .spawn(move || {
                        if config.bind {
                            // A refusal costs speed, nothing else.
                            let _ = cpu::bind_to(core);
                        }
                        Worker::new(shared, seat, number, deque).serve_pool();
                    })
                    .unwrap_or_else(|error| panic!("worker {number} of {workers} cannot be started: {error}; start fewer, or raise the limit of threads"))
            })
            .collect();
        Pool { shared, threads }
    }

    /// Runs `body` on the calling thread as a worker of this pool.
    pub fn enter<R>(&self, body: impl FnOnce(&Worker) -> R) -> R {
        let seated = Seated::new(&self.shared);
        body(seated.worker())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        for seat in self.shared.seats() {
            seat.bed.bell().ring();
        }
        for thread in self.threads.drain(..) {
            // A worker that panicked has told so; there is nothing left to do here.
            let _ = thread.join();
        }
    }
}

/// The process's pool, made when it is first asked for.
fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| {
        Pool::new(
            configuration()
                .lock()
                .map(|config| *config)
                .unwrap_or_default(),
        )
    })
}

fn configuration() -> &'static Mutex<Config> {
    static CONFIG: OnceLock<Mutex<Config>> = OnceLock::new();
    CONFIG.get_or_init(|| Mutex::new(Config::default()))
}

/// Says how the process's pool is to be made; has no effect once it has been.
pub fn configure(config: Config) {
    if let Ok(mut current) = configuration().lock() {
        *current = config;
    }
}

thread_local! {
    static HERE: OnceCell<Seated> = const { OnceCell::new() };
}

/// Runs `body` with the calling thread's worker. A thread that is none yet becomes one, of the process's pool, until it ends.
#[inline]
pub fn with_worker<R>(body: impl FnOnce(&Worker) -> R) -> R {
    let mut body = Some(body);
    let result = HERE.try_with(|here| {
        let seated = here.get_or_init(|| Seated::new(&pool().shared));
        body.take().map(|body| body(seated.worker()))
    });
    match (result, body) {
        (Ok(Some(result)), _) => result,
        // The thread's own variables are gone: a handler at the program's exit calls.
        (_, Some(body)) => pool().enter(body),
        (_, None) => unreachable!("a body that was taken has given a result"),
    }
}

/// Says what is called on a worker's thread when a slice of processor time has ended there, in the middle of the program's own code, for workers that
/// [`watch`](Worker::watch): a function that asks [`Worker::slice_ended`] and, if so, calls [`Worker::yield_now`], with what has to be kept around it.
/// It must not need anything that the program's code could hold. Only for a library: where this crate is part of the program itself, its
/// own code could be interrupted. To be called once. False: the program uses the signal (`SIGURG`) itself.
pub fn preempt_by(tick: fn()) -> bool {
    preempt::enable(tick)
}

/// Makes this worker the one that [`with_worker`] finds on its thread.
pub(crate) fn settle(worker: Rc<Worker>) {
    HERE.with(|here| {
        let _ = here.set(Seated {
            worker: Some(worker),
        });
    });
}

/// A worker on the user's own thread; gives the seat back in the end.
struct Seated {
    /// None only while it is dropped.
    worker: Option<Rc<Worker>>,
}

impl Seated {
    fn new(shared: &Arc<Shared>) -> Seated {
        let (seat, deque) = shared.take_seat();
        shared.users.fetch_add(1, Ordering::Relaxed);
        Seated {
            worker: Some(Worker::new(Arc::clone(shared), seat, 0, deque)),
        }
    }

    #[inline]
    fn worker(&self) -> &Worker {
        self.worker
            .as_deref()
            .expect("a seat is left when it is dropped")
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        if let Some(worker) = self.worker.take() {
            worker.leave();
        }
    }
}

impl Shared {
    /// The seats in use and those that were.
    #[inline]
    pub(crate) fn seats(&self) -> impl Iterator<Item = &Seat> {
        let used = self.seats_used.load(Ordering::Acquire);
        self.seats[..used]
            .iter()
            .filter_map(OnceLock::get)
            .map(|seat| &**seat)
    }

    #[inline]
    pub(crate) fn seats_used(&self) -> usize {
        self.seats_used.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn seat(&self, seat: u16) -> &Arc<Seat> {
        self.seats[usize::from(seat)]
            .get()
            .expect("a worker's seat is there as long as the pool")
    }

    fn take_seat(&self) -> (u16, Owner<Job<Worker>>) {
        let mut vacant = self
            .vacant
            .lock()
            .expect("nothing panics with this lock held");
        if let Some(seat) = vacant.pop() {
            return seat;
        }
        let number = self.seats_used.load(Ordering::Relaxed);
        assert!(
            number < MAX_SEATS,
            "{MAX_SEATS} threads use one pool of workers at the same time; no more can: let threads end, or share fewer"
        );
        let (deque, stealer) = deque();
        let seat = Seat {
            stealer,
            offers: Offers::new(),
            inbox: Inbox::new(),
            bed: Bed::new(),
            enqueued: AtomicU64::new(0),
            completed: AtomicU64::new(0),
        };
        assert!(
            self.seats[number].set(Arc::new(seat)).is_ok(),
            "seats are made once"
        );
        self.seats_used.store(number + 1, Ordering::Release);
        (number as u16, deque)
    }

    pub(crate) fn give_seat_back(&self, seat: u16, deque: Owner<Job<Worker>>) {
        self.users.fetch_sub(1, Ordering::Relaxed);
        self.vacant
            .lock()
            .expect("nothing panics with this lock held")
            .push((seat, deque));
    }

    /// Whether all work is that of one thread of the user.
    pub(crate) fn has_one_user(&self) -> bool {
        self.users.load(Ordering::Relaxed) <= 1
    }

    pub(crate) fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Lets so many workers take work, between 1 and as many as there are. Returns how many.
    pub(crate) fn set_active(&self, workers: usize) -> usize {
        let workers = workers.clamp(1, self.config.workers);
        self.active.store(workers, Ordering::SeqCst);
        for seat in self.seats() {
            seat.bed.bell().ring();
        }
        workers
    }

    /// Whether all enqueued work was complete at a moment during this call. Nothing is completed before it is enqueued and both sums
    /// only grow, so it is when what was completed, read first, equals what was enqueued.
    pub(crate) fn has_completed_all(&self) -> bool {
        let completed: u64 = self
            .seats()
            .map(|seat| seat.completed.load(Ordering::Acquire))
            .sum();
        let enqueued: u64 = self
            .seats()
            .map(|seat| seat.enqueued.load(Ordering::Acquire))
            .sum();
        completed == enqueued
    }

    /// Something was published by a worker with this tag. Wakes at most one sleeper, who wakes the next when there is
    /// more.
    #[inline]
    pub(crate) fn published(&self, tag: u32) {
        if self.sleepers.are_there() {
            self.wake_one(tag);
        }
    }

    /// The same for who has a call, which was raised.
    #[cold]
    pub(crate) fn called(&self, call: &Call, tag: u32) {
        self.sleepers.answer(call, || self.wake_one(tag));
    }

    #[cold]
    fn wake_one(&self, tag: u32) {
        let active = self.active();
        for (number, seat) in self.seats().enumerate() {
            // A user's thread only takes what was forked for it. (The pool's workers have the first seats, number 1 the first.)
            let can_take = number + 1 < active || number as u32 + 1 == tag;
            if can_take && seat.bed.is_marked() && self.sleepers.rouse(&seat.bed) {
                return;
            }
        }
    }

    /// Makes a fiber of another thread ready and wakes its worker.
    pub(crate) fn wake_remote(&self, token: Token) {
        let seat = self.seat(token.seat);
        if seat.inbox.push(u32::from(token.fiber)) {
            seat.bed.bell().ring();
        }
    }

    pub(crate) fn is_pressed(&self) -> bool {
        self.pressure.is_on()
    }
}

/// Whether others want the cores. Found out from the kernel's count of involuntary switches of all threads of this process, and, since a
/// thread of its own that is woken can also take another one's core for a moment, from how many threads want to run.
#[derive(Debug, Default)]
struct Pressure {
    /// All cores of the machine are usable: then there is a core for each of the pool's workers unless more threads want to run than
    /// there are cores. Otherwise nobody tells how many want those that are.
    has_machine: bool,
    checked_ns: AtomicU64,
    switches: AtomicU64,
    pressed_until_ns: AtomicU64,
}

/// How often the count is read.
const CHECK_NS: u64 = 5_000_000;
/// Involuntary switches between two checks from which on the cores count as short.
const SWITCHES: u64 = 3;
/// So long they count as short after that.
const LASTS_NS: u64 = 100_000_000;

impl Pressure {
    fn is_on(&self) -> bool {
        let now = clock::now_ns();
        let checked = self.checked_ns.load(Ordering::Relaxed);
        let due = now.saturating_sub(checked) >= CHECK_NS;
        if due
            && self
                .checked_ns
                .compare_exchange(checked, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            let count = cpu::involuntary_switches_of_process();
            let before = self.switches.swap(count, Ordering::Relaxed);
            // The first look has nothing to compare with. A rate, since the last check may be long ago.
            let since_ns = now - checked;
            let allowed = SWITCHES.saturating_mul(since_ns / CHECK_NS);
            if checked != 0 && count.saturating_sub(before) >= allowed && self.is_crowded() {
                self.pressed_until_ns
                    .store(now + LASTS_NS, Ordering::Relaxed);
            }
        }
        now < self.pressed_until_ns.load(Ordering::Relaxed)
    }

    fn is_crowded(&self) -> bool {
        !self.has_machine
            || cpu::runnable_threads().is_none_or(|threads| threads > cpu::online_cores())
    }
}
