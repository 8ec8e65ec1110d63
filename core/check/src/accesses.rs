//! Accesses to a window, so that those that conflict with another one are found by their bytes.
//!
//! Accesses conflict with the same ones when the same call of the same process makes them in the
//! same way. So these are kept together, as bytes and not one by one. Of bytes that are accessed
//! again only the last time counts: who knows that this one is over knows it of those before.
//! Between processes, accesses conflict only when both have made as many fences. What nothing can
//! conflict with any more is dropped: accesses before a fence that all have made, and those of
//! which all know that they are over.

use std::collections::BTreeMap;

use crate::finding::Call;
use crate::state::Moment;

/// Runs of bytes of one window that are remembered. Of more, the older half is forgotten.
const MOST_RUNS: usize = 1 << 18;
/// So many runs are looked through for those that nothing can conflict with any more.
const FIRST_PURGE: usize = 4096;
/// Not over.
const OPEN: u32 = u32::MAX;

pub struct Access {
    pub kind: AccessKind,
    pub target: usize,
    pub begin: i64,
    pub end: i64,
    /// How many fences its process had made before it.
    pub after: u32,
    pub began: Moment,
    /// Over when it began; otherwise at the next synchronization.
    pub is_over: bool,
}

/// What accesses have in common that conflict with the same ones.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessKind {
    pub process: usize,
    pub call: Call,
    pub what: What,
    /// In an epoch of fences.
    pub is_in_fences: bool,
    pub by: By,
    /// A load or store of the window's owner.
    pub is_local: bool,
    /// Its process has learned nothing of others by a lock or by what it got from the window.
    pub is_first: bool,
}

/// What orders an access with those of other processes, beside messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Nothing else.
    Nothing,
    /// A lock, which others have at the same time or not.
    Shared,
    Exclusive,
    /// What is not followed: the groups of `MPI_Win_start` and `MPI_Win_post`, or the values of
    /// operations that fetch.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Reads,
    Writes,
    /// With this operation: 0 where the origin compares.
    Combines(u64),
}

/// When two accesses of overlapping bytes conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conflict {
    Never,
    /// While the first one is not over.
    WhileOpen,
    /// Unless the first one is over and the process of the second one knows it.
    Unordered,
    Always,
}

impl AccessKind {
    /// How an access conflicts with a later one after as many fences.
    fn conflict(&self, new: &AccessKind) -> Conflict {
        const NO_OP: u64 = 0x3d;
        let is_read = |w: What| matches!(w, What::Reads | What::Combines(NO_OP));
        let is_harmless = match (self.what, new.what) {
            (What::Combines(_), What::Combines(_)) => true,
            (a, b) => is_read(a) && is_read(b),
        };
        let is_same = self.process == new.process;
        let has_local = self.is_local || new.is_local;
        if is_harmless || (is_same && has_local) {
            return Conflict::Never;
        }
        if is_same {
            // Those that have been completed are ordered.
            return Conflict::WhileOpen;
        }
        let is_locked = |a: &AccessKind| matches!(a.by, By::Shared | By::Exclusive);
        let is_exclusive = self.by == By::Exclusive || new.by == By::Exclusive;
        let is_kept_apart = is_exclusive && is_locked(self) && is_locked(new);
        if self.by == By::Unknown || new.by == By::Unknown {
            return Conflict::Never;
        }
        let are_in_fences = self.is_in_fences && new.is_in_fences;
        match (has_local, are_in_fences) {
            (false, _) if is_kept_apart => Conflict::Never,
            (false, true) => Conflict::Always,
            (false, false) | (true, true) => Conflict::Unordered,
            (true, false) => {
                let (own, other) = if self.is_local {
                    (self, new)
                } else {
                    (new, self)
                };
                let is_store = own.what == What::Writes;
                let is_seen = is_store && is_locked(other) && own.is_first && other.is_first;
                match is_seen && !is_kept_apart {
                    true => Conflict::Unordered,
                    false => Conflict::Never,
                }
            }
        }
    }
}

