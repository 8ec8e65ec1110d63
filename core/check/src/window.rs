//! One-sided communication: epochs, and accesses that conflict.

use std::collections::BTreeMap;

use crate::accesses::{Access, AccessKind, By, What};
use crate::checker::Checker;
use crate::finding::{Call, Finding, Kind};
use crate::local::late;
use crate::objects::{Late, Window};
use crate::record::Record;
use crate::state::*;

/// `MPI_MODE_NOPRECEDE`
const NOPRECEDE: i64 = 2048;

impl Checker {
    fn own_window(&mut self, process: usize, handle: u64) -> Option<&mut OwnWindow> {
        self.processes[process].windows.get_mut(&handle)
    }

    pub(crate) fn new_window(
        &mut self,
        process: usize,
        record: &Record,
        place: Option<(usize, u64)>,
    ) {
        let handle = record.handle(0);
        if record.code != 0 || handle == MPI_WIN_NULL {
            return;
        }
        let id = match place {
            Some(place) => *self.made_windows.entry(place).or_insert_with(|| {
                self.windows.push(Window {
                    members: self.comms[place.0].members.clone(),
                    ..Window::default()
                });
                self.windows.len() - 1
            }),
            None => {
                self.windows.push(Window::default());
                self.windows.len() - 1
            }
        };
        self.windows[id].units.insert(process, record.number(3));
        let own = OwnWindow {
            id,
            base: record.handle(1),
            bytes: u64::try_from(record.number(2)).unwrap_or_default(),
            ..OwnWindow::default()
        };
        self.processes[process].windows.insert(handle, own);
    }

    /// A process is about to synchronize.
    pub(crate) fn before_synchronization(
        &mut self,
        process: usize,
        record: &Record,
    ) -> Option<Finding> {
        let call = self.processes[process].call(process, &record.name, record.site);
        let rank = self.processes[process].rank;
        let own = self.own_window(process, record.handle(0))?;
        let inside = |opened: &Call, remedy: &str| {
            Finding::new(Kind::Epoch)
                .say(format!("rank {rank}: "))
                .call(&call)
                .say(" inside the epoch that ")
                .call(opened)
                .say(" has opened; ")
                .say(remedy)
        };
        let lock = own
            .locks
            .values()
            .next()
            .map(|l| &l.0)
            .or(own.lock_all.as_ref());
        let without = |what: &str| {
            Some(
                Finding::new(Kind::Epoch)
                    .say(format!("rank {rank}: "))
                    .call(&call)
                    .say(format!(" without {what} before it")),
            )
        };
        match record.name.as_str() {
            "MPI_Win_fence" => {
                if let Some(open) = lock.or(own.start.as_ref()) {
                    return Some(inside(open, "end that epoch before the fence"));
                }
                // Accesses between two fences make an epoch of these, unless one of them says that
                // there is none.
                let open = own
                    .locked
                    .as_ref()
                    .filter(|_| record.number(1) & NOPRECEDE == 0)?;
                Some(
                    Finding::new(Kind::Epoch)
                        .say(format!("rank {rank}: "))
                        .call(open)
                        .say(" inside the epoch of fences that ")
                        .call(&call)
                        .say(" ends; pass MPI_MODE_NOSUCCEED to the fence before it and MPI_MODE_NOPRECEDE to this one"),
                )
            }
            "MPI_Win_lock" | "MPI_Win_lock_all" => {
                let same = match record.name.as_str() {
                    "MPI_Win_lock" => own.locks.get(&record.number(1)).map(|l| &l.0),
                    _ => own.locks.values().next().map(|l| &l.0),
                };
                if let Some(open) = same.or(own.lock_all.as_ref()).or(own.start.as_ref()) {
                    return Some(inside(open, "unlock first"));
                }
                // A fence ends an epoch; whether it also begins one shows when it is used.
                own.fence
                    .as_ref()
                    .filter(|_| own.used.is_some())
                    .map(|open| inside(open, "end that epoch by a fence first"))
            }
            "MPI_Win_unlock" if !own.locks.contains_key(&record.number(1)) => {
                without(&format!("MPI_Win_lock of rank {}", record.number(1)))
            }
            "MPI_Win_unlock_all" if own.lock_all.is_none() => without("MPI_Win_lock_all"),
            "MPI_Win_complete" if own.start.is_none() => without("MPI_Win_start"),
            "MPI_Win_wait" | "MPI_Win_test" if own.post.is_none() => without("MPI_Win_post"),
            "MPI_Win_start" => {
                let open = own.start.as_ref().or(lock)?;
                Some(inside(open, "end that epoch first"))
            }
            "MPI_Win_flush" | "MPI_Win_flush_local"
                if own.lock_all.is_none() && !own.locks.contains_key(&record.number(1)) =>
            {
                without("a lock of that rank")
            }
            "MPI_Win_flush_all" | "MPI_Win_flush_local_all"
                if own.lock_all.is_none() && own.locks.is_empty() =>
            {
                without("a lock")
            }
            _ => None,
        }
    }

