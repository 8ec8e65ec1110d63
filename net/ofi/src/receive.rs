//! Messages that have come, in the order of sending.
//!
//! The fabric takes them in that order, but a long one may be complete after those behind it.

use margay_net_tcp::frame;
use margay_net_transport::{Packet, Sink};

use crate::message::{self, BEFORE, TAKEN};
use crate::peer::Held;
use crate::{EPROTO, Ofi};

impl Ofi {
    /// Hands the packets over that have come. Returns whether there were any.
    pub(crate) fn deliver(&mut self, sink: &mut dyn Sink) -> bool {
        let mut any = false;
        while let Some((buffer, len)) = self.arrived.pop_front() {
            let of = message::sender(&self.endpoint.buffer(buffer)[..len]);
            let size = self.peers.len() as u32;
            // What has no valid number was sent by nobody of this job.
            let of = of.filter(|of| {
                of.from < size && self.peers[of.from as usize].own_token == Some(of.token)
            });
            let Some(of) = of else {
                self.unposted.push(buffer);
                continue;
            };
            let held = Held {
                number: of.number,
                buffer,
                len,
            };
            self.peers[of.from as usize].held.push(held);
            while let Some(next) = self.peers[of.from as usize].next() {
                any |= self.hand_over(of.from, next, sink);
            }
        }
        // A provider that takes no buffer now is asked again by the next poll.
        let _ = self.post();
        any
    }

    /// Hands over the packets of a message. Returns whether there were any.
    fn hand_over(
        &mut self,
        from: u32,
        Held { buffer, len, .. }: Held,
        sink: &mut dyn Sink,
    ) -> bool {
        let mut rest = &self.endpoint.buffer(buffer)[BEFORE..len];
        let any = !rest.is_empty();
        let mut is_broken = false;
        let mut taken = Vec::new();
        while !rest.is_empty() && !is_broken {
            match frame::decode(rest) {
                Ok(Some(frame)) if frame.head.kind == TAKEN => {
                    taken.push(frame.head.word);
                    rest = &rest[frame.end..];
                }
                Ok(Some(frame)) => {
                    let packet = Packet {
                        head: frame.head,
                        args: frame.args,
                        payload: &rest[frame.payload..frame.end],
                    };
                    sink.packet(from, packet);
                    rest = &rest[frame.end..];
                }
                _ => is_broken = true,
            }
        }
        self.unposted.push(buffer);
        for ticket in taken {
            self.was_taken(from, ticket);
        }
        self.pay(from);
        if is_broken {
            self.lose(from, EPROTO);
        }
        any
    }
}
