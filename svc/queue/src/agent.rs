//! What the head starts on each other host of its machine: it claims the host, says what it has,
//! and that it is there, until the head has gone.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;

use margay_svc_queue_wire::passage_address;
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::port::is_trusted;
use margay_sys_os::{cpu, memory};

use crate::claim::{self, Claim, Claimant};
use crate::passage::Passage;
use crate::there;
use crate::wire::{BEAT, Wire};

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
fn listen_for_commands() -> io::Result<UnixListener> {
    let listener = UnixListener::bind_addr(&passage_address()?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Runs until the head has gone.
///
/// # Errors
/// In words.
pub fn agent() -> Result<(), String> {
    let failed = |error: io::Error| format!("the agent cannot start: {error}");
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    let output = io::stdout().as_fd().try_clone_to_owned().map_err(failed)?;
    let mut wire = Wire::new(input, output, false).map_err(failed)?;
    let mut poll = PollSet::default();
    let mut claim: Option<Claim> = None;
    // Commands of this host that ask the head.
    let mut commands: Option<UnixListener> = None;
    let mut passage = Passage::default();
    let mut is_refused = false;
    loop {
        wire.go_on();
        while let Some((letter, bytes)) = wire.take() {
            if let (b'c', Some((number, bytes))) = (letter, Passage::parted(&bytes)) {
                passage.hear(number, bytes);
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
                    commands = listen_for_commands().ok();
                    wire.say(b'i', HostFacts::here().text().as_bytes());
                }
                Err(text) => {
                    is_refused = true;
                    wire.say(b'n', text.as_bytes());
                }
            }
        }
        while let Some((stream, _)) = commands.as_ref().and_then(|c| c.accept().ok()) {
            if is_trusted(stream.as_fd()) {
                let number = passage.number();
                passage.add(number, stream);
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
            poll.add_readable(commands.as_fd());
        }
        passage.add_to(&mut poll, &wire);
        let _ = poll.wait(Some(BEAT / 2));
        // A head after this one wants the host.
        if claim.as_ref().is_some_and(Claim::answer) {
            return Ok(());
        }
    }
}
