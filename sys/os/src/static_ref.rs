//! Links to objects that live as long as the process, and boxes that threads hand to each other.
//!
//! A runtime whose objects (teams, work shares, task nodes) are recycled and never freed may keep
//! references to them in shared words. A reader that comes late then finds an object in its next
//! life, which its protocol has to tell apart, but never memory that is gone.

use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A shared word that holds a reference to an object that is never freed, or none.
#[repr(transparent)]
pub struct StaticRef<T: 'static>(AtomicPtr<T>, PhantomData<&'static T>);

// SAFETY: a reference gets into one only where `T` is `Sync` (`to`, `set`, `set_first`). The
// bound stands there and not here, because types that refer to each other in this way could
// not be `Sync` otherwise.
unsafe impl<T> Send for StaticRef<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for StaticRef<T> {}

impl<T> std::fmt::Debug for StaticRef<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not what it refers to: links make circles.
        write!(f, "StaticRef({:p})", self.0.load(Ordering::Relaxed))
    }
}

impl<T: Sync + 'static> StaticRef<T> {
    /// None.
    #[must_use]
    pub const fn none() -> Self {
        StaticRef(AtomicPtr::new(ptr::null_mut()), PhantomData)
    }

    /// A reference to `to`.
    #[must_use]
    pub const fn to(to: &'static T) -> Self {
        StaticRef(AtomicPtr::new(ptr::from_ref(to).cast_mut()), PhantomData)
    }

    /// Where the word is.
    #[must_use]
    pub fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// What it refers to.
    #[inline]
    #[must_use]
    pub fn get(&self, order: Ordering) -> Option<&'static T> {
        // SAFETY: the word is null or comes from a `&'static T`.
        unsafe { self.0.load(order).as_ref() }
    }

    /// Refers to `to` from now on.
    #[inline]
    pub fn set(&self, to: Option<&'static T>, order: Ordering) {
        self.0.store(word(to), order);
    }

    /// Refers to `to` if it referred to nothing. Otherwise returns what it refers to.
    #[inline]
    pub fn set_first(&self, to: &'static T) -> Result<(), &'static T> {
        match self.0.compare_exchange(
            ptr::null_mut(),
            word(Some(to)),
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => Ok(()),
            // SAFETY: not null, so it comes from a `&'static T`.
            Err(there) => Err(unsafe { &*there }),
        }
    }
}

fn word<T>(to: Option<&'static T>) -> *mut T {
    to.map_or(ptr::null_mut(), |to| ptr::from_ref(to).cast_mut())
}

/// A place for one box. Who takes it has it alone.
#[derive(Debug)]
pub struct Handoff<T: Send>(AtomicPtr<T>, PhantomData<T>);

// SAFETY: the value itself is never shared: each box goes to one taker.
unsafe impl<T: Send> Sync for Handoff<T> {}

impl<T: Send> Handoff<T> {
    /// An empty place.
    #[must_use]
    pub const fn empty() -> Self {
        Handoff(AtomicPtr::new(ptr::null_mut()), PhantomData)
    }

    /// Takes the box, if there is one.
    #[inline]
    #[must_use]
    pub fn take(&self) -> Option<Box<T>> {
        let there = self.0.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: the word is null or from `Box::into_raw` in `put`, and the swap gives it to one
        // taker.
        (!there.is_null()).then(|| unsafe { Box::from_raw(there) })
    }

    /// Puts a box; one that was there is dropped.
    #[inline]
    pub fn put(&self, value: Box<T>) {
        let old = self.0.swap(Box::into_raw(value), Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY: as in `take`.
            drop(unsafe { Box::from_raw(old) });
        }
    }
}

impl<T: Send> Drop for Handoff<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_goes_to_one_taker() {
        let place = Handoff::empty();
        let taken = std::sync::atomic::AtomicU32::new(0);
        place.put(Box::new(7));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    if let Some(value) = place.take() {
                        taken.fetch_add(*value, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(taken.into_inner(), 7);
    }

    #[test]
    fn the_first_link_stays() {
        static NUMBERS: [u32; 2] = [1, 2];
        let link = StaticRef::none();
        assert_eq!(link.set_first(&NUMBERS[0]), Ok(()));
        assert_eq!(link.set_first(&NUMBERS[1]), Err(&1));
        link.set(Some(&NUMBERS[1]), Ordering::Relaxed);
        assert_eq!(link.get(Ordering::Relaxed), Some(&2));
    }
}
