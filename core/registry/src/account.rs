//! To whom a program says that its use of the machine is to be charged (`nx_initve`). Displays show
//! it; the queue charges each job's own account.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::NoteKey;

/// The note that holds it, at the rank of the controlling process.
pub const KEY: NoteKey = NoteKey(u32::from_be_bytes(*b"NXac"));
/// Words of the note: the name, up to 32 bytes, with zeros behind it.
pub const WORDS: usize = 4;

/// Enters a name; what is beyond its 32nd byte is cut off.
pub fn set(note: &[AtomicU64], name: &str) {
    for (word, eight) in note.iter().zip(name.as_bytes().chunks(8)) {
        let mut padded = [0; 8];
        padded[..eight.len()].copy_from_slice(eight);
        word.store(u64::from_ne_bytes(padded), Ordering::Release);
    }
}

/// The name; none where there is none.
#[must_use]
pub fn name(note: Option<&[AtomicU64]>) -> Option<String> {
    let words = note?.iter();
    let bytes = words.flat_map(|word| word.load(Ordering::Acquire).to_ne_bytes());
    let bytes: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_was_entered_up_to_32_bytes() {
        let note: [AtomicU64; WORDS] = Default::default();
        assert_eq!(name(Some(&note)), None);
        assert_eq!(name(None), None);
        set(&note, "oceanography");
        assert_eq!(name(Some(&note)).as_deref(), Some("oceanography"));
        let note: [AtomicU64; WORDS] = Default::default();
        set(&note, &"x".repeat(40));
        assert_eq!(name(Some(&note)), Some("x".repeat(32)));
    }
}
