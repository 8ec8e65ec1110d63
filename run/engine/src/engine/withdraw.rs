//! Cancelling: taking back a receive that is not matched, and a send whose message is not.
//!
//! What has not left is taken back here. A message that has gone out is asked back by WITHDRAW: it
//! is dropped where it waits unmatched, and only there, so either it is received or it is
//! cancelled. WITHDRAW follows its message in the pipe, so the message is there or matched when it
//! comes. An offer is known by its request. An eager message is known by its number among those of
//! its sender, which both sides count anyway, for the credits: what has been sent is what was
//! credited and what is unmatched, what has arrived is what was returned, what is owed and what is
//! kept.
//!
//! The answer needs the receiver to make progress, not to receive.

use super::*;
use crate::slab::Key;

/// An eager message that has been sent, to be taken back by [`Engine::withdraw_sent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// World rank of the receiver.
    pub to: u32,
    /// As it was sent.
    pub envelope: Envelope,
    /// Which of the eager messages to this receiver it is, modulo 2^32: no more are under way.
    pub number: u32,
}

impl Engine {
    /// As [`send_at_once`](Self::send_at_once), and returns the message's [`Sent::number`].
    #[inline]
    pub fn isend_at_once(&mut self, piece: Piece, to: u32, envelope: Envelope) -> Option<u32> {
        let sent = self.send_at_once(piece, to, envelope);
        sent.then(|| self.state.peers[to as usize].sent())
    }

    /// Cancels a receive that has not been matched or a send whose message has not been. What has
    /// gone out needs the receiver's answer, also where the request was done already; the outcome
    /// tells whether it worked. For messages of the rank to itself that is known at once.
    pub fn cancel(&mut self, id: ReqId) {
        if self.take_back(id) {
            return;
        }
        let Some(Request {
            done,
            outcome,
            kind: Kind::Send(send),
            ..
        }) = self.state.requests.get_mut(id)
        else {
            return;
        };
        if send.withdrawal != Withdrawal::None || outcome.failed.is_some() || outcome.cancelled {
            return;
        }
        let to = send.to;
        match (send.stage, *done) {
            (SendStage::Eager, _) => send.withdrawal = Withdrawal::Wanted,
            (SendStage::Offered(_) | SendStage::Unacknowledged, false) => {
                self.state.ask_back(id.index);
            }
            (SendStage::Sent, true) if !self.state.recovery.is_dead(to) => {
                *done = false;
                self.state.ask_back(id.index);
            }
            _ => {}
        }
        self.push_asked(to);
    }

    /// Sends what asks a message back. This rank itself answers at once.
    fn push_asked(&mut self, to: u32) {
        self.push_peer(to);
        if to == self.state.me {
            self.state.take_loopback();
            self.push_peer(to);
            self.state.take_loopback();
        }
    }

    /// Asks an eager message back whose send is over: a request whose outcome tells whether it was
    /// cancelled.
    pub fn withdraw_sent(&mut self, sent: Sent) -> ReqId {
        let Sent {
            to,
            envelope,
            number,
        } = sent;
        let data = Data::bytes(margay_sys_os::user::Mem::empty(), 0);
        let walk = data.walk();
        let key = self.state.requests.insert(Request::new(Kind::Send(Send {
            to,
            envelope,
            mode: Mode::Standard,
            data,
            walk,
            stage: SendStage::Sent,
            number: Some(number),
            withdrawal: Withdrawal::None,
        })));
        if self.state.recovery.is_dead(to) {
            self.state.end(key.index);
        } else {
            self.state.ask_back(key.index);
            self.push_asked(to);
        }
        key
    }

    /// Cancels what needs no answer: a receive that has not been matched, a send of which nothing
    /// has gone out. Returns whether it was one.
    pub(super) fn take_back(&mut self, id: ReqId) -> bool {
        let Some(request) = self.state.requests.get_mut(id).filter(|r| !r.done) else {
            return false;
        };
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
            self.state.end_cancelled(id.index);
        }
        withdrawn
    }
}

impl State {
    /// Asks the receiver for a message back that has gone out.
    pub(super) fn ask_back(&mut self, index: u32) {
        let request = self.requests.key_at(index);
        if let Some(request) = request
            && let Some(Request {
                kind: Kind::Send(send),
                ..
            }) = self.requests.at(index)
        {
            send.withdrawal = Withdrawal::Asked;
            let to = send.to;
            let control = Control::Withdraw { request };
            self.peers[to as usize].controls.push_back(control);
            self.list(to);
        }
    }

    /// Returns what a request that still asks its message back says of it: envelope and number.
    pub(super) fn asks_back(&self, id: ReqId) -> Option<(Envelope, Option<u32>)> {
        match self.requests.get(id)? {
            Request {
                done: false,
                kind: Kind::Send(send),
                ..
            } => Some((send.envelope, send.number)),
            _ => None,
        }
    }

    /// A sender asks a message back: it is dropped if nothing has matched it.
    #[cold]
    pub(super) fn withdraw(&mut self, from: u32, head: Head, payload: &[u8]) {
        let request = number(payload, 0);
        let eager = (number(payload, 1) != 0).then_some(head.word);
        let messages = &self.messages;
        let is_it = |&index: &u32| {
            messages.look(index).is_some_and(|m| {
                let same = match m.body {
                    Body::Rendezvous { sender, .. } => eager.is_none() && sender == request,
                    Body::Fetched { .. } => false,
                    _ => m.number == eager,
                };
                same && m.from == from
            })
        };
        let found = self.matching.discard(envelope(head), is_it);
        let message = found.and_then(|index| self.messages.remove(index));
        if let Some(message) = &message {
            self.note_unexpected();
            if message.number.is_some() {
                self.peers[from as usize].kept -= 1;
                self.return_credit(from, message.total);
            }
        }
        let gone = message.is_some();
        let control = Control::Withdrawn { request, gone };
        self.peers[from as usize].controls.push_back(control);
        self.list(from);
    }

    /// The answer: whether the message is gone or somebody receives it. Counts if it was asked for.
    #[cold]
    pub(super) fn withdrawn(&mut self, from: u32, request: u64, gone: bool) {
        let id = Key::from_bits(request);
        let Some(Request {
            done: false,
            kind: Kind::Send(send),
            ..
        }) = self.requests.get_mut(id)
        else {
            return;
        };
        if send.to != from || send.withdrawal != Withdrawal::Asked {
            return;
        }
        if gone {
            if let SendStage::Offered(Some(ticket)) = send.stage {
                self.declined.push(ticket);
                self.copies.retain(|copy| copy.ticket != ticket);
            }
            self.end_cancelled(id.index);
        } else if send.stage == SendStage::Sent {
            self.end(id.index);
        }
    }

    fn end_cancelled(&mut self, index: u32) {
        if let Some(request) = self.requests.at(index) {
            request.outcome.cancelled = true;
        }
        self.end(index);
    }
}
