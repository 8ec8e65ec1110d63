//! TCP sockets for connections between hosts, and waiting for many of them.
//!
//! All sockets here are nonblocking and close-on-exec. Nothing waits but [`Epoll::wait`], for as
//! long as its caller says.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::epoll;
use rustix::io::{Errno, FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

/// Events that one wait returns at most; more come with the next one.
const EVENTS: usize = 64;

/// A set of descriptors to wait for, which the kernel keeps. May be waited on by one thread while
/// another adds descriptors.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

/// What a descriptor of an [`Epoll`] is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The number under which the descriptor was added.
    pub token: u64,
    /// Reading will not block: data, the end, or an error.
    pub readable: bool,
    /// Writing something will not block, or gives an error.
    pub writable: bool,
}

fn interest(writable: bool) -> epoll::EventFlags {
    if writable {
        epoll::EventFlags::IN | epoll::EventFlags::OUT
    } else {
        epoll::EventFlags::IN
    }
}

impl Epoll {
    /// An empty set.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub fn new() -> io::Result<Epoll> {
        Ok(Epoll(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Adds a descriptor, which is removed by itself when it is closed. Readiness for writing is
    /// reported only if asked for.
    ///
    /// # Errors
    /// When the kernel has no memory left, or the descriptor is in the set already.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64, writable: bool) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::add(&self.0, fd, data, interest(writable))?)
    }

    /// Adds a descriptor as [`add`](Self::add) does, of which it is reported only once that it has
    /// become readable, until more has happened to it.
    ///
    /// # Errors
    /// As there.
    pub fn add_for_changes(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        let changes = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.0, fd, data, changes)?)
    }

    /// Changes what a descriptor is waited for, and its number.
    ///
    /// # Errors
    /// When the descriptor is not in the set.
    pub fn change(&self, fd: BorrowedFd<'_>, token: u64, writable: bool) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::modify(&self.0, fd, data, interest(writable))?)
    }

    /// Waits until a descriptor is ready or the time is up, and fills `events` with those that are.
    ///
    /// # Errors
    /// When the kernel refuses. A signal only ends the wait.
    pub fn wait(&self, events: &mut Vec<Event>, timeout: Duration) -> io::Result<()> {
        events.clear();
        let mut ready = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS];
        let timeout = rustix::event::Timespec {
            tv_sec: timeout.as_secs().min(1 << 30) as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        let (ready, _) = match epoll::wait(&self.0, &mut ready[..], Some(&timeout)) {
            Ok(ready) => ready,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        events.extend(ready.iter().map(|event| {
            let flags = event.flags;
            let over = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
            Event {
                token: event.data.u64(),
                readable: over || flags.contains(epoll::EventFlags::IN),
                writable: over || flags.contains(epoll::EventFlags::OUT),
            }
        }));
        Ok(())
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Listens on all addresses of this host, of both families where it has both, at the first port of
/// `ports` that is free; without a range at one that the system chooses.
///
/// # Errors
/// When all ports are taken, or there is no descriptor left.
pub fn listen(ports: Option<(u16, u16)>) -> io::Result<TcpListener> {
    let (first, last) = ports.unwrap_or((0, 0));
    let mut failed = None;
    for port in first..=last {
        let both = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port));
        // A host without IPv6 refuses that.
        let bound = both.or_else(|error| match error.kind() {
            io::ErrorKind::AddrInUse => Err(error),
            _ => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
        });
        match bound {
            Ok(listener) => {
                listener.set_nonblocking(true)?;
                rustix::net::listen(&listener, WAITING)?;
                return Ok(listener);
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => failed = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(failed.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
}

/// Takes over a listening socket that the launcher has handed down under this number. It is
/// close-on-exec from then on.
///
/// # Errors
/// When the descriptor was not inherited, or is no listening socket.
pub fn inherited_listener(number: RawFd) -> io::Result<TcpListener> {
    let is_listener = |fd: BorrowedFd<'_>| Ok(sockopt::socket_acceptconn(fd)?);
    let listener = TcpListener::from(inherited(number, is_listener)?);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Takes over a connection that the launcher has handed down under this number: a stream, of
/// whichever family. It is close-on-exec from then on.
///
/// # Errors
/// When the descriptor was not inherited, or is no such connection.
pub fn inherited_connection(number: RawFd) -> io::Result<File> {
    let is_stream = |fd: BorrowedFd<'_>| Ok(sockopt::socket_type(fd)? == SocketType::STREAM);
    Ok(inherited(number, is_stream)?.into())
}

/// Takes over a descriptor with that number which was inherited, if it is as wanted.
fn inherited(
    number: RawFd,
    is_wanted: impl FnOnce(BorrowedFd<'_>) -> io::Result<bool>,
) -> io::Result<OwnedFd> {
    if number <= 2 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: not -1, and borrowed for calls that give an error where it is not open.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    if fcntl_getfd(fd)?.contains(FdFlags::CLOEXEC) || !is_wanted(fd)? {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    fcntl_setfd(fd, FdFlags::CLOEXEC)?;
    // SAFETY: open, and nobody else's: what Rust opens is close-on-exec, and so is a descriptor
    // that has been taken over here.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Begins to connect; the socket becomes writable when it has connected or failed
/// ([`TcpStream::take_error`] tells which).
///
/// # Errors
/// When the address cannot be reached at all.
pub fn begin_connect(address: SocketAddr) -> io::Result<TcpStream> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}

/// Connections that wait until this process takes them: a rank that computes takes none, however
/// many others connect to it meanwhile. The system has a limit of its own.
const WAITING: i32 = 4096;

/// Sets a connection up for messages: nothing is held back to fill packets. While nothing is on its
/// way it fails when the other host has not answered for `silence`; see [`is_unanswered`] for what
/// is. The system's own limit (`TCP_USER_TIMEOUT`) is not used, because it also ends connections
/// whose other end lives and only has no room.
///
/// # Errors
/// When the kernel refuses.
pub fn set_up(stream: &TcpStream, silence: Duration) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let part = (silence / 4).max(Duration::from_secs(1));
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, part)?;
    sockopt::set_tcp_keepintvl(stream, part)?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(())
}

/// Bytes that were written and that the other host has not acknowledged.
#[must_use]
pub fn unacknowledged(stream: &TcpStream) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open, and the call writes one int.
    let done = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    // A connection that is over has nothing that could still arrive.
    if done == 0 { bytes.max(0) as usize } else { 0 }
}

/// Whether the other host has said nothing for `silence` although bytes that it has to acknowledge
/// were sent again and again. A host whose process reads nothing says that it has no room.
#[must_use]
pub fn is_unanswered(stream: &TcpStream, silence: Duration) -> bool {
    /// After the first byte without an answer the system tries for 6 s at least until it has
    /// counted these.
    const REPEATED: u8 = 5;
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel writes at most the given number of bytes to
    // a buffer that has them.
    let done = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    if done != 0 {
        return false;
    }
    // SAFETY: all of it is numbers, for which zeros are values, too.
    let info = unsafe { info.assume_init() };
    let repeats = (info.tcpi_unacked > 0 && info.tcpi_retransmits >= REPEATED)
        || info.tcpi_probes >= REPEATED;
    repeats && u128::from(info.tcpi_last_ack_recv) >= silence.as_millis()
}

/// The addresses of this host's interfaces that are up. Loopback addresses come only where there is
/// no other; link-local ones, which mean nothing without the interface, never.
#[must_use]
pub fn own_addresses() -> Vec<IpAddr> {
    let mut all = Vec::new();
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the call fills `first` with a list that is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return all;
    }
    let mut next = first;
    // SAFETY: the list's entries are valid until it is freed.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        let up = entry.ifa_flags & libc::IFF_UP as u32 != 0;
        if !up || entry.ifa_addr.is_null() {
            continue;
        }
        // SAFETY: the address has at least a family, and as many bytes as its family says.
        let address = unsafe {
            match i32::from((*entry.ifa_addr).sa_family) {
                libc::AF_INET => {
                    let v4 = &*entry.ifa_addr.cast::<libc::sockaddr_in>();
                    IpAddr::V4(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)))
                }
                libc::AF_INET6 => {
                    let v6 = &*entry.ifa_addr.cast::<libc::sockaddr_in6>();
                    IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr))
                }
                _ => continue,
            }
        };
        let is_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
            || matches!(address, IpAddr::V4(v4) if v4.is_link_local());
        if !is_local && !all.contains(&address) {
            all.push(address);
        }
    }
    // SAFETY: `getifaddrs` made the list.
    unsafe { libc::freeifaddrs(first) };
    if all.iter().any(|a| !a.is_loopback()) {
        all.retain(|a| !a.is_loopback());
    }
    all
}

