//! Completing requests: testing, waiting, and what an operation's end means to the program.

use margay_core_registry::detail::Awaited;
use margay_core_registry::{CallName, call_name};
use margay_run_engine::{Pending, ReqId};

use super::{Ended, Finish, Made, callback_failed, is_named, is_receive};
use crate::active::Active;
use crate::constants::request::MPI_REQUEST_NULL;
use crate::error::*;
use crate::handle::place;
use crate::outcome::failure;
use crate::outcome::{disagreement, message, received, refused};
use crate::{Mpi, Status};

/// Which of the requests that a call waits for one is.
#[derive(Clone, Copy, Debug)]
pub struct Of {
    /// From 0.
    pub index: usize,
    /// How many requests they are.
    pub total: usize,
}

impl Of {
    /// The only one.
    pub const ALONE: Of = Of { index: 0, total: 1 };

    fn awaited(self, made: &Made) -> Awaited {
        Awaited {
            made_by: made.by,
            site: made.site,
            started: made.started,
            root: made.root,
            index: self.index as u32,
            total: self.total as u32,
        }
    }
}

/// What makes the receives that have no entry in the table.
const IRECV: CallName = call_name("MPI_Irecv");

impl Mpi {
    /// Whether it has ended; makes no progress.
    fn is_over(&self, active: &Active) -> bool {
        match active {
            Active::Inactive | Active::Done(_) | Active::Buffered(..) => true,
            Active::Send(id)
            | Active::Receive(id, _)
            | Active::Collective(id)
            | Active::Access(id) => self.rank.is_done(*id),
            Active::Both { send, receive, .. } => {
                self.rank.is_done(*send) && self.rank.is_done(*receive)
            }
            Active::Several(ids) => ids.iter().all(|&id| self.rank.is_done(id)),
            Active::User(user) => user.is_complete(),
            Active::Deferred(operation) => self.rank.is_done(operation.id()),
        }
    }

    /// The unfinished operations of the engine that it waits for.
    fn unfinished(&self, active: &Active, ids: &mut Vec<ReqId>) {
        let mut add = |id: ReqId| {
            if !self.rank.is_done(id) {
                ids.push(id);
            }
        };
        match active {
            Active::Inactive | Active::Done(_) | Active::Buffered(..) | Active::User(_) => {}
            Active::Send(id)
            | Active::Receive(id, _)
            | Active::Collective(id)
            | Active::Access(id) => add(*id),
            Active::Both { send, receive, .. } => {
                add(*send);
                add(*receive);
            }
            Active::Several(several) => several.iter().for_each(|&id| add(id)),
            Active::Deferred(operation) => add(operation.id()),
        }
    }

    /// Waits for the end and takes the outcome; the entry in the table stays.
    fn outcome(
        &self,
        active: &Active,
        awaited: &dyn Fn() -> Option<Awaited>,
    ) -> (Status, Option<Error>) {
        match active {
            Active::Inactive | Active::Buffered(..) => (Status::EMPTY, None),
            Active::Done(status) => (*status, None),
            Active::Send(id) => {
                let outcome = self.rank.wait_for(*id, awaited);
                let status = Status {
                    cancelled: outcome.cancelled,
                    ..Status::EMPTY
                };
                (status, outcome.failed.map(|f| failure(f, "the send")))
            }
            Active::Receive(id, room) => received(&self.rank.wait_for(*id, awaited), *room),
            Active::Collective(id) => (
                Status::EMPTY,
                disagreement(&self.rank.wait_for(*id, awaited)),
            ),
            Active::Access(id) => (Status::EMPTY, refused(&self.rank.wait_for(*id, awaited))),
            Active::Both {
                send,
                receive,
                room,
            } => {
                let sent = self.rank.wait_for(*send, awaited).failed;
                let (status, error) = received(&self.rank.wait_for(*receive, awaited), *room);
                (status, error.or(sent.map(|f| failure(f, "the send"))))
            }
            Active::Several(ids) => {
                let mut failed = None;
                for &id in ids.iter() {
                    failed = failed.or(self.rank.wait_for(id, awaited).failed);
                }
                let error = failed.map(|f| failure(f, "the operation"));
                (Status::EMPTY, error)
            }
            Active::Deferred(operation) => {
                self.rank.wait_for(operation.id(), awaited);
                operation.take()
            }
            Active::User(user) => {
                // Another thread completes it, and wakes this one.
                self.rank.block(
                    |_| user.is_complete().then_some(()),
                    |_| Some(Pending::Elsewhere),
                );
                match user.query() {
                    Ok(status) => (status, None),
                    Err(code) => (Status::EMPTY, Some(callback_failed("query", code))),
                }
            }
        }
    }

