//! Messages between the relay and its agents, over the remote shell's standard input and output.
//!
//! An agent's output begins with [`MAGIC`]; what comes before is printed by start-up files of the
//! shell and is skipped. A message is its length (4 bytes), its kind (1 byte) and its body; numbers
//! are little-endian.

use std::io;

/// What an agent says first, with the protocol's version.
pub const MAGIC: &[u8] = b"\nmargay-agent 10\n";
/// Longest message in bytes: an environment, and the ports of all ranks.
pub const LONGEST: usize = 16 << 20;
/// Bytes of one stream that may be under way: the reader gives them back as it passes them on.
pub const WINDOW: usize = 128 << 10;
/// Bytes for a host that may be under way to the agent that has started the one there.
pub const DOWN_WINDOW: usize = 1 << 20;
/// As [`WINDOW`], of what a host's recorder writes.
pub const PART_WINDOW: usize = 1 << 20;
/// The number of that stream.
pub const PART: u64 = u64::MAX;
/// The numbers of streams of records, each together with that of a connection, of [`WINDOW`] bytes.
pub const RECORDS: u64 = 1 << 62;
/// Where the checker listens: the launcher and all ranks of a job that is checked have it.
pub const ENV_CHECK: &str = "MARGAY_CHECK";
/// An agent and the relay say something at least this often, in milliseconds.
pub const BEAT_MS: u64 = 1000;

/// A side that has done nothing for so much longer was stopped.
pub const STOPPED: std::time::Duration = std::time::Duration::from_secs(2);
/// Who has said nothing for so long is gone.
pub const SILENCE_MS: u64 = 8000;

/// The kinds of messages.
pub mod kind {
    /// To the agent: its task.
    pub const TASK: u8 = 1;
    /// To the agent: the hosts, and the locations of all ranks; it starts its ranks.
    pub const GO: u8 = 2;
    /// To the agent: rank, bytes of standard input; none at its end.
    pub const INPUT: u8 = 3;
    /// To the agent: a signal for its ranks.
    pub const SIGNAL: u8 = 4;
    /// To the agent: kill everything.
    pub const KILL: u8 = 5;
    /// Both: stream, bytes that have been passed on.
    pub const CREDIT: u8 = 6;
    /// Both: a rank has ended.
    pub const ENDED: u8 = 7;
    /// Both: nothing, but often.
    pub const BEAT: u8 = 8;
    /// From the agent: its process id, its host's name, addresses and ports.
    pub const READY: u8 = 9;
    /// From the agent: stream, bytes; none at its end.
    pub const OUTPUT: u8 = 10;
    /// From the agent: it cannot go on; status and text.
    pub const FAILED: u8 = 11;
    /// From the agent: none of its processes is left, and all of their output has been sent.
    pub const EMPTY: u8 = 12;
    /// From the agent: a rank, another one that it cannot reach, and why.
    pub const LOST: u8 = 13;
    /// From the agent: none of its processes is left; what they used: processor time in
    /// microseconds, the largest resident set in KiB, energy in microjoules or all ones. Output
    /// follows.
    pub const NONE_LEFT: u8 = 14;
    /// From the agent: stream; what its rank had written before it ended has been sent.
    pub const DRAINED: u8 = 15;
    /// From the agent: what some of its ranks do.
    pub const DOING: u8 = 16;
    /// From the agent: number of a rank's connection, a question.
    pub const ASK: u8 = 17;
    /// To the agent: number of the connection, the answer.
    pub const ANSWER: u8 = 18;
    /// Both: number of a connection that has ended.
    pub const HUNG_UP: u8 = 19;
    /// To the agent: number of a program, bytes of its file.
    pub const FILE: u8 = 20;
    /// From the agent: text for the user.
    pub const SAID: u8 = 21;
    /// From the agent: bytes that its recorder has written.
    pub const PART: u8 = 22;
    /// To the agent: the relay's clock; from the agent: the same, and its own.
    pub const CLOCK: u8 = 23;
    /// To the agent: number of another host, its name, the words of the remote shell by which the
    /// agent starts one there.
    pub const START: u8 = 24;
    /// To the agent: number of such a host, bytes for it; none are the end.
    pub const DOWN: u8 = 25;
    /// From the agent: number of such a host, 1 for standard error, bytes from it.
    pub const UP: u8 = 26;
    /// From the agent: number of such a host, bytes that have been passed on.
    pub const ROOM: u8 = 27;
    /// To the agent: number of such a host, and of the programs that it is sent.
    pub const PASS_ON: u8 = 28;
    /// To the agent: number of such a host; its remote shell is killed.
    pub const CUT: u8 = 29;
    /// From the agent: number of such a host; its remote shell has ended with a code less 1, or by
    /// a signal.
    pub const SHELL_ENDED: u8 = 30;
    /// To the agent: stop its ranks, or continue them (0); from the agent: they are stopped.
    pub const HALT: u8 = 31;
    /// To the agent: number of a question, how many calls of each rank or 0 for stacks, how many
    /// ranks, and these. From the agent: the number, the answer.
    pub const PLACES: u8 = 32;
    /// From the agent: number of a rank's connection to the checker, 1 at its end, bytes.
    pub const RECORDS: u8 = 33;
    /// From the agent: a rank that has failed, and its last calls.
    pub const CALLS: u8 = 34;
}

