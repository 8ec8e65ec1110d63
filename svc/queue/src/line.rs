//! The line between the head and a supervisor that it has started: a pair of sockets. The head
//! gives one job after the other on it and asks for their end; the supervisor says when one has
//! ended. It says no more than files do: a head that finds the supervisor of another one has its
//! process id and the job's folder, and a supervisor whose line has ended ends after its job.
//!
//! | from | line | |
//! | --- | --- | --- |
//! | head | `run 12.1` | Run the job of this folder below `jobs/` |
//! | head | `end` | End the job that runs, as by SIGTERM |
//! | head | `signals` | Signals were left in its folder, as by SIGUSR1 |
//! | supervisor | `.`, a byte | The job has ended, and how is in its folder; ready for another one |

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use margay_sys_os::descriptor::set_nonblocking;

/// What a supervisor says when its job has ended.
const ENDED: u8 = b'.';

/// What the head says to a supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    Run(String),
    End,
    Signals,
}

impl Message {
    fn line(&self) -> String {
        match self {
            Message::Run(name) => format!("run {name}\n"),
            Message::End => "end\n".into(),
            Message::Signals => "signals\n".into(),
        }
    }

    fn of(line: &str) -> Option<Message> {
        match line {
            "end" => Some(Message::End),
            "signals" => Some(Message::Signals),
            _ => Some(Message::Run(line.strip_prefix("run ")?.into())),
        }
    }
}

/// What the head hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    Nothing,
    /// The job has ended.
    Ended,
    /// The supervisor has gone.
    Closed,
}

/// The head's side. Nothing here waits.
#[derive(Debug)]
pub struct HeadLine(UnixStream);

impl HeadLine {
    /// The head's side of a new line, and the supervisor's, which is its standard input.
    ///
    /// # Errors
    /// What the system says.
    pub fn pair() -> io::Result<(HeadLine, OwnedFd)> {
        let (own, other) = UnixStream::pair()?;
        set_nonblocking(own.as_fd())?;
        Ok((HeadLine(own), other.into()))
    }

    /// Says something; returns whether it was taken.
    pub fn say(&self, message: &Message) -> bool {
        let line = message.line();
        // A line is far shorter than what a socket holds: it goes as a whole or, when the other
        // side takes nothing any more, not at all.
        matches!((&self.0).write(line.as_bytes()), Ok(count) if count == line.len())
    }

    /// Hears what the supervisor has said.
    pub fn hear(&self) -> Heard {
        match (&self.0).read(&mut [0]) {
            Ok(0) => Heard::Closed,
            Ok(_) => Heard::Ended,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Heard::Nothing,
            Err(error) if error.kind() == ErrorKind::Interrupted => Heard::Nothing,
            Err(_) => Heard::Closed,
        }
    }
}

impl AsFd for HeadLine {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The supervisor's side.
#[derive(Debug)]
pub struct SupervisorLine {
    /// None when the head has gone.
    stream: Option<UnixStream>,
    heard: Vec<u8>,
}

impl SupervisorLine {
    /// The line that is the standard input of this process.
    ///
    /// # Errors
    /// What the system says.
    pub fn of_stdin() -> io::Result<SupervisorLine> {
        Self::of(io::stdin().as_fd().try_clone_to_owned()?)
    }

    /// None: no head is heard.
    #[must_use]
    pub fn none() -> SupervisorLine {
        SupervisorLine {
            stream: None,
            heard: Vec::new(),
        }
    }

    fn of(end: OwnedFd) -> io::Result<SupervisorLine> {
        set_nonblocking(end.as_fd())?;
        Ok(SupervisorLine {
            stream: Some(end.into()),
            heard: Vec::new(),
        })
    }

    /// What is readable when the head has said something; none when it has gone.
    #[must_use]
    pub fn stream(&self) -> Option<BorrowedFd<'_>> {
        self.stream.as_ref().map(AsFd::as_fd)
    }

    /// The next message that has come. Lines that it does not know are left out.
    pub fn take(&mut self) -> Option<Message> {
        loop {
            while let Some(end) = self.heard.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line[..end]);
                if let Some(message) = Message::of(&line) {
                    return Some(message);
                }
            }
            let mut part = [0; 512];
            match self.stream.as_mut()?.read(&mut part) {
                Ok(count) if count > 0 => self.heard.extend_from_slice(&part[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => self.stream = None,
            }
        }
    }

    /// Says that the job has ended.
    pub fn say_ended(&mut self) {
        // A head that has gone hears nothing, and none is waited for.
        let _ = self.stream.as_mut().map(|stream| stream.write(&[ENDED]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_in_their_order_and_the_end_of_either_side_is_seen() {
        let (head, other) = HeadLine::pair().unwrap();
        let mut supervisor = SupervisorLine::of(other).unwrap();
        assert_eq!(supervisor.take(), None);
        assert_eq!(head.hear(), Heard::Nothing);
        let messages = [
            Message::End,
            Message::Run("12.1".into()),
            Message::Signals,
            Message::End,
        ];
        for message in &messages {
            assert!(head.say(message));
        }
        for message in messages {
            assert_eq!(supervisor.take(), Some(message));
        }
        assert_eq!(supervisor.take(), None);
        assert!(supervisor.stream().is_some());
        supervisor.say_ended();
        assert_eq!(head.hear(), Heard::Ended);
        assert_eq!(head.hear(), Heard::Nothing);
        assert!(head.say(&Message::Signals));
        drop(head);
        // What was said before the end is heard.
        assert_eq!(supervisor.take(), Some(Message::Signals));
        assert_eq!(supervisor.take(), None);
        assert!(supervisor.stream().is_none());
        let (head, other) = HeadLine::pair().unwrap();
        drop(SupervisorLine::of(other).unwrap());
        assert_eq!(head.hear(), Heard::Closed);
        assert!(!head.say(&Message::End));
    }
}
