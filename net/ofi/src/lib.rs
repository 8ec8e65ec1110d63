//! The transport between ranks of different hosts over libfabric.
//!
//! | | |
//! | --- | --- |
//! | connections | those of [`Tcp`], one for each pair that talks: over it both prove the job's secret, exchange their addresses in the fabric, and notice each other's end |
//! | messages | packets, several in one where they wait, behind a random number that the receiver has given to the sender: `docs/wire.md` |
//! | sending | out of buffers of the endpoint; each operation ends with a completion, so that what the provider has not sent yet is known |
//! | receiving | into a fixed number of buffers, from which the engine takes the packets |
//! | long messages | read by their receiver out of the sender's memory, where the provider can |
//!
//! Nothing goes over the connection of a pair but what is about the pair, so all packets come in
//! the order of the fabric, which is that of sending.
//!
//! Nobody waits here. A rank sleeps on [`Ofi::epoll`], which holds all sockets and what the
//! provider wakes by. Before it does, [`Sleep`] has the next poll ask the provider, which goes on
//! with its work only when it is polled; where the provider does not allow to sleep, the rank
//! sleeps for a moment, by which others get its core.

#![forbid(unsafe_code)]

mod direct;
mod message;
mod peer;
mod receive;
mod room;
mod sleep;
mod talk;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use margay_net_tcp::frame::{self, FRAGMENT_HEAD, HEAD, MOST_FRAGMENT};
use margay_net_tcp::{OTHERS, OnLost, OnUnanswered, Tcp, Wiring};
use margay_net_transport::{Advance, Head, Sink, Thresholds, Ticket, Transport, WHOLE};
use margay_sys_fabric::{Done, Endpoint};
use margay_sys_os::clock::Clock;
use margay_sys_os::sockets::Epoll;
use margay_sys_os::user::Mem;

use direct::Copy;
use peer::{Peer, State};

pub use margay_sys_fabric::{OpenError, Wanted};
pub use sleep::Sleep;

/// Buffers into which messages are received: more may come between two polls of a rank, and wait
/// with the provider.
const RECEIVES: usize = 32;
/// Polls of the fabric between two looks at the connections, which cost a system call.
const TCP_EVERY: u32 = 64;
/// The same while a rank waits for another one's address.
const TCP_SOON: u32 = 4;
/// Sleep no longer than this while something is not out yet, in nanoseconds.
const SOON_NS: u64 = 2_000_000;
/// Instead of a provider, the system's number for one that breaks the protocol.
const EPROTO: i32 = 71;

/// Sets the numbers of jobs over a fabric apart, so that a rank that uses another network is a
/// stranger.
const OVER_FABRIC: u64 = 1 << 63;

/// One rank's endpoint and connections.
// Fields: what it stands on, the peers and those of them that need something, the buffers by what
// they are used for, and what it was handed.
pub struct Ofi {
    me: u32,
    tcp: Tcp,
    endpoint: Endpoint,
    peers: Vec<Peer>,
    /// The ranks with messages that the provider has not taken.
    queued: Vec<u32>,
    /// How many ranks' addresses are awaited.
    greeted: u32,
    /// How many ranks the fabric has reported errors of.
    broken: u32,
    /// Whom each buffer goes to; none while it goes to nobody.
    goes_to: Vec<Option<u32>>,
    /// Buffers to send from.
    free: Vec<usize>,
    /// Messages that have come, with their lengths.
    arrived: VecDeque<(usize, usize)>,
    /// Buffers to receive into that the provider has not taken.
    unposted: Vec<usize>,
    done: Vec<Done>,
    /// Operations of sending under way.
    sending: usize,
    /// Long messages, by the number of their ticket.
    copies: Vec<Option<Copy>>,
    /// Reads that have failed since one did not.
    failures: u32,
    thresholds: Arc<Thresholds>,
    polls: u32,
    checked_ns: u64,
    /// Somebody waits until all that was sent has arrived.
    flushes: AtomicBool,
    clock: Arc<dyn Clock>,
    sleep: Arc<Sleep>,
    /// What the connections report.
    lost: Arc<Mutex<Vec<(u32, i32)>>>,
    on_lost: OnLost,
}