    /// A process has synchronized.
    pub(crate) fn synchronized(&mut self, process: usize, record: &Record) {
        const NOSUCCEED: i64 = 16384;
        const EXCLUSIVE: i64 = 301;
        let handle = record.handle(0);
        let call = self.processes[process].call(process, &record.name, record.site);
        let Some(own) = self.own_window(process, handle) else {
            return;
        };
        let (first, second) = (record.number(1), record.number(2));
        let (mut completes, mut fences) = (None, None);
        match record.name.as_str() {
            "MPI_Win_fence" => {
                own.fence = (first & NOSUCCEED == 0).then_some(call);
                own.used = None;
                own.fences += 1;
                own.is_after_fence = own.fence.is_some();
                own.locked = None;
                completes = Some(-1);
                fences = Some(own.fences);
            }
            "MPI_Win_lock" => {
                own.locks.insert(first, (call, second == EXCLUSIVE));
                own.fence = None;
            }
            "MPI_Win_unlock" => {
                own.locks.remove(&first);
                own.has_learned = true;
                completes = Some(first);
            }
            "MPI_Win_lock_all" => {
                own.lock_all = Some(call);
                own.fence = None;
            }
            "MPI_Win_unlock_all" => {
                own.lock_all = None;
                own.has_learned = true;
                completes = Some(-1);
            }
            "MPI_Win_start" => {
                own.start = Some(call);
                own.fence = None;
            }
            "MPI_Win_complete" => {
                own.start = None;
                completes = Some(-1);
            }
            "MPI_Win_post" => {
                own.post = Some(call);
                own.fence = None;
            }
            "MPI_Win_wait" => own.post = None,
            "MPI_Win_test" if first != 0 => own.post = None,
            "MPI_Win_flush" | "MPI_Win_flush_local" => completes = Some(first),
            "MPI_Win_flush_all" | "MPI_Win_flush_local_all" => completes = Some(-1),
            _ => {}
        }
        let id = own.id;
        match record.name.as_str() {
            "MPI_Win_sync" => self.processes[process].is_ordered_by_values = true,
            "MPI_Win_lock" | "MPI_Win_lock_all" => self.processes[process].has_locked = true,
            _ => {}
        }
        let Some(target) = completes else {
            return;
        };
        let target = (target >= 0).then_some(target);
        self.processes[process].uses.end_window(handle, target);
        if record.name.contains("local") {
            return;
        }
        let now = self.now(process, true);
        let target = target.and_then(|target| usize::try_from(target).ok());
        self.windows[id].accesses.complete(process, target, now);
        if let Some(fences) = fences {
            self.fenced(process, id, fences);
        }
    }

    /// The number of the last event of a process, or of a new one.
    fn now(&mut self, process: usize, is_new: bool) -> u32 {
        let own = &mut self.processes[process];
        if is_new {
            own.tick();
        }
        own.moment
            .get(own.rank as usize)
            .copied()
            .unwrap_or(u32::MAX - 1)
    }

    /// The request of an access is done: its memory is free. What it got it has; what it put may
    /// still be on its way.
    pub(crate) fn access_done(&mut self, process: usize, call: &Call) {
        self.processes[process].uses.end_call(call);
        if !call.name.contains("get") {
            return;
        }
        let now = self.now(process, false);
        for window in &mut self.windows {
            window.accesses.complete_call(call, now);
        }
    }

    /// A window is about to be freed.
    pub(crate) fn frees_window(&mut self, process: usize, record: &Record) -> Option<Finding> {
        let call = self.processes[process].call(process, &record.name, record.site);
        let rank = self.processes[process].rank;
        let own = self.own_window(process, record.handle(0))?;
        let open = (own.locks.values().next().map(|l| &l.0))
            .or(own.lock_all.as_ref())
            .or(own.start.as_ref())
            .or(own.post.as_ref())
            .or(own.used.as_ref().filter(|_| own.fence.is_some()))
            .cloned();
        let open = open?;
        Some(
            Finding::new(Kind::Epoch)
                .say(format!("rank {rank}: "))
                .call(&call)
                .say(" while the epoch of ")
                .call(&open)
                .say(" is open; end it first (MPI_Win_fence, MPI_Win_unlock, MPI_Win_complete or MPI_Win_wait)"),
        )
    }