/// Writes messages.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Begins a message.
    #[must_use]
    pub fn new(kind: u8) -> Writer {
        Writer(vec![0, 0, 0, 0, kind])
    }

    /// Adds a number.
    pub fn number(&mut self, number: u64) -> &mut Writer {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// Adds bytes, with their length.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Writer {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Returns the message.
    pub fn done(&mut self) -> Vec<u8> {
        let len = (self.0.len() - 5) as u32;
        self.0[..4].copy_from_slice(&len.to_le_bytes());
        std::mem::take(&mut self.0)
    }
}

/// Reads the body of a message.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

/// A message that is not as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

impl From<Broken> for io::Error {
    fn from(_: Broken) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, "a message of another version")
    }
}

impl<'a> Reader<'a> {
    /// The next number.
    ///
    /// # Errors
    /// At the end.
    pub fn number(&mut self) -> Result<u64, Broken> {
        let (first, rest) = self.0.split_first_chunk::<8>().ok_or(Broken)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*first))
    }

    /// The next number, as one that fits.
    ///
    /// # Errors
    /// At the end, and where it is too large.
    pub fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Broken> {
        T::try_from(self.number()?).map_err(|_| Broken)
    }

    /// The next bytes.
    ///
    /// # Errors
    /// At the end.
    pub fn bytes(&mut self) -> Result<&'a [u8], Broken> {
        let len = self.small::<usize>()?;
        let (first, rest) = self.0.split_at_checked(len).ok_or(Broken)?;
        self.0 = rest;
        Ok(first)
    }

    /// The next bytes as text.
    ///
    /// # Errors
    /// At the end.
    pub fn text(&mut self) -> Result<String, Broken> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }
}

/// Bytes that have arrived and are not used yet.
#[derive(Debug, Default)]
pub struct Incoming {
    bytes: Vec<u8>,
    start: usize,
}

