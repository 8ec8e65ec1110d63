//! Operations that an origin leaves for a target whose memory it reaches only through the system.
//!
//! A system call for each put costs more than all else about a short operation. So short dense
//! operations are *posted* in a queue ([`margay_sys_shm::rma_queue`]) that the target polls
//! whenever it makes progress, and completed where the standard asks for it: by a flush, an unlock,
//! the end of another epoch. By then the target has done them, or the origin takes them back and
//! does them by system calls, of which one moves many pieces. So no operation needs the target, and
//! those that can have its help cost two cache lines instead of a system call.
//!
//! What the standard asks for, and why it holds:
//!
//! - *Accumulates of one origin to one target are ordered* (all four orders, the default of
//!   `accumulate_ordering`): an RMA queue is done in the order in which it was posted, whichever
//!   side does it, and before an operation goes any other way to the same target the queue is
//!   completed. This holds for all operations, which is more than asked for.
//! - *Accumulates are atomic for each element*, against those of other origins and of the target
//!   itself: the process that does one holds the target's turn ([`margay_sys_shm::turn`])
//!   meanwhile, as on every other path. The target, which may not wait for it inside of progress,
//!   leaves the entry and what follows for its next poll.
//! - *Completion*: every call that completes operations at a target, at the origin only
//!   (`MPI_Win_flush_local`) or at both, completes the queue; results are copied to the program's
//!   buffers then. Operands are copied when they are posted, so their buffers are free at once.
//!   Operations with a request take the other way, so none can be complete before its time.
//! - *The target sees what was done* as after every other way: its own loads find the stores of its
//!   own process, and those of the system calls, before whatever the origin does after the
//!   completing call.
//! - *Progress*: the origin waits only for a target that holds the key, which copies at most a few
//!   KiB by then.
//!
//! A target that computes does not poll, and waiting for it would be in vain. An origin that has to
//! take entries back does so at once the next time, and for twice as many times after each further
//! failure. It wakes the target, too, which may be asleep in a call: awake, it polls as long as
//! something comes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use margay_core_datatype::Basic;
use margay_core_reduce::{self as reduce, Op};
use margay_run_engine::{Pending, ProgressHook};
use margay_sys_os::cma::{self, Pair};
use margay_sys_os::user::{Mem, Piece};
use margay_sys_shm::rma_queue::{self, Entry, IN_SLOT, ROOM, RmaQueue, SLOTS};
use margay_sys_shm::segment::Segment;
use margay_sys_shm::window::Block;

use super::combine::{apply, swap};
use super::operation::Dense;
use super::wire::Verb;
use super::{AccessPath, Target, Window, Windows};
use margay_run_mpi::error::*;
use margay_run_mpi::fail;

/// Longest operation, in bytes, that is posted although the target may not be there: beyond,
/// copying once more costs more than the system call that it may save.
const LONGEST: usize = 1024;

/// Longest part of an operation in one entry, in bytes: of longer ones the target copies a part
/// while the origin copies the next. Elements of all sizes that come without holes divide it.
const PIECE: usize = 8 << 10;

/// Windows of more ranks have no queues: a target polls all of them.
pub(super) const RANKS: u32 = 64;

/// How often an origin checks whether its target is done, with progress of its own in between,
/// before it takes entries back.
const ROUNDS: u32 = 4;

/// Entries are taken back without waiting at most 2 to this many times in turn.
const MISSES: u32 = 6;

/// What an origin has posted to one target.
pub(super) struct OriginQueue {
    queue: RmaQueue,
    /// There are cores for both sides at the same time.
    may_wait: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Entries posted since the beginning.
    posted: u64,
    /// Those of them that are complete.
    complete: u64,
    /// Bytes of the room beside the slots that are in use.
    used: usize,
    /// Results: the number of the entry, where in the queue it will lie, and the program's memory
    /// to which it goes.
    results: VecDeque<(u64, u32, Mem)>,
    /// In how many completions in turn the target was not there.
    misses: u32,
    /// This many of the next completions will not wait for it.
    skips: u32,
}

