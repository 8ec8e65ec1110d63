//! One rank's engine: a state machine that takes calls and packets and moves messages.
//!
//! | protocol | when | packets |
//! | --- | --- | --- |
//! | eager | up to [`Limits::eager`] bytes while the receiver's tokens last | `EAGER`, or `FIRST` and `MORE` |
//! | rendezvous, direct | the transport can copy between the two memories | `RTS`, then the copy itself |
//! | rendezvous, bytes | else | `RTS`, `CTS`, `DATA` … |
//!
//! Tokens bound what a sender may have unmatched at a receiver (as the SP2's pipes did per pair): a
//! receiver that is not ready costs memory once. Out of tokens, a message goes by rendezvous, so
//! only its envelope waits at the receiver and order and matching stay as they are.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_core_group::Group;
use margay_core_matching::{Envelope, Matching, Pattern};
use margay_net_transport::{
    Advance, Destination, Head, Packet, SHORT, Sink, Ticket, Transport, WHOLE, World,
};
use margay_net_worlds::Worlds;

use crate::collective::{Execution, Step as Collected};
use crate::data::{Data, Walk};
use crate::spare::Spare;
use margay_sys::user::Piece;

use crate::monitor::counters;
use crate::monitor::{EventKind, Level, Monitor, Protocol};
use crate::slab::{Key, Slab};
use crate::task::{Inlet, Task};

mod recover;

use recover::Recovery;

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

/// When a standard send completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As soon as the buffer may be used again.
    Standard,
    /// When the receiver has begun to receive.
    Synchronous,
    /// As standard; the caller promises that the receive is posted.
    Ready,
}

/// Sizes and counts at which protocols change.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest eager message in bytes.
    pub eager: u64,
    /// Eager messages that may be unmatched at one receiver.
    pub tokens: u32,
    /// Eager bytes that may be unmatched at one receiver.
    pub token_bytes: u64,
}

impl Default for Limits {
    /// 64 KiB: from there on a handshake costs less than a second copy would if the receive were
    /// not posted. 2,048 messages and 512 KiB: enough that a sender with a receiver that keeps up
    /// never runs out, little enough for every pair to have it.
    fn default() -> Self {
        Limits {
            eager: 64 << 10,
            tokens: 2048,
            token_bytes: 512 << 10,
        }
    }
}

/// Names a request.
pub type ReqId = Key;
/// Names a message that a matched probe took.
pub type MsgId = Key;

/// How a request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Sender's rank in the communicator (receives).
    pub source: u32,
    /// Tag of the message (receives).
    pub tag: u32,
    /// Packed bytes received.
    pub bytes: u64,
    /// The request was cancelled and nothing was received.
    pub cancelled: bool,
    /// It cannot be completed.
    pub failed: Option<Failed>,
    /// The message was longer than the buffer: its size.
    pub truncated: Option<u64>,
}

/// Why an operation cannot be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// A process that it needs has died.
    Process,
    /// A process has died that may be meant; the request goes on when that is acknowledged.
    Pending,
    /// The communicator has been revoked.
    Revoked,
}

/// A message that a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Sender's rank in the communicator.
    pub source: u32,
    /// Its tag.
    pub tag: u32,
    /// Its size in packed bytes.
    pub bytes: u64,
}

/// One rank's engine. See the module; not shared, [`crate::Rank`] puts a lock around it.
pub struct Engine {
    transport: Box<dyn Transport>,
    state: State,
    /// A progress thread does what takes long, so that calls that only begin something need not.
    is_helped: bool,
    inlets: Vec<Arc<dyn Inlet>>,
}

/// What an unfinished request waits for, for displays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// A message from that world rank (none: any) with that tag (none: any).
    Receive(Option<u32>, Option<u32>, u32),
    /// That world rank to take the message with that tag.
    Send(u32, u32, u32),
    /// Other ranks in a collective operation; one of them, if it is known.
    Collective(Option<u32>, u32),
    /// Something of another job.
    Elsewhere,
}

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
    meetings: Vec<Meeting>,
    copies: Vec<Direct>,
    /// Offers that were answered with a CTS.
    declined: Vec<Ticket>,
    loopback: VecDeque<(Head, [u64; 2], Vec<u8>)>,
    executions: Vec<u32>,
    spare: Spare,
    /// Requests that ended, as a count; tells collectives and other threads that there is news.
    ended: u64,
    /// Messages that came unexpected, as a count; news for threads that probe.
    kept: u64,
    looked: u64,
    /// The receive of `recv_at_once`, newest of all, and what it received.
    waiting: Option<Waiting>,
    received: Outcome,
    received_waiting: bool,
    recovery: Recovery,
    /// Communicators that others have revoked, and own sends that they refused.
    revocations: Vec<u32>,
    refusals: Vec<u32>,
}

struct Waiting {
    pattern: Pattern,
    piece: Piece,
}

struct Request {
    kind: Kind,
    outcome: Outcome,
    done: bool,
    /// Nobody will ask for the outcome.
    detached: bool,
    /// Let go of: it failed for whoever asks, and stays for what the other side may still say.
    lost: bool,
}

enum Kind {
    Send(Send),
    Receive(Receive),
    Collective(Box<Execution>),
    /// None while it runs.
    Task(Option<Box<dyn Task>>),
    /// Somebody else ends it, after an answer of this rank, in this context.
    Promise(u32, u32),
}

