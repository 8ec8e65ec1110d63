//! What a rank tells of a wait that has become long: which operation of a request it is for, and
//! which messages have come that nobody has asked for.
//!
//! It is one note of each rank, for the wait that became long last. Who writes holds the rank's
//! lock; the first word is odd meanwhile, and another one afterwards.
//!
//! ```text
//! word 0      changes of the note
//! word 1      thread | moves of the wait's pulse << 32
//! word 2      since when it waits
//! word 3..7   the name of the call that made the operation; empty for no request
//! word 7      1 + its root in its communicator, 0 for none
//!             | number of the call site that made it << 32, of that which started it << 48;
//!             0 for unknown
//! word 8      number of the request among those waited for, from 0 | how many these are << 32
//! word 9      number of entries | messages that are in none of them << 32
//! per entry   sender | tag << 32
//!             context | number of messages << 32
//! ```

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::{CallName, NoteKey, Waiting};

/// The note that holds it.
pub const KEY: NoteKey = NoteKey(u32::from_be_bytes(*b"wait"));
/// The most kinds of messages that are listed.
pub const MOST: usize = 8;
/// Words of the note.
pub const WORDS: usize = FIRST + 2 * MOST;

const FIRST: usize = 10;
/// Reads of a note that keeps changing, before it is left out.
const READS: u32 = 64;

/// The operation of a request that is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Awaited {
    /// The call that made it: `MPI_Ibcast`.
    pub made_by: CallName,
    /// The call site that made it, as the rank's flight recorder numbers them; 0 for unknown.
    pub site: u16,
    /// The one that has started it, of a persistent request; else 0.
    pub started: u16,
    /// The root of a collective operation: its rank in the communicator.
    pub root: Option<u32>,
    /// Which of the requests that the call waits for it is, from 0.
    pub index: u32,
    /// How many requests the call waits for.
    pub total: u32,
}

/// Messages that are here and that no receive matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unexpected {
    /// World rank of their sender.
    pub from: u32,
    pub tag: i32,
    /// The context (communicator) that they came on.
    pub context: u32,
    /// How many there are.
    pub messages: u32,
}

/// What is published of a wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// The request that it is for, if it is for one.
    pub awaited: Option<Awaited>,
    /// The first messages that nobody has asked for, at most [`MOST`] kinds.
    pub unexpected: Vec<Unexpected>,
    /// How many messages are of further kinds.
    pub more: u32,
}

/// Enters the details of a wait. One thread at a time may call this for a note.
///
/// # Panics
/// When the note has fewer than [`WORDS`] words.
pub fn write(note: &[AtomicU64], waiting: &Waiting, detail: &Detail) {
    let before = note[0].load(Ordering::Relaxed);
    note[0].store(before.wrapping_add(1), Ordering::Relaxed);
    fence(Ordering::Release);
    let put = |at: usize, low: u32, high: u32| {
        note[at].store(pair(low, high), Ordering::Relaxed);
    };
    put(1, waiting.thread, waiting.pulse.moves.into());
    note[2].store(waiting.since_ns, Ordering::Relaxed);
    let awaited = detail.awaited.unwrap_or_default();
    for (word, name) in note[3..].iter().zip(awaited.made_by) {
        word.store(name, Ordering::Relaxed);
    }
    let root = awaited.root.map_or(0, |root| root.saturating_add(1));
    let sites = u32::from(awaited.site) | u32::from(awaited.started) << 16;
    put(7, root, sites);
    put(8, awaited.index, awaited.total);
    let entries = &detail.unexpected[..detail.unexpected.len().min(MOST)];
    put(9, entries.len() as u32, detail.more);
    for (entry, at) in entries.iter().zip((FIRST..).step_by(2)) {
        put(at, entry.from, entry.tag as u32);
        put(at + 1, entry.context, entry.messages);
    }
    note[0].store(before.wrapping_add(2), Ordering::Release);
}

/// The details of a wait; none where the note tells of another one, or nothing.
#[must_use]
pub fn read(note: &[AtomicU64], waiting: &Waiting) -> Option<Detail> {
    let words = (0..READS).find_map(|_| {
        let before = note.first()?.load(Ordering::Acquire);
        let words: Vec<u64> = note.iter().map(|w| w.load(Ordering::Relaxed)).collect();
        fence(Ordering::Acquire);
        let is_whole = before.is_multiple_of(2) && note[0].load(Ordering::Relaxed) == before;
        is_whole.then_some(words)
    })?;
    let words: &[u64; WORDS] = words.first_chunk()?;
    let is_it = words[1] == pair(waiting.thread, waiting.pulse.moves.into())
        && words[2] == waiting.since_ns;
    let halves = |at: usize| (words[at] as u32, (words[at] >> 32) as u32);
    let made_by: CallName = words[3..7].try_into().ok()?;
    let (entries, more) = halves(9);
    let entry = |at: usize| {
        let ((from, tag), (context, messages)) = (halves(at), halves(at + 1));
        let tag = tag as i32;
        Unexpected {
            from,
            tag,
            context,
            messages,
        }
    };
    let (index, total) = halves(8);
    is_it.then(|| Detail {
        awaited: (made_by != CallName::default()).then_some(Awaited {
            made_by,
            site: halves(7).1 as u16,
            started: (halves(7).1 >> 16) as u16,
            root: halves(7).0.checked_sub(1),
            index,
            total,
        }),
        unexpected: (FIRST..WORDS)
            .step_by(2)
            .take(entries as usize)
            .map(entry)
            .collect(),
        more,
    })
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pulse, WaitKind, call_name};

    #[test]
    fn what_is_published_of_a_wait_is_read_for_that_wait_alone() {
        let note: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let waiting = Waiting {
            thread: 7,
            kind: WaitKind::Receive,
            peer: None,
            tag: None,
            context: 0,
            since_ns: 99,
            pulse: Pulse { looks: 3, moves: 4 },
        };
        assert_eq!(read(&note, &waiting), None);
        let one = |from| Unexpected {
            from,
            tag: -3,
            context: 8,
            messages: 2,
        };
        let detail = Detail {
            awaited: Some(Awaited {
                made_by: call_name("MPI_Ireduce_scatter_block"),
                site: 513,
                started: 65_535,
                root: Some(0),
                index: 1,
                total: 2,
            }),
            unexpected: (0..MOST as u32).map(one).collect(),
            more: 5,
        };
        write(&note, &waiting, &detail);
        let later = Waiting {
            pulse: Pulse { looks: 9, moves: 4 },
            ..waiting
        };
        assert_eq!(read(&note, &later), Some(detail));
        let moved = Waiting {
            pulse: Pulse { looks: 3, moves: 5 },
            ..waiting
        };
        assert_eq!(read(&note, &moved), None);
        assert_eq!(read(&note[..4], &waiting), None);
        write(&note, &waiting, &Detail::default());
        assert_eq!(read(&note, &waiting), Some(Detail::default()));
    }
}