impl OriginQueue {
    pub(super) fn new(queue: RmaQueue, may_wait: bool) -> OriginQueue {
        OriginQueue {
            queue,
            may_wait,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under this lock")
    }

    /// Posts an operation on the bytes at `at` of the target. Returns false when there is no room,
    /// it is too long, or another thread is just completing.
    pub(super) fn post(&self, dense: Dense, near: Piece, at: u64) -> bool {
        let len = near.size();
        let Ok(mut state) = self.state.try_lock() else {
            return false;
        };
        let state = &mut *state;
        let data = match dense {
            Dense::Fetch(..) | Dense::Swap(..) => 2 * len,
            _ => len,
        };
        // Long ones are worth it only if the target copies its pieces meanwhile.
        let is_long = len > LONGEST;
        if len == 0 || data > ROOM || is_long && !self.may_wait {
            return false;
        }
        if is_long && state.skips > 0 {
            state.skips -= 1;
            return false;
        }
        let pieces = len.div_ceil(PIECE);
        let fits = |state: &State| {
            state.posted - state.complete + pieces as u64 <= SLOTS
                && state.used + data.next_multiple_of(64) <= ROOM
        };
        if !fits(state) {
            let is_free = state.finish(&self.queue);
            if !(is_free && fits(state)) {
                return false;
            }
        }
        for start in (0..len).step_by(PIECE) {
            let part = |piece: Piece| piece.part(start, PIECE.min(len - start));
            let dense = match dense {
                Dense::Fetch(op, basic, result) => Dense::Fetch(op, basic, part(result)),
                other => other,
            };
            self.post_piece(state, dense, part(near), at + start as u64);
        }
        true
    }

    /// Posts one entry; there is a slot and room for it.
    fn post_piece(&self, state: &mut State, dense: Dense, near: Piece, at: u64) {
        let (len, number) = (near.size(), state.posted);
        let (verb, op, basic, bytes) = match dense {
            Dense::Put => (Verb::Put, 0, 0, len),
            Dense::Get => (Verb::Get, 0, 0, len),
            Dense::Accumulate(op, basic) => (Verb::Accumulate, op.handle(), basic.handle(), len),
            Dense::Fetch(op, basic, _) => (Verb::Fetch, op.handle(), basic.handle(), 2 * len),
            Dense::Swap(..) => (Verb::Swap, 0, 0, 2 * len),
        };
        let data = if bytes <= IN_SLOT {
            RmaQueue::in_slot(number)
        } else {
            let data = RmaQueue::in_room(state.used);
            state.used += bytes.next_multiple_of(64);
            data
        };
        let mem = self.queue.mem();
        let store = |at: u32, piece: Piece| piece.with_bytes(|b| mem.write(i64::from(at), b));
        let behind = data + len as u32;
        let mut bring = |at: u32, to: Piece| state.results.push_back((number, at, to.mem()));
        match dense {
            Dense::Put | Dense::Accumulate(..) => store(data, near),
            Dense::Get => bring(data, near),
            Dense::Fetch(op, _, result) => {
                // Its operand may be anything where it is not used.
                if op != Op::NoOp {
                    store(data, near);
                }
                bring(behind, result);
            }
            Dense::Swap(compare, result) => {
                store(data, near);
                store(behind, compare);
                bring(behind, result);
            }
        }
        let entry = Entry {
            verb: verb as u8,
            op: op as u16,
            basic: basic as u16,
            at,
            bytes: len as u32,
            data,
        };
        self.queue.post(number, entry);
        state.posted = number + 1;
    }

    /// Whether everything is complete, as far as no other thread is about it.
    #[inline]
    pub(super) fn is_complete(&self) -> bool {
        let state = self.state.try_lock();
        state.is_ok_and(|state| state.posted == state.complete)
    }
}

impl State {
    /// Copies the results of what is done where they belong. Returns how many entries are done.
    fn fetch(&mut self, queue: &RmaQueue) -> u64 {
        let done = queue.done();
        while let Some((_, at, to)) = self.results.pop_front_if(|result| result.0 < done) {
            queue.mem().copy_to(i64::from(at), &to, 0, to.reach());
        }
        done
    }

