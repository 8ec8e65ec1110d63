//! What the head starts on each other host of its machine: it claims the host, says what it has,
//! and that it is there, until the head has gone.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use margay_svc_queue_wire::{PROGRAM, Place, check_program, connect_system, passage_address};
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::port::is_trusted;
use margay_sys_os::process::beside;
use margay_sys_os::{cpu, memory};

use crate::callers::owner_of;
use crate::claim::{self, Claim, Claimant};
use crate::passage::Passage;
use crate::there;
use crate::wire::{BEAT, Wire};

/// How often it is seen whether commands of this host have another way to the head.
const LOOK: Duration = Duration::from_secs(1);

/// What a host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostFacts {
    pub cores: u32,
    pub memory_mib: u64,
}

impl HostFacts {
    /// They as a line.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{} {}", self.cores, self.memory_mib)
    }

    /// What this line says.
    #[must_use]
    pub fn of(text: &[u8]) -> Option<HostFacts> {
        let (cores, memory) = std::str::from_utf8(text).ok()?.split_once(' ')?;
        Some(HostFacts {
            cores: cores.parse().ok()?,
            memory_mib: memory.parse().ok()?,
        })
    }

    /// Of this host.
    #[must_use]
    pub fn here() -> HostFacts {
        let bytes = memory::limit_bytes().unwrap_or(u64::MAX);
        HostFacts {
            cores: (cpu::usable_cores() as u32).max(1),
            memory_mib: bytes.min(memory::installed_bytes()) >> 20,
        }
    }
}

/// Where commands of this host find the way to the head.
struct Commands {
    listener: UnixListener,
    /// Of the queue of all users, and which file that is.
    socket: Option<(PathBuf, u64)>,
}

impl Commands {
    fn listen(is_system: bool) -> Result<Commands, String> {
        let failed = |error: io::Error| format!("commands are not passed on: {error}");
        if is_system && connect_system()?.is_some() {
            return Err("the head that stands by on this host passes them on".into());
        }
        let socket = is_system
            .then(|| Place::system().new_socket())
            .transpose()?;
        let listener = match &socket {
            None => passage_address().and_then(|address| UnixListener::bind_addr(&address)),
            Some(path) => {
                // That of an agent that was killed.
                let _ = fs::remove_file(path);
                UnixListener::bind(path).and_then(|listener| {
                    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
                    Ok(listener)
                })
            }
        };
        let listener = listener.map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let socket = match socket {
            Some(path) => {
                let file = fs::symlink_metadata(&path).map_err(failed)?.ino();
                Some((path, file))
            }
            None => None,
        };
        Ok(Commands { listener, socket })
    }

    /// A command that asks, and in the queue of all users as a line who that is.
    fn next(&self) -> Option<(UnixStream, Vec<u8>)> {
        let (stream, _) = self.listener.accept().ok()?;
        if self.socket.is_none() {
            return Some((stream, Vec::new()));
        }
        let owner = owner_of(&stream).ok();
        let line = owner.and_then(|owner| serde_json::to_vec(&owner).ok());
        let mut line = line.unwrap_or_default();
        line.push(b'\n');
        Some((stream, line))
    }

    fn is_trusted(&self, stream: &UnixStream) -> bool {
        self.socket.is_some() || is_trusted(stream.as_fd())
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        // A head that stands by may have put its own there.
        if let Some((path, file)) = &self.socket
            && fs::symlink_metadata(path).is_ok_and(|found| found.ino() == *file)
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// Runs until the head has gone, which is that of all users or of this one.
///
/// # Errors
/// In words.
pub fn agent(is_system: bool) -> Result<(), String> {
    let failed = |error: io::Error| format!("the agent cannot start: {error}");
    let program = beside(PROGRAM).map_err(failed)?;
    if is_system {
        check_program(&program)?;
    }
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    let output = io::stdout().as_fd().try_clone_to_owned().map_err(failed)?;
    let mut wire = Wire::new(input, output, false).map_err(failed)?;
    let mut poll = PollSet::default();
    let mut claim: Option<Claim> = None;
    // Commands of this host that ask the head.
    let mut commands: Option<Commands> = None;
    let mut looked = Instant::now();
    let mut passage = Passage::default();
    let mut is_refused = false;
    loop {
        wire.go_on();
        while let Some((letter, bytes)) = wire.take() {
            if let (b'c', Some((number, bytes))) = (letter, Passage::parted(&bytes)) {
                passage.hear(number, bytes);
            }
            if letter == b'a' {
                wire.say(b'a', &[]);
            }
            if letter != b'h' || claim.is_some() {
                continue;
            }
            let taken = match (Claimant::of(&bytes), claim::own_head()) {
                (_, Some(text)) => Err(text),
                (Some(own), None) => Claim::take(&own),
                (None, None) => Err(
                    "the head is of another version; install the same Margay on all hosts".into(),
                ),
            };
            match taken {
                Ok(taken) => {
                    there::sweep();
                    claim = Some(taken);
                    // Without it commands of this host are not passed on; jobs run.
                    commands = Commands::listen(is_system).ok();
                    wire.say(b'i', HostFacts::here().text().as_bytes());
                }
                Err(text) => {
                    is_refused = true;
                    wire.say(b'n', text.as_bytes());
                }
            }
        }
        // Where a head stood by that passed them on, and is gone.
        if is_system && claim.is_some() && commands.is_none() && looked.elapsed() >= LOOK {
            looked = Instant::now();
            commands = Commands::listen(is_system).ok();
        }
        while let Some(commands) = &commands
            && let Some((stream, first)) = commands.next()
        {
            let number = passage.number();
            if commands.is_trusted(&stream) && passage.add(number, stream) && !first.is_empty() {
                Passage::say(&mut wire, number, &first);
            }
        }
        passage.go_on(&mut wire);
        wire.beat();
        if wire.is_cut() || is_refused && wire.unsaid() == 0 {
            return Ok(());
        }
        poll.clear();
        wire.add_to(&mut poll);
        if let Some(claim) = &claim {
            poll.add_readable(claim.as_fd());
        }
        if let Some(commands) = &commands {
            poll.add_readable(commands.listener.as_fd());
        }
        passage.add_to(&mut poll, &wire);
        let _ = poll.wait(Some(BEAT / 2));
        // A head after this one wants the host.
        if claim.as_ref().is_some_and(Claim::answer) {
            return Ok(());
        }
    }
}
