//! What is made once for each process, and what becomes of it in a child made by fork.

use std::sync::atomic::{AtomicPtr, Ordering};

/// A value from its first use to the end of the process. A child made by fork has it no more,
/// because it stands on a rank that is the parent's; but the child knows that its parent had one.
pub struct OncePerProcess<T> {
    current: AtomicPtr<T>,
    /// In a child: its parent's value. Memory checkers find it here, too.
    inherited: AtomicPtr<T>,
}

impl<T: Send + Sync + 'static> OncePerProcess<T> {
    /// Without a value.
    #[must_use]
    pub const fn new() -> OncePerProcess<T> {
        OncePerProcess {
            current: AtomicPtr::new(std::ptr::null_mut()),
            inherited: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Returns the value, if there is one.
    #[inline(always)]
    #[must_use]
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: the pointer is null or from `Box::into_raw` in `set`. What it points to is given
        // back by `free` only, whose caller promises that nobody uses it any more.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    /// In a child made by fork: returns the parent's value, if it had one.
    #[must_use]
    pub fn inherited(&self) -> Option<&'static T> {
        // SAFETY: null or a value of `current`, which `free` does not find any more.
        unsafe { self.inherited.load(Ordering::Acquire).as_ref() }
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

    /// Gives the value back, at the end of the process. A value that a child inherited stays.
    ///
    /// # Safety
    /// No reference that [`get`](Self::get) or [`set`](Self::set) returned is used any more.
    pub unsafe fn free(&self) {
        let value = (self.current).swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !value.is_null() {
            // SAFETY: from `Box::into_raw` in `set` and taken out just now, once; nobody uses it,
            // by the caller's promise.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

impl<T: Send + Sync + 'static> Default for OncePerProcess<T> {
    fn default() -> OncePerProcess<T> {
        OncePerProcess::new()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::OncePerProcess;

    #[test]
    fn the_first_value_stays_until_it_is_forgotten() {
        let once = OncePerProcess::new();
        assert_eq!((once.get(), once.inherited()), (None, None));
        assert_eq!(once.set(1), &1);
        assert_eq!(once.set(2), &1);
        once.forget();
        assert_eq!((once.get(), once.inherited()), (None, Some(&1)));
        once.forget();
        assert_eq!((once.get(), once.inherited()), (None, Some(&1)));
    }

    #[test]
    fn only_an_own_value_is_given_back() {
        let (own, parents) = (Arc::new(()), Arc::new(()));
        let once = OncePerProcess::new();
        once.set(parents.clone());
        once.forget();
        once.set(own.clone());
        // SAFETY: what `set` returned is not used.
        unsafe { once.free() };
        assert_eq!(
            (Arc::strong_count(&own), Arc::strong_count(&parents)),
            (1, 2)
        );
        assert!(once.get().is_none() && once.inherited().is_some());
    }
}
