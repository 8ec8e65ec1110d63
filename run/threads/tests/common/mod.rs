//! Used by all tests of this crate.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use margay_run_threads::{AnyClock, Config, Offer, Pool, Schedule, Worker};

/// A pool for forks nested as deep as these tests do it.
pub fn pool_of(workers: usize) -> Pool {
    let config = Config {
        workers,
        stack_bytes: 256 << 10,
        ..Config::default()
    };
    Pool::new(config, AnyClock::System)
}

pub const SCHEDULES: [Schedule; 5] = [
    Schedule::Static,
    Schedule::Simple,
    Schedule::SelfScheduling,
    Schedule::Guided,
    Schedule::Factoring,
];

/// Parts that all have to be begun before one of them can end.
struct Rendezvous {
    parts: u32,
    taken: AtomicU32,
    arrived: AtomicU32,
    left: AtomicU32,
    tag: u32,
    /// The numbers of the parts, in the order in which they ended.
    ended: Mutex<Vec<u64>>,
}

impl Rendezvous {
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
            let mut ended = self.ended.lock().expect("no panic under it");
            ended.push(u64::from(number));
            drop(ended);
            if self.left.fetch_add(1, Ordering::SeqCst) + 1 == self.parts {
                worker.unpark_all(std::ptr::from_ref(&self.left).addr());
            }
        }
    }
}

impl Rendezvous {
    fn take_parts_and_wait(&self, worker: &Worker) {
        self.take_parts(worker);
        worker.wait_until(std::ptr::from_ref(&self.left).addr(), || {
            self.left.load(Ordering::SeqCst) == self.parts
        });
    }
}

impl Offer<Worker> for Rendezvous {
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

/// Publishes an offer of this many parts that wait for each other, takes some, and waits until all
/// are over; then publishes the same offer again. Returns the numbers of the parts that ended the
/// second time, in ascending order.
pub fn rendezvous(worker: &Worker, parts: u32) -> Vec<u64> {
    let offer = Arc::new(Rendezvous {
        parts,
        taken: AtomicU32::new(0),
        arrived: AtomicU32::new(0),
        left: AtomicU32::new(0),
        tag: worker.tag(),
        ended: Mutex::new(Vec::new()),
    });
    let is_short = parts.is_multiple_of(2);
    let published = worker.publish_offer(offer.clone(), is_short);
    worker.call_for_help(offer.tag, u64::MAX);
    offer.take_parts_and_wait(worker);
    let retracted = worker.retract_offer(published);
    offer.arrived.store(0, Ordering::SeqCst);
    offer.left.store(0, Ordering::SeqCst);
    offer.ended.lock().expect("no panic under it").clear();
    offer.taken.store(0, Ordering::SeqCst);
    let again = retracted.and_then(|retracted| worker.republish_offer(retracted, !is_short));
    let published = again.unwrap_or_else(|| worker.publish_offer(offer.clone(), !is_short));
    worker.call_for_help(offer.tag, u64::from(is_short) * u64::MAX);
    offer.take_parts_and_wait(worker);
    let _ = worker.retract_offer(published);
    let mut ended = std::mem::take(&mut *offer.ended.lock().expect("no panic under it"));
    ended.sort_unstable();
    ended
}
