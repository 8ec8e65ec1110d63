//! Collective operations. Each definition gives the blocking, the nonblocking and the persistent
//! form.

use std::ffi::c_int;

use margay_run_mpi::constants::address::MPI_IN_PLACE;
use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::constants::sentinel::*;
use margay_run_mpi::error::Result;
use margay_run_mpi::op::Bound;
use margay_run_mpi::operation::{Blocks, Elements, Operand, Operation, Root};
use margay_run_mpi::{Comm, Mpi, fail};
use margay_sys_os::user::Mem;

use crate::call::collective;
use crate::convert::{Int, blocks, blocks_w, count_of, operand, operand_of_all, piece};
use crate::types::*;
use crate::user::{Buf, ConstBuf, In, Place};

collective! {
    /// Waits for all processes.
    fn MPI_Barrier, MPI_Ibarrier, MPI_Barrier_init(comm: MPI_Comm) |_mpi, _group| on comm {
        Ok(Operation::Barrier)
    }

    /// From the root to all.
    count fn MPI_Bcast, MPI_Ibcast, MPI_Bcast_init(buffer: Buf, count: Count, datatype: MPI_Datatype, root: c_int, comm: MPI_Comm) |mpi, group| on comm {
        let root = root_of(group, root)?;
        let data = match root {
            Root::Null => nothing(mpi),
            _ => operand(mpi, ("buffer", "count"), buffer, count.wide(), datatype)?,
        };
        Ok(Operation::Bcast { data, root })
    }

    /// From all to the root, equal blocks.
    count fn MPI_Gather, MPI_Igather, MPI_Gather_init(sendbuf: ConstBuf, sendcount: Count, sendtype: MPI_Datatype, recvbuf: Buf, recvcount: Count, recvtype: MPI_Datatype, root: c_int, comm: MPI_Comm) |mpi, group| on comm {
        let root = root_of(group, root)?;
        let here = is_here(group, root);
        let send = sends(group, root).then(|| send_operand(mpi, sendbuf, sendcount.wide(), sendtype, in_place_at(group, here))).transpose()?.flatten();
        let recv = here.then(|| operand_of_all(mpi, ("recvbuf", "recvcount"), recvbuf, recvcount.wide(), recvtype, group.peers().size())).transpose()?;
        if here {
            different(sendbuf, recvbuf, send.as_ref().map_or(0, |s| s.count))?;
        }
        Ok(Operation::Gather { send, recv, root })
    }

    /// From all to the root.
    count fn MPI_Gatherv, MPI_Igatherv, MPI_Gatherv_init(sendbuf: ConstBuf, sendcount: Count, sendtype: MPI_Datatype, recvbuf: Buf, recvcounts: In<Count>, displs: In<Disp>, recvtype: MPI_Datatype, root: c_int, comm: MPI_Comm) |mpi, group| on comm {
        let root = root_of(group, root)?;
        let here = is_here(group, root);
        let send = sends(group, root).then(|| send_operand(mpi, sendbuf, sendcount.wide(), sendtype, in_place_at(group, here))).transpose()?.flatten();
        let recv = here.then(|| blocks(mpi, RECV, recvbuf, recvcounts, displs, recvtype, peers(group))).transpose()?;
        if here {
            different(sendbuf, recvbuf, send.as_ref().map_or(0, |s| s.count))?;
        }
        Ok(Operation::Gatherv { send, recv, root })
    }

    /// From the root to all, equal blocks.
    count fn MPI_Scatter, MPI_Iscatter, MPI_Scatter_init(sendbuf: ConstBuf, sendcount: Count, sendtype: MPI_Datatype, recvbuf: Buf, recvcount: Count, recvtype: MPI_Datatype, root: c_int, comm: MPI_Comm) |mpi, group| on comm {
        let root = root_of(group, root)?;
        let here = is_here(group, root);
        let send = here.then(|| operand_of_all(mpi, ("sendbuf", "sendcount"), sendbuf.buf(), sendcount.wide(), sendtype, group.peers().size())).transpose()?;
        let recv = sends(group, root).then(|| recv_operand(mpi, recvbuf, recvcount.wide(), recvtype, in_place_at(group, here))).transpose()?.flatten();
        if here {
            different(sendbuf, recvbuf, recv.as_ref().map_or(0, |r| r.count))?;
        }
        Ok(Operation::Scatter { send, recv, root })
    }

    /// From the root to all.
    count fn MPI_Scatterv, MPI_Iscatterv, MPI_Scatterv_init(sendbuf: ConstBuf, sendcounts: In<Count>, displs: In<Disp>, sendtype: MPI_Datatype, recvbuf: Buf, recvcount: Count, recvtype: MPI_Datatype, root: c_int, comm: MPI_Comm) |mpi, group| on comm {
        let root = root_of(group, root)?;
        let here = is_here(group, root);
        let send = here.then(|| blocks(mpi, SEND, sendbuf.buf(), sendcounts, displs, sendtype, peers(group))).transpose()?;
        let recv = sends(group, root).then(|| recv_operand(mpi, recvbuf, recvcount.wide(), recvtype, in_place_at(group, here))).transpose()?.flatten();
        if here {
            different(sendbuf, recvbuf, recv.as_ref().map_or(0, |r| r.count))?;
        }
        Ok(Operation::Scatterv { send, recv, root })
    }

    /// From all to all, the same block to everybody.
    count fn MPI_Allgather, MPI_Iallgather, MPI_Allgather_init(sendbuf: ConstBuf, sendcount: Count, sendtype: MPI_Datatype, recvbuf: Buf, recvcount: Count, recvtype: MPI_Datatype, comm: MPI_Comm) |mpi, group| on comm {
        let send = send_operand(mpi, sendbuf, sendcount.wide(), sendtype, in_place_at(group, true))?;
        let recv = operand_of_all(mpi, ("recvbuf", "recvcount"), recvbuf, recvcount.wide(), recvtype, group.peers().size())?;
        different(sendbuf, recvbuf, send.as_ref().map_or(0, |s| s.count))?;
        Ok(Operation::Allgather { send, recv })
    }

    /// From all to all, the same block to everybody, blocks of different sizes.
    count fn MPI_Allgatherv, MPI_Iallgatherv, MPI_Allgatherv_init(sendbuf: ConstBuf, sendcount: Count, sendtype: MPI_Datatype, recvbuf: Buf, recvcounts: In<Count>, displs: In<Disp>, recvtype: MPI_Datatype, comm: MPI_Comm) |mpi, group| on comm {
        let send = send_operand(mpi, sendbuf, sendcount.wide(), sendtype, in_place_at(group, true))?;
        let recv = blocks(mpi, RECV, recvbuf, recvcounts, displs, recvtype, peers(group))?;
        different(sendbuf, recvbuf, send.as_ref().map_or(0, |s| s.count))?;
        Ok(Operation::Allgatherv { send, recv })
    }

    /// From all to all, equal blocks.
    count fn MPI_Alltoall, MPI_Ialltoall, MPI_Alltoall_init(sendbuf: ConstBuf, sendcount: Count, sendtype: MPI_Datatype, recvbuf: Buf, recvcount: Count, recvtype: MPI_Datatype, comm: MPI_Comm) |mpi, group| on comm {
        let send = match is_in_place(group, sendbuf) {
            true => None,
            false => Some(operand_of_all(mpi, ("sendbuf", "sendcount"), sendbuf.buf(), sendcount.wide(), sendtype, group.peers().size())?),
        };
        let recv = operand_of_all(mpi, ("recvbuf", "recvcount"), recvbuf, recvcount.wide(), recvtype, group.peers().size())?;
        different(sendbuf, recvbuf, send.as_ref().map_or(0, |s| s.count))?;
        Ok(Operation::Alltoall { send, recv })
    }

    /// From all to all.
    count fn MPI_Alltoallv, MPI_Ialltoallv, MPI_Alltoallv_init(sendbuf: ConstBuf, sendcounts: In<Count>, sdispls: In<Disp>, sendtype: MPI_Datatype, recvbuf: Buf, recvcounts: In<Count>, rdispls: In<Disp>, recvtype: MPI_Datatype, comm: MPI_Comm) |mpi, group| on comm {
        let send = match is_in_place(group, sendbuf) {
            true => None,
            false => Some(blocks(mpi, SEND, sendbuf.buf(), sendcounts, sdispls, sendtype, peers(group))?),
        };
        let recv = blocks(mpi, RECV, recvbuf, recvcounts, rdispls, recvtype, peers(group))?;
        different(sendbuf, recvbuf, send.as_ref().map_or(0, total))?;
        Ok(Operation::Alltoallv { send, recv })
    }

    /// From all to all, a datatype for each block.
    count fn MPI_Alltoallw, MPI_Ialltoallw, MPI_Alltoallw_init(sendbuf: ConstBuf, sendcounts: In<Count>, sdispls: In<Disp>, sendtypes: In<MPI_Datatype>, recvbuf: Buf, recvcounts: In<Count>, rdispls: In<Disp>, recvtypes: In<MPI_Datatype>, comm: MPI_Comm) |mpi, group| on comm {
        let send = match is_in_place(group, sendbuf) {
            true => None,
            false => Some(blocks_w(mpi, SEND, sendbuf.buf(), sendcounts, sdispls, sendtypes, peers(group))?),
        };
        let recv = blocks_w(mpi, RECV, recvbuf, recvcounts, rdispls, recvtypes, peers(group))?;
        different(sendbuf, recvbuf, send.as_ref().map_or(0, total))?;
        Ok(Operation::Alltoallw { send, recv })
    }

    /// Reduces to the root.
    count fn MPI_Reduce, MPI_Ireduce, MPI_Reduce_init(sendbuf: ConstBuf, recvbuf: Buf, count: Count, datatype: MPI_Datatype, op: MPI_Op, root: c_int, comm: MPI_Comm) |mpi, group| on comm {
        let root = root_of(group, root)?;
        let here = is_here(group, root);
        let what = match root {
            Root::Null => mpi.no_elements(),
            _ => elements(mpi, count.wide(), datatype, op)?,
        };
        let send = sends(group, root).then(|| send_vector(mpi, sendbuf, count.wide(), datatype, in_place_at(group, here))).transpose()?.flatten();
        let recv = here.then(|| recv_vector(mpi, recvbuf, count.wide(), datatype)).transpose()?;
        if here {
            different(sendbuf, recvbuf, what.count)?;
        }
        Ok(Operation::Reduce { send, recv, what, root })
    }

    /// Reduces to all.
    count fn MPI_Allreduce, MPI_Iallreduce, MPI_Allreduce_init(sendbuf: ConstBuf, recvbuf: Buf, count: Count, datatype: MPI_Datatype, op: MPI_Op, comm: MPI_Comm) |mpi, group| on comm at once {
        match (piece(sendbuf.buf(), count.wide(), datatype), piece(recvbuf, count.wide(), datatype)) {
            (Some(input), Some(output)) if sendbuf.address() != recvbuf.address() => {
                mpi.allreduce_at_once(comm.value(), (op.value(), datatype.value()), input, output)
            }
            _ => None,
        }
    } {
        let what = elements(mpi, count.wide(), datatype, op)?;
        let send = send_vector(mpi, sendbuf, count.wide(), datatype, in_place_at(group, true))?;
        let recv = recv_vector(mpi, recvbuf, count.wide(), datatype)?;
        different(sendbuf, recvbuf, what.count)?;
        Ok(Operation::Allreduce { send, recv, what })
    }

    /// Reduces; equal blocks of the result go to all.
    count fn MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, MPI_Reduce_scatter_block_init(sendbuf: ConstBuf, recvbuf: Buf, recvcount: Count, datatype: MPI_Datatype, op: MPI_Op, comm: MPI_Comm) |mpi, group| on comm {
        let what = elements(mpi, recvcount.wide(), datatype, op)?;
        let all = recvcount.wide().saturating_mul(i64::from(group.size()));
        let send = send_vector(mpi, sendbuf, all, datatype, in_place_at(group, true))?;
        let recv = recv_vector(mpi, recvbuf, if send.is_none() { all } else { recvcount.wide() }, datatype)?;
        different(sendbuf, recvbuf, what.count)?;
        Ok(Operation::ReduceScatterBlock { send, recv, what })
    }

    /// Reduces; blocks of the result go to all.
    count fn MPI_Reduce_scatter, MPI_Ireduce_scatter, MPI_Reduce_scatter_init(sendbuf: ConstBuf, recvbuf: Buf, recvcounts: In<Count>, datatype: MPI_Datatype, op: MPI_Op, comm: MPI_Comm) |mpi, group| on comm {
        let counts = recvcounts.slice("recvcounts", group.size() as usize)?;
        let counts: Vec<u64> = counts.iter().map(|c| count_of("recvcounts", c.wide())).collect::<Result<_>>()?;
        let all = sum_of("recvcounts", &counts)?;
        let what = elements(mpi, all, datatype, op)?;
        let send = send_vector(mpi, sendbuf, all, datatype, in_place_at(group, true))?;
        let own = counts[group.rank as usize] as i64;
        // A derived type has become several elements of a basic one.
        let each = what.count.checked_div(all as u64).unwrap_or(1);
        let counts = counts.into_iter().map(|c| c * each).collect();
        let recv = recv_vector(mpi, recvbuf, if send.is_none() { all } else { own }, datatype)?;
        different(sendbuf, recvbuf, own as u64)?;
        Ok(Operation::ReduceScatter { send, recv, counts, what })
    }

    /// Reduces what the ranks up to this one have.
    count fn MPI_Scan, MPI_Iscan, MPI_Scan_init(sendbuf: ConstBuf, recvbuf: Buf, count: Count, datatype: MPI_Datatype, op: MPI_Op, comm: MPI_Comm) |mpi, group| on comm {
        let what = elements(mpi, count.wide(), datatype, op)?;
        let send = send_vector(mpi, sendbuf, count.wide(), datatype, in_place_at(group, true))?;
        let recv = recv_vector(mpi, recvbuf, count.wide(), datatype)?;
        different(sendbuf, recvbuf, what.count)?;
        Ok(Operation::Scan { send, recv, what })
    }

    /// Reduces what the ranks before this one have.
    count fn MPI_Exscan, MPI_Iexscan, MPI_Exscan_init(sendbuf: ConstBuf, recvbuf: Buf, count: Count, datatype: MPI_Datatype, op: MPI_Op, comm: MPI_Comm) |mpi, group| on comm {
        let what = elements(mpi, count.wide(), datatype, op)?;
        let send = send_vector(mpi, sendbuf, count.wide(), datatype, in_place_at(group, true))?;
        // The receive buffer of rank 0 has no meaning, unless the operand is in it.
        let recv = if group.rank == 0 && send.is_some() {
            Mem::empty()
        } else {
            recv_vector(mpi, recvbuf, count.wide(), datatype)?
        };
        different(sendbuf, recvbuf, what.count)?;
        Ok(Operation::Exscan { send, recv, what })
    }

    /// To and from neighbours, the same block to each.
    count fn MPI_Neighbor_allgather, MPI_Ineighbor_allgather, MPI_Neighbor_allgather_init(sendbuf: ConstBuf, sendcount: Count, sendtype: MPI_Datatype, recvbuf: Buf, recvcount: Count, recvtype: MPI_Datatype, comm: MPI_Comm) |mpi, group| on comm {
        let sources = group.neighbours()?.sources.len() as u32;
        let send = operand(mpi, ("sendbuf", "sendcount"), sendbuf.buf(), sendcount.wide(), sendtype)?;
        let recv = operand_of_all(mpi, ("recvbuf", "recvcount"), recvbuf, recvcount.wide(), recvtype, sources)?;
        Ok(Operation::NeighborAllgather { send, recv })
    }

    /// To and from neighbours, the same block to each, blocks of different sizes.
    count fn MPI_Neighbor_allgatherv, MPI_Ineighbor_allgatherv, MPI_Neighbor_allgatherv_init(sendbuf: ConstBuf, sendcount: Count, sendtype: MPI_Datatype, recvbuf: Buf, recvcounts: In<Count>, displs: In<Disp>, recvtype: MPI_Datatype, comm: MPI_Comm) |mpi, group| on comm {
        let sources = group.neighbours()?.sources.len();
        let send = operand(mpi, ("sendbuf", "sendcount"), sendbuf.buf(), sendcount.wide(), sendtype)?;
        let recv = blocks(mpi, RECV, recvbuf, recvcounts, displs, recvtype, sources)?;
        Ok(Operation::NeighborAllgatherv { send, recv })
    }

    /// To and from neighbours, equal blocks.
    count fn MPI_Neighbor_alltoall, MPI_Ineighbor_alltoall, MPI_Neighbor_alltoall_init(sendbuf: ConstBuf, sendcount: Count, sendtype: MPI_Datatype, recvbuf: Buf, recvcount: Count, recvtype: MPI_Datatype, comm: MPI_Comm) |mpi, group| on comm {
        let neighbours = group.neighbours()?;
        let send = operand_of_all(mpi, ("sendbuf", "sendcount"), sendbuf.buf(), sendcount.wide(), sendtype, neighbours.destinations.len() as u32)?;
        let recv = operand_of_all(mpi, ("recvbuf", "recvcount"), recvbuf, recvcount.wide(), recvtype, neighbours.sources.len() as u32)?;
        Ok(Operation::NeighborAlltoall { send, recv })
    }

    /// To and from neighbours.
    count fn MPI_Neighbor_alltoallv, MPI_Ineighbor_alltoallv, MPI_Neighbor_alltoallv_init(sendbuf: ConstBuf, sendcounts: In<Count>, sdispls: In<Disp>, sendtype: MPI_Datatype, recvbuf: Buf, recvcounts: In<Count>, rdispls: In<Disp>, recvtype: MPI_Datatype, comm: MPI_Comm) |mpi, group| on comm {
        let neighbours = group.neighbours()?;
        let send = blocks(mpi, SEND, sendbuf.buf(), sendcounts, sdispls, sendtype, neighbours.destinations.len())?;
        let recv = blocks(mpi, RECV, recvbuf, recvcounts, rdispls, recvtype, neighbours.sources.len())?;
        Ok(Operation::NeighborAlltoallv { send, recv })
    }

    /// To and from neighbours, a datatype for each block.
    count fn MPI_Neighbor_alltoallw, MPI_Ineighbor_alltoallw, MPI_Neighbor_alltoallw_init(sendbuf: ConstBuf, sendcounts: In<Count>, sdispls: In<MPI_Aint>, sendtypes: In<MPI_Datatype>, recvbuf: Buf, recvcounts: In<Count>, rdispls: In<MPI_Aint>, recvtypes: In<MPI_Datatype>, comm: MPI_Comm) |mpi, group| on comm {
        let neighbours = group.neighbours()?;
        let send = blocks_w(mpi, SEND, sendbuf.buf(), sendcounts, sdispls, sendtypes, neighbours.destinations.len())?;
        let recv = blocks_w(mpi, RECV, recvbuf, recvcounts, rdispls, recvtypes, neighbours.sources.len())?;
        Ok(Operation::NeighborAlltoallw { send, recv })
    }
}

