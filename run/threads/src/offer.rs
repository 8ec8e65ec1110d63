//! Offers: work with room for several workers at once, such as a team whose members wait for each
//! other.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use margay_sys_threads::shelf::{Place, Shelf};

/// Work of which any idle worker may take a part as long as it is open. An offer is published by a
/// worker and visible until it is retracted; unlike a job it is not handed to one thief. `W` is the
/// worker.
pub trait Offer<W>: Send + Sync {
    /// Takes parts and runs them, on a fiber that may block, until none is left. There may be none.
    fn help(self: Arc<Self>, worker: &W);

    /// Whether a part seems to be left to take. Called often and by many threads; must be cheap.
    fn is_open(&self) -> bool;

    /// Whether parts are left that other workers should take first, so that the publisher, if it
    /// idles, is to check again soon.
    fn opens_later(&self) -> bool {
        false
    }

    /// The tag of the worker that publishes it: which program thread it was forked for.
    fn tag(&self) -> u32;
}

/// Offers that a worker can publish without a lock. There are more when teams are nested and all
/// their masters wait on one worker; those go to a list.
const SHELF_SLOTS: usize = 16;

/// A published offer. One word: a place as in [`RetractedOffer`] or, marked as such, a number in
/// the list.
#[derive(Debug)]
#[must_use = "an offer stays visible until it is retracted"]
pub struct PublishedOffer(u64);

const LISTED: u64 = 1 << 63;

/// The place of a retracted offer on its worker's shelf. It can be published again from there as
/// long as the place is not used for another offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetractedOffer(NonZeroU64);

impl RetractedOffer {
    fn new(worker: u16, place: Place) -> RetractedOffer {
        let Place { slot, serial } = place;
        let word = u64::from(worker) << 48 | u64::from(slot + 1) << 32 | u64::from(serial);
        RetractedOffer(NonZeroU64::new(word).expect("a slot's number counts from 1"))
    }

    /// The slot of the worker that published it.
    pub(crate) fn worker(self) -> u16 {
        (self.0.get() >> 48) as u16
    }

    fn place(self) -> Place {
        Place {
            slot: (self.0.get() >> 32) as u16 - 1,
            serial: self.0.get() as u32,
        }
    }

    /// As a word, which is never 0.
    #[must_use]
    pub fn to_word(self) -> u64 {
        self.0.get()
    }

    /// The opposite of [`to_word`](Self::to_word); none for 0.
    #[must_use]
    pub fn from_word(word: u64) -> Option<RetractedOffer> {
        NonZeroU64::new(word).map(RetractedOffer)
    }
}

/// The mark of offers that may be stolen at once. Another mark belongs to one publication of an
/// offer that may be stolen only after [`STEAL_DELAY_NS`].
pub(crate) const STEALABLE: u64 = 0;

/// What a worker has published.
pub(crate) struct Offers<W> {
    shelf: Shelf<dyn Offer<W>, SHELF_SLOTS>,
    /// How many are in the list; a hint.
    listed: AtomicUsize,
    /// What found no place on the shelf. Bounded by the fibers that wait for it.
    list: Mutex<OfferList<W>>,
}

struct OfferList<W> {
    next_number: u64,
    offers: Vec<(u64, Arc<dyn Offer<W>>)>,
}

impl<W: 'static> Offers<W> {
    pub(crate) fn new() -> Offers<W> {
        Offers {
            shelf: Shelf::new(),
            listed: AtomicUsize::new(0),
            list: Mutex::new(OfferList {
                next_number: 1,
                offers: Vec::new(),
            }),
        }
    }

    /// Publishes an offer of the worker with this slot.
    pub(crate) fn publish(
        &self,
        offer: Arc<dyn Offer<W>>,
        mark: u64,
        worker: u16,
    ) -> PublishedOffer {
        match self.shelf.fill(offer, mark) {
            Ok(place) => PublishedOffer(RetractedOffer::new(worker, place).to_word()),
            Err(offer) => {
                let mut list = self.list();
                let number = list.next_number;
                list.next_number += 1;
                list.offers.push((number, offer));
                self.listed.store(list.offers.len(), Ordering::Relaxed);
                PublishedOffer(LISTED | number)
            }
        }
    }

    /// Publishes a retracted offer again, if its place has not been used for another one.
    #[inline]
    pub(crate) fn republish(&self, retracted: RetractedOffer, mark: u64) -> Option<PublishedOffer> {
        let is_there = self.shelf.republish(retracted.place(), mark);
        is_there.then_some(PublishedOffer(retracted.to_word()))
    }

    /// Changes the mark of an offer. Those in the list have none.
    pub(crate) fn mark(&self, published: &PublishedOffer, mark: u64) {
        if published.0 & LISTED == 0
            && let Some(place) = RetractedOffer::from_word(published.0)
        {
            self.shelf.mark(place.place(), mark);
        }
    }

    /// Retracts an offer. Returns its place, if it had one on the shelf.
    #[inline]
    pub(crate) fn retract(&self, published: PublishedOffer) -> Option<RetractedOffer> {
        if published.0 & LISTED == 0 {
            let retracted = RetractedOffer::from_word(published.0)?;
            self.shelf.withdraw(retracted.place());
            return Some(retracted);
        }
        let mut list = self.list();
        list.offers
            .retain(|(other, _)| other | LISTED != published.0);
        self.listed.store(list.offers.len(), Ordering::Relaxed);
        None
    }

    /// The first offer that `accepts`, of those whose mark `accepts_mark`.
    #[inline]
    pub(crate) fn find(
        &self,
        accepts_mark: impl Fn(u64) -> bool,
        accepts: impl Fn(&dyn Offer<W>) -> bool,
    ) -> Option<Arc<dyn Offer<W>>> {
        if self.shelf.is_open()
            && let Some(offer) = self.shelf.find(accepts_mark, |offer| accepts(offer))
        {
            return Some(offer);
        }
        if self.listed.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let list = self.list();
        let mut offers = list.offers.iter().map(|(_, offer)| offer);
        offers.find(|offer| accepts(&***offer)).map(Arc::clone)
    }

    fn list(&self) -> MutexGuard<'_, OfferList<W>> {
        self.list
            .lock()
            .expect("nothing panics with this lock held")
    }
}

