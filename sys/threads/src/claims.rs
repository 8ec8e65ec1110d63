//! Which worker runs which member of a team.
//!
//! The members whose numbers are equal modulo the number of workers are a class. A class belongs to
//! one worker, so that a member runs where it ran in the region before, and so that members that
//! will wait for each other in barriers are spread over all workers: a member that has begun stays
//! on its worker. A worker without other work claims members of other classes only when their
//! worker is late.
//!
//! Members with places are in classes by their places instead, and a worker that passes by claims
//! no members of other classes: its thread would have to move to other processors and back.

use margay_sys_os::sync::{AtomicU32, AtomicU64, Ordering};

/// Grace period of workers: one that has not claimed its members after this time is late ...
const GRACE_NS: u64 = 50_000;
/// ... or after this time, for an outermost team. Such a worker has nothing else to do and is on
/// its way: it wakes up, or other processes have its core.
const OUTERMOST_GRACE_NS: u64 = 1_500_000;

/// The members of a team that no worker has claimed. The first member belongs to the forking worker
/// and is never claimed.
#[derive(Debug)]
pub struct Claims {
    size: u32,
    workers: u32,
    classes: Vec<MemberClass>,
    /// Groups of members with the same place, one after another and as even as possible; 0 without
    /// places.
    groups: AtomicU32,
    /// The grace period of this region, in nanoseconds.
    grace_ns: AtomicU64,
    /// When it ends; 0 until a worker needs to know, so that the forking worker need not read a
    /// clock.
    late_at_ns: AtomicU64,
}

/// A class of members. On cache lines of its own: mostly one worker claims in it.
#[derive(Debug)]
#[repr(C, align(128))]
struct MemberClass {
    /// An [`Unclaimed`] as one word: a worker that is late from the region before must not claim in
    /// this one by what it saw of that.
    unclaimed: AtomicU64,
    /// The number of the worker that has the class, plus one; 0 for none.
    owner: AtomicU32,
}

impl Claims {
    /// For a team of `size`; nothing can be claimed before [`open`](Self::open).
    #[must_use]
    pub fn new(size: u32, workers: u32) -> Claims {
        Claims {
            size,
            workers: workers.max(1),
            classes: (0..workers.clamp(1, size.max(1)))
                .map(|_| MemberClass::new())
                .collect(),
            groups: AtomicU32::new(0),
            grace_ns: AtomicU64::new(0),
            late_at_ns: AtomicU64::new(0),
        }
    }

    /// Where the classes are, for those who read them from outside: the address of the first, which
    /// begins with its word, the distance to the next, and how many there are.
    #[must_use]
    pub fn places(&self) -> (usize, usize, u32) {
        let first = self.classes.as_ptr().addr();
        (first, size_of::<MemberClass>(), self.classes.len() as u32)
    }

    /// In the next region the members are in this many groups with a place each, see [`group_of`];
    /// 0: they have no places.
    pub fn group_by_place(&self, groups: u32) {
        self.groups.store(groups.min(self.size), Ordering::Relaxed);
    }

    /// Whether members have places, in the next region or the current one.
    #[inline]
    #[must_use]
    pub fn has_places(&self) -> bool {
        self.groups.load(Ordering::Relaxed) != 0
    }

