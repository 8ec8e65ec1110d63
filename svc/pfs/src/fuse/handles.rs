//! Which open files were written since they were closed last, or a copy of their descriptor was.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::lock::lock;

#[derive(Debug, Default)]
pub struct Handles {
    last: AtomicU64,
    written: Mutex<HashSet<u64>>,
}

impl Handles {
    /// A new handle.
    pub fn opened(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn has_written(&self, handle: u64) {
        lock(&self.written).insert(handle);
    }

    /// Whether it was written; not any more from now on.
    pub fn take_written(&self, handle: u64) -> bool {
        lock(&self.written).remove(&handle)
    }
}
