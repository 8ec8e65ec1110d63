//! Files: reading and writing at offsets from and to claimed memory, sizes, space, locks on ranges.
//!
//! A [`File`] has no position: every access names its offset, so any number of threads may use one.

use std::ffi::{CString, c_short};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    FileType, Mode, OFlags, Stat, XattrFlags, fgetxattr, fsetxattr, fstat, fstatfs, fsync,
    ftruncate, getxattr, open, setxattr,
};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Resource, getrlimit};

use crate::user::Mem;

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Made when it is not there.
    pub create: bool,
    /// Together with `create`: refused when it is there.
    pub exclusive: bool,
    /// Permissions of a file that is made, before the process's mask is applied.
    pub permissions: u32,
}

/// Which file it is, whatever its name: device and number on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The device.
    pub device: u64,
    /// The number of the file on the device.
    pub number: u64,
}

/// A part of claimed memory: `len` bytes from `at`, as [`Mem::read`] counts.
#[derive(Clone, Debug)]
pub struct Slice {
    /// The memory.
    pub mem: Mem,
    /// Displacement of the first byte.
    pub at: i64,
    /// Bytes.
    pub len: usize,
}

/// An open file.
#[derive(Debug)]
pub struct File(OwnedFd);

/// An extended attribute of a file or directory that is not longer than `most` bytes.
///
/// # Errors
/// What the system says, in particular that there is none.
pub fn attribute_of(path: &Path, name: &str, most: usize) -> io::Result<Vec<u8>> {
    let mut value = vec![0; most];
    let len = retry_on_intr(|| getxattr(path, name, value.as_mut_slice()))?;
    value.truncate(len);
    Ok(value)
}

/// Sets an extended attribute of a file or directory.
///
/// # Errors
/// What the system says.
pub fn set_attribute_of(path: &Path, name: &str, value: &[u8]) -> io::Result<()> {
    retry_on_intr(|| setxattr(path, name, value, XattrFlags::empty()))?;
    Ok(())
}

/// Who else may have the same range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Others that only read.
    Shared,
    /// Nobody.
    Exclusive,
}

/// The type of file systems that a process serves, of Linux.
const FUSE: i64 = 0x6573_5546;

/// Whether this process may only write files up to some size, which the kernel sees to.
#[must_use]
pub fn is_size_limited() -> bool {
    getrlimit(Resource::Fsize).current.is_some()
}

/// The kernel takes at most this many pieces in one call.
const MOST_PIECES: usize = 1024;

