//! The runtime of this process: the one place that looks it up.

use std::sync::OnceLock;

use margay_run_openmp::AnyClock;
use margay_run_openmp::environment::Environment;
use margay_run_openmp::team::{self, Context};
use margay_run_openmp::{Runtime, preempt_members};

use crate::tools;

/// The runtime of this process. Made when the library is loaded.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        preempt_members();
        Runtime::new(Environment::of_process(), AnyClock::System)
    })
}

/// The same for a thread that begins to use it: a tool learns of the first one, too.
#[cold]
fn runtime_with_tool() -> &'static Runtime {
    tools::start();
    runtime()
}

/// Calls `f` with the context of the calling thread: that of the member which runs there, or else
/// that of an initial thread.
#[inline]
pub fn with<R>(f: impl FnOnce(&Context) -> R) -> R {
    team::with(runtime_with_tool, f)
}
