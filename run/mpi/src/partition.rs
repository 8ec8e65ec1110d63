//! Partitioned communication: one message of which threads contribute parts when they have them.
//!
//! A partitioned send introduces itself when it is made: a short message, in a context of its own, tells how many partitions
//! it has, of how many bytes, and under which tags they will come. A partitioned receive waits for that from the beginning,
//! so sends and receives find each other in the order in which they were made, whatever is started when. From then on each
//! partition of the sender travels as a message with a tag of its own into its place in the receiver's buffer, as soon as it
//! is marked ready; the receiver's partitions need not be the sender's.
//!
//! Both sides are tasks of the engine, so they go on in whatever call makes progress.

use std::sync::{Arc, Mutex, MutexGuard};

use margay_core_datatype::Datatype;
use margay_run_engine::{
    Data, Engine, Envelope, Failed, Mode, Outcome, Pattern, Pending, Rank, ReqId, Task,
};
use margay_sys_os::user::Mem;

use crate::collective::Operand;
use crate::constants::request::MPI_REQUEST_NULL;
use crate::error::*;
use crate::point::Start;
use crate::recover::failure;
use crate::request::Active;
use crate::{Mpi, Status, fail};

/// A buffer in partitions of equal size.
struct Parts {
    mem: Mem,
    datatype: Arc<Datatype>,
    partitions: u32,
    /// Packed bytes of one partition.
    each: u64,
}

impl Parts {
    /// Packed bytes `from .. from + bytes`, as far as they are in the buffer.
    fn data(&self, from: u64, bytes: u64) -> Data {
        let bytes = bytes.min(self.total().saturating_sub(from));
        if bytes == 0 {
            return Data::bytes(Mem::empty(), 0);
        }
        Data::part(self.mem.clone(), &self.datatype, from, bytes)
    }

    fn total(&self) -> u64 {
        u64::from(self.partitions) * self.each
    }

    fn check(&self, partition: i32) -> Result<u32> {
        match u32::try_from(partition) {
            Ok(p) if p < self.partitions => Ok(p),
            _ => fail!(
                MPI_ERR_ARG,
                "partition {partition} is not one of the {} of the request, which count from 0",
                self.partitions
            ),
        }
    }
}

/// What a send tells its receive.
#[derive(Clone, Copy)]
struct Introduction {
    partitions: u32,
    first_tag: u32,
    each: u64,
}

impl Introduction {
    const BYTES: usize = 16;

    fn encode(self) -> Vec<u8> {
        let mut bytes = self.partitions.to_ne_bytes().to_vec();
        bytes.extend(self.first_tag.to_ne_bytes());
        bytes.extend(self.each.to_ne_bytes());
        bytes
    }

    fn decode(bytes: [u8; Introduction::BYTES]) -> Introduction {
        let word =
            |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let each = u64::from_ne_bytes(bytes[8..].try_into().expect("eight bytes"));
        Introduction {
            partitions: word(0),
            first_tag: word(4),
            each,
        }
    }
}

/// A partitioned send.
pub(crate) struct Outgoing {
    parts: Parts,
    /// None is `MPI_PROC_NULL`.
    to: Option<u32>,
    /// Of the first partition.
    envelope: Envelope,
    round: Mutex<SendRound>,
}

#[derive(Default)]
struct SendRound {
    started: bool,
    ready: Vec<bool>,
    /// The sends of partitions, in the order in which they were marked.
    sends: Vec<ReqId>,
    /// How many of these have ended.
    ended: usize,
}

/// A partitioned receive.
pub(crate) struct Incoming {
    parts: Parts,
    /// The sender in the world; none is `MPI_PROC_NULL`.
    from: Option<u32>,
    /// The sender in the communicator, and the tag, for the status.
    source: u32,
    tag: u32,
    context: u32,
    round: Mutex<ReceiveRound>,
}

struct ReceiveRound {
    sender: Sender,
    started: bool,
    /// The receives of the sender's partitions.
    receives: Vec<ReqId>,
    /// How many of these have ended.
    ended: usize,
}

enum Sender {
    /// Its introduction is on its way to this memory.
    Awaited(ReqId, Mem),
    Known(Introduction),
    Nobody,
}

