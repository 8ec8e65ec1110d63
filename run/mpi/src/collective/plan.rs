//! From an operation to its schedule and to the buffers that the schedule works on.
//!
//! Buffers follow from the operation alone; which schedule it is depends on the kind of
//! communicator.

use margay_core_schedule as schedule;
use margay_core_schedule::{
    Block, Hosts, Inter, InterRoot, Neighbourhood, Part, Ranks, Schedule, Tuning,
};
use margay_run_engine::{Buffer, Reduction};
use margay_sys_os::user::Mem;

use crate::Mpi;
use crate::comm::{Comm, Topology};
use crate::error::*;
use crate::fail;
use crate::operation::{Blocks, Elements, Operand, Operation, Root};

/// A schedule with what it works on.
pub(super) struct Plan {
    pub schedule: Schedule,
    pub send: Buffer,
    pub recv: Buffer,
    pub reduce: Option<Reduction>,
}

/// Returns the schedule of an operation on a communicator, and its buffers.
pub(super) fn plan(mpi: &Mpi, comm: &Comm, operation: &Operation) -> Result<Plan> {
    let tuning = &Tuning::default();
    let ranks = Ranks {
        rank: comm.rank,
        size: comm.size(),
    };
    let schedule = match &comm.remote {
        None => {
            let division = comm.division(mpi);
            let divided =
                division.and_then(|d| divided_schedule(&d.hosts, ranks, operation, tuning));
            match divided {
                Some(schedule) => schedule,
                None => intra_schedule(comm, ranks, operation, tuning)?,
            }
        }
        Some(remote) => {
            let inter = Inter {
                local: ranks,
                remote_size: remote.size(),
            };
            inter_schedule(comm, inter, operation, tuning)?
        }
    };
    let (send, recv) = buffers(operation);
    let reduce = elements(operation).map(|e| e.op.reduction(&e.datatype));
    Ok(Plan {
        schedule,
        send,
        recv,
        reduce,
    })
}

/// Returns what is sent from and received into.
fn buffers(operation: &Operation) -> (Buffer, Buffer) {
    use Operation as O;
    let equal = |operand: &Option<Operand>| buffer_of(operand.as_ref(), Operand::buffer);
    let typed = |blocks: &Option<Blocks>| buffer_of(blocks.as_ref(), Blocks::typed);
    let reduced = |mem: Option<&Mem>, e: &Elements| buffer_of(mem, |mem| e.buffer(mem));
    match operation {
        O::Barrier | O::Leave => (Buffer::None, Buffer::None),
        O::Bcast { data, .. } => (Buffer::None, data.buffer()),
        O::Gather { send, recv, .. } | O::Scatter { send, recv, .. } => (equal(send), equal(recv)),
        O::Gatherv { send, recv, .. } => (equal(send), typed(recv)),
        O::Scatterv { send, recv, .. } => (typed(send), equal(recv)),
        O::Allgather { send, recv } | O::Alltoall { send, recv } => (equal(send), recv.buffer()),
        O::Allgatherv { send, recv } => (equal(send), recv.typed()),
        O::Alltoallv { send, recv } => (typed(send), recv.typed()),
        O::Alltoallw { send, recv } => {
            (buffer_of(send.as_ref(), Blocks::per_peer), recv.per_peer())
        }
        O::Reduce {
            send, recv, what, ..
        } => (reduced(send.as_ref(), what), reduced(recv.as_ref(), what)),
        O::Allreduce { send, recv, what }
        | O::ReduceScatterBlock { send, recv, what }
        | O::ReduceScatter {
            send, recv, what, ..
        }
        | O::Scan { send, recv, what }
        | O::Exscan { send, recv, what } => (reduced(send.as_ref(), what), what.buffer(recv)),
        O::NeighborAllgather { send, recv } | O::NeighborAlltoall { send, recv } => {
            (send.buffer(), recv.buffer())
        }
        O::NeighborAllgatherv { send, recv } => (send.buffer(), recv.typed()),
        O::NeighborAlltoallv { send, recv } => (send.typed(), recv.typed()),
        O::NeighborAlltoallw { send, recv } => (send.per_peer(), recv.per_peer()),
    }
}

