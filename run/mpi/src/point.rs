//! Point-to-point communication.

use std::sync::Arc;

use margay_run_engine::{
    Arrived, Data, Envelope, Mode, MsgId, Outcome, Pattern, Rank, ReqId, copy,
};
use margay_sys_os::user::{Mem, Piece};

use crate::active::Active;
use crate::buffer::Buffer;
use crate::comm::Comm;
use crate::constants::message::*;
use crate::constants::sentinel::*;
use crate::error::*;
use crate::outcome::failure;
use crate::outcome::received;
use crate::sent::Message;
use crate::start::Start;
use crate::{Mpi, Status};

/// The largest tag (`MPI_TAG_UB`).
pub const TAG_UB: i32 = i32::MAX;

/// How a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendMode {
    /// `MPI_Send`
    Standard,
    /// `MPI_Ssend`
    Synchronous,
    /// `MPI_Rsend`
    Ready,
    /// `MPI_Bsend`
    Buffered,
}

impl SendMode {
    fn mode(self) -> Mode {
        match self {
            SendMode::Standard | SendMode::Buffered => Mode::Standard,
            SendMode::Synchronous => Mode::Synchronous,
            SendMode::Ready => Mode::Ready,
        }
    }
}

/// A message that a matched probe took.
pub(crate) struct Taken {
    id: MsgId,
    comm: u32,
}

/// Where a receive looks.
pub(crate) struct Source {
    pub pattern: Pattern,
    pub from: Option<u32>,
}

impl Mpi {
    /// Returns where a send goes; `None` is `MPI_PROC_NULL`. `sending`: this many bytes go now.
    #[inline]
    pub(crate) fn target(
        &self,
        comm: u32,
        dest: i32,
        tag: i32,
        sending: Option<u64>,
    ) -> Result<Option<(u32, Envelope)>> {
        self.with_comm(comm, |comm| {
            if tag < 0 {
                return Err(bad_tag(tag, comm));
            }
            let Some(process) = comm.peers().process(dest as u32) else {
                return match dest {
                    MPI_PROC_NULL => Ok(None),
                    _ => Err(bad_rank(dest, tag, comm)),
                };
            };
            if let Some(bytes) = sending {
                let shared = self.rank.lock().is_shared();
                comm.traffic.count_message(bytes, shared);
            }
            let envelope = Envelope {
                context: comm.point_to_point(),
                source: comm.rank,
                tag: tag as u32,
            };
            Ok(Some((process, envelope)))
        })
    }

    /// Returns where a receive looks; `None` is `MPI_PROC_NULL`.
    #[inline]
    pub(crate) fn source(&self, comm: u32, source: i32, tag: i32) -> Result<Option<Source>> {
        self.with_comm(comm, |comm| {
            if tag < 0 && tag != MPI_ANY_TAG {
                return Err(bad_tag(tag, comm));
            }
            let (rank, from) = match source {
                MPI_ANY_SOURCE => (None, None),
                MPI_PROC_NULL => return Ok(None),
                _ => match comm.peers().process(source as u32) {
                    Some(process) => (Some(source as u32), Some(process)),
                    None => return Err(bad_rank(source, tag, comm)),
                },
            };
            Ok(Some(Source {
                pattern: Pattern::new(
                    comm.point_to_point(),
                    rank,
                    (tag != MPI_ANY_TAG).then_some(tag as u32),
                ),
                from,
            }))
        })
    }

    /// `MPI_Send` of a short message in one piece, the usual case on the shortest way. False when
    /// anything is unusual; then nothing was done and [`send`](Self::send) does it or says why not.
    #[inline(always)]
    pub fn send_at_once(&self, piece: Piece, dest: i32, tag: i32, comm: u32) -> bool {
        let target = self.target_at_once(dest, tag, comm);
        target.is_some_and(|(to, envelope)| self.rank.send_at_once(piece, to, envelope))
    }

    /// `MPI_Isend` in the same way: a request that is over.
    #[inline(always)]
    pub fn isend_at_once(&self, piece: Piece, dest: i32, tag: i32, comm: u32) -> Option<u32> {
        let (to, envelope) = self.target_at_once(dest, tag, comm)?;
        let number = self.rank.isend_at_once(piece, to, envelope)?;
        Some(self.request_sent(Message {
            to,
            comm,
            tag: tag as u32,
            number,
        }))
    }

