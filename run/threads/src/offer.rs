//! Offers: work with room for several workers at once, such as a team whose members may meet.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use margay_sys::shelf::Shelf;

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

/// What [`Worker::offer`] laid out; to be given to [`Worker::withdraw`].
#[derive(Debug)]
#[must_use = "an offer stays visible until it is withdrawn"]
pub struct Offered(Place);

#[derive(Debug)]
enum Place {
    Slot(usize),
    Listed(u64),
}

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

    pub(crate) fn lay_out(&self, offer: Arc<dyn Offer>, from_ns: u64) -> Offered {
        match self.shelf.fill(offer, from_ns) {
            Ok(slot) => Offered(Place::Slot(slot)),
            Err(offer) => {
                let mut list = self.list();
                list.next += 1;
                let number = list.next;
                list.offers.push((number, offer));
                self.listed.store(list.offers.len(), Ordering::Relaxed);
                Offered(Place::Listed(number))
            }
        }
    }

    pub(crate) fn withdraw(&self, offered: Offered) {
        match offered.0 {
            Place::Slot(slot) => self.shelf.withdraw(slot),
            Place::Listed(number) => {
                let mut list = self.list();
                list.offers.retain(|(other, _)| *other != number);
                self.listed.store(list.offers.len(), Ordering::Relaxed);
            }
        }
    }

    /// The first that pleases, of those whose time does.
    #[inline]
    pub(crate) fn find(
        &self,
        time_pleases: impl Fn(u64) -> bool,
        pleases: impl Fn(&dyn Offer) -> bool,
    ) -> Option<Arc<dyn Offer>> {
        if self.shelf.is_filled()
            && let Some(offer) = self.shelf.find(time_pleases, |offer| pleases(offer))
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
