//! What a rank of a job on several hosts stands on: shared memory to the ranks of its host, TCP or
//! a fabric to all others.
//!
//! Each host has a segment with a cell for every rank of the job. Those of its own ranks are used
//! as in a job on one host; the host's agent enters in the others what becomes known of their
//! ranks. So the registry is that of the segment, and this crate only routes packets and lets the
//! rank sleep on its futex word and its sockets together.

#![forbid(unsafe_code)]

mod distant;
mod outside;
mod wake_up;

use std::fmt;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;

use margay_core_registry::hosts::{KEY, Table, UNANSWERED};
pub use margay_net_ofi::Wanted;
use margay_net_ofi::{Ofi, OpenError};
use margay_net_platform::{Attention, Platform, SystemClock};
use margay_net_shm::{SegmentPeers, Shm};
pub use margay_net_tcp::OnLost;
use margay_net_tcp::{OnUnanswered, Tcp, Wiring};
use margay_net_transport::{Advance, Head, Sink, Thresholds, Ticket, Transport};
use margay_sys_os::user::Mem;
use margay_sys_shm::segment::Segment;

pub use outside::reach_out;

use outside::Reach;
use wake_up::HostsWakeUp;

/// Polls of the shared memory between two polls of the sockets, which cost a system call each.
const SPINS: u32 = 16;

/// How a rank reaches ranks of other hosts.
pub struct Way<'a> {
    /// Where they connect to.
    pub listener: TcpListener,
    /// The endpoint of a fabric through which messages go; none where they go over TCP.
    pub fabric: Option<Wanted<'a>>,
    /// Where no agent tells of ends on other hosts: called with each rank whose connection has
    /// ended or is lost ([`OnLost`]).
    pub watched: Option<OnLost>,
}

/// Why a rank cannot reach other hosts.
#[derive(Debug)]
pub enum HostsError {
    /// The system refuses.
    System(io::Error),
    /// There is no endpoint of the fabric.
    Fabric(OpenError),
    /// Packets shall be encrypted, which those through a fabric are not.
    Encrypted,
}

impl fmt::Display for HostsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostsError::System(error) => error.fmt(f),
            HostsError::Fabric(error) => error.fmt(f),
            HostsError::Encrypted => f.write_str(
                "what goes through libfabric is not encrypted; leave out -encrypt, or run with -net tcp",
            ),
        }
    }
}

impl std::error::Error for HostsError {}

impl From<io::Error> for HostsError {
    fn from(error: io::Error) -> HostsError {
        HostsError::System(error)
    }
}

/// Returns the platform of rank `me` of a job on several hosts, whose segment on this host is
/// `segment`. `shares_memory`: the ranks of this host may exchange data through it.
///
/// # Errors
/// When the segment says nothing of hosts, there is no descriptor left, or no fabric.
pub fn platform(
    segment: &Arc<Segment>,
    me: u32,
    thresholds: Arc<Thresholds>,
    shares_memory: bool,
    way: Way<'_>,
) -> Result<Platform, HostsError> {
    let Way {
        listener,
        fabric,
        watched,
    } = way;
    let none = || io::Error::other("the job's memory has no table of hosts");
    let note = segment.note(0, KEY).ok_or_else(none)?;
    let table = Table::read(&note).ok_or_else(none)?;
    let hosts: Vec<Arc<[IpAddr]>> = (0..table.hosts())
        .map(|host| table.host(host).unwrap_or_default().addresses.into())
        .collect();
    let location = |rank| table.location(rank).unwrap_or_default();
    let locations = || (0..segment.ranks()).map(location);
    let here = location(me).host;
    let address = |host: u32| hosts.get(host as usize).cloned().unwrap_or_default();
    let wiring = Wiring {
        me,
        job: segment.registry().facts().job,
        secret: table.secret(),
        addresses: locations().map(|s| (address(s.host), s.port)).collect(),
        listener,
        encrypts: table.encrypts(),
        // The agents and the registry say how ranks end.
        says_goodbye: false,
    };
    let lost = note.clone();
    // Where agents watch, the launcher's host hears of it and knows what the others do.
    let has_agent = watched.is_none();
    let enter = move |rank, errno| {
        if let Some(table) = Table::read(&lost).filter(|_| errno != 0) {
            table.lose_link(me, rank, errno);
        }
    };
    let unanswered = enter.clone();
    let on_lost = watched.unwrap_or_else(|| Box::new(enter));
    let on_unanswered =
        has_agent.then(|| -> OnUnanswered { Box::new(move |rank| unanswered(rank, UNANSWERED)) });
    let clock = Arc::new(SystemClock);
    let (between, sockets, sleep): (Box<dyn Transport>, _, _) = match &fabric {
        None => {
            let mut tcp = Tcp::new(wiring, clock, on_lost)?;
            if let Some(on_unanswered) = on_unanswered {
                tcp.report_unanswered(on_unanswered);
            }
            let sockets = (tcp.epoll(), tcp.soon());
            (Box::new(tcp), sockets, None)
        }
        Some(_) if table.encrypts() => return Err(HostsError::Encrypted),
        Some(wanted) => {
            let ofi = Ofi::new(wiring, wanted, thresholds.clone(), clock, on_lost);
            let mut ofi = ofi.map_err(HostsError::Fabric)?;
            if let Some(on_unanswered) = on_unanswered {
                ofi.report_unanswered(on_unanswered);
            }
            let (sockets, sleep) = ((ofi.epoll(), ofi.soon()), ofi.sleep_state());
            (Box::new(ofi), sockets, Some(sleep))
        }
    };
    let attention = Attention::default();
    let (epoll, soon) = sockets.clone();
    let wake_up = HostsWakeUp::new(segment, me, (epoll, soon, sleep), attention.clone())?;
    let peers = SegmentPeers::of(segment);
    let outside = Reach::of_hosts(peers.id(), sockets, table.encrypts(), attention);
    let transport = Hosts {
        shm: Shm::new(segment, me, thresholds),
        between,
        is_here: locations().map(|s| s.host == here).collect(),
    };
    Ok(Platform {
        transport: Box::new(transport),
        wake_up: Arc::new(wake_up),
        clock: Arc::new(SystemClock),
        peers,
        memory: None,
        host_memory: shares_memory.then(|| segment.clone()),
        outside: Some(Arc::new(outside)),
    })
}

