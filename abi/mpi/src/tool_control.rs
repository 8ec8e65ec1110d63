//! The tools interface: control variables.

use std::ffi::c_int;

use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::constants::tools::MPI_T_BIND_NO_OBJECT;
use margay_run_mpi::tool::table::CONTROLS;
use margay_run_mpi::tool::{Value, entry, index_of};

use crate::call::mpi;
use crate::tool::{datatype_of, enum_handle, put, put_text, text, with};
use crate::types::*;
use crate::user::{Buf, ConstBuf, Place, Text, TextOut};

mpi! {
    /// How many control variables there are.
    fn MPI_T_cvar_get_num(num_cvar: Place<c_int>) -> c_int {
        with(|_| put(num_cvar, CONTROLS.len() as c_int))
    }

    /// What a control variable is.
    fn MPI_T_cvar_get_info(cvar_index: c_int, name: TextOut, name_len: Place<c_int>, verbosity: Place<c_int>, datatype: Place<MPI_Datatype>, enumtype: Place<MPI_T_enum>, desc: TextOut, desc_len: Place<c_int>, bind: Place<c_int>, scope: Place<c_int>) -> c_int {
        with(|tools| {
            let control = entry(CONTROLS, cvar_index)?;
            put_text(name, name_len, control.name);
            put_text(desc, desc_len, control.about);
            verbosity.offer(control.verbosity);
            datatype.offer(datatype_of(tools.control_value(control)));
            enumtype.offer(enum_handle(control.enumeration));
            bind.offer(MPI_T_BIND_NO_OBJECT);
            scope.offer(control.scope);
            Ok(())
        })
    }

    /// The index of a control variable.
    fn MPI_T_cvar_get_index(name: Text, cvar_index: Place<c_int>) -> c_int {
        with(|_| {
            let name = text(name)?;
            put(cvar_index, index_of(CONTROLS, |c| c.name == name)?)
        })
    }

    /// Opens a control variable.
    fn MPI_T_cvar_handle_alloc(cvar_index: c_int, obj_handle: Buf, handle: Place<MPI_T_cvar_handle>, count: Place<c_int>) -> c_int {
        // None is bound to an object.
        let _ = obj_handle;
        with(|tools| {
            let new = tools.control_open(cvar_index)?;
            count.offer(1);
            put(handle, MPI_T_cvar_handle::new(new))
        })
    }

    /// Closes a control variable.
    fn MPI_T_cvar_handle_free(handle: Place<MPI_T_cvar_handle>) -> c_int {
        with(|tools| {
            let old = handle.take("").map_err(|_| MPI_T_ERR_INVALID)?;
            tools.control_close(old.value())?;
            put(handle, MPI_T_cvar_handle::new(0))
        })
    }

    /// Reads a control variable.
    fn MPI_T_cvar_read(handle: MPI_T_cvar_handle, buf: Buf) -> c_int {
        with(|tools| {
            let control = tools.control(handle.value())?;
            let value = tools.control_value(control);
            buf.put_bytes("", &value.bytes()).map_err(|_| MPI_T_ERR_INVALID)
        })
    }

    /// Sets a control variable.
    fn MPI_T_cvar_write(handle: MPI_T_cvar_handle, buf: ConstBuf) -> c_int {
        with(|tools| {
            let control = tools.control(handle.value())?;
            let value = match tools.control_value(control) {
                Value::Int(_) => Value::Int(i32::from_ne_bytes(bytes(buf)?)),
                Value::Number(_) | Value::Real(_) => Value::Number(u64::from_ne_bytes(bytes(buf)?)),
            };
            tools.control_set(control, value)
        })
    }
}

/// The first bytes of a buffer.
///
/// # Safety
/// The C caller vouches for `N` bytes.
pub unsafe fn bytes<const N: usize>(buf: ConstBuf) -> Result<[u8; N], i32> {
    // SAFETY: by the caller's promise.
    let taken = unsafe { buf.buf().take_bytes("", N) };
    let bytes = taken.map_err(|_| MPI_T_ERR_INVALID)?;
    bytes.try_into().map_err(|_| MPI_T_ERR_INVALID)
}
