//! The remote shells that an agent has started for others: the branches of a tree of agents, by
//! which the launcher's host needs no more remote shells than the tree is wide.
//!
//! An agent passes the bytes of its branches on and does not read them. Programs that are sent to
//! the hosts it sends on itself: they come once to each agent that the launcher started.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use margay_sys_os::descriptor::PollSet;

use super::shell::{self, Shell, is_later};
use super::stage::{Sending, Source};
use super::wire::{Writer, kind};

const READ_BYTES: usize = 64 << 10;
/// A remote shell that has closed its output has this much time to end.
const END_LIMIT: Duration = Duration::from_millis(500);

/// The branches of an agent.
#[derive(Default)]
pub(super) struct Branches {
    all: Vec<Branch>,
    /// The programs that are here, for the branches.
    here: Vec<Source>,
}

struct Branch {
    /// The host's number for the relay.
    number: u64,
    shell: Shell,
    waiting: Vec<u8>,
    /// Bytes of `waiting` that the relay has sent.
    owed: usize,
    /// Its input ends behind `waiting`.
    closes: bool,
    /// Numbers of the programs that it waits for.
    wants: Vec<u64>,
    sending: Sending,
    /// Its output has ended; so long its remote shell may take.
    until: Option<Instant>,
}

/// Places of a branch in a poll set: input, output, errors.
type Places = [Option<usize>; 3];

impl Branches {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The processes of the remote shells.
    pub(super) fn shells(&self) -> Vec<u32> {
        self.all
            .iter()
            .map(|branch| branch.shell.child.id())
            .collect()
    }

    /// Starts the remote shell for a host, or says why it cannot.
    pub(super) fn start(&mut self, number: u64, host: &str, words: &[OsString]) -> Option<Vec<u8>> {
        match Branch::start(number, host, words) {
            Ok(branch) => {
                self.all.push(branch);
                None
            }
            Err(error) => {
                let text = format!("cannot run the remote shell: {error}");
                let mut said = up(number, true, text.as_bytes());
                said.extend(ended(number, None));
                Some(said)
            }
        }
    }

    fn of(&mut self, number: u64) -> Option<&mut Branch> {
        self.all.iter_mut().find(|branch| branch.number == number)
    }

    /// Takes bytes of the relay for a branch; none are the end.
    pub(super) fn take(&mut self, number: u64, bytes: &[u8]) {
        if let Some(branch) = self.of(number) {
            branch.waiting.extend_from_slice(bytes);
            branch.owed += bytes.len();
            branch.closes |= bytes.is_empty();
        }
    }

    /// Kills the remote shell of a branch that the relay has given up.
    pub(super) fn cut(&mut self, number: u64) {
        if let Some(branch) = self.of(number) {
            branch.end();
        }
    }

    /// Kills all remote shells: the relay is gone.
    pub(super) fn cut_all(&mut self) {
        self.all.iter_mut().for_each(Branch::end);
        self.all.clear();
    }

    /// A branch has its task and gets these programs as soon as they are here.
    pub(super) fn pass_on(&mut self, number: u64, programs: Vec<u64>) {
        if let Some(branch) = self.of(number) {
            branch.wants = programs;
        }
        self.deal();
    }

    /// A program is here.
    pub(super) fn add(&mut self, program: Source) {
        self.here.push(program);
        self.deal();
    }

    fn deal(&mut self) {
        for branch in &mut self.all {
            for program in &self.here {
                let wants = branch.wants.iter().position(|&own| own == program.number());
                if let Some(at) = wants {
                    branch.wants.remove(at);
                    branch.sending.add(program.clone());
                }
            }
        }
    }

    /// Registers what can be read, and what wants to be written.
    pub(super) fn register(&self, poll: &mut PollSet) -> Vec<Places> {
        let places = |branch: &Branch, poll: &mut PollSet| {
            let input = branch.shell.input.as_ref().filter(|_| branch.has_input());
            [
                input.map(|file| poll.add_writable(file.as_fd())),
                (branch.shell.output.as_ref()).map(|file| poll.add_readable(file.as_fd())),
                (branch.shell.errors.as_ref()).map(|file| poll.add_readable(file.as_fd())),
            ]
        };
        self.all.iter().map(|branch| places(branch, poll)).collect()
    }

