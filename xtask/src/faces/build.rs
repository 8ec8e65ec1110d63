//! The libraries of an ABI beside its first one: for Fortran, and under other names.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::Face;
use crate::command::output;
use crate::fortran::Callers;
use crate::put::copy;
use crate::tools::Tools;
use crate::{debug_info, workspace};

/// Those in place of which the loader takes the symbols of the system's own, if that has one: it
/// needs no more of the library for C than ours has.
const FILTERED: [&str; 3] = ["libmpicxx.so.12", "libmpichcxx.so.12", "libmpi_cxx.so.40"];

/// Makes libraries that need the library, one for each of the names. They are not links, because a
/// wheel has none.
///
/// # Errors
/// When the compiler fails or a file cannot be written.
pub fn other_names(
    tools: &Tools,
    folder: &Path,
    to: &Path,
    library: &str,
    names: &[&str],
) -> Result<()> {
    for name in names {
        let alias = folder.join(name);
        let mut cc = Command::new(tools.cc());
        cc.args(["-shared", "-nostdlib", "-Wl,--no-as-needed"])
            .args([&format!("-Wl,-soname,{name}"), "-Wl,-rpath,$ORIGIN"])
            .args(
                FILTERED
                    .contains(name)
                    .then(|| format!("-Wl,-f,/usr/$LIB/{name}")),
            )
            .arg(to.join("lib/faces").join(library))
            .arg("-o")
            .arg(&alias);
        output(&mut cc)?;
        copy(&alias, &to.join("lib/faces").join(name), 0o755)?;
    }
    Ok(())
}

/// Makes libraries without anything in them, in a folder in which no program looks.
///
/// # Errors
/// As [`other_names`].
pub fn empty(tools: &Tools, face: &Face, folder: &Path, to: &Path) -> Result<()> {
    for name in face.empty {
        let made = folder.join(name);
        let mut cc = Command::new(tools.cc());
        cc.args(["-shared", "-nostdlib", &format!("-Wl,-soname,{name}")])
            .args(["-x", "c", "/dev/null", "-o"])
            .arg(&made);
        output(&mut cc)?;
        copy(&made, &to.join("lib/faces/empty").join(name), 0o755)?;
    }
    Ok(())
}

/// Compiles the library of the ABI's Fortran functions: the same glue as the standard ABI's, over
/// this ABI's `mpi.h`. No Fortran compiler is needed.
///
/// # Errors
/// As [`other_names`].
pub fn fortran(tools: &Tools, face: &Face, folder: &Path, to: &Path) -> Result<()> {
    let (glue, by_hand) = (
        workspace().join("abi/fortran"),
        workspace().join("abi/faces"),
    );
    let own = by_hand.join(face.name);
    let library = face.fortran[0];
    let made = folder.join(library);
    let mut cc = Command::new(tools.cc());
    cc.args(["-std=gnu11", "-Os", "-fPIC", "-fno-plt", "-shared"])
        .args(["-Wall", "-Wextra", "-Werror", "-Wno-cast-function-type"])
        .args(["-fno-strict-aliasing", "-DMARGAY_FACE"])
        .args(["-Wl,-z,defs", "-Wl,-z,now", "-Wl,--enable-new-dtags"])
        .arg("-Wl,-rpath,$ORIGIN")
        .arg(format!("-Wl,-soname,{library}"));
    // Fortran's functions of Open MPI cannot be seen by tools for C, those of MPICH can.
    if face.callers == Callers::OpenMpi {
        cc.arg("-DMARGAY_FACE_PROFILED");
    }
    for include in [folder, own.as_path(), by_hand.as_path(), glue.as_path()] {
        cc.arg("-I").arg(include);
    }
    let mut sources = vec![
        folder.join("fortran_functions.c"),
        by_hand.join("fortran.c"),
    ];
    for (of, is_part) in [(&glue, in_glue as fn(&str) -> bool), (&own, in_own)] {
        for entry in std::fs::read_dir(of)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if is_part(&name) {
                sources.push(path);
            }
        }
    }
    sources.sort();
    cc.args(&sources)
        .arg(folder.join("fortran_names.ld"))
        .arg(folder.join("fortran_modules.ld"))
        .arg(to.join("lib/faces").join(face.library))
        .arg("-o")
        .arg(&made);
    output(&mut cc)?;
    debug_info::split(&made, to, &format!("lib/faces/{library}"))?;
    other_names(tools, folder, to, library, &face.fortran[1..])
}

/// All of the glue but what is known of the compiler that the modules are for.
fn in_glue(name: &str) -> bool {
    name.ends_with(".c") && name != "facts.c"
}

fn in_own(name: &str) -> bool {
    name.ends_with(".c") && name.starts_with("fortran_")
}
