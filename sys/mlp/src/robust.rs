//! Lock and barrier that processes share and that survive the death of any of them.
//!
//! Both lie in memory that all processes of a group have. A thread that waits spins for a moment,
//! or yields where cores are short, and then sleeps on a futex, for [`SLICE_NS`] at most: after
//! that it checks whether the one that it waits for still lives, which `alive` and `broken` say. So
//! nothing has to be done for those who wait when a process dies, beyond noting it where these two
//! look: a word of each process in the common memory, which the group's guard writes when the
//! kernel reports the end of one. No process id is asked about, so none that was given again can be
//! mistaken.
//!
//! Why no robust futexes of the kernel: it walks one list for each thread, which the C library has
//! registered for its own mutexes, so a word on it is a `pthread_mutex_t` of whichever library each
//! process has loaded, and not a format that can be drawn in `docs/mlp.md`. To the barrier, which
//! nobody holds, such a list would be of no use.
//!
//! **The lock** is one word: 0 when free, else the holder's holder (process and thread) and a bit
//! that says that somebody may sleep. It is the mutex of Drepper's "Futexes are tricky" with an
//! owner. A waiter that finds the holder's process dead takes the lock over by compare-and-swap and
//! learns it; the dead holder's number never becomes valid again, because a group's process numbers
//! are not used twice. Memory order: the winning compare-and-swap acquires what the former holder
//! released by its swap. After a death there is no release; what the dead process wrote before is
//! in the common memory all the same, since its cores' caches are coherent and the kernel's death
//! notice came after.
//!
//! **The barrier** is one word, too: the generation (how many processes had left when the members
//! agreed to go on), whether this barrier has failed, its number, and how many have arrived. The
//! member that completes the count moves the word to the next number; a member that sees that
//! another one is gone sets the failed bit. Both are compare-and-swaps on the same word, so one of
//! them wins and every member of this barrier gets the same answer. `passed` is a copy of the moved
//! word for those who look, so that they do not read the line to which others arrive; where its
//! writer dies between the two, the word itself tells. Memory order: each arrival is a
//! read-modify-write with acquire and release, so they form one release sequence, and the last
//! arriver, which acquires it, has seen what all wrote before; it releases that by `passed` (or the
//! word), which the others acquire.

use margay_sys_os::event_count::{EventCount, futex_wait, futex_wake_one};
use margay_sys_os::sync::{AtomicU32, AtomicU64, Ordering};

/// The longest sleep before a waiter checks whether the one that it waits for still lives.
pub const SLICE_NS: u64 = 50_000_000;

/// The highest number of a process in a group.
pub const MAX_PROCESSES: u32 = 511;

const FREE: u32 = 0;
/// Somebody may sleep until the lock is free.
const SLEEPERS: u32 = 1 << 31;
const THREAD_BITS: u32 = 22;

/// Who holds a lock: a process of the group and the kernel's number of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder(u32);

impl Holder {
    /// The holder of a thread (the kernel's number, which has 22 bits at most) of a process from 1
    /// to [`MAX_PROCESSES`].
    ///
    /// # Panics
    /// When the process has another number.
    #[must_use]
    #[inline]
    pub fn new(process: u32, thread: u32) -> Holder {
        assert!((1..=MAX_PROCESSES).contains(&process));
        Holder(process << THREAD_BITS | thread & ((1 << THREAD_BITS) - 1))
    }

    /// The process.
    #[must_use]
    #[inline]
    pub fn process(self) -> u32 {
        self.0 >> THREAD_BITS
    }
}

/// How long a waiter spins and yields before it sleeps.
#[derive(Clone, Copy, Debug)]
pub struct WaitPolicy {
    spins: u32,
    yields: u32,
}

impl WaitPolicy {
    /// Where everybody has a core: spins for about as long as it takes to wake a sleeper.
    pub const CORE_EACH: WaitPolicy = WaitPolicy {
        spins: 3000,
        yields: 20,
    };
    /// Where the one that is waited for may need this core.
    pub const SHARED_CORES: WaitPolicy = WaitPolicy {
        spins: 0,
        yields: 200,
    };

