//! What the flight recorder learns of messages.

use margay_core_record::{Message as Recorded, NO_PEER};

use super::*;

impl State {
    /// The program sends a message, or has received one.
    #[inline]
    pub(super) fn note_message(
        &self,
        kind: RecordKind,
        peer: u32,
        envelope: Envelope,
        bytes: u64,
        request: u32,
    ) {
        self.monitor.recording.message(Recorded {
            kind,
            peer,
            tag: envelope.tag,
            context: envelope.context,
            bytes,
            request,
        });
    }

    /// The program posts a receive from a world rank, or from any.
    #[inline]
    pub(super) fn note_posted_receive(&self, pattern: Pattern, from: Option<u32>, request: u32) {
        self.monitor.recording.message(Recorded {
            kind: RecordKind::Post,
            peer: from.unwrap_or(NO_PEER),
            tag: pattern.tag().unwrap_or(u32::MAX),
            context: pattern.context,
            bytes: 0,
            request,
        });
    }

    /// The outcome of a request that has ended is taken: if it received a message of the program,
    /// the program has it now.
    #[inline]
    pub(super) fn note_received(&self, index: u32) {
        if let Some(Request {
            kind: Kind::Receive(receive),
            outcome,
            ..
        }) = self.requests.look(index)
            && let Some(from) = receive.from
            && receive.total.is_some()
        {
            let envelope = Envelope {
                context: receive.pattern.context,
                source: outcome.source,
                tag: outcome.tag,
            };
            self.note_message(RecordKind::Receive, from, envelope, outcome.bytes, index);
        }
    }
}
