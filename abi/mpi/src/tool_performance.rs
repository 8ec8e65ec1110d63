//! The tools interface: performance variables.

use std::ffi::c_int;

use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::constants::thread::MPI_THREAD_SERIALIZED;
use margay_run_mpi::constants::tools::{MPI_T_BIND_MPI_COMM, MPI_T_BIND_NO_OBJECT};
use margay_run_mpi::tool::table::{Measure, PERFORMANCE, Performance};
use margay_run_mpi::tool::{Object, Result, Value, entry, index_of};

use crate::call::{current, mpi};
use crate::tool::{datatype_of, enum_handle, put, put_text, text, with};
use crate::tool_control::bytes;
use crate::types::*;
use crate::user::{Buf, ConstBuf, Place, Text, TextOut};

/// `MPI_T_PVAR_ALL_HANDLES`
const ALL: u64 = 1;

mpi! {
    /// How many performance variables there are.
    fn MPI_T_pvar_get_num(num_pvar: Place<c_int>) -> c_int {
        with(|_| put(num_pvar, PERFORMANCE.len() as c_int))
    }

    /// What a performance variable is.
    fn MPI_T_pvar_get_info(pvar_index: c_int, name: TextOut, name_len: Place<c_int>, verbosity: Place<c_int>, var_class: Place<c_int>, datatype: Place<MPI_Datatype>, enumtype: Place<MPI_T_enum>, desc: TextOut, desc_len: Place<c_int>, bind: Place<c_int>, readonly: Place<c_int>, continuous: Place<c_int>, atomic: Place<c_int>) -> c_int {
        with(|_| {
            let variable = entry(PERFORMANCE, pvar_index)?;
            put_text(name, name_len, variable.name);
            put_text(desc, desc_len, variable.about);
            verbosity.offer(variable.verbosity);
            var_class.offer(variable.class);
            datatype.offer(datatype_of(example(variable)));
            enumtype.offer(enum_handle(variable.enumeration));
            bind.offer(if variable.is_of_comm() { MPI_T_BIND_MPI_COMM } else { MPI_T_BIND_NO_OBJECT });
            let continues = c_int::from(variable.is_continuous());
            readonly.offer(continues);
            continuous.offer(continues);
            atomic.offer(1 - continues);
            Ok(())
        })
    }

    /// The index of a performance variable.
    fn MPI_T_pvar_get_index(name: Text, var_class: c_int, pvar_index: Place<c_int>) -> c_int {
        with(|_| {
            let name = text(name)?;
            put(pvar_index, index_of(PERFORMANCE, |p| p.name == name && p.class == var_class)?)
        })
    }

    /// Makes a session.
    fn MPI_T_pvar_session_create(session: Place<MPI_T_pvar_session>) -> c_int {
        with(|tools| put(session, MPI_T_pvar_session::new(tools.session_open()?)))
    }

    /// Frees a session and its handles.
    fn MPI_T_pvar_session_free(session: Place<MPI_T_pvar_session>) -> c_int {
        with(|tools| {
            let old = session.take("").map_err(|_| MPI_T_ERR_INVALID)?;
            tools.session_close(old.value())?;
            put(session, MPI_T_pvar_session::new(0))
        })
    }

    /// Opens a performance variable, of a communicator if it is one's.
    fn MPI_T_pvar_handle_alloc(session: MPI_T_pvar_session, pvar_index: c_int, obj_handle: Buf, handle: Place<MPI_T_pvar_handle>, count: Place<c_int>) -> c_int {
        with(|tools| {
            let new = tools.performance_open(session.value(), pvar_index, || communicator(obj_handle))?;
            count.offer(1);
            put(handle, MPI_T_pvar_handle::new(new))
        })
    }

    /// Closes a performance variable.
    fn MPI_T_pvar_handle_free(session: MPI_T_pvar_session, handle: Place<MPI_T_pvar_handle>) -> c_int {
        with(|tools| {
            let old = handle.take("").map_err(|_| MPI_T_ERR_INVALID)?;
            tools.performance_close(session.value(), old.value())?;
            put(handle, MPI_T_pvar_handle::new(0))
        })
    }

    /// Begins to count.
    fn MPI_T_pvar_start(session: MPI_T_pvar_session, handle: MPI_T_pvar_handle) -> c_int {
        with(|tools| tools.performance_start(session.value(), one(handle)))
    }

    /// Ends to count.
    fn MPI_T_pvar_stop(session: MPI_T_pvar_session, handle: MPI_T_pvar_handle) -> c_int {
        with(|tools| tools.performance_stop(session.value(), one(handle)))
    }

    /// Reads a performance variable.
    fn MPI_T_pvar_read(session: MPI_T_pvar_session, handle: MPI_T_pvar_handle, buf: Buf) -> c_int {
        with(|tools| write(buf, tools.performance_read(session.value(), handle.value())?))
    }

    /// Sets a performance variable.
    fn MPI_T_pvar_write(session: MPI_T_pvar_session, handle: MPI_T_pvar_handle, buf: ConstBuf) -> c_int {
        with(|tools| tools.performance_write(session.value(), handle.value(), || Ok(u64::from_ne_bytes(bytes(buf)?))))
    }

    /// Sets a performance variable to where it began.
    fn MPI_T_pvar_reset(session: MPI_T_pvar_session, handle: MPI_T_pvar_handle) -> c_int {
        with(|tools| tools.performance_reset(session.value(), one(handle)))
    }

    /// Reads a performance variable and resets it; nothing is lost between the two.
    fn MPI_T_pvar_readreset(session: MPI_T_pvar_session, handle: MPI_T_pvar_handle, buf: Buf) -> c_int {
        with(|tools| write(buf, tools.performance_take(session.value(), handle.value())?))
    }
}

fn one(handle: MPI_T_pvar_handle) -> Option<u64> {
    (handle.value() != ALL).then_some(handle.value())
}

/// # Safety
/// The C caller vouches for the room of a value.
unsafe fn write(buf: Buf, value: Value) -> Result<()> {
    // SAFETY: by the caller's promise.
    unsafe { buf.put_bytes("", &value.bytes()) }.map_err(|_| MPI_T_ERR_INVALID)
}

/// A value of the variable's type.
fn example(variable: &Performance) -> Value {
    match variable.measure {
        Measure::Share(_) => Value::Real(0.0),
        Measure::State(_) => Value::Int(0),
        _ => Value::Number(0),
    }
}

/// The communicator behind a pointer to its handle.
///
/// # Safety
/// The C caller vouches for a handle.
unsafe fn communicator(object: Buf) -> Result<Object> {
    let mpi = current().ok_or(MPI_T_ERR_NOT_ACCESSIBLE)?;
    let elsewhere = mpi.thread_level() < MPI_THREAD_SERIALIZED && !mpi.is_main_thread();
    if elsewhere {
        // The program promised to use MPI's objects from one thread.
        return Err(MPI_T_ERR_NOT_ACCESSIBLE);
    }
    // SAFETY: by the caller's promise.
    let taken = unsafe { object.take_bytes("", size_of::<usize>()) };
    let bytes = taken.map_err(|_| MPI_T_ERR_INVALID_HANDLE)?;
    let handle = usize::from_ne_bytes(bytes.try_into().map_err(|_| MPI_T_ERR_INVALID_HANDLE)?);
    let handle = u32::try_from(handle).map_err(|_| MPI_T_ERR_INVALID_HANDLE)?;
    let comm = mpi.comm(handle).map_err(|_| MPI_T_ERR_INVALID_HANDLE)?;
    Ok(Some(comm))
}
