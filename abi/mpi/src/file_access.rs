//! Reading and writing files. The functions differ in where they begin (an offset, the individual or the shared file
//! pointer), in who takes part, and in how they end (blocking, with a request, split in begin and end).

use margay_run_mpi::Mpi;
use margay_run_mpi::error::Result;
use margay_run_mpi::file::access::{Call, Place as Where};
use margay_run_mpi::file::datarep::Elements;

use crate::call::mpi;
use crate::convert::{Int, operand};
use crate::types::*;
use crate::user::{Buf, ConstBuf, MPI_Status, Place};

mpi! {
    /// Reads at an offset.
    count fn MPI_File_read_at(fh: MPI_File, offset: MPI_Offset, buf: Buf, count: Count, datatype: MPI_Datatype, status: Place<MPI_Status>) |mpi| on fh {
        let call = call(mpi, fh, Where::At(offset), buf, count.wide(), datatype, false)?;
        ended(status, mpi.file_access(&call))
    }

    /// Reads at an offset, with a request.
    count fn MPI_File_iread_at(fh: MPI_File, offset: MPI_Offset, buf: Buf, count: Count, datatype: MPI_Datatype, request: Place<MPI_Request>) |mpi| on fh {
        let call = call(mpi, fh, Where::At(offset), buf, count.wide(), datatype, false)?;
        request.put("request", MPI_Request::new(mpi.file_iaccess(&call)?))
    }

    /// Reads at an offset; collective.
    count fn MPI_File_read_at_all(fh: MPI_File, offset: MPI_Offset, buf: Buf, count: Count, datatype: MPI_Datatype, status: Place<MPI_Status>) |mpi| on fh {
        let call = call(mpi, fh, Where::At(offset), buf, count.wide(), datatype, false)?;
        ended(status, mpi.file_access_all(&call))
    }

    /// Reads at an offset, with a request; collective.
    count fn MPI_File_iread_at_all(fh: MPI_File, offset: MPI_Offset, buf: Buf, count: Count, datatype: MPI_Datatype, request: Place<MPI_Request>) |mpi| on fh {
        let call = call(mpi, fh, Where::At(offset), buf, count.wide(), datatype, false)?;
        request.put("request", MPI_Request::new(mpi.file_iaccess_all(&call)?))
    }

    /// Begins what `MPI_File_read_at_all` does.
    count fn MPI_File_read_at_all_begin(fh: MPI_File, offset: MPI_Offset, buf: Buf, count: Count, datatype: MPI_Datatype) |mpi| on fh {
        let call = call(mpi, fh, Where::At(offset), buf, count.wide(), datatype, false)?;
        mpi.file_begin(&call, "MPI_File_read_at_all")
    }

    /// Ends what `MPI_File_read_at_all_begin` began.
    fn MPI_File_read_at_all_end(fh: MPI_File, buf: Buf, status: Place<MPI_Status>) |mpi| on fh {
        let _ = buf;
        ended(status, mpi.file_end(fh.value(), "MPI_File_read_at_all"))
    }

    /// Reads at the individual file pointer.
    count fn MPI_File_read(fh: MPI_File, buf: Buf, count: Count, datatype: MPI_Datatype, status: Place<MPI_Status>) |mpi| on fh {
        let call = call(mpi, fh, Where::Individual, buf, count.wide(), datatype, false)?;
        ended(status, mpi.file_access(&call))
    }

    /// Reads at the individual file pointer, with a request.
    count fn MPI_File_iread(fh: MPI_File, buf: Buf, count: Count, datatype: MPI_Datatype, request: Place<MPI_Request>) |mpi| on fh {
        let call = call(mpi, fh, Where::Individual, buf, count.wide(), datatype, false)?;
        request.put("request", MPI_Request::new(mpi.file_iaccess(&call)?))
    }

    /// Reads at the individual file pointer; collective.
    count fn MPI_File_read_all(fh: MPI_File, buf: Buf, count: Count, datatype: MPI_Datatype, status: Place<MPI_Status>) |mpi| on fh {
        let call = call(mpi, fh, Where::Individual, buf, count.wide(), datatype, false)?;
        ended(status, mpi.file_access_all(&call))
    }

    /// Reads at the individual file pointer, with a request; collective.
    count fn MPI_File_iread_all(fh: MPI_File, buf: Buf, count: Count, datatype: MPI_Datatype, request: Place<MPI_Request>) |mpi| on fh {
        let call = call(mpi, fh, Where::Individual, buf, count.wide(), datatype, false)?;
        request.put("request", MPI_Request::new(mpi.file_iaccess_all(&call)?))
    }

    /// Begins what `MPI_File_read_all` does.
    count fn MPI_File_read_all_begin(fh: MPI_File, buf: Buf, count: Count, datatype: MPI_Datatype) |mpi| on fh {
        let call = call(mpi, fh, Where::Individual, buf, count.wide(), datatype, false)?;
        mpi.file_begin(&call, "MPI_File_read_all")
    }

    /// Ends what `MPI_File_read_all_begin` began.
    fn MPI_File_read_all_end(fh: MPI_File, buf: Buf, status: Place<MPI_Status>) |mpi| on fh {
        let _ = buf;
        ended(status, mpi.file_end(fh.value(), "MPI_File_read_all"))
    }

    /// Reads at the shared file pointer.
    count fn MPI_File_read_shared(fh: MPI_File, buf: Buf, count: Count, datatype: MPI_Datatype, status: Place<MPI_Status>) |mpi| on fh {
        let call = call(mpi, fh, Where::Shared, buf, count.wide(), datatype, false)?;
        ended(status, mpi.file_access(&call))
    }

    /// Reads at the shared file pointer, with a request.
    count fn MPI_File_iread_shared(fh: MPI_File, buf: Buf, count: Count, datatype: MPI_Datatype, request: Place<MPI_Request>) |mpi| on fh {
        let call = call(mpi, fh, Where::Shared, buf, count.wide(), datatype, false)?;
        request.put("request", MPI_Request::new(mpi.file_iaccess(&call)?))
    }

    /// Reads at the shared file pointer, in the order of ranks; collective.
    count fn MPI_File_read_ordered(fh: MPI_File, buf: Buf, count: Count, datatype: MPI_Datatype, status: Place<MPI_Status>) |mpi| on fh {
        let call = call(mpi, fh, Where::Ordered, buf, count.wide(), datatype, false)?;
        ended(status, mpi.file_access_all(&call))
    }

    /// Begins what `MPI_File_read_ordered` does.
    count fn MPI_File_read_ordered_begin(fh: MPI_File, buf: Buf, count: Count, datatype: MPI_Datatype) |mpi| on fh {
        let call = call(mpi, fh, Where::Ordered, buf, count.wide(), datatype, false)?;
        mpi.file_begin(&call, "MPI_File_read_ordered")
    }

    /// Ends what `MPI_File_read_ordered_begin` began.
    fn MPI_File_read_ordered_end(fh: MPI_File, buf: Buf, status: Place<MPI_Status>) |mpi| on fh {
        let _ = buf;
        ended(status, mpi.file_end(fh.value(), "MPI_File_read_ordered"))
    }

    /// Writes at an offset.
    count fn MPI_File_write_at(fh: MPI_File, offset: MPI_Offset, buf: ConstBuf, count: Count, datatype: MPI_Datatype, status: Place<MPI_Status>) |mpi| on fh {
        let call = call(mpi, fh, Where::At(offset), buf.buf(), count.wide(), datatype, true)?;
        ended(status, mpi.file_access(&call))
    }

    /// Writes at an offset, with a request.
    count fn MPI_File_iwrite_at(fh: MPI_File, offset: MPI_Offset, buf: ConstBuf, count: Count, datatype: MPI_Datatype, request: Place<MPI_Request>) |mpi| on fh {
        let call = call(mpi, fh, Where::At(offset), buf.buf(), count.wide(), datatype, true)?;
        request.put("request", MPI_Request::new(mpi.file_iaccess(&call)?))
    }

    /// Writes at an offset; collective.
    count fn MPI_File_write_at_all(fh: MPI_File, offset: MPI_Offset, buf: ConstBuf, count: Count, datatype: MPI_Datatype, status: Place<MPI_Status>) |mpi| on fh {
        let call = call(mpi, fh, Where::At(offset), buf.buf(), count.wide(), datatype, true)?;
        ended(status, mpi.file_access_all(&call))
    }

    /// Writes at an offset, with a request; collective.
    count fn MPI_File_iwrite_at_all(fh: MPI_File, offset: MPI_Offset, buf: ConstBuf, count: Count, datatype: MPI_Datatype, request: Place<MPI_Request>) |mpi| on fh {
        let call = call(mpi, fh, Where::At(offset), buf.buf(), count.wide(), datatype, true)?;
        request.put("request", MPI_Request::new(mpi.file_iaccess_all(&call)?))
    }

    /// Begins what `MPI_File_write_at_all` does.
    count fn MPI_File_write_at_all_begin(fh: MPI_File, offset: MPI_Offset, buf: ConstBuf, count: Count, datatype: MPI_Datatype) |mpi| on fh {
        let call = call(mpi, fh, Where::At(offset), buf.buf(), count.wide(), datatype, true)?;
        mpi.file_begin(&call, "MPI_File_write_at_all")
    }

    /// Ends what `MPI_File_write_at_all_begin` began.
    fn MPI_File_write_at_all_end(fh: MPI_File, buf: ConstBuf, status: Place<MPI_Status>) |mpi| on fh {
        let _ = buf;
        ended(status, mpi.file_end(fh.value(), "MPI_File_write_at_all"))
    }

    /// Writes at the individual file pointer.
    count fn MPI_File_write(fh: MPI_File, buf: ConstBuf, count: Count, datatype: MPI_Datatype, status: Place<MPI_Status>) |mpi| on fh {
        let call = call(mpi, fh, Where::Individual, buf.buf(), count.wide(), datatype, true)?;
        ended(status, mpi.file_access(&call))
    }

    /// Writes at the individual file pointer, with a request.
    count fn MPI_File_iwrite(fh: MPI_File, buf: ConstBuf, count: Count, datatype: MPI_Datatype, request: Place<MPI_Request>) |mpi| on fh {
        let call = call(mpi, fh, Where::Individual, buf.buf(), count.wide(), datatype, true)?;
        request.put("request", MPI_Request::new(mpi.file_iaccess(&call)?))
    }

    /// Writes at the individual file pointer; collective.
    count fn MPI_File_write_all(fh: MPI_File, buf: ConstBuf, count: Count, datatype: MPI_Datatype, status: Place<MPI_Status>) |mpi| on fh {
        let call = call(mpi, fh, Where::Individual, buf.buf(), count.wide(), datatype, true)?;
        ended(status, mpi.file_access_all(&call))
    }

    /// Writes at the individual file pointer, with a request; collective.
    count fn MPI_File_iwrite_all(fh: MPI_File, buf: ConstBuf, count: Count, datatype: MPI_Datatype, request: Place<MPI_Request>) |mpi| on fh {
        let call = call(mpi, fh, Where::Individual, buf.buf(), count.wide(), datatype, true)?;
        request.put("request", MPI_Request::new(mpi.file_iaccess_all(&call)?))
    }

    /// Begins what `MPI_File_write_all` does.
    count fn MPI_File_write_all_begin(fh: MPI_File, buf: ConstBuf, count: Count, datatype: MPI_Datatype) |mpi| on fh {
        let call = call(mpi, fh, Where::Individual, buf.buf(), count.wide(), datatype, true)?;
        mpi.file_begin(&call, "MPI_File_write_all")
    }

    /// Ends what `MPI_File_write_all_begin` began.
    fn MPI_File_write_all_end(fh: MPI_File, buf: ConstBuf, status: Place<MPI_Status>) |mpi| on fh {
        let _ = buf;
        ended(status, mpi.file_end(fh.value(), "MPI_File_write_all"))
    }

    /// Writes at the shared file pointer.
    count fn MPI_File_write_shared(fh: MPI_File, buf: ConstBuf, count: Count, datatype: MPI_Datatype, status: Place<MPI_Status>) |mpi| on fh {
        let call = call(mpi, fh, Where::Shared, buf.buf(), count.wide(), datatype, true)?;
        ended(status, mpi.file_access(&call))
    }

    /// Writes at the shared file pointer, with a request.
    count fn MPI_File_iwrite_shared(fh: MPI_File, buf: ConstBuf, count: Count, datatype: MPI_Datatype, request: Place<MPI_Request>) |mpi| on fh {
        let call = call(mpi, fh, Where::Shared, buf.buf(), count.wide(), datatype, true)?;
        request.put("request", MPI_Request::new(mpi.file_iaccess(&call)?))
    }

    /// Writes at the shared file pointer, in the order of ranks; collective.
    count fn MPI_File_write_ordered(fh: MPI_File, buf: ConstBuf, count: Count, datatype: MPI_Datatype, status: Place<MPI_Status>) |mpi| on fh {
        let call = call(mpi, fh, Where::Ordered, buf.buf(), count.wide(), datatype, true)?;
        ended(status, mpi.file_access_all(&call))
    }

    /// Begins what `MPI_File_write_ordered` does.
    count fn MPI_File_write_ordered_begin(fh: MPI_File, buf: ConstBuf, count: Count, datatype: MPI_Datatype) |mpi| on fh {
        let call = call(mpi, fh, Where::Ordered, buf.buf(), count.wide(), datatype, true)?;
        mpi.file_begin(&call, "MPI_File_write_ordered")
    }

    /// Ends what `MPI_File_write_ordered_begin` began.
    fn MPI_File_write_ordered_end(fh: MPI_File, buf: ConstBuf, status: Place<MPI_Status>) |mpi| on fh {
        let _ = buf;
        ended(status, mpi.file_end(fh.value(), "MPI_File_write_ordered"))
    }
}

fn call(
    mpi: &Mpi,
    fh: MPI_File,
    place: Where,
    buf: Buf,
    count: i64,
    datatype: MPI_Datatype,
    write: bool,
) -> Result<Call> {
    let file = fh.value();
    mpi.file(file)?;
    let operand = operand(mpi, ("buf", "count"), buf, count, datatype)?;
    Ok(Call {
        file,
        place,
        elements: Elements {
            mem: operand.mem,
            count: operand.count,
            datatype: operand.datatype,
        },
        datatype: datatype.value(),
        write,
    })
}

fn ended(status: Place<MPI_Status>, result: Result<margay_run_mpi::Status>) -> Result<()> {
    status.status(&result?);
    Ok(())
}
