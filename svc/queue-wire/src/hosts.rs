//! The hosts of a machine of several.

use serde::{Deserialize, Serialize};

/// What machine a head is started for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineSpec {
    /// Slots of each host for which nothing else is said; its usable cores without.
    pub slots: Option<u32>,
    /// None: this host alone.
    pub hosts: Vec<HostSpec>,
    /// The words of the remote shell.
    pub shell: Vec<String>,
}

/// A host as the user names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSpec {
    pub name: String,
    pub slots: Option<u32>,
}

/// A host as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRow {
    pub name: String,
    pub slots: u32,
    pub used: u32,
    pub memory_mib: u64,
    pub is_up: bool,
    /// Jobs that have slots there.
    pub running: usize,
    /// Why it is down.
    pub note: String,
}

impl HostRow {
    /// Its state in one word.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match (self.is_up, self.used) {
            (false, _) => "down",
            (true, 0) => "idle",
            (true, used) if used >= self.slots => "full",
            _ => "in use",
        }
    }
}
