//! Collective operations: what is asked for, and the schedule that does it.
//!
//! An [`Operation`] holds one process's checked arguments. It becomes a schedule of `core/schedule`, which the engine
//! executes: blocking ([`Mpi::collective`]), with a request ([`Mpi::icollective`]) or again and again
//! ([`Mpi::collective_init`]).

use std::sync::Arc;

use margay_core_datatype::Datatype;
use margay_core_schedule as schedule;
use margay_core_schedule::{
    Block, Inter, InterRoot, Neighbourhood, Part, Ranks, Reduction as Amount, Schedule,
};
use margay_run_engine::{Buffer, Collective, Execution, Outcome, ReqId, combine};
use margay_sys_os::user::Mem;

use crate::comm::Comm;
use crate::error::*;
use crate::op::Bound;
use crate::point::Start;
use crate::recover::failure;
use crate::request::Active;
use crate::topology::Topology;
use crate::{Mpi, fail};

/// `count` elements of a datatype. In operations with equal blocks, those of one process.
#[derive(Clone)]
pub struct Operand {
    /// Where the elements are.
    pub mem: Mem,
    /// How many.
    pub count: u64,
    /// Of which type.
    pub datatype: Arc<Datatype>,
}

/// A block for each process.
#[derive(Clone)]
pub struct Blocks {
    /// Where the blocks are.
    pub mem: Mem,
    /// Elements of each block.
    pub counts: Vec<u64>,
    /// Displacements: of one type for all in its extents, of a type for each block in bytes.
    pub displs: Vec<i64>,
    /// One type for all, or one for each block.
    pub datatypes: Arc<[Arc<Datatype>]>,
}

/// Where the one process of a rooted operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// This rank; of an inter-communicator, of the remote group.
    Rank(u32),
    /// `MPI_ROOT`: here, for the other group.
    Here,
    /// `MPI_PROC_NULL`: another process of the local group, for the other group.
    Null,
}

/// What is reduced and how.
#[derive(Clone)]
pub struct Elements {
    /// Elements of each operand; in `ReduceScatterBlock` of each process's part.
    pub count: u64,
    /// Of which type.
    pub datatype: Arc<Datatype>,
    /// The operation, with the datatype's handle for functions of the program.
    pub op: Bound,
}

/// A collective operation with the arguments of one process. `None` for a send buffer is `MPI_IN_PLACE`; what
/// has no meaning on this process is `None` too.
#[derive(Clone)]
pub enum Operation {
    Barrier,
    Bcast {
        data: Operand,
        root: Root,
    },
    Gather {
        send: Option<Operand>,
        recv: Option<Operand>,
        root: Root,
    },
    Gatherv {
        send: Option<Operand>,
        recv: Option<Blocks>,
        root: Root,
    },
    Scatter {
        send: Option<Operand>,
        recv: Option<Operand>,
        root: Root,
    },
    Scatterv {
        send: Option<Blocks>,
        recv: Option<Operand>,
        root: Root,
    },
    Allgather {
        send: Option<Operand>,
        recv: Operand,
    },
    Allgatherv {
        send: Option<Operand>,
        recv: Blocks,
    },
    Alltoall {
        send: Option<Operand>,
        recv: Operand,
    },
    Alltoallv {
        send: Option<Blocks>,
        recv: Blocks,
    },
    Alltoallw {
        send: Option<Blocks>,
        recv: Blocks,
    },
    Reduce {
        send: Option<Mem>,
        recv: Option<Mem>,
        what: Elements,
        root: Root,
    },
    Allreduce {
        send: Option<Mem>,
        recv: Mem,
        what: Elements,
    },
    ReduceScatterBlock {
        send: Option<Mem>,
        recv: Mem,
        what: Elements,
    },
    ReduceScatter {
        send: Option<Mem>,
        recv: Mem,
        counts: Vec<u64>,
        what: Elements,
    },
    Scan {
        send: Option<Mem>,
        recv: Mem,
        what: Elements,
    },
    Exscan {
        send: Option<Mem>,
        recv: Mem,
        what: Elements,
    },
    NeighborAllgather {
        send: Operand,
        recv: Operand,
    },
    NeighborAllgatherv {
        send: Operand,
        recv: Blocks,
    },
    NeighborAlltoall {
        send: Operand,
        recv: Operand,
    },
    NeighborAlltoallv {
        send: Blocks,
        recv: Blocks,
    },
    NeighborAlltoallw {
        send: Blocks,
        recv: Blocks,
    },
}

