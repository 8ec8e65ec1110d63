//! Locks and critical constructs as a tool sees them. Without a tool, each function here is that of
//! `margay_run_openmp::lock`, after one look at one word.

use std::sync::atomic::AtomicU32;

use margay_core_openmp::tools::{Callback, Endpoint, Mutex};
use margay_run_openmp::lock;
use margay_run_openmp::tool::{Event, Tool};

use super::tool;
use crate::runtime::{runtime, with};

/// A tool that hears of all that is done with locks.
#[inline]
fn of_all() -> Option<&'static Tool> {
    tool().filter(|tool| !tool.only_waits)
}

fn raise(tool: &Tool, event: &Event<'_>) {
    (tool.raise)(event);
}

/// Takes a lock or enters a critical construct; the call returns to `place`, or 0.
#[inline]
pub fn set(word: &AtomicU32, kind: Mutex, hint: u32, place: usize) {
    match tool() {
        None => lock::set(word, runtime, place),
        Some(tool) if tool.only_waits && lock::test(word) => {}
        Some(tool) => {
            let wait = id(word);
            acquire(tool, kind, hint, wait, || {
                lock::set(word, runtime, place);
            });
        }
    }
}

/// Releases a lock or leaves a critical construct.
#[inline]
pub fn unset(word: &AtomicU32, kind: Mutex) {
    lock::unset(word, runtime);
    if let Some(tool) = of_all() {
        tell(tool, Callback::MutexReleased, kind, id(word));
    }
}

/// Takes a lock if it is free.
#[inline]
pub fn test(word: &AtomicU32) -> bool {
    match of_all() {
        None => lock::test(word),
        Some(tool) => {
            let (kind, wait) = (Mutex::TestLock, id(word));
            tell_acquire(tool, Callback::MutexAcquire, kind, 0, wait);
            let is_taken = lock::test(word);
            if is_taken {
                tell(tool, Callback::MutexAcquired, kind, wait);
            }
            is_taken
        }
    }
}

/// A lock is made.
#[inline]
pub fn init<T>(lock: &T, kind: Mutex, hint: u32) {
    if let Some(tool) = of_all() {
        tell_acquire(tool, Callback::LockInit, kind, hint, id(lock));
    }
}

/// A lock is no longer used.
#[inline]
pub fn destroy<T>(lock: *const T, kind: Mutex) {
    if let Some(tool) = of_all() {
        tell(tool, Callback::LockDestroy, kind, lock.addr() as u64);
    }
}

/// Takes a nested lock by `set`, which returns how many times the task has it then.
#[inline]
pub fn set_nested<T>(lock: &T, set: impl FnOnce() -> u32) -> u32 {
    match tool() {
        None => set(),
        Some(tool) => nested(tool, Mutex::NestLock, id(lock), set),
    }
}

/// The same by `test`, which returns 0 if another task has the lock.
#[inline]
pub fn test_nested<T>(lock: &T, test: impl FnOnce() -> u32) -> u32 {
    match of_all() {
        None => test(),
        Some(tool) => nested(tool, Mutex::TestNestLock, id(lock), test),
    }
}

/// Releases a nested lock by `unset`, which returns how many times the task has it still.
#[inline]
pub fn unset_nested<T>(lock: &T, unset: impl FnOnce() -> u32) {
    let left = unset();
    if let Some(tool) = of_all() {
        let wait = id(lock);
        if left == 0 {
            tell(tool, Callback::MutexReleased, Mutex::NestLock, wait);
        } else {
            tell_nested(tool, Endpoint::End, wait);
        }
    }
}

/// Waits for the turn of this member's iterations in an ordered region.
#[inline]
pub fn start_ordered() {
    with(|context| match context.tool() {
        None => context.start_ordered(),
        Some(tool) => {
            let (kind, wait) = (Mutex::Ordered, id(context.region_word()));
            acquire(tool, kind, 0, wait, || context.start_ordered());
        }
    });
}

/// The ordered region is over.
#[inline]
pub fn end_ordered() {
    if let Some(tool) = of_all() {
        let wait = with(|context| id(context.region_word()));
        tell(tool, Callback::MutexReleased, Mutex::Ordered, wait);
    }
}

#[cold]
fn nested(tool: &Tool, kind: Mutex, wait: u64, take: impl FnOnce() -> u32) -> u32 {
    let mut count = 0;
    tell_acquire(tool, Callback::MutexAcquire, kind, 0, wait);
    waiting(kind, wait, || count = take());
    match count {
        0 => {}
        1 => tell(tool, Callback::MutexAcquired, kind, wait),
        _ => tell_nested(tool, Endpoint::Begin, wait),
    }
    count
}

/// Runs `take`, which waits for a lock.
#[cold]
pub fn acquire(tool: &Tool, kind: Mutex, hint: u32, wait: u64, take: impl FnOnce()) {
    tell_acquire(tool, Callback::MutexAcquire, kind, hint, wait);
    waiting(kind, wait, take);
    tell(tool, Callback::MutexAcquired, kind, wait);
}

fn waiting(kind: Mutex, wait: u64, take: impl FnOnce()) {
    let task = with(|context| {
        let task = context.task_tool();
        task.wait(kind.state(), wait);
        task
    });
    take();
    task.stop_waiting();
}

#[cold]
fn tell_acquire(tool: &Tool, callback: Callback, kind: Mutex, hint: u32, wait: u64) {
    with(|context| {
        raise(
            tool,
            &Event::MutexAcquire {
                callback,
                kind,
                hint,
                wait,
                code: context.code(tool),
            },
        );
    });
}

#[cold]
fn tell(tool: &Tool, callback: Callback, kind: Mutex, wait: u64) {
    with(|context| {
        raise(
            tool,
            &Event::Mutex {
                callback,
                kind,
                wait,
                code: context.code(tool),
            },
        );
    });
}

#[cold]
fn tell_nested(tool: &Tool, endpoint: Endpoint, wait: u64) {
    with(|context| {
        raise(
            tool,
            &Event::NestLock {
                endpoint,
                wait,
                code: context.code(tool),
            },
        );
    });
}

/// The number by which a tool knows a lock.
fn id<T>(lock: &T) -> u64 {
    std::ptr::from_ref(lock).addr() as u64
}
