//! From a C call to NX and back: the macro that defines functions, the look-up, what happens to
//! errors.

use std::ffi::{c_double, c_long, c_ulong};
use std::sync::{Mutex, MutexGuard, PoisonError};

use margay_abi_process::{
    OncePerProcess, enter_controlling, enter_library, known, refuse_in_child, write_line,
};
use margay_run_nx::Nx;
use margay_run_nx::control::Control;
use margay_run_nx::cop::Cop;
use margay_run_nx::error::{EQSTATE, Error, Result};
use margay_run_nx::refuse;
use margay_sys_os::process::in_forked_children;

/// Defines exported functions. Each definition yields `margay_nx_NAME`, which ends the job with a
/// message when something is wrong, `margay_nx__NAME`, which returns -1 then and sets `errno`, and
/// by `cargo xtask header` and `stage` the prototypes in `nx.h` and the functions of `libnx` for C
/// and Fortran.
///
/// `fn NAME(parameters) -> T |nx| { body }`: the body sees this process's NX and gives a
/// `Result<T>`; without `-> T` the function is void. `free fn` needs no NX and may be called at any
/// time, from any thread.
macro_rules! nx {
    () => {};
    ($(#[$doc:meta])* fn $name:ident ( $($arg:ident : $ty:ty),* $(,)? ) $(-> $result:ty)? |$nx:ident| $body:block $($rest:tt)*) => {
        const _: () = {
            /// # Safety
            /// The arguments are those of an exported function's C caller.
            #[allow(clippy::too_many_arguments, unused_unsafe)]
            unsafe fn run($($arg: $ty),*) -> margay_run_nx::error::Result<$crate::call::value!($($result)?)> {
                static CALL: [u64; 4] = margay_core_registry::call_name(stringify!($name));
                let $nx = $crate::call::joined(stringify!($name))?;
                let _call = $nx.begin_call(&CALL, margay_abi_process::return_address());
                // SAFETY: a program calls, which by the rules of NX vouches for what its arguments
                // describe: memory as long as the prototype says, of which the body touches no more
                // (`user`).
                unsafe { $body }
            }
            $crate::call::twins!($(#[$doc])* $name, ($($arg: $ty),*), $crate::call::value!($($result)?));
        };
        $crate::call::nx!($($rest)*);
    };
    ($(#[$doc:meta])* free fn $name:ident ( $($arg:ident : $ty:ty),* $(,)? ) $(-> $result:ty)? $body:block $($rest:tt)*) => {
        const _: () = {
            /// # Safety
            /// The arguments are those of an exported function's C caller.
            #[allow(clippy::too_many_arguments, unused_unsafe)]
            unsafe fn run($($arg: $ty),*) -> margay_run_nx::error::Result<$crate::call::value!($($result)?)> {
                // SAFETY: as above.
                unsafe { $body }
            }
            $crate::call::twins!($(#[$doc])* $name, ($($arg: $ty),*), $crate::call::value!($($result)?));
        };
        $crate::call::nx!($($rest)*);
    };
}

macro_rules! value {
    () => {
        ()
    };
    ($result:ty) => {
        $result
    };
}

macro_rules! twins {
    ($(#[$doc:meta])* $name:ident, ($($arg:ident : $ty:ty),*), $result:ty) => {
        #[inline(never)]
        #[allow(clippy::too_many_arguments)]
        unsafe extern "C" fn plain_body($($arg: $ty),*) -> $result {
            // SAFETY: the program's promise is handed on.
            match unsafe { run($($arg),*) } {
                Ok(value) => value,
                Err(error) => $crate::call::die(stringify!($name), &error),
            }
        }

        $(#[$doc])*
        #[unsafe(export_name = concat!("margay_nx_", stringify!($name)))]
        #[allow(clippy::too_many_arguments)]
        #[unsafe(naked)]
        unsafe extern "C" fn plain($($arg: $ty),*) -> $result {
            margay_abi_process::entry!(plain_body)
        }

        $(#[$doc])*
        #[unsafe(export_name = concat!("margay_nx__", stringify!($name)))]
        #[allow(clippy::too_many_arguments)]
        #[unsafe(naked)]
        unsafe extern "C" fn twin($($arg: $ty),*) -> <$result as $crate::call::Answer>::Twin {
            margay_abi_process::entry!(twin_body)
        }

        #[inline(never)]
        #[allow(clippy::too_many_arguments)]
        unsafe extern "C" fn twin_body($($arg: $ty),*) -> <$result as $crate::call::Answer>::Twin {
            use $crate::call::Answer;
            // SAFETY: the program's promise is handed on.
            match unsafe { run($($arg),*) } {
                Ok(value) => value.good(),
                Err(error) => {
                    $crate::call::remember(&error);
                    <$result>::BAD
                }
            }
        }
    };
}

pub(crate) use {nx, twins, value};

/// What a function and its twin return.
pub trait Answer {
    /// The twin's type: a void function becomes `long`.
    type Twin;
    /// The twin's value for an error.
    const BAD: Self::Twin;
    /// The twin's value for this one.
    fn good(self) -> Self::Twin;
}

impl Answer for () {
    type Twin = c_long;
    const BAD: c_long = -1;
    fn good(self) -> c_long {
        0
    }
}

impl Answer for c_long {
    type Twin = c_long;
    const BAD: c_long = -1;
    fn good(self) -> c_long {
        self
    }
}

impl Answer for c_ulong {
    type Twin = c_long;
    const BAD: c_long = -1;
    fn good(self) -> c_long {
        self as c_long
    }
}

impl Answer for c_double {
    type Twin = c_double;
    const BAD: c_double = -1.0;
    fn good(self) -> c_double {
        self
    }
}

/// This process's NX, from its first use to the end of the process.
static NX: OncePerProcess<Nx> = OncePerProcess::new();
/// The application that this process controls, if it is no part of one.
static CONTROL: Mutex<Option<Control>> = Mutex::new(None);
/// The second processor.
pub static COP: Cop = Cop::new();
/// The last error that a twin returned.
static LAST: Mutex<(i32, String)> = Mutex::new((0, String::new()));

/// This process's NX; joins the job at the first call.
#[inline]
pub fn joined(name: &str) -> Result<&'static Nx> {
    let nx = match NX.get() {
        Some(nx) => nx,
        None => join(name)?,
    };
    if COP.is_here() {
        return on_cop();
    }
    Ok(nx)
}

#[cold]
fn join(name: &str) -> Result<&'static Nx> {
    if COP.is_here() {
        return on_cop();
    }
    refuse_in_child(name);
    let mut control = control();
    if let Some(nx) = NX.get() {
        return Ok(nx);
    }
    if control.is_some() && known().is_some() {
        refuse!(
            EQSTATE,
            "the controlling process has called MPI before it passed messages of NX; call MPI_Init after the first of them"
        );
    }
    let rank = match control.as_mut().map(Control::join) {
        // SAFETY: by the rules of NX one thread of a process calls; handlers share the rank before
        // they have a thread, and routines that `cop` runs are refused (`on_cop`).
        Some((segment, rank)) => unsafe { enter_controlling(name, &segment, rank) },
        // SAFETY: as above.
        None => unsafe { enter_library(name) },
    };
    let nx = Nx::new(rank, |name, error| die(name, error))?;
    // Where there is no room for this, `enter_library` has said so.
    in_forked_children(forked);
    Ok(NX.set(nx))
}

extern "C" fn forked() {
    NX.forget();
}

#[cold]
fn on_cop<T>() -> Result<T> {
    refuse!(
        EQSTATE,
        "a routine that cop runs may not call NX; pass messages from the thread that called cop"
    )
}

/// The application that this process controls.
pub fn control() -> MutexGuard<'static, Option<Control>> {
    CONTROL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// NX if it is in use.
pub fn in_use() -> Option<&'static Nx> {
    NX.get()
}

/// Ends the job because of an error.
#[cold]
pub fn die(name: &str, error: &Error) -> ! {
    let text = error.text();
    match NX.get() {
        Some(nx) => {
            write_line(format!("{name}: {text}, called by node {}", nx.node()));
            nx.mpi().abort(1)
        }
        None => {
            write_line(format!("{name}: {text}"));
            match known() {
                Some(mpi) => mpi.abort(1),
                None => std::process::exit(1),
            }
        }
    }
}

/// Keeps an error for `errno` and `nx_perror`.
#[cold]
pub fn remember(error: &Error) {
    let number = error.number() as i32;
    *last() = (number, error.text().into());
    margay_sys_os::process::set_errno(number);
}

/// The last error that was remembered.
pub fn last() -> MutexGuard<'static, (i32, String)> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner)
}
