//! Connections of commands that go over the wire between a host of the machine and the head: a
//! command on such a host reaches the head over the connection that the head itself has made.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use margay_sys_os::descriptor::{PollSet, set_nonblocking};

use crate::wire::Wire;

/// Bytes that wait for the wire; no more is read when there are more.
const MOST_UNSAID: usize = 256 << 10;

/// As much is read at once.
const PART: usize = 32 << 10;

/// Connections at the same time.
const MOST: usize = 64;

/// One end of a connection.
#[derive(Debug)]
struct End {
    stream: UnixStream,
    /// What the other side said and this one has not taken yet.
    unread: Vec<u8>,
    /// The other side says nothing more.
    is_over: bool,
    /// This one says nothing more.
    is_said: bool,
}

/// The ends on this host, by their numbers.
#[derive(Debug, Default)]
pub struct Passage {
    ends: BTreeMap<u32, End>,
    /// The last number.
    last: u32,
}

impl Passage {
    /// Takes a connection with this number; returns whether there is room.
    pub fn add(&mut self, number: u32, stream: UnixStream) -> bool {
        if self.ends.len() >= MOST || set_nonblocking(stream.as_fd()).is_err() {
            return false;
        }
        let end = End {
            stream,
            unread: Vec::new(),
            is_over: false,
            is_said: false,
        };
        self.ends.insert(number, end);
        true
    }

    /// A number that no connection has.
    pub fn number(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    /// Whether the number is that of a new connection of the other side. What comes late for one
    /// that has ended begins no other.
    pub fn is_new(&mut self, number: u32) -> bool {
        let is_new = number > self.last;
        self.last = self.last.max(number);
        is_new
    }

    /// A frame: the connection's number, and what was said on it; nothing when that was all.
    #[must_use]
    pub fn parted(frame: &[u8]) -> Option<(u32, &[u8])> {
        let (number, bytes) = frame.split_first_chunk::<4>()?;
        Some((u32::from_le_bytes(*number), bytes))
    }

    /// Says something on a connection.
    pub fn say(wire: &mut Wire, number: u32, bytes: &[u8]) {
        let mut frame = number.to_le_bytes().to_vec();
        frame.extend_from_slice(bytes);
        wire.say(b'c', &frame);
    }

    /// Hears what was said on a connection.
    pub fn hear(&mut self, number: u32, bytes: &[u8]) {
        if let Some(end) = self.ends.get_mut(&number) {
            end.unread.extend_from_slice(bytes);
            end.is_over |= bytes.is_empty();
        }
    }

    /// Adds what it waits for to a set.
    pub fn add_to(&self, poll: &mut PollSet, wire: &Wire) {
        for end in self.ends.values() {
            if !end.is_said && wire.unsaid() < MOST_UNSAID {
                poll.add_readable(end.stream.as_fd());
            }
            if !end.unread.is_empty() {
                poll.add_writable(end.stream.as_fd());
            }
        }
    }

    /// Passes on what there is.
    pub fn go_on(&mut self, wire: &mut Wire) {
        let mut part = vec![0; PART];
        self.ends.retain(|number, end| {
            end.write();
            while !end.is_said && wire.unsaid() < MOST_UNSAID {
                match end.stream.read(&mut part) {
                    Ok(count) if count > 0 => Self::say(wire, *number, &part[..count]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Ok(_) | Err(_) => {
                        end.is_said = true;
                        Self::say(wire, *number, &[]);
                    }
                }
            }
            // A command that has its answer, and a head that has given it, ask nothing more.
            !(end.is_over && end.unread.is_empty() || end.is_said)
        });
    }
}

impl End {
    fn write(&mut self) {
        while !self.unread.is_empty() {
            match self.stream.write(&self.unread) {
                Ok(count) if count > 0 => {
                    self.unread.drain(..count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => {
                    self.unread.clear();
                    self.is_over = true;
                }
            }
        }
        if self.is_over {
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_at_one_end_is_heard_at_the_other() {
        let pipe = || std::io::pipe().unwrap();
        let ((from_host, to_here), (from_here, to_host)) = (pipe(), pipe());
        let mut host = Wire::new(from_here.into(), to_here.into(), false).unwrap();
        let mut here = Wire::new(from_host.into(), to_host.into(), true).unwrap();
        let (mut there, mut at_head) = (Passage::default(), Passage::default());
        let (mut command, other) = UnixStream::pair().unwrap();
        let (mut head, own) = UnixStream::pair().unwrap();
        let number = there.number();
        assert!(there.add(number, other) && at_head.add(number, own));
        let ask = vec![b'a'; 700_000];
        let answer = vec![b'b'; 900_000];
        let (sent, given) = (ask.clone(), answer.clone());
        let asks = std::thread::spawn(move || {
            command.write_all(&sent).unwrap();
            let mut heard = vec![0; 900_000];
            command.read_exact(&mut heard).unwrap();
            heard
        });
        let answers = std::thread::spawn(move || {
            let mut heard = vec![0; 700_000];
            head.read_exact(&mut heard).unwrap();
            head.write_all(&given).unwrap();
            heard
        });
        assert!(at_head.is_new(number) && !at_head.is_new(number));
        while !there.ends.is_empty() || !at_head.ends.is_empty() {
            for (wire, passage) in [(&mut host, &mut there), (&mut here, &mut at_head)] {
                wire.go_on();
                while let Some((letter, frame)) = wire.take() {
                    let (number, bytes) = Passage::parted(&frame).unwrap();
                    assert_eq!(letter, b'c');
                    passage.hear(number, bytes);
                }
                passage.go_on(wire);
            }
            std::thread::yield_now();
        }
        assert!(asks.join().unwrap() == answer && answers.join().unwrap() == ask);
    }
}
