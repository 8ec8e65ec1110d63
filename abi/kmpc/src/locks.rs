//! Locks: LLVM's are one word of the program's, a nested one, too.

use std::ffi::c_int;

use margay_abi_omp::locks::{
    omp_destroy_lock, omp_init_lock, omp_set_lock, omp_test_lock, omp_unset_lock,
};
use margay_abi_omp::runtime::with;
use margay_abi_omp::tools::mutex;
use margay_core_openmp::tools::Mutex;
use margay_run_openmp::lock::SmallNested;
use std::sync::atomic::AtomicU32;

use crate::Ident;

/// Each function as the compilers call it, and under the name of its routine; with an underscore
/// for Fortran. The linker gives the routines the version that LLVM's programs ask for.
macro_rules! nested {
    ($($call:ident $routine:ident $fortran:ident ($lock:ident, $context:ident) -> $result:ty $body:block)*) => {$(
        /// # Safety
        /// The lock lives as long as anybody uses it, and only these functions do.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $routine(lock: *mut SmallNested) -> $result {
            // SAFETY: by the caller's promise.
            let $lock = unsafe { &*lock };
            with(|$context| $body)
        }

        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $fortran(lock: *mut SmallNested) -> $result {
            // SAFETY: by the caller's promise.
            unsafe { $routine(lock) }
        }

        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $call(_: *const Ident, _: c_int, lock: *mut SmallNested) -> $result {
            // SAFETY: by the caller's promise.
            unsafe { $routine(lock) }
        }
    )*};
}

nested! {
    __kmpc_init_nest_lock margay_kmp_init_nest_lock margay_kmp_init_nest_lock_ (lock, _context) -> () {
        lock.init();
        mutex::init(lock, Mutex::NestLock, 0);
    }
    __kmpc_destroy_nest_lock margay_kmp_destroy_nest_lock margay_kmp_destroy_nest_lock_ (lock, _context) -> () {
        mutex::destroy(lock, Mutex::NestLock);
    }
    __kmpc_set_nest_lock margay_kmp_set_nest_lock margay_kmp_set_nest_lock_ (lock, context) -> () {
        mutex::set_nested(lock, || lock.set(context));
    }
    __kmpc_unset_nest_lock margay_kmp_unset_nest_lock margay_kmp_unset_nest_lock_ (lock, context) -> () {
        mutex::unset_nested(lock, || lock.unset(context));
    }
    __kmpc_test_nest_lock margay_kmp_test_nest_lock margay_kmp_test_nest_lock_ (lock, context) -> c_int {
        mutex::test_nested(lock, || lock.test(context)) as c_int
    }
}

macro_rules! plain {
    ($($call:ident $routine:ident -> $result:ty;)*) => {$(
        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $call(_: *const Ident, _: c_int, lock: *mut AtomicU32) -> $result {
            // SAFETY: by the caller's promise.
            unsafe { $routine(lock) }
        }
    )*};
}

plain! {
    __kmpc_init_lock omp_init_lock -> ();
    __kmpc_destroy_lock omp_destroy_lock -> ();
    __kmpc_set_lock omp_set_lock -> ();
    __kmpc_unset_lock omp_unset_lock -> ();
    __kmpc_test_lock omp_test_lock -> c_int;
}

macro_rules! with_hint {
    ($($call:ident $routine:ident $fortran:ident $init:ident $of:ty;)*) => {$(
        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $call(_: *const Ident, _: c_int, lock: *mut $of, _hint: usize) {
            // SAFETY: by the caller's promise.
            unsafe { $init(lock) };
        }

        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $routine(lock: *mut $of, _hint: c_int) {
            // SAFETY: by the caller's promise.
            unsafe { $init(lock) };
        }

        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $fortran(lock: *mut $of, _hint: *const c_int) {
            // SAFETY: by the caller's promise.
            unsafe { $init(lock) };
        }
    )*};
}

with_hint! {
    __kmpc_init_lock_with_hint omp_init_lock_with_hint omp_init_lock_with_hint_ omp_init_lock AtomicU32;
    __kmpc_init_nest_lock_with_hint omp_init_nest_lock_with_hint omp_init_nest_lock_with_hint_
        margay_kmp_init_nest_lock SmallNested;
}