/// Accesses to one window.
#[derive(Default)]
pub struct Accesses {
    /// By target, and by the number of fences before them.
    epochs: BTreeMap<(usize, u32), Vec<Alike>>,
    runs: usize,
    next_purge: usize,
    next_number: u64,
}

/// Accesses that conflict with the same ones.
struct Alike {
    kind: AccessKind,
    open: Runs,
    over: Runs,
}

/// Bytes without overlaps, by where they begin.
#[derive(Default)]
struct Runs(BTreeMap<i64, Run>);

#[derive(Clone, Copy)]
struct Run {
    end: i64,
    /// The event of its process that ended it.
    ended: u32,
    /// In the order in which accesses came.
    number: u64,
}

impl Runs {
    /// Those that overlap these bytes.
    fn overlapping(&self, begin: i64, end: i64) -> impl Iterator<Item = &Run> {
        let before = self.0.range(..begin).next_back().map(|(_, run)| run);
        let first = before.filter(|run| run.end > begin && end > begin);
        let others = self.0.range(begin..end.max(begin)).map(|(_, run)| run);
        first.into_iter().chain(others)
    }

    /// Enters bytes in place of what was there; joins them with neighbours that ended with them.
    fn enter(&mut self, mut begin: i64, mut run: Run) {
        if run.end <= begin {
            return;
        }
        if let Some((&at, before)) = self.0.range_mut(..begin).next_back()
            && before.end >= begin
        {
            let old = *before;
            if old.ended == run.ended {
                self.0.remove(&at);
                begin = at;
                run.end = run.end.max(old.end);
                run.number = run.number.min(old.number);
            } else {
                before.end = begin;
                if old.end > run.end {
                    self.0.insert(run.end, old);
                }
            }
        }
        while let Some((&at, &old)) = self.0.range(begin..=run.end).next() {
            let is_alike = old.ended == run.ended;
            if at == run.end && !is_alike {
                break;
            }
            self.0.remove(&at);
            if is_alike {
                run.end = run.end.max(old.end);
                run.number = run.number.min(old.number);
            } else if old.end > run.end {
                self.0.insert(run.end, old);
            }
        }
        self.0.insert(begin, run);
    }
}

impl Accesses {
    /// The first kind of access that conflicts with a new one, and whether it was `late`.
    /// `rank` is the place of a process in moments.
    pub fn find(&self, new: &Access, rank: impl Fn(usize) -> usize) -> Option<&AccessKind> {
        let epoch = self.epochs.get(&(new.target, new.after))?;
        let first = epoch.iter().filter_map(|old| {
            let conflict = old.kind.conflict(&new.kind);
            let open = || old.open.overlapping(new.begin, new.end);
            let over = || old.over.overlapping(new.begin, new.end);
            let number = |run: &Run| run.number;
            let first = match conflict {
                Conflict::Never => None,
                Conflict::WhileOpen => open().map(number).min(),
                Conflict::Always => open().chain(over()).map(number).min(),
                Conflict::Unordered => {
                    let seen = new.began.get(rank(old.kind.process)).copied();
                    let is_unseen = |run: &&Run| seen.is_none_or(|seen| seen < run.ended);
                    open().chain(over().filter(is_unseen)).map(number).min()
                }
            };
            Some((first?, &old.kind))
        });
        first
            .min_by_key(|(number, _)| *number)
            .map(|(_, kind)| kind)
    }

