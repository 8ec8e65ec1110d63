//! What two ranks say to each other over their connection: their addresses in the fabric, and how
//! many messages have come through it.
//!
//! A rank that wants to be sure that its messages have arrived asks for the other one's count. The
//! same question finds out whether the fabric works: a rank that answers it and gets nothing for
//! long, although something is on its way to it, cannot be reached through the fabric. A rank that
//! does not answer computes.

use std::sync::atomic::Ordering;

use margay_net_transport::{Destination, Head, Packet, Sink, Transport};
use margay_sys_os::sockets;

use crate::message::{COUNT, Count, HELLO, Hello, Token};
use crate::peer::State;
use crate::{EPROTO, Ofi};

/// The system's numbers for "timed out", and for "protocol not supported".
const ETIMEDOUT: i32 = 110;
const EPROTONOSUPPORT: i32 = 93;
/// How often ranks whose messages do not go on are asked, in nanoseconds.
const CHECK_NS: u64 = 1_000_000_000;
/// Polls after which the clock is read for that.
const CHECK_EVERY: u32 = 256;
/// Answers without a message after which the fabric does not work.
const MOST_STANDSTILLS: u32 = 8;
/// How long a rank that leaves waits for the count of one that does not answer: that has left,
/// too, or computes. What it has sent is with the system then.
const WAIVE_NS: u64 = 250_000_000;
/// The connection of a process that has ended says so within this time.
const DOUBT_NS: u64 = 1_000_000_000;
/// A provider that wakes this process may not do so when it can go on sending: it is polled again
/// after this time.
const SENDING_NS: u64 = 1_000_000;
/// The same for what a provider may do of itself.
const ASLEEP_NS: u64 = 100_000_000;

/// Takes what comes over the connections.
#[derive(Default)]
struct Said(Vec<(u32, Head, Vec<u8>)>);

impl Sink for Said {
    fn packet(&mut self, from: u32, packet: Packet<'_>) {
        self.0.push((from, packet.head, packet.payload.to_vec()));
    }

    fn destination(&mut self, _: u32, _: &Head, _: usize) -> Option<Destination> {
        None
    }

    fn landed(&mut self, _: u32, _: &Head, _: usize) {}
}

impl Ofi {
    /// Looks at the connections. Returns whether there was anything.
    pub(crate) fn look_at_connections(&mut self) -> bool {
        let mut said = Said::default();
        self.tcp.look_at_all(&mut said);
        let any = !said.0.is_empty();
        for (from, head, bytes) in said.0 {
            self.hear(from, &head, &bytes);
        }
        self.take_losses();
        let flushes = self.flushes.load(Ordering::Relaxed);
        if self.broken > 0 {
            self.lose_broken();
        }
        if flushes || self.sleep.is_announced() || self.polls.is_multiple_of(CHECK_EVERY) {
            self.check(flushes);
        }
        any
    }

    /// Loses the ranks of which the fabric has reported errors, and of whose ends nothing is known.
    fn lose_broken(&mut self) {
        let now = self.clock.now_ns();
        for rank in 0..self.peers.len() as u32 {
            if let Some((errno, since_ns)) = self.peers[rank as usize].broken
                && now.saturating_sub(since_ns) > DOUBT_NS
            {
                self.lose(rank, errno);
            }
        }
    }

    /// Sends this rank's address to another one.
    pub(crate) fn greet(&mut self, to: u32) {
        let mut token = Token::default();
        if let Err(error) = sockets::fill_random(&mut token) {
            return self.lose(to, error.raw_os_error().unwrap_or(EPROTO));
        }
        let hello = Hello {
            token,
            provider: self.endpoint.provider().as_bytes(),
            address: self.endpoint.address(),
        };
        let head = Head {
            kind: HELLO,
            ..Head::default()
        };
        let peer = &mut self.peers[to as usize];
        peer.own_token = Some(token);
        peer.state = State::Greeted;
        self.greeted += 1;
        // It is the first that is sent over the connection, for which there is room.
        let went = self.tcp.send_first(to, head, &hello.encode());
        debug_assert!(went, "a connection has no room");
        self.take_losses();
    }

