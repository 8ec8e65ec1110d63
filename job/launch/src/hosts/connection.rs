//! The relay's end of one agent.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::time::{Duration, Instant};

use margay_sys_os::descriptor::{PollSet, set_nonblocking};

use super::stage::Sending;
use super::wire::{self, Broken, Incoming};

const READ_BYTES: usize = 64 << 10;
/// What is kept of what a remote shell says, on standard error and on its output.
const COMPLAINT_BYTES: usize = 2 << 10;

/// What a remote shell says, but the agent does not.
#[derive(Default)]
struct Said {
    /// On standard error.
    complaint: Vec<u8>,
    /// On its output before an agent speaks there: greetings, questions.
    preface: Vec<u8>,
}

/// Keeps the beginning of what is said.
fn keep(said: &mut Vec<u8>, more: &[u8]) {
    let room = COMPLAINT_BYTES - said.len();
    said.extend_from_slice(&more[..more.len().min(room)]);
}

/// How far an agent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// It has not said that it is one.
    Starting,
    /// It is one.
    Greeted,
    /// It listens.
    Ready,
    /// It has no process of the job any more, but output.
    Draining,
    /// It has nothing of the job any more.
    Empty,
    /// It is not there any more.
    Gone,
}

/// One agent, as the relay sees it.
pub(super) struct Connection {
    /// As the user named it.
    pub(super) host: String,
    pub(super) stage: Stage,
    /// Its name as it says itself, its addresses, and the ports of its ranks in their order.
    pub(super) name: String,
    pub(super) addresses: Vec<IpAddr>,
    /// A number that only hosts with the same cores have in common.
    pub(super) cores: u64,
    pub(super) ports: Vec<u16>,
    pub(super) heard: Instant,
    child: Child,
    input: Option<File>,
    output: Option<File>,
    errors: Option<File>,
    said: Said,
    incoming: Incoming,
    queue: Vec<u8>,
    sending: Sending,
}

/// Places in a poll set.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Places {
    input: Option<usize>,
    output: Option<usize>,
    errors: Option<usize>,
}

/// What a look at an agent has brought.
pub(super) enum Heard {
    /// Messages, perhaps none.
    Messages(Vec<(u8, Vec<u8>)>),
    /// It has closed its output.
    End,
    /// It says what no agent of this version says.
    Nonsense,
}

impl Connection {
    pub(super) fn new(host: String, mut child: Child, sending: Sending) -> io::Result<Connection> {
        let own = |fd: OwnedFd| -> io::Result<File> {
            set_nonblocking(fd.as_fd())?;
            Ok(fd.into())
        };
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let errors = child.stderr.take();
        Ok(Connection {
            name: host.clone(),
            host,
            stage: Stage::Starting,
            addresses: Vec::new(),
            cores: 0,
            ports: Vec::new(),
            heard: Instant::now(),
            input: input.map(|fd| own(fd.into())).transpose()?,
            output: output.map(|fd| own(fd.into())).transpose()?,
            errors: errors.map(|fd| own(fd.into())).transpose()?,
            child,
            said: Said::default(),
            incoming: Incoming::default(),
            queue: Vec::new(),
            sending,
        })
    }

    pub(super) fn is_there(&self) -> bool {
        self.stage < Stage::Gone
    }

    /// Queues a message. The windows of the streams bound how much can wait.
    pub(super) fn say(&mut self, message: &[u8]) {
        if self.is_there() {
            self.queue.extend_from_slice(message);
        }
    }

    /// Queues the next pieces of the programs that it gets, when it has taken those before.
    ///
    /// # Errors
    /// In words, when one cannot be read.
    pub(super) fn send_programs(&mut self) -> Result<(), String> {
        // Not before there is somebody to take it.
        while self.is_there() && self.stage > Stage::Starting {
            match self.sending.next(self.queue.len())? {
                Some(piece) => self.say(&piece),
                None => break,
            }
        }
        Ok(())
    }

    pub(super) fn register(&self, poll: &mut PollSet) -> Places {
        let (input, output, errors) = (&self.input, &self.output, &self.errors);
        let input = input.as_ref().filter(|_| !self.queue.is_empty());
        Places {
            input: input.map(|file| poll.add_writable(file.as_fd())),
            output: output.as_ref().map(|file| poll.add_readable(file.as_fd())),
            errors: errors.as_ref().map(|file| poll.add_readable(file.as_fd())),
        }
    }

    /// Writes and reads what is possible.
    pub(super) fn turn(&mut self, poll: &PollSet, places: Places) -> Heard {
        if places.input.is_some_and(|at| poll.ready(at).writable) {
            self.write();
        }
        if places.errors.is_some_and(|at| poll.ready(at).readable) {
            self.read_errors();
        }
        if places.output.is_some_and(|at| poll.ready(at).readable) {
            return self.read();
        }
        Heard::Messages(Vec::new())
    }