    /// Makes room if everything is done. Returns whether it is.
    fn finish(&mut self, queue: &RmaQueue) -> bool {
        if self.fetch(queue) != self.posted {
            return false;
        }
        self.complete = self.posted;
        self.used = 0;
        true
    }
}

/// Returns the reduction of an entry.
fn reduction(entry: &Entry) -> Option<(Op, Basic)> {
    let op = Op::from_handle(u64::from(entry.op))?;
    let basic = Basic::from_handle(u64::from(entry.basic))?;
    reduce::is_valid(op, basic).then_some((op, basic))
}

/// Does an accumulation, fetch or swap of an entry to the elements at `at` of `there`. The caller
/// has the target's turn.
fn combine(entry: &Entry, queue: &Mem, there: &Mem, at: i64) {
    let len = entry.bytes as usize;
    let (operand, behind) = (i64::from(entry.data), i64::from(entry.data) + len as i64);
    if entry.verb == Verb::Swap as u8 {
        let mut before = vec![0; len];
        there.read(at, &mut before);
        there.with_bytes_mut(at, len, |elements| {
            queue.with_bytes(operand, len, |new| {
                queue.with_bytes(behind, len, |compare| swap(elements, new, compare));
            });
        });
        queue.write(behind, &before);
        return;
    }
    if entry.verb == Verb::Fetch as u8 {
        there.copy_to(at, queue, behind, len);
    }
    if let Some((op, basic)) = reduction(entry)
        && op != Op::NoOp
    {
        there.with_operands(at, queue, operand, len, |elements, operand| {
            apply(op, basic, elements, operand);
        });
    }
}

/// A target's queues, one for each other rank.
pub(super) struct RmaQueues {
    /// With the process of their origin.
    pub(super) queues: Vec<(u32, RmaQueue)>,
    /// The target's memory.
    pub(super) mem: Mem,
    /// The target's rank in the window.
    pub(super) me: u32,
    pub(super) block: Arc<Block>,
    pub(super) segment: Arc<Segment>,
    /// The window's processes, which may wait for the turn.
    pub(super) processes: Vec<u32>,
}

impl ProgressHook for RmaQueues {
    fn progress(&self) -> bool {
        let mut any = false;
        for (origin, queue) in &self.queues {
            // The origin may do it meanwhile, then there is nothing left for the target when it
            // gets the key.
            if queue.entry(queue.done()).is_some() && queue.enter() {
                let mut done = queue.done();
                while let Some(entry) = queue.entry(done)
                    && self.serve(queue.mem(), &entry)
                {
                    done += 1;
                    any = true;
                }
                if queue.leave(done) {
                    self.segment.wake(*origin);
                }
            }
        }
        any
    }
}

impl RmaQueues {
    /// Does an operation; false if it cannot be done now.
    fn serve(&self, queue: &Mem, entry: &Entry) -> bool {
        let (at, data, len) = (entry.at as i64, i64::from(entry.data), entry.bytes as usize);
        if !self.mem.covers(at, len) {
            // The origin has checked that; an origin that sends something else gets nothing.
            return true;
        }
        if entry.verb == Verb::Put as u8 {
            queue.copy_to(data, &self.mem, at, len);
        } else if entry.verb == Verb::Get as u8 {
            self.mem.copy_to(at, queue, data, len);
        } else {
            let turn = self.block.accumulate(self.me);
            if !turn.enter(self.me) {
                return false;
            }
            combine(entry, queue, &self.mem, at);
            if turn.leave() {
                for &process in &self.processes {
                    self.segment.wake(process);
                }
            }
        }
        true
    }
}

impl Target {
    /// Whether `len` bytes from `at` on are in its part of the window.
    #[inline]
    pub(super) fn has(&self, at: i64, len: usize) -> bool {
        let end = u64::try_from(at)
            .ok()
            .and_then(|at| at.checked_add(len as u64));
        end.is_some_and(|end| end <= self.size)
    }

    /// Whether nothing that was posted to it is incomplete.
    #[inline(always)]
    pub(super) fn has_all(&self) -> bool {
        match &self.path {
            AccessPath::Attach(Some(origin)) => origin.is_complete(),
            _ => true,
        }
    }
}

impl Windows<'_> {
    /// Completes what was posted to a target, or to all.
    pub(super) fn complete_queues(&self, window: &Arc<Window>, target: Option<u32>) -> Result<()> {
        if !window.uses_queues {
            return Ok(());
        }
        match target {
            Some(target) => self.complete_queue(window, target),
            None => (0..window.targets.len() as u32)
                .map(|target| self.complete_queue(window, target))
                .fold(Ok(()), Result::and),
        }
    }