    /// Enters an access. `rank`: the place of its process in moments.
    pub fn enter(&mut self, new: Access, rank: usize) {
        let epoch = self.epochs.entry((new.target, new.after)).or_default();
        let at = epoch.iter().position(|alike| alike.kind == new.kind);
        let at = at.unwrap_or_else(|| {
            epoch.push(Alike {
                kind: new.kind,
                open: Runs::default(),
                over: Runs::default(),
            });
            epoch.len() - 1
        });
        let to = match new.is_over {
            true => &mut epoch[at].over,
            false => &mut epoch[at].open,
        };
        let ended = match new.is_over {
            true => new.began.get(rank).copied().unwrap_or(OPEN - 1),
            false => OPEN,
        };
        let run = Run {
            end: new.end,
            ended,
            number: self.next_number,
        };
        let before = to.0.len();
        to.enter(new.begin, run);
        self.runs = self.runs + to.0.len() - before;
        self.next_number += 1;
    }

    /// A process has completed its accesses to a target, or to all of them.
    pub fn complete(&mut self, process: usize, target: Option<usize>, now: u32) {
        let (first, last) = target.map_or((0, usize::MAX), |target| (target, target));
        let epochs = self.epochs.range_mut((first, 0)..=(last, u32::MAX));
        for alike in epochs.flat_map(|(_, epoch)| epoch) {
            if alike.kind.process == process {
                self.runs -= alike.open.0.len() + alike.over.0.len();
                alike.complete(now);
                self.runs += alike.over.0.len();
            }
        }
    }

    /// The accesses that a call has made are over.
    pub fn complete_call(&mut self, call: &Call, now: u32) {
        for alike in self.epochs.values_mut().flatten() {
            if alike.kind.call == *call {
                self.runs -= alike.open.0.len() + alike.over.0.len();
                alike.complete(now);
                self.runs += alike.over.0.len();
            }
        }
    }

    /// All processes have made as many fences, or have freed the window.
    pub fn forget_before(&mut self, fences: u32) {
        self.epochs.retain(|(_, after), epoch| {
            let is_kept = *after >= fences;
            if !is_kept {
                let of = |alike: &Alike| alike.open.0.len() + alike.over.0.len();
                self.runs -= epoch.iter().map(of).sum::<usize>();
            }
            is_kept
        });
    }

    /// Whether it is time for [`Accesses::purge`].
    pub fn is_full(&self) -> bool {
        self.runs >= self.next_purge.max(FIRST_PURGE)
    }

    /// Drops what nothing can conflict with any more. `known`: of a process, the event of it up to
    /// which all others know what it has done. Returns whether more had to be forgotten.
    pub fn purge(&mut self, known: impl Fn(usize) -> u32) -> bool {
        self.retain(|kind, run| kind.is_in_fences || run.ended > known(kind.process));
        let is_too_much = self.runs > MOST_RUNS / 2;
        if is_too_much {
            let all = (self.epochs.values().flatten())
                .flat_map(|alike| alike.open.0.values().chain(alike.over.0.values()));
            let mut numbers: Vec<u64> = all.map(|run| run.number).collect();
            let middle = numbers.len() / 2;
            let (_, &mut middle, _) = numbers.select_nth_unstable(middle);
            self.retain(|_, run| run.number > middle);
        }
        self.next_purge = self.runs * 2;
        is_too_much
    }

    fn retain(&mut self, is_kept: impl Fn(&AccessKind, &Run) -> bool) {
        self.runs = 0;
        self.epochs.retain(|_, epoch| {
            epoch.retain_mut(|alike| {
                let kind = &alike.kind;
                alike.open.0.retain(|_, run| is_kept(kind, run));
                alike.over.0.retain(|_, run| is_kept(kind, run));
                self.runs += alike.open.0.len() + alike.over.0.len();
                !alike.open.0.is_empty() || !alike.over.0.is_empty()
            });
            !epoch.is_empty()
        });
    }
}

