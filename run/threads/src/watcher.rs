//! The watcher: a thread that finds workers which wait in the kernel while they have something else
//! to run, and interrupts them there, so that another fiber has its turn.
//!
//! It polls. The less it finds the longer it pauses, and it ends its rounds when no worker has had
//! anything else to run for a while. A system call that would end early is interrupted only where
//! the worker has been in it at two polls in a row, so that it is still there when the signal
//! comes.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use margay_sys_threads::preempt::{self, ObservedThread, SeenCall};

use crate::pool_state::{PoolState, WorkerSlot};

/// The pause between two polls while a worker waits that could run something else ...
const SHORTEST: Duration = Duration::from_micros(200);
/// ... while workers have something else to run, but run ...
const BUSY: Duration = Duration::from_millis(4);
/// ... and while none has. Each poll takes a core for 5 to 10 µs.
const QUIET: Duration = Duration::from_millis(16);
/// Polls of the last kind after which it pauses until it is started again ...
const QUIET_POLLS: u32 = 60;
/// ... or for this long: a start may come right before the last poll ends.
const LONGEST: Duration = Duration::from_millis(500);

/// A worker for which an interruption has changed nothing is left alone for 1, 2, 4 ... polls, and
/// at most for 2 to the power of this.
const MAX_SKIPS: u32 = 5;

/// What one poll has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    /// No worker has anything else to run.
    Nothing,
    /// One has, but it runs.
    Busy,
    /// One has, and waits.
    Waiting,
}

/// What is known of one worker.
#[derive(Default)]
struct Known {
    thread: Option<ObservedThread>,
    switches: u64,
    /// Where it was seen at the last poll.
    call: Option<SeenCall>,
    /// Interruptions in a row that changed nothing.
    in_vain: u32,
    /// Polls to come in which it is left alone.
    skips: u32,
}

/// The life of the watcher's thread, until the pool ends.
pub(crate) fn run<W>(state: &PoolState<W>) {
    let watch = &state.watch;
    let _ = watch.thread.set(thread::current());
    let mut known: Vec<Known> = Vec::new();
    let mut pause = BUSY;
    let mut quiet_polls = 0;
    while !state.is_over.load(Ordering::Acquire) {
        let found = poll(state, &mut known);
        pause = match found {
            Found::Waiting => SHORTEST,
            Found::Busy => (pause * 2).min(BUSY),
            Found::Nothing => (pause * 2).min(QUIET),
        };
        quiet_polls = if found == Found::Nothing {
            quiet_polls + 1
        } else {
            0
        };
        if quiet_polls < QUIET_POLLS {
            thread::park_timeout(pause);
        } else {
            watch.is_on.store(false, Ordering::SeqCst);
            thread::park_timeout(LONGEST);
            if watch.is_on.load(Ordering::SeqCst) {
                quiet_polls = 0;
            }
        }
    }
}

fn poll<W>(state: &PoolState<W>, known: &mut Vec<Known>) -> Found {
    let is_offered = state.slots().any(|slot| {
        slot.offers
            .find(|_| true, |offer| offer.opens_later())
            .is_some()
    });
    if is_offered {
        // Of work that has turned out to be long workers may have been left asleep.
        state.published(0);
    }
    let mut found = Found::Nothing;
    for (number, slot) in state.slots().enumerate() {
        if known.len() <= number {
            known.push(Known::default());
        }
        found = found.max(known[number].poll(slot, is_offered));
    }
    found
}

impl Known {
    fn poll<W>(&mut self, slot: &WorkerSlot<W>, is_offered: bool) -> Found {
        let watched = &slot.watched;
        let number = watched.thread.load(Ordering::Relaxed);
        let has_other_work = is_offered
            || watched.fibers.ready() != 0
            || !slot.wake_queue.is_empty()
            || !slot.stealer.is_empty();
        if number == 0 || watched.is_idle.load(Ordering::Relaxed) || !has_other_work {
            self.call = None;
            return Found::Nothing;
        }
        if self.thread.as_ref().map(ObservedThread::thread) != Some(number) {
            *self = Known {
                thread: ObservedThread::new(number),
                ..Known::default()
            };
        }
        let Some(thread) = &self.thread else {
            return Found::Busy;
        };
        let switches = watched.fibers.switches();
        let has_switched = std::mem::replace(&mut self.switches, switches) != switches;
        if watched.is_yielding.load(Ordering::Relaxed) {
            // By a library that has been loaded since.
            preempt::refresh();
            thread.interrupt(None);
            return Found::Waiting;
        }
        let call = thread.waits_in();
        let before = std::mem::replace(&mut self.call, call);
        if call.is_none() {
            self.in_vain = 0;
            self.skips = 0;
            return Found::Busy;
        }
        let is_new = has_switched || before != call;
        if is_new {
            self.in_vain = 0;
            self.skips = 0;
        }
        if is_new && call.is_some_and(|call| !call.is_restarted()) {
            return Found::Waiting;
        }
        if self.skips > 0 {
            self.skips -= 1;
        } else {
            self.skips = (1 << self.in_vain) - 1;
            self.in_vain = (self.in_vain + 1).min(MAX_SKIPS);
            thread.interrupt(call.as_ref());
        }
        if self.skips > 1 {
            Found::Busy
        } else {
            Found::Waiting
        }
    }
}
