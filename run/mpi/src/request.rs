//! Requests: what a nonblocking or persistent operation leaves behind, and waiting for it.

use std::sync::Arc;

use margay_run_engine::{Envelope, Failed, Outcome, ReqId, Sent};
use margay_sys_os::user::Mem;

use crate::buffer::Buffer;
use crate::collective::disagreement;
use crate::comm::Comm;
use crate::constants::comm::MPI_COMM_SELF;
use crate::constants::request::MPI_REQUEST_NULL;
use crate::constants::sentinel::*;
use crate::error::*;
use crate::file::access::Pending;
use crate::point::Start;
use crate::recover::failure;
use crate::sent::Message;
use crate::{Mpi, Status, fail};

/// A request.
pub(crate) struct Request {
    /// The communicator or file whose error handler gets its errors.
    comm: u32,
    active: Active,
    finish: Finish,
    /// How to start it again.
    persistent: Option<Arc<Start>>,
}

/// What is under way.
#[derive(Clone)]
pub(crate) enum Active {
    /// A persistent request that is not started.
    Inactive,
    /// Nothing is under way any more, or never was (`MPI_PROC_NULL`).
    Done(Status),
    /// A send: its status says at most that it was cancelled.
    Send(ReqId),
    /// A send that is over for the program, and goes on from a buffer.
    Buffered(Arc<Buffer>, ReqId),
    /// A collective: its status says nothing.
    Collective(ReqId),
    /// A receive.
    Receive(ReqId, u64),
    /// A send and a receive.
    Both {
        send: ReqId,
        receive: ReqId,
        room: u64,
    },
    /// A one-sided operation: cancelled if the target has not such memory.
    Access(ReqId),
    /// Several operations of which none has a status.
    Several(Arc<[ReqId]>),
    /// A generalized request.
    User(Arc<dyn Generalized>),
    /// An access to a file.
    File(Arc<Pending>),
}

/// What is to be done when the operation ends.
pub(crate) enum Finish {
    Nothing,
    /// Communicators whose numbers have arrived in the memory beside them.
    Number(Vec<(Arc<Comm>, Mem)>),
    /// Something else; its error is the request's.
    Call(Last),
}

/// What is done when a request has ended.
pub(crate) type Last = Box<dyn FnOnce(&Mpi) -> Option<Error> + Send>;

/// A generalized request: the functions of the program. No lock is held when they are called.
pub trait Generalized: Send + Sync {
    /// Whether `MPI_Grequest_complete` was called.
    fn is_complete(&self) -> bool;
    /// `MPI_Grequest_complete`
    fn complete(&self);
    /// Calls the query function.
    fn query(&self) -> std::result::Result<Status, i32>;
    /// Calls the free function.
    fn free(&self) -> std::result::Result<(), i32>;
    /// Calls the cancel function.
    fn cancel(&self, complete: bool) -> std::result::Result<(), i32>;
}

/// The end of one request.
pub struct Ended {
    /// Its status.
    pub status: Status,
    /// What went wrong.
    pub error: Option<Error>,
    /// The handle from now on: the same for persistent requests, else `MPI_REQUEST_NULL`.
    pub handle: u32,
}

impl Request {
    /// One that nothing is left to do for.
    pub(crate) fn over() -> Request {
        Request {
            comm: MPI_COMM_SELF,
            active: Active::Done(Status::EMPTY),
            finish: Finish::Nothing,
            persistent: None,
        }
    }
}

impl Mpi {
    /// A request for a message that went at once.
    #[inline(always)]
    pub(crate) fn request_sent(&self, message: Message) -> u32 {
        self.sent.add(message, self.rank.lock().is_shared())
    }

    /// Whether `handle` is that of a send that went at once.
    ///
    /// # Errors
    /// When it is, and all of them have been completed or freed.
    #[inline(always)]
    fn is_sent(&self, handle: u32) -> Result<bool> {
        if !self.sent.has(handle) {
            return Ok(false);
        }
        match self.sent.any() {
            true => Ok(true),
            false => Err(unknown(handle)),
        }
    }

    /// Gives an operation a handle.
    pub(crate) fn request_add(&self, comm: u32, active: Active) -> Result<u32> {
        self.request_insert(Request {
            comm,
            active,
            finish: Finish::Nothing,
            persistent: None,
        })
    }

