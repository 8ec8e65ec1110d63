//! The two sides of partitioned communication, as tasks of the engine.

use std::sync::{Arc, Mutex, MutexGuard};

use margay_core_datatype::Datatype;
use margay_run_engine::{
    Data, Engine, Envelope, Failed, Mode, Outcome, Pattern, Pending, Rank, ReqId, Task,
};
use margay_sys_os::user::Mem;

use crate::active::Active;
use crate::error::*;
use crate::outcome::failure;
use crate::{Status, fail};

/// A buffer in partitions of equal size.
pub(super) struct Parts {
    pub(super) mem: Mem,
    pub(super) datatype: Arc<Datatype>,
    pub(super) partitions: u32,
    /// Packed bytes of one partition.
    pub(super) each: u64,
}

impl Parts {
    /// Packed bytes `from .. from + bytes`, as far as they are in the buffer.
    pub(super) fn data(&self, from: u64, bytes: u64) -> Data {
        let bytes = bytes.min(self.total().saturating_sub(from));
        if bytes == 0 {
            return Data::bytes(Mem::empty(), 0);
        }
        Data::part(self.mem.clone(), &self.datatype, from, bytes)
    }

    pub(super) fn total(&self) -> u64 {
        u64::from(self.partitions) * self.each
    }

    pub(super) fn check(&self, partition: i32) -> Result<u32> {
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

/// What a send reports to its receive.
#[derive(Clone, Copy)]
pub(super) struct Introduction {
    pub(super) partitions: u32,
    pub(super) first_tag: u32,
    pub(super) each: u64,
}

impl Introduction {
    pub(super) const BYTES: usize = 16;

    pub(super) fn encode(self) -> Vec<u8> {
        let mut bytes = self.partitions.to_ne_bytes().to_vec();
        bytes.extend(self.first_tag.to_ne_bytes());
        bytes.extend(self.each.to_ne_bytes());
        bytes
    }

    pub(super) fn decode(bytes: [u8; Introduction::BYTES]) -> Introduction {
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
    pub(super) parts: Parts,
    /// None is `MPI_PROC_NULL`.
    pub(super) to: Option<u32>,
    /// Of the first partition.
    pub(super) envelope: Envelope,
    pub(super) round: Mutex<SendRound>,
}

#[derive(Default)]
pub(super) struct SendRound {
    pub(super) started: bool,
    pub(super) ready: Vec<bool>,
    /// The sends of partitions, in the order in which they were marked.
    pub(super) sends: Vec<ReqId>,
    /// How many of these have ended.
    pub(super) ended: usize,
}

/// A partitioned receive.
pub(crate) struct Incoming {
    pub(super) parts: Parts,
    /// The sender in the world; none is `MPI_PROC_NULL`.
    pub(super) from: Option<u32>,
    /// The sender in the communicator, and the tag, for the status.
    pub(super) source: u32,
    pub(super) tag: u32,
    pub(super) context: u32,
    pub(super) round: Mutex<ReceiveRound>,
}

pub(super) struct ReceiveRound {
    pub(super) sender: Sender,
    pub(super) started: bool,
    /// The receives of the sender's partitions.
    pub(super) receives: Vec<ReqId>,
    /// How many of these have ended.
    pub(super) ended: usize,
}

pub(super) enum Sender {
    /// Its introduction is on its way to this memory.
    Awaited(ReqId, Mem),
    Known(Introduction),
    Nobody,
}

impl Outgoing {
    pub(super) fn round(&self) -> MutexGuard<'_, SendRound> {
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
    pub(super) fn ready(&self, rank: &Rank, partitions: &[u32]) -> Result<()> {
        // Within one call of the engine, so that the task cannot miss that a send has ended before
        // it is in the list.
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
    pub(super) fn round(&self) -> MutexGuard<'_, ReceiveRound> {
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

    /// The request is freed while it is not active: the introduction that belongs to it must still
    /// be taken.
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
    pub(super) fn arrived(&self, engine: &Engine, partition: u32) -> bool {
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