struct Send {
    to: u32,
    envelope: Envelope,
    mode: Mode,
    data: Data,
    walk: Walk,
    stage: SendStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendStage {
    /// In its peer's queue, nothing sent.
    Queued,
    /// In its peer's queue, some fragments sent.
    Eager,
    /// The receiver's answer is awaited; perhaps with a direct copy on offer.
    Offered(Option<Ticket>),
    /// In its peer's streams: bytes to this request of the receiver.
    Streaming(u64),
    /// All is sent, the receiver's acknowledgement is awaited.
    Unacknowledged,
}

struct Receive {
    data: Data,
    walk: Walk,
    pattern: Pattern,
    /// World rank of the sender that was asked for, for displays.
    from: Option<u32>,
    /// Matched: the message's size.
    total: Option<u64>,
    /// Bytes that have arrived, also those beyond the buffer.
    arrived: u64,
    /// The transport may have begun to write the message that this will be matched with.
    landing: bool,
}

/// An unexpected message.
struct Message {
    envelope: Envelope,
    from: u32,
    total: u64,
    /// 0, or 1 + the sender's request that wants to know when this is matched.
    ack: u32,
    body: Body,
}

enum Body {
    Short([u8; SHORT]),
    /// What has arrived so far.
    Bytes(Vec<u8>),
    Rendezvous {
        sender: u64,
        words: [u64; 3],
    },
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
    /// Eager messages and bytes sent and not yet matched, as far as we have been told.
    unmatched: u32,
    unmatched_bytes: u64,
    /// Matched here and not yet told to the peer.
    owed: u32,
    owed_bytes: u64,
    /// Where the rest of an eager message in fragments goes.
    assembling: Option<Target>,
}

enum Control {
    Cts { sender: u64, receiver: u64 },
    Ack { sender: u32 },
    Revoke { number: u32 },
    Refused { sender: u32 },
}

struct Meeting {
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
    /// The engine of the rank that `transport` belongs to.
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
                meetings: Vec::new(),
                copies: Vec::new(),
                declined: Vec::new(),
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
            inlets: Vec::new(),
        }
    }

    /// From now on progress looks there too.
    pub fn add_inlet(&mut self, inlet: Arc<dyn Inlet>) {
        self.inlets.push(inlet);
    }

    /// Ends that.
    pub fn remove_inlet(&mut self, inlet: &Arc<dyn Inlet>) {
        self.inlets.retain(|other| !Arc::ptr_eq(other, inlet));
    }

    /// Whether a progress thread works on what is under way: then calls that begin something leave copies to it.
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
        if !peer.queue.is_empty() || !peer.has_tokens(size, &limits) || state.recovery.hurt {
            return false;
        }
        let head = head(EAGER, envelope, 0);
        let sent = piece.with_bytes(|bytes| self.transport.send(to, head, bytes));
        if sent {
            peer.unmatched += 1;
            peer.unmatched_bytes += size;
            self.state.monitor.counters.sent(Protocol::Whole).add(size);
        }
        sent
    }

    /// Receives with no request of its own: posts the receive behind all that are posted and looks
    /// up to `looks` times. None when nothing came, or a message for which a request is needed; the
    /// caller then posts the receive with [`irecv`](Self::irecv).
    #[inline]
    pub fn recv_at_once(&mut self, piece: Piece, pattern: Pattern, looks: u32) -> Option<&Outcome> {
        if self.state.matching.unexpected_len() != 0 {
            return None;
        }
        self.state.waiting = Some(Waiting { pattern, piece });
        // Looking long in one go is right while there is nothing else to do.
        const GO: u32 = 64;
        let mut left = looks;
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
            // Tokens and acknowledgements that the receive made due.
            self.progress_rest();
        }
        received.then_some(&self.state.received)
    }

    /// Begins a send.
    pub fn isend(&mut self, mode: Mode, data: Data, to: u32, envelope: Envelope) -> ReqId {
        let walk = data.walk();
        let key = self.state.requests.insert(Request::new(Kind::Send(Send {
            to,
            envelope,
            mode,
            data,
            walk,
            stage: SendStage::Queued,
        })));
        if let Some(failed) = self.stalls(envelope.context, Some(to)) {
            return self.refused(key, failed);
        }
        self.state.peers[to as usize].queue.push_back(key.index);
        self.state.list(to);
        self.push_peer(to);
        key
    }

    /// Posts a receive. `from` is the world rank of the sender if one is asked for.
    pub fn irecv(&mut self, data: Data, pattern: Pattern, from: Option<u32>) -> ReqId {
        let walk = data.walk();
        let key = self
            .state
            .requests
            .insert(Request::new(Kind::Receive(Receive {
                data,
                walk,
                pattern,
                from,
                total: None,
                arrived: 0,
                landing: false,
            })));
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
        let walk = data.walk();
        let key = self
            .state
            .requests
            .insert(Request::new(Kind::Receive(Receive {
                data,
                walk,
                pattern,
                from,
                total: None,
                arrived: 0,
                landing: false,
            })));
        self.state.deliver(message.index, key.index);
        self.after_match();
        key
    }

    /// Begins a collective operation; `later`: its first steps are left to the next progress.
    pub fn icollective(&mut self, mut execution: Execution, later: bool) -> ReqId {
        if let Some(failed) = execution.broken(self) {
            execution.fail(failed);
        }
        let key = self
            .state
            .requests
            .insert(Request::new(Kind::Collective(Box::new(execution))));
        self.state.executions.push(key.index);
        if later {
            self.state.looked = self.state.ended.wrapping_sub(1);
        } else {
            self.run_execution(key.index);
        }
        key
    }

    /// Begins an operation of several requests.
    pub fn start_task(&mut self, task: Box<dyn Task>) -> ReqId {
        let kind = Kind::Task(Some(task));
        let key = self.state.requests.insert(Request::new(kind));
        self.state.executions.push(key.index);
        self.run_execution(key.index);
        key
    }

    /// The oldest message that has arrived and matches.
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

    /// Whether a request has ended. A request that is gone has.
    #[must_use]
    #[inline]
    pub fn is_done(&self, id: ReqId) -> bool {
        let over = |r: &Request| r.done || self.state.is_stalled(r);
        self.state.requests.get(id).is_none_or(over)
    }

    /// The outcome of a request that has ended; the request is gone then.
    #[inline]
    pub fn take(&mut self, id: ReqId) -> Option<Outcome> {
        let request = self.state.requests.get_mut(id)?;
        if !request.done {
            if request.lost {
                // A receive vanishes when its message is here; a send that was offered may never be answered.
                request.detached = matches!(request.kind, Kind::Receive(_));
                return Some(Outcome {
                    failed: Some(Failed::Process),
                    ..Outcome::default()
                });
            }
            // The request stays.
            let request = self.state.requests.get(id)?;
            return self.state.is_stalled(request).then(|| Outcome {
                failed: Some(Failed::Pending),
                ..Outcome::default()
            });
        }
        let outcome = request.outcome;
        self.state.requests.discard(id.index);
        Some(outcome)
    }

    /// Nobody will ask for the outcome; the request goes on and then vanishes.
    pub fn detach(&mut self, id: ReqId) {
        if let Some(request) = self.state.requests.get_mut(id) {
            if request.done {
                self.state.requests.discard(id.index);
            } else {
                request.detached = true;
            }
        }
    }

    /// Cancels a receive that has not been matched or a send of which nothing has gone out. The
    /// outcome tells whether it worked; a cancelled request is done.
    pub fn cancel(&mut self, id: ReqId) {
        let Some(request) = self.state.requests.get_mut(id) else {
            return;
        };
        if request.done {
            return;
        }
        let withdrawn = match &request.kind {
            Kind::Receive(receive) if receive.total.is_none() && !receive.landing => {
                let pattern = receive.pattern;
                let withdrawn = self.state.matching.withdraw(pattern, id.index);
                self.state.note_posted();
                withdrawn
            }
            Kind::Send(send) if send.stage == SendStage::Queued => {
                let queue = &mut self.state.peers[send.to as usize].queue;
                let found = queue.iter().position(|&index| index == id.index);
                found.is_some_and(|at| queue.remove(at).is_some())
            }
            _ => false,
        };
        if withdrawn {
            let request = self.state.requests.at(id.index).expect("it is there");
            request.outcome.cancelled = true;
            self.state.end(id.index);
        }
    }

    /// What a request waits for; none when it has ended.
    #[must_use]
    pub fn pending(&self, id: ReqId) -> Option<Pending> {
        let request = self.state.requests.get(id).filter(|r| !r.done)?;
        Some(match &request.kind {
            Kind::Send(send) => Pending::Send(send.to, send.envelope.tag, send.envelope.context),
            Kind::Receive(r) => Pending::Receive(r.from, r.pattern.tag(), r.pattern.context),
            Kind::Collective(execution) => {
                let peer = execution.children().find_map(|child| {
                    match self.state.requests.get(child).filter(|r| !r.done)?.kind {
                        Kind::Send(ref send) => Some(send.to),
                        Kind::Receive(ref receive) => receive.from,
                        Kind::Collective(_) | Kind::Task(_) | Kind::Promise(..) => None,
                    }
                });
                Pending::Collective(peer, execution.context())
            }
            Kind::Task(task) => return task.as_ref().map(|task| task.pending()),
            Kind::Promise(from, context) => Pending::Collective(Some(*from), *context),
        })
    }

    /// Moves everything on that can move. Returns whether anything did.
    #[inline]
    pub fn progress(&mut self) -> bool {
        let mut any = self.transport.poll(&mut self.state, 1);
        for inlet in &self.inlets {
            any |= inlet.look();
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

    /// Temporary memory for collectives.
    pub(crate) fn spare(&mut self) -> &mut Spare {
        &mut self.state.spare
    }

    /// Whether any request is known.
    #[must_use]
    #[inline]
    pub fn has_requests(&self) -> bool {
        !self.state.requests.is_empty()
    }

    /// A count that changes when a request ends or a message comes unexpected.
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
    /// is unfinished.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.state.active.is_empty()
            && self.state.loopback.is_empty()
            && self.state.copies.is_empty()
            && !self
                .state
                .requests
                .any(|r| r.detached && !r.done && !matches!(r.kind, Kind::Receive(_)))
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
                Kind::Collective(_) | Kind::Task(_) | Kind::Promise(..) => false,
            })
    }

    /// Gives up the world with this key, whose processes are quiet.
    pub fn part(&mut self, key: u64) {
        self.transport.part(key);
    }

    /// The transport, for what only some transports have.
    pub fn transport(&mut self) -> &mut dyn Transport {
        &mut *self.transport
    }

    /// Meets senders that wait, and takes back offers that were declined.
    fn after_match(&mut self) -> bool {
        if self.state.meetings.is_empty() && self.state.declined.is_empty() {
            return false;
        }
        while let Some(meeting) = self.state.meetings.pop() {
            self.meet(meeting);
        }
        while let Some(ticket) = self.state.declined.pop() {
            self.transport.withdraw(ticket);
        }
        true
    }

    fn meet(&mut self, meeting: Meeting) {
        let Meeting {
            request: index,
            from,
            sender,
            words,
        } = meeting;
        let Some(Request {
            kind: Kind::Receive(receive),
            ..
        }) = self.state.requests.at(index)
        else {
            return;
        };
        let wanted = receive.total.unwrap_or(0).min(receive.data.size());
        if words[0] != 0
            && let Some((mem, at)) = receive.data.dense()
            && let Some(ticket) = self.transport.accept(from, words, mem, at, wanted)
        {
            self.state.copies.push(Direct {
                ticket,
                request: index,
                receiving: Some((from, sender)),
            });
            if !self.is_helped {
                self.advance_copies();
            }
            return;
        }
        let empty = receive.total == Some(0);
        self.clear_to_send(index, from, sender);
        if empty {
            self.state.end(index);
        }
    }

    fn clear_to_send(&mut self, index: u32, from: u32, sender: u64) {
        self.state.peers[from as usize]
            .controls
            .push_back(Control::Cts {
                sender,
                receiver: u64::from(index),
            });
        self.state.list(from);
        self.push_peer(from);
    }

    fn advance_copies(&mut self) -> bool {
        let mut any = false;
        let mut at = 0;
        while at < self.state.copies.len() {
            let copy = &self.state.copies[at];
            let (ticket, index) = (copy.ticket, copy.request);
            match self.transport.advance(ticket) {
                Advance::Pending(moved) => {
                    any |= moved;
                    at += 1;
                }
                Advance::Done => {
                    any = true;
                    self.state.copies.swap_remove(at);
                    self.state.copied(index);
                }
                Advance::Refused => {
                    any = true;
                    let copy = self.state.copies.swap_remove(at);
                    if let Some((from, sender)) = copy.receiving {
                        self.clear_to_send(index, from, sender);
                    }
                }
            }
        }
        any
    }

    fn push_all(&mut self) -> bool {
        let mut any = false;
        let mut at = 0;
        while at < self.state.active.len() {
            let to = self.state.active[at];
            any |= self.push_peer(to);
            if self.state.peers[to as usize].is_idle() {
                self.state.peers[to as usize].listed = false;
                self.state.active.swap_remove(at);
            } else {
                at += 1;
            }
        }
        any
    }

    /// Sends what `to` has room for. Returns whether anything went.
    fn push_peer(&mut self, to: u32) -> bool {
        let mut any = false;
        while self.push_control(to) {
            any = true;
        }
        while let Some(&index) = self.state.peers[to as usize].queue.front() {
            match self.push_send(index) {
                Pushed::All => {
                    self.state.peers[to as usize].queue.pop_front();
                    any = true;
                }
                Pushed::Some => any = true,
                Pushed::Nothing => break,
            }
        }
        while let Some(&index) = self.state.peers[to as usize].streams.front() {
            match self.push_stream(index) {
                Pushed::All => {
                    self.state.peers[to as usize].streams.pop_front();
                    any = true;
                }
                Pushed::Some => any = true,
                Pushed::Nothing => break,
            }
        }
        any
    }

    /// Sends one short packet without order, if there is one and it has room.
    fn push_control(&mut self, to: u32) -> bool {
        let peer = &mut self.state.peers[to as usize];
        let limits = self.state.monitor.tuning.limits();
        if let Some(control) = peer.controls.front() {
            let mut payload = [0; 8];
            let head = match *control {
                Control::Cts { sender, receiver } => {
                    payload = receiver.to_ne_bytes();
                    Head {
                        kind: CTS,
                        word: sender as u32,
                        ..Head::default()
                    }
                }
                Control::Ack { sender } => Head {
                    kind: ACK,
                    word: sender,
                    ..Head::default()
                },
                Control::Revoke { number } => Head {
                    kind: REVOKE,
                    word: number,
                    ..Head::default()
                },
                Control::Refused { sender } => Head {
                    kind: REFUSED,
                    word: sender,
                    ..Head::default()
                },
            };
            if !self.short(to, head, &payload) {
                return false;
            }
            self.state.peers[to as usize].controls.pop_front();
            return true;
        }
        if peer.credit_is_due(&limits) {
            let mut payload = [0; 16];
            payload[..8].copy_from_slice(&u64::from(peer.owed).to_ne_bytes());
            payload[8..].copy_from_slice(&peer.owed_bytes.to_ne_bytes());
            let head = Head {
                kind: CREDIT,
                ..Head::default()
            };
            if self.short(to, head, &payload) {
                let peer = &mut self.state.peers[to as usize];
                peer.owed = 0;
                peer.owed_bytes = 0;
                return true;
            }
        }
        false
    }

    fn push_send(&mut self, index: u32) -> Pushed {
        let limits = self.state.monitor.tuning.limits();
        let Some(Request {
            kind: Kind::Send(send),
            ..
        }) = self.state.requests.at(index)
        else {
            return Pushed::All;
        };
        let (to, size) = (send.to, send.data.size());
        let sync = send.mode == Mode::Synchronous;
        let word = if sync { index + 1 } else { 0 };
        if send.stage == SendStage::Queued {
            let offer = if to == self.state.me {
                None
            } else {
                send.data
                    .dense()
                    .and_then(|(mem, at)| self.transport.offer(to, mem, at, size))
            };
            let short = offer.is_none() && size <= limits.eager;
            let eager = short && self.state.peers[to as usize].has_tokens(size, &limits);
            if !eager {
                let (ticket, words) = match offer {
                    Some((ticket, words)) => (Some(ticket), words),
                    None => (None, [0; 3]),
                };
                let envelope = send.envelope;
                let mut payload = [0; SHORT];
                for (place, value) in payload.chunks_exact_mut(8).zip([
                    size,
                    u64::from(index),
                    words[0],
                    words[1],
                    words[2],
                ]) {
                    place.copy_from_slice(&value.to_ne_bytes());
                }
                if !self.short(to, head(RTS, envelope, 0), &payload) {
                    if let Some(ticket) = ticket {
                        self.transport.withdraw(ticket);
                    }
                    return Pushed::Nothing;
                }
                let monitor = &self.state.monitor;
                if short {
                    counters::add(&monitor.counters.out_of_tokens, 1);
                    monitor
                        .events
                        .note(EventKind::OutOfTokens, || [u64::from(to), size, 0, 0]);
                }
                let protocol = match ticket {
                    Some(_) => Protocol::Direct,
                    None => Protocol::Streamed,
                };
                monitor.counters.sent(protocol).add(size);
                self.state.stage(index, SendStage::Offered(ticket));
                if let Some(ticket) = ticket {
                    self.state.copies.push(Direct {
                        ticket,
                        request: index,
                        receiving: None,
                    });
                }
                return Pushed::All;
            }
        }
        let Some(Request {
            kind: Kind::Send(send),
            ..
        }) = self.state.requests.at(index)
        else {
            return Pushed::All;
        };
        let sent = send.walk.position();
        let part = if size <= WHOLE as u64 {
            size as usize
        } else {
            self.transport.fragment(size - sent)
        };
        let whole = sent == 0 && part as u64 == size;
        let (kind, args) = match (whole, sent) {
            (true, _) => (EAGER, [0; 2]),
            (false, 0) => (FIRST, [size, 0]),
            (false, _) => (MORE, [0; 2]),
        };
        let packet = head(kind, send.envelope, word);
        let Send { data, walk, .. } = send;
        let pushed = if to == self.state.me {
            let mut bytes = vec![0; part];
            walk.pack(data, &mut bytes);
            self.state.loopback.push_back((packet, args, bytes));
            true
        } else if let Some((mem, at)) = data.dense()
            && whole
        {
            mem.with_bytes(at, part, |bytes| self.transport.send(to, packet, bytes))
        } else if whole {
            let mut bytes = [0; WHOLE];
            walk.clone().pack(data, &mut bytes[..part]);
            self.transport.send(to, packet, &bytes[..part])
        } else {
            self.transport
                .send_fragment(to, packet, args, part, &mut |room| walk.pack(data, room))
        };
        if !pushed {
            return Pushed::Nothing;
        }
        if sent == 0 {
            let peer = &mut self.state.peers[to as usize];
            peer.unmatched += 1;
            peer.unmatched_bytes += size;
            let protocol = if whole {
                Protocol::Whole
            } else {
                Protocol::Fragments
            };
            self.state.monitor.counters.sent(protocol).add(size);
        }
        if sent + (part as u64) < size {
            self.state.stage(index, SendStage::Eager);
            return Pushed::Some;
        }
        if sync {
            self.state.stage(index, SendStage::Unacknowledged);
        } else {
            self.state.end(index);
        }
        Pushed::All
    }

    fn push_stream(&mut self, index: u32) -> Pushed {
        let Some(Request {
            kind: Kind::Send(send),
            ..
        }) = self.state.requests.at(index)
        else {
            return Pushed::All;
        };
        let Send {
            to,
            data,
            walk,
            stage: SendStage::Streaming(receiver),
            ..
        } = send
        else {
            return Pushed::All;
        };
        let (to, receiver) = (*to, *receiver);
        let offset = walk.position();
        let left = data.size() - offset;
        if left > 0 {
            let part = self.transport.fragment(left);
            let packet = Head {
                kind: DATA,
                ..Head::default()
            };
            let args = [receiver, offset];
            let pushed = if to == self.state.me {
                let mut bytes = vec![0; part];
                walk.pack(data, &mut bytes);
                self.state.loopback.push_back((packet, args, bytes));
                true
            } else {
                self.transport
                    .send_fragment(to, packet, args, part, &mut |room| walk.pack(data, room))
            };
            if !pushed {
                return Pushed::Nothing;
            }
            if (part as u64) < left {
                return Pushed::Some;
            }
        }
        self.state.end(index);
        Pushed::All
    }

    fn short(&mut self, to: u32, head: Head, payload: &[u8]) -> bool {
        if to == self.state.me {
            self.state
                .loopback
                .push_back((head, [0; 2], payload.to_vec()));
            true
        } else {
            self.transport.send(to, head, payload)
        }
    }

    fn run_executions(&mut self) {
        self.state.looked = self.state.ended;
        let mut at = 0;
        while at < self.state.executions.len() {
            let index = self.state.executions[at];
            self.run_execution(index);
            if self.state.executions.get(at) == Some(&index) {
                at += 1;
            }
        }
    }

    /// A request that [`fulfil`](Self::fulfil) ends, when `from` has answered in `context`.
    pub fn promise(&mut self, from: u32, context: u32) -> ReqId {
        let request = Request::new(Kind::Promise(from, context));
        self.state.requests.insert(request)
    }

    /// Ends a promise.
    pub fn fulfil(&mut self, id: ReqId, outcome: Outcome) {
        if let Some(request) = self.state.requests.get_mut(id) {
            request.outcome = outcome;
            self.state.end(id.index);
        }
    }

    /// Starts what a collective or a task can start now, until it has to wait or is done.
    fn run_execution(&mut self, index: u32) {
        if let Some(Request {
            kind: Kind::Task(place),
            ..
        }) = self.state.requests.at(index)
        {
            let task = place.take();
            return self.run_task(index, task);
        }
        let Some(Request {
            kind: Kind::Collective(execution),
            ..
        }) = self.state.requests.at(index)
        else {
            return;
        };
        // The execution starts requests of this very engine, so it is taken out meanwhile.
        let mut execution = std::mem::replace(execution, Box::new(Execution::idle()));
        let step = execution.run(self);
        if let Some(Request {
            kind: Kind::Collective(place),
            outcome,
            ..
        }) = self.state.requests.at(index)
        {
            if let Some(mismatch) = execution.mismatch() {
                *outcome = mismatch;
            }
            outcome.failed = execution.failed();
            *place = execution;
        }
        if step == Collected::Done {
            self.state.executions.retain(|&i| i != index);
            self.state.end(index);
        }
    }

    fn run_task(&mut self, index: u32, task: Option<Box<dyn Task>>) {
        let Some(mut task) = task else { return };
        match task.run(self) {
            Some(outcome) => {
                if let Some(request) = self.state.requests.at(index) {
                    request.outcome = outcome;
                }
                self.state.executions.retain(|&i| i != index);
                self.state.end(index);
            }
            None => {
                if let Some(Request {
                    kind: Kind::Task(place),
                    ..
                }) = self.state.requests.at(index)
                {
                    *place = Some(task);
                }
            }
        }
    }
}

