//! File descriptors: waiting for many of them, reading and writing without blocking, limits.

use std::ffi::{c_long, c_short};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, memfd_create};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::SendFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Has what the command starts inherit the three standard descriptors alone: a service keeps no
/// file open that its caller's shell had open, and passes none on to programs of others. Before
/// Linux 5.11 it inherits what it did.
pub fn keep_others_from(command: &mut Command) -> &mut Command {
    let mark = || {
        // SAFETY: an async-signal-safe call that has no pointers. The descriptors stay open until
        // the program is executed: the standard library needs one of them to say that it failed.
        unsafe {
            libc::syscall(
                libc::SYS_close_range,
                3,
                libc::c_uint::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            )
        };
        Ok(())
    };
    // SAFETY: between fork and exec only that call is made.
    unsafe { command.pre_exec(mark) }
}

/// Descriptors to wait for, and what became ready. Rebuilt for every wait, keeps its memory: so it
/// holds numbers and not borrowed descriptors, as `rustix::event::poll` would ask for. A number
/// that has been closed is only found to be so.
#[derive(Debug, Default)]
pub struct PollSet {
    fds: Vec<libc::pollfd>,
}

/// What a descriptor is ready for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Reading will not block: data, the end, or an error.
    pub readable: bool,
    /// Writing something will not block, or gives an error.
    pub writable: bool,
    /// The other end is closed, or there is an error.
    pub hung_up: bool,
}

impl PollSet {
    /// Forgets all descriptors.
    pub fn clear(&mut self) {
        self.fds.clear();
    }

    /// Adds a descriptor to wait until it is readable; returns its place.
    pub fn add_readable(&mut self, fd: BorrowedFd<'_>) -> usize {
        self.add(fd, libc::POLLIN)
    }

    /// Adds a descriptor to wait until it is writable; returns its place.
    pub fn add_writable(&mut self, fd: BorrowedFd<'_>) -> usize {
        self.add(fd, libc::POLLOUT)
    }

    /// Waits until a descriptor is ready, a signal that is not blocked arrives, or the time is up.
    ///
    /// # Errors
    /// When the kernel is out of memory.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.map(|t| libc::timespec {
            tv_sec: t.as_secs().min(1 << 30) as libc::time_t,
            tv_nsec: c_long::from(t.subsec_nanos() as i32),
        });
        let timeout = timeout
            .as_ref()
            .map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the array has the length given, `timeout` is null or lives for the call, and no
        // signal mask is handed over.
        let n = unsafe {
            libc::ppoll(
                self.fds.as_mut_ptr(),
                self.fds.len() as libc::nfds_t,
                timeout,
                std::ptr::null(),
            )
        };
        if n < 0 {
            for fd in &mut self.fds {
                fd.revents = 0;
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        Ok(())
    }

    /// What the descriptor at `place` was ready for in the last wait.
    #[must_use]
    pub fn ready(&self, place: usize) -> Ready {
        let events = self.fds.get(place).map_or(0, |fd| fd.revents);
        Ready {
            readable: events & (libc::POLLIN | libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0,
            writable: events & (libc::POLLOUT | libc::POLLHUP | libc::POLLERR | libc::POLLNVAL)
                != 0,
            hung_up: events & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0,
        }
    }

    fn add(&mut self, fd: BorrowedFd<'_>, events: c_short) -> usize {
        self.fds.push(libc::pollfd {
            fd: fd.as_raw_fd(),
            events,
            revents: 0,
        });
        self.fds.len() - 1
    }
}

/// Makes reads and writes of the open file behind `fd` return at once. Everybody who shares the
/// open file sees this, so use it only for files that are our own.
///
/// # Errors
/// When the descriptor does not support it.
pub fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?)
}

/// Asks for a pipe buffer of `bytes`; returns what the kernel gave, or none when it kept the old.
pub fn set_pipe_bytes(fd: BorrowedFd<'_>, bytes: usize) -> Option<usize> {
    rustix::pipe::fcntl_setpipe_size(fd, bytes).ok()
}

