//! Opening, closing and deleting files, and setting views: what is collective and changes what a
//! file is.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use margay_core_datatype::Datatype;
use margay_fs_storage::{How, Layout, Posix, Storage, Store};

use super::datarep::Rep;
use super::errors::failed;
use super::hints::Hints;
use super::pointer::Pointer;
use super::view::View;
use super::{File, Files, State};
use margay_run_mpi::comm::Comm;
use margay_run_mpi::constants::displacement::MPI_DISPLACEMENT_CURRENT;
use margay_run_mpi::constants::file::MPI_FILE_NULL;
use margay_run_mpi::constants::mode::*;
use margay_run_mpi::error::*;
use margay_run_mpi::fail;
use margay_run_mpi::info::Info;

const KNOWN: i32 = MPI_MODE_APPEND
    | MPI_MODE_CREATE
    | MPI_MODE_DELETE_ON_CLOSE
    | MPI_MODE_EXCL
    | MPI_MODE_RDONLY
    | MPI_MODE_RDWR
    | MPI_MODE_SEQUENTIAL
    | MPI_MODE_UNIQUE_OPEN
    | MPI_MODE_WRONLY;

/// The environment variable that says whether files of a parallel file system are read and written
/// past the kernel.
const ENV_DIRECT: &str = "MARGAY_PFS_DIRECT";

/// Where the number of a file begins among the words that ranks compare.
const NUMBER: usize = 3;