    /// Whether an access has to wait until it is known what its target has made its window of.
    pub(crate) fn access_waits(&self, process: usize, record: &Record) -> bool {
        let target = || {
            let own = self.processes[process].windows.get(&record.handle(12))?;
            let window = &self.windows[own.id];
            let rank = window
                .members
                .get(usize::try_from(record.number(6)).ok()?)?;
            let target = self.process_of(*rank)?;
            let target_of = &self.processes[target];
            let is_gone = target_of.has_ended && target_of.waiting.is_empty();
            Some(!window.units.contains_key(&target) && !is_gone)
        };
        target().unwrap_or(false)
    }

    /// A process accesses a window: items as `ACCESS` in abi/check has them.
    pub(crate) fn access(&mut self, process: usize, record: &Record) -> Option<Finding> {
        let handle = record.handle(12);
        let target = record.number(6);
        let rank = self.processes[process].rank;
        let call = self.processes[process].call(process, &record.name, record.site);
        let own = self.own_window(process, handle)?;
        if target == MPI_PROC_NULL {
            return None;
        }
        let lock = own.locks.get(&target).map(|l| l.1);
        let in_fence = own.fence.is_some();
        if lock.is_none() && own.lock_all.is_none() && own.start.is_none() && !in_fence {
            return Some(
                Finding::new(Kind::Epoch)
                    .say(format!("rank {rank}: "))
                    .call(&call)
                    .say(format!(" accesses rank {target} outside of an epoch; call MPI_Win_fence, MPI_Win_lock or MPI_Win_start before it")),
            );
        }
        own.used = Some(call.clone());
        let by_lock = own
            .locks
            .get(&target)
            .map(|l| &l.0)
            .or(own.lock_all.as_ref());
        if own.is_after_fence && own.locked.is_none() {
            own.locked = by_lock.cloned();
        }
        let is_fence_epoch =
            in_fence && lock.is_none() && own.lock_all.is_none() && own.start.is_none();
        let (id, after) = (own.id, own.fences);
        let by = match lock {
            _ if own.start.is_some() => By::Unknown,
            Some(true) => By::Exclusive,
            Some(false) => By::Shared,
            None if own.lock_all.is_some() => By::Shared,
            None => By::Nothing,
        };
        let is_first = !own.has_learned;
        let is_get = matches!(record.name.as_str(), "MPI_Get" | "MPI_Rget");
        own.has_learned |= is_get;
        if is_get {
            *self.windows[id].gets.entry(process).or_default() += 1;
        }
        self.uses_of_access(process, record, &call);
        if !matches!(
            record.name.as_str(),
            "MPI_Put" | "MPI_Rput" | "MPI_Get" | "MPI_Rget" | "MPI_Accumulate" | "MPI_Raccumulate"
        ) {
            self.processes[process].is_ordered_by_values = true;
        }
        let began = self.processes[process].tick();
        let members = self.windows[id].members.clone();
        let target_process = self.process_of(*members.get(usize::try_from(target).ok()?)?)?;
        let unit = *self.windows[id].units.get(&target_process)?;
        let of = self.processes[process].data_type(record.handle(10))?;
        if !of.is_dense {
            return None;
        }
        let begin = record.number(7).checked_mul(unit)?;
        let bytes = i64::try_from(of.size()?)
            .ok()?
            .checked_mul(record.number(8))?;
        let what = match record.name.as_str() {
            "MPI_Put" | "MPI_Rput" => What::Writes,
            "MPI_Get" | "MPI_Rget" => What::Reads,
            _ => What::Combines(record.handle(11)),
        };
        let kind = AccessKind {
            process,
            call,
            what,
            is_in_fences: is_fence_epoch,
            by: match self.processes[process].is_ordered_by_values {
                true => By::Unknown,
                false => by,
            },
            is_local: false,
            is_first,
        };
        let new = Access {
            kind,
            target: usize::try_from(target).ok()?,
            begin,
            end: begin.checked_add(bytes)?,
            after,
            began,
            is_over: false,
        };
        self.enter(id, new);
        None
    }