enum Pushed {
    All,
    Some,
    Nothing,
}

impl Sink for State {
    #[inline]
    fn packet(&mut self, from: u32, packet: Packet<'_>) {
        let Packet {
            head,
            args,
            payload,
        } = packet;
        if self.recovery.hurt && self.refuse(from, head, args, payload) {
            return;
        }
        match head.kind {
            EAGER => self.eager(from, head, payload),
            FIRST => self.first(from, head, args[0], payload),
            MORE => self.more(from, payload),
            RTS => self.request_to_send(from, head, payload),
            CTS => self.clear(from, head.word, number(payload, 0)),
            DATA => self.data(args[0] as u32, payload),
            ACK => self.acknowledged(head.word),
            CREDIT => {
                let peer = &mut self.peers[from as usize];
                peer.unmatched = peer.unmatched.saturating_sub(number(payload, 0) as u32);
                peer.unmatched_bytes = peer.unmatched_bytes.saturating_sub(number(payload, 1));
            }
            REVOKE => self.revocations.push(head.word),
            REFUSED => self.refusals.push(head.word),
            // A kind of a later version; nothing we sent can have asked for it.
            _ => {}
        }
    }

    fn destination(&mut self, _: u32, head: &Head, len: usize) -> Option<Destination> {
        if head.kind != EAGER {
            return None;
        }
        let envelope = envelope(*head);
        match self.matching.candidate(&envelope) {
            Some(index) => match self.requests.at(index) {
                Some(Request {
                    kind: Kind::Receive(receive),
                    ..
                }) if receive.data.size() >= len as u64 => {
                    let (mem, offset) = receive.data.dense()?;
                    let (mem, exclusive) = (mem.clone(), receive.pattern.source().is_some());
                    receive.landing = exclusive;
                    Some(Destination {
                        mem,
                        offset,
                        exclusive,
                    })
                }
                _ => None,
            },
            None => {
                let waiting = self.waiting.as_ref()?;
                (waiting.pattern.matches(&envelope) && waiting.piece.size() >= len).then(|| {
                    Destination {
                        mem: waiting.piece.mem(),
                        offset: 0,
                        exclusive: waiting.pattern.source().is_some(),
                    }
                })
            }
        }
    }

