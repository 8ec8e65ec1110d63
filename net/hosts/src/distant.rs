//! Ranks of other jobs on other hosts, of which nothing is known but what their connections say.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use margay_core_registry::hosts::Report;
use margay_core_registry::{Facts, Identity, Locality, NoteKey, Phase, Pulse, Waiting, Waits};
use margay_net_platform::{Attending, Noted, Peers};
use margay_sys_os::kept::Words;

/// How a rank went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// It has said goodbye.
    Left,
    /// Its process has ended, or cannot be reached any more.
    Lost,
}

/// The ranks of a job elsewhere, or of a bridge to such jobs. All are there until the contrary is
/// known.
pub(crate) struct Distant {
    id: u64,
    size: u32,
    gone: Mutex<HashMap<u32, Gone>>,
    /// While there is a bridge that wakes nobody.
    _attending: Option<Attending>,
}

impl Distant {
    /// A job whose number of ranks is not known.
    pub(crate) fn job(id: u64) -> Distant {
        Distant::bridge(id, u32::MAX, None)
    }

    pub(crate) fn bridge(id: u64, size: u32, attending: Option<Attending>) -> Distant {
        Distant {
            id,
            size,
            gone: Mutex::default(),
            _attending: attending,
        }
    }

    fn gone(&self) -> MutexGuard<'_, HashMap<u32, Gone>> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters that a rank has gone. One that has left can be lost no more.
    pub(crate) fn lose(&self, rank: u32, how: Gone) {
        self.gone().entry(rank).or_insert(how);
    }

    /// A rank that left is met again.
    pub(crate) fn meet(&self, rank: u32) {
        self.gone().remove(&rank);
    }

    fn is(&self, rank: u32, how: Gone) -> bool {
        self.gone().get(&rank) == Some(&how)
    }
}

/// A wait that nobody reads.
struct Unseen;

impl Noted for Unseen {
    fn set_pulse(&self, _: Pulse) {}
}

impl Peers for Distant {
    fn id(&self) -> u64 {
        self.id
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn facts(&self) -> Facts {
        Facts::default()
    }

    fn cores(&self) -> u32 {
        1
    }

    fn is_tolerant(&self) -> bool {
        true
    }

    fn identity(&self, _: u32) -> Identity {
        Identity::default()
    }

    fn host(&self, _: u32) -> u32 {
        0
    }

    fn host_name(&self, _: u32) -> String {
        "another host".into()
    }

    fn sharers(&self, _: u32) -> u32 {
        1
    }

    fn locality(&self, _: u32, _: u32) -> Locality {
        Locality::Remote
    }

    fn phase(&self, rank: u32) -> Phase {
        if self.is(rank, Gone::Left) {
            Phase::Finalized
        } else {
            Phase::Running
        }
    }

    fn set_phase(&self, rank: u32, phase: Phase) {
        if phase == Phase::Finalized {
            self.lose(rank, Gone::Left);
        }
    }

    fn call(&self, _: u32) -> String {
        String::new()
    }

    fn call_words(&self, _: u32) -> Words {
        Words::private(4)
    }

    fn waits(&self, _: u32) -> Waits {
        Waits::default()
    }

    fn begin_wait(&self, _: u32, _: &Waiting) -> Box<dyn Noted + '_> {
        Box::new(Unseen)
    }

    fn has_exited(&self, rank: u32) -> bool {
        self.is(rank, Gone::Lost)
    }

    fn is_alive(&self, rank: u32) -> bool {
        !self.is(rank, Gone::Lost)
    }

    fn computes(&self, _: u32, _: &[u32]) -> bool {
        // It may, for all that is known.
        true
    }

    fn reported(&self, _: u32) -> Option<Report> {
        None
    }

    fn failures(&self) -> u32 {
        let gone = self.gone();
        gone.values().filter(|&&how| how == Gone::Lost).count() as u32
    }

    fn abort(&self, _: u32, _: i32) -> bool {
        false
    }

    fn aborted(&self) -> Option<(u32, i32)> {
        None
    }

    // What arrives over its connection wakes it.
    fn wake(&self, _: u32) {}

    fn note(&self, _: u32, _: NoteKey) -> Option<Words> {
        None
    }

    fn make_note(&self, _: u32, _: NoteKey, words: usize) -> Option<Words> {
        Some(Words::private(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_left_is_not_lost_and_may_come_again() {
        let job = Distant::job(7);
        assert!(job.is_alive(3) && job.phase(3) == Phase::Running);
        job.lose(3, Gone::Left);
        job.lose(3, Gone::Lost);
        assert!(job.phase(3) == Phase::Finalized && !job.has_failed(3));
        job.meet(3);
        job.lose(3, Gone::Lost);
        assert!(job.has_failed(3) && !job.is_alive(3) && job.failures() == 1);
    }
}
