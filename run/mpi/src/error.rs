//! Errors and how they are reported.

use std::fmt;

pub use crate::constants::error_class::*;

/// An MPI error: a class, and a sentence that names the thing, the reason and, where there is one,
/// the remedy. The shim adds the name of the function in front and the calling rank behind.
///
/// Boxed, so that a `Result` on the fast path is one word.
#[derive(Clone, Debug)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    code: i32,
    text: String,
    comm: Option<u32>,
    /// Error handler, and handle of the object for it.
    errhandler: Option<(u32, u32)>,
}

/// The result of an MPI operation.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns an error of a class of the standard (`MPI_ERR_*`).
    #[must_use]
    #[cold]
    pub fn new(code: i32, text: impl Into<String>) -> Error {
        Error(Box::new(Inner {
            code,
            text: text.into(),
            comm: None,
            errhandler: None,
        }))
    }

    /// Returns the same error, to be handled by this error handler, which receives the handle `on`.
    #[must_use]
    pub fn by(mut self, errhandler: u32, on: u32) -> Error {
        self.0.errhandler = Some((errhandler, on));
        self
    }

    /// The same error, to be handled by the error handler of the communicator with this handle
    /// whatever the function was called on.
    #[must_use]
    pub fn on(mut self, comm: u32) -> Error {
        self.0.comm = Some(comm);
        self
    }

    /// Returns the error code; for errors of the library it equals the class.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.0.code
    }

    /// Returns the sentence.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Returns whose error handler is asked, if not that of the communicator that was passed.
    #[must_use]
    pub fn comm(&self) -> Option<u32> {
        self.0.comm
    }

    /// Returns the error handler that is called, if the function was passed one, and the handle
    /// that it receives.
    #[must_use]
    pub fn errhandler(&self) -> Option<(u32, u32)> {
        self.0.errhandler
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl std::error::Error for Error {}

/// `Err` with a class and a formatted sentence.
#[macro_export]
macro_rules! fail {
    ($class:expr, $($text:tt)+) => {
        return Err($crate::error::Error::new($class, format!($($text)+)))
    };
}

/// Returns the sentence of the standard for a class, and `None` for a number that is not a class of
/// the standard.
#[must_use]
pub fn class_text(class: i32) -> Option<&'static str> {
    Some(match class {
        MPI_SUCCESS => "MPI_SUCCESS: no error",
        MPI_ERR_BUFFER => "MPI_ERR_BUFFER: invalid buffer",
        MPI_ERR_COUNT => "MPI_ERR_COUNT: invalid count",
        MPI_ERR_TYPE => "MPI_ERR_TYPE: invalid datatype",
        MPI_ERR_TAG => "MPI_ERR_TAG: invalid tag",
        MPI_ERR_COMM => "MPI_ERR_COMM: invalid communicator",
        MPI_ERR_RANK => "MPI_ERR_RANK: invalid rank",
        MPI_ERR_REQUEST => "MPI_ERR_REQUEST: invalid request",
        MPI_ERR_ROOT => "MPI_ERR_ROOT: invalid root",
        MPI_ERR_GROUP => "MPI_ERR_GROUP: invalid group",
        MPI_ERR_OP => "MPI_ERR_OP: invalid operation",
        MPI_ERR_TOPOLOGY => "MPI_ERR_TOPOLOGY: invalid topology",
        MPI_ERR_DIMS => "MPI_ERR_DIMS: invalid dimensions",
        MPI_ERR_ARG => "MPI_ERR_ARG: invalid argument",
        MPI_ERR_UNKNOWN => "MPI_ERR_UNKNOWN: unknown error",
        MPI_ERR_TRUNCATE => "MPI_ERR_TRUNCATE: message longer than the receive buffer",
        MPI_ERR_OTHER => "MPI_ERR_OTHER: another error",
        MPI_ERR_INTERN => "MPI_ERR_INTERN: error in the library",
        MPI_ERR_PENDING => "MPI_ERR_PENDING: operation not complete",
        MPI_ERR_IN_STATUS => "MPI_ERR_IN_STATUS: the error codes are in the statuses",
        MPI_ERR_ACCESS => "MPI_ERR_ACCESS: permission denied",
        MPI_ERR_AMODE => "MPI_ERR_AMODE: invalid access mode",
        MPI_ERR_ASSERT => "MPI_ERR_ASSERT: invalid assertion",
        MPI_ERR_BAD_FILE => "MPI_ERR_BAD_FILE: invalid file name",
        MPI_ERR_BASE => "MPI_ERR_BASE: invalid base address",
        MPI_ERR_CONVERSION => "MPI_ERR_CONVERSION: data conversion failed",
        MPI_ERR_DISP => "MPI_ERR_DISP: invalid displacement",
        MPI_ERR_DUP_DATAREP => "MPI_ERR_DUP_DATAREP: data representation already defined",
        MPI_ERR_FILE_EXISTS => "MPI_ERR_FILE_EXISTS: file exists",
        MPI_ERR_FILE_IN_USE => "MPI_ERR_FILE_IN_USE: file in use",
        MPI_ERR_FILE => "MPI_ERR_FILE: invalid file handle",
        MPI_ERR_INFO_KEY => "MPI_ERR_INFO_KEY: invalid info key",
        MPI_ERR_INFO_NOKEY => "MPI_ERR_INFO_NOKEY: no such info key",
        MPI_ERR_INFO_VALUE => "MPI_ERR_INFO_VALUE: invalid info value",
        MPI_ERR_INFO => "MPI_ERR_INFO: invalid info object",
        MPI_ERR_IO => "MPI_ERR_IO: input or output failed",
        MPI_ERR_KEYVAL => "MPI_ERR_KEYVAL: invalid attribute key",
        MPI_ERR_LOCKTYPE => "MPI_ERR_LOCKTYPE: invalid lock type",
        MPI_ERR_NAME => "MPI_ERR_NAME: no such service name",
        MPI_ERR_NO_MEM => "MPI_ERR_NO_MEM: out of memory",
        MPI_ERR_NOT_SAME => "MPI_ERR_NOT_SAME: argument differs between processes",
        MPI_ERR_NO_SPACE => "MPI_ERR_NO_SPACE: no space on the device",
        MPI_ERR_NO_SUCH_FILE => "MPI_ERR_NO_SUCH_FILE: no such file",
        MPI_ERR_PORT => "MPI_ERR_PORT: invalid port",
        MPI_ERR_QUOTA => "MPI_ERR_QUOTA: quota exceeded",
        MPI_ERR_READ_ONLY => "MPI_ERR_READ_ONLY: file is read-only",
        MPI_ERR_RMA_ATTACH => "MPI_ERR_RMA_ATTACH: memory cannot be attached",
        MPI_ERR_RMA_CONFLICT => "MPI_ERR_RMA_CONFLICT: conflicting accesses to a window",
        MPI_ERR_RMA_RANGE => "MPI_ERR_RMA_RANGE: target memory is not in the window",
        MPI_ERR_RMA_SHARED => "MPI_ERR_RMA_SHARED: memory cannot be shared",
        MPI_ERR_RMA_SYNC => "MPI_ERR_RMA_SYNC: wrong synchronization of a window",
        MPI_ERR_SERVICE => "MPI_ERR_SERVICE: invalid service name",
        MPI_ERR_SIZE => "MPI_ERR_SIZE: invalid size",
        MPI_ERR_SPAWN => "MPI_ERR_SPAWN: processes cannot be spawned",
        MPI_ERR_UNSUPPORTED_DATAREP => {
            "MPI_ERR_UNSUPPORTED_DATAREP: unsupported data representation"
        }
        MPI_ERR_UNSUPPORTED_OPERATION => "MPI_ERR_UNSUPPORTED_OPERATION: unsupported operation",
        MPI_ERR_WIN => "MPI_ERR_WIN: invalid window",
        MPI_ERR_RMA_FLAVOR => "MPI_ERR_RMA_FLAVOR: wrong flavor of window",
        MPI_ERR_PROC_ABORTED => "MPI_ERR_PROC_ABORTED: a peer process has aborted",
        MPI_ERR_VALUE_TOO_LARGE => "MPI_ERR_VALUE_TOO_LARGE: the value does not fit its argument",
        MPI_ERR_SESSION => "MPI_ERR_SESSION: invalid session",
        MPI_ERR_ERRHANDLER => "MPI_ERR_ERRHANDLER: invalid error handler",
        MPIX_ERR_PROC_FAILED => "MPIX_ERR_PROC_FAILED: a process has died",
        MPIX_ERR_PROC_FAILED_PENDING => {
            "MPIX_ERR_PROC_FAILED_PENDING: a process has died that may have been meant"
        }
        MPIX_ERR_REVOKED => "MPIX_ERR_REVOKED: the communicator has been revoked",
        MPI_ERR_ABI => "MPI_ERR_ABI: error of the binary interface",
        _ => return None,
    })
}

/// Returns the name of a class of the standard, without the sentence.
#[must_use]
pub fn class_name(class: i32) -> &'static str {
    class_text(class)
        .and_then(|text| text.split(':').next())
        .unwrap_or("MPI_ERR_UNKNOWN")
}
