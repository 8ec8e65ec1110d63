//! Who runs which member of a team.
//!
//! The members whose numbers are the same modulo the number of workers are a class. A class belongs to one worker, so that a
//! member is where it was in the region before, and so that members that will meet in barriers are spread over all workers:
//! one that has begun stays where it is. A worker that has nothing else to do takes members of other classes only when
//! their worker is late.
//!
//! Members with places are in classes by their places instead, and nobody takes those of others in passing: the thread would
//! have to go to other processors and back.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A worker is late when it has not come for so long ...
const LATE_NS: u64 = 50_000;
/// ... or, for an outermost team, for so long: that worker has nothing else to do, and is on its way, if not from sleep then
/// from other processes.
const LATE_OUTERMOST_NS: u64 = 1_500_000;

/// The members of a team that nobody has claimed. The first belongs to who forks and is never claimed.
#[derive(Debug)]
pub struct Claims {
    size: u32,
    workers: u32,
    classes: Vec<Class>,
    /// How many groups of members with the same place there are, one after another and as even as can be; 0 without places.
    groups: AtomicU32,
    /// How long the others' workers have until they are late, in nanoseconds.
    patience_ns: AtomicU64,
    /// When they are; 0 until somebody wants to know, so that who forks need not read a clock.
    late_at_ns: AtomicU64,
}

/// On lines of its own: mostly one worker claims in it.
#[derive(Debug)]
#[repr(align(128))]
struct Class {
    /// A [`Left`] as one word: who was late from a region before must not go on in this one by what it saw of that.
    left: AtomicU64,
    /// The worker's number plus one; 0 before one has come.
    owner: AtomicU32,
}

impl Claims {
    /// Of a team of `size`; nothing can be claimed before [`open`](Self::open).
    #[must_use]
    pub fn new(size: u32, workers: u32) -> Claims {
        Claims {
            size,
            workers: workers.max(1),
            classes: (0..workers.clamp(1, size.max(1)))
                .map(|_| Class::new())
                .collect(),
            groups: AtomicU32::new(0),
            patience_ns: AtomicU64::new(0),
            late_at_ns: AtomicU64::new(0),
        }
    }

    /// In the next region the members are in so many groups with a place each, see [`group_of`]; 0: they have no places.
    pub fn group_by_place(&self, groups: u32) {
        self.groups.store(groups.min(self.size), Ordering::Relaxed);
    }

    /// Whether members are kept to places, in the next region or the one that goes on.
    #[inline]
    #[must_use]
    pub fn has_places(&self) -> bool {
        self.groups.load(Ordering::Relaxed) != 0
    }

    /// All members but the first can be claimed; the region is ready for them. Who is late from the region before may claim
    /// while this is under way.
    pub fn open(&self, forker: u32, is_outermost: bool) {
        let count = self.classes.len() as u32;
        let groups = self.groups.load(Ordering::Relaxed);
        let patience = if is_outermost {
            LATE_OUTERMOST_NS
        } else {
            LATE_NS
        };
        self.patience_ns.store(patience, Ordering::Relaxed);
        self.late_at_ns.store(0, Ordering::Relaxed);
        for (at, class) in self.classes.iter().enumerate() {
            let at = at as u32;
            let step_is_one = groups != 0;
            let (first, end) = if groups == 0 {
                (at, self.size)
            } else {
                let used = count.min(groups);
                let begin = |class: u32| {
                    let group = (u64::from(class) * u64::from(groups) / u64::from(used)) as u32;
                    first_of_group(group, self.size, groups)
                };
                (begin(at.min(used)), begin((at + 1).min(used)))
            };
            // The forker has the first member.
            let (owner, next) = match at {
                0 if groups == 0 => (forker + 1, count),
                0 => (forker + 1, 1),
                _ => (0, first),
            };
            class.owner.store(owner, Ordering::Relaxed);
            let left = Left {
                next,
                end,
                step_is_one,
            };
            class.left.store(left.word(), Ordering::Release);
        }
    }

    /// Whether there is anything to claim.
    #[inline]
    #[must_use]
    pub fn has_unclaimed(&self) -> bool {
        self.classes.iter().any(Class::is_left)
    }

    /// Whether there is a member that this worker should run now.
    #[must_use]
    pub fn is_open_for(&self, worker: u32, now_ns: impl Fn() -> u64) -> bool {
        let me = worker + 1;
        let mut has_own = false;
        let mut is_any_free = false;
        for class in &self.classes {
            match class.owner.load(Ordering::Relaxed) {
                0 => is_any_free |= class.is_left(),
                owner if owner == me => {
                    has_own = true;
                    if class.is_left() {
                        return true;
                    }
                }
                _ => {}
            }
        }
        (!has_own && is_any_free) || (self.has_unclaimed() && self.is_late(now_ns))
    }