    /// What displays say of a request that is waited for.
    #[cold]
    fn awaited(&self, handle: u32, of: Of) -> Option<Awaited> {
        let objects = self.objects();
        Some(of.awaited(&objects.requests.get(handle)?.made))
    }

    /// Ends a request that is over or waits for it, and frees it unless it is persistent.
    fn end(&self, handle: u32, active: &Active, comm: u32, of: Of) -> Ended {
        let awaited = || self.awaited(handle, of);
        let (status, mut error) = self.outcome(active, &awaited);
        if self.sent.has(handle) {
            self.sent.remove(handle, self.rank.lock().is_shared());
            return Ended {
                status,
                error: error.map(|e| e.on(comm)),
                handle: MPI_REQUEST_NULL,
            };
        }
        if is_receive(handle) {
            return end_of_receive(handle, status, error, comm);
        }
        if is_pending(error.as_ref()) {
            // It goes on when the failure is acknowledged.
            let error = error.map(|e| e.on(comm));
            return Ended {
                status,
                error,
                handle,
            };
        }
        let mut objects = self.objects();
        let persistent = objects
            .requests
            .get_mut(handle)
            .is_some_and(|request| request.persistent.is_some());
        let finish = if persistent {
            if let Some(request) = objects.requests.get_mut(handle) {
                request.active = Active::Inactive;
            }
            Finish::Nothing
        } else {
            match objects.requests.remove(handle) {
                Some(request) => request.finish,
                None => Finish::Nothing,
            }
        };
        drop(objects);
        if let Some(late) = finish.run(self) {
            error.get_or_insert(late);
        }
        if let Active::User(user) = active
            && let Err(code) = user.free()
        {
            error.get_or_insert(callback_failed("free", code));
        }
        Ended {
            status,
            error: error.map(|e| e.on(comm)),
            handle: if persistent { handle } else { MPI_REQUEST_NULL },
        }
    }

    /// `MPI_Wait`
    ///
    /// # Errors
    /// When the handle is invalid.
    // Always inlined: in the loop of MPI_Waitall a call, which gives its result through memory,
    // costs each request 17 instructions.
    #[inline(always)]
    pub fn wait(&self, handle: u32) -> Result<Ended> {
        self.wait_among(handle, Of::ALONE)
    }

    /// As [`wait`](Self::wait), for one of several requests.
    ///
    /// # Errors
    /// When the handle is invalid.
    #[inline(always)]
    pub fn wait_among(&self, handle: u32, of: Of) -> Result<Ended> {
        if handle == MPI_REQUEST_NULL {
            return Ok(Ended::nothing(handle));
        }
        if self.is_sent(handle)? && self.sent.complete(handle, self.rank.lock().is_shared()) {
            return Ok(Ended::nothing(MPI_REQUEST_NULL));
        }
        if is_receive(handle) {
            let (id, comm, room) = self.receive(handle)?;
            let outcome = self.rank.wait_for(id, &|| {
                let made = Made {
                    by: IRECV,
                    site: self.rank.lock().lock().posted_at(id),
                    ..Made::default()
                };
                Some(of.awaited(&made))
            });
            let (status, error) = received(&outcome, room);
            return Ok(end_of_receive(handle, status, error, comm));
        }
        let (active, comm) = self.active(handle)?;
        Ok(self.end(handle, &active, comm, of))
    }

