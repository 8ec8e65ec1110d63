//! What teams ask of the workers below them: time for members, and places to wait.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use margay_sys_os::clock;
use margay_sys_os::cpu;
use margay_sys_threads::identity::{self, natively};
use margay_sys_threads::slot;
use margay_threads::{
    Config, Covered, Offer, Worker, configure as configure_threads, preempt_by, with_worker,
};

pub use margay_threads::{ALONE_NS, Offered, Rest};

use crate::affinity;
use crate::environment::Environment;
use crate::team::{Context, Team};

/// A team with members to claim.
#[derive(Debug)]
pub struct Open {
    team: &'static Team,
    tag: AtomicU32,
    /// Where it lies covered between two regions, as a number; 0: nowhere.
    covered: AtomicU64,
}

impl Open {
    /// The offer of a team; it is used again for each of its regions.
    pub fn new(team: &'static Team) -> Open {
        Open {
            team,
            tag: AtomicU32::new(0),
            covered: AtomicU64::new(0),
        }
    }
}

impl Offer for Open {
    fn help(self: Arc<Self>, worker: &Worker) {
        worker.watch();
        self.team.help(worker.number() as u32);
    }

    fn is_open(&self) -> bool {
        let claims = &self.team.claims;
        claims.has_unclaimed()
            && with_worker(|worker| claims.is_open_for(worker.number() as u32, clock::now_ns))
    }

    fn opens_later(&self) -> bool {
        self.team.claims.has_unclaimed()
    }

    fn tag(&self) -> u32 {
        self.tag.load(Ordering::Relaxed)
    }
}

/// Runs `f`, which lets nobody else run, with the worker of this thread: with the thread's own variables.
#[inline]
fn briefly<R>(f: impl FnOnce(&Worker) -> R) -> R {
    natively(|| with_worker(f))
}

/// The same in no member's context, since others may run before `f` returns.
fn with<R>(f: impl FnOnce(&Worker) -> R) -> R {
    natively(|| slot::aside(|| with_worker(f)))
}

/// The same for what may let others run. They may have had other places.
fn with_others<R>(f: impl FnOnce(&Worker) -> R) -> R {
    let result = with(f);
    slot::with(|context: Option<&Context>| {
        if let Some(context) = context {
            affinity::keep_bound(context.member);
        }
    });
    result
}

thread_local! {
    /// The place that this thread is bound to, from 1; 0 for none.
    static PLACE: Cell<usize> = const { Cell::new(0) };
}

/// Binds this thread to a place unless it is there already, and the one that a member with variables of its own is taken for.
pub fn bind(place: usize, processors: &[usize]) {
    let bind = |thread: u32| {
        if PLACE.replace(place + 1) != place + 1 {
            // Refused where the process has lost these processors since it started; it runs where it may then.
            let _ = cpu::bind_thread(thread, processors);
        }
    };
    if let Some(thread) = identity::number() {
        bind(thread);
    }
    natively(|| bind(0));
}

/// Once, before anything else here: what the environment says of stacks and of waiting.
pub fn configure(environment: &Environment) {
    let usual = Config::default();
    configure_threads(Config {
        stack_bytes: match environment.stack_bytes {
            0 => usual.stack_bytes,
            bytes => (bytes as usize).max(LEAST_STACK_BYTES),
        },
        spin_ns: match environment.wait_policy {
            None => usual.spin_ns,
            Some(true) => ACTIVE_SPIN_NS,
            Some(false) => 0,
        },
        ..usual
    });
}

/// Smaller stacks would not hold the runtime's own frames and a signal's.
const LEAST_STACK_BYTES: usize = 128 << 10;
/// How long an idle worker looks for work with `OMP_WAIT_POLICY=active`.
const ACTIVE_SPIN_NS: u64 = 10_000_000;

/// Once: members that wait for each other by spinning, more of them than workers, take turns.
pub fn let_spinning_members_take_turns() {
    // Where the program uses the signal itself, its spinning is its own affair.
    let _ = preempt_by(|| {
        with_others(|worker| {
            let others_wait = worker.slice_ended();
            if worker.begin_offer() || others_wait {
                worker.yield_now();
            }
        });
    });
}

/// Lays a team out for workers that have time, who leave it to this one for a moment if `is_short`.
pub fn offer(team: &'static Team, is_short: bool) -> Offered {
    let open = team.as_offer();
    briefly(|worker| {
        worker.watch();
        let tag = worker.tag();
        open.tag.store(tag, Ordering::Relaxed);
        Covered::of_number(open.covered.load(Ordering::Relaxed))
            .and_then(|covered| worker.offer_again(covered, tag, is_short))
            .unwrap_or_else(|| worker.offer(Arc::clone(open) as Arc<dyn Offer>, is_short))
    })
}

/// An offer is not to be left to this thread any longer.
pub fn ripen(offered: &Offered) {
    briefly(|worker| worker.ripen(offered));
}

/// Takes an offer of a team back.
pub fn withdraw(team: &'static Team, offered: Offered) {
    let covered = briefly(|worker| worker.withdraw(offered));
    let number = covered.map_or(0, Covered::to_number);
    let kept = &team.as_offer().covered;
    if kept.load(Ordering::Relaxed) != number {
        kept.store(number, Ordering::Relaxed);
    }
}

/// Looks at a condition for a moment if this thread has nothing else to do. Tells whether it holds.
pub fn look(condition: &dyn Fn() -> bool) -> bool {
    with(|worker| worker.look(&condition))
}

/// Looks at a condition for so long, in nanoseconds. False: this thread has something else to do.
pub fn look_for(time_ns: u64, condition: &dyn Fn() -> bool) -> bool {
    with(|worker| worker.look_for(time_ns, &condition))
}

/// Waits under a key until a condition holds; others run in the meantime. Who makes it hold calls [`wake`].
pub fn wait_until(key: usize, condition: &dyn Fn() -> bool) {
    if !condition() {
        with_others(|worker| worker.wait_until(key, condition));
    }
}

/// Lets those that wait under a key look at their condition again.
pub fn wake(key: usize) {
    with(|worker| worker.unpark_all(key));
}

/// Lets others run.
pub fn yield_now() {
    with_others(Worker::yield_now);
}

/// Threads that run members at the same time.
pub fn workers() -> u32 {
    briefly(|worker| worker.workers() as u32)
}

/// The number of this thread's worker.
pub fn number() -> u32 {
    briefly(|worker| worker.number() as u32)
}