    /// A request for several operations without status, with something to do at their end.
    pub(crate) fn request_of(&self, comm: u32, parts: Vec<ReqId>, finish: Finish) -> Result<u32> {
        self.request_insert(Request {
            comm,
            active: Active::Several(parts.into()),
            finish,
            persistent: None,
        })
    }

    /// A persistent request.
    pub(crate) fn request_persistent(&self, comm: u32, start: Start) -> Result<u32> {
        self.request_insert(Request {
            comm,
            active: Active::Inactive,
            finish: Finish::Nothing,
            persistent: Some(Arc::new(start)),
        })
    }

    /// A generalized request.
    ///
    /// # Errors
    /// When there are too many requests.
    pub fn request_generalized(&self, user: Arc<dyn Generalized>) -> Result<u32> {
        self.request_add(MPI_COMM_SELF, Active::User(user))
    }

    fn request_insert(&self, request: Request) -> Result<u32> {
        let handle = self.objects().requests.insert(request);
        handle.ok_or_else(|| {
            Error::new(
                MPI_ERR_OTHER,
                "a million requests are outstanding; complete some first",
            )
        })
    }

    /// What is under way, and the communicator.
    #[inline]
    fn active(&self, handle: u32) -> Result<(Active, u32)> {
        if self.is_sent(handle)? {
            let cancelling = self.sent.cancelling(handle);
            let active = cancelling.unwrap_or(Active::Done(Status::EMPTY));
            return Ok((active, MPI_COMM_SELF));
        }
        match self.objects().requests.get(handle) {
            Some(request) => Ok((request.active.clone(), request.comm)),
            None => Err(unknown(handle)),
        }
    }

    /// Whether a request has something that can end.
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn request_is_active(&self, handle: u32) -> Result<bool> {
        Ok(!self.is_null_or_inactive(handle)?)
    }

