//! What others have a rank record: the library of threads of OpenMP, which finds these functions by
//! their names, and the hooks of `mpiexec -check`.

use std::ffi::{CStr, c_char};
use std::ptr;
use std::sync::atomic::AtomicU64;

use margay_core_registry::{CallName, call_name};

use crate::current;

/// The calling thread has done what `name` says since `start`, in ticks of the processor's counter;
/// the program has called from `from`.
///
/// # Safety
/// `name` refers to a name that lives as long as the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn margay_record_threads(name: *const CallName, from: u64, start: u64) {
    // SAFETY: by the caller's promise.
    if let (Some(process), Some(name)) = (current(), unsafe { name.as_ref() }) {
        let recording = &process.rank().monitor().recording;
        recording.threads(name, from, start);
    }
}

/// This many words of the rank's memory, of 0, for what members of a team do: they are there for
/// others when the process is dead. They are aligned to 128 bytes. Null where there are none.
#[unsafe(no_mangle)]
pub extern "C" fn margay_keep_threads(words: usize) -> *const AtomicU64 {
    let kept = current().and_then(|process| process.rank().keep_threads(words));
    kept.map_or(ptr::null(), <[AtomicU64]>::as_ptr)
}

/// Notes that the last call of the program was this one: the hooks have called others since.
///
/// # Safety
/// `name` refers to a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn margay_note_call(name: *const c_char) {
    // SAFETY: by the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    if let (Some(process), Ok(name)) = (current(), name.to_str()) {
        process.rank().note_call(&call_name(name));
    }
}
