//! Reading and writing files. The functions differ in where they begin (an offset, the individual
//! or the shared file pointer), in who takes part, and in how they end (blocking, with a request,
//! split in begin and end).

use margay_run_files::access::{Call, Place as Where};
use margay_run_files::datarep::Elements;
use margay_run_mpi::error::Result;

use crate::call::{Process, mpi};
use crate::convert::{Int, operand};
use crate::types::*;
use crate::user::{Buf, ConstBuf, MPI_Status, Place};

mpi! {
    /// Reads at an offset.
    count fn MPI_File_read_at(fh: MPI_File, offset: MPI_Offset, buf: Buf, count: Count, datatype: MPI_Datatype, status: Place<MPI_Status>) |mpi| on fh {
        alone(mpi, read(fh, Where::At(offset), buf, count.wide(), datatype), status)
    }

    /// Reads at an offset, with a request.
    count fn MPI_File_iread_at(fh: MPI_File, offset: MPI_Offset, buf: Buf, count: Count, datatype: MPI_Datatype, request: Place<MPI_Request>) |mpi| on fh {
        alone_request(mpi, read(fh, Where::At(offset), buf, count.wide(), datatype), request)
    }

    /// Reads at an offset; collective.
    count fn MPI_File_read_at_all(fh: MPI_File, offset: MPI_Offset, buf: Buf, count: Count, datatype: MPI_Datatype, status: Place<MPI_Status>) |mpi| on fh {
        together(mpi, read(fh, Where::At(offset), buf, count.wide(), datatype), status)
    }

    /// Reads at an offset, with a request; collective.
    count fn MPI_File_iread_at_all(fh: MPI_File, offset: MPI_Offset, buf: Buf, count: Count, datatype: MPI_Datatype, request: Place<MPI_Request>) |mpi| on fh {
        together_request(mpi, read(fh, Where::At(offset), buf, count.wide(), datatype), request)
    }

    /// Begins what `MPI_File_read_at_all` does.
    count fn MPI_File_read_at_all_begin(fh: MPI_File, offset: MPI_Offset, buf: Buf, count: Count, datatype: MPI_Datatype) |mpi| on fh {
        mpi.files().begin(&call(mpi, read(fh, Where::At(offset), buf, count.wide(), datatype))?, "MPI_File_read_at_all")
    }

    /// Ends what `MPI_File_read_at_all_begin` began.
    fn MPI_File_read_at_all_end(fh: MPI_File, buf: Buf, status: Place<MPI_Status>) |mpi| on fh {
        let _ = buf;
        ended(status, mpi.files().end(fh.value(), "MPI_File_read_at_all"))
    }

    /// Reads at the individual file pointer.
    count fn MPI_File_read(fh: MPI_File, buf: Buf, count: Count, datatype: MPI_Datatype, status: Place<MPI_Status>) |mpi| on fh {
        alone(mpi, read(fh, Where::Individual, buf, count.wide(), datatype), status)
    }

    /// Reads at the individual file pointer, with a request.
    count fn MPI_File_iread(fh: MPI_File, buf: Buf, count: Count, datatype: MPI_Datatype, request: Place<MPI_Request>) |mpi| on fh {
        alone_request(mpi, read(fh, Where::Individual, buf, count.wide(), datatype), request)
    }

    /// Reads at the individual file pointer; collective.
    count fn MPI_File_read_all(fh: MPI_File, buf: Buf, count: Count, datatype: MPI_Datatype, status: Place<MPI_Status>) |mpi| on fh {
        together(mpi, read(fh, Where::Individual, buf, count.wide(), datatype), status)
    }

    /// Reads at the individual file pointer, with a request; collective.
    count fn MPI_File_iread_all(fh: MPI_File, buf: Buf, count: Count, datatype: MPI_Datatype, request: Place<MPI_Request>) |mpi| on fh {
        together_request(mpi, read(fh, Where::Individual, buf, count.wide(), datatype), request)
    }

    /// Begins what `MPI_File_read_all` does.
    count fn MPI_File_read_all_begin(fh: MPI_File, buf: Buf, count: Count, datatype: MPI_Datatype) |mpi| on fh {
        mpi.files().begin(&call(mpi, read(fh, Where::Individual, buf, count.wide(), datatype))?, "MPI_File_read_all")
    }

    /// Ends what `MPI_File_read_all_begin` began.
    fn MPI_File_read_all_end(fh: MPI_File, buf: Buf, status: Place<MPI_Status>) |mpi| on fh {
        let _ = buf;
        ended(status, mpi.files().end(fh.value(), "MPI_File_read_all"))
    }

    /// Reads at the shared file pointer.
    count fn MPI_File_read_shared(fh: MPI_File, buf: Buf, count: Count, datatype: MPI_Datatype, status: Place<MPI_Status>) |mpi| on fh {
        alone(mpi, read(fh, Where::Shared, buf, count.wide(), datatype), status)
    }

    /// Reads at the shared file pointer, with a request.
    count fn MPI_File_iread_shared(fh: MPI_File, buf: Buf, count: Count, datatype: MPI_Datatype, request: Place<MPI_Request>) |mpi| on fh {
        alone_request(mpi, read(fh, Where::Shared, buf, count.wide(), datatype), request)
    }

    /// Reads at the shared file pointer, in the order of ranks; collective.
    count fn MPI_File_read_ordered(fh: MPI_File, buf: Buf, count: Count, datatype: MPI_Datatype, status: Place<MPI_Status>) |mpi| on fh {
        together(mpi, read(fh, Where::Ordered, buf, count.wide(), datatype), status)
    }

    /// Begins what `MPI_File_read_ordered` does.
    count fn MPI_File_read_ordered_begin(fh: MPI_File, buf: Buf, count: Count, datatype: MPI_Datatype) |mpi| on fh {
        mpi.files().begin(&call(mpi, read(fh, Where::Ordered, buf, count.wide(), datatype))?, "MPI_File_read_ordered")
    }

    /// Ends what `MPI_File_read_ordered_begin` began.
    fn MPI_File_read_ordered_end(fh: MPI_File, buf: Buf, status: Place<MPI_Status>) |mpi| on fh {
        let _ = buf;
        ended(status, mpi.files().end(fh.value(), "MPI_File_read_ordered"))
    }

    /// Writes at an offset.
    count fn MPI_File_write_at(fh: MPI_File, offset: MPI_Offset, buf: ConstBuf, count: Count, datatype: MPI_Datatype, status: Place<MPI_Status>) |mpi| on fh {
        alone(mpi, write(fh, Where::At(offset), buf, count.wide(), datatype), status)
    }

    /// Writes at an offset, with a request.
    count fn MPI_File_iwrite_at(fh: MPI_File, offset: MPI_Offset, buf: ConstBuf, count: Count, datatype: MPI_Datatype, request: Place<MPI_Request>) |mpi| on fh {
        alone_request(mpi, write(fh, Where::At(offset), buf, count.wide(), datatype), request)
    }

    /// Writes at an offset; collective.
    count fn MPI_File_write_at_all(fh: MPI_File, offset: MPI_Offset, buf: ConstBuf, count: Count, datatype: MPI_Datatype, status: Place<MPI_Status>) |mpi| on fh {
        together(mpi, write(fh, Where::At(offset), buf, count.wide(), datatype), status)
    }

    /// Writes at an offset, with a request; collective.
    count fn MPI_File_iwrite_at_all(fh: MPI_File, offset: MPI_Offset, buf: ConstBuf, count: Count, datatype: MPI_Datatype, request: Place<MPI_Request>) |mpi| on fh {
        together_request(mpi, write(fh, Where::At(offset), buf, count.wide(), datatype), request)
    }

    /// Begins what `MPI_File_write_at_all` does.
    count fn MPI_File_write_at_all_begin(fh: MPI_File, offset: MPI_Offset, buf: ConstBuf, count: Count, datatype: MPI_Datatype) |mpi| on fh {
        mpi.files().begin(&call(mpi, write(fh, Where::At(offset), buf, count.wide(), datatype))?, "MPI_File_write_at_all")
    }

    /// Ends what `MPI_File_write_at_all_begin` began.
    fn MPI_File_write_at_all_end(fh: MPI_File, buf: ConstBuf, status: Place<MPI_Status>) |mpi| on fh {
        let _ = buf;
        ended(status, mpi.files().end(fh.value(), "MPI_File_write_at_all"))
    }

    /// Writes at the individual file pointer.
    count fn MPI_File_write(fh: MPI_File, buf: ConstBuf, count: Count, datatype: MPI_Datatype, status: Place<MPI_Status>) |mpi| on fh {
        alone(mpi, write(fh, Where::Individual, buf, count.wide(), datatype), status)
    }

    /// Writes at the individual file pointer, with a request.
    count fn MPI_File_iwrite(fh: MPI_File, buf: ConstBuf, count: Count, datatype: MPI_Datatype, request: Place<MPI_Request>) |mpi| on fh {
        alone_request(mpi, write(fh, Where::Individual, buf, count.wide(), datatype), request)
    }

    /// Writes at the individual file pointer; collective.
    count fn MPI_File_write_all(fh: MPI_File, buf: ConstBuf, count: Count, datatype: MPI_Datatype, status: Place<MPI_Status>) |mpi| on fh {
        together(mpi, write(fh, Where::Individual, buf, count.wide(), datatype), status)
    }

    /// Writes at the individual file pointer, with a request; collective.
    count fn MPI_File_iwrite_all(fh: MPI_File, buf: ConstBuf, count: Count, datatype: MPI_Datatype, request: Place<MPI_Request>) |mpi| on fh {
        together_request(mpi, write(fh, Where::Individual, buf, count.wide(), datatype), request)
    }

    /// Begins what `MPI_File_write_all` does.
    count fn MPI_File_write_all_begin(fh: MPI_File, buf: ConstBuf, count: Count, datatype: MPI_Datatype) |mpi| on fh {
        mpi.files().begin(&call(mpi, write(fh, Where::Individual, buf, count.wide(), datatype))?, "MPI_File_write_all")
    }

    /// Ends what `MPI_File_write_all_begin` began.
    fn MPI_File_write_all_end(fh: MPI_File, buf: ConstBuf, status: Place<MPI_Status>) |mpi| on fh {
        let _ = buf;
        ended(status, mpi.files().end(fh.value(), "MPI_File_write_all"))
    }

    /// Writes at the shared file pointer.
    count fn MPI_File_write_shared(fh: MPI_File, buf: ConstBuf, count: Count, datatype: MPI_Datatype, status: Place<MPI_Status>) |mpi| on fh {
        alone(mpi, write(fh, Where::Shared, buf, count.wide(), datatype), status)
    }

    /// Writes at the shared file pointer, with a request.
    count fn MPI_File_iwrite_shared(fh: MPI_File, buf: ConstBuf, count: Count, datatype: MPI_Datatype, request: Place<MPI_Request>) |mpi| on fh {
        alone_request(mpi, write(fh, Where::Shared, buf, count.wide(), datatype), request)
    }

    /// Writes at the shared file pointer, in the order of ranks; collective.
    count fn MPI_File_write_ordered(fh: MPI_File, buf: ConstBuf, count: Count, datatype: MPI_Datatype, status: Place<MPI_Status>) |mpi| on fh {
        together(mpi, write(fh, Where::Ordered, buf, count.wide(), datatype), status)
    }

    /// Begins what `MPI_File_write_ordered` does.
    count fn MPI_File_write_ordered_begin(fh: MPI_File, buf: ConstBuf, count: Count, datatype: MPI_Datatype) |mpi| on fh {
        mpi.files().begin(&call(mpi, write(fh, Where::Ordered, buf, count.wide(), datatype))?, "MPI_File_write_ordered")
    }

    /// Ends what `MPI_File_write_ordered_begin` began.
    fn MPI_File_write_ordered_end(fh: MPI_File, buf: ConstBuf, status: Place<MPI_Status>) |mpi| on fh {
        let _ = buf;
        ended(status, mpi.files().end(fh.value(), "MPI_File_write_ordered"))
    }
}

