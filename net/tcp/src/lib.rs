//! The transport between ranks of different hosts, over TCP.
//!
//! | | |
//! | --- | --- |
//! | connections | one for each pair that talks, made with its first packet; all addresses of the peer are tried at once, and the first one that proves to know the job's secret is kept |
//! | packets | a head of 24 bytes (a fragment's has 40) and the payload: `docs/wire.md` |
//! | sending | straight into the socket; what the system does not take waits in a queue of bounded length, and then the engine waits |
//! | receiving | into one buffer for each connection, from which the engine takes the packets |
//!
//! The order of a pair's packets is that of its one connection. Flow control is TCP's own, for each
//! pair; how many messages a receiver may have unmatched is limited by the engine's credits.
//!
//! Nobody waits here. A rank sleeps on [`Tcp::epoll`], which holds all sockets.

#![forbid(unsafe_code)]

mod attempts;
mod connect;
pub mod frame;
mod link;
mod proof;
mod seal;
pub mod talk;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use margay_net_transport::{Head, Sink, Transport, WHOLE};
use margay_sys_os::clock::Clock;
use margay_sys_os::sockets::{self, Epoll, Event};

use connect::{Attempt, ETIMEDOUT, SILENCE, Visited, Visitor};
use frame::{FRAGMENT_HEAD, HEAD, MOST_FRAGMENT};
use link::{Link, Queue, Received};
use proof::Names;
use seal::{BEFORE, Seals};

pub use proof::{Secret, secret_of};

/// Visitors that have not proved who they are yet; one more drives the oldest out.
const MOST_VISITORS: usize = 64;
/// A visitor has this much time to prove who it is, in nanoseconds.
const VISIT_NS: u64 = 5_000_000_000;
/// An attempt has this much time until a host has taken the connection.
const ATTEMPT_NS: u64 = 3_000_000_000;
/// A host that has held a connection for this long without an answer is there; that of somebody
/// else at one of its addresses would have been closed.
const HELD_NS: u64 = 1_000_000_000;
/// A rank that looks after its attempts more seldom than this was away, in its program or stopped;
/// what has not happened meanwhile says nothing of others.
const AWAY_NS: u64 = 500_000_000;
/// Until the next attempt: after a failure, and where the other side's own is under way.
const PAUSE_NS: u64 = 100_000_000;
/// A rank that could not be reached for this long is lost.
const GIVE_UP_NS: u64 = SILENCE.as_nanos() as u64;
/// With more links than this, the system is asked which ones have something.
const FEW: usize = 3;
/// Without a connection, the system is asked only at one of this number of polls whether somebody
/// comes: ranks of one host that wait for each other poll often, and the question costs a system
/// call.
const IDLE_EVERY: u32 = 16;
/// Polls after which visitors and attempts are served even while packets come.
const LOOK_EVERY: u32 = 32;
/// How often it is found out whether other hosts still answer, in nanoseconds.
const CHECK_NS: u64 = 1_000_000_000;
/// Polls after which the clock is read for that.
const CHECK_EVERY: u32 = 4;
/// Sleep no longer than this while something has to be looked after again, in nanoseconds.
const SOON_NS: u64 = 2_000_000;

/// The number in [`Tcp::epoll`] of descriptors that only wake the rank.
pub const OTHERS: u64 = 3 << 32;

const LISTENER: u64 = 0;
const PEER: u64 = 1 << 32;
const VISITOR: u64 = 2 << 32;

/// Where the ranks of a job are, and how they know each other.
pub struct Wiring {
    /// This rank.
    pub me: u32,
    /// The job's number, the same on all hosts.
    pub job: u64,
    /// What only the job's ranks know.
    pub secret: Secret,
    /// The addresses of each rank's host, and its port.
    pub addresses: Vec<(Arc<[IpAddr]>, u16)>,
    /// Where the others connect to.
    pub listener: TcpListener,
    /// Whether packets are encrypted, which all ranks must find alike.
    pub encrypts: bool,
    /// Whether this rank says goodbye at its end, so that the others know that it is no death.
    pub says_goodbye: bool,
}

