//! Where a job is: hosts and slots.

use serde::{Deserialize, Serialize};

/// Slots of a host that a job has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPart {
    pub host: String,
    pub slots: u32,
    pub tasks: u32,
}

/// Another host, and the way there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Away {
    pub host: String,
    /// The words of the remote shell.
    pub shell: Vec<String>,
}

/// The hosts that a job has to do with.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// That of the queue's head.
    pub server: &'a str,
    /// That on which the job begins.
    pub node: &'a str,
    /// Where its slots are, on a machine of several hosts.
    pub parts: &'a [HostPart],
    /// The words of the remote shell there.
    pub shell: &'a [String],
}
