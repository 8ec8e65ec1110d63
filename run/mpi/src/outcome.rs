//! What the end of an operation in the engine means to the program.

use margay_run_engine::{Failed, Outcome};

use crate::Status;
use crate::error::*;

/// Returns the error of an operation that cannot be completed.
pub(crate) fn failure(failed: Failed, what: &str) -> Error {
    let (class, why) = match failed {
        Failed::Process => (MPIX_ERR_PROC_FAILED, "a process that it needs has died"),
        Failed::Pending => (
            MPIX_ERR_PROC_FAILED_PENDING,
            "a process has died that might have sent the message; the request goes on when the failure is acknowledged \
             with MPIX_Comm_failure_ack",
        ),
        Failed::Revoked => (MPIX_ERR_REVOKED, "the communicator has been revoked"),
    };
    Error::new(class, format!("{what}: {why}"))
}

/// Returns the error of a collective in which the processes do not agree about the sizes of
/// messages.
pub(crate) fn disagreement(outcome: &Outcome) -> Option<Error> {
    if let Some(failed) = outcome.failed {
        return Some(failure(failed, "the collective operation"));
    }
    let sent = outcome.truncated?;
    let expected = outcome.bytes;
    let class = if sent > expected {
        MPI_ERR_TRUNCATE
    } else {
        MPI_ERR_COUNT
    };
    let text = format!(
        "rank {} sent {sent} bytes where this rank expected {expected}; root, counts and datatypes must agree on all ranks",
        outcome.source
    );
    Some(Error::new(class, text))
}

/// Returns the status of a receive, and an error if the message was longer than `room` bytes.
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
    let status = message(outcome);
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

/// Returns the status of a message that was received.
#[inline]
pub(crate) fn message(outcome: &Outcome) -> Status {
    Status {
        source: outcome.source as i32,
        tag: outcome.tag as i32,
        bytes: outcome.bytes,
        cancelled: false,
    }
}

/// Returns the error of a one-sided operation whose target has no such memory.
pub(crate) fn refused(outcome: &Outcome) -> Option<Error> {
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
