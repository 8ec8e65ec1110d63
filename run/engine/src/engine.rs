//! One rank's engine: a state machine that takes calls and packets and moves messages.
//!
//! | protocol | when | packets |
//! | --- | --- | --- |
//! | eager | up to [`Limits::eager`] bytes while the receiver's credits last | `EAGER`, or `FIRST` and `MORE` |
//! | rendezvous, direct | the transport can copy between the two memories | `RTS`, then the copy itself |
//! | rendezvous, bytes | else | `RTS`, `CTS`, `DATA` … |
//!
//! Credits bound what a sender may have unmatched at a receiver (as the SP2's pipes did per pair):
//! a receiver that is not ready costs memory once. Out of credits, a message goes by rendezvous, so
//! only its envelope waits at the receiver and order and matching stay as they are. The sender
//! keeps some of what waits (`kept`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_core_group::Group;
use margay_core_matching::{Envelope, Matching, Pattern};
use margay_core_record::Kind as RecordKind;
use margay_net_transport::{
    Advance, Destination, Head, Packet, SHORT, Sink, Ticket, Transport, WHOLE, World,
};
use margay_net_worlds::Worlds;

use crate::call::{Arrived, Failed, Mode, MsgId, Outcome, Pending, ReqId};
use crate::collective::{Execution, Step as Collected};
use crate::data::{Data, Walk};
use crate::node::posted::PostQueue;
use crate::spare::Spare;
use margay_sys_os::user::Piece;

use crate::monitor::counters;
use crate::monitor::{EventKind, Level, Monitor, Protocol};
use crate::progress_hook::ProgressHook;
use crate::slab::Slab;

mod completion;
mod direct;
mod fetch;
mod incoming;
mod kept;
mod operations;
mod outgoing;
mod posted;
mod record;
mod recover;
mod request;
mod withdraw;

use incoming::{envelope, number};
use outgoing::head;
use recover::Recovery;
pub use withdraw::Sent;

use request::{Body, Kind, Message, Receive, Request, Send, SendStage, Withdrawal};

const EAGER: u8 = 1;
const FIRST: u8 = 2;
const MORE: u8 = 3;
const RTS: u8 = 4;
const CTS: u8 = 5;
const DATA: u8 = 6;
const ACK: u8 = 7;
const CREDIT: u8 = 8;
const REVOKE: u8 = 9;
const REFUSED: u8 = 10;
const WITHDRAW: u8 = 11;
const WITHDRAWN: u8 = 12;

/// An operation of several requests that depend on each other.
pub trait Task: std::marker::Send {
    /// Takes what has ended and starts what may start. Called at the beginning and whenever
    /// requests have ended, with the engine locked. The outcome when nothing is left to do; it is
    /// not called again then.
    fn run(&mut self, engine: &mut Engine) -> Option<Outcome>;

    /// Returns what it waits for, for displays.
    fn pending(&self) -> Pending;
}

/// One rank's engine. See the module; not shared, [`crate::Rank`] puts a lock around it.
pub struct Engine {
    transport: Box<dyn Transport>,
    state: State,
    /// A progress thread does what takes long, so that calls that only begin something need not.
    is_helped: bool,
    progress_hooks: Vec<Arc<dyn ProgressHook>>,
    /// Nonblocking collectives through shared memory, and how many are under way. As many as the
    /// program begins.
    posted: Vec<PostQueue>,
    posted_count: usize,
}

