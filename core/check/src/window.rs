//! One-sided communication: epochs, and accesses that conflict.

use margay_core_datatype::Basic;

use crate::checker::Checker;
use crate::finding::{Call, Finding, Kind};
use crate::local::late;
use crate::objects::{Access, By, Late, What, Window};
use crate::record::Record;
use crate::state::*;

/// Accesses to a window that are remembered; older ones are forgotten.
const MOST_ACCESSES: usize = 4096;

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
        let mut completes = None;
        match record.name.as_str() {
            "MPI_Win_fence" => {
                own.fence = (first & NOSUCCEED == 0).then_some(call);
                own.used = None;
                own.fences += 1;
                own.is_after_fence = own.fence.is_some();
                own.locked = None;
                completes = Some(-1);
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
        let is_all = target < 0;
        (self.processes[process].uses).retain(|u| match u.until {
            Until::Window(win, rank) => win != handle || !(is_all || rank == target),
            Until::Request(_) => true,
        });
        if record.name.contains("local") {
            return;
        }
        let now = self.processes[process].tick();
        for access in &mut self.windows[id].accesses {
            let is_its = access.process == process && (is_all || access.target as i64 == target);
            if is_its && access.ended.is_none() {
                access.ended = Some(now.clone());
            }
        }
        // These conflict with nothing any more.
        (self.windows[id].accesses).retain(|a| a.by != By::Unknown || a.ended.is_none());
    }

    /// The request of an access is done: its memory is free. What it got it has; what it put may
    /// still be on its way.
    pub(crate) fn access_done(&mut self, process: usize, call: &Call) {
        self.processes[process].uses.retain(|u| u.call != *call);
        let now: Moment = self.processes[process].moment.as_slice().into();
        if !call.name.contains("get") {
            return;
        }
        for access in self.windows.iter_mut().flat_map(|w| &mut w.accesses) {
            if access.process == process && access.call == *call && access.ended.is_none() {
                access.ended = Some(now.clone());
            }
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
        let fences = is_fence_epoch.then_some(after);
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
        let new = Access {
            process,
            call,
            target: usize::try_from(target).ok()?,
            begin,
            end: begin.checked_add(bytes)?,
            what,
            fences,
            after,
            by: if self.processes[process].is_ordered_by_values {
                By::Unknown
            } else {
                by
            },
            began,
            is_local: false,
            is_first,
            ended: None,
        };
        self.enter(id, new);
        None
    }

    /// Enters an access, and looks for others that conflict with it.
    pub(crate) fn enter(&mut self, id: usize, new: Access) {
        let rank = self.processes[new.process].rank;
        let target = new.target;
        let found = (self.windows[id].accesses.iter())
            .find(|old| self.conflict(old, &new))
            .map(|old| {
                let found = Finding::new(Kind::Conflict)
                    .say(format!("rank {}: ", self.processes[old.process].rank))
                    .call(&old.call)
                    .say(format!(" and rank {rank}: "))
                    .call(&new.call)
                    .say(format!(
                        " access the same bytes of the window of rank {target}, and nothing orders them; separate them by a synchronization, or use MPI_Accumulate"
                    ));
                (found, late(old, &new))
            });
        let accesses = &mut self.windows[id].accesses;
        if accesses.len() == MOST_ACCESSES {
            accesses.drain(..MOST_ACCESSES / 2);
        }
        accesses.push(new);
        match found {
            Some((found, Some(late))) => self.windows[id].late.push(Late { found, ..late }),
            Some((found, None)) => self.report(found),
            None => {}
        }
    }

    /// A call reads or writes memory of its own process: where that is memory of a window, it is an
    /// access to it. Calls that return when they are done end at once.
    fn access_own(
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
            let access = Access {
                process,
                call: call.clone(),
                target,
                begin: at(begin),
                end: at(end),
                what: if writes { What::Writes } else { What::Reads },
                fences: (window.fences > 0).then_some(window.fences),
                after: window.fences,
                by: match window.locks.get(&(target as i64)) {
                    _ if own.is_ordered_by_values || window.post.is_some() => By::Unknown,
                    Some((_, true)) => By::Exclusive,
                    Some(_) => By::Shared,
                    None => By::Nothing,
                },
                is_local: false,
                is_first: false,
                ended: until.is_none().then(|| began.clone()),
                began,
            };
            found.push((window.id, access));
        }
        found
            .into_iter()
            .for_each(|(id, access)| self.enter(id, access));
    }

    fn conflict(&self, old: &Access, new: &Access) -> bool {
        const NO_OP: u64 = 0x3d;
        let is_apart = old.target != new.target || old.end <= new.begin || new.end <= old.begin;
        let is_read = |w: What| matches!(w, What::Reads | What::Combines(NO_OP));
        let harmless = match (old.what, new.what) {
            (What::Combines(_), What::Combines(_)) => true,
            (a, b) => is_read(a) && is_read(b),
        };
        if is_apart || harmless {
            return false;
        }
        if old.is_local || new.is_local {
            return self.conflicts_with_owner(old, new);
        }
        if old.process == new.process {
            // Of one process: those that have been completed are ordered.
            return old.ended.is_none();
        }
        let is_unknown = old.by == By::Unknown || new.by == By::Unknown;
        let is_locked = |a: &Access| matches!(a.by, By::Shared | By::Exclusive);
        let is_exclusive = old.by == By::Exclusive || new.by == By::Exclusive;
        if is_unknown || (is_exclusive && is_locked(old) && is_locked(new)) {
            return false;
        }
        if let (Some(a), Some(b)) = (old.fences, new.fences) {
            return a == b;
        }
        // All come to a fence, and what was begun before it is over then.
        if old.after != new.after {
            return false;
        }
        !self.is_before(old, new)
    }

    /// Whether an access was over when the other one began, and the process of that one knew it.
    pub(crate) fn is_before(&self, a: &Access, b: &Access) -> bool {
        let rank = self.processes[a.process].rank as usize;
        match (&a.ended, b.began.get(rank)) {
            (Some(end), Some(seen)) => end.get(rank).is_some_and(|end| seen >= end),
            _ => false,
        }
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

    /// A call uses memory: is another one still using it? `until` says how long; none: until it
    /// returns.
    pub(crate) fn uses(
        &mut self,
        process: usize,
        call: &Call,
        (buffer, count, of): (u64, i64, u64),
        writes: bool,
        until: Option<Until>,
    ) {
        let own = &mut self.processes[process];
        let Some(of) = own.data_type(of).filter(|t| t.is_dense) else {
            return;
        };
        let is_nowhere = buffer <= 2 || of.basic() == Some(Basic::Packed);
        let bytes = of
            .size()
            .and_then(|s| s.checked_mul(u64::try_from(count).ok()?));
        let Some(end) = bytes
            .and_then(|b| buffer.checked_add(b))
            .filter(|&e| !is_nowhere && e > buffer)
        else {
            return;
        };
        let new = Use {
            begin: buffer,
            end,
            writes,
            call: call.clone(),
            until: until.unwrap_or(Until::Request(0)),
        };
        let both =
            |old: &&Use| old.begin < new.end && new.begin < old.end && (old.writes || new.writes);
        let found = own.uses.iter().find(both).map(|old| {
            let does = |writes: bool| if writes { "writes to" } else { "reads" };
            Finding::new(Kind::Buffer)
                .say(format!("rank {}: ", own.rank))
                .call(&new.call)
                .say(format!(" {} memory that ", does(new.writes)))
                .call(&old.call)
                .say(format!(
                    " still {}; complete that one first",
                    if old.writes { "writes to" } else { "reads" }
                ))
        });
        if until.is_some() && own.uses.len() < MOST_ACCESSES {
            own.uses.push(new);
        }
        self.access_own(process, call, (buffer, end), writes, until);
        if let Some(found) = found {
            self.report(found);
        }
    }
}
