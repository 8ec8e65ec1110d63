//! The guard: the process between the launcher and the ranks, so that nothing is left behind.
//!
//! ```text
//! launcher ──── guard ──┬── rank 0 ─── what it starts
//!   (I/O, messages)     ├── rank 1
//!                       └── rank 2 ─── what it starts
//! ```
//!
//! The guard is forked by the launcher, starts the ranks, passes signals on, reaps, and tells the
//! launcher which rank ended and how. It reads and writes nothing of the job's. Launcher and guard
//! are both "child subreapers": a process below them whose parent dies becomes the child of the
//! guard, or of the launcher if the guard is dead, even when it has left its process group and
//! session.
//!
//! - The launcher is killed: the guard sees its socket closed, kills all its descendants until it
//!   has no child left, and ends.
//! - The guard is killed: the kernel kills the ranks (parent-death signal), the rest becomes the
//!   launcher's, which kills it, reports and ends.
//! - Both are killed at the same instant: the kernel kills the ranks; only processes that a rank
//!   started itself could survive.
//!
//! Since every descendant is found through its parents, no environment variable, file or process
//! group has to be trusted, and no process outside the job is ever signalled.

use std::collections::VecDeque;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use margay_sys_os::descriptor::{FileLimit, PollSet, replace_standard};
use margay_sys_os::process::{
    self, Forked, Reaped, ReapedUsage, Start, Starter, Step, StringArray,
};
use margay_sys_os::signal::{self, SignalFd, SignalSet};
use margay_sys_shm::segment::Segment;

use crate::environment;
use crate::frameworks::Devices;

/// What the guard needs to start the ranks.
#[derive(Debug)]
pub struct Plan {
    /// The programs.
    pub programs: Vec<ProgramStart>,
    /// The ranks, in order; each is dropped once it is started.
    pub ranks: VecDeque<RankStart>,
    /// The descriptor of the segment, as the ranks inherit it.
    pub segment_fd: OwnedFd,
    /// The limit of open files that the ranks get.
    pub files: FileLimit,
    /// Which devices the ranks get.
    pub devices: Devices,
    /// The signals that were blocked when the launcher was started; the ranks get the same.
    pub blocked: SignalSet,
    /// Whether the job has a session of its own; else that of the caller, who leads it alone.
    pub has_session: bool,
}

/// A program, ready to be executed.
#[derive(Debug)]
pub struct ProgramStart {
    /// Its path.
    pub path: CString,
    /// Its arguments, the name first.
    pub arguments: StringArray,
    /// Its environment without the rank's number.
    pub environment: Vec<CString>,
    /// Its working directory.
    pub directory: Option<CString>,
}

/// A rank, ready to be started.
#[derive(Debug)]
pub struct RankStart {
    /// Its number in the job.
    pub rank: u32,
    /// Its number among the ranks of this host.
    pub local: u32,
    /// Index of its program.
    pub program: usize,
    /// Its standard input; none is the launcher's own.
    pub stdin: Option<Arc<OwnedFd>>,
    /// Its standard output and error.
    pub output: [OwnedFd; 2],
    /// Its cores; empty for no binding.
    pub cores: Vec<usize>,
    /// Where ranks of other hosts connect to it, in a job on several hosts.
    pub listener: Option<OwnedFd>,
}

/// Messages of the guard, or of the relay that stands for it on other hosts, to the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A rank could not be started; no further ones are.
    Failed {
        /// The rank.
        rank: u32,
        /// What failed.
        step: Step,
        /// The kernel's error number.
        errno: i32,
    },
    /// A rank's process has ended.
    Ended {
        /// The rank.
        rank: u32,
        /// How.
        status: ExitStatus,
    },
    /// What a rank had written to one of its streams before it ended has been passed on. From the
    /// relay only: the guard's launcher has the streams itself.
    Drained {
        /// The rank.
        rank: u32,
        /// Standard error, not standard output.
        is_error: bool,
    },
    /// No process of the job is left, but output is still on its way. From the relay only.
    NoneLeft,
    /// All processes of the job are stopped, on all hosts. From the relay only.
    Halted,
    /// No process of the job is left, and nothing is on its way. The last event.
    Empty,
    /// Something that the user must read has happened on another host. The job is ended with that
    /// status.
    Said {
        /// A line.
        text: String,
        /// The launcher's exit status, where nothing failed before.
        status: u8,
    },
}

