//! The queues of a machine, as commands show them.

use margay_core_queue::{QUEUE, QueueRules};
use serde::{Deserialize, Serialize};

/// A queue as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueRow {
    pub name: String,
    /// Jobs that name no queue go there.
    pub is_default: bool,
    pub rules: QueueRules,
    /// Slots that its jobs can have at once, where no others run.
    pub slots: u32,
    /// Those that its jobs have.
    pub used: u32,
    pub running: u32,
    pub waiting: u32,
    /// The hosts on which its partition has slots; empty where that is all of them.
    pub hosts: Vec<String>,
}

impl QueueRow {
    /// The only queue, with this many jobs, of a head that does not say which there are.
    #[must_use]
    pub fn only(slots: u32, used: u32, running: usize, waiting: usize) -> QueueRow {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        QueueRow {
            name: QUEUE.into(),
            is_default: true,
            slots,
            used,
            running: number(running),
            waiting: number(waiting),
            ..QueueRow::default()
        }
    }

    /// Whether its jobs can run on this host.
    #[must_use]
    pub fn has_host(&self, name: &str) -> bool {
        self.hosts.is_empty() || self.hosts.iter().any(|host| host == name)
    }
}
