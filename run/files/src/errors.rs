//! Errors on files, and their error handlers.

use std::sync::{Arc, MutexGuard};

use margay_fs_storage::{Cause, StorageError};

use super::{File, Files, FilesState};
use margay_run_mpi::constants::file::MPI_FILE_NULL;
use margay_run_mpi::errhandler::Action;
use margay_run_mpi::error::*;
use margay_run_mpi::fail;
use margay_run_mpi::handle::{Kind, is_of};

impl FilesState {
    fn errhandler(&self) -> MutexGuard<'_, u32> {
        self.errhandler.lock().expect("no panic under this lock")
    }
}

/// Whether a handle is one of files, be it open or not.
#[must_use]
fn is_file(handle: u32) -> bool {
    handle == MPI_FILE_NULL || is_of(handle, Kind::File)
}

impl Files<'_> {
    /// Returns the file of a handle for its error handler; `None` is `MPI_FILE_NULL`.
    fn file_or_null(&self, handle: u32) -> Result<Option<Arc<File>>> {
        match handle {
            MPI_FILE_NULL => Ok(None),
            _ => self.file(handle).map(Some),
        }
    }

    /// `MPI_File_set_errhandler`
    ///
    /// # Errors
    /// When a handle is invalid.
    pub fn set_errhandler(&self, file: u32, handler: u32) -> Result<()> {
        let file = self.file_or_null(file)?;
        self.mpi.errhandler_replace(handler, |new| match file {
            None => std::mem::replace(&mut *self.state.errhandler(), new),
            Some(file) => std::mem::replace(&mut file.state().errhandler, new),
        })
    }

    /// `MPI_File_get_errhandler`: a handle that the program has to free.
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn get_errhandler(&self, file: u32) -> Result<u32> {
        let handler = self.errhandler(self.file_or_null(file)?.as_deref());
        self.mpi.errhandler_share(handler)
    }

    fn errhandler(&self, file: Option<&File>) -> u32 {
        match file {
            None => *self.state.errhandler(),
            Some(file) => file.state().errhandler,
        }
    }

    /// Returns what to do about an error on a file, which may be closed; `None` if the handle is
    /// not one of files.
    #[must_use]
    pub fn error_action(&self, handle: u32) -> Option<Action> {
        if !is_file(handle) {
            return None;
        }
        let file = self.file(handle).ok();
        let report = file.as_ref().map_or(MPI_FILE_NULL, |file| file.handle());
        Some(self.mpi.action_of(self.errhandler(file.as_deref()), report))
    }

    /// `MPI_File_call_errhandler` is raising an error of the program.
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn call_errhandler(&self, file: u32, code: i32) -> Result<Error> {
        let what = match self.file_or_null(file)? {
            None => "MPI_FILE_NULL".to_string(),
            Some(file) => file.describe(),
        };
        if self.mpi.error_class(code).is_err() {
            fail!(MPI_ERR_ARG, "{code} is not an error code");
        }
        let name = self.mpi.error_name(code);
        Ok(Error::new(
            code,
            format!("the program raised {name} on {what}"),
        ))
    }
}

/// Returns an error of the storage as one of MPI.
pub(crate) fn failed(error: StorageError) -> Error {
    let class = match error.cause {
        Cause::Missing => MPI_ERR_NO_SUCH_FILE,
        Cause::Exists => MPI_ERR_FILE_EXISTS,
        Cause::Denied => MPI_ERR_ACCESS,
        Cause::ReadOnly => MPI_ERR_READ_ONLY,
        Cause::Name => MPI_ERR_BAD_FILE,
        Cause::Full => MPI_ERR_NO_SPACE,
        Cause::Quota => MPI_ERR_QUOTA,
        Cause::Busy => MPI_ERR_FILE_IN_USE,
        Cause::Unsupported => MPI_ERR_UNSUPPORTED_OPERATION,
        Cause::Other => MPI_ERR_IO,
    };
    Error::new(class, error.to_string())
}
