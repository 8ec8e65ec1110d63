//! Internal control variables (OpenMP 5.1, 2.4).
//!
//! Those of a data environment are one immutable value that tasks pass on by reference: creating a
//! task copies a pointer. Setting a variable finds or makes the value with that change. Values are
//! kept for good; there are as many as a program uses different settings.

use std::collections::HashSet;
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, PoisonError, RwLock};

use margay_core_openmp::environment::Bind;
use margay_core_openmp::format::Interface;
use margay_core_openmp::schedule::{Kind, Schedule};

/// The internal control variables of a data environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Icv {
    /// `nthreads-var`
    pub threads: u32,
    /// Its elements for the regions inside, where a `num_threads` clause has listed them: then
    /// those of the environment do not count. The last one lasts.
    pub(crate) inner_threads: Option<&'static [u32]>,
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

/// The schedule when nobody has said which. Compilers differ in what that means: dynamic for gcc's,
/// static for LLVM's.
pub const UNSET_SCHEDULE: Schedule = Schedule::new(Kind::Dynamic, 0);

/// Levels of parallel regions that may be active (`omp_get_supported_active_levels`).
pub const SUPPORTED_ACTIVE_LEVELS: u32 = 255;

impl Icv {
    /// The values that a program starts with when no environment variable is set.
    #[must_use]
    pub const fn default(cores: u32) -> Icv {
        Icv {
            threads: cores,
            inner_threads: None,
            dynamic: false,
            schedule: UNSET_SCHEDULE,
            max_active_levels: 1,
            thread_limit: u32::MAX,
            device: 0,
            bind: Bind::False,
            allocator: 1,
        }
    }
}

/// The control variables of a process: those of the device, and the values of data environments.
#[derive(Debug)]
pub struct Icvs {
    /// The values of an initial task.
    pub initial: &'static Icv,
    /// `affinity-format-var`, which the program may change (`omp_set_affinity_format`); none for
    /// the default, which differs between interfaces.
    affinity_format: RwLock<Option<String>>,
    /// `nteams-var`, which the program may change; 0 for none.
    pub teams: AtomicU32,
    /// `teams-thread-limit-var`, the same.
    pub teams_thread_limit: AtomicU32,
    /// All values of data environments.
    kept: Mutex<HashSet<&'static Icv>>,
    /// All lists of numbers of threads that clauses have had. Bounded by the program's clauses.
    lists: Mutex<HashSet<&'static [u32]>>,
}

impl Icvs {
    /// The variables with these values.
    #[must_use]
    pub fn new(
        initial: Icv,
        affinity_format: Option<&str>,
        teams: u32,
        teams_thread_limit: u32,
    ) -> Icvs {
        let initial: &'static Icv = Box::leak(Box::new(initial));
        Icvs {
            initial,
            affinity_format: RwLock::new(affinity_format.map(str::to_owned)),
            teams: AtomicU32::new(teams),
            teams_thread_limit: AtomicU32::new(teams_thread_limit),
            kept: Mutex::new(HashSet::from([initial])),
            lists: Mutex::default(),
        }
    }

    /// The value with a change.
    #[must_use]
    pub fn change(&self, icv: &'static Icv, change: impl FnOnce(&mut Icv)) -> &'static Icv {
        let mut changed = *icv;
        change(&mut changed);
        if changed == *icv {
            return icv;
        }
        let mut values = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = values.get(&changed) {
            return kept;
        }
        let kept: &'static Icv = Box::leak(Box::new(changed));
        values.insert(kept);
        kept
    }

    /// Keeps a list of numbers of threads.
    #[must_use]
    pub fn keep_list(&self, list: &[u32]) -> &'static [u32] {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = lists.get(list) {
            return kept;
        }
        let kept: &'static [u32] = Vec::leak(list.to_vec());
        lists.insert(kept);
        kept
    }

    /// The affinity format in force for code that calls this interface.
    #[must_use]
    pub fn affinity_format(&self, interface: Interface) -> String {
        let format = self.affinity_format.read();
        let format = format.unwrap_or_else(PoisonError::into_inner).clone();
        format.unwrap_or_else(|| interface.default_format().to_owned())
    }

    /// Sets the affinity format.
    pub fn set_affinity_format(&self, format: &str) {
        let current = self.affinity_format.write();
        *current.unwrap_or_else(PoisonError::into_inner) = Some(format.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one() {
        let icvs = Icvs::new(Icv::default(2), None, 0, 0);
        let three = icvs.change(icvs.initial, |icv| icv.threads = 3);
        let again = icvs.change(icvs.initial, |icv| icv.threads = 3);
        assert!(std::ptr::eq(three, again));
        let back = icvs.change(three, |icv| icv.threads = 2);
        assert!(std::ptr::eq(back, icvs.initial));
        assert_eq!((icvs.initial.threads, three.threads), (2, 3));
    }
}