    fn landed(&mut self, from: u32, head: &Head, len: usize) {
        let envelope = envelope(*head);
        let total = len as u64;
        match self.arrive(envelope) {
            Some(index) => {
                self.matched(index, from, envelope, total, head.word, true);
                self.copied(index);
            }
            None => self.receive_waiting(from, envelope, head.word, total),
        }
    }
}

impl State {
    #[inline]
    fn eager(&mut self, from: u32, head: Head, payload: &[u8]) {
        let envelope = envelope(head);
        let total = payload.len() as u64;
        match self.arrive(envelope) {
            Some(index) => {
                self.matched(index, from, envelope, total, head.word, true);
                self.data(index, payload);
            }
            None if self.goes_to_waiting(&envelope) => {
                if let Some(waiting) = &self.waiting {
                    waiting.piece.write(payload);
                }
                self.receive_waiting(from, envelope, head.word, total);
            }
            None => {
                let body = if payload.len() <= SHORT {
                    let mut short = [0; SHORT];
                    short[..payload.len()].copy_from_slice(payload);
                    Body::Short(short)
                } else {
                    Body::Bytes(payload.to_vec())
                };
                self.keep(envelope, from, total, head.word, body);
            }
        }
    }

    #[inline]
    fn goes_to_waiting(&self, envelope: &Envelope) -> bool {
        self.waiting
            .as_ref()
            .is_some_and(|w| w.pattern.matches(envelope))
    }

