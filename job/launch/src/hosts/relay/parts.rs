//! What the recorders of the hosts write, on its way to the program that makes a trace of it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use margay_core_record::Piece;
use margay_sys_os::clock;
use margay_sys_os::descriptor::{Outlet, Wrote};

use crate::hosts::wire::{self, Broken, Reader, Writer, kind};

/// What may wait here before the hosts have to wait.
const ROOM: usize = 4 << 20;

/// Questions for the time follow each other until one is answered as soon as this, in nanoseconds,
/// or until there were this many: the host is far away or busy. It begins with the host, and again
/// with each beat.
const SOON_NS: u64 = 100_000;
const READINGS: usize = 32;

/// The way of the parts of all hosts.
pub(super) struct Parts {
    /// None when nobody reads any more.
    pipe: Option<Outlet>,
    waiting: Vec<u8>,
    hosts: Vec<Host>,
}

#[derive(Clone, Default)]
struct Host {
    /// Bytes for which the agent has not been given room again.
    owed: usize,
    /// Questions since the last beat.
    asked: usize,
}

impl Parts {
    /// `pipe` leads to the program.
    pub(super) fn new(pipe: &OwnedFd, hosts: usize) -> io::Result<Parts> {
        Ok(Parts {
            pipe: Some(Outlet::new(pipe.as_fd())?),
            waiting: Vec::new(),
            hosts: vec![Host::default(); hosts],
        })
    }

    /// What is waited for until more can be written.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let pipe = self.pipe.as_ref().filter(|_| !self.waiting.is_empty());
        pipe.map(Outlet::as_fd)
    }

    /// Takes what a host has recorded.
    pub(super) fn take(&mut self, host: usize, bytes: &[u8]) {
        self.hosts[host].owed += bytes.len();
        self.enter(host, Piece::Bytes, bytes);
    }

    fn enter(&mut self, host: usize, what: Piece, bytes: &[u8]) {
        if self.pipe.is_some() && !bytes.is_empty() {
            self.waiting.extend(what.head(host as u32, bytes.len()));
            self.waiting.extend_from_slice(bytes);
        }
    }

    /// Writes what is possible. Returns messages that give hosts room for as much as was taken.
    pub(super) fn write(&mut self) -> Vec<(usize, Vec<u8>)> {
        let mut written = 0;
        while let Some(pipe) = &self.pipe {
            match pipe.write(&self.waiting[written..]) {
                Wrote::Some(n) => written += n,
                Wrote::Later => break,
                Wrote::Closed | Wrote::Failed(_) => self.pipe = None,
            }
        }
        self.waiting.drain(..written);
        if self.pipe.is_none() {
            self.waiting.clear();
        }
        if self.waiting.len() >= ROOM {
            return Vec::new();
        }
        let owed = self.hosts.iter_mut().enumerate();
        owed.filter(|(_, host)| host.owed > 0)
            .map(|(at, host)| {
                let bytes = std::mem::take(&mut host.owed) as u64;
                let mut credit = Writer::new(kind::CREDIT);
                (at, credit.number(wire::PART).number(bytes).done())
            })
            .collect()
    }

    /// The first of some questions what time it is on a host.
    pub(super) fn ask(&mut self, host: usize) -> Vec<u8> {
        self.hosts[host].asked = 1;
        question()
    }

    /// Takes an answer: when it was asked, and the time there. Returns the next question.
    pub(super) fn answer(
        &mut self,
        host: usize,
        from: &mut Reader<'_>,
    ) -> Result<Option<Vec<u8>>, Broken> {
        let (asked, there) = (from.number()?, from.number()?);
        let took = clock::now_ns().saturating_sub(asked);
        let ahead = there.wrapping_sub(asked.wrapping_add(took / 2));
        let reading = [ahead.to_le_bytes(), took.to_le_bytes()].concat();
        self.enter(host, Piece::Clock, &reading);
        let asked = &mut self.hosts[host].asked;
        let goes_on = took > SOON_NS && *asked < READINGS;
        *asked += usize::from(goes_on);
        Ok(goes_on.then(question))
    }

    /// Nothing waits any more.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

fn question() -> Vec<u8> {
    Writer::new(kind::CLOCK).number(clock::now_ns()).done()
}
