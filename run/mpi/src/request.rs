//! Requests: what a nonblocking or persistent operation leaves behind.

pub mod complete;

use std::sync::Arc;

use margay_core_registry::CallName;
use margay_run_engine::{Envelope, ReqId, Sent};
use margay_sys_os::user::Mem;

use crate::active::{Active, Deferred, Generalized};
use crate::comm::Comm;
use crate::constants::comm::MPI_COMM_SELF;
use crate::constants::request::MPI_REQUEST_NULL;
use crate::constants::sentinel::*;
use crate::error::*;
use crate::handle::{self, Kind};
use crate::sent::Message;
use crate::start::Start;
use crate::{Mpi, Status, fail};

/// A request.
pub(crate) struct Request {
    /// The communicator or file whose error handler gets its errors.
    comm: u32,
    active: Active,
    finish: Finish,
    /// How to start it again.
    persistent: Option<Arc<Start>>,
    /// What displays say of it.
    made: Made,
}

/// How a request has come to be.
#[derive(Default)]
struct Made {
    by: CallName,
    /// The call site, as the flight recorder numbers them; 0 for unknown.
    site: u16,
    /// The same of the call that has started a persistent one.
    started: u16,
    /// The root of a collective operation.
    root: Option<u32>,
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
            made: Made::default(),
        }
    }
}

impl Mpi {
    /// Returns a request for a message that went at once.
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

    /// Returns the handle of a receive, which needs no entry of the table: what the table would
    /// keep, its communicator and room, stands beside it in the engine. None when the engine has
    /// more than a million requests.
    #[inline(always)]
    pub(crate) fn handle_of_receive(&self, id: ReqId) -> Option<u32> {
        handle::of_place(Kind::Receive, id.index(), id.generation())
    }

    /// Returns the receive that a handle of its kind names: request, communicator and room.
    ///
    /// # Errors
    /// When there is none.
    #[inline]
    fn receive(&self, handle: u32) -> Result<(ReqId, u32, u64)> {
        let found = self
            .rank
            .lock()
            .lock()
            .named(handle::place(handle), is_named(handle));
        found.ok_or_else(|| unknown(handle))
    }

    /// Gives an operation a handle.
    pub(crate) fn request_add(&self, comm: u32, active: Active) -> Result<u32> {
        self.request_insert(Request {
            comm,
            active,
            finish: Finish::Nothing,
            persistent: None,
            made: Made::default(),
        })
    }

    /// As [`request_add`](Self::request_add), for a collective operation that has a root.
    pub(crate) fn request_rooted(
        &self,
        comm: u32,
        active: Active,
        root: Option<u32>,
    ) -> Result<u32> {
        self.request_insert(Request {
            comm,
            active,
            finish: Finish::Nothing,
            persistent: None,
            made: Made {
                root,
                ..Made::default()
            },
        })
    }

    /// Returns a request for several operations without status.
    pub(crate) fn request_several(&self, comm: u32, parts: Vec<ReqId>) -> Result<u32> {
        self.request_of(comm, parts, Finish::Nothing)
    }

    /// Returns a request for several operations without status, with something to do at their end.
    pub(crate) fn request_of(&self, comm: u32, parts: Vec<ReqId>, finish: Finish) -> Result<u32> {
        self.request_insert(Request {
            comm,
            active: Active::Several(parts.into()),
            finish,
            persistent: None,
            made: Made::default(),
        })
    }

    /// Returns a persistent request.
    pub(crate) fn request_persistent(&self, comm: u32, start: Start) -> Result<u32> {
        let root = match &start {
            Start::Collective { operation, .. } => operation.root(),
            _ => None,
        };
        self.request_insert(Request {
            comm,
            active: Active::Inactive,
            finish: Finish::Nothing,
            persistent: Some(Arc::new(start)),
            made: Made {
                root,
                ..Made::default()
            },
        })
    }

    /// Returns a generalized request.
    ///
    /// # Errors
    /// When there are too many requests.
    pub fn request_generalized(&self, user: Arc<dyn Generalized>) -> Result<u32> {
        self.request_add(MPI_COMM_SELF, Active::User(user))
    }

