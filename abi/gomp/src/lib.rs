//! `libgomp.so.1`: the functions that code compiled by gcc and gfortran for OpenMP calls, and the
//! routines of OpenMP.
//!
//! Names and versions are those of GCC 12 (`symbols.txt`, from which the linker's version script is
//! made). Each function checks, converts and calls `margay-run-openmp`. What the compiler
//! guarantees about the pointers that it passes is documented at the wrapper types of
//! `margay_sys_threads::outlined`.
#![allow(non_snake_case)]

mod loops;
mod memory;
mod parallel;
mod routines;
mod runtime;
mod share;
mod sync;
mod target;
mod task;

use std::ffi::c_void;

use margay_run_openmp::environment;

use crate::runtime::runtime;

/// The type of an outlined function.
pub(crate) type Body = unsafe extern "C-unwind" fn(*mut c_void);

/// Ends the program with an error message.
pub(crate) fn fatal(text: &str) -> ! {
    eprintln!("\nlibgomp: {text}");
    std::process::exit(1);
}

/// Runs when the library is loaded.
extern "C" fn start() {
    // Reports invalid values of variables, too, whether or not the program ever forks.
    let runtime = runtime();
    if let Some(verbose) = environment::display_wanted() {
        eprint!("{}", runtime.environment.display(&runtime.icvs, verbose));
    }
}

// SAFETY: the loader calls each entry once, before `main`, with arguments that `start` does not
// take.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;