    /// Passes some time awake. False when it is time to sleep.
    #[inline]
    fn wait(&mut self) -> bool {
        if cfg!(loom) {
            return false;
        }
        if self.spins > 0 {
            self.spins -= 1;
            std::hint::spin_loop();
            return true;
        }
        if self.yields > 0 {
            self.yields -= 1;
            std::thread::yield_now();
            return true;
        }
        false
    }
}

/// A lock in common memory; zeroed memory is a free one. See the module.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct RobustLock(AtomicU32);

/// What the taker of a lock should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The former holder gave it back.
    InOrder,
    /// The process of the former holder has ended without giving it back: what the lock guards may
    /// be half changed.
    FromDead(u32),
}

/// Why a lock was not taken or not given back: who holds it, none when it is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldBy(pub Option<Holder>);

impl RobustLock {
    /// Takes the lock if nobody alive holds it.
    ///
    /// # Errors
    /// When somebody does.
    pub fn try_lock(&self, me: Holder, alive: impl Fn(u32) -> bool) -> Result<Taken, HeldBy> {
        let word = match self.swap_word(FREE, me.0) {
            Ok(()) => return Ok(Taken::InOrder),
            Err(word) => word,
        };
        let holder = Holder(word & !SLEEPERS);
        if word == FREE || holder == me || alive(holder.process()) {
            return Err(HeldBy((word != FREE).then_some(holder)));
        }
        match self.swap_word(word, me.0 | word & SLEEPERS) {
            Ok(()) => Ok(Taken::FromDead(holder.process())),
            Err(word) => Err(HeldBy((word != FREE).then_some(Holder(word & !SLEEPERS)))),
        }
    }

    /// Takes the lock, and waits for it where it has to. `alive` tells whether a process still is.
    ///
    /// # Errors
    /// When the caller itself holds it: it would wait for ever.
    #[inline]
    pub fn lock(
        &self,
        me: Holder,
        policy: WaitPolicy,
        alive: impl Fn(u32) -> bool,
    ) -> Result<Taken, HeldBy> {
        match self.swap_word(FREE, me.0) {
            Ok(()) => Ok(Taken::InOrder),
            Err(_) => self.lock_contended(me, policy, alive, SLICE_NS),
        }
    }

    #[cold]
    fn lock_contended(
        &self,
        me: Holder,
        mut policy: WaitPolicy,
        alive: impl Fn(u32) -> bool,
        slice_ns: u64,
    ) -> Result<Taken, HeldBy> {
        let mut own = me.0;
        loop {
            let word = self.0.load(Ordering::Relaxed);
            if word == FREE {
                if self.swap_word(FREE, own).is_ok() {
                    return Ok(Taken::InOrder);
                }
                continue;
            }
            let holder = Holder(word & !SLEEPERS);
            if holder == me {
                return Err(HeldBy(Some(me)));
            }
            if policy.wait() {
                continue;
            }
            if !alive(holder.process()) {
                if self.swap_word(word, own | word & SLEEPERS).is_ok() {
                    return Ok(Taken::FromDead(holder.process()));
                }
                continue;
            }
            let sleeping = word | SLEEPERS;
            if word == sleeping || self.swap_word(word, sleeping).is_ok() {
                futex_wait(&self.0, sleeping, slice_ns);
                // Others may sleep as well, and nobody counts them: a thread that slept says so
                // when it has the lock.
                own = me.0 | SLEEPERS;
            }
        }
    }

    /// Gives the lock back.
    ///
    /// # Errors
    /// When the caller does not hold it.
    #[inline]
    pub fn unlock(&self, me: Holder) -> Result<(), HeldBy> {
        let word = self.0.load(Ordering::Relaxed);
        if word & !SLEEPERS != me.0 {
            return Err(HeldBy((word != FREE).then_some(Holder(word & !SLEEPERS))));
        }
        // Between the two only the bit of the sleepers can change.
        if self.0.swap(FREE, Ordering::Release) & SLEEPERS != 0 {
            futex_wake_one(&self.0);
        }
        Ok(())
    }