impl Mpi {
    /// A blocking collective.
    ///
    /// # Errors
    /// When the operation does not fit the communicator.
    pub fn collective(&self, comm: &Arc<Comm>, operation: Operation) -> Result<()> {
        check(comm, &operation)?;
        self.check_whole(comm)?;
        if self.collective_fast(comm, &operation)? {
            comm.traffic.count_collective(self.rank.lock().is_shared());
            return Ok(());
        }
        let id = self.start_collective(comm, &operation)?;
        match disagreement(&self.rank.wait(id)) {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    /// A nonblocking collective: a request.
    ///
    /// # Errors
    /// When the operation does not fit the communicator.
    pub fn icollective(&self, comm: &Arc<Comm>, operation: &Operation) -> Result<u32> {
        let id = self.start_collective(comm, operation)?;
        self.request_add(comm.handle(), Active::Collective(id))
    }

    /// A persistent collective: a request.
    ///
    /// # Errors
    /// When the operation does not fit the communicator.
    pub fn collective_init(&self, comm: &Arc<Comm>, operation: Operation) -> Result<u32> {
        // Told now rather than at the start.
        check(comm, &operation)?;
        plan(comm, &operation)?;
        let start = Start::Collective {
            comm: comm.clone(),
            operation,
            tag: comm.next_tag(),
        };
        self.request_persistent(comm.handle(), start)
    }

    /// Begins a collective.
    pub(crate) fn start_collective(
        &self,
        comm: &Arc<Comm>,
        operation: &Operation,
    ) -> Result<ReqId> {
        check(comm, operation)?;
        self.check_whole(comm)?;
        // An operation that is refused here must not count: it need not be refused everywhere.
        let plan = plan(comm, operation)?;
        Ok(self.start_plan(comm, plan, comm.next_tag()))
    }

    /// Begins a collective under a given tag.
    pub(crate) fn start_tagged(
        &self,
        comm: &Arc<Comm>,
        operation: &Operation,
        tag: u32,
    ) -> Result<ReqId> {
        Ok(self.start_plan(comm, plan(comm, operation)?, tag))
    }

    fn start_plan(&self, comm: &Comm, plan: Plan, tag: u32) -> ReqId {
        comm.traffic.count_collective(self.rank.lock().is_shared());
        self.rank.icollective(Execution::new(Collective {
            schedule: Arc::new(plan.schedule),
            context: comm.collective(),
            sequence: tag,
            me: comm.rank,
            local: comm.group.clone(),
            remote: comm.remote.clone(),
            send: plan.send,
            recv: plan.recv,
            reduction: plan.reduce,
        }))
    }
}

/// The error of a collective in which the processes do not agree about the sizes of messages.
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

/// A schedule with what it works on.
struct Plan {
    schedule: Schedule,
    send: Buffer,
    recv: Buffer,
    reduce: Option<margay_run_engine::Reduction>,
}

impl Plan {
    fn new(schedule: Schedule, send: Buffer, recv: Buffer) -> Plan {
        Plan {
            schedule,
            send,
            recv,
            reduce: None,
        }
    }

    fn reducing(schedule: Schedule, send: Option<&Mem>, recv: Option<&Mem>, e: &Elements) -> Plan {
        let typed = |mem: Option<&Mem>| match mem {
            None => Buffer::None,
            Some(mem) => Buffer::Typed {
                mem: mem.clone(),
                datatype: e.datatype.clone(),
            },
        };
        Plan {
            schedule,
            send: typed(send),
            recv: typed(recv),
            reduce: Some(e.op.reduction(&e.datatype)),
        }
    }
}

impl Operand {
    pub(crate) fn bytes(&self) -> u64 {
        self.count * self.datatype.size()
    }

    fn block(&self) -> Block {
        Block {
            count: self.count as i64,
            bytes: self.bytes(),
        }
    }

    fn buffer(&self) -> Buffer {
        Buffer::Typed {
            mem: self.mem.clone(),
            datatype: self.datatype.clone(),
        }
    }
}

impl Blocks {
    /// Packed bytes of one block.
    fn bytes_of(&self, rank: u32) -> u64 {
        let i = rank as usize;
        self.counts[i] * self.datatypes[i.min(self.datatypes.len() - 1)].size()
    }

    fn parts(&self) -> Vec<Part> {
        (self.counts.iter().zip(&self.displs).enumerate())
            .map(|(i, (&count, &start))| {
                let datatype = &self.datatypes[i.min(self.datatypes.len() - 1)];
                Part {
                    start,
                    bytes: count * datatype.size(),
                }
            })
            .collect()
    }

    fn typed(&self) -> Buffer {
        Buffer::Typed {
            mem: self.mem.clone(),
            datatype: self.datatypes[0].clone(),
        }
    }

    fn per_peer(&self) -> Buffer {
        Buffer::PerPeer {
            mem: self.mem.clone(),
            datatypes: self.datatypes.clone(),
        }
    }
}

fn buffer_or_none(operand: Option<&Operand>) -> Buffer {
    operand.map_or(Buffer::None, Operand::buffer)
}

fn typed_or_none(blocks: Option<&Blocks>) -> Buffer {
    blocks.map_or(Buffer::None, Blocks::typed)
}

fn block(operand: Option<&Operand>) -> Block {
    operand.map_or(Block::default(), Operand::block)
}

fn parts(blocks: Option<&Blocks>) -> Vec<Part> {
    blocks.map_or(Vec::new(), Blocks::parts)
}

impl Elements {
    fn amount(&self) -> Amount {
        Amount {
            count: self.count,
            size: self.datatype.size(),
            commutative: self.op.op.commutes(),
        }
    }
}

/// The schedule of an operation.
fn plan(comm: &Comm, operation: &Operation) -> Result<Plan> {
    let tuning = &schedule::Tuning::default();
    let ranks = Ranks {
        rank: comm.rank,
        size: comm.size(),
    };
    let Some(remote) = &comm.remote else {
        return intra_plan(comm, ranks, operation, tuning);
    };
    let inter = Inter {
        local: ranks,
        remote_size: remote.size(),
    };
    inter_plan(comm, inter, operation, tuning)
}

fn intra_plan(
    comm: &Comm,
    ranks: Ranks,
    operation: &Operation,
    tuning: &schedule::Tuning,
) -> Result<Plan> {
    use Operation as O;
    let at = |root: &Root| match root {
        Root::Rank(rank) => Ok(*rank),
        _ => fail!(
            MPI_ERR_ROOT,
            "MPI_ROOT and MPI_PROC_NULL are roots of inter-communicators only"
        ),
    };
    Ok(match operation {
        O::Barrier => Plan::new(schedule::barrier(ranks), Buffer::None, Buffer::None),
        O::Bcast { data, root } => Plan::new(
            schedule::bcast(ranks, at(root)?, data.bytes(), tuning),
            Buffer::None,
            data.buffer(),
        ),
        O::Gather { send, recv, root } => {
            let (s, r) = (send.as_ref(), recv.as_ref());
            Plan::new(
                schedule::gather(ranks, at(root)?, block(s), block(r), s.is_none(), tuning),
                buffer_or_none(s),
                buffer_or_none(r),
            )
        }
        O::Gatherv { send, recv, root } => {
            let (s, r) = (send.as_ref(), recv.as_ref());
            Plan::new(
                schedule::gatherv(ranks, at(root)?, block(s).bytes, &parts(r), s.is_none()),
                buffer_or_none(s),
                typed_or_none(r),
            )
        }
        O::Scatter { send, recv, root } => {
            let (s, r) = (send.as_ref(), recv.as_ref());
            Plan::new(
                schedule::scatter(ranks, at(root)?, block(s), block(r), r.is_none(), tuning),
                buffer_or_none(s),
                buffer_or_none(r),
            )
        }
        O::Scatterv { send, recv, root } => {
            let (s, r) = (send.as_ref(), recv.as_ref());
            Plan::new(
                schedule::scatterv(ranks, at(root)?, &parts(s), block(r).bytes, r.is_none()),
                typed_or_none(s),
                buffer_or_none(r),
            )
        }
        O::Allgather { send, recv } => Plan::new(
            schedule::allgather(ranks, recv.block(), send.is_none(), tuning),
            buffer_or_none(send.as_ref()),
            recv.buffer(),
        ),
        O::Allgatherv { send, recv } => Plan::new(
            schedule::allgatherv(ranks, &recv.parts(), send.is_none(), tuning),
            buffer_or_none(send.as_ref()),
            recv.typed(),
        ),
        O::Alltoall { send, recv } => Plan::new(
            schedule::alltoall(
                ranks,
                block(send.as_ref()),
                recv.block(),
                send.is_none(),
                tuning,
            ),
            buffer_or_none(send.as_ref()),
            recv.buffer(),
        ),
        O::Alltoallv { send, recv } => Plan::new(
            schedule::alltoallv(
                ranks,
                &parts(send.as_ref()),
                &recv.parts(),
                send.is_none(),
                tuning,
            ),
            typed_or_none(send.as_ref()),
            recv.typed(),
        ),
        O::Alltoallw { send, recv } => Plan::new(
            schedule::alltoallw(
                ranks,
                &parts(send.as_ref()),
                &recv.parts(),
                send.is_none(),
                tuning,
            ),
            send.as_ref().map_or(Buffer::None, Blocks::per_peer),
            recv.per_peer(),
        ),
        O::Reduce {
            send,
            recv,
            what,
            root,
        } => Plan::reducing(
            schedule::reduce(ranks, at(root)?, what.amount(), send.is_none(), tuning),
            send.as_ref(),
            recv.as_ref(),
            what,
        ),
        O::Allreduce { send, recv, what } => Plan::reducing(
            schedule::allreduce(ranks, what.amount(), send.is_none(), tuning),
            send.as_ref(),
            Some(recv),
            what,
        ),
        O::ReduceScatterBlock { send, recv, what } => Plan::reducing(
            schedule::reduce_scatter_block(ranks, what.amount(), send.is_none(), tuning),
            send.as_ref(),
            Some(recv),
            what,
        ),
        O::ReduceScatter {
            send,
            recv,
            counts,
            what,
        } => Plan::reducing(
            schedule::reduce_scatter(
                ranks,
                counts,
                what.datatype.size(),
                what.op.op.commutes(),
                send.is_none(),
                tuning,
            ),
            send.as_ref(),
            Some(recv),
            what,
        ),
        O::Scan { send, recv, what } => Plan::reducing(
            schedule::scan(ranks, what.amount(), send.is_none(), tuning),
            send.as_ref(),
            Some(recv),
            what,
        ),
        O::Exscan { send, recv, what } => Plan::reducing(
            schedule::exscan(ranks, what.amount(), send.is_none(), tuning),
            send.as_ref(),
            Some(recv),
            what,
        ),
        O::NeighborAllgather { send, recv } => Plan::new(
            schedule::neighbor_allgather(&neighbourhood(comm)?, send.bytes(), recv.block()),
            send.buffer(),
            recv.buffer(),
        ),
        O::NeighborAllgatherv { send, recv } => Plan::new(
            schedule::neighbor_allgatherv(&neighbourhood(comm)?, send.bytes(), &recv.parts()),
            send.buffer(),
            recv.typed(),
        ),
        O::NeighborAlltoall { send, recv } => Plan::new(
            schedule::neighbor_alltoall(&neighbourhood(comm)?, send.block(), recv.block()),
            send.buffer(),
            recv.buffer(),
        ),
        O::NeighborAlltoallv { send, recv } => Plan::new(
            schedule::neighbor_alltoallv(&neighbourhood(comm)?, &send.parts(), &recv.parts()),
            send.typed(),
            recv.typed(),
        ),
        O::NeighborAlltoallw { send, recv } => Plan::new(
            schedule::neighbor_alltoallw(&neighbourhood(comm)?, &send.parts(), &recv.parts()),
            send.per_peer(),
            recv.per_peer(),
        ),
    })
}

/// Refuses what one process can see to be wrong about an operation on an intra-communicator.
fn check(comm: &Comm, operation: &Operation) -> Result<()> {
    use Operation as O;
    if comm.is_inter() {
        return Ok(());
    }
    let me = comm.rank;
    match operation {
        O::Gather {
            send: Some(send),
            recv: Some(recv),
            ..
        }
        | O::Scatter {
            send: Some(send),
            recv: Some(recv),
            ..
        }
        | O::Alltoall {
            send: Some(send),
            recv,
        } => same_bytes(send.bytes(), recv.bytes()),
        O::Gatherv {
            send: Some(send),
            recv: Some(recv),
            ..
        } => same_bytes(send.bytes(), recv.bytes_of(me)),
        O::Scatterv {
            send: Some(send),
            recv: Some(recv),
            ..
        } => same_bytes(send.bytes_of(me), recv.bytes()),
        O::Allgather {
            send: Some(send),
            recv,
        } => {
            same_bytes(send.bytes(), recv.bytes())?;
            let own = i64::from(me) * recv.count as i64;
            not_own_block(send, &recv.mem, own, &recv.datatype)
        }
        O::Allgatherv {
            send: Some(send),
            recv,
        } => {
            same_bytes(send.bytes(), recv.bytes_of(me))?;
            not_own_block(
                send,
                &recv.mem,
                recv.displs[me as usize],
                &recv.datatypes[0],
            )
        }
        O::Alltoallv {
            send: Some(send),
            recv,
        }
        | O::Alltoallw {
            send: Some(send),
            recv,
        } => same_bytes(send.bytes_of(me), recv.bytes_of(me)),
        _ => Ok(()),
    }
}

/// What a process sends to itself must be what it receives from itself. Between processes the messages tell.
fn same_bytes(sent: u64, received: u64) -> Result<()> {
    if sent == received {
        return Ok(());
    }
    let class = if sent > received {
        MPI_ERR_TRUNCATE
    } else {
        MPI_ERR_COUNT
    };
    fail!(
        class,
        "this process sends itself {sent} bytes and receives {received} bytes; counts and datatypes must agree"
    )
}

/// Refuses a send buffer that is the own block of the receive buffer.
fn not_own_block(send: &Operand, recv: &Mem, start: i64, datatype: &Datatype) -> Result<()> {
    let own = start.wrapping_mul(datatype.extent()) as isize;
    if send.bytes() > 0 && send.mem.address() == recv.address().wrapping_add_signed(own) {
        fail!(
            MPI_ERR_BUFFER,
            "sendbuf is this process's block of recvbuf; pass MPI_IN_PLACE as sendbuf"
        );
    }
    Ok(())
}

fn inter_plan(
    comm: &Comm,
    inter: Inter,
    operation: &Operation,
    tuning: &schedule::Tuning,
) -> Result<Plan> {
    use Operation as O;
    let at = |root: &Root| match root {
        Root::Rank(rank) => InterRoot::Remote(*rank),
        Root::Here => InterRoot::Myself,
        Root::Null => InterRoot::Neighbour,
    };
    let in_place = || {
        Error::new(
            MPI_ERR_BUFFER,
            format!("MPI_IN_PLACE is not allowed on {}", comm.describe()),
        )
    };
    Ok(match operation {
        O::Barrier => Plan::new(schedule::inter_barrier(inter), Buffer::None, Buffer::None),
        O::Bcast { data, root } => Plan::new(
            schedule::inter_bcast(inter, at(root), data.bytes(), tuning),
            Buffer::None,
            data.buffer(),
        ),
        O::Gather { send, recv, root } => {
            let (s, r) = (send.as_ref(), recv.as_ref());
            Plan::new(
                schedule::inter_gather(inter, at(root), block(s), block(r)),
                buffer_or_none(s),
                buffer_or_none(r),
            )
        }
        O::Gatherv { send, recv, root } => {
            let (s, r) = (send.as_ref(), recv.as_ref());
            Plan::new(
                schedule::inter_gatherv(at(root), block(s).bytes, &parts(r)),
                buffer_or_none(s),
                typed_or_none(r),
            )
        }
        O::Scatter { send, recv, root } => {
            let (s, r) = (send.as_ref(), recv.as_ref());
            Plan::new(
                schedule::inter_scatter(inter, at(root), block(s), block(r)),
                buffer_or_none(s),
                buffer_or_none(r),
            )
        }
        O::Scatterv { send, recv, root } => {
            let (s, r) = (send.as_ref(), recv.as_ref());
            Plan::new(
                schedule::inter_scatterv(at(root), &parts(s), block(r).bytes),
                typed_or_none(s),
                buffer_or_none(r),
            )
        }
        O::Allgather { send, recv } => {
            let send = send.as_ref().ok_or_else(in_place)?;
            Plan::new(
                schedule::inter_allgather(inter, send.bytes(), recv.block(), tuning),
                send.buffer(),
                recv.buffer(),
            )
        }
        O::Allgatherv { send, recv } => {
            let send = send.as_ref().ok_or_else(in_place)?;
            Plan::new(
                schedule::inter_allgatherv(inter, send.bytes(), &recv.parts(), tuning),
                send.buffer(),
                recv.typed(),
            )
        }
        O::Alltoall { send, recv } => {
            let send = send.as_ref().ok_or_else(in_place)?;
            Plan::new(
                schedule::inter_alltoall(inter, send.block(), recv.block(), tuning),
                send.buffer(),
                recv.buffer(),
            )
        }
        O::Alltoallv { send, recv } => {
            let send = send.as_ref().ok_or_else(in_place)?;
            Plan::new(
                schedule::inter_alltoallv(inter, &send.parts(), &recv.parts(), tuning),
                send.typed(),
                recv.typed(),
            )
        }
        O::Alltoallw { send, recv } => {
            let send = send.as_ref().ok_or_else(in_place)?;
            Plan::new(
                schedule::inter_alltoallw(inter, &send.parts(), &recv.parts(), tuning),
                send.per_peer(),
                recv.per_peer(),
            )
        }
        O::Reduce {
            send,
            recv,
            what,
            root,
        } => Plan::reducing(
            schedule::inter_reduce(inter, at(root), what.amount(), tuning),
            send.as_ref(),
            recv.as_ref(),
            what,
        ),
        O::Allreduce { send, recv, what } => Plan::reducing(
            schedule::inter_allreduce(inter, what.amount(), tuning),
            Some(send.as_ref().ok_or_else(in_place)?),
            Some(recv),
            what,
        ),
        O::ReduceScatterBlock { send, recv, what } => Plan::reducing(
            schedule::inter_reduce_scatter_block(inter, what.amount(), tuning),
            Some(send.as_ref().ok_or_else(in_place)?),
            Some(recv),
            what,
        ),
        O::ReduceScatter {
            send,
            recv,
            counts,
            what,
        } => Plan::reducing(
            schedule::inter_reduce_scatter(
                inter,
                counts,
                what.datatype.size(),
                what.op.op.commutes(),
                tuning,
            ),
            Some(send.as_ref().ok_or_else(in_place)?),
            Some(recv),
            what,
        ),
        O::Scan { .. }
        | O::Exscan { .. }
        | O::NeighborAllgather { .. }
        | O::NeighborAllgatherv { .. }
        | O::NeighborAlltoall { .. }
        | O::NeighborAlltoallv { .. }
        | O::NeighborAlltoallw { .. } => fail!(
            MPI_ERR_COMM,
            "{} is an inter-communicator, on which this operation is not defined",
            comm.describe()
        ),
    })
}

fn neighbourhood(comm: &Comm) -> Result<Neighbourhood> {
    let neighbours = comm.neighbours()?;
    Ok(match &comm.topology {
        Some(Topology::Cart(_)) => Neighbourhood::cartesian(&neighbours.sources),
        _ => {
            let ranks = |all: Vec<Option<u32>>| all.into_iter().flatten().collect::<Vec<_>>();
            Neighbourhood::graph(&ranks(neighbours.sources), &ranks(neighbours.destinations))
        }
    })
}

impl Mpi {
    /// `MPI_Reduce_local`: `right = left op right`.
    pub fn reduce_local(&self, op: &Bound, left: &Mem, right: &Operand) {
        let (datatype, count) = self.elements_for(&op.op, &right.datatype, right.count);
        combine(&op.reduction(&datatype), left, &right.mem, count);
    }
}
