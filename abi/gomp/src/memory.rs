//! Memory for the `allocate` directive and clause; and what Margay's own libraries call.

use std::ffi::{c_int, c_void};

use margay_abi_omp::fatal;
use margay_abi_omp::memory::{allocate, release};
use margay_abi_omp::runtime::with;
use margay_run_openmp::affinity;

/// `omp_alloc` for programs that do not check for null.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_alloc(align: usize, size: usize, allocator: usize) -> *mut c_void {
    let at = allocate(align.max(1), size.max(1), allocator, false);
    if at.is_null() {
        fatal(&format!(
            "out of memory: {size} bytes for an 'allocate' clause or directive"
        ));
    }
    at
}

/// # Safety
/// As of `omp_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_free(at: *mut c_void, _allocator: usize) {
    // SAFETY: by the caller's promise.
    unsafe { release(at) };
}

/// Margay's own, for MLP: from now on thread t of the teams that the calling thread forks runs on
/// processor `cpus[t]`. Returns 0 in a parallel region, where that is not possible.
///
/// # Safety
/// `cpus` is an array of `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_margay_places(cpus: *const u32, count: usize) -> c_int {
    // SAFETY: by the caller's promise.
    let cpus = unsafe { std::slice::from_raw_parts(cpus, count) };
    let places = cpus.iter().map(|&cpu| vec![cpu as usize]).collect();
    with(|context| c_int::from(affinity::replace_places(context, places)))
}