impl Files<'_> {
    /// `MPI_File_open` (collective): the handle.
    ///
    /// # Errors
    /// On all ranks, when the file cannot be opened on one of them or their arguments do not fit
    /// together.
    pub fn open(&self, comm: u32, name: &str, amode: i32, info: &Info) -> Result<u32> {
        let parent = self.mpi.intracomm(comm)?;
        let mut hints = Hints::new(parent.size(), self.usable_cores());
        hints.apply(info, parent.size());
        let mut words = vec![amode];
        words.extend(hints.common());
        let (comm, all) = self.mpi.comm_hidden(&parent, &words)?;
        hints.agree(&all[0][1..]);
        if let Some(rank) = all.iter().position(|words| words[0] != amode) {
            fail!(
                MPI_ERR_NOT_SAME,
                "amode is {amode} here and {} at rank {rank}, for file '{name}'; it must be the same at all ranks",
                all[rank][0]
            );
        }
        check_amode(amode)?;
        let opened = self.open_on(&comm, name, amode, hints);
        if opened.is_err() {
            comm.close_channel(self.mpi.rank());
        }
        opened
    }

    /// Opens on a communicator of the file's own: first rank 0, so that a new file is made once.
    fn open_on(&self, comm: &Arc<Comm>, name: &str, amode: i32, hints: Hints) -> Result<u32> {
        let mut opened = Ok(None);
        if comm.rank == 0 {
            opened = open(name, amode, &hints, true).map(Some);
        }
        let result = opened.as_ref().map(|_| ()).map_err(Clone::clone);
        self.agree_on(comm, result, &format!("file '{name}'"))?;
        if comm.rank != 0 {
            opened = open(name, amode, &hints, false).map(Some);
        }
        self.opened(comm, name, amode, hints, opened)
    }

    /// The second half: all have tried.
    fn opened(
        &self,
        comm: &Arc<Comm>,
        name: &str,
        amode: i32,
        mut hints: Hints,
        opened: Result<Option<Arc<dyn Storage>>>,
    ) -> Result<u32> {
        let what = format!("file '{name}'");
        let class = opened.as_ref().err().map_or(0, Error::code);
        let identity = match &opened {
            Ok(Some(storage)) => {
                let identity = storage.identity();
                [identity.device, identity.number]
            }
            _ => [0, 0],
        };
        let mut words = vec![class];
        // Error and device lie before NUMBER, the number of the file from there on.
        for half in identity {
            words.extend([half as i32, (half >> 32) as i32]);
        }
        let known = words.len();
        let layout = opened.as_ref().ok().and_then(|s| s.as_ref()?.layout());
        let layout = layout.map_or([0, 0], |layout| [layout.unit, layout.factor]);
        words.extend(layout.map(|word| word as i32));
        let all = self.mpi.gather_all(comm, &words)?;
        let storage = opened?.expect("every rank has opened it or has an error");
        if let Some(rank) = all.iter().position(|words| words[0] != 0) {
            let class = all[rank][0];
            let reason = self.mpi.error_name(class);
            fail!(
                class,
                "rank {rank} of those that open {what} reports {reason}"
            );
        }
        // Hosts number their devices each for itself.
        let same = |rank: u32| match self.is_near(comm, rank) {
            true => 1..known,
            false => NUMBER..known,
        };
        if let Some(rank) = (0..).zip(&all).find_map(|(rank, other)| {
            let same = same(rank);
            (other[same.clone()] != words[same]).then_some(rank)
        }) {
            fail!(
                MPI_ERR_NOT_SAME,
                "{what} is another file at rank {rank}; name the same one at all ranks"
            );
        }
        // Domains are alike only where the layout is, so what rank 0 knows of it counts.
        let [unit, factor] = [known, known + 1].map(|at| all[0][at] as u32);
        if unit > 0 {
            hints.lay_out(Layout { unit, factor });
        }
        let view = Arc::new(View::bytes());
        let position = match amode & MPI_MODE_APPEND {
            0 => 0,
            _ => view.end(storage.size().map_err(failed)?),
        };
        let pointer = Pointer::new(self.mpi.rank(), comm.clone(), position);
        let errhandler = self.get_errhandler(MPI_FILE_NULL)?;
        let file = Arc::new(File {
            handle: AtomicU32::new(MPI_FILE_NULL),
            name: name.into(),
            amode,
            comm: comm.clone(),
            storage,
            pointer,
            alone: Mutex::new(()),
            state: Mutex::new(State {
                view,
                position,
                atomic: false,
                hints: Arc::new(hints),
                errhandler,
                split: None,
            }),
        });
        let Some(handle) = self.table().insert(file.clone()) else {
            fail!(
                MPI_ERR_OTHER,
                "a million files are open; close some with MPI_File_close"
            );
        };
        file.handle.store(handle, Ordering::Relaxed);
        // Nobody writes before all know where the end of the file was.
        if amode & MPI_MODE_APPEND != 0 {
            self.agree(&file, Ok(()))?;
        }
        Ok(handle)
    }

    /// Cores that the job may use.
    fn usable_cores(&self) -> u32 {
        self.mpi.rank().peers().cores().max(1)
    }

    /// `MPI_File_close` (collective).
    ///
    /// # Errors
    /// When the handle is invalid, a split operation is under way, or the file cannot be deleted.
    pub fn close(&self, handle: u32) -> Result<()> {
        let file = self.file(handle)?;
        self.agree(&file, file.no_split())?;
        // All have come: nobody uses the shared pointer or the file any more.
        file.pointer.close(self.mpi.rank());
        let mut result = Ok(());
        if file.amode & MPI_MODE_DELETE_ON_CLOSE != 0 {
            if file.comm.rank == 0 {
                result = Posix::default().delete(&file.name).map_err(failed);
            }
            result = self.agree(&file, result);
        }
        let errhandler = file.state().errhandler;
        let _ = self.mpi.errhandler_release(errhandler);
        self.table().remove(handle);
        file.comm.close_channel(self.mpi.rank());
        result
    }

    /// Whether a rank is known to be on this host.
    fn is_near(&self, comm: &Comm, rank: u32) -> bool {
        let own = self.mpi.rank();
        let host = |rank| {
            let process = comm.group.process(rank);
            let process = process.filter(|process| *process < own.world_size());
            process.map(|process| own.peers().host(process))
        };
        host(rank).is_some() && host(rank) == host(comm.rank)
    }

    /// `MPI_File_delete`
    ///
    /// # Errors
    /// When there is no such file or it cannot be deleted.
    pub fn delete(&self, name: &str) -> Result<()> {
        Posix::default().delete(name).map_err(failed)
    }

    /// `MPI_File_set_view` (collective).
    ///
    /// # Errors
    /// When an argument is invalid, or those that must be alike are not.
    pub fn set_view(
        &self,
        handle: u32,
        disp: i64,
        etype: u32,
        filetype: u32,
        datarep: &str,
        info: &Info,
    ) -> Result<()> {
        let file = self.file(handle)?;
        let view = self.view_of(&file, disp, etype, filetype, datarep);
        let result = view.as_ref().map_or_else(|e| Err(e.clone()), |_| Ok(()));
        self.agree(&file, result)?;
        let view = view?;
        self.same(&file, view.unit() as i64, "the extent of etype in the file")?;
        let mut name = DefaultHasher::new();
        view.rep.name().hash(&mut name);
        self.same(&file, name.finish() as i64, "the name of datarep")?;
        let hints = self.hints(&file, info)?;
        if file.pointer.is_home() {
            file.pointer.set(0);
        }
        {
            let mut state = file.state();
            state.view = Arc::new(view);
            state.position = 0;
            state.hints = Arc::new(hints);
        }
        // The shared pointer is at the begin before anybody goes on.
        self.agree(&file, Ok(()))
    }

    fn view_of(
        &self,
        file: &File,
        disp: i64,
        etype: u32,
        filetype: u32,
        datarep: &str,
    ) -> Result<View> {
        file.no_split()?;
        let etype = self.mpi.committed(etype)?;
        let filetype = self.mpi.committed(filetype)?;
        let sequential = file.amode & MPI_MODE_SEQUENTIAL != 0;
        let disp = match disp {
            MPI_DISPLACEMENT_CURRENT if sequential => {
                let view = file.state().view.clone();
                view.byte_offset(file.pointer.advance(self.mpi.rank(), 0))?
            }
            MPI_DISPLACEMENT_CURRENT => fail!(
                MPI_ERR_ARG,
                "disp is MPI_DISPLACEMENT_CURRENT, which is for files opened with MPI_MODE_SEQUENTIAL only"
            ),
            _ if sequential => fail!(
                MPI_ERR_ARG,
                "disp is {disp}; {} was opened with MPI_MODE_SEQUENTIAL, so it must be MPI_DISPLACEMENT_CURRENT",
                file.describe()
            ),
            ..0 => fail!(MPI_ERR_ARG, "disp is {disp}; it must not be negative"),
            _ => disp,
        };
        let rep = self.datarep(datarep)?;
        View::new(disp, etype, filetype, rep, file.is_writable())
    }

    /// `MPI_File_get_view`: displacement, etype and filetype with handles, and the name of the data
    /// representation.
    ///
    /// # Errors
    /// When the handle is invalid or there are too many datatypes.
    pub fn view(&self, handle: u32) -> Result<(i64, u32, u32, String)> {
        let file = self.file(handle)?;
        let view = file.state().view.clone();
        let handle_of = |datatype: &Arc<Datatype>| self.mpi.datatype_handle(datatype);
        Ok((
            view.disp,
            handle_of(&view.etype)?,
            handle_of(&view.filetype)?,
            Rep::name(&view.rep).into(),
        ))
    }
}