    /// Ends the requests at the front that are over and need nothing further: sends that went at
    /// once, and plain receives whose message has come without a fault. `ended` learns each one's
    /// status; its handle is `MPI_REQUEST_NULL` from then on. Returns how many these are; the next
    /// one has to be waited for. Makes no progress.
    ///
    /// Thus a window of messages is ended in one go under one lock.
    #[inline(always)]
    pub fn end_faultless(
        &self,
        handles: impl Iterator<Item = u32>,
        mut ended: impl FnMut(usize, &Status),
    ) -> usize {
        let lock = self.rank.lock();
        let shared = lock.is_shared();
        let mut engine = lock.lock();
        let mut n = 0;
        for handle in handles {
            if handle == MPI_REQUEST_NULL {
                ended(n, &Status::EMPTY);
            } else if self.sent.has(handle) {
                if !self.sent.any() || !self.sent.complete(handle, shared) {
                    break;
                }
                ended(n, &Status::EMPTY);
            } else if is_receive(handle)
                && let Some(outcome) = engine.take_faultless(place(handle), is_named(handle))
            {
                ended(n, &message(&outcome));
            } else {
                break;
            }
            n += 1;
        }
        n
    }

    /// `MPI_Test`: `None` if it has not ended.
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn test(&self, handle: u32) -> Result<Option<Ended>> {
        if handle == MPI_REQUEST_NULL {
            return Ok(Some(Ended::nothing(handle)));
        }
        let (active, comm) = self.active(handle)?;
        if !self.is_over(&active) {
            self.rank.progress();
            if !self.is_over(&active) {
                self.rank.yield_if_oversubscribed();
                return Ok(None);
            }
        }
        Ok(Some(self.end(handle, &active, comm, Of::ALONE)))
    }

    /// `MPI_Testall`: `None` if one has not ended; then none is touched.
    ///
    /// # Errors
    /// When a handle is invalid.
    pub fn test_all(&self, handles: &[u32]) -> Result<Option<Vec<Ended>>> {
        let mut progressed = false;
        for &handle in handles {
            if handle == MPI_REQUEST_NULL {
                continue;
            }
            let (active, _) = self.active(handle)?;
            if self.is_over(&active) {
                continue;
            }
            if !progressed {
                self.rank.progress();
                progressed = true;
            }
            if !self.is_over(&active) {
                self.rank.yield_if_oversubscribed();
                return Ok(None);
            }
        }
        handles
            .iter()
            .map(|&h| self.wait(h))
            .collect::<Result<_>>()
            .map(Some)
    }

    /// `MPI_Testany`: `None` if none has ended, else its index and end. The index itself is `None`
    /// when no request is active.
    ///
    /// # Errors
    /// When a handle is invalid.
    #[allow(clippy::type_complexity)]
    pub fn test_any(&self, handles: &[u32]) -> Result<Option<Option<(usize, Ended)>>> {
        for attempt in 0..2 {
            let mut any = false;
            for (i, &handle) in handles.iter().enumerate() {
                if self.is_null_or_inactive(handle)? {
                    continue;
                }
                any = true;
                let (active, comm) = self.active(handle)?;
                if self.is_over(&active) {
                    return Ok(Some(Some((i, self.end(handle, &active, comm, Of::ALONE)))));
                }
            }
            if !any {
                return Ok(Some(None));
            }
            if attempt == 0 {
                self.rank.progress();
            }
        }
        self.rank.yield_if_oversubscribed();
        Ok(None)
    }

    /// `MPI_Testsome`: the indices and ends of all that have ended; `None` when no request is
    /// active.
    ///
    /// # Errors
    /// When a handle is invalid.
    pub fn test_some(&self, handles: &[u32]) -> Result<Option<Vec<(usize, Ended)>>> {
        self.rank.progress();
        let mut any = false;
        let mut ended = Vec::new();
        for (i, &handle) in handles.iter().enumerate() {
            if self.is_null_or_inactive(handle)? {
                continue;
            }
            any = true;
            let (active, comm) = self.active(handle)?;
            if self.is_over(&active) {
                ended.push((i, self.end(handle, &active, comm, Of::ALONE)));
            }
        }
        if ended.is_empty() {
            self.rank.yield_if_oversubscribed();
        }
        Ok(any.then_some(ended))
    }

    /// `MPI_Waitany`: index and end of one, `None` when no request is active.
    ///
    /// # Errors
    /// When a handle is invalid.
    pub fn wait_any(&self, handles: &[u32]) -> Result<Option<(usize, Ended)>> {
        loop {
            match self.test_any(handles)? {
                Some(found) => return Ok(found),
                None => self.wait_for_news(handles)?,
            }
        }
    }

