//! Locks: words in the program's memory. While a member waits for one, its thread runs others.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use margay_sys_threads::inspect::Wait;
use margay_sys_threads::slot;

use crate::runtime::Runtime;
use crate::team::Context;

/// A lock that can be taken.
pub(crate) const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread may wait for it.
const CONTENDED: u32 = 2;

/// Takes a lock. `runtime` is called if the lock is held. The program's call returns to `place`, 0
/// where that is not known.
#[inline]
pub fn set(word: &AtomicU32, runtime: impl FnOnce() -> &'static Runtime, place: usize) {
    if word
        .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        set_contended(word, runtime(), place);
    }
}

#[cold]
fn set_contended(word: &AtomicU32, runtime: &'static Runtime, place: usize) {
    // Who holds it mostly takes it again in a moment, at no cost as long as nobody else looks at
    // the word.
    let take = || word.load(Ordering::Relaxed) == FREE && test(word);
    if runtime.scheduler.attempt_rarely(&take) {
        return;
    }
    while word.swap(CONTENDED, Ordering::SeqCst) != FREE {
        let is_free = || word.load(Ordering::SeqCst) != CONTENDED;
        wait_until(runtime, word, place, &is_free);
    }
}

/// Waits under the key of a word, also on a thread that is no member.
fn wait_until(runtime: &Runtime, word: &AtomicU32, place: usize, condition: &dyn Fn() -> bool) {
    slot::with(|context: Option<&Context>| match context {
        Some(context) => {
            context.calls_from(place);
            context.wait_until(Wait::Lock, key(word), condition);
        }
        None => runtime.scheduler.wait_until(key(word), condition),
    });
}

/// Takes a lock if it is free.
#[inline]
pub fn test(word: &AtomicU32) -> bool {
    word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
}

/// Releases a lock. `runtime` is called if a thread waits for it.
#[inline]
pub fn unset(word: &AtomicU32, runtime: impl FnOnce() -> &'static Runtime) {
    if word.swap(FREE, Ordering::SeqCst) == CONTENDED {
        runtime().scheduler.wake(key(word));
    }
}

fn key(word: &AtomicU32) -> usize {
    std::ptr::from_ref(word) as usize
}

/// A lock that its owner, a task, may take again: the words of a lock, of the count, and of the
/// owner.
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

    /// Takes the lock, once more if the task has it. Returns how many times the task has it now.
    pub fn set(&self, context: &Context) -> u32 {
        let me = owner(context);
        if self.owner.load(Ordering::Relaxed) != me {
            set(&self.lock, || context.runtime(), 0);
            self.owner.store(me, Ordering::Relaxed);
        }
        count_set(&self.count)
    }

    /// The same without waiting: returns 0 if another task has the lock.
    pub fn test(&self, context: &Context) -> u32 {
        let me = owner(context);
        if self.owner.load(Ordering::Relaxed) != me {
            if !test(&self.lock) {
                return 0;
            }
            self.owner.store(me, Ordering::Relaxed);
        }
        count_set(&self.count)
    }

    /// Releases the lock once. Returns how many times the task has it still.
    pub fn unset(&self, context: &Context) -> u32 {
        let left = count_unset(&self.count);
        if left == 0 {
            self.owner.store(0, Ordering::Relaxed);
            unset(&self.lock, || context.runtime());
        }
        left
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
        self.set_for(context.implicit_number(), context)
    }

    fn set_for(&self, me: u32, context: &Context) -> u32 {
        let is_free = || self.owner.load(Ordering::SeqCst) == 0;
        let mut count = self.test_for(me);
        if count == 0 {
            let scheduler = &context.runtime().scheduler;
            if scheduler.attempt_rarely(&|| is_free() && self.test_for(me) != 0) {
                // Just taken.
                return 1;
            }
        }
        while count == 0 {
            context.calls_from(0);
            context.wait_until(Wait::Lock, key(&self.owner), &is_free);
            count = self.test_for(me);
        }
        count
    }

    /// As [`Nested::test`].
    pub fn test(&self, context: &Context) -> u32 {
        self.test_for(context.implicit_number())
    }

    fn test_for(&self, me: u32) -> u32 {
        if self.owner.load(Ordering::Relaxed) != me
            && self
                .owner
                .compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return 0;
        }
        count_set(&self.count)
    }

    /// As [`Nested::unset`].
    pub fn unset(&self, context: &Context) -> u32 {
        let left = count_unset(&self.count);
        if left == 0 {
            self.owner.store(0, Ordering::SeqCst);
            context.runtime().scheduler.wake(key(&self.owner));
        }
        left
    }
}

/// A nested lock as LLVM's programs have it: two words, too, but owned by a task.
#[derive(Debug)]
#[repr(transparent)]
pub struct SmallNested(OldNested);

impl SmallNested {
    /// A free lock.
    pub fn init(&self) {
        self.0.init();
    }

    /// As [`Nested::set`].
    pub fn set(&self, context: &Context) -> u32 {
        self.0.set_for(context.task.get().number, context)
    }

    /// As [`Nested::test`].
    pub fn test(&self, context: &Context) -> u32 {
        self.0.test_for(context.task.get().number)
    }

    /// As [`Nested::unset`].
    pub fn unset(&self, context: &Context) -> u32 {
        self.0.unset(context)
    }
}

/// Identifies the current task among those that are alive; never 0.
fn owner(context: &Context) -> u64 {
    u64::from(context.task.get().number)
}

/// Counts one more `set` of a nested lock by its owner. Returns the new count.
fn count_set(count: &AtomicU32) -> u32 {
    let now = count.load(Ordering::Relaxed) + 1;
    count.store(now, Ordering::Relaxed);
    now
}

/// Counts an `unset` of a nested lock by its owner. Returns the new count.
fn count_unset(count: &AtomicU32) -> u32 {
    let now = count.load(Ordering::Relaxed).saturating_sub(1);
    count.store(now, Ordering::Relaxed);
    now
}
