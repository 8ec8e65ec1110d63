//! The launcher, as processes find and run it: to start processes of a job, or to become it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use margay_sys_os::process::library_path;
use margay_sys_shm::environment::{ENV_LAUNCHER, ENV_SEGMENT};

/// Returns the launcher: that of this job, else the one beside this library, else what `PATH` has.
#[must_use]
pub fn launcher() -> PathBuf {
    if let Some(path) = std::env::var_os(ENV_LAUNCHER) {
        return path.into();
    }
    let beside = library_path("libmpi_abi.so")
        .and_then(|library| Some(library.parent()?.parent()?.join("bin/mpiexec")))
        .filter(|path| path.is_file());
    beside.unwrap_or_else(|| "mpiexec".into())
}

/// Whether this process belongs to a job.
#[must_use]
pub fn is_in_job() -> bool {
    std::env::var_os(ENV_SEGMENT).is_some()
}

/// Replaces this process by the launcher, called by one of its names and with these words. Returns
/// why that failed.
pub fn become_launcher(name: &str, words: impl IntoIterator<Item = OsString>) -> String {
    let launcher = launcher();
    let error = Command::new(&launcher).arg0(name).args(words).exec();
    format!("cannot run the launcher '{}': {error}", launcher.display())
}
