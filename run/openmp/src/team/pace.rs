//! How fine-grained regions are whose members wait for each other: what lies between two barriers, or
//! between two ordered regions, and whether members should rather share one worker for that.
//!
//! On contended cores a member that waits for one of another worker mostly waits until that has got
//! its core again: milliseconds. Members of one worker wait for each other for the time of a switch.
//! So where a region has only microseconds of work between waits, its forking worker takes all
//! members as long as the cores are contended. On free cores nothing is measured and nothing changes.
//!
//! Of the first member is measured how often it works for long between two waits and, where one worker
//! has run all members, the processor time of its thread for each wait, in which lost time slices do
//! not count and rare long phases do. A region that should not have been run so keeps its function from
//! it for a while.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use margay_sys_os::cpu;

use super::{Context, Team};

/// Less work than this of all members between two waits makes a region fine-grained: one worker does it
/// in less time than a wait for another worker takes on contended cores.
const FINE_NS: u64 = 8_000;
/// What a member adds to that by its switch.
const SWITCH_NS: u64 = 300;
/// Waits of a region from which on it tells something ...
const LEAST_WAITS: u32 = 4;
/// ... and how many of them may be after longer work: one in this many. A lost time slice is one.
const LONG_PARTS: u32 = 8;
/// A region that is expected to take longer is not run on one worker: its members could not leave that
/// when it turns out to have more work.
const LONGEST_NS: u64 = 5_000_000;

/// What the first member of a region has measured.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When its last wait ended; 0 while nothing is measured.
    resumed_ns: Cell<u64>,
    /// The processor time of its thread at the first wait; 0 before.
    processor_ns: Cell<u64>,
    short: Cell<u32>,
    long: Cell<u32>,
}

impl Pace {
    /// The member begins to wait at this time.
    fn arrive(&self, now_ns: u64, members: u32) {
        let resumed_ns = self.resumed_ns.get();
        if resumed_ns != 0 {
            let count = if (now_ns - resumed_ns).saturating_mul(u64::from(members)) < FINE_NS {
                &self.short
            } else {
                &self.long
            };
            count.set(count.get().saturating_add(1));
        }
    }

    /// Whether a region of this many members, all on one worker or not, was fine-grained, at this
    /// processor time; none if it does not tell.
    fn is_fine(
        &self,
        members: u32,
        has_run_all: bool,
        processor_ns: impl FnOnce() -> u64,
    ) -> Option<bool> {
        let (short, long) = (self.short.get(), self.long.get());
        let waits = short.saturating_add(long);
        if waits < LEAST_WAITS {
            return None;
        }
        if !has_run_all {
            return Some(long <= short / LONG_PARTS);
        }
        let took_ns = processor_ns().saturating_sub(self.processor_ns.get());
        Some(took_ns / u64::from(waits) < FINE_NS + SWITCH_NS * u64::from(members))
    }
}

/// Functions whose regions are told apart: as many as the [lengths](super::length) are.
const SITES: usize = super::length::SITES;

/// What is known of a function, below this: how many of its regions in a row were fine-grained.
const FINE: u8 = 8;
/// Above this: how many regions are left to pass before the next one is judged, and how many are at first.
const PAUSED: u8 = 100;
const LONGEST_PAUSE: u8 = 100;

/// What the last regions of each function have told.
#[derive(Debug)]
pub(super) struct FineRegions {
    sites: [AtomicU8; SITES],
    /// The members of the region that runs are to stay on its forking worker ...
    is_together: AtomicBool,
    /// ... this one ...
    forker: AtomicU32,
    /// ... but another one has come.
    has_help: AtomicBool,
}

impl FineRegions {
    pub(super) fn new() -> FineRegions {
        FineRegions {
            sites: [const { AtomicU8::new(0) }; SITES],
            is_together: AtomicBool::new(false),
            forker: AtomicU32::new(0),
            has_help: AtomicBool::new(false),
        }
    }

    /// A region begins whose members are to stay on this worker.
    pub(super) fn begin_together(&self, forker: u32) {
        self.forker.store(forker, Ordering::Relaxed);
        self.has_help.store(false, Ordering::Relaxed);
    }

