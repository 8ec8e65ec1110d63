//! Memory that open calls of a process use, found by its addresses and by what completes it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::finding::Call;
use crate::state::{Until, Use};

/// Uses of one process that are remembered; further ones are not.
const MOST_USES: usize = 1 << 18;

#[derive(Default)]
pub struct Uses {
    all: HashMap<u64, Use>,
    next: u64,
    reads: Ranges,
    writes: Ranges,
    requests: HashMap<u64, Vec<u64>>,
    /// By window and rank.
    windows: BTreeMap<(u64, i64), BTreeSet<u64>>,
    /// Of requests of windows, which complete all that their call has begun.
    calls: HashMap<Call, BTreeSet<u64>>,
    /// By what completes it and by whether it writes: the last one, to which its neighbour may be
    /// added.
    last: HashMap<(u64, i64, bool), u64>,
}

/// Ranges of addresses by their length, a power of two in a map, then by where they begin: those
/// that overlap another one begin in it, or before it at most by the length.
#[derive(Default)]
struct Ranges(BTreeMap<u32, BTreeMap<(u64, u64), BTreeSet<u64>>>);

impl Ranges {
    fn insert(&mut self, begin: u64, end: u64, number: u64) {
        let of_length = self.0.entry((end - begin).ilog2()).or_default();
        of_length.entry((begin, end)).or_default().insert(number);
    }

    fn remove(&mut self, begin: u64, end: u64, number: u64) {
        let length = (end - begin).ilog2();
        let Some(of_length) = self.0.get_mut(&length) else {
            return;
        };
        if let Some(numbers) = of_length.get_mut(&(begin, end)) {
            numbers.remove(&number);
            if numbers.is_empty() {
                of_length.remove(&(begin, end));
            }
        }
        if of_length.is_empty() {
            self.0.remove(&length);
        }
    }

    /// The first one that overlaps these bytes, in the order of their numbers.
    fn first(&self, begin: u64, end: u64) -> Option<u64> {
        let of_length = self.0.iter().filter_map(|(length, ranges)| {
            let longest = u64::MAX >> (63 - length);
            let from = begin.saturating_sub(longest);
            let near = ranges.range((from, 0)..(end, 0));
            let both = near.filter(|((_, other_end), _)| *other_end > begin);
            both.filter_map(|(_, numbers)| numbers.first()).min()
        });
        of_length.min().copied()
    }
}

impl Uses {
    /// The first use of memory that must not overlap a new one, where one of them writes.
    pub fn find(&self, begin: u64, end: u64, writes: bool) -> Option<&Use> {
        let write = self.writes.first(begin, end);
        let read = writes.then(|| self.reads.first(begin, end)).flatten();
        self.all.get(&write.into_iter().chain(read).min()?)
    }

    /// Enters a use of at least a byte. Returns false where that are too many.
    pub fn enter(&mut self, new: Use) -> bool {
        if let Until::Window(win, rank) = new.until {
            let key = (win, rank, new.writes);
            let last = self.last.get(&key).copied();
            let is_next =
                |old: &&Use| old.call == new.call && old.begin <= new.begin && new.begin <= old.end;
            let old = last.and_then(|n| Some((n, self.all.get(&n).filter(is_next)?)));
            if let Some((number, old)) = old {
                let (begin, end) = (old.begin, old.end);
                if new.end > end {
                    self.ranges(new.writes).remove(begin, end, number);
                    self.ranges(new.writes).insert(begin, new.end, number);
                    self.all.entry(number).and_modify(|old| old.end = new.end);
                }
                return true;
            }
        }
        if self.all.len() >= MOST_USES {
            return false;
        }
        let number = self.next;
        self.next += 1;
        match new.until {
            Until::Request(request) => self.requests.entry(request).or_default().push(number),
            Until::Window(win, rank) => {
                self.windows.entry((win, rank)).or_default().insert(number);
                self.last.insert((win, rank, new.writes), number);
                if new.call.name.starts_with("MPI_R") {
                    self.calls
                        .entry(new.call.clone())
                        .or_default()
                        .insert(number);
                }
            }
        }
        self.ranges(new.writes).insert(new.begin, new.end, number);
        self.all.insert(number, new);
        true
    }

    /// A request has completed.
    pub fn end_request(&mut self, request: u64) {
        let numbers = self.requests.remove(&request);
        numbers.into_iter().flatten().for_each(|n| self.remove(n));
    }

