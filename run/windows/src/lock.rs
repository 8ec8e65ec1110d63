//! Locks of windows: `MPI_Win_lock` and its kin.

use std::sync::atomic::Ordering;

use margay_run_engine::{Engine, Pending};
use margay_run_mpi::constants::mode::*;
use margay_run_mpi::constants::window::{MPI_LOCK_EXCLUSIVE, MPI_LOCK_SHARED};
use margay_run_mpi::error::*;
use margay_run_mpi::fail;
use margay_sys_shm::window::Lock;

use super::epoch::*;
use super::server::Which;
use super::sync::not_locked;
use super::{Window, Windows};

/// Classes of the lock of all targets: it is held for all targets, or by a rank that locks one
/// target exclusively.
const FOR_ALL: usize = 0;
const FOR_ONE: usize = 1;

impl Windows<'_> {
    /// `MPI_Win_lock`
    ///
    /// # Errors
    /// When an argument is invalid, the target is locked already, an epoch of another kind is open,
    /// or a process died that held the lock or waited for it.
    pub fn lock(&self, handle: u32, kind: i32, rank: i32, assert: i32) -> Result<()> {
        let window = self.window(handle)?;
        let exclusive = match kind {
            MPI_LOCK_EXCLUSIVE => true,
            MPI_LOCK_SHARED => false,
            _ => fail!(
                MPI_ERR_LOCKTYPE,
                "lock_type is {kind}; use MPI_LOCK_EXCLUSIVE or MPI_LOCK_SHARED"
            ),
        };
        check_assert(assert, MPI_MODE_NOCHECK)?;
        let Some(target) = window.target(rank)? else {
            return Ok(());
        };
        {
            let mut epoch = window.epoch();
            let locks = match epoch.access {
                Access::None | Access::Fence => 0,
                Access::Locks(locks) => locks,
                _ => return window.refused("MPI_Win_lock", &epoch),
            };
            if epoch.exposed.is_some() || window.locked(target) != CLOSED {
                return window.refused("MPI_Win_lock", &epoch);
            }
            window.leave_fence(&mut epoch);
            epoch.access = Access::Locks(locks + 1);
            window.passive.store(true, Ordering::Relaxed);
        }
        let (entered, open) = match (assert & MPI_MODE_NOCHECK != 0, exclusive) {
            (true, _) => (Ok(()), UNCHECKED),
            (false, true) => (self.enter_alone(&window, target), EXCLUSIVE),
            (false, false) => {
                window.claim(Some(target), 1);
                let entered = self.enter(&window, Which::Target(target), 0);
                (entered, SHARED)
            }
        };
        if entered.is_err() {
            window.claim(Some(target), 0);
            window.unlocked(&mut window.epoch());
            return entered;
        }
        window.set_open(target, open);
        Ok(())
    }

    /// Locks a target exclusively.
    fn enter_alone(&self, window: &Window, target: u32) -> Result<()> {
        window.claim(Some(target), 2);
        self.enter(window, Which::All, FOR_ONE)?;
        let entered = self.enter(window, Which::Target(target), 1);
        if entered.is_err() {
            self.leave(window, Which::All, FOR_ONE);
        }
        entered
    }

    /// `MPI_Win_unlock`
    ///
    /// # Errors
    /// When the target is not locked, or an operation failed at its target.
    pub fn unlock(&self, handle: u32, rank: i32) -> Result<()> {
        let window = self.window(handle)?;
        let Some(target) = window.target(rank)? else {
            return Ok(());
        };
        let held = window.locked(target);
        {
            let mut epoch = window.epoch();
            if !matches!(epoch.access, Access::Locks(_)) {
                return window.refused("MPI_Win_unlock", &epoch);
            }
            if held == CLOSED {
                return Err(not_locked(&window, target));
            }
            window.unlocked(&mut epoch);
        }
        let flushed = self.complete_operations(&window, Some(target));
        window.set_open(target, CLOSED);
        match held {
            EXCLUSIVE => {
                self.leave(&window, Which::Target(target), 1);
                self.leave(&window, Which::All, FOR_ONE);
            }
            SHARED => self.leave(&window, Which::Target(target), 0),
            _ => {}
        }
        window.claim(Some(target), 0);
        self.polled(&window);
        flushed
    }

    /// `MPI_Win_lock_all`
    ///
    /// # Errors
    /// When another epoch is open, or a process died that held a target exclusively or waited for
    /// that.
    pub fn lock_all(&self, handle: u32, assert: i32) -> Result<()> {
        let window = self.window(handle)?;
        check_assert(assert, MPI_MODE_NOCHECK)?;
        let held = assert & MPI_MODE_NOCHECK == 0;
        {
            let mut epoch = window.epoch();
            if !epoch.is_quiet() {
                return window.refused("MPI_Win_lock_all", &epoch);
            }
            epoch.access = Access::LockAll(held);
            window.passive.store(true, Ordering::Relaxed);
        }
        if held {
            window.claim(None, 1);
            if let Err(error) = self.enter(&window, Which::All, FOR_ALL) {
                window.claim(None, 0);
                window.epoch().access = Access::None;
                window.passive.store(false, Ordering::Relaxed);
                return Err(error);
            }
        }
        window.all.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// `MPI_Win_unlock_all`
    ///
    /// # Errors
    /// When there was no `MPI_Win_lock_all`, or an operation failed at its target.
    pub fn unlock_all(&self, handle: u32) -> Result<()> {
        let window = self.window(handle)?;
        let held = {
            let mut epoch = window.epoch();
            let Access::LockAll(held) = epoch.access else {
                return window.refused("MPI_Win_unlock_all", &epoch);
            };
            epoch.access = Access::None;
            window.passive.store(false, Ordering::Relaxed);
            held
        };
        let flushed = self.complete_operations(&window, None);
        window.all.store(false, Ordering::Relaxed);
        if held {
            self.leave(&window, Which::All, FOR_ALL);
            window.claim(None, 0);
        }
        self.polled(&window);
        flushed
    }

    /// # Errors
    /// When a process has died that the lock waits for.
    fn enter(&self, window: &Window, which: Which, class: usize) -> Result<()> {
        let pending = || Some(Pending::Collective(None, window.comm.collective()));
        let lost = |holder| Err(window.lost(holder, which.lost()));
        match (window.lock_of(which), &window.serving) {
            (Some((lock, solo)), _) => {
                if lock.enter(class, solo) {
                    return Ok(());
                }
                self.mpi.rank().block(
                    |engine| {
                        if lock.enter(class, solo) {
                            return Some(Ok(()));
                        }
                        window.dead_holder(engine, which, class).map(lost)
                    },
                    |_| pending(),
                )
            }
            (None, Some(serving)) => {
                serving.ask(self.mpi.rank(), which, class);
                let keeper = which.keeper();
                let process = window.targets[keeper as usize].process;
                self.mpi.rank().block(
                    |engine| match serving.take_granted(which) {
                        Some(answer) => Some(answer.or_else(lost)),
                        None => engine.is_dead(process).then(|| lost(keeper)),
                    },
                    |_| pending(),
                )
            }
            (None, None) => unreachable!("a window has a block or a server"),
        }
    }

    fn leave(&self, window: &Window, which: Which, class: usize) {
        match (window.lock_of(which), &window.serving) {
            (Some((lock, _)), _) => {
                if lock.leave(class) {
                    self.wake_all(window);
                }
            }
            (None, Some(serving)) => serving.give_back(self.mpi.rank(), which, class),
            (None, None) => unreachable!("a window has a block or a server"),
        }
    }
}