impl Outgoing {
    fn round(&self) -> MutexGuard<'_, SendRound> {
        self.round.lock().expect("no panic under this lock")
    }

    /// `MPI_Start`
    pub(crate) fn start(self: &Arc<Self>, rank: &Rank) -> Active {
        *self.round() = SendRound {
            started: true,
            ready: vec![false; self.parts.partitions as usize],
            sends: Vec::new(),
            ended: 0,
        };
        match self.to {
            None => Active::Done(Status::EMPTY),
            Some(to) => {
                let task = Box::new(Sending(self.clone(), to, None));
                Active::Send(rank.call(|engine| engine.start_task(task)))
            }
        }
    }

    /// Marks partitions ready, all or none.
    fn ready(&self, rank: &Rank, partitions: &[u32]) -> Result<()> {
        // Within one call of the engine, so that the task cannot miss that a send has ended before it is in the list.
        rank.call(|engine| {
            if engine.is_revoked(self.envelope.context) {
                return Err(failure(Failed::Revoked, "the partitioned send"));
            }
            let mut round = self.round();
            if !round.started {
                fail!(
                    MPI_ERR_REQUEST,
                    "the partitioned send is not active; start it before partitions are marked"
                );
            }
            for (i, &p) in partitions.iter().enumerate() {
                if std::mem::replace(&mut round.ready[p as usize], true) {
                    partitions[..i].iter().for_each(|&q| round.ready[q as usize] = false);
                    fail!(
                        MPI_ERR_ARG,
                        "partition {p} was marked ready before; that is allowed once after each start"
                    );
                }
            }
            let Some(to) = self.to else { return Ok(()) };
            for &p in partitions {
                let data = self.parts.data(u64::from(p) * self.parts.each, self.parts.each);
                let envelope = Envelope {
                    tag: self.envelope.tag.wrapping_add(p),
                    ..self.envelope
                };
                round.sends.push(engine.isend(Mode::Standard, data, to, envelope));
            }
            Ok(())
        })
    }
}

/// With the peer, and why it cannot be completed.
struct Sending(Arc<Outgoing>, u32, Option<Failed>);

impl Task for Sending {
    fn run(&mut self, engine: &mut Engine) -> Option<Outcome> {
        let mut round = self.0.round();
        while let Some(&id) = round.sends.get(round.ended)
            && let Some(outcome) = engine.take(id)
        {
            self.2 = self.2.or(outcome.failed);
            round.ended += 1;
        }
        if engine.is_revoked(self.0.envelope.context) {
            // No partition can be marked any more; those that are on their way end.
            self.2 = self.2.or(Some(Failed::Revoked));
            if round.ended < round.sends.len() {
                return None;
            }
        } else if round.ended < self.0.parts.partitions as usize {
            return None;
        }
        round.started = false;
        Some(Outcome {
            failed: self.2,
            ..Outcome::default()
        })
    }

    fn pending(&self) -> Pending {
        let envelope = self.0.envelope;
        Pending::Send(self.1, envelope.tag, envelope.context)
    }
}

impl Incoming {
    fn round(&self) -> MutexGuard<'_, ReceiveRound> {
        self.round.lock().expect("no panic under this lock")
    }

    /// `MPI_Start`
    pub(crate) fn start(self: &Arc<Self>, rank: &Rank) -> Active {
        let mut round = self.round();
        round.started = true;
        round.receives.clear();
        round.ended = 0;
        drop(round);
        match self.from {
            None => Active::Done(Status::PROC_NULL),
            Some(_) => {
                let task = Box::new(Receiving {
                    incoming: self.clone(),
                    posted: false,
                    bytes: 0,
                    failed: None,
                });
                let id = rank.call(|engine| engine.start_task(task));
                Active::Receive(id, self.parts.total())
            }
        }
    }

    /// The request is freed while it is not active: the introduction that belongs to it must still be taken.
    pub(crate) fn abandon(&self, rank: &Rank) {
        let awaited = match self.round().sender {
            Sender::Awaited(id, _) => Some(id),
            _ => None,
        };
        if let Some(id) = awaited {
            rank.detach(id);
        }
    }

    /// Whether the bytes of a partition are here.
    fn arrived(&self, engine: &Engine, partition: u32) -> bool {
        let round = self.round();
        if !round.started {
            return true;
        }
        let Sender::Known(sender) = round.sender else {
            return false;
        };
        if round.receives.is_empty() || sender.each == 0 {
            return round.ended == round.receives.len() && !round.receives.is_empty();
        }
        let begin = u64::from(partition) * self.parts.each;
        let end = begin + self.parts.each;
        let first = (begin / sender.each) as usize;
        let last = (end.div_ceil(sender.each) as usize).min(round.receives.len());
        round.receives[first.min(last)..last]
            .iter()
            .all(|&id| engine.is_done(id))
            && (first < last || round.ended == round.receives.len())
    }
}

