//! The segment's file and its mappings in this process.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

/// The name under which the segment's memfd appears in `/proc/<pid>/fd`.
pub const MEMFD_NAME: &str = "margay-job";

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
    /// The descriptor is not a segment of this version.
    Format(String),
}

impl std::fmt::Display for SegmentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SegmentError::Os { what, error } => {
                write!(f, "cannot {what} the job's shared memory: {error}")
            }
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
    pub(crate) fn new(
        file: &impl AsRawFd,
        offset: u64,
        bytes: usize,
    ) -> Result<Self, SegmentError> {
        let base = map(file.as_raw_fd(), offset, bytes)?;
        Ok(Mapping { base, bytes })
    }

    /// The first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Asks for huge pages.
    pub(crate) fn advise_huge(&self) {
        // SAFETY: advice about a mapping of ours.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.bytes, libc::MADV_HUGEPAGE) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and who refers into it keeps it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// A new sparse file in memory, of `bytes`.
pub(crate) fn create(bytes: u64) -> Result<File, SegmentError> {
    let file = File::from(memfd_create()?);
    file.set_len(bytes).map_err(|error| SegmentError::Os {
        what: "size",
        error,
    })?;
    Ok(file)
}

/// The file behind an inherited descriptor, which is close-on-exec from now on, so that the rank's own
/// children do not hold the job's memory.
pub(crate) fn inherited(number: RawFd) -> Result<OwnedFd, SegmentError> {
    // SAFETY: fcntl with F_SETFD touches no memory of ours; a bad number gives an error.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(SegmentError::Os {
            what: "find the descriptor of",
            error: io::Error::last_os_error(),
        });
    }
    // SAFETY: the descriptor is open (checked above) and was handed down for us to own.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

pub(crate) fn metadata(file: &File) -> Result<Metadata, SegmentError> {
    file.metadata().map_err(|error| SegmentError::Os {
        what: "examine",
        error,
    })
}

/// Gives the pages of `[offset, offset + bytes)` of the file back to the system.
pub(crate) fn discard(file: &impl AsRawFd, offset: u64, bytes: u64) {
    // SAFETY: punching a hole into our own file; the pages read as zero afterwards.
    unsafe {
        libc::fallocate(
            file.as_raw_fd(),
            libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
            offset as libc::off_t,
            bytes as libc::off_t,
        )
    };
}

pub(crate) fn memfd_create() -> Result<OwnedFd, SegmentError> {
    let name = std::ffi::CString::new(MEMFD_NAME).expect("no NUL in the name");
    // SAFETY: `name` is a valid C string for the time of the call.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(SegmentError::Os {
            what: "create",
            error: io::Error::last_os_error(),
        });
    }
    // SAFETY: the kernel just gave us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn map(fd: RawFd, offset: u64, len: usize) -> Result<NonNull<u8>, SegmentError> {
    // SAFETY: a new shared mapping at an address of the kernel's choice touches nothing of ours.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_NORESERVE,
            fd,
            offset as libc::off_t,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(SegmentError::Os {
            what: "map",
            error: io::Error::last_os_error(),
        });
    }
    // A core dump of a rank need not hold the whole job's memory.
    // SAFETY: advice about a mapping that we just made.
    unsafe { libc::madvise(at, len, libc::MADV_DONTDUMP) };
    Ok(NonNull::new(at.cast()).expect("mmap does not return null"))
}
