//! A rank's address in NX: the number of its node, and the type of the process on that node.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::NoteKey;

/// The note that holds it.
pub const KEY: NoteKey = NoteKey(u32::from_be_bytes(*b"NXpl"));
/// Words of the note: 1 + the node, and the type that the process was started with in the upper
/// half, 0 while the rank has its usual place; the type that the process has now.
pub const WORDS: usize = 2;

/// The process type of a rank whose process is not known yet.
pub const UNPLACED: u32 = u32::MAX;

/// Instead of the process type with which it was started: the rank is the application's controlling
/// process, which is no node. It is the last rank of its job.
pub const CONTROLS: u32 = u32::MAX - 1;

/// Node, and the type with which the process was started, of `rank`. Usually every rank has a
/// node of its own, of the same number, and the type 0.
#[must_use]
pub fn started_as(note: Option<&[AtomicU64]>, rank: u32) -> (u32, u32) {
    let word = note
        .and_then(|words| words.first())
        .map_or(0, |first| first.load(Ordering::Acquire));
    match (word as u32).checked_sub(1) {
        Some(node) => (node, (word >> 32) as u32),
        None => (rank, 0),
    }
}

/// Whether the rank with this note is the application's controlling process.
#[must_use]
pub fn controls(note: Option<&[AtomicU64]>) -> bool {
    started_as(note, 0).1 == CONTROLS
}

/// The type that the process has now.
#[must_use]
pub fn process_type(note: Option<&[AtomicU64]>) -> u32 {
    match note {
        Some([_, now, ..]) => now.load(Ordering::Acquire) as u32,
        _ => 0,
    }
}

/// Enters node (below `u32::MAX`) and type of a process that is to be started.
///
/// # Panics
/// When the note has fewer than [`WORDS`] words.
pub fn set(note: &[AtomicU64], node: u32, process_type: u32) {
    set_process_type(note, process_type);
    let word = (u64::from(node) + 1) | u64::from(process_type) << 32;
    note[0].store(word, Ordering::Release);
}

/// Enters that the process has another type now.
///
/// # Panics
/// When the note has fewer than [`WORDS`] words.
pub fn set_process_type(note: &[AtomicU64], process_type: u32) {
    note[1].store(u64::from(process_type), Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_entered() {
        let note = [AtomicU64::new(0), AtomicU64::new(0)];
        assert_eq!((started_as(None, 5), process_type(None)), ((5, 0), 0));
        set_process_type(&note, 4);
        assert_eq!(
            (started_as(Some(&note), 5), process_type(Some(&note))),
            ((5, 0), 4)
        );
        set(&note, 3, UNPLACED);
        assert_eq!(started_as(Some(&note), 5), (3, UNPLACED));
        set(&note, 3, 8);
        set_process_type(&note, 9);
        assert_eq!(started_as(Some(&note), 5), (3, 8));
        assert_eq!(process_type(Some(&note)), 9);
        assert!(!controls(Some(&note)) && !controls(None));
        set(&note, 5, CONTROLS);
        set_process_type(&note, 7);
        assert!(controls(Some(&note)));
        assert_eq!(process_type(Some(&note)), 7);
    }
}