    /// A worker runs members.
    #[inline]
    pub(super) fn helped_by(&self, worker: u32) {
        if self.is_together.load(Ordering::Relaxed) && worker != self.forker.load(Ordering::Relaxed)
        {
            self.has_help.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the forking worker alone has run the members, as it was to do.
    fn has_run_all(&self) -> bool {
        self.is_together.load(Ordering::Relaxed) && !self.has_help.load(Ordering::Relaxed)
    }

    #[inline]
    fn contains(&self, site: u32) -> bool {
        self.sites[site as usize].load(Ordering::Relaxed) == FINE
    }

    /// A region is over, which its forking worker, the caller, has run alone or not.
    fn record(&self, site: u32, is_fine: bool, has_run_all: bool) {
        let place = &self.sites[site as usize];
        let after = match (place.load(Ordering::Relaxed), is_fine) {
            (FINE, true) | (0, false) => return,
            (FINE, false) if has_run_all => PAUSED + LONGEST_PAUSE,
            (PAUSED, _) | (0..=FINE, false) => 0,
            (before @ 0..FINE, true) => before + 1,
            (before, _) => before - 1,
        };
        place.store(after, Ordering::Relaxed);
    }
}

impl Team {
    /// Whether all members of the region that begins are to run on its forking worker.
    #[inline]
    pub(super) fn choose_together(&self, expected_ns: u64) -> bool {
        let is_fine = self.fine.contains(self.length.site());
        let is_together = is_fine
            && expected_ns < LONGEST_NS
            && !self.claims.has_places()
            && self.runtime.scheduler.is_contended();
        if is_together != self.is_together() {
            self.fine.is_together.store(is_together, Ordering::Relaxed);
        }
        is_together
    }

    /// Whether those of the region that runs are.
    #[inline]
    pub(super) fn is_together(&self) -> bool {
        self.fine.is_together.load(Ordering::Relaxed)
    }
}

impl Context {
    /// The member begins to wait for others.
    #[inline]
    pub(crate) fn arrive(&self) {
        if self.id == 0 && self.runtime().scheduler.contended_until_ns() != 0 {
            self.measure_arrival();
        }
    }

    #[cold]
    fn measure_arrival(&self) {
        let now_ns = self.team.now_ns();
        if now_ns < self.runtime().scheduler.contended_until_ns() {
            if self.pace.processor_ns.get() == 0 {
                self.pace.processor_ns.set(cpu::thread_time_ns());
            }
            self.pace.arrive(now_ns, self.team.size);
            // From now on, so that the end of this wait is noted.
            self.pace.resumed_ns.set(now_ns);
        } else {
            self.pace.resumed_ns.set(0);
        }
    }

    /// The wait is over.
    #[inline]
    pub(crate) fn resume(&self) {
        if self.pace.resumed_ns.get() != 0 {
            self.pace.resumed_ns.set(self.team.now_ns());
        }
    }

    /// The region is over, whose first member this is.
    #[inline]
    pub(super) fn record_pace(&self) {
        if self.pace.processor_ns.get() != 0 {
            self.record_measured();
        }
    }

    #[cold]
    fn record_measured(&self) {
        let team = self.team;
        let has_run_all = team.fine.has_run_all();
        let is_fine = self
            .pace
            .is_fine(team.size, has_run_all, cpu::thread_time_ns);
        if let Some(is_fine) = is_fine {
            team.fine.record(team.length.site(), is_fine, has_run_all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_fine_grained_if_nearly_all_waits_are_after_short_work() {
        let pace = Pace::default();
        let wait = |work_ns: u64| {
            pace.resumed_ns.set(1_000);
            pace.arrive(1_000 + work_ns, 4);
        };
        let is_fine = || pace.is_fine(4, false, || 0);
        for _ in 0..LEAST_WAITS {
            assert_eq!(is_fine(), None);
            wait(100);
        }
        assert_eq!(is_fine(), Some(true));
        wait(50_000);
        assert_eq!(is_fine(), Some(false), "one of five");
        for _ in 0..LONG_PARTS {
            wait(100);
        }
        assert_eq!(is_fine(), Some(true), "a lost time slice");
        for _ in 0..2 * LONG_PARTS {
            wait(FINE_NS / 4);
        }
        assert_eq!(is_fine(), Some(false));
    }

    #[test]
    fn processor_time_shows_rare_long_phases_and_no_lost_time_slices() {
        let pace = Pace::default();
        pace.processor_ns.set(5_000);
        pace.short.set(50);
        pace.long.set(50);
        let after = |took_ns: u64| move || 5_000 + took_ns;
        assert_eq!(pace.is_fine(4, true, after(100 * 1_000)), Some(true));
        assert_eq!(pace.is_fine(4, true, after(100 * 10_000)), Some(false));
    }

    #[test]
    fn functions_are_told_apart_and_a_mistake_is_not_repeated_soon() {
        let fine = FineRegions::new();
        let record_all = |site, regions: u8, is_fine| {
            for _ in 0..regions {
                fine.record(site, is_fine, false);
            }
        };
        record_all(31, FINE, true);
        record_all(0, FINE - 1, true);
        assert!(fine.contains(31) && !fine.contains(0));
        record_all(0, 1, false);
        record_all(0, FINE - 1, true);
        assert!(!fine.contains(0), "not in a row");
        record_all(0, 1, true);
        assert!(fine.contains(0));
        fine.record(0, false, true);
        record_all(0, LONGEST_PAUSE + FINE, true);
        assert!(!fine.contains(0));
        record_all(0, 1, true);
        assert!(fine.contains(0));
    }
}