    #[inline]
    fn swap_word(&self, from: u32, to: u32) -> Result<(), u32> {
        let swapped = self
            .0
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed);
        swapped.map(drop)
    }
}

/// Set when a member of the barrier has gone.
const FAILED: u64 = 1 << 48;
const COUNT: u64 = 0xffff;
const NUMBER_SHIFT: u32 = 16;
const GENERATION_SHIFT: u32 = 49;
/// All but the count and the failed bit.
const IDENTITY: u64 = !(FAILED | COUNT);

/// A barrier in common memory; zeroed memory is one at rest. See the module.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct RobustBarrier {
    word: AtomicU64,
    unused: [u64; 7],
    passed: AtomicU64,
    event_count: EventCount,
    unused2: [u64; 6],
}

/// A member of the barrier has gone, so it will never be complete. All its members learn it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

impl RobustBarrier {
    /// Waits until all `members` have called this. `generation` is how many processes had gone when
    /// the members agreed on who they are; `broken` tells whether one has gone since. `members` and
    /// `generation` are the same for all.
    ///
    /// # Errors
    /// When a member has gone before it arrived; the members then [`renew`](Self::renew) the
    /// barrier together.
    pub fn wait(
        &self,
        generation: u32,
        members: u32,
        mut policy: WaitPolicy,
        broken: impl Fn() -> bool,
    ) -> Result<(), Broken> {
        let now = self.word.load(Ordering::Relaxed);
        if now & FAILED != 0 || generation_of(now) != generation {
            return Err(Broken);
        }
        if broken() {
            self.fail(now & IDENTITY);
            return Err(Broken);
        }
        let old = self.word.fetch_add(1, Ordering::AcqRel);
        if old & FAILED != 0 {
            return Err(Broken);
        }
        let next = next_of(old);
        if (old & COUNT) + 1 == u64::from(members) {
            let moved =
                self.word
                    .compare_exchange(old + 1, next, Ordering::AcqRel, Ordering::Relaxed);
            if moved.is_err() {
                return Err(Broken);
            }
            self.passed.store(next, Ordering::Release);
            self.event_count.wake();
            return Ok(());
        }
        loop {
            if self.passed.load(Ordering::Acquire) == next {
                return Ok(());
            }
            if policy.wait() {
                continue;
            }
            match self.verdict(old, next) {
                Some(verdict) => return verdict,
                None if broken() => self.fail(old & IDENTITY),
                None => self
                    .event_count
                    .sleep(SLICE_NS, || self.verdict(old, next).is_some() || broken()),
            }
        }
    }

    /// How the barrier of `old` has ended, if it has.
    fn verdict(&self, old: u64, next: u64) -> Option<Result<(), Broken>> {
        let word = self.word.load(Ordering::Acquire);
        if word & IDENTITY != old & IDENTITY {
            debug_assert_eq!(word & IDENTITY & !FAILED, next & IDENTITY);
            return Some(Ok(()));
        }
        (word & FAILED != 0).then_some(Err(Broken))
    }

