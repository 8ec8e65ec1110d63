//! Packing and unpacking.

use margay_run_engine::{Data, copy};
use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::constants::sentinel::MPI_UNDEFINED;
use margay_run_mpi::error::Result;
use margay_run_mpi::fail;

use crate::call::mpi;
use crate::convert::{Int, count_of, data, fit};
use crate::types::*;
use crate::user::{Buf, ConstBuf, Place};

mpi! {
    /// Packs elements behind `position`, which is moved.
    count fn MPI_Pack(inbuf: ConstBuf, incount: Count, datatype: MPI_Datatype, outbuf: Buf, outsize: Count, position: Place<Count>, comm: MPI_Comm) |mpi| on comm {
        mpi.comm(comm.value())?;
        let elements = data(mpi, inbuf.buf(), incount.wide(), datatype)?;
        let (packed, end) = window(outbuf, outsize.wide(), position.take("position")?.wide(), elements.size(), "outsize")?;
        copy(&elements, &packed);
        position.put("position", fit("position", end)?)
    }

    /// Unpacks elements from `position` on, which is moved.
    count fn MPI_Unpack(inbuf: ConstBuf, insize: Count, position: Place<Count>, outbuf: Buf, outcount: Count, datatype: MPI_Datatype, comm: MPI_Comm) |mpi| on comm {
        mpi.comm(comm.value())?;
        let elements = data(mpi, outbuf, outcount.wide(), datatype)?;
        let (packed, end) = window(inbuf.buf(), insize.wide(), position.take("position")?.wide(), elements.size(), "insize")?;
        copy(&packed, &elements);
        position.put("position", fit("position", end)?)
    }

    /// Bytes that packing takes.
    count fn MPI_Pack_size(incount: Count, datatype: MPI_Datatype, comm: MPI_Comm, size: Place<Count>) |mpi| on comm {
        mpi.comm(comm.value())?;
        let datatype = mpi.datatype(datatype.value())?;
        let bytes = count_of("incount", incount.wide())?.checked_mul(datatype.datatype.size());
        size.put("size", bytes.and_then(|b| i64::try_from(b).ok()).map_or(Count::or_undefined(i64::from(MPI_UNDEFINED)), Count::or_undefined))
    }
}

/// The packed bytes from `position` on in a buffer of `size` bytes, `bytes` long, and the position behind them.
fn window(buf: Buf, size: i64, position: i64, bytes: u64, name: &str) -> Result<(Data, i64)> {
    if position < 0 {
        fail!(
            MPI_ERR_ARG,
            "position is {position}; it must not be negative"
        );
    }
    let end = position as u64 + bytes;
    if size < 0 || end > size as u64 {
        fail!(
            MPI_ERR_TRUNCATE,
            "{name} is {size}; {bytes} bytes from position {position} on do not fit"
        );
    }
    let mem = buf.claim(0, size).shifted(position);
    Ok((Data::bytes(mem, bytes), end as i64))
}
