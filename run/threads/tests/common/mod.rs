//! What the tests of this crate share.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use margay_run_threads::{Offer, Schedule, Worker};

pub const SCHEDULES: [Schedule; 5] = [
    Schedule::Static,
    Schedule::Simple,
    Schedule::SelfScheduling,
    Schedule::Guided,
    Schedule::Factoring,
];

/// Parts that all have to be begun before one of them can end.
struct Meeting {
    parts: u32,
    taken: AtomicU32,
    arrived: AtomicU32,
    left: AtomicU32,
    tag: u32,
    /// The numbers of the parts, as they met.
    met: Mutex<Vec<u64>>,
}

impl Meeting {
    fn take_parts(&self, worker: &Worker) {
        loop {
            let number = self.taken.fetch_add(1, Ordering::SeqCst);
            if number >= self.parts {
                return;
            }
            let address = std::ptr::from_ref(&self.arrived).addr();
            if self.arrived.fetch_add(1, Ordering::SeqCst) + 1 == self.parts {
                worker.unpark_all(address);
            } else {
                worker.wait_until(address, || {
                    self.arrived.load(Ordering::SeqCst) == self.parts
                });
            }
            let mut met = self.met.lock().expect("no panic under it");
            met.push(u64::from(number));
            drop(met);
            if self.left.fetch_add(1, Ordering::SeqCst) + 1 == self.parts {
                worker.unpark_all(std::ptr::from_ref(&self.left).addr());
            }
        }
    }
}

impl Meeting {
    fn take_parts_and_wait(&self, worker: &Worker) {
        self.take_parts(worker);
        worker.wait_until(std::ptr::from_ref(&self.left).addr(), || {
            self.left.load(Ordering::SeqCst) == self.parts
        });
    }
}

impl Offer for Meeting {
    fn help(self: Arc<Self>, worker: &Worker) {
        self.take_parts(worker);
    }

    fn is_open(&self) -> bool {
        self.taken.load(Ordering::Relaxed) < self.parts
    }

    fn tag(&self) -> u32 {
        self.tag
    }
}

/// Offers so many parts that meet, takes some, and waits until all are over; then the same again, by the same offer. Returns the numbers of
/// those that met the second time, from the lowest.
pub fn meet(worker: &Worker, parts: u32) -> Vec<u64> {
    let meeting = Arc::new(Meeting {
        parts,
        taken: AtomicU32::new(0),
        arrived: AtomicU32::new(0),
        left: AtomicU32::new(0),
        tag: worker.tag(),
        met: Mutex::new(Vec::new()),
    });
    let is_short = parts.is_multiple_of(2);
    let offered = worker.offer(meeting.clone(), is_short);
    meeting.take_parts_and_wait(worker);
    let covered = worker.withdraw(offered);
    meeting.arrived.store(0, Ordering::SeqCst);
    meeting.left.store(0, Ordering::SeqCst);
    meeting.met.lock().expect("no panic under it").clear();
    meeting.taken.store(0, Ordering::SeqCst);
    let again = covered.and_then(|covered| worker.offer_again(covered, meeting.tag, !is_short));
    let offered = again.unwrap_or_else(|| worker.offer(meeting.clone(), !is_short));
    meeting.take_parts_and_wait(worker);
    let _ = worker.withdraw(offered);
    let mut met = std::mem::take(&mut *meeting.met.lock().expect("no panic under it"));
    met.sort_unstable();
    met
}