/// Fills a buffer with bytes that nobody can guess.
///
/// # Errors
/// When the kernel has none.
pub fn fill_random(mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let flags = rustix::rand::GetRandomFlags::empty();
        match rustix::rand::getrandom(&mut *bytes, flags) {
            Ok(n) => bytes = &mut bytes[n..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::IntoRawFd;

    #[test]
    fn a_connection_is_waited_for_used_and_acknowledged() {
        let listener = listen(None).unwrap();
        let port = listener.local_addr().unwrap().port();
        let epoll = Epoll::new().unwrap();
        epoll.add(listener.as_fd(), 7, false).unwrap();
        let mut events = Vec::new();
        epoll.wait(&mut events, Duration::ZERO).unwrap();
        assert!(events.is_empty());
        let mut one = begin_connect((Ipv4Addr::LOCALHOST, port).into()).unwrap();
        epoll.wait(&mut events, Duration::from_secs(20)).unwrap();
        assert_eq!((events[0].token, events[0].readable), (7, true));
        let (mut other, _) = listener.accept().unwrap();
        set_up(&one, Duration::from_secs(10)).unwrap();
        one.write_all(b"abc").unwrap();
        let mut bytes = [0; 3];
        other.set_nonblocking(false).unwrap();
        other.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"abc");
        while unacknowledged(&one) != 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn only_inherited_listeners_are_taken_over() {
        let listener = listen(None).unwrap();
        assert!(inherited_listener(listener.as_raw_fd()).is_err());
        let number = rustix::io::dup(&listener).unwrap().into_raw_fd();
        assert!(inherited_listener(number).is_ok());
        let (pipe, _writer) = io::pipe().unwrap();
        let number = rustix::io::dup(&pipe).unwrap().into_raw_fd();
        assert!(inherited_listener(number).is_err());
    }

    #[test]
    fn a_range_of_ports_is_searched() {
        let taken = listen(None).unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = listen(Some((port, port))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(!own_addresses().is_empty());
    }
}
