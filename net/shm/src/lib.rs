//! The transport between ranks of one machine, over the job's shared segment.
//!
//! | size | way |
//! | --- | --- |
//! | up to 40 bytes | one cache line of the pair's ring ([`margay_sys_shm::ring`]) |
//! | up to 4 KiB | a run of lines of the ring, read while they are being written |
//! | longer, in fragments | chunks of the sender's pool ([`margay_sys_shm::pool`]), both sides copying at the same time |
//! | direct, buffer in the arena | the receiver copies once from the sender's arena |
//! | direct, any buffer | cross-memory attach, parts claimed by both sides ([`margay_sys_shm::transfer`]) |
//!
//! A pair's ring is made the first time that the pair talks, and a rank polls the rings of the
//! ranks that have talked to it, as the SP2 kept a list of its active pipes (Snir et al., IBM
//! Systems Journal 34(2), 1995): polling grows with the pairs that are active. A rank has rings to
//! a bounded number of others; it leaves messages for the rest in their inboxes
//! ([`margay_sys_shm::inbox`]), where up to 96 bytes lie in a cell and up to 4 KiB in a block.

#![forbid(unsafe_code)]

mod direct;
mod incoming;
mod line;
mod outgoing;
mod platform;
mod wake_up;

use std::sync::Arc;

use margay_net_transport::{Advance, Head, Sink, Thresholds, Ticket, Transport, WHOLE};
use margay_sys_os::event_count;
use margay_sys_os::user::Mem;
use margay_sys_shm::pool;
use margay_sys_shm::ring;
use margay_sys_shm::segment::Segment;

use direct::Direct;
use incoming::Incoming;
use outgoing::Outgoing;
use wake_up::ShmWakeUp;

pub use platform::{SegmentPeers, platform};

/// One rank's end of the shared segment.
pub struct Shm {
    segment: Arc<Segment>,
    me: u32,
    outgoing: Outgoing,
    incoming: Incoming,
    direct: Direct,
}

impl Shm {
    /// Returns the transport of rank `me` over `segment`.
    ///
    /// # Panics
    /// When `me` is not a rank of the segment, or has a transport already.
    #[must_use]
    pub fn new(segment: &Arc<Segment>, me: u32, thresholds: Arc<Thresholds>) -> Shm {
        Shm::with_rings(segment, me, thresholds, ring::MOST as usize)
    }

    /// As [`new`](Self::new), with another bound on the rings to others.
    ///
    /// # Panics
    /// When `me` is not a rank of the segment, or has a transport already.
    #[must_use]
    pub fn with_rings(
        segment: &Arc<Segment>,
        me: u32,
        thresholds: Arc<Thresholds>,
        most_rings: usize,
    ) -> Shm {
        assert!(me < segment.ranks(), "rank {me} of {}", segment.ranks());
        event_count::register();
        Shm {
            segment: segment.clone(),
            me,
            outgoing: Outgoing::new(segment, me, most_rings),
            incoming: Incoming::new(segment, me),
            direct: Direct::new(segment, me, thresholds),
        }
    }

    #[inline]
    fn wake(&self, of: u32) {
        self.segment.wake(of);
    }
}

impl Transport for Shm {
    fn me(&self) -> u32 {
        self.me
    }

    fn size(&self) -> u32 {
        self.segment.ranks()
    }

    #[inline]
    fn send(&mut self, to: u32, head: Head, payload: &[u8]) -> bool {
        assert!(payload.len() <= WHOLE, "{} bytes whole", payload.len());
        let sent = self.outgoing.send(to, head, payload);
        if sent {
            self.wake(to);
        }
        sent
    }

    fn send_fragment(
        &mut self,
        to: u32,
        head: Head,
        args: [u64; 2],
        len: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> bool {
        let sent = self.outgoing.send_fragment(to, head, args, len, fill);
        if sent {
            self.wake(to);
        }
        sent
    }

    fn fragment(&self, _to: u32, remaining: u64) -> usize {
        // Two and more fragments, so that both sides copy at the same time, each big enough that
        // its line costs nothing beside it.
        let part = (remaining / 4).next_multiple_of(4096);
        part.clamp(line::LEAST_CHUNK, pool::CHUNK as u64)
            .min(remaining) as usize
    }

    fn poll(&mut self, sink: &mut dyn Sink, spins: u32) -> bool {
        self.incoming.wait(spins);
        self.incoming.take_arrived(sink)
    }

    fn offer(&mut self, to: u32, from: &Mem, offset: i64, len: u64) -> Option<(Ticket, [u64; 3])> {
        self.direct.offer(to, from, offset, len)
    }

    fn accept(
        &mut self,
        from: u32,
        words: [u64; 3],
        into: &Mem,
        offset: i64,
        len: u64,
    ) -> Option<Ticket> {
        self.direct.accept(from, words, into, offset, len)
    }

    fn advance(&mut self, ticket: Ticket) -> Advance {
        self.direct.advance(ticket)
    }

    fn revoke(&mut self, ticket: Ticket) -> bool {
        self.direct.revoke(ticket)
    }

    fn withdraw(&mut self, ticket: Ticket) {
        self.direct.withdraw(ticket);
    }

    fn alloc_shared(&mut self, bytes: u64) -> Option<usize> {
        self.direct.arena.alloc(bytes)
    }

    fn free_shared(&mut self, address: usize) -> bool {
        self.direct.arena.free(address)
    }

    fn forget(&mut self, process: u32) {
        self.outgoing.forget(process);
    }
}

#[cfg(test)]
mod tests;