    /// Ends the barrier that has this identity as failed, unless it is complete.
    fn fail(&self, identity: u64) {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & IDENTITY == identity && word & FAILED == 0 {
            let failed = self.word.compare_exchange(
                word,
                word | FAILED,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            match failed {
                Ok(_) => {
                    self.event_count.wake();
                    return;
                }
                Err(other) => word = other,
            }
        }
    }

    /// Makes the barrier usable for `generation`; called by all its members, when all of them have
    /// left the old one.
    pub fn renew(&self, generation: u32) {
        let fresh = u64::from(generation) << GENERATION_SHIFT;
        let mut word = self.word.load(Ordering::Relaxed);
        while generation_of(word) < generation {
            let renewed =
                self.word
                    .compare_exchange(word, fresh, Ordering::AcqRel, Ordering::Relaxed);
            match renewed {
                Ok(_) => return,
                Err(other) => word = other,
            }
        }
    }

    /// Wakes those who sleep here, so that they look whether a member has gone.
    pub fn wake(&self) {
        self.event_count.wake();
    }
}

fn generation_of(word: u64) -> u32 {
    (word >> GENERATION_SHIFT) as u32
}

/// The word of the barrier after that of `word`: the number is one higher, round its 32 bits, and
/// nobody has arrived.
fn next_of(word: u64) -> u64 {
    let number = (word >> NUMBER_SHIFT) as u32;
    let generation = word >> GENERATION_SHIFT << GENERATION_SHIFT;
    generation | u64::from(number.wrapping_add(1)) << NUMBER_SHIFT
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32};

    fn living(_process: u32) -> bool {
        true
    }

    #[test]
    fn they_are_as_drawn() {
        assert_eq!(size_of::<RobustLock>(), 4);
        assert_eq!(size_of::<RobustBarrier>(), 128);
        assert_eq!(std::mem::offset_of!(RobustBarrier, passed), 64);
        assert_eq!(std::mem::offset_of!(RobustBarrier, event_count), 72);
    }