/// Called with a rank that cannot be reached any more, and the system's number for why; 0 where it
/// has closed the connection, as it does when its process ends, and [`GOODBYE`] where it has said
/// so before.
pub type OnLost = Box<dyn Fn(u32, i32) + Send>;

/// Instead of a number of the system: the rank has left.
pub const GOODBYE: i32 = -1;

/// Called, once a second, with each rank that cannot be reached although something takes the
/// connections to it, and has done so for 8 seconds: the rank computes and has not looked yet, or
/// another program has its address. Only who knows what the rank does can tell.
pub type OnUnanswered = Box<dyn Fn(u32) + Send>;

/// One rank's connections.
// Fields: who the rank is, its sockets, the lists by which it finds those that need something, and
// what it was handed.
pub struct Tcp {
    me: u32,
    job: u64,
    secret: Secret,
    encrypts: bool,
    says_goodbye: bool,
    listener: TcpListener,
    peers: Vec<Peer>,
    /// The ranks whose links are up.
    up: Vec<u32>,
    /// The ranks that are being connected to.
    trying: Vec<u32>,
    /// The ranks with something in their queues.
    queued: Vec<u32>,
    visitors: Vec<Option<Visitor>>,
    epoll: Arc<Epoll>,
    events: Vec<Event>,
    clock: Arc<dyn Clock>,
    polls: u32,
    /// When the attempts were looked after last.
    looked_ns: u64,
    /// When the other hosts' answers were looked at last.
    checked_ns: u64,
    scratch: Vec<u8>,
    on_lost: OnLost,
    on_unanswered: Option<OnUnanswered>,
    soon: Arc<AtomicU64>,
}

struct Peer {
    addresses: Arc<[IpAddr]>,
    port: u16,
    state: State,
    queue: Queue,
    /// Since when it cannot be reached, 0 for not at all.
    failing_ns: u64,
    /// Since when there has been no connection although one is wanted, 0 for not at all.
    since_ns: u64,
    /// When it was reported last that nothing answers.
    reported_ns: u64,
}

enum State {
    /// Nothing has been sent yet, and nobody has come.
    Idle,
    Trying(Box<Attempt>),
    /// Until then no attempt is made.
    Pausing(u64),
    Up(Link),
    /// It has gone or is lost. What is sent to it is dropped.
    Gone,
}