fn buffer_of<T>(what: Option<&T>, buffer: impl FnOnce(&T) -> Buffer) -> Buffer {
    what.map_or(Buffer::None, buffer)
}

/// Returns what is reduced, if the operation reduces.
fn elements(operation: &Operation) -> Option<&Elements> {
    use Operation as O;
    match operation {
        O::Reduce { what, .. }
        | O::Allreduce { what, .. }
        | O::ReduceScatterBlock { what, .. }
        | O::ReduceScatter { what, .. }
        | O::Scan { what, .. }
        | O::Exscan { what, .. } => Some(what),
        _ => None,
    }
}

fn block(operand: &Option<Operand>) -> Block {
    operand.as_ref().map_or(Block::default(), Operand::block)
}

fn parts(blocks: &Option<Blocks>) -> Vec<Part> {
    blocks.as_ref().map_or(Vec::new(), Blocks::parts)
}

/// Returns the schedule on an intra-communicator whose ranks are on several hosts; none of an
/// operation that is not divided by hosts.
fn divided_schedule(
    hosts: &Hosts,
    Ranks { rank, size }: Ranks,
    operation: &Operation,
    tuning: &Tuning,
) -> Option<Schedule> {
    use Operation as O;
    Some(match operation {
        O::Barrier | O::Leave => schedule::hosts_barrier(rank, hosts),
        O::Bcast {
            data,
            root: Root::Rank(root),
        } if *root < size => schedule::hosts_bcast(rank, hosts, *root, data.bytes(), tuning),
        O::Reduce {
            send,
            what,
            root: Root::Rank(root),
            ..
        } if *root < size && hosts.may_reduce(what.op.op.commutes()) => {
            schedule::hosts_reduce(rank, hosts, *root, what.amount(), send.is_none(), tuning)
        }
        O::Allreduce { send, what, .. } if hosts.may_reduce(what.op.op.commutes()) => {
            schedule::hosts_allreduce(rank, hosts, what.amount(), send.is_none(), tuning)
        }
        O::Allgather { send, recv } if hosts.is_blocked() && hosts.is_even() => {
            schedule::hosts_allgather(rank, hosts, recv.block(), send.is_none(), tuning)
        }
        O::Allgatherv { send, recv } if hosts.is_blocked() => {
            schedule::hosts_allgatherv(rank, hosts, &recv.parts(), send.is_none(), tuning)
        }
        O::ReduceScatterBlock { send, what, .. } if hosts.is_blocked() => {
            let counts = vec![what.count; size as usize];
            scattered(rank, hosts, &counts, what, send.is_none(), tuning)
        }
        O::ReduceScatter {
            send, counts, what, ..
        } if hosts.is_blocked() => scattered(rank, hosts, counts, what, send.is_none(), tuning),
        O::Scan { send, what, .. } if hosts.is_blocked() => {
            schedule::hosts_scan(rank, hosts, what.amount(), (send.is_none(), false), tuning)
        }
        O::Exscan { send, what, .. } if hosts.is_blocked() => {
            schedule::hosts_scan(rank, hosts, what.amount(), (send.is_none(), true), tuning)
        }
        O::Gather {
            send,
            recv,
            root: Root::Rank(root),
        } if *root < size && hosts.collect_blocks(operation.own_bytes(), tuning) => {
            let blocks = (block(send), block(recv));
            schedule::hosts_gather(rank, hosts, *root, blocks, send.is_none(), tuning)
        }
        O::Scatter {
            send,
            recv,
            root: Root::Rank(root),
        } if *root < size && hosts.collect_blocks(operation.own_bytes(), tuning) => {
            let blocks = (block(send), block(recv));
            schedule::hosts_scatter(rank, hosts, *root, blocks, recv.is_none(), tuning)
        }
        O::Alltoall { send, recv } if hosts.exchange_blocks(operation.own_bytes(), tuning) => {
            let blocks = (block(send), recv.block());
            schedule::hosts_alltoall(rank, hosts, blocks, send.is_none(), tuning)
        }
        _ => return None,
    })
}

