//! What the threads of a rank wait for: one entry for each thread that waits, under a sequence
//! lock.
//!
//! A thread takes a free entry by writing its number into it, so an entry has one writer at a time.
//! The sequence number is odd while the entry changes; a reader that sees an odd number, or another
//! one afterwards, reads again. Where all entries are taken, a thread is counted as unlisted.
//!
//! Orderings: the writer's fields come between its odd number (a release fence behind it) and the
//! even one (a release store); the reader's between two loads of the number (acquire, and an
//! acquire fence before the second). This is Boehm's sequence lock ("Can seqlocks get along with
//! programming language memory models?", MSPC 2012); the model checks it.

use margay_core_registry::{Pulse, WaitKind, Waiting, Waits};
use margay_sys_os::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Threads of a rank whose waits are listed.
#[cfg(not(loom))]
pub const ENTRIES: usize = 8;
#[cfg(loom)]
pub const ENTRIES: usize = 1;

/// Reads of an entry that keeps changing, before it is left out: its thread does not stay in one
/// wait.
const READS: u32 = if cfg!(loom) { 2 } else { 64 };

/// The wait of one thread.
#[cfg_attr(not(loom), repr(C, align(64)))]
#[derive(Debug)]
pub struct WaitEntry {
    pub(crate) sequence: AtomicU32,
    /// The thread that has it, 0 for none.
    pub(crate) thread: AtomicU32,
    /// 0, or a [`WaitKind`].
    pub(crate) kind: AtomicU32,
    /// The rank waited for, or `u32::MAX`.
    pub(crate) peer: AtomicU32,
    pub(crate) tag: AtomicU32,
    pub(crate) has_tag: AtomicU32,
    pub(crate) context: AtomicU32,
    /// A [`Pulse`], which its thread writes at any time.
    pub(crate) pulse: AtomicU32,
    pub(crate) since_ns: AtomicU64,
}

/// The waits of a rank.
#[cfg_attr(not(loom), repr(C))]
#[derive(Debug)]
pub struct WaitList {
    pub(crate) entries: [WaitEntry; ENTRIES],
    /// Threads that wait and have no entry.
    pub(crate) unlisted: AtomicU32,
}

/// A thread's place in the list; to be given back by [`WaitList::end`].
#[derive(Debug)]
#[must_use = "a wait that is noted must be ended"]
pub struct Noted(Option<usize>);

