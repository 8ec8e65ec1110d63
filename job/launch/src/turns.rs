//! The turns of a job that runs in a partition: what the launcher and the keeper beside it say to
//! each other. The keeper, `margay-part`, knows partitions and stops and continues the ranks.

use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use margay_sys_os::descriptor::PollSet;
use margay_sys_os::port::Channel;
use margay_sys_os::process::{PidFd, beside};
use margay_sys_os::signal::take_defaults_in;

/// The program that keeps, beside the launcher.
const PROGRAM: &str = "margay-part";
/// A keeper that has not ended by then is killed.
const ENDS_WITHIN: Duration = Duration::from_millis(500);
/// Between the fields of a message.
const FIELD: char = '\u{1f}';

/// What a job asks for.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// The partition.
    pub name: &'a str,
    /// The number of ranks; none for as many as the partition has nodes.
    pub ranks: Option<u32>,
    /// The number is one of nodes, neither more nor fewer.
    pub is_exact: bool,
    /// How nodes are wanted of a pool of POE; none where it is no pool.
    pub pool: Option<Pool>,
    /// 0 to 10.
    pub priority: Option<u32>,
    /// What runs, for displays.
    pub command: &'a str,
    /// The launcher's name.
    pub launcher: &'a str,
}

/// Where a job in a partition runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// On these cores of this machine.
    Cores(Vec<usize>),
    /// On hosts with their places, `a:4,b:2`.
    Hosts(String),
}

/// Nodes of a pool of POE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// They are for this job alone.
    pub is_dedicated: bool,
}

/// The keeper of a job.
#[derive(Debug)]
pub struct Turns {
    /// None when it is gone.
    channel: Option<Channel>,
    keeper: Child,
    /// The process that has started the keeper; the guard, a copy of it, drops its copy of this.
    owner: u32,
    out_since: Option<Instant>,
}

/// What the keeper said.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// The ranks are stopped.
    Out,
    /// They run again, after this time.
    In(Duration),
    /// There is no turn, for this reason.
    Refused(String),
    /// The keeper is gone.
    Gone,
}

impl Turns {
    /// Asks for a turn and waits for it. Returns where the job runs.
    ///
    /// # Errors
    /// Why the job cannot run there.
    pub fn begin(wanted: &Wanted<'_>) -> Result<(Turns, Nodes), String> {
        let mut turns = Turns::ask(wanted)?;
        let nodes = turns.first(wanted.launcher)?;
        Ok((turns, nodes))
    }

