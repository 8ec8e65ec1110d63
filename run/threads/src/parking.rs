//! The parking lot: fibers that wait for an address.
//!
//! Locks, barriers and conditions of the layers above are words. A fiber that has to wait for one
//! parks under the word's address, and the thread that changes the word unparks it. Nothing is kept
//! for a word without waiters, so that a lock of four bytes in the program's own memory is enough.
//!
//! The check of the condition and the entry into the queue happen under the bucket's lock, and so
//! do the removal and the change that `remove_one` makes: a change before the check is seen by the
//! check, a change after it finds the waiter.

use std::collections::VecDeque;
use std::hash::Hasher;
use std::sync::{Mutex, MutexGuard};

use rustc_hash::FxHasher;

use crate::fiber_table::FiberId;

/// Buckets of the table. Waiters of different addresses may share one, which costs time only.
const BUCKETS: usize = 256;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket {
    /// Bounded by the number of fibers.
    waiters: Mutex<VecDeque<(usize, FiberId)>>,
}

#[derive(Debug)]
pub(crate) struct ParkingLot {
    buckets: Box<[Bucket]>,
}

impl ParkingLot {
    pub(crate) fn new() -> ParkingLot {
        ParkingLot {
            buckets: (0..BUCKETS).map(|_| Bucket::default()).collect(),
        }
    }

    /// Enters a waiter if `must_wait`, which is called under the bucket's lock, returns true.
    /// Returns whether it was entered.
    pub(crate) fn enter(
        &self,
        address: usize,
        waiter: FiberId,
        must_wait: impl FnOnce() -> bool,
    ) -> bool {
        let mut waiters = self.waiters(address);
        let enters = must_wait();
        if enters {
            waiters.push_back((address, waiter));
        }
        enters
    }

    /// Whether this waiter is still entered.
    pub(crate) fn is_entered(&self, address: usize, waiter: FiberId) -> bool {
        self.waiters(address).contains(&(address, waiter))
    }

    /// Removes the waiter that has waited longest. `change` is called under the bucket's lock; its
    /// arguments are whether a waiter was removed and whether more wait.
    pub(crate) fn remove_one(
        &self,
        address: usize,
        change: impl FnOnce(bool, bool),
    ) -> Option<FiberId> {
        let mut waiters = self.waiters(address);
        let at = waiters.iter().position(|(at, _)| *at == address);
        let removed = at.and_then(|at| waiters.remove(at));
        let more = waiters.iter().any(|(at, _)| *at == address);
        change(removed.is_some(), more);
        removed.map(|(_, waiter)| waiter)
    }

    /// Removes all waiters of an address, the one that has waited longest first.
    pub(crate) fn remove_all(&self, address: usize) -> Vec<FiberId> {
        let mut waiters = self.waiters(address);
        let mut removed = Vec::new();
        waiters.retain(|&(at, waiter)| {
            if at == address {
                removed.push(waiter);
            }
            at != address
        });
        removed
    }

    fn waiters(&self, address: usize) -> MutexGuard<'_, VecDeque<(usize, FiberId)>> {
        let mut hasher = FxHasher::default();
        hasher.write_usize(address);
        self.buckets[hasher.finish() as usize % BUCKETS]
            .waiters
            .lock()
            .expect("nothing panics with this lock held")
    }
}
