//! A connection that both sides have proved: packets out of its bytes, and what waits to be sent.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use margay_net_transport::{Packet, Sink};
use margay_sys_os::sockets;

use crate::connect::SILENCE;
use crate::frame::{self, Frame, GOODBYE_KIND, LONGEST};
use crate::seal::{BEFORE, BEHIND, Seals};

/// Bytes of a link that have arrived and not been handed over: room for a packet of any length, and
/// as much again, so that little has to be moved to the front.
const INPUT: usize = 2 * LONGEST_RECORD;

/// Bytes of the longest packet when it is sealed.
const LONGEST_RECORD: usize = BEFORE + LONGEST + BEHIND;

/// Bytes to one rank that the system does not take now. Beyond, the engine keeps its packets.
pub(crate) const QUEUE: usize = 2 * LONGEST;

/// The `errno` of a peer that breaks the protocol.
const EPROTO: i32 = 71;
/// That of bytes which the peer has not sent so.
const EBADMSG: i32 = 74;

pub(crate) struct Link {
    pub(crate) stream: TcpStream,
    /// Where packets are encrypted.
    seals: Option<Box<Seals>>,
    input: Vec<u8>,
    start: usize,
    end: usize,
}

/// What a look at a link has brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Nothing,
    Packets,
    /// The peer has said that it leaves.
    Goodbye,
    /// The peer has closed it, or its process is gone.
    End,
    /// The system's number for why it failed.
    Failed(i32),
}

impl Link {
    pub(crate) fn new(stream: TcpStream, seals: Option<Seals>) -> Link {
        Link {
            stream,
            seals: seals.map(Box::new),
            input: vec![0; INPUT],
            start: 0,
            end: 0,
        }
    }

    /// Reads once, and hands over the packets that are whole.
    pub(crate) fn receive(&mut self, from: u32, sink: &mut dyn Sink) -> Received {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        } else if INPUT - self.start < LONGEST_RECORD {
            self.input.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        match self.stream.read(&mut self.input[self.end..]) {
            Ok(0) => return Received::End,
            Ok(n) => self.end += n,
            Err(error) => return why(&error),
        }
        let mut any = false;
        loop {
            let (frame, first, last) = match self.next_frame() {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err(errno) => return Received::Failed(errno),
            };
            if frame.head.kind == GOODBYE_KIND {
                return Received::Goodbye;
            }
            let packet = Packet {
                head: frame.head,
                args: frame.args,
                payload: &self.input[first + frame.payload..first + frame.end],
            };
            sink.packet(from, packet);
            self.start = last;
            any = true;
        }
        if any {
            Received::Packets
        } else {
            Received::Nothing
        }
    }

    /// The next packet that is whole, where it begins, and where the next one does.
    fn next_frame(&mut self) -> Result<Option<(Frame, usize, usize)>, i32> {
        let bytes = &mut self.input[self.start..self.end];
        let Some(seals) = &mut self.seals else {
            let frame = frame::decode(bytes).map_err(|_| EPROTO)?;
            return Ok(frame.map(|frame| {
                let last = self.start + frame.end;
                (frame, self.start, last)
            }));
        };
        let Some((first, end)) = seals.open(bytes).map_err(|_| EBADMSG)? else {
            return Ok(None);
        };
        match frame::decode(&bytes[first..end]) {
            Ok(Some(frame)) if first + frame.end == end => {
                let last = self.start + end + BEHIND;
                Ok(Some((frame, self.start + first, last)))
            }
            _ => Err(EPROTO),
        }
    }

    /// Makes a record of the packet that lies behind [`BEFORE`] bytes of room, where packets are
    /// encrypted. Returns where in `bytes` that begins what is to be written.
    pub(crate) fn seal(&mut self, bytes: &mut Vec<u8>) -> usize {
        match &mut self.seals {
            Some(seals) => {
                seals.seal(bytes);
                0
            }
            None => BEFORE,
        }
    }

    /// Writes what the system takes now; returns how much.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize, Received> {
        match self.stream.write(bytes) {
            Ok(n) => Ok(n),
            Err(error) => match why(&error) {
                Received::Nothing => Ok(0),
                over => Err(over),
            },
        }
    }

    /// Whether the other host has not answered for so long that it counts as lost.
    pub(crate) fn is_unanswered(&self) -> bool {
        sockets::is_unanswered(&self.stream, SILENCE)
    }

    /// Whether the other host has all that was written.
    pub(crate) fn is_acknowledged(&self) -> bool {
        sockets::unacknowledged(&self.stream) == 0
    }
}

fn why(error: &std::io::Error) -> Received {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Received::Nothing,
        // How a process that ended without reading everything looks from outside.
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Received::End,
        _ => Received::Failed(error.raw_os_error().unwrap_or(EPROTO)),
    }
}

/// Bytes to one rank that have not been written yet. Takes no memory while there are none.
#[derive(Default)]
pub(crate) struct Queue {
    bytes: Vec<u8>,
    start: usize,
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    /// Whether another packet of this length may be added.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        self.is_empty() || self.bytes.len() - self.start + len <= QUEUE
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        if self.start > 0 && self.bytes.len() + bytes.len() > self.bytes.capacity() {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn waiting(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) fn written(&mut self, bytes: usize) {
        self.start += bytes;
        if self.is_empty() {
            self.clear();
        }
    }

    /// Seals the packets that wait for a link that has come up.
    pub(crate) fn seal(&mut self, link: &mut Link) {
        let plain = std::mem::take(self);
        let mut rest = plain.waiting();
        while let Ok(Some(frame)) = frame::decode(rest) {
            let mut bytes = vec![0; BEFORE];
            bytes.extend_from_slice(&rest[..frame.end]);
            let first = link.seal(&mut bytes);
            self.add(&bytes[first..]);
            rest = &rest[frame.end..];
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Queue::default();
    }
}
