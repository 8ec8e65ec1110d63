//! Files: chapter 14 of MPI 5.0 over the [`Storage`] of `margay-fs-storage`.
//!
//! | module | subject |
//! | --- | --- |
//! | here | open files, their properties |
//! | `open` | opening, closing, deleting |
//! | `view` | views, and `set_view` in `open` |
//! | [`access`] | what the functions for reading and writing have in common |
//! | `independent` | access by one rank alone |
//! | `twophase`, `window` | collective access through aggregators |
//! | `pointer` | the shared file pointer |
//! | [`datarep`] | data representations |
//! | `hints` | hints |
//! | `runs` | extents of a file as strided runs |

#![forbid(unsafe_code)]

pub mod access;
pub mod datarep;
mod errors;
mod hints;
mod independent;
mod open;
mod pointer;
mod runs;
mod twophase;
mod view;
mod window;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use margay_fs_storage::Storage;

use margay_run_mpi::comm::Comm;
use margay_run_mpi::constants::errhandler::MPI_ERRORS_RETURN;
use margay_run_mpi::constants::file::MPI_FILE_NULL;
use margay_run_mpi::constants::mode::*;
use margay_run_mpi::constants::seek::*;
use margay_run_mpi::error::*;
use margay_run_mpi::handle::{Kind, Table};
use margay_run_mpi::info::Info;
use margay_run_mpi::{Mpi, fail};

use datarep::Conversion;
use errors::failed;
use hints::Hints;
use pointer::Pointer;
use twophase::Io;
use view::View;

/// The files of a rank, and what it knows about files in general.
pub struct FilesState {
    table: Mutex<Table<Arc<File>>>,
    /// The error handler of `MPI_FILE_NULL`, which new files inherit.
    errhandler: Mutex<u32>,
    datareps: Mutex<BTreeMap<String, Arc<dyn Conversion>>>,
}

impl Default for FilesState {
    fn default() -> FilesState {
        FilesState {
            table: Mutex::new(Table::new(Kind::File)),
            errhandler: Mutex::new(MPI_ERRORS_RETURN),
            datareps: Mutex::default(),
        }
    }
}

impl FilesState {
    fn datareps(&self) -> MutexGuard<'_, BTreeMap<String, Arc<dyn Conversion>>> {
        self.datareps.lock().expect("no panic under this lock")
    }
}

/// The functions of MPI-IO, on a rank's MPI and its files.
#[derive(Clone, Copy)]
pub struct Files<'a> {
    mpi: &'a Mpi,
    state: &'a FilesState,
}

impl<'a> Files<'a> {
    /// Both belong to the same rank.
    #[must_use]
    pub fn new(mpi: &'a Mpi, state: &'a FilesState) -> Files<'a> {
        Files { mpi, state }
    }

    fn table(&self) -> MutexGuard<'a, Table<Arc<File>>> {
        self.state.table.lock().expect("no panic under this lock")
    }
}

/// An open file.
pub struct File {
    handle: AtomicU32,
    name: String,
    amode: i32,
    /// The file's own communicator.
    comm: Arc<Comm>,
    storage: Arc<dyn Storage>,
    pointer: Pointer,
    /// Held during atomic accesses: threads of one process share the locks of the file.
    alone: Mutex<()>,
    state: Mutex<State>,
}

/// What may change.
struct State {
    view: Arc<View>,
    /// The individual file pointer, in etypes.
    position: i64,
    atomic: bool,
    hints: Arc<Hints>,
    errhandler: u32,
    /// The split collective operation under way.
    split: Option<access::Split>,
}

impl File {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under this lock")
    }

    /// Returns the handle.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.handle.load(Ordering::Relaxed)
    }

    /// Returns the access mode that it was opened with.
    #[must_use]
    pub fn amode(&self) -> i32 {
        self.amode
    }

    fn describe(&self) -> String {
        format!("file '{}'", self.name)
    }

    fn io(self: &Arc<File>, mpi: &Mpi) -> Io {
        Io {
            file: self.clone(),
            byte: mpi.basic(margay_core_datatype::Basic::Byte),
        }
    }

    fn is_writable(&self) -> bool {
        self.amode & MPI_MODE_RDONLY == 0
    }

    /// Refuses what files opened with `MPI_MODE_SEQUENTIAL` have not.
    fn not_sequential(&self, what: &str) -> Result<()> {
        if self.amode & MPI_MODE_SEQUENTIAL != 0 {
            fail!(
                MPI_ERR_UNSUPPORTED_OPERATION,
                "{} was opened with MPI_MODE_SEQUENTIAL, which allows no {what}; use the functions of the shared file pointer",
                self.describe()
            );
        }
        Ok(())
    }
}