    /// A window has been synchronized with a rank, or with all of them.
    pub fn end_window(&mut self, win: u64, rank: Option<i64>) {
        let (first, last) = rank.map_or((i64::MIN, i64::MAX), |rank| (rank, rank));
        let keys = self.windows.range((win, first)..=(win, last));
        let keys: Vec<(u64, i64)> = keys.map(|(key, _)| *key).collect();
        for (win, rank) in keys {
            let numbers = self.windows.remove(&(win, rank));
            numbers.into_iter().flatten().for_each(|n| self.remove(n));
            self.last.remove(&(win, rank, false));
            self.last.remove(&(win, rank, true));
        }
    }

    /// What a call has begun is over.
    pub fn end_call(&mut self, call: &Call) {
        let numbers = self.calls.remove(call);
        numbers.into_iter().flatten().for_each(|n| self.remove(n));
    }

    fn ranges(&mut self, writes: bool) -> &mut Ranges {
        match writes {
            true => &mut self.writes,
            false => &mut self.reads,
        }
    }

    fn remove(&mut self, number: u64) {
        let Some(old) = self.all.remove(&number) else {
            return;
        };
        self.ranges(old.writes).remove(old.begin, old.end, number);
        if let Until::Window(win, rank) = old.until
            && let Some(numbers) = self.windows.get_mut(&(win, rank))
        {
            numbers.remove(&number);
        }
        if let Some(numbers) = self.calls.get_mut(&old.call) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.calls.remove(&old.call);
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::finding::Site;

    pub fn random(state: &mut u64, below: u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 11) % below
    }

    fn some_use(state: &mut u64) -> Use {
        let begin = 1000 + random(state, 100);
        let address = random(state, 3);
        let name = ["MPI_Rput", "MPI_Put", "MPI_Isend"][address as usize];
        let is_request = name == "MPI_Isend";
        Use {
            begin,
            end: begin + 1 + random(state, 20),
            writes: random(state, 4) == 0,
            call: Call {
                name: name.into(),
                site: Site {
                    process: 0,
                    address,
                },
            },
            until: match is_request {
                true => Until::Request(random(state, 20)),
                false => Until::Window(random(state, 2), random(state, 3) as i64),
            },
        }
    }

    fn overlap(old: &Use, new: &Use) -> bool {
        old.begin < new.end && new.begin < old.end && (old.writes || new.writes)
    }

    #[test]
    fn overlaps_are_those_of_a_list_of_all_uses() {
        let mut found_some = 0;
        let (seeds, steps) = if cfg!(miri) { (1, 50) } else { (200u64, 400) };
        for seed in 1..=seeds {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let (mut uses, mut plain) = (Uses::default(), Vec::<Use>::new());
            for _ in 0..steps {
                match random(&mut state, 12) {
                    0 | 1 => {
                        let request = random(&mut state, 20);
                        uses.end_request(request);
                        plain.retain(|u| u.until != Until::Request(request));
                    }
                    2 => {
                        let win = random(&mut state, 2);
                        let rank = Some(random(&mut state, 3) as i64).filter(|r| *r < 2);
                        uses.end_window(win, rank);
                        let is_its = |u: &Use| match u.until {
                            Until::Window(w, r) => w == win && rank.is_none_or(|rank| r == rank),
                            Until::Request(_) => false,
                        };
                        plain.retain(|u| !is_its(u));
                    }
                    3 => {
                        let call = some_use(&mut state).call;
                        if call.name.starts_with("MPI_R") {
                            uses.end_call(&call);
                            plain.retain(|u| u.call != call);
                        }
                    }
                    _ => {
                        let new = some_use(&mut state);
                        let found = uses.find(new.begin, new.end, new.writes);
                        let mut all = plain.iter().filter(|old| overlap(old, &new));
                        match found {
                            Some(found) => assert!(all.any(|old| old.call == found.call)),
                            None => assert_eq!(all.count(), 0),
                        }
                        found_some += usize::from(found.is_some());
                        assert!(uses.enter(new.clone()));
                        plain.push(new);
                    }
                }
            }
            uses.end_window(0, None);
            uses.end_window(1, None);
            (0..20).for_each(|request| uses.end_request(request));
            assert!(uses.all.is_empty() && uses.calls.is_empty() && uses.last.is_empty());
            assert!(uses.reads.0.is_empty() && uses.writes.0.is_empty());
        }
        assert!(found_some > 0);
    }
}
