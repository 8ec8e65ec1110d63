//! The values of calls to the engine: how messages are sent, what names a request, how requests
//! end.

use crate::slab::Key;

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
    pub credits: u32,
    /// Eager bytes that may be unmatched at one receiver.
    pub credit_bytes: u64,
    /// Bytes of messages that a sender keeps for receivers without room.
    pub send_buffer: u64,
}

impl Default for Limits {
    /// 64 KiB: from there on a handshake costs less than a second copy would if the receive were
    /// not posted. 2,048 messages and 512 KiB: enough that a sender with a receiver that keeps up
    /// never runs out, little enough for every pair to have it. 8 MiB: more than other
    /// implementations have, and programs were written for those.
    fn default() -> Self {
        Limits {
            eager: 64 << 10,
            credits: 2048,
            credit_bytes: 512 << 10,
            send_buffer: 8 << 20,
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
    /// The request was cancelled: nothing was received, or nobody receives what was sent.
    pub cancelled: bool,
    /// It cannot be completed.
    pub failed: Option<Failed>,
    /// The message was longer than the buffer: its size.
    pub truncated: Option<u64>,
    /// The message ended within a basic element of the receive's datatype.
    pub split: bool,
}

impl Outcome {
    /// Whether all went as the program wanted it.
    #[inline]
    #[must_use]
    pub fn is_faultless(&self) -> bool {
        !self.cancelled && !self.split && self.failed.is_none() && self.truncated.is_none()
    }

    /// The outcome where exactly `bytes` bytes had to come: `truncated` are those that were sent if
    /// they were more or fewer.
    #[inline]
    #[must_use]
    pub fn of_exactly(self, bytes: u64) -> Outcome {
        let sent = self.truncated.unwrap_or(self.bytes);
        Outcome {
            bytes,
            truncated: (sent != bytes).then_some(sent),
            ..self
        }
    }
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

/// What an unfinished request waits for, for displays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// A message from that world rank (none: any) with that tag (none: any).
    Receive(Option<u32>, Option<u32>, u32),
    /// That world rank to take the message with that tag.
    Send(u32, u32, u32),
    /// The same, while there is no room to keep the message meanwhile.
    FullSend(u32, u32, u32),
    /// Other ranks in a collective operation; one of them, if it is known.
    Collective(Option<u32>, u32),
    /// One of several things; among them, if it is known, that this world rank takes a message.
    OneOf(Option<u32>),
    /// Something of another job, or of a thread of the program.
    Elsewhere,
}