    fn is_null_or_inactive(&self, handle: u32) -> Result<bool> {
        if handle == MPI_REQUEST_NULL {
            return Ok(true);
        }
        Ok(matches!(self.active(handle)?.0, Active::Inactive))
    }

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
            Active::File(pending) => self.rank.is_done(pending.id()),
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
            Active::File(pending) => add(pending.id()),
        }
    }

    /// Waits for the end and takes the outcome; the entry in the table stays.
    fn outcome(&self, active: &Active) -> (Status, Option<Error>) {
        match active {
            Active::Inactive | Active::Buffered(..) => (Status::EMPTY, None),
            Active::Done(status) => (*status, None),
            Active::Send(id) => {
                let outcome = self.rank.wait(*id);
                let status = Status {
                    cancelled: outcome.cancelled,
                    ..Status::EMPTY
                };
                (status, outcome.failed.map(|f| failure(f, "the send")))
            }
            Active::Receive(id, room) => received(&self.rank.wait(*id), *room),
            Active::Collective(id) => (Status::EMPTY, disagreement(&self.rank.wait(*id))),
            Active::Access(id) => (Status::EMPTY, refused(&self.rank.wait(*id))),
            Active::Both {
                send,
                receive,
                room,
            } => {
                let sent = self.rank.wait(*send).failed;
                let (status, error) = received(&self.rank.wait(*receive), *room);
                (status, error.or(sent.map(|f| failure(f, "the send"))))
            }
            Active::Several(ids) => {
                let mut failed = None;
                for &id in ids.iter() {
                    failed = failed.or(self.rank.wait(id).failed);
                }
                let error = failed.map(|f| failure(f, "the operation"));
                (Status::EMPTY, error)
            }
            Active::File(pending) => {
                self.rank.wait(pending.id());
                pending.take()
            }
            Active::User(user) => {
                while !user.is_complete() {
                    // Another thread completes it; there is nothing to sleep on.
                    self.rank.progress();
                    std::thread::yield_now();
                }
                match user.query() {
                    Ok(status) => (status, None),
                    Err(code) => (Status::EMPTY, Some(callback_failed("query", code))),
                }
            }
        }
    }

    /// Ends a request that is over or waits for it, and frees it unless it is persistent.
    fn end(&self, handle: u32, active: &Active, comm: u32) -> Ended {
        let (status, mut error) = self.outcome(active);
        if self.sent.has(handle) {
            self.sent.remove(handle, self.rank.lock().is_shared());
            return Ended {
                status,
                error: error.map(|e| e.on(comm)),
                handle: MPI_REQUEST_NULL,
            };
        }
        if let Some(pending) = &error
            && pending.code() == MPIX_ERR_PROC_FAILED_PENDING
        {
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
    #[inline]
    pub fn wait(&self, handle: u32) -> Result<Ended> {
        if handle == MPI_REQUEST_NULL {
            return Ok(Ended::nothing(handle));
        }
        if self.is_sent(handle)? && self.sent.complete(handle, self.rank.lock().is_shared()) {
            return Ok(Ended::nothing(MPI_REQUEST_NULL));
        }
        if let Some((id, room, comm)) = self.take_receive(handle) {
            let outcome = self.rank.wait(id);
            let (status, error) = received(&outcome, room);
            if outcome.failed == Some(Failed::Pending) {
                // It goes on when the failure is acknowledged.
                return Ok(Ended {
                    status,
                    error: error.map(|e| e.on(comm)),
                    handle: self.request_add(comm, Active::Receive(id, room))?,
                });
            }
            return Ok(Ended {
                status,
                error: error.map(|e| e.on(comm)),
                handle: MPI_REQUEST_NULL,
            });
        }
        let (active, comm) = self.active(handle)?;
        Ok(self.end(handle, &active, comm))
    }

    /// Takes the request of a plain receive, the usual case, out of the table.
    #[inline]
    fn take_receive(&self, handle: u32) -> Option<(ReqId, u64, u32)> {
        let mut objects = self.objects();
        match objects.requests.get(handle) {
            Some(&Request {
                active: Active::Receive(id, room),
                comm,
                persistent: None,
                ..
            }) => {
                objects.requests.discard(handle);
                Some((id, room, comm))
            }
            _ => None,
        }
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
            self.look();
            if !self.is_over(&active) {
                self.rank.give_way_if_crowded();
                return Ok(None);
            }
        }
        Ok(Some(self.end(handle, &active, comm)))
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
                self.look();
                progressed = true;
            }
            if !self.is_over(&active) {
                self.rank.give_way_if_crowded();
                return Ok(None);
            }
        }
        handles
            .iter()
            .map(|&h| self.wait(h))
            .collect::<Result<_>>()
            .map(Some)
    }

    /// `MPI_Testany`: `None` if none has ended, else its index and end. The index itself is `None` when no request is
    /// active.
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
                    return Ok(Some(Some((i, self.end(handle, &active, comm)))));
                }
            }
            if !any {
                return Ok(Some(None));
            }
            if attempt == 0 {
                self.look();
            }
        }
        self.rank.give_way_if_crowded();
        Ok(None)
    }

    /// `MPI_Testsome`: the indices and ends of all that have ended; `None` when no request is active.
    ///
    /// # Errors
    /// When a handle is invalid.
    pub fn test_some(&self, handles: &[u32]) -> Result<Option<Vec<(usize, Ended)>>> {
        self.look();
        let mut any = false;
        let mut ended = Vec::new();
        for (i, &handle) in handles.iter().enumerate() {
            if self.is_null_or_inactive(handle)? {
                continue;
            }
            any = true;
            let (active, comm) = self.active(handle)?;
            if self.is_over(&active) {
                ended.push((i, self.end(handle, &active, comm)));
            }
        }
        if ended.is_empty() {
            self.rank.give_way_if_crowded();
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

    /// `MPI_Waitsome`: indices and ends of those that have ended, at least one; `None` when no request is active.
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
        let mut poll = false;
        for &handle in handles {
            if handle == MPI_REQUEST_NULL {
                continue;
            }
            let (active, _) = self.active(handle)?;
            poll |= matches!(active, Active::User(_));
            if self.is_over(&active) && !matches!(active, Active::Inactive) {
                return Ok(());
            }
            self.unfinished(&active, &mut ids);
        }
        if poll {
            self.rank.progress();
            std::thread::yield_now();
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
            self.look();
            if !self.is_over(&active) {
                self.rank.give_way_if_crowded();
                return Ok(None);
            }
        }
        if matches!(active, Active::Inactive) {
            return Ok(Some(Status::EMPTY));
        }
        // What was taken from the engine is kept here until the program asks for good.
        let (status, mut error) = self.outcome(&active);
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

    /// `MPI_Request_free`: what is under way goes on.
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn request_free(&self, handle: u32) -> Result<()> {
        if self.is_sent(handle)? {
            let cancelling = self.sent.remove(handle, self.rank.lock().is_shared());
            if let Some(Active::Send(id)) = cancelling {
                self.rank.detach(id);
            }
            return Ok(());
        }
        let Some(request) = self.objects().requests.remove(handle) else {
            return Err(unknown(handle));
        };
        match &request.active {
            Active::Inactive | Active::Done(_) | Active::Buffered(..) => {
                if let Some(Start::PartitionedReceive(incoming)) = request.persistent.as_deref() {
                    incoming.abandon(&self.rank);
                }
            }
            Active::Send(id)
            | Active::Receive(id, _)
            | Active::Collective(id)
            | Active::Access(id) => {
                self.rank.detach(*id);
            }
            Active::Both { send, receive, .. } => {
                self.rank.detach(*send);
                self.rank.detach(*receive);
            }
            Active::Several(ids) => ids.iter().for_each(|&id| self.rank.detach(id)),
            Active::File(pending) => self.rank.detach(pending.id()),
            Active::User(user) => {
                if let Err(code) = user.free() {
                    return Err(callback_failed("free", code));
                }
            }
        }
        Ok(())
    }

    /// How a persistent request begins, and whose error handler gets its errors.
    pub(crate) fn request_start_of(&self, handle: u32) -> Result<(Option<Arc<Start>>, u32)> {
        if self.is_sent(handle)? {
            return Ok((None, MPI_COMM_SELF));
        }
        match self.objects().requests.get(handle) {
            Some(request) => Ok((request.persistent.clone(), request.comm)),
            None => Err(unknown(handle)),
        }
    }

    /// `MPI_Cancel`
    ///
    /// # Errors
    /// When the handle is invalid, or the operation cannot be cancelled.
    pub fn request_cancel(&self, handle: u32) -> Result<()> {
        if let (Some(start), _) = self.request_start_of(handle)?
            && let Start::PartitionedSend(_) | Start::PartitionedReceive(_) = *start
        {
            fail!(
                MPI_ERR_REQUEST,
                "partitioned communication cannot be cancelled"
            );
        }
        if self.is_sent(handle)? {
            self.cancel_sent(handle);
            return Ok(());
        }
        match self.active(handle)?.0 {
            Active::Inactive => fail!(
                MPI_ERR_REQUEST,
                "the persistent request is not active; there is nothing to cancel"
            ),
            Active::Done(_) => {}
            Active::Send(id) | Active::Receive(id, _) => self.rank.cancel(id),
            Active::Buffered(buffer, id) => {
                let active = self.buffered_cancel(&buffer, id);
                if let Some(request) = self.objects().requests.get_mut(handle) {
                    request.active = active;
                }
            }
            Active::Collective(_)
            | Active::Access(_)
            | Active::Both { .. }
            | Active::Several(_)
            | Active::File(_) => {
                fail!(MPI_ERR_REQUEST, "only sends and receives can be cancelled")
            }
            Active::User(user) => {
                if let Err(code) = user.cancel(user.is_complete()) {
                    return Err(callback_failed("cancel", code));
                }
            }
        }
        Ok(())
    }

    /// Cancels a send that went at once, if its request has a name and its communicator is still there.
    fn cancel_sent(&self, handle: u32) {
        let Some(message) = self.sent.settle(handle) else {
            return;
        };
        let envelope = self.with_comm(message.comm, |comm| {
            Ok(Envelope {
                context: comm.point_to_point(),
                source: comm.rank,
                tag: message.tag,
            })
        });
        if let Ok(envelope) = envelope {
            let id = self.rank.cancel_sent(Sent {
                to: message.to,
                envelope,
                number: message.number,
            });
            self.sent.cancel(handle, Active::Send(id));
        }
    }

    /// `MPI_Start`
    ///
    /// # Errors
    /// When the handle is invalid, not persistent, or active already.
    pub fn request_start(&self, handle: u32) -> Result<()> {
        let not_persistent = || {
            let text =
                "the request is not persistent; only those of the _init functions can be started";
            Err(Error::new(MPI_ERR_REQUEST, text))
        };
        if self.is_sent(handle)? {
            return not_persistent();
        }
        let (start, comm) = {
            let objects = self.objects();
            let Some(request) = objects.requests.get(handle) else {
                return Err(unknown(handle));
            };
            let Some(start) = &request.persistent else {
                return not_persistent();
            };
            if !matches!(request.active, Active::Inactive) {
                fail!(
                    MPI_ERR_REQUEST,
                    "the persistent request is active; complete it before starting it again"
                );
            }
            (start.clone(), request.comm)
        };
        let active = self.start(&start, comm).map_err(|e| e.on(comm))?;
        if let Some(request) = self.objects().requests.get_mut(handle) {
            request.active = active;
        }
        Ok(())
    }

    /// `MPI_Grequest_complete`
    ///
    /// # Errors
    /// When the handle is not of a generalized request.
    pub fn request_complete(&self, handle: u32) -> Result<()> {
        match self.active(handle)?.0 {
            Active::User(user) => {
                user.complete();
                Ok(())
            }
            _ => fail!(MPI_ERR_REQUEST, "the request is not a generalized one"),
        }
    }

    /// Makes progress once.
    fn look(&self) {
        self.rank.progress();
    }
}

impl Ended {
    /// The end of a null request.
    pub(crate) fn nothing(handle: u32) -> Ended {
        Ended {
            status: Status::EMPTY,
            error: None,
            handle,
        }
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

/// Status and error of a receive into `room` bytes.
/// The status of a receive, and an error if the message was longer than `room` bytes.
#[must_use]
pub fn received(outcome: &Outcome, room: u64) -> (Status, Option<Error>) {
    if let Some(failed) = outcome.failed {
        return (Status::EMPTY, Some(failure(failed, "the receive")));
    }
    if outcome.cancelled {
        let status = Status {
            cancelled: true,
            ..Status::EMPTY
        };
        return (status, None);
    }
    let status = Status {
        source: outcome.source as i32,
        tag: outcome.tag as i32,
        bytes: outcome.bytes,
        cancelled: false,
    };
    if outcome.split {
        let text = format!(
            "the message from rank {} with tag {} has {} bytes and ends within an element of the receive's datatype; both \
             sides must name the same basic types",
            outcome.source, outcome.tag, outcome.bytes
        );
        return (status, Some(Error::new(MPI_ERR_TYPE, text)));
    }
    let error = outcome.truncated.map(|size| {
        Error::new(
            MPI_ERR_TRUNCATE,
            format!(
                "the message from rank {} with tag {} has {size} bytes, the receive buffer has room for {room}",
                outcome.source, outcome.tag
            ),
        )
    });
    (status, error)
}

/// The error of a one-sided operation whose target has not such memory.
fn refused(outcome: &Outcome) -> Option<Error> {
    if let Some(failed) = outcome.failed {
        return Some(failure(failed, "the operation on the window"));
    }
    outcome.cancelled.then(|| {
        Error::new(
            MPI_ERR_RMA_RANGE,
            "the target has not attached the memory that the operation reaches",
        )
    })
}

impl Status {
    /// What null and inactive requests and operations without a status have.
    pub const EMPTY: Status = Status {
        source: MPI_ANY_SOURCE,
        tag: MPI_ANY_TAG,
        bytes: 0,
        cancelled: false,
    };

    /// A receive from nobody.
    pub const PROC_NULL: Status = Status {
        source: MPI_PROC_NULL,
        tag: MPI_ANY_TAG,
        bytes: 0,
        cancelled: false,
    };
}

fn callback_failed(which: &str, code: i32) -> Error {
    Error::new(
        code,
        format!("the {which} function of the generalized request returned {code}"),
    )
}

#[cold]
fn unknown(handle: u32) -> Error {
    let text = match handle {
        MPI_REQUEST_NULL => "the request is MPI_REQUEST_NULL".to_string(),
        _ => format!("{handle:#x} is not a request; was it completed or freed?"),
    };
    Error::new(MPI_ERR_REQUEST, text)
}
