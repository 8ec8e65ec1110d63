//! Events: what happened, kept until it is reported to the listener.
//!
//! They are noted where they happen, perhaps under the engine's lock, and reported later without
//! any lock, so the listener may call the library. The queue is bounded; what does not fit is
//! counted.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use margay_net_platform::Clock;

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EventKind {
    /// A message came before its receive: source, tag, context, bytes.
    MessageUnexpected,
    /// A request ended: what it was (0 send, 1 receive, 2 collective, 3 other), source, tag, bytes.
    RequestEnded,
    /// A thread goes to sleep: nanoseconds that it has waited.
    Sleep,
    /// It woke up: nanoseconds that it slept.
    Wake,
    /// A receiver's credits are used up: its world rank, bytes of the message that has to ask.
    OutOfCredits,
}

/// How many kinds there are.
const KINDS: usize = 5;

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What.
    pub kind: EventKind,
    /// When, in nanoseconds of the monitor's clock.
    pub time_ns: u64,
    /// The kind's numbers, in the order in which it names them.
    pub words: [u64; 4],
}

/// Called when there may be events to report; takes them itself.
type Listener = Box<dyn Fn() + Send + Sync>;

/// The queue of events.
pub struct Events {
    pub(super) clock: Arc<dyn Clock>,
    /// One bit for each kind that somebody listens to.
    wanted: AtomicU32,
    /// Whether the queue may hold something.
    pending: AtomicBool,
    room: AtomicU64,
    queue: Mutex<VecDeque<Event>>,
    dropped: [AtomicU64; KINDS],
    listener: OnceLock<Listener>,
}

impl Events {
    /// How many events wait at most, unless set otherwise.
    pub const ROOM: u64 = 1024;

    /// Returns an empty queue, whose events happen at the time of that clock.
    pub(super) fn new(clock: Arc<dyn Clock>) -> Events {
        Events {
            clock,
            wanted: AtomicU32::new(0),
            pending: AtomicBool::new(false),
            room: AtomicU64::new(Events::ROOM),
            queue: Mutex::default(),
            dropped: Default::default(),
            listener: OnceLock::new(),
        }
    }

    /// Sets the listener; only the first call has an effect.
    pub fn listen(&self, listener: Listener) {
        let _ = self.listener.set(listener);
    }

    /// The kinds that somebody wants to know of, a bit each.
    pub fn want(&self, kinds: u32) {
        self.wanted.store(kinds, Ordering::Relaxed);
    }

    /// How many may wait.
    pub fn set_room(&self, room: u64) {
        self.room.store(room, Ordering::Relaxed);
    }

    /// Returns how many may wait.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.room.load(Ordering::Relaxed)
    }

    /// Whether somebody listens to a kind.
    #[must_use]
    #[inline]
    pub fn is_wanted(&self, kind: EventKind) -> bool {
        self.wanted.load(Ordering::Relaxed) & (1 << kind as u32) != 0
    }

    /// Notes an event if somebody listens to its kind.
    #[inline]
    pub(crate) fn note(&self, kind: EventKind, words: impl FnOnce() -> [u64; 4]) {
        if self.is_wanted(kind) {
            self.keep(kind, words());
        }
    }

    #[cold]
    fn keep(&self, kind: EventKind, words: [u64; 4]) {
        let mut queue = self.queue();
        if queue.len() as u64 >= self.room() {
            self.dropped[kind as usize].fetch_add(1, Ordering::Relaxed);
        } else {
            queue.push_back(Event {
                kind,
                time_ns: self.clock.now_ns(),
                words,
            });
        }
        self.pending.store(true, Ordering::Release);
    }

    /// Tells what has happened. Call it without any lock.
    #[inline]
    pub fn tell(&self) {
        if self.pending.load(Ordering::Relaxed) {
            self.tell_now();
        }
    }

    #[cold]
    fn tell_now(&self) {
        if let Some(listener) = self.listener.get() {
            listener();
        }
    }

    /// Returns the oldest event.
    #[must_use]
    pub fn take(&self) -> Option<Event> {
        let mut queue = self.queue();
        let event = queue.pop_front();
        if queue.is_empty() {
            self.pending.store(false, Ordering::Release);
        }
        event
    }

    /// Returns how many of a kind did not fit since this was asked last.
    #[must_use]
    pub fn take_dropped(&self, kind: EventKind) -> u64 {
        self.dropped[kind as usize].swap(0, Ordering::Relaxed)
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.queue.lock().expect("no panic under this lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_wanted_is_kept_and_only_what_fits() {
        let events = Events::new(Arc::new(margay_net_platform::SystemClock));
        events.note(EventKind::Sleep, || unreachable!("nobody listens"));
        events.want(1 << EventKind::Sleep as u32);
        events.note(EventKind::Wake, || unreachable!("nobody listens"));
        events.set_room(2);
        for i in 0..5 {
            events.note(EventKind::Sleep, || [i, 0, 0, 0]);
        }
        assert_eq!(events.take().map(|e| e.words[0]), Some(0));
        assert_eq!(events.take().map(|e| e.words[0]), Some(1));
        assert_eq!(events.take(), None);
        assert_eq!(events.take_dropped(EventKind::Sleep), 3);
        assert_eq!(events.take_dropped(EventKind::Sleep), 0);
    }
}
