//! The segment's file and its mappings in this process.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals,
};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::process::{Resource, getrlimit};

use crate::environment::ENV_SEGMENT;

/// The name under which the segment's memfd appears in `/proc/<pid>/fd`.
pub const MEMFD_NAME: &str = "margay-job";

const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Why a segment could not be made or joined.
#[derive(Debug)]
pub enum SegmentError {
    /// A system call failed.
    Os {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
    /// The limit of file size is below the segment's.
    FileLimit {
        /// The limit in bytes.
        limit: u64,
        /// The segment's size.
        bytes: u64,
    },
    /// The environment names a descriptor that did not come with it.
    Closed(RawFd),
    /// The descriptor is not a segment of this version.
    Format(String),
}

impl std::fmt::Display for SegmentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SegmentError::Os { what, error } => {
                write!(f, "cannot {what} the job's shared memory: {error}")
            }
            SegmentError::FileLimit { limit, bytes } => write!(
                f,
                "the limit of file size (ulimit -f) is {} KiB, and the job's shared memory, of which only what is used takes \
                 memory, needs {} KiB: raise the limit (ulimit -f unlimited)",
                limit >> 10,
                bytes >> 10
            ),
            SegmentError::Closed(number) => write!(
                f,
                "{ENV_SEGMENT} is {number}, and descriptor {number}, the job's shared memory, was not inherited: the program \
                 or what started it has closed it, or a rank started this program, to which the variable comes and the \
                 descriptor does not; start it with mpiexec or MPI_Comm_spawn, or unset {ENV_SEGMENT} to run it alone"
            ),
            SegmentError::Format(why) => write!(
                f,
                "the job's shared memory is not usable: {why}; launcher and library must come from \
                 the same Margay"
            ),
        }
    }
}

impl std::error::Error for SegmentError {}

/// Bytes of a file that are mapped, until this is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping stays at one place until drop; what lies in it is reached through atomics or
// through the typed parts, which carry their own argument.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `bytes` of the file from `offset` on, shared with all who map them.
    pub(crate) fn new(file: &impl AsFd, offset: u64, bytes: usize) -> Result<Self, SegmentError> {
        let base = map(file.as_fd(), offset, bytes)?;
        Ok(Mapping { base, bytes })
    }

    /// The first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Asks for huge pages.
    pub(crate) fn advise_huge(&self) {
        // SAFETY: advice about a mapping of ours.
        let _ = unsafe { madvise(self.base.as_ptr().cast(), self.bytes, Advice::LinuxHugepage) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and who refers into it keeps it.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The limit of file size in bytes, if there is one.
pub(crate) fn file_limit() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

/// A new sparse file in memory, of `bytes`.
pub(crate) fn create(bytes: u64) -> Result<File, SegmentError> {
    // The kernel answers a size beyond the limit with a signal that ends the process.
    if let Some(limit) = file_limit().filter(|&limit| limit < bytes) {
        return Err(SegmentError::FileLimit { limit, bytes });
    }
    let file = File::from(memfd_create()?);
    file.set_len(bytes).map_err(|error| SegmentError::Os {
        what: "size",
        error,
    })?;
    // Who has it mapped would die of SIGBUS when another process cut it off.
    fcntl_add_seals(&file, SIZE_SEALS | SealFlags::SEAL).map_err(|error| failed("seal", error))?;
    Ok(file)
}

/// Whether nobody can change the size of the file any more.
pub(crate) fn is_sealed(file: &File) -> bool {
    fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SIZE_SEALS))
}

/// The file behind an inherited descriptor, which is close-on-exec from now on, so that the rank's
/// own children do not hold the job's memory. Takes the descriptor over: that is refused where
/// somebody may have it. Descriptors that are opened in Rust are close-on-exec, and so is one that
/// has been taken over here.
pub(crate) fn inherited(number: RawFd) -> Result<OwnedFd, SegmentError> {
    /// One at a time takes a descriptor over.
    static TAKING: Mutex<()> = Mutex::new(());
    let _one = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
    if number <= 2 {
        return Err(SegmentError::Closed(number));
    }
    // SAFETY: not -1, and borrowed for two calls, of which the first gives an error where it is not
    // open.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    let flags = fcntl_getfd(fd).map_err(|_| SegmentError::Closed(number))?;
    if flags.contains(FdFlags::CLOEXEC) {
        // Opened by this process, under the number that the job's descriptor had.
        return Err(SegmentError::Closed(number));
    }
    fcntl_setfd(fd, FdFlags::CLOEXEC).map_err(|error| failed("keep", error))?;
    // SAFETY: open, and nobody else's (see above).
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

pub(crate) fn metadata(file: &File) -> Result<Metadata, SegmentError> {
    file.metadata().map_err(|error| SegmentError::Os {
        what: "examine",
        error,
    })
}

/// Gives the pages of `[offset, offset + bytes)` of the file back to the system.
pub(crate) fn discard(file: &impl AsFd, offset: u64, bytes: u64) {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let _ = fallocate(file, hole, offset, bytes);
}

pub(crate) fn memfd_create() -> Result<OwnedFd, SegmentError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let made = rustix::fs::memfd_create(MEMFD_NAME, flags);
    made.map_err(|error| failed("create", error))
}

fn map(fd: BorrowedFd<'_>, offset: u64, len: usize) -> Result<NonNull<u8>, SegmentError> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    // SAFETY: a new shared mapping at an address of the kernel's choice touches nothing of ours.
    let at = unsafe { mmap(std::ptr::null_mut(), len, access, flags, fd, offset) }
        .map_err(|error| failed("map", error))?;
    // A core dump of a rank need not hold the whole job's memory.
    // SAFETY: advice about a mapping that we just made.
    let _ = unsafe { madvise(at, len, Advice::LinuxDontDump) };
    Ok(NonNull::new(at.cast()).expect("mmap does not return null"))
}

fn failed(what: &'static str, error: rustix::io::Errno) -> SegmentError {
    SegmentError::Os {
        what,
        error: error.into(),
    }
}
