//! Errors and how they are reported.

use std::fmt;

/// A length or a pointer that cannot be.
pub const MPL_ARGUMENT: i32 = 101;
/// There is no such task.
pub const MPL_TASK: i32 = 102;
/// Not a message type.
pub const MPL_TYPE: i32 = 103;
/// The message is longer than the buffer, and the program wants to know.
pub const MPL_OVERFLOW: i32 = 104;
/// No message has this id.
pub const MPL_MSGID: i32 = 105;
/// There is no such group, or the task is not in it.
pub const MPL_GROUP: i32 = 106;
/// A task of the job is broken, or the tasks do not do the same.
pub const MPL_FAULT: i32 = 107;

/// An error of MPL: its number for `mperrno`, and a sentence. The shim adds the name of the call in
/// front.
#[derive(Clone, Debug)]
pub struct Error(Box<(i32, String)>);

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns an error with a number of this file.
    #[must_use]
    #[cold]
    pub fn new(number: i32, text: impl Into<String>) -> Error {
        Error(Box::new((number, text.into())))
    }

    /// Returns the number.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.0.0
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.1)
    }
}

impl std::error::Error for Error {}

impl From<margay_run_mpi::error::Error> for Error {
    fn from(error: margay_run_mpi::error::Error) -> Error {
        Error::new(MPL_FAULT, error.text())
    }
}

/// `Err` with a number and a formatted sentence.
#[macro_export]
macro_rules! deny {
    ($number:expr, $($text:tt)+) => {
        return Err($crate::error::Error::new($number, format!($($text)+)))
    };
}