/// What a function names: the file, where in its view, the elements in memory, and whether they are
/// written.
type Named = (MPI_File, Where, (Buf, i64, MPI_Datatype), bool);

fn read(fh: MPI_File, place: Where, buf: Buf, count: i64, datatype: MPI_Datatype) -> Named {
    (fh, place, (buf, count, datatype), false)
}

fn write(fh: MPI_File, place: Where, buf: ConstBuf, count: i64, datatype: MPI_Datatype) -> Named {
    (fh, place, (buf.buf(), count, datatype), true)
}

/// Checks what a function names.
///
/// # Safety
/// The C caller vouches for the elements.
unsafe fn call(mpi: &Process, (fh, place, elements, write): Named) -> Result<Call> {
    let file = fh.value();
    mpi.files().file(file)?;
    let (buf, count, datatype) = elements;
    // SAFETY: by the caller's promise.
    let operand = unsafe { operand(mpi, ("buf", "count"), buf, count, datatype) }?;
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

/// # Safety
/// The C caller vouches for the elements.
unsafe fn alone(mpi: &Process, named: Named, status: Place<MPI_Status>) -> Result<()> {
    // SAFETY: by the caller's promise.
    ended(status, mpi.files().access(&unsafe { call(mpi, named) }?))
}

/// # Safety
/// The C caller vouches for the elements.
unsafe fn alone_request(mpi: &Process, named: Named, request: Place<MPI_Request>) -> Result<()> {
    // SAFETY: by the caller's promise.
    let handle = mpi.files().iaccess(&unsafe { call(mpi, named) }?)?;
    request.put("request", MPI_Request::new(handle))
}

/// # Safety
/// The C caller vouches for the elements.
unsafe fn together(mpi: &Process, named: Named, status: Place<MPI_Status>) -> Result<()> {
    // SAFETY: by the caller's promise.
    ended(
        status,
        mpi.files().access_all(&unsafe { call(mpi, named) }?),
    )
}

/// # Safety
/// The C caller vouches for the elements.
unsafe fn together_request(mpi: &Process, named: Named, request: Place<MPI_Request>) -> Result<()> {
    // SAFETY: by the caller's promise.
    let handle = mpi.files().iaccess_all(&unsafe { call(mpi, named) }?)?;
    request.put("request", MPI_Request::new(handle))
}

fn ended(status: Place<MPI_Status>, result: Result<margay_run_mpi::Status>) -> Result<()> {
    status.status(&result?);
    Ok(())
}
