//! From a C call to the rank and back: the macros that define functions, raising of errors.

use std::ffi::c_int;

pub use margay_abi_process::{
    Model, Process, current, enter, is_finalized, is_initialized, known, leave, leave_world,
    opened, refuse_in_child, tools, write_line,
};
use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::errhandler::Action;
use margay_run_mpi::error::{Error, Result};

/// Defines exported functions. Each definition yields `MPI_x` and `PMPI_x` (two symbols of equal
/// standing, so that a tool's own `MPI_x` takes the place of ours and calls `PMPI_x`; the library
/// itself calls neither), the prototypes in `mpi.h`, the name in displays and error messages, and
/// the lines of `symbols.txt` (`cargo xtask header`).
///
/// `fn NAME(parameters) |mpi| on comm { body }`: the body sees the rank as `mpi`, gives a
/// `Result<()>`, and its error goes to the error handler of `comm`. Without `|mpi|` the body is the
/// whole function, and `-> T` may say what it returns. `at once { .. }` before the body is tried
/// first, and says whether it has done all: the flight recorder has a call that it did only if all
/// calls are asked for. `always fn` may be called before
/// initialization and after finalization too. `removed(NEW) fn` is one that MPI-3 removed in favour
/// of `NEW`: the header declares it for programs of MPI-1. `count fn` makes a second function
/// `NAME_c`, in which `Count` is `MPI_Count` instead of `int`, `Disp` (the displacements of
/// collectives) `MPI_Aint` instead of `int`, `AintCount` `MPI_Count` instead of `MPI_Aint`.
macro_rules! mpi {
    () => {};
    ($(#[$doc:meta])* count fn $name:ident ( $($arg:ident : $ty:ty),* $(,)? ) |$mpi:ident| $(on $on:ident)? $(at once $once:block)? $body:block $($rest:tt)*) => {
        const _: () = {
            $crate::call::small_counts!();
            $crate::call::define!($(#[$doc])* $name, "", ($($arg: $ty),*), $mpi, ($($on)?), ($($once)?), $body);
        };
        const _: () = {
            $crate::call::large_counts!();
            $crate::call::define!($(#[$doc])* $name, "_c", ($($arg: $ty),*), $mpi, ($($on)?), ($($once)?), $body);
        };
        $crate::call::mpi!($($rest)*);
    };
    ($(#[$doc:meta])* fn $name:ident ( $($arg:ident : $ty:ty),* $(,)? ) |$mpi:ident| $(on $on:ident)? $(at once $once:block)? $body:block $($rest:tt)*) => {
        const _: () = { $crate::call::define!($(#[$doc])* $name, "", ($($arg: $ty),*), $mpi, ($($on)?), ($($once)?), $body); };
        $crate::call::mpi!($($rest)*);
    };
    ($(#[$doc:meta])* removed($new:ident) fn $($rest:tt)*) => {
        $crate::call::mpi!($(#[$doc])* fn $($rest)*);
    };
    ($(#[$doc:meta])* always fn $name:ident ( $($arg:ident : $ty:ty),* $(,)? ) |$mpi:ident| $(on $on:ident)? $body:block $($rest:tt)*) => {
        const _: () = { $crate::call::export!($(#[$doc])* $name, "", ($($arg: $ty),*), std::ffi::c_int, {
            $crate::call::always(stringify!($name), $crate::call::handle_of!($($on)?), |$mpi: &'static margay_abi_process::Process| $body)
        }); };
        $crate::call::mpi!($($rest)*);
    };
    ($(#[$doc:meta])* fn $name:ident ( $($arg:ident : $ty:ty),* $(,)? ) -> $result:ty $body:block $($rest:tt)*) => {
        const _: () = { $crate::call::export!($(#[$doc])* $name, "", ($($arg: $ty),*), $result, $body); };
        $crate::call::mpi!($($rest)*);
    };
}

/// Defines the three forms of a collective operation: blocking, nonblocking (with a request) and
/// persistent (with an info and a request). `fn A, B, C(parameters) |mpi, group| on comm { body }`:
/// the body gives the operation, a `Result<Operation>`, and sees the communicator of the parameter
/// `comm` as `group`. `at once { .. }` before the body is tried first by the blocking form: it
/// gives the call's result, or `None` when the operation has to be made.
macro_rules! collective {
    () => {};
    ($(#[$doc:meta])* count fn $blocking:ident, $nonblocking:ident, $persistent:ident ( $($arg:ident : $ty:ty),* $(,)? ) |$mpi:ident, $group:ident| on $on:ident $(at once $once:block)? $body:block $($rest:tt)*) => {
        const _: () = {
            $crate::call::small_counts!();
            $crate::call::forms!($(#[$doc])* "", $blocking, $nonblocking, $persistent, ($($arg: $ty),*), $mpi, $group, $on, ($($once)?), $body);
        };
        const _: () = {
            $crate::call::large_counts!();
            $crate::call::forms!($(#[$doc])* "_c", $blocking, $nonblocking, $persistent, ($($arg: $ty),*), $mpi, $group, $on, ($($once)?), $body);
        };
        $crate::call::collective!($($rest)*);
    };
    ($(#[$doc:meta])* fn $blocking:ident, $nonblocking:ident, $persistent:ident ( $($arg:ident : $ty:ty),* $(,)? ) |$mpi:ident, $group:ident| on $on:ident $(at once $once:block)? $body:block $($rest:tt)*) => {
        const _: () = {
            $crate::call::forms!($(#[$doc])* "", $blocking, $nonblocking, $persistent, ($($arg: $ty),*), $mpi, $group, $on, ($($once)?), $body);
        };
        $crate::call::collective!($($rest)*);
    };
}

macro_rules! forms {
    ($(#[$doc:meta])* $suffix:literal, $blocking:ident, $nonblocking:ident, $persistent:ident, ($($arg:ident : $ty:ty),*), $mpi:ident, $group:ident, $on:ident, ($($once:block)?), $body:block) => {
        /// # Safety
        /// The arguments are those of an exported function's C caller.
        #[allow(clippy::too_many_arguments, unused_unsafe)]
        unsafe fn operation($mpi: &margay_run_mpi::Mpi, $group: &std::sync::Arc<margay_run_mpi::Comm>, $($arg: $ty),*)
            -> margay_run_mpi::error::Result<margay_run_mpi::Operation> {
            let _ = ($mpi, $group, $on);
            // SAFETY: by the caller's promise; see `export`.
            unsafe { $body }
        }
        const _: () = {
            $crate::call::define!($(#[$doc])* $blocking, $suffix, ($($arg: $ty),*), $mpi, ($on), (), {
                $(if let Some(done) = $once { return done; })?
                let mpi = $mpi;
                let group = mpi.comm($on.value())?;
                let operation = operation(mpi, &group, $($arg),*)?;
                mpi.collective(&group, operation)
            });
        };
        const _: () = {
            $crate::call::define!($(#[$doc])* $nonblocking, $suffix, ($($arg: $ty,)* request: Place<MPI_Request>), mpi, ($on), (), {
                let group = mpi.comm($on.value())?;
                let operation = operation(mpi, &group, $($arg),*)?;
                request.put("request", MPI_Request::new(mpi.icollective(&group, &operation)?))
            });
        };
        const _: () = {
            $crate::call::define!($(#[$doc])* $persistent, $suffix, ($($arg: $ty,)* info: MPI_Info, request: Place<MPI_Request>), mpi, ($on), (), {
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
    ($(#[$doc:meta])* $name:ident, $suffix:literal, ($($arg:ident : $ty:ty),*), $mpi:ident, ($($on:ident)?), ($($once:block)?), $body:block) => {
        $crate::call::export!($(#[$doc])* $name, $suffix, ($($arg: $ty),*), std::ffi::c_int, {
            static CALL: [u64; 4] = margay_core_registry::call_name(concat!(stringify!($name), $suffix));
            let name = concat!(stringify!($name), $suffix);
            let Some($mpi) = $crate::call::current() else {
                return $crate::call::outside(name);
            };
            $mpi.note_call(&CALL);
            let record = || $mpi.record_call(&CALL, margay_abi_process::return_address());
            #[allow(unused_mut)]
            let mut call = None;
            $(
                if $mpi.records_all() {
                    call = Some(record());
                }
                if $once {
                    return margay_run_mpi::constants::error_class::MPI_SUCCESS;
                }
            )?
            let _call = call.unwrap_or_else(record);
            let run = || -> margay_run_mpi::error::Result<()> { $body };
            let code = match run() {
                Ok(()) => margay_run_mpi::constants::error_class::MPI_SUCCESS,
                Err(error) => $crate::call::raise($mpi, name, $crate::call::handle_of!($($on)?), error),
            };
            $mpi.rank().monitor().events.tell();
            code
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

/// The symbols of one function: `margay_MPI_x` is the function itself, for the libraries of other
/// ABIs (`abi/faces`), in which `MPI_x` and `PMPI_x` are functions of that ABI.
macro_rules! export {
    ($(#[$doc:meta])* $name:ident, $suffix:literal, ($($arg:ident : $ty:ty),*), $result:ty, $body:block) => {
        #[inline(never)]
        #[unsafe(export_name = concat!("margay_", stringify!($name), $suffix))]
        #[allow(clippy::too_many_arguments, unused_unsafe)]
        unsafe extern "C" fn body($($arg: $ty),*) -> $result {
            // SAFETY: a C program calls, which by the standard vouches for what its arguments
            // describe: arrays and buffers as long as the prototype says, of which the body touches
            // no more (`user`).
            unsafe { $body }
        }

        $(#[$doc])*
        #[unsafe(export_name = concat!("P", stringify!($name), $suffix))]
        #[allow(clippy::too_many_arguments)]
        #[unsafe(naked)]
        unsafe extern "C" fn profiled($($arg: $ty),*) -> $result {
            margay_abi_process::entry!(body)
        }

        $(#[$doc])*
        #[unsafe(export_name = concat!(stringify!($name), $suffix))]
        #[allow(clippy::too_many_arguments)]
        #[unsafe(naked)]
        unsafe extern "C" fn plain($($arg: $ty),*) -> $result {
            margay_abi_process::entry!(body)
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
        const ARGUMENTS: margay_core_datatype::Arguments = margay_core_datatype::Arguments::Small;
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
        const ARGUMENTS: margay_core_datatype::Arguments = margay_core_datatype::Arguments::Large;
    };
}

pub(crate) use {collective, define, export, forms, handle_of, large_counts, mpi, small_counts};

/// Runs a function that may be called at any time.
pub fn always(
    name: &'static str,
    on: Option<u32>,
    run: impl FnOnce(&'static Process) -> Result<()>,
) -> c_int {
    let mpi = opened(name);
    mpi.note_call(&margay_core_registry::call_name(name));
    match run(mpi) {
        Ok(()) => MPI_SUCCESS,
        Err(error) => raise(mpi, name, on, error),
    }
}

/// A call before init, after finalize or in a child made by fork: there is no communicator whose
/// handler could be asked, so it is fatal.
#[cold]
pub fn outside(name: &str) -> c_int {
    refuse_in_child(name);
    if is_finalized() {
        eprintln!("{name}: called after MPI_Finalize; call it before, or within a session");
    } else {
        eprintln!(
            "{name}: called before MPI_Init; call MPI_Init, MPI_Init_thread or MPI_Session_init first"
        );
    }
    std::process::exit(MPI_ERR_OTHER)
}

/// Raises `error`: completes its message, asks the error handler of the communicator, of the
/// error's own one if it has one, or of the process's when neither is a valid communicator. Returns
/// the code for the caller.
#[cold]
pub fn raise(mpi: &Process, name: &str, on: Option<u32>, error: Error) -> c_int {
    let handle = error.comm().or(on);
    let text = format!(
        "{name}: {}, called by rank {}",
        error.text(),
        mpi.world_rank()
    );
    let code = error.code();
    mpi.remember_error(code, &text);
    let action = match error.errhandler() {
        Some((errhandler, on)) => mpi.action_of(errhandler, on),
        None => {
            let window = handle.and_then(|handle| mpi.windows().error_action(handle));
            let file = || handle.and_then(|handle| mpi.files().error_action(handle));
            let action = window.or_else(file);
            action.unwrap_or_else(|| mpi.error_action(handle))
        }
    };
    match action {
        Action::Return => code,
        Action::Fatal => {
            write_line(format!("{text} ({})", mpi.error_name(code)));
            mpi.abort(code.max(1));
        }
        Action::Call(handler, comm) => handler.call(comm, code),
    }
}