impl Files<'_> {
    /// Returns the file of a handle.
    ///
    /// # Errors
    /// When there is none.
    pub fn file(&self, handle: u32) -> Result<Arc<File>> {
        match self.table().get(handle) {
            Some(file) => Ok(file.clone()),
            None if handle == MPI_FILE_NULL => {
                fail!(MPI_ERR_FILE, "the file handle is MPI_FILE_NULL")
            }
            None => fail!(
                MPI_ERR_FILE,
                "the file handle is not of an open file; was it closed?"
            ),
        }
    }

    /// `MPI_File_set_size` (collective).
    ///
    /// # Errors
    /// When the sizes differ, or the file cannot have that size.
    pub fn set_size(&self, handle: u32, size: i64) -> Result<()> {
        self.resize(handle, size, "set the size of", |storage, size| {
            storage.set_size(size)
        })
    }

    /// `MPI_File_preallocate` (collective).
    ///
    /// # Errors
    /// When the sizes differ, or there is no space.
    pub fn preallocate(&self, handle: u32, size: i64) -> Result<()> {
        self.resize(handle, size, "take space for", |storage, size| {
            storage.preallocate(size)
        })
    }

    fn resize(
        &self,
        handle: u32,
        size: i64,
        what: &str,
        resize: impl FnOnce(&dyn Storage, u64) -> margay_fs_storage::Result<()>,
    ) -> Result<()> {
        let file = self.file(handle)?;
        let checked = if size < 0 {
            Err(Error::new(
                MPI_ERR_ARG,
                format!("size is {size}; it must not be negative"),
            ))
        } else {
            file.no_split().and_then(|()| file.may_write())
        };
        self.agree(&file, checked)?;
        self.same(&file, size, "size")?;
        let mut result = Ok(());
        if file.comm.rank == 0 {
            result = resize(&*file.storage, size as u64).map_err(failed);
        }
        self.agree(&file, result)
            .map_err(|e| Error::new(e.code(), format!("could not {what} the file: {}", e.text())))
    }

    /// `MPI_File_get_size`
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn size(&self, handle: u32) -> Result<i64> {
        let file = self.file(handle)?;
        Ok(file.storage.size().map_err(failed)? as i64)
    }

    /// `MPI_File_get_group`: a new handle.
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn group(&self, handle: u32) -> Result<u32> {
        let file = self.file(handle)?;
        let session = file.comm.state().session;
        self.mpi.group_add(file.comm.group.clone(), session)
    }

    /// `MPI_File_get_info`
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn info(&self, handle: u32) -> Result<Info> {
        Ok(self.file(handle)?.state().hints.info())
    }

    /// `MPI_File_set_info` (collective).
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn set_info(&self, handle: u32, info: &Info) -> Result<()> {
        let file = self.file(handle)?;
        let hints = self.hints(&file, info)?;
        file.state().hints = Arc::new(hints);
        Ok(())
    }

    /// Returns the hints of a file with those of an info object, alike on all ranks where they must
    /// be (collective).
    fn hints(&self, file: &File, info: &Info) -> Result<Hints> {
        let mut hints = Hints::clone(&file.state().hints);
        hints.apply(info, file.comm.size());
        let all = self.mpi.gather_all(&file.comm, &hints.common())?;
        hints.agree(&all[0]);
        Ok(hints)
    }

    /// `MPI_File_sync` (collective): what all have written is on the device.
    ///
    /// # Errors
    /// When the handle is invalid, the file was opened for reading only, or the device refuses.
    pub fn sync(&self, handle: u32) -> Result<()> {
        let file = self.file(handle)?;
        let mut result = file.no_split();
        if result.is_ok() && file.is_writable() {
            result = file.storage.sync().map_err(failed);
        }
        self.agree(&file, result)
    }

    /// `MPI_File_set_atomicity` (collective).
    ///
    /// # Errors
    /// When the handle is invalid or the flags differ.
    pub fn set_atomicity(&self, handle: u32, atomic: bool) -> Result<()> {
        let file = self.file(handle)?;
        self.agree(&file, file.no_split())?;
        self.same(&file, i64::from(atomic), "flag")?;
        file.state().atomic = atomic;
        Ok(())
    }

    /// `MPI_File_get_atomicity`
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn atomicity(&self, handle: u32) -> Result<bool> {
        Ok(self.file(handle)?.state().atomic)
    }

    /// `MPI_File_seek`
    ///
    /// # Errors
    /// When the handle or `whence` is invalid, or the offset would be negative.
    pub fn seek(&self, handle: u32, offset: i64, whence: i32) -> Result<()> {
        let file = self.file(handle)?;
        file.not_sequential("individual file pointer")?;
        let base = match whence {
            MPI_SEEK_CUR => file.state().position,
            _ => file.seek_base(whence)?,
        };
        let position = sum(base, offset)?;
        file.state().position = position;
        Ok(())
    }

    /// `MPI_File_get_position`
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn position(&self, handle: u32) -> Result<i64> {
        let file = self.file(handle)?;
        file.not_sequential("individual file pointer")?;
        let position = file.state().position;
        Ok(position)
    }

    /// `MPI_File_seek_shared` (collective).
    ///
    /// # Errors
    /// When the arguments differ between ranks, or the offset would be negative.
    pub fn seek_shared(&self, handle: u32, offset: i64, whence: i32) -> Result<()> {
        let file = self.file(handle)?;
        self.agree(&file, file.no_split())?;
        self.same(&file, offset, "offset")?;
        self.same(&file, i64::from(whence), "whence")?;
        // All have come, so nobody moves the pointer meanwhile.
        let mut result = Ok(());
        if file.pointer.is_home() {
            let base = match whence {
                MPI_SEEK_CUR => Ok(file.pointer.advance(self.mpi.rank(), 0)),
                _ => file.seek_base(whence),
            };
            result = base
                .and_then(|base| sum(base, offset))
                .map(|to| file.pointer.set(to));
        }
        self.agree(&file, result)
    }

    /// `MPI_File_get_position_shared`
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn position_shared(&self, handle: u32) -> Result<i64> {
        let file = self.file(handle)?;
        Ok(file.pointer.advance(self.mpi.rank(), 0))
    }

    /// `MPI_File_get_byte_offset`
    ///
    /// # Errors
    /// When the handle is invalid or the offset negative.
    pub fn byte_offset(&self, handle: u32, offset: i64) -> Result<i64> {
        let file = self.file(handle)?;
        file.not_sequential("offsets")?;
        let view = file.state().view.clone();
        view.byte_offset(offset)
    }

    /// `MPI_File_get_type_extent`
    ///
    /// # Errors
    /// When a handle is invalid.
    pub fn type_extent(&self, handle: u32, datatype: u32) -> Result<i64> {
        let file = self.file(handle)?;
        let datatype = self.mpi.datatype(datatype)?.datatype.clone();
        let view = file.state().view.clone();
        Ok(view.rep.in_file(&datatype)?.extent())
    }

    /// Ends a collective step: every rank says whether all is well with it. Returns this rank's
    /// error, or, when it has none, one that names the first rank that has.
    fn agree(&self, file: &File, result: Result<()>) -> Result<()> {
        self.agree_on(&file.comm, result, &file.describe())
    }

    fn agree_on(&self, comm: &Arc<Comm>, result: Result<()>, what: &str) -> Result<()> {
        let class = result.as_ref().err().map_or(0, Error::code);
        let all = self.mpi.gather_all(comm, &[class])?;
        result?;
        match all.iter().position(|words| words[0] != 0) {
            None => Ok(()),
            Some(rank) => fail!(
                all[rank][0],
                "rank {rank} of those that share {what} reports {}",
                self.mpi.error_name(all[rank][0])
            ),
        }
    }

    /// Refuses arguments that differ between ranks (collective).
    fn same(&self, file: &File, value: i64, name: &str) -> Result<()> {
        let words = [value as i32, (value >> 32) as i32];
        let all = self.mpi.gather_all(&file.comm, &words)?;
        match all.iter().position(|other| other[..] != words) {
            None => Ok(()),
            Some(rank) => fail!(
                MPI_ERR_NOT_SAME,
                "{name} is {value} here and another value at rank {rank}, for {}; it must be the same at all ranks",
                file.describe()
            ),
        }
    }
}