    #[inline(always)]
    fn target_at_once(&self, dest: i32, tag: i32, comm: u32) -> Option<(u32, Envelope)> {
        let (process, context, source) = self.with_comm_if(comm, |comm| {
            let process = comm.peers().process(dest as u32)?;
            Some((process, comm.point_to_point(), comm.rank))
        })??;
        let envelope = Envelope {
            context,
            source,
            tag: tag as u32,
        };
        (tag >= 0).then_some((process, envelope))
    }

    /// `MPI_Recv` into one piece, the usual case on the shortest way; `take` sees the outcome. None
    /// when the message has not come soon or anything is unusual; then
    /// [`recv_posted`](Self::recv_posted) receives it or says why not.
    #[inline(always)]
    pub fn recv_at_once<R>(
        &self,
        piece: Piece,
        source: i32,
        tag: i32,
        comm: u32,
        take: impl FnOnce(&Outcome) -> R,
    ) -> Option<R> {
        let pattern = self.with_comm_if(comm, |comm| {
            let any = source == MPI_ANY_SOURCE;
            if (tag < 0 && tag != MPI_ANY_TAG)
                || !(any || comm.peers().process(source as u32).is_some())
            {
                return None;
            }
            Some(Pattern::new(
                comm.point_to_point(),
                (!any).then_some(source as u32),
                (tag != MPI_ANY_TAG).then_some(tag as u32),
            ))
        })??;
        self.rank.recv_at_once(piece, pattern, take)
    }

    /// `MPI_Irecv` into one piece, on the shortest way. None when anything is unusual; then nothing
    /// was done, and [`irecv`](Self::irecv) does it or says why not.
    #[inline(always)]
    pub fn irecv_at_once(
        &self,
        piece: Piece,
        source: i32,
        tag: i32,
        comm: u32,
    ) -> Option<Result<u32>> {
        let (pattern, from) = self.with_comm_if(comm, |comm| {
            let any = source == MPI_ANY_SOURCE;
            let from = comm.peers().process(source as u32);
            let usual = (tag >= 0 || tag == MPI_ANY_TAG) && (any || from.is_some());
            let pattern = Pattern::new(
                comm.point_to_point(),
                (!any).then_some(source as u32),
                (tag != MPI_ANY_TAG).then_some(tag as u32),
            );
            usual.then_some((pattern, from))
        })??;
        let id = self.rank.irecv_piece(piece, pattern, from, comm);
        Some(self.receive_handle(id, comm, piece.size() as u64))
    }

    /// Returns the handle of a receive that was posted.
    #[inline(always)]
    fn receive_handle(&self, id: ReqId, comm: u32, room: u64) -> Result<u32> {
        match self.handle_of_receive(id) {
            Some(handle) => Ok(handle),
            None => self.request_add(comm, Active::Receive(id, room)),
        }
    }

    /// `MPI_Send` and its modes.
    ///
    /// # Errors
    /// When an argument is invalid, or the attached buffer is too small.
    #[inline]
    pub fn send(&self, mode: SendMode, data: &Data, dest: i32, tag: i32, comm: u32) -> Result<()> {
        let Some((to, envelope)) = self.target(comm, dest, tag, Some(data.size()))? else {
            return Ok(());
        };
        if mode == SendMode::Buffered {
            let buffer = self.buffer_for(comm)?;
            if let (id, false) = self.buffered_send(&buffer, data, to, envelope)? {
                self.rank.detach(id);
            }
            return Ok(());
        }
        match self.rank.send(mode.mode(), data, to, envelope) {
            None => Ok(()),
            Some(failed) => {
                let text = format!("rank {dest}, tag {tag}, on {}", self.comm(comm)?.describe());
                Err(failure(failed, &text))
            }
        }
    }

    /// `MPI_Recv`: the status, and an error if the message was too long.
    ///
    /// # Errors
    /// When an argument is invalid.
    #[inline]
    pub fn recv(
        &self,
        data: Data,
        source: i32,
        tag: i32,
        comm: u32,
    ) -> Result<(Status, Option<Error>)> {
        self.recv_by(data, (source, tag, comm), Rank::recv)
    }