struct Receiving {
    incoming: Arc<Incoming>,
    posted: bool,
    bytes: u64,
    failed: Option<Failed>,
}

impl Task for Receiving {
    fn run(&mut self, engine: &mut Engine) -> Option<Outcome> {
        let incoming = &self.incoming;
        let mut round = incoming.round();
        if let Sender::Awaited(id, mem) = &round.sender
            && let Some(outcome) = engine.take(*id)
        {
            if outcome.failed.is_some() {
                return Some(outcome);
            }
            let mut bytes = [0; Introduction::BYTES];
            mem.read(0, &mut bytes);
            round.sender = Sender::Known(Introduction::decode(bytes));
        }
        let Sender::Known(sender) = round.sender else {
            if engine.is_revoked(incoming.context) {
                round.started = false;
                return Some(Outcome {
                    failed: Some(Failed::Revoked),
                    ..Outcome::default()
                });
            }
            return None;
        };
        if !self.posted {
            self.posted = true;
            for p in 0..sender.partitions {
                let data = incoming.parts.data(u64::from(p) * sender.each, sender.each);
                let pattern = Pattern::new(
                    incoming.context,
                    Some(incoming.source),
                    Some(sender.first_tag.wrapping_add(p)),
                );
                round
                    .receives
                    .push(engine.irecv(data, pattern, incoming.from));
            }
        }
        while let Some(&id) = round.receives.get(round.ended)
            && let Some(outcome) = engine.take(id)
        {
            round.ended += 1;
            self.failed = self.failed.or(outcome.failed);
            self.bytes += outcome.bytes;
        }
        if round.ended < round.receives.len() {
            return None;
        }
        round.started = false;
        let sent = u64::from(sender.partitions) * sender.each;
        Some(Outcome {
            source: incoming.source,
            tag: incoming.tag,
            bytes: self.bytes,
            cancelled: false,
            failed: self.failed,
            truncated: (sent > incoming.parts.total()).then_some(sent),
            split: false,
        })
    }

    fn pending(&self) -> Pending {
        let incoming = &self.incoming;
        Pending::Receive(incoming.from, Some(incoming.tag), incoming.context)
    }
}

impl Mpi {
    /// `MPI_Psend_init`: `all` are the elements of all partitions, `each` those of one.
    ///
    /// # Errors
    /// When an argument is invalid.
    pub fn psend_init(
        &self,
        all: &Operand,
        partitions: u32,
        each: u64,
        dest: i32,
        tag: i32,
        comm: u32,
    ) -> Result<u32> {
        let parts = parts_of(all, partitions, each);
        let target = self.target(comm, dest, tag, None)?;
        let (context, introductions, rank, first_tag) = self.with_comm(comm, |c| {
            let first_tag = c.partition_tags(partitions);
            Ok((c.partitioned(), c.introductions(), c.rank, first_tag))
        })?;
        if let Some((to, envelope)) = target {
            let introduction = Introduction {
                partitions,
                first_tag,
                each: parts.each,
            };
            let bytes = introduction.encode();
            let data = Data::bytes(Mem::from_vec(bytes), Introduction::BYTES as u64);
            let envelope = Envelope {
                context: introductions,
                ..envelope
            };
            let id = self.rank.isend(Mode::Standard, data, to, envelope);
            self.rank.detach(id);
        }
        let outgoing = Outgoing {
            parts,
            to: target.map(|(to, _)| to),
            envelope: Envelope {
                context,
                source: rank,
                tag: first_tag,
            },
            round: Mutex::default(),
        };
        self.request_persistent(comm, Start::PartitionedSend(Arc::new(outgoing)))
    }