impl Ofi {
    /// Returns the transport of a rank.
    ///
    /// # Errors
    /// When there is no endpoint.
    pub fn new(
        wiring: Wiring,
        wanted: &Wanted<'_>,
        thresholds: Arc<Thresholds>,
        clock: Arc<dyn Clock>,
        on_lost: OnLost,
    ) -> Result<Ofi, OpenError> {
        let endpoint = Endpoint::open(wanted, message::LONGEST)?;
        let provider = endpoint.provider().to_owned();
        let failed = |call, error| OpenError::Failed {
            provider: provider.clone(),
            call,
            error,
        };
        let lost = Arc::new(Mutex::new(Vec::new()));
        let report = lost.clone();
        let enter = Box::new(move |rank, errno| {
            let mut lost = report.lock().unwrap_or_else(PoisonError::into_inner);
            lost.push((rank, errno));
        });
        let wiring = Wiring {
            job: wiring.job ^ OVER_FABRIC,
            ..wiring
        };
        let (me, size) = (wiring.me, wiring.addresses.len());
        let tcp = Tcp::new(wiring, clock.clone(), enter);
        let tcp = tcp.map_err(|error| failed("epoll_create", error))?;
        if let Some(descriptor) = endpoint.descriptor() {
            // Some providers leave theirs readable when there is nothing to do any more.
            let added = tcp.epoll().add_for_changes(descriptor, OTHERS);
            added.map_err(|error| failed("epoll_ctl", error))?;
        }
        let mut ofi = Ofi {
            me,
            tcp,
            endpoint,
            peers: (0..size).map(|_| Peer::default()).collect(),
            queued: Vec::new(),
            greeted: 0,
            broken: 0,
            goes_to: Vec::new(),
            free: Vec::new(),
            arrived: VecDeque::new(),
            unposted: Vec::new(),
            done: Vec::new(),
            sending: 0,
            copies: Vec::new(),
            failures: 0,
            thresholds,
            polls: 0,
            checked_ns: 0,
            flushes: AtomicBool::new(false),
            clock,
            sleep: Arc::new(Sleep::default()),
            lost,
            on_lost,
        };
        for _ in 0..RECEIVES {
            let buffer = ofi.add_buffer();
            let buffer = buffer.map_err(|error| failed("fi_mr_reg", error))?;
            ofi.unposted.push(buffer);
        }
        ofi.post().map_err(|error| failed("fi_recv", error))?;
        Ok(ofi)
    }

    /// Returns what becomes readable when there is something for [`poll`](Transport::poll).
    #[must_use]
    pub fn epoll(&self) -> Arc<Epoll> {
        self.tcp.epoll()
    }

    /// As [`Tcp::soon`].
    #[must_use]
    pub fn soon(&self) -> Arc<AtomicU64> {
        self.tcp.soon()
    }

    /// What a thread says before it sleeps.
    #[must_use]
    pub fn sleep_state(&self) -> Arc<Sleep> {
        self.sleep.clone()
    }

    /// As [`Tcp::report_unanswered`].
    pub fn report_unanswered(&mut self, on_unanswered: OnUnanswered) {
        self.tcp.report_unanswered(on_unanswered);
    }

    fn add_buffer(&mut self) -> io::Result<usize> {
        let buffer = self.endpoint.add_buffer()?;
        self.goes_to.push(None);
        Ok(buffer)
    }

    /// Lets the provider have the buffers to receive into.
    fn post(&mut self) -> io::Result<()> {
        while let Some(&buffer) = self.unposted.last() {
            if !self.endpoint.receive(buffer)? {
                break;
            }
            self.unposted.pop();
        }
        Ok(())
    }

    /// Lets the provider go on, and takes in what is over.
    fn collect(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        if let Err(error) = self.endpoint.poll(&mut done) {
            // Without completions nobody can be reached any more.
            let errno = error.raw_os_error().unwrap_or(EPROTO);
            for rank in 0..self.peers.len() as u32 {
                if self.peers[rank as usize].is_met() {
                    self.doubt(rank, errno);
                }
            }
        }
        for &done in &done {
            match done {
                Done::Received(buffer, len) => self.arrived.push_back((buffer, len)),
                Done::NotReceived(buffer) => self.unposted.push(buffer),
                Done::Sent(buffer) => {
                    self.sent(buffer);
                }
                Done::NotSent(buffer, errno) => {
                    if let Some(rank) = self.sent(buffer) {
                        self.doubt(rank, errno);
                    }
                }
                Done::Read(region, errno) => self.has_read(region, errno),
            }
        }
        done.clear();
        self.done = done;
    }

    /// The provider needs a buffer no longer. Returns whom it went to.
    fn sent(&mut self, buffer: usize) -> Option<u32> {
        self.sending -= 1;
        self.free.push(buffer);
        let rank = self.goes_to[buffer].take()?;
        self.peers[rank as usize].sending -= 1;
        Some(rank)
    }

    /// The fabric has reported an error. If the rank's process has ended, its connection says so
    /// soon; if it does not, the rank is lost for the fabric's reason.
    fn doubt(&mut self, rank: u32, errno: i32) {
        let peer = &mut self.peers[rank as usize];
        if peer.broken.is_none() && !matches!(peer.state, State::Gone) {
            peer.broken = Some((errno, self.clock.now_ns()));
            self.broken += 1;
        }
    }

    /// A rank cannot be reached any more, for a reason of the system's.
    fn lose(&mut self, rank: u32, errno: i32) {
        if !matches!(self.peers[rank as usize].state, State::Gone) {
            self.tcp.forget(rank);
            self.drop_peer(rank);
            (self.on_lost)(rank, errno);
        }
    }

