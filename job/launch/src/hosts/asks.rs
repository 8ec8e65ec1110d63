//! Questions of ranks, for the launcher's host: the agent passes them on, and the answers back. It
//! knows nothing of what they mean.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use margay_sys_os::port::{Channel, Listener};

use super::wire::{Writer, kind};

/// Most connections of ranks at a time: names that they have published, and jobs that they have
/// spawned.
const MOST: usize = 1024;

/// The connections of the ranks of a host to their agent.
pub(super) struct Asks {
    listener: Listener,
    pub(super) name: String,
    open: BTreeMap<u64, Channel>,
    next: u64,
}

impl Asks {
    pub(super) fn new() -> io::Result<Asks> {
        let pid = std::process::id();
        // At random, so that nobody can take the name away.
        let number = RandomState::new().hash_one(pid);
        let name = format!("margay-agent-{pid}-{number:016x}");
        Ok(Asks {
            listener: Listener::bind(&name)?,
            name,
            open: BTreeMap::new(),
            next: 0,
        })
    }

    /// What becomes readable when a rank asks.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let channels = self.open.values().map(AsFd::as_fd);
        std::iter::once(self.listener.as_fd()).chain(channels)
    }

    /// Takes in what has come; what is to be sent to the relay is added to `said`.
    pub(super) fn turn(&mut self, said: &mut Vec<u8>) {
        while let Ok(Some(channel)) = self.listener.accept() {
            if channel.is_trusted() && self.open.len() < MOST {
                self.open.insert(self.next, channel);
                self.next += 1;
            }
        }
        self.open.retain(|&number, channel| {
            loop {
                match channel.receive() {
                    Ok(None) => return true,
                    Ok(Some(question)) => {
                        let mut message = Writer::new(kind::ASK);
                        said.extend(message.number(number).bytes(&question).done());
                    }
                    Err(_) => {
                        said.extend(Writer::new(kind::HUNG_UP).number(number).done());
                        return false;
                    }
                }
            }
        });
    }

    /// Passes an answer on.
    pub(super) fn answer(&mut self, number: u64, answer: &[u8]) {
        if let Some(channel) = self.open.get(&number) {
            // A rank that takes nothing is gone, or as good as that.
            let _ = channel.send_now(answer);
        }
    }

    /// The launcher's host has no more to say.
    pub(super) fn hang_up(&mut self, number: u64) {
        self.open.remove(&number);
    }
}