impl Tcp {
    /// Returns the transport of a rank.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub fn new(wiring: Wiring, clock: Arc<dyn Clock>, on_lost: OnLost) -> std::io::Result<Tcp> {
        let epoll = Arc::new(Epoll::new()?);
        wiring.listener.set_nonblocking(true)?;
        epoll.add(wiring.listener.as_fd(), LISTENER, false)?;
        let peer = |(addresses, port)| Peer {
            addresses,
            port,
            state: State::Idle,
            queue: Queue::default(),
            failing_ns: 0,
            since_ns: 0,
            reported_ns: 0,
        };
        Ok(Tcp {
            me: wiring.me,
            job: wiring.job,
            secret: wiring.secret,
            encrypts: wiring.encrypts,
            says_goodbye: wiring.says_goodbye,
            listener: wiring.listener,
            peers: wiring.addresses.into_iter().map(peer).collect(),
            up: Vec::new(),
            trying: Vec::new(),
            queued: Vec::new(),
            visitors: Vec::new(),
            epoll,
            events: Vec::new(),
            clock,
            polls: 0,
            looked_ns: 0,
            checked_ns: 0,
            scratch: Vec::new(),
            on_lost,
            on_unanswered: None,
            soon: Arc::new(AtomicU64::new(0)),
        })
    }

    /// Returns what becomes readable when there is something for [`poll`](Transport::poll).
    #[must_use]
    pub fn epoll(&self) -> Arc<Epoll> {
        self.epoll.clone()
    }

    /// Returns a number of nanoseconds: how long the rank may sleep at most, because time alone
    /// makes something to do. 0 is no limit.
    #[must_use]
    pub fn soon(&self) -> Arc<AtomicU64> {
        self.soon.clone()
    }

    /// Has [`OnUnanswered`] called.
    pub fn report_unanswered(&mut self, on_unanswered: OnUnanswered) {
        self.on_unanswered = Some(on_unanswered);
    }

    /// Has the rank sleep no longer than this number says, which another transport of the rank sets
    /// as well. Where they differ, the rank finds out somewhat later that time has passed.
    pub fn share_soon(&mut self, soon: Arc<AtomicU64>) {
        self.soon = soon;
    }

    /// Connects to a rank although nothing is sent to it yet, so that its end is noticed.
    pub fn reach(&mut self, to: u32) {
        if matches!(self.peers[to as usize].state, State::Idle) {
            self.begin(to);
        }
    }

    /// Looks at all connections once, and at who comes, as a [`poll`](Transport::poll) does now and
    /// then: for a rank that seldom looks. Returns whether there was anything.
    pub fn look_at_all(&mut self, sink: &mut dyn Sink) -> bool {
        self.polls = self.polls.wrapping_add(1);
        let any = self.look(sink);
        if self.polls.is_multiple_of(CHECK_EVERY) {
            self.check_links();
        }
        any
    }

    /// Sends the first packet to a rank, as [`send`](Transport::send) does, but before there is a
    /// connection as well: then it waits here.
    pub fn send_first(&mut self, to: u32, head: Head, payload: &[u8]) -> bool {
        if !self.has_room(to, HEAD + payload.len()) {
            return false;
        }
        let mut bytes = [0; FRAGMENT_HEAD];
        let len = frame::encode(&mut bytes, head, None, payload.len());
        self.scratch.clear();
        self.scratch.extend_from_slice(&[0; BEFORE]);
        self.scratch.extend_from_slice(&bytes[..len]);
        self.scratch.extend_from_slice(payload);
        self.push(to);
        true
    }

    /// Whether there is a connection to a rank, or was; one is begun where there is none. Until
    /// then the engine has what is sent, and knows who waits for it.
    fn is_met(&mut self, to: u32) -> bool {
        match self.peers[to as usize].state {
            State::Up(_) | State::Gone => true,
            State::Idle => {
                self.begin(to);
                false
            }
            State::Trying(_) | State::Pausing(_) => false,
        }
    }

    fn names(&self, to: u32) -> Names {
        Names {
            job: self.job,
            from: self.me,
            to,
        }
    }

    fn token(rank: u32) -> u64 {
        PEER | u64::from(rank)
    }

    fn begin(&mut self, to: u32) {
        let now = self.clock.now_ns();
        let names = self.names(to);
        let peer = &mut self.peers[to as usize];
        if peer.failing_ns == 0 {
            peer.failing_ns = now.max(1);
        }
        if peer.since_ns == 0 {
            peer.since_ns = now.max(1);
        }
        let addresses = peer.addresses.iter();
        let addresses = addresses.map(|&ip| SocketAddr::new(ip, peer.port));
        let place = (&*self.epoll, Tcp::token(to));
        let attempt = Attempt::begin(names, addresses, place, now);
        peer.state = State::Trying(Box::new(attempt));
        if self.trying.is_empty() {
            self.looked_ns = now;
        }
        if !self.trying.contains(&to) {
            self.trying.push(to);
        }
        self.soon.store(SOON_NS * 25, Ordering::Relaxed);
    }

    /// Looks whether the hosts at the other ends still answer.
    fn check_links(&mut self) {
        let now = self.clock.now_ns();
        if now.saturating_sub(self.checked_ns) < CHECK_NS {
            return;
        }
        self.checked_ns = now;
        for at in (0..self.up.len()).rev() {
            let rank = self.up[at];
            if let State::Up(link) = &self.peers[rank as usize].state
                && link.is_unanswered()
            {
                self.lose(rank, Some(ETIMEDOUT));
            }
        }
    }

    /// A connection to a rank is there.
    fn raise(&mut self, rank: u32, mut link: Link) {
        let peer = &mut self.peers[rank as usize];
        peer.failing_ns = 0;
        peer.since_ns = 0;
        if self.encrypts {
            peer.queue.seal(&mut link);
        }
        // A descriptor of the set stays in it; one that a visitor had has another number there.
        let watched = self
            .epoll
            .change(link.stream.as_fd(), Tcp::token(rank), false);
        peer.state = State::Up(link);
        self.up.push(rank);
        if watched.is_err() {
            self.lose(rank, Some(ETIMEDOUT));
        } else {
            self.write_queue(rank);
        }
    }

    /// A rank is gone, or lost for a reason.
    fn lose(&mut self, rank: u32, errno: Option<i32>) {
        let peer = &mut self.peers[rank as usize];
        peer.state = State::Gone;
        peer.queue.clear();
        for list in [&mut self.up, &mut self.trying, &mut self.queued] {
            list.retain(|&r| r != rank);
        }
        if let Some(errno) = errno {
            (self.on_lost)(rank, errno);
        }
    }

    fn end_of(&mut self, rank: u32, received: &Received) {
        match received {
            Received::Failed(errno) => self.lose(rank, Some(*errno)),
            Received::Goodbye => self.lose(rank, Some(GOODBYE)),
            _ => self.lose(rank, Some(0)),
        }
    }

    /// Takes in who has connected, and goes on with those who have.
    fn receive_visitors(&mut self, accept: bool) {
        let now = self.clock.now_ns();
        while accept && let Ok((stream, _)) = self.listener.accept() {
            if sockets::set_up(&stream, SILENCE).is_err() {
                continue;
            }
            let free = self.visitors.iter().position(Option::is_none);
            let at = match free {
                Some(at) => at,
                None if self.visitors.len() < MOST_VISITORS => {
                    self.visitors.push(None);
                    self.visitors.len() - 1
                }
                None => self.oldest_visitor(),
            };
            if self
                .epoll
                .add(stream.as_fd(), VISITOR | at as u64, false)
                .is_ok()
            {
                self.visitors[at] = Some(Visitor::new(stream, now));
            }
        }
        let (me, job, size) = (self.me, self.job, self.peers.len() as u32);
        let expects = |names: Names| {
            names.job == job && names.to == me && names.from < size && names.from != me
        };
        for at in 0..self.visitors.len() {
            let Some(visitor) = &mut self.visitors[at] else {
                continue;
            };
            match visitor.advance(&self.secret, expects, now) {
                Visited::NotYet if now - visitor.began_ns < VISIT_NS => {}
                Visited::NotYet | Visited::Stranger => self.visitors[at] = None,
                Visited::Proved(from) => {
                    if let Some(visitor) = self.visitors[at].take() {
                        self.admit(from, visitor);
                    }
                }
            }
        }
    }

    fn oldest_visitor(&self) -> usize {
        let began = |visitor: &Option<Visitor>| visitor.as_ref().map_or(0, |v| v.began_ns);
        let all = self.visitors.iter().enumerate();
        all.min_by_key(|(_, visitor)| began(visitor))
            .map_or(0, |(at, _)| at)
    }

    /// A rank has connected and proved itself.
    fn admit(&mut self, from: u32, mut visitor: Visitor) {
        let is_used = match self.peers[from as usize].state {
            State::Up(_) | State::Gone => false,
            State::Trying(_) => self.me > from,
            State::Idle | State::Pausing(_) => true,
        };
        let keys = visitor.keys(&self.secret);
        if visitor.tell(&self.secret, is_used)
            && is_used
            && let Some(keys) = keys
        {
            self.trying.retain(|&r| r != from);
            let seals = self.encrypts.then(|| Seals::new(&keys, false));
            self.raise(from, Link::new(visitor.stream, seals));
        }
    }

    /// Writes as much of a rank's queue as the system takes, and asks for an event when it takes
    /// more.
    fn write_queue(&mut self, rank: u32) {
        let peer = &mut self.peers[rank as usize];
        let State::Up(link) = &mut peer.state else {
            return;
        };
        while !peer.queue.is_empty() {
            match link.write(peer.queue.waiting()) {
                Ok(0) => break,
                Ok(n) => peer.queue.written(n),
                Err(received) => return self.end_of(rank, &received),
            }
        }
        let waits = !peer.queue.is_empty();
        let was_waiting = self.queued.contains(&rank);
        if waits != was_waiting {
            let _ = self
                .epoll
                .change(link.stream.as_fd(), Tcp::token(rank), waits);
        }
        match (waits, was_waiting) {
            (true, false) => self.queued.push(rank),
            (false, true) => self.queued.retain(|&r| r != rank),
            _ => {}
        }
    }

    /// Whether a packet of this length can go to a rank now.
    fn has_room(&mut self, to: u32, len: usize) -> bool {
        if !self.peers[to as usize].queue.has_room(len) {
            self.write_queue(to);
        }
        self.peers[to as usize].queue.has_room(len)
    }

    /// Sends the packet in `scratch`, which lies behind [`BEFORE`] bytes; there is room.
    fn push(&mut self, to: u32) {
        let peer = &mut self.peers[to as usize];
        match &mut peer.state {
            State::Gone => return,
            State::Up(link) => {
                let first = link.seal(&mut self.scratch);
                let bytes = &self.scratch[first..];
                if !peer.queue.is_empty() {
                    peer.queue.add(bytes);
                } else {
                    match link.write(bytes) {
                        Ok(n) if n == bytes.len() => return,
                        Ok(n) => peer.queue.add(&bytes[n..]),
                        Err(received) => return self.end_of(to, &received),
                    }
                }
            }
            State::Idle => {
                peer.queue.add(&self.scratch[BEFORE..]);
                return self.begin(to);
            }
            _ => peer.queue.add(&self.scratch[BEFORE..]),
        }
        self.write_queue(to);
    }

    /// Takes what a link has brought. Returns whether there was anything.
    fn receive(&mut self, rank: u32, sink: &mut dyn Sink) -> bool {
        let State::Up(link) = &mut self.peers[rank as usize].state else {
            return false;
        };
        match link.receive(rank, sink) {
            Received::Nothing => false,
            Received::Packets => true,
            over => {
                self.end_of(rank, &over);
                true
            }
        }
    }

    /// Whether there is nothing but the chance that another rank connects. A rank that sleeps then
    /// is woken as long as there is somebody whom it has not taken in.
    fn is_idle(&self) -> bool {
        self.up.is_empty() && self.trying.is_empty() && self.visitors.iter().all(Option::is_none)
    }

    /// Asks the system what is ready, and does all of it.
    fn look(&mut self, sink: &mut dyn Sink) -> bool {
        let mut events = std::mem::take(&mut self.events);
        let asked = self.epoll.wait(&mut events, Duration::ZERO);
        let mut any = false;
        let (mut accepts, mut visits) = (false, false);
        if asked.is_ok() {
            for event in &events {
                let rank = event.token as u32;
                match event.token & !u64::from(u32::MAX) {
                    PEER => {
                        any |= event.readable && self.receive(rank, sink);
                        if event.writable {
                            self.write_queue(rank);
                        }
                    }
                    VISITOR => visits = true,
                    OTHERS => {}
                    _ => accepts = true,
                }
            }
        }
        self.events = events;
        // Also without an event: a visitor's time may be over.
        if accepts || visits || self.visitors.iter().any(Option::is_some) {
            self.receive_visitors(accepts);
        }
        if !self.trying.is_empty() {
            any |= self.advance_attempts();
        }
        any
    }
}