/// Everything of an engine but its transport, so that packets can be taken in while the transport
/// is borrowed.
// Fields: the tables and queues of the protocols. Each packet needs other ones of them, so that
// groups would be arbitrary.
struct State {
    me: u32,
    monitor: Arc<Monitor>,
    matching: Matching<u32, u32>,
    requests: Slab<Request>,
    messages: Slab<Message>,
    peers: Vec<Peer>,
    /// Peers with something in a queue.
    active: Vec<u32>,
    /// Receives that were matched with a rendezvous and need the transport.
    rendezvous: Vec<PendingRendezvous>,
    fetches: fetch::Fetches,
    copies: Vec<Direct>,
    /// Offers that were answered with a CTS.
    declined: Vec<Ticket>,
    kept_sends: kept::KeptSends,
    loopback: VecDeque<(Head, [u64; 2], Vec<u8>)>,
    executions: Vec<u32>,
    spare: Spare,
    /// Requests that ended, as a count; by it collectives and other threads see that something has
    /// changed.
    ended: u64,
    /// Messages that came unexpected, as a count; news for threads that probe.
    kept: u64,
    looked: u64,
    /// The receive of `recv_at_once`, newest of all, and what it received.
    waiting: Option<Waiting>,
    received: Outcome,
    received_waiting: bool,
    recovery: Recovery,
    /// Communicators that others have revoked, and own sends that were refused, with the process
    /// that refuses.
    revocations: Vec<u32>,
    refusals: Vec<(u32, u32)>,
}

struct Waiting {
    pattern: Pattern,
    piece: Piece,
}

#[derive(Clone, Copy)]
enum Target {
    Request(u32),
    Message(u32),
}

#[derive(Default)]
struct Peer {
    /// Sends in the order in which their envelopes must go.
    queue: VecDeque<u32>,
    /// Short packets without order.
    controls: VecDeque<Control>,
    /// Sends that stream to a receive that is known; no order among them.
    streams: VecDeque<u32>,
    /// In `State::active`.
    listed: bool,
    /// Eager messages and bytes sent and not yet matched, as far as the peer has reported.
    unmatched: u32,
    unmatched_bytes: u64,
    /// Eager messages that the peer has reported as matched, modulo 2^32.
    credited: u32,
    /// Matched here and not yet reported to the peer.
    owed: u32,
    owed_bytes: u64,
    /// Eager messages that have been reported to the peer as matched, modulo 2^32.
    returned: u32,
    /// Eager messages that are here and not matched.
    kept: u32,
    /// Sends to the peer whose messages are kept here.
    kept_sends: u32,
    /// Where the rest of an eager message in fragments goes.
    assembling: Option<Target>,
}

#[derive(Clone, Copy)]
enum Control {
    Cts { sender: u64, receiver: u64 },
    Ack { sender: u32 },
    Revoke { number: u32 },
    Refused { sender: u32 },
    Withdraw { request: ReqId },
    Withdrawn { request: u64, gone: bool },
}

/// An offer that a receive has matched and that is not answered yet.
struct PendingRendezvous {
    request: u32,
    from: u32,
    sender: u64,
    words: [u64; 3],
}

struct Direct {
    ticket: Ticket,
    request: u32,
    /// On the receiving side: the sender and its request, for the case that the system refuses.
    receiving: Option<(u32, u64)>,
}

impl Engine {
    /// Returns the engine of the rank that `transport` belongs to.
    #[must_use]
    pub fn new(transport: Box<dyn Transport>, monitor: Arc<Monitor>) -> Engine {
        let peers = (0..transport.size()).map(|_| Peer::default()).collect();
        Engine {
            state: State {
                me: transport.me(),
                monitor,
                matching: Matching::new(),
                requests: Slab::new(),
                messages: Slab::new(),
                peers,
                active: Vec::new(),
                rendezvous: Vec::new(),
                fetches: fetch::Fetches::new(),
                copies: Vec::new(),
                declined: Vec::new(),
                kept_sends: kept::KeptSends::default(),
                loopback: VecDeque::new(),
                executions: Vec::new(),
                ended: 0,
                kept: 0,
                looked: 0,
                spare: Spare::default(),
                waiting: None,
                received: Outcome::default(),
                received_waiting: false,
                recovery: Recovery::default(),
                revocations: Vec::new(),
                refusals: Vec::new(),
            },
            transport,
            is_helped: false,
            progress_hooks: Vec::new(),
            posted: Vec::new(),
            posted_count: 0,
        }
    }

    /// Makes progress call this hook, too, from now on.
    pub fn add_progress_hook(&mut self, hook: Arc<dyn ProgressHook>) {
        self.progress_hooks.push(hook);
    }

