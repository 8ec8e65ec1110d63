//! Records of ranks on other hosts, on their way to the checker: a connection here for each that a
//! rank has with its agent.

use std::collections::BTreeMap;
use std::env;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use margay_sys_os::port::connected;

use crate::hosts::wire::{self, Broken, Reader, Writer, kind};

enum Way {
    /// The checker has many to accept.
    Waits,
    Open(UnixStream),
    /// Nobody listens any more.
    Closed,
}

struct Process {
    way: Way,
    waiting: Vec<u8>,
    is_over: bool,
}

/// The connections of the ranks of all hosts: host, and its number there.
pub(super) struct Records {
    /// The checker's name; none for a job that is not checked.
    checker: Option<String>,
    open: BTreeMap<(usize, u64), Process>,
}

impl Records {
    pub(super) fn new() -> Records {
        Records {
            checker: env::var(wire::ENV_CHECK).ok(),
            open: BTreeMap::new(),
        }
    }

    /// What becomes writable when the checker takes more.
    pub(super) fn unread(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let open = self.open.values().filter(|p| !p.waiting.is_empty());
        open.filter_map(|process| match &process.way {
            Way::Open(socket) => Some(socket.as_fd()),
            Way::Waits | Way::Closed => None,
        })
    }

    /// Connections wait that nothing but time makes possible.
    pub(super) fn must_retry(&self) -> bool {
        self.open.values().any(|p| matches!(p.way, Way::Waits))
    }

    /// Takes what has come from a host.
    pub(super) fn take(&mut self, host: usize, mut from: Reader<'_>) -> Result<(), Broken> {
        let (number, is_over, bytes) = (from.number()?, from.number()? != 0, from.bytes()?);
        let process = self.open.entry((host, number)).or_insert(Process {
            way: Way::Waits,
            waiting: Vec::new(),
            is_over: false,
        });
        process.waiting.extend_from_slice(bytes);
        process.is_over |= is_over;
        Ok(())
    }

    /// Writes what the checker takes. Returns messages that give hosts room for as much.
    pub(super) fn write(&mut self) -> Vec<(usize, Vec<u8>)> {
        let mut credits = Vec::new();
        let checker = self.checker.as_deref();
        self.open.retain(|&(host, number), process| {
            let passed = process.write(checker);
            if passed > 0 && !process.is_over {
                let mut credit = Writer::new(kind::CREDIT);
                credit.number(wire::RECORDS | number).number(passed as u64);
                credits.push((host, credit.done()));
            }
            !process.is_over || !process.waiting.is_empty() || matches!(process.way, Way::Waits)
        });
        credits
    }

    /// A host has no more to say.
    pub(super) fn end_of_host(&mut self, host: usize) {
        for (_, process) in self.open.range_mut((host, 0)..=(host, u64::MAX)) {
            process.is_over = true;
        }
    }

    /// Nothing waits any more.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

impl Process {
    /// Returns how many bytes have left.
    fn write(&mut self, checker: Option<&str>) -> usize {
        if matches!(self.way, Way::Waits) {
            self.way = match checker.map(connected) {
                Some(Ok(socket)) => Way::Open(socket),
                Some(Err(error)) if error.kind() == ErrorKind::WouldBlock => return 0,
                Some(Err(_)) | None => Way::Closed,
            };
        }
        let mut passed = 0;
        while let Way::Open(socket) = &mut self.way
            && passed < self.waiting.len()
        {
            match socket.write(&self.waiting[passed..]) {
                Ok(n) if n > 0 => passed += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                _ => self.way = Way::Closed,
            }
        }
        if matches!(self.way, Way::Closed) {
            passed = self.waiting.len();
        }
        self.waiting.drain(..passed);
        passed
    }
}
