//! What a library of threads has a rank record: the one of OpenMP, which finds this function by its
//! name.

use margay_core_registry::CallName;

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