impl Alike {
    fn complete(&mut self, now: u32) {
        let open = std::mem::take(&mut self.open.0);
        if self.kind.by == By::Unknown {
            // These conflict with nothing any more.
            return;
        }
        for (begin, run) in open {
            self.over.enter(begin, Run { ended: now, ..run });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Site;

    const PROCESSES: usize = 3;

    /// An access in the plain model, which keeps all of them, one by one.
    struct Plain {
        kind: AccessKind,
        target: usize,
        bytes: (i64, i64),
        after: u32,
        ended: Option<Moment>,
    }

    impl Plain {
        fn conflicts(&self, new: &Access) -> bool {
            let (old, kind) = (&self.kind, &new.kind);
            let is_apart =
                self.target != new.target || self.bytes.1 <= new.begin || new.end <= self.bytes.0;
            let is_read = |w: What| matches!(w, What::Reads | What::Combines(0x3d));
            let are_combined = matches!(
                (old.what, kind.what),
                (What::Combines(_), What::Combines(_))
            );
            if is_apart || are_combined || (is_read(old.what) && is_read(kind.what)) {
                return false;
            }
            let of = old.process;
            let is_before = (self.ended.as_ref()).is_some_and(|end| new.began[of] >= end[of]);
            let is_same = old.process == kind.process;
            let is_unknown = old.by == By::Unknown || kind.by == By::Unknown;
            let is_locked = |a: &AccessKind| matches!(a.by, By::Shared | By::Exclusive);
            let is_exclusive = old.by == By::Exclusive || kind.by == By::Exclusive;
            let in_fences = old.is_in_fences && kind.is_in_fences;
            if old.is_local || kind.is_local {
                if is_same || is_unknown || is_before {
                    return false;
                }
                if in_fences {
                    return self.after == new.after;
                }
                let (own, other) = if old.is_local {
                    (old, kind)
                } else {
                    (kind, old)
                };
                return own.what == What::Writes
                    && is_locked(other)
                    && !(is_exclusive && is_locked(own))
                    && self.after == new.after
                    && own.is_first
                    && other.is_first;
            }
            if is_same {
                return self.ended.is_none();
            }
            if is_unknown || (is_exclusive && is_locked(old) && is_locked(kind)) {
                return false;
            }
            if in_fences {
                return self.after == new.after;
            }
            self.after == new.after && !is_before
        }
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, n: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) % n
        }

        fn access(&mut self, process: usize, after: u32, began: Moment) -> Access {
            let begin = self.below(60) as i64;
            let is_local = self.below(6) == 0;
            let kinds = [
                What::Reads,
                What::Writes,
                What::Combines(3),
                What::Combines(0x3d),
            ];
            let orders = [By::Nothing, By::Shared, By::Exclusive, By::Unknown];
            let address = self.below(2);
            let kind = AccessKind {
                process,
                call: Call {
                    name: format!("MPI_Call{address}"),
                    site: Site { process, address },
                },
                what: kinds[self.below(if is_local { 2 } else { 4 }) as usize],
                is_in_fences: self.below(3) == 0,
                by: orders[self.below(4) as usize],
                is_local,
                is_first: self.below(2) == 0,
            };
            Access {
                kind,
                target: self.below(2) as usize,
                begin,
                end: begin + 1 + self.below(12) as i64,
                after,
                began,
                is_over: is_local || self.below(8) == 0,
            }
        }
    }

    struct Model {
        random: Random,
        moments: [[u32; PROCESSES]; PROCESSES],
        fences: [u32; PROCESSES],
        plain: Vec<Plain>,
        accesses: Accesses,
        conflicts: usize,
    }

    impl Model {
        fn enter(&mut self, process: usize) {
            self.moments[process][process] += 1;
            let began: Moment = self.moments[process].as_slice().into();
            let new = self
                .random
                .access(process, self.fences[process], began.clone());
            let found = self.accesses.find(&new, |process| process);
            let mut all = self.plain.iter().filter(|old| old.conflicts(&new));
            match found {
                Some(kind) => assert!(all.any(|old| old.kind == *kind)),
                None => assert_eq!(all.count(), 0),
            }
            self.conflicts += usize::from(found.is_some());
            self.plain.push(Plain {
                kind: new.kind.clone(),
                target: new.target,
                bytes: (new.begin, new.end),
                after: new.after,
                ended: new.is_over.then_some(began),
            });
            self.accesses.enter(new, process);
        }

