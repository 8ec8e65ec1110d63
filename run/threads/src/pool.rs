//! Pools: their threads, and the worker of the calling thread.

use std::cell::OnceCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use margay_sys_os::clock::AnyClock;
use margay_sys_os::{cpu, event_count, fence};
use margay_sys_threads::border;
use margay_sys_threads::preempt::{self, Interrupted, Reason};

use crate::config::Config;
use crate::pool_state::{MAX_WORKERS, PoolState};
use crate::watcher;
use crate::worker::Worker;

/// Workers and the state that they share. Dropping it ends the workers when they have nothing left
/// to do. Any thread may use it.
pub struct Pool {
    state: Arc<PoolState<Worker>>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts `config.workers - 1` threads; a program thread that calls [`enter`](Self::enter) is
    /// the other worker. Has fewer workers, and warns, when the system refuses a thread. `clock`
    /// measures all that workers measure; it must go on while they spin, if only because they ask.
    /// How long one sleeps at most is the system's time.
    #[must_use]
    pub fn new(config: Config, clock: AnyClock) -> Pool {
        fence::register();
        event_count::register();
        let workers = config.workers.clamp(1, MAX_WORKERS);
        let cores = cpu::affinity();
        let state = Arc::new(PoolState::new(Config { workers, ..config }, clock));
        let mut threads = Vec::new();
        for number in 1..workers {
            match start_worker(&state, number, cores[number % cores.len()]) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    state.set_workers(number);
                    (config.refusal.warn)(&format!(
                        "the system starts {} of {} threads ({error}); all runs on {number} from here on. Raise the \
                         limit of processes (ulimit -u), of the container (pids.max) or of address space (ulimit \
                         -v), or ask for fewer",
                        number - 1,
                        workers - 1
                    ));
                    break;
                }
            }
        }
        if preempt::is_enabled() {
            let state = Arc::clone(&state);
            let watcher = std::thread::Builder::new()
                .name("margay-watcher".into())
                .spawn(move || border::inside(|| watcher::run(&state)));
            // Without one everything works except members that wait for each other in the kernel.
            threads.extend(watcher.ok());
        }
        Pool { state, threads }
    }

    /// From now on the workers end when the last program thread leaves. Threads that come later
    /// work alone. For the end of a program whose main thread has ended before it: workers do not
    /// keep the process.
    pub fn end_with_last_thread(&self) {
        self.state.end_with_last_thread();
    }

    /// The same, called by the main thread at its end. The C library keeps that thread's
    /// thread-local variables until the process exits, its worker among them: it counts as left.
    pub fn main_thread_has_ended(&self) {
        self.end_with_last_thread();
        let uses_this = |worker: &Worker| worker.is_in(&self.state);
        self.state
            .end_if_unused_but_by(u32::from(with_current_worker(uses_this) == Some(true)));
    }

    /// Runs `body` on the calling thread as a worker of this pool, for the time of the call.
    pub fn enter<R>(&self, body: impl FnOnce(&Worker) -> R) -> R {
        let thread = ProgramThread::new(&self.state);
        body(thread.worker())
    }
}

/// Starts a thread for worker `number`.
fn start_worker(
    state: &Arc<PoolState<Worker>>,
    number: usize,
    core: usize,
) -> io::Result<JoinHandle<()>> {
    let (slot, deque) = state.acquire_slot();
    let state = Arc::clone(state);
    std::thread::Builder::new()
        .name(format!("margay-{number}"))
        .spawn(move || {
            if state.config.bind {
                // A refusal costs speed, nothing else.
                let _ = cpu::bind_to(core);
            }
            let worker = Worker::new(state, slot, number, deque);
            make_current(Rc::clone(&worker));
            border::inside(|| worker.run_until_end());
        })
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.state.end();
        for thread in self.threads.drain(..) {
            // A worker that panicked has printed why; there is nothing left to do here.
            let _ = thread.join();
        }
    }
}

thread_local! {
    static CURRENT: OnceCell<ProgramThread> = const { OnceCell::new() };
}

/// Runs `body` with the calling thread's worker. A thread that has none becomes a worker of the
/// pool that `pool` returns, until the thread ends.
// Always inline: the caller mostly has looked a thread-local variable up already, and the addresses
// of both come from one look-up then.
#[inline(always)]
pub fn with_worker<'p, R>(pool: impl Fn() -> &'p Pool, body: impl FnOnce(&Worker) -> R) -> R {
    let mut body = Some(body);
    let result = CURRENT.try_with(|current| {
        let thread = current.get_or_init(|| ProgramThread::new(&pool().state));
        body.take().map(|body| body(thread.worker()))
    });
    match (result, body) {
        (Ok(Some(result)), _) => result,
        // The thread's own variables are gone: a handler at the program's exit calls.
        (_, Some(body)) => pool().enter(body),
        (_, None) => unreachable!("a body that was taken has returned a result"),
    }
}

/// Runs `body` with the calling thread's worker; none on a thread that is no worker.
pub fn with_current_worker<R>(body: impl FnOnce(&Worker) -> R) -> Option<R> {
    let with =
        |current: &OnceCell<ProgramThread>| current.get().map(|thread| body(thread.worker()));
    CURRENT.try_with(with).ok().flatten()
}

/// Sets the function that is called on a worker's thread which has been interrupted in the middle
/// of the program's own code, or where that waits in the kernel, for workers that have [time
/// slices](Worker::enable_time_slices). It calls [`Worker::interrupted`], whose result it returns,
/// and saves and restores what its layer needs around that. It must not need a lock that the
/// program's code could hold. Only for a library: where this crate is part of the program itself,
/// its own code could be interrupted. To be called once, before the pool is made. Returns false
/// when the program uses the signal (`SIGURG`) itself.
pub fn preempt_by(tick: fn(Interrupted, Reason) -> bool) -> bool {
    preempt::enable(tick)
}

/// Makes this worker the one that [`with_worker`] finds on its thread.
fn make_current(worker: Rc<Worker>) {
    CURRENT.with(|current| {
        let _ = current.set(ProgramThread {
            worker: Some(worker),
        });
    });
}

/// A worker on a program thread. Releases its slot when it is dropped.
struct ProgramThread {
    /// None only while it is dropped.
    worker: Option<Rc<Worker>>,
}

impl ProgramThread {
    fn new(state: &Arc<PoolState<Worker>>) -> ProgramThread {
        let (slot, deque) = state.acquire_program_slot();
        ProgramThread {
            worker: Some(Worker::new(Arc::clone(state), slot, 0, deque)),
        }
    }

    #[inline]
    fn worker(&self) -> &Worker {
        self.worker
            .as_deref()
            .expect("a slot is released when this is dropped")
    }
}

impl Drop for ProgramThread {
    fn drop(&mut self) {
        if let Some(worker) = self.worker.take() {
            worker.leave();
        }
    }
}
