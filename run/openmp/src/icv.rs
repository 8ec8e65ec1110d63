//! Internal control variables (OpenMP 5.1, 2.4).
//!
//! Those of a data environment are one immutable value that tasks pass on by reference: creating a task copies a pointer.
//! Setting a variable finds or makes the value with that change; values are kept for good, and there are as many as a
//! program uses different settings.

use std::collections::HashSet;
use std::sync::{Mutex, OnceLock, PoisonError};

use margay_core_openmp::environment::Bind;
use margay_core_openmp::schedule::{Kind, Schedule};

use crate::environment::{self, Environment};

/// The internal control variables of a data environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Icv {
    /// `nthreads-var`
    pub threads: u32,
    /// `dyn-var`
    pub dynamic: bool,
    /// `run-sched-var`
    pub schedule: Schedule,
    /// `max-active-levels-var`
    pub max_active_levels: u32,
    /// `thread-limit-var`
    pub thread_limit: u32,
    /// `default-device-var`
    pub device: i32,
    /// `bind-var`
    pub bind: Bind,
    /// `def-allocator-var`
    pub allocator: usize,
}

/// Levels of parallel regions that may be active (`omp_get_supported_active_levels`).
pub const SUPPORTED_ACTIVE_LEVELS: u32 = 255;

static VALUES: OnceLock<Mutex<HashSet<&'static Icv>>> = OnceLock::new();

impl Icv {
    /// What the program starts with when no variable says anything.
    #[must_use]
    pub const fn default(cores: u32) -> Icv {
        Icv {
            threads: cores,
            dynamic: false,
            schedule: Schedule::new(Kind::Dynamic, 1),
            max_active_levels: 1,
            thread_limit: u32::MAX,
            device: 0,
            bind: Bind::False,
            allocator: 1,
        }
    }

    /// This value, as one that may be passed on.
    #[must_use]
    pub fn keep(self) -> &'static Icv {
        let mut values = VALUES
            .get_or_init(Mutex::default)
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = values.get(&self) {
            return kept;
        }
        let kept: &'static Icv = Box::leak(Box::new(self));
        values.insert(kept);
        kept
    }

    /// This value with a change.
    #[must_use]
    pub fn with(&'static self, change: impl FnOnce(&mut Icv)) -> &'static Icv {
        let mut changed = *self;
        change(&mut changed);
        if changed == *self {
            self
        } else {
            changed.keep()
        }
    }

    /// What a parallel region at this level of nesting (1: the outermost) hands to its members.
    #[must_use]
    pub fn inside(&'static self, level: u32) -> &'static Icv {
        let Environment { threads, bind, .. } = environment::get();
        let at = level as usize;
        if threads.len() <= 1 && bind.len() <= 1 {
            return self;
        }
        self.with(|icv| {
            if let Some(&threads) = threads.get(at) {
                icv.threads = threads;
            }
            if let Some(&bind) = bind.get(at) {
                icv.bind = bind;
            }
        })
    }
}
