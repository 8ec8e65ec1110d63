//! A shelf: counted pointers that one thread publishes and others read.
//!
//! Looking is two locked instructions (and taking a pointer one more), and nobody ever waits for
//! anybody. Each slot has one state word:
//!
//! | state | meaning | who changes it |
//! | --- | --- | --- |
//! | 0 | empty | the owner, by laying something in |
//! | `FILLED` + readers | somebody may look | readers come and go; the owner takes it where there is none |
//! | `TAKEN` | the owner exchanges the value | the owner |
//!
//! What is retracted stays in its slot, retracted, until the slot is needed for something else: to
//! publish it again, as is mostly done, is to change its mark, and that and retracting are plain
//! stores. The slot's mark says whether it is retracted, and what the owner wants readers to know.
//!
//! Orderings: filling stores with release, looking comes in with acquire and so sees the pointer.
//! Republishing stores the mark with release, and readers read it with acquire, so that what was
//! written before is seen. One that has read a mark just before the slot was retracted may still
//! look; whether there is anything to take is for the value to say. A reader leaves with release
//! and the owner takes a slot with acquire, so that exchanging comes after all looking.

use std::sync::Arc;

use margay_sys_os::sync::{AtomicU32, AtomicU64, Cell, Ordering};

const EMPTY: u32 = 0;
const FILLED: u32 = 1;
const TAKEN: u32 = 2;
const READER: u32 = 4;

struct Slot<T: ?Sized> {
    state: AtomicU32,
    /// How often something has been published, modulo the word.
    serial: AtomicU32,
    /// [`COVERED`], or what the owner gave.
    mark: AtomicU64,
    value: Cell<Option<Arc<T>>>,
}

/// Never a mark of an owner.
const COVERED: u64 = u64::MAX;

/// On lines of its own: a reader that finds nothing does not touch the slots.
#[repr(align(128))]
struct Hint(AtomicU32);

/// What was published in a slot, and when: nothing else that is there later has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub slot: u16,
    pub serial: u32,
}

/// Places for a few pointers. One owner publishes, retracts and republishes, which the caller sees
/// to.
pub struct Shelf<T: ?Sized, const SLOTS: usize> {
    /// How many slots are not retracted; a hint for readers.
    open: Hint,
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
            open: Hint(AtomicU32::new(0)),
            slots: std::array::from_fn(|_| Slot {
                state: AtomicU32::new(EMPTY),
                serial: AtomicU32::new(0),
                mark: AtomicU64::new(COVERED),
                value: Cell::new(None),
            }),
        }
    }

    /// Publishes `value`, with a mark by which readers may choose, in place of one that is
    /// retracted if need be. Returns its place, or gives it back when there is none.
    ///
    /// # Errors
    /// All slots are in use.
    pub fn fill(&self, value: Arc<T>, mark: u64) -> Result<Place, Arc<T>> {
        let claim = |from| {
            let mut slots = self.slots.iter().enumerate();
            slots.find(|(_, slot)| slot.claim(from))
        };
        let Some((at, slot)) = claim(EMPTY).or_else(|| claim(FILLED)) else {
            return Err(value);
        };
        // SAFETY: nobody looks into a slot that is taken, and it is taken by this call alone.
        let before = slot
            .value
            .with_mut(|there| unsafe { (*there).replace(value) });
        let serial = slot.serial.load(Ordering::Relaxed).wrapping_add(1);
        slot.serial.store(serial, Ordering::Relaxed);
        slot.state.store(FILLED, Ordering::Release);
        slot.mark.store(mark, Ordering::Release);
        self.count(1);
        drop(before);
        Ok(Place {
            slot: at as u16,
            serial,
        })
    }

    /// Publishes again what was retracted, if it still lies there. Returns whether it does.
    #[inline]
    pub fn republish(&self, place: Place, mark: u64) -> bool {
        let slot = &self.slots[usize::from(place.slot)];
        let is_there = slot.serial.load(Ordering::Relaxed) == place.serial;
        if is_there {
            slot.mark.store(mark, Ordering::Release);
            self.count(1);
        }
        is_there
    }

    /// Gives what was published another mark.
    pub fn mark(&self, place: Place, mark: u64) {
        let slot = &self.slots[usize::from(place.slot)];
        slot.mark.store(mark, Ordering::Release);
    }

    /// Retracts what was published. A thread that reads it now keeps its own pointer.
    #[inline]
    pub fn withdraw(&self, place: Place) {
        let slot = &self.slots[usize::from(place.slot)];
        debug_assert_eq!(
            slot.serial.load(Ordering::Relaxed),
            place.serial,
            "only what was published can be retracted"
        );
        slot.mark.store(COVERED, Ordering::Relaxed);
        self.count(u32::MAX);
    }

    /// Whether there seems to be something.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.0.load(Ordering::Relaxed) != 0
    }

    /// Adds `more` to the number of those that can be taken, modulo the word. Only the owner writes
    /// it, so it need not lock the line that all look at.
    #[inline]
    fn count(&self, more: u32) {
        let open = self.open.0.load(Ordering::Relaxed);
        self.open
            .0
            .store(open.wrapping_add(more), Ordering::Relaxed);
    }

    /// The first of what lies here now that pleases, of what has a mark that does. What has not is
    /// not touched.
    pub fn find(
        &self,
        mark_pleases: impl Fn(u64) -> bool,
        pleases: impl Fn(&T) -> bool,
    ) -> Option<Arc<T>> {
        self.slots
            .iter()
            .filter(|slot| {
                let mark = slot.mark.load(Ordering::Acquire);
                mark != COVERED && mark_pleases(mark)
            })
            .find_map(|slot| slot.look(&pleases))
    }
}

