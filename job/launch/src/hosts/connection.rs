//! The relay's end of one agent.

use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::Child;
use std::time::{Duration, Instant};

use margay_sys_os::descriptor::PollSet;

use super::shell::{Shell, is_later};
use super::stage::Sending;
use super::wire::{self, Broken, Incoming, Writer, kind};

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

/// How the relay reaches an agent.
enum Line {
    /// By a remote shell of its own.
    Shell(Shell),
    /// Through an agent that has the remote shell.
    Through(Through),
}

struct Through {
    /// The host of that agent, and the number of this host.
    parent: usize,
    number: u64,
    /// Bytes on the way that that agent has not passed on.
    under_way: usize,
    /// The programs that it is to pass on, until it knows.
    programs: Vec<u64>,
    /// What it still has to do: nothing, or close the input, or kill the remote shell.
    is_closed: bool,
    is_cut: bool,
    /// What the remote shell ended with.
    code: Option<i32>,
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
    /// When it has said that it is there.
    pub(super) greeted: Option<Instant>,
    line: Line,
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
    /// The agent that a remote shell starts.
    pub(super) fn new(host: String, child: Child, sending: Sending) -> io::Result<Connection> {
        let shell = Shell::of(child)?;
        Ok(Connection::by(Line::Shell(shell), host, sending))
    }

    /// The agent that the one of the host `parent` starts as its number `number`, and sends these
    /// programs to.
    pub(super) fn through(
        parent: usize,
        (number, host): (usize, String),
        programs: Vec<u64>,
    ) -> Connection {
        let through = Through {
            parent,
            number: number as u64,
            under_way: 0,
            programs,
            is_closed: false,
            is_cut: false,
            code: None,
        };
        Connection::by(Line::Through(through), host, Sending::default())
    }

    fn by(line: Line, host: String, sending: Sending) -> Connection {
        Connection {
            name: host.clone(),
            host,
            stage: Stage::Starting,
            addresses: Vec::new(),
            cores: 0,
            ports: Vec::new(),
            heard: Instant::now(),
            greeted: None,
            line,
            said: Said::default(),
            incoming: Incoming::default(),
            queue: Vec::new(),
            sending,
        }
    }

