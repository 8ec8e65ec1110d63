//! Words that processes share, with what keeps their memory.

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A row of atomic words in memory that something else keeps as long as this lives.
#[derive(Clone)]
pub struct Words {
    at: NonNull<AtomicU64>,
    len: usize,
    _keeper: Arc<dyn Send + Sync>,
}

// SAFETY: the words are only reached as atomics, and the keeper may go to any thread.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// `len` words at `at`, which `keeper` keeps.
    ///
    /// # Safety
    /// The words must be aligned and stay readable and writable as long as `keeper` lives, and be
    /// accessed as atomics only.
    #[must_use]
    pub unsafe fn kept_by(
        keeper: Arc<dyn Send + Sync>,
        at: NonNull<AtomicU64>,
        len: usize,
    ) -> Words {
        Words {
            at,
            len,
            _keeper: keeper,
        }
    }

    /// The words for as long as the process lives, whatever becomes of the other owners.
    #[must_use]
    pub fn leak(self) -> &'static [AtomicU64] {
        let words = std::mem::ManuallyDrop::new(self);
        // SAFETY: by the promise of `kept_by`; this keeper is never dropped.
        unsafe { std::slice::from_raw_parts(words.at.as_ptr(), words.len) }
    }

    /// `len` words of this process alone, all 0.
    #[must_use]
    pub fn private(len: usize) -> Words {
        let words: Arc<[AtomicU64]> = (0..len).map(|_| AtomicU64::new(0)).collect();
        let at = NonNull::from(&*words).cast();
        // SAFETY: the words lie in the allocation that the keeper shares; nobody gets it otherwise.
        unsafe { Words::kept_by(Arc::new(words), at, len) }
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: by the promise of `kept_by`.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn clones_share_the_words() {
        let words = Words::private(3);
        let other = words.clone();
        words[2].store(7, Ordering::Relaxed);
        drop(words);
        assert_eq!(other.len(), 3);
        assert_eq!(other[2].load(Ordering::Relaxed), 7);
    }
}