impl<T: ?Sized, const SLOTS: usize> Default for Shelf<T, SLOTS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: ?Sized> Slot<T> {
    /// Takes a retracted slot in this state. With a locked instruction, so that two who take
    /// themselves for the owner do not meet.
    fn claim(&self, from: u32) -> bool {
        self.mark.load(Ordering::Relaxed) == COVERED
            && self.state.load(Ordering::Relaxed) == from
            && self
                .state
                .compare_exchange(from, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// A pointer to what lies here, if it pleases.
    fn look(&self, pleases: &impl Fn(&T) -> bool) -> Option<Arc<T>> {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if state % READER != FILLED {
                return None;
            }
            match self.state.compare_exchange_weak(
                state,
                state + READER,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(seen) => state = seen,
            }
        }
        let reader = Leaves(self);
        let taken = self.value.with(|there| {
            // SAFETY: while a reader is counted nobody changes the value.
            let value = unsafe { (*there).as_ref() };
            // Most readers want nothing, and many look: only one that takes a pointer counts it.
            value.filter(|value| pleases(value)).map(Arc::clone)
        });
        drop(reader);
        taken
    }
}

/// Ends a reader's turn, also after a panic.
struct Leaves<'a, T: ?Sized>(&'a Slot<T>);

impl<T: ?Sized> Drop for Leaves<'_, T> {
    fn drop(&mut self) {
        self.0.state.fetch_sub(READER, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn what_was_withdrawn_is_covered_until_its_slot_is_needed() {
        let shelf = Shelf::<u32, 2>::new();
        let (one, two) = (Arc::new(1), Arc::new(2));
        let first = shelf.fill(Arc::clone(&one), 1).unwrap();
        let second = shelf.fill(Arc::clone(&two), 2).unwrap();
        assert!(shelf.fill(Arc::new(3), 3).is_err());
        assert_eq!(shelf.find(|_| true, |_| true).as_deref(), Some(&1));
        assert_eq!(shelf.find(|_| true, |v| *v == 2).as_deref(), Some(&2));
        assert_eq!(shelf.find(|_| true, |v| *v == 3), None);
        assert_eq!(shelf.find(|mark| mark > 1, |_| true).as_deref(), Some(&2));
        shelf.withdraw(first);
        assert_eq!(Arc::strong_count(&one), 2);
        assert_eq!(shelf.find(|_| true, |_| true).as_deref(), Some(&2));
        assert!(shelf.republish(first, 4));
        assert_eq!(shelf.find(|mark| mark == 4, |_| true).as_deref(), Some(&1));
        shelf.mark(first, 5);
        assert_eq!(shelf.find(|mark| mark == 4, |_| true), None);
        assert_eq!(shelf.find(|mark| mark == 5, |_| true).as_deref(), Some(&1));
        shelf.withdraw(first);
        let third = shelf.fill(Arc::new(3), 5).unwrap();
        assert_eq!(Arc::strong_count(&one), 1);
        assert!(!shelf.republish(first, 6));
        assert_eq!(shelf.find(|_| true, |_| true).as_deref(), Some(&3));
        shelf.withdraw(second);
        shelf.withdraw(third);
        assert!(!shelf.is_open());
        assert_eq!(shelf.find(|_| true, |_| true), None);
    }

    #[test]
    fn what_somebody_looks_at_stays() {
        let shelf = Shelf::<u32, 1>::new();
        let one = Arc::new(1);
        let place = shelf.fill(Arc::clone(&one), 1).unwrap();
        let taken = shelf.find(
            |_| true,
            |_| {
                shelf.withdraw(place);
                shelf.fill(Arc::new(2), 2).is_err()
            },
        );
        assert_eq!(taken.as_deref(), Some(&1));
        drop(taken);
        assert!(shelf.republish(place, 1));
        shelf.withdraw(place);
        shelf.fill(Arc::new(2), 2).unwrap();
        assert!(!shelf.republish(place, 1));
        assert_eq!(Arc::strong_count(&one), 1);
    }

    #[test]
    fn lookers_and_the_owner_meet() {
        let (shelf, is_over) = (Shelf::<u64, 2>::new(), AtomicBool::new(false));
        let values = [7, 7, 7].map(Arc::new);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        assert!(shelf.find(|_| true, |seen| *seen != 7).is_none());
                        assert!(shelf.find(|_| true, |_| true).is_none_or(|seen| *seen == 7));
                    }
                });
            }
            let mut places = [None; 3];
            let mut published: usize = 0;
            // Miri takes a thousand times as long.
            while published < if cfg!(miri) { 50 } else { 50_000 } {
                let (at, mark) = (published % 3, published as u64);
                let again = places[at].filter(|place| shelf.republish(*place, mark));
                let fill = || shelf.fill(Arc::clone(&values[at]), mark).ok();
                if let Some(place) = again.or_else(fill) {
                    published += 1;
                    shelf.withdraw(place);
                    places[at] = Some(place);
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        drop(shelf);
        assert!(values.iter().all(|value| Arc::strong_count(value) == 1));
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::Arc as Shared;

    use super::*;

    /// The owner publishes two values in one slot, one after the other, and the first one once more
    /// if it still lies there, while two look: each sees a value or none, and no value is exchanged
    /// under a reader.
    #[test]
    fn shelf_exchanges_nothing_under_a_looker() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let shelf = Shared::new(Shelf::<u32, 1>::new());
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    let shelf = shelf.clone();
                    loom::thread::spawn(move || {
                        let seen = shelf.find(|mark| mark < 3, |_| true);
                        assert!(seen.is_none_or(|value| *value == 1 || *value == 2));
                    })
                })
                .collect();
            let first = shelf.fill(Arc::new(1), 1).expect("the slot is empty");
            shelf.withdraw(first);
            if shelf.fill(Arc::new(2), 2).is_err() {
                assert!(shelf.republish(first, 1), "a reader has kept it there");
            } else {
                assert!(!shelf.republish(first, 1), "another one lies there");
            }
            for reader in readers {
                reader.join().unwrap();
            }
            assert!(shelf.find(|_| true, |_| true).is_some());
        });
    }
}
