//! What hosts, `meet` and `pass` say to each other: the number of a channel (4 bytes,
//! little-endian), a kind (1 byte), and bytes. A channel is one agent on one host.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use margay_net_tcp::talk;

/// Bytes of output or input in one message.
pub const PIECE: usize = 32 << 10;
/// While more than this waits to be sent, no more is read for it.
pub const ROOM: usize = 1 << 20;
/// A longer message is none.
const LONGEST: usize = 4 << 20;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// From a host, first of all: the cores that it may use, a blank, its name.
    Hello = 1,
    /// To a host: an agent is to be started. From `pass`: the name of the host on which.
    Open = 2,
    /// For an agent's standard input; its end, when there are none.
    Input = 3,
    /// From an agent's standard output.
    Output = 4,
    /// From its standard error.
    Error = 5,
    /// From a host: an agent has ended, with this exit status (1 byte).
    Ended = 6,
    /// To a host: nobody listens to the agent any more.
    HungUp = 7,
}

const KINDS: [Kind; 7] = [
    Kind::Hello,
    Kind::Open,
    Kind::Input,
    Kind::Output,
    Kind::Error,
    Kind::Ended,
    Kind::HungUp,
];

/// A message as bytes.
#[must_use]
pub fn message(channel: u32, kind: Kind, bytes: &[u8]) -> Vec<u8> {
    let mut message = channel.to_le_bytes().to_vec();
    message.push(kind as u8);
    message.extend_from_slice(bytes);
    message
}

/// Reads a message: channel, kind, bytes.
#[must_use]
pub fn read(message: &[u8]) -> Option<(u32, Kind, &[u8])> {
    let (channel, rest) = message.split_first_chunk::<4>()?;
    let (kind, bytes) = rest.split_first()?;
    let kind = KINDS.iter().find(|known| **known as u8 == *kind)?;
    Some((u32::from_le_bytes(*channel), *kind, bytes))
}

/// Messages over a stream that does not block: each behind its length (4 bytes).
#[derive(Debug)]
pub struct Framed<S> {
    stream: S,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl<S: Read + Write + AsFd> Framed<S> {
    pub fn new(stream: S) -> Framed<S> {
        Framed {
            stream,
            input: Vec::new(),
            output: Vec::new(),
        }
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// How many bytes wait until the stream is writable.
    pub fn waiting(&self) -> usize {
        self.output.len()
    }

    /// Sends a message; what the system does not take goes with later calls.
    ///
    /// # Errors
    /// When the other end is gone.
    pub fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.output
            .extend_from_slice(&(message.len() as u32).to_le_bytes());
        self.output.extend_from_slice(message);
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        talk::flush(&mut self.stream, &mut self.output)
    }

    /// The next message, if all of it is here.
    ///
    /// # Errors
    /// When the other end is gone (`UnexpectedEof`), or sends what is no message.
    pub fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.flush()?;
        loop {
            if let Some((length, rest)) = self.input.split_first_chunk::<4>() {
                let length = u32::from_le_bytes(*length) as usize;
                if length > LONGEST {
                    return Err(ErrorKind::InvalidData.into());
                }
                if let Some(message) = rest.get(..length) {
                    let message = message.to_vec();
                    self.input.drain(..4 + length);
                    return Ok(Some(message));
                }
            }
            if !talk::read_more(&mut self.stream, &mut self.input)? {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written_and_nonsense_is_none() {
        let written = message(70_000, Kind::Ended, &[3]);
        assert_eq!(read(&written), Some((70_000, Kind::Ended, &[3][..])));
        for cut in 0..5 {
            assert_eq!(read(&written[..cut]), None);
        }
        assert_eq!(read(&[0, 0, 0, 0, 99]), None);
        assert!(KINDS.iter().zip(1..).all(|(kind, n)| *kind as u8 == n));
    }

    #[test]
    fn messages_come_whole_however_long_they_are_and_whatever_fits_into_the_stream() {
        let (a, b) = UnixStream::pair().expect("streams");
        a.set_nonblocking(true).expect("it is ours");
        b.set_nonblocking(true).expect("it is ours");
        let (mut a, mut b) = (Framed::new(a), Framed::new(b));
        for length in [0, 1, PIECE, 3_000_000] {
            let sent: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
            a.send(&sent).expect("the other end is there");
            let got = loop {
                if let Some(got) = b.receive().expect("the other end is there") {
                    break got;
                }
                assert_eq!(a.receive().expect("the other end is there"), None);
            };
            assert!(got == sent, "{length}");
            assert_eq!(a.waiting(), 0);
        }
        drop(a);
        let end = b.receive().expect_err("nobody is there");
        assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
    }
}
