//! What displays and the search for deadlocks learn of a wait.

use std::sync::atomic::Ordering;

use margay_core_registry::detail::{self, Awaited, Detail};
use margay_core_registry::{Pulse, WaitKind, Waiting};
use margay_net_platform::Noted;
use margay_sys_os::process::thread_id;

use super::Rank;
use crate::call::Pending;
use crate::engine::Engine;

/// What is noted of a wait. Displays see it until this goes.
pub(super) struct Note<'a> {
    /// None from when something has moved until it is known what is waited for now.
    entry: Option<Box<dyn Noted + 'a>>,
    waiting: Waiting,
    noted_ns: u64,
    /// Details have been published.
    is_published: bool,
}

/// Details of a wait are published when nothing has moved for this time in nanoseconds: a display
/// looks later, and a wait that ends sooner costs nothing.
const PUBLISH_AFTER_NS: u64 = 100_000_000;

impl Note<'_> {
    /// The thread has looked again, and something has `moved`; returns that.
    #[cold]
    pub(super) fn has_looked(&mut self, moved: bool) -> bool {
        let pulse = &mut self.waiting.pulse;
        *pulse = pulse.after(moved);
        match &self.entry {
            Some(entry) if !moved => entry.set_pulse(*pulse),
            _ => self.entry = None,
        }
        moved
    }
}

impl Rank {
    /// Notes a wait that has lasted for a while since `since_ns`, for the first time or again.
    #[cold]
    pub(super) fn note_wait<'a>(
        &'a self,
        note: &mut Option<Note<'a>>,
        pending: &impl Fn(&Engine) -> Option<Pending>,
        since_ns: u64,
    ) {
        let waits_for = pending(&self.engine.lock());
        let (kind, peer, tag, context) = match waits_for {
            Some(Pending::Receive(from, tag, context)) => (WaitKind::Receive, from, tag, context),
            Some(Pending::Send(to, tag, context)) => (WaitKind::Send, Some(to), Some(tag), context),
            Some(Pending::FullSend(to, tag, context)) => {
                (WaitKind::FullSend, Some(to), Some(tag), context)
            }
            Some(Pending::Collective(peer, context)) => (WaitKind::Collective, peer, None, context),
            Some(Pending::Elsewhere) => (WaitKind::Elsewhere, None, None, 0),
            Some(Pending::OneOf(_)) | None => (WaitKind::Several, None, None, 0),
        };
        // What may come from another job is not the launcher's to judge.
        let elsewhere = match peer {
            Some(process) => process >= self.size,
            None => self.met_others.load(Ordering::Relaxed),
        };
        let (kind, peer) = if elsewhere {
            (WaitKind::Elsewhere, None)
        } else {
            (kind, peer)
        };
        let former = note.take();
        let noted_ns = self.clock.now_ns();
        let (since_ns, pulse) = match &former {
            Some(Note { waiting, .. }) => (waiting.since_ns, waiting.pulse),
            None if since_ns == 0 => (noted_ns, Pulse::default()),
            None => (since_ns, Pulse::default()),
        };
        // A thread has one entry at a time.
        drop(former);
        let waiting = Waiting {
            thread: thread_id(),
            kind,
            peer,
            tag: tag.map(|t| t as i32),
            context,
            since_ns,
            pulse,
        };
        *note = Some(Note {
            entry: Some(self.peers.begin_wait(self.me, &waiting)),
            waiting,
            noted_ns,
            is_published: false,
        });
    }

    /// The thread is about to sleep: publishes details of its wait when it has become long, once.
    /// Returns for how many nanoseconds it may sleep at most before it has to ask again.
    #[cold]
    pub(super) fn tell(
        &self,
        note: &mut Option<Note<'_>>,
        awaited: &dyn Fn() -> Option<Awaited>,
    ) -> u64 {
        let Some(note) = note.as_mut().filter(|note| !note.is_published) else {
            return u64::MAX;
        };
        let passed_ns = self.clock.now_ns().saturating_sub(note.noted_ns);
        if passed_ns < PUBLISH_AFTER_NS {
            return PUBLISH_AFTER_NS - passed_ns;
        }
        note.is_published = true;
        let awaited = awaited();
        // The lock is also that of the note.
        let engine = self.engine.lock();
        let (unexpected, more) = engine.unexpected(detail::MOST);
        let words = (self.peers).make_note(self.me, detail::KEY, detail::WORDS);
        if let Some(words) = words {
            let detail = Detail {
                awaited,
                unexpected,
                more,
            };
            detail::write(&words, &note.waiting, &detail);
        }
        u64::MAX
    }
}