    /// The receive of `recv_at_once` has its message, whose bytes are in place.
    #[inline]
    fn receive_waiting(&mut self, from: u32, envelope: Envelope, ack: u32, total: u64) {
        let Some(waiting) = self.waiting.take() else {
            return;
        };
        let room = waiting.piece.size() as u64;
        self.received_waiting = true;
        self.received = Outcome {
            source: envelope.source,
            tag: envelope.tag,
            bytes: total.min(room),
            cancelled: false,
            failed: None,
            truncated: (total > room).then_some(total),
        };
        self.account(from, total, ack, true);
    }

    /// The message needs a request: it is kept as unexpected, and the receive that waits for it is
    /// posted at once by its caller and finds it there.
    fn give_up_waiting(&mut self, envelope: &Envelope) {
        if self.goes_to_waiting(envelope) {
            self.waiting = None;
        }
    }

    /// Whether there is more to do than to look for packets.
    #[inline]
    fn is_busy(&self) -> bool {
        !self.active.is_empty()
            || !self.copies.is_empty()
            || !self.meetings.is_empty()
            || !self.declined.is_empty()
            || !self.loopback.is_empty()
            || !self.revocations.is_empty()
            || !self.refusals.is_empty()
            || (!self.executions.is_empty() && self.looked != self.ended)
    }