/// Messages of the launcher to the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Send a signal to the process group of every living rank.
    Signal(i32),
    /// Kill everything.
    Kill,
    /// Continue all processes of the job, wherever they are.
    Resume,
    /// Stop them all, until they are to be continued. For the relay only, which answers.
    Halt,
}

/// The launcher's handle of its guard.
#[derive(Debug)]
pub struct Guard {
    pid: u32,
    socket: UnixStream,
    partial: Vec<u8>,
    /// It is a relay, which has the ranks' pipes.
    relays: bool,
}

const EVENT_BYTES: usize = 16;
/// Bytes of a command.
pub(crate) const COMMAND_BYTES: usize = 8;

/// Forks the guard, which begins to start the ranks. `launcher_side` are the launcher's values
/// whose descriptors the guard must not keep open: they are dropped there and handed back here.
///
/// # Errors
/// When the kernel refuses to fork.
pub fn start<T>(plan: Plan, segment: &Segment, launcher_side: T) -> io::Result<(Guard, T)> {
    let (ours, its) = UnixStream::pair()?;
    process::become_subreaper()?;
    match process::fork()? {
        Forked::Child => {
            drop((ours, launcher_side));
            guard(plan, segment, its)
        }
        Forked::Parent(pid) => {
            ours.set_nonblocking(true)?;
            Ok((Guard::over(pid, ours, false), launcher_side))
        }
    }
}

impl Guard {
    /// Returns the guard's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Tells the guard something. A guard that is gone is noticed when its events are read.
    pub fn tell(&mut self, command: Command) {
        let (kind, value) = match command {
            Command::Signal(signal) => (1, signal),
            Command::Kill => (2, 0),
            Command::Resume => (3, 0),
            Command::Halt => (4, 0),
        };
        let mut bytes = [0; COMMAND_BYTES];
        bytes[..4].copy_from_slice(&i32::to_ne_bytes(kind));
        bytes[4..].copy_from_slice(&value.to_ne_bytes());
        let _ = self.socket.write_all(&bytes);
    }

    /// Returns the events that have arrived, and whether the guard is still there. Does not block.
    pub fn events(&mut self) -> (Vec<Event>, bool) {
        let mut buffer = [0; 256 * EVENT_BYTES];
        let alive = loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => break false,
                Ok(n) => self.partial.extend_from_slice(&buffer[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break error.kind() == io::ErrorKind::WouldBlock,
            }
        };
        let mut events = Vec::new();
        let mut used = 0;
        while let Some(bytes) = self.partial.get(used..used + EVENT_BYTES) {
            let Some(len) = text_bytes(bytes) else {
                events.extend(decode(bytes));
                used += EVENT_BYTES;
                continue;
            };
            let Some(text) = self
                .partial
                .get(used + EVENT_BYTES..used + EVENT_BYTES + len)
            else {
                break;
            };
            events.push(Event::Said {
                text: String::from_utf8_lossy(text).into_owned(),
                status: bytes[8],
            });
            used += EVENT_BYTES + len;
        }
        self.partial.drain(..used);
        (events, alive)
    }

    /// The handle of a guard that `socket` leads to; `relays`: it stands for those of other hosts.
    pub(crate) fn over(pid: u32, socket: UnixStream, relays: bool) -> Guard {
        Guard {
            pid,
            socket,
            partial: Vec::new(),
            relays,
        }
    }

    /// Whether what a rank wrote may still be on its way when it has ended.
    pub(crate) fn relays(&self) -> bool {
        self.relays
    }

    /// Reaps the guard after it has said that it is at its end. The relay waits for this, because
    /// it can be asked until then. Returns what the ranks used.
    pub fn bury(&self) -> ReapedUsage {
        let _ = self.socket.shutdown(Shutdown::Both);
        let mut used = ReapedUsage::default();
        let _ = used.reap_one(self.pid);
        used
    }
}

impl AsFd for Guard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// An event as bytes; that of a text is followed by it.
pub(crate) fn encode(event: &Event) -> Vec<u8> {
    let (words, text) = match event {
        Event::Failed { rank, step, errno } => ([1, *rank as i32, *step as i32, *errno], ""),
        Event::Ended { rank, status } => ([2, *rank as i32, status.into_raw(), 0], ""),
        Event::Empty => ([3, 0, 0, 0], ""),
        Event::Drained { rank, is_error } => ([5, *rank as i32, i32::from(*is_error), 0], ""),
        Event::NoneLeft => ([6, 0, 0, 0], ""),
        Event::Halted => ([7, 0, 0, 0], ""),
        Event::Said { text, status } => (
            [SAID, text.len() as i32, i32::from(*status), 0],
            text.as_str(),
        ),
    };
    let words = words.into_iter().flat_map(i32::to_ne_bytes);
    words.chain(text.bytes()).collect()
}

