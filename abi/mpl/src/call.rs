//! From a C call to MPL and back: the macro that defines functions, the look-up, what happens to
//! errors.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

use margay_abi_process::{OncePerProcess, enter_library, share};
use margay_core_registry::markers::MOST_LIGHTS;
use margay_run_engine::monitor::Tunable;
use margay_run_mpl::Mpl;
use margay_run_mpl::error::{Error, Result};
use margay_sys_os::process::in_forked_children;

use crate::user::Ints;

/// Defines exported functions. Each definition yields `margay_mpl_NAME`, which returns 0, or -1
/// when something is wrong, and by `cargo xtask header` and `stage` the prototype of `mpc_NAME` in
/// `mpl.h` and the functions of `libmpl` for C and Fortran.
///
/// `fn NAME(parameters) |mpl| { body }`: the body sees this task's MPL and gives a `Result<()>`.
/// With `-> c_int` it gives a number, which the function returns instead of 0.
macro_rules! mpl {
    () => {};
    ($(#[$doc:meta])* fn $name:ident ( $($arg:ident : $ty:ty),* $(,)? ) $(-> $result:ident)? |$mpl:ident| $body:block $($rest:tt)*) => {
        const _: () = {
            /// # Safety
            /// The arguments are those of the exported function's C caller.
            #[allow(clippy::too_many_arguments, unused_unsafe)]
            #[inline]
            unsafe fn run($($arg: $ty),*) -> margay_run_mpl::error::Result<$crate::call::answer!($($result)?)> {
                static CALL: [u64; 4] = margay_core_registry::call_name(concat!("mpc_", stringify!($name)));
                let $mpl = $crate::call::joined(concat!("mpc_", stringify!($name)))?;
                let _call = $mpl.begin_call(&CALL, margay_abi_process::return_address());
                // SAFETY: a program calls, which by the rules of MPL vouches for what its arguments
                // describe: memory as long as the prototype says, of which the body touches no more
                // (`user`).
                unsafe { $body }
            }

            $(#[$doc])*
            #[unsafe(export_name = concat!("margay_mpl_", stringify!($name)))]
            #[allow(clippy::too_many_arguments)]
            #[unsafe(naked)]
            unsafe extern "C" fn shim($($arg: $ty),*) -> std::ffi::c_int {
                margay_abi_process::entry!(body)
            }

            #[inline(never)]
            #[allow(clippy::too_many_arguments)]
            unsafe extern "C" fn body($($arg: $ty),*) -> std::ffi::c_int {
                // SAFETY: the program's promise is handed on.
                match unsafe { run($($arg),*) } {
                    Ok(answer) => $crate::call::Answer::number(answer),
                    Err(error) => $crate::call::tell(concat!("mpc_", stringify!($name)), &error),
                }
            }
        };
        $crate::call::mpl!($($rest)*);
    };
}

/// The type of what a body gives.
macro_rules! answer {
    () => {
        ()
    };
    ($result:ident) => {
        $result
    };
}

pub(crate) use {answer, mpl};

/// What a function returns when all is well.
pub trait Answer {
    /// As the number that the program gets.
    fn number(self) -> c_int;
}

impl Answer for () {
    fn number(self) -> c_int {
        0
    }
}

impl Answer for c_int {
    fn number(self) -> c_int {
        self
    }
}

/// This task's MPL, from its first use to the end of the process.
static MPL: OncePerProcess<Mpl> = OncePerProcess::new();
/// Lights of a row in the Program Marker Array, unless `MP_PMLIGHTS` says another number.
const LIGHTS: u32 = 8;
/// Where `libmpl` keeps `mperrno`.
static MPERRNO: AtomicUsize = AtomicUsize::new(0);

/// This task's MPL; joins the job at the first call.
#[inline]
pub fn joined(name: &str) -> Result<&'static Mpl> {
    match MPL.get() {
        Some(mpl) => Ok(mpl),
        None => join(name),
    }
}

#[cold]
fn join(name: &str) -> Result<&'static Mpl> {
    // SAFETY: by the rules of MPL one thread of a task calls, unless MP_CSS_INTERRUPT shares the
    // rank, below.
    let mpi = unsafe { enter_library(name) };
    if let Some(limit) = number("MP_EAGER_LIMIT") {
        mpi.rank().monitor().tuning.set(Tunable::Eager, limit);
    }
    if std::env::var("MP_CSS_INTERRUPT").is_ok_and(|v| v.eq_ignore_ascii_case("yes")) {
        share(mpi);
        if let Err(error) = mpi.start_progress_thread() {
            eprintln!(
                "{name}: no thread for MP_CSS_INTERRUPT: {error}; messages move inside calls only"
            );
        }
    }
    let lights = setting("MP_PMLIGHTS", MOST_LIGHTS).unwrap_or(LIGHTS);
    let mpl = Mpl::new(mpi, lights)?;
    if let Some(delay) = setting("MP_INTRDELAY", 1_000_000) {
        mpl.set_interrupt_delay(delay as c_int)?;
    }
    // Where there is no room for this, `enter_library` has said so.
    in_forked_children(forked);
    Ok(MPL.set(mpl))
}

extern "C" fn forked() {
    MPL.forget();
}

/// A variable of the environment that is a number up to `most`.
fn setting(name: &str, most: u32) -> Option<u32> {
    let text = std::env::var(name).ok()?;
    let value = text.trim().parse().ok().filter(|&n: &u32| n <= most);
    if value.is_none() {
        eprintln!(
            "{name} is '{text}', which is no number from 0 to {most}; it is left out of account"
        );
    }
    value
}

/// A variable of the environment that is a number of bytes, perhaps with K or M.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let (digits, unit) = match text.trim().to_ascii_uppercase() {
        t if t.ends_with('K') => (t.trim_end_matches('K').to_owned(), 1 << 10),
        t if t.ends_with('M') => (t.trim_end_matches('M').to_owned(), 1 << 20),
        t => (t, 1),
    };
    match digits.parse::<u64>() {
        Ok(n) => Some(n * unit),
        Err(_) => {
            eprintln!("{name} is '{text}', which is not a number of bytes; it is ignored");
            None
        }
    }
}

/// Takes from `libmpl` where its `mperrno` is.
pub fn keep_errno_at(place: Ints) {
    MPERRNO.store(place.number(), Ordering::Release);
}

/// Notes an error and reports it, unless `MP_INFOLEVEL` is 0.
#[cold]
pub fn tell(name: &str, error: &Error) -> c_int {
    // SAFETY: the number of `libmpl`'s variable, which lives as long as the process, or 0.
    unsafe { Ints::at(MPERRNO.load(Ordering::Acquire)) }.offer(error.number());
    if std::env::var("MP_INFOLEVEL").map_or(true, |level| level.trim() != "0") {
        match MPL.get() {
            Some(mpl) => eprintln!("{name}: {error}, called by task {}", mpl.task()),
            None => eprintln!("{name}: {error}"),
        }
    }
    -1
}

/// A call from Fortran, which cannot return an error, has failed: ends the job.
#[unsafe(export_name = "margay_mpl_failed")]
extern "C" fn failed() -> ! {
    match MPL.get() {
        Some(mpl) => mpl.mpi().abort(1),
        None => std::process::exit(1),
    }
}