const SEND: (&str, &str, &str) = ("sendbuf", "sendcounts", "sdispls");
const RECV: (&str, &str, &str) = ("recvbuf", "recvcounts", "rdispls");

/// Whether `MPI_IN_PLACE` is allowed as a send buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InPlace {
    Allowed,
    NotAtThisRank,
    NotBetweenGroups,
}

/// At the root (`here`) of an operation, or everywhere, but never between groups.
fn in_place_at(group: &Comm, here: bool) -> InPlace {
    if group.is_inter() {
        InPlace::NotBetweenGroups
    } else if here {
        InPlace::Allowed
    } else {
        InPlace::NotAtThisRank
    }
}

fn is_in_place(group: &Comm, sendbuf: ConstBuf) -> bool {
    // Between groups the address is refused when the buffer is looked at.
    sendbuf.address() == MPI_IN_PLACE && !group.is_inter()
}

fn check_in_place(name: &str, allowed: InPlace) -> Result<()> {
    match allowed {
        InPlace::Allowed => Ok(()),
        InPlace::NotAtThisRank => fail!(
            MPI_ERR_BUFFER,
            "{name} is MPI_IN_PLACE, which is for the root only"
        ),
        InPlace::NotBetweenGroups => fail!(
            MPI_ERR_BUFFER,
            "{name} is MPI_IN_PLACE, which is not allowed on an inter-communicator"
        ),
    }
}

