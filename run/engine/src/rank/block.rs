//! Waiting, and the calls of the engine that may end what other threads wait for.

use std::mem;

use margay_core_registry::detail::Awaited;

use super::note::Note;
use super::send::Keeping;
use super::*;

impl Rank {
    /// Sleeps on the rank's event count until it is woken, `has_work` returns true, or the time is
    /// over.
    pub(crate) fn sleep_until_woken(&self, timeout_ns: u64, has_work: &mut dyn FnMut() -> bool) {
        self.wake_up.sleep(timeout_ns, has_work);
    }

    /// Spins for a short while whether memory that others write to is `ready`, before a wait for
    /// it: with cores for all that is usually enough. Returns whether it is.
    pub fn spin_until(&self, mut ready: impl FnMut() -> bool) -> bool {
        // Longer than a cache line takes, shorter than a thread that waits for progress would
        // notice.
        const SPINS: u32 = 32;
        let spins = self.contention.policy(self.monitor.tuning.policy()).spins();
        for _ in 0..spins.min(SPINS) {
            if ready() {
                return true;
            }
            cpu::pause();
        }
        false
    }

    /// The one place that waits: makes progress until `ready` returns something.
    #[inline]
    pub fn block<R>(
        &self,
        ready: impl FnMut(&mut Engine) -> Option<R>,
        pending: impl Fn(&Engine) -> Option<Pending>,
    ) -> R {
        self.block_for(ready, pending, &|| None)
    }

    /// As [`block`](Self::block); `awaited` tells displays for which request that is, when it has
    /// become long.
    #[inline]
    pub fn block_for<R>(
        &self,
        mut ready: impl FnMut(&mut Engine) -> Option<R>,
        pending: impl Fn(&Engine) -> Option<Pending>,
        awaited: &dyn Fn() -> Option<Awaited>,
    ) -> R {
        let mut wait = Wait::new(
            self.monitor.tuning.policy(),
            &self.contention,
            &self.monitor.waiting,
            &*self.wake_up,
            &*self.clock,
        );
        let mut found = None;
        let mut note: Option<Note<'_>> = None;
        // Something moved when it was about to sleep.
        let mut any = false;
        let _waits = self.helper.pause(&self.engine);
        loop {
            let mut engine = self.engine.lock();
            if let Some(result) = ready(&mut engine) {
                found = Some(result);
            }
            if found.is_some() {
                break;
            }
            let moved = self.advance(&mut engine) || self.watch(&mut engine);
            drop(engine);
            if let Some(note) = &mut note
                && note.has_looked(moved || mem::take(&mut any))
            {
                wait.note_again();
            }
            let next = wait.step(moved);
            if next == Next::Spin {
                continue;
            }
            let waited_ns = self.clock.now_ns().saturating_sub(wait.since_ns());
            let keeping = self.keep_awaited(&pending, waited_ns);
            if matches!(keeping, Keeping::Kept) {
                continue;
            }
            let Next::Sleep(mut timeout_ns) = next else {
                self.monitor.recording.waits(waited_ns);
                self.note_wait(&mut note, &pending, wait.since_ns());
                continue;
            };
            if let Keeping::Later(left_ns) = keeping {
                timeout_ns = left_ns;
            }
            let timeout_ns = timeout_ns.min(self.tell(&mut note, awaited));
            let events = &self.monitor.events;
            let waited = || self.clock.now_ns() - wait.since_ns();
            events.note(EventKind::Sleep, || [waited(), 0, 0, 0]);
            let slept = wait.sleep(timeout_ns, &mut || {
                let mut engine = self.engine.lock();
                let moved = self.advance(&mut engine) || self.watch(&mut engine);
                any |= moved;
                found = ready(&mut engine);
                moved || found.is_some()
            });
            events.note(EventKind::Wake, || [slept, 0, 0, 0]);
            if found.is_some() {
                break;
            }
        }
        drop(note);
        found.expect("the loop ends with a result")
    }

    /// Makes progress until `ready` returns something that nobody wakes this rank for, such as the
    /// end of a child: it looks every 2 ms.
    pub fn progress_until<R>(&self, mut ready: impl FnMut() -> Option<R>) -> R {
        const LOOK_NS: u64 = 2_000_000;
        loop {
            if let Some(result) = ready() {
                return result;
            }
            self.sleep_until_woken(LOOK_NS, &mut || {
                let mut engine = self.engine.lock();
                self.advance(&mut engine) || self.watch(&mut engine)
            });
        }
    }

    /// A call of the engine. Where threads share the rank, it may end what others wait for, or take
    /// in a message that they probe for; they are woken then.
    #[inline]
    pub fn call<R>(&self, call: impl FnOnce(&mut Engine) -> R) -> R {
        let mut engine = self.engine.lock();
        let shared_before = self.engine.is_shared().then(|| engine.news());
        // One place only, so that it is inlined.
        let result = call(&mut engine);
        if let Some(before) = shared_before {
            self.tell_threads(&engine, before);
        }
        result
    }

    /// After a call where threads share the rank; `before` is the engine's news at its begin.
    #[cold]
    fn tell_threads(&self, engine: &Engine, before: u64) {
        if engine.news() != before {
            self.wake_up.wake_own();
        }
        if engine.has_requests() {
            self.helper.resume();
        }
    }

    /// Progress; where threads share the rank, wakes those for whom it brought news.
    #[inline]
    pub(super) fn advance(&self, engine: &mut Engine) -> bool {
        if !self.engine.is_shared() {
            return engine.progress();
        }
        let before = engine.news();
        let moved = engine.progress();
        if engine.news() != before {
            self.wake_up.wake_own();
        }
        moved
    }
}
