//! Reduction operations.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use margay_run_mpi::constants::address::MPI_IN_PLACE;
use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::constants::op::MPI_OP_NULL;
use margay_run_mpi::fail;
use margay_run_mpi::op::{Bound, Function, reduce_at_once};
use margay_sys_os::user::Mem;

use crate::call::mpi;
use crate::convert::{Int, operand, short};
use crate::types::*;
use crate::user::{Buf, ConstBuf, Place};

mpi! {
    /// Makes an operation of a function.
    fn MPI_Op_create(user_fn: MPI_User_function, commute: c_int, op: Place<MPI_Op>) |mpi| {
        let Some(function) = user_fn else {
            fail!(MPI_ERR_ARG, "user_fn is a null pointer");
        };
        op.put("op", MPI_Op::new(mpi.op_create(Arc::new(Small(function)), commute != 0)?))
    }

    /// Makes an operation of a function that takes 64-bit counts.
    fn MPI_Op_create_c(user_fn: MPI_User_function_c, commute: c_int, op: Place<MPI_Op>) |mpi| {
        let Some(function) = user_fn else {
            fail!(MPI_ERR_ARG, "user_fn is a null pointer");
        };
        op.put("op", MPI_Op::new(mpi.op_create(Arc::new(Large(function)), commute != 0)?))
    }

    /// Frees an operation.
    fn MPI_Op_free(op: Place<MPI_Op>) |mpi| {
        mpi.op_free(op.take("op")?.value())?;
        op.put("op", MPI_Op::new(MPI_OP_NULL))
    }

    /// Whether an operation commutes.
    fn MPI_Op_commutative(op: MPI_Op, commute: Place<c_int>) |mpi| {
        commute.put("commute", c_int::from(mpi.op(op.value())?.commutes()))
    }

    /// Reduces two buffers of this process.
    count fn MPI_Reduce_local(inbuf: ConstBuf, inoutbuf: Buf, count: Count, datatype: MPI_Datatype, op: MPI_Op) |mpi| {
        let is_memory = inbuf.address() > MPI_IN_PLACE && inoutbuf.address() > MPI_IN_PLACE;
        if let Some(bytes) = short(count.wide(), datatype)
            && is_memory
            && inbuf.address() != inoutbuf.address()
            && reduce_at_once(op.value(), datatype.value(), inbuf.buf().piece(bytes), inoutbuf.piece(bytes))
        {
            return Ok(());
        }
        let left = operand(mpi, ("inbuf", "count"), inbuf.buf(), count.wide(), datatype)?;
        let right = operand(mpi, ("inoutbuf", "count"), inoutbuf, count.wide(), datatype)?;
        if inbuf.address() == inoutbuf.address() && left.count > 0 && inbuf.address() != MPI_IN_PLACE {
            fail!(MPI_ERR_BUFFER, "inbuf and inoutbuf are the same");
        }
        let op = mpi.op_for(op.value(), &left.datatype)?;
        mpi.reduce_local(&Bound::new(op, &mpi.datatype(datatype.value())?), &left.mem, &right);
        Ok(())
    }
}

/// A function with `int` counts.
struct Small(unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut MPI_Datatype));

/// A function with 64-bit counts.
struct Large(unsafe extern "C" fn(*mut c_void, *mut c_void, *mut MPI_Count, *mut MPI_Datatype));

impl Function for Small {
    fn apply(&self, input: &Mem, inout: &Mem, count: u64, extent: i64, datatype: u32) {
        let mut done = 0;
        while done < count {
            let part = c_int::try_from(count - done).unwrap_or(c_int::MAX);
            let mut n = part;
            let offset = (done as i64).wrapping_mul(extent) as isize;
            let mut handle = MPI_Datatype::new(datatype);
            // SAFETY: the program's function with the arguments that the standard gives it: `n`
            // elements of the datatype in both buffers.
            unsafe {
                (self.0)(
                    input.address().wrapping_add_signed(offset) as *mut c_void,
                    inout.address().wrapping_add_signed(offset) as *mut c_void,
                    &raw mut n,
                    &raw mut handle,
                );
            }
            done += part as u64;
        }
    }
}

impl Function for Large {
    fn apply(&self, input: &Mem, inout: &Mem, count: u64, _extent: i64, datatype: u32) {
        let mut n = count as MPI_Count;
        let mut handle = MPI_Datatype::new(datatype);
        // SAFETY: as above.
        unsafe {
            (self.0)(
                input.address() as *mut c_void,
                inout.address() as *mut c_void,
                &raw mut n,
                &raw mut handle,
            );
        }
    }
}
