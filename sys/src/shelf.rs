//! A shelf: counted pointers that one thread lays out and others look at.
//!
//! Publishing is a plain store, looking is two locked instructions (and taking a pointer one more), and nobody ever waits for anybody: what is
//! withdrawn while somebody looks at it is dropped by the last who looks. Each slot has one state word:
//!
//! | state | meaning | who changes it |
//! | --- | --- | --- |
//! | 0 | empty | the owner, by laying something in |
//! | [`FILLED`] + lookers | somebody may look | lookers come and go; the owner withdraws |
//! | [`RETIRED`] + lookers | withdrawn; no new lookers | lookers go; the last one empties the slot |
//!
//! Orderings: filling stores with release, looking comes in with acquire and so sees the pointer. A looker leaves
//! with release and who empties the slot reads the state with acquire, so that emptying comes after all looking.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const EMPTY: u32 = 0;
const FILLED: u32 = 1;
const RETIRED: u32 = 2;
const LOOKER: u32 = 4;

struct Slot<T: ?Sized> {
    state: AtomicU32,
    /// A time that the owner gave the value.
    time: AtomicU64,
    value: UnsafeCell<Option<Arc<T>>>,
}

/// On lines of its own: who looks and finds nothing does not touch the slots.
#[repr(align(128))]
struct Hint(AtomicU32);

/// Places for a few pointers. One owner fills and withdraws, which the caller sees to.
pub struct Shelf<T: ?Sized, const SLOTS: usize> {
    /// How many slots are filled; a hint for lookers.
    filled: Hint,
    slots: [Slot<T>; SLOTS],
}

// SAFETY: the state words say who may touch a value; see the module.
unsafe impl<T: ?Sized + Send + Sync, const SLOTS: usize> Sync for Shelf<T, SLOTS> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync, const SLOTS: usize> Send for Shelf<T, SLOTS> {}

impl<T: ?Sized, const SLOTS: usize> Shelf<T, SLOTS> {
    #[must_use]
    pub fn new() -> Self {
        Shelf {
            filled: Hint(AtomicU32::new(0)),
            slots: std::array::from_fn(|_| Slot {
                state: AtomicU32::new(EMPTY),
                time: AtomicU64::new(0),
                value: UnsafeCell::new(None),
            }),
        }
    }

    /// Lays `value` out, with a time by which lookers may choose. Returns its slot, or gives it back when there is none free.
    ///
    /// # Errors
    /// All slots are in use.
    pub fn fill(&self, value: Arc<T>, time: u64) -> Result<usize, Arc<T>> {
        for (at, slot) in self.slots.iter().enumerate() {
            // Claimed with a locked instruction, so that two who take themselves for the owner do not meet.
            if slot.state.load(Ordering::Acquire) == EMPTY
                && slot
                    .state
                    .compare_exchange(EMPTY, RETIRED, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                // SAFETY: a retired slot without lookers is nobody else's.
                unsafe { *slot.value.get() = Some(value) };
                slot.time.store(time, Ordering::Relaxed);
                slot.state.store(FILLED, Ordering::Release);
                self.count(1);
                return Ok(at);
            }
        }
        Err(value)
    }

    /// Takes what lies in a slot away. Who looks at it now keeps its own pointer.
    pub fn withdraw(&self, at: usize) {
        let slot = &self.slots[at];
        let before = slot.state.fetch_add(RETIRED - FILLED, Ordering::AcqRel);
        assert_eq!(
            before % LOOKER,
            FILLED,
            "only what was laid out can be withdrawn"
        );
        self.count(u32::MAX);
        if before == FILLED {
            slot.empty();
        }
    }

    /// Whether there seems to be something.
    #[inline]
    #[must_use]
    pub fn is_filled(&self) -> bool {
        self.filled.0.load(Ordering::Relaxed) != 0
    }

