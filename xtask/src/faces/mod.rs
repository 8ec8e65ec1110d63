//! The libraries of other MPI implementations' ABIs: `libmpi.so.12` of MPICH, Intel MPI and others,
//! `libmpi.so.40` of Open MPI. Their functions are printed from the same definitions as the
//! standard's, with tables of the values that differ; what no table can say is written by hand in
//! `abi/faces`.

pub mod build;
mod kinds;
mod modules;
mod shim;
mod values;

use std::path::Path;

use crate::fortran::Callers;
use crate::header::{self, Function};
use values::Values;

/// The ABIs: the name of their folder in `abi/faces`, and what programs record that are linked with
/// their library.
pub const FACES: [Face; 2] = [
    Face {
        name: "mpich",
        library: "libmpi.so.12",
        aliases: &[
            "libmpich.so.12",
            // Of C++, and empty for programs that do not use MPI's C++ bindings.
            "libmpicxx.so.12",
            "libmpichcxx.so.12",
        ],
        empty: &[],
        fortran: &["libmpifort.so.12", "libmpichfort.so.12"],
        callers: Callers::Mpich,
    },
    Face {
        name: "openmpi",
        library: "libmpi.so.40",
        // What C++ programs need that do not use MPI's C++ bindings.
        aliases: &["libmpi_cxx.so.40"],
        empty: &["libopen-rte.so.40", "libopen-pal.so.40"],
        fortran: &[
            "libmpi_mpifh.so.40",
            "libmpi_usempif08.so.40",
            "libmpi_usempi_ignore_tkr.so.40",
            "libmpi_mpifh-gfortran.so.40",
            "libmpi_usempif08-gfortran.so.40",
            "libmpi_usempi_ignore_tkr-gfortran.so.40",
        ],
        callers: Callers::OpenMpi,
    },
];

/// An ABI.
pub struct Face {
    /// The folder in `abi/faces`.
    pub name: &'static str,
    /// What programs record that are linked with its library.
    pub library: &'static str,
    /// Other names of the same file.
    pub aliases: &'static [&'static str],
    /// What programs name without calling it, though the implementation's own commands do:
    /// `mpiexec` has these loaded where the system has none.
    pub empty: &'static [&'static str],
    /// The library of its Fortran functions, and other names for it.
    pub fortran: &'static [&'static str],
    /// Whose conventions these have.
    pub callers: Callers,
}

/// Returns the printed sources of a library: names and texts.
///
/// # Errors
/// When a source cannot be read, or a function has a parameter that the tables do not know.
pub fn print(root: &Path, face: &Face) -> Result<Vec<(&'static str, String)>, String> {
    let all = header::functions(&root.join("abi/mpi/src"))?;
    let functions: Vec<&Function> = all.iter().filter(|f| !kinds::is_absent(&f.name)).collect();
    let constants = header::constant_list(root)?;
    let folder = root.join("abi/faces").join(face.name);
    let values = Values::read(&header::read(&folder.join("values.txt"))?)
        .map_err(|e| format!("{}/values.txt: {e}", folder.display()))?;
    let integers = match std::fs::read_to_string(folder.join("integers.txt")) {
        Ok(text) => {
            Values::read(&text).map_err(|e| format!("{}/integers.txt: {e}", folder.display()))?
        }
        Err(_) => Values::default(),
    };
    let mut prototypes = String::new();
    for f in &functions {
        for prefix in ["", "P"] {
            prototypes += &f.prototype(prefix);
            prototypes += ";\n";
        }
    }
    let mpi = header::read(&folder.join("mpi.h.in"))?
        .replace("@constants@\n", &values::defines(&constants, &values))
        .replace("@prototypes@\n", &prototypes);
    let [fortran_functions, fortran_names] =
        crate::fortran::of_other_abi(root, face.callers, |name| !kinds::is_absent(name))?;
    let [often, seldom] = shim::functions(&functions)?;
    let in_fortran = values::in_fortran(&constants, &values, &integers);
    Ok(vec![
        fortran_functions,
        fortran_names,
        ("fortran_modules.ld", modules::names(face.callers)),
        ("fortran_constants.h", in_fortran),
        (
            "integers.h",
            values::integers(&constants, &values, &integers),
        ),
        ("mpi.h", mpi),
        // The glue of Fortran includes it; the extensions are in mpi.h.
        ("mpi_ext.h", "#include \"mpi.h\"\n".to_owned()),
        ("tables.h", values::tables(&constants, &values, &integers)?),
        ("margay.h", shim::declarations(&functions)?),
        ("often.c", often),
        ("seldom.c", seldom),
    ])
}
