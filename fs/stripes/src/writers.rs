//! Which ranges of a file are being changed: writes to different ranges go on at the same time, and
//! a reader sees a write as a whole or not at all.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::array::lock;

/// The ranges of a file that are being changed. Overlapping changes come one after the other, and
/// a read sees each as a whole or not at all.
#[derive(Debug, Default)]
pub struct Writers {
    active: Mutex<Vec<(u64, u64)>>,
    changed: Condvar,
}

/// A range that is being changed.
pub struct Writing<'a> {
    writers: &'a Writers,
    range: (u64, u64),
}

impl Writers {
    /// Waits until nobody changes the range, and begins to change it.
    pub fn begin(&self, from: u64, to: u64) -> Writing<'_> {
        let mut active = self.wait(from, to);
        active.push((from, to));
        Writing {
            writers: self,
            range: (from, to),
        }
    }

    /// Whether somebody changes a part of the range.
    pub fn is_changing(&self, from: u64, to: u64) -> bool {
        let active = lock(&self.active);
        active.iter().any(|other| other.0 < to && from < other.1)
    }

    /// Waits until nobody changes the range.
    pub fn wait(&self, from: u64, to: u64) -> std::sync::MutexGuard<'_, Vec<(u64, u64)>> {
        let is_busy = |active: &mut Vec<(u64, u64)>| {
            active.iter().any(|other| other.0 < to && from < other.1)
        };
        let active = lock(&self.active);
        let done = self.changed.wait_while(active, is_busy);
        done.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut active = lock(&self.writers.active);
        if let Some(at) = active.iter().position(|range| *range == self.range) {
            active.swap_remove(at);
        }
        drop(active);
        self.writers.changed.notify_all();
    }
}
