//! What goes wrong with files.

use std::fmt;
use std::io;
use std::path::Path;

use margay_sys_os::file::Cause;

/// The result of an operation on a file.
pub type Result<T> = std::result::Result<T, StorageError>;

/// An error: what was tried, on which file, why it failed and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageError {
    /// The kind of reason.
    pub cause: Cause,
    text: String,
}

impl StorageError {
    /// What the system said when `what` (a verb) was tried on `path`.
    #[must_use]
    pub fn of(error: &io::Error, what: &str, path: &str) -> StorageError {
        let cause = Cause::of(error);
        let reason = error.to_string();
        // The system's sentence without the number.
        let reason = reason
            .split(" (os error")
            .next()
            .unwrap_or("")
            .to_lowercase();
        let remedy = match cause {
            Cause::Missing => "check the name, or open it with MPI_MODE_CREATE",
            Cause::Exists => "choose another name, or open it without MPI_MODE_EXCL",
            Cause::Denied => "check its permissions and those of its folder",
            Cause::ReadOnly => "choose a file system that may be written",
            Cause::Name => "name a plain file in a folder that is there",
            Cause::Full => "free some space, or choose another file system",
            Cause::Quota => "delete some of your files, or ask for a larger share",
            Cause::Busy => "wait until the others have closed it",
            Cause::Unsupported => "choose another file system",
            Cause::Other => "look at the file and at the system's log",
        };
        let missing_folder = Path::new(path).parent().filter(|folder| {
            cause == Cause::Missing && !folder.as_os_str().is_empty() && !folder.is_dir()
        });
        let remedy = missing_folder.map_or_else(
            || remedy.to_owned(),
            |folder| {
                let folder = folder.display();
                format!("there is no folder '{folder}'; make it, or check the name")
            },
        );
        StorageError {
            cause,
            text: format!("cannot {what} file '{path}': {reason}; {remedy}"),
        }
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for StorageError {}
