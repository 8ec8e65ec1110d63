//! Data representations that the program registers.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use margay_run_files::datarep::Conversion;
use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::constants::file::MPI_FILE_NULL;
use margay_run_mpi::error::Result;
use margay_run_mpi::fail;
use margay_sys_os::user::Mem;

use crate::call::{Process, mpi};
use crate::types::*;
use crate::user::{Opaque, Text};

mpi! {
    /// Registers a data representation.
    fn MPI_Register_datarep(datarep: Text, read_conversion_fn: MPI_Datarep_conversion_function, write_conversion_fn: MPI_Datarep_conversion_function, dtype_file_extent_fn: MPI_Datarep_extent_function, extra_state: Opaque) |mpi| {
        register(mpi, datarep, read_conversion_fn.map(Convert::Small), write_conversion_fn.map(Convert::Small), dtype_file_extent_fn, extra_state)
    }

    /// Registers a data representation whose functions have 64-bit counts.
    fn MPI_Register_datarep_c(datarep: Text, read_conversion_fn: MPI_Datarep_conversion_function_c, write_conversion_fn: MPI_Datarep_conversion_function_c, dtype_file_extent_fn: MPI_Datarep_extent_function, extra_state: Opaque) |mpi| {
        register(mpi, datarep, read_conversion_fn.map(Convert::Large), write_conversion_fn.map(Convert::Large), dtype_file_extent_fn, extra_state)
    }
}

fn register(
    mpi: &Process,
    datarep: Text,
    read: Option<Convert>,
    write: Option<Convert>,
    extent: MPI_Datarep_extent_function,
    extra_state: Opaque,
) -> Result<()> {
    let register = || {
        let name = datarep.get("datarep")?;
        let Some(extent) = extent else {
            fail!(MPI_ERR_ARG, "dtype_file_extent_fn is a null pointer");
        };
        let functions = Functions {
            read,
            write,
            extent,
            extra_state: extra_state.0 as usize,
        };
        mpi.files().register_datarep(&name, Arc::new(functions))
    };
    register().map_err(|e| e.on(MPI_FILE_NULL))
}

type Small = unsafe extern "C" fn(
    *mut c_void,
    MPI_Datatype,
    c_int,
    *mut c_void,
    MPI_Offset,
    *mut c_void,
) -> c_int;
type Large = unsafe extern "C" fn(
    *mut c_void,
    MPI_Datatype,
    MPI_Count,
    *mut c_void,
    MPI_Offset,
    *mut c_void,
) -> c_int;
type Extent = unsafe extern "C" fn(MPI_Datatype, *mut MPI_Aint, *mut c_void) -> c_int;

/// A conversion function of the program.
#[derive(Clone, Copy)]
enum Convert {
    Small(Small),
    Large(Large),
}

struct Functions {
    read: Option<Convert>,
    write: Option<Convert>,
    extent: Extent,
    extra_state: usize,
}

impl Functions {
    fn call(
        &self,
        function: Option<Convert>,
        user: &Mem,
        datatype: u32,
        count: u64,
        file: &Mem,
    ) -> std::result::Result<(), i32> {
        let state = self.extra_state as *mut c_void;
        let (user, file) = (user.address() as *mut c_void, file.address() as *mut c_void);
        let datatype = MPI_Datatype::new(datatype);
        let code = match function {
            None => return Ok(()),
            Some(Convert::Small(function)) => {
                // More items than an int can count are for MPI_Register_datarep_c.
                let count = c_int::try_from(count).map_err(|_| MPI_ERR_VALUE_TOO_LARGE)?;
                // SAFETY: the program's function with the arguments that the standard gives it.
                unsafe { function(user, datatype, count, file, 0, state) }
            }
            Some(Convert::Large(function)) => {
                // SAFETY: as above.
                unsafe { function(user, datatype, count as MPI_Count, file, 0, state) }
            }
        };
        if code == MPI_SUCCESS {
            Ok(())
        } else {
            Err(code)
        }
    }
}

impl Conversion for Functions {
    fn extent(&self, datatype: u32) -> std::result::Result<i64, i32> {
        let mut extent: MPI_Aint = 0;
        let state = self.extra_state as *mut c_void;
        // SAFETY: as above.
        let code = unsafe { (self.extent)(MPI_Datatype::new(datatype), &raw mut extent, state) };
        if code == MPI_SUCCESS {
            Ok(extent as i64)
        } else {
            Err(code)
        }
    }

    fn read(
        &self,
        user: &Mem,
        datatype: u32,
        count: u64,
        file: &Mem,
    ) -> std::result::Result<(), i32> {
        self.call(self.read, user, datatype, count, file)
    }

    fn write(
        &self,
        user: &Mem,
        datatype: u32,
        count: u64,
        file: &Mem,
    ) -> std::result::Result<(), i32> {
        self.call(self.write, user, datatype, count, file)
    }

    fn is_native(&self, write: bool) -> bool {
        if write {
            self.write.is_none()
        } else {
            self.read.is_none()
        }
    }
}
