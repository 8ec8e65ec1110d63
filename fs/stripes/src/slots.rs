//! Which slots are free.

use std::collections::BTreeSet;

/// How many free slots are looked at for consecutive ones.
const MOST_LOOKED_AT: usize = 64;

/// The free slots. Those that were used once keep their space until it is given back.
#[derive(Debug, Default)]
pub struct Slots {
    kept: BTreeSet<u64>,
    empty: BTreeSet<u64>,
    next: u64,
}

impl Slots {
    /// Starts from the slots that are in use.
    #[must_use]
    pub fn new(used: &BTreeSet<u64>) -> Slots {
        let next = used.last().map_or(0, |last| last + 1);
        Slots {
            kept: (0..next).filter(|slot| !used.contains(slot)).collect(),
            empty: BTreeSet::new(),
            next,
        }
    }

    /// Free slots that still have their space.
    #[must_use]
    pub fn kept(&self) -> u64 {
        self.kept.len() as u64
    }

    /// Takes `count` consecutive slots; returns the first. Those that still have their space are
    /// for rows that fill it: others would keep it for as long as they lie there.
    pub fn take(&mut self, count: u64, fills: bool) -> u64 {
        let sets = [&mut self.kept, &mut self.empty];
        for set in sets.into_iter().skip(usize::from(!fills)) {
            if let Some(first) = run(set, count) {
                for slot in first..first + count {
                    set.remove(&slot);
                }
                return first;
            }
        }
        let first = self.next;
        self.next += count;
        first
    }

    /// Takes slots back.
    pub fn free(&mut self, slots: impl IntoIterator<Item = u64>) {
        self.kept.extend(slots);
    }

    /// Takes the free slots whose space shall be given back, as first slots and counts. They are
    /// not free until [`Slots::emptied`].
    pub fn take_kept(&mut self) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for slot in std::mem::take(&mut self.kept) {
            match runs.last_mut() {
                Some((first, count)) if *first + *count == slot => *count += 1,
                _ => runs.push((slot, 1)),
            }
        }
        runs
    }

    /// Takes slots back whose space was given back.
    pub fn emptied(&mut self, runs: &[(u64, u64)]) {
        for (first, count) in runs {
            self.empty.extend(*first..first + count);
        }
    }
}

/// The first of `count` consecutive numbers near the beginning of a set.
fn run(set: &BTreeSet<u64>, count: u64) -> Option<u64> {
    let (mut first, mut len) = (0, 0);
    for slot in set.iter().take(MOST_LOOKED_AT) {
        if len > 0 && first + len == *slot {
            len += 1;
        } else {
            (first, len) = (*slot, 1);
        }
        if len == count {
            return Some(first);
        }
    }
    None
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
}
