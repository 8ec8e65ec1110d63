//! A launcher that a program runs to spawn processes (`MPI_Comm_spawn`).
//!
//! It leaves the family of the process that ran it: its first process ends at once, so that the
//! program has no child that it does not know of; the launcher of that program's job adopts it. It
//! keeps a connection to the program, which is its standard input at first, until its job has ended
//! and reports over it why no process could be started. Its ranks learn the port at which the
//! program waits for them.

use std::io;

use margay_sys_os::port::Channel;
use margay_sys_os::process::{self, Forked};
use margay_sys_shm::environment::ENV_SPAWN;

/// The program that spawns.
#[derive(Debug)]
pub struct Spawner {
    channel: Channel,
    port: String,
}

impl Spawner {
    /// The program that runs this launcher for spawning; none when it is an ordinary launcher. Ends
    /// the calling process, and goes on in a new one. Call it first of all.
    ///
    /// # Errors
    /// When standard input is not a connection or the kernel refuses to fork.
    pub fn find() -> io::Result<Option<Spawner>> {
        let Ok(port) = std::env::var(ENV_SPAWN) else {
            return Ok(None);
        };
        let channel = Channel::of_standard_input()?;
        match process::fork()? {
            Forked::Parent(_) => std::process::exit(0),
            Forked::Child => Ok(Some(Spawner { channel, port })),
        }
    }

    /// Returns the port at which the program waits for the spawned processes.
    #[must_use]
    pub fn port(&self) -> &str {
        &self.port
    }

    /// Tells why no process can be started. Whether somebody listens.
    #[must_use]
    pub fn tell(&self, text: &str) -> bool {
        self.channel.send(text.as_bytes()).is_ok()
    }
}
