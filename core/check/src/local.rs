//! Loads and stores of a window's owner, in the bytes of it that are watched.
//!
//! What orders them with accesses of others is less well known than of calls: a program may wait
//! for a value in its memory. So only those are reported that nothing can have ordered: within an
//! epoch of fences; or, with locks, stores of processes that have learned nothing from the window
//! before. Processes that call `MPI_Win_sync` or fetch values, at any time, are left out.

use crate::accesses::{Access, AccessKind, By, What};
use crate::checker::Checker;
use crate::finding::{Finding, Kind};
use crate::objects::Late;
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
        let kind = AccessKind {
            process,
            call,
            what: if is_store { What::Writes } else { What::Reads },
            is_in_fences: is_fence_epoch,
            by: match window.locks.get(&(target as i64)) {
                _ if own.is_ordered_by_values || window.post.is_some() => By::Unknown,
                Some((_, true)) => By::Exclusive,
                Some(_) => By::Shared,
                None if window.lock_all.is_some() => By::Shared,
                None => By::Nothing,
            },
            is_local: true,
            is_first: !window.has_learned,
        };
        let new = Access {
            kind,
            target,
            begin,
            end: begin.saturating_add(record.number(2)),
            after: window.fences,
            began,
            is_over: true,
        };
        // It may be what the program waits for.
        if !is_store && let Some(window) = own.windows.get_mut(&record.handle(0)) {
            window.has_learned = true;
        }
        self.enter(id, new);
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
pub fn late(old: &AccessKind, new: &AccessKind) -> Option<Late> {
    if !old.is_local && !new.is_local {
        return None;
    }
    let (own, other) = if old.is_local { (old, new) } else { (new, old) };
    Some(Late {
        owner: own.process,
        other: other.process,
        is_void_if_got_again: other.what == What::Reads && !other.is_in_fences,
        found: Finding::new(Kind::Conflict),
    })
}
