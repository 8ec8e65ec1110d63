//! What comes in: the transport's packets, and what becomes of a message that they begin or go on
//! with.

use super::*;

/// Bytes of memory that are taken for a message in fragments before they have arrived.
const MOST_AHEAD: u64 = 1 << 20;

impl Sink for State {
    #[inline]
    fn packet(&mut self, from: u32, packet: Packet<'_>) {
        let Packet {
            head,
            args,
            payload,
        } = packet;
        if self.recovery.restricted && self.refuse(from, head, args, payload) {
            return;
        }
        match head.kind {
            EAGER => self.eager(from, head, payload),
            FIRST => self.first(from, head, args[0], payload),
            MORE => self.more(from, payload),
            RTS => self.request_to_send(from, head, payload),
            CTS => self.clear(from, head.word, number(payload, 0)),
            DATA => self.data_for(args[0], payload),
            ACK => self.acknowledged(from, head.word),
            CREDIT => {
                let peer = &mut self.peers[from as usize];
                let matched = number(payload, 0);
                peer.credited = peer.credited.wrapping_add(matched as u32);
                peer.unmatched = peer.unmatched.saturating_sub(matched as u32);
                peer.unmatched_bytes = peer.unmatched_bytes.saturating_sub(number(payload, 1));
            }
            REVOKE if head.word < recover::NUMBERS => self.revocations.push(head.word),
            REFUSED => self.refusals.push((from, head.word)),
            WITHDRAW => self.withdraw(from, head, payload),
            WITHDRAWN => self.withdrawn(from, number(payload, 0), head.word != 0),
            // A kind of a later version, which nothing we sent can have asked for, or a
            // communicator that there cannot be.
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
                self.fill(index, from, envelope, payload);
                self.account(from, total, head.word, true);
                self.end(index);
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

    /// A receive has found its message, all of which is here.
    #[inline]
    fn fill(&mut self, index: u32, from: u32, envelope: Envelope, payload: &[u8]) {
        if let Some(request) = self.requests.at(index)
            && let Kind::Receive(receive) = &mut request.kind
        {
            receive.matched(&mut request.outcome, from, envelope, payload.len() as u64);
            receive.walk.unpack(&receive.data, payload);
            receive.arrived = payload.len() as u64;
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
            split: false,
        };
        self.note_message(RecordKind::Receive, from, envelope, total.min(room), 0);
        self.account(from, total, ack, true);
    }

    /// The message needs a request: it is kept as unexpected, and the receive that waits for it is
    /// posted at once by its caller and finds it there.
    fn give_up_waiting(&mut self, envelope: &Envelope) {
        if self.goes_to_waiting(envelope) {
            self.waiting = None;
        }
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
                // What the sender says is to come; more than this is believed when it comes.
                let mut bytes = Vec::with_capacity(total.min(MOST_AHEAD) as usize);
                bytes.extend_from_slice(payload);
                Target::Message(self.keep(envelope, from, total, head.word, Body::Bytes(bytes)))
            }
        };
        self.peers[from as usize].assembling = Some(target);
    }