/// The root of a rooted operation.
fn root_of(group: &Comm, root: c_int) -> Result<Root> {
    let ranks = group.peers().size();
    match root {
        MPI_ROOT if group.is_inter() => Ok(Root::Here),
        MPI_PROC_NULL if group.is_inter() => Ok(Root::Null),
        _ if root >= 0 && (root as u32) < ranks => Ok(Root::Rank(root as u32)),
        _ => fail!(MPI_ERR_ROOT, "root {root} is not in {}", group.describe()),
    }
}

/// Whether this process is the root.
fn is_here(group: &Comm, root: Root) -> bool {
    match root {
        Root::Rank(rank) => !group.is_inter() && rank == group.rank,
        Root::Here => true,
        Root::Null => false,
    }
}

/// Whether this process takes part with the many, not only as the root.
fn sends(group: &Comm, root: Root) -> bool {
    !group.is_inter() || matches!(root, Root::Rank(_))
}

fn peers(group: &Comm) -> usize {
    group.peers().size() as usize
}

fn total(blocks: &Blocks) -> u64 {
    blocks
        .counts
        .iter()
        .fold(0, |sum, &n| sum.saturating_add(n))
}

/// All counts together.
fn sum_of(name: &str, counts: &[u64]) -> Result<i64> {
    let sum = counts.iter().try_fold(0u64, |sum, &n| sum.checked_add(n));
    match sum.and_then(|sum| i64::try_from(sum).ok()) {
        Some(sum) => Ok(sum),
        None => fail!(MPI_ERR_COUNT, "{name} are together beyond 63 bits"),
    }
}

