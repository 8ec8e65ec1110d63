//! What goes out: each peer's queue, streams and short packets, as far as the transport has room.
//!
//! Only the front of a peer's queue leaves it, so envelopes go in the order of the calls; streams
//! and short packets know no order.

use super::*;
use crate::call::Limits;

impl Engine {
    pub(super) fn clear_to_send(&mut self, index: u32, from: u32, sender: u64) {
        self.state.peers[from as usize]
            .controls
            .push_back(Control::Cts {
                sender,
                receiver: u64::from(index),
            });
        self.state.list(from);
        self.push_peer(from);
    }

    pub(super) fn push_all(&mut self) -> bool {
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
    pub(super) fn push_peer(&mut self, to: u32) -> bool {
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
        if let Some(&control) = peer.controls.front() {
            let mut payload = [0; 16];
            let mut length = 8;
            let head = match control {
                Control::Cts { sender, receiver } => {
                    payload[..8].copy_from_slice(&receiver.to_ne_bytes());
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
                Control::Withdraw { request } => {
                    let Some((envelope, number)) = self.state.asks_back(request) else {
                        // It has been matched meanwhile.
                        self.state.peers[to as usize].controls.pop_front();
                        return true;
                    };
                    payload[..8].copy_from_slice(&request.to_bits().to_ne_bytes());
                    payload[8..].copy_from_slice(&u64::from(number.is_some()).to_ne_bytes());
                    length = 16;
                    head(WITHDRAW, envelope, number.unwrap_or(0))
                }
                Control::Withdrawn { request, gone } => {
                    payload[..8].copy_from_slice(&request.to_ne_bytes());
                    Head {
                        kind: WITHDRAWN,
                        word: u32::from(gone),
                        ..Head::default()
                    }
                }
            };
            if !self.short(to, head, &payload[..length]) {
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
                peer.returned = peer.returned.wrapping_add(peer.owed);
                peer.owed = 0;
                peer.owed_bytes = 0;
                return true;
            }
        }
        false
    }

    /// Sends what there is room for of the send at the front of a queue.
    fn push_send(&mut self, index: u32) -> Pushed {
        let limits = self.state.monitor.tuning.limits();
        let Some(Request {
            kind: Kind::Send(send),
            ..
        }) = self.state.requests.at(index)
        else {
            return Pushed::All;
        };
        if send.stage == SendStage::Queued {
            let (to, size) = (send.to, send.data.size());
            let offer = if to == self.state.me {
                None
            } else {
                send.data
                    .dense()
                    .and_then(|(mem, at)| self.transport.offer(to, mem, at, size))
            };
            let short = offer.is_none() && size <= limits.eager;
            if !short || !self.state.peers[to as usize].has_credits(size, &limits) {
                return self.push_offer(index, offer, short);
            }
        }
        self.push_eager(index)
    }

    /// Sends the envelope of a message that does not go eagerly; `short`: it would, had its sender
    /// credits.
    fn push_offer(&mut self, index: u32, offer: Option<(Ticket, [u64; 3])>, short: bool) -> Pushed {
        let Some(key) = self.state.requests.key_at(index) else {
            return Pushed::All;
        };
        let Some(Request {
            kind: Kind::Send(send),
            ..
        }) = self.state.requests.at(index)
        else {
            return Pushed::All;
        };
        let (to, size, envelope) = (send.to, send.data.size(), send.envelope);
        let (ticket, words) = match offer {
            Some((ticket, words)) => (Some(ticket), words),
            None => (None, [0; 3]),
        };
        let mut payload = [0; SHORT];
        let values = [size, key.to_bits(), words[0], words[1], words[2]];
        for (place, value) in payload.chunks_exact_mut(8).zip(values) {
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
            counters::add(&monitor.counters.out_of_credits, 1);
            monitor
                .events
                .note(EventKind::OutOfCredits, || [u64::from(to), size, 0, 0]);
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
        Pushed::All
    }

    /// Sends an eager message, or the next fragment of it.
    fn push_eager(&mut self, index: u32) -> Pushed {
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
        let sent = send.walk.position();
        let part = if size <= WHOLE as u64 {
            size as usize
        } else {
            // Fragments are at least two.
            match self.transport.fragment(to, size - sent) {
                all if sent == 0 && all as u64 == size => all / 2,
                part => part,
            }
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
            send.number = Some(peer.sent());
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
        let asks = send.withdrawal == Withdrawal::Wanted;
        send.stage = match sync {
            true => SendStage::Unacknowledged,
            false => SendStage::Sent,
        };
        if asks {
            self.state.ask_back(index);
        } else if !sync {
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
            let part = self.transport.fragment(to, left);
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
}

impl State {
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
    pub(super) fn list(&mut self, peer: u32) {
        let entry = &mut self.peers[peer as usize];
        if !entry.listed {
            entry.listed = true;
            self.active.push(peer);
        }
    }
}

enum Pushed {
    All,
    Some,
    Nothing,
}

impl Peer {
    #[inline]
    pub(super) fn has_credits(&self, size: u64, limits: &Limits) -> bool {
        self.unmatched < limits.credits && self.unmatched_bytes + size <= limits.credit_bytes
    }

    #[inline]
    pub(super) fn credit_is_due(&self, limits: &Limits) -> bool {
        self.owed > limits.credits / 4 || self.owed_bytes > limits.credit_bytes / 4
    }

    /// Eager messages that have been sent to the peer, modulo 2^32.
    #[inline]
    pub(super) fn sent(&self) -> u32 {
        self.credited.wrapping_add(self.unmatched)
    }

    /// Eager messages of the peer that have arrived, modulo 2^32.
    pub(super) fn arrived(&self) -> u32 {
        self.returned
            .wrapping_add(self.owed)
            .wrapping_add(self.kept)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.controls.is_empty() && self.streams.is_empty()
    }
}

#[inline]
pub(super) fn head(kind: u8, envelope: Envelope, word: u32) -> Head {
    Head {
        kind,
        context: envelope.context,
        source: envelope.source,
        tag: envelope.tag,
        word,
    }
}
