//! The runtime of this process: the one place that looks it up.

use std::sync::OnceLock;

use margay_run_openmp::AnyClock;
use margay_run_openmp::environment::{self, Environment};
use margay_run_openmp::team::{self, Context};
use margay_run_openmp::{Runtime, preempt_members};
use margay_sys_threads::border::Border;
use margay_sys_threads::slot;

use crate::{kept, tools};

/// The runtime of this process. Made when the program first uses OpenMP, so that environment
/// variables count which it sets before: `margay omp` loads the library long before a script sets
/// `OMP_NUM_THREADS` and imports the package that brings a library of its own.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        preempt_members();
        let environment = Environment::of_process();
        let runtime = Runtime::new(environment, AnyClock::System).kept_by(kept::words);
        if let Some(verbose) = environment::display_wanted() {
            eprint!("{}", runtime.environment.display(&runtime.icvs, verbose));
        }
        runtime
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

/// The same with the [border](margay_sys_threads::border), for what runs the program's code in
/// between.
#[inline]
pub fn with_border<R>(f: impl Fn(&Context, Border<'_>) -> R) -> R {
    let found = slot::with_border(|context: Option<&Context>, border| {
        context.map(|context| f(context, border))
    });
    match found {
        Some(result) => result,
        None => adopted(f),
    }
}

/// The same for a thread that has no context yet.
#[cold]
#[inline(never)]
fn adopted<R>(f: impl Fn(&Context, Border<'_>) -> R) -> R {
    with(|_| {});
    slot::with_border(|context: Option<&Context>, border| {
        f(context.expect("the thread has one now"), border)
    })
}

/// The same for `f` that only reads and writes memory of the member's own, so that the call need
/// not [cross](margay_sys_threads::border) into the runtime. None where the calling thread has no
/// context yet.
#[inline]
pub fn read<R>(f: impl FnOnce(&Context) -> R) -> Option<R> {
    slot::read(|context: Option<&Context>| context.map(f))
}

/// The same for what may run the program's code. None as well for calls from inside of the runtime.
#[inline]
pub fn with_outside<R>(f: impl FnOnce(&Context, Border<'_>) -> R) -> Option<R> {
    slot::with_outside(|context: Option<&Context>, border| {
        context.map(|context| f(context, border))
    })
}
