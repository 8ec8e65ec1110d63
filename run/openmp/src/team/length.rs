//! How long the regions of a team take, which says what to expect of the next.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Estimates that a team keeps. Regions are distinguished by their outlined functions: those of a
/// program take turns, and short ones lie between long ones. Two that share an estimate only cost
/// time.
const SITES: usize = 32;

/// What is expected of a region that has not been seen yet: enough for waking a worker in any case.
/// A member that has begun stays on its worker, also in a region that lasts as long as the program.
const UNKNOWN_NS: u32 = 150_000;

/// A region that is expected to take less is short: likely to be over before it has paid to share
/// it with another core. It is left to its forking worker for a moment.
const SHORT_NS: u64 = 1_200;

/// One in this many short regions that nobody helps with is timed. Not a power of two: short
/// functions that take turns must all have theirs.
const SAMPLED: u32 = 13;

/// A region with barriers counts as at least this long, since its members have to wait for each
/// other to begin.
const WITH_BARRIERS_NS: u64 = 32_000;

/// See the module.
#[derive(Debug)]
pub(super) struct RegionLength {
    /// When members could be claimed; 0 until a thread has read the clock. For a region that is
    /// expected to be short only helping workers read it, and forking workers that nobody helps.
    opened_ns: AtomicU64,
    /// The number of the next barrier at that time.
    opened_generation: AtomicU64,
    /// Short regions that nobody helped with.
    alone: AtomicU32,
    /// The estimate of the region that runs.
    site: AtomicU32,
    /// Nanoseconds.
    estimates: [AtomicU32; SITES],
}

impl RegionLength {
    pub(super) fn new() -> RegionLength {
        RegionLength {
            opened_ns: AtomicU64::new(0),
            opened_generation: AtomicU64::new(0),
            alone: AtomicU32::new(0),
            site: AtomicU32::new(0),
            estimates: [const { AtomicU32::new(UNKNOWN_NS) }; SITES],
        }
    }

    /// The next region runs the function at this address. Returns how long it is expected to take,
    /// in nanoseconds.
    #[inline]
    pub(super) fn expect(&self, function: usize) -> u64 {
        // Functions begin at multiples of 16.
        let address = (function >> 4) as u32;
        let site = address.wrapping_mul(0x9e37_79b9) >> (32 - SITES.ilog2());
        self.site.store(site, Ordering::Relaxed);
        u64::from(self.estimates[site as usize].load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn is_short(expected_ns: u64) -> bool {
        expected_ns < SHORT_NS
    }

    /// A region begins: before a member can be claimed, since the claiming worker may say
    /// [when](Self::set_opened).
    #[inline]
    pub(super) fn open(&self, now_ns: u64, generation: u64) {
        self.opened_ns.store(now_ns, Ordering::Relaxed);
        self.opened_generation.store(generation, Ordering::Relaxed);
    }

    /// Where [`opened_ns`](Self::opened_ns) is.
    pub(super) fn opened_at(&self) -> usize {
        std::ptr::from_ref(&self.opened_ns).addr()
    }

    /// When the region began; 0 if nobody has said.
    #[inline]
    pub(super) fn opened_ns(&self) -> u64 {
        self.opened_ns.load(Ordering::Relaxed)
    }

    /// No other worker will come for this short region. Returns whether to read the clock all the
    /// same: nobody else would tell when it has become a long one.
    #[inline]
    pub(super) fn is_sampled_alone(&self) -> bool {
        let alone = self.alone.load(Ordering::Relaxed).wrapping_add(1);
        self.alone.store(alone, Ordering::Relaxed);
        alone.is_multiple_of(SAMPLED)
    }

    #[inline]
    pub(super) fn set_opened(&self, opened_ns: u64) {
        self.opened_ns.store(opened_ns, Ordering::Relaxed);
    }

    /// The region is over. How long it took, if that is known, says what to expect of the next. A
    /// short region that no other worker helped with stays short; one with barriers does not.
    #[inline]
    pub(super) fn close(&self, generation: u64, now_ns: impl FnOnce() -> u64) {
        let opened_ns = self.opened_ns();
        let had_barrier = generation != self.opened_generation.load(Ordering::Relaxed);
        if opened_ns == 0 && !had_barrier {
            return;
        }
        let took_ns = if opened_ns == 0 {
            0
        } else {
            now_ns().saturating_sub(opened_ns)
        };
        let least_ns = if had_barrier { WITH_BARRIERS_NS } else { 0 };
        let estimate = &self.estimates[self.site.load(Ordering::Relaxed) as usize % SITES];
        let before = u64::from(estimate.load(Ordering::Relaxed));
        let after = renewed(before, took_ns).max(least_ns);
        if after != before {
            estimate.store(after as u32, Ordering::Relaxed);
        }
    }
}

/// An estimate after another region. One that has lost its core in the middle is not to count for
/// many.
fn renewed(before_ns: u64, took_ns: u64) -> u64 {
    const MOST_NS: u64 = 1_000_000_000;
    let took_ns = took_ns.min(8 * before_ns + 8_000);
    ((3 * before_ns + took_ns) / 4).min(MOST_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(length: &RegionLength, function: usize, took_ns: u64) -> u64 {
        let expected_ns = length.expect(function);
        length.open(1_000, 0);
        length.close(0, || 1_000 + took_ns);
        expected_ns
    }

    #[test]
    fn functions_are_distinguished() {
        let length = RegionLength::new();
        for _ in 0..20 {
            run(&length, 0x1000, 500);
            run(&length, 0x1040, 500_000);
        }
        assert!(RegionLength::is_short(length.expect(0x1000)));
        assert!(length.expect(0x1040) > 400_000);
        assert_eq!(length.expect(0x2000), u64::from(UNKNOWN_NS));
    }

    #[test]
    fn a_region_with_barriers_is_not_short() {
        let length = RegionLength::new();
        for _ in 0..20 {
            run(&length, 0x1000, 1_000);
        }
        length.expect(0x1000);
        length.open(0, 7);
        length.close(8, || 0);
        assert!(!RegionLength::is_short(length.expect(0x1000)));
    }

    #[test]
    fn a_lost_time_slice_is_forgotten_soon() {
        let length = RegionLength::new();
        for _ in 0..20 {
            run(&length, 0x1000, 2_000);
        }
        run(&length, 0x1000, 4_000_000);
        assert!(length.expect(0x1000) < 10_000);
        run(&length, 0x1000, 2_000);
        run(&length, 0x1000, 2_000);
        assert!(run(&length, 0x1000, 2_000) < 6_000);
    }
}