        fn complete(&mut self, process: usize, target: Option<usize>) {
            self.moments[process][process] += 1;
            let now: Moment = self.moments[process].as_slice().into();
            self.accesses.complete(process, target, now[process]);
            let is_its = |a: &Plain| {
                a.kind.process == process && target.is_none_or(|target| target == a.target)
            };
            for access in self.plain.iter_mut().filter(|a| is_its(a)) {
                access.ended.get_or_insert_with(|| now.clone());
            }
        }

        fn purge(&mut self) {
            let moments = &self.moments;
            let known = |of: usize| {
                let others = (0..PROCESSES).filter(|other| *other != of);
                others.map(|other| moments[other][of]).min().unwrap_or(0)
            };
            assert!(!self.accesses.purge(known));
        }

        fn step(&mut self) {
            let process = self.random.below(PROCESSES as u64) as usize;
            match self.random.below(24) {
                0 => self.complete(process, None),
                1 => {
                    let target = self.random.below(2) as usize;
                    self.complete(process, Some(target));
                }
                2 | 3 => {
                    let from = self.moments[self.random.below(PROCESSES as u64) as usize];
                    let own = self.moments[process].iter_mut();
                    own.zip(from)
                        .for_each(|(own, other)| *own = other.max(*own));
                }
                4 if self.random.below(4) == 0 => {
                    self.complete(process, None);
                    self.fences[process] += 1;
                    let all = self.fences.iter().min().copied().unwrap_or(0);
                    self.accesses.forget_before(all);
                }
                5 => self.purge(),
                _ => self.enter(process),
            }
        }
    }

    #[test]
    fn conflicts_are_those_of_a_list_of_all_accesses() {
        let mut conflicts = 0;
        // Each access is compared with all before it: under Miri 400 of them take minutes.
        let (seeds, steps) = if cfg!(miri) { (1, 60) } else { (200, 400) };
        for seed in 1..=seeds {
            let mut model = Model {
                random: Random(u64::wrapping_mul(seed, 0x9E37_79B9_7F4A_7C15)),
                moments: Default::default(),
                fences: Default::default(),
                plain: Vec::new(),
                accesses: Accesses::default(),
                conflicts: 0,
            };
            (0..steps).for_each(|_| model.step());
            conflicts += model.conflicts;
            let runs = |epoch: &Vec<Alike>| -> usize {
                epoch.iter().map(|a| a.open.0.len() + a.over.0.len()).sum()
            };
            let runs: usize = model.accesses.epochs.values().map(runs).sum();
            assert_eq!(model.accesses.runs, runs);
        }
        assert!(conflicts > 0);
    }

    #[test]
    fn accesses_side_by_side_are_one_run() {
        let mut accesses = Accesses::default();
        let mut random = Random(1);
        let began: Moment = [1, 0, 0].into();
        for i in 0..if cfg!(miri) { 100 } else { 1000 } {
            let mut new = random.access(0, 0, began.clone());
            new.kind = AccessKind {
                what: What::Writes,
                by: By::Shared,
                is_in_fences: false,
                is_local: false,
                is_first: true,
                call: Call {
                    name: "MPI_Put".into(),
                    site: Site {
                        process: 0,
                        address: 1,
                    },
                },
                process: 0,
            };
            (new.target, new.begin, new.end, new.is_over) = (0, 4 * i, 4 * i + 4, false);
            accesses.enter(new, 0);
        }
        assert_eq!(accesses.runs, 1);
        accesses.complete(0, None, 2);
        assert_eq!(accesses.runs, 1);
        accesses.purge(|_| 2);
        assert_eq!(accesses.runs, 0);
    }
}