    /// Returns a request of a crate above for an operation that has ended; `on` is the handle of
    /// the window or file whose error handler gets its errors.
    ///
    /// # Errors
    /// When there are too many requests.
    pub fn request_ended(&self, on: u32, status: Status) -> Result<u32> {
        self.request_add(on, Active::Done(status))
    }

    /// Makes a request for a one-sided operation under way; it is cancelled if the target has no
    /// such memory.
    ///
    /// # Errors
    /// When there are too many requests.
    pub fn request_access(&self, on: u32, id: ReqId) -> Result<u32> {
        self.request_add(on, Active::Access(id))
    }

    /// The same for another operation under way.
    ///
    /// # Errors
    /// When there are too many requests.
    pub fn request_deferred(&self, on: u32, operation: Arc<dyn Deferred>) -> Result<u32> {
        self.request_add(on, Active::Deferred(operation))
    }

    fn request_insert(&self, mut request: Request) -> Result<u32> {
        request.made.by = self.rank.noted_call();
        request.made.site = self.rank.noted_site();
        let handle = self.objects().requests.insert(request);
        handle.ok_or_else(|| {
            Error::new(
                MPI_ERR_OTHER,
                "a million requests are outstanding; complete some first",
            )
        })
    }

    /// Returns what is under way, and the communicator.
    #[inline]
    fn active(&self, handle: u32) -> Result<(Active, u32)> {
        if self.is_sent(handle)? {
            let cancelling = self.sent.cancelling(handle);
            let active = cancelling.unwrap_or(Active::Done(Status::EMPTY));
            return Ok((active, MPI_COMM_SELF));
        }
        if is_receive(handle) {
            let (id, comm, room) = self.receive(handle)?;
            return Ok((Active::Receive(id, room), comm));
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
        if is_receive(handle) {
            self.rank.detach(self.receive(handle)?.0);
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
            Active::Deferred(operation) => self.rank.detach(operation.id()),
            Active::User(user) => {
                if let Err(code) = user.free() {
                    return Err(callback_failed("free", code));
                }
            }
        }
        Ok(())
    }

    /// Returns how a persistent request begins, and whose error handler gets its errors.
    pub(crate) fn request_start_of(&self, handle: u32) -> Result<(Option<Arc<Start>>, u32)> {
        if self.is_sent(handle)? {
            return Ok((None, MPI_COMM_SELF));
        }
        if is_receive(handle) {
            return Ok((None, self.receive(handle)?.1));
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
                let active = match self.buffered_cancel(&buffer, id) {
                    true => Active::Send(id),
                    false => Active::Done(Status::EMPTY),
                };
                if let Some(request) = self.objects().requests.get_mut(handle) {
                    request.active = active;
                }
            }
            Active::Collective(_)
            | Active::Access(_)
            | Active::Both { .. }
            | Active::Several(_)
            | Active::Deferred(_) => {
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

    /// Cancels a send that went at once, if its request has a name and its communicator is still
    /// there.
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
        if self.is_sent(handle)? || is_receive(handle) && self.receive(handle).is_ok() {
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
            request.made.started = self.rank.noted_site();
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
                // Threads that wait for it may be asleep.
                self.rank.wake();
                Ok(())
            }
            _ => fail!(MPI_ERR_REQUEST, "the request is not a generalized one"),
        }
    }
}

/// Whether a handle is one of [`Mpi::handle_of_receive`].
#[inline(always)]
fn is_receive(handle: u32) -> bool {
    handle::is_of(handle, Kind::Receive)
}

/// Tells the receive with this handle from others that have stood or will stand at its place.
#[inline(always)]
fn is_named(handle: u32) -> impl Fn(ReqId) -> bool {
    move |id| handle::of_place(Kind::Receive, id.index(), id.generation()) == Some(handle)
}

impl Ended {
    /// Returns the end of a null request.
    pub(crate) fn nothing(handle: u32) -> Ended {
        Ended {
            status: Status::EMPTY,
            error: None,
            handle,
        }
    }
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