    /// Asks for a turn.
    ///
    /// # Errors
    /// Why nobody can be asked.
    pub fn ask(wanted: &Wanted<'_>) -> Result<Turns, String> {
        let program = program()?;
        let failed = |error: io::Error| match error.kind() {
            ErrorKind::NotFound => format!(
                "partitions are not installed: there is no {}; use the margay of a whole installation, such as \
                 `make install` makes",
                program.display()
            ),
            _ => format!("{} cannot be run: {error}", program.display()),
        };
        let (channel, theirs) = Channel::to_standard_input().map_err(failed)?;
        let keeper = take_defaults_in(Command::new(&program).arg("attend"))
            .stdin(theirs)
            .stdout(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let turns = Turns {
            channel: Some(channel),
            keeper,
            owner: std::process::id(),
            out_since: None,
        };
        let number = |n: Option<u32>| n.map_or_else(String::new, |n| n.to_string());
        let mut size = number(wanted.ranks.or(Some(0)));
        let words = [
            (wanted.pool.is_some(), " pool"),
            (wanted.is_exact, " exact"),
            (
                wanted.pool.is_some_and(|pool| pool.is_dedicated),
                " dedicated",
            ),
        ];
        size.extend(words.iter().filter(|(is, _)| *is).map(|(_, word)| *word));
        turns.tell(&[
            "begin",
            wanted.name,
            &size,
            &number(wanted.priority),
            &std::process::id().to_string(),
            wanted.command,
        ]);
        Ok(turns)
    }

    /// Waits for the first turn.
    fn first(&mut self, launcher: &str) -> Result<Nodes, String> {
        let mut poll = PollSet::default();
        while let Some(channel) = &mut self.channel {
            let message = match channel.receive() {
                Ok(Some(message)) => String::from_utf8_lossy(&message).into_owned(),
                Ok(None) => {
                    poll.clear();
                    poll.add_readable(channel.as_fd());
                    poll.wait(None)
                        .map_err(|error| format!("cannot wait for a turn: {error}"))?;
                    continue;
                }
                Err(_) => break,
            };
            match message.split(FIELD).collect::<Vec<_>>()[..] {
                ["in", cores, _] => return Ok(Nodes::Cores(cores_of(cores))),
                ["hosts", list] => return Ok(Nodes::Hosts(list.to_owned())),
                ["say", text] => {
                    let _ = writeln!(io::stderr(), "{launcher}: {text}");
                }
                ["refused", text] => return Err(text.to_owned()),
                _ => {}
            }
        }
        Err("the keeper of the job in its partition has died; try again".into())
    }

    fn tell(&self, fields: &[&str]) {
        let plain = |field: &&str| field.replace(char::is_control, " ");
        let fields: Vec<String> = fields.iter().map(plain).collect();
        if let Some(channel) = &self.channel {
            // A keeper that is gone is noticed when it is read from.
            let _ = channel.send_now(fields.join(&FIELD.to_string()).as_bytes());
        }
    }

    /// Says below which process all of the job's are.
    pub fn began(&self, guard: u32) {
        self.tell(&["guard", &guard.to_string()]);
    }

    /// The user stops the job, or continues it.
    pub(crate) fn hold(&self, is_held: bool) {
        self.tell(&[if is_held { "held" } else { "released" }]);
    }

    /// All ranks are stopped, on all hosts.
    pub fn halted(&self) {
        self.tell(&["halted"]);
    }

    /// All of the job has ended, and this process goes on.
    pub fn ended(&self) {
        self.tell(&["ended"]);
    }

    /// Whether the ranks are stopped now.
    pub(crate) fn is_out(&self) -> bool {
        self.out_since.is_some()
    }

    /// The connection to the keeper; none when it is gone.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.channel.as_ref().map(AsFd::as_fd)
    }

    /// The next thing that the keeper said, if there is any.
    pub fn news(&mut self) -> Option<Said> {
        loop {
            let message = match self.channel.as_mut()?.receive() {
                Ok(Some(message)) => String::from_utf8_lossy(&message).into_owned(),
                Ok(None) => return None,
                Err(_) => {
                    self.channel = None;
                    return Some(Said::Gone);
                }
            };
            let mut fields = message.split(FIELD);
            match fields.next() {
                Some("refused") => {
                    return Some(Said::Refused(fields.next().unwrap_or_default().into()));
                }
                Some("out") => {
                    self.out_since.get_or_insert_with(Instant::now);
                    return Some(Said::Out);
                }
                Some("in" | "hosts") => {
                    let since = self.out_since.take();
                    return Some(Said::In(since.map_or(Duration::ZERO, |at| at.elapsed())));
                }
                _ => {}
            }
        }
    }

    /// After the keeper has gone: how long the ranks were stopped.
    pub(crate) fn out_for(&mut self) -> Duration {
        let since = self.out_since.take();
        since.map_or(Duration::ZERO, |at| at.elapsed())
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        if self.owner == std::process::id() {
            // All of the job has ended, and with the connection the keeper's work.
            self.channel = None;
            if let Ok(handle) = PidFd::open(self.keeper.id()) {
                let mut poll = PollSet::default();
                poll.add_readable(handle.as_fd());
                let _ = poll.wait(Some(ENDS_WITHIN));
            }
            let _ = self.keeper.kill();
            let _ = self.keeper.wait();
        }
    }
}

fn program() -> Result<PathBuf, String> {
    beside(PROGRAM).map_err(|error| error.to_string())
}

/// Reads `0-2,4`.
fn cores_of(list: &str) -> Vec<usize> {
    let ranges = list.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    });
    ranges.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read() {
        assert_eq!(cores_of("0-2,4"), [0, 1, 2, 4]);
        assert_eq!(cores_of("7"), [7]);
        assert!(cores_of("").is_empty());
    }
}