impl Window {
    /// Returns the lock in the control block, and whether its class 1 excludes itself.
    fn lock_of(&self, which: Which) -> Option<(&Lock, bool)> {
        let block = self.block.as_ref()?;
        Some(match which {
            Which::Target(target) => (block.lock(target), true),
            Which::All => (block.all(), false),
        })
    }

    /// Says in the control block, if there is one, what this process asks for of the lock of a
    /// target (none: of all).
    fn claim(&self, of: Option<u32>, claim: u32) {
        if let Some(block) = &self.block {
            block.claim(self.rank(), of).store(claim, Ordering::Relaxed);
        }
    }

    /// Returns a rank that has died and says to the end that it holds the lock, or waits for it, so
    /// that it is not to be had in this class.
    fn dead_holder(&self, engine: &Engine, which: Which, class: usize) -> Option<u32> {
        let block = self.block.as_ref()?;
        let claims = |by, of| block.claim(by, of).load(Ordering::Relaxed);
        let bars = |&by: &u32| match (which, class) {
            (Which::Target(target), 0) => claims(by, Some(target)) == 2,
            (Which::Target(target), _) => claims(by, Some(target)) != 0,
            (Which::All, FOR_ONE) => claims(by, None) != 0,
            (Which::All, _) => self.ranks().any(|target| claims(by, Some(target)) == 2),
        };
        let is_dead = |&by: &u32| engine.is_dead(self.targets[by as usize].process);
        self.ranks().filter(is_dead).find(bars)
    }

    /// One target less is locked.
    fn unlocked(&self, epoch: &mut Epoch) {
        let Access::Locks(locks) = epoch.access else {
            unreachable!("a target is locked");
        };
        self.passive.store(locks > 1, Ordering::Relaxed);
        epoch.access = match locks {
            1 => Access::None,
            _ => Access::Locks(locks - 1),
        };
    }
}
