//! Barriers, critical constructs; warnings and errors of `error` directives.

use std::ffi::c_char;
use std::sync::atomic::AtomicU32;

use margay_abi_omp::from_program;
use margay_abi_omp::runtime::{runtime, with};
use margay_abi_omp::tools::{self, mutex};
use margay_core_openmp::tools::{Mutex, Severity};
use margay_sys_threads::outlined::text;

#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C-unwind" fn GOMP_barrier() {
    from_program!(0, barrier)
}

extern "C-unwind" fn barrier(from: usize) {
    with(|context| context.barrier(from));
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C-unwind" fn GOMP_barrier_cancel() -> bool {
    from_program!(0, barrier_cancel)
}

extern "C-unwind" fn barrier_cancel(from: usize) -> bool {
    with(|context| {
        context.barrier(from);
        context.team.is_cancelled()
    })
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C-unwind" fn GOMP_critical_start() {
    from_program!(0, critical_start)
}

extern "C-unwind" fn critical_start(from: usize) {
    mutex::set(&runtime().critical, Mutex::Critical, 0, from);
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_critical_end() {
    mutex::unset(&runtime().critical, Mutex::Critical);
}

/// # Safety
/// `name` is a zeroed pointer that nobody but these two functions uses.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn GOMP_critical_name_start(name: *mut AtomicU32) {
    from_program!(1, critical_name_start)
}

/// # Safety
/// As above.
unsafe extern "C-unwind" fn critical_name_start(name: *mut AtomicU32, from: usize) {
    // SAFETY: by the caller's promise; a lock fits in a pointer.
    mutex::set(unsafe { &*name }, Mutex::Critical, 0, from);
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_critical_name_end(name: *mut AtomicU32) {
    // SAFETY: by the caller's promise.
    mutex::unset(unsafe { &*name }, Mutex::Critical);
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_atomic_start() {
    mutex::set(&runtime().atomic, Mutex::Atomic, 0, 0);
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_atomic_end() {
    mutex::unset(&runtime().atomic, Mutex::Atomic);
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
    let message = unsafe { message(text, length) };
    tools::tell_error(Severity::Warning, &message);
    eprintln!("\nlibgomp: {message}");
}

/// # Safety
/// As of `message`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_error(text: *const c_char, length: usize) {
    // SAFETY: by the caller's promise.
    let message = unsafe { message(text, length) };
    tools::tell_error(Severity::Fatal, &message);
    margay_abi_omp::fatal(&format!("fatal error: {message}"));
}