/// Duplicates a descriptor to a number of at least `least`, close-on-exec.
///
/// # Errors
/// When there are no descriptors left.
pub fn duplicate_above(fd: BorrowedFd<'_>, least: RawFd) -> io::Result<OwnedFd> {
    Ok(fcntl_dupfd_cloexec(fd, least)?)
}

/// An unnamed file in memory, for a program: it may be executed where the system knows such a
/// permission.
///
/// # Errors
/// When the system refuses.
pub fn memory_program() -> io::Result<File> {
    let name = c"margay-program";
    let made = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::EXEC);
    // Before Linux 6.3 every such file may be executed.
    let made = made.or_else(|_| memfd_create(name, MemfdFlags::CLOEXEC));
    Ok(made?.into())
}

/// Gives a descriptor up as if it were inherited: open, not close-on-exec, and nobody's until it is
/// taken over by its number.
///
/// # Errors
/// When the kernel refuses; it is closed then.
pub fn leave_open(fd: OwnedFd) -> io::Result<()> {
    fcntl_setfd(&fd, FdFlags::empty())?;
    let _ = fd.into_raw_fd();
    Ok(())
}

/// Makes descriptor `number` (0, 1 or 2) refer to what `fd` refers to.
///
/// # Errors
/// When `number` is not a standard descriptor or the kernel refuses.
pub fn replace_standard(number: RawFd, fd: BorrowedFd<'_>) -> io::Result<()> {
    match number {
        0 => rustix::stdio::dup2_stdin(fd)?,
        1 => rustix::stdio::dup2_stdout(fd)?,
        2 => rustix::stdio::dup2_stderr(fd)?,
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    }
    Ok(())
}

/// An anonymous file in memory.
///
/// # Errors
/// When the kernel refuses.
pub fn memory_file() -> io::Result<File> {
    Ok(memfd_create(c"margay-spool", MemfdFlags::CLOEXEC)?.into())
}

/// A way to write to a descriptor that others share without ever blocking and without changing it
/// for the others.
#[derive(Debug)]
pub struct Outlet {
    file: File,
    way: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// An open file of our own with O_NONBLOCK, or a regular file, which does not block.
    Plain,
    /// A socket: each call says that it must not block.
    Socket,
    /// A terminal or pipe that could not be opened anew: writes of at most this many bytes, after
    /// the kernel reports the descriptor as writable. A writable pipe has room for a page.
    Small(usize),
}

/// What a write through an [`Outlet`] did.
#[derive(Debug)]
pub enum Wrote {
    /// The number of bytes that were taken (at least 1).
    Some(usize),
    /// Nothing was taken; wait until the descriptor is writable.
    Later,
    /// Nobody reads any more: the pipe is closed or the terminal is gone.
    Closed,
    /// The write failed.
    Failed(io::Error),
}

impl Outlet {
    /// An outlet to what `fd` refers to.
    ///
    /// # Errors
    /// When the descriptor is not open.
    pub fn new(fd: BorrowedFd<'_>) -> io::Result<Outlet> {
        let own = File::from(fd.try_clone_to_owned()?);
        let kind = own.metadata()?.file_type();
        if kind.is_socket() {
            return Ok(Outlet {
                file: own,
                way: Way::Socket,
            });
        }
        if !kind.is_fifo() && !kind.is_char_device() {
            return Ok(Outlet {
                file: own,
                way: Way::Plain,
            });
        }
        let anew = File::options()
            .write(true)
            .custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32)
            .open(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        Ok(match anew {
            Ok(file) => Outlet {
                file,
                way: Way::Plain,
            },
            Err(_) => Outlet {
                file: own,
                way: Way::Small(if kind.is_fifo() { 4096 } else { 256 }),
            },
        })
    }