/// An offer that was published as short is left to its publisher until a thief has seen it for this
/// long, in nanoseconds.
pub const STEAL_DELAY_NS: u64 = 3_000;

/// The steal delay of one thief: since when it has seen a short offer. The thief reads the clock,
/// so that publishing needs none. It watches one offer at a time, until that is gone. Belongs to
/// one thread.
#[derive(Debug, Default)]
pub(crate) struct StealDelay {
    mark: Cell<u64>,
    since_ns: Cell<u64>,
    /// In this search: whether the watched offer was seen, and the mark of another short one.
    is_seen: Cell<bool>,
    other: Cell<u64>,
}

impl StealDelay {
    /// A search for offers begins.
    pub(crate) fn begin(&self) {
        self.is_seen.set(false);
        self.other.set(STEALABLE);
    }

    /// Whether an offer with this mark may be stolen.
    pub(crate) fn is_over(&self, mark: u64, now_ns: impl Fn() -> u64) -> bool {
        if mark == STEALABLE {
            return true;
        }
        if mark == self.mark.get() {
            self.is_seen.set(true);
            return now_ns() - self.since_ns.get() >= STEAL_DELAY_NS;
        }
        self.other.set(mark);
        false
    }

    /// A search ends that has found nothing to steal.
    pub(crate) fn end(&self, now_ns: impl Fn() -> u64) {
        let other = self.other.get();
        if !self.is_seen.get() && other != STEALABLE {
            self.mark.set(other);
            self.since_ns.set(now_ns());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(delay: &StealDelay, marks: &[u64], now_ns: u64) -> Option<u64> {
        delay.begin();
        let found = marks
            .iter()
            .copied()
            .find(|&mark| delay.is_over(mark, || now_ns));
        if found.is_none() {
            delay.end(|| now_ns);
        }
        found
    }

    #[test]
    fn an_offer_that_stays_is_stealable_after_the_delay() {
        let delay = StealDelay::default();
        assert_eq!(search(&delay, &[STEALABLE], 5), Some(STEALABLE));
        let seen_ns = 7_000;
        assert_eq!(search(&delay, &[1, 2], seen_ns), None);
        assert_eq!(search(&delay, &[1, 2], seen_ns + STEAL_DELAY_NS - 1), None);
        let watched = search(&delay, &[1, 2], seen_ns + STEAL_DELAY_NS);
        let other = 3 - watched.expect("one of them is watched");
        // Its delay begins when the watched one is gone and it is seen.
        let seen_ns = 100_000;
        assert_eq!(search(&delay, &[other], seen_ns), None);
        assert_eq!(search(&delay, &[other], seen_ns + STEAL_DELAY_NS - 1), None);
        let later = seen_ns + STEAL_DELAY_NS;
        assert_eq!(search(&delay, &[other], later), Some(other));
    }

    #[test]
    fn a_retracted_offer_is_a_word() {
        let place = Place {
            slot: 15,
            serial: u32::MAX,
        };
        let retracted = RetractedOffer::new(1023, place);
        assert_eq!((retracted.worker(), retracted.place()), (1023, place));
        assert_eq!(retracted.to_word() & LISTED, 0);
        assert_eq!(
            RetractedOffer::from_word(retracted.to_word()),
            Some(retracted)
        );
        assert_eq!(RetractedOffer::from_word(0), None);
    }
}
