//! Offers: work with room for several workers at once, such as a team whose members may meet.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use margay_sys_os::clock;
use margay_sys_threads::shelf::{Place, Shelf};

use crate::worker::Worker;

/// Work that any idle worker may take a part of, as long as it is open. An offer is laid out by
/// [`Worker::offer`] and stays visible until it is withdrawn; unlike a job it is not handed to one thief.
pub trait Offer: Send + Sync {
    /// Takes what is still to be taken and does it, on a fiber that may block. Returns when nothing is left to take; that
    /// may be at once.
    fn help(self: Arc<Self>, worker: &Worker);

    /// Whether something seems to be left to take. Asked often and by many; must cost next to nothing.
    fn is_open(&self) -> bool;

    /// Whether something is left that others should take first, so that the one who offers it is to look again soon.
    fn opens_later(&self) -> bool {
        false
    }

    /// The tag of whoever offers it; see [`Worker::tag`].
    fn tag(&self) -> u32;
}

/// Offers of a worker that are laid out without a lock. More are teams whose masters all wait on one worker; they
/// go to a list.
const SHELF_SLOTS: usize = 16;

/// What [`Worker::offer`] laid out; to be given to [`Worker::withdraw`]. One word: where on a shelf as in [`Covered`], or, marked as such, the
/// number in the list.
#[derive(Debug)]
#[must_use = "an offer stays visible until it is withdrawn"]
pub struct Offered(u64);

const LISTED: u64 = 1 << 63;

/// Where a withdrawn offer lies covered, on a worker's shelf, as long as its place is not needed for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered(NonZeroU64);

impl Covered {
    fn new(seat: u16, place: Place) -> Covered {
        let Place { slot, serial } = place;
        let number = u64::from(seat) << 48 | u64::from(slot + 1) << 32 | u64::from(serial);
        Covered(NonZeroU64::new(number).expect("a slot's number counts from 1"))
    }

    pub(crate) fn seat(self) -> u16 {
        (self.0.get() >> 48) as u16
    }

    fn place(self) -> Place {
        Place {
            slot: (self.0.get() >> 32) as u16 - 1,
            serial: self.0.get() as u32,
        }
    }

    /// As a number, which is never 0.
    #[must_use]
    pub fn to_number(self) -> u64 {
        self.0.get()
    }

    /// What has given this number; none of 0.
    #[must_use]
    pub fn of_number(number: u64) -> Option<Covered> {
        NonZeroU64::new(number).map(Covered)
    }
}

/// The mark of offers that may be taken at once. Others have one that tells one laying out from all others.
pub(crate) const RIPE: u64 = 0;

/// What a worker has laid out.
pub(crate) struct Offers {
    shelf: Shelf<dyn Offer, SHELF_SLOTS>,
    /// How many are in the list; a hint.
    listed: AtomicUsize,
    /// What found no place on the shelf, each with its number. Bounded by the fibers that wait for it.
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    next: u64,
    offers: Vec<(u64, Arc<dyn Offer>)>,
}

impl Offers {
    pub(crate) fn new() -> Offers {
        Offers {
            shelf: Shelf::new(),
            listed: AtomicUsize::new(0),
            list: Mutex::new(List::default()),
        }
    }

    pub(crate) fn lay_out(&self, offer: Arc<dyn Offer>, mark: u64, seat: u16) -> Offered {
        match self.shelf.fill(offer, mark) {
            Ok(place) => Offered(Covered::new(seat, place).to_number()),
            Err(offer) => {
                let mut list = self.list();
                list.next += 1;
                let number = list.next;
                list.offers.push((number, offer));
                self.listed.store(list.offers.len(), Ordering::Relaxed);
                Offered(LISTED | number)
            }
        }
    }

    /// Lays out again what lies covered here.
    #[inline]
    pub(crate) fn uncover(&self, covered: Covered, mark: u64) -> Option<Offered> {
        let is_there = self.shelf.uncover(covered.place(), mark);
        is_there.then_some(Offered(covered.to_number()))
    }

