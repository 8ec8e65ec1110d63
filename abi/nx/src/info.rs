//! What is known of the last message: `infocount` and its like.

use std::ffi::c_long;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use margay_run_nx::Info;

use crate::call::{in_use, nx};
use crate::user::Longs;

/// Where `libnx` keeps its `msginfo`.
static MSGINFO: AtomicUsize = AtomicUsize::new(0);
/// The same for handlers, whose messages must not be taken for the program's.
static IN_HANDLERS: [AtomicI64; 8] = [const { AtomicI64::new(0) }; 8];

/// Tells where `msginfo` is.
///
/// # Safety
/// It is an array of at least four integers that stays as long as the process.
pub unsafe fn keep_at(place: Longs) {
    MSGINFO.store(place.number(), Ordering::Release);
}

fn msginfo() -> Longs {
    // SAFETY: the number of what was given to `keep_at`, or 0.
    unsafe { Longs::at(MSGINFO.load(Ordering::Acquire)) }
}

/// Notes what is known of a message that was posted with a place for that, 0: where `infocount`
/// looks.
///
/// # Safety
/// `place` is 0, or [`Longs::number`] gave it for an array of four that the program keeps until the
/// message is complete.
#[inline]
pub unsafe fn note_posted(place: usize, info: Info) {
    if place == 0 {
        return note(info);
    }
    // SAFETY: by the caller's promise.
    unsafe { Longs::at(place).put_info(info) };
}

/// Notes what is known of a message where `infocount` looks.
#[inline]
pub fn note(info: Info) {
    if in_use().is_some_and(|nx| nx.is_service_thread()) {
        let values = [info.kind, info.count, info.node, info.ptype];
        for (word, value) in IN_HANDLERS.iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
        return;
    }
    // SAFETY: `libnx`'s array has room for more.
    unsafe { msginfo().put_info(info) };
}

fn known(field: usize) -> c_long {
    if in_use().is_some_and(|nx| nx.is_service_thread()) {
        return IN_HANDLERS[field].load(Ordering::Relaxed);
    }
    // SAFETY: as in `note`.
    let values = unsafe { msginfo().take("msginfo", 4) }.unwrap_or_default();
    values.get(field).copied().unwrap_or(0)
}

nx! {
    /// The type of the last message that was received or probed for.
    free fn infotype() -> c_long {
        Ok(known(0))
    }

    /// Its length in bytes.
    free fn infocount() -> c_long {
        Ok(known(1))
    }

    /// The node that it came from.
    free fn infonode() -> c_long {
        Ok(known(2))
    }

    /// The type of the process that it came from.
    free fn infoptype() -> c_long {
        Ok(known(3))
    }

    /// The old name of infoptype.
    free fn infopid() -> c_long {
        Ok(known(3))
    }
}
