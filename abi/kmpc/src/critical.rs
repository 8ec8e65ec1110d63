//! Critical constructs, and reductions of regions and loops.
//!
//! A member combines its values with the shared ones itself, by atomic operations where the
//! compiler has some for all of them, and under the reduction's lock otherwise. Combining by a tree
//! would save the others' waiting where each has a core of its own, but members share cores.

use std::ffi::{c_int, c_void};

use margay_abi_omp::from_program;
use margay_abi_omp::runtime::{runtime, with};
use margay_abi_omp::tools::mutex;
use margay_core_openmp::tools::{Mutex, Sync};
use margay_run_openmp::lock;
use margay_run_openmp::team::Context;

use crate::{CriticalName, Ident};

/// # Safety
/// `name` is a zeroed array that nobody but these functions uses.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn __kmpc_critical(
    _: *const Ident,
    _: c_int,
    name: *mut CriticalName,
) {
    from_program!(3, critical)
}

/// # Safety
/// As above.
unsafe extern "C-unwind" fn critical(
    _: *const Ident,
    _: c_int,
    name: *mut CriticalName,
    from: usize,
) {
    // SAFETY: by the caller's promise.
    mutex::set(unsafe { &(*name)[0] }, Mutex::Critical, 0, from);
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn __kmpc_critical_with_hint(
    _: *const Ident,
    _: c_int,
    name: *mut CriticalName,
    hint: u32,
) {
    from_program!(4, critical_with_hint)
}

/// # Safety
/// As above.
unsafe extern "C-unwind" fn critical_with_hint(
    _: *const Ident,
    _: c_int,
    name: *mut CriticalName,
    hint: u32,
    from: usize,
) {
    // SAFETY: by the caller's promise.
    mutex::set(unsafe { &(*name)[0] }, Mutex::Critical, hint, from);
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_end_critical(
    _: *const Ident,
    _: c_int,
    name: *mut CriticalName,
) {
    // SAFETY: by the caller's promise.
    mutex::unset(unsafe { &(*name)[0] }, Mutex::Critical);
}

/// What the caller is to do: combine its values with the shared ones and say so, or combine them by
/// atomic operations.
const COMBINE: c_int = 1;
const COMBINE_ATOMICALLY: c_int = 2;
/// In `Ident`'s flags: there are atomic operations.
const HAS_ATOMICS: i32 = 0x10;
/// With more variables than this a lock costs less.
const FEW: c_int = 4;

/// # Safety
/// As of `__kmpc_critical`; `loc` can be read.
unsafe fn reduce(loc: *const Ident, variables: c_int, name: *mut CriticalName) -> c_int {
    let size = with(|context| context.team.size);
    if size == 1 {
        with(Context::tell_reduction);
        return COMBINE;
    }
    // SAFETY: by the caller's promise.
    let flags = unsafe { loc.as_ref() }.map_or(0, |loc| loc.flags);
    if flags & HAS_ATOMICS != 0 && variables <= FEW {
        return COMBINE_ATOMICALLY;
    }
    // SAFETY: by the caller's promise.
    lock::set(unsafe { &(*name)[0] }, runtime, 0);
    with(|context| {
        context.calls.has_reduction_lock.set(true);
        context.tell_reduction();
    });
    COMBINE
}

/// # Safety
/// As of `__kmpc_critical`.
unsafe fn end_reduce(name: *mut CriticalName) {
    let has_lock = with(|context| {
        context.tell_reduction_over();
        context.calls.has_reduction_lock.take()
    });
    if has_lock {
        // SAFETY: by the caller's promise.
        lock::unset(unsafe { &(*name)[0] }, runtime);
    }
}

type Combine = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void);

macro_rules! reductions {
    ($($begin:ident $end:ident $waits:literal;)*) => {$(
        /// # Safety
        /// As of `__kmpc_critical`; `loc` can be read.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $begin(
            loc: *const Ident, _: c_int, variables: c_int, _bytes: usize, _data: *mut c_void,
            _combine: Option<Combine>, name: *mut CriticalName,
        ) -> c_int {
            // SAFETY: by the caller's promise.
            unsafe { reduce(loc, variables, name) }
        }

        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $end(_: *const Ident, _: c_int, name: *mut CriticalName) {
            // SAFETY: by the caller's promise.
            unsafe { end_reduce(name) };
            if $waits {
                with(|context| context.barrier_of(Sync::BarrierImplementation, 0));
            }
        }
    )*};
}

reductions! {
    __kmpc_reduce __kmpc_end_reduce true;
    __kmpc_reduce_nowait __kmpc_end_reduce_nowait false;
}