    /// So many more filled slots, modulo the word. Only the owner writes it, so it need not lock the line that all look at.
    fn count(&self, more: u32) {
        let filled = self.filled.0.load(Ordering::Relaxed);
        self.filled
            .0
            .store(filled.wrapping_add(more), Ordering::Relaxed);
    }

    /// The first of what lies here now that pleases, of what has a time that does. What has not is not touched.
    pub fn find(
        &self,
        time_pleases: impl Fn(u64) -> bool,
        pleases: impl Fn(&T) -> bool,
    ) -> Option<Arc<T>> {
        self.slots
            .iter()
            .filter(|slot| slot.state.load(Ordering::Relaxed) % LOOKER == FILLED)
            .filter(|slot| time_pleases(slot.time.load(Ordering::Relaxed)))
            .find_map(|slot| slot.look(&pleases))
    }
}

impl<T: ?Sized, const SLOTS: usize> Default for Shelf<T, SLOTS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: ?Sized> Slot<T> {
    /// A pointer to what lies here, if it pleases.
    fn look(&self, pleases: &impl Fn(&T) -> bool) -> Option<Arc<T>> {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if state % LOOKER != FILLED {
                return None;
            }
            match self.state.compare_exchange_weak(
                state,
                state + LOOKER,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(seen) => state = seen,
            }
        }
        let looks = Leaves(self);
        // SAFETY: while a looker is counted nobody changes the value.
        let value = unsafe { (*self.value.get()).as_ref() };
        // Most lookers want nothing, and many look: only who takes a pointer counts it.
        let taken = value.filter(|value| pleases(value)).map(Arc::clone);
        drop(looks);
        taken
    }

    /// A looker goes.
    fn leave(&self) {
        let before = self.state.fetch_sub(LOOKER, Ordering::AcqRel);
        if before == RETIRED + LOOKER {
            self.empty();
        }
    }

    /// To be called by who brought the state to retired without lookers.
    fn empty(&self) {
        // SAFETY: nobody looks, nobody can come, and the slot is not free yet.
        let value = unsafe { (*self.value.get()).take() };
        self.state.store(EMPTY, Ordering::Release);
        drop(value);
    }
}

/// Ends a look, also one that panics.
struct Leaves<'a, T: ?Sized>(&'a Slot<T>);

impl<T: ?Sized> Drop for Leaves<'_, T> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn what_was_withdrawn_is_dropped_once_nobody_looks() {
        let shelf = Shelf::<u32, 2>::new();
        let (one, two) = (Arc::new(1), Arc::new(2));
        let at = shelf.fill(Arc::clone(&one), 1).unwrap();
        shelf.fill(Arc::clone(&two), 2).unwrap();
        assert!(shelf.fill(Arc::new(3), 3).is_err());
        assert_eq!(shelf.find(|_| true, |_| true).as_deref(), Some(&1));
        assert_eq!(shelf.find(|_| true, |v| *v == 2).as_deref(), Some(&2));
        assert_eq!(shelf.find(|_| true, |v| *v == 3), None);
        assert_eq!(shelf.find(|time| time > 1, |_| true).as_deref(), Some(&2));
        shelf.withdraw(at);
        assert_eq!(Arc::strong_count(&one), 1);
        assert_eq!(shelf.find(|_| true, |_| true).as_deref(), Some(&2));
    }

    #[test]
    fn lookers_and_the_owner_meet() {
        let (shelf, is_over) = (Shelf::<u64, 2>::new(), AtomicBool::new(false));
        let value = Arc::new(7);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        assert!(shelf.find(|_| true, |seen| *seen != 7).is_none());
                        assert!(shelf.find(|_| true, |_| true).is_none_or(|seen| *seen == 7));
                    }
                });
            }
            let mut laid = 0;
            while laid < 50_000 {
                if let Ok(at) = shelf.fill(Arc::clone(&value), laid) {
                    laid += 1;
                    shelf.withdraw(at);
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
