//! Records of the ranks of this host for the checker, which listens on the launcher's host: the
//! agent listens here under the same name, and passes on what comes.

use std::collections::BTreeMap;
use std::env;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use margay_sys_os::port::is_trusted;

use super::READ_BYTES;
use crate::hosts::wire::{self, Writer, kind};

/// Pieces that are read of one process at once.
const AT_ONCE: usize = 16;

struct Process {
    socket: UnixStream,
    /// Bytes that the relay still takes.
    window: usize,
}

/// The connections of the ranks of this host.
pub(super) struct Records {
    listener: UnixListener,
    open: BTreeMap<u64, Process>,
    next: u64,
}

impl Records {
    /// None for a job that is not checked; and where the name is taken, by the checker itself or
    /// by another agent on this host: the ranks reach it.
    pub(super) fn listen() -> Option<Records> {
        let name = env::var(wire::ENV_CHECK).ok()?;
        let address = SocketAddr::from_abstract_name(name).ok()?;
        let listener = UnixListener::bind_addr(&address).ok()?;
        listener.set_nonblocking(true).ok()?;
        Some(Records {
            listener,
            open: BTreeMap::new(),
            next: 0,
        })
    }

    /// What becomes readable when there is more.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let open = self.open.values().filter(|process| process.window > 0);
        let sockets = open.map(|process| process.socket.as_fd());
        std::iter::once(self.listener.as_fd()).chain(sockets)
    }

    /// Takes in what has come; what is to be sent to the relay is added to `said`.
    pub(super) fn turn(&mut self, said: &mut Vec<u8>) {
        while let Ok((mut socket, _)) = self.listener.accept() {
            // The process waits to hear whether records may stand in memory that both ends have.
            let is_answered = |socket: &mut UnixStream| socket.write_all(b"s").is_ok();
            if is_trusted(socket.as_fd())
                && socket.set_nonblocking(true).is_ok()
                && is_answered(&mut socket)
            {
                let window = wire::WINDOW;
                self.open.insert(self.next, Process { socket, window });
                self.next += 1;
                // Known to the checker before the first record.
                said.extend(message(self.next - 1, Some(&[])));
            }
        }
        self.open
            .retain(|&number, process| process.pass_on(number, said));
    }

    /// The relay takes this many bytes more of a connection.
    pub(super) fn give(&mut self, number: u64, bytes: usize) {
        if let Some(process) = self.open.get_mut(&number) {
            process.window = (process.window + bytes).min(wire::WINDOW);
        }
    }

    /// All of what processes have sent has been passed on.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

impl Process {
    /// Returns false at the end.
    fn pass_on(&mut self, number: u64, said: &mut Vec<u8>) -> bool {
        for _ in 0..AT_ONCE {
            let mut bytes = vec![0; self.window.min(READ_BYTES)];
            if bytes.is_empty() {
                return true;
            }
            match self.socket.read(&mut bytes) {
                Ok(n) if n > 0 => {
                    self.window -= n;
                    said.extend(message(number, Some(&bytes[..n])));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                _ => {
                    said.extend(message(number, None));
                    return false;
                }
            }
        }
        true
    }
}

/// Bytes of a connection, or its end.
fn message(number: u64, bytes: Option<&[u8]>) -> Vec<u8> {
    let mut message = Writer::new(kind::RECORDS);
    message.number(number).number(bytes.is_none().into());
    message.bytes(bytes.unwrap_or_default()).done()
}
