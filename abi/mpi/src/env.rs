//! Start, end and environment.

use std::ffi::{c_double, c_int};

use margay_core_registry::call_name;
use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::constants::info::MPI_INFO_NULL;
use margay_run_mpi::constants::limit::*;
use margay_run_mpi::constants::thread::*;
use margay_run_mpi::constants::version::*;
use margay_run_mpi::{fail, host_name};
use margay_sys_os::clock;
use margay_sys_shm::environment::ENV_PARENT;

use crate::call::{
    Model, current, enter, is_finalized, is_initialized, leave_world, mpi, opened, outside, raise,
    refuse_in_child, write_line,
};
use crate::types::*;
use crate::user::{ArgvPlace, Buf, Place, TextOut};

mpi! {
    /// Joins the job.
    fn MPI_Init(argc: Place<c_int>, argv: ArgvPlace) -> c_int {
        let _ = (argc, argv);
        initialize("MPI_Init", MPI_THREAD_SINGLE)
    }

    /// Joins the job with a level of thread support; all levels are supported.
    fn MPI_Init_thread(argc: Place<c_int>, argv: ArgvPlace, required: c_int, provided: Place<c_int>) -> c_int {
        let _ = (argc, argv);
        let level = [MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE]
            .into_iter()
            .find(|&level| required <= level)
            .unwrap_or(MPI_THREAD_MULTIPLE);
        let code = initialize("MPI_Init_thread", level);
        if code == MPI_SUCCESS && provided.put("provided", level).is_err() {
            return MPI_ERR_ARG;
        }
        code
    }

    /// Leaves the job.
    fn MPI_Finalize() -> c_int {
        let Some(mpi) = current().filter(|mpi| mpi.has_world()) else {
            return outside("MPI_Finalize");
        };
        static CALL: [u64; 4] = margay_core_registry::call_name("MPI_Finalize");
        mpi.rank().record_counted();
        let _call = mpi.begin_call(&CALL, margay_abi_process::return_address());
        mpi.close_world();
        leave_world(mpi);
        MPI_SUCCESS
    }

    /// Whether MPI was initialized.
    fn MPI_Initialized(flag: Place<c_int>) -> c_int {
        flag.put("flag", c_int::from(is_initialized())).map_or_else(|e| e.code(), |()| MPI_SUCCESS)
    }

    /// Whether MPI was finalized.
    fn MPI_Finalized(flag: Place<c_int>) -> c_int {
        flag.put("flag", c_int::from(is_finalized())).map_or_else(|e| e.code(), |()| MPI_SUCCESS)
    }

    /// The level of thread support.
    fn MPI_Query_thread(provided: Place<c_int>) |mpi| {
        provided.put("provided", mpi.thread_level())
    }

    /// Whether this is the thread that initialized.
    fn MPI_Is_thread_main(flag: Place<c_int>) |mpi| {
        flag.put("flag", c_int::from(mpi.is_main_thread()))
    }

    /// Ends the job.
    fn MPI_Abort(comm: MPI_Comm, errorcode: c_int) -> c_int {
        let Some(mpi) = current() else {
            return outside("MPI_Abort");
        };
        static CALL: [u64; 4] = margay_core_registry::call_name("MPI_Abort");
        let _call = mpi.begin_call(&CALL, margay_abi_process::return_address());
        let on = mpi.comm(comm.value()).map_or_else(|e| e.text().to_string(), |c| c.describe());
        let rank = mpi.world_rank();
        write_line(format!("MPI_Abort: code {errorcode} on {on}, called by rank {rank}"));
        mpi.abort(errorcode)
    }

    /// Seconds of a clock that all ranks read.
    fn MPI_Wtime() -> c_double {
        clock::now_ns() as c_double * 1e-9
    }

    /// Seconds between two ticks of that clock.
    fn MPI_Wtick() -> c_double {
        clock::resolution_s()
    }

    /// The version of the standard.
    fn MPI_Get_version(version: Place<c_int>, subversion: Place<c_int>) -> c_int {
        let put = version.put("version", MPI_VERSION as c_int).and_then(|()| subversion.put("subversion", MPI_SUBVERSION as c_int));
        put.map_or_else(|e| e.code(), |()| MPI_SUCCESS)
    }

    /// The version of the library.
    fn MPI_Get_library_version(version: TextOut, resultlen: Place<c_int>) -> c_int {
        let text = concat!("Margay ", env!("CARGO_PKG_VERSION"), ", standard ABI 1.0 of MPI 5.0");
        let put = version.put("version", text, MPI_MAX_LIBRARY_VERSION_STRING).and_then(|n| resultlen.put("resultlen", n as c_int));
        put.map_or_else(|e| e.code(), |()| MPI_SUCCESS)
    }

    /// The version of the ABI.
    fn MPI_Abi_get_version(abi_major: Place<c_int>, abi_minor: Place<c_int>) -> c_int {
        let put = abi_major.put("abi_major", MPI_ABI_VERSION as c_int).and_then(|()| abi_minor.put("abi_minor", MPI_ABI_SUBVERSION as c_int));
        put.map_or_else(|e| e.code(), |()| MPI_SUCCESS)
    }

    /// What the ABI leaves open: sizes of integer types.
    always fn MPI_Abi_get_info(info: Place<MPI_Info>) |mpi| {
        let entries = [("mpi_aint_size", size_of::<MPI_Aint>()), ("mpi_count_size", size_of::<MPI_Count>()), ("mpi_offset_size", size_of::<MPI_Offset>())];
        let entries = entries.into_iter().map(|(key, size)| (key.to_string(), size.to_string())).collect();
        info.put("info", MPI_Info::new(mpi.info_create(entries)?))
    }

    /// The sizes that a Fortran library has reported; `MPI_INFO_NULL` as long as none has.
    always fn MPI_Abi_get_fortran_info(info: Place<MPI_Info>) |mpi| {
        let handle = match mpi.fortran_info() {
            Some(entries) => mpi.info_create(entries)?,
            None => MPI_INFO_NULL,
        };
        info.put("info", MPI_Info::new(handle))
    }

    /// What Fortran's true and false look like; not known before a Fortran library reports it.
    always fn MPI_Abi_get_fortran_booleans(logical_size: c_int, logical_true: Buf, logical_false: Buf, is_set: Place<c_int>) |mpi| {
        let known = mpi.fortran_booleans(logical_size);
        if let Some((yes, no)) = &known {
            logical_true.put_bytes("logical_true", yes)?;
            logical_false.put_bytes("logical_false", no)?;
        }
        is_set.put("is_set", c_int::from(known.is_some()))
    }

    /// Takes what true and false of a Fortran library look like.
    always fn MPI_Abi_set_fortran_booleans(logical_size: c_int, logical_true: Buf, logical_false: Buf) |mpi| {
        if !matches!(logical_size, 1 | 2 | 4 | 8 | 16) {
            fail!(MPI_ERR_ARG, "logical_size is {logical_size}; 1, 2, 4, 8 and 16 are sizes of a Fortran logical");
        }
        let size = logical_size as usize;
        let values = (logical_true.take_bytes("logical_true", size)?, logical_false.take_bytes("logical_false", size)?);
        mpi.set_fortran_booleans(values)
    }

    /// Takes the sizes that a Fortran library reports.
    always fn MPI_Abi_set_fortran_info(info: MPI_Info) |mpi| {
        mpi.set_fortran_info(mpi.info(info.value())?)
    }

    /// The name of the machine.
    fn MPI_Get_processor_name(name: TextOut, resultlen: Place<c_int>) |_mpi| {
        let n = name.put("name", &host_name(), MPI_MAX_PROCESSOR_NAME)?;
        resultlen.put("resultlen", n as c_int)
    }

    /// Kinds of hardware that `MPI_Comm_split_type` knows.
    fn MPI_Get_hw_resource_info(hw_info: Place<MPI_Info>) |mpi| {
        hw_info.put("hw_info", MPI_Info::new(mpi.info_create(vec![("mpi_shared_memory".into(), "true".into())])?))
    }

    /// For profiling tools; does nothing.
    fn MPI_Pcontrol(level: c_int) -> c_int {
        let _ = level;
        MPI_SUCCESS
    }

    /// Memory that other ranks can read without a system call.
    fn MPI_Alloc_mem(size: MPI_Aint, info: MPI_Info, baseptr: Buf) |mpi| {
        mpi.check_info(info.value())?;
        let Ok(bytes) = usize::try_from(size) else {
            fail!(MPI_ERR_ARG, "size is {size}; it must not be negative");
        };
        baseptr.put_pointer("baseptr", mpi.alloc(bytes.max(1))?)
    }

    /// Frees memory of `MPI_Alloc_mem`.
    fn MPI_Free_mem(base: Buf) |mpi| {
        if base.address() != 0 && !mpi.free(base.address()) {
            fail!(MPI_ERR_BASE, "base is not an address that MPI_Alloc_mem gave, or was freed before");
        }
        Ok(())
    }
}

/// # Safety
/// The C caller vouches for how many of its threads call at the same time: it asked for this level.
unsafe fn initialize(name: &'static str, level: c_int) -> c_int {
    refuse_in_child(name);
    if is_initialized() {
        eprintln!("{name}: MPI was initialized before; it can be initialized once");
        if let Some(mpi) = current() {
            mpi.note_call(&call_name(name));
            mpi.abort(MPI_ERR_OTHER);
        }
        std::process::exit(MPI_ERR_OTHER);
    }
    let mpi = opened(name);
    // SAFETY: by the caller's promise.
    unsafe { enter(mpi, Model::World, level) };
    // So that the report of a later death says where the program was.
    mpi.note_call(&call_name(name));
    if let Ok(port) = std::env::var(ENV_PARENT)
        && let Err(error) = mpi.dynamic().connect_parent(&port)
    {
        return raise(mpi, name, None, error);
    }
    MPI_SUCCESS
}
