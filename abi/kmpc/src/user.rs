//! Routines of LLVM's and Intel's own (`kmp_*`), and routines of OpenMP that gcc's library lacks.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

use margay_abi_omp::routines::omp_get_schedule;
use margay_abi_omp::runtime::{runtime, with};
use margay_abi_omp::tools;
use margay_core_openmp::schedule::Kind;
use margay_run_openmp::environment::Offload;
use margay_run_openmp::icv::UNSET_SCHEDULE;
use margay_run_openmp::team::Context;

/// How long threads wait before they sleep, in milliseconds (negative until the program says it),
/// and which library is used: what the program sets is only returned to it.
static BLOCKTIME: AtomicI32 = AtomicI32::new(-1);
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

/// libomp's default, in milliseconds.
const DEFAULT_BLOCKTIME: c_int = 200;

fn blocktime() -> c_int {
    match (
        BLOCKTIME.load(Ordering::Relaxed),
        runtime().environment.wait_policy,
    ) {
        (said @ 0.., _) => said,
        (_, Some(true)) => c_int::MAX,
        (_, Some(false)) => 0,
        (_, None) => DEFAULT_BLOCKTIME,
    }
}

queries! {
    kmp_get_blocktime kmp_get_blocktime_ -> c_int { blocktime() }
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

/// `omp_get_schedule` for LLVM's programs: static where nobody has said which.
///
/// # Safety
/// Both can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn margay_kmp_get_schedule(kind: *mut u32, chunk: *mut c_int) {
    // SAFETY: by the caller's promise.
    unsafe {
        let schedule = with(|context| context.icv.get().schedule);
        omp_get_schedule(kind, chunk);
        if schedule == UNSET_SCHEDULE {
            kind.write(Kind::Static as u32);
            chunk.write(0);
        } else if schedule == runtime().environment.initial.schedule
            && schedule.kind == Kind::Static
            && !runtime().environment.says_monotonic
        {
            // That a static schedule is monotonic goes without saying.
            kind.write(Kind::Static as u32);
        }
    }
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn margay_kmp_get_schedule_(kind: *mut u32, chunk: *mut c_int) {
    // SAFETY: by the caller's promise.
    unsafe { margay_kmp_get_schedule(kind, chunk) };
}

/// The predefined allocators and memory spaces, for programs that do not have their numbers from
/// the header.
macro_rules! constants {
    ($($name:ident $value:literal;)*) => {$(
        #[unsafe(no_mangle)]
        pub static $name: usize = $value;
    )*};
}

constants! {
    omp_null_allocator 0;
    omp_default_mem_alloc 1;
    omp_large_cap_mem_alloc 2;
    omp_const_mem_alloc 3;
    omp_high_bw_mem_alloc 4;
    omp_low_lat_mem_alloc 5;
    omp_cgroup_mem_alloc 6;
    omp_pteam_mem_alloc 7;
    omp_thread_mem_alloc 8;
    omp_default_mem_space 0;
    omp_large_cap_mem_space 1;
    omp_const_mem_space 2;
    omp_high_bw_mem_space 3;
    omp_low_lat_mem_space 4;
}

/// An `omp_interop_t` refers to an object of a device's runtime, and there is no device: it has no
/// properties.
macro_rules! interop {
    ($($name:ident $fortran:ident -> $of:ty: $none:expr;)*) => {$(
        /// # Safety
        /// `result` is null or can be written.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            _object: *const c_void, _property: c_int, result: *mut c_int,
        ) -> $of {
            if !result.is_null() {
                // SAFETY: by the caller's promise.
                unsafe { result.write(NO_OBJECT) };
            }
            $none
        }

        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $fortran(
            object: *const c_void, _property: *const c_int, result: *mut c_int,
        ) -> $of {
            // SAFETY: by the caller's promise.
            unsafe { $name(object, 0, result) }
        }
    )*};
}

/// `omp_irc_empty`
const NO_OBJECT: c_int = -1;

interop! {
    omp_get_interop_int omp_get_interop_int_ -> isize: 0;
    omp_get_interop_ptr omp_get_interop_ptr_ -> *const c_void: std::ptr::null();
    omp_get_interop_str omp_get_interop_str_ -> *const c_char: std::ptr::null();
    omp_get_interop_name omp_get_interop_name_ -> *const c_char: std::ptr::null();
    omp_get_interop_type_desc omp_get_interop_type_desc_ -> *const c_char: std::ptr::null();
    omp_get_interop_rc_desc omp_get_interop_rc_desc_ -> *const c_char: std::ptr::null();
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn omp_get_num_interop_properties(_object: *const c_void) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn omp_get_num_interop_properties_(_object: *const c_void) -> c_int {
    0
}

/// What the program has set by [`kmp_set_defaults`]; -1 before.
static OFFLOAD: AtomicI32 = AtomicI32::new(-1);

/// `NAME=value`, as in the environment. Of what may be set here only `OMP_TARGET_OFFLOAD` is read
/// after the library has begun; the rest is ignored.
///
/// # Safety
/// A string.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn kmp_set_defaults(setting: *const c_char) {
    // SAFETY: by the caller's promise.
    let setting = unsafe { CStr::from_ptr(setting) }.to_string_lossy();
    if let Some(("OMP_TARGET_OFFLOAD", value)) = setting.split_once('=') {
        let offload = Offload::of(value).unwrap_or(Offload::Default);
        OFFLOAD.store(offload_number(offload), Ordering::Relaxed);
    }
}

/// Fortran's string has no end that could be seen here: ignored.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn kmp_set_defaults_(_: *const c_char) {}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn kmpc_set_defaults(setting: *const c_char) {
    // SAFETY: by the caller's promise.
    unsafe { kmp_set_defaults(setting) };
}

/// # Safety
/// The tool takes the argument.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_control_tool(
    command: c_int,
    modifier: c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { tools::control_tool(command, modifier, argument) }
}

/// # Safety
/// The numbers can be read; the tool takes the argument.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_control_tool_(
    command: *const c_int,
    modifier: *const c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { tools::control_tool(*command, *modifier, argument) }
}

const OFFLOAD_DISABLED: c_int = 0;
const OFFLOAD_DEFAULT: c_int = 1;
const OFFLOAD_MANDATORY: c_int = 2;

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_get_target_offload() -> c_int {
    match OFFLOAD.load(Ordering::Relaxed) {
        said @ 0.. => said,
        _ => offload_number(runtime().environment.offload),
    }
}

fn offload_number(offload: Offload) -> c_int {
    match offload {
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
