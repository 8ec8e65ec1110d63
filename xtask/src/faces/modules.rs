//! Symbols of the modules that programs were compiled with, where they are other names of functions
//! that are there.

use std::fmt::Write as _;

use crate::fortran::Callers;

/// The functions of the standard for attributes and conversions, as the module's own procedures.
const PREDEFINED: [&str; 10] = [
    "comm_dup_fn",
    "comm_null_copy_fn",
    "comm_null_delete_fn",
    "conversion_fn_null",
    "type_dup_fn",
    "type_null_copy_fn",
    "type_null_delete_fn",
    "win_dup_fn",
    "win_null_copy_fn",
    "win_null_delete_fn",
];

/// Open MPI's types of `MPI_Sizeof`, which has a function for each rank of an array, and their
/// sizes.
const SIZEOFS: [(&str, u32); 12] = [
    ("character", 1),
    ("complex32", 8),
    ("complex64", 16),
    ("complex128", 32),
    ("int8", 1),
    ("int16", 2),
    ("int32", 4),
    ("int64", 8),
    ("logical", 4),
    ("real32", 4),
    ("real64", 8),
    ("real128", 16),
];

/// MPICH's in `mpi`, where there is one for scalars and one for arrays.
const SIZEOFS_OF_MPI: [(&str, u32); 9] = [
    ("ch", 1),
    ("cx", 8),
    ("d", 8),
    ("i", 4),
    ("i1", 1),
    ("i2", 2),
    ("i8", 8),
    ("l", 4),
    ("r", 4),
];

/// MPICH's in `mpi_f08`, which have the bits of a part in their names.
const SIZEOFS_OF_F08: [(&str, u32); 12] = [
    ("character", 1),
    ("logical", 4),
    ("xcomplex32", 8),
    ("xcomplex64", 16),
    ("xcomplex128", 32),
    ("xint8", 1),
    ("xint16", 2),
    ("xint32", 4),
    ("xint64", 8),
    ("xreal32", 4),
    ("xreal64", 8),
    ("xreal128", 16),
];

/// Returns a linker script.
pub fn names(callers: Callers) -> String {
    let mut text = String::from("/* Printed by `cargo xtask stage`. */\n");
    let mut same = |name: &str, of: &str| {
        writeln!(text, "{name} = {of};").expect("a string grows");
    };
    for name in PREDEFINED {
        same(
            &format!("__mpi_f08_callbacks_MOD_mpi_{name}"),
            &format!("mpi_{name}_"),
        );
    }
    if callers == Callers::OpenMpi {
        for (ty, size) in SIZEOFS {
            for rank in 0..16 {
                let of = if rank == 0 {
                    "scalar".to_owned()
                } else {
                    format!("r{rank}")
                };
                for prefix in ["", "p"] {
                    same(
                        &format!("{prefix}mpi_sizeof_{ty}_{of}_"),
                        &format!("margay_sizeof_{size}"),
                    );
                }
            }
        }
        same("mpi_f_sync_reg_f08_", "mpi_f_sync_reg_");
    } else {
        same(
            "__mpi_f08_callbacks_MOD_mpi_conversion_fn_null_c",
            "mpi_conversion_fn_null_c_",
        );
        for (ty, size) in SIZEOFS_OF_MPI {
            for end in ["", "v"] {
                same(
                    &format!("__mpi_sizeofs_MOD_mpi_sizeof_{ty}{end}"),
                    &format!("margay_sizeof_{size}"),
                );
            }
        }
        for (ty, size) in SIZEOFS_OF_F08 {
            same(
                &format!("__mpi_f08_types_MOD_mpi_sizeof_{ty}"),
                &format!("margay_sizeof_{size}"),
            );
        }
        same("__mpi_f08_types_MOD_mpi_status_f2f08", "mpi_status_f2f08_");
        same("__mpi_f08_types_MOD_mpi_status_f082f", "mpi_status_f082f_");
    }
    text
}