    /// Ends that.
    pub fn remove_progress_hook(&mut self, hook: &Arc<dyn ProgressHook>) {
        self.progress_hooks
            .retain(|other| !Arc::ptr_eq(other, hook));
    }

    /// Whether a progress thread works on what is under way: then calls that begin something leave
    /// copies to it.
    pub fn set_helped(&mut self, is_helped: bool) {
        self.is_helped = is_helped;
    }

    /// Sends a short message at once when nothing stands in the way. Returns whether it went.
    #[inline]
    pub fn send_at_once(&mut self, piece: Piece, to: u32, envelope: Envelope) -> bool {
        let size = piece.size() as u64;
        let state = &mut self.state;
        if size > WHOLE as u64 || to == state.me {
            return false;
        }
        let limits = state.monitor.tuning.limits();
        let peer = &mut state.peers[to as usize];
        if !peer.queue.is_empty() || !peer.has_credits(size, &limits) || state.recovery.restricted {
            return false;
        }
        let head = head(EAGER, envelope, 0);
        let sent = piece.with_bytes(|bytes| self.transport.send(to, head, bytes));
        if sent {
            peer.unmatched += 1;
            peer.unmatched_bytes += size;
            self.state.monitor.counters.sent(Protocol::Whole).add(size);
            self.state
                .note_message(RecordKind::Send, to, envelope, size, 0);
        }
        sent
    }

    /// Receives with no request of its own: posts the receive behind all that are posted and polls
    /// up to `spins` times. None when nothing came, or a message for which a request is needed; the
    /// caller then posts the receive with [`irecv`](Self::irecv).
    #[inline]
    pub fn recv_at_once(&mut self, piece: Piece, pattern: Pattern, spins: u32) -> Option<&Outcome> {
        if self.state.matching.unexpected_len() != 0 {
            return None;
        }
        self.state.waiting = Some(Waiting { pattern, piece });
        // Looking long in one go is right while there is nothing else to do.
        const GO: u32 = 64;
        let mut left = spins;
        while left > 0 {
            let go = if self.state.is_busy() {
                1
            } else {
                GO.min(left)
            };
            left -= go;
            self.transport.poll(&mut self.state, go);
            if self.state.waiting.is_none() {
                break;
            }
            if self.state.is_busy() {
                self.progress_rest();
            }
        }
        let received = self.state.waiting.is_none() && self.state.received_waiting;
        self.state.waiting = None;
        self.state.received_waiting = false;
        if self.state.is_busy() {
            // Credits and acknowledgements that the receive made due.
            self.progress_rest();
        }
        received.then_some(&self.state.received)
    }

    /// Begins a send.
    pub fn isend(&mut self, mode: Mode, data: Data, to: u32, envelope: Envelope) -> ReqId {
        let walk = data.walk();
        let size = data.size();
        let key = self.state.requests.insert(Request::new(Kind::Send(Send {
            to,
            envelope,
            mode,
            data,
            walk,
            stage: SendStage::Queued,
            number: None,
            withdrawal: Withdrawal::None,
        })));
        (self.state).note_message(RecordKind::Send, to, envelope, size, key.index);
        if let Some(failed) = self.stalls(envelope.context, Some(to)) {
            return self.refused(key, failed);
        }
        self.state.kept_sends.begun += 1;
        self.state.peers[to as usize].queue.push_back(key.index);
        self.state.list(to);
        self.push_peer(to);
        key
    }

    /// Posts a receive. `from` is the world rank of the sender if one is asked for.
    #[inline]
    pub fn irecv(&mut self, data: Data, pattern: Pattern, from: Option<u32>) -> ReqId {
        self.irecv_named(data, pattern, from, 0)
    }

