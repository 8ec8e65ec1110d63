//! What teams need of the workers below them: threads for members, and places to wait.
//!
//! The runtime's own state is that of the real thread, not of the TLS block of the member that
//! runs, so every call goes through [`natively`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use margay_run_threads::{
    AnyClock, Config, Interrupted, Offer, Pool, Reason, Refusal, Worker, with_current_worker,
    with_worker,
};
use margay_sys_threads::slot;
use margay_sys_threads::tls_block::natively;

pub use margay_run_threads::{PublishedOffer, RetractedOffer, STEAL_DELAY_NS, StealBackoff};

/// Smaller stacks would not hold the runtime's own frames and a signal's.
const MIN_STACK_BYTES: usize = 128 << 10;
/// More than any address space has; sums with it stay numbers.
const MAX_STACK_BYTES: u64 = 1 << 50;
/// How long an idle worker spins with `OMP_WAIT_POLICY=active`.
const ACTIVE_SPIN_NS: u64 = 10_000_000;

/// The workers of a process. They are started when they are needed first.
pub struct Scheduler {
    config: Config,
    clock: AnyClock,
    pool: OnceLock<Pool>,
    /// The main thread has ended before the process.
    has_lost_main: AtomicBool,
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Scheduler {
    /// For what the environment says of stacks (0 for nothing) and of waiting (true for `active`).
    pub fn new(stack_bytes: u64, wait_policy: Option<bool>, clock: AnyClock) -> Scheduler {
        let default = Config::default();
        let active_spin_ns = |is_active| if is_active { ACTIVE_SPIN_NS } else { 0 };
        let config = Config {
            stack_bytes: match stack_bytes {
                0 => default.stack_bytes,
                bytes => (bytes.min(MAX_STACK_BYTES) as usize).max(MIN_STACK_BYTES),
            },
            spin_ns: wait_policy.map_or(default.spin_ns, active_spin_ns),
            free_spin_ns: wait_policy.map_or(default.free_spin_ns, active_spin_ns),
            refusal: Refusal { warn, fail },
            ..default
        };
        Scheduler {
            config,
            clock,
            pool: OnceLock::new(),
            has_lost_main: AtomicBool::new(false),
        }
    }

    /// The bytes of a stack, as they were asked for.
    pub(crate) fn stack_bytes(&self) -> usize {
        self.config.stack_bytes
    }

    /// Called once for each thread that uses it.
    fn pool(&self) -> &Pool {
        let pool = self
            .pool
            .get_or_init(|| Pool::new(self.config, self.clock.clone()));
        if self.has_lost_main.load(Ordering::SeqCst) {
            pool.end_with_last_thread();
        }
        pool
    }

    /// The main thread has ended before the process: workers end when no other thread uses them, so
    /// that they do not keep the process.
    pub(crate) fn main_has_ended(&self) {
        if self.has_lost_main.swap(true, Ordering::SeqCst) {
            return;
        }
        if let Some(pool) = self.pool.get() {
            natively(|| pool.main_thread_has_ended());
        }
    }

    /// Runs `f`, during which no other member may run, with the worker of this thread.
    #[inline]
    fn briefly<R>(&self, f: impl FnOnce(&Worker) -> R) -> R {
        natively(|| with_worker(|| self.pool(), f))
    }

    /// The same in no member's context, for what may let others run. They may have had other
    /// places: the caller binds its thread again.
    fn with<R>(&self, f: impl FnOnce(&Worker) -> R) -> R {
        natively(|| without_context(|| with_worker(|| self.pool(), f)))
    }

    /// Publishes an offer for other workers, which leave it to this one for a moment if `is_short`.
    /// The offer is one of this worker, or `retracted` if that is still there. `set_tag` gives the
    /// offer its tag before. One that sleeps is woken if that is worth it for what is expected to
    /// take `expected_ns`. Also returns whether another worker may come soon.
    pub fn publish(
        &self,
        offer: &Arc<impl Offer<Worker> + 'static>,
        retracted: Option<RetractedOffer>,
        is_short: bool,
        expected_ns: u64,
        set_tag: impl FnOnce(u32),
    ) -> (PublishedOffer, bool) {
        self.briefly(|worker| {
            worker.enable_time_slices();
            let tag = worker.tag();
            set_tag(tag);
            let published = retracted
                .and_then(|retracted| worker.republish_offer(retracted, is_short))
                .unwrap_or_else(|| {
                    worker.publish_offer(Arc::clone(offer) as Arc<dyn Offer<Worker>>, is_short)
                });
            (published, worker.call_for_help(tag, expected_ns))
        })
    }

    /// Ends the steal delay of an offer of this worker.
    pub fn make_stealable(&self, published: &PublishedOffer) {
        self.briefly(|worker| worker.make_stealable(published));
    }

    /// Retracts an offer of this worker.
    pub fn retract(&self, published: PublishedOffer) -> Option<RetractedOffer> {
        self.briefly(|worker| worker.retract_offer(published))
    }

    /// Spins if this thread has nothing else to run. Returns whether the condition holds.
    pub fn spin_until(&self, condition: &dyn Fn() -> bool) -> bool {
        self.with(|worker| worker.spin_until(&condition))
    }

    /// Attempts what fails while another thread holds something, at growing intervals and not for
    /// long, if this thread has nothing else to run. Returns whether an attempt has succeeded.
    pub fn attempt_rarely(&self, attempt: &dyn Fn() -> bool) -> bool {
        self.briefly(|worker| worker.attempt_rarely(&attempt))
    }

    /// Spins for a time, in nanoseconds, or until a condition holds. Returns false when this thread
    /// has something else to run.
    pub fn spin_for(&self, time_ns: u64, condition: &dyn Fn() -> bool) -> bool {
        self.with(|worker| worker.spin_for(time_ns, &condition))
    }

    /// Waits under a key until a condition holds; others run meanwhile. The member that makes it
    /// true calls [`wake`](Self::wake).
    pub fn wait_until(&self, key: usize, condition: &dyn Fn() -> bool) {
        self.with(|worker| worker.wait_until(key, condition));
    }

    /// The same without spinning first.
    pub fn park_until(&self, key: usize, condition: &dyn Fn() -> bool) {
        self.with(|worker| worker.park_until(key, condition));
    }

    /// Lets those that wait under a key check their condition again.
    pub fn wake(&self, key: usize) {
        self.with(|worker| worker.unpark_all(key));
    }

    /// Lets others run.
    pub fn yield_now(&self) {
        self.with(Worker::yield_now);
    }

    /// Threads that can run members at the same time.
    pub fn workers(&self) -> u32 {
        self.briefly(|worker| worker.workers() as u32)
    }

    /// The number of this thread's worker. Starts no threads: one of the program has number 0.
    pub fn worker_number(&self) -> u32 {
        natively(|| with_current_worker(Worker::number)).unwrap_or(0) as u32
    }
}

/// Prints a warning.
pub(crate) fn warn(text: &str) {
    eprintln!("libgomp (Margay): {text}");
}

/// Ends the program as libgomp does when it gets no thread.
fn fail(text: &str) -> ! {
    eprintln!("\nlibgomp: {text}");
    std::process::exit(1)
}

/// This thread has been interrupted in the program: lets others run whose turn it is. Returns
/// whether there are more to run.
pub fn interrupted(how: Interrupted, reason: Reason) -> bool {
    natively(|| without_context(|| with_current_worker(|worker| worker.interrupted(how, reason))))
        .unwrap_or(false)
}

fn without_context<R>(f: impl FnOnce() -> R) -> R {
    slot::aside(f)
}
