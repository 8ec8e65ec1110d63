//! Locks on files of one file system that is mounted on several hosts: `fcntl` and `flock`. Each
//! kernel hands its programs' locks on to the service, which decides for all.

use std::collections::BTreeMap;

/// Which lock it is among those of a file, as each kernel numbers its programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// The mount.
    pub mount: u64,
    /// The program's table of files, or its open file for `flock`.
    pub owner: u64,
    /// Whether it is `flock`'s, which has nothing to do with the others.
    pub is_whole: bool,
}

/// A range that is locked, or is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub first: u64,
    /// The last byte of it.
    pub last: u64,
    pub is_write: bool,
    /// The process, as its host numbers it.
    pub pid: u32,
}

/// A request that waits: its mount and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    pub mount: u64,
    pub request: u64,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Granted,
    /// Somebody else has it.
    Refused,
    /// It is granted later.
    Waits,
    /// It would wait for itself.
    Deadlock,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    waiter: Waiter,
    file: u64,
    holder: Holder,
    range: Range,
}

/// All locks.
#[derive(Debug, Default)]
pub struct Locks {
    held: BTreeMap<u64, Vec<(Holder, Range)>>,
    /// In the order in which they came.
    waiting: Vec<Waiting>,
}

impl Range {
    fn meets(&self, other: &Range) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

impl Locks {
    /// The first lock of others that is in the way of this one.
    pub fn conflict(&self, file: u64, holder: Holder, range: Range) -> Option<(Holder, Range)> {
        self.against(file, holder, range).next()
    }

    /// Whether no lock that is held is in the way of another one.
    pub fn are_in_order(&self) -> bool {
        let mut all = self.held.iter();
        all.all(|(file, locks)| {
            let mut locks = locks.iter();
            locks.all(|(holder, range)| self.conflict(*file, *holder, *range).is_none())
        })
    }

    fn against(
        &self,
        file: u64,
        holder: Holder,
        range: Range,
    ) -> impl Iterator<Item = (Holder, Range)> {
        let held = self.held.get(&file).into_iter().flatten().copied();
        held.filter(move |(other, there)| {
            *other != holder
                && other.is_whole == holder.is_whole
                && (range.is_write || there.is_write)
                && there.meets(&range)
        })
    }

    /// Locks a range; `waiter`: whose request is answered later, if it has to wait.
    pub fn lock(
        &mut self,
        file: u64,
        holder: Holder,
        range: Range,
        waiter: Option<Waiter>,
    ) -> Asked {
        if self.conflict(file, holder, range).is_none() {
            self.set(file, holder, range);
            return Asked::Granted;
        }
        let Some(waiter) = waiter else {
            return Asked::Refused;
        };
        if !holder.is_whole && self.leads_to(file, holder, range, holder, &mut Vec::new()) {
            return Asked::Deadlock;
        }
        self.waiting.push(Waiting {
            waiter,
            file,
            holder,
            range,
        });
        Asked::Waits
    }

    /// Takes a range out of a holder's locks; returns those who need not wait any more.
    pub fn unlock(&mut self, file: u64, holder: Holder, first: u64, last: u64) -> Vec<Waiter> {
        self.cut(file, holder, first, last);
        self.grant(file)
    }

