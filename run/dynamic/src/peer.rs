//! The other root: connecting to it, and what is said to it and by it.

use std::io::ErrorKind;
use std::sync::Arc;

use margay_net_tcp::talk::Knock;
use margay_run_engine::{Attending, Contact, Peers, Pending};
use margay_run_mpi::error::*;
use margay_run_mpi::fail;
use margay_run_mpi::foreign::Address;
use margay_sys_os::port::Channel;

use super::Dynamic;
use super::callers::{Hello, Line, REFUSED, Refusal, bytes_of, words_of};
use super::deadline::Deadline;
use super::target::Target;

/// The first word of each message between roots, beside those of [`callers`](super::callers).
pub(crate) const WELCOME: i32 = 0x4d47_0002;
pub(crate) const DONE: i32 = 0x4d47_0003;
pub(crate) const CONTACTS: i32 = 0x4d47_0005;

/// The other root.
pub(crate) struct Peer {
    pub(crate) line: Line,
    /// Its job's registry and its rank there, to wake it.
    pub(crate) home: Option<(Arc<dyn Peers>, u32)>,
    /// How long its first words are waited for.
    pub(crate) deadline: Deadline,
    /// What it has said already.
    pub(crate) hello: Option<Hello>,
    /// Its port, to connect again when it drops the connection.
    pub(crate) target: Option<Target>,
    /// While it may be that nobody wakes this rank when it says something.
    pub(crate) attending: Option<Attending>,
}

impl Peer {
    pub(crate) fn over(line: Line) -> Peer {
        Peer {
            line,
            home: None,
            deadline: Deadline::default(),
            hello: None,
            target: None,
            attending: None,
        }
    }

    pub(crate) fn send(&mut self, words: &[i32]) -> Result<()> {
        self.line.send(&bytes_of(words)).map_err(lost)?;
        if let Some((home, rank)) = &self.home {
            home.wake(*rank);
        }
        Ok(())
    }
}

/// Returns the words of a message behind the first, which must be `kind`.
fn understood(message: &[u8], kind: i32, least: usize) -> Result<Vec<i32>> {
    let mut words = words_of(message);
    match words.first() {
        Some(&first) if first == kind && words.len() > least => Ok(words.split_off(1)),
        Some(&REFUSED) => fail!(MPI_ERR_PORT, "{}", Refusal::text(&words[1..])),
        _ => fail!(
            MPI_ERR_PORT,
            "the other side speaks another language; both must be of the same Margay"
        ),
    }
}

fn lost(error: std::io::Error) -> Error {
    Error::new(
        MPI_ERR_PORT,
        format!("the processes on the other side are gone ({error})"),
    )
}

impl Dynamic<'_> {
    /// Connects to a port, for whose queue it waits. The inner error says that nobody of this user
    /// listens there.
    pub(crate) fn connect(
        &self,
        target: &Target,
        deadline: Deadline,
    ) -> Result<std::io::Result<Line>> {
        let clock = self.mpi.rank().clock();
        let late = || {
            let late = deadline.check(clock, "accepted at the port");
            late.err().map(Err)
        };
        let socket = match target {
            Target::Near(socket, _) => socket,
            Target::Far(far) => {
                let Contact { addresses, port } = &far.contact;
                let what = (far.number, far.secret);
                let mut knock = match Knock::begin(addresses, *port, what, clock.now_ns()) {
                    Ok(knock) => knock,
                    Err(error) => return Ok(Err(error)),
                };
                let _attending = self.mpi.outside()?.attend();
                return self.mpi.rank().block(
                    |_| match knock.advance(clock.now_ns()) {
                        Ok(None) => late(),
                        Ok(Some(talk)) => Some(Ok(Ok(Line::Far(Box::new(talk))))),
                        Err(error) => Some(Ok(Err(error))),
                    },
                    |_| Some(Pending::Elsewhere),
                );
            }
        };
        self.mpi.rank().block(
            |_| match Channel::connect(socket) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => late(),
                Ok(channel) if !channel.is_trusted() => {
                    Some(Ok(Err(ErrorKind::PermissionDenied.into())))
                }
                connected => Some(Ok(connected.map(Line::Near))),
            },
            |_| Some(Pending::Elsewhere),
        )
    }

    /// Says HELLO to a root that accepts; its WELCOME. A connection that it drops is made again as
    /// long as it listens.
    pub(crate) fn greet(&self, peer: &mut Peer, hello: &[i32], least: usize) -> Result<Vec<i32>> {
        loop {
            let deadline = peer.deadline;
            let error = match peer.send(hello) {
                Ok(()) => match self.receive_message(peer)? {
                    Ok(message) => return understood(&message, WELCOME, least),
                    Err(error) => lost(error),
                },
                Err(error) => error,
            };
            let Some(target) = &peer.target else {
                return Err(error);
            };
            match self.connect(target, deadline)? {
                Ok(line) => peer.line = line,
                Err(_) => return Err(error),
            }
        }
    }

    pub(crate) fn find_event_count(&self, peer: &mut Peer, address: &Address) -> Result<()> {
        let home = self.mpi.find_home(address);
        let home = home.map_err(|e| Error::new(MPI_ERR_PORT, e.to_string()))?;
        if address.rank >= home.size() {
            fail!(MPI_ERR_PORT, "the other side is not a rank of its job");
        }
        let own = self.mpi.own_address().job_address();
        if !address.job_address().is_near(&own) {
            peer.attending = Some(self.mpi.outside()?.attend());
        }
        peer.home = Some((home, address.rank));
        Ok(())
    }

    /// Waits for a message of the other root; its words behind the first, at least `least` of them.
    pub(crate) fn receive_from_root(
        &self,
        peer: &mut Peer,
        kind: i32,
        least: usize,
    ) -> Result<Vec<i32>> {
        let message = self.receive_message(peer)?.map_err(lost)?;
        peer.deadline = Deadline::default();
        understood(&message, kind, least)
    }

    /// Waits for a message of the other root. The inner error says that the connection is gone.
    fn receive_message(&self, peer: &mut Peer) -> Result<std::io::Result<Vec<u8>>> {
        self.mpi.rank().block(
            |_| match peer.line.receive() {
                Ok(None) => peer
                    .deadline
                    .check(self.mpi.rank().clock(), "accepted at the port")
                    .err()
                    .map(Err),
                Ok(Some(message)) => Some(Ok(Ok(message))),
                Err(error) => Some(Ok(Err(error))),
            },
            |_| Some(Pending::Elsewhere),
        )
    }
}
