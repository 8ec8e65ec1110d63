//! Which slots are free.

use std::collections::{BTreeMap, BTreeSet};

/// How many runs of free slots are looked at for consecutive ones.
const MOST_LOOKED_AT: usize = 64;

/// The free slots. Those that were used once keep their space until it is given back.
#[derive(Debug, Default)]
pub struct Slots {
    kept: Runs,
    empty: Runs,
    next: u64,
}

/// Slots as runs, first slot and count: they take little memory, however far a slot in use lies
/// behind the others. Runs do not touch.
#[derive(Debug, Default)]
struct Runs {
    runs: BTreeMap<u64, u64>,
    count: u64,
}

impl Runs {
    /// Adds slots that are not there.
    fn add(&mut self, mut first: u64, mut count: u64) {
        self.count += count;
        if let Some((before, len)) = self.runs.range(..first).next_back()
            && before + len == first
        {
            let before = *before;
            (first, count) = (before, count + self.runs.remove(&before).unwrap_or(0));
        }
        if let Some(len) = self.runs.remove(&(first + count)) {
            count += len;
        }
        self.runs.insert(first, count);
    }

    /// Takes consecutive slots near the beginning; returns the first.
    fn take(&mut self, count: u64) -> Option<u64> {
        let mut near = self.runs.iter().take(MOST_LOOKED_AT);
        let (first, len) = near.find(|(_, len)| **len >= count)?;
        let (first, len) = (*first, *len);
        self.runs.remove(&first);
        if len > count {
            self.runs.insert(first + count, len - count);
        }
        self.count -= count;
        Some(first)
    }
}

impl Slots {
    /// Starts from the slots that are in use.
    #[must_use]
    pub fn new(used: &BTreeSet<u64>) -> Slots {
        let mut slots = Slots::default();
        for slot in used {
            if *slot > slots.next {
                slots.kept.add(slots.next, slot - slots.next);
            }
            slots.next = slot + 1;
        }
        slots
    }

    /// Free slots that still have their space.
    #[must_use]
    pub fn kept(&self) -> u64 {
        self.kept.count
    }

    /// Takes `count` consecutive slots; returns the first. Those that still have their space are
    /// for rows that fill it: others would keep it for as long as they lie there.
    pub fn take(&mut self, count: u64, fills: bool) -> u64 {
        let kept = fills.then(|| self.kept.take(count)).flatten();
        kept.or_else(|| self.empty.take(count)).unwrap_or_else(|| {
            self.next += count;
            self.next - count
        })
    }

    /// Takes slots back.
    pub fn free(&mut self, slots: impl IntoIterator<Item = u64>) {
        for slot in slots {
            self.kept.add(slot, 1);
        }
    }

    /// Takes the free slots whose space shall be given back, as first slots and counts. They are
    /// not free until [`Slots::emptied`].
    pub fn take_kept(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.kept).runs.into_iter().collect()
    }

    /// Takes slots back whose space was given back.
    pub fn emptied(&mut self, runs: &[(u64, u64)]) {
        for (first, count) in runs {
            self.empty.add(*first, *count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_slots_are_used_again_before_new_ones() {
        let mut slots = Slots::new(&BTreeSet::from([1, 4]));
        assert_eq!(slots.take(1, true), 0);
        assert_eq!(slots.take(2, true), 2);
        assert_eq!(slots.take(2, true), 5);
        slots.free([5, 0]);
        assert_eq!(slots.kept(), 2);
        let runs = slots.take_kept();
        assert_eq!(runs, [(0, 1), (5, 1)]);
        assert_eq!(slots.take(1, true), 7);
        slots.emptied(&runs);
        assert_eq!((slots.take(1, true), slots.take(1, false)), (0, 5));
        slots.free([0]);
        assert_eq!((slots.take(1, false), slots.take(1, true)), (8, 0));
    }

    #[test]
    fn runs_are_as_a_plain_set() {
        let (mut runs, mut plain) = (Runs::default(), BTreeSet::new());
        let mut random = 1_u64;
        let mut next = |end: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % end
        };
        for _ in 0..if cfg!(miri) { 100 } else { 5000 } {
            let (first, count) = (next(100), next(4) + 1);
            if (first..first + count).all(|slot| !plain.contains(&slot)) {
                runs.add(first, count);
                plain.extend(first..first + count);
            } else if let Some(first) = runs.take(count) {
                assert!((first..first + count).all(|slot| plain.remove(&slot)));
            }
            assert_eq!(runs.count, plain.len() as u64);
            let listed = runs.runs.iter().flat_map(|(at, len)| *at..at + len);
            assert!(listed.eq(plain.iter().copied()));
            let mut pairs = runs.runs.iter().zip(runs.runs.keys().skip(1));
            assert!(pairs.all(|((at, len), next)| at + len < *next));
        }
    }

    #[test]
    fn a_slot_far_behind_the_others_takes_no_memory() {
        let mut slots = Slots::new(&BTreeSet::from([1 << 32]));
        assert_eq!(slots.kept(), 1 << 32);
        assert_eq!(slots.take(1000, true), 0);
    }
}