    /// `MPI_Waitsome`: indices and ends of those that have ended, at least one; `None` when no
    /// request is active.
    ///
    /// # Errors
    /// When a handle is invalid.
    pub fn wait_some(&self, handles: &[u32]) -> Result<Option<Vec<(usize, Ended)>>> {
        loop {
            match self.test_some(handles)? {
                Some(found) if found.is_empty() => self.wait_for_news(handles)?,
                found => return Ok(found),
            }
        }
    }

    /// Sleeps until an operation of one of the requests has ended.
    fn wait_for_news(&self, handles: &[u32]) -> Result<()> {
        let mut ids = Vec::new();
        let mut users = Vec::new();
        for &handle in handles {
            if handle == MPI_REQUEST_NULL {
                continue;
            }
            let (active, _) = self.active(handle)?;
            if self.is_over(&active) && !matches!(active, Active::Inactive) {
                return Ok(());
            }
            self.unfinished(&active, &mut ids);
            if let Active::User(user) = active {
                users.push(user);
            }
        }
        if !users.is_empty() {
            self.rank.block(
                |engine| {
                    let completed = users.iter().any(|user| user.is_complete());
                    let ended = completed || ids.iter().any(|&id| engine.is_done(id));
                    ended.then_some(())
                },
                |_| Some(Pending::Elsewhere),
            );
        } else if !ids.is_empty() {
            self.rank.wait_any(&ids);
        }
        Ok(())
    }

    /// `MPI_Request_get_status`: the status if it has ended; the request stays.
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn request_status(&self, handle: u32) -> Result<Option<Status>> {
        if handle == MPI_REQUEST_NULL {
            return Ok(Some(Status::EMPTY));
        }
        let (active, _) = self.active(handle)?;
        if !self.is_over(&active) {
            self.rank.progress();
            if !self.is_over(&active) {
                self.rank.yield_if_oversubscribed();
                return Ok(None);
            }
        }
        if matches!(active, Active::Inactive) {
            return Ok(Some(Status::EMPTY));
        }
        if is_receive(handle) {
            let (id, comm, room) = self.receive(handle)?;
            let Some(outcome) = self.rank.lock().lock().look(id) else {
                return Ok(None);
            };
            let (status, error) = received(&outcome, room);
            return error.map_or(Ok(Some(status)), |e| Err(e.on(comm)));
        }
        // What was taken from the engine is kept here until the program asks for good.
        let (status, mut error) = self.outcome(&active, &|| None);
        if matches!(active, Active::User(_)) {
            return Ok(Some(status));
        }
        if self.sent.has(handle) {
            self.sent.settle(handle);
            self.sent.change(handle, Active::Done(status));
            return error.map_or(Ok(Some(status)), Err);
        }
        let mut objects = self.objects();
        if let Some(request) = objects.requests.get_mut(handle) {
            request.active = Active::Done(status);
            let finish = std::mem::replace(&mut request.finish, Finish::Nothing);
            drop(objects);
            if let Some(late) = finish.run(self) {
                error.get_or_insert(late);
            }
        }
        match error {
            Some(error) => Err(error),
            None => Ok(Some(status)),
        }
    }
}

/// Whether it says that the operation goes on when a failure has been acknowledged.
fn is_pending(error: Option<&Error>) -> bool {
    error.is_some_and(|e| e.code() == MPIX_ERR_PROC_FAILED_PENDING)
}

/// Returns the end of a receive that its handle names.
#[inline]
fn end_of_receive(handle: u32, status: Status, error: Option<Error>, comm: u32) -> Ended {
    let handle = match is_pending(error.as_ref()) {
        true => handle,
        false => MPI_REQUEST_NULL,
    };
    Ended {
        status,
        error: error.map(|e| e.on(comm)),
        handle,
    }
}

impl Finish {
    fn run(self, mpi: &Mpi) -> Option<Error> {
        match self {
            Finish::Nothing => None,
            Finish::Number(numbers) => {
                let given = numbers.into_iter().map(|(comm, mem)| {
                    let mut number = [0; 4];
                    mem.read(0, &mut number);
                    mpi.comm_number(&comm, u32::from_ne_bytes(number)).err()
                });
                given.fold(None, Option::or)
            }
            Finish::Call(call) => call(mpi),
        }
    }
}