const SAID: i32 = 4;

/// Bytes of the text that follows an event.
fn text_bytes(bytes: &[u8]) -> Option<usize> {
    let word =
        |at: usize| i32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    (word(0) == SAID).then_some(word(4).max(0) as usize)
}

fn decode(bytes: &[u8]) -> Option<Event> {
    let mut words = bytes
        .chunks_exact(4)
        .map(|w| i32::from_ne_bytes([w[0], w[1], w[2], w[3]]));
    let (kind, rank) = (words.next()?, words.next()? as u32);
    let (a, b) = (words.next()?, words.next()?);
    match kind {
        1 => Some(Event::Failed {
            rank,
            step: Step::from_number(a)?,
            errno: b,
        }),
        2 => Some(Event::Ended {
            rank,
            status: ExitStatus::from_raw(a),
        }),
        3 => Some(Event::Empty),
        5 => Some(Event::Drained {
            rank,
            is_error: a != 0,
        }),
        6 => Some(Event::NoneLeft),
        7 => Some(Event::Halted),
        _ => None,
    }
}

/// The command that bytes are.
pub(crate) fn command_of(bytes: [u8; COMMAND_BYTES]) -> Command {
    let word = |i: usize| i32::from_ne_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
    match word(0) {
        1 => Command::Signal(word(4)),
        3 => Command::Resume,
        4 => Command::Halt,
        _ => Command::Kill,
    }
}

/// The guard's life. It never returns to the launcher's code.
fn guard(plan: Plan, segment: &Segment, socket: UnixStream) -> ! {
    // Signals are for the launcher, which passes them on; and a signal from the terminal must not
    // even arrive here. Where the kernel shares the cores among sessions (autogroups), a session
    // of its own also gives the job its share: among the processes of the shell that started it,
    // two ranks that compute and meet took 2.7 times as long beside two busy processes of that
    // shell. An agent has been given a session already: that of its remote shell. Hosts that are
    // namespaces of one machine may have one in common then, so that a rank that yields its core
    // gives it to those of other hosts as well.
    match plan.has_session {
        true => process::lead_session(),
        false => process::lead_group(),
    }
    process::set_name(c"margay-guard");
    SignalSet::all().block_exactly();
    let _ = process::become_subreaper();
    let mut state = State {
        pids: Vec::with_capacity(plan.ranks.len()),
        plan: Some(plan),
        segment,
        socket,
        starter: Starter::new(),
        look: false,
    };
    if state.serve().is_err() {
        // The launcher is gone, or nothing can be sent to it any more.
        while !process::kill_descendants(&[], Duration::from_secs(1)) {}
    }
    std::process::exit(0)
}

struct State<'a> {
    /// Number and process id of each rank that has been started, 0 after it ended.
    pids: Vec<(u32, u32)>,
    /// Given up when all ranks are started, so that their pipes are theirs alone.
    plan: Option<Plan>,
    segment: &'a Segment,
    socket: UnixStream,
    starter: Starter,
    /// Children may have ended without a signal that is still to come.
    look: bool,
}

