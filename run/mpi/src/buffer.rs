//! Buffered sends. The data is copied to memory of our own, but no more of it than the attached
//! buffer would hold, so the program's reasoning about its buffer stays true.

use std::sync::{Arc, Mutex};

use margay_run_engine::{Data, Envelope, Mode, ReqId, copy};
use margay_sys_os::user::Mem;

use crate::error::*;
use crate::{Mpi, fail};

/// What a buffer is attached to.
#[derive(Clone, Copy, Debug)]
pub enum Attached {
    Process,
    /// The communicator with this handle.
    Comm(u32),
    /// The session with this handle.
    Session(u32),
}

/// An attached buffer.
pub struct Buffer {
    /// As attached.
    pub address: usize,
    /// Bytes; `None` is a buffer that grows as needed (`MPI_BUFFER_AUTOMATIC`).
    pub size: Option<u64>,
    sends: Mutex<Vec<(ReqId, u64)>>,
}

impl Buffer {
    /// Returns a buffer at `address`.
    #[must_use]
    pub fn new(address: usize, size: Option<u64>) -> Arc<Buffer> {
        Arc::new(Buffer {
            address,
            size,
            sends: Mutex::default(),
        })
    }
}

impl Mpi {
    /// Returns the buffer that sends on the communicator use: its own, else that of its session,
    /// else that of the process.
    ///
    /// # Errors
    /// When there is neither, or the communicator is invalid.
    pub(crate) fn buffer_for(&self, comm: u32) -> Result<Arc<Buffer>> {
        let (own, session) = {
            let comm = self.comm(comm)?;
            let state = comm.state();
            (state.buffer.clone(), state.session)
        };
        let buffer = own
            .or_else(|| self.buffer_of(Attached::Session(session)).ok().flatten())
            .or_else(|| self.buffer_of(Attached::Process).ok().flatten());
        match buffer {
            Some(buffer) => Ok(buffer),
            None => fail!(
                MPI_ERR_BUFFER,
                "no buffer is attached; call MPI_Buffer_attach first"
            ),
        }
    }

    /// Copies `data` and sends the copy: its request, and whether the buffer keeps it because it is
    /// not out yet. It is over for the program, but can be cancelled.
    ///
    /// # Errors
    /// When the buffer has no room for it.
    pub(crate) fn buffered_send(
        &self,
        buffer: &Arc<Buffer>,
        data: &Data,
        to: u32,
        envelope: Envelope,
    ) -> Result<(ReqId, bool)> {
        // A program that follows the standard reserves MPI_BSEND_OVERHEAD for each message besides;
        // we need none of it, so one that only counts its data is served as well.
        let need = data.size();
        let mut sends = buffer.sends.lock().expect("no panic under this lock");
        if let Some(size) = buffer.size {
            let mut used: u64 = sends.iter().map(|(_, bytes)| bytes).sum();
            if used + need > size {
                self.rank.progress();
                sends.retain(|(id, _)| self.rank.test(*id).is_none());
                used = sends.iter().map(|(_, bytes)| bytes).sum();
            }
            if used + need > size {
                fail!(
                    MPI_ERR_BUFFER,
                    "the message of {} bytes does not fit the attached buffer: {used} of its {size} bytes are in use",
                    data.size()
                );
            }
        }
        let packed = Data::bytes(Mem::owned(data.size() as usize), data.size());
        copy(data, &packed);
        let id = self.rank.isend(Mode::Standard, packed, to, envelope);
        if self.rank.is_done(id) {
            return Ok((id, false));
        }
        sends.push((id, need));
        Ok((id, true))
    }

    /// Cancels a buffered send that was not out when it began. If it can be cancelled it is the
    /// caller's from now on, and no longer the buffer's; returns whether it can be.
    pub(crate) fn buffered_cancel(&self, buffer: &Buffer, id: ReqId) -> bool {
        let mut sends = buffer.sends.lock().expect("no panic under this lock");
        let Some(at) = sends.iter().position(|(send, _)| *send == id) else {
            return false;
        };
        sends.swap_remove(at);
        self.rank.cancel(id);
        true
    }

    /// Waits until all messages of the buffer are out.
    pub fn buffer_flush(&self, buffer: &Buffer) {
        let sends = std::mem::take(&mut *buffer.sends.lock().expect("no panic under this lock"));
        for (id, _) in sends {
            self.rank.wait(id);
        }
    }

    /// Returns the requests of the messages that are not out; they are no longer the buffer's.
    #[must_use]
    pub fn buffer_take(&self, buffer: &Buffer) -> Vec<ReqId> {
        let sends = std::mem::take(&mut *buffer.sends.lock().expect("no panic under this lock"));
        sends.into_iter().map(|(id, _)| id).collect()
    }

    /// `MPI_Buffer_attach`, `MPI_Comm_attach_buffer` and `MPI_Session_attach_buffer`.
    ///
    /// # Errors
    /// When one is attached already, or the communicator or session is invalid.
    pub fn buffer_attach(&self, to: Attached, address: usize, size: Option<u64>) -> Result<()> {
        let new = Buffer::new(address, size);
        self.with_buffer(to, |place| {
            if place.is_some() {
                fail!(
                    MPI_ERR_BUFFER,
                    "a buffer is attached already; detach it first"
                );
            }
            *place = Some(new);
            Ok(())
        })?
    }

    /// `MPI_Buffer_detach` and its like: waits until its messages are out.
    ///
    /// # Errors
    /// When none is attached, or the communicator or session is invalid.
    pub fn buffer_detach(&self, from: Attached) -> Result<Arc<Buffer>> {
        let Some(buffer) = self.with_buffer(from, Option::take)? else {
            fail!(MPI_ERR_BUFFER, "no buffer is attached");
        };
        self.buffer_flush(&buffer);
        Ok(buffer)
    }

    /// `MPI_Buffer_flush` as a request: `MPI_Buffer_iflush` and its like.
    ///
    /// # Errors
    /// When the communicator or session is invalid or there are too many requests.
    pub fn buffer_iflush(&self, of: Attached) -> Result<u32> {
        let buffer = self.buffer_of(of)?;
        let ids = buffer.map_or_else(Vec::new, |b| self.buffer_take(&b));
        let on = match of {
            Attached::Comm(handle) | Attached::Session(handle) => handle,
            Attached::Process => crate::constants::comm::MPI_COMM_SELF,
        };
        self.request_several(on, ids)
    }

    fn buffer_of(&self, of: Attached) -> Result<Option<Arc<Buffer>>> {
        self.with_buffer(of, |place| place.clone())
    }

    fn with_buffer<R>(
        &self,
        of: Attached,
        f: impl FnOnce(&mut Option<Arc<Buffer>>) -> R,
    ) -> Result<R> {
        Ok(match of {
            Attached::Process => f(&mut self.buffer.lock().expect("no panic under this lock")),
            Attached::Comm(handle) => f(&mut self.comm(handle)?.state().buffer),
            Attached::Session(handle) => self.with_session(handle, |s| f(&mut s.buffer))?,
        })
    }
}
