//! Partitioned communication: one message of which threads contribute parts when they have them.
//!
//! A partitioned send introduces itself when it is made: a short message, in a context of its own,
//! says how many partitions it has, of how many bytes, and under which tags they will come. A
//! partitioned receive waits for that from the beginning, so sends and receives find each other in
//! the order in which they were made, whatever is started when. From then on each partition of the
//! sender travels as a message with a tag of its own into its place in the receiver's buffer, as
//! soon as it is marked ready; the receiver's partitions need not be the sender's.
//!
//! Both sides are tasks of the engine, so they go on in whatever call makes progress.

pub(crate) mod sides;

use std::sync::{Arc, Mutex};

use margay_run_engine::{Data, Envelope, Mode};
use margay_sys_os::user::Mem;

use crate::constants::request::MPI_REQUEST_NULL;
use crate::error::*;
use crate::operation::Operand;
use crate::start::Start;
use crate::{Mpi, fail};

use sides::{Incoming, Introduction, Outgoing, Parts, ReceiveRound, Sender};

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
    /// When the handle is not that of an active partitioned send, a partition is none of its or is
    /// marked already; then none is marked.
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

    /// `MPI_Parrived`: whether a partition of the receive is here; true when the request is not
    /// active.
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
            self.rank.yield_if_oversubscribed();
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
