//! What the head starts on each other host of its machine: it claims the host, says what it has,
//! and that it is there, until the head has gone.

use std::io;
use std::os::fd::AsFd;

use margay_sys_os::descriptor::PollSet;
use margay_sys_os::{cpu, memory};

use crate::claim::{self, Claim, Claimant};
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
    let mut is_refused = false;
    loop {
        wire.go_on();
        while let Some((letter, bytes)) = wire.take() {
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
                    wire.say(b'i', HostFacts::here().text().as_bytes());
                }
                Err(text) => {
                    is_refused = true;
                    wire.say(b'n', text.as_bytes());
                }
            }
        }
        wire.beat();
        if wire.is_cut() || is_refused && wire.unsaid() == 0 {
            return Ok(());
        }
        poll.clear();
        wire.add_to(&mut poll);
        if let Some(claim) = &claim {
            poll.add_readable(claim.as_fd());
        }
        let _ = poll.wait(Some(BEAT / 2));
        // A head after this one wants the host.
        if claim.as_ref().is_some_and(Claim::answer) {
            return Ok(());
        }
    }
}
