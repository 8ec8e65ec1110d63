//! How a persistent request begins.

use std::sync::Arc;

use margay_run_engine::{Data, Envelope, Mode, Pattern};

use crate::Status;
use crate::buffer::Buffer;
use crate::comm::Comm;
use crate::operation::Operation;
use crate::partition::sides::{Incoming, Outgoing};

/// How a persistent request begins.
pub(crate) enum Start {
    /// To or from `MPI_PROC_NULL`.
    Nothing(Status),
    Send {
        mode: Mode,
        data: Data,
        to: u32,
        envelope: Envelope,
    },
    Buffered {
        buffer: Arc<Buffer>,
        data: Data,
        to: u32,
        envelope: Envelope,
    },
    Receive {
        data: Data,
        pattern: Pattern,
        from: Option<u32>,
    },
    Collective {
        comm: Arc<Comm>,
        operation: Operation,
        /// Chosen when the request was made, so that starts need not be in one order on all
        /// processes.
        tag: u32,
    },
    PartitionedSend(Arc<Outgoing>),
    PartitionedReceive(Arc<Incoming>),
}
