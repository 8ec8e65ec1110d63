//! The test suite of mpi4py, built against the stage tree: some two thousand tests of nearly all of
//! MPI.
//!
//! Sources come from the Python package index and stay in `target/mpi4py`, as does what is built of
//! them; they are built anew when `mpi.h` changes.
#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread;

use margay_tests::hangs::may_trace;
use margay_tests::jobs::{Ended, Job, Words};
use margay_tests::python::{self, fetch, pip};
use margay_tests::{command, program, run, stage, succeed};

const VERSION: &str = "4.1.2";

/// A folder with an environment of Python in which mpi4py is installed, and its sources. It is made
/// once.
fn built() -> PathBuf {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
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
            .env("CFLAGS", "-O0 -g"),
    );
    fs::write(&file, mark).expect("a file in target");
    folder
}

#[test]
fn the_suite_of_mpi4py_passes() {
    let folder = built();
    let test = folder.join(format!("mpi4py-{VERSION}/test"));
    let passes = |ranks: u32, left_out: &[&str]| {
        // It takes minutes alone on two cores, and four times as long beside all other tests.
        let output = run(command(stage().join("bin/mpiexec"), 1820)
            .args(["-timeout", "1800", "-n", &ranks.to_string()])
            .arg(folder.join("venv/bin/python"))
            .args(["main.py", "--no-builddir"])
            .args(left_out)
            .current_dir(&test));
        let said = String::from_utf8_lossy(&output.stderr);
        let end: String = said.chars().rev().take(6000).collect();
        let end: String = end.chars().rev().collect();
        assert!(output.status.success(), "{ranks} ranks: {end}");
        assert!(said.contains("\nOK"), "{ranks} ranks: {end}");
    };
    // One rank leaves cores to the others.
    thread::scope(|scope| {
        scope.spawn(|| passes(1, &[]));
        // These translate datatypes, in Python and without messages: a minute for each rank that
        // the run with one rank has spent already.
        passes(3, &["-e", "test_util_dtlib"]);
    });
}

/// mpi4py's module has lines of its own, those of a generated file.
#[test]
fn a_deadlock_in_mpi4py_has_the_line_of_the_program() {
    if !may_trace() {
        return;
    }
    let script = program("why/receives.py");
    let mark = fs::read_to_string(&script).unwrap();
    let mark = mark
        .lines()
        .position(|line| line.ends_with("# LINE receive"));
    let line = format!("receives.py:{}", mark.unwrap() + 1);
    let words = Words::default()
        .and(stage().join("bin/mpiexec"))
        .and_all("-timeout 60 -deadlock end -n 2")
        .and(built().join("venv/bin/python"))
        .and(&script);
    let Ended { status, err, .. } = Job::start(&words, 90).ended();
    assert_eq!(status.code(), Some(1), "{err}");
    for (rank, other) in [(0, 1), (1, 0)] {
        let said = format!(
            "rank {rank}: waiting in MPI_Mprobe for rank {other}, tag 5 at {line} in exchange()\n"
        );
        assert!(err.contains(&said), "no {said}: {err}");
    }
}