impl File {
    /// Opens a file.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: &str, how: How) -> io::Result<File> {
        let path = c_string(path)?;
        let mut flags = OFlags::CLOEXEC
            | match (how.read, how.write) {
                (true, true) => OFlags::RDWR,
                (false, true) => OFlags::WRONLY,
                _ => OFlags::RDONLY,
            };
        if how.create {
            flags |= OFlags::CREATE;
            if how.exclusive {
                flags |= OFlags::EXCL;
            }
        }
        let mode = Mode::from_raw_mode(how.permissions);
        let fd = retry_on_intr(|| open(path.as_c_str(), flags, mode))?;
        Ok(File(fd))
    }

    /// An extended attribute that is not longer than `most` bytes; none where there is none.
    #[must_use]
    pub fn attribute(&self, name: &str, most: usize) -> Option<Vec<u8>> {
        let mut value = vec![0; most];
        let len = retry_on_intr(|| fgetxattr(&self.0, name, value.as_mut_slice())).ok()?;
        value.truncate(len);
        Some(value)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// What the system says, in particular that the file system has no such attributes.
    pub fn set_attribute(&self, name: &str, value: &[u8]) -> io::Result<()> {
        retry_on_intr(|| fsetxattr(&self.0, name, value, XattrFlags::empty()))?;
        Ok(())
    }

    /// Reads from `offset` on into the pieces, one after the other, until they are full or the file
    /// ends. Returns the bytes read.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Panics
    /// When a piece is not covered by the claim on its memory.
    pub fn read_at(&self, offset: u64, pieces: &[Slice]) -> io::Result<u64> {
        self.transfer(offset, pieces, |fd, vectors, at| {
            // SAFETY: `transfer` made the vectors of pieces that their claims cover, for writing
            // to.
            unsafe { libc::preadv(fd, vectors.as_ptr(), vectors.len() as i32, at) }
        })
    }

    /// Writes the pieces, one after the other, to `offset` and on. Returns the bytes written: all.
    ///
    /// # Errors
    /// What the system says; some bytes may have been written.
    ///
    /// # Panics
    /// When a piece is not covered by the claim on its memory.
    pub fn write_at(&self, offset: u64, pieces: &[Slice]) -> io::Result<u64> {
        let all: u64 = pieces.iter().map(|piece| piece.len as u64).sum();
        let done = self.transfer(offset, pieces, |fd, vectors, at| {
            // SAFETY: `transfer` made the vectors of pieces that their claims cover.
            unsafe { libc::pwritev(fd, vectors.as_ptr(), vectors.len() as i32, at) }
        })?;
        if done < all {
            // A write of no bytes without an error: the device takes no more.
            return Err(Errno::NOSPC.into());
        }
        Ok(done)
    }

    /// The vectors that `call` gets are addresses: no references to the program's memory, as
    /// `rustix` would ask for.
    fn transfer(
        &self,
        offset: u64,
        pieces: &[Slice],
        mut call: impl FnMut(i32, &[libc::iovec], i64) -> isize,
    ) -> io::Result<u64> {
        let mut done = 0u64;
        let mut first = 0;
        // Bytes of piece `first` that are done.
        let mut within = 0;
        let mut vectors: Vec<libc::iovec> = Vec::with_capacity(pieces.len().min(MOST_PIECES));
        while first < pieces.len() {
            if pieces[first].len == within {
                first += 1;
                within = 0;
                continue;
            }
            vectors.clear();
            for (i, piece) in pieces[first..].iter().take(MOST_PIECES).enumerate() {
                let skip = if i == 0 { within } else { 0 };
                vectors.push(libc::iovec {
                    iov_base: piece
                        .mem
                        .at(piece.at + skip as i64, piece.len - skip)
                        .cast(),
                    iov_len: piece.len - skip,
                });
            }
            let at = signed(offset + done)?;
            let moved = again(|| call(self.0.as_raw_fd(), &vectors, at))? as u64;
            if moved == 0 {
                break;
            }
            done += moved;
            let mut left = moved as usize;
            while left > 0 {
                let rest = pieces[first].len - within;
                if left < rest {
                    within += left;
                    break;
                }
                left -= rest;
                first += 1;
                within = 0;
            }
        }
        Ok(done)
    }

    /// Bytes of the file.
    ///
    /// # Errors
    /// What the system says.
    pub fn size(&self) -> io::Result<u64> {
        Ok(self.facts()?.st_size as u64)
    }

    /// Which file it is.
    ///
    /// # Errors
    /// What the system says.
    pub fn identity(&self) -> io::Result<Identity> {
        let facts = self.facts()?;
        Ok(Identity {
            device: facts.st_dev,
            number: facts.st_ino,
        })
    }

    /// Whether it is a folder, which can be opened for reading but not read.
    ///
    /// # Errors
    /// What the system says.
    pub fn is_folder(&self) -> io::Result<bool> {
        Ok(FileType::from_raw_mode(self.facts()?.st_mode).is_dir())
    }

    /// Asks the process that serves the file system of a plain file, where that is one (FUSE), for
    /// `N` bytes by a number of its own.
    ///
    /// # Errors
    /// When no process serves it, that does not know the number, or it is no plain file.
    pub fn ask<const N: usize>(&self, number: u16) -> io::Result<[u8; N]> {
        /// Direction and place of the size in the number of such a request, of Linux.
        const READS: u64 = 2 << 30;
        const SIZE: u32 = 16;
        let is_plain = FileType::from_raw_mode(self.facts()?.st_mode).is_file();
        if !is_plain || retry_on_intr(|| fstatfs(&self.0))?.f_type != FUSE {
            return Err(Errno::NOTTY.into());
        }
        let mut bytes = [0; N];
        let request = READS | (N as u64) << SIZE | u64::from(number);
        // SAFETY: for a file of FUSE the kernel writes as many bytes as the number of the request
        // says, which are there.
        again(|| unsafe { libc::ioctl(self.0.as_raw_fd(), request, bytes.as_mut_ptr()) as isize })?;
        Ok(bytes)
    }

    fn facts(&self) -> io::Result<Stat> {
        Ok(retry_on_intr(|| fstat(&self.0))?)
    }

    /// Cuts the file or extends it with zeros.
    ///
    /// # Errors
    /// What the system says.
    pub fn set_size(&self, size: u64) -> io::Result<()> {
        signed(size)?;
        Ok(retry_on_intr(|| ftruncate(&self.0, size))?)
    }

    /// Takes space for the first `size` bytes; the file has at least that size then, what is in it
    /// stays.
    ///
    /// # Errors
    /// What the system says.
    pub fn preallocate(&self, size: u64) -> io::Result<()> {
        if size == 0 {
            return Ok(());
        }
        let size = signed(size)?;
        // The C library's, which writes zeros where the file system cannot take space.
        // SAFETY: plain numbers.
        let code = unsafe { libc::posix_fallocate(self.0.as_raw_fd(), 0, size) };
        match code {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    /// Brings everything written to the device.
    ///
    /// # Errors
    /// What the system says.
    pub fn sync(&self) -> io::Result<()> {
        Ok(retry_on_intr(|| fsync(&self.0))?)
    }

    /// Waits until `len` bytes from `offset` on (0: to the end of all files) are this open file's,
    /// and takes them. The lock belongs to the open file, not to the process: two openings exclude
    /// each other, threads that share one do not.
    ///
    /// # Errors
    /// What the system says; `EINVAL` and `ENOLCK` where the file system has no locks.
    pub fn lock(&self, offset: u64, len: u64, lock: Lock) -> io::Result<()> {
        self.set_lock(
            offset,
            len,
            match lock {
                Lock::Shared => libc::F_RDLCK,
                Lock::Exclusive => libc::F_WRLCK,
            },
        )
    }

    /// Gives a range back.
    ///
    /// # Errors
    /// What the system says.
    pub fn unlock(&self, offset: u64, len: u64) -> io::Result<()> {
        self.set_lock(offset, len, libc::F_UNLCK)
    }

    fn set_lock(&self, offset: u64, len: u64, kind: i32) -> io::Result<()> {
        // SAFETY: all fields are numbers, for which zero is a value.
        let mut range: libc::flock = unsafe { std::mem::zeroed() };
        range.l_type = kind as c_short;
        range.l_whence = libc::SEEK_SET as c_short;
        range.l_start = signed(offset)?;
        range.l_len = signed(len)?;
        again(|| {
            // SAFETY: the structure outlives the call.
            unsafe {
                libc::fcntl(self.0.as_raw_fd(), libc::F_OFD_SETLKW, &raw const range) as isize
            }
        })?;
        Ok(())
    }
}

/// Takes a file's name away.
///
/// # Errors
/// What the system says.
pub fn unlink(path: &str) -> io::Result<()> {
    let path = c_string(path)?;
    Ok(retry_on_intr(|| rustix::fs::unlink(path.as_c_str()))?)
}

/// What an error of the system means for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// There is no such file.
    Missing,
    /// There is one, and there should not be.
    Exists,
    /// Permission is missing.
    Denied,
    /// The file system may only be read.
    ReadOnly,
    /// No file can have this name, or the name is that of something else.
    Name,
    /// The device is full.
    Full,
    /// The user's share is used up.
    Quota,
    /// Somebody else uses it.
    Busy,
    /// The file system cannot do this.
    Unsupported,
    /// Anything else.
    Other,
}

impl Cause {
    /// The meaning of an error.
    #[must_use]
    pub fn of(error: &io::Error) -> Cause {
        match Errno::from_io_error(error) {
            Some(Errno::NOENT) => Cause::Missing,
            Some(Errno::EXIST) => Cause::Exists,
            Some(Errno::ACCESS | Errno::PERM) => Cause::Denied,
            Some(Errno::ROFS) => Cause::ReadOnly,
            Some(Errno::NAMETOOLONG | Errno::ISDIR | Errno::NOTDIR | Errno::LOOP) => Cause::Name,
            Some(Errno::NOSPC) => Cause::Full,
            Some(Errno::DQUOT) => Cause::Quota,
            Some(Errno::BUSY | Errno::TXTBSY) => Cause::Busy,
            Some(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOLCK) => Cause::Unsupported,
            _ => Cause::Other,
        }
    }
}

/// `EISDIR`, for those who find a folder by looking.
#[must_use]
pub fn is_a_folder() -> io::Error {
    Errno::ISDIR.into()
}

fn c_string(path: &str) -> io::Result<CString> {
    CString::new(path).map_err(|_| Errno::NOENT.into())
}

fn signed(value: u64) -> io::Result<i64> {
    i64::try_from(value).map_err(|_| Errno::FBIG.into())
}

/// Calls again when a signal interrupted.
fn again(mut call: impl FnMut() -> isize) -> io::Result<isize> {
    loop {
        let result = call();
        if result >= 0 {
            return Ok(result);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> (std::path::PathBuf, File) {
        let path = std::env::temp_dir().join(format!("margay-file-{name}-{}", std::process::id()));
        let how = How {
            read: true,
            write: true,
            create: true,
            exclusive: false,
            permissions: 0o600,
        };
        let file = File::open(path.to_str().expect("a plain name"), how).expect("a new file");
        (path, file)
    }

    fn piece(mem: &Mem, at: i64, len: usize) -> Slice {
        Slice {
            mem: mem.clone(),
            at,
            len,
        }
    }

    #[test]
    fn pieces_go_to_the_file_in_their_order_and_come_back() {
        let (path, file) = scratch("pieces");
        let mem = Mem::from_vec((0..100).collect());
        let pieces = [piece(&mem, 50, 10), piece(&mem, 0, 0), piece(&mem, 3, 5)];
        assert_eq!(file.write_at(7, &pieces).expect("written"), 15);
        assert_eq!(file.size().expect("a size"), 22);
        let back = Mem::owned(40);
        let read = file.read_at(5, &[piece(&back, 0, 4), piece(&back, 10, 30)]);
        assert_eq!(read.expect("read"), 17, "up to the end of the file");
        back.with_bytes(0, 4, |b| assert_eq!(b, [0, 0, 50, 51]));
        back.with_bytes(10, 13, |b| {
            assert_eq!(b, [52, 53, 54, 55, 56, 57, 58, 59, 3, 4, 5, 6, 7]);
        });
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn more_pieces_than_the_kernel_takes_at_once() {
        let (path, file) = scratch("many");
        let mem = Mem::from_vec((0..=255).cycle().take(5000).collect());
        let pieces: Vec<Slice> = (0..5000).rev().map(|i| piece(&mem, i, 1)).collect();
        assert_eq!(file.write_at(0, &pieces).expect("written"), 5000);
        let back = Mem::owned(5000);
        let read = file.read_at(0, &[piece(&back, 0, 5000)]);
        assert_eq!(read.expect("read"), 5000);
        back.with_bytes(0, 2, |b| assert_eq!(b, [135, 134]));
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn space_is_taken_and_given_back_and_ranges_are_locked() {
        let (path, file) = scratch("space");
        file.preallocate(10_000).expect("space");
        assert_eq!(file.size().expect("a size"), 10_000);
        file.set_size(10).expect("cut");
        assert_eq!(file.size().expect("a size"), 10);
        file.lock(3, 4, Lock::Exclusive).expect("a lock");
        file.unlock(3, 4).expect("given back");
        file.sync().expect("on the device");
        let error = File::open("/nonexistent/x", How::default()).expect_err("no such folder");
        assert_eq!(Cause::of(&error), Cause::Missing);
        unlink(path.to_str().expect("a plain name")).expect("removed");
        assert!(!path.exists());
    }
}
