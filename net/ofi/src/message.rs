//! What goes through the fabric, and what the connections carry beside; `docs/wire.md` draws both.

use margay_net_tcp::frame::LONGEST as LONGEST_PACKET;
use margay_net_transport::Head;

/// Bytes before the packets of a message.
pub(crate) const BEFORE: usize = 32;
/// Longest message.
pub(crate) const LONGEST: usize = BEFORE + LONGEST_PACKET;

/// Kinds of packets that are none of the engine's, over the connection of two ranks: how a rank is
/// reached, and how many messages have gone.
pub(crate) const HELLO: u8 = 254;
pub(crate) const COUNT: u8 = 253;
/// The same through the fabric: memory that was offered has been read.
pub(crate) const TAKEN: u8 = 252;

const VERSION: [u8; 4] = [1, 0, 0, 0];

/// What a rank has given to another one, which it writes into each of its messages.
pub(crate) type Token = [u8; 16];

/// What a message says of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    pub(crate) from: u32,
    pub(crate) token: Token,
    /// How many messages it has sent to this rank before.
    pub(crate) number: u64,
}

/// Writes what precedes the packets of a message.
pub(crate) fn begin(bytes: &mut [u8], of: &Sender) {
    bytes[..4].copy_from_slice(&of.from.to_le_bytes());
    bytes[4..8].copy_from_slice(&VERSION);
    bytes[8..24].copy_from_slice(&of.token);
    bytes[24..BEFORE].copy_from_slice(&of.number.to_le_bytes());
}

/// Returns what a message says of its sender; none where it is no message.
pub(crate) fn sender(bytes: &[u8]) -> Option<Sender> {
    let before = bytes.first_chunk::<BEFORE>()?;
    let mut token = Token::default();
    token.copy_from_slice(&before[8..24]);
    let number = before.last_chunk::<8>()?;
    (before[4..8] == VERSION).then_some(Sender {
        from: u32::from_le_bytes([before[0], before[1], before[2], before[3]]),
        token,
        number: u64::from_le_bytes(*number),
    })
}

/// How a rank is reached by the one that gets this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello<'a> {
    pub(crate) token: Token,
    pub(crate) provider: &'a [u8],
    pub(crate) address: &'a [u8],
}

impl<'a> Hello<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.token.to_vec();
        bytes.push(self.provider.len().min(255) as u8);
        bytes.extend_from_slice(&self.provider[..self.provider.len().min(255)]);
        bytes.extend_from_slice(self.address);
        bytes
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Hello<'a>> {
        let (token, rest) = bytes.split_first_chunk::<16>()?;
        let (&len, rest) = rest.split_first()?;
        let (provider, address) = rest.split_at_checked(len.into())?;
        Some(Hello {
            token: *token,
            provider,
            address,
        })
    }
}

/// Messages of a pair that have gone through the fabric, as one side knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    /// That it has sent.
    pub(crate) sent: u64,
    /// That it has received.
    pub(crate) received: u64,
    /// It wants to know the other side's.
    pub(crate) asks: bool,
}

impl Count {
    pub(crate) fn encode(&self) -> (Head, [u8; 16]) {
        let head = Head {
            kind: COUNT,
            word: self.asks.into(),
            ..Head::default()
        };
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.sent.to_le_bytes());
        bytes[8..].copy_from_slice(&self.received.to_le_bytes());
        (head, bytes)
    }

    pub(crate) fn decode(head: &Head, bytes: &[u8]) -> Option<Count> {
        let (sent, received) = bytes.split_first_chunk::<8>()?;
        Some(Count {
            sent: u64::from_le_bytes(*sent),
            received: u64::from_le_bytes(received.try_into().ok()?),
            asks: head.word & 1 != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_version_is_read_and_written() {
        let mut bytes = [9; BEFORE + 2];
        let of = Sender {
            from: 0x0102_0304,
            token: [7; 16],
            number: 258,
        };
        begin(&mut bytes, &of);
        let mut old = vec![4, 3, 2, 1, 1, 0, 0, 0];
        old.extend_from_slice(&[7; 16]);
        old.extend_from_slice(&[2, 1, 0, 0, 0, 0, 0, 0]);
        old.extend_from_slice(&[9; 2]);
        assert_eq!(bytes[..], old[..]);
        assert_eq!(sender(&old), Some(of));
        old[4] = 2;
        assert_eq!(sender(&old), None, "another version");
        assert_eq!(sender(&bytes[..BEFORE - 1]), None);
        let hello = Hello {
            token: [3; 16],
            provider: b"net",
            address: b"12345678",
        };
        let mut old = vec![3; 17];
        old.extend_from_slice(b"net12345678");
        assert_eq!(hello.encode(), old);
        assert_eq!(Hello::decode(&old), Some(hello));
        for cut in 0..20 {
            assert_eq!(Hello::decode(&old[..cut]), None, "{cut}");
        }
        let count = Count {
            sent: 1 << 40,
            received: 5,
            asks: true,
        };
        let (head, bytes) = count.encode();
        assert_eq!((head.kind, head.word), (253, 1));
        assert_eq!(bytes, [0, 0, 0, 0, 0, 1, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Count::decode(&head, &bytes), Some(count));
        assert_eq!(Count::decode(&head, &bytes[..15]), None);
    }
}