    fn write(&mut self) {
        let Some(mut input) = self.input.as_ref() else {
            return;
        };
        match input.write(&self.queue) {
            Ok(n) => drop(self.queue.drain(..n)),
            Err(error) if is_later(&error) => {}
            // The end of its output says so, too.
            Err(_) => self.queue.clear(),
        }
    }

    fn read_errors(&mut self) {
        let mut bytes = [0; 1024];
        let Some(mut errors) = self.errors.as_ref() else {
            return;
        };
        match errors.read(&mut bytes) {
            Ok(0) => self.errors = None,
            Ok(n) => {
                keep(&mut self.said.complaint, &bytes[..n]);
            }
            Err(error) if is_later(&error) => {}
            Err(_) => self.errors = None,
        }
    }

    fn read(&mut self) -> Heard {
        let mut bytes = vec![0; READ_BYTES];
        let Some(mut output) = self.output.as_ref() else {
            return Heard::End;
        };
        match output.read(&mut bytes) {
            Ok(0) => return Heard::End,
            Ok(n) => {
                if self.stage == Stage::Starting {
                    keep(&mut self.said.preface, &bytes[..n]);
                }
                self.incoming.add(&bytes[..n]);
            }
            Err(error) if is_later(&error) => return Heard::Messages(Vec::new()),
            Err(_) => return Heard::End,
        }
        self.heard = Instant::now();
        if self.stage == Stage::Starting {
            if !self.incoming.skip_to_magic() {
                return Heard::Messages(Vec::new());
            }
            self.stage = Stage::Greeted;
        }
        let mut messages = Vec::new();
        loop {
            match self.incoming.take() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => return Heard::Messages(messages),
                Err(Broken) => return Heard::Nonsense,
            }
        }
    }

    /// Gives it up: its host ends what is left there when it hears nothing any more.
    pub(super) fn give_up(&mut self) {
        self.stage = Stage::Gone;
        self.input = None;
        self.output = None;
        let _ = self.child.kill();
    }

    /// The process of its remote shell.
    pub(super) fn shell(&self) -> u32 {
        self.child.id()
    }

    /// Reaps the remote shell, which has ended.
    pub(super) fn reap(&mut self) {
        let _ = self.child.try_wait();
    }

    /// Says nothing more to it.
    pub(super) fn close(&mut self) {
        self.input = None;
    }

    /// Why the connection has ended, as far as the remote shell tells.
    pub(super) fn why_it_ended(&mut self) -> String {
        // The remote shell has closed its output, and ends.
        let until = Instant::now() + Duration::from_millis(500);
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < until => {
                    let mut poll = PollSet::default();
                    let _ = poll.wait(Some(Duration::from_millis(10)));
                }
                _ => break None,
            }
        };
        while self.errors.is_some() {
            let before = self.said.complaint.len();
            self.read_errors();
            if self.said.complaint.len() == before {
                break;
            }
        }
        let mut said = String::from_utf8_lossy(&self.said.complaint).into_owned();
        if self.stage == Stage::Starting {
            said.push('\n');
            said += &String::from_utf8_lossy(&self.said.preface);
        }
        // A greeting may have colours.
        said.retain(|c| c == '\n' || !c.is_control());
        let said: Vec<&str> = said
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty())
            .collect();
        let said = said.join("; ");
        match (self.stage, status.and_then(|s| s.code())) {
            (Stage::Starting, Some(127)) => format!(
                "host {}: Margay is not there ({said}); install it at the same path on all hosts",
                self.host
            ),
            (Stage::Starting, code) => {
                let code = code.map_or_else(String::new, |code| format!(" with code {code}"));
                let said = if said.is_empty() { "nothing" } else { &said };
                format!(
                    "host {}: the remote shell ended{code} before an agent ran there, and said: {said}; see \"When it does not work\" in docs/hosts.md",
                    self.host
                )
            }
            _ => {
                let said = if said.is_empty() {
                    String::new()
                } else {
                    format!(" ({said})")
                };
                format!(
                    "host {}: the agent has gone{said}: somebody killed it, or the host went down; the job has been ended",
                    self.host
                )
            }
        }
    }

    /// Why it counts as gone although its connection is open.
    pub(super) fn why_it_is_silent(&self) -> String {
        match self.stage {
            Stage::Starting => format!(
                "host {}: no agent has answered; see whether the remote shell asks for something: ssh -o BatchMode=yes {} true",
                self.host, self.host
            ),
            _ => format!(
                "host {} has not answered for {} s: the host or the network is down; the job has been ended",
                self.host,
                wire::SILENCE_MS / 1000
            ),
        }
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