    /// `MPI_Precv_init`: `all` are the elements of all partitions, `each` those of one.
    ///
    /// # Errors
    /// When an argument is invalid; wildcards are.
    pub fn precv_init(
        &self,
        all: &Operand,
        partitions: u32,
        each: u64,
        source: i32,
        tag: i32,
        comm: u32,
    ) -> Result<u32> {
        use crate::constants::sentinel::{MPI_ANY_SOURCE, MPI_ANY_TAG};
        if source == MPI_ANY_SOURCE {
            fail!(
                MPI_ERR_RANK,
                "the source of a partitioned receive is MPI_ANY_SOURCE; it must be one rank"
            );
        }
        if tag == MPI_ANY_TAG {
            fail!(
                MPI_ERR_TAG,
                "the tag of a partitioned receive is MPI_ANY_TAG; it must be one tag"
            );
        }
        let found = self.source(comm, source, tag)?;
        let (context, introductions) =
            self.with_comm(comm, |c| Ok((c.partitioned(), c.introductions())))?;
        let from = found.as_ref().and_then(|f| f.from);
        let sender = match found {
            None => Sender::Nobody,
            Some(found) => {
                let mem = Mem::owned(Introduction::BYTES);
                let data = Data::bytes(mem.clone(), Introduction::BYTES as u64);
                let pattern = found.pattern.in_context(introductions);
                Sender::Awaited(self.rank.irecv(data, pattern, from), mem)
            }
        };
        let incoming = Incoming {
            parts: parts_of(all, partitions, each),
            from,
            source: source as u32,
            tag: tag as u32,
            context,
            round: Mutex::new(ReceiveRound {
                sender,
                started: false,
                receives: Vec::new(),
                ended: 0,
            }),
        };
        self.request_persistent(comm, Start::PartitionedReceive(Arc::new(incoming)))
    }

    /// `MPI_Pready` and its kin: these partitions of the send are ready.
    ///
    /// # Errors
    /// When the handle is not that of an active partitioned send, a partition is none of its or is marked already; then
    /// none is marked.
    pub fn pready(&self, handle: u32, partitions: impl Iterator<Item = i32>) -> Result<()> {
        let (start, comm) = self.request_start_of(handle)?;
        let Some(Start::PartitionedSend(outgoing)) = start.as_deref() else {
            fail!(
                MPI_ERR_REQUEST,
                "the request is not a partitioned send (MPI_Psend_init)"
            );
        };
        let partitions: Result<Vec<u32>> = partitions.map(|p| outgoing.parts.check(p)).collect();
        partitions
            .and_then(|partitions| outgoing.ready(&self.rank, &partitions))
            .map_err(|e| e.on(comm))
    }

    /// `MPI_Parrived`: whether a partition of the receive is here; true when the request is not active.
    ///
    /// # Errors
    /// When the handle is not that of a partitioned receive, or the partition is none of its.
    pub fn parrived(&self, handle: u32, partition: i32) -> Result<bool> {
        if handle == MPI_REQUEST_NULL {
            return Ok(true);
        }
        let (start, comm) = self.request_start_of(handle)?;
        let Some(Start::PartitionedReceive(incoming)) = start.as_deref() else {
            fail!(
                MPI_ERR_REQUEST,
                "the request is not a partitioned receive (MPI_Precv_init)"
            );
        };
        let partition = incoming.parts.check(partition).map_err(|e| e.on(comm))?;
        if incoming.from.is_none() {
            return Ok(true);
        }
        let here = || self.rank.call(|engine| incoming.arrived(engine, partition));
        if here() {
            return Ok(true);
        }
        self.rank.progress();
        let arrived = here();
        if !arrived {
            self.rank.give_way_if_crowded();
        }
        Ok(arrived)
    }
}

fn parts_of(all: &Operand, partitions: u32, each: u64) -> Parts {
    Parts {
        mem: all.mem.clone(),
        each: each * all.datatype.size(),
        datatype: all.datatype.clone(),
        partitions,
    }
}
