//! What goes over a remote shell between a host of the machine and the head, or what watches over a
//! job here: frames, in both directions, over the shell's standard input and output. A frame is a
//! letter, the number of bytes that follow (32 bits, the lowest byte first), and these. The host
//! says [`MAGIC`] before its first one, because start-up files may print something.
//!
//! | letter | from | what follows |
//! | --- | --- | --- |
//! | `h` | here | who asks for the host: lines |
//! | `i` | host | its cores and its memory in MiB |
//! | `n` | host | why it is refused, or nothing is known of the job |
//! | `j` | here | a job's order, as JSON |
//! | `s` | here | a signal for its processes, as JSON |
//! | `q` | here | it is to end, as at its time limit |
//! | `p` | both | its turn is over: its processes are to stop; all of them have stopped |
//! | `g` | here | it has its turn again |
//! | `o`, `e` | host | bytes of its output and of its standard error |
//! | `t` | host | lines about its steps that have begun or ended |
//! | `x` | host | how it ended, as JSON |
//! | `c` | both | the number of a command's connection (32 bits), and bytes of it; none at its end |
//! | `b` | both | nothing: the sender is there |
//! | `a` | both | nothing: a word is wanted at once; the word |
//!
//! In the queue of all users, the first bytes of a command's connection are a line of JSON by the
//! agent: the user who asks, with the groups.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use margay_sys_os::descriptor::{Outlet, PollSet, Wrote, set_nonblocking};

/// What the host says first.
pub const MAGIC: &[u8] = b"\nmargay-queue 1\n";

/// How often each side says that it is there.
pub const BEAT: Duration = Duration::from_secs(2);

/// A side that has said nothing for so long is taken to be gone.
pub const SILENCE: Duration = Duration::from_secs(8);

/// Longest frame, and most that is kept of what is printed before the first one.
const MOST_BYTES: usize = 64 << 20;
const MOST_BEFORE: usize = 1 << 20;

/// As much is read at once.
const PART: usize = 64 << 10;

/// One end.
#[derive(Debug)]
pub struct Wire {
    input: File,
    outlet: Outlet,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// When something has come, and when something was said.
    pub heard: Instant,
    said: Instant,
    /// The other side can be heard.
    pub is_open: bool,
    /// It has begun to speak in frames.
    pub has_begun: bool,
}

impl Wire {
    /// The end of these descriptors; `is_host` says that the other side is a remote shell.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(input: OwnedFd, output: OwnedFd, is_host: bool) -> std::io::Result<Wire> {
        set_nonblocking(input.as_fd())?;
        let now = Instant::now();
        Ok(Wire {
            input: input.into(),
            outlet: Outlet::new(output.as_fd())?,
            inbox: Vec::new(),
            outbox: if is_host { Vec::new() } else { MAGIC.to_vec() },
            heard: now,
            said: now,
            is_open: true,
            has_begun: !is_host,
        })
    }

    /// Says something, as soon as the other side takes it.
    pub fn say(&mut self, letter: u8, bytes: &[u8]) {
        self.said = Instant::now();
        self.outbox.push(letter);
        let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.outbox.extend_from_slice(&count.to_le_bytes());
        self.outbox.extend_from_slice(bytes);
        self.flush();
    }

    /// Says that this side is there, when it is time.
    pub fn beat(&mut self) {
        if self.said.elapsed() >= BEAT {
            self.say(b'b', &[]);
        }
    }

    /// Bytes that the other side has not taken.
    pub fn unsaid(&self) -> usize {
        self.outbox.len()
    }

    fn flush(&mut self) {
        while !self.outbox.is_empty() {
            match self.outlet.write(&self.outbox) {
                Wrote::Some(count) => {
                    self.outbox.drain(..count);
                }
                Wrote::Later => return,
                Wrote::Closed | Wrote::Failed(_) => {
                    self.outbox.clear();
                    self.is_open = false;
                }
            }
        }
    }

    /// Adds what it waits for to a set.
    pub fn add_to(&self, poll: &mut PollSet) {
        if self.is_open {
            poll.add_readable(self.input.as_fd());
        }
        if !self.outbox.is_empty() {
            poll.add_writable(self.outlet.as_fd());
        }
    }

    /// Reads what has come and writes what is taken.
    pub fn go_on(&mut self) {
        self.flush();
        let mut part = vec![0; PART];
        // Bounded, so that what is read is looked at in between.
        for _ in 0..16 {
            if !self.is_open {
                return;
            }
            match self.input.read(&mut part) {
                Ok(0) => self.is_open = false,
                Ok(count) => {
                    self.heard = Instant::now();
                    self.inbox.extend_from_slice(&part[..count]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.is_open = false,
            }
        }
    }

    /// The next frame that has come whole.
    pub fn take(&mut self) -> Option<(u8, Vec<u8>)> {
        if !self.has_begun {
            let found = (self.inbox.windows(MAGIC.len())).position(|part| part == MAGIC);
            let Some(at) = found else {
                let excess = self.inbox.len().saturating_sub(MOST_BEFORE);
                self.inbox.drain(..excess);
                return None;
            };
            self.inbox.drain(..at + MAGIC.len());
            self.has_begun = true;
        }
        let &[letter, a, b, c, d, ..] = &self.inbox[..] else {
            return None;
        };
        let count = u32::from_le_bytes([a, b, c, d]) as usize;
        if count > MOST_BYTES {
            self.is_open = false;
            self.inbox.clear();
            return None;
        }
        if self.inbox.len() < 5 + count {
            return None;
        }
        let bytes = self.inbox[5..5 + count].to_vec();
        self.inbox.drain(..5 + count);
        Some((letter, bytes))
    }

    /// Whether the other side has gone, or has said nothing for too long.
    pub fn is_cut(&self) -> bool {
        !self.is_open || self.heard.elapsed() >= SILENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_whole_behind_what_start_up_files_print() {
        let pipe = || std::io::pipe().unwrap();
        let ((from_host, to_here), (from_here, to_host)) = (pipe(), pipe());
        let mut greeting = to_here.try_clone().unwrap();
        std::io::Write::write_all(&mut greeting, b"welcome to b\n").unwrap();
        let mut host = Wire::new(from_here.into(), to_here.into(), false).unwrap();
        let mut here = Wire::new(from_host.into(), to_host.into(), true).unwrap();
        drop(greeting);
        let long = vec![b'x'; 300_000];
        host.say(b'o', &long);
        assert!(host.unsaid() > 0, "a pipe holds less");
        here.say(b's', b"{}");
        let mut taken = None;
        while taken.is_none() {
            host.go_on();
            here.go_on();
            taken = here.take();
        }
        assert_eq!(taken, Some((b'o', long)));
        assert_eq!(here.take(), None);
        host.go_on();
        assert_eq!(host.take(), Some((b's', b"{}".to_vec())));
        drop(here);
        host.go_on();
        assert!(host.is_cut());
    }
}
