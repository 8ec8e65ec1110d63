//! What the engine asks of a network: a reliable, ordered, flow-controlled pipe for each pair that
//! talks, and, where the network has it, direct copying between the memories of two ranks.
//!
//! The lowest common denominator is bytes: every protocol of the engine completes over a transport
//! that has no more than [`Transport::send`], [`Transport::send_fragment`] and
//! [`Transport::poll`]. Direct copying ([`Transport::offer`], [`Transport::accept`]) is an offer
//! that either side may decline.

#![forbid(unsafe_code)]

#[cfg(feature = "numbered")]
pub mod numbered;
mod thresholds;

use margay_sys_os::user::Mem;

pub use thresholds::Thresholds;

/// Payload that fits into one cache line beside the head, in bytes.
pub const SHORT: usize = 40;
/// Longest payload of a packet that goes in one piece, in bytes.
pub const WHOLE: usize = 4096;

/// What every packet carries. The engine gives the fields their meaning; a transport only moves
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Kind of packet.
    pub kind: u8,
    /// Context of the envelope.
    pub context: u32,
    /// Source of the envelope.
    pub source: u32,
    /// Tag of the envelope.
    pub tag: u32,
    /// One word more.
    pub word: u32,
}

/// A packet as it arrives.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Its head.
    pub head: Head,
    /// Two numbers that came with a fragment; zero for a packet in one piece.
    pub args: [u64; 2],
    /// Its bytes, valid during the call only.
    pub payload: &'a [u8],
}

/// Takes packets as they arrive.
pub trait Sink {
    /// One packet from world rank `from`. Packets of one sender come in the order of sending.
    fn packet(&mut self, from: u32, packet: Packet<'_>);

    /// Returns where the `len` bytes of the next packet from `from` shall go, if that is known from
    /// its head alone. A transport that writes them there calls [`landed`](Self::landed) instead of
    /// [`packet`](Self::packet). Where the place is [`exclusive`](Destination::exclusive) it may
    /// also write a part of them and come back later.
    fn destination(&mut self, from: u32, head: &Head, len: usize) -> Option<Destination>;

    /// The next packet from `from` has been written to its [`destination`](Self::destination).
    fn landed(&mut self, from: u32, head: &Head, len: usize);
}

/// Where a packet shall go.
#[derive(Debug)]
pub struct Destination {
    /// The memory.
    pub mem: Mem,
    /// From where in it.
    pub offset: i64,
    /// No packet of another sender can take this place first. (One for which any sender will do
    /// may be taken by another as long as this packet has not landed.)
    pub exclusive: bool,
}

/// Names one direct copy on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub u32);

/// What a direct copy has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// Not complete; call again. The flag says whether bytes were moved by this call.
    Pending(bool),
    /// All bytes are there; the ticket is gone.
    Done,
    /// The system forbids it; the ticket is gone and the message must go as bytes.
    Refused,
}

/// A network as one rank sees it. Ranks are world ranks. Not shared: one rank, one transport.
pub trait Transport: Send {
    /// This rank.
    fn me(&self) -> u32;

    /// Returns the number of ranks in the world.
    fn size(&self) -> u32;

    /// Sends a packet of at most [`WHOLE`] bytes. Returns false when there is no room now: nothing
    /// was sent, try later.
    fn send(&mut self, to: u32, head: Head, payload: &[u8]) -> bool;