/// No elements, where an argument has no meaning.
fn nothing(mpi: &Mpi) -> Operand {
    mpi.no_operand()
}

/// A send buffer; `None` is `MPI_IN_PLACE`.
///
/// # Safety
/// The C caller vouches for the elements.
unsafe fn send_operand(
    mpi: &Mpi,
    buf: ConstBuf,
    count: i64,
    datatype: MPI_Datatype,
    in_place: InPlace,
) -> Result<Option<Operand>> {
    if buf.address() == MPI_IN_PLACE {
        check_in_place("sendbuf", in_place)?;
        return Ok(None);
    }
    // SAFETY: by the caller's promise.
    unsafe { operand(mpi, ("sendbuf", "sendcount"), buf.buf(), count, datatype) }.map(Some)
}

/// A receive buffer; `None` is `MPI_IN_PLACE`.
///
/// # Safety
/// The C caller vouches for the elements.
unsafe fn recv_operand(
    mpi: &Mpi,
    buf: Buf,
    count: i64,
    datatype: MPI_Datatype,
    in_place: InPlace,
) -> Result<Option<Operand>> {
    if buf.address() == MPI_IN_PLACE {
        check_in_place("recvbuf", in_place)?;
        return Ok(None);
    }
    // SAFETY: by the caller's promise.
    unsafe { operand(mpi, ("recvbuf", "recvcount"), buf, count, datatype) }.map(Some)
}

