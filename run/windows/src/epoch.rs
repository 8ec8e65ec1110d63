//! Which epochs are open on a window, and what may be called in them.
//!
//! Access epochs of this process (`docs/windows.md` draws the states): none, fence, start, locks of
//! single targets, lock of all. An exposure epoch (post) may be open beside the first three. A
//! fence opens an epoch that counts only if operations follow, so everything that may come after a
//! fence may also end its epoch.

use std::sync::atomic::Ordering;

use super::{Target, Window};
use margay_run_mpi::constants::mode::*;
use margay_run_mpi::error::*;
use margay_run_mpi::fail;

/// No epoch covers the target.
pub(super) const CLOSED: u8 = 0;
/// Covered by `MPI_Win_start`.
pub(super) const STARTED: u8 = 1;
/// Locked: shared, exclusively, or with the assertion that no lock is needed.
pub(super) const SHARED: u8 = 2;
pub(super) const EXCLUSIVE: u8 = 3;
pub(super) const UNCHECKED: u8 = 4;

/// The access epoch of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Access {
    None,
    Fence,
    /// The targets.
    Start(Vec<u32>),
    /// How many targets are locked.
    Locks(u32),
    /// Whether the lock is really held.
    LockAll(bool),
}

/// What is open.
pub(super) struct Epoch {
    pub access: Access,
    /// The origins to which the window is posted.
    pub exposed: Option<Vec<u32>>,
    /// Posts of each rank that starts of this process have used up.
    pub started: Vec<u32>,
    /// Completions of each rank that waits of this process have used up.
    pub waited: Vec<u32>,
}

impl Epoch {
    pub(super) fn new(ranks: u32) -> Epoch {
        Epoch {
            access: Access::None,
            exposed: None,
            started: vec![0; ranks as usize],
            waited: vec![0; ranks as usize],
        }
    }

    /// For messages.
    pub(super) fn describe(&self) -> String {
        let access = match &self.access {
            Access::None => "no access epoch is open",
            Access::Fence => "an epoch of MPI_Win_fence is open",
            Access::Start(_) => "an epoch of MPI_Win_start is open; call MPI_Win_complete first",
            Access::Locks(_) => "targets are locked; call MPI_Win_unlock first",
            Access::LockAll(_) => "MPI_Win_lock_all is in force; call MPI_Win_unlock_all first",
        };
        match self.exposed {
            None => access.into(),
            Some(_) => format!("{access}; the window is posted, call MPI_Win_wait first"),
        }
    }

    /// Whether nothing but perhaps a fence is open.
    pub(super) fn is_quiet(&self) -> bool {
        matches!(self.access, Access::None | Access::Fence) && self.exposed.is_none()
    }
}

impl Window {
    /// Whether an epoch covers a target.
    #[inline(always)]
    pub(super) fn is_open(&self, target: &Target) -> bool {
        self.all.load(Ordering::Relaxed) || target.open.load(Ordering::Relaxed) != CLOSED
    }

    /// Returns the error of an operation outside of an epoch.
    #[cold]
    pub(super) fn outside(&self, target: u32) -> Error {
        let epoch = self.epoch().describe();
        Error::new(
            MPI_ERR_RMA_SYNC,
            format!(
                "no epoch covers rank {target} of {}: {epoch}; call MPI_Win_fence, MPI_Win_start, MPI_Win_lock or \
                 MPI_Win_lock_all before",
                self.describe()
            ),
        )
    }

    pub(super) fn set_open(&self, target: u32, kind: u8) {
        self.targets[target as usize]
            .open
            .store(kind, Ordering::Relaxed);
    }

    /// Ends the epoch of a fence, if it is one, before another kind begins.
    pub(super) fn leave_fence(&self, epoch: &mut Epoch) {
        if epoch.access == Access::Fence {
            epoch.access = Access::None;
            self.all.store(false, Ordering::Relaxed);
        }
    }

    /// Refuses what may not be called now.
    pub(super) fn refused<T>(&self, call: &str, epoch: &Epoch) -> Result<T> {
        fail!(
            MPI_ERR_RMA_SYNC,
            "{call} is not allowed on {} now: {}",
            self.describe(),
            epoch.describe()
        )
    }
}

/// Checks the assertion of a call.
pub(super) fn check_assert(given: i32, allowed: i32) -> Result<()> {
    if given & !allowed != 0 {
        let names = [
            (MPI_MODE_NOCHECK, "MPI_MODE_NOCHECK"),
            (MPI_MODE_NOSTORE, "MPI_MODE_NOSTORE"),
            (MPI_MODE_NOPUT, "MPI_MODE_NOPUT"),
            (MPI_MODE_NOPRECEDE, "MPI_MODE_NOPRECEDE"),
            (MPI_MODE_NOSUCCEED, "MPI_MODE_NOSUCCEED"),
        ];
        let names: Vec<&str> = names
            .iter()
            .filter(|(value, _)| allowed & value != 0)
            .map(|(_, name)| *name)
            .collect();
        fail!(
            MPI_ERR_ASSERT,
            "assert is {given}; here it may be 0 or combine {}",
            names.join(", ")
        );
    }
    Ok(())
}
