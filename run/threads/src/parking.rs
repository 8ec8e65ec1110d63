//! Fibers that wait for an address.
//!
//! Locks, barriers and conditions of the layers above are words; who has to wait for one parks under its address and who
//! changes it unparks. Nothing is kept for a word that nobody waits for, so that a lock of four bytes, as a program has
//! laid it out, is enough.
//!
//! The check and the entry into the queue happen under the bucket's lock, and so do removal and the change that
//! `unpark_one` makes: a change before the check is seen by it, a change after it finds the waiter.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use crate::pool::Token;

/// Buckets of the table. Waiters of different addresses may share one; that costs time, nothing else.
const BUCKETS: usize = 256;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket {
    /// Bounded by the number of fibers.
    waiters: Mutex<VecDeque<(usize, Token)>>,
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

    /// Enters a waiter if `must_wait` says so, asked under the lock. Tells whether it was entered.
    pub(crate) fn enter(
        &self,
        address: usize,
        waiter: Token,
        must_wait: impl FnOnce() -> bool,
    ) -> bool {
        let mut waiters = self.waiters(address);
        let enters = must_wait();
        if enters {
            waiters.push_back((address, waiter));
        }
        enters
    }

    /// Whether this waiter is still entered; it leaves if `leaves`.
    pub(crate) fn is_entered(&self, address: usize, waiter: Token, leaves: bool) -> bool {
        let mut waiters = self.waiters(address);
        let at = waiters.iter().position(|entry| *entry == (address, waiter));
        if let Some(at) = at
            && leaves
        {
            waiters.remove(at);
        }
        at.is_some()
    }

    /// Removes the one who has waited longest. `change` is called under the lock and told whether somebody was
    /// removed and whether more wait.
    pub(crate) fn remove_one(
        &self,
        address: usize,
        change: impl FnOnce(bool, bool),
    ) -> Option<Token> {
        let mut waiters = self.waiters(address);
        let at = waiters.iter().position(|(at, _)| *at == address);
        let removed = at.and_then(|at| waiters.remove(at));
        let more = waiters.iter().any(|(at, _)| *at == address);
        change(removed.is_some(), more);
        removed.map(|(_, waiter)| waiter)
    }

    /// Removes all, those who have waited longest first.
    pub(crate) fn remove_all(&self, address: usize) -> Vec<Token> {
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

    fn waiters(&self, address: usize) -> MutexGuard<'_, VecDeque<(usize, Token)>> {
        // Fibonacci hashing: neighbouring words go to different buckets.
        let hash = (address as u64 >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        self.buckets[hash as usize % BUCKETS]
            .waiters
            .lock()
            .expect("nothing panics with this lock held")
    }
}
