//! The test suite of mpi4py, built against the stage tree: some two thousand tests of nearly all of
//! MPI.
//!
//! Sources come from the Python package index and stay in `target/mpi4py`, as does what is built of
//! them; they are built anew when `mpi.h` changes.
#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;
use std::thread;

use margay_tests::python::{self, fetch, pip};
use margay_tests::{command, run, stage, succeed};

const VERSION: &str = "4.1.2";

/// A folder with an environment of Python in which mpi4py is installed, and its sources.
fn built() -> PathBuf {
    let folder = python::folder("mpi4py");
    let header = fs::read_to_string(stage().join("include/mpi.h")).expect("the stage has mpi.h");
    let mark = format!("{VERSION}\n{}\n{header}", stage().display());
    let file = folder.join("built-for");
    if fs::read_to_string(&file).is_ok_and(|old| old == mark) {
        return folder;
    }
    let _ = fs::remove_file(&file);
    let venv = folder.join("venv");
    python::empty(&venv);
    let sources = folder.join(format!("mpi4py-{VERSION}.tar.gz"));
    if !sources.exists() {
        let name = format!("mpi4py=={VERSION}");
        let what = [
            "download",
            "--no-deps",
            "--no-build-isolation",
            "--no-binary",
            "mpi4py",
            &name,
            "-d",
            ".",
        ];
        fetch(pip(&venv, 300).args(["install", "cython", "setuptools", "wheel", "numpy"]));
        fetch(pip(&venv, 300).args(what).current_dir(&folder));
    }
    succeed(
        command("tar", 60)
            .arg("xzf")
            .arg(&sources)
            .current_dir(&folder),
    );
    succeed(
        pip(&venv, 1200)
            .args([
                "install",
                "--force-reinstall",
                "--no-deps",
                "--no-build-isolation",
            ])
            .arg(folder.join(format!("mpi4py-{VERSION}")))
            .env("MPICC", stage().join("bin/mpicc"))
            .env("CFLAGS", "-O0"),
    );
    fs::write(&file, mark).expect("a file in target");
    folder
}

#[test]
fn the_suite_of_mpi4py_passes() {
    let folder = built();
    let test = folder.join(format!("mpi4py-{VERSION}/test"));
    let passes = |ranks: u32| {
        let output = run(command(stage().join("bin/mpiexec"), 900)
            .args(["-timeout", "880", "-n", &ranks.to_string()])
            .arg(folder.join("venv/bin/python"))
            .args(["main.py", "--no-builddir"])
            .current_dir(&test));
        let said = String::from_utf8_lossy(&output.stderr);
        let end: String = said.chars().rev().take(6000).collect();
        let end: String = end.chars().rev().collect();
        assert!(output.status.success(), "{ranks} ranks: {end}");
        assert!(said.contains("\nOK"), "{ranks} ranks: {end}");
    };
    // One rank leaves cores to the others.
    thread::scope(|scope| {
        scope.spawn(|| passes(1));
        passes(3);
    });
}
