//! What MPI-1 had, MPI-2 replaced and MPI-3 removed. The library always has it; `mpi.h` declares it
//! for programs that say that they are of that time (`MARGAY_MPI1`, `mpicc -mpi1`).

use std::ffi::c_int;
use std::sync::Arc;

use margay_core_datatype::{Arguments, Datatype};
use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::fail;

use crate::call::mpi;
use crate::convert::wide;
use crate::datatype::{add, entries, old, several};
use crate::errhandler::UserHandler;
use crate::types::*;
use crate::user::{Buf, ConstBuf, In, Place};

mpi! {
    /// Address in memory.
    removed(MPI_Get_address) fn MPI_Address(location: Buf, address: Place<MPI_Aint>) |_mpi| {
        address.put("address", location.address() as MPI_Aint)
    }

    /// Blocks at equal distances in bytes.
    removed(MPI_Type_create_hvector) fn MPI_Type_hvector(count: c_int, blocklength: c_int, stride: MPI_Aint, oldtype: MPI_Datatype, newtype: Place<MPI_Datatype>) |mpi| {
        let old = old(mpi, oldtype)?;
        add(mpi, Arguments::Small, newtype, Datatype::hvector(count.into(), blocklength.into(), stride as i64, &old)?)
    }

    /// Blocks of given lengths at given displacements in bytes.
    removed(MPI_Type_create_hindexed) fn MPI_Type_hindexed(count: c_int, array_of_blocklengths: In<c_int>, array_of_displacements: In<MPI_Aint>, oldtype: MPI_Datatype, newtype: Place<MPI_Datatype>) |mpi| {
        let n = entries(count.into())?;
        let lengths = wide("array_of_blocklengths", array_of_blocklengths, n)?;
        let displacements = wide("array_of_displacements", array_of_displacements, n)?;
        add(mpi, Arguments::Small, newtype, Datatype::hindexed(&lengths, &displacements, &old(mpi, oldtype)?)?)
    }

    /// Blocks of different datatypes, of which `MPI_LB` and `MPI_UB` set the bounds.
    removed(MPI_Type_create_struct) fn MPI_Type_struct(count: c_int, array_of_blocklengths: In<c_int>, array_of_displacements: In<MPI_Aint>, array_of_types: In<MPI_Datatype>, newtype: Place<MPI_Datatype>) |mpi| {
        let n = entries(count.into())?;
        let lengths = wide("array_of_blocklengths", array_of_blocklengths, n)?;
        let displacements = wide("array_of_displacements", array_of_displacements, n)?;
        let types = several(mpi, array_of_types, n)?;
        add(mpi, Arguments::Small, newtype, Datatype::structure(&lengths, &displacements, &types)?)
    }

    /// Upper bound minus lower bound.
    removed(MPI_Type_get_extent) fn MPI_Type_extent(datatype: MPI_Datatype, extent: Place<MPI_Aint>) |mpi| {
        extent.put("extent", old(mpi, datatype)?.extent() as MPI_Aint)
    }

    /// Lower bound.
    removed(MPI_Type_get_extent) fn MPI_Type_lb(datatype: MPI_Datatype, displacement: Place<MPI_Aint>) |mpi| {
        displacement.put("displacement", old(mpi, datatype)?.lb() as MPI_Aint)
    }

    /// Upper bound.
    removed(MPI_Type_get_extent) fn MPI_Type_ub(datatype: MPI_Datatype, displacement: Place<MPI_Aint>) |mpi| {
        displacement.put("displacement", old(mpi, datatype)?.ub() as MPI_Aint)
    }

    /// Makes an error handler of a function.
    removed(MPI_Comm_create_errhandler) fn MPI_Errhandler_create(function: MPI_Handler_function, errhandler: Place<MPI_Errhandler>) |mpi| {
        let Some(function) = function else {
            fail!(MPI_ERR_ARG, "function is a null pointer");
        };
        errhandler.put("errhandler", MPI_Errhandler::new(mpi.errhandler_create(Arc::new(UserHandler(function)))?))
    }

    /// Gives a communicator an error handler.
    removed(MPI_Comm_set_errhandler) fn MPI_Errhandler_set(comm: MPI_Comm, errhandler: MPI_Errhandler) |mpi| on comm {
        mpi.comm_set_errhandler(comm.value(), errhandler.value())
    }

    /// The error handler of a communicator.
    removed(MPI_Comm_get_errhandler) fn MPI_Errhandler_get(comm: MPI_Comm, errhandler: Place<MPI_Errhandler>) |mpi| on comm {
        errhandler.put("errhandler", MPI_Errhandler::new(mpi.comm_get_errhandler(comm.value())?))
    }

    /// `MPI_Type_hvector` as Fortran has it: the distance is an `INTEGER`, and
    /// `MPI_Type_get_contents` gives it as such.
    fn MPIX_Type_hvector_integer(count: c_int, blocklength: c_int, stride: c_int, oldtype: MPI_Datatype, newtype: Place<MPI_Datatype>) |mpi| {
        let old = old(mpi, oldtype)?;
        add(mpi, Arguments::Fortran, newtype, Datatype::hvector(count.into(), blocklength.into(), stride.into(), &old)?)
    }

    /// `MPI_Type_hindexed` as Fortran has it. For `bottom` see `MPIX_Type_struct_integer`.
    fn MPIX_Type_hindexed_integer(bottom: ConstBuf, count: c_int, array_of_blocklengths: In<c_int>, array_of_displacements: In<c_int>, oldtype: MPI_Datatype, newtype: Place<MPI_Datatype>) |mpi| {
        let n = entries(count.into())?;
        let lengths = wide("array_of_blocklengths", array_of_blocklengths, n)?;
        let displacements = wide("array_of_displacements", array_of_displacements, n)?;
        add(mpi, Arguments::Fortran, newtype, Datatype::hindexed(&lengths, &displacements, &old(mpi, oldtype)?)?.from_bottom(bottom.address() as u64))
    }

    /// `MPI_Type_struct` as Fortran has it. An address does not fit an `INTEGER`, so those
    /// displacements that are addresses are distances from `bottom`: that is what `MPI_BOTTOM`
    /// stands for as a buffer of the type. -1: unknown, and such a buffer an error.
    fn MPIX_Type_struct_integer(bottom: ConstBuf, count: c_int, array_of_blocklengths: In<c_int>, array_of_displacements: In<c_int>, array_of_types: In<MPI_Datatype>, newtype: Place<MPI_Datatype>) |mpi| {
        let n = entries(count.into())?;
        let lengths = wide("array_of_blocklengths", array_of_blocklengths, n)?;
        let displacements = wide("array_of_displacements", array_of_displacements, n)?;
        let types = several(mpi, array_of_types, n)?;
        add(mpi, Arguments::Fortran, newtype, Datatype::structure(&lengths, &displacements, &types)?.from_bottom(bottom.address() as u64))
    }
}
