//! A fence whose cost lies on one side.
//!
//! Two threads that each write one word and then read the other's (Dekker's pattern) both need a
//! full fence between the two. Where one side runs a million times as often as the other, that is a
//! waste: here the frequent side executes [`light`], which costs nothing, and the rare side
//! [`heavy`], which makes every core that runs a thread of this process execute a full fence
//! (`membarrier(2)`, about 1 µs). Whatever the frequent side wrote before its `light` is then seen
//! by the rare side, or the frequent side reads, after its `light`, what the rare side wrote before
//! its `heavy`.
//!
//! Where the kernel has no such call (or a sandbox forbids it), `light` is a full fence and so is
//! `heavy`: the same promise, paid on both sides.

use crate::sync::{Ordering, fence};

#[cfg(not(loom))]
mod registration {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::thread::{MembarrierCommand, membarrier};

    /// Whether the kernel fences for us. Set before the first thread can use a structure that
    /// relies on it, and never cleared.
    static ASYMMETRIC: AtomicBool = AtomicBool::new(false);

    /// Registers this process. Call before any structure that uses [`light`](super::light) is
    /// shared; calling again does nothing. Forked children inherit it.
    pub fn register() {
        // Miri has no such call.
        if cfg!(miri) {
            return;
        }
        if membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok() {
            ASYMMETRIC.store(true, Ordering::SeqCst);
        }
    }

    #[inline]
    pub(super) fn is_asymmetric() -> bool {
        ASYMMETRIC.load(Ordering::Relaxed)
    }

    pub(super) fn everywhere() {
        // It cannot fail in a registered process.
        let _ = membarrier(MembarrierCommand::PrivateExpedited);
    }
}

#[cfg(not(loom))]
pub use registration::register;

/// What is left of the frequent side's fence in a structure that has something to read there
/// anyway, and lets that tell whether [`light`] would be a full fence.
#[cfg(not(loom))]
#[inline]
pub fn compiler() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Whether [`light`] is nothing but a barrier for the compiler.
#[cfg(not(loom))]
pub fn is_light() -> bool {
    registration::is_asymmetric()
}

/// The frequent side's fence: nothing but a barrier for the compiler in a registered process.
#[cfg(not(loom))]
#[inline]
pub fn light() {
    if registration::is_asymmetric() {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The rare side's fence, on every core that runs a thread of this process.
#[cfg(not(loom))]
pub fn heavy() {
    fence(Ordering::SeqCst);
    if registration::is_asymmetric() {
        registration::everywhere();
    }
}

/// Loom has no membarrier; the model has the two fences that it amounts to.
#[cfg(loom)]
pub fn light() {
    fence(Ordering::SeqCst);
}

#[cfg(loom)]
pub use self::light as compiler;

#[cfg(loom)]
pub fn is_light() -> bool {
    true
}

#[cfg(loom)]
pub fn heavy() {
    fence(Ordering::SeqCst);
}
