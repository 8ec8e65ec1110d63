//! What can be seen and set of a rank from outside: counters, settings, events.
//!
//! A [`Monitor`] exists before its rank joins the job and after it has left. It may be read from
//! any thread at any time, also where the program promised to use the rank from one thread only, so
//! everything in it is atomic. The engine writes its counters by plain loads and stores, since only
//! the holder of the engine's lock counts.

pub(crate) mod counters;
mod events;
pub mod python;
mod recording;
mod tuning;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use margay_net_platform::Clock;

pub use counters::{Counters, Flow, Level, Mark, Protocol};
pub use events::{Event, EventKind, Events};
pub use recording::{InCall, Recording};
pub use tuning::{Tunable, Tuning};

/// What can be seen and set of a rank.
pub struct Monitor {
    /// What the engine counts.
    pub counters: Counters,
    /// What waiting threads count.
    pub waiting: WaitCounters,
    /// Sizes and times that may be set.
    pub tuning: Tuning,
    /// What happened and has not been reported yet.
    pub events: Events,
    /// The last calls of each thread.
    pub recording: Recording,
    running: AtomicBool,
}

impl Monitor {
    /// One in which nothing has happened yet, with the usual settings and that clock.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Monitor> {
        Arc::new(Monitor {
            counters: Counters::default(),
            waiting: WaitCounters::default(),
            tuning: Tuning::default(),
            events: Events::new(clock),
            recording: Recording::default(),
            running: AtomicBool::new(false),
        })
    }

    /// Returns the clock by which events are dated.
    #[must_use]
    pub fn clock(&self) -> &dyn Clock {
        &*self.events.clock
    }

    /// The rank joins its job or leaves it.
    pub fn set_running(&self, running: bool) {
        self.running.store(running, Ordering::Relaxed);
    }

    /// 0: the rank is not in a job, 1: it runs, 2: a thread of it sleeps.
    #[must_use]
    pub fn state(&self) -> i32 {
        if !self.running.load(Ordering::Relaxed) {
            0
        } else if self.waiting.asleep.load(Ordering::Relaxed) > 0 {
            2
        } else {
            1
        }
    }
}

/// What threads do while they wait. Several may wait at a time, so these are added to atomically; a
/// thread that waits is in no hurry.
#[derive(Default)]
pub struct WaitCounters {
    /// Waits that were not over after the first spins.
    pub waits: AtomicU64,
    /// Nanoseconds in them.
    pub wait_ns: AtomicU64,
    /// How often the core was yielded.
    pub yields: AtomicU64,
    /// Times that a thread went to sleep.
    pub sleeps: AtomicU64,
    /// Nanoseconds asleep.
    pub sleep_ns: AtomicU64,
    /// Threads that sleep now.
    pub asleep: AtomicI32,
}

impl WaitCounters {
    #[inline]
    pub(crate) fn add(count: &AtomicU64, by: u64) {
        count.fetch_add(by, Ordering::Relaxed);
    }
}
