//! What a request stands for while it is under way.

use std::sync::Arc;

use margay_run_engine::ReqId;

use crate::Status;
use crate::buffer::Buffer;
use crate::error::*;

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
    /// A one-sided operation: cancelled if the target has no such memory.
    Access(ReqId),
    /// Several operations of which none has a status.
    Several(Arc<[ReqId]>),
    /// A generalized request.
    User(Arc<dyn Generalized>),
    /// An operation that a crate above has begun.
    Deferred(Arc<dyn Deferred>),
}

/// An operation that a crate above has begun: one request of the engine, and what is made of it at
/// its end.
pub trait Deferred: Send + Sync {
    /// Returns its request in the engine.
    fn id(&self) -> ReqId;
    /// Returns what came out; asked once, after the engine's request has ended.
    fn take(&self) -> (Status, Option<Error>);
}

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
