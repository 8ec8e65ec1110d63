//! The registry that lies in the segment: the facts of the job, who its ranks are, what they do.
//!
//! The launcher enters facts and identities before the first rank starts, and who has ended. Each
//! rank enters its own phase, waits and calls. All may read all of it at any time.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_core_registry::{Facts, Identity, NoteKey, Phase, Pulse, Waiting, Waits, call_of};
use margay_sys_os::event_count::EventCount;
use margay_sys_os::kept::Words;

use crate::layout::{COMMAND_BYTES, Header, NoteSlot, RankCell};
use crate::segment::Segment;
use crate::waits::Noted;

/// The registry of a segment.
#[derive(Clone, Copy, Debug)]
pub struct Registry<'a>(&'a Segment);

/// A slot of a note that is being made.
const MAKING: u32 = u32::MAX;

impl<'a> Registry<'a> {
    fn header(self) -> &'a Header {
        self.0.header()
    }

    #[inline]
    fn cell(self, rank: u32) -> &'a RankCell {
        self.0.cell(rank)
    }

    /// Ranks in the job. Below, a rank beyond them is a panic.
    #[must_use]
    pub fn ranks(self) -> u32 {
        self.0.ranks()
    }

    /// Enters the facts of the job; the launcher calls it once before the first rank starts. The
    /// command line is cut to 512 bytes.
    pub fn describe(self, facts: &Facts) {
        let header = self.header();
        header.job_id.store(facts.job, Ordering::Relaxed);
        header.launcher_pid.store(facts.launcher, Ordering::Relaxed);
        header.usable_cores.store(facts.cores, Ordering::Relaxed);
        header.started_ns.store(facts.started_ns, Ordering::Relaxed);
        header
            .tolerant
            .store(u32::from(facts.is_tolerant), Ordering::Relaxed);
        let bytes = &facts.command.as_bytes()[..facts.command.len().min(COMMAND_BYTES)];
        for (word, eight) in header.command.iter().zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded[..eight.len()].copy_from_slice(eight);
            word.store(u64::from_ne_bytes(padded), Ordering::Relaxed);
        }
        header
            .command_len
            .store(bytes.len() as u32, Ordering::Release);
    }

    /// The facts of the job.
    #[must_use]
    pub fn facts(self) -> Facts {
        let header = self.header();
        let len = (header.command_len.load(Ordering::Acquire) as usize).min(COMMAND_BYTES);
        let words = header.command.iter();
        let bytes: Vec<u8> = words
            .flat_map(|w| w.load(Ordering::Relaxed).to_ne_bytes())
            .take(len)
            .collect();
        Facts {
            job: header.job_id.load(Ordering::Relaxed),
            launcher: header.launcher_pid.load(Ordering::Relaxed),
            started_ns: header.started_ns.load(Ordering::Relaxed),
            command: String::from_utf8_lossy(&bytes).into_owned(),
            cores: self.cores(),
            is_tolerant: self.is_tolerant(),
        }
    }

    /// Cores that the job may use, as the launcher counted them (affinity and quota).
    #[must_use]
    pub fn cores(self) -> u32 {
        self.header().usable_cores.load(Ordering::Relaxed)
    }

    /// Whether the ranks go on when one of them dies.
    #[must_use]
    pub fn is_tolerant(self) -> bool {
        self.header().tolerant.load(Ordering::Relaxed) != 0
    }

    /// Ranks that have died before they were finalized, as far as the launcher knows.
    #[must_use]
    #[inline]
    pub fn failures(self) -> u32 {
        self.header().failures.load(Ordering::Acquire)
    }

    /// Enters (by the launcher) that another rank has died so, after
    /// [`set_exited`](Self::set_exited), and wakes all ranks.
    pub fn add_failure(self) {
        self.header().failures.fetch_add(1, Ordering::AcqRel);
        for rank in 0..self.ranks() {
            self.0.wake(rank);
        }
    }

    /// Enters that `rank` aborts the job with `code`. Only the first one counts: a first cause is
    /// never masked. Returns whether this was the first.
    pub fn abort(self, rank: u32, code: i32) -> bool {
        let header = self.header();
        let first = header
            .aborted_by
            .compare_exchange(0, u32::MAX, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if first {
            header.abort_code.store(code, Ordering::Relaxed);
            header.aborted_by.store(rank + 1, Ordering::Release);
        }
        first
    }

    /// The rank that aborted the job and its code.
    #[must_use]
    pub fn aborted(self) -> Option<(u32, i32)> {
        match self.header().aborted_by.load(Ordering::Acquire) {
            0 | u32::MAX => None,
            r => Some((r - 1, self.header().abort_code.load(Ordering::Relaxed))),
        }
    }

    /// Enters who a rank is: process id, core if bound, index of its program in a job of several.
    pub fn identify(self, rank: u32, pid: u32, core: Option<u32>, program: u32) {
        let cell = self.cell(rank);
        cell.core
            .store(core.map_or(0, |c| c + 1), Ordering::Relaxed);
        cell.app.store(program, Ordering::Relaxed);
        cell.pid.store(pid, Ordering::Release);
    }

    /// Enters the process id alone (a rank whose launcher could not know it).
    pub fn set_pid(self, rank: u32, pid: u32) {
        self.cell(rank).pid.store(pid, Ordering::Release);
    }

    /// Who a rank is.
    #[must_use]
    pub fn identity(self, rank: u32) -> Identity {
        let cell = self.cell(rank);
        Identity {
            pid: cell.pid.load(Ordering::Acquire),
            core: cell.core.load(Ordering::Relaxed).checked_sub(1),
            program: cell.app.load(Ordering::Relaxed),
        }
    }

    /// Enters a new phase of a rank.
    pub fn set_phase(self, rank: u32, phase: Phase) {
        self.cell(rank).phase.store(phase as u32, Ordering::Release);
    }

    /// The phase of a rank.
    #[must_use]
    pub fn phase(self, rank: u32) -> Phase {
        Phase::from_number(self.cell(rank).phase.load(Ordering::Acquire))
    }

    /// Enters (by the launcher) that the process of a rank is gone, and whether it exited with code
    /// 0: in [`Phase::Joined`] that is a normal end, however it came about.
    pub fn set_exited(self, rank: u32, success: bool) {
        if success && self.phase(rank) == Phase::Joined {
            self.set_phase(rank, Phase::Finalized);
        }
        self.cell(rank).exited.store(1, Ordering::Release);
    }

    /// Whether the process of a rank is gone.
    #[must_use]
    pub fn has_exited(self, rank: u32) -> bool {
        self.cell(rank).exited.load(Ordering::Acquire) != 0
    }

    /// Whether a rank has died before it was finalized.
    #[must_use]
    pub fn has_failed(self, rank: u32) -> bool {
        self.has_exited(rank) && self.phase(rank) != Phase::Finalized
    }

    /// The name of the current or last library call of a rank, empty before the first.
    #[must_use]
    pub fn call(self, rank: u32) -> String {
        let words = self.cell(rank).call.iter();
        call_of(words.map(|w| w.load(Ordering::Relaxed)))
    }

    /// What the threads of a rank wait for.
    #[must_use]
    pub fn waits(self, rank: u32) -> Waits {
        self.cell(rank).waits.0.read()
    }

    /// Enters what a thread of a rank begins to wait for.
    pub fn begin_wait(self, rank: u32, waiting: &Waiting) -> Noted {
        self.cell(rank).waits.0.begin(waiting)
    }

    /// Enters what has come of a wait so far.
    pub fn set_pulse(self, rank: u32, noted: &Noted, pulse: Pulse) {
        self.cell(rank).waits.0.set_pulse(noted, pulse);
    }

    /// Takes it back.
    pub fn end_wait(self, rank: u32, noted: Noted) {
        self.cell(rank).waits.0.end(noted);
    }

    /// The event count on which a rank sleeps.
    #[must_use]
    #[inline]
    pub fn event_count(self, rank: u32) -> &'a EventCount {
        &self.cell(rank).event_count.0
    }

    /// Whether a rank has a note with that key.
    pub(crate) fn has_note(self, rank: u32, key: NoteKey) -> bool {
        self.note_at(rank, key).is_some()
    }

    /// The offset in the heap of a rank's note, and its words.
    fn note_at(self, rank: u32, key: NoteKey) -> Option<(u64, usize)> {
        let is = |slot: &&NoteSlot| slot.key.load(Ordering::Acquire) == key.0;
        let slot = self.cell(rank).notes.iter().find(is)?;
        let words = slot.words.load(Ordering::Relaxed) as usize;
        Some((slot.offset.load(Ordering::Relaxed), words))
    }
}

