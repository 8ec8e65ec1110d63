//! Locks: the routines of OpenMP, for programs of each compiler whose locks differ.

use std::ffi::c_int;
use std::sync::atomic::AtomicU32;

use margay_core_openmp::tools::Mutex;
use margay_run_openmp::lock::{Nested, OldNested};

use crate::runtime::with;
use crate::tools::mutex;

/// Each lock function for C; for Fortran, with an underscore; and, under a name of its own that the
/// linker gives the version of OpenMP 2.5, for programs that were built for it.
macro_rules! locks {
    ($($name:ident $fortran:ident $old:ident $old_fortran:ident ($lock:ident: $of:ty) -> $result:ty $body:block)*) => {$(
        locks!(@one $name $lock: $of, $result, $body);
        locks!(@one $fortran $lock: $of, $result, $body);
        locks!(@one $old $lock: $of, $result, $body);
        locks!(@one $old_fortran $lock: $of, $result, $body);
    )*};
    (@one $name:ident $lock:ident: $of:ty, $result:ty, $body:block) => {
        /// # Safety
        /// The lock lives as long as anybody uses it, and only these functions do.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($lock: *mut $of) -> $result {
            // SAFETY: by the caller's promise.
            let $lock = unsafe { &*$lock };
            $body
        }
    };
}

locks! {
    omp_init_lock omp_init_lock_ margay_omp25_init_lock margay_omp25_init_lock_ (lock: AtomicU32) -> () {
        lock.store(0, std::sync::atomic::Ordering::Relaxed);
        mutex::init(lock, Mutex::Lock, 0);
    }
    omp_destroy_lock omp_destroy_lock_ margay_omp25_destroy_lock margay_omp25_destroy_lock_ (lock: AtomicU32) -> () {
        mutex::destroy(lock, Mutex::Lock);
    }
    omp_set_lock omp_set_lock_ margay_omp25_set_lock margay_omp25_set_lock_ (lock: AtomicU32) -> () {
        mutex::set(lock, Mutex::Lock, 0, 0);
    }
    omp_unset_lock omp_unset_lock_ margay_omp25_unset_lock margay_omp25_unset_lock_ (lock: AtomicU32) -> () {
        mutex::unset(lock, Mutex::Lock);
    }
    omp_test_lock omp_test_lock_ margay_omp25_test_lock margay_omp25_test_lock_ (lock: AtomicU32) -> c_int {
        c_int::from(mutex::test(lock))
    }
}

/// The nested locks. A lock of OpenMP 3.0 is larger than Fortran's variable for it, which therefore
/// holds its address.
macro_rules! nested {
    ($($name:ident $fortran:ident $old:ident $old_fortran:ident ($lock:ident, $context:ident) -> $result:ty $body:block)*) => {$(
        nested!(@one $name $lock: Nested, $context, $result, $body);
        nested!(@one $old $lock: OldNested, $context, $result, $body);
        nested!(@one $old_fortran $lock: OldNested, $context, $result, $body);

        /// # Safety
        /// The variable holds the address of a lock that `omp_init_nest_lock_` has made.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $fortran($lock: *mut *mut Nested) -> $result {
            // SAFETY: by the caller's promise.
            let $lock = unsafe { &**$lock };
            with(|$context| $body)
        }
    )*};
    (@one $name:ident $lock:ident: $of:ty, $context:ident, $result:ty, $body:block) => {
        /// # Safety
        /// The lock lives as long as anybody uses it, and only these functions do.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($lock: *mut $of) -> $result {
            // SAFETY: by the caller's promise.
            let $lock = unsafe { &*$lock };
            with(|$context| $body)
        }
    };
}

nested! {
    omp_set_nest_lock omp_set_nest_lock_ margay_omp25_set_nest_lock margay_omp25_set_nest_lock_ (lock, context) -> () {
        mutex::set_nested(lock, || lock.set(context));
    }
    omp_test_nest_lock omp_test_nest_lock_ margay_omp25_test_nest_lock margay_omp25_test_nest_lock_ (lock, context) -> c_int {
        mutex::test_nested(lock, || lock.test(context)) as c_int
    }
    omp_unset_nest_lock omp_unset_nest_lock_ margay_omp25_unset_nest_lock margay_omp25_unset_nest_lock_ (lock, context) -> () {
        mutex::unset_nested(lock, || lock.unset(context));
    }
}

macro_rules! nested_ends {
    ($($init:ident $destroy:ident $of:ty;)*) => {$(
        /// # Safety
        /// The lock's memory can be written.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $init(lock: *mut $of) {
            // SAFETY: by the caller's promise; all bytes are valid for a lock.
            let lock = unsafe { &*lock };
            lock.init();
            mutex::init(lock, Mutex::NestLock, 0);
        }

        #[unsafe(no_mangle)]
        pub extern "C-unwind" fn $destroy(lock: *mut $of) {
            mutex::destroy(lock, Mutex::NestLock);
        }
    )*};
}

nested_ends! {
    omp_init_nest_lock omp_destroy_nest_lock Nested;
    margay_omp25_init_nest_lock margay_omp25_destroy_nest_lock OldNested;
    margay_omp25_init_nest_lock_ margay_omp25_destroy_nest_lock_ OldNested;
}

/// # Safety
/// The variable can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_init_nest_lock_(lock: *mut *mut Nested) {
    let made: Box<Nested> = Box::default();
    mutex::init(&*made, Mutex::NestLock, 0);
    // SAFETY: by the caller's promise.
    unsafe { lock.write(Box::into_raw(made)) };
}

/// # Safety
/// The variable holds the address of a lock that `omp_init_nest_lock_` has made, and nobody uses it
/// any more.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_destroy_nest_lock_(lock: *mut *mut Nested) {
    // SAFETY: by the caller's promise.
    unsafe {
        if !(*lock).is_null() {
            mutex::destroy(*lock, Mutex::NestLock);
            drop(Box::from_raw(*lock));
            lock.write(std::ptr::null_mut());
        }
    }
}
