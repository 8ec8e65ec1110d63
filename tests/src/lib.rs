//! What acceptance tests share: the stage tree, scratch folders, commands that must succeed, end in
//! time and say things.
#![forbid(unsafe_code)]

pub mod batch;
pub mod browser;
pub mod cluster;
pub mod hangs;
pub mod hosts;
pub mod jobs;
pub mod pfs;
pub mod posix;
pub mod postgres;
pub mod python;
pub mod queue;
pub mod queue_hosts;
pub mod slurm;
pub mod suite;
pub mod users;
pub mod voices;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The stage tree that `make stage` builds: `MARGAY_STAGE`, else `stage/` in the workspace.
///
/// # Panics
/// When it is not there, with the remedy.
pub fn stage() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate lies in a folder");
    let stage =
        std::env::var_os("MARGAY_STAGE").map_or_else(|| workspace.join("stage"), PathBuf::from);
    assert!(
        stage.join("bin/mpiexec").exists(),
        "{}: no stage tree; run `make stage` first",
        stage.display()
    );
    stage
}

/// A file among the programs that tests compile.
pub fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("programs")
        .join(name)
}

/// Whether no two of the CPUs that this process may use belong to one core, as far as the system
/// reports.
pub fn one_cpu_a_core() -> bool {
    let cores: Vec<String> = margay_sys_os::cpu::affinity()
        .iter()
        .map(|cpu| {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            std::fs::read_to_string(path).unwrap_or_else(|_| cpu.to_string())
        })
        .collect();
    let distinct: std::collections::BTreeSet<&String> = cores.iter().collect();
    distinct.len() == cores.len()
}

/// An empty folder that goes away with the value.
///
/// # Panics
/// When the system gives none.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder for temporary files")
}

/// A command as a user whose limits hold: root is exempt from that of processes.
pub fn unprivileged(limit_s: u32) -> Command {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !is_root {
        return command("env", limit_s);
    }
    let mut setpriv = command("setpriv", limit_s);
    setpriv.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    setpriv
}

/// A command bounded to `limit_s` seconds, without standard input, and without variables that would
/// change what the tools of the stage tree do. No signal is ignored in it, however the tests were
/// started.
pub fn command(program: impl AsRef<std::ffi::OsStr>, limit_s: u32) -> Command {
    let mut command = Command::new("timeout");
    margay_sys_os::signal::take_defaults_in(&mut command);
    command
        .args(["-k", "5", &limit_s.to_string()])
        .arg(program)
        .stdin(Stdio::null());
    for name in [
        "MPICC_CC",
        "MPICXX_CXX",
        "MPIFORT_FC",
        "MPIFORT_PREFIX",
        "FC",
        "LD_LIBRARY_PATH",
        "MPI_HOME",
        "CC",
        "CXX",
    ] {
        command.env_remove(name);
    }
    command
}

/// Runs a command to its end, whatever that is.
///
/// # Panics
/// When it cannot be started.
pub fn run(command: &mut Command) -> Output {
    command
        .output()
        .unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"))
}

/// Runs a command that must succeed and gives its standard output.
///
/// # Panics
/// When it does not end with 0; shows all that it printed.
pub fn succeed(command: &mut Command) -> String {
    let output = run(command);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success(),
        "{command:?} ended with {}\n{out}\n{err}",
        output.status
    );
    out
}