    /// A rank is gone; what is sent to it is dropped.
    fn drop_peer(&mut self, rank: u32) {
        let peer = &mut self.peers[rank as usize];
        let was = std::mem::replace(&mut peer.state, State::Gone);
        let waiting = std::mem::take(&mut peer.waiting);
        self.free.extend(waiting.iter().map(|m| m.buffer));
        self.broken -= u32::from(peer.broken.take().is_some());
        self.queued.retain(|&r| r != rank);
        match was {
            State::Greeted => self.greeted -= 1,
            State::Up(peer) => self.endpoint.remove(peer),
            State::Idle | State::Gone => {}
        }
    }

    /// Takes in which ranks the connections have lost.
    fn take_losses(&mut self) {
        let lost = {
            let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
            if lost.is_empty() {
                return;
            }
            std::mem::take(&mut *lost)
        };
        for (rank, errno) in lost {
            if !matches!(self.peers[rank as usize].state, State::Gone) {
                self.drop_peer(rank);
                (self.on_lost)(rank, errno);
            }
        }
    }

    /// Whether the connections are to be looked at with this poll.
    fn looks_at_connections(&self, sleeps: bool) -> bool {
        let awaits = self.greeted > 0 || self.broken > 0;
        let every = if awaits { TCP_SOON } else { TCP_EVERY };
        sleeps || self.polls.is_multiple_of(every)
    }
}

impl Transport for Ofi {
    fn me(&self) -> u32 {
        self.me
    }

    fn size(&self) -> u32 {
        self.peers.len() as u32
    }

    fn send(&mut self, to: u32, head: Head, payload: &[u8]) -> bool {
        assert!(payload.len() <= WHOLE, "{} bytes whole", payload.len());
        let mut bytes = [0; FRAGMENT_HEAD];
        let len = frame::encode(&mut bytes, head, None, payload.len());
        let mut fill = |to: &mut [u8]| {
            to[..len].copy_from_slice(&bytes[..len]);
            to[len..].copy_from_slice(payload);
        };
        self.is_met(to) && self.put(to, HEAD + payload.len(), &mut fill)
    }

    fn send_fragment(
        &mut self,
        to: u32,
        head: Head,
        args: [u64; 2],
        len: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> bool {
        assert!(len <= MOST_FRAGMENT, "a fragment of {len} bytes");
        let mut fill = |to: &mut [u8]| {
            if let Some((before, rest)) = to.split_first_chunk_mut::<FRAGMENT_HEAD>() {
                frame::encode(before, head, Some(args), len);
                fill(rest);
            }
        };
        self.is_met(to) && self.put(to, FRAGMENT_HEAD + len, &mut fill)
    }

    fn fragment(&self, _to: u32, remaining: u64) -> usize {
        remaining.min(MOST_FRAGMENT as u64) as usize
    }

    fn poll(&mut self, sink: &mut dyn Sink, spins: u32) -> bool {
        let sleeps = self.sleep.is_announced();
        for _ in 0..spins.max(1) {
            self.polls = self.polls.wrapping_add(1);
            // The fabric comes afterwards: the look takes in that something has happened to it.
            let mut any = self.looks_at_connections(sleeps) && self.look_at_connections();
            self.collect();
            any |= self.deliver(sink);
            self.send_queued();
            if any {
                return true;
            }
        }
        if sleeps {
            self.allow_sleep();
        }
        false
    }

    fn offer(&mut self, to: u32, from: &Mem, offset: i64, len: u64) -> Option<(Ticket, [u64; 3])> {
        let least = self.thresholds.fabric.load(Ordering::Relaxed);
        (len >= least).then(|| self.offer_memory(to, from, offset, len))?
    }

    fn accept(
        &mut self,
        from: u32,
        words: [u64; 3],
        into: &Mem,
        offset: i64,
        len: u64,
    ) -> Option<Ticket> {
        self.accept_memory(from, words, into, offset, len)
    }

    fn advance(&mut self, ticket: Ticket) -> Advance {
        self.advance_copy(ticket)
    }

    fn withdraw(&mut self, ticket: Ticket) {
        self.give_up_copy(ticket);
    }

    fn is_flushed(&self) -> bool {
        // The connections set the limit of sleep, which is set here afterwards.
        let has_connections_flushed = self.tcp.is_flushed();
        let done = has_connections_flushed && self.peers.iter().all(Peer::has_arrived);
        self.flushes.store(!done, Ordering::Relaxed);
        if !done {
            self.tcp.soon().store(SOON_NS, Ordering::Relaxed);
        }
        done
    }

    fn is_meeting(&self, to: u32) -> bool {
        matches!(self.peers[to as usize].state, State::Greeted)
    }

    fn has_queued(&self) -> bool {
        self.sending > 0 || !self.queued.is_empty()
    }

    fn is_queued(&self, to: u32) -> bool {
        let peer = &self.peers[to as usize];
        peer.sending > 0 || !peer.waiting.is_empty()
    }

    fn forget(&mut self, process: u32) {
        self.tcp.forget(process);
        if !matches!(self.peers[process as usize].state, State::Gone) {
            self.drop_peer(process);
        }
    }
}

#[cfg(test)]
mod tests;