impl Transport for Tcp {
    fn me(&self) -> u32 {
        self.me
    }

    fn size(&self) -> u32 {
        self.peers.len() as u32
    }

    fn send(&mut self, to: u32, head: Head, payload: &[u8]) -> bool {
        assert!(payload.len() <= WHOLE, "{} bytes whole", payload.len());
        self.is_met(to) && self.send_first(to, head, payload)
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
        if !self.is_met(to) || !self.has_room(to, FRAGMENT_HEAD + len) {
            return false;
        }
        let mut bytes = [0; FRAGMENT_HEAD];
        let before = frame::encode(&mut bytes, head, Some(args), len);
        self.scratch.resize(BEFORE + before + len, 0);
        self.scratch[BEFORE..][..before].copy_from_slice(&bytes);
        fill(&mut self.scratch[BEFORE + before..]);
        self.push(to);
        true
    }

    fn fragment(&self, _to: u32, remaining: u64) -> usize {
        remaining.min(MOST_FRAGMENT as u64) as usize
    }

    fn poll(&mut self, sink: &mut dyn Sink, spins: u32) -> bool {
        for _ in 0..spins.max(1) {
            self.polls = self.polls.wrapping_add(1);
            let mut any = false;
            if self.is_idle() && !self.polls.is_multiple_of(IDLE_EVERY) {
                continue;
            }
            if self.up.is_empty() || self.up.len() > FEW || self.polls.is_multiple_of(LOOK_EVERY) {
                any = self.look(sink);
            } else {
                // From behind, because a link that ends leaves the list.
                for at in (0..self.up.len()).rev() {
                    if let Some(&rank) = self.up.get(at) {
                        any |= self.receive(rank, sink);
                    }
                }
                for at in (0..self.queued.len()).rev() {
                    if let Some(&rank) = self.queued.get(at) {
                        self.write_queue(rank);
                    }
                }
            }
            if any {
                return true;
            }
            if self.polls.is_multiple_of(CHECK_EVERY) {
                self.check_links();
            }
        }
        false
    }