    fn first(&mut self, from: u32, head: Head, total: u64, payload: &[u8]) {
        let envelope = envelope(head);
        let target = match self.arrive(envelope) {
            Some(index) => {
                self.matched(index, from, envelope, total, head.word, true);
                self.data(index, payload);
                Target::Request(index)
            }
            None => {
                self.give_up_waiting(&envelope);
                let mut bytes = Vec::with_capacity(total as usize);
                bytes.extend_from_slice(payload);
                Target::Message(self.keep(envelope, from, total, head.word, Body::Bytes(bytes)))
            }
        };
        self.peers[from as usize].assembling = Some(target);
    }

    fn more(&mut self, from: u32, payload: &[u8]) {
        match self.peers[from as usize].assembling {
            Some(Target::Request(index)) => self.data(index, payload),
            Some(Target::Message(index)) => {
                if let Some(Message {
                    body: Body::Bytes(bytes),
                    ..
                }) = self.messages.at(index)
                {
                    bytes.extend_from_slice(payload);
                }
            }
            None => {}
        }
    }

    fn request_to_send(&mut self, from: u32, head: Head, payload: &[u8]) {
        let envelope = envelope(head);
        let total = number(payload, 0);
        let sender = number(payload, 1);
        let words = [number(payload, 2), number(payload, 3), number(payload, 4)];
        match self.arrive(envelope) {
            Some(index) => {
                self.matched(index, from, envelope, total, 0, false);
                self.meetings.push(Meeting {
                    request: index,
                    from,
                    sender,
                    words,
                });
            }
            None => {
                self.give_up_waiting(&envelope);
                self.keep(envelope, from, total, 0, Body::Rendezvous { sender, words });
            }
        }
    }

