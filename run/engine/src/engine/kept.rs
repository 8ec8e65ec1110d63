//! Messages whose bytes the sender keeps, so that their sends complete before the receiver has
//! room.
//!
//! A standard send that waits for room or for credits ties its program to the receiver's pace.
//! Programs that were written for implementations with large buffers rely on running ahead by some
//! megabytes. So a send that has waited for a while, and each one to the same receiver behind it,
//! is copied and complete. The request stays what it was, in the same place of the same queue and
//! with the same envelope: order, matching, cancelling and failures do not change, only the program
//! does not wait for it. An offer to copy directly from the program's memory is revoked; the
//! receiver declines it when it comes to it, and the message is sent as bytes.
//!
//! What is kept is bounded by [`Limits::send_buffer`]; beyond, sends wait as if there were none.

use margay_sys_os::user::Mem;

use super::*;
use crate::call::Limits;

/// What a kept message counts beside its bytes: its request, its place in the queue, and what is
/// known of it at the receiver.
const EACH_BYTES: u64 = 256;

/// What a rank knows of its kept messages.
#[derive(Default)]
pub(super) struct KeptSends {
    /// What they count, in bytes: [`Limits::send_buffer`] bounds it.
    pub(super) bytes: u64,
    /// Sends that have been begun, as a count.
    pub(super) begun: u64,
    /// The receiver all sends to which have been kept that can be, and `begun` then.
    looked: Option<(u32, u64)>,
    /// How long sends have waited for the network in vain.
    waited_in_vain_ns: u64,
}

/// A blocking send waits for a connection to the receiver, and until the network has taken all of
/// the message. With an earlier return that would stay here until the next call of MPI, while the
/// receiver waits for it. A receiver that does not answer is not in a call of MPI, or its host is
/// busy. A rank that gives work to a thousand busy ones must not wait a thousand times: this many
/// nanoseconds are waited in vain in all, half of what is left of them by one send.
const IN_VAIN_NS: u64 = 800_000_000;

impl Engine {
    /// Keeps the message of a send behind others to the same receiver that are kept: their program
    /// does not wait for the receiver, and need not for this one.
    #[inline]
    pub fn keep_behind(&mut self, id: ReqId) {
        if self.state.kept_sends.bytes == 0 {
            return;
        }
        if let Some(to) = self.state.could_keep(id)
            && self.state.peers[to as usize].kept_sends > 0
        {
            self.keep_send(id);
        }
    }

    /// How much longer a send to `to`, which has waited for `waited_ns` nanoseconds, shall wait
    /// because its connection is being made. None when it need not wait for that.
    #[cold]
    pub fn meets_within(&mut self, to: u32, waited_ns: u64) -> Option<u64> {
        let is_meeting = self.transport.is_meeting(to);
        is_meeting.then(|| self.left_of(waited_ns))?
    }

    /// How much longer a send to `to` that is complete shall wait because the network has not taken
    /// all of its bytes. None when it need not.
    #[cold]
    pub fn pushes_within(&mut self, to: u32, waited_ns: u64) -> Option<u64> {
        self.is_queued(to).then(|| self.left_of(waited_ns))?
    }

    /// Whether the network has not taken all bytes yet that were sent.
    #[inline]
    #[must_use]
    pub fn has_queued(&self) -> bool {
        self.transport.has_queued()
    }

    /// The same for those to one rank.
    #[must_use]
    pub fn is_queued(&self, to: u32) -> bool {
        self.transport.is_queued(to)
    }

    /// To which rank a request sends, if it does.
    #[must_use]
    pub fn receiver_of(&self, id: ReqId) -> Option<u32> {
        match self.state.requests.get(id)?.kind {
            Kind::Send(ref send) => Some(send.to),
            _ => None,
        }
    }

    /// What is left of the time for which a send waits for the network after `waited_ns`.
    fn left_of(&mut self, waited_ns: u64) -> Option<u64> {
        let kept = &mut self.state.kept_sends;
        let most_ns = (IN_VAIN_NS - kept.waited_in_vain_ns) / 2;
        let left = most_ns.checked_sub(waited_ns).filter(|&left| left > 0);
        if left.is_none() {
            kept.waited_in_vain_ns += most_ns;
        }
        left
    }

    /// Keeps the messages for `to` of all standard sends that are not complete, in the order of
    /// their calls, as far as there is room. Returns whether any was kept.
    #[cold]
    pub fn keep_sends(&mut self, to: u32) -> bool {
        // There may be tens of thousands, and a rank that waits looks whenever it has slept: it
        // looks where it may find one.
        let kept = &self.state.kept_sends;
        if kept.looked == Some((to, kept.begun)) || self.state.is_nearly_full(to) {
            return false;
        }
        let looked = Some((to, kept.begun));
        let (mut any, mut lacks_room) = (false, false);
        for index in self.state.requests.indices() {
            if let Some(id) = self.state.requests.key_at(index)
                && self.state.could_keep(id) == Some(to)
            {
                lacks_room |= !self.state.has_room_to_keep(id);
                any |= self.keep_send(id);
            }
        }
        self.state.kept_sends.looked = looked.filter(|_| !lacks_room);
        any
    }

