//! Point-to-point communication.

use std::ffi::c_int;

use margay_run_mpi::Mpi;
use margay_run_mpi::constants::message::MPI_MESSAGE_NULL;
use margay_run_mpi::error::Result;
use margay_run_mpi::point::SendMode;

use crate::call::mpi;
use crate::convert::{Int, data, piece};
use crate::types::*;
use crate::user::{Buf, ConstBuf, MPI_Status, Place};

mpi! {
    /// Sends; returns when the buffer may be used again.
    count fn MPI_Send(buf: ConstBuf, count: Count, datatype: MPI_Datatype, dest: c_int, tag: c_int, comm: MPI_Comm) |mpi| on comm {
        if let Some(piece) = piece(buf.buf(), count.wide(), datatype)
            && mpi.send_at_once(piece, dest, tag, comm.value())
        {
            return Ok(());
        }
        let data = data(mpi, buf.buf(), count.wide(), datatype)?;
        mpi.send(SendMode::Standard, &data, dest, tag, comm.value())
    }

    /// Sends from a copy in the attached buffer.
    count fn MPI_Bsend(buf: ConstBuf, count: Count, datatype: MPI_Datatype, dest: c_int, tag: c_int, comm: MPI_Comm) |mpi| on comm {
        send(mpi, SendMode::Buffered, (buf, count.wide(), datatype), (dest, tag, comm))
    }

    /// Sends; returns when the receiver has begun to receive.
    count fn MPI_Ssend(buf: ConstBuf, count: Count, datatype: MPI_Datatype, dest: c_int, tag: c_int, comm: MPI_Comm) |mpi| on comm {
        send(mpi, SendMode::Synchronous, (buf, count.wide(), datatype), (dest, tag, comm))
    }

    /// Sends to a receive that is posted already.
    count fn MPI_Rsend(buf: ConstBuf, count: Count, datatype: MPI_Datatype, dest: c_int, tag: c_int, comm: MPI_Comm) |mpi| on comm {
        send(mpi, SendMode::Ready, (buf, count.wide(), datatype), (dest, tag, comm))
    }

    /// Receives.
    count fn MPI_Recv(buf: Buf, count: Count, datatype: MPI_Datatype, source: c_int, tag: c_int, comm: MPI_Comm, status: Place<MPI_Status>) |mpi| on comm {
        let piece = piece(buf, count.wide(), datatype);
        if let Some(piece) = piece
            && let Some(result) = mpi.recv_at_once(piece, source, tag, comm.value(), |outcome| status.outcome(outcome, piece.size()))
        {
            return result;
        }
        let data = data(mpi, buf, count.wide(), datatype)?;
        let (found, error) = match piece {
            Some(_) => mpi.recv_posted(data, source, tag, comm.value())?,
            None => mpi.recv(data, source, tag, comm.value())?,
        };
        status.status(&found);
        error.map_or(Ok(()), Err)
    }

    /// Begins a send.
    count fn MPI_Isend(buf: ConstBuf, count: Count, datatype: MPI_Datatype, dest: c_int, tag: c_int, comm: MPI_Comm, request: Place<MPI_Request>) |mpi| on comm {
        if let Some(piece) = piece(buf.buf(), count.wide(), datatype)
            && !request.is_null()
            && let Some(sent) = mpi.isend_at_once(piece, dest, tag, comm.value())
        {
            return request.put("request", MPI_Request::new(sent));
        }
        let data = data(mpi, buf.buf(), count.wide(), datatype)?;
        request.put("request", MPI_Request::new(mpi.isend(SendMode::Standard, data, dest, tag, comm.value())?))
    }

    /// Begins a buffered send.
    count fn MPI_Ibsend(buf: ConstBuf, count: Count, datatype: MPI_Datatype, dest: c_int, tag: c_int, comm: MPI_Comm, request: Place<MPI_Request>) |mpi| on comm {
        isend(mpi, SendMode::Buffered, (buf, count.wide(), datatype), (dest, tag, comm), request)
    }

    /// Begins a synchronous send.
    count fn MPI_Issend(buf: ConstBuf, count: Count, datatype: MPI_Datatype, dest: c_int, tag: c_int, comm: MPI_Comm, request: Place<MPI_Request>) |mpi| on comm {
        isend(mpi, SendMode::Synchronous, (buf, count.wide(), datatype), (dest, tag, comm), request)
    }

    /// Begins a send to a receive that is posted already.
    count fn MPI_Irsend(buf: ConstBuf, count: Count, datatype: MPI_Datatype, dest: c_int, tag: c_int, comm: MPI_Comm, request: Place<MPI_Request>) |mpi| on comm {
        isend(mpi, SendMode::Ready, (buf, count.wide(), datatype), (dest, tag, comm), request)
    }

    /// Begins to receive.
    count fn MPI_Irecv(buf: Buf, count: Count, datatype: MPI_Datatype, source: c_int, tag: c_int, comm: MPI_Comm, request: Place<MPI_Request>) |mpi| on comm {
        if let Some(piece) = piece(buf, count.wide(), datatype)
            && !request.is_null()
            && let Some(handle) = mpi.irecv_at_once(piece, source, tag, comm.value())
        {
            return request.put("request", MPI_Request::new(handle?));
        }
        let data = data(mpi, buf, count.wide(), datatype)?;
        request.put("request", MPI_Request::new(mpi.irecv(data, source, tag, comm.value())?))
    }

    /// Makes a persistent send.
    count fn MPI_Send_init(buf: ConstBuf, count: Count, datatype: MPI_Datatype, dest: c_int, tag: c_int, comm: MPI_Comm, request: Place<MPI_Request>) |mpi| on comm {
        send_init(mpi, SendMode::Standard, (buf, count.wide(), datatype), (dest, tag, comm), request)
    }

    /// Makes a persistent buffered send.
    count fn MPI_Bsend_init(buf: ConstBuf, count: Count, datatype: MPI_Datatype, dest: c_int, tag: c_int, comm: MPI_Comm, request: Place<MPI_Request>) |mpi| on comm {
        send_init(mpi, SendMode::Buffered, (buf, count.wide(), datatype), (dest, tag, comm), request)
    }

    /// Makes a persistent synchronous send.
    count fn MPI_Ssend_init(buf: ConstBuf, count: Count, datatype: MPI_Datatype, dest: c_int, tag: c_int, comm: MPI_Comm, request: Place<MPI_Request>) |mpi| on comm {
        send_init(mpi, SendMode::Synchronous, (buf, count.wide(), datatype), (dest, tag, comm), request)
    }

    /// Makes a persistent ready send.
    count fn MPI_Rsend_init(buf: ConstBuf, count: Count, datatype: MPI_Datatype, dest: c_int, tag: c_int, comm: MPI_Comm, request: Place<MPI_Request>) |mpi| on comm {
        send_init(mpi, SendMode::Ready, (buf, count.wide(), datatype), (dest, tag, comm), request)
    }

    /// Makes a persistent receive.
    count fn MPI_Recv_init(buf: Buf, count: Count, datatype: MPI_Datatype, source: c_int, tag: c_int, comm: MPI_Comm, request: Place<MPI_Request>) |mpi| on comm {
        let data = data(mpi, buf, count.wide(), datatype)?;
        request.put("request", MPI_Request::new(mpi.recv_init(data, source, tag, comm.value())?))
    }

    /// Sends and receives at once.
    count fn MPI_Sendrecv(sendbuf: ConstBuf, sendcount: Count, sendtype: MPI_Datatype, dest: c_int, sendtag: c_int, recvbuf: Buf, recvcount: Count, recvtype: MPI_Datatype, source: c_int, recvtag: c_int, comm: MPI_Comm, status: Place<MPI_Status>) |mpi| on comm {
        let send = data(mpi, sendbuf.buf(), sendcount.wide(), sendtype)?;
        let receive = data(mpi, recvbuf, recvcount.wide(), recvtype)?;
        let (found, error) = mpi.sendrecv((send, dest, sendtag), (receive, source, recvtag), comm.value())?;
        status.status(&found);
        error.map_or(Ok(()), Err)
    }

    /// Sends and receives in the same buffer.
    count fn MPI_Sendrecv_replace(buf: Buf, count: Count, datatype: MPI_Datatype, dest: c_int, sendtag: c_int, source: c_int, recvtag: c_int, comm: MPI_Comm, status: Place<MPI_Status>) |mpi| on comm {
        let receive = data(mpi, buf, count.wide(), datatype)?;
        let send = mpi.packed_copy(&receive);
        let (found, error) = mpi.sendrecv((send, dest, sendtag), (receive, source, recvtag), comm.value())?;
        status.status(&found);
        error.map_or(Ok(()), Err)
    }

    /// Begins to send and receive.
    count fn MPI_Isendrecv(sendbuf: ConstBuf, sendcount: Count, sendtype: MPI_Datatype, dest: c_int, sendtag: c_int, recvbuf: Buf, recvcount: Count, recvtype: MPI_Datatype, source: c_int, recvtag: c_int, comm: MPI_Comm, request: Place<MPI_Request>) |mpi| on comm {
        let send = data(mpi, sendbuf.buf(), sendcount.wide(), sendtype)?;
        let receive = data(mpi, recvbuf, recvcount.wide(), recvtype)?;
        request.put("request", MPI_Request::new(mpi.isendrecv((send, dest, sendtag), (receive, source, recvtag), comm.value())?))
    }

    /// Begins to send and receive in the same buffer.
    count fn MPI_Isendrecv_replace(buf: Buf, count: Count, datatype: MPI_Datatype, dest: c_int, sendtag: c_int, source: c_int, recvtag: c_int, comm: MPI_Comm, request: Place<MPI_Request>) |mpi| on comm {
        let receive = data(mpi, buf, count.wide(), datatype)?;
        let send = mpi.packed_copy(&receive);
        request.put("request", MPI_Request::new(mpi.isendrecv((send, dest, sendtag), (receive, source, recvtag), comm.value())?))
    }

    /// Waits for a message without receiving it.
    fn MPI_Probe(source: c_int, tag: c_int, comm: MPI_Comm, status: Place<MPI_Status>) |mpi| on comm {
        status.status(&mpi.probe(source, tag, comm.value())?);
        Ok(())
    }

    /// Looks for a message without receiving it.
    fn MPI_Iprobe(source: c_int, tag: c_int, comm: MPI_Comm, flag: Place<c_int>, status: Place<MPI_Status>) |mpi| on comm {
        let found = mpi.iprobe(source, tag, comm.value())?;
        if let Some(found) = &found {
            status.status(found);
        }
        flag.put("flag", c_int::from(found.is_some()))
    }

    /// Waits for a message and takes it for `MPI_Mrecv`.
    fn MPI_Mprobe(source: c_int, tag: c_int, comm: MPI_Comm, message: Place<MPI_Message>, status: Place<MPI_Status>) |mpi| on comm {
        let (handle, found) = mpi.mprobe(source, tag, comm.value())?;
        status.status(&found);
        message.put("message", MPI_Message::new(handle))
    }

    /// Looks for a message and takes it for `MPI_Mrecv`.
    fn MPI_Improbe(source: c_int, tag: c_int, comm: MPI_Comm, flag: Place<c_int>, message: Place<MPI_Message>, status: Place<MPI_Status>) |mpi| on comm {
        let found = mpi.improbe(source, tag, comm.value())?;
        if let Some((handle, found)) = &found {
            status.status(found);
            message.put("message", MPI_Message::new(*handle))?;
        }
        flag.put("flag", c_int::from(found.is_some()))
    }

    /// Receives a message that a matched probe took.
    count fn MPI_Mrecv(buf: Buf, count: Count, datatype: MPI_Datatype, message: Place<MPI_Message>, status: Place<MPI_Status>) |mpi| {
        let data = data(mpi, buf, count.wide(), datatype)?;
        let (found, error) = mpi.mrecv(message.take("message")?.value(), data)?;
        message.put("message", MPI_Message::new(MPI_MESSAGE_NULL))?;
        status.status(&found);
        error.map_or(Ok(()), Err)
    }

    /// Begins to receive a message that a matched probe took.
    count fn MPI_Imrecv(buf: Buf, count: Count, datatype: MPI_Datatype, message: Place<MPI_Message>, request: Place<MPI_Request>) |mpi| {
        let data = data(mpi, buf, count.wide(), datatype)?;
        let handle = mpi.imrecv(message.take("message")?.value(), data)?;
        message.put("message", MPI_Message::new(MPI_MESSAGE_NULL))?;
        request.put("request", MPI_Request::new(handle))
    }
}