impl Segment {
    /// Who the ranks are and what they do.
    #[must_use]
    #[inline]
    pub fn registry(&self) -> Registry<'_> {
        Registry(self)
    }

    /// The words in which the name of a rank's current call stands, for the rank to write.
    ///
    /// # Panics
    /// When `rank` is not in the job.
    #[must_use]
    pub fn call_words(self: &Arc<Self>, rank: u32) -> Words {
        let words = &self.cell(rank).call;
        // SAFETY: they lie in the mapping, which the segment keeps, and are atomics.
        unsafe { Words::kept_by(self.clone(), NonNull::from(words).cast(), words.len()) }
    }

    /// The note of a rank with that key; none where nobody has made it.
    #[must_use]
    pub fn note(self: &Arc<Self>, rank: u32, key: NoteKey) -> Option<Words> {
        let (offset, words) = self.registry().note_at(rank, key)?;
        let at = self.heap_at(offset, words as u64 * 8, 8)?;
        // SAFETY: inside of the heap and aligned (checked), which the segment keeps; notes are
        // atomics.
        Some(unsafe { Words::kept_by(self.clone(), at.cast(), words) })
    }

    /// As [`note`](Self::note), but makes the note, with `words` words of 0, where there is none
    /// yet. For one key and rank, one thread at a time may call this. None when the rank has no
    /// room for a further note.
    #[must_use]
    pub fn make_note(self: &Arc<Self>, rank: u32, key: NoteKey, words: usize) -> Option<Words> {
        if let Some(note) = self.note(rank, key) {
            return Some(note);
        }
        let offset = self.heap_alloc(words as u64 * 8)?;
        let free = |slot: &&NoteSlot| {
            slot.key
                .compare_exchange(0, MAKING, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        };
        let slot = self.cell(rank).notes.iter().find(free)?;
        slot.offset.store(offset, Ordering::Relaxed);
        slot.words.store(words as u32, Ordering::Relaxed);
        slot.key.store(key.0, Ordering::Release);
        self.note(rank, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::tests::small;
    use margay_core_registry::WaitKind;

    #[test]
    fn waits_are_entered_and_taken_back() {
        let s = small(1);
        assert_eq!(s.registry().waits(0), Waits::default());
        let w = Waiting {
            thread: 5,
            kind: WaitKind::Receive,
            peer: Some(7),
            tag: None,
            context: 3,
            since_ns: 9,
            pulse: Pulse::default(),
        };
        let noted = s.registry().begin_wait(0, &w);
        assert_eq!(s.registry().waits(0).listed, [w]);
        s.registry().end_wait(0, noted);
        assert_eq!(s.registry().waits(0), Waits::default());
    }

    #[test]
    fn only_the_first_abort_counts() {
        let s = small(2);
        assert!(s.registry().abort(1, 9));
        assert!(!s.registry().abort(0, 3));
        assert_eq!(s.registry().aborted(), Some((1, 9)));
    }

    #[test]
    fn notes_are_made_once_and_read_by_others() {
        let (key, s) = (NoteKey(0x4e58), Arc::new(small(2)));
        assert!(s.note(1, key).is_none());
        let note = s.make_note(1, key, 3).unwrap();
        note[2].store(42, Ordering::Relaxed);
        let other = Segment::join(s.fd().try_clone_to_owned().unwrap()).unwrap();
        let other = Arc::new(other);
        let read = other.note(1, key).unwrap();
        assert_eq!((read.len(), read[2].load(Ordering::Relaxed)), (3, 42));
        assert_eq!(s.make_note(1, key, 9).unwrap().len(), 3);
        assert!(other.note(0, key).is_none());
        for more in 1..4 {
            assert!(s.make_note(1, NoteKey(more), 1).is_some());
        }
        assert!(s.make_note(1, NoteKey(9), 1).is_none(), "four have room");
    }

    #[test]
    fn the_name_of_a_call_is_written_by_words() {
        let s = Arc::new(small(2));
        let name = margay_core_registry::call_name("MPI_Send");
        for (word, value) in s.call_words(1).iter().zip(name) {
            word.store(value, Ordering::Relaxed);
        }
        assert_eq!(s.registry().call(1), "MPI_Send");
    }
}