impl Incoming {
    /// Adds what has arrived.
    pub fn add(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// What has arrived and is not used.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Leaves everything up to the end of [`MAGIC`] out; false while that has not come. What cannot
    /// be its beginning is not kept.
    pub fn skip_to_magic(&mut self) -> bool {
        // The shell's output may end without a line's end, or begin with our line.
        let rest = self.rest();
        let found = rest.windows(MAGIC.len()).position(|window| window == MAGIC);
        match found {
            Some(at) => self.start += at + MAGIC.len(),
            None => self.start += rest.len().saturating_sub(MAGIC.len()),
        }
        found.is_some()
    }

    /// The next message that is whole: kind and body.
    ///
    /// # Errors
    /// When it is longer than any message is.
    pub fn take(&mut self) -> Result<Option<(u8, Vec<u8>)>, Broken> {
        let rest = self.rest();
        let Some((head, body)) = rest.split_first_chunk::<5>() else {
            return Ok(None);
        };
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if len > LONGEST {
            return Err(Broken);
        }
        let (kind, body) = (head[4], body.get(..len));
        let Some(body) = body.map(<[u8]>::to_vec) else {
            return Ok(None);
        };
        self.start += 5 + len;
        Ok(Some((kind, body)))
    }
}

/// Bytes of the first of these messages, which are whole.
#[must_use]
pub fn first(messages: &[u8]) -> usize {
    match messages.first_chunk::<4>() {
        Some(&len) => 5 + u32::from_le_bytes(len) as usize,
        None => 0,
    }
}

/// Bytes of the first of these messages that have no more than `most` together.
#[must_use]
pub fn whole(messages: &[u8], most: usize) -> usize {
    let mut bytes = 0;
    loop {
        let next = first(&messages[bytes..]);
        if next == 0 || bytes + next > most {
            return bytes;
        }
        bytes += next;
    }
}

/// The number of a rank's output stream: standard output or standard error.
#[must_use]
pub fn stream(rank: u32, is_error: bool) -> u64 {
    u64::from(rank) * 2 + u64::from(is_error)
}

/// The rank of a stream, and whether it is standard error.
#[must_use]
pub fn of_stream(stream: u64) -> (u32, bool) {
    ((stream / 2) as u32, stream % 2 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_in_any_pieces_behind_what_a_shell_prints() {
        let mut sent = b"Welcome to b!\nmargay-agent is nice\n\nmargay-agent 10\n".to_vec();
        sent.extend(Writer::new(kind::INPUT).number(7).bytes(b"abc").done());
        sent.extend(Writer::new(kind::BEAT).done());
        for piece in 1..sent.len() {
            let mut incoming = Incoming::default();
            let mut is_there = false;
            let mut got = Vec::new();
            for bytes in sent.chunks(piece) {
                incoming.add(bytes);
                is_there = is_there || incoming.skip_to_magic();
                while is_there && let Some(message) = incoming.take().unwrap() {
                    got.push(message);
                }
            }
            assert_eq!(got.len(), 2, "pieces of {piece}");
            let mut body = Reader(&got[0].1);
            assert_eq!(
                (got[0].0, body.number(), body.bytes()),
                (kind::INPUT, Ok(7), Ok(&b"abc"[..]))
            );
            assert_eq!(body.number(), Err(Broken));
            assert_eq!(got[1], (kind::BEAT, Vec::new()));
        }
    }

    #[test]
    fn messages_are_counted_whole() {
        let mut sent = Writer::new(kind::INPUT).number(7).bytes(b"abc").done();
        assert_eq!((first(&sent), first(&[])), (sent.len(), 0));
        sent.extend(Writer::new(kind::BEAT).done());
        assert_eq!(whole(&sent, sent.len()), sent.len());
        assert_eq!(whole(&sent, sent.len() - 1), sent.len() - 5);
        assert_eq!(whole(&sent, 8), 0);
    }

    #[test]
    fn what_is_too_long_is_refused() {
        let mut incoming = Incoming::default();
        incoming.add(&[0xff; 9]);
        assert_eq!(incoming.take(), Err(Broken));
        assert_eq!(Reader(&[0xff; 8]).bytes(), Err(Broken));
    }

    /// A message as the first version wrote it, by hand after docs/wire.md.
    #[test]
    fn a_message_of_the_first_version_is_read() {
        let mut incoming = Incoming::default();
        incoming.add(&[
            16, 0, 0, 0, 6, 5, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0,
        ]);
        let (kind, body) = incoming.take().unwrap().unwrap();
        let mut body = Reader(&body);
        assert_eq!(
            (kind, body.number(), body.number()),
            (kind::CREDIT, Ok(5), Ok(256))
        );
        assert_eq!(stream(2, true), 5);
    }
}
