//! What the engine counts. Written under the engine's lock only, so a load and a store make an
//! addition.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Messages and their bytes.
#[derive(Default)]
pub struct Flow {
    /// Messages.
    pub messages: AtomicU64,
    /// Their packed bytes.
    pub bytes: AtomicU64,
}

impl Flow {
    #[inline]
    pub(crate) fn add(&self, bytes: u64) {
        add(&self.messages, 1);
        add(&self.bytes, bytes);
    }

    pub(crate) fn take_back(&self, bytes: u64) {
        add(&self.messages, 1u64.wrapping_neg());
        add(&self.bytes, bytes.wrapping_neg());
    }
}

/// The way of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// In one packet.
    Whole,
    /// Without asking, in several packets.
    Fragments,
    /// Copied from memory to memory.
    Direct,
    /// After the receiver's answer, in packets.
    Streamed,
}

/// A length that rises and falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Messages that no receive waits for.
    Unexpected,
    /// Receives that wait for their message.
    Posted,
}

/// The highest that a level has been since the mark was set.
#[derive(Debug)]
pub struct Mark {
    level: Level,
    highest: AtomicU64,
}

impl Mark {
    /// Returns the highest so far.
    #[must_use]
    pub fn highest(&self) -> u64 {
        self.highest.load(Ordering::Relaxed)
    }

    /// From now on as if it had been this.
    pub fn set(&self, value: u64) {
        self.highest.store(value, Ordering::Relaxed);
    }
}

/// What the engine counts.
#[derive(Default)]
pub struct Counters {
    /// Sent, by [`Protocol`].
    sent: [Flow; 4],
    /// Matched with a receive.
    pub received: Flow,
    /// Came before their receive.
    pub unexpected: Flow,
    /// Searches of a queue for a partner.
    pub match_attempts: AtomicU64,
    /// Requests that have ended.
    pub ended: AtomicU64,
    /// Messages that had to ask because the receiver's credits were used up.
    pub out_of_credits: AtomicU64,
    levels: [AtomicU64; 2],
    /// Whether there are marks to update.
    marked: AtomicU32,
    marks: Mutex<Vec<Arc<Mark>>>,
}

impl Counters {
    /// Returns what was sent by a protocol.
    #[must_use]
    #[inline]
    pub fn sent(&self, protocol: Protocol) -> &Flow {
        &self.sent[protocol as usize]
    }

    /// Messages sent, and their bytes.
    #[must_use]
    pub fn sent_in_all(&self) -> (u64, u64) {
        let sum = |part: fn(&Flow) -> &AtomicU64| {
            let parts = self.sent.iter().map(|f| part(f).load(Ordering::Relaxed));
            parts.fold(0, u64::wrapping_add)
        };
        (sum(|f| &f.messages), sum(|f| &f.bytes))
    }

    /// Returns how high a level is now.
    #[must_use]
    pub fn level(&self, level: Level) -> u64 {
        self.levels[level as usize].load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_level(&self, level: Level, value: usize) {
        self.levels[level as usize].store(value as u64, Ordering::Relaxed);
        if self.marked.load(Ordering::Relaxed) != 0 {
            self.raise(level, value as u64);
        }
    }

    /// Begins to note how high a level gets.
    #[must_use]
    pub fn mark(&self, level: Level) -> Arc<Mark> {
        let mark = Arc::new(Mark {
            level,
            highest: AtomicU64::new(self.level(level)),
        });
        let mut marks = self.marks();
        marks.push(mark.clone());
        self.marked.store(marks.len() as u32, Ordering::Relaxed);
        mark
    }

    /// Ends that.
    pub fn unmark(&self, mark: &Arc<Mark>) {
        let mut marks = self.marks();
        marks.retain(|m| !Arc::ptr_eq(m, mark));
        self.marked.store(marks.len() as u32, Ordering::Relaxed);
    }

    #[cold]
    fn raise(&self, level: Level, value: u64) {
        for mark in self.marks().iter().filter(|m| m.level == level) {
            mark.highest.fetch_max(value, Ordering::Relaxed);
        }
    }

    fn marks(&self) -> MutexGuard<'_, Vec<Arc<Mark>>> {
        self.marks.lock().expect("no panic under this lock")
    }
}

/// Adds to a counter that one thread at a time writes.
#[inline]
pub(crate) fn add(counter: &AtomicU64, by: u64) {
    let value = counter.load(Ordering::Relaxed).wrapping_add(by);
    counter.store(value, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_tells_the_highest_since_it_was_set() {
        let counters = Counters::default();
        counters.set_level(Level::Posted, 9);
        counters.set_level(Level::Posted, 3);
        let mark = counters.mark(Level::Posted);
        assert_eq!(mark.highest(), 3);
        counters.set_level(Level::Posted, 5);
        counters.set_level(Level::Unexpected, 50);
        counters.set_level(Level::Posted, 0);
        assert_eq!(mark.highest(), 5);
        counters.unmark(&mark);
        counters.set_level(Level::Posted, 8);
        assert_eq!((mark.highest(), counters.level(Level::Posted)), (5, 8));
    }

    #[test]
    fn what_was_counted_can_be_taken_back() {
        let flow = Flow::default();
        flow.add(10);
        flow.add(5);
        flow.take_back(10);
        assert_eq!(flow.messages.load(Ordering::Relaxed), 1);
        assert_eq!(flow.bytes.load(Ordering::Relaxed), 5);
    }
}
