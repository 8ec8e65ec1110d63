//! Channels between processes that share no memory yet: stream sockets with names in the abstract
//! namespace, which vanish with their owner, and messages of bytes over them. Nothing here waits
//! but sending, for room.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::Stdio;
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with, sockopt,
};

use crate::descriptor::{PollSet, replace_standard};

/// Longest message in bytes: more than the addresses of 65,536 ranks.
const LONGEST: usize = 4 << 20;

/// Somewhere to connect to.
#[derive(Debug)]
pub struct Listener(UnixListener);

impl Listener {
    /// Takes a name, which nobody else may have.
    ///
    /// # Errors
    /// When somebody has it (`AddrInUse`), or it is longer than 100 bytes.
    pub fn bind(name: &str) -> io::Result<Listener> {
        let address = SocketAddr::from_abstract_name(name)?;
        let listener = UnixListener::bind_addr(&address)?;
        listener.set_nonblocking(true)?;
        Ok(Listener(listener))
    }

    /// The next one who has connected, if there is one.
    ///
    /// # Errors
    /// When the system refuses; without a free descriptor ([`no_descriptor`]) the connection stays
    /// in the queue.
    pub fn accept(&self) -> io::Result<Option<Channel>> {
        loop {
            match self.0.accept() {
                Ok((stream, _)) => return Ok(Some(Channel::over(stream.into()))),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(None),
                    ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A message as it goes over a connection.
#[must_use]
pub fn framed(message: &[u8]) -> Vec<u8> {
    let mut bytes = (message.len() as u32).to_ne_bytes().to_vec();
    bytes.extend_from_slice(message);
    bytes
}

/// One end of a connection. Messages arrive whole and in order.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
    partial: Vec<u8>,
}

impl Channel {
    /// Connects to who listens under that name. Does not wait.
    ///
    /// # Errors
    /// Those of [`connected`].
    pub fn connect(name: &str) -> io::Result<Channel> {
        Ok(Channel::over(connected(name)?.into()))
    }

    /// A new connection: this end, and the other as the standard input of a program that is to be
    /// started, which takes it by [`of_standard_input`](Self::of_standard_input).
    ///
    /// # Errors
    /// When the system refuses.
    pub fn to_standard_input() -> io::Result<(Channel, Stdio)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Channel::over(ours.into()), OwnedFd::from(theirs).into()))
    }

    /// Takes the connection that is this process's standard input, which is empty from then on.
    ///
    /// # Errors
    /// When it is no connection, or the system refuses.
    pub fn of_standard_input() -> io::Result<Channel> {
        let input = io::stdin();
        sockopt::socket_peercred(&input)?;
        let channel = Channel::over(input.as_fd().try_clone_to_owned()?);
        replace_standard(0, fs::File::open("/dev/null")?.as_fd())?;
        Ok(channel)
    }

    /// Over a copy of a stream socket that the program opened.
    ///
    /// # Errors
    /// When there is no such descriptor.
    pub fn of_descriptor(number: RawFd) -> io::Result<Channel> {
        if number < 0 {
            return Err(Errno::BADF.into());
        }
        // SAFETY: the number is not -1, and only borrowed for duplicating it; one that is not open
        // gives an error.
        let socket = unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned()?;
        Ok(Channel::over(socket))
    }

