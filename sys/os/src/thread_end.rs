//! What is to be done when a thread of the program has ended.
//!
//! A pthread key, and not a thread-local variable of Rust's, whose destructor also runs on the
//! thread that calls `exit`: there nothing is to be taken down while other threads still run.

use std::ffi::c_void;
use std::sync::OnceLock;

type Calls = Vec<Box<dyn FnOnce()>>;

/// Has `f` called when the calling thread returns or calls `pthread_exit`, after the destructors of
/// its thread-local variables; not when the process exits. Returns whether there was room for it.
pub fn at_thread_end(f: impl FnOnce() + 'static) -> bool {
    let Some(key) = key() else { return false };
    // SAFETY: the key exists for good.
    let kept = unsafe { libc::pthread_getspecific(key) }.cast::<Calls>();
    if !kept.is_null() {
        // SAFETY: a value of this key is a box that was given up below, of which only this thread
        // knows; `push` calls nothing that comes back here.
        unsafe { (*kept).push(Box::new(f)) };
        return true;
    }
    let calls: Calls = vec![Box::new(f)];
    let calls = Box::into_raw(Box::new(calls));
    // SAFETY: the key exists for good, and its destructor takes such a box.
    let is_kept = unsafe { libc::pthread_setspecific(key, calls.cast::<c_void>()) } == 0;
    if !is_kept {
        // SAFETY: from `into_raw` above, and nobody else has it.
        drop(unsafe { Box::from_raw(calls) });
    }
    is_kept
}

fn key() -> Option<libc::pthread_key_t> {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key: libc::pthread_key_t = 0;
        // SAFETY: `key` is a valid place for the answer, and the function stays: libraries of this
        // kind are not unloaded.
        let made = unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) };
        (made == 0).then_some(key)
    })
}

/// The key's destructor. The C library has set the thread's value to null before, so what is called
/// here may call [`at_thread_end`] again.
unsafe extern "C" fn ended(calls: *mut c_void) {
    // SAFETY: the C library passes the thread's value, which is a box of `at_thread_end`, once.
    let calls = unsafe { Box::from_raw(calls.cast::<Calls>()) };
    for call in *calls {
        call();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn calls_come_in_order_when_the_thread_has_ended() {
        let sum = Arc::new(AtomicU32::new(1));
        let (first, second) = (Arc::clone(&sum), Arc::clone(&sum));
        let seen = std::thread::spawn(move || {
            assert!(at_thread_end(move || {
                first.fetch_add(2, Ordering::SeqCst);
            }));
            let seen = second.load(Ordering::SeqCst);
            assert!(at_thread_end(move || {
                let before = second.load(Ordering::SeqCst);
                second.store(before * 10, Ordering::SeqCst);
            }));
            seen
        });
        assert_eq!(seen.join().unwrap(), 1);
        assert_eq!(sum.load(Ordering::SeqCst), 30);
    }
}
