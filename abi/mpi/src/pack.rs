//! Packing and unpacking.

use std::ffi::c_char;

use margay_core_datatype::Datatype;
use margay_run_engine::{Data, copy};
use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::constants::sentinel::MPI_UNDEFINED;
use margay_run_mpi::error::Result;
use margay_run_mpi::{external, fail};
use margay_sys_os::user::Mem;

use crate::call::mpi;
use crate::convert::{Int, count_of, data, fit, operand};
use crate::types::*;
use crate::user::{Buf, ConstBuf, In, Place, Text};

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

    /// Packs in the representation for all machines.
    count fn MPI_Pack_external(datarep: Text, inbuf: ConstBuf, incount: Count, datatype: MPI_Datatype, outbuf: Buf, outsize: AintCount, position: Place<AintCount>) |mpi| {
        check_datarep(&datarep.get("datarep")?)?;
        let elements = operand(mpi, ("inbuf", "incount"), inbuf.buf(), incount.wide(), datatype)?;
        let data = Data::typed(elements.mem.clone(), elements.count, &elements.datatype);
        let external = external::from_native(&elements.datatype, elements.count, &bytes_of(&data));
        let (packed, end) = window(outbuf, outsize.wide(), position.take("position")?.wide(), external.len() as u64, "outsize")?;
        copy(&data_of(external), &packed);
        position.put("position", fit("position", end)?)
    }

    /// Unpacks from the representation for all machines.
    count fn MPI_Unpack_external(datarep: In<c_char>, inbuf: ConstBuf, insize: AintCount, position: Place<AintCount>, outbuf: Buf, outcount: Count, datatype: MPI_Datatype) |mpi| {
        check_datarep(&datarep.text("datarep")?)?;
        let elements = operand(mpi, ("outbuf", "outcount"), outbuf, outcount.wide(), datatype)?;
        let size = external_size(&elements.datatype, elements.count)?;
        let (packed, end) = window(inbuf.buf(), insize.wide(), position.take("position")?.wide(), size, "insize")?;
        let native = external::to_native(&elements.datatype, elements.count, &bytes_of(&packed));
        copy(&data_of(native), &Data::typed(elements.mem, elements.count, &elements.datatype));
        position.put("position", fit("position", end)?)
    }

    /// Bytes in the representation for all machines.
    count fn MPI_Pack_external_size(datarep: Text, incount: Count, datatype: MPI_Datatype, size: Place<AintCount>) |mpi| {
        check_datarep(&datarep.get("datarep")?)?;
        let datatype = mpi.datatype(datatype.value())?;
        let bytes = external_size(&datatype.datatype, count_of("incount", incount.wide())?)?;
        size.put("size", fit("size", bytes as i64)?)
    }
}

/// The packed bytes from `position` on in a buffer of `size` bytes, `bytes` long, and the position
/// behind them.
///
/// # Safety
/// The C caller vouches for `size` bytes of the buffer.
unsafe fn window(
    buf: Buf,
    size: i64,
    position: i64,
    bytes: u64,
    name: &str,
) -> Result<(Data, i64)> {
    if position < 0 {
        fail!(
            MPI_ERR_ARG,
            "position is {position}; it must not be negative"
        );
    }
    let end = (position as u64).checked_add(bytes);
    let Some(end) = end.filter(|&end| size >= 0 && end <= size as u64) else {
        fail!(
            MPI_ERR_TRUNCATE,
            "{name} is {size}; {bytes} bytes from position {position} on do not fit"
        );
    };
    // SAFETY: by the caller's promise.
    let mem = unsafe { buf.claim(0, size) }.shifted(position);
    Ok((Data::bytes(mem, bytes), end as i64))
}

/// "external32" is the only representation of the standard.
fn check_datarep(name: &str) -> Result<()> {
    if name != "external32" {
        fail!(
            MPI_ERR_ARG,
            "datarep is '{name}'; there is only 'external32'"
        );
    }
    Ok(())
}

fn external_size(datatype: &Datatype, count: u64) -> Result<u64> {
    match external::size(datatype, count) {
        Some(size) if size <= i64::MAX as u64 => Ok(size),
        _ => fail!(
            MPI_ERR_COUNT,
            "{count} elements would take more than 2^63 bytes"
        ),
    }
}

fn data_of(bytes: Vec<u8>) -> Data {
    let size = bytes.len() as u64;
    Data::bytes(Mem::from_vec(bytes), size)
}

fn bytes_of(data: &Data) -> Vec<u8> {
    let mem = Mem::owned(data.size() as usize);
    copy(data, &Data::bytes(mem.clone(), data.size()));
    mem.with_bytes(0, data.size() as usize, <[u8]>::to_vec)
}
