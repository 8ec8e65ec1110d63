//! Barrier, locks, and going on without the dead.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use margay_sys_mlp::group::{Arena, State, UNKNOWN};
use margay_sys_mlp::robust::{HeldBy, RobustLock, SLICE_NS, Taken};

use crate::constants::*;
use crate::error::{Error, Result};
use crate::names::is_alive;
use crate::{Group, how, refuse};

impl Group {
    /// `mlp_barrier`: returns when all processes of the group have called it.
    ///
    /// # Errors
    /// When a process has ended and will not call it; all others get the error, too.
    pub fn barrier(&self) -> Result<()> {
        let arena = self.arena()?;
        let header = arena.header();
        let accepted = self.accepted.load(Ordering::Relaxed);
        let members = header.processes.load(Ordering::Relaxed) - accepted;
        let asked = Cell::new(0);
        let broken = || {
            // The first time is before the wait, and the common case does not wait long.
            asked.set(asked.get() + 1);
            if asked.get() > 1 {
                self.check_guard(arena);
            }
            header.gone.load(Ordering::SeqCst) != accepted
        };
        let done = header
            .barrier
            .wait(accepted, members, self.policy(arena), broken);
        done.map_err(|_| self.death(arena))
    }

    /// `mlp_lock`: takes the lock at an address of the arena. Returns whether its holder had died.
    ///
    /// # Errors
    /// When the address is not in the arena, or the calling thread has the lock already.
    pub fn lock(&self, address: usize) -> Result<Taken> {
        let arena = self.arena()?;
        let lock = lock_at(arena, address)?;
        let me = self.holder();
        let alive = |process| {
            self.check_guard(arena);
            is_alive(arena, process)
        };
        let taken = lock.lock(me, self.policy(arena), alive);
        taken.map_err(|_| {
            let text = "the calling thread has the lock already, and would wait for itself";
            Error::new(MLP_ERR_LOCK, text)
        })
    }

    /// `mlp_trylock`: as [`lock`](Self::lock), but does not wait; none when another thread has the
    /// lock.
    ///
    /// # Errors
    /// When the address is not in the arena.
    pub fn try_lock(&self, address: usize) -> Result<Option<Taken>> {
        let arena = self.arena()?;
        let lock = lock_at(arena, address)?;
        Ok(lock.try_lock(self.holder(), |p| is_alive(arena, p)).ok())
    }

    /// `mlp_unlock`: releases the lock.
    ///
    /// # Errors
    /// When the calling thread does not have it.
    pub fn unlock(&self, address: usize) -> Result<()> {
        let lock = lock_at(self.arena()?, address)?;
        match lock.unlock(self.holder()) {
            Ok(()) => Ok(()),
            Err(HeldBy(None)) => refuse!(MLP_ERR_LOCK, "the lock is free"),
            Err(HeldBy(Some(holder))) => refuse!(
                MLP_ERR_LOCK,
                "the calling thread does not have the lock; a thread of process {} has",
                holder.process()
            ),
        }
    }

    /// `mlp_shrink`: agrees with all other processes that live to go on without those that have
    /// ended. All of them call it. Returns how many they are.
    ///
    /// # Errors
    /// When the arena cannot be made.
    pub fn shrink(&self) -> Result<u32> {
        let arena = self.arena()?;
        let header = arena.header();
        let all = header.processes.load(Ordering::Relaxed);
        let me = arena.member(self.process());
        loop {
            let gone = header.gone.load(Ordering::SeqCst);
            if gone == self.accepted.load(Ordering::Relaxed) {
                return Ok(all - gone);
            }
            me.ready.store(gone, Ordering::SeqCst);
            header.event_count.wake();
            let settled = || {
                let waits_for = |p| {
                    let member = arena.member(p);
                    member.state() == State::Living && member.ready.load(Ordering::SeqCst) < gone
                };
                header.gone.load(Ordering::SeqCst) != gone || !(1..=all).any(waits_for)
            };
            while !settled() {
                header.event_count.sleep(SLICE_NS, settled);
                self.check_guard(arena);
            }
            if header.gone.load(Ordering::SeqCst) == gone {
                header.barrier.renew(gone);
                self.accepted.store(gone, Ordering::Relaxed);
                return Ok(all - gone);
            }
        }
    }

    /// Whether a process of the group has died and the guard ends the group.
    #[must_use]
    pub fn is_being_ended(&self) -> bool {
        let Some(arena) = self.arena.get() else {
            return false;
        };
        let header = arena.header();
        let all = header.processes.load(Ordering::Relaxed);
        header.tolerant.load(Ordering::SeqCst) == 0
            && (1..=all).any(|p| arena.member(p).state() == State::Dead)
    }

    /// Gives the guard the time to end this process, if it is about to: the guard has reported the
    /// first cause.
    pub fn await_end(&self) {
        if self.is_being_ended() && !self.guard.get().is_some_and(|guard| guard.has_ended()) {
            std::thread::sleep(Duration::from_secs(5));
        }
    }

    /// In process 1: if the guard was killed, the processes that it had made died with it, and no
    /// other process records that.
    fn check_guard(&self, arena: &Arena) {
        if !self.guard.get().is_some_and(|guard| guard.has_ended()) {
            return;
        }
        let header = arena.header();
        for process in 2..=header.processes.load(Ordering::Relaxed) {
            if arena.member(process).set_gone(State::Dead, UNKNOWN) {
                header.gone.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// Returns the error that names the processes that have ended since the last `mlp_shrink`.
    fn death(&self, arena: &Arena) -> Error {
        let all = arena.header().processes.load(Ordering::Relaxed);
        let accepted = self.accepted.load(Ordering::Relaxed);
        let gone = (1..=all).filter_map(|process| {
            let member = arena.member(process);
            match member.state() {
                State::Ended => Some(format!("process {process} has ended in order")),
                State::Dead => {
                    let status = member.status.load(Ordering::Relaxed);
                    Some(format!("process {process} {}", how(status)))
                }
                _ => None,
            }
        });
        let mut gone: Vec<String> = gone.collect();
        if gone.is_empty() {
            gone.push("a process has left the barrier for mlp_shrink".into());
        }
        let before = match accepted {
            0 => String::new(),
            n => format!(" ({n} of them were left out before)"),
        };
        Error::new(
            MLP_ERR_DEATH,
            format!(
                "{}{before}, and a barrier waits for all; mlp_shrink, called by all others, leaves out those that have ended",
                gone.join(", ")
            ),
        )
    }
}

fn lock_at(arena: &Arena, address: usize) -> Result<&RobustLock> {
    match arena.lock_at(address) {
        Some(lock) => Ok(lock),
        None => refuse!(
            MLP_ERR_ARGUMENT,
            "the lock at {address:#x} is no integer in the arena, so other processes do not see it; mlp_alloc makes room for it"
        ),
    }
}