/// Elements of a send as the program names them.
type Elements = (ConstBuf, i64, MPI_Datatype);
/// Where a message goes: rank, tag, communicator.
type To = (c_int, c_int, MPI_Comm);

/// # Safety
/// The C caller vouches for the elements.
unsafe fn send(mpi: &Mpi, mode: SendMode, (buf, count, datatype): Elements, to: To) -> Result<()> {
    // SAFETY: by the caller's promise.
    let data = unsafe { data(mpi, buf.buf(), count, datatype) }?;
    let (dest, tag, comm) = to;
    mpi.send(mode, &data, dest, tag, comm.value())
}

/// # Safety
/// The C caller vouches for the elements.
unsafe fn isend(
    mpi: &Mpi,
    mode: SendMode,
    (buf, count, datatype): Elements,
    (dest, tag, comm): To,
    request: Place<MPI_Request>,
) -> Result<()> {
    // SAFETY: by the caller's promise.
    let data = unsafe { data(mpi, buf.buf(), count, datatype) }?;
    let handle = mpi.isend(mode, data, dest, tag, comm.value())?;
    request.put("request", MPI_Request::new(handle))
}

/// # Safety
/// The C caller vouches for the elements.
unsafe fn send_init(
    mpi: &Mpi,
    mode: SendMode,
    (buf, count, datatype): Elements,
    (dest, tag, comm): To,
    request: Place<MPI_Request>,
) -> Result<()> {
    // SAFETY: by the caller's promise.
    let data = unsafe { data(mpi, buf.buf(), count, datatype) }?;
    let handle = mpi.send_init(mode, data, dest, tag, comm.value())?;
    request.put("request", MPI_Request::new(handle))
}