    /// Writes what can be written now.
    pub fn write(&self, bytes: &[u8]) -> Wrote {
        use std::io::Write;
        if bytes.is_empty() {
            return Wrote::Later;
        }
        let result = match self.way {
            Way::Plain => (&self.file).write(bytes),
            Way::Socket => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                rustix::net::send(&self.file, bytes, flags).map_err(io::Error::from)
            }
            Way::Small(most) => {
                if !self.writable_now() {
                    return Wrote::Later;
                }
                (&self.file).write(&bytes[..bytes.len().min(most)])
            }
        };
        match result {
            Ok(0) => Wrote::Later,
            Ok(n) => Wrote::Some(n),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Wrote::Later,
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Wrote::Closed,
                _ if Errno::from_io_error(&error) == Some(Errno::IO) => Wrote::Closed,
                _ => Wrote::Failed(error),
            },
        }
    }

    fn writable_now(&self) -> bool {
        let mut set = PollSet::default();
        let place = set.add_writable(self.file.as_fd());
        set.wait(Some(Duration::ZERO)).is_ok() && set.ready(place).writable
    }
}

impl Outlet {
    /// A second opening of the same pipe or terminal, for another process: its writes block. A
    /// plain duplicate where that is refused.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub fn for_others(&self) -> io::Result<File> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let anew = File::options().write(true).open(path);
        anew.or_else(|_| self.file.try_clone())
    }
}

impl AsFd for Outlet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A second opening of the terminal or pipe behind `fd` that reads without blocking and without
/// changing `fd` for those who share it; a plain duplicate where that is refused.
///
/// # Errors
/// When the descriptor is not open.
pub fn reopen_for_reading(fd: BorrowedFd<'_>) -> io::Result<File> {
    let anew = File::options()
        .read(true)
        .custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32)
        .open(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    match anew {
        Ok(file) => Ok(file),
        Err(_) => Ok(File::from(fd.try_clone_to_owned()?)),
    }
}

/// The limit of open files: soft and hard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimit {
    /// What counts now.
    pub soft: u64,
    /// How far it may be raised.
    pub hard: u64,
}

impl FileLimit {
    /// The process's limit.
    #[must_use]
    pub fn now() -> FileLimit {
        let limit = getrlimit(Resource::Nofile);
        FileLimit {
            soft: limit.current.unwrap_or(u64::MAX),
            hard: limit.maximum.unwrap_or(u64::MAX),
        }
    }

    /// Raises the soft limit so that `files` can be open, as far as the hard limit goes.
    pub fn raise_to(self, files: u64) {
        if files > self.soft {
            let soft = files.min(self.hard);
            let _ = FileLimit { soft, ..self }.set();
        }
    }

    /// Makes this the process's limit.
    pub(crate) fn set(self) -> rustix::io::Result<()> {
        let limited = |files| (files != u64::MAX).then_some(files);
        let limit = Rlimit {
            current: limited(self.soft),
            maximum: limited(self.hard),
        };
        setrlimit(Resource::Nofile, limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn an_outlet_never_blocks_and_leaves_the_shared_pipe_as_it_was() {
        let (mut reader, writer) = io::pipe().unwrap();
        let outlet = Outlet::new(writer.as_fd()).unwrap();
        let block = vec![7u8; 1 << 16];
        let mut taken = 0;
        while let Wrote::Some(n) = outlet.write(&block) {
            taken += n;
            assert!(taken <= 1 << 24);
        }
        assert!(taken > 0);
        assert!(!fcntl_getfl(&writer).unwrap().contains(OFlags::NONBLOCK));
        let mut got = vec![0; taken];
        reader.read_exact(&mut got).unwrap();
        drop(reader);
        assert!(matches!(outlet.write(b"x"), Wrote::Closed));
    }

    #[test]
    fn waiting_tells_which_end_is_ready() {
        let (reader, writer) = io::pipe().unwrap();
        let mut set = PollSet::default();
        let r = set.add_readable(reader.as_fd());
        let w = set.add_writable(writer.as_fd());
        set.wait(Some(Duration::from_secs(5))).unwrap();
        assert!(!set.ready(r).readable);
        assert!(set.ready(w).writable);
        drop(writer);
        set.clear();
        let r = set.add_readable(reader.as_fd());
        set.wait(None).unwrap();
        assert!(set.ready(r).readable);
    }

    #[test]
    fn duplicates_stay_out_of_the_low_numbers() {
        let (reader, _writer) = io::pipe().unwrap();
        let high = duplicate_above(reader.as_fd(), 100).unwrap();
        assert!(high.as_raw_fd() >= 100);
        assert!(replace_standard(3, reader.as_fd()).is_err());
    }
}