    /// Gives what lies here another mark; what is in the list has none.
    pub(crate) fn mark(&self, offered: &Offered, mark: u64) {
        if offered.0 & LISTED == 0
            && let Some(covered) = Covered::of_number(offered.0)
        {
            self.shelf.mark(covered.place(), mark);
        }
    }

    /// Takes back what lies here.
    #[inline]
    pub(crate) fn withdraw(&self, offered: Offered) -> Option<Covered> {
        if offered.0 & LISTED == 0 {
            let covered = Covered::of_number(offered.0)?;
            self.shelf.withdraw(covered.place());
            return Some(covered);
        }
        let mut list = self.list();
        list.offers.retain(|(other, _)| other | LISTED != offered.0);
        self.listed.store(list.offers.len(), Ordering::Relaxed);
        None
    }

    /// The first that pleases, of those whose mark does.
    #[inline]
    pub(crate) fn find(
        &self,
        mark_pleases: impl Fn(u64) -> bool,
        pleases: impl Fn(&dyn Offer) -> bool,
    ) -> Option<Arc<dyn Offer>> {
        if self.shelf.is_open()
            && let Some(offer) = self.shelf.find(mark_pleases, |offer| pleases(offer))
        {
            return Some(offer);
        }
        if self.listed.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let list = self.list();
        let mut offers = list.offers.iter().map(|(_, offer)| offer);
        offers.find(|offer| pleases(&***offer)).map(Arc::clone)
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list
            .lock()
            .expect("nothing panics with this lock held")
    }
}

/// An offer that is to be left to who laid it out is taken by who has seen it lie for so long, in nanoseconds.
pub const ALONE_NS: u64 = 3_000;

/// Of who looks for offers: since when it has seen one that is not ripe. The time passes here, so that who lays out need not read a clock. Watches
/// one at a time, until it is gone.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    mark: Cell<u64>,
    since_ns: Cell<u64>,
    is_there: Cell<bool>,
    other: Cell<u64>,
}

impl Patience {
    /// A look at offers begins.
    pub(crate) fn begin(&self) {
        self.is_there.set(false);
        self.other.set(RIPE);
    }

    /// Whether an offer with this mark may be taken.
    pub(crate) fn is_over(&self, mark: u64) -> bool {
        if mark == RIPE {
            return true;
        }
        if mark == self.mark.get() {
            self.is_there.set(true);
            return clock::now_ns() - self.since_ns.get() >= ALONE_NS;
        }
        self.other.set(mark);
        false
    }

    /// A look ends that has found nothing to take.
    pub(crate) fn end(&self) {
        let other = self.other.get();
        if !self.is_there.get() && other != RIPE {
            self.mark.set(other);
            self.since_ns.set(clock::now_ns());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(patience: &Patience, marks: &[u64]) -> Option<u64> {
        patience.begin();
        let found = marks.iter().copied().find(|&mark| patience.is_over(mark));
        if found.is_none() {
            patience.end();
        }
        found
    }

    #[test]
    fn an_offer_that_stays_is_taken_after_a_while() {
        let patience = Patience::default();
        assert_eq!(look(&patience, &[RIPE]), Some(RIPE));
        let began = clock::now_ns();
        assert_eq!(look(&patience, &[1, 2]), None);
        let watched = loop {
            if let Some(mark) = look(&patience, &[1, 2]) {
                break mark;
            }
        };
        assert!(clock::now_ns() - began >= ALONE_NS);
        let other = 3 - watched;
        let began = clock::now_ns();
        assert_eq!(
            look(&patience, &[other]),
            None,
            "from when it is seen first"
        );
        while look(&patience, &[other]).is_none() {}
        assert!(clock::now_ns() - began >= ALONE_NS);
    }

    #[test]
    fn a_covered_offer_is_a_number() {
        let place = Place {
            slot: 15,
            serial: u32::MAX,
        };
        let covered = Covered::new(1023, place);
        assert_eq!((covered.seat(), covered.place()), (1023, place));
        assert_eq!(covered.to_number() & LISTED, 0);
        assert_eq!(Covered::of_number(covered.to_number()), Some(covered));
        assert_eq!(Covered::of_number(0), None);
    }
}