    fn clear(&mut self, from: u32, sender: u32, receiver: u64) {
        let Some(Request {
            kind: Kind::Send(send),
            ..
        }) = self.requests.at(sender)
        else {
            return;
        };
        if let SendStage::Offered(Some(ticket)) = send.stage {
            let counters = &self.monitor.counters;
            counters.sent(Protocol::Direct).take_back(send.data.size());
            counters.sent(Protocol::Streamed).add(send.data.size());
            self.declined.push(ticket);
            self.copies.retain(|copy| copy.ticket != ticket);
        }
        send.stage = SendStage::Streaming(receiver);
        self.peers[from as usize].streams.push_back(sender);
        self.list(from);
    }

    /// Bytes for a matched receive.
    #[inline]
    fn data(&mut self, index: u32, payload: &[u8]) {
        let Some(Request {
            kind: Kind::Receive(receive),
            ..
        }) = self.requests.at(index)
        else {
            return;
        };
        receive.walk.unpack(&receive.data, payload);
        receive.arrived += payload.len() as u64;
        if Some(receive.arrived) == receive.total {
            self.end(index);
        }
    }

    fn acknowledged(&mut self, word: u32) {
        let index = word.wrapping_sub(1);
        if let Some(Request {
            kind: Kind::Send(send),
            ..
        }) = self.requests.at(index)
            && send.stage == SendStage::Unacknowledged
        {
            self.end(index);
        } else if let Some(Request {
            kind: Kind::Send(send),
            ..
        }) = self.requests.at(index)
        {
            // Matched while the last fragments are still on their way out: then the end of the
            // sending is the end of the request.
            send.mode = Mode::Standard;
        }
    }

    /// A receive has found its message: notes size and sender, returns the token.
    #[inline]
    fn matched(
        &mut self,
        index: u32,
        from: u32,
        envelope: Envelope,
        total: u64,
        ack: u32,
        token: bool,
    ) {
        if let Some(request) = self.requests.at(index)
            && let Kind::Receive(receive) = &mut request.kind
        {
            receive.total = Some(total);
            receive.from = Some(from);
            request.outcome.source = envelope.source;
            request.outcome.tag = envelope.tag;
            request.outcome.bytes = total.min(receive.data.size());
            if total > receive.data.size() {
                request.outcome.truncated = Some(total);
            }
        }
        self.account(from, total, ack, token);
    }

    /// Tells the sender of a matched message what it wants to know: acknowledgement and token.
    #[inline]
    fn account(&mut self, from: u32, total: u64, ack: u32, token: bool) {
        self.monitor.counters.received.add(total);
        if ack != 0 {
            self.peers[from as usize]
                .controls
                .push_back(Control::Ack { sender: ack });
            self.list(from);
        }
        if token {
            let limits = self.monitor.tuning.limits();
            let peer = &mut self.peers[from as usize];
            peer.owed += 1;
            peer.owed_bytes += total;
            if peer.credit_is_due(&limits) {
                self.list(from);
            }
        }
    }

    fn keep(&mut self, envelope: Envelope, from: u32, total: u64, ack: u32, body: Body) -> u32 {
        let key = self.messages.insert(Message {
            envelope,
            from,
            total,
            ack,
            body,
        });
        self.matching.unexpected(envelope, key.index);
        self.note_unexpected();
        self.monitor.counters.unexpected.add(total);
        self.monitor.events.note(EventKind::MessageUnexpected, || {
            let Envelope {
                context,
                source,
                tag,
            } = envelope;
            [u64::from(source), u64::from(tag), u64::from(context), total]
        });
        self.kept += 1;
        key.index
    }

