//! What a library beside MPI keeps of this process.

use std::sync::atomic::{AtomicPtr, Ordering};

/// A value from the library's first use to the end of the process. A child made by fork has it no more: the value stands on a
/// rank that is the parent's.
pub struct Face<T> {
    current: AtomicPtr<T>,
    /// In a child: its parent's value, so that memory checkers find it.
    inherited: AtomicPtr<T>,
}

impl<T: Send + Sync + 'static> Face<T> {
    /// Without a value.
    #[must_use]
    pub const fn new() -> Face<T> {
        Face {
            current: AtomicPtr::new(std::ptr::null_mut()),
            inherited: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Returns the value, if there is one.
    #[inline(always)]
    #[must_use]
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: the pointer is null or from `Box::into_raw` in `set`, and what it points to is never given back.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    /// Keeps a value, unless another thread was first; returns the one that is kept.
    pub fn set(&self, value: T) -> &'static T {
        let (none, new) = (std::ptr::null_mut(), Box::into_raw(Box::new(value)));
        let set = (self.current).compare_exchange(none, new, Ordering::AcqRel, Ordering::Acquire);
        match set {
            // SAFETY: as in `get`.
            Ok(_) => unsafe { &*new },
            Err(first) => {
                // SAFETY: from `into_raw` above, and nobody has seen it.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: as in `get`.
                unsafe { &*first }
            }
        }
    }

    /// In a child made by fork: there is no value any more.
    pub fn forget(&self) {
        let value = (self.current).swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !value.is_null() {
            self.inherited.store(value, Ordering::Release);
        }
    }
}

impl<T: Send + Sync + 'static> Default for Face<T> {
    fn default() -> Face<T> {
        Face::new()
    }
}

#[cfg(test)]
mod tests {
    use super::Face;

    #[test]
    fn the_first_value_stays_until_it_is_forgotten() {
        let face = Face::new();
        assert_eq!(face.get(), None);
        assert_eq!(face.set(1), &1);
        assert_eq!(face.set(2), &1);
        face.forget();
        assert_eq!(face.get(), None);
        face.forget();
        assert!(!face.inherited.into_inner().is_null());
    }
}
