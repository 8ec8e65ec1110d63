//! Loads and stores of a window's owner, in the bytes of it that are watched.
//!
//! What orders them with accesses of others is less well known than of calls: a program may wait
//! for a value in its memory. So only those are reported that nothing can have ordered: within an
//! epoch of fences; or, with locks, stores of processes that have learned nothing from the window
//! before. Processes that call `MPI_Win_sync` or fetch values, at any time, are left out.

use crate::checker::Checker;
use crate::finding::{Finding, Kind};
use crate::objects::{Access, By, Late, What};
use crate::record::Record;

impl Checker {
    /// The owner of a window has loaded from it or stored to it: handle, address, bytes.
    pub(crate) fn touches_window(&mut self, process: usize, record: &Record) {
        let is_store = record.name == "store";
        let own = &mut self.processes[process];
        if own.is_multithreaded {
            return;
        }
        let name = if is_store { "the store" } else { "the load" };
        let call = own.call(process, name, record.site);
        let began = own.tick();
        let rank = own.rank;
        let Some(window) = own.windows.get(&record.handle(0)) else {
            return;
        };
        let members = &self.windows[window.id].members;
        let Some(target) = members.iter().position(|&m| m == rank) else {
            return;
        };
        let has_lock = window.lock_all.is_some() || !window.locks.is_empty();
        let is_fence_epoch = window.fence.is_some() && !has_lock && window.start.is_none();
        let id = window.id;
        let Some(begin) =
            (record.handle(1).checked_sub(window.base)).and_then(|begin| i64::try_from(begin).ok())
        else {
            return;
        };
        let new = Access {
            process,
            call,
            target,
            begin,
            end: begin.saturating_add(record.number(2)),
            what: if is_store { What::Writes } else { What::Reads },
            fences: is_fence_epoch.then_some(window.fences),
            after: window.fences,
            by: match window.locks.get(&(target as i64)) {
                _ if own.is_ordered_by_values || window.post.is_some() => By::Unknown,
                Some((_, true)) => By::Exclusive,
                Some(_) => By::Shared,
                None if window.lock_all.is_some() => By::Shared,
                None => By::Nothing,
            },
            is_local: true,
            is_first: !window.has_learned,
            ended: Some(began.clone()),
            began,
        };
        // It may be what the program waits for.
        if !is_store && let Some(window) = own.windows.get_mut(&record.handle(0)) {
            window.has_learned = true;
        }
        self.enter(id, new);
    }

    /// Whether an access of the owner and one of another process conflict. They overlap, and one
    /// of them writes.
    pub(crate) fn conflicts_with_owner(&self, old: &Access, new: &Access) -> bool {
        if old.process == new.process || old.by == By::Unknown || new.by == By::Unknown {
            return false;
        }
        if self.is_before(old, new) {
            return false;
        }
        if let (Some(a), Some(b)) = (old.fences, new.fences) {
            return a == b;
        }
        let (own, other) = if old.is_local { (old, new) } else { (new, old) };
        let is_locked = |a: &Access| matches!(a.by, By::Shared | By::Exclusive);
        let is_exclusive = own.by == By::Exclusive || other.by == By::Exclusive;
        let is_store = own.what == What::Writes;
        is_store
            && is_locked(other)
            && !(is_exclusive && is_locked(own))
            && own.after == other.after
            && own.is_first
            && other.is_first
    }

    /// At the end it is known which processes order their accesses by values.
    pub(crate) fn late_conflicts(&mut self) {
        let mut found = Vec::new();
        for window in &mut self.windows {
            for late in std::mem::take(&mut window.late) {
                let again = window.gets.get(&late.other).copied().unwrap_or_default() > 1;
                let is_void = [late.owner, late.other]
                    .iter()
                    .any(|&p| self.processes[p].is_ordered_by_values)
                    || (again && late.is_void_if_got_again);
                if !is_void {
                    found.push(late.found);
                }
            }
        }
        found.into_iter().for_each(|f| self.report(f));
    }
}

/// What is still to be known of a conflict of two accesses, where one of them is the owner's own.
pub fn late(old: &Access, new: &Access) -> Option<Late> {
    if !old.is_local && !new.is_local {
        return None;
    }
    let (own, other) = if old.is_local { (old, new) } else { (new, old) };
    Some(Late {
        owner: own.process,
        other: other.process,
        is_void_if_got_again: other.what == What::Reads && other.fences.is_none(),
        found: Finding::new(Kind::Conflict),
    })
}
