//! The routines of OpenMP (`omp_*`), which programs of all compilers call, and the one place that
//! looks up the runtime of this process,
//! and its tool. The compilers' own calls are in `abi/gomp` and `abi/kmpc`.

mod affinity_format;
mod kept;
pub mod locks;
pub mod memory;
pub mod region;
pub mod routines;
pub mod runtime;
pub mod tools;

use std::ffi::c_void;

/// The type of an outlined function.
pub type Body = unsafe extern "C-unwind" fn(*mut c_void);

/// Ends the program with an error message.
pub fn fatal(text: &str) -> ! {
    eprintln!("\nlibgomp: {text}");
    std::process::exit(1);
}
