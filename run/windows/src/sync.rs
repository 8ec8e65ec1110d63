//! Synchronization: fence, post-start-complete-wait, flush. Locks are in `lock.rs`.
//!
//! Where the ranks share memory, locks and counters are words of the window's control block; else
//! the servers of the processes keep them and are informed by messages. Operations that go as
//! messages are complete when they are answered, whichever of the two it is.

use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence, fence};

use margay_core_group::Group;
use margay_core_reduce::Op;
use margay_run_engine::Pending;

use super::epoch::*;
use super::operation::Dense;
use super::reach::unattached_at;
use super::wire::{Head, Verb};
use super::{Window, Windows};
use margay_run_mpi::constants::mode::*;
use margay_run_mpi::error::*;
use margay_run_mpi::{Operation, fail};

/// Flushes before others make progress and get the core, if the program only stores: then it waits
/// for nobody. (An operation with its flush takes some 15 ns, giving the core away a slice of
/// another rank's time.)
const POLLS: u32 = 1 << 16;

/// Whether the processor makes stores visible in the order of the program.
pub(super) const STORES_IN_ORDER: bool = cfg!(target_arch = "x86_64");

/// When an origin died.
const INCOMPLETE: &str = "before it completed its epoch on this memory";

impl Windows<'_> {
    /// `MPI_Win_fence`
    ///
    /// # Errors
    /// When an epoch of another kind is open, or an operation failed at its target.
    pub fn fence(&self, handle: u32, assert: i32) -> Result<()> {
        let window = self.window(handle)?;
        let allowed = MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED;
        check_assert(assert, allowed)?;
        {
            let epoch = window.epoch();
            if !epoch.is_quiet() {
                return window.refused("MPI_Win_fence", &epoch);
            }
        }
        let flushed = self.complete_operations(&window, None);
        fence(Ordering::SeqCst);
        self.mpi.collective(&window.comm, Operation::Barrier)?;
        let opens = assert & MPI_MODE_NOSUCCEED == 0;
        let mut epoch = window.epoch();
        epoch.access = if opens { Access::Fence } else { Access::None };
        window.all.store(opens, Ordering::Relaxed);
        flushed
    }

    /// `MPI_Win_start`
    ///
    /// # Errors
    /// When an access epoch is open, a process of the group is not in the window, or one died
    /// before it posted: then the epoch is open to the others.
    pub fn start(&self, handle: u32, group: &Group, assert: i32) -> Result<()> {
        let window = self.window(handle)?;
        check_assert(assert, MPI_MODE_NOCHECK)?;
        let targets = members(&window, group)?;
        let mut expected = Vec::with_capacity(targets.len());
        {
            let mut epoch = window.epoch();
            if !matches!(epoch.access, Access::None | Access::Fence) {
                return window.refused("MPI_Win_start", &epoch);
            }
            window.leave_fence(&mut epoch);
            epoch.access = Access::Start(targets.clone());
            for &target in &targets {
                let started = &mut epoch.started[target as usize];
                *started = started.wrapping_add(1);
                expected.push(*started);
            }
        }
        let mut started = Ok(());
        for (&target, &number) in targets.iter().zip(&expected) {
            let posted = || has_come(window.posts_of(target), number);
            if self.comes(&window, target, posted) {
                window.set_open(target, STARTED);
            } else {
                let what = "before it posted the window; the epoch is open to the others";
                started = Err(window.lost(target, what));
            }
        }
        started
    }

    /// `MPI_Win_complete`
    ///
    /// # Errors
    /// When there was no `MPI_Win_start`, or an operation failed at its target.
    pub fn complete(&self, handle: u32) -> Result<()> {
        let window = self.window(handle)?;
        let targets = {
            let mut epoch = window.epoch();
            let Access::Start(targets) = &epoch.access else {
                return window.refused("MPI_Win_complete", &epoch);
            };
            let targets = targets.clone();
            epoch.access = Access::None;
            targets
        };
        let flushed = self.complete_operations(&window, None);
        fence(Ordering::SeqCst);
        for target in targets {
            window.set_open(target, CLOSED);
            self.signal(&window, target, Verb::Completed);
        }
        flushed
    }

    /// `MPI_Win_post`
    ///
    /// # Errors
    /// When the window is posted already, targets are locked, or a process of the group is not in
    /// the window.
    pub fn post(&self, handle: u32, group: &Group, assert: i32) -> Result<()> {
        let window = self.window(handle)?;
        let allowed = MPI_MODE_NOCHECK | MPI_MODE_NOSTORE | MPI_MODE_NOPUT;
        check_assert(assert, allowed)?;
        let origins = members(&window, group)?;
        {
            let mut epoch = window.epoch();
            let locked = matches!(epoch.access, Access::Locks(_) | Access::LockAll(_));
            if locked || epoch.exposed.is_some() {
                return window.refused("MPI_Win_post", &epoch);
            }
            window.leave_fence(&mut epoch);
            epoch.exposed = Some(origins.clone());
        }
        fence(Ordering::SeqCst);
        for origin in origins {
            self.signal(&window, origin, Verb::Posted);
        }
        Ok(())
    }

    /// `MPI_Win_wait`
    ///
    /// # Errors
    /// When the window is not posted, or an origin died before it completed: the epoch is over
    /// then, too.
    pub fn wait(&self, handle: u32) -> Result<()> {
        let window = self.window(handle)?;
        let expected = self.awaited(&window, "MPI_Win_wait")?;
        let mut completed = Ok(());
        for &(origin, number) in &expected {
            let is_complete = || has_come(window.completions_of(origin), number);
            if !self.comes(&window, origin, is_complete) {
                completed = Err(window.lost(origin, INCOMPLETE));
            }
        }
        window.unexpose(&expected);
        completed
    }

    /// `MPI_Win_test`: whether all origins have completed; then the window is not posted any more.
    ///
    /// # Errors
    /// As [`Windows::wait`].
    pub fn test(&self, handle: u32) -> Result<bool> {
        let window = self.window(handle)?;
        let expected = self.awaited(&window, "MPI_Win_test")?;
        self.mpi.rank().progress();
        let come = |&(origin, number): &(u32, u32)| has_come(window.completions_of(origin), number);
        let mut open = expected.iter().filter(|e| !come(e)).map(|&(o, _)| o);
        let Some(origin) = open.next() else {
            window.unexpose(&expected);
            return Ok(true);
        };
        let is_dead = |origin| self.is_dead(&window, origin);
        if is_dead(origin) && open.all(is_dead) {
            window.unexpose(&expected);
            return Err(window.lost(origin, INCOMPLETE));
        }
        self.mpi.rank().yield_if_oversubscribed();
        Ok(false)
    }

    /// Returns the origins of the exposure epoch and the number of completions that ends it for
    /// each.
    fn awaited(&self, window: &Window, call: &str) -> Result<Vec<(u32, u32)>> {
        let epoch = window.epoch();
        let Some(origins) = &epoch.exposed else {
            fail!(
                MPI_ERR_RMA_SYNC,
                "{call}: {} is not posted; call MPI_Win_post first",
                window.describe()
            );
        };
        let number = |origin: u32| epoch.waited[origin as usize].wrapping_add(1);
        Ok(origins.iter().map(|&o| (o, number(o))).collect())
    }

    /// `MPI_Win_flush` and `MPI_Win_flush_local`.
    ///
    /// # Errors
    /// When the target is not locked, or an operation failed there.
    pub fn flush(&self, handle: u32, rank: i32) -> Result<()> {
        let window = self.window(handle)?;
        let Some(target) = window.target(rank)? else {
            return Ok(());
        };
        if !window.is_passive(Some(target)) {
            return Err(not_locked(&window, target));
        }
        self.look_around();
        self.complete_operations(&window, Some(target))
    }

    /// Flushes where every operation was complete when its call returned and nothing is wrong.
    /// Returns false otherwise; [`Windows::flush`] then flushes or reports what is wrong.
    ///
    /// Where stores become visible in the order of the program there is nothing to do: a process
    /// that learns of the flush sees what was stored before it. What a fence would add, that this
    /// process's later loads come after the stores, is left to the operations that load
    /// (`Windows::settle`) and, for the program's own loads, to `MPI_Win_sync`.
    #[inline(always)]
    pub fn flush_at_once(self, handle: u32, rank: i32) -> bool {
        let windows = self.table();
        let Some(window) = windows.get(handle) else {
            return false;
        };
        let Some(target) = window.targets.get(rank as usize) else {
            return false;
        };
        let locked = window.passive.load(Ordering::Relaxed) && window.is_open(target);
        if !locked || window.serving.is_some() || !target.has_all() {
            return false;
        }
        let polls = window.is_poll();
        drop(windows);
        if STORES_IN_ORDER {
            compiler_fence(Ordering::SeqCst);
        } else {
            self.settle();
        }
        if polls {
            self.look_around();
        }
        true
    }

    /// Loads of other memory that come after this come after all stores to windows that came
    /// before. (With several threads the lock of the table is a fence between the stores of one and
    /// the loads of another.)
    #[inline(always)]
    pub(super) fn settle(self) {
        if self.state.unsettled.load(Ordering::Relaxed) {
            self.state.unsettled.store(false, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
    }

    /// What a program that polls owes to others: progress, and the core.
    #[cold]
    fn look_around(self) {
        self.mpi.rank().progress();
        self.mpi.rank().yield_if_oversubscribed();
    }

    /// `MPI_Win_flush_all` and `MPI_Win_flush_local_all`.
    ///
    /// # Errors
    /// When no target is locked, or an operation failed at its target.
    pub fn flush_all(&self, handle: u32) -> Result<()> {
        let window = self.window(handle)?;
        if !window.is_passive(None) {
            return window.refused("flushing", &window.epoch());
        }
        self.polled(&window);
        self.complete_operations(&window, None)
    }

    /// `MPI_Win_sync`
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn sync(&self, handle: u32) -> Result<()> {
        let window = self.window(handle)?;
        fence(Ordering::SeqCst);
        if window.serving.is_some() {
            self.mpi.rank().progress();
        }
        // Programs call it while they look at memory for what another rank stores there.
        self.mpi.rank().yield_if_oversubscribed();
        self.polled(&window);
        Ok(())
    }

    /// Waits until the operations on a target, or on all, are complete there.
    pub(super) fn complete_operations(
        &self,
        window: &Arc<Window>,
        target: Option<u32>,
    ) -> Result<()> {
        let completed = self.complete_queues(window, target);
        fence(Ordering::SeqCst);
        let Some(serving) = &window.serving else {
            return completed;
        };
        let process = target.map(|t| window.targets[t as usize].process);
        self.mpi.rank().block(
            |_| {
                serving
                    .look(|server| server.is_flushed(target))
                    .then_some(())
            },
            |_| Some(Pending::Collective(process, window.comm.collective())),
        );
        match serving.take_failed() {
            None => completed,
            Some(target) if self.is_dead(window, target) => {
                Err(window.lost(target, "before it answered to operations on its memory"))
            }
            Some(target) => Err(unattached_at(window, target)),
        }
    }

    /// Whether it is known that a rank of the window has died.
    pub(super) fn is_dead(&self, window: &Window, rank: u32) -> bool {
        let process = window.targets[rank as usize].process;
        self.mpi.rank().has_failures()
            && self
                .mpi
                .rank()
                .with_engine(|engine| engine.is_dead(process))
    }

    /// Where programs poll a window without waiting in the library, others must make progress too.
    pub(super) fn polled(self, window: &Window) {
        if window.is_poll() {
            self.look_around();
        }
    }

    /// Waits for something that `on` stores or sends. Returns false when that has died before.
    fn comes(&self, window: &Window, on: u32, mut ready: impl FnMut() -> bool) -> bool {
        let process = window.targets[on as usize].process;
        self.mpi.rank().block(
            |engine| {
                let is_ready = ready();
                (is_ready || engine.is_dead(process)).then_some(is_ready)
            },
            |_| Some(Pending::Collective(Some(process), window.comm.collective())),
        )
    }

    /// Counts one post or completion up at another process, which may wait for it.
    fn signal(&self, window: &Window, to: u32, verb: Verb) {
        let me = window.rank();
        match (&window.block, &window.serving) {
            (Some(block), _) => {
                let counter = match verb {
                    Verb::Posted => block.posted(to, me),
                    _ => block.completed(to, me),
                };
                counter.fetch_add(1, Ordering::Release);
                self.mpi
                    .rank()
                    .wake_peer(window.targets[to as usize].process);
            }
            (None, Some(serving)) => serving.tell(self.mpi.rank(), to, Head::plain(verb)),
            (None, None) => unreachable!("a window has a block or a server"),
        }
    }
}

impl Window {
    pub(super) fn ranks(&self) -> std::ops::Range<u32> {
        0..self.targets.len() as u32
    }

    /// Returns the error of a wait for a rank that has died.
    #[cold]
    pub(super) fn lost(&self, rank: u32, when: &str) -> Error {
        let process = self.targets[rank as usize].process;
        Error::new(
            MPIX_ERR_PROC_FAILED,
            format!(
                "rank {rank} (process {process}) of {} died {when}; free the window and make another one of those that live",
                self.describe()
            ),
        )
    }

    fn posts_of(&self, by: u32) -> u32 {
        match (&self.block, &self.serving) {
            (Some(block), _) => block.posted(self.rank(), by).load(Ordering::Acquire),
            (None, serving) => serving
                .as_ref()
                .map_or(0, |s| s.look(|server| server.posts[by as usize])),
        }
    }

    fn completions_of(&self, by: u32) -> u32 {
        match (&self.block, &self.serving) {
            (Some(block), _) => block.completed(self.rank(), by).load(Ordering::Acquire),
            (None, serving) => serving
                .as_ref()
                .map_or(0, |s| s.look(|server| server.completions[by as usize])),
        }
    }

    /// Ends the exposure epoch.
    fn unexpose(&self, expected: &[(u32, u32)]) {
        let mut epoch = self.epoch();
        epoch.exposed = None;
        for &(origin, number) in expected {
            epoch.waited[origin as usize] = number;
        }
    }

    /// Counts a flush; whether it is time to let others make progress.
    #[inline(always)]
    fn is_poll(&self) -> bool {
        let polls = self.polls.load(Ordering::Relaxed) + 1;
        let is_time = polls >= POLLS;
        self.polls
            .store(if is_time { 0 } else { polls }, Ordering::Relaxed);
        is_time
    }

    /// Counts an operation that brings back what is at the target, for as many flushes.
    #[inline(always)]
    pub(super) fn looks(&self, flushes: u32) {
        let polls = self.polls.load(Ordering::Relaxed);
        if polls < POLLS {
            self.polls.store(polls + flushes, Ordering::Relaxed);
        }
    }

    pub(super) fn locked(&self, target: u32) -> u8 {
        self.targets[target as usize].open.load(Ordering::Relaxed)
    }

    /// Whether a target (none: any, or all) is locked.
    fn is_passive(&self, target: Option<u32>) -> bool {
        match self.epoch().access {
            Access::LockAll(_) => true,
            Access::Locks(_) => target.is_none_or(|target| self.locked(target) != CLOSED),
            _ => false,
        }
    }
}

impl Dense {
    /// How many flushes it stands for where they are counted until others get the core: the more,
    /// the more likely it is that the program asks again and again for what another rank has yet to
    /// do.
    #[inline(always)]
    pub(super) fn looks(self) -> u32 {
        match self {
            Dense::Put | Dense::Accumulate(..) => 0,
            Dense::Fetch(Op::NoOp, ..) => POLLS / 64,
            Dense::Swap(..) => POLLS / 128,
            Dense::Get => POLLS / 256,
            Dense::Fetch(..) => POLLS / 1024,
        }
    }
}

/// Whether a counter that wraps around has reached `number`.
fn has_come(counter: u32, number: u32) -> bool {
    counter.wrapping_sub(number) as i32 >= 0
}

#[cold]
pub(super) fn not_locked(window: &Window, target: u32) -> Error {
    let epoch = window.epoch().describe();
    Error::new(
        MPI_ERR_RMA_SYNC,
        format!(
            "rank {target} of {} is not locked: {epoch}; call MPI_Win_lock or MPI_Win_lock_all first",
            window.describe()
        ),
    )
}

/// Returns the ranks in the window of a group's processes.
fn members(window: &Arc<Window>, group: &Group) -> Result<Vec<u32>> {
    group
        .processes()
        .enumerate()
        .map(|(at, process)| match window.comm.group.rank(process) {
            Some(rank) => Ok(rank),
            None => fail!(
                MPI_ERR_GROUP,
                "rank {at} of the group is process {process}, which is not in {}",
                window.describe()
            ),
        })
        .collect()
}