    fn is_flushed(&self) -> bool {
        let is_acknowledged = |rank: &u32| match &self.peers[*rank as usize].state {
            State::Up(link) => link.is_acknowledged(),
            _ => true,
        };
        // Who leaves before a pair has met cannot say goodbye to it.
        let has_met = !self.says_goodbye || self.trying.is_empty();
        let done = has_met
            && self.peers.iter().all(|p| p.queue.is_empty())
            && self.up.iter().all(is_acknowledged);
        // The other host's acknowledgement wakes nobody.
        let limit = if done { 0 } else { SOON_NS };
        self.soon.store(limit, Ordering::Relaxed);
        done
    }

    fn is_meeting(&self, to: u32) -> bool {
        matches!(
            self.peers[to as usize].state,
            State::Trying(_) | State::Pausing(_)
        )
    }

    fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    fn is_queued(&self, to: u32) -> bool {
        self.queued.contains(&to)
    }

    fn forget(&mut self, process: u32) {
        self.lose(process, None);
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        if !self.says_goodbye {
            return;
        }
        let mut head = [0; FRAGMENT_HEAD];
        let len = frame::encode(&mut head, frame::goodbye(), None, 0);
        for &rank in &self.up {
            if let State::Up(link) = &mut self.peers[rank as usize].state {
                let mut bytes = vec![0; BEFORE];
                bytes.extend_from_slice(&head[..len]);
                let first = link.seal(&mut bytes);
                // Who has no room for it hears of the end of the connection.
                let _ = link.write(&bytes[first..]);
            }
        }
    }
}

#[cfg(test)]
mod tests;
