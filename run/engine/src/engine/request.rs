//! A request and an unexpected message as the engine keeps them; their states are drawn in the
//! crate's README.

use super::*;

pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) outcome: Outcome,
    pub(super) done: bool,
    /// Nobody will ask for the outcome.
    pub(super) detached: bool,
    /// Let go of: it has failed for the program, and stays for what the other side may still send.
    pub(super) lost: bool,
    /// What its message counts of those that are kept; 0: its bytes are the program's.
    pub(super) kept_bytes: u64,
}

pub(super) enum Kind {
    Send(Send),
    Receive(Receive),
    /// None while it runs.
    Collective(Option<Box<Execution>>),
    /// None while it runs.
    Task(Option<Box<dyn Task>>),
    /// Somebody else ends it, after an answer of this rank, in this context.
    Promise(u32, u32),
    /// A collective through shared memory, in this context.
    Exchange(u32),
}

impl Kind {
    /// Whether this side has nothing left to do that the other side may rely on.
    pub(super) fn is_over_here(&self) -> bool {
        match self {
            Kind::Receive(_) => true,
            Kind::Send(send) => send.stage == SendStage::Sent,
            _ => false,
        }
    }
}

pub(super) struct Send {
    pub(super) to: u32,
    pub(super) envelope: Envelope,
    pub(super) mode: Mode,
    pub(super) data: Data,
    pub(super) walk: Walk,
    pub(super) stage: SendStage,
    /// Which of the eager messages to this peer it is; none while it is none.
    pub(super) number: Option<u32>,
    pub(super) withdrawal: Withdrawal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendStage {
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
    /// All is sent and the request would be done, but it was cancelled: the receiver's answer is
    /// awaited.
    Sent,
}

/// What is known of taking a message back of which something has gone out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Withdrawal {
    None,
    /// To be asked for when all of it has gone out.
    Wanted,
    Asked,
}

pub(super) struct Receive {
    pub(super) data: Data,
    pub(super) walk: Walk,
    pub(super) pattern: Pattern,
    /// World rank of the sender that was asked for, for displays.
    pub(super) from: Option<u32>,
    /// What the layer above keeps with a receive that it names by its place; 0 when it does not.
    pub(super) word: u32,
    /// The call site that posted it, when the layer above names it by its place; else 0.
    pub(super) site: u16,
    /// Matched: the message's size.
    pub(super) total: Option<u64>,
    /// Bytes that have arrived, also those beyond the buffer.
    pub(super) arrived: u64,
    /// The transport may have begun to write the message that this will be matched with.
    pub(super) landing: bool,
}

impl Receive {
    /// Its message of `total` bytes has been found: notes size and sender.
    #[inline]
    pub(super) fn matched(
        &mut self,
        outcome: &mut Outcome,
        from: u32,
        envelope: Envelope,
        total: u64,
    ) {
        let room = self.data.size();
        self.total = Some(total);
        self.from = Some(from);
        outcome.source = envelope.source;
        outcome.tag = envelope.tag;
        outcome.bytes = total.min(room);
        if total > room {
            outcome.truncated = Some(total);
        } else if total < room {
            outcome.split = self.data.splits(total);
        }
    }
}

/// An unexpected message.
pub(super) struct Message {
    pub(super) envelope: Envelope,
    pub(super) from: u32,
    pub(super) total: u64,
    /// 0, or 1 + the sender's request that wants to know when this is matched.
    pub(super) ack: u32,
    /// As the sender's [`Send::number`].
    pub(super) number: Option<u32>,
    pub(super) body: Body,
}

pub(super) enum Body {
    Short([u8; SHORT]),
    /// What has arrived so far.
    Bytes(Vec<u8>),
    Rendezvous {
        /// The sender's request, a [`Key`] as a number.
        sender: u64,
        words: [u64; 3],
    },
    /// As `Bytes`, of a message that was a `Rendezvous` and has been fetched.
    Fetched {
        /// How what is still to come finds this message; none where nothing is.
        fetch: Option<u32>,
        bytes: Vec<u8>,
    },
}

impl Body {
    /// Whether it came eagerly, on a credit of its sender.
    pub(super) fn has_credit(&self) -> bool {
        !matches!(self, Body::Rendezvous { .. } | Body::Fetched { .. })
    }
}

impl Request {
    pub(super) fn new(kind: Kind) -> Request {
        Request {
            kind,
            outcome: Outcome::default(),
            done: false,
            detached: false,
            lost: false,
            kept_bytes: 0,
        }
    }

    /// Returns what an event reports of it: kind, source, tag, bytes.
    pub(super) fn words(&self) -> [u64; 4] {
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
            Kind::Collective(_) | Kind::Exchange(_) => [2, 0, 0, 0],
            Kind::Task(_) | Kind::Promise(..) => [3, u64::from(source), u64::from(tag), bytes],
        }
    }
}
