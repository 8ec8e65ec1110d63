//! Which of several workers sleep and may be woken for work: a mark for each, and how many marks
//! are set.
//!
//! A sleeper sets its mark, raises the count, and goes to its event count, which executes the heavy
//! fence and lets it look once more before it sleeps. A publisher of work executes the light fence
//! and reads the count: either that look sees the work or the count is seen. Then the first
//! publisher that takes a mark away wakes that event count; the event count's own protocol covers a
//! sleeper that has set its mark and is not asleep yet.
//!
//! A publisher that publishes millions of times a second need not even read the count, which lies
//! in a line that all share: it has a [`WakeRequest`] of its own, which sleepers raise after the
//! count and before their look. It takes the call back, executes a full fence and reads the count,
//! and raises it again while marks are left. So of a sleeper that found it raised and a publisher
//! that takes it back one at least sees the other; had the publisher only the light fence there,
//! its write could come after that of a sleeper that it has not counted.

use margay_sys_os::event_count::EventCount;
use margay_sys_os::fence;
use margay_sys_os::sync::{AtomicU32, Ordering, fence as full_fence};

/// Where one of them sleeps.
#[derive(Debug)]
pub struct SleepState {
    is_marked: AtomicU32,
    event_count: EventCount<true>,
}

impl SleepState {
    #[must_use]
    pub fn new() -> SleepState {
        SleepState {
            is_marked: AtomicU32::new(0),
            event_count: EventCount::of_threads(),
        }
    }

    /// The event count, for waking this one for something of its own.
    #[inline]
    #[must_use]
    pub fn event_count(&self) -> &EventCount<true> {
        &self.event_count
    }

    /// Whether it seems to sleep.
    #[inline]
    #[must_use]
    pub fn is_marked(&self) -> bool {
        self.is_marked.load(Ordering::Relaxed) != 0
    }
}

impl Default for SleepState {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether somebody sleeps, for one who publishes often.
#[derive(Debug)]
pub struct WakeRequest(AtomicU32);

impl WakeRequest {
    /// A raised call: somebody may sleep already.
    #[must_use]
    pub fn new() -> WakeRequest {
        WakeRequest(AtomicU32::new(1))
    }

    /// Whether [`Sleepers::answer`] is to be called, asked after work has been published. Always,
    /// where the kernel does not fence for us.
    #[inline]
    #[must_use]
    pub fn is_raised(&self) -> bool {
        fence::compiler();
        self.0.load(Ordering::Relaxed) != 0
    }

    fn raise(&self) {
        // It lies in the publisher's line, which is left there when that is possible.
        if self.0.load(Ordering::Relaxed) == 0 {
            self.0.store(1, Ordering::Relaxed);
        }
    }
}

impl Default for WakeRequest {
    fn default() -> Self {
        Self::new()
    }
}

/// How many marks are set.
#[derive(Debug)]
pub struct Sleepers(AtomicU32);

impl Sleepers {
    #[must_use]
    pub fn new() -> Sleepers {
        Sleepers(AtomicU32::new(0))
    }

    /// Whether somebody sleeps, asked after work has been published.
    #[inline]
    #[must_use]
    pub fn are_there(&self) -> bool {
        fence::light();
        self.0.load(Ordering::Relaxed) != 0
    }

    /// How many marks are set.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// A raised call is answered: if somebody sleeps, `wake` is called, which may rouse one.
    pub fn answer(&self, call: &WakeRequest, wake: impl FnOnce()) {
        if fence::is_light() {
            call.0.store(0, Ordering::Relaxed);
        }
        full_fence(Ordering::SeqCst);
        if self.0.load(Ordering::Relaxed) != 0 {
            wake();
            if self.0.load(Ordering::Relaxed) != 0 {
                call.raise();
            }
        }
    }

    /// Sleeps until roused, until the event count is woken, or for `timeout_ns`; not at all when
    /// `look` finds something. The calls are those of all who publish by one.
    pub fn sleep<'a>(
        &self,
        state: &SleepState,
        timeout_ns: u64,
        calls: impl Iterator<Item = &'a WakeRequest>,
        look: impl FnOnce() -> bool,
    ) {
        state.is_marked.store(1, Ordering::SeqCst);
        self.0.fetch_add(1, Ordering::SeqCst);
        full_fence(Ordering::SeqCst);
        for call in calls {
            call.raise();
        }
        state.event_count.sleep(timeout_ns, look);
        self.take_mark(state);
    }

    /// Wakes one, if nobody has done so already. Tells whether it was this call.
    pub fn rouse(&self, state: &SleepState) -> bool {
        let was_marked = self.take_mark(state);
        if was_marked {
            state.event_count.wake();
        }
        was_marked
    }

    fn take_mark(&self, state: &SleepState) -> bool {
        let was_marked = state.is_marked.swap(0, Ordering::SeqCst) != 0;
        if was_marked {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
        was_marked
    }
}

impl Default for Sleepers {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::Arc;

    use super::*;

    /// One sleeper, and two who publish one piece of work each and wake at most one, one of them by
    /// a call: the sleeper sees both.
    #[test]
    fn sleepers_miss_no_publication() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let all = Arc::new((
                Sleepers::new(),
                SleepState::new(),
                AtomicU32::new(0),
                WakeRequest::new(),
            ));
            let publishers: Vec<_> = [false, true]
                .into_iter()
                .map(|by_call| {
                    let all = all.clone();
                    loom::thread::spawn(move || {
                        let (sleepers, state, work, call) = &*all;
                        work.fetch_add(1, Ordering::Release);
                        let wake = || {
                            if state.is_marked() {
                                sleepers.rouse(state);
                            }
                        };
                        if by_call {
                            if call.is_raised() {
                                sleepers.answer(call, wake);
                            }
                        } else if sleepers.are_there() {
                            wake();
                        }
                    })
                })
                .collect();
            let (sleepers, state, work, call) = &*all;
            for seen in 0..2 {
                while work.load(Ordering::Acquire) == seen {
                    sleepers.sleep(state, u64::MAX, std::iter::once(call), || {
                        work.load(Ordering::Acquire) != seen
                    });
                }
            }
            for publisher in publishers {
                publisher.join().unwrap();
            }
            assert!(!state.is_marked());
        });
    }

    /// One publishes twice by a call that it has answered before, so that it is not raised; two
    /// sleep, and each takes one piece.
    #[test]
    fn sleepers_raise_a_call_that_was_answered() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let all = Arc::new((
                Sleepers::new(),
                SleepState::new(),
                AtomicU32::new(0),
                WakeRequest::new(),
            ));
            let (sleepers, state, work, call) = &*all;
            sleepers.answer(call, || unreachable!("nobody sleeps yet"));
            assert!(!call.is_raised());
            let publisher = {
                let all = all.clone();
                loom::thread::spawn(move || {
                    let (sleepers, state, work, call) = &*all;
                    for _ in 0..2 {
                        work.fetch_add(1, Ordering::Release);
                        if call.is_raised() {
                            sleepers.answer(call, || {
                                sleepers.rouse(state);
                            });
                        }
                    }
                })
            };
            for seen in 0..2 {
                while work.load(Ordering::Acquire) <= seen {
                    sleepers.sleep(state, u64::MAX, std::iter::once(call), || {
                        work.load(Ordering::Acquire) > seen
                    });
                }
            }
            publisher.join().unwrap();
        });
    }
}
