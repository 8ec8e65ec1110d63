//! From a C call to the rank and back: the macros that define functions, the look-up of the rank, raising of errors.

use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use margay_run_mpi::Mpi;
use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::errhandler::Action;
use margay_run_mpi::error::Error;

/// Defines exported functions. Each definition yields `MPI_x` and `PMPI_x` (two symbols of equal standing, so that a
/// tool's own `MPI_x` takes the place of ours and calls `PMPI_x`; the library itself calls neither), the prototypes in
/// `mpi.h`, the name in displays and error messages, and the lines of `symbols.txt` (`cargo xtask header`).
///
/// `fn NAME(parameters) |mpi| on comm { body }`: the body sees the rank as `mpi`, gives a `Result<()>`, and its error
/// goes to the error handler of `comm`. Without `|mpi|` the body is the whole function, and `-> T` may say what it
/// returns. `count fn` makes a second function `NAME_c`, in which `Count` is `MPI_Count` instead of `int`, `Disp` (the
/// displacements of collectives) `MPI_Aint` instead of `int`, `AintCount` `MPI_Count` instead of `MPI_Aint`.
macro_rules! mpi {
    () => {};
    ($(#[$doc:meta])* count fn $name:ident ( $($arg:ident : $ty:ty),* $(,)? ) |$mpi:ident| $(on $on:ident)? $body:block $($rest:tt)*) => {
        const _: () = {
            $crate::call::small_counts!();
            $crate::call::define!($(#[$doc])* $name, "", ($($arg: $ty),*), $mpi, ($($on)?), $body);
        };
        const _: () = {
            $crate::call::large_counts!();
            $crate::call::define!($(#[$doc])* $name, "_c", ($($arg: $ty),*), $mpi, ($($on)?), $body);
        };
        $crate::call::mpi!($($rest)*);
    };
    ($(#[$doc:meta])* fn $name:ident ( $($arg:ident : $ty:ty),* $(,)? ) |$mpi:ident| $(on $on:ident)? $body:block $($rest:tt)*) => {
        const _: () = { $crate::call::define!($(#[$doc])* $name, "", ($($arg: $ty),*), $mpi, ($($on)?), $body); };
        $crate::call::mpi!($($rest)*);
    };
    ($(#[$doc:meta])* fn $name:ident ( $($arg:ident : $ty:ty),* $(,)? ) -> $result:ty $body:block $($rest:tt)*) => {
        const _: () = { $crate::call::export!($(#[$doc])* $name, "", ($($arg: $ty),*), $result, $body); };
        $crate::call::mpi!($($rest)*);
    };
}

/// Defines the three forms of a collective operation: blocking, nonblocking (with a request) and persistent (with an
/// info and a request). `fn A, B, C(parameters) |mpi, group| on comm { body }`: the body gives the operation, a
/// `Result<Operation>`, and sees the communicator of the parameter `comm` as `group`.
macro_rules! collective {
    () => {};
    ($(#[$doc:meta])* count fn $blocking:ident, $nonblocking:ident, $persistent:ident ( $($arg:ident : $ty:ty),* $(,)? ) |$mpi:ident, $group:ident| on $on:ident $body:block $($rest:tt)*) => {
        const _: () = {
            $crate::call::small_counts!();
            $crate::call::forms!($(#[$doc])* "", $blocking, $nonblocking, $persistent, ($($arg: $ty),*), $mpi, $group, $on, $body);
        };
        const _: () = {
            $crate::call::large_counts!();
            $crate::call::forms!($(#[$doc])* "_c", $blocking, $nonblocking, $persistent, ($($arg: $ty),*), $mpi, $group, $on, $body);
        };
        $crate::call::collective!($($rest)*);
    };
    ($(#[$doc:meta])* fn $blocking:ident, $nonblocking:ident, $persistent:ident ( $($arg:ident : $ty:ty),* $(,)? ) |$mpi:ident, $group:ident| on $on:ident $body:block $($rest:tt)*) => {
        const _: () = {
            $crate::call::forms!($(#[$doc])* "", $blocking, $nonblocking, $persistent, ($($arg: $ty),*), $mpi, $group, $on, $body);
        };
        $crate::call::collective!($($rest)*);
    };
}

macro_rules! forms {
    ($(#[$doc:meta])* $suffix:literal, $blocking:ident, $nonblocking:ident, $persistent:ident, ($($arg:ident : $ty:ty),*), $mpi:ident, $group:ident, $on:ident, $body:block) => {
        #[allow(clippy::too_many_arguments)]
        fn operation($mpi: &margay_run_mpi::Mpi, $group: &std::sync::Arc<margay_run_mpi::Comm>, $($arg: $ty),*)
            -> margay_run_mpi::error::Result<margay_run_mpi::Operation> {
            let _ = ($mpi, $group, $on);
            $body
        }
        const _: () = {
            $crate::call::define!($(#[$doc])* $blocking, $suffix, ($($arg: $ty),*), mpi, ($on), {
                let group = mpi.comm($on.value())?;
                let operation = operation(mpi, &group, $($arg),*)?;
                mpi.collective(&group, operation)
            });
        };
        const _: () = {
            $crate::call::define!($(#[$doc])* $nonblocking, $suffix, ($($arg: $ty,)* request: Place<MPI_Request>), mpi, ($on), {
                let group = mpi.comm($on.value())?;
                let operation = operation(mpi, &group, $($arg),*)?;
                request.put("request", MPI_Request::new(mpi.icollective(&group, &operation)?))
            });
        };
        const _: () = {
            $crate::call::define!($(#[$doc])* $persistent, $suffix, ($($arg: $ty,)* info: MPI_Info, request: Place<MPI_Request>), mpi, ($on), {
                let group = mpi.comm($on.value())?;
                mpi.check_info(info.value())?;
                let operation = operation(mpi, &group, $($arg),*)?;
                request.put("request", MPI_Request::new(mpi.collective_init(&group, operation)?))
            });
        };
    };
}

/// One function with the rank in scope.
macro_rules! define {
    ($(#[$doc:meta])* $name:ident, $suffix:literal, ($($arg:ident : $ty:ty),*), $mpi:ident, ($($on:ident)?), $body:block) => {
        $crate::call::export!($(#[$doc])* $name, $suffix, ($($arg: $ty),*), std::ffi::c_int, {
            static CALL: [u64; 4] = margay_sys::segment::call_name(concat!(stringify!($name), $suffix));
            let name = concat!(stringify!($name), $suffix);
            let Some($mpi) = $crate::call::current() else {
                return $crate::call::outside(name);
            };
            $mpi.note_call(&CALL);
            let run = || -> margay_run_mpi::error::Result<()> { $body };
            match run() {
                Ok(()) => margay_run_mpi::constants::error_class::MPI_SUCCESS,
                Err(error) => $crate::call::raise($mpi, name, $crate::call::handle_of!($($on)?), error),
            }
        });
    };
}

macro_rules! handle_of {
    () => {
        None
    };
    ($on:ident) => {
        Some($on.value())
    };
}

/// The two symbols of one function.
macro_rules! export {
    ($(#[$doc:meta])* $name:ident, $suffix:literal, ($($arg:ident : $ty:ty),*), $result:ty, $body:block) => {
        #[inline(never)]
        #[allow(clippy::too_many_arguments)]
        extern "C" fn body($($arg: $ty),*) -> $result $body

        $(#[$doc])*
        #[unsafe(export_name = concat!("P", stringify!($name), $suffix))]
        #[allow(clippy::too_many_arguments)]
        extern "C" fn profiled($($arg: $ty),*) -> $result {
            body($($arg),*)
        }

        $(#[$doc])*
        #[unsafe(export_name = concat!(stringify!($name), $suffix))]
        #[allow(clippy::too_many_arguments)]
        extern "C" fn plain($($arg: $ty),*) -> $result {
            body($($arg),*)
        }
    };
}

macro_rules! small_counts {
    () => {
        #[allow(dead_code)]
        type Count = std::ffi::c_int;
        #[allow(dead_code)]
        type Disp = std::ffi::c_int;
        #[allow(dead_code)]
        type AintCount = $crate::types::MPI_Aint;
        #[allow(dead_code)]
        const LARGE: bool = false;
    };
}

macro_rules! large_counts {
    () => {
        #[allow(dead_code)]
        type Count = $crate::types::MPI_Count;
        #[allow(dead_code)]
        type Disp = $crate::types::MPI_Aint;
        #[allow(dead_code)]
        type AintCount = $crate::types::MPI_Count;
        #[allow(dead_code)]
        const LARGE: bool = true;
    };
}

pub(crate) use {collective, define, export, forms, handle_of, large_counts, mpi, small_counts};

/// Where the process stands in its life with MPI.
const BEFORE: u32 = 0;
const RUNNING: u32 = 1;
const AFTER: u32 = 2;

static PHASE: AtomicU32 = AtomicU32::new(BEFORE);
static CURRENT: AtomicPtr<Mpi> = AtomicPtr::new(std::ptr::null_mut());

/// The rank of the calling thread: the one look-up through which all of the library's state is reached.
#[inline]
pub fn current() -> Option<&'static Mpi> {
    let mpi = CURRENT.load(Ordering::Acquire);
    // SAFETY: the pointer is null or from `Box::into_raw` in `begin`, and stays valid until `end`, after which the
    // standard does not allow another thread to be inside of the library.
    unsafe { mpi.as_ref() }
}

/// Whether MPI has been initialized in this process, be it finalized or not.
pub fn is_initialized() -> bool {
    PHASE.load(Ordering::Acquire) != BEFORE
}

/// Whether MPI has been finalized in this process.
pub fn is_finalized() -> bool {
    PHASE.load(Ordering::Acquire) == AFTER
}

/// Makes `mpi` the rank of this process.
pub fn begin(mpi: Box<Mpi>) {
    CURRENT.store(Box::into_raw(mpi), Ordering::Release);
    PHASE.store(RUNNING, Ordering::Release);
}

/// Takes the rank away from the process.
pub fn end() -> Option<Box<Mpi>> {
    PHASE.store(AFTER, Ordering::Release);
    let mpi = CURRENT.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: the pointer came from `Box::into_raw` in `begin` and was taken out of `CURRENT` just now, once.
    (!mpi.is_null()).then(|| unsafe { Box::from_raw(mpi) })
}

/// A call before init or after finalize: there is no communicator whose handler could be asked, so it is fatal.
#[cold]
pub fn outside(name: &str) -> c_int {
    if is_finalized() {
        eprintln!("{name}: called after MPI_Finalize; call it before");
    } else {
        eprintln!("{name}: called before MPI_Init; call MPI_Init or MPI_Init_thread first");
    }
    std::process::exit(MPI_ERR_OTHER)
}

/// Raises `error`: completes its message, asks the error handler of the communicator, of the error's own one if it has
/// one, or of the process's when neither is a valid communicator. Returns the code for the caller.
#[cold]
pub fn raise(mpi: &Mpi, name: &str, on: Option<u32>, error: Error) -> c_int {
    let handle = error.comm().or(on);
    let text = format!(
        "{name}: {}, called by rank {}",
        error.text(),
        mpi.world_rank()
    );
    let code = error.code();
    mpi.remember_error(code, &text);
    match mpi.error_action(handle) {
        Action::Return => {}
        Action::Fatal => {
            eprintln!("{text} ({})", mpi.error_name(code));
            mpi.abort(code.max(1));
        }
        Action::Call(handler, comm) => handler.call(comm, code),
    }
    code
}