    /// Enters an access, and looks for others that conflict with it.
    pub(crate) fn enter(&mut self, id: usize, new: Access) {
        let rank = |process: usize| self.processes[process].rank as usize;
        let (process, target) = (new.kind.process, new.target);
        let found = self.windows[id].accesses.find(&new, rank).map(|old| {
            let found = Finding::new(Kind::Conflict)
                .say(format!("rank {}: ", rank(old.process)))
                .call(&old.call)
                .say(format!(" and rank {}: ", rank(process)))
                .call(&new.kind.call)
                .say(format!(
                    " access the same bytes of the window of rank {target}, and nothing orders them; separate them by a synchronization, or use MPI_Accumulate"
                ));
            (found, late(old, &new.kind))
        });
        let own = rank(process);
        let accesses = &mut self.windows[id].accesses;
        accesses.enter(new, own);
        if accesses.is_full() {
            self.purge(id);
        }
        match found {
            Some((found, Some(late))) => self.windows[id].late.push(Late { found, ..late }),
            Some((found, None)) => self.report(found),
            None => {}
        }
    }

    /// Drops accesses of which all other processes of the window know that they are over.
    fn purge(&mut self, id: usize) {
        let members = self.windows[id].members.iter().map(|m| self.process_of(*m));
        let members: Vec<Option<usize>> = members.collect();
        let known = |of: usize| {
            let rank = self.processes[of].rank as usize;
            let others = members.iter().filter(|member| **member != Some(of));
            let seen = others.map(|member| match member.map(|m| &self.processes[m]) {
                Some(other) if other.has_ended && other.waiting.is_empty() => u32::MAX,
                Some(other) => other.moment.get(rank).copied().unwrap_or_default(),
                None => 0,
            });
            seen.min().unwrap_or(u32::MAX)
        };
        let known: BTreeMap<usize, u32> =
            (members.iter().flatten().map(|&of| (of, known(of)))).collect();
        let known = |of: usize| known.get(&of).copied().unwrap_or_default();
        if self.windows[id].accesses.purge(known) {
            self.left_out(
                "a window is accessed in more places than are remembered; conflicts with the first ones are not found",
            );
        }
    }

    /// A process has made fences of a window, or has freed it: accesses before those that all have
    /// made are forgotten.
    pub(crate) fn fenced(&mut self, process: usize, id: usize, fences: u32) {
        let window = &mut self.windows[id];
        window.fences.insert(process, fences);
        if window.fences.len() == window.members.len() {
            let all = window.fences.values().min().copied();
            window.accesses.forget_before(all.unwrap_or_default());
        }
    }

    /// A call reads or writes memory of its own process: where that is memory of a window, it is an
    /// access to it. Calls that return when they are done end at once.
    pub(crate) fn access_own(
        &mut self,
        process: usize,
        call: &Call,
        (begin, end): (u64, u64),
        writes: bool,
        until: Option<Until>,
    ) {
        let own = &self.processes[process];
        let mut found: Vec<(usize, Access)> = Vec::new();
        for window in own.windows.values().filter(|w| w.base != 0) {
            let is_in = window.base <= begin && end <= window.base.saturating_add(window.bytes);
            let members = &self.windows[window.id].members;
            let target = members.iter().position(|&m| m == own.rank);
            let (true, Some(target)) = (is_in, target) else {
                continue;
            };
            let at = |address: u64| i64::try_from(address - window.base).unwrap_or(i64::MAX);
            let began: Moment = own.moment.as_slice().into();
            let kind = AccessKind {
                process,
                call: call.clone(),
                what: if writes { What::Writes } else { What::Reads },
                is_in_fences: window.fences > 0,
                by: match window.locks.get(&(target as i64)) {
                    _ if own.is_ordered_by_values || window.post.is_some() => By::Unknown,
                    // Between locks of its own it may have seen what others had put there.
                    _ if window.has_learned && window.fence.is_none() => By::Unknown,
                    Some((_, true)) => By::Exclusive,
                    Some(_) => By::Shared,
                    None => By::Nothing,
                },
                is_local: false,
                is_first: false,
            };
            let access = Access {
                kind,
                target,
                begin: at(begin),
                end: at(end),
                after: window.fences,
                is_over: until.is_none(),
                began,
            };
            found.push((window.id, access));
        }
        found
            .into_iter()
            .for_each(|(id, access)| self.enter(id, access));
    }

    /// The origin's memory is in use until the access is completed.
    fn uses_of_access(&mut self, process: usize, record: &Record, call: &Call) {
        let until = Until::Window(record.handle(12), record.number(6));
        let is_single = matches!(
            record.name.as_str(),
            "MPI_Fetch_and_op" | "MPI_Compare_and_swap"
        );
        let no_op = 0x3d == record.handle(11);
        for (at, writes) in [(0, false), (3, true)] {
            if at == 0 && (is_single || no_op) {
                continue;
            }
            self.uses(
                process,
                call,
                (
                    record.handle(at),
                    record.number(at + 1),
                    record.handle(at + 2),
                ),
                writes,
                Some(until),
            );
        }
    }
}