impl WaitList {
    /// Enters what a thread begins to wait for. `waiting.thread` must not be 0.
    pub fn begin(&self, waiting: &Waiting) -> Noted {
        let free = |entry: &&WaitEntry| {
            entry.thread.load(Ordering::Relaxed) == 0
                && entry
                    .thread
                    .compare_exchange(0, waiting.thread, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        };
        let at = self.entries.iter().position(|entry| free(&entry));
        match at {
            Some(at) => self.entries[at].write(Some(waiting)),
            None => {
                self.unlisted.fetch_add(1, Ordering::Relaxed);
            }
        }
        Noted(at)
    }

    /// Enters what has come of a wait so far.
    pub fn set_pulse(&self, noted: &Noted, pulse: Pulse) {
        if let Some(at) = noted.0 {
            let entry = &self.entries[at];
            entry.pulse.store(pulse.number(), Ordering::Relaxed);
        }
    }

    /// Takes the wait back.
    pub fn end(&self, noted: Noted) {
        match noted.0 {
            Some(at) => {
                let entry = &self.entries[at];
                entry.write(None);
                entry.thread.store(0, Ordering::Release);
            }
            None => {
                self.unlisted.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// What the threads wait for now.
    #[must_use]
    pub fn read(&self) -> Waits {
        Waits {
            listed: self.entries.iter().filter_map(WaitEntry::read).collect(),
            unlisted: self.unlisted.load(Ordering::Relaxed),
        }
    }
}

impl WaitEntry {
    fn write(&self, waiting: Option<&Waiting>) {
        let before = self.sequence.load(Ordering::Relaxed);
        self.sequence
            .store(before.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        match waiting {
            None => self.kind.store(0, Ordering::Relaxed),
            Some(w) => {
                self.kind.store(w.kind as u32, Ordering::Relaxed);
                self.peer
                    .store(w.peer.unwrap_or(u32::MAX), Ordering::Relaxed);
                self.tag.store(w.tag.unwrap_or(0) as u32, Ordering::Relaxed);
                self.has_tag
                    .store(u32::from(w.tag.is_some()), Ordering::Relaxed);
                self.context.store(w.context, Ordering::Relaxed);
                self.since_ns.store(w.since_ns, Ordering::Relaxed);
                self.pulse.store(w.pulse.number(), Ordering::Relaxed);
            }
        }
        self.sequence
            .store(before.wrapping_add(2), Ordering::Release);
    }

    fn read(&self) -> Option<Waiting> {
        for _ in 0..READS {
            let before = self.sequence.load(Ordering::Acquire);
            let kind = WaitKind::from_number(self.kind.load(Ordering::Relaxed));
            let peer = self.peer.load(Ordering::Relaxed);
            let tag = self.tag.load(Ordering::Relaxed) as i32;
            let has_tag = self.has_tag.load(Ordering::Relaxed) != 0;
            let waiting = kind.map(|kind| Waiting {
                thread: self.thread.load(Ordering::Relaxed),
                kind,
                peer: (peer != u32::MAX).then_some(peer),
                tag: has_tag.then_some(tag),
                context: self.context.load(Ordering::Relaxed),
                since_ns: self.since_ns.load(Ordering::Relaxed),
                pulse: Pulse::from_number(self.pulse.load(Ordering::Relaxed)),
            });
            fence(Ordering::Acquire);
            let after = self.sequence.load(Ordering::Relaxed);
            if before == after && before.is_multiple_of(2) {
                return waiting;
            }
            margay_sys_os::sync::spin();
        }
        None
    }
}

#[cfg(test)]
impl WaitList {
    fn new() -> WaitList {
        let number = || AtomicU32::new(0);
        WaitList {
            entries: std::array::from_fn(|_| WaitEntry {
                sequence: number(),
                thread: number(),
                kind: number(),
                peer: number(),
                tag: number(),
                has_tag: number(),
                context: number(),
                pulse: number(),
                since_ns: AtomicU64::new(0),
            }),
            unlisted: number(),
        }
    }
}

/// A wait all of whose fields tell whose it is.
#[cfg(test)]
fn wait_of(thread: u32) -> Waiting {
    Waiting {
        thread,
        kind: WaitKind::Receive,
        peer: Some(thread),
        tag: Some(thread as i32),
        context: thread,
        since_ns: u64::from(thread),
        pulse: Pulse::default(),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn each_thread_has_an_entry_and_more_are_counted() {
        let list = WaitList::new();
        let mut noted: Vec<Noted> = (1..=ENTRIES as u32 + 2)
            .map(|thread| list.begin(&wait_of(thread)))
            .collect();
        let waits = list.read();
        assert_eq!((waits.listed.len(), waits.unlisted), (ENTRIES, 2));
        assert_eq!(waits.first(), Some(wait_of(1)));
        for one in noted.drain(..) {
            list.end(one);
        }
        assert_eq!(list.read(), Waits::default());
    }

    #[test]
    fn waits_of_several_threads_are_never_mixed() {
        let list = WaitList::new();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 1..=3u32 {
                let (list, over) = (&list, &over);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        list.end(list.begin(&wait_of(thread)));
                    }
                });
            }
            for _ in 0..200_000 {
                for w in list.read().listed {
                    assert_eq!(w, wait_of(w.context));
                }
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn waits_are_read_whole_or_not_at_all() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let list = Arc::new(WaitList::new());
            let writer = {
                let list = list.clone();
                thread::spawn(move || {
                    list.end(list.begin(&wait_of(1)));
                    list.end(list.begin(&wait_of(2)));
                })
            };
            for w in list.read().listed {
                assert_eq!(w, wait_of(w.context));
            }
            writer.join().unwrap();
            assert_eq!(list.read(), Waits::default());
        });
    }
}
