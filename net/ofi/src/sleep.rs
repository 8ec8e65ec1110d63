//! How a thread of the rank finds out whether it may sleep.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Where a provider does not allow to sleep, the rank sleeps for so long, in nanoseconds.
const MOMENT_NS: u64 = 50_000;

/// Between the thread that is about to sleep and the transport, which only the engine calls.
#[derive(Debug)]
pub struct Sleep {
    is_announced: AtomicBool,
    limit_ns: AtomicU64,
}

impl Default for Sleep {
    fn default() -> Self {
        Sleep {
            is_announced: AtomicBool::new(false),
            limit_ns: AtomicU64::new(MOMENT_NS),
        }
    }
}

impl Sleep {
    /// A thread will sleep if `has_work`, which polls the transport, finds nothing. Returns what
    /// that does.
    pub fn announce(&self, has_work: impl FnOnce() -> bool) -> bool {
        self.forbid();
        self.is_announced.store(true, Ordering::Relaxed);
        let has_work = has_work();
        self.is_announced.store(false, Ordering::Relaxed);
        has_work
    }

    /// How long the thread may sleep at most, in nanoseconds, of the `timeout_ns` that it wants to.
    #[must_use]
    pub fn limit(&self, timeout_ns: u64) -> u64 {
        self.limit_ns.load(Ordering::Relaxed).min(timeout_ns)
    }

    pub(crate) fn is_announced(&self) -> bool {
        self.is_announced.load(Ordering::Relaxed)
    }

    /// Sleep is allowed up to this time.
    pub(crate) fn allow(&self, limit_ns: u64) {
        self.limit_ns.store(limit_ns, Ordering::Relaxed);
    }

    pub(crate) fn forbid(&self) {
        self.allow(MOMENT_NS);
    }
}
