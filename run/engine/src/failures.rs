//! Finds the processes that have died, while a rank waits or polls, where one may die without the
//! job ending.
//!
//! In the rank's own job (`mpiexec -continue-on-failure`) the launcher's guard notices: it marks
//! the cell, increments the job's count of failures and wakes all ranks. For other jobs the rank
//! now and then checks the same marks, and whether the process still exists: a program that was
//! started without a launcher has no guard to mark it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use margay_core_registry::Phase;
use margay_net_platform::{Clock, Peers};

use crate::engine::Engine;

/// What a rank knows of failures.
#[derive(Default)]
pub(crate) struct Failures {
    watching: AtomicBool,
    /// The job of this rank goes on when one of its ranks dies.
    is_tolerant: AtomicBool,
    /// The failures of this rank's job at the last check.
    seen: AtomicU32,
    looked_ns: AtomicU64,
    asked_ns: AtomicU64,
    /// Processes of other jobs: number, registry, rank in it.
    others: Mutex<Vec<Other>>,
}

type Other = (u32, Arc<dyn Peers>, u32);

/// How often marks of other jobs are looked at, in nanoseconds.
const CHECK_NS: u64 = 5_000_000;
/// How often the system is asked whether a process is there, in nanoseconds.
const ASK_NS: u64 = 200_000_000;

impl Failures {
    /// Watches the job of this rank, which goes on when one of its ranks dies.
    pub(crate) fn watch_own_job(&self) {
        self.is_tolerant.store(true, Ordering::Relaxed);
        self.begin();
    }

    fn begin(&self) {
        self.watching.store(true, Ordering::Relaxed);
    }

    fn others(&self) -> std::sync::MutexGuard<'_, Vec<Other>> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, process: u32, home: Arc<dyn Peers>, rank: u32) {
        self.others().push((process, home, rank));
        self.begin();
    }

    pub(crate) fn forget(&self, processes: &[u32]) {
        self.others().retain(|(p, ..)| !processes.contains(p));
    }

    /// Whether somebody may die without this rank being ended too.
    #[inline]
    pub(crate) fn is_watching(&self) -> bool {
        self.watching.load(Ordering::Relaxed)
    }

    /// Looks for processes that have died and reports them to `engine`. Returns whether there are
    /// any new ones.
    pub(crate) fn look(&self, peers: &dyn Peers, clock: &dyn Clock, engine: &mut Engine) -> bool {
        let mut any = false;
        if self.is_tolerant.load(Ordering::Relaxed) {
            let failures = peers.failures();
            if self.seen.swap(failures, Ordering::Relaxed) != failures {
                for rank in (0..peers.size()).filter(|&r| peers.has_failed(r)) {
                    any |= !engine.is_dead(rank);
                    engine.fail(rank);
                }
            }
        }
        let now = clock.now_ns();
        let due = |last: &AtomicU64, every| {
            let due = now.saturating_sub(last.load(Ordering::Relaxed)) >= every;
            if due {
                last.store(now, Ordering::Relaxed);
            }
            due
        };
        if due(&self.looked_ns, CHECK_NS) {
            let ask = due(&self.asked_ns, ASK_NS);
            let mut failed = Vec::new();
            self.others().retain(|(process, home, rank)| {
                let gone = home.phase(*rank) != Phase::Finalized
                    && (home.has_exited(*rank) || (ask && !home.is_alive(*rank)));
                if gone {
                    failed.push(*process);
                }
                !gone
            });
            for process in failed {
                any |= !engine.is_dead(process);
                engine.fail(process);
            }
        }
        any
    }
}
