//! Buffers for buffered sends.

use margay_run_mpi::buffer::Attached;
use margay_run_mpi::constants::address::MPI_BUFFER_AUTOMATIC;
use margay_run_mpi::error::Result;

use crate::call::mpi;
use crate::convert::{Int, count_of, fit};
use crate::types::*;
use crate::user::{Buf, Place};

mpi! {
    /// Attaches a buffer for buffered sends.
    count fn MPI_Buffer_attach(buffer: Buf, size: Count) |mpi| {
        mpi.buffer_attach(Attached::Process, buffer.address(), size_of_buffer(buffer, size.wide())?)
    }

    /// Detaches the buffer when its messages are out.
    count fn MPI_Buffer_detach(buffer_addr: Buf, size: Place<Count>) |mpi| {
        let buffer = mpi.buffer_detach(Attached::Process)?;
        buffer_addr.put_pointer("buffer_addr", buffer.address)?;
        size.put("size", fit("size", buffer.size.unwrap_or(0) as i64)?)
    }

    /// Waits until the messages of the buffer are out.
    fn MPI_Buffer_flush() |mpi| {
        mpi.wait(mpi.buffer_iflush(Attached::Process)?)?;
        Ok(())
    }

    /// Begins to wait until the messages of the buffer are out.
    fn MPI_Buffer_iflush(request: Place<MPI_Request>) |mpi| {
        request.put("request", MPI_Request::new(mpi.buffer_iflush(Attached::Process)?))
    }

    /// Attaches a buffer for buffered sends on one communicator.
    count fn MPI_Comm_attach_buffer(comm: MPI_Comm, buffer: Buf, size: Count) |mpi| on comm {
        mpi.buffer_attach(Attached::Comm(comm.value()), buffer.address(), size_of_buffer(buffer, size.wide())?)
    }

    /// Detaches the buffer of a communicator when its messages are out.
    count fn MPI_Comm_detach_buffer(comm: MPI_Comm, buffer_addr: Buf, size: Place<Count>) |mpi| on comm {
        let buffer = mpi.buffer_detach(Attached::Comm(comm.value()))?;
        buffer_addr.put_pointer("buffer_addr", buffer.address)?;
        size.put("size", fit("size", buffer.size.unwrap_or(0) as i64)?)
    }

    /// Waits until the messages of the communicator's buffer are out.
    fn MPI_Comm_flush_buffer(comm: MPI_Comm) |mpi| on comm {
        mpi.wait(mpi.buffer_iflush(Attached::Comm(comm.value()))?)?;
        Ok(())
    }

    /// Begins to wait until the messages of the communicator's buffer are out.
    fn MPI_Comm_iflush_buffer(comm: MPI_Comm, request: Place<MPI_Request>) |mpi| on comm {
        request.put("request", MPI_Request::new(mpi.buffer_iflush(Attached::Comm(comm.value()))?))
    }

    /// Attaches a buffer for buffered sends on communicators of a session.
    count fn MPI_Session_attach_buffer(session: MPI_Session, buffer: Buf, size: Count) |mpi| on session {
        mpi.buffer_attach(Attached::Session(session.value()), buffer.address(), size_of_buffer(buffer, size.wide())?)
    }

    /// Detaches the buffer of a session when its messages are out.
    count fn MPI_Session_detach_buffer(session: MPI_Session, buffer_addr: Buf, size: Place<Count>) |mpi| on session {
        let buffer = mpi.buffer_detach(Attached::Session(session.value()))?;
        buffer_addr.put_pointer("buffer_addr", buffer.address)?;
        size.put("size", fit("size", buffer.size.unwrap_or(0) as i64)?)
    }

    /// Waits until the messages of the session's buffer are out.
    fn MPI_Session_flush_buffer(session: MPI_Session) |mpi| on session {
        mpi.wait(mpi.buffer_iflush(Attached::Session(session.value()))?)?;
        Ok(())
    }

    /// Begins to wait until the messages of the session's buffer are out.
    fn MPI_Session_iflush_buffer(session: MPI_Session, request: Place<MPI_Request>) |mpi| on session {
        request.put("request", MPI_Request::new(mpi.buffer_iflush(Attached::Session(session.value()))?))
    }
}

/// Bytes of a buffer, `None` for `MPI_BUFFER_AUTOMATIC`.
fn size_of_buffer(buffer: Buf, size: i64) -> Result<Option<u64>> {
    if buffer.address() == MPI_BUFFER_AUTOMATIC {
        return Ok(None);
    }
    count_of("size", size).map(Some)
}
