//! Prints the generated part of the Fortran bindings from the one definition of each function and
//! each constant: modules, `mpif.h` and the C functions that Fortran calls. What is the same for
//! all functions is written by hand in `abi/fortran`.

mod constants;
mod glue;
mod interface;
mod model;
mod table;
mod types;

use std::path::Path;

use crate::header;
pub use glue::Callers;
use model::Routine;

/// Returns the generated files: name and text.
///
/// # Errors
/// When a source cannot be read, or a function has a parameter that the tables do not know.
pub fn print(root: &Path) -> Result<Vec<(&'static str, String)>, String> {
    let routines = routines(root, |_| true)?;
    let mut values = header::constant_list(root)?;
    values.retain(|constant| !header::is_extension(&constant.name));
    Ok(vec![
        ("mpif.h", constants::mpif(&values)),
        ("mpi_sizeofs.F90", types::sizeofs()),
        ("mpi_f08_types.f90", types::types()),
        ("mpi_kinds.f90", constants::kinds()),
        ("mpi_constants.f90", constants::mpi(&values)),
        ("mpi_f08_constants.f90", constants::f08(&values)),
        ("mpi_f08_callbacks.f90", interface::callbacks()),
        ("mpi_interfaces.f90", interface::mpi(&routines)),
        ("mpi_f08_interfaces.f90", interface::f08(&routines)),
        ("mpi_functions.c", glue::print(&routines, Callers::Standard)),
    ])
}

/// Returns the C functions for Fortran programs of another ABI: names and texts. `has`: whether the
/// ABI has the function.
///
/// # Errors
/// As [`print()`].
pub fn of_other_abi(
    root: &Path,
    callers: Callers,
    has: impl Fn(&str) -> bool,
) -> Result<[(&'static str, String); 2], String> {
    let routines = routines(root, has)?;
    Ok([
        ("fortran_functions.c", glue::print(&routines, callers)),
        ("fortran_names.ld", glue::names(&routines, callers)),
    ])
}

fn routines(root: &Path, has: impl Fn(&str) -> bool) -> Result<Vec<Routine>, String> {
    header::functions(&root.join("abi/mpi/src"))?
        .iter()
        .filter(|f| !table::is_c_only(&f.name) && !header::is_extension(&f.name) && has(&f.name))
        .map(|f| Routine::of(&f.name, &f.result, &f.parameters))
        .collect()
}
