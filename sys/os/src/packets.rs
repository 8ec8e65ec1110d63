//! Sockets of this host that keep messages apart, and memory that both ends have.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{fcntl_dupfd_cloexec, retry_on_intr};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recv, recvmsg, send, sendmsg, socket_with, sockopt,
};

use rustix::process::{Resource, getrlimit};

use crate::user::Mem;

/// A process that may have fewer descriptors keeps them for itself.
const FEW: u64 = 256;

/// Where the descriptors of those begin that may have many.
const HIGH: u64 = 1000;

/// Connections that wait to be accepted.
const WAITING: i32 = 64;

/// A socket at which others connect by a name without a file, which goes with its last descriptor.
#[derive(Debug)]
pub struct Hall(OwnedFd);

impl Hall {
    /// Listens.
    ///
    /// # Errors
    /// When somebody else does so under this name, or there is no descriptor left.
    pub fn open(name: &[u8]) -> io::Result<Hall> {
        let socket = new_socket()?;
        bind(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        listen(&socket, WAITING)?;
        Ok(Hall(socket))
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub fn accept(&self) -> io::Result<Packets> {
        let accepted = retry_on_intr(|| accept_with(&self.0, SocketFlags::CLOEXEC))?;
        Ok(Packets(accepted))
    }
}

/// A descriptor out of the way of programs that rely on it that they get the lowest that is free.
///
/// # Errors
/// When the process may have few.
fn moved_up(fd: &OwnedFd) -> io::Result<OwnedFd> {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if most < FEW {
        return Err(io::ErrorKind::QuotaExceeded.into());
    }
    Ok(fcntl_dupfd_cloexec(fd, (most / 2).min(HIGH) as i32)?)
}

fn new_socket() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// A connection. What one end sends at once, the other one receives at once.
#[derive(Debug)]
pub struct Packets(OwnedFd);

impl Packets {
    /// Connects to who listens under a name, if that takes the connection within some time, which
    /// is also how long each call waits then.
    ///
    /// # Errors
    /// When nobody listens, or what the system says.
    pub fn connect(name: &[u8], within: Duration) -> io::Result<Packets> {
        let packets = Packets(moved_up(&new_socket()?)?);
        packets.wait_for(Some(within), Some(within))?;
        connect(&packets.0, &SocketAddrUnix::new_abstract_name(name)?)?;
        Ok(packets)
    }

    /// How long calls wait to receive, and to send.
    ///
    /// # Errors
    /// What the system says.
    pub fn wait_for(&self, receive: Option<Duration>, send: Option<Duration>) -> io::Result<()> {
        sockopt::set_socket_timeout(&self.0, sockopt::Timeout::Recv, receive)?;
        Ok(sockopt::set_socket_timeout(
            &self.0,
            sockopt::Timeout::Send,
            send,
        )?)
    }

    /// User and process at the other end, when it connected or began to listen.
    ///
    /// # Errors
    /// What the system says.
    pub fn peer(&self) -> io::Result<(u32, u32)> {
        let peer = sockopt::socket_peercred(&self.0)?;
        Ok((peer.uid.as_raw(), peer.pid.as_raw_pid() as u32))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// When the other end is closed.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        retry_on_intr(|| send(&self.0, bytes, SendFlags::NOSIGNAL))?;
        Ok(())
    }

    /// Receives a message, of which what does not fit is lost; returns its bytes: 0 when the other
    /// end is closed.
    ///
    /// # Errors
    /// What the system says.
    pub fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        let (len, _) = retry_on_intr(|| recv(&self.0, &mut *into, RecvFlags::empty()))?;
        Ok(len)
    }

    /// Sends a byte with a descriptor.
    ///
    /// # Errors
    /// When the other end is closed.
    pub fn send_descriptor(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = [fd];
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        let pieces = [IoSlice::new(&[1])];
        sendmsg(&self.0, &pieces, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Receives a descriptor.
    ///
    /// # Errors
    /// When the other end is closed or sends none.
    pub fn receive_descriptor(&self) -> io::Result<OwnedFd> {
        received(self.0.as_fd())
    }
}

/// Takes a descriptor that was sent with a byte.
pub(crate) fn received(from: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut pieces = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    retry_on_intr(|| recvmsg(from, &mut pieces, &mut ancillary, flags))?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message
            && let Some(received) = descriptors.next()
        {
            return Ok(received);
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

/// New memory of `bytes` zeros that others may map by its descriptor, and that nobody can shorten.
///
/// # Errors
/// When the system refuses.
pub fn common_memory(bytes: usize) -> io::Result<(OwnedFd, Mem)> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create(c"margay-common", flags)?;
    ftruncate(&file, bytes as u64)?;
    // Who has it mapped would die of SIGBUS when another process cut it off.
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;
    let memory = map(file.as_fd(), bytes)?;
    Ok((file, memory))
}

/// Maps `bytes` of memory that another process made as [`common_memory`].
///
/// # Errors
/// When the system refuses.
pub fn map(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Mem> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new shared mapping at an address of the kernel's choice touches nothing of ours.
    let at = unsafe {
        mmap(
            std::ptr::null_mut(),
            bytes,
            access,
            MapFlags::SHARED,
            file,
            0,
        )
    }?;
    let start = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
    let mapped = Arc::new(Mapped(at as usize, bytes));
    // SAFETY: the pages are mapped for both accesses until `mapped` is dropped.
    Ok(unsafe { Mem::kept_by(mapped, start, bytes as u64) })
}

/// Address and bytes of a mapping, until this is dropped.
struct Mapped(usize, usize);

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and who refers into it keeps it.
        let _ = unsafe { munmap(self.0 as *mut _, self.1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stay_apart_and_memory_is_common() {
        let name = format!("margay-packets-{}", std::process::id());
        let hall = Hall::open(name.as_bytes()).expect("a new name");
        assert!(Hall::open(name.as_bytes()).is_err(), "it is taken");
        let limit = Duration::from_secs(60);
        let ours = Packets::connect(name.as_bytes(), limit).expect("it listens");
        let theirs = hall.accept().expect("it has connected");
        assert_eq!(ours.peer().expect("a peer").1, std::process::id());
        ours.send(b"one").expect("sent");
        ours.send(b"three").expect("sent");
        let mut bytes = [0; 4];
        assert_eq!(theirs.receive(&mut bytes).expect("received"), 3);
        assert_eq!(theirs.receive(&mut bytes).expect("received"), 4);
        assert_eq!(&bytes, b"thre");
        let (file, memory) = common_memory(10_000).expect("memory");
        assert!(ftruncate(&file, 5).is_err(), "it is sealed");
        theirs.send_descriptor(file.as_fd()).expect("sent");
        let file = ours.receive_descriptor().expect("received");
        let same = map(file.as_fd(), 10_000).expect("mapped");
        same.write(9_000, b"here");
        memory.with_bytes(9_000, 4, |bytes| assert_eq!(bytes, b"here"));
        drop(theirs);
        assert_eq!(ours.receive(&mut bytes).expect("the end"), 0);
        assert!(ours.send(b"x").is_err());
        drop(hall);
        assert!(Packets::connect(name.as_bytes(), limit).is_err());
    }
}
