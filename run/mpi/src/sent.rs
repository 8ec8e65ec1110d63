//! Requests of sends that went at once.
//!
//! Such a request is over before the program has its handle, so it is no entry of the table. All
//! that is known of it is how many there are, and, for `MPI_Cancel`, what was sent: its handle is a
//! *name*, of which there are a few. While any such request is out, a name is given once, so that
//! it stands for one message; when the names are used up, the last handle serves for all further
//! ones, which cannot be cancelled. When none is out, all names are free again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::active::Active;
use crate::handle::{GENERATIONS, generation, with_generation};

/// Names; the handle of one generation more is that of all without a name.
const NAMES: u32 = GENERATIONS - 1;

/// In the state: one more that is out, and one name more that was given.
const OUT: u64 = 1;
const NAME: u64 = 1 << 32;
/// In the state: some are being cancelled.
const CANCELLED: u64 = 1 << 63;

/// The requests of sends that went at once. Every function gets as an argument whether threads
/// share the rank.
pub(crate) struct SentRequests {
    /// The handle of an entry that stays for ever; its generations are the handles.
    base: u32,
    /// Requests that the program has not completed or freed, names that were given since there were
    /// none, and a flag.
    state: AtomicU64,
    names: Box<[Name]>,
    /// Those that the program wants cancelled.
    cancelled: Mutex<BTreeMap<u32, Active>>,
}

/// What was sent: its receiver and communicator, its tag and number.
#[derive(Default)]
struct Name {
    to_comm: AtomicU64,
    tag_number: AtomicU64,
}

/// As the receiver in a name: the program has learned that the request is over, so it cannot be
/// cancelled any more.
const SETTLED: u32 = u32::MAX;

/// A message that went at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// World rank of the receiver.
    pub to: u32,
    /// Handle of the communicator.
    pub comm: u32,
    pub tag: u32,
    /// Which of the eager messages to this receiver it is.
    pub number: u32,
}

impl SentRequests {
    pub(crate) fn new(base: u32) -> SentRequests {
        SentRequests {
            base,
            state: AtomicU64::new(0),
            names: (0..NAMES).map(|_| Name::default()).collect(),
            cancelled: Mutex::default(),
        }
    }

    /// Gives a handle for a message.
    #[inline(always)]
    pub(crate) fn add(&self, message: Message, shared: bool) -> u32 {
        let name = self.next_name(shared);
        if let Some(place) = self.names.get(name as usize) {
            let Message {
                to,
                comm,
                tag,
                number,
            } = message;
            place.to_comm.store(both(to, comm), Ordering::Relaxed);
            place.tag_number.store(both(tag, number), Ordering::Relaxed);
        }
        with_generation(self.base, name)
    }

    #[inline(always)]
    fn next_name(&self, shared: bool) -> u32 {
        let step = |state: u64| {
            let given = match state as u32 {
                0 => 0,
                _ => (state & !CANCELLED) >> 32,
            };
            let next = (given + 1).min(u64::from(NAMES));
            let out = u64::from(state as u32) + OUT;
            (given as u32, (state & CANCELLED) + next * NAME + out)
        };
        let state = self.state.load(Ordering::Relaxed);
        if !shared {
            let (name, next) = step(state);
            self.state.store(next, Ordering::Relaxed);
            return name;
        }
        let order = Ordering::Relaxed;
        let before = self.state.fetch_update(order, order, |s| Some(step(s).1));
        step(before.unwrap_or(state)).0
    }

    /// Whether `handle` is one of these.
    #[inline(always)]
    pub(crate) fn has(&self, handle: u32) -> bool {
        with_generation(handle, 0) == self.base
    }

