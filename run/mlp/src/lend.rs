//! Lending CPUs: a process lends CPUs that it does not use, others borrow them, and it may reclaim
//! them.
//!
//! Each slot (a thread's CPU) has one word that says which process uses the CPU. Every change is
//! one compare-and-swap of that word:
//!
//! | from | to | by | |
//! | --- | --- | --- | --- |
//! | own | lent | its owner | `lend` |
//! | lent | borrowed | any process | `borrow` |
//! | lent | own | its owner | `reclaim` |
//! | borrowed | wanted | its owner | `reclaim` |
//! | borrowed | lent | the borrower | `give_back` |
//! | wanted | own | the borrower | `give_back`, `use_threads` |
//!
//! The CPUs of a process that has ended count as lent, and those that it had borrowed as returned.
//! Nothing waits: until a borrower has returned a CPU, its owner shares it by the system's
//! scheduling.

use std::sync::atomic::Ordering;

use margay_sys_mlp::group::{Arena, ThreadSlot, Use};

use crate::constants::*;
use crate::error::Result;
use crate::names::is_alive;
use crate::threads::own_slots;
use crate::{Group, refuse};

impl Group {
    /// `mlp_lend`: others may use up to `count` CPUs of this process until it reclaims them, the
    /// last ones first. Returns how many it lends in addition to those that it lent before.
    ///
    /// # Errors
    /// When `count` is below 0.
    pub fn lend(&self, count: i64) -> Result<u32> {
        let count = checked_count(count)?;
        let arena = self.arena()?;
        let own = own_slots(arena, self.process()).iter().rev();
        let lent = own.filter(|slot| slot.change(Use::Own, Use::Lent));
        Ok(lent.take(count).count() as u32)
    }

    /// `mlp_borrow`: takes up to `count` CPUs that others lend, those near to this process's memory
    /// first. Returns how many. `use_threads` then uses them.
    ///
    /// # Errors
    /// When `count` is below 0.
    pub fn borrow(&self, count: i64) -> Result<u32> {
        let count = checked_count(count)?;
        let arena = self.arena()?;
        let me = self.process();
        let home = own_slots(arena, me).first();
        let home = home.map_or(0, |slot| slot.node.load(Ordering::Relaxed));
        let mut slots = others(arena, me);
        slots.sort_by_key(|(_, slot)| {
            let node = slot.node.load(Ordering::Relaxed);
            self.topology().distance(home, node)
        });
        let taken = slots.iter().filter(|(owner, slot)| {
            free(arena, *owner, slot).is_some_and(|usage| slot.change(usage, Use::Borrowed(me)))
        });
        Ok(taken.take(count).count() as u32)
    }

    /// `mlp_idle`: how many CPUs could be borrowed now.
    ///
    /// # Errors
    /// When the arena cannot be made.
    pub fn idle(&self) -> Result<u32> {
        let arena = self.arena()?;
        let slots = others(arena, self.process());
        let idle = slots
            .iter()
            .filter(|(owner, slot)| free(arena, *owner, slot).is_some());
        Ok(idle.count() as u32)
    }

    /// `mlp_reclaim`: this process wants all its CPUs back. Returns how many others still use; they
    /// give them back at their next `use_threads` or `give_back`.
    ///
    /// # Errors
    /// When the arena cannot be made.
    pub fn reclaim(&self) -> Result<u32> {
        let arena = self.arena()?;
        let mut out = 0;
        for slot in own_slots(arena, self.process()) {
            // Each failed change means that another process has made one; after few of those the
            // state stays.
            loop {
                let usage = slot.usage();
                let next = match usage {
                    Use::Own => break,
                    Use::Lent => Use::Own,
                    Use::Borrowed(p) | Use::Wanted(p) if !is_alive(arena, p) => Use::Own,
                    Use::Borrowed(p) | Use::Wanted(p) => Use::Wanted(p),
                };
                if usage == next || slot.change(usage, next) {
                    out += u32::from(next != Use::Own);
                    break;
                }
            }
        }
        Ok(out)
    }

    /// `mlp_return`: gives back all CPUs that this process has borrowed. Returns how many.
    ///
    /// # Errors
    /// When the arena cannot be made.
    pub fn give_back(&self) -> Result<u32> {
        let arena = self.arena()?;
        let me = self.process();
        let mut back = self.give_back_wanted(arena);
        back += hand_over(arena, Use::Borrowed(me), Use::Lent);
        // Those that were reclaimed meanwhile.
        Ok(back + self.give_back_wanted(arena))
    }

    /// Returns the CPUs that their owners have reclaimed.
    pub(crate) fn give_back_wanted(&self, arena: &Arena) -> u32 {
        hand_over(arena, Use::Wanted(self.process()), Use::Own)
    }
}

/// Changes the use of all CPUs that this process uses in one way. Its threads are no longer bound
/// there.
fn hand_over(arena: &Arena, from: Use, to: Use) -> u32 {
    let slots = arena.slots().iter().filter(|slot| {
        let is_here = slot.usage() == from;
        if is_here {
            slot.thread.store(0, Ordering::Relaxed);
        }
        is_here && slot.change(from, to)
    });
    slots.count() as u32
}

/// Returns the slots of all other processes, with their owners.
fn others(arena: &Arena, me: u32) -> Vec<(u32, &ThreadSlot)> {
    let processes = arena.header().processes.load(Ordering::Relaxed);
    let processes = (1..=processes).filter(|&process| process != me);
    let slots = processes.flat_map(|owner| own_slots(arena, owner).iter().map(move |s| (owner, s)));
    slots.collect()
}

/// Returns how a slot is used, if that means that it may be borrowed.
fn free(arena: &Arena, owner: u32, slot: &ThreadSlot) -> Option<Use> {
    let usage = slot.usage();
    let has_owner = is_alive(arena, owner);
    let is_free = match usage {
        Use::Own => !has_owner,
        Use::Lent => true,
        Use::Borrowed(p) => !is_alive(arena, p),
        Use::Wanted(p) => !is_alive(arena, p) && !has_owner,
    };
    is_free.then_some(usage)
}

fn checked_count(count: i64) -> Result<usize> {
    match usize::try_from(count) {
        Ok(count) => Ok(count),
        Err(_) => refuse!(MLP_ERR_ARGUMENT, "{count} CPUs are asked for"),
    }
}
