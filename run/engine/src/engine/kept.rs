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

impl Engine {
    /// Keeps the message of a send behind others to the same receiver that are kept: their program
    /// does not wait for the receiver, and need not for this one.
    #[inline]
    pub fn keep_behind(&mut self, id: ReqId) {
        if self.state.kept_bytes == 0 {
            return;
        }
        if let Some(to) = self.state.could_keep(id)
            && self.state.peers[to as usize].kept_sends > 0
        {
            self.keep_send(id);
        }
    }

    /// Keeps the messages for `to` of all standard sends that are not complete, in the order of
    /// their calls, as far as there is room. Returns whether any was kept.
    #[cold]
    pub fn keep_sends(&mut self, to: u32) -> bool {
        let mut any = false;
        for index in self.state.requests.indices() {
            if let Some(id) = self.state.requests.key_at(index)
                && self.state.could_keep(id) == Some(to)
            {
                any |= self.keep_send(id);
            }
        }
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
        self.state.kept_bytes += request.kept_bytes;
        self.state.peers[send.to as usize].kept_sends += 1;
        // Threads that wait for it see that it is over.
        self.state.ended += 1;
        true
    }

    /// Returns what a kept message waits for, if there is one: the end of the program waits for it.
    #[must_use]
    pub fn pending_kept(&self) -> Option<Pending> {
        if self.state.kept_bytes == 0 {
            return None;
        }
        let is_kept = |r: &Request| r.kept_bytes != 0;
        let Kind::Send(send) = &self.state.requests.find(is_kept)?.kind else {
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
        self.could_keep(id).is_some() && !self.has_room_to_keep(id)
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
        self.kept_bytes + send.data.size() + EACH_BYTES <= send_buffer
    }

    /// A kept message has gone, or will not go: its room is free again.
    #[cold]
    pub(super) fn release_kept(&mut self, index: u32) {
        if let Some(request) = self.requests.at(index)
            && request.kept_bytes != 0
            && let Kind::Send(send) = &request.kind
        {
            self.kept_bytes -= request.kept_bytes;
            self.peers[send.to as usize].kept_sends -= 1;
            request.kept_bytes = 0;
        }
    }
}