    /// Sends a fragment of `len` bytes, at most what [`fragment`](Self::fragment) allows; `fill` is
    /// called once to write them to where the receiver will read them. Returns false, without
    /// calling `fill`, when there is no room now.
    fn send_fragment(
        &mut self,
        to: u32,
        head: Head,
        args: [u64; 2],
        len: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> bool;

    /// Returns how many of `remaining` bytes the next fragment to a rank should carry, at least 1
    /// when any remain.
    fn fragment(&self, to: u32, remaining: u64) -> usize;

    /// Hands packets that have arrived to `sink`, a bounded number of them; polls up to `spins`
    /// times before it gives up. Returns whether there were any.
    fn poll(&mut self, sink: &mut dyn Sink, spins: u32) -> bool;

    /// Offers `len` bytes at `offset` of `from` for direct copying to `to`. The words go to the
    /// receiver. None when that is not possible or not worth it, as for every transport without a
    /// way from memory to memory.
    fn offer(&mut self, _to: u32, _: &Mem, _offset: i64, _len: u64) -> Option<(Ticket, [u64; 3])> {
        None
    }

    /// Accepts what `from` offered: `len` bytes (no more than were offered) shall go to `offset` of
    /// `into`. None when that is not possible; the sender must then be asked to send bytes.
    fn accept(
        &mut self,
        _from: u32,
        _words: [u64; 3],
        _into: &Mem,
        _offset: i64,
        _len: u64,
    ) -> Option<Ticket> {
        None
    }

    /// Moves a direct copy on.
    fn advance(&mut self, _: Ticket) -> Advance {
        Advance::Done
    }

    /// Revokes an offer: its memory is not read or written any more, and the receiver can only
    /// decline; the ticket stays until it has. Returns false when it has accepted already.
    fn revoke(&mut self, _: Ticket) -> bool {
        false
    }

    /// Takes an offer back that was declined or that nobody will come for.
    fn withdraw(&mut self, _: Ticket) {}

    /// `bytes` of zeroed memory from which others can copy without a system call; its address. None
    /// where there is no such memory or none is left.
    fn alloc_shared(&mut self, _bytes: u64) -> Option<usize> {
        None
    }

    /// Frees what [`alloc_shared`](Self::alloc_shared) gave. False when it did not give that.
    fn free_shared(&mut self, _address: usize) -> bool {
        false
    }

    /// Reaches further processes through another transport.
    ///
    /// # Errors
    /// The world is handed back where a transport knows its own job only.
    fn join(&mut self, world: World) -> Result<(), World> {
        Err(world)
    }

    /// Whether everything that was sent will arrive even if this process ends now.
    fn is_flushed(&self) -> bool {
        true
    }

    /// Whether a connection to a rank is being made, for which both ranks must poll: until then
    /// nothing goes there.
    fn is_meeting(&self, _to: u32) -> bool {
        false
    }

    /// Whether bytes for any rank wait here that the network takes while this rank polls.
    fn has_queued(&self) -> bool {
        false
    }

    /// The same for one rank.
    fn is_queued(&self, _to: u32) -> bool {
        false
    }

    /// A peer has died: what it still held of this rank's is free again.
    fn forget(&mut self, _process: u32) {}

    /// Gives up the world with this key. Nothing may be on its way any more.
    fn part(&mut self, _key: u64) {}
}

/// Processes of other jobs, together with some of this rank's job, that share a transport.
pub struct World {
    /// Tells it from others.
    pub key: u64,
    /// Theirs; its ranks are places in the following lists.
    pub transport: Box<dyn Transport>,
    /// The number by which this rank knows each of them; those of its own job are below the job's
    /// size.
    pub processes: Vec<u32>,
    /// Whether what is sent to a process goes through this world.
    pub routed: Vec<bool>,
    /// Wakes each of them when it sleeps.
    pub wakes: Vec<Box<dyn Fn() + Send>>,
}

impl World {
    /// Wakes the rank of this world.
    pub fn wake(&self, rank: u32) {
        (self.wakes[rank as usize])();
    }
}

/// Lets a rank yield its core or sleep while it waits. The engine's wait policy chooses among
/// these; no other code waits.
pub trait WakeUp: Send + Sync {
    /// Pauses for a moment, without yielding the core.
    fn pause(&self);

    /// Lets others run first.
    fn yield_core(&self);

    /// Sleeps until something may have arrived, at most `timeout_ns`. `has_work` is called once
    /// after the rank has announced that it sleeps; when it returns true there is no sleep.
    fn sleep(&self, timeout_ns: u64, has_work: &mut dyn FnMut() -> bool);

    /// Wakes all threads of this rank that sleep: one of them has work for another.
    fn wake_own(&self);
}