    /// A receive in one of the engine's ways.
    #[inline(always)]
    fn recv_by(
        &self,
        data: Data,
        (source, tag, comm): (i32, i32, u32),
        way: impl FnOnce(&Rank, Data, Pattern, Option<u32>) -> Outcome,
    ) -> Result<(Status, Option<Error>)> {
        let Some(source) = self.source(comm, source, tag)? else {
            return Ok((Status::PROC_NULL, None));
        };
        let room = data.size();
        let outcome = way(&self.rank, data, source.pattern, source.from);
        Ok(received(&outcome, room))
    }

    /// As [`recv`](Self::recv), after [`recv_at_once`](Self::recv_at_once) has found nothing.
    ///
    /// # Errors
    /// When an argument is invalid.
    pub fn recv_posted(
        &self,
        data: Data,
        source: i32,
        tag: i32,
        comm: u32,
    ) -> Result<(Status, Option<Error>)> {
        self.recv_by(data, (source, tag, comm), Rank::recv_posted)
    }

    /// `MPI_Isend` and its modes: a request.
    ///
    /// # Errors
    /// As [`Mpi::send`].
    #[inline]
    pub fn isend(&self, mode: SendMode, data: Data, dest: i32, tag: i32, comm: u32) -> Result<u32> {
        let active = match self.target(comm, dest, tag, Some(data.size()))? {
            None => Active::Done(Status::EMPTY),
            Some((to, envelope)) if mode == SendMode::Buffered => {
                let buffer = self.buffer_for(comm)?;
                self.buffered_active(&buffer, &data, to, envelope)?
            }
            Some((to, envelope)) => Active::Send(self.rank.isend(mode.mode(), data, to, envelope)),
        };
        self.request_add(comm, active)
    }

    /// `MPI_Irecv`: a request.
    ///
    /// # Errors
    /// When an argument is invalid.
    #[inline(always)]
    pub fn irecv(&self, data: Data, source: i32, tag: i32, comm: u32) -> Result<u32> {
        let Some(source) = self.source(comm, source, tag)? else {
            return self.request_add(comm, Active::Done(Status::PROC_NULL));
        };
        let room = data.size();
        let (pattern, from) = (source.pattern, source.from);
        let id = self.rank.irecv_named(data, pattern, from, comm);
        self.receive_handle(id, comm, room)
    }

    /// `MPI_Send_init` and its modes: a persistent request.
    ///
    /// # Errors
    /// As [`Mpi::send`].
    pub fn send_init(
        &self,
        mode: SendMode,
        data: Data,
        dest: i32,
        tag: i32,
        comm: u32,
    ) -> Result<u32> {
        let start = match self.target(comm, dest, tag, None)? {
            None => Start::Nothing(Status::EMPTY),
            Some((to, envelope)) if mode == SendMode::Buffered => Start::Buffered {
                buffer: self.buffer_for(comm)?,
                data,
                to,
                envelope,
            },
            Some((to, envelope)) => Start::Send {
                mode: mode.mode(),
                data,
                to,
                envelope,
            },
        };
        self.request_persistent(comm, start)
    }

    /// `MPI_Recv_init`: a persistent request.
    ///
    /// # Errors
    /// When an argument is invalid.
    pub fn recv_init(&self, data: Data, source: i32, tag: i32, comm: u32) -> Result<u32> {
        let start = match self.source(comm, source, tag)? {
            None => Start::Nothing(Status::PROC_NULL),
            Some(source) => Start::Receive {
                data,
                pattern: source.pattern,
                from: source.from,
            },
        };
        self.request_persistent(comm, start)
    }

    /// Begins a buffered send.
    fn buffered_active(
        &self,
        buffer: &Arc<Buffer>,
        data: &Data,
        to: u32,
        envelope: Envelope,
    ) -> Result<Active> {
        let (id, is_kept) = self.buffered_send(buffer, data, to, envelope)?;
        Ok(match is_kept {
            true => Active::Buffered(buffer.clone(), id),
            false => Active::Send(id),
        })
    }

