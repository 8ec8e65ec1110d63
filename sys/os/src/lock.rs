//! The lock around a rank's state.
//!
//! Most programs use a rank from one thread and say so when they initialise. For them the lock is a
//! plain flag that only notices re-entry (a callback that calls back into the library). For
//! `MPI_THREAD_MULTIPLE` it is a futex mutex with three states (Drepper, "Futexes are tricky").

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use rustix::thread::futex::{Flags, wait as futex_wait, wake as futex_wake};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// Looks at the lock before sleeping for it. The critical sections are shorter than a sleep.
const SPINS: u32 = 100;

/// Guards a rank's state; see the module.
#[derive(Debug)]
pub struct RankLock<T> {
    single: AtomicBool,
    state: AtomicU32,
    /// Which thread holds it in shared mode, as the address of a thread-local; for noticing
    /// re-entry.
    owner: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached through the guard, which is exclusive: by the mutex, or, in
// single mode, by the promise given to `assume_single_thread`.
unsafe impl<T: Send> Sync for RankLock<T> {}

/// Access to the value; gives the lock back when dropped.
#[derive(Debug)]
pub struct RankGuard<'a, T> {
    lock: &'a RankLock<T>,
    /// A guard is as much as the only reference to the value, also for the question which threads
    /// may have it.
    value: PhantomData<&'a mut T>,
}

impl<T> RankLock<T> {
    /// A free lock that any thread may take.
    #[must_use]
    pub const fn new(value: T) -> Self {
        RankLock {
            single: AtomicBool::new(false),
            state: AtomicU32::new(FREE),
            owner: AtomicUsize::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// From now on only one thread at a time uses the lock, and the lock need not check it.
    ///
    /// # Safety
    /// The caller (a program that asked for less than `MPI_THREAD_MULTIPLE`) promises that its
    /// threads never call into the library at the same time.
    pub unsafe fn assume_single_thread(&self) {
        self.single.store(true, Ordering::SeqCst);
    }

    /// Any thread may use the lock at any time again.
    pub fn set_shared(&self) {
        self.single.store(false, Ordering::SeqCst);
    }

    /// Whether several threads may use the lock at the same time.
    #[must_use]
    #[inline]
    pub fn is_shared(&self) -> bool {
        !self.single.load(Ordering::Relaxed)
    }

    /// Takes the lock.
    ///
    /// # Panics
    /// When this thread holds it already: a callback (a reduction function, say) made a call that
    /// the standard does not allow there. While one thread alone may use it, also when another one
    /// holds it.
    #[inline]
    pub fn lock(&self) -> RankGuard<'_, T> {
        if self.single.load(Ordering::Relaxed) {
            if self.state.load(Ordering::Relaxed) != FREE {
                taken();
            }
            self.state.store(HELD, Ordering::Relaxed);
        } else {
            self.lock_shared();
        }
        RankGuard {
            lock: self,
            value: PhantomData,
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<RankGuard<'_, T>> {
        if self.single.load(Ordering::Relaxed) {
            if self.state.load(Ordering::Relaxed) != FREE {
                return None;
            }
            self.state.store(HELD, Ordering::Relaxed);
        } else {
            self.state
                .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
                .ok()?;
            self.owner.store(this_thread(), Ordering::Relaxed);
        }
        Some(RankGuard {
            lock: self,
            value: PhantomData,
        })
    }

    /// The value, when nobody else can have it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[inline]
    fn lock_shared(&self) {
        if self
            .state
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            self.lock_contended();
        }
        self.owner.store(this_thread(), Ordering::Relaxed);
    }

    #[cold]
    fn lock_contended(&self) {
        // In this order: a thread's number may be that of one that has ended, and is settled before
        // the owner is read. The other way round the owner might have ended in between and left its
        // number to this thread.
        let this = this_thread();
        if self.owner.load(Ordering::Relaxed) == this {
            reentered();
        }
        for _ in 0..SPINS {
            if self.state.load(Ordering::Relaxed) == FREE
                && self
                    .state
                    .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return;
            }
            std::hint::spin_loop();
        }
        while self.state.swap(CONTENDED, Ordering::Acquire) != FREE {
            let _ = futex_wait(&self.state, Flags::PRIVATE, CONTENDED, None);
        }
    }

    #[inline(always)]
    fn unlock(&self) {
        if self.single.load(Ordering::Relaxed) {
            self.state.store(FREE, Ordering::Relaxed);
        } else {
            self.unlock_shared();
        }
    }

    fn unlock_shared(&self) {
        self.owner.store(0, Ordering::Relaxed);
        if self.state.swap(FREE, Ordering::Release) == CONTENDED {
            self.wake();
        }
    }

    /// Apart from the calls that take the lock, which it would cost registers.
    #[cold]
    #[inline(never)]
    fn wake(&self) {
        let _ = futex_wake(&self.state, Flags::PRIVATE, 1);
    }
}

impl<T> Deref for RankGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is exclusive (see `Sync`).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for RankGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard is exclusive (see `Sync`).
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for RankGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.unlock();
    }
}

/// A number that differs between the threads that are alive; never 0. (The standard library's id of
/// a thread would keep an allocation for the main thread, which memory checkers report as lost.)
#[must_use]
pub fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here) as usize)
}

/// Which of the two it is cannot be seen, because a lock for one thread does not record whose it
/// is.
#[cold]
fn taken() -> ! {
    panic!(
        "two threads of this process are in communication calls at the same time, which needs MPI_THREAD_MULTIPLE from \
         MPI_Init_thread; or a callback (a reduction function, say) made a communication call, which MPI does not allow"
    );
}

#[cold]
fn reentered() -> ! {
    panic!(
        "a callback (a reduction function, say) made a communication call from inside a \
         communication call, which MPI does not allow"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_take_turns() {
        // Miri takes a thousand times as long.
        const TURNS: u64 = if cfg!(miri) { 20 } else { 20_000 };
        let lock = RankLock::new(0u64);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..TURNS {
                        *lock.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 4 * TURNS);
    }

    #[test]
    #[should_panic(expected = "callback")]
    fn re_entry_is_reported() {
        let lock = RankLock::new(());
        let _first = lock.lock();
        let _second = lock.lock();
    }

    #[test]
    #[should_panic(expected = "MPI_THREAD_MULTIPLE")]
    fn a_second_thread_of_a_lock_for_one_is_reported() {
        let lock = RankLock::new(());
        // SAFETY: this thread alone uses the lock.
        unsafe { lock.assume_single_thread() };
        let _first = lock.lock();
        let _second = lock.lock();
    }

    #[test]
    fn a_held_lock_is_not_tried() {
        let lock = RankLock::new(());
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }
}
