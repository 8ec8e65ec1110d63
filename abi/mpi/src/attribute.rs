//! Attributes.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use margay_run_mpi::attribute::{Callbacks, Carrier};
use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::constants::keyval::MPI_KEYVAL_INVALID;
use margay_run_mpi::error::Result;
use margay_run_mpi::{Mpi, fail};

use crate::call::mpi;
use crate::types::*;
use crate::user::{Buf, Opaque, Place};

mpi! {
    /// Makes a key for attributes of communicators.
    fn MPI_Comm_create_keyval(comm_copy_attr_fn: MPI_Comm_copy_attr_function, comm_delete_attr_fn: MPI_Comm_delete_attr_function, comm_keyval: Place<c_int>, extra_state: Opaque) |mpi| {
        comm_keyval.put("comm_keyval", create(mpi, Carrier::Comm, comm_copy_attr_fn, comm_delete_attr_fn, extra_state))
    }

    /// Frees a key; its attributes stay.
    fn MPI_Comm_free_keyval(comm_keyval: Place<c_int>) |mpi| {
        mpi.keyval_free(Carrier::Comm, comm_keyval.take("comm_keyval")?)?;
        comm_keyval.put("comm_keyval", MPI_KEYVAL_INVALID)
    }

    /// Sets an attribute of a communicator.
    fn MPI_Comm_set_attr(comm: MPI_Comm, comm_keyval: c_int, attribute_val: Opaque) |mpi| on comm {
        mpi.comm_set_attribute(comm.value(), comm_keyval, attribute_val.0 as usize)
    }

    /// An attribute of a communicator.
    fn MPI_Comm_get_attr(comm: MPI_Comm, comm_keyval: c_int, attribute_val: Buf, flag: Place<c_int>) |mpi| on comm {
        comm_attribute(mpi, comm, comm_keyval, attribute_val, flag)
    }

    /// Deletes an attribute of a communicator.
    fn MPI_Comm_delete_attr(comm: MPI_Comm, comm_keyval: c_int) |mpi| on comm {
        mpi.comm_delete_attribute(comm.value(), comm_keyval)
    }

    /// Makes a key for attributes of datatypes.
    fn MPI_Type_create_keyval(type_copy_attr_fn: MPI_Type_copy_attr_function, type_delete_attr_fn: MPI_Type_delete_attr_function, type_keyval: Place<c_int>, extra_state: Opaque) |mpi| {
        type_keyval.put("type_keyval", create(mpi, Carrier::Datatype, type_copy_attr_fn, type_delete_attr_fn, extra_state))
    }

    /// Frees a key; its attributes stay.
    fn MPI_Type_free_keyval(type_keyval: Place<c_int>) |mpi| {
        mpi.keyval_free(Carrier::Datatype, type_keyval.take("type_keyval")?)?;
        type_keyval.put("type_keyval", MPI_KEYVAL_INVALID)
    }

    /// Sets an attribute of a datatype.
    fn MPI_Type_set_attr(datatype: MPI_Datatype, type_keyval: c_int, attribute_val: Opaque) |mpi| {
        mpi.datatype_set_attribute(datatype.value(), type_keyval, attribute_val.0 as usize)
    }

    /// An attribute of a datatype.
    fn MPI_Type_get_attr(datatype: MPI_Datatype, type_keyval: c_int, attribute_val: Buf, flag: Place<c_int>) |mpi| {
        let value = mpi.datatype_attribute(datatype.value(), type_keyval)?;
        found(value, attribute_val, flag)
    }

    /// Deletes an attribute of a datatype.
    fn MPI_Type_delete_attr(datatype: MPI_Datatype, type_keyval: c_int) |mpi| {
        mpi.datatype_delete_attribute(datatype.value(), type_keyval)
    }

    /// Makes a key for attributes of windows.
    fn MPI_Win_create_keyval(win_copy_attr_fn: MPI_Win_copy_attr_function, win_delete_attr_fn: MPI_Win_delete_attr_function, win_keyval: Place<c_int>, extra_state: Opaque) |mpi| {
        win_keyval.put("win_keyval", create(mpi, Carrier::Win, win_copy_attr_fn, win_delete_attr_fn, extra_state))
    }

    /// Frees a key; its attributes stay.
    fn MPI_Win_free_keyval(win_keyval: Place<c_int>) |mpi| {
        mpi.keyval_free(Carrier::Win, win_keyval.take("win_keyval")?)?;
        win_keyval.put("win_keyval", MPI_KEYVAL_INVALID)
    }

    /// Sets an attribute of a window.
    fn MPI_Win_set_attr(win: MPI_Win, win_keyval: c_int, attribute_val: Opaque) |mpi| on win {
        mpi.windows().set_attribute(win.value(), win_keyval, attribute_val.0 as usize)
    }

    /// An attribute of a window.
    fn MPI_Win_get_attr(win: MPI_Win, win_keyval: c_int, attribute_val: Buf, flag: Place<c_int>) |mpi| on win {
        found(mpi.windows().attribute(win.value(), win_keyval)?, attribute_val, flag)
    }

    /// Deletes an attribute of a window.
    fn MPI_Win_delete_attr(win: MPI_Win, win_keyval: c_int) |mpi| on win {
        mpi.windows().delete_attribute(win.value(), win_keyval)
    }

    /// `MPI_Comm_create_keyval` of MPI 1.
    fn MPI_Keyval_create(copy_fn: MPI_Copy_function, delete_fn: MPI_Delete_function, keyval: Place<c_int>, extra_state: Opaque) |mpi| {
        keyval.put("keyval", create(mpi, Carrier::Comm, copy_fn, delete_fn, extra_state))
    }

    /// `MPI_Comm_free_keyval` of MPI 1.
    fn MPI_Keyval_free(keyval: Place<c_int>) |mpi| {
        mpi.keyval_free(Carrier::Comm, keyval.take("keyval")?)?;
        keyval.put("keyval", MPI_KEYVAL_INVALID)
    }

    /// `MPI_Comm_set_attr` of MPI 1.
    fn MPI_Attr_put(comm: MPI_Comm, keyval: c_int, attribute_val: Opaque) |mpi| on comm {
        mpi.comm_set_attribute(comm.value(), keyval, attribute_val.0 as usize)
    }

    /// `MPI_Comm_get_attr` of MPI 1.
    fn MPI_Attr_get(comm: MPI_Comm, keyval: c_int, attribute_val: Buf, flag: Place<c_int>) |mpi| on comm {
        comm_attribute(mpi, comm, keyval, attribute_val, flag)
    }

    /// `MPI_Comm_delete_attr` of MPI 1.
    fn MPI_Attr_delete(comm: MPI_Comm, keyval: c_int) |mpi| on comm {
        mpi.comm_delete_attribute(comm.value(), keyval)
    }
}