    /// As [`irecv`](Self::irecv), of a receive that the layer above names by its place and
    /// generation alone; `word`, which is not 0, is kept for [`named`](Self::named).
    #[inline]
    pub fn irecv_named(
        &mut self,
        data: Data,
        pattern: Pattern,
        from: Option<u32>,
        word: u32,
    ) -> ReqId {
        let key = self.state.add_receive(data, pattern, from, word);
        self.state.note_posted_receive(pattern, from, key.index);
        if self.state.recovery.is_revoked(pattern.context) {
            return self.refused(key, Failed::Revoked);
        }
        if let Some(message) = self.state.post(pattern, key.index) {
            self.state.deliver(message, key.index);
            self.after_match();
        } else if from.is_some_and(|p| self.state.recovery.is_dead(p)) {
            self.state.matching.withdraw(pattern, key.index);
            self.state.note_posted();
            return self.refused(key, Failed::Process);
        }
        key
    }

    /// Ends a request that has not begun.
    #[cold]
    fn refused(&mut self, key: ReqId, failed: Failed) -> ReqId {
        if let Some(request) = self.state.requests.at(key.index) {
            request.outcome.failed = Some(failed);
        }
        self.state.end(key.index);
        key
    }

    /// Receives a message that a matched probe took.
    ///
    /// # Panics
    /// When `message` was received before.
    pub fn imrecv(&mut self, message: MsgId, data: Data) -> ReqId {
        let found = self
            .state
            .messages
            .get(message)
            .expect("a matched message is received once");
        let pattern = Pattern::new(
            found.envelope.context,
            Some(found.envelope.source),
            Some(found.envelope.tag),
        );
        let from = Some(found.from);
        let key = self.state.add_receive(data, pattern, from, 0);
        self.state.deliver(message.index, key.index);
        self.after_match();
        key
    }

    /// Returns the oldest message that has arrived and matches.
    #[must_use]
    pub fn probe(&mut self, pattern: Pattern) -> Option<Arrived> {
        let (envelope, index) = self.state.matching.peek(pattern)?;
        let message = self.state.messages.at(index)?;
        Some(arrived(envelope, message.total))
    }

    /// Takes the oldest message that has arrived and matches, for [`imrecv`](Self::imrecv).
    #[must_use]
    pub fn mprobe(&mut self, pattern: Pattern) -> Option<(MsgId, Arrived)> {
        let (envelope, index) = self.state.matching.take(pattern)?;
        self.state.note_unexpected();
        let key = self.state.messages.key_at(index)?;
        let total = self.state.messages.at(index)?.total;
        Some((key, arrived(envelope, total)))
    }

    /// Moves everything on that can move. Returns whether anything did.
    #[inline]
    pub fn progress(&mut self) -> bool {
        let mut any = self.transport.poll(&mut self.state, 1);
        for hook in &self.progress_hooks {
            any |= hook.progress();
        }
        if self.posted_count != 0 {
            any |= self.advance_posted();
        }
        if self.state.is_busy() {
            self.progress_rest() || any
        } else {
            any
        }
    }

    fn progress_rest(&mut self) -> bool {
        let mut any = false;
        if !self.state.loopback.is_empty() {
            any = true;
            self.state.take_loopback();
        }
        any |= self.after_match();
        if !self.state.revocations.is_empty() || !self.state.refusals.is_empty() {
            any = true;
            self.after_news();
        }
        if !self.state.active.is_empty() {
            any |= self.push_all();
        }
        if !self.state.copies.is_empty() {
            any |= self.advance_copies();
        }
        if !self.state.executions.is_empty() && self.state.looked != self.state.ended {
            any = true;
            self.run_executions();
        }
        any
    }

    /// Whether any request is known.
    #[must_use]
    #[inline]
    pub fn has_requests(&self) -> bool {
        !self.state.requests.is_empty()
    }

    /// Returns a count that changes when a request ends or a message comes unexpected.
    #[must_use]
    pub fn news(&self) -> u64 {
        self.state.ended.wrapping_add(self.state.kept)
    }

    /// Requests that are known and messages that wait unmatched.
    #[must_use]
    pub fn outstanding(&self) -> (usize, usize) {
        (self.state.requests.len(), self.state.messages.len())
    }

