//! The thread-local variables of members: `threadprivate` and what else a program keeps per thread.
//!
//! The first member of a team has those of who encountered the region. Each other one has a set of its own, as if it were
//! a thread: under the outermost regions always the same for the same number, so that values persist; in nested regions any
//! that is free. Programs without such variables need none of this.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use margay_sys_threads::identity::{self, Identity};

use crate::team::Initial;

/// The sets of the members under an initial thread, by member.
#[derive(Debug, Default)]
pub(crate) struct Variables(Mutex<Vec<Option<Arc<Identity>>>>);

static SPARE: Mutex<Vec<Arc<Identity>>> = Mutex::new(Vec::new());
static IS_NEEDED: OnceLock<bool> = OnceLock::new();
static COMPLAINT: OnceLock<()> = OnceLock::new();

/// Runs `f` with the variables of member `id`: of an outermost region under `initial`, or of another.
pub(crate) fn with<R>(initial: Option<&Initial>, id: u32, f: impl FnOnce() -> R) -> R {
    if !*IS_NEEDED.get_or_init(identity::is_needed) {
        return f();
    }
    let set = match initial {
        Some(initial) => initial.variables.of(id),
        None => lock(&SPARE).pop().or_else(make),
    };
    let Some(set) = set else { return f() };
    let result = set.with(f);
    if initial.is_none() {
        lock(&SPARE).push(set);
    }
    result
}

impl Variables {
    fn of(&self, id: u32) -> Option<Arc<Identity>> {
        let mut sets = lock(&self.0);
        let at = id as usize;
        if sets.len() <= at {
            sets.resize(at + 1, None);
        }
        if sets[at].is_none() {
            sets[at] = make();
        }
        sets[at].clone()
    }

    /// Forgets all values.
    pub(crate) fn clear(&self) {
        lock(&self.0).clear();
        lock(&SPARE).clear();
    }
}

fn make() -> Option<Arc<Identity>> {
    let made = Identity::new();
    if made.is_none() {
        COMPLAINT.get_or_init(|| {
            eprintln!(
                "libgomp (Margay): no thread for another set of threadprivate variables; members share one from here \
                 on. Allow more threads (ulimit -u, the container's pids limit), or ask for fewer."
            );
        });
    }
    made.map(Arc::new)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