/// # Safety
/// The C caller vouches for the two: the standard's constants or functions of their forms.
unsafe fn create(
    mpi: &Mpi,
    carrier: Carrier,
    copy: Opaque,
    delete: Opaque,
    extra_state: Opaque,
) -> c_int {
    let functions = Functions {
        copy: copy.0 as usize,
        delete: delete.0 as usize,
        extra_state: extra_state.0 as usize,
    };
    mpi.keyval_create(carrier, Arc::new(functions))
}

/// The values of the standard's keys are addresses of integers.
///
/// # Safety
/// The C caller vouches for the room of a pointer.
unsafe fn comm_attribute(
    mpi: &Mpi,
    comm: MPI_Comm,
    key: c_int,
    attribute_val: Buf,
    flag: Place<c_int>,
) -> Result<()> {
    mpi.comm(comm.value())?;
    let value = match mpi.predefined_attribute(key) {
        Some(place) => place.map(|integer| std::ptr::from_ref(integer) as usize),
        None => mpi.comm_attribute(comm.value(), key)?,
    };
    // SAFETY: by the caller's promise.
    unsafe { found(value, attribute_val, flag) }
}

/// # Safety
/// The C caller vouches for the room of a pointer.
unsafe fn found(value: Option<usize>, attribute_val: Buf, flag: Place<c_int>) -> Result<()> {
    if flag.is_null() {
        fail!(MPI_ERR_ARG, "flag is a null pointer");
    }
    if let Some(value) = value {
        // SAFETY: by the caller's promise.
        unsafe { attribute_val.put_pointer("attribute_val", value) }?;
    }
    flag.put("flag", c_int::from(value.is_some()))
}

/// The functions of a key, as addresses: 0 and 1 are the standard's own.
struct Functions {
    copy: usize,
    delete: usize,
    extra_state: usize,
}

/// The copy function that copies nothing, and the delete function that does nothing.
const NULL_FUNCTION: usize = 0;
/// The copy function that copies the value.
const DUP_FUNCTION: usize = 1;

impl Callbacks for Functions {
    fn copy(&self, old: u32, key: i32, value: usize) -> std::result::Result<Option<usize>, i32> {
        match self.copy {
            NULL_FUNCTION => return Ok(None),
            DUP_FUNCTION => return Ok(Some(value)),
            _ => {}
        }
        // SAFETY: by the promise of `create`; all kinds have this form.
        let function = unsafe { std::mem::transmute::<usize, CopyFunction>(self.copy) };
        let mut new = 0usize;
        let mut flag = 0;
        // SAFETY: the program's function with the arguments that the standard gives it.
        let code = unsafe {
            function(
                old as usize,
                key,
                self.extra_state as *mut c_void,
                value as *mut c_void,
                (&raw mut new).cast(),
                &raw mut flag,
            )
        };
        match code {
            MPI_SUCCESS => Ok((flag != 0).then_some(new)),
            code => Err(code),
        }
    }

    fn delete(&self, object: u32, key: i32, value: usize) -> std::result::Result<(), i32> {
        // The standard's only delete function has the value 0; 1 would be a copy function.
        if self.delete <= DUP_FUNCTION {
            return Ok(());
        }
        // SAFETY: by the promise of `create`; all kinds have this form.
        let function = unsafe { std::mem::transmute::<usize, DeleteFunction>(self.delete) };
        // SAFETY: the program's function with the arguments that the standard gives it.
        let code = unsafe {
            function(
                object as usize,
                key,
                value as *mut c_void,
                self.extra_state as *mut c_void,
            )
        };
        if code == MPI_SUCCESS {
            Ok(())
        } else {
            Err(code)
        }
    }
}
