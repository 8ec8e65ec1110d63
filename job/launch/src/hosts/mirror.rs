//! What one host learns of the ranks of others: how they ended.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_core_registry::{CallName, Phase};
use margay_sys_shm::segment::Segment;

use super::wire::{Broken, Reader, Writer, kind};

/// How a rank has ended, and what it did last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) rank: u32,
    pub(super) status: ExitStatus,
    pid: u32,
    phase: Phase,
    call: CallName,
    /// Who has aborted the job, as far as its host knows, and the code.
    aborted: Option<(u32, i32)>,
}

impl Ended {
    /// What the segment of its own host says of a rank.
    pub(super) fn of(segment: &Arc<Segment>, rank: u32, status: ExitStatus) -> Ended {
        let registry = segment.registry();
        let mut call = CallName::default();
        for (to, word) in call.iter_mut().zip(segment.call_words(rank).iter()) {
            *to = word.load(Ordering::Relaxed);
        }
        Ended {
            rank,
            status,
            pid: registry.identity(rank).pid,
            phase: registry.phase(rank),
            call,
            aborted: registry.aborted(),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = Writer::new(kind::ENDED);
        to.number(self.rank.into());
        to.number(self.status.into_raw() as u32 as u64);
        to.number(self.pid.into()).number(self.phase as u64);
        for word in self.call {
            to.number(word);
        }
        let (by, code) = self.aborted.map_or((0, 0), |(by, code)| (by + 1, code));
        to.number(by.into()).number(code as u32 as u64);
        to.done()
    }

    pub(super) fn decode(body: &[u8]) -> Result<Ended, Broken> {
        let from = &mut Reader(body);
        let (rank, status) = (from.small()?, from.small::<u32>()?);
        let (pid, phase) = (from.small()?, Phase::from_number(from.small()?));
        let mut call = CallName::default();
        for word in &mut call {
            *word = from.number()?;
        }
        let (by, code) = (from.small::<u32>()?, from.small::<u32>()? as i32);
        Ok(Ended {
            rank,
            status: ExitStatus::from_raw(status as i32),
            pid,
            phase,
            call,
            aborted: by.checked_sub(1).map(|by| (by, code)),
        })
    }

    /// Enters it in the segment of another host. A rank that it has not is left out.
    pub(super) fn enter(&self, segment: &Arc<Segment>) {
        let registry = segment.registry();
        let ranks = segment.ranks();
        if self.rank >= ranks || registry.has_exited(self.rank) {
            return;
        }
        for (word, &value) in segment.call_words(self.rank).iter().zip(&self.call) {
            word.store(value, Ordering::Relaxed);
        }
        if let Some((by, code)) = self.aborted.filter(|&(by, _)| by < ranks) {
            registry.abort(by, code);
        }
        registry.set_pid(self.rank, self.pid);
        registry.set_phase(self.rank, self.phase);
        registry.set_exited(self.rank, self.status.success());
        if registry.has_failed(self.rank) {
            registry.add_failure();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_core_registry::call_name;
    use margay_sys_shm::layout::Sizes;

    #[test]
    fn the_end_of_a_rank_is_known_on_another_host() {
        let segment = || Arc::new(Segment::create(Sizes::for_job(3)).unwrap());
        let (here, there) = (segment(), segment());
        let registry = here.registry();
        registry.identify(2, 77, None, 0);
        registry.set_phase(2, Phase::Running);
        registry.abort(2, 9);
        for (word, value) in here.call_words(2).iter().zip(call_name("MPI_Abort")) {
            word.store(value, Ordering::Relaxed);
        }
        let ended = Ended::of(&here, 2, ExitStatus::from_raw(9 << 8));
        let read = Ended::decode(&ended.encode()[5..]).unwrap();
        assert_eq!(read, ended);
        for _ in 0..2 {
            read.enter(&there);
        }
        let registry = there.registry();
        assert!(registry.has_failed(2) && !registry.has_failed(1));
        assert_eq!(registry.failures(), 1);
        assert_eq!(registry.aborted(), Some((2, 9)));
        assert_eq!(
            (registry.call(2).as_str(), registry.identity(2).pid),
            ("MPI_Abort", 77)
        );
    }
}