/// The operand of a reduction; `None` is `MPI_IN_PLACE`.
///
/// # Safety
/// The C caller vouches for the elements.
unsafe fn send_vector(
    mpi: &Mpi,
    buf: ConstBuf,
    count: i64,
    datatype: MPI_Datatype,
    in_place: InPlace,
) -> Result<Option<Mem>> {
    // SAFETY: by the caller's promise.
    let operand = unsafe { send_operand(mpi, buf, count, datatype, in_place) }?;
    Ok(operand.map(|o| o.mem))
}

/// The result of a reduction.
///
/// # Safety
/// The C caller vouches for the elements.
unsafe fn recv_vector(mpi: &Mpi, buf: Buf, count: i64, datatype: MPI_Datatype) -> Result<Mem> {
    // SAFETY: by the caller's promise.
    Ok(unsafe { operand(mpi, ("recvbuf", "count"), buf, count, datatype) }?.mem)
}

fn elements(mpi: &Mpi, count: i64, datatype: MPI_Datatype, op: MPI_Op) -> Result<Elements> {
    let count = count_of("count", count)?;
    let entry = mpi.datatype(datatype.value())?;
    let datatype = mpi.committed(datatype.value())?;
    let op = mpi.op_for(op.value(), &datatype)?;
    let (datatype, count) = mpi.elements_for(&op, &datatype, count);
    Ok(Elements {
        count,
        op: Bound::new(op, &entry),
        datatype,
    })
}

/// Refuses one address for both buffers.
fn different(sendbuf: ConstBuf, recvbuf: Buf, count: u64) -> Result<()> {
    if count > 0 && sendbuf.address() == recvbuf.address() && sendbuf.address() > MPI_IN_PLACE {
        fail!(
            MPI_ERR_BUFFER,
            "sendbuf and recvbuf are the same; pass MPI_IN_PLACE for one of them"
        );
    }
    Ok(())
}
