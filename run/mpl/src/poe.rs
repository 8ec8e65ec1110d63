//! Programs that start themselves through POE, as those that IBM's `mpcc` had compiled.

use std::ffi::OsString;

use margay_run_mpi::launcher::{become_launcher, is_in_job};

use crate::deny;
use crate::error::*;

/// Starts this program anew through `poe` if it was started alone and the environment (`MP_PROCS`)
/// or its arguments (`-procs`) say how many tasks there shall be; returns if they do not. `poe`
/// takes its options out of the arguments.
///
/// # Errors
/// When the launcher cannot be started.
pub fn start_anew() -> Result<()> {
    if is_in_job() {
        return Ok(());
    }
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let is_set = std::env::var_os("MP_PROCS").is_some_and(|value| !value.is_empty());
    let is_given = || arguments.iter().any(|word| word == "-procs");
    let keeps_all = || {
        let set = std::env::var_os("MP_NOARGLIST");
        set.is_some_and(|value| value.eq_ignore_ascii_case("yes"))
    };
    if !is_set && (keeps_all() || !is_given()) {
        return Ok(());
    }
    let program = match std::env::current_exe() {
        Ok(program) => program.into_os_string(),
        Err(error) => deny!(MPL_FAULT, "the program does not know its own file: {error}"),
    };
    let words = std::iter::once(program).chain(arguments);
    deny!(MPL_FAULT, "{}", become_launcher("poe", words))
}