    fn more(&mut self, from: u32, payload: &[u8]) {
        let is_complete = match self.peers[from as usize].assembling {
            Some(Target::Request(index)) => self.data(index, payload),
            Some(Target::Message(index)) => {
                if let Some(Message {
                    body: Body::Bytes(bytes),
                    total,
                    ..
                }) = self.messages.at(index)
                {
                    bytes.extend_from_slice(payload);
                    bytes.len() as u64 == *total
                } else {
                    false
                }
            }
            None => false,
        };
        if is_complete {
            self.peers[from as usize].assembling = None;
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
                self.rendezvous.push(PendingRendezvous {
                    request: index,
                    from,
                    sender,
                    words,
                });
            }
            None => {
                self.give_up_waiting(&envelope);
                let body = Body::Rendezvous { sender, words };
                let message = self.keep(envelope, from, total, 0, body);
                self.note_late(from, message, (total, words));
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
        // Nobody but the receiver answers an offer, and once: a send that is in a queue, or streams
        // already, would be sent twice.
        let SendStage::Offered(offer) = send.stage else {
            return;
        };
        if send.to != from {
            return;
        }
        if let Some(ticket) = offer {
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

    /// Bytes for a matched receive. Tells whether they were the last.
    #[inline]
    pub(super) fn data(&mut self, index: u32, payload: &[u8]) -> bool {
        let Some(Request {
            kind: Kind::Receive(receive),
            ..
        }) = self.requests.at(index)
        else {
            return false;
        };
        receive.walk.unpack(&receive.data, payload);
        receive.arrived += payload.len() as u64;
        let is_complete = Some(receive.arrived) == receive.total;
        if is_complete {
            self.end(index);
        }
        is_complete
    }

    fn acknowledged(&mut self, from: u32, word: u32) {
        let index = word.wrapping_sub(1);
        let Some(Request {
            kind: Kind::Send(send),
            ..
        }) = self.requests.at(index)
        else {
            return;
        };
        if send.to != from {
            return;
        }
        if send.stage == SendStage::Unacknowledged {
            self.end(index);
        } else {
            // Matched while the last fragments are still on their way out: then the end of the
            // sending is the end of the request.
            send.mode = Mode::Standard;
        }
    }

    /// A receive has found its message: notes size and sender, returns the credit.
    #[inline]
    fn matched(
        &mut self,
        index: u32,
        from: u32,
        envelope: Envelope,
        total: u64,
        ack: u32,
        credit: bool,
    ) {
        if let Some(request) = self.requests.at(index)
            && let Kind::Receive(receive) = &mut request.kind
        {
            receive.matched(&mut request.outcome, from, envelope, total);
        }
        self.account(from, total, ack, credit);
    }

    /// Tells the sender of a matched message what it wants to know: acknowledgement and credit.
    #[inline]
    pub(super) fn account(&mut self, from: u32, total: u64, ack: u32, credit: bool) {
        self.monitor.counters.received.add(total);
        if ack != 0 {
            self.peers[from as usize]
                .controls
                .push_back(Control::Ack { sender: ack });
            self.list(from);
        }
        if credit {
            self.return_credit(from, total);
        }
    }

    #[inline]
    pub(super) fn return_credit(&mut self, from: u32, total: u64) {
        let limits = self.monitor.tuning.limits();
        let peer = &mut self.peers[from as usize];
        peer.owed += 1;
        // What a sender claims may be any number.
        peer.owed_bytes = peer.owed_bytes.saturating_add(total);
        if peer.credit_is_due(&limits) {
            self.list(from);
        }
    }

    fn keep(&mut self, envelope: Envelope, from: u32, total: u64, ack: u32, body: Body) -> u32 {
        let number = match body {
            Body::Rendezvous { .. } | Body::Fetched { .. } => None,
            _ => {
                let peer = &mut self.peers[from as usize];
                peer.kept += 1;
                Some(peer.arrived())
            }
        };
        let key = self.messages.insert(Message {
            envelope,
            from,
            total,
            ack,
            number,
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

    /// Returns the receive that a message goes to.
    #[inline]
    fn arrive(&mut self, envelope: Envelope) -> Option<u32> {
        counters::add(&self.monitor.counters.match_attempts, 1);
        let found = self.matching.arrive(envelope);
        if found.is_some() {
            self.note_posted();
        }
        found
    }

    /// Returns the message that a receive takes.
    #[inline]
    pub(super) fn post(&mut self, pattern: Pattern, receive: u32) -> Option<u32> {
        counters::add(&self.monitor.counters.match_attempts, 1);
        let found = self.matching.post(pattern, receive);
        match found {
            Some(_) => self.note_unexpected(),
            None => self.note_posted(),
        }
        found
    }

    #[inline]
    pub(super) fn note_posted(&self) {
        let posted = self.matching.posted_len();
        self.monitor.counters.set_level(Level::Posted, posted);
    }

    #[inline]
    pub(super) fn note_unexpected(&self) {
        let unexpected = self.matching.unexpected_len();
        self.monitor
            .counters
            .set_level(Level::Unexpected, unexpected);
    }

    /// Gives an unexpected message, which the matching has let go, to a receive.
    pub(super) fn deliver(&mut self, message: u32, index: u32) {
        let Some(message_) = self.messages.remove(message) else {
            return;
        };
        let Message {
            envelope,
            from,
            total,
            ack,
            body,
            ..
        } = message_;
        let credit = body.has_credit();
        if credit {
            self.peers[from as usize].kept -= 1;
        }
        self.matched(index, from, envelope, total, ack, credit);
        match body {
            Body::Short(bytes) => {
                self.data(index, &bytes[..total as usize]);
            }
            Body::Bytes(bytes) if (bytes.len() as u64) < total && self.recovery.is_dead(from) => {
                self.fail_receive(index);
            }
            Body::Fetched { bytes, .. }
                if (bytes.len() as u64) < total && self.recovery.is_dead(from) =>
            {
                self.fail_receive(index);
            }
            Body::Rendezvous { .. } if self.recovery.is_dead(from) => self.fail_receive(index),
            Body::Fetched { fetch, bytes } => {
                self.unfetch(from, total);
                if (bytes.len() as u64) < total {
                    self.fetch_for(fetch, index);
                }
                self.data(index, &bytes);
            }
            Body::Bytes(bytes) => {
                if (bytes.len() as u64) < total {
                    // The rest is on its way and goes straight to the buffer.
                    self.peers[from as usize].assembling = Some(Target::Request(index));
                }
                self.data(index, &bytes);
            }
            Body::Rendezvous { sender, words } => self.rendezvous.push(PendingRendezvous {
                request: index,
                from,
                sender,
                words,
            }),
        }
        self.fetch_more(from);
    }

    /// The sender has died before its message was here.
    #[cold]
    fn fail_receive(&mut self, index: u32) {
        if let Some(request) = self.requests.at(index) {
            request.outcome.failed = Some(Failed::Process);
        }
        self.end(index);
    }

    pub(super) fn take_loopback(&mut self) {
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

#[inline]
pub(super) fn envelope(head: Head) -> Envelope {
    Envelope {
        context: head.context,
        source: head.source,
        tag: head.tag,
    }
}

/// Returns the `place`-th eight bytes of a control packet; 0 when it is too short.
pub(super) fn number(payload: &[u8], place: usize) -> u64 {
    payload.get(place * 8..place * 8 + 8).map_or(0, |b| {
        u64::from_ne_bytes(b.try_into().expect("eight bytes"))
    })
}