    /// The receive that a message goes to.
    #[inline]
    fn arrive(&mut self, envelope: Envelope) -> Option<u32> {
        counters::add(&self.monitor.counters.match_attempts, 1);
        let found = self.matching.arrive(envelope);
        if found.is_some() {
            self.note_posted();
        }
        found
    }

    /// The message that a receive takes.
    #[inline]
    fn post(&mut self, pattern: Pattern, receive: u32) -> Option<u32> {
        counters::add(&self.monitor.counters.match_attempts, 1);
        let found = self.matching.post(pattern, receive);
        match found {
            Some(_) => self.note_unexpected(),
            None => self.note_posted(),
        }
        found
    }

    #[inline]
    fn note_posted(&self) {
        let posted = self.matching.posted_len();
        self.monitor.counters.set_level(Level::Posted, posted);
    }

    #[inline]
    fn note_unexpected(&self) {
        let unexpected = self.matching.unexpected_len();
        self.monitor
            .counters
            .set_level(Level::Unexpected, unexpected);
    }

    /// Gives an unexpected message, which the matching has let go, to a receive.
    fn deliver(&mut self, message: u32, index: u32) {
        let Some(message_) = self.messages.remove(message) else {
            return;
        };
        let Message {
            envelope,
            from,
            total,
            ack,
            body,
        } = message_;
        let token = !matches!(body, Body::Rendezvous { .. });
        self.matched(index, from, envelope, total, ack, token);
        match body {
            Body::Short(bytes) => self.data(index, &bytes[..total as usize]),
            Body::Bytes(bytes) if (bytes.len() as u64) < total && self.recovery.is_dead(from) => {
                self.fail_receive(index);
            }
            Body::Rendezvous { .. } if self.recovery.is_dead(from) => self.fail_receive(index),
            Body::Bytes(bytes) => {
                if (bytes.len() as u64) < total {
                    // The rest is on its way and goes straight to the buffer.
                    self.peers[from as usize].assembling = Some(Target::Request(index));
                }
                self.data(index, &bytes);
            }
            Body::Rendezvous { sender, words } => self.meetings.push(Meeting {
                request: index,
                from,
                sender,
                words,
            }),
        }
    }

    /// The sender has died before its message was here.
    #[cold]
    fn fail_receive(&mut self, index: u32) {
        if let Some(request) = self.requests.at(index) {
            request.outcome.failed = Some(Failed::Process);
        }
        self.end(index);
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

    /// A direct copy is complete on this side.
    fn copied(&mut self, index: u32) {
        if let Some(Request {
            kind: Kind::Receive(receive),
            ..
        }) = self.requests.at(index)
        {
            receive.arrived = receive.total.unwrap_or(0);
        }
        self.end(index);
    }

    #[inline]
    fn end(&mut self, index: u32) {
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

    fn stage(&mut self, index: u32, stage: SendStage) {
        if let Some(Request {
            kind: Kind::Send(send),
            ..
        }) = self.requests.at(index)
        {
            send.stage = stage;
        }
    }

    #[inline]
    fn list(&mut self, peer: u32) {
        let entry = &mut self.peers[peer as usize];
        if !entry.listed {
            entry.listed = true;
            self.active.push(peer);
        }
    }

    fn take_loopback(&mut self) {
        let me = self.me;
        for _ in 0..self.loopback.len() {
            if let Some((head, args, bytes)) = self.loopback.pop_front() {
                let payload = &bytes;
                self.packet(
                    me,
                    Packet {
                        head,
                        args,
                        payload,
                    },
                );
            }
        }
    }
}

impl Request {
    fn new(kind: Kind) -> Request {
        Request {
            kind,
            outcome: Outcome::default(),
            done: false,
            detached: false,
            lost: false,
        }
    }

    /// What an event tells of it: kind, source, tag, bytes.
    fn words(&self) -> [u64; 4] {
        let Outcome {
            source, tag, bytes, ..
        } = self.outcome;
        match &self.kind {
            Kind::Send(send) => {
                let envelope = send.envelope;
                let (source, tag) = (u64::from(envelope.source), u64::from(envelope.tag));
                [0, source, tag, send.data.size()]
            }
            Kind::Receive(_) => [1, u64::from(source), u64::from(tag), bytes],
            Kind::Collective(_) => [2, 0, 0, 0],
            Kind::Task(_) | Kind::Promise(..) => [3, u64::from(source), u64::from(tag), bytes],
        }
    }
}

impl Peer {
    #[inline]
    fn has_tokens(&self, size: u64, limits: &Limits) -> bool {
        self.unmatched < limits.tokens && self.unmatched_bytes + size <= limits.token_bytes
    }

    #[inline]
    fn credit_is_due(&self, limits: &Limits) -> bool {
        self.owed > limits.tokens / 4 || self.owed_bytes > limits.token_bytes / 4
    }

    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.controls.is_empty() && self.streams.is_empty()
    }
}

#[inline]
fn head(kind: u8, envelope: Envelope, word: u32) -> Head {
    Head {
        kind,
        context: envelope.context,
        source: envelope.source,
        tag: envelope.tag,
        word,
    }
}

#[inline]
fn envelope(head: Head) -> Envelope {
    Envelope {
        context: head.context,
        source: head.source,
        tag: head.tag,
    }
}

fn arrived(envelope: Envelope, bytes: u64) -> Arrived {
    Arrived {
        source: envelope.source,
        tag: envelope.tag,
        bytes,
    }
}

/// The `place`-th eight bytes of a control packet; 0 when it is too short.
fn number(payload: &[u8], place: usize) -> u64 {
    payload.get(place * 8..place * 8 + 8).map_or(0, |b| {
        u64::from_ne_bytes(b.try_into().expect("eight bytes"))
    })
}
