//! Which ranges of a file are being changed: writes to different ranges go on at the same time, and
//! a reader sees a write as a whole or not at all.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::array::lock;

/// The ranges of a file that are being changed. Overlapping changes come one after the other, and
/// a read sees each as a whole or not at all.
#[derive(Debug, Default)]
pub struct Writers {
    active: Mutex<Active>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Active {
    /// Each with a number, which is higher for those that came later.
    ranges: Vec<(u64, (u64, u64))>,
    next: u64,
}

impl Active {
    fn push(&mut self, range: (u64, u64)) -> u64 {
        self.next += 1;
        self.ranges.push((self.next, range));
        self.next
    }

    fn is_changing(&self, from: u64, to: u64) -> bool {
        let mut ranges = self.ranges.iter();
        ranges.any(|(_, other)| other.0 < to && from < other.1)
    }
}

/// A range that is being changed.
pub struct Writing<'a> {
    writers: &'a Writers,
    number: u64,
}

impl Writers {
    /// Waits until nobody changes the range, and begins to change it.
    pub fn begin(&self, from: u64, to: u64) -> Writing<'_> {
        let number = self.wait_for(from, to).push((from, to));
        Writing {
            writers: self,
            number,
        }
    }

    /// Begins to change the whole file: who comes now waits, so that those who were there before
    /// are soon done, however many come.
    pub fn begin_all(&self) -> Writing<'_> {
        let mut active = lock(&self.active);
        let number = active.push((0, u64::MAX));
        let are_before =
            |active: &mut Active| active.ranges.iter().any(|(other, _)| *other < number);
        let done = self.changed.wait_while(active, are_before);
        drop(done.unwrap_or_else(PoisonError::into_inner));
        Writing {
            writers: self,
            number,
        }
    }

    /// Whether somebody changes a part of the range.
    pub fn is_changing(&self, from: u64, to: u64) -> bool {
        lock(&self.active).is_changing(from, to)
    }

    /// Waits until nobody changes the range.
    pub fn wait(&self, from: u64, to: u64) {
        drop(self.wait_for(from, to));
    }

    fn wait_for(&self, from: u64, to: u64) -> MutexGuard<'_, Active> {
        let active = lock(&self.active);
        let is_busy = |active: &mut Active| active.is_changing(from, to);
        let done = self.changed.wait_while(active, is_busy);
        done.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut active = lock(&self.writers.active);
        active.ranges.retain(|(number, _)| *number != self.number);
        drop(active);
        self.writers.changed.notify_all();
    }
}