fn scattered(
    rank: u32,
    hosts: &Hosts,
    counts: &[u64],
    what: &Elements,
    in_place: bool,
    tuning: &Tuning,
) -> Schedule {
    let kind = (what.datatype.size(), what.op.op.commutes());
    schedule::hosts_reduce_scatter(rank, hosts, counts, kind, in_place, tuning)
}

/// Returns the schedule on an intra-communicator. A send buffer that is not there is
/// `MPI_IN_PLACE`.
fn intra_schedule(
    comm: &Comm,
    ranks: Ranks,
    operation: &Operation,
    tuning: &Tuning,
) -> Result<Schedule> {
    use Operation as O;
    let at = |root: &Root| match root {
        Root::Rank(rank) => Ok(*rank),
        _ => fail!(
            MPI_ERR_ROOT,
            "MPI_ROOT and MPI_PROC_NULL are roots of inter-communicators only"
        ),
    };
    Ok(match operation {
        O::Barrier | O::Leave => schedule::barrier(ranks),
        O::Bcast { data, root } => schedule::bcast(ranks, at(root)?, data.bytes(), tuning),
        O::Gather { send, recv, root } => {
            let (s, r) = (block(send), block(recv));
            schedule::gather(ranks, at(root)?, s, r, send.is_none(), tuning)
        }
        O::Gatherv { send, recv, root } => {
            let (s, r) = (block(send).bytes, parts(recv));
            schedule::gatherv(ranks, at(root)?, s, &r, send.is_none())
        }
        O::Scatter { send, recv, root } => {
            let (s, r) = (block(send), block(recv));
            schedule::scatter(ranks, at(root)?, s, r, recv.is_none(), tuning)
        }
        O::Scatterv { send, recv, root } => {
            let (s, r) = (parts(send), block(recv).bytes);
            schedule::scatterv(ranks, at(root)?, &s, r, recv.is_none())
        }
        O::Allgather { send, recv } => {
            schedule::allgather(ranks, recv.block(), send.is_none(), tuning)
        }
        O::Allgatherv { send, recv } => {
            schedule::allgatherv(ranks, &recv.parts(), send.is_none(), tuning)
        }
        O::Alltoall { send, recv } => {
            schedule::alltoall(ranks, block(send), recv.block(), send.is_none(), tuning)
        }
        O::Alltoallv { send, recv } => {
            let (s, r) = (parts(send), recv.parts());
            schedule::alltoallv(ranks, &s, &r, send.is_none(), tuning)
        }
        O::Alltoallw { send, recv } => {
            let (s, r) = (parts(send), recv.parts());
            schedule::alltoallw(ranks, &s, &r, send.is_none(), tuning)
        }
        O::Reduce {
            send, what, root, ..
        } => schedule::reduce(ranks, at(root)?, what.amount(), send.is_none(), tuning),
        O::Allreduce { send, what, .. } => {
            schedule::allreduce(ranks, what.amount(), send.is_none(), tuning)
        }
        O::ReduceScatterBlock { send, what, .. } => {
            schedule::reduce_scatter_block(ranks, what.amount(), send.is_none(), tuning)
        }
        O::ReduceScatter {
            send, counts, what, ..
        } => {
            let (size, commutes) = (what.datatype.size(), what.op.op.commutes());
            schedule::reduce_scatter(ranks, counts, size, commutes, send.is_none(), tuning)
        }
        O::Scan { send, what, .. } => schedule::scan(ranks, what.amount(), send.is_none(), tuning),
        O::Exscan { send, what, .. } => {
            schedule::exscan(ranks, what.amount(), send.is_none(), tuning)
        }
        O::NeighborAllgather { send, recv } => {
            schedule::neighbor_allgather(&neighbourhood(comm)?, send.bytes(), recv.block())
        }
        O::NeighborAllgatherv { send, recv } => {
            schedule::neighbor_allgatherv(&neighbourhood(comm)?, send.bytes(), &recv.parts())
        }
        O::NeighborAlltoall { send, recv } => {
            schedule::neighbor_alltoall(&neighbourhood(comm)?, send.block(), recv.block())
        }
        O::NeighborAlltoallv { send, recv } => {
            schedule::neighbor_alltoallv(&neighbourhood(comm)?, &send.parts(), &recv.parts())
        }
        O::NeighborAlltoallw { send, recv } => {
            schedule::neighbor_alltoallw(&neighbourhood(comm)?, &send.parts(), &recv.parts())
        }
    })
}