    /// When a remote shell that should end is looked at again.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let ends = self.all.iter().any(|branch| branch.until.is_some());
        ends.then(|| Instant::now() + Duration::from_millis(10))
    }

    /// Reads and writes what is possible; what the relay is to know is added to `said`.
    pub(super) fn turn(&mut self, poll: &PollSet, places: &[Places], said: &mut Vec<u8>) {
        for (branch, [input, output, errors]) in self.all.iter_mut().zip(places) {
            if input.is_some_and(|at| poll.ready(at).writable) {
                branch.write(said);
            }
            if errors.is_some_and(|at| poll.ready(at).readable) {
                branch.read(true, said);
            }
            if output.is_some_and(|at| poll.ready(at).readable) {
                branch.read(false, said);
            }
        }
        self.all.retain_mut(|branch| !branch.is_over(said));
    }
}

impl Branch {
    fn start(number: u64, host: &str, words: &[OsString]) -> io::Result<Branch> {
        let shell = Shell::of(shell::start(host, Some(words))?)?;
        Ok(Branch {
            number,
            shell,
            waiting: Vec::new(),
            owed: 0,
            closes: false,
            wants: Vec::new(),
            sending: Sending::default(),
            until: None,
        })
    }

    fn has_input(&self) -> bool {
        !self.waiting.is_empty() || self.closes || !self.sending.is_over()
    }

    fn write(&mut self, said: &mut Vec<u8>) {
        let Some(mut input) = self.shell.input.as_ref() else {
            return;
        };
        match self.sending.next(self.waiting.len()) {
            Ok(Some(piece)) => self.waiting.extend_from_slice(&piece),
            Ok(None) => {}
            // The program is a file in this process's memory.
            Err(_) => self.closes = true,
        }
        let written = match input.write(&self.waiting) {
            Ok(n) => n,
            Err(error) if is_later(&error) => 0,
            // The end of its output says so, too.
            Err(_) => {
                self.shell.input = None;
                self.waiting.len()
            }
        };
        self.waiting.drain(..written);
        let room = written.min(self.owed);
        if room > 0 {
            self.owed -= room;
            let mut message = Writer::new(kind::ROOM);
            said.extend(message.number(self.number).number(room as u64).done());
        }
        if self.closes && self.waiting.is_empty() {
            self.shell.input = None;
        }
    }

    fn read(&mut self, is_error: bool, said: &mut Vec<u8>) {
        let source = match is_error {
            true => &mut self.shell.errors,
            false => &mut self.shell.output,
        };
        let Some(mut file) = source.as_ref() else {
            return;
        };
        let mut bytes = vec![0; READ_BYTES];
        match file.read(&mut bytes) {
            Ok(n) if n > 0 => said.extend(up(self.number, is_error, &bytes[..n])),
            Err(error) if is_later(&error) => {}
            _ => {
                *source = None;
                if !is_error {
                    self.until = Some(Instant::now() + END_LIMIT);
                }
            }
        }
    }

    /// Closes its input and kills its remote shell. Its output may stay open: a connection that
    /// several remote shells share has it, too.
    fn end(&mut self) {
        self.shell.input = None;
        let _ = self.shell.child.kill();
        self.until.get_or_insert(Instant::now() + END_LIMIT);
    }

    /// Whether its remote shell has ended, or lasts too long without output; the relay learns how.
    fn is_over(&mut self, said: &mut Vec<u8>) -> bool {
        let Some(until) = self.until else {
            return false;
        };
        let status = match self.shell.child.try_wait() {
            Ok(None) if Instant::now() < until => return false,
            Ok(status) => status,
            Err(_) => None,
        };
        self.read(true, said);
        self.end();
        let _ = self.shell.child.try_wait();
        said.extend(ended(self.number, status.and_then(|status| status.code())));
        true
    }
}

fn up(number: u64, is_error: bool, bytes: &[u8]) -> Vec<u8> {
    let mut message = Writer::new(kind::UP);
    message.number(number).number(is_error.into()).bytes(bytes);
    message.done()
}

fn ended(number: u64, code: Option<i32>) -> Vec<u8> {
    let mut message = Writer::new(kind::SHELL_ENDED);
    let code = code.map_or(0, |code| code as u64 + 1);
    message.number(number).number(code).done()
}