    fn complete_queue(&self, window: &Arc<Window>, target: u32) -> Result<()> {
        let part = &window.targets[target as usize];
        let AccessPath::Attach(Some(origin)) = &part.path else {
            return Ok(());
        };
        let queue = &origin.queue;
        let state = &mut *origin.state();
        if state.posted == state.complete {
            return Ok(());
        }
        if state.skips > 0 || !origin.may_wait {
            state.skips = state.skips.saturating_sub(1);
        } else {
            let (mut done, mut rounds) = (state.fetch(queue), 0);
            while done != state.posted && rounds < ROUNDS {
                rounds += 1;
                if self.mpi.rank().spin_until(|| queue.done() != done) {
                    done = state.fetch(queue);
                    rounds = 0;
                } else {
                    self.mpi.rank().progress();
                }
            }
            state.misses = match done == state.posted {
                true => 0,
                false => (state.misses + 1).min(MISSES),
            };
            if state.misses > 0 {
                // It may be asleep in a call, and there the next time.
                self.mpi.rank().wake_peer(part.process);
            }
            state.skips = (1 << state.misses) - 1;
        }
        if state.finish(queue) {
            return Ok(());
        }
        let gone = !queue.enter() && self.key_is_lost(window, part.process, queue);
        if gone {
            // It died with the key; what it has not done will never be.
            state.results.clear();
            state.complete = state.posted;
            fail!(
                MPIX_ERR_PROC_FAILED,
                "the memory of rank {target} of {} cannot be reached: its process has died",
                window.describe()
            );
        }
        let taken = self.take_back(window, target, queue, state.posted);
        // The target does not wait for it.
        let _ = queue.leave(state.posted);
        if taken.is_err() {
            state.results.clear();
        }
        state.finish(queue);
        taken
    }

    /// Waits for the key of an RMA queue that its target holds. Returns true when that will not
    /// give it back: it has died with it.
    #[cold]
    fn key_is_lost(&self, window: &Window, target: u32, queue: &RmaQueue) -> bool {
        let _waits = queue.waits();
        self.mpi.rank().block(
            |engine| {
                let got = queue.enter();
                (got || engine.is_dead(target)).then_some(!got)
            },
            |_| Some(Pending::Collective(Some(target), window.comm.collective())),
        )
    }

    /// Does the entries up to `posted` that are not done by system calls. The caller holds the key.
    fn take_back(
        &self,
        window: &Arc<Window>,
        target: u32,
        queue: &RmaQueue,
        posted: u64,
    ) -> Result<()> {
        let part = &window.targets[target as usize];
        let refused = |error: std::io::Error| {
            Error::new(
                MPI_ERR_RMA_RANGE,
                format!(
                    "the memory of rank {target} of {} (process {}) cannot be reached: {error}",
                    window.describe(),
                    part.peer.pid()
                ),
            )
        };
        let address = |entry: &Entry| part.base.wrapping_add(entry.at);
        let mut number = queue.done();
        let mut pairs: Vec<Pair> = Vec::with_capacity(rma_queue::SLOTS as usize);
        while number < posted {
            let first = queue.entry(number).expect("posted by this process");
            if [Verb::Put as u8, Verb::Get as u8].contains(&first.verb) {
                // All of its kind that follow, in one call.
                pairs.clear();
                while number < posted
                    && let Some(entry) = queue.entry(number)
                    && entry.verb == first.verb
                {
                    let data = i64::from(entry.data);
                    pairs.push((address(&entry), data, entry.bytes as usize));
                    number += 1;
                }
                let moved = match first.verb == Verb::Put as u8 {
                    true => cma::write_pairs(part.peer, &pairs, queue.mem()),
                    false => cma::read_pairs(part.peer.pid(), &pairs, queue.mem()),
                };
                moved.map_err(refused)?;
                continue;
            }
            let len = first.bytes as usize;
            let elements = Mem::owned(len);
            self.atomically(window, target, || {
                cma::read(part.peer.pid(), address(&first), &elements, 0, len)?;
                combine(&first, queue.mem(), &elements, 0);
                let is_stored = first.verb == Verb::Accumulate as u8
                    || first.verb == Verb::Swap as u8
                    || reduction(&first).is_some_and(|(op, _)| op != Op::NoOp);
                match is_stored {
                    true => cma::write(part.peer, address(&first), &elements, 0, len),
                    false => Ok(()),
                }
            })
            .and_then(|done| done.map_err(refused))?;
            number += 1;
        }
        Ok(())
    }
}
