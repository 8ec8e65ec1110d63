//! Where a rank writes down what it did when it crashed: one note for all ranks of a host, of which
//! the first one to crash has it. `margay_sys_os::crash` says what is in it.

use crate::NoteKey;

/// The note that holds it, of one of the ranks.
pub const KEY: NoteKey = NoteKey(u32::from_be_bytes(*b"crsh"));

/// Returns the note, whichever rank has it; `note` gives that of a rank.
pub fn find<T>(ranks: u32, note: impl Fn(u32, NoteKey) -> Option<T>) -> Option<T> {
    (0..ranks).find_map(|rank| note(rank, KEY))
}