    /// A request that waits is not wanted any more; returns whether there was one.
    pub fn cancel(&mut self, waiter: Waiter) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| waiting.waiter != waiter);
        before != self.waiting.len()
    }

    /// A mount is gone with all its locks; returns those who need not wait any more.
    pub fn leave(&mut self, mount: u64) -> Vec<Waiter> {
        self.waiting.retain(|waiting| waiting.waiter.mount != mount);
        let files: Vec<u64> = self.held.keys().copied().collect();
        let mut granted = Vec::new();
        for file in files {
            if let Some(held) = self.held.get_mut(&file) {
                held.retain(|(holder, _)| holder.mount != mount);
            }
            granted.extend(self.grant(file));
        }
        granted
    }

    /// Whether waiting for a range is waiting for `goal`, as its holders wait for others.
    fn leads_to(
        &self,
        file: u64,
        holder: Holder,
        range: Range,
        goal: Holder,
        seen: &mut Vec<Holder>,
    ) -> bool {
        for (other, _) in self.against(file, holder, range) {
            if other == goal {
                return true;
            }
            if seen.contains(&other) {
                continue;
            }
            seen.push(other);
            let waits = self.waiting.iter().filter(|w| w.holder == other);
            for waiting in waits {
                if self.leads_to(waiting.file, other, waiting.range, goal, seen) {
                    return true;
                }
            }
        }
        false
    }

    fn set(&mut self, file: u64, holder: Holder, range: Range) {
        self.cut(file, holder, range.first, range.last);
        self.held.entry(file).or_default().push((holder, range));
    }

    fn cut(&mut self, file: u64, holder: Holder, first: u64, last: u64) {
        let Some(held) = self.held.get_mut(&file) else {
            return;
        };
        let mut rests = Vec::new();
        held.retain(|(other, there)| {
            if *other != holder || there.first > last || there.last < first {
                return true;
            }
            if there.first < first {
                let last = first - 1;
                rests.push((holder, Range { last, ..*there }));
            }
            if there.last > last {
                let first = last + 1;
                rests.push((holder, Range { first, ..*there }));
            }
            false
        });
        held.extend(rests);
        if held.is_empty() {
            self.held.remove(&file);
        }
    }

    fn grant(&mut self, file: u64) -> Vec<Waiter> {
        let mut granted = Vec::new();
        let mut at = 0;
        while let Some(waiting) = self.waiting.get(at).copied() {
            let Waiting { holder, range, .. } = waiting;
            if waiting.file != file || self.conflict(file, holder, range).is_some() {
                at += 1;
                continue;
            }
            self.waiting.remove(at);
            self.set(file, holder, range);
            granted.push(waiting.waiter);
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u64 = 7;

    fn holder(mount: u64, owner: u64) -> Holder {
        Holder {
            mount,
            owner,
            is_whole: false,
        }
    }

    fn range(first: u64, last: u64, is_write: bool) -> Range {
        Range {
            first,
            last,
            is_write,
            pid: 1,
        }
    }

    /// A model that keeps a set of holders for each of 16 bytes.
    #[test]
    fn locks_are_as_those_of_a_model_with_one_byte_each() {
        const BYTES: u64 = 16;
        for seed in 0..300 {
            let mut state: u64 = seed;
            let mut next = |most: u64| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % most
            };
            let mut locks = Locks::default();
            let mut model: Vec<Vec<(Holder, bool)>> = vec![Vec::new(); BYTES as usize];
            for _ in 0..200 {
                let who = holder(next(2), next(2));
                let (a, b) = (next(BYTES), next(BYTES));
                let wanted = range(a.min(b), a.max(b), next(2) == 0);
                let bytes = wanted.first as usize..=wanted.last as usize;
                let against = |held: &Vec<(Holder, bool)>| {
                    let mut others = held.iter().filter(|(other, _)| *other != who);
                    others.any(|(_, is_write)| *is_write || wanted.is_write)
                };
                if next(3) == 0 {
                    assert!(
                        locks
                            .unlock(FILE, who, wanted.first, wanted.last)
                            .is_empty()
                    );
                    for held in &mut model[bytes] {
                        held.retain(|(other, _)| *other != who);
                    }
                } else if model[bytes.clone()].iter().any(against) {
                    assert_eq!(locks.lock(FILE, who, wanted, None), Asked::Refused);
                    assert!(locks.conflict(FILE, who, wanted).is_some());
                } else {
                    assert_eq!(locks.conflict(FILE, who, wanted), None);
                    assert_eq!(locks.lock(FILE, who, wanted, None), Asked::Granted);
                    for held in &mut model[bytes] {
                        held.retain(|(other, _)| *other != who);
                        held.push((who, wanted.is_write));
                    }
                }
            }
        }
    }

    #[test]
    fn who_waits_is_granted_in_order_and_nobody_waits_for_itself() {
        let mut locks = Locks::default();
        let (a, b, c) = (holder(1, 1), holder(2, 1), holder(3, 1));
        let waiter = |mount| Waiter { mount, request: 9 };
        let all = range(0, u64::MAX, true);
        assert_eq!(locks.lock(FILE, a, all, None), Asked::Granted);
        let read = range(0, 9, false);
        assert_eq!(locks.lock(FILE, b, read, Some(waiter(2))), Asked::Waits);
        assert_eq!(locks.lock(FILE, c, read, Some(waiter(3))), Asked::Waits);
        assert_eq!(locks.lock(8, b, all, None), Asked::Granted);
        assert_eq!(locks.lock(8, a, all, Some(waiter(1))), Asked::Deadlock);
        // The same program, by flock: that is another matter.
        let whole = Holder {
            is_whole: true,
            ..a
        };
        assert_eq!(locks.lock(FILE, whole, all, None), Asked::Granted);
        assert!(locks.cancel(waiter(3)) && !locks.cancel(waiter(3)));
        assert_eq!(locks.lock(FILE, c, read, Some(waiter(3))), Asked::Waits);
        assert_eq!(locks.unlock(FILE, a, 0, 4), []);
        assert_eq!(locks.unlock(FILE, a, 5, u64::MAX), [waiter(2), waiter(3)]);
        assert_eq!(locks.lock(FILE, a, all, Some(waiter(1))), Asked::Waits);
        assert_eq!(locks.leave(2), []);
        assert_eq!(locks.leave(3), [waiter(1)]);
    }
}