    /// Whether everything that goes out has gone out: no send waits in a queue, no detached request
    /// is unfinished but those that only wait for the answer whether what is sent was cancelled.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.state.active.is_empty()
            && self.state.loopback.is_empty()
            && self.state.copies.is_empty()
            && !self
                .state
                .requests
                .any(|r| r.detached && !r.done && !r.kind.is_over_here())
            && self.transport.is_flushed()
    }

    /// Whether nothing that was sent needs this side any more, be it waited for or not:
    /// [`is_drained`](Self::is_drained), and no receiver has still to ask for its message.
    #[must_use]
    pub fn has_sent_all(&self) -> bool {
        let is_offered = |kind: &Kind| match kind {
            Kind::Send(send) => matches!(send.stage, SendStage::Offered(_)),
            _ => false,
        };
        self.is_drained() && !self.state.requests.any(|r| !r.done && is_offered(&r.kind))
    }

    /// Reaches further processes through another transport.
    pub fn join(&mut self, world: World) {
        if let Err(world) = self.transport.join(world) {
            Worlds::around(&mut self.transport);
            if self.transport.join(world).is_err() {
                unreachable!("a transport of several worlds takes another one");
            }
        }
        let size = self.transport.size() as usize;
        self.state.peers.resize_with(size, Peer::default);
    }

    /// Whether nothing is on its way between this process and that one, as far as this side knows.
    #[must_use]
    pub fn is_quiet(&self, process: u32) -> bool {
        let idle = |p: &Peer| p.is_idle() && p.assembling.is_none();
        self.state.peers.get(process as usize).is_none_or(idle)
            && !self.state.requests.any(|r| match &r.kind {
                Kind::Send(send) => !r.done && send.to == process,
                Kind::Receive(receive) => {
                    !r.done && receive.total.is_some() && receive.from == Some(process)
                }
                Kind::Collective(_) | Kind::Task(_) | Kind::Promise(..) | Kind::Exchange(_) => {
                    false
                }
            })
    }

    /// Gives up the world with this key, whose processes are quiet.
    pub fn part(&mut self, key: u64) {
        self.transport.part(key);
    }

    /// Returns the transport, for what only some transports have.
    pub fn transport(&mut self) -> &mut dyn Transport {
        &mut *self.transport
    }
}

impl State {
    /// Whether there is more to do than to poll for packets.
    #[inline]
    fn is_busy(&self) -> bool {
        !self.active.is_empty()
            || !self.copies.is_empty()
            || !self.rendezvous.is_empty()
            || !self.declined.is_empty()
            || !self.loopback.is_empty()
            || !self.revocations.is_empty()
            || !self.refusals.is_empty()
            || (!self.executions.is_empty() && self.looked != self.ended)
    }

    /// Returns a request for a receive, of which nothing has arrived.
    #[inline]
    fn add_receive(&mut self, data: Data, pattern: Pattern, from: Option<u32>, word: u32) -> ReqId {
        let walk = data.walk();
        let site = match word {
            0 => 0,
            _ => self.monitor.recording.call_site(),
        };
        self.requests.insert(Request::new(Kind::Receive(Receive {
            data,
            walk,
            pattern,
            from,
            word,
            site,
            total: None,
            arrived: 0,
            landing: false,
        })))
    }

    /// Whether a request is a receive from any source that waits for an acknowledgement.
    #[inline]
    fn is_stalled(&self, request: &Request) -> bool {
        match &request.kind {
            Kind::Receive(receive) if receive.from.is_none() => {
                self.recovery.is_stalled(receive.pattern.context)
            }
            _ => false,
        }
    }

    #[inline]
    fn end(&mut self, index: u32) {
        if self.kept_sends.bytes != 0 {
            self.release_kept(index);
        }
        self.ended += 1;
        self.monitor
            .counters
            .ended
            .store(self.ended, Ordering::Relaxed);
        if let Some(request) = self.requests.at(index) {
            self.monitor
                .events
                .note(EventKind::RequestEnded, || request.words());
            request.done = true;
            if request.detached {
                self.requests.discard(index);
            }
        }
    }
}

fn arrived(envelope: Envelope, bytes: u64) -> Arrived {
    Arrived {
        source: envelope.source,
        tag: envelope.tag,
        bytes,
    }
}