fn check_amode(amode: i32) -> Result<()> {
    let ways = [MPI_MODE_RDONLY, MPI_MODE_RDWR, MPI_MODE_WRONLY];
    if ways.iter().filter(|&&way| amode & way != 0).count() != 1 {
        fail!(
            MPI_ERR_AMODE,
            "amode is {amode}; it must have exactly one of MPI_MODE_RDONLY, MPI_MODE_RDWR and MPI_MODE_WRONLY"
        );
    }
    if amode & !KNOWN != 0 {
        fail!(
            MPI_ERR_AMODE,
            "amode is {amode}, in which {} has no meaning",
            amode & !KNOWN
        );
    }
    if amode & MPI_MODE_RDONLY != 0 && amode & (MPI_MODE_CREATE | MPI_MODE_EXCL) != 0 {
        fail!(
            MPI_ERR_AMODE,
            "amode has MPI_MODE_RDONLY together with MPI_MODE_CREATE or MPI_MODE_EXCL; a new file can only be written"
        );
    }
    if amode & MPI_MODE_RDWR != 0 && amode & MPI_MODE_SEQUENTIAL != 0 {
        fail!(
            MPI_ERR_AMODE,
            "amode has MPI_MODE_RDWR together with MPI_MODE_SEQUENTIAL; use MPI_MODE_RDONLY or MPI_MODE_WRONLY"
        );
    }
    Ok(())
}

/// Opens the file; `first`: as the rank that makes it.
fn open(name: &str, amode: i32, hints: &Hints, first: bool) -> Result<Arc<dyn Storage>> {
    if name.is_empty() {
        fail!(MPI_ERR_BAD_FILE, "the name of the file is empty");
    }
    let how = How {
        read: amode & MPI_MODE_WRONLY == 0,
        write: amode & MPI_MODE_RDONLY == 0,
        create: first && amode & MPI_MODE_CREATE != 0,
        exclusive: first && amode & MPI_MODE_EXCL != 0,
        permissions: hints.file_perm,
    };
    let place = Posix {
        is_direct: std::env::var_os(ENV_DIRECT).is_none_or(|value| value != "0"),
    };
    let storage = place.open(name, how).map_err(failed)?;
    if how.create {
        storage.lay_out(hints.wished);
    }
    Ok(storage)
}