    /// Copies what the send would read from its program's memory, from which it is free then.
    /// Returns false without room, or when the receiver copies from there already.
    fn keep_send(&mut self, id: ReqId) -> bool {
        if !self.state.has_room_to_keep(id) {
            return false;
        }
        let Some(request) = self.state.requests.get_mut(id) else {
            return false;
        };
        let Kind::Send(send) = &mut request.kind else {
            return false;
        };
        if let SendStage::Offered(Some(ticket)) = send.stage
            && !self.transport.revoke(ticket)
        {
            return false;
        }
        let size = send.data.size();
        let mut bytes = vec![0; size as usize];
        send.data.walk().pack(&send.data, &mut bytes);
        send.walk = Walk::Dense(send.walk.position());
        send.data = Data::bytes(Mem::from_vec(bytes), size);
        request.kept_bytes = size + EACH_BYTES;
        self.state.kept_sends.bytes += request.kept_bytes;
        self.state.peers[send.to as usize].kept_sends += 1;
        // Threads that wait for it see that it is over.
        self.state.ended += 1;
        true
    }

    /// Returns what a kept message waits for, if there is one: the end of the program waits for it.
    #[must_use]
    pub fn pending_kept(&self) -> Option<Pending> {
        if self.state.kept_sends.bytes == 0 {
            return None;
        }
        // It may be one of tens of thousands, and is asked for whenever the program has waited: the
        // next one that goes out is looked for where it waits.
        let is_kept = |r: &&Request| r.kept_bytes != 0;
        let requests = &self.state.requests;
        let queues = self.state.peers.iter().filter(|peer| peer.kept_sends > 0);
        let mut queued = queues.flat_map(|peer| &peer.queue);
        let next = queued.find_map(|&index| requests.look(index).filter(is_kept));
        let kept = next.or_else(|| requests.find(|r| is_kept(&r)))?;
        let Kind::Send(send) = &kept.kind else {
            return None;
        };
        Some(Pending::Send(
            send.to,
            send.envelope.tag,
            send.envelope.context,
        ))
    }
}

impl State {
    /// Returns the receiver of a send whose message may be kept, as far as its kind and stage go.
    fn could_keep(&self, id: ReqId) -> Option<u32> {
        let request = self.requests.get(id)?;
        let Kind::Send(send) = &request.kind else {
            return None;
        };
        let waits = matches!(
            send.stage,
            SendStage::Queued | SendStage::Eager | SendStage::Offered(_)
        );
        let limits = self.monitor.tuning.limits();
        let may = !request.done
            && !request.detached
            && !request.lost
            && request.kept_bytes == 0
            && send.mode != Mode::Synchronous
            && send.withdrawal == Withdrawal::None
            && send.data.size() <= limits.eager;
        (may && waits).then_some(send.to)
    }

    /// Whether a send waits that would not, were there more room for kept messages.
    pub(super) fn lacks_room_to_keep(&self, id: ReqId) -> bool {
        let to = self.could_keep(id);
        to.is_some_and(|to| self.is_nearly_full(to) || !self.has_room_to_keep(id))
    }

    /// Whether messages to this receiver are kept and there is room for few more: it goes on when
    /// there is room for many.
    fn is_nearly_full(&self, to: u32) -> bool {
        let Limits { send_buffer, .. } = self.monitor.tuning.limits();
        let left = send_buffer.saturating_sub(self.kept_sends.bytes);
        self.peers[to as usize].kept_sends > 0 && left < send_buffer / 8
    }

    fn has_room_to_keep(&self, id: ReqId) -> bool {
        let Some(Request {
            kind: Kind::Send(send),
            ..
        }) = self.requests.get(id)
        else {
            return false;
        };
        let Limits { send_buffer, .. } = self.monitor.tuning.limits();
        self.kept_sends.bytes + send.data.size() + EACH_BYTES <= send_buffer
    }

    /// A kept message has gone, or will not go: its room is free again.
    #[cold]
    pub(super) fn release_kept(&mut self, index: u32) {
        if let Some(request) = self.requests.at(index)
            && request.kept_bytes != 0
            && let Kind::Send(send) = &request.kind
        {
            self.kept_sends.bytes -= request.kept_bytes;
            self.peers[send.to as usize].kept_sends -= 1;
            request.kept_bytes = 0;
        }
    }
}
