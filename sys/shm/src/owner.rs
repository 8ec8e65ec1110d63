//! A lock in shared memory for short work that is rarely done, whose holder may die.
//!
//! One word: 0 when free, else the holder's process id and a bit that says that somebody may sleep
//! (the mutex of Drepper's "Futexes are tricky", with an owner). A thread that finds it held sleeps
//! on the word until it is given back. Only a sleep that lasted [`SLICE_NS`] makes the sleeper look
//! whether the holder still lives; the lock of a dead one is taken over by compare-and-swap, so by
//! one of those who wait. What the dead one left half done is its user's to stand.
//!
//! Why no robust futex of the kernel: the kernel walks one list for each thread, the C library has
//! registered its own, and every entry lies at the distance from its futex word that
//! `pthread_mutex_t` of that library has. So the word would have to be a robust
//! `pthread_mutex_t`, whose bytes belong to the C library that each process of the job happens to
//! load: a format that cannot be drawn or versioned here. What it would gain is that a waiter
//! notices a death at once, not after a slice, in a lock that is held for some microseconds, a few
//! times in the life of a communicator. What it would also gain is to tell a dead holder from a
//! younger process that was given its id; the kernel gives an id again after tens of thousands of
//! others, and a waiter does not live that long beside a holder that has died.
//!
//! Memory order: the compare-and-swap that wins acquires what the former holder released by its
//! swap. After a death there is no release; what the dead process wrote is in the common memory all
//! the same, since caches are coherent and it was seen to be dead later.

use margay_sys_os::event_count::{futex_wait, futex_wake_one};
use margay_sys_os::sync::{AtomicU32, Ordering};

/// The longest sleep before a waiter checks whether the holder still lives.
#[cfg(not(loom))]
const SLICE_NS: u64 = 20_000_000;

const FREE: u32 = 0;
/// Somebody may sleep until the lock is free. Process ids have 22 bits at most.
const SLEEPERS: u32 = 1 << 31;

/// The lock; zeroed memory is a free one. See the module.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct OwnerLock(AtomicU32);

/// Gives the lock back when dropped.
#[derive(Debug)]
pub(crate) struct OwnerGuard<'a>(&'a OwnerLock);

impl OwnerLock {
    /// Takes the lock, and waits for it where it has to.
    #[cfg(not(loom))]
    pub(crate) fn lock(&self) -> OwnerGuard<'_> {
        self.lock_as(
            std::process::id(),
            margay_sys_os::process::is_alive,
            SLICE_NS,
        )
    }

    fn lock_as(&self, me: u32, alive: impl Fn(u32) -> bool, slice_ns: u64) -> OwnerGuard<'_> {
        let mut own = me;
        let mut asleep_for = None;
        loop {
            let word = match self.swap(FREE, own) {
                Ok(()) => return OwnerGuard(self),
                Err(word) => word,
            };
            if word == FREE {
                continue;
            }
            let sleeping = word | SLEEPERS;
            let overdue = asleep_for == Some(sleeping);
            if overdue && !alive(word & !SLEEPERS) {
                if self.swap(word, me | SLEEPERS).is_ok() {
                    return OwnerGuard(self);
                }
                continue;
            }
            if word == sleeping || self.swap(word, sleeping).is_ok() {
                futex_wait(&self.0, sleeping, slice_ns);
                // Others may sleep as well, and nobody counts them: a thread that slept says so
                // when it has the lock.
                own = me | SLEEPERS;
                asleep_for = Some(sleeping);
            }
        }
    }

    fn swap(&self, from: u32, to: u32) -> Result<(), u32> {
        let swapped = self
            .0
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed);
        swapped.map(drop)
    }
}

impl Drop for OwnerGuard<'_> {
    fn drop(&mut self) {
        if self.0.0.swap(FREE, Ordering::Release) & SLEEPERS != 0 {
            futex_wake_one(&self.0.0);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::time::{Duration, Instant};

    #[test]
    fn it_is_as_drawn() {
        assert_eq!(size_of::<OwnerLock>(), 4);
    }

    #[test]
    fn threads_take_turns() {
        let lock = OwnerLock(AtomicU32::new(FREE));
        let count = AtomicU32::new(0);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..5000 {
                        let _guard = lock.lock();
                        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 20_000);
    }

    #[test]
    fn the_lock_of_a_dead_process_is_taken_over_and_that_of_a_living_one_is_not() {
        let lock = OwnerLock(AtomicU32::new(77));
        let asked = Cell::new(0);
        let guard = lock.lock_as(
            5,
            |pid| {
                assert_eq!(pid, 77);
                asked.set(asked.get() + 1);
                asked.get() < 3
            },
            1_000_000,
        );
        assert_eq!(asked.get(), 3, "once for each slice");
        drop(guard);
        assert_eq!(lock.0.load(Ordering::Relaxed), FREE);
    }

    #[test]
    fn who_waits_sleeps_until_the_lock_is_given_back() {
        let lock = OwnerLock(AtomicU32::new(FREE));
        let guard = lock.lock();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| {
                let began = Instant::now();
                let _guard = lock.lock_as(5, |_| panic!("nobody asks in time"), 20_000_000_000);
                began.elapsed()
            });
            while lock.0.load(Ordering::Relaxed) & SLEEPERS == 0 {
                std::thread::yield_now();
            }
            drop(guard);
            assert!(waiter.join().unwrap() < Duration::from_secs(10));
        });
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;

    /// Two processes, the first of which may have to wait for a third that holds the lock.
    fn handed_on(holder: u32, alive: fn(u32) -> bool, slice_ns: u64) {
        loom::model(move || {
            let lock = Arc::new(OwnerLock(AtomicU32::new(holder)));
            let inside = Arc::new(AtomicBool::new(false));
            let take = move |me, lock: &OwnerLock, inside: &AtomicBool| {
                let guard = lock.lock_as(me, alive, slice_ns);
                assert!(!inside.swap(true, Ordering::Relaxed));
                assert!(inside.swap(false, Ordering::Relaxed));
                drop(guard);
            };
            let taker = {
                let (lock, inside) = (lock.clone(), inside.clone());
                loom::thread::spawn(move || take(1, &lock, &inside))
            };
            take(2, &lock, &inside);
            taker.join().unwrap();
            assert_eq!(lock.0.load(Ordering::Relaxed), FREE);
        });
    }

    /// No sleep ends by itself, so a lost wake would never end.
    #[test]
    fn an_owner_gives_its_lock_to_who_sleeps_for_it() {
        handed_on(FREE, |_| true, u64::MAX);
    }

    #[test]
    fn one_takes_over_the_lock_of_a_dead_owner() {
        handed_on(3, |pid| pid != 3, 1);
    }
}