    /// From now on all members but the first can be claimed: the region is ready for them. Workers
    /// that are late from the region before may claim during this call.
    pub fn open(&self, forker: u32, is_outermost: bool) {
        let count = self.classes.len() as u32;
        let groups = self.groups.load(Ordering::Relaxed);
        let grace_ns = if is_outermost {
            OUTERMOST_GRACE_NS
        } else {
            GRACE_NS
        };
        self.grace_ns.store(grace_ns, Ordering::Relaxed);
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
            let unclaimed = Unclaimed {
                next,
                end,
                step_is_one,
            };
            class.unclaimed.store(unclaimed.word(), Ordering::Release);
        }
    }

    /// Whether there is a member to claim.
    #[inline]
    #[must_use]
    pub fn has_unclaimed(&self) -> bool {
        self.classes.iter().any(MemberClass::has_unclaimed)
    }

    /// Whether there is a member that this worker should claim now.
    #[must_use]
    pub fn is_open_for(&self, worker: u32, now_ns: impl Fn() -> u64) -> bool {
        let me = worker + 1;
        let mut has_own = false;
        let mut is_any_free = false;
        for class in &self.classes {
            match class.owner.load(Ordering::Relaxed) {
                0 => is_any_free |= class.has_unclaimed(),
                owner if owner == me => {
                    has_own = true;
                    if class.has_unclaimed() {
                        return true;
                    }
                }
                _ => {}
            }
        }
        (!has_own && is_any_free) || (self.has_unclaimed() && self.is_late(now_ns))
    }

    /// Whether the grace period is over, which begins with the first call.
    fn is_late(&self, now_ns: impl Fn() -> u64) -> bool {
        let now_ns = now_ns();
        let late_at_ns = self.late_at_ns.load(Ordering::Relaxed);
        if late_at_ns == 0 {
            self.start_grace(now_ns);
            return false;
        }
        now_ns > late_at_ns
    }

    /// Ends the grace period: no other worker will come soon.
    pub fn end_grace(&self) {
        self.late_at_ns.store(1, Ordering::Relaxed);
    }

    /// Begins the grace period, unless it has begun.
    pub fn start_grace(&self, now_ns: u64) {
        let late_at_ns = now_ns + self.grace_ns.load(Ordering::Relaxed);
        // The first one counts.
        let _ =
            self.late_at_ns
                .compare_exchange(0, late_at_ns, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Claims a member for a worker: of its own class, of a class that no worker has or, after the
    /// grace period or with `any` and without places, of any class.
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

    /// Claims a class that no worker has, if possible the one that this worker had before, and a
    /// member of it.
    fn claim_class(&self, worker: u32) -> Option<u32> {
        // Relative to the forking worker, so that the members of nested teams are not all on the
        // same workers.
        let forker = self.classes[0]
            .owner
            .load(Ordering::Relaxed)
            .saturating_sub(1);
        let nearest = (worker + self.workers - forker % self.workers) % self.workers;
        let count = self.classes.len();
        (0..count)
            .map(|step| &self.classes[(nearest as usize + step) % count])
            .filter(|class| class.has_unclaimed())
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

    fn claim_in(&self, class: &MemberClass) -> Option<u32> {
        let mut word = class.unclaimed.load(Ordering::Acquire);
        loop {
            let unclaimed = Unclaimed::from_word(word);
            if unclaimed.next >= unclaimed.end {
                return None;
            }
            let step = if unclaimed.step_is_one {
                1
            } else {
                self.classes.len() as u32
            };
            let after = Unclaimed {
                next: unclaimed.next + step,
                ..unclaimed
            };
            match class.unclaimed.compare_exchange_weak(
                word,
                after.word(),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(unclaimed.next),
                Err(seen) => word = seen,
            }
        }
    }
}

/// The members of a class that no worker has claimed.
#[derive(Clone, Copy, Debug)]
struct Unclaimed {
    /// The next member to claim.
    next: u32,
    /// The end of their numbers, which fits in a positive `int`.
    end: u32,
    /// Whether their numbers are consecutive; otherwise they differ by the number of classes.
    step_is_one: bool,
}

impl Unclaimed {
    fn word(self) -> u64 {
        u64::from(self.next) | u64::from(self.end) << 32 | u64::from(self.step_is_one) << 63
    }

    fn from_word(word: u64) -> Unclaimed {
        Unclaimed {
            next: word as u32,
            end: (word >> 32) as u32 & (u32::MAX >> 1),
            step_is_one: word >> 63 != 0,
        }
    }
}

impl MemberClass {
    /// Without members.
    fn new() -> MemberClass {
        MemberClass {
            unclaimed: AtomicU64::new(0),
            owner: AtomicU32::new(0),
        }
    }

    #[inline]
    fn has_unclaimed(&self) -> bool {
        let unclaimed = Unclaimed::from_word(self.unclaimed.load(Ordering::Acquire));
        unclaimed.next < unclaimed.end
    }
}

/// The group of member `id`, of as many groups as given: they are one after another, and the first
/// ones longer by one.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const EARLY: fn() -> u64 = || 0;
    const LATE: fn() -> u64 = || 1 << 40;

    #[test]
    fn workers_keep_to_their_classes_until_others_are_late() {
        let claims = Claims::new(8, 4);
        assert!(!claims.has_unclaimed());
        claims.open(2, true);
        claims.start_grace(0);
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
    fn the_grace_period_begins_with_the_first_check() {
        let claims = Claims::new(4, 2);
        for is_outermost in [true, false] {
            claims.open(0, is_outermost);
            assert_eq!(claims.claim(1, false, LATE), Some(1));
            assert_eq!(claims.claim(1, false, LATE), Some(3));
            assert_eq!(
                claims.claim(1, false, LATE),
                None,
                "it has not begun before"
            );
            let grace_ns = if is_outermost {
                OUTERMOST_GRACE_NS
            } else {
                GRACE_NS
            };
            assert_eq!(claims.claim(1, false, || LATE() + grace_ns), None);
            assert_eq!(claims.claim(1, false, || LATE() + grace_ns + 1), Some(2));
        }
    }

    #[test]
    fn a_worker_without_a_class_of_its_own_takes_a_free_one() {
        let claims = Claims::new(2, 8);
        claims.open(0, true);
        claims.start_grace(0);
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
            claims.start_grace(0);
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
        claims.start_grace(0);
        assert_eq!(claims.claim(1, true, EARLY), Some(2));
        assert_eq!(claims.claim(0, true, EARLY), Some(1));
        assert_eq!(claims.claim(0, true, EARLY), None);
        assert!(!claims.is_open_for(0, EARLY) && claims.is_open_for(0, LATE));
        assert_eq!(claims.claim(0, true, LATE), Some(3));
        assert!(!claims.has_unclaimed());
        // Without places again: by number.
        claims.group_by_place(0);
        claims.open(0, true);
        claims.start_grace(0);
        assert_eq!(claims.claim(1, false, EARLY), Some(1));
        assert_eq!(claims.claim(0, false, EARLY), Some(2));
        assert_eq!(claims.claim(0, true, EARLY), Some(3));
    }

    #[test]
    fn each_member_is_claimed_once_by_many() {
        let claims = Claims::new(1000, 3);
        claims.open(0, false);
        claims.start_grace(0);
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

#[cfg(all(test, loom))]
mod model {
    use loom::sync::Arc;

    use super::*;

    /// A region is opened while a worker that is late from the one before claims: every member is
    /// claimed once, by it or by the forker.
    #[test]
    fn claims_of_a_late_worker_are_those_of_the_next_region() {
        for is_by_place in [false, true] {
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(3);
            builder.check(move || {
                let claims = Arc::new(Claims::new(3, 2));
                if is_by_place {
                    claims.group_by_place(2);
                }
                let (early, late) = (|| 0, || u64::MAX);
                claims.open(0, false);
                claims.start_grace(0);
                while claims.claim(0, true, late).is_some() {}
                let worker = {
                    let claims = claims.clone();
                    loom::thread::spawn(move || [(); 2].map(|()| claims.claim(1, true, early)))
                };
                claims.open(0, false);
                let mut all: Vec<u32> =
                    std::iter::from_fn(|| claims.claim(0, true, early)).collect();
                all.extend(worker.join().unwrap().into_iter().flatten());
                // What was the other worker's, until it is late.
                all.extend(std::iter::from_fn(|| claims.claim(0, true, late)));
                all.sort_unstable();
                assert_eq!(all, [1, 2]);
                assert!(!claims.has_unclaimed());
            });
        }
    }
}
