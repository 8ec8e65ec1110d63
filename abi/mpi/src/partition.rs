//! Partitioned communication.

use std::ffi::c_int;

use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::error::Result;
use margay_run_mpi::operation::Operand;
use margay_run_mpi::{Mpi, fail};

use crate::call::mpi;
use crate::convert::{count_of, length, operand};
use crate::types::*;
use crate::user::{Buf, ConstBuf, In, Place};

mpi! {
    /// Makes a send whose partitions are marked ready one by one.
    fn MPI_Psend_init(buf: ConstBuf, partitions: c_int, count: MPI_Count, datatype: MPI_Datatype, dest: c_int, tag: c_int, comm: MPI_Comm, info: MPI_Info, request: Place<MPI_Request>) |mpi| on comm {
        send(mpi, buf, partitions, count, datatype, (dest, tag, comm, info), request)
    }

    /// The same: the standard has 64 bits in the plain name already; the Forum's reference header
    /// has this one, too.
    fn MPI_Psend_init_c(buf: ConstBuf, partitions: c_int, count: MPI_Count, datatype: MPI_Datatype, dest: c_int, tag: c_int, comm: MPI_Comm, info: MPI_Info, request: Place<MPI_Request>) |mpi| on comm {
        send(mpi, buf, partitions, count, datatype, (dest, tag, comm, info), request)
    }

    /// Makes a receive whose partitions can be asked for one by one.
    fn MPI_Precv_init(buf: Buf, partitions: c_int, count: MPI_Count, datatype: MPI_Datatype, source: c_int, tag: c_int, comm: MPI_Comm, info: MPI_Info, request: Place<MPI_Request>) |mpi| on comm {
        receive(mpi, buf, partitions, count, datatype, (source, tag, comm, info), request)
    }

    /// The same: see `MPI_Psend_init_c`.
    fn MPI_Precv_init_c(buf: Buf, partitions: c_int, count: MPI_Count, datatype: MPI_Datatype, source: c_int, tag: c_int, comm: MPI_Comm, info: MPI_Info, request: Place<MPI_Request>) |mpi| on comm {
        receive(mpi, buf, partitions, count, datatype, (source, tag, comm, info), request)
    }

    /// A partition of a send is ready.
    fn MPI_Pready(partition: c_int, request: MPI_Request) |mpi| {
        mpi.pready(request.value(), std::iter::once(partition))
    }

    /// All partitions from one to another, both included, are ready.
    fn MPI_Pready_range(partition_low: c_int, partition_high: c_int, request: MPI_Request) |mpi| {
        if partition_low > partition_high {
            fail!(MPI_ERR_ARG, "partition_low is {partition_low}, partition_high is {partition_high}; the first must not be beyond the last");
        }
        mpi.pready(request.value(), partition_low..=partition_high)
    }

    /// The partitions of a list are ready.
    fn MPI_Pready_list(length: c_int, array_of_partitions: In<c_int>, request: MPI_Request) |mpi| {
        let n = self::length("length", length)?;
        mpi.pready(request.value(), array_of_partitions.slice("array_of_partitions", n)?.iter().copied())
    }

    /// Whether a partition of a receive is here.
    fn MPI_Parrived(request: MPI_Request, partition: c_int, flag: Place<c_int>) |mpi| {
        flag.put("flag", c_int::from(mpi.parrived(request.value(), partition)?))
    }
}

/// The partner, the tag, the communicator and the info.
type Envelope = (c_int, c_int, MPI_Comm, MPI_Info);

/// # Safety
/// The C caller vouches for the elements of all partitions.
unsafe fn send(
    mpi: &Mpi,
    buf: ConstBuf,
    partitions: c_int,
    count: MPI_Count,
    datatype: MPI_Datatype,
    (dest, tag, comm, info): Envelope,
    request: Place<MPI_Request>,
) -> Result<()> {
    mpi.check_info(info.value())?;
    // SAFETY: by the caller's promise.
    let (all, partitions, each) = unsafe { parts(mpi, buf.buf(), partitions, count, datatype) }?;
    let handle = mpi.psend_init(&all, partitions, each, dest, tag, comm.value())?;
    request.put("request", MPI_Request::new(handle))
}

/// # Safety
/// As for [`send`].
unsafe fn receive(
    mpi: &Mpi,
    buf: Buf,
    partitions: c_int,
    count: MPI_Count,
    datatype: MPI_Datatype,
    (source, tag, comm, info): Envelope,
    request: Place<MPI_Request>,
) -> Result<()> {
    mpi.check_info(info.value())?;
    // SAFETY: by the caller's promise.
    let (all, partitions, each) = unsafe { parts(mpi, buf, partitions, count, datatype) }?;
    let handle = mpi.precv_init(&all, partitions, each, source, tag, comm.value())?;
    request.put("request", MPI_Request::new(handle))
}

/// All elements, how many partitions they make, and the elements of one.
///
/// # Safety
/// The C caller vouches for the elements of all partitions.
unsafe fn parts(
    mpi: &Mpi,
    buf: Buf,
    partitions: c_int,
    count: MPI_Count,
    datatype: MPI_Datatype,
) -> Result<(Operand, u32, u64)> {
    let partitions = length("partitions", partitions)? as u32;
    let each = count_of("count", count)?;
    let Some(all) = count.checked_mul(i64::from(partitions)) else {
        fail!(
            MPI_ERR_COUNT,
            "count is {count} for each of {partitions} partitions, which is beyond 63 bits"
        );
    };
    // SAFETY: by the caller's promise.
    let operand = unsafe { operand(mpi, ("buf", "count"), buf, all, datatype) }?;
    Ok((operand, partitions, each))
}
