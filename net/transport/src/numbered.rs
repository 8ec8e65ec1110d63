//! Packets that carry their number, for tests of transports: what arrives is compared with what was
//! sent, whole and in order.

use crate::{Destination, Head, Packet, Sink, Transport};

/// The bytes of a packet.
#[must_use]
pub fn contents(from: u32, number: u32, len: usize) -> Vec<u8> {
    let seed = from * 7 + number * 13;
    (0..len).map(|i| (seed as usize + i) as u8).collect()
}

fn head(from: u32, number: u32, len: usize) -> Head {
    Head {
        kind: 9,
        context: from,
        source: !from,
        tag: number,
        word: len as u32,
    }
}

/// Sends packet `number` of this rank, in one piece or as a fragment. Returns whether it went.
pub fn send(
    transport: &mut dyn Transport,
    to: u32,
    number: u32,
    (len, is_fragment): (usize, bool),
) -> bool {
    let from = transport.me();
    let head = head(from, number, len);
    let payload = contents(from, number, len);
    if is_fragment {
        let mut fill = |to: &mut [u8]| to.copy_from_slice(&payload);
        transport.send_fragment(to, head, [1, 2], len, &mut fill)
    } else {
        transport.send(to, head, &payload)
    }
}

/// Checks that the packets of each sender come whole and in the order of sending; panics where they
/// do not.
pub struct Checked {
    /// By sender, the number of its next packet.
    pub next: Vec<u32>,
}

impl Sink for Checked {
    fn packet(&mut self, from: u32, packet: Packet<'_>) {
        let number = &mut self.next[from as usize];
        let len = packet.payload.len();
        assert_eq!(packet.head, head(from, *number, len), "from {from}");
        let expected = contents(from, *number, len);
        assert_eq!(packet.payload, expected, "{number} from {from}");
        *number += 1;
    }

    fn destination(&mut self, _: u32, _: &Head, _: usize) -> Option<Destination> {
        None
    }

    fn landed(&mut self, _: u32, _: &Head, _: usize) {
        unreachable!("no packet has a destination");
    }
}
