//! What the kernel of another host still refers to, so that it can be given back when that is gone.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::lock::lock;

/// References by inode.
#[derive(Debug, Default)]
pub struct Pins(Mutex<BTreeMap<u64, u64>>);

impl Pins {
    pub fn add(&self, ino: u64) {
        *lock(&self.0).entry(ino).or_default() += 1;
    }

    pub fn remove(&self, ino: u64, count: u64) {
        let mut pins = lock(&self.0);
        if let Some(there) = pins.get_mut(&ino) {
            *there = there.saturating_sub(count);
            if *there == 0 {
                pins.remove(&ino);
            }
        }
    }

    /// All of them, which are none then.
    pub fn take(&self) -> BTreeMap<u64, u64> {
        std::mem::take(&mut lock(&self.0))
    }
}
