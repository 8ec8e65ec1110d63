//! Error handlers of files.

use std::sync::{Arc, MutexGuard};

use super::{File, Files};
use crate::constants::file::MPI_FILE_NULL;
use crate::error::*;
use crate::handle::{Kind, is_of};
use crate::{Mpi, fail};

impl Files {
    fn errhandler(&self) -> MutexGuard<'_, u32> {
        self.errhandler.lock().expect("no panic under this lock")
    }
}

/// Whether a handle is one of files, be it open or not.
#[must_use]
pub(crate) fn is_file(handle: u32) -> bool {
    handle == MPI_FILE_NULL || is_of(handle, Kind::File)
}

impl Mpi {
    /// The file of a handle for its error handler; `None` is `MPI_FILE_NULL`.
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
    pub fn file_set_errhandler(&self, file: u32, handler: u32) -> Result<()> {
        let file = self.file_or_null(file)?;
        self.errhandler_replace(handler, |new| match file {
            None => std::mem::replace(&mut *self.files.errhandler(), new),
            Some(file) => std::mem::replace(&mut file.state().errhandler, new),
        })
    }

    /// `MPI_File_get_errhandler`: a handle that the program has to free.
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn file_get_errhandler(&self, file: u32) -> Result<u32> {
        let handler = self.file_errhandler(self.file_or_null(file)?.as_deref());
        self.errhandler_share(handler)
    }

    fn file_errhandler(&self, file: Option<&File>) -> u32 {
        match file {
            None => *self.files.errhandler(),
            Some(file) => file.state().errhandler,
        }
    }

    /// The error handler for an error on a file handle, which may be invalid, and the handle that it is told.
    pub(crate) fn file_error_target(&self, handle: u32) -> (u32, u32) {
        let file = self.file(handle).ok();
        let told = file.as_ref().map_or(MPI_FILE_NULL, |file| file.handle());
        (self.file_errhandler(file.as_deref()), told)
    }

    /// `MPI_File_call_errhandler` is raising an error of the program.
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn file_call_errhandler(&self, file: u32, code: i32) -> Result<Error> {
        let what = match self.file_or_null(file)? {
            None => "MPI_FILE_NULL".to_string(),
            Some(file) => file.describe(),
        };
        if self.error_class(code).is_err() {
            fail!(MPI_ERR_ARG, "{code} is not an error code");
        }
        let name = self.error_name(code);
        Ok(Error::new(
            code,
            format!("the program raised {name} on {what}"),
        ))
    }
}