    /// Begins a persistent operation on a communicator.
    pub(crate) fn start(&self, start: &Start, comm: u32) -> Result<Active> {
        if let Start::Send { data, .. } | Start::Buffered { data, .. } = start {
            // A communicator that was freed since is not counted for.
            let _ = self.with_comm(comm, |c| {
                let shared = self.rank.lock().is_shared();
                c.traffic.count_message(data.size(), shared);
                Ok(())
            });
        }
        Ok(match start {
            Start::Nothing(status) => Active::Done(*status),
            Start::Send {
                mode,
                data,
                to,
                envelope,
            } => Active::Send(self.rank.isend(*mode, data.clone(), *to, *envelope)),
            Start::Buffered {
                buffer,
                data,
                to,
                envelope,
            } => self.buffered_active(buffer, data, *to, *envelope)?,
            Start::Receive {
                data,
                pattern,
                from,
            } => Active::Receive(self.rank.irecv(data.clone(), *pattern, *from), data.size()),
            Start::Collective {
                comm,
                operation,
                tag,
            } => Active::Collective(self.start_tagged(comm, operation, *tag)?),
            Start::PartitionedSend(outgoing) => outgoing.start(&self.rank),
            Start::PartitionedReceive(incoming) => incoming.start(&self.rank),
        })
    }

    /// `MPI_Sendrecv`
    ///
    /// # Errors
    /// When an argument is invalid.
    pub fn sendrecv(
        &self,
        send: (Data, i32, i32),
        receive: (Data, i32, i32),
        comm: u32,
    ) -> Result<(Status, Option<Error>)> {
        let active = self.exchange_active(send, receive, comm)?;
        match active {
            Active::Both {
                send,
                receive,
                room,
            } => {
                let outcome = self.rank.wait(receive);
                self.rank.wait(send);
                Ok(received(&outcome, room))
            }
            Active::Receive(id, room) => Ok(received(&self.rank.wait(id), room)),
            Active::Send(id) => {
                self.rank.wait(id);
                Ok((Status::PROC_NULL, None))
            }
            _ => Ok((Status::PROC_NULL, None)),
        }
    }

    /// `MPI_Isendrecv`: a request.
    ///
    /// # Errors
    /// When an argument is invalid.
    pub fn isendrecv(
        &self,
        send: (Data, i32, i32),
        receive: (Data, i32, i32),
        comm: u32,
    ) -> Result<u32> {
        let active = self.exchange_active(send, receive, comm)?;
        self.request_add(comm, active)
    }

    fn exchange_active(
        &self,
        (send, dest, send_tag): (Data, i32, i32),
        (receive, source, receive_tag): (Data, i32, i32),
        comm: u32,
    ) -> Result<Active> {
        let target = self.target(comm, dest, send_tag, Some(send.size()))?;
        let source = self.source(comm, source, receive_tag)?;
        let room = receive.size();
        let receive = source.map(|s| self.rank.irecv(receive, s.pattern, s.from));
        let send = target.map(|(to, envelope)| self.rank.isend(Mode::Standard, send, to, envelope));
        Ok(match (send, receive) {
            (Some(send), Some(receive)) => Active::Both {
                send,
                receive,
                room,
            },
            (None, Some(receive)) => Active::Receive(receive, room),
            // The status is that of the receive from nobody.
            (Some(send), None) => Active::Send(send),
            (None, None) => Active::Done(Status::PROC_NULL),
        })
    }

    /// Returns a packed copy of `data`, for the operations that send and receive in one buffer.
    #[must_use]
    pub fn packed_copy(&self, data: &Data) -> Data {
        let packed = Data::bytes(Mem::owned(data.size() as usize), data.size());
        copy(data, &packed);
        packed
    }

    /// `MPI_Probe`
    ///
    /// # Errors
    /// When an argument is invalid.
    pub fn probe(&self, source: i32, tag: i32, comm: u32) -> Result<Status> {
        Ok(match self.source(comm, source, tag)? {
            None => Status::PROC_NULL,
            Some(source) => {
                let found = self.rank.probe(source.pattern, source.from);
                status_of(&found.map_err(|f| failure(f, "the probe"))?)
            }
        })
    }

    /// `MPI_Iprobe`
    ///
    /// # Errors
    /// When an argument is invalid.
    pub fn iprobe(&self, source: i32, tag: i32, comm: u32) -> Result<Option<Status>> {
        Ok(match self.source(comm, source, tag)? {
            None => Some(Status::PROC_NULL),
            Some(source) => match self.rank.iprobe(source.pattern) {
                Some(found) => Some(status_of(&found)),
                None => self.check_source(&source).map(|()| None)?,
            },
        })
    }