    #[test]
    fn threads_take_turns() {
        let lock = RobustLock::default();
        let count = AtomicU32::new(0);
        std::thread::scope(|s| {
            for thread in 1..=4 {
                let (lock, count) = (&lock, &count);
                s.spawn(move || {
                    let me = Holder::new(1, thread);
                    for _ in 0..20_000 {
                        lock.lock(me, WaitPolicy::SHARED_CORES, living).unwrap();
                        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                        lock.unlock(me).unwrap();
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 80_000);
    }

    #[test]
    fn who_does_not_hold_a_lock_cannot_give_it_back_and_who_does_cannot_take_it() {
        let lock = RobustLock::default();
        let (me, other) = (Holder::new(1, 7), Holder::new(2, 7));
        assert_eq!(lock.unlock(me), Err(HeldBy(None)));
        lock.lock(me, WaitPolicy::CORE_EACH, living).unwrap();
        let held = Err(HeldBy(Some(me)));
        assert_eq!(lock.lock(me, WaitPolicy::CORE_EACH, living), held);
        assert_eq!(lock.try_lock(other, living), held);
        assert_eq!(lock.unlock(other), Err(HeldBy(Some(me))));
        lock.unlock(me).unwrap();
        assert_eq!(lock.try_lock(other, living), Ok(Taken::InOrder));
    }

    #[test]
    fn a_dead_holders_lock_is_taken_over_by_those_who_wait_one_after_the_other() {
        let lock = RobustLock::default();
        let dead = AtomicBool::new(false);
        lock.lock(Holder::new(3, 1), WaitPolicy::CORE_EACH, living)
            .unwrap();
        let taken = std::thread::scope(|s| {
            let waiters: Vec<_> = (1..=2)
                .map(|process| {
                    let (lock, dead) = (&lock, &dead);
                    s.spawn(move || {
                        let me = Holder::new(process, 1);
                        let alive = |p| p != 3 || !dead.load(Ordering::SeqCst);
                        let taken = lock.lock(me, WaitPolicy::SHARED_CORES, alive).unwrap();
                        lock.unlock(me).unwrap();
                        taken
                    })
                })
                .collect();
            std::thread::sleep(std::time::Duration::from_millis(20));
            dead.store(true, Ordering::SeqCst);
            waiters
                .into_iter()
                .map(|w| w.join().unwrap())
                .collect::<Vec<_>>()
        });
        let from_dead = taken.iter().filter(|&&t| t == Taken::FromDead(3)).count();
        assert_eq!(from_dead, 1, "{taken:?}");
    }

    #[test]
    fn nobody_passes_before_all_have_arrived() {
        const MEMBERS: u32 = 5;
        margay_sys_os::event_count::register();
        let barrier = RobustBarrier::default();
        let arrived = AtomicU32::new(0);
        std::thread::scope(|s| {
            for _ in 0..MEMBERS {
                let (barrier, arrived) = (&barrier, &arrived);
                s.spawn(move || {
                    for round in 1..=2000 {
                        arrived.fetch_add(1, Ordering::Relaxed);
                        let policy = if round % 2 == 0 {
                            WaitPolicy::SHARED_CORES
                        } else {
                            WaitPolicy {
                                spins: 0,
                                yields: 0,
                            }
                        };
                        barrier.wait(0, MEMBERS, policy, || false).unwrap();
                        assert!(arrived.load(Ordering::Relaxed) >= round * MEMBERS);
                    }
                });
            }
        });
    }

    #[test]
    fn all_members_get_the_same_answer_and_go_on_in_the_next_generation() {
        margay_sys_os::event_count::register();
        for round in 0..200 {
            let barrier = RobustBarrier::default();
            let gone = AtomicBool::new(false);
            let answers: Vec<_> = std::thread::scope(|s| {
                let members: Vec<_> = (0..3)
                    .map(|member| {
                        let (barrier, gone) = (&barrier, &gone);
                        s.spawn(move || {
                            if member == 2 && round % 3 == 0 {
                                std::thread::yield_now();
                            }
                            let is_gone = || gone.load(Ordering::SeqCst);
                            barrier.wait(0, 3, WaitPolicy::SHARED_CORES, is_gone)
                        })
                    })
                    .collect();
                gone.store(true, Ordering::SeqCst);
                barrier.wake();
                members.into_iter().map(|m| m.join().unwrap()).collect()
            });
            assert!(
                answers.iter().all(|a| *a == answers[0]),
                "round {round}: {answers:?}"
            );
            barrier.renew(1);
            barrier.renew(1);
            assert_eq!(
                barrier.wait(0, 3, WaitPolicy::CORE_EACH, || false),
                Err(Broken)
            );
            assert_eq!(barrier.wait(1, 1, WaitPolicy::CORE_EACH, || false), Ok(()));
        }
    }

    #[test]
    fn the_number_of_a_barrier_goes_round() {
        let last = u64::from(u32::MAX) << NUMBER_SHIFT | 7 << GENERATION_SHIFT | 3;
        assert_eq!(next_of(last), 7 << GENERATION_SHIFT);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    /// Both threads take the lock, one after the other, whatever the interleaving; the second sees
    /// what the first wrote, and no wake is lost: the model's sleepers have no time limit.
    #[test]
    fn one_holds_the_lock_at_a_time_under_loom() {
        loom::model(|| {
            let shared = Arc::new((RobustLock::default(), UnsafeCell::new(0)));
            let take = |shared: &(RobustLock, UnsafeCell<i32>), process| {
                let me = Holder::new(process, 1);
                if shared.0.swap_word(FREE, me.0).is_err() {
                    let taken =
                        shared
                            .0
                            .lock_contended(me, WaitPolicy::CORE_EACH, |_| true, u64::MAX);
                    assert_eq!(taken, Ok(Taken::InOrder));
                }
                // SAFETY: the lock is held, so nobody else is here; loom checks just that.
                shared.1.with_mut(|count| unsafe { *count += 1 });
                shared.0.unlock(me).unwrap();
            };
            let other = shared.clone();
            let thread = loom::thread::spawn(move || take(&other, 2));
            take(&shared, 1);
            thread.join().unwrap();
            // SAFETY: the other thread has ended.
            shared.1.with(|count| assert_eq!(unsafe { *count }, 2));
        });
    }

    /// A holder dies, or does not quite: exactly one of two takes the lock from it, and nobody
    /// waits for ever.
    #[test]
    fn a_dead_holders_lock_goes_to_one_under_loom() {
        loom::model(|| {
            let lock = Arc::new(RobustLock::default());
            lock.swap_word(FREE, Holder::new(3, 1).0).unwrap();
            let take = |lock: &RobustLock, process| {
                let me = Holder::new(process, 1);
                let taken = lock.lock_contended(me, WaitPolicy::CORE_EACH, |p| p != 3, 1);
                lock.unlock(me).unwrap();
                taken.unwrap()
            };
            let other = lock.clone();
            let thread = loom::thread::spawn(move || take(&other, 2));
            let mine = take(&lock, 1);
            let others = thread.join().unwrap();
            let from_dead = [mine, others]
                .iter()
                .filter(|&&t| t == Taken::FromDead(3))
                .count();
            assert_eq!(from_dead, 1);
        });
    }

    /// Two members meet, and each sees what the other wrote before.
    #[test]
    fn a_barrier_orders_memory_under_loom() {
        loom::model(|| {
            let shared = Arc::new((
                RobustBarrier::default(),
                UnsafeCell::new(0),
                UnsafeCell::new(0),
            ));
            let other = shared.clone();
            let thread = loom::thread::spawn(move || {
                // SAFETY: before the barrier this thread alone uses the first cell; loom checks
                // just that.
                other.1.with_mut(|cell| unsafe { *cell = 1 });
                other.0.wait(0, 2, WaitPolicy::CORE_EACH, || false).unwrap();
                // SAFETY: behind the barrier nobody writes; loom checks just that.
                other.2.with(|cell| assert_eq!(unsafe { *cell }, 2));
            });
            // SAFETY: as above, with the second cell.
            shared.2.with_mut(|cell| unsafe { *cell = 2 });
            shared
                .0
                .wait(0, 2, WaitPolicy::CORE_EACH, || false)
                .unwrap();
            // SAFETY: as above.
            shared.1.with(|cell| assert_eq!(unsafe { *cell }, 1));
            thread.join().unwrap();
        });
    }

    /// A third member may have gone while two arrive; each of them may notice or not: both get the
    /// same answer, which is never that all had arrived.
    #[test]
    fn a_broken_barrier_tells_all_members_under_loom() {
        loom::model(|| {
            let shared = Arc::new((RobustBarrier::default(), AtomicU32::new(0)));
            let other = shared.clone();
            let thread = loom::thread::spawn(move || {
                let gone = || other.1.load(Ordering::SeqCst) != 0;
                other.0.wait(0, 3, WaitPolicy::CORE_EACH, gone)
            });
            shared.1.store(1, Ordering::SeqCst);
            let gone = || shared.1.load(Ordering::SeqCst) != 0;
            assert_eq!(
                shared.0.wait(0, 3, WaitPolicy::CORE_EACH, gone),
                Err(Broken)
            );
            assert_eq!(thread.join().unwrap(), Err(Broken));
        });
    }

    /// The last arriver and one who sees a member gone at the same time: they agree on the answer.
    /// Every interleaving with up to three switches away from a thread that could go on; all of
    /// them are too many.
    #[test]
    fn the_last_arriver_and_a_witness_agree_under_loom() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let shared = Arc::new((RobustBarrier::default(), AtomicU32::new(0)));
            let (other, third) = (shared.clone(), shared.clone());
            let thread = loom::thread::spawn(move || {
                let gone = || other.1.load(Ordering::SeqCst) != 0;
                other.0.wait(0, 2, WaitPolicy::CORE_EACH, gone)
            });
            let death = loom::thread::spawn(move || {
                third.1.store(1, Ordering::SeqCst);
                third.0.wake();
            });
            let gone = || shared.1.load(Ordering::SeqCst) != 0;
            let mine = shared.0.wait(0, 2, WaitPolicy::CORE_EACH, gone);
            let others = thread.join().unwrap();
            death.join().unwrap();
            assert_eq!(mine, others);
        });
    }
}