    fn hear(&mut self, from: u32, head: &Head, bytes: &[u8]) {
        let is_heard = match head.kind {
            HELLO => Hello::decode(bytes).map(|hello| self.meet(from, &hello)),
            COUNT => Count::decode(head, bytes).map(|count| self.count(from, count)),
            _ => None,
        };
        if is_heard.is_none() {
            self.lose(from, EPROTO);
        }
    }

    /// A rank has sent its address.
    fn meet(&mut self, from: u32, hello: &Hello<'_>) {
        if hello.provider != self.endpoint.provider().as_bytes() {
            return self.lose(from, EPROTONOSUPPORT);
        }
        if let State::Idle = self.peers[from as usize].state {
            self.greet(from);
        }
        let peer = &mut self.peers[from as usize];
        let State::Greeted = peer.state else { return };
        match self.endpoint.insert(hello.address) {
            Ok(address) => {
                peer.token = hello.token;
                peer.state = State::Up(address);
                self.greeted -= 1;
                if self.me < from {
                    self.open(from);
                }
                self.send_waiting(from);
            }
            Err(error) => self.lose(from, error.raw_os_error().unwrap_or(EPROTO)),
        }
    }

    /// A rank has said how many messages it has sent and got.
    fn count(&mut self, from: u32, count: Count) {
        let peer = &mut self.peers[from as usize];
        peer.standstills = match count.received > peer.known {
            true => 0,
            false => peer.standstills + u32::from(peer.asked_ns != 0),
        };
        peer.known = peer.known.max(count.received);
        peer.asked_ns = 0;
        if count.asks {
            peer.owed = (count.sent > peer.received).then_some(count.sent);
            self.say_count(from, false);
        }
    }

    /// Says that a message has come, if its sender waits for that.
    pub(crate) fn pay(&mut self, to: u32) {
        let peer = &mut self.peers[to as usize];
        if peer.owed.is_some_and(|owed| peer.received >= owed) {
            peer.owed = None;
            self.say_count(to, false);
        }
    }

    fn say_count(&mut self, to: u32, asks: bool) {
        let peer = &mut self.peers[to as usize];
        if asks {
            peer.asked_ns = self.clock.now_ns().max(1);
            peer.asked_sent = peer.sent;
        }
        let count = Count {
            sent: peer.sent,
            received: peer.received,
            asks,
        };
        let (head, bytes) = count.encode();
        // Where there is no room, the other side has not read for long, and asks or is asked again.
        let _ = self.tcp.send(to, head, &bytes);
        self.take_losses();
    }

    /// Asks ranks whose messages have not arrived: at once where this rank waits for that, else now
    /// and then.
    fn check(&mut self, flushes: bool) {
        let now = self.clock.now_ns();
        let is_time = now.saturating_sub(self.checked_ns) >= CHECK_NS;
        if !flushes && !is_time {
            return;
        }
        if is_time {
            self.checked_ns = now;
        }
        for rank in 0..self.peers.len() as u32 {
            let peer = &mut self.peers[rank as usize];
            let is_under_way = peer.sending > 0 || !peer.waiting.is_empty();
            let lacks = peer.known < peer.sent;
            if !matches!(peer.state, State::Up(_)) || !(is_under_way || flushes && lacks) {
                peer.standstills = 0;
                continue;
            }
            let asked_for = now.saturating_sub(peer.asked_ns);
            if peer.standstills >= MOST_STANDSTILLS {
                self.lose(rank, ETIMEDOUT);
            } else if peer.asked_ns == 0 {
                // An answer comes at once, and a further one when what had been sent then has come.
                if is_time || peer.standstills == 0 || peer.sent > peer.asked_sent {
                    self.say_count(rank, true);
                }
            } else if flushes && !is_under_way && asked_for > WAIVE_NS {
                peer.known = peer.sent;
            }
        }
    }

    /// Asks the provider whether the rank may sleep, which has found nothing to do.
    pub(crate) fn allow_sleep(&mut self) {
        if !self.unposted.is_empty() || !self.arrived.is_empty() {
            return;
        }
        if self.endpoint.may_sleep() {
            let is_under_way = self.sending > 0 || !self.queued.is_empty() || self.copies();
            let limit = if is_under_way || self.broken > 0 {
                SENDING_NS
            } else {
                ASLEEP_NS
            };
            self.sleep.allow(limit);
        }
    }
}