impl File {
    /// Returns where `MPI_SEEK_SET` and `MPI_SEEK_END` begin.
    fn seek_base(&self, whence: i32) -> Result<i64> {
        match whence {
            MPI_SEEK_SET => Ok(0),
            MPI_SEEK_END => {
                let view = self.state().view.clone();
                Ok(view.end(self.storage.size().map_err(failed)?))
            }
            _ => fail!(
                MPI_ERR_ARG,
                "whence is {whence}; use MPI_SEEK_SET, MPI_SEEK_CUR or MPI_SEEK_END"
            ),
        }
    }

    fn may_write(&self) -> Result<()> {
        if self.is_writable() {
            return Ok(());
        }
        fail!(
            MPI_ERR_READ_ONLY,
            "{} was opened with MPI_MODE_RDONLY; open it with MPI_MODE_RDWR or MPI_MODE_WRONLY to write",
            self.describe()
        )
    }

    /// Refuses collective operations while a split one is under way.
    fn no_split(&self) -> Result<()> {
        match &self.state().split {
            None => Ok(()),
            Some(split) => fail!(
                MPI_ERR_IO,
                "{}_begin is under way on {}; call {}_end first",
                split.name,
                self.describe(),
                split.name
            ),
        }
    }
}

fn sum(base: i64, offset: i64) -> Result<i64> {
    match base.checked_add(offset) {
        Some(position) if position >= 0 => Ok(position),
        _ => fail!(
            MPI_ERR_ARG,
            "{offset} from {base} on is before the begin of the view or beyond 63-bit offsets"
        ),
    }
}