    /// An error when no message can come from there.
    fn check_source(&self, source: &Source) -> Result<()> {
        if !self.rank.has_failures() {
            return Ok(());
        }
        let engine = self.rank.lock().lock();
        match engine.stalls(source.pattern.context, source.from) {
            None => Ok(()),
            Some(failed) => Err(failure(failed, "the probe")),
        }
    }

    /// `MPI_Mprobe`: the message's handle and its status.
    ///
    /// # Errors
    /// When an argument is invalid.
    pub fn mprobe(&self, source: i32, tag: i32, comm: u32) -> Result<(u32, Status)> {
        match self.source(comm, source, tag)? {
            None => Ok((MPI_MESSAGE_NO_PROC, Status::PROC_NULL)),
            Some(source) => {
                let found = self.rank.mprobe(source.pattern, source.from);
                let (id, arrived) = found.map_err(|f| failure(f, "the probe"))?;
                Ok((self.message_add(id, comm)?, status_of(&arrived)))
            }
        }
    }

    /// `MPI_Improbe`: the message's handle and its status, if there is one.
    ///
    /// # Errors
    /// When an argument is invalid.
    pub fn improbe(&self, source: i32, tag: i32, comm: u32) -> Result<Option<(u32, Status)>> {
        match self.source(comm, source, tag)? {
            None => Ok(Some((MPI_MESSAGE_NO_PROC, Status::PROC_NULL))),
            Some(source) => match self.rank.improbe(source.pattern) {
                Some((id, arrived)) => Ok(Some((self.message_add(id, comm)?, status_of(&arrived)))),
                None => {
                    self.rank.yield_if_oversubscribed();
                    self.check_source(&source).map(|()| None)
                }
            },
        }
    }

    fn message_add(&self, id: MsgId, comm: u32) -> Result<u32> {
        let handle = self.objects().messages.insert(Taken { id, comm });
        handle.ok_or_else(|| {
            Error::new(
                MPI_ERR_OTHER,
                "a million messages are probed and not received; receive some first",
            )
        })
    }

    /// `MPI_Imrecv`: a request.
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn imrecv(&self, message: u32, data: Data) -> Result<u32> {
        let (active, comm) = self.message_start(message, data)?;
        self.request_add(comm, active)
    }

    /// `MPI_Mrecv`
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn mrecv(&self, message: u32, data: Data) -> Result<(Status, Option<Error>)> {
        let (active, comm) = self.message_start(message, data)?;
        Ok(match active {
            Active::Receive(id, room) => {
                let (status, error) = received(&self.rank.wait(id), room);
                (status, error.map(|e| e.on(comm)))
            }
            _ => (Status::PROC_NULL, None),
        })
    }

    fn message_start(&self, message: u32, data: Data) -> Result<(Active, u32)> {
        if message == MPI_MESSAGE_NO_PROC {
            let own = crate::constants::comm::MPI_COMM_SELF;
            return Ok((Active::Done(Status::PROC_NULL), own));
        }
        let taken = self.objects().messages.remove(message);
        let Some(taken) = taken else {
            let text = match message {
                MPI_MESSAGE_NULL => "the message is MPI_MESSAGE_NULL".to_string(),
                _ => format!("{message:#x} is not a message; was it received already?"),
            };
            return Err(Error::new(MPI_ERR_REQUEST, text));
        };
        let room = data.size();
        Ok((
            Active::Receive(self.rank.imrecv(taken.id, data), room),
            taken.comm,
        ))
    }
}

fn status_of(arrived: &Arrived) -> Status {
    Status {
        source: arrived.source as i32,
        tag: arrived.tag as i32,
        bytes: arrived.bytes,
        cancelled: false,
    }
}

#[cold]
fn bad_rank(rank: i32, tag: i32, comm: &Comm) -> Error {
    Error::new(
        MPI_ERR_RANK,
        format!("rank {rank} is not in {}, tag {tag}", comm.describe()),
    )
}

#[cold]
fn bad_tag(tag: i32, comm: &Comm) -> Error {
    Error::new(
        MPI_ERR_TAG,
        format!(
            "tag {tag} is not between 0 and {TAG_UB} (MPI_TAG_UB), on {}",
            comm.describe()
        ),
    )
}
