//! What is known of another rank.

use std::collections::VecDeque;

use margay_sys_fabric as fabric;

use crate::message::Token;

/// Messages to one rank that the provider may have at once. More packets wait together for the next
/// one.
pub(crate) const MOST_SENDING: u32 = 8;
/// Messages to one rank that wait for the provider. Beyond, the engine keeps its packets.
pub(crate) const MOST_WAITING: usize = 2;

#[derive(Default)]
pub(crate) enum State {
    /// Nothing has been sent yet, and nobody has come.
    #[default]
    Idle,
    /// It has been sent this rank's address; its own is not known yet.
    Greeted,
    Up(fabric::Peer),
    /// It has gone or is lost. What is sent to it is dropped.
    Gone,
}

/// A message that waits to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) buffer: usize,
    pub(crate) len: usize,
}

/// A message that has come, and where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) number: u64,
    pub(crate) buffer: usize,
    pub(crate) len: usize,
}

#[derive(Default)]
pub(crate) struct Peer {
    pub(crate) state: State,
    /// What it has to show in its messages.
    pub(crate) own_token: Option<Token>,
    /// What this rank has to show.
    pub(crate) token: Token,
    pub(crate) waiting: VecDeque<Waiting>,
    /// What has come and not been handed over: no more than there are buffers.
    pub(crate) held: Vec<Held>,
    /// Messages that the provider has.
    pub(crate) sending: u32,
    /// Messages that the provider has taken, and those that have come.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Messages that it has said have come there.
    pub(crate) known: u64,
    /// It waits to hear that this many have come here.
    pub(crate) owed: Option<u64>,
    /// When it was asked last how many have come there, 0 when it has answered.
    pub(crate) asked_ns: u64,
    /// Messages that had been sent when it was asked last.
    pub(crate) asked_sent: u64,
    /// It has answered so often without a message having come.
    pub(crate) standstills: u32,
    /// The fabric has reported an error: the system's number for it, and when.
    pub(crate) broken: Option<(i32, u64)>,
}

impl Peer {
    /// Whether there has been a connection to it.
    pub(crate) fn is_met(&self) -> bool {
        matches!(self.state, State::Greeted | State::Up(_))
    }

    /// Takes the message whose turn it is, if it has come.
    pub(crate) fn next(&mut self) -> Option<Held> {
        let at = (self.held.iter()).position(|held| held.number == self.received)?;
        self.received += 1;
        Some(self.held.swap_remove(at))
    }

    /// Whether all that was sent to it has arrived, or nothing can any more.
    pub(crate) fn has_arrived(&self) -> bool {
        matches!(self.state, State::Gone) || (self.waiting.is_empty() && self.known >= self.sent)
    }
}
