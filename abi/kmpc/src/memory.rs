//! Memory: LLVM's calls for the `allocate` directive and clause, and its own routines.

use std::ffi::{c_int, c_void};

use margay_abi_omp::memory::{
    Trait, allocate, omp_aligned_alloc, omp_alloc, omp_calloc, omp_destroy_allocator, omp_free,
    omp_get_default_allocator, omp_init_allocator, omp_realloc, omp_set_default_allocator,
};
use margay_run_openmp::allocator::DEFAULT;

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_alloc(_: c_int, size: usize, allocator: usize) -> *mut c_void {
    omp_alloc(size, allocator)
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_aligned_alloc(
    _: c_int,
    align: usize,
    size: usize,
    allocator: usize,
) -> *mut c_void {
    omp_aligned_alloc(align, size, allocator)
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_calloc(
    _: c_int,
    count: usize,
    size: usize,
    allocator: usize,
) -> *mut c_void {
    omp_calloc(count, size, allocator)
}

/// # Safety
/// `at` is null or a block from these functions.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_realloc(
    _: c_int,
    at: *mut c_void,
    size: usize,
    allocator: usize,
    free_allocator: usize,
) -> *mut c_void {
    // SAFETY: by the caller's promise.
    unsafe { omp_realloc(at, size, allocator, free_allocator) }
}

/// # Safety
/// `at` is null or a block from these functions that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_free(_: c_int, at: *mut c_void, allocator: usize) {
    // SAFETY: by the caller's promise.
    unsafe { omp_free(at, allocator) };
}

/// # Safety
/// `traits` has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_init_allocator(
    _: c_int,
    space: usize,
    count: c_int,
    traits: *const Trait,
) -> usize {
    // SAFETY: by the caller's promise.
    unsafe { omp_init_allocator(space, count, traits) }
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_destroy_allocator(_: c_int, allocator: usize) {
    omp_destroy_allocator(allocator);
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_set_default_allocator(_: c_int, allocator: usize) {
    omp_set_default_allocator(allocator);
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_get_default_allocator(_: c_int) -> usize {
    omp_get_default_allocator()
}

/// LLVM's `malloc` and its relatives, under their names for C, for the compilers, and for Fortran.
macro_rules! routines {
    ($($name:ident $call:ident $fortran:ident ($($value:ident: $of:ty),*) -> $result:ty $body:block)*) => {$(
        /// # Safety
        /// A block that is passed comes from these functions.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($value: $of),*) -> $result $body

        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $call($($value: $of),*) -> $result {
            // SAFETY: by the caller's promise.
            unsafe { $name($($value),*) }
        }

        /// # Safety
        /// As above; the arguments can be read.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $fortran($($value: *const $of),*) -> $result {
            // SAFETY: by the caller's promise.
            unsafe { $name($($value.read()),*) }
        }
    )*};
}

routines! {
    kmp_malloc kmpc_malloc kmp_malloc_ (size: usize) -> *mut c_void {
        allocate(1, size, DEFAULT, false)
    }
    kmp_aligned_malloc kmpc_aligned_malloc kmp_aligned_malloc_ (size: usize, align: usize) -> *mut c_void {
        omp_aligned_alloc(align, size, DEFAULT)
    }
    kmp_calloc kmpc_calloc kmp_calloc_ (count: usize, size: usize) -> *mut c_void {
        omp_calloc(count, size, DEFAULT)
    }
    kmp_realloc kmpc_realloc kmp_realloc_ (at: *mut c_void, size: usize) -> *mut c_void {
        // SAFETY: by the caller's promise.
        unsafe { omp_realloc(at, size, DEFAULT, DEFAULT) }
    }
    kmp_free kmpc_free kmp_free_ (at: *mut c_void) -> () {
        // SAFETY: by the caller's promise.
        unsafe { omp_free(at, DEFAULT) };
    }
}