/// Set in the tickets of the transport to other hosts; those of the shared memory are below.
const BETWEEN: u32 = 1 << 30;

/// The transport; see the crate.
struct Hosts {
    shm: Shm,
    /// To ranks of other hosts.
    between: Box<dyn Transport>,
    is_here: Box<[bool]>,
}

impl Hosts {
    #[inline]
    fn way(&mut self, to: u32) -> &mut dyn Transport {
        if self.is_here[to as usize] {
            &mut self.shm
        } else {
            &mut *self.between
        }
    }

    /// The ticket of a copy to or from a rank, as the engine has it.
    fn ticket(&self, of: u32, ticket: Ticket) -> Ticket {
        match self.is_here[of as usize] {
            true => ticket,
            false => Ticket(ticket.0 | BETWEEN),
        }
    }

    /// Whose a ticket is, and which it is there.
    fn way_of(&mut self, ticket: Ticket) -> (&mut dyn Transport, Ticket) {
        match ticket.0 & BETWEEN {
            0 => (&mut self.shm, ticket),
            _ => (&mut *self.between, Ticket(ticket.0 & !BETWEEN)),
        }
    }
}

impl Transport for Hosts {
    fn me(&self) -> u32 {
        self.shm.me()
    }

    fn size(&self) -> u32 {
        self.shm.size()
    }

    fn send(&mut self, to: u32, head: Head, payload: &[u8]) -> bool {
        self.way(to).send(to, head, payload)
    }

    fn send_fragment(
        &mut self,
        to: u32,
        head: Head,
        args: [u64; 2],
        len: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> bool {
        self.way(to).send_fragment(to, head, args, len, fill)
    }

    fn fragment(&self, to: u32, remaining: u64) -> usize {
        if self.is_here[to as usize] {
            self.shm.fragment(to, remaining)
        } else {
            self.between.fragment(to, remaining)
        }
    }

    fn poll(&mut self, sink: &mut dyn Sink, spins: u32) -> bool {
        // With a negative answer both have been asked: the rank may sleep then.
        let here = self.shm.poll(sink, spins.min(SPINS));
        self.between.poll(sink, 1) || here
    }

    fn offer(&mut self, to: u32, from: &Mem, offset: i64, len: u64) -> Option<(Ticket, [u64; 3])> {
        let (ticket, words) = self.way(to).offer(to, from, offset, len)?;
        Some((self.ticket(to, ticket), words))
    }

    fn accept(
        &mut self,
        from: u32,
        words: [u64; 3],
        into: &Mem,
        offset: i64,
        len: u64,
    ) -> Option<Ticket> {
        let ticket = self.way(from).accept(from, words, into, offset, len)?;
        Some(self.ticket(from, ticket))
    }

    fn advance(&mut self, ticket: Ticket) -> Advance {
        let (way, ticket) = self.way_of(ticket);
        way.advance(ticket)
    }

    fn revoke(&mut self, ticket: Ticket) -> bool {
        let (way, ticket) = self.way_of(ticket);
        way.revoke(ticket)
    }

    fn withdraw(&mut self, ticket: Ticket) {
        let (way, ticket) = self.way_of(ticket);
        way.withdraw(ticket);
    }

    fn alloc_shared(&mut self, bytes: u64) -> Option<usize> {
        self.shm.alloc_shared(bytes)
    }

    fn free_shared(&mut self, address: usize) -> bool {
        self.shm.free_shared(address)
    }

    fn is_flushed(&self) -> bool {
        self.between.is_flushed()
    }

    fn is_meeting(&self, to: u32) -> bool {
        !self.is_here[to as usize] && self.between.is_meeting(to)
    }

    fn has_queued(&self) -> bool {
        self.between.has_queued()
    }

    fn is_queued(&self, to: u32) -> bool {
        !self.is_here[to as usize] && self.between.is_queued(to)
    }

    fn forget(&mut self, process: u32) {
        self.way(process).forget(process);
    }
}
