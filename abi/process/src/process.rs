//! All that hangs off the rank of a process.

use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

use margay_net_wireup::Wire;
use margay_run_dynamic::{Dynamic, DynamicState};
use margay_run_files::{Files, FilesState};
use margay_run_mpi::Mpi;
use margay_run_windows::{Windows, WindowsState};
use margay_sys_os::crash::Writing;

use crate::open::Opened;

/// The rank of a process: MPI's objects, and beside them the state of what is built on them. Each
/// crate owns its state; this is the one place that knows all of them.
pub struct Process {
    mpi: Mpi,
    windows: WindowsState,
    files: FilesState,
    dynamic: DynamicState,
    /// The connection to a launcher that is not Margay's, until the process leaves its job.
    wire: Mutex<Option<Box<dyn Wire>>>,
    /// Writes crashes down.
    _crashes: Option<Writing>,
}

impl Process {
    pub(crate) fn new(
        (rank, wire): Opened,
        arguments: &[String],
        crashes: Option<Writing>,
    ) -> Process {
        Process {
            _crashes: crashes,
            mpi: Mpi::new(rank, arguments),
            windows: WindowsState::default(),
            files: FilesState::default(),
            dynamic: DynamicState::default(),
            wire: Mutex::new(wire),
        }
    }

    /// Leaves the job of a launcher that is not Margay's. A process with a world waits until all
    /// have come here: that one of them is gone is a failure for those that are not.
    pub(crate) fn leave_launcher(&self, has_world: bool) {
        if let Some(mut wire) = self.take_wire() {
            if has_world && !self.mpi.rank().has_failures() {
                // Without the launcher there is nobody to wait for.
                let _ = wire.fence();
            }
            wire.finalize();
        }
    }

    /// Has a launcher that is not Margay's end all processes of the job.
    pub(crate) fn abort_launcher(&self, code: i32) {
        if let Some(mut wire) = self.take_wire() {
            wire.abort(code);
        }
    }

    fn take_wire(&self) -> Option<Box<dyn Wire>> {
        self.wire
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// One-sided communication.
    #[inline(always)]
    #[must_use]
    pub fn windows(&self) -> Windows<'_> {
        Windows::new(&self.mpi, &self.windows)
    }

    /// Files.
    #[must_use]
    pub fn files(&self) -> Files<'_> {
        Files::new(&self.mpi, &self.files)
    }

    /// Processes that come while the program runs.
    #[must_use]
    pub fn dynamic(&self) -> Dynamic<'_> {
        Dynamic::new(&self.mpi, &self.dynamic)
    }

    /// From now on only one thread at a time uses the rank, and its locks need not check that.
    ///
    /// # Safety
    /// As [`RankLock::assume_single_thread`](margay_sys_os::lock::RankLock::assume_single_thread):
    /// the program promises it.
    pub(crate) unsafe fn assume_single_thread(&self) {
        // SAFETY: the caller hands on the promise.
        unsafe {
            self.mpi.lock().assume_single_thread();
            self.windows.lock().assume_single_thread();
            self.mpi.rank().lock().assume_single_thread();
        }
        self.mpi.rank().monitor().recording.set_single(true);
    }

    /// From now on several threads may use the rank at the same time.
    pub(crate) fn set_shared(&self) {
        self.mpi.lock().set_shared();
        self.windows.lock().set_shared();
        self.mpi.rank().lock().set_shared();
        self.mpi.rank().monitor().recording.set_single(false);
    }
}

/// What most functions need of it.
impl Deref for Process {
    type Target = Mpi;

    #[inline(always)]
    fn deref(&self) -> &Mpi {
        &self.mpi
    }
}