    /// Whether the others' workers have had their time, which begins when this is asked first.
    fn is_late(&self, now_ns: impl Fn() -> u64) -> bool {
        let now_ns = now_ns();
        let late_at_ns = self.late_at_ns.load(Ordering::Relaxed);
        if late_at_ns == 0 {
            self.start_patience(now_ns);
            return false;
        }
        now_ns > late_at_ns
    }

    /// From now on the others' workers have their time, unless it has begun.
    pub fn start_patience(&self, now_ns: u64) {
        let late_at_ns = now_ns + self.patience_ns.load(Ordering::Relaxed);
        // Whoever was first.
        let _ =
            self.late_at_ns
                .compare_exchange(0, late_at_ns, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Claims a member for a worker: of its own class, of one that nobody has, or, if late, or `any` without places, of whichever.
    pub fn claim(&self, worker: u32, any: bool, now_ns: impl Fn() -> u64) -> Option<u32> {
        if !self.has_unclaimed() {
            return None;
        }
        let me = worker + 1;
        let mut has_own = false;
        for class in &self.classes {
            if class.owner.load(Ordering::Relaxed) == me {
                has_own = true;
                if let Some(member) = self.claim_in(class) {
                    return Some(member);
                }
            }
        }
        if !has_own && let Some(member) = self.claim_class(worker) {
            return Some(member);
        }
        let any = any && !self.has_places();
        if any || self.is_late(now_ns) {
            return self.classes.iter().find_map(|class| self.claim_in(class));
        }
        None
    }

    /// Claims a class that nobody has, the one that the worker had before if possible, and a member of it.
    fn claim_class(&self, worker: u32) -> Option<u32> {
        // Relative to the forking worker, so that the members of nested teams are not all on the same workers.
        let forker = self.classes[0]
            .owner
            .load(Ordering::Relaxed)
            .saturating_sub(1);
        let nearest = (worker + self.workers - forker % self.workers) % self.workers;
        let count = self.classes.len();
        (0..count)
            .map(|step| &self.classes[(nearest as usize + step) % count])
            .filter(|class| class.is_left())
            .filter(|class| {
                let free = class.owner.compare_exchange(
                    0,
                    worker + 1,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                free.is_ok()
            })
            .find_map(|class| self.claim_in(class))
    }

    fn claim_in(&self, class: &Class) -> Option<u32> {
        let mut word = class.left.load(Ordering::Acquire);
        loop {
            let left = Left::of(word);
            if left.next >= left.end {
                return None;
            }
            let step = if left.step_is_one {
                1
            } else {
                self.classes.len() as u32
            };
            let after = Left {
                next: left.next + step,
                ..left
            };
            match class.left.compare_exchange_weak(
                word,
                after.word(),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(left.next),
                Err(seen) => word = seen,
            }
        }
    }
}

/// What is left of a class.
#[derive(Clone, Copy, Debug)]
struct Left {
    /// The next member to claim.
    next: u32,
    /// Where they end: there are no more members than a positive `int` can tell.
    end: u32,
    /// Whether they are one after another; else a member out of as many as there are classes is of this one.
    step_is_one: bool,
}

impl Left {
    fn word(self) -> u64 {
        u64::from(self.next) | u64::from(self.end) << 32 | u64::from(self.step_is_one) << 63
    }

    fn of(word: u64) -> Left {
        Left {
            next: word as u32,
            end: (word >> 32) as u32 & (u32::MAX >> 1),
            step_is_one: word >> 63 != 0,
        }
    }
}

impl Class {
    /// With nothing left.
    fn new() -> Class {
        Class {
            left: AtomicU64::new(0),
            owner: AtomicU32::new(0),
        }
    }

    #[inline]
    fn is_left(&self) -> bool {
        let left = Left::of(self.left.load(Ordering::Acquire));
        left.next < left.end
    }
}

/// In which of so many groups member `id` is: they are one after another, the first ones longer by one.
#[must_use]
pub fn group_of(id: u32, size: u32, groups: u32) -> u32 {
    let (width, longer) = (size / groups, size % groups);
    let in_longer = longer * (width + 1);
    if id < in_longer {
        id / (width + 1)
    } else {
        longer + (id - in_longer) / width
    }
}

fn first_of_group(group: u32, size: u32, groups: u32) -> u32 {
    let (width, longer) = (size / groups, size % groups);
    group * width + group.min(longer)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EARLY: fn() -> u64 = || 0;
    const LATE: fn() -> u64 = || 1 << 40;

    #[test]
    fn workers_keep_to_their_classes_until_others_are_late() {
        let claims = Claims::new(8, 4);
        assert!(!claims.has_unclaimed());
        claims.open(2, true);
        claims.start_patience(0);
        // The forker is worker 2: its class is 0, 4; worker 3 has 1, 5.
        assert_eq!(claims.claim(3, false, EARLY), Some(1));
        assert_eq!(claims.claim(3, false, EARLY), Some(5));
        assert_eq!(claims.claim(3, false, EARLY), None);
        assert!(!claims.is_open_for(3, EARLY) && claims.is_open_for(3, LATE));
        assert_eq!(claims.claim(2, false, EARLY), Some(4));
        assert_eq!(claims.claim(3, false, LATE), Some(2));
        assert_eq!(claims.claim(0, false, EARLY), Some(6), "its class is 2");
        let rest: Vec<u32> = std::iter::from_fn(|| claims.claim(2, true, EARLY)).collect();
        assert_eq!(rest, [3, 7]);
        assert!(!claims.has_unclaimed());
    }

    #[test]
    fn the_time_until_others_are_late_begins_when_somebody_asks() {
        let claims = Claims::new(4, 2);
        for is_outermost in [true, false] {
            claims.open(0, is_outermost);
            assert_eq!(claims.claim(1, false, LATE), Some(1));
            assert_eq!(claims.claim(1, false, LATE), Some(3));
            assert_eq!(
                claims.claim(1, false, LATE),
                None,
                "nobody has asked before"
            );
            let patience = if is_outermost {
                LATE_OUTERMOST_NS
            } else {
                LATE_NS
            };
            assert_eq!(claims.claim(1, false, || LATE() + patience), None);
            assert_eq!(claims.claim(1, false, || LATE() + patience + 1), Some(2));
        }
    }

    #[test]
    fn a_worker_without_a_class_of_its_own_takes_a_free_one() {
        let claims = Claims::new(2, 8);
        claims.open(0, true);
        claims.start_patience(0);
        assert!(claims.is_open_for(5, EARLY) && !claims.is_open_for(0, EARLY));
        assert_eq!(claims.claim(5, false, EARLY), Some(1));
        assert_eq!(claims.claim(1, true, EARLY), None);
    }

    #[test]
    fn members_with_places_are_in_classes_by_place() {
        for (size, groups, workers) in [(7, 3, 3), (8, 2, 4), (5, 5, 2), (4, 1, 2), (3, 3, 8)] {
            let claims = Claims::new(size, workers);
            claims.group_by_place(groups);
            claims.open(0, true);
            claims.start_patience(0);
            let mut all = vec![0];
            for worker in 0..workers {
                let own: Vec<u32> =
                    std::iter::from_fn(|| claims.claim(worker, true, EARLY)).collect();
                let places: Vec<u32> = own.iter().map(|&id| group_of(id, size, groups)).collect();
                assert!(
                    workers < groups || places.windows(2).all(|two| two[0] == two[1]),
                    "{size} {groups}: {own:?}"
                );
                all.extend(own);
            }
            assert!(
                !claims.has_unclaimed(),
                "{size} {groups} {workers}: {all:?}"
            );
            all.sort_unstable();
            assert_eq!(all, (0..size).collect::<Vec<u32>>());
            for group in 0..groups {
                assert_eq!(
                    group_of(first_of_group(group, size, groups), size, groups),
                    group
                );
            }
        }
    }

    #[test]
    fn places_of_others_are_left_to_them_until_they_are_late() {
        let claims = Claims::new(4, 2);
        claims.group_by_place(2);
        claims.open(0, true);
        claims.start_patience(0);
        assert_eq!(claims.claim(1, true, EARLY), Some(2));
        assert_eq!(claims.claim(0, true, EARLY), Some(1));
        assert_eq!(claims.claim(0, true, EARLY), None);
        assert!(!claims.is_open_for(0, EARLY) && claims.is_open_for(0, LATE));
        assert_eq!(claims.claim(0, true, LATE), Some(3));
        assert!(!claims.has_unclaimed());
        // Without places again: by number.
        claims.group_by_place(0);
        claims.open(0, true);
        claims.start_patience(0);
        assert_eq!(claims.claim(1, false, EARLY), Some(1));
        assert_eq!(claims.claim(0, false, EARLY), Some(2));
        assert_eq!(claims.claim(0, true, EARLY), Some(3));
    }

    #[test]
    fn each_member_is_claimed_once_by_many() {
        let claims = Claims::new(1000, 3);
        claims.open(0, false);
        claims.start_patience(0);
        let mut all: Vec<u32> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..3)
                .map(|worker| {
                    let claims = &claims;
                    scope.spawn(move || {
                        let claim = || claims.claim(worker, true, EARLY);
                        std::iter::from_fn(claim).collect::<Vec<u32>>()
                    })
                })
                .collect();
            let joined = workers.into_iter().map(|worker| worker.join());
            joined.flat_map(Result::unwrap).collect()
        });
        all.sort_unstable();
        assert_eq!(all, (1..1000).collect::<Vec<u32>>());
    }
}