/// Returns the schedule on an inter-communicator.
fn inter_schedule(
    comm: &Comm,
    inter: Inter,
    operation: &Operation,
    tuning: &Tuning,
) -> Result<Schedule> {
    use Operation as O;
    let at = |root: &Root| match root {
        Root::Rank(rank) => InterRoot::Remote(*rank),
        Root::Here => InterRoot::Myself,
        Root::Null => InterRoot::Neighbour,
    };
    if is_in_place(operation) {
        fail!(
            MPI_ERR_BUFFER,
            "MPI_IN_PLACE is not allowed on {}",
            comm.describe()
        );
    }
    Ok(match operation {
        O::Barrier | O::Leave => schedule::inter_barrier(inter),
        O::Bcast { data, root } => schedule::inter_bcast(inter, at(root), data.bytes(), tuning),
        O::Gather { send, recv, root } => {
            schedule::inter_gather(inter, at(root), block(send), block(recv))
        }
        O::Gatherv { send, recv, root } => {
            schedule::inter_gatherv(at(root), block(send).bytes, &parts(recv))
        }
        O::Scatter { send, recv, root } => {
            schedule::inter_scatter(inter, at(root), block(send), block(recv))
        }
        O::Scatterv { send, recv, root } => {
            schedule::inter_scatterv(at(root), &parts(send), block(recv).bytes)
        }
        O::Allgather { send, recv } => {
            schedule::inter_allgather(inter, block(send).bytes, recv.block(), tuning)
        }
        O::Allgatherv { send, recv } => {
            schedule::inter_allgatherv(inter, block(send).bytes, &recv.parts(), tuning)
        }
        O::Alltoall { send, recv } => {
            schedule::inter_alltoall(inter, block(send), recv.block(), tuning)
        }
        O::Alltoallv { send, recv } => {
            schedule::inter_alltoallv(inter, &parts(send), &recv.parts(), tuning)
        }
        O::Alltoallw { send, recv } => {
            schedule::inter_alltoallw(inter, &parts(send), &recv.parts(), tuning)
        }
        O::Reduce { what, root, .. } => {
            schedule::inter_reduce(inter, at(root), what.amount(), tuning)
        }
        O::Allreduce { what, .. } => schedule::inter_allreduce(inter, what.amount(), tuning),
        O::ReduceScatterBlock { what, .. } => {
            schedule::inter_reduce_scatter_block(inter, what.amount(), tuning)
        }
        O::ReduceScatter { counts, what, .. } => {
            let (size, commutes) = (what.datatype.size(), what.op.op.commutes());
            schedule::inter_reduce_scatter(inter, counts, size, commutes, tuning)
        }
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

/// Whether a process whose data everybody gets has no send buffer. (That of a rooted operation may
/// have no meaning here.)
fn is_in_place(operation: &Operation) -> bool {
    use Operation as O;
    match operation {
        O::Allgather { send, .. } | O::Allgatherv { send, .. } | O::Alltoall { send, .. } => {
            send.is_none()
        }
        O::Alltoallv { send, .. } | O::Alltoallw { send, .. } => send.is_none(),
        O::Allreduce { send, .. }
        | O::ReduceScatterBlock { send, .. }
        | O::ReduceScatter { send, .. } => send.is_none(),
        _ => false,
    }
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
