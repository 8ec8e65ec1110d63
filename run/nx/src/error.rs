//! Errors and how they are reported.

use std::fmt;

pub use crate::constants::{
    EQBLEN, EQFAULT, EQHND, EQMID, EQMSGLONG, EQNODE, EQNOMID, EQNOPROC, EQPARAM, EQPARTITION,
    EQPATH, EQPID, EQSTATE, EQTYPE,
};

/// An error of NX: its number for `errno`, and a sentence that names the thing, the reason and the
/// remedy. The shim adds the name of the call in front and the node behind.
#[derive(Clone, Debug)]
pub struct Error(Box<(i64, String)>);

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns an error with a number of `constants`.
    #[must_use]
    #[cold]
    pub fn new(number: i64, text: impl Into<String>) -> Error {
        Error(Box::new((number, text.into())))
    }

    /// Returns the number.
    #[must_use]
    pub fn number(&self) -> i64 {
        self.0.0
    }

    /// Returns the sentence.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.1
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Error {}

impl From<margay_run_mpi::error::Error> for Error {
    fn from(error: margay_run_mpi::error::Error) -> Error {
        Error::new(EQFAULT, error.text())
    }
}

/// `Err` with a number and a formatted sentence.
#[macro_export]
macro_rules! refuse {
    ($number:expr, $($text:tt)+) => {
        return Err($crate::error::Error::new($number, format!($($text)+)))
    };
}

/// Returns what a number means, and `None` for one that is not NX's.
#[must_use]
pub fn meaning(number: i64) -> Option<&'static str> {
    Some(match number {
        EQBLEN => "wrong length",
        EQFAULT => "a process of the job is broken",
        EQHND => "the handler cannot be served",
        EQMID => "no message has this id",
        EQMSGLONG => "the message is longer than the buffer",
        EQNODE => "there is no such node",
        EQNOMID => "no message ids are left",
        EQNOPROC => "no process is there",
        EQPARAM => "wrong parameter",
        EQPID => "wrong process type",
        EQTYPE => "wrong message type",
        EQPARTITION => "the partition cannot be used, made or changed",
        EQPATH => "the program cannot be started",
        EQSTATE => "not possible in this process",
        _ => return None,
    })
}
