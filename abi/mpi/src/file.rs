//! Files: opening, properties, pointers, error handlers.

use std::ffi::c_int;
use std::sync::Arc;

use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::constants::file::MPI_FILE_NULL;
use margay_run_mpi::constants::limit::MPI_MAX_DATAREP_STRING;
use margay_run_mpi::errhandler::Callback;
use margay_run_mpi::fail;

use crate::call::mpi;
use crate::convert::fit;
use crate::types::*;
use crate::user::{Place, Text, TextOut};

mpi! {
    /// Opens a file; collective.
    fn MPI_File_open(comm: MPI_Comm, filename: Text, amode: c_int, info: MPI_Info, fh: Place<MPI_File>) |mpi| {
        let open = || {
            let info = mpi.info(info.value())?;
            mpi.files().open(comm.value(), &filename.get("filename")?, amode, &info)
        };
        // There is no file yet whose error handler could be asked.
        let handle = open().map_err(|e| e.on(MPI_FILE_NULL))?;
        fh.put("fh", MPI_File::new(handle))
    }

    /// Closes a file; collective.
    fn MPI_File_close(fh: Place<MPI_File>) |mpi| {
        let handle = fh.take("fh")?.value();
        mpi.files().close(handle).map_err(|e| e.on(handle))?;
        fh.put("fh", MPI_File::new(MPI_FILE_NULL))
    }

    /// Deletes a file.
    fn MPI_File_delete(filename: Text, info: MPI_Info) |mpi| {
        let delete = || {
            mpi.check_info(info.value())?;
            mpi.files().delete(&filename.get("filename")?)
        };
        delete().map_err(|e| e.on(MPI_FILE_NULL))
    }

    /// Sets the size; collective.
    fn MPI_File_set_size(fh: MPI_File, size: MPI_Offset) |mpi| on fh {
        mpi.files().set_size(fh.value(), size)
    }

    /// Takes space on the device; collective.
    fn MPI_File_preallocate(fh: MPI_File, size: MPI_Offset) |mpi| on fh {
        mpi.files().preallocate(fh.value(), size)
    }

    /// The size in bytes.
    fn MPI_File_get_size(fh: MPI_File, size: Place<MPI_Offset>) |mpi| on fh {
        size.put("size", mpi.files().size(fh.value())?)
    }

    /// The processes that have opened the file.
    fn MPI_File_get_group(fh: MPI_File, group: Place<MPI_Group>) |mpi| on fh {
        group.put("group", MPI_Group::new(mpi.files().group(fh.value())?))
    }

    /// The access mode.
    fn MPI_File_get_amode(fh: MPI_File, amode: Place<c_int>) |mpi| on fh {
        amode.put("amode", mpi.files().file(fh.value())?.amode())
    }

    /// Gives hints; collective.
    fn MPI_File_set_info(fh: MPI_File, info: MPI_Info) |mpi| on fh {
        let info = mpi.info(info.value())?;
        mpi.files().set_info(fh.value(), &info)
    }

    /// The hints in force.
    fn MPI_File_get_info(fh: MPI_File, info_used: Place<MPI_Info>) |mpi| on fh {
        let info = mpi.files().info(fh.value())?;
        info_used.put("info_used", MPI_Info::new(mpi.info_create(info)?))
    }

    /// Says which bytes this process sees; collective.
    fn MPI_File_set_view(fh: MPI_File, disp: MPI_Offset, etype: MPI_Datatype, filetype: MPI_Datatype, datarep: Text, info: MPI_Info) |mpi| on fh {
        let info = mpi.info(info.value())?;
        mpi.files().set_view(fh.value(), disp, etype.value(), filetype.value(), &datarep.get("datarep")?, &info)
    }

    /// Which bytes this process sees.
    fn MPI_File_get_view(fh: MPI_File, disp: Place<MPI_Offset>, etype: Place<MPI_Datatype>, filetype: Place<MPI_Datatype>, datarep: TextOut) |mpi| on fh {
        let (first, unit, tile, name) = mpi.files().view(fh.value())?;
        disp.put("disp", first)?;
        etype.put("etype", MPI_Datatype::new(unit))?;
        filetype.put("filetype", MPI_Datatype::new(tile))?;
        datarep.put("datarep", &name, MPI_MAX_DATAREP_STRING).map(|_| ())
    }

    /// Moves the individual file pointer.
    fn MPI_File_seek(fh: MPI_File, offset: MPI_Offset, whence: c_int) |mpi| on fh {
        mpi.files().seek(fh.value(), offset, whence)
    }

    /// The individual file pointer.
    fn MPI_File_get_position(fh: MPI_File, offset: Place<MPI_Offset>) |mpi| on fh {
        offset.put("offset", mpi.files().position(fh.value())?)
    }

    /// The offset in the file of an offset in the view.
    fn MPI_File_get_byte_offset(fh: MPI_File, offset: MPI_Offset, disp: Place<MPI_Offset>) |mpi| on fh {
        disp.put("disp", mpi.files().byte_offset(fh.value(), offset)?)
    }

    /// Moves the shared file pointer; collective.
    fn MPI_File_seek_shared(fh: MPI_File, offset: MPI_Offset, whence: c_int) |mpi| on fh {
        mpi.files().seek_shared(fh.value(), offset, whence)
    }

    /// The shared file pointer.
    fn MPI_File_get_position_shared(fh: MPI_File, offset: Place<MPI_Offset>) |mpi| on fh {
        offset.put("offset", mpi.files().position_shared(fh.value())?)
    }

    /// The extent of a datatype in the file.
    count fn MPI_File_get_type_extent(fh: MPI_File, datatype: MPI_Datatype, extent: Place<AintCount>) |mpi| on fh {
        extent.put("extent", fit("extent", mpi.files().type_extent(fh.value(), datatype.value())?)?)
    }

    /// Makes accesses atomic, or no longer; collective.
    fn MPI_File_set_atomicity(fh: MPI_File, flag: c_int) |mpi| on fh {
        mpi.files().set_atomicity(fh.value(), flag != 0)
    }

    /// Whether accesses are atomic.
    fn MPI_File_get_atomicity(fh: MPI_File, flag: Place<c_int>) |mpi| on fh {
        flag.put("flag", c_int::from(mpi.files().atomicity(fh.value())?))
    }

    /// Brings what was written to the device; collective.
    fn MPI_File_sync(fh: MPI_File) |mpi| on fh {
        mpi.files().sync(fh.value())
    }

    /// Makes an error handler of a function.
    fn MPI_File_create_errhandler(file_errhandler_fn: MPI_File_errhandler_function, errhandler: Place<MPI_Errhandler>) |mpi| {
        let Some(function) = file_errhandler_fn else {
            fail!(MPI_ERR_ARG, "file_errhandler_fn is a null pointer");
        };
        errhandler.put("errhandler", MPI_Errhandler::new(mpi.errhandler_create(Arc::new(UserHandler(function)))?))
    }

    /// Gives a file an error handler; `MPI_FILE_NULL` stands for files that will be opened.
    fn MPI_File_set_errhandler(file: MPI_File, errhandler: MPI_Errhandler) |mpi| on file {
        mpi.files().set_errhandler(file.value(), errhandler.value())
    }

    /// The error handler of a file.
    fn MPI_File_get_errhandler(file: MPI_File, errhandler: Place<MPI_Errhandler>) |mpi| on file {
        errhandler.put("errhandler", MPI_Errhandler::new(mpi.files().get_errhandler(file.value())?))
    }

    /// Calls the error handler of a file.
    fn MPI_File_call_errhandler(fh: MPI_File, errorcode: c_int) |mpi| on fh {
        let error = mpi.files().call_errhandler(fh.value(), errorcode)?;
        crate::call::raise(mpi, "MPI_File_call_errhandler", Some(fh.value()), error);
        Ok(())
    }
}

/// A function of the program as an error handler.
struct UserHandler(unsafe extern "C" fn(*mut MPI_File, *mut c_int, ...));

impl Callback for UserHandler {
    fn call(&self, file: u32, code: i32) -> i32 {
        let mut file = MPI_File::new(file);
        let mut code = code;
        // SAFETY: the program's function with the arguments that the standard gives it.
        unsafe { (self.0)(&raw mut file, &raw mut code) };
        code
    }
}