    /// Whether the process at the other end, when it connected or began to listen, was of this
    /// process's user or of root.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        is_trusted(self.socket.as_fd())
    }

    /// What has arrived of a message that is not complete, without its length.
    #[must_use]
    pub fn partial(&self) -> &[u8] {
        self.partial.get(4..).unwrap_or_default()
    }

    /// Who is at the other end, as the system has noted it when the connection was made.
    ///
    /// # Errors
    /// When the socket is none between processes of this host.
    pub fn peer(&self) -> io::Result<Peer> {
        peer_process(self.socket.as_fd())
    }

    /// Over a connected stream socket.
    #[must_use]
    pub fn over_stream(stream: UnixStream) -> Channel {
        Channel::over(stream.into())
    }

    /// Sends a message without waiting.
    ///
    /// # Errors
    /// When the other end is gone, or takes so little of what it is sent that there is no room
    /// (`WouldBlock`). The connection is of no more use then.
    pub fn send_now(&self, message: &[u8]) -> io::Result<()> {
        let bytes = framed(message);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match retry_on_intr(|| send(&self.socket, &bytes, flags))? {
            sent if sent == bytes.len() => Ok(()),
            _ => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// Sends what there is room for of `waiting`, which takes it away there: messages as
    /// [`framed`] gives them.
    ///
    /// # Errors
    /// When the other end is gone.
    pub fn send_on(&self, waiting: &mut Vec<u8>) -> io::Result<()> {
        while !waiting.is_empty() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&self.socket, waiting, flags) {
                Ok(n) => drop(waiting.drain(..n)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn over(socket: OwnedFd) -> Channel {
        Channel {
            socket,
            partial: Vec::new(),
        }
    }

    /// Sends a message; waits for room in the socket.
    ///
    /// # Errors
    /// When the other end is gone.
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        let bytes = framed(message);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&self.socket, rest, flags) {
                Ok(n) => rest = &rest[n..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let mut poll = PollSet::default();
                    poll.add_writable(self.socket.as_fd());
                    poll.wait(Some(Duration::from_millis(100)))?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Whether the other end is closed; what it has sent before may still be here.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let mut poll = PollSet::default();
        let place = poll.add_readable(self.socket.as_fd());
        poll.wait(Some(Duration::ZERO)).is_ok() && poll.ready(place).hung_up
    }

    /// The next message if all of it is here.
    ///
    /// # Errors
    /// When the other end is gone (`UnexpectedEof`), or sends what is not a message.
    pub fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let length = self.partial.first_chunk::<4>();
            let need = match length.map(|l| u32::from_ne_bytes(*l) as usize) {
                Some(length) if length > LONGEST => return Err(ErrorKind::InvalidData.into()),
                Some(length) if self.partial.len() == 4 + length => {
                    return Ok(Some(self.partial.split_off(4)).inspect(|_| self.partial.clear()));
                }
                // No more than this message: what follows may be the program's.
                Some(length) => 4 + length - self.partial.len(),
                None => 4 - self.partial.len(),
            };
            let mut room = vec![0u8; need.min(64 << 10)];
            match recv(&self.socket, &mut room[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok((n, _)) => self.partial.extend_from_slice(&room[..n]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A process at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub pid: u32,
    pub user: u32,
    /// The first one is its own; one may be there twice.
    pub groups: Vec<u32>,
}

/// The process at the other end of a connected socket of this host, as it was when it connected.
///
/// # Errors
/// When the socket is none between processes of this host.
pub fn peer_process(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let peer = sockopt::socket_peercred(socket)?;
    let mut groups = vec![peer.gid.as_raw()];
    groups.extend(peer_groups(socket));
    Ok(Peer {
        pid: peer.pid.as_raw_nonzero().get().unsigned_abs(),
        user: peer.uid.as_raw(),
        groups,
    })
}

/// The supplementary groups of the process at the other end; none where the system does not say.
fn peer_groups(socket: BorrowedFd<'_>) -> Vec<u32> {
    let mut groups = vec![0u32; 64];
    loop {
        let mut bytes = (groups.len() * size_of::<u32>()) as libc::socklen_t;
        // SAFETY: the kernel writes at most as many bytes as are named to a buffer of ours that
        // has them, and their number to ours.
        let done = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let count = bytes as usize / size_of::<u32>();
        if done == 0 {
            groups.truncate(count);
            return groups;
        }
        // As many as a process can have.
        let is_short = io::Error::last_os_error().raw_os_error() == Some(libc::ERANGE);
        if !is_short || count <= groups.len() || count > 1 << 16 {
            return Vec::new();
        }
        groups.resize(count, 0);
    }
}

/// The groups of this process: its own, and those that it is in beside.
#[must_use]
pub fn groups() -> Vec<u32> {
    let mut all = vec![rustix::process::getegid().as_raw()];
    let others = rustix::process::getgroups().unwrap_or_default();
    all.extend(others.into_iter().map(|group| group.as_raw()));
    all
}

/// Whether an error says that no descriptor is free, in this process or in the system.
#[must_use]
pub fn no_descriptor(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE)
    )
}

/// The abstract names in use on this machine that begin with `prefix`.
#[must_use]
pub fn names(prefix: &str) -> Vec<String> {
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    table
        .lines()
        .filter_map(|line| line.split_whitespace().nth(7)?.strip_prefix('@'))
        .filter(|name| name.starts_with(prefix))
        .map(str::to_string)
        .collect()
}

/// A stream to who listens under that name, which does not wait; nor does this.
///
/// # Errors
/// When nobody listens, or when the queue of connections that are not accepted yet is full
/// (`WouldBlock`).
pub fn connected(name: &str) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(
        &socket,
        &SocketAddrUnix::new_abstract_name(name.as_bytes())?,
    )?;
    Ok(socket.into())
}

/// Whether the process at the other end of a connected socket of this host, when it connected or
/// began to listen, was of this process's user or of root.
#[must_use]
pub fn is_trusted(socket: BorrowedFd<'_>) -> bool {
    sockopt::socket_peercred(socket).is_ok_and(|peer| {
        let other = peer.uid.as_raw();
        other == user() || other == 0
    })
}

/// The user of the process at the other end of a connected socket of this host, when it connected.
#[must_use]
pub fn peer(socket: BorrowedFd<'_>) -> Option<u32> {
    let peer = sockopt::socket_peercred(socket).ok()?;
    Some(peer.uid.as_raw())
}

/// The group on whose behalf this process runs.
#[must_use]
pub fn group() -> u32 {
    rustix::process::getegid().as_raw()
}

/// The user on whose behalf this process runs.
#[must_use]
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_whole_and_the_end_is_reported() {
        let name = format!("margay-test-port-{}", std::process::id());
        let listener = Listener::bind(&name).unwrap();
        assert!(listener.accept().unwrap().is_none());
        assert_eq!(
            Listener::bind(&name).unwrap_err().kind(),
            ErrorKind::AddrInUse
        );
        assert_eq!(names(&name).len(), 1);
        let ours = Channel::connect(&name).unwrap();
        let mut theirs = listener.accept().unwrap().unwrap();
        assert!(ours.is_trusted() && theirs.is_trusted());
        assert_eq!(theirs.receive().unwrap(), None);
        ours.send(b"one").unwrap();
        ours.send(b"").unwrap();
        ours.send(&[7; 100_000]).unwrap();
        assert!(!theirs.is_closed());
        assert_eq!(theirs.receive().unwrap().unwrap(), b"one");
        assert_eq!(theirs.receive().unwrap().unwrap(), b"");
        assert_eq!(theirs.receive().unwrap().unwrap(), [7; 100_000]);
        drop(ours);
        let end = || match theirs.receive() {
            Ok(None) => None,
            end => Some(end),
        };
        let end = once_children_are_gone(end);
        assert_eq!(end.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert!(theirs.send(b"x").is_err());
        drop(listener);
        once_children_are_gone(|| Channel::connect(&name).err());
    }

    /// Waits for what is there once a socket is closed. Children that other tests start have a
    /// copy of it until they execute their program.
    fn once_children_are_gone<T>(mut look: impl FnMut() -> Option<T>) -> T {
        let began = std::time::Instant::now();
        loop {
            if let Some(seen) = look() {
                return seen;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "it stays open");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
