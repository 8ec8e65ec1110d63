//! Fibers: stacks of their own, switched to and from in a few nanoseconds.
//!
//! A fiber never leaves the thread that made it: compilers keep addresses of thread-local variables
//! (`errno`, a program's `threadprivate`) across calls, also across the one that switches. What may
//! go to another thread is work that has not begun.

use std::cell::Cell;
use std::io;
use std::sync::atomic::Ordering;

use corosensei::stack::{DefaultStack, Stack};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use margay_sys_os::cpu;

use crate::inspect::{FiberEntry, FiberRecord};
use crate::slot::{self, Word};

mod bottom;

/// A function with a stack, begun by the first [`resume`](Fiber::resume).
pub struct Fiber {
    // Before the stack goes.
    _entry: FiberEntry,
    coroutine: Coroutine<(), (), (), DefaultStack>,
    /// The [context](crate::slot) of what runs in it, while it is suspended. What it enters lies on
    /// its stack and is left there, which may be after those that were entered outside meanwhile.
    context: Word,
}

/// What a fiber did when it came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It called [`suspend`].
    Suspended,
    /// Its function has returned.
    Finished,
}

/// The fiber that runs: what suspends it, and what is known of it from outside.
#[derive(Clone, Copy)]
struct Within {
    yielder: *const Yielder<(), ()>,
    record: Option<&'static FiberRecord>,
}

thread_local! {
    /// The fiber that runs on this thread, if there is one.
    static CURRENT: Cell<Within> = const { Cell::new(Within { yielder: std::ptr::null(), record: None }) };
}

impl Fiber {
    /// A fiber whose stack holds `stack_bytes`, with a guard page below it.
    ///
    /// # Errors
    /// The system has no memory or no more mappings.
    pub fn new(stack_bytes: usize, body: impl FnOnce() + 'static) -> io::Result<Fiber> {
        let stack = DefaultStack::new(stack_bytes)?;
        let (base, limit) = (stack.base().get(), stack.limit().get());
        let entry = FiberEntry::new(cpu::thread_number(), base, limit);
        let record = Some(entry.record());
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            CURRENT.set(Within { yielder, record });
            bottom::call(body);
        });
        Ok(Fiber {
            _entry: entry,
            coroutine,
            context: Word::none(),
        })
    }

    /// Runs it until it suspends itself or ends.
    ///
    /// # Panics
    /// It has ended.
    #[inline]
    pub fn resume(&mut self) -> Status {
        let before = CURRENT.get();
        let outside = slot::exchange(self.context.take());
        let result = self.coroutine.resume(());
        self.context = slot::exchange(outside);
        CURRENT.set(before);
        match result {
            CoroutineResult::Yield(()) => Status::Suspended,
            CoroutineResult::Return(()) => Status::Finished,
        }
    }
}

/// Goes back to who resumed the running fiber; returns when it is resumed again.
///
/// # Panics
/// No fiber runs on this thread.
// Not inlined: a debugger finds what the switch has saved from this function's stack pointer on.
#[inline(never)]
pub fn suspend() {
    let current = CURRENT.get();
    let Within {
        yielder,
        record: Some(record),
    } = current
    else {
        panic!("only a fiber can be suspended");
    };
    record
        .suspended_at
        .store(bottom::stack_pointer(), Ordering::Relaxed);
    // SAFETY: the yielder of the running fiber lives on its stack as long as it runs, and it is the
    // innermost one, since `resume` restores the one before.
    unsafe { (*yielder).suspend(()) };
    record.suspended_at.store(0, Ordering::Relaxed);
    CURRENT.set(current);
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn a_fiber_has_its_own_context_whatever_is_entered_and_left_outside() {
        let sees = |expected: Option<u32>| slot::with(|there| assert_eq!(there.copied(), expected));
        let mut fiber = Fiber::new(64 << 10, move || {
            sees(None);
            slot::Context::new(2_u32).enter(|_| {
                suspend();
                sees(Some(2));
            });
            sees(None);
        })
        .unwrap();
        slot::Context::new(1_u32).enter(|_| {
            assert_eq!(fiber.resume(), Status::Suspended);
            sees(Some(1));
        });
        sees(None);
        assert_eq!(fiber.resume(), Status::Finished);
        sees(None);
    }

    #[test]
    fn two_fibers_take_turns_and_a_third_nests() {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let mut fibers: Vec<Fiber> = (0..2)
            .map(|number| {
                let seen = Rc::clone(&seen);
                Fiber::new(64 << 10, move || {
                    for turn in 0..3 {
                        seen.borrow_mut().push((number, turn));
                        let within = Rc::clone(&seen);
                        let mut inner = Fiber::new(64 << 10, move || {
                            suspend();
                            within.borrow_mut().push((number + 10, turn));
                        })
                        .unwrap();
                        assert_eq!(inner.resume(), Status::Suspended);
                        suspend();
                        assert_eq!(inner.resume(), Status::Finished);
                    }
                })
                .unwrap()
            })
            .collect();
        for turn in 0..4 {
            for fiber in &mut fibers {
                let status = fiber.resume();
                assert_eq!(status == Status::Finished, turn == 3);
            }
        }
        let expected: Vec<(i32, i32)> = vec![
            (0, 0),
            (1, 0),
            (10, 0),
            (0, 1),
            (11, 0),
            (1, 1),
            (10, 1),
            (0, 2),
            (11, 1),
            (1, 2),
            (10, 2),
            (11, 2),
        ];
        assert_eq!(*seen.borrow(), expected);
    }
}
