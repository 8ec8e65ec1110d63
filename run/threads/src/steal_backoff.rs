//! Steal back-off after tiny jobs.

use std::cell::Cell;
use std::ops::RangeInclusive;

/// A stolen job that took less than this cost the two workers more than it was worth.
const TINY_NS: u64 = 500;
/// Shortest and longest back-off.
const BACKOFF_NS: RangeInclusive<u64> = 500..=8_000;

/// Steal back-off of one thief, in nanoseconds: it doubles after each tiny job that was stolen and
/// is zero after a larger one. Belongs to one thread.
#[derive(Debug, Default)]
pub struct StealBackoff(Cell<u64>);

impl StealBackoff {
    /// Records how long the last stolen job took. Returns the back-off that follows, in
    /// nanoseconds.
    pub fn record(&self, took_ns: u64) -> u64 {
        let backoff_ns = if took_ns < TINY_NS {
            (2 * self.0.get()).clamp(*BACKOFF_NS.start(), *BACKOFF_NS.end())
        } else {
            0
        };
        self.0.set(backoff_ns);
        backoff_ns
    }

    /// The back-off after the last stolen job, in nanoseconds.
    #[must_use]
    pub fn ns(&self) -> u64 {
        self.0.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_after_tiny_jobs_and_ends_after_a_larger_one() {
        let backoff = StealBackoff::default();
        let grown: Vec<u64> = (0..6).map(|_| backoff.record(TINY_NS - 1)).collect();
        assert_eq!(grown, [500, 1_000, 2_000, 4_000, 8_000, 8_000]);
        assert_eq!(backoff.ns(), 8_000);
        assert_eq!(backoff.record(TINY_NS), 0);
        assert_eq!(backoff.ns(), 0);
    }
}