impl State<'_> {
    /// Serves until nothing is left (Ok) or the launcher is gone (Err).
    fn serve(&mut self) -> io::Result<()> {
        let mut children = SignalFd::new(&SignalSet::of(&[signal::SIGCHLD]))?;
        let mut poll = PollSet::default();
        loop {
            let now = self.plan.is_some() || self.look;
            poll.clear();
            let socket = poll.add_readable(self.socket.as_fd());
            let child = poll.add_readable(children.as_fd());
            poll.wait(now.then_some(Duration::ZERO))?;
            if poll.ready(socket).readable {
                self.obey()?;
            }
            if poll.ready(child).readable || self.look {
                self.look = false;
                children.take();
                if self.reap()? {
                    return Ok(());
                }
            }
            self.start_next()?;
        }
    }

    fn start_next(&mut self) -> io::Result<()> {
        let Some(plan) = &mut self.plan else {
            return Ok(());
        };
        let Some(own) = plan.ranks.pop_front() else {
            self.started_all();
            return Ok(());
        };
        let rank = own.rank;
        let program = &plan.programs[own.program];
        let mut variables = program.environment.clone();
        let listener = own.listener.as_ref().map(|l| l.as_raw_fd());
        variables.extend(environment::of_rank(
            (rank, own.local),
            listener,
            &plan.devices,
        ));
        let environment = StringArray::new(variables);
        let launchers = io::stdin();
        let inherit: Vec<BorrowedFd<'_>> = std::iter::once(&plan.segment_fd)
            .chain(&own.listener)
            .map(AsFd::as_fd)
            .collect();
        let start = Start {
            program: &program.path,
            arguments: &program.arguments,
            environment: &environment,
            directory: program.directory.as_deref(),
            standard: [
                own.stdin
                    .as_ref()
                    .map_or_else(|| launchers.as_fd(), |own| own.as_fd()),
                own.output[0].as_fd(),
                own.output[1].as_fd(),
            ],
            inherit: &inherit,
            cores: &own.cores,
            files: plan.files,
            blocked: plan.blocked,
        };
        let core = match own.cores[..] {
            [core] => u32::try_from(core).ok(),
            _ => None,
        };
        match self.starter.start(&start) {
            Ok(pid) => {
                let registry = self.segment.registry();
                registry.identify(rank, pid, core, own.program as u32);
                self.pids.push((rank, pid));
                Ok(())
            }
            Err(error) => {
                self.started_all();
                self.say(Event::Failed {
                    rank,
                    step: error.step,
                    errno: error.error.raw_os_error().unwrap_or(0),
                })
            }
        }
    }

    /// Lets go of everything that belongs to the ranks or the user.
    fn started_all(&mut self) {
        self.plan = None;
        self.look = true;
        if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
            for number in 0..3 {
                let _ = replace_standard(number, null.as_fd());
            }
        }
    }

    /// Reaps all processes that have ended. Returns whether none is left.
    fn reap(&mut self) -> io::Result<bool> {
        loop {
            match process::reap() {
                Reaped::Child(pid, status) => {
                    if let Some(own) = self.pids.iter_mut().find(|own| own.1 == pid) {
                        own.1 = 0;
                        let rank = own.0;
                        let registry = self.segment.registry();
                        registry.set_exited(rank, status.success());
                        if registry.has_failed(rank) {
                            registry.add_failure();
                        }
                        self.say(Event::Ended { rank, status })?;
                    }
                }
                Reaped::NoneYet => return Ok(false),
                Reaped::NoChildren if self.plan.is_some() => return Ok(false),
                Reaped::NoChildren => {
                    self.say(Event::Empty)?;
                    return Ok(true);
                }
            }
        }
    }

    fn obey(&mut self) -> io::Result<()> {
        let mut bytes = [0; COMMAND_BYTES];
        self.socket.read_exact(&mut bytes)?;
        match command_of(bytes) {
            Command::Signal(signal) => {
                for &(_, pid) in self.pids.iter().filter(|own| own.1 != 0) {
                    // The group's leader is not reaped yet, so the number cannot mean another
                    // group.
                    if signal::send_to_group(pid, signal).is_err() {
                        let _ = signal::send(pid, signal);
                    }
                }
            }
            Command::Resume => process::continue_descendants(std::process::id()),
            // The keeper and the agent stop ranks, which the guard may not wait for.
            Command::Halt => {}
            Command::Kill => {
                self.started_all();
                while !process::kill_descendants(&[], Duration::from_secs(1)) {}
            }
        }
        Ok(())
    }

    fn say(&mut self, event: Event) -> io::Result<()> {
        self.socket.write_all(&encode(&event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_survive_the_socket() {
        let events = [
            Event::Failed {
                rank: 7,
                step: Step::Execute,
                errno: 8,
            },
            Event::Ended {
                rank: 3,
                status: ExitStatus::from_raw(0x8b),
            },
            Event::Said {
                text: "host b does not answer".into(),
                status: 9,
            },
            Event::Drained {
                rank: 4,
                is_error: true,
            },
            Event::NoneLeft,
            Event::Halted,
            Event::Empty,
        ];
        let (ours, mut its) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut guard = Guard::over(0, ours, false);
        let bytes: Vec<u8> = events.iter().flat_map(encode).collect();
        its.write_all(&bytes[..20]).unwrap();
        assert_eq!(guard.events(), (events[..1].to_vec(), true));
        its.write_all(&bytes[20..]).unwrap();
        drop(its);
        assert_eq!(guard.events(), (events[1..].to_vec(), false));
        assert_eq!(decode(&[9; EVENT_BYTES]), None);
    }
}