    /// Whether any is out.
    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        self.state.load(Ordering::Relaxed) as u32 != 0
    }

    /// Completes one unless it is being cancelled. Returns whether it did.
    #[inline(always)]
    pub(crate) fn complete(&self, handle: u32, shared: bool) -> bool {
        if self.state.load(Ordering::Relaxed) & CANCELLED != 0
            && self.cancelled().contains_key(&handle)
        {
            return false;
        }
        self.count_down(shared);
        true
    }

    #[inline(always)]
    fn count_down(&self, shared: bool) {
        if shared {
            self.state.fetch_sub(OUT, Ordering::Relaxed);
        } else {
            let state = self.state.load(Ordering::Relaxed);
            self.state.store(state - OUT, Ordering::Relaxed);
        }
    }

    /// Returns what is under way for one that is being cancelled.
    pub(crate) fn cancelling(&self, handle: u32) -> Option<Active> {
        if self.state.load(Ordering::Relaxed) & CANCELLED == 0 {
            return None;
        }
        self.cancelled().get(&handle).cloned()
    }

    /// Completes or frees one; what was under way if it was being cancelled.
    pub(crate) fn remove(&self, handle: u32, shared: bool) -> Option<Active> {
        let mut cancelled = self.cancelled();
        let active = cancelled.remove(&handle);
        if active.is_some() && cancelled.is_empty() {
            self.state.fetch_and(!CANCELLED, Ordering::Relaxed);
        }
        self.count_down(shared);
        active
    }

    /// Notes that the program learns that the request is over. Returns the message if it could
    /// still be cancelled.
    pub(crate) fn settle(&self, handle: u32) -> Option<Message> {
        let name = self.names.get(generation(handle) as usize)?;
        let halves = |n: u64| ((n >> 32) as u32, n as u32);
        let (to, comm) = halves(name.to_comm.load(Ordering::Relaxed));
        let (tag, number) = halves(name.tag_number.load(Ordering::Relaxed));
        name.to_comm.store(both(SETTLED, 0), Ordering::Relaxed);
        (to != SETTLED).then_some(Message {
            to,
            comm,
            tag,
            number,
        })
    }

    /// One is being cancelled; what is under way for it.
    pub(crate) fn cancel(&self, handle: u32, active: Active) {
        self.cancelled().insert(handle, active);
        self.state.fetch_or(CANCELLED, Ordering::Relaxed);
    }

    /// Changes what is under way for one that is being cancelled.
    pub(crate) fn change(&self, handle: u32, active: Active) {
        if let Some(place) = self.cancelled().get_mut(&handle) {
            *place = active;
        }
    }

    fn cancelled(&self) -> MutexGuard<'_, BTreeMap<u32, Active>> {
        self.cancelled.lock().expect("no panic under this lock")
    }
}

#[inline(always)]
fn both(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(number: u32) -> Message {
        Message {
            to: 3,
            comm: 4,
            tag: 5,
            number,
        }
    }

    #[test]
    fn a_name_stands_for_one_message_while_any_is_out() {
        let requests = SentRequests::new(7 << 27);
        let handles: Vec<u32> = (1..=200).map(|n| requests.add(sent(n), false)).collect();
        assert!(handles.iter().all(|&h| requests.has(h)));
        // One is always out: no name comes again, also when all others are over.
        for &handle in &handles[..199] {
            assert!(requests.complete(handle, false));
        }
        let further = requests.add(sent(201), true);
        assert_eq!(requests.settle(further), None);
        assert_eq!(requests.settle(handles[9]), Some(sent(10)));
        assert_eq!(requests.settle(handles[9]), None);
        assert!(requests.complete(further, true));
        assert!(requests.complete(handles[199], false));
        assert!(!requests.any());
        let again = requests.add(sent(202), true);
        assert_eq!(again, handles[0]);
        assert_eq!(requests.settle(again), Some(sent(202)));
    }

    #[test]
    fn one_that_is_being_cancelled_is_completed_by_its_end() {
        let requests = SentRequests::new(7 << 27);
        let (a, b) = (requests.add(sent(1), false), requests.add(sent(2), false));
        assert_eq!(requests.settle(b), Some(sent(2)));
        requests.cancel(b, Active::Inactive);
        assert!(!requests.complete(b, false));
        assert!(requests.complete(a, false));
        assert!(requests.cancelling(b).is_some());
        assert!(requests.remove(b, false).is_some());
        assert!(!requests.any() && requests.cancelling(b).is_none());
    }
}
