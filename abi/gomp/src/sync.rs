//! Barriers, critical constructs; warnings and errors of `error` directives.

use std::ffi::c_char;
use std::sync::atomic::AtomicU32;

use margay_abi_omp::runtime::{runtime, with};
use margay_run_openmp::lock;
use margay_run_openmp::team::Context;
use margay_sys_threads::outlined::text;

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_barrier() {
    with(Context::barrier);
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_barrier_cancel() -> bool {
    with(|context| {
        context.barrier();
        context.team.is_cancelled()
    })
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_critical_start() {
    lock::set(&runtime().critical, runtime);
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_critical_end() {
    lock::unset(&runtime().critical, runtime);
}

/// # Safety
/// `name` is a zeroed pointer that nobody but these two functions uses.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_critical_name_start(name: *mut AtomicU32) {
    // SAFETY: by the caller's promise; a lock fits in a pointer.
    lock::set(unsafe { &*name }, runtime);
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_critical_name_end(name: *mut AtomicU32) {
    // SAFETY: by the caller's promise.
    lock::unset(unsafe { &*name }, runtime);
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_atomic_start() {
    lock::set(&runtime().atomic, runtime);
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_atomic_end() {
    lock::unset(&runtime().atomic, runtime);
}

/// The message of an `error` directive: with a length, ended by a zero byte (a length of all ones),
/// or none.
///
/// # Safety
/// `message` is such a text.
unsafe fn message(message: *const c_char, length: usize) -> String {
    if message.is_null() {
        return "error directive encountered".into();
    }
    // SAFETY: by the caller's promise.
    let text = unsafe { text(message, (length != usize::MAX).then_some(length)) };
    format!("error directive encountered: {text}")
}

/// # Safety
/// As of `message`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_warning(text: *const c_char, length: usize) {
    // SAFETY: by the caller's promise.
    eprintln!("\nlibgomp: {}", unsafe { message(text, length) });
}

/// # Safety
/// As of `message`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_error(text: *const c_char, length: usize) {
    // SAFETY: by the caller's promise.
    margay_abi_omp::fatal(&format!("fatal error: {}", unsafe {
        message(text, length)
    }));
}
