//! What goes wrong, as the callers of a file system know it.

use std::fmt;
use std::io;

/// The result of an operation.
pub type Result<T> = std::result::Result<T, Fault>;

/// The kind of a failure, one for each error number that file systems return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No such file or directory.
    Missing,
    /// The name is taken.
    Exists,
    /// A part of the path is no directory.
    NoFolder,
    /// It is a directory.
    Folder,
    /// The directory has entries.
    NotEmpty,
    /// Not permitted, whatever the modes.
    Refused,
    /// An argument makes no sense here.
    Invalid,
    /// The name is longer than 255 bytes.
    LongName,
    /// A file would be larger than is possible.
    TooLarge,
    /// Too many links to a file.
    TooManyLinks,
    /// No extended attribute of that name.
    NoAttribute,
    /// No data, or no hole, before the end of the file.
    NoData,
    /// No space is left in a stripe directory.
    NoSpace,
    /// The owner would have more than the quota allows.
    OverQuota,
    /// Not part of this file system.
    Unsupported,
    /// Data cannot be read or written: more directories failed than there is parity.
    Broken,
}

impl Fault {
    /// What an error of a stripe directory means for the operation that met it.
    #[must_use]
    pub fn of(error: &io::Error) -> Fault {
        if is_full(error) {
            Fault::NoSpace
        } else {
            Fault::Broken
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Missing => "no such file or directory",
            Fault::Exists => "the name is taken",
            Fault::NoFolder => "not a directory",
            Fault::Folder => "it is a directory",
            Fault::NotEmpty => "the directory is not empty",
            Fault::Refused => "not permitted",
            Fault::Invalid => "invalid argument",
            Fault::LongName => "the name is longer than 255 bytes",
            Fault::TooLarge => "the file would be too large",
            Fault::TooManyLinks => "too many links",
            Fault::NoAttribute => "no such attribute",
            Fault::NoData => "nothing before the end of the file",
            Fault::NoSpace => "no space is left in a stripe directory",
            Fault::OverQuota => "more than the quota of the user allows",
            Fault::Unsupported => "not supported",
            Fault::Broken => "more stripe directories failed than the parity can replace",
        })
    }
}

impl std::error::Error for Fault {}

/// Whether the directory is full, which is no reason to give it up.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
