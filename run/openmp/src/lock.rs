//! Locks: words in the program's memory. Who waits for one gives its thread to others.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::host;
use crate::team::Context;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody waits.
const CONTENDED: u32 = 2;

/// The lock of all `critical` constructs without a name.
pub static CRITICAL: AtomicU32 = AtomicU32::new(FREE);
/// The lock of atomic updates that the processor cannot do.
pub static ATOMIC: AtomicU32 = AtomicU32::new(FREE);

/// Takes a lock.
#[inline]
pub fn set(word: &AtomicU32) {
    if word
        .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        set_contended(word);
    }
}

#[cold]
fn set_contended(word: &AtomicU32) {
    while word.swap(CONTENDED, Ordering::SeqCst) != FREE {
        host::wait_until(key(word), &|| word.load(Ordering::SeqCst) != CONTENDED);
    }
}

/// Takes a lock if it is free.
#[inline]
pub fn test(word: &AtomicU32) -> bool {
    word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
}

/// Gives a lock back.
#[inline]
pub fn unset(word: &AtomicU32) {
    if word.swap(FREE, Ordering::SeqCst) == CONTENDED {
        host::wake(key(word));
    }
}

fn key(word: &AtomicU32) -> usize {
    std::ptr::from_ref(word) as usize
}

/// A lock that its owner, a task, may take again: the words of a lock, of the count, and of the owner.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Nested {
    lock: AtomicU32,
    count: AtomicU32,
    owner: AtomicU64,
}

impl Nested {
    /// A free lock.
    pub fn init(&self) {
        self.lock.store(FREE, Ordering::Relaxed);
        self.count.store(0, Ordering::Relaxed);
        self.owner.store(0, Ordering::Relaxed);
    }

    /// Takes the lock, or takes it again. Returns how often the task has it now.
    pub fn set(&self, context: &Context) -> u32 {
        let me = owner(context);
        if self.owner.load(Ordering::Relaxed) != me {
            set(&self.lock);
            self.owner.store(me, Ordering::Relaxed);
        }
        again(&self.count)
    }

    /// The same if it need not wait; 0 otherwise.
    pub fn test(&self, context: &Context) -> u32 {
        let me = owner(context);
        if self.owner.load(Ordering::Relaxed) != me {
            if !test(&self.lock) {
                return 0;
            }
            self.owner.store(me, Ordering::Relaxed);
        }
        again(&self.count)
    }

    /// Gives it back once.
    pub fn unset(&self) {
        if once_less(&self.count) {
            self.owner.store(0, Ordering::Relaxed);
            unset(&self.lock);
        }
    }
}

/// A nested lock as programs built for OpenMP 2.5 have it: two words, owned by a thread.
#[derive(Debug)]
#[repr(C)]
pub struct OldNested {
    owner: AtomicU32,
    count: AtomicU32,
}

impl OldNested {
    /// A free lock.
    pub fn init(&self) {
        self.owner.store(0, Ordering::Relaxed);
        self.count.store(0, Ordering::Relaxed);
    }

    /// As [`Nested::set`].
    pub fn set(&self, context: &Context) -> u32 {
        loop {
            let count = self.test(context);
            if count != 0 {
                return count;
            }
            host::wait_until(key(&self.owner), &|| self.owner.load(Ordering::SeqCst) == 0);
        }
    }

    /// As [`Nested::test`].
    pub fn test(&self, context: &Context) -> u32 {
        let me = context.implicit_number();
        if self.owner.load(Ordering::Relaxed) != me
            && self
                .owner
                .compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return 0;
        }
        again(&self.count)
    }

    /// As [`Nested::unset`].
    pub fn unset(&self) {
        if once_less(&self.count) {
            self.owner.store(0, Ordering::SeqCst);
            host::wake(key(&self.owner));
        }
    }
}

/// Tells tasks that are alive apart; never 0.
fn owner(context: &Context) -> u64 {
    u64::from(context.task.get().number)
}

/// Counts one more taking of a nested lock, by its owner; how many that makes.
fn again(count: &AtomicU32) -> u32 {
    let now = count.load(Ordering::Relaxed) + 1;
    count.store(now, Ordering::Relaxed);
    now
}

/// Counts one giving back of a nested lock, by its owner; whether it was the last.
fn once_less(count: &AtomicU32) -> bool {
    let now = count.load(Ordering::Relaxed).saturating_sub(1);
    count.store(now, Ordering::Relaxed);
    now == 0
}
