//! From a C call to MLP and back: the macro that defines functions, the look-up, the handling of
//! errors.

use std::ffi::{c_int, c_long, c_void};
use std::sync::{Mutex, PoisonError};

use margay_run_mlp::Group;
use margay_run_mlp::error::Error;

/// Defines exported functions. Each definition yields `margay_mlp_NAME` and, by `cargo xtask
/// header` and `stage`, the prototypes in `mlp.h` and `fmlp.h` and the functions of `libmlp` for C
/// and Fortran.
///
/// `fn NAME(parameters) -> T |group| { body }`: the body sees the group of this process and gives a
/// `Result<T>`. An error ends the process with a message, or becomes the value of `T` that means
/// one (`mlp_errors`).
macro_rules! mlp {
    () => {};
    ($(#[$doc:meta])* fn $name:ident ( $($arg:ident : $ty:ty),* $(,)? ) -> $result:ty |$group:ident| $body:block $($rest:tt)*) => {
        const _: () = {
            fn run($($arg: $ty),*) -> margay_run_mlp::error::Result<$result> {
                let $group = &$crate::call::GROUP;
                $body
            }

            $(#[$doc])*
            #[unsafe(export_name = concat!("margay_mlp_", stringify!($name)))]
            extern "C" fn shim($($arg: $ty),*) -> $result {
                match run($($arg),*) {
                    Ok(value) => value,
                    Err(error) => $crate::call::tell(stringify!($name), &error),
                }
            }
        };
        $crate::call::mlp!($($rest)*);
    };
}

pub(crate) use mlp;

/// The group of this process.
pub static GROUP: Group = Group::new();
/// The last error that was returned.
static LAST: Mutex<String> = Mutex::new(String::new());

/// What a function returns for an error.
pub trait Answer {
    /// From the error's number, which is below 0.
    fn bad(number: i64) -> Self;
}

impl Answer for c_int {
    fn bad(number: i64) -> c_int {
        number as c_int
    }
}

impl Answer for c_long {
    fn bad(number: i64) -> c_long {
        number
    }
}

/// An address; null for an error.
#[repr(transparent)]
pub struct Address(pub *mut c_void);

impl Answer for Address {
    fn bad(_number: i64) -> Address {
        Address(std::ptr::null_mut())
    }
}

/// Ends the process because of an error, or keeps the error for `mlp_error` and returns what means
/// one.
#[cold]
pub fn tell<T: Answer>(name: &str, error: &Error) -> T {
    let text = format!("{name}: {error}, called by process {}", GROUP.process());
    if GROUP.returns_errors() {
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = text;
        return T::bad(error.number());
    }
    GROUP.await_end();
    eprintln!("{text}");
    std::process::exit(1)
}

/// The text of the last error that was returned; empty when there was none.
pub fn last() -> String {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Called when the process exits.
pub extern "C" fn exits(code: i32, _unused: *mut c_void) {
    GROUP.leave(code);
}
