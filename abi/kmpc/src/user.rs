//! Routines of LLVM's and Intel's own (`kmp_*`), and routines of OpenMP that gcc's library lacks.

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicI32, Ordering};

use margay_abi_omp::runtime::{runtime, with};
use margay_run_openmp::environment::Offload;
use margay_run_openmp::team::Context;

/// How long threads wait before they sleep, in milliseconds, and which library is used: what the
/// program sets is only returned to it.
static BLOCKTIME: AtomicI32 = AtomicI32::new(200);
static LIBRARY: AtomicI32 = AtomicI32::new(THROUGHPUT);

const SERIAL: c_int = 1;
const TURNAROUND: c_int = 2;
const THROUGHPUT: c_int = 3;

/// Routines without arguments, for C and for Fortran.
macro_rules! queries {
    ($($name:ident $fortran:ident -> $of:ty $body:block)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C-unwind" fn $name() -> $of $body

        #[unsafe(no_mangle)]
        pub extern "C-unwind" fn $fortran() -> $of {
            $name()
        }
    )*};
}

/// Routines with one number as an argument.
macro_rules! takes {
    ($($name:ident $fortran:ident $($call:ident)? ($value:ident: $number:ty) -> $of:ty $body:block)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C-unwind" fn $name($value: $number) -> $of $body

        $(#[unsafe(no_mangle)]
        pub extern "C-unwind" fn $call(value: $number) -> $of {
            $name(value)
        })?

        /// # Safety
        /// The argument can be read.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $fortran(value: *const $number) -> $of {
            // SAFETY: by the caller's promise.
            $name(unsafe { *value })
        }
    )*};
}

/// Stacks have the size that they have: those of members are made before a program can say more.
fn stack_bytes() -> usize {
    runtime().stack_bytes()
}

queries! {
    kmp_get_blocktime kmp_get_blocktime_ -> c_int { BLOCKTIME.load(Ordering::Relaxed) }
    kmp_get_library kmp_get_library_ -> c_int { LIBRARY.load(Ordering::Relaxed) }
    kmp_get_stacksize kmp_get_stacksize_ -> c_int { c_int::try_from(stack_bytes()).unwrap_or(c_int::MAX) }
    kmp_get_stacksize_s kmp_get_stacksize_s_ -> usize { stack_bytes() }
    kmp_get_num_known_threads kmp_get_num_known_threads_ -> c_int {
        with(|context| context.team.size as c_int)
    }
    kmp_set_library_serial kmp_set_library_serial_ -> () { LIBRARY.store(SERIAL, Ordering::Relaxed); }
    kmp_set_library_turnaround kmp_set_library_turnaround_ -> () {
        LIBRARY.store(TURNAROUND, Ordering::Relaxed);
    }
    kmp_set_library_throughput kmp_set_library_throughput_ -> () {
        LIBRARY.store(THROUGHPUT, Ordering::Relaxed);
    }
    kmp_set_warnings_on kmp_set_warnings_on_ -> () {}
    kmp_set_warnings_off kmp_set_warnings_off_ -> () {}
    omp_in_explicit_task omp_in_explicit_task_ -> c_int { with(|context| c_int::from(context.is_in_explicit_task())) }
}

takes! {
    kmp_set_blocktime kmp_set_blocktime_ kmpc_set_blocktime (time: c_int) -> () {
        BLOCKTIME.store(time.max(0), Ordering::Relaxed);
    }
    kmp_set_library kmp_set_library_ kmpc_set_library (library: c_int) -> () {
        LIBRARY.store(library, Ordering::Relaxed);
    }
    kmp_set_stacksize kmp_set_stacksize_ kmpc_set_stacksize (_bytes: c_int) -> () {}
    kmp_set_stacksize_s kmp_set_stacksize_s_ kmpc_set_stacksize_s (_bytes: usize) -> () {}
    kmp_set_disp_num_buffers kmp_set_disp_num_buffers_ kmpc_set_disp_num_buffers (_count: c_int) -> () {}
}

/// Settings are those of the environment.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn kmp_set_defaults(_: *const c_char) {}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn kmp_set_defaults_(_: *const c_char) {}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn kmpc_set_defaults(_: *const c_char) {}

/// What a tool answers when there is none.
const NO_TOOL: c_int = -2;

#[unsafe(no_mangle)]
pub extern "C-unwind" fn omp_control_tool(_: c_int, _: c_int, _: *mut std::ffi::c_void) -> c_int {
    NO_TOOL
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn omp_control_tool_(
    _: *const c_int,
    _: *const c_int,
    _: *mut std::ffi::c_void,
) -> c_int {
    NO_TOOL
}

const OFFLOAD_DISABLED: c_int = 0;
const OFFLOAD_DEFAULT: c_int = 1;
const OFFLOAD_MANDATORY: c_int = 2;

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_get_target_offload() -> c_int {
    match runtime().environment.offload {
        Offload::Default => OFFLOAD_DEFAULT,
        Offload::Disabled => OFFLOAD_DISABLED,
        Offload::Mandatory => OFFLOAD_MANDATORY,
    }
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_pause_resource(kind: c_int) -> c_int {
    let is_done = matches!(kind, 1 | 2) && with(Context::forget_thread_variables);
    c_int::from(!is_done)
}
