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
mod share;
mod sync;
mod target;
mod task;

use margay_abi_omp::runtime::runtime;
use margay_core_openmp::environment::ENV_COPIES;
use margay_run_openmp::bundled;
use margay_sys_os::heap::CheckedAllocator;
use margay_sys_os::{process, thread_end};

#[global_allocator]
static ALLOCATOR: CheckedAllocator = CheckedAllocator {
    fail: out_of_memory,
};

/// Ends the program without allocating.
#[cold]
fn out_of_memory(bytes: usize) -> ! {
    eprintln!(
        "\nlibgomp: Out of memory allocating {bytes} bytes; use fewer threads, or raise the limit of address space \
         (ulimit -v)"
    );
    std::process::exit(1);
}

/// Runs when the library is loaded.
extern "C" fn start() {
    if process::thread_id() == std::process::id() {
        margay_abi_kmpc::mark_main_thread();
        // Without room for the call a program whose main thread ends before it does not end.
        let _ = thread_end::at_thread_end(|| runtime().main_thread_has_ended());
    }
}

/// Runs when the process exits: by then it has loaded all libraries that it uses.
extern "C" fn end() {
    if std::env::var_os(ENV_COPIES).is_some() {
        let files = process::loaded_files((end as *const ()).addr());
        for line in bundled::report(&files) {
            eprintln!("{line}");
        }
    }
}

// SAFETY: the loader calls each entry once, before `main`, with arguments that `start` does not
// take.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

// SAFETY: the loader calls each entry once, when the process exits, without arguments.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
