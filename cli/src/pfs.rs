//! `margay pfs`: the parallel file system, which is a program of its own beside this one.
//!
//! Whether the options are right has been checked before it runs, so wrong options are reported in
//! the same way whether it is installed or not.

use std::ffi::OsString;

use margay_svc_pfs_options::PROGRAM;

use crate::bench::replace;

/// Replaces this process by the program; returns only with the reason why that failed.
pub fn run(arguments: &[OsString]) -> String {
    replace("the parallel file system", PROGRAM, arguments)
}
