//! Who runs which member of a team.
//!
//! The members whose numbers are the same modulo the number of workers are a class. A class belongs to one worker, so that a
//! member is where it was in the region before, and so that members that will meet in barriers are spread over all workers:
//! one that has begun stays where it is. A worker that has nothing else to do takes members of other classes only when
//! their worker is late.

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
    /// When the others' workers are late, in nanoseconds.
    late_at_ns: AtomicU64,
}

#[derive(Debug)]
struct Class {
    /// The next member to claim.
    next: AtomicU32,
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
                .map(|_| Class::new(size))
                .collect(),
            late_at_ns: AtomicU64::new(0),
        }
    }

    /// All members but the first can be claimed; the region is ready for them. Who is late from the region before may claim
    /// while this is under way.
    pub fn open(&self, forker: u32, is_outermost: bool, now_ns: u64) {
        let count = self.classes.len() as u32;
        let patience = if is_outermost {
            LATE_OUTERMOST_NS
        } else {
            LATE_NS
        };
        self.late_at_ns.store(now_ns + patience, Ordering::Relaxed);
        for (at, class) in self.classes.iter().enumerate() {
            let (owner, next) = if at == 0 {
                (forker + 1, count)
            } else {
                (0, at as u32)
            };
            class.owner.store(owner, Ordering::Relaxed);
            class.next.store(next, Ordering::Release);
        }
    }

    /// Whether there is anything to claim.
    #[inline]
    #[must_use]
    pub fn has_unclaimed(&self) -> bool {
        self.classes.iter().any(|class| class.is_left(self.size))
    }

    /// Whether there is a member that this worker should run now.
    #[must_use]
    pub fn is_open_for(&self, worker: u32, now_ns: impl Fn() -> u64) -> bool {
        let me = worker + 1;
        let mut has_own = false;
        let mut is_any_free = false;
        for class in &self.classes {
            match class.owner.load(Ordering::Relaxed) {
                0 => is_any_free |= class.is_left(self.size),
                owner if owner == me => {
                    has_own = true;
                    if class.is_left(self.size) {
                        return true;
                    }
                }
                _ => {}
            }
        }
        (!has_own && is_any_free) || (self.has_unclaimed() && self.is_late(now_ns))
    }

    fn is_late(&self, now_ns: impl Fn() -> u64) -> bool {
        now_ns() > self.late_at_ns.load(Ordering::Relaxed)
    }

    /// Claims a member for a worker: of its own class, of one that nobody has, or, if `any` or late, of whichever.
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
            .filter(|class| class.is_left(self.size))
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
        let step = self.classes.len() as u32;
        let mut next = class.next.load(Ordering::Relaxed);
        while next < self.size {
            match class.next.compare_exchange_weak(
                next,
                next + step,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(member) => return Some(member),
                Err(seen) => next = seen,
            }
        }
        None
    }
}

impl Class {
    /// With nothing left.
    fn new(size: u32) -> Class {
        Class {
            next: AtomicU32::new(size),
            owner: AtomicU32::new(0),
        }
    }

    #[inline]
    fn is_left(&self, size: u32) -> bool {
        self.next.load(Ordering::Acquire) < size
    }
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
        claims.open(2, true, 0);
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
    fn a_worker_without_a_class_of_its_own_takes_a_free_one() {
        let claims = Claims::new(2, 8);
        claims.open(0, true, 0);
        assert!(claims.is_open_for(5, EARLY) && !claims.is_open_for(0, EARLY));
        assert_eq!(claims.claim(5, false, EARLY), Some(1));
        assert_eq!(claims.claim(1, true, EARLY), None);
    }

    #[test]
    fn each_member_is_claimed_once_by_many() {
        let claims = Claims::new(1000, 3);
        claims.open(0, false, 0);
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