    /// The host whose agent has the remote shell, if it is not the relay.
    pub(super) fn parent(&self) -> Option<usize> {
        match &self.line {
            Line::Through(through) => Some(through.parent),
            Line::Shell(_) => None,
        }
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
        let Line::Shell(shell) = &self.line else {
            return Places::default();
        };
        let (input, output, errors) = (&shell.input, &shell.output, &shell.errors);
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

    /// The next message for the agent that has its remote shell.
    pub(super) fn next_down(&mut self) -> Option<Vec<u8>> {
        let Line::Through(through) = &mut self.line else {
            return None;
        };
        let number = through.number;
        if std::mem::take(&mut through.is_cut) {
            return Some(Writer::new(kind::CUT).number(number).done());
        }
        // Whole messages, between which that agent puts those of its own. One may be longer than
        // what may be under way.
        let room = wire::DOWN_WINDOW.saturating_sub(through.under_way);
        let mut bytes = wire::whole(&self.queue, room.min(READ_BYTES));
        if bytes == 0 && through.under_way == 0 {
            bytes = wire::first(&self.queue);
        }
        if bytes > 0 {
            through.under_way += bytes;
            let down = (Writer::new(kind::DOWN).number(number))
                .bytes(&self.queue[..bytes])
                .done();
            self.queue.drain(..bytes);
            return Some(down);
        }
        // Behind its task.
        if !through.programs.is_empty() && self.queue.is_empty() {
            let mut message = Writer::new(kind::PASS_ON);
            let programs = std::mem::take(&mut through.programs);
            message.number(number).number(programs.len() as u64);
            for program in programs {
                message.number(program);
            }
            return Some(message.done());
        }
        let closes = std::mem::take(&mut through.is_closed);
        closes.then(|| Writer::new(kind::DOWN).number(number).bytes(&[]).done())
    }

    /// The agent that has its remote shell has passed bytes on.
    pub(super) fn add_room(&mut self, bytes: usize) {
        if let Line::Through(through) = &mut self.line {
            through.under_way = through.under_way.saturating_sub(bytes);
        }
    }

    /// Its remote shell has ended, says the agent that has it.
    pub(super) fn end(&mut self, ended: Option<i32>) -> Heard {
        if let Line::Through(through) = &mut self.line {
            through.code = ended;
        }
        Heard::End
    }

    /// Takes what the agent that has its remote shell passes on.
    pub(super) fn arrive(&mut self, is_error: bool, bytes: &[u8]) -> Heard {
        if is_error {
            keep(&mut self.said.complaint, bytes);
            return Heard::Messages(Vec::new());
        }
        self.understand(bytes)
    }

    fn write(&mut self) {
        let Line::Shell(shell) = &mut self.line else {
            return;
        };
        let Some(mut input) = shell.input.as_ref() else {
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
        let Line::Shell(shell) = &mut self.line else {
            return;
        };
        let mut bytes = [0; 1024];
        let Some(mut errors) = shell.errors.as_ref() else {
            return;
        };
        match errors.read(&mut bytes) {
            Ok(0) => shell.errors = None,
            Ok(n) => {
                keep(&mut self.said.complaint, &bytes[..n]);
            }
            Err(error) if is_later(&error) => {}
            Err(_) => shell.errors = None,
        }
    }

    fn read(&mut self) -> Heard {
        let Line::Shell(shell) = &self.line else {
            return Heard::End;
        };
        let mut bytes = vec![0; READ_BYTES];
        let Some(mut output) = shell.output.as_ref() else {
            return Heard::End;
        };
        match output.read(&mut bytes) {
            Ok(0) => Heard::End,
            Ok(n) => self.understand(&bytes[..n]),
            Err(error) if is_later(&error) => Heard::Messages(Vec::new()),
            Err(_) => Heard::End,
        }
    }

    /// The messages that are whole with these bytes.
    fn understand(&mut self, bytes: &[u8]) -> Heard {
        if self.stage == Stage::Starting {
            keep(&mut self.said.preface, bytes);
        }
        self.incoming.add(bytes);
        self.heard = Instant::now();
        if self.stage == Stage::Starting {
            if !self.incoming.skip_to_magic() {
                return Heard::Messages(Vec::new());
            }
            self.stage = Stage::Greeted;
            self.greeted = Some(self.heard);
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
        match &mut self.line {
            Line::Shell(shell) => {
                shell.input = None;
                shell.output = None;
                let _ = shell.child.kill();
            }
            Line::Through(through) => {
                self.queue.clear();
                through.programs.clear();
                through.is_cut = true;
            }
        }
    }

    /// Whether that process is its remote shell, which is reaped if it has ended.
    pub(super) fn reap(&mut self, pid: u32) -> bool {
        match &mut self.line {
            Line::Shell(shell) if shell.child.id() == pid => {
                let _ = shell.child.try_wait();
                true
            }
            _ => false,
        }
    }

    /// Says nothing more to it.
    pub(super) fn close(&mut self) {
        match &mut self.line {
            Line::Shell(shell) => shell.input = None,
            Line::Through(through) => through.is_closed = true,
        }
    }

    /// The code that its remote shell ended with, and the rest of what that has said.
    fn ended_with(&mut self) -> Option<i32> {
        let shell = match &mut self.line {
            Line::Through(through) => return through.code,
            Line::Shell(shell) => shell,
        };
        // The remote shell has closed its output, and ends.
        let until = Instant::now() + Duration::from_millis(500);
        let status = loop {
            match shell.child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < until => {
                    let mut poll = PollSet::default();
                    let _ = poll.wait(Some(Duration::from_millis(10)));
                }
                _ => break None,
            }
        };
        loop {
            let before = self.said.complaint.len();
            self.read_errors();
            if self.said.complaint.len() == before {
                break;
            }
        }
        status.and_then(|status| status.code())
    }

    /// Why the connection has ended, as far as the remote shell tells.
    pub(super) fn why_it_ended(&mut self) -> String {
        let code = self.ended_with();
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
        match (self.stage, code) {
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
