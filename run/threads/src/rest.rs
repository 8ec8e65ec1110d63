//! How long who has stolen little leaves others alone.

use std::cell::Cell;
use std::ops::RangeInclusive;

/// Stolen work that took less cost two workers more than it was worth.
const LITTLE_NS: u64 = 500;
/// After a theft of little nothing is stolen for a while, from the first time to the most.
const REST_NS: RangeInclusive<u64> = 500..=8_000;

/// Of one thief: how long it steals nothing after its last theft, in nanoseconds; longer after each theft of little, and not at all after one that was
/// worth it.
#[derive(Debug, Default)]
pub struct Rest(Cell<u64>);

impl Rest {
    /// What was stolen took so long. Returns how long it rests now.
    pub fn after(&self, took_ns: u64) -> u64 {
        let rest_ns = if took_ns < LITTLE_NS {
            (2 * self.0.get()).clamp(*REST_NS.start(), *REST_NS.end())
        } else {
            0
        };
        self.0.set(rest_ns);
        rest_ns
    }

    /// How long it rests after the last theft.
    #[must_use]
    pub fn ns(&self) -> u64 {
        self.0.get()
    }
}
