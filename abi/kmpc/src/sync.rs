//! Barriers, single, masked, copyprivate, cancellation, flush, `error` directives.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{Ordering, fence};

use margay_abi_omp::runtime::{runtime, with};
use margay_abi_omp::tools::{tell_error, tell_flush};
use margay_abi_omp::{fatal, from_program};
use margay_core_openmp::tools::{self, Endpoint, Severity, Sync, Work};
use margay_run_openmp::team::Context;
use margay_sys_threads::border::outside;
use margay_sys_threads::outlined::text;

use crate::Ident;

/// The kind of a barrier, for tools.
///
/// # Safety
/// `loc` is null or can be read.
#[inline]
unsafe fn barrier_kind(loc: *const Ident) -> Sync {
    // SAFETY: by the caller's promise.
    match unsafe { loc.as_ref() } {
        Some(loc) if loc.is_implicit_barrier() => Sync::BarrierWorkshare,
        _ => Sync::BarrierExplicit,
    }
}

/// # Safety
/// `loc` is null or can be read.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn __kmpc_barrier(loc: *const Ident, _: c_int) {
    from_program!(2, barrier)
}

/// # Safety
/// As above.
unsafe extern "C-unwind" fn barrier(loc: *const Ident, _: c_int, from: usize) {
    // SAFETY: by the caller's promise.
    with(|context| context.barrier_by(|| unsafe { barrier_kind(loc) }, from));
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn __kmpc_cancel_barrier(loc: *const Ident, _: c_int) -> c_int {
    from_program!(2, cancel_barrier)
}

/// # Safety
/// As above.
unsafe extern "C-unwind" fn cancel_barrier(loc: *const Ident, _: c_int, from: usize) -> c_int {
    with(|context| {
        // SAFETY: by the caller's promise.
        context.barrier_by(|| unsafe { barrier_kind(loc) }, from);
        c_int::from(context.team.is_cancelled())
    })
}

/// A barrier whose first member then goes on alone, until it calls the next function.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_barrier_master(_: *const Ident, _: c_int) -> c_int {
    with(|context| {
        context.barrier(0);
        if context.id == 0 {
            return 1;
        }
        context.barrier(0);
        0
    })
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_end_barrier_master(_: *const Ident, _: c_int) {
    with(|context| context.barrier(0));
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_barrier_master_nowait(_: *const Ident, _: c_int) -> c_int {
    with(|context| {
        context.barrier(0);
        c_int::from(context.id == 0)
    })
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_master(_: *const Ident, _: c_int) -> c_int {
    __kmpc_masked(std::ptr::null(), 0, 0)
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_end_master(_: *const Ident, _: c_int) {
    with(|context| context.tell_masked(Endpoint::End));
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_masked(_: *const Ident, _: c_int, filter: c_int) -> c_int {
    with(|context| {
        let executes = context.id as c_int == filter;
        if executes {
            context.tell_masked(Endpoint::Begin);
        }
        c_int::from(executes)
    })
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_end_masked(_: *const Ident, _: c_int) {
    with(|context| context.tell_masked(Endpoint::End));
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_single(_: *const Ident, _: c_int) -> c_int {
    with(|context| c_int::from(context.single()))
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_end_single(_: *const Ident, _: c_int) {
    with(Context::tell_work_over);
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_scope(_: *const Ident, _: c_int, _reserved: *mut c_void) {
    with(|context| context.tell_counted_work(|| (Work::Scope, 1)));
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_end_scope(_: *const Ident, _: c_int, _reserved: *mut c_void) {
    with(Context::tell_work_over);
}

/// How the variables of a `copyprivate` clause get from one member to another.
type CopyVariables = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void);

/// # Safety
/// `copy(data, d)` may be called where `d` is the data of the member that executed the `single`
/// (`did`).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_copyprivate(
    _: *const Ident,
    _: c_int,
    _bytes: usize,
    data: *mut c_void,
    copy: CopyVariables,
    did: c_int,
) {
    with(|context| {
        if did != 0 {
            context.end_single_copy(data as usize);
        } else {
            let from = context.copied() as *mut c_void;
            // SAFETY: by the caller's promise.
            outside(|| unsafe { copy(data, from) });
        }
        context.barrier_of(Sync::BarrierWorkshare, 0);
    });
}

/// The same where the caller copies: returns the address of the data of the member that executed
/// the `single`, which passes it, and the others null.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_copyprivate_light(
    _: *const Ident,
    _: c_int,
    data: *mut c_void,
) -> *mut c_void {
    with(|context| {
        if data.is_null() {
            context.copied() as *mut c_void
        } else {
            context.end_single_copy(data as usize);
            data
        }
    })
}

const CANCEL_PARALLEL: c_int = 1;
const CANCEL_LOOP: c_int = 2;
const CANCEL_SECTIONS: c_int = 3;
const CANCEL_TASKGROUP: c_int = 4;

/// The flag by which a tool knows what is cancelled.
fn tool_flag(which: c_int) -> u32 {
    match which {
        CANCEL_PARALLEL => tools::CANCEL_PARALLEL,
        CANCEL_LOOP => tools::CANCEL_LOOP,
        CANCEL_SECTIONS => tools::CANCEL_SECTIONS,
        _ => tools::CANCEL_TASKGROUP,
    }
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_cancellationpoint(
    _: *const Ident,
    _: c_int,
    which: c_int,
) -> c_int {
    if !runtime().environment.cancellation {
        return 0;
    }
    c_int::from(with(|context| {
        let is_cancelled = match which {
            CANCEL_LOOP | CANCEL_SECTIONS => context.team.is_work_cancelled(),
            CANCEL_TASKGROUP => context.is_in_cancelled_group(),
            _ => context.team.is_cancelled(),
        };
        if is_cancelled {
            context.tell_cancel(tool_flag(which), false);
        }
        is_cancelled
    }))
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_cancel(_: *const Ident, _: c_int, which: c_int) -> c_int {
    if !runtime().environment.cancellation {
        return 0;
    }
    with(|context| {
        context.tell_cancel(tool_flag(which), true);
        match which {
            CANCEL_LOOP | CANCEL_SECTIONS => context.cancel_share(),
            CANCEL_TASKGROUP => context.cancel_group(),
            _ => {
                debug_assert!(which == CANCEL_PARALLEL);
                context.cancel_region();
            }
        }
    });
    1
}

/// Whether what has this number is cancelled.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmp_get_cancellation_status(which: c_int) -> c_int {
    __kmpc_cancellationpoint(std::ptr::null(), 0, which)
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn kmp_get_cancellation_status(which: c_int) -> c_int {
    __kmp_get_cancellation_status(which)
}

/// # Safety
/// The argument can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn kmp_get_cancellation_status_(which: *const c_int) -> c_int {
    // SAFETY: by the caller's promise.
    __kmp_get_cancellation_status(unsafe { *which })
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_flush(_: *const Ident) {
    fence(Ordering::SeqCst);
    tell_flush();
}

const FATAL: c_int = 2;

/// # Safety
/// `message` is null or ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_error(
    _: *const Ident,
    severity: c_int,
    message: *const c_char,
) {
    // SAFETY: by the caller's promise.
    let report = unsafe { text(message, None) };
    let report = if report.is_empty() {
        "error directive encountered".to_owned()
    } else {
        format!("error directive encountered: {report}")
    };
    if severity == FATAL {
        tell_error(Severity::Fatal, &report);
        fatal(&format!("fatal error: {report}"));
    }
    tell_error(Severity::Warning, &report);
    eprintln!("\nlibgomp: {report}");
}
