//! A rank's row of the Program Marker Array: lights with colours and a line of text, which the rank
//! sets and displays read while the program runs (M. Snir and others, *IBM Systems Journal* 34(2),
//! 1995; D. Feitelson, SHPCC 1994).
//!
//! A row is a note of 16 words. The text is kept whole by a sequence number: odd while it changes,
//! and a reader that sees it change reads again.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::NoteKey;

/// The note that holds a row.
pub const KEY: NoteKey = NoteKey(u32::from_be_bytes(*b"MPLm"));
/// Words of the note: sequence number; number of lights, and bytes of the text in the upper half;
/// a byte of colour for each light; the text.
pub const WORDS: usize = TEXT + TEXT_BYTES / 8;

const SEQUENCE: usize = 0;
const SIZES: usize = 1;
const COLORS: usize = 2;
const TEXT: usize = COLORS + MOST_LIGHTS as usize / 8;

/// The most lights that a row can have.
pub const MOST_LIGHTS: u32 = 32;
/// The longest text in bytes.
pub const TEXT_BYTES: usize = 80;
/// How often a text that changes is read again; after that it is shown as it is.
const READS: u32 = 1000;

/// One rank's row.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a>(&'a [AtomicU64; WORDS]);

/// What a row shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// The colour of each light.
    pub lights: Vec<u8>,
    /// The text.
    pub text: String,
}

impl<'a> Row<'a> {
    /// The row in a note; none when the note is too short for one.
    #[must_use]
    pub fn of(note: &'a [AtomicU64]) -> Option<Row<'a>> {
        note.first_chunk().map(Row)
    }

    /// Enters how many lights the row has, at most [`MOST_LIGHTS`]. One thread at a time may change
    /// a row.
    pub fn set_lights(self, lights: u32) {
        let (_, text_len) = self.sizes();
        self.set_sizes(lights.min(MOST_LIGHTS), text_len);
    }

    /// Gives a light a colour; one that no row has is left out. One thread at a time may change a
    /// row.
    pub fn set_light(self, light: u32, color: u8) {
        if light < MOST_LIGHTS {
            let word = &self.0[COLORS + light as usize / 8];
            let mut colors = word.load(Ordering::Relaxed).to_ne_bytes();
            colors[light as usize % 8] = color;
            word.store(u64::from_ne_bytes(colors), Ordering::Relaxed);
        }
    }

    /// Replaces the text, cut to [`TEXT_BYTES`] at a character. One thread at a time may change a
    /// row.
    pub fn set_text(self, text: &str) {
        let bytes = &text.as_bytes()[..text.floor_char_boundary(TEXT_BYTES)];
        let sequence = &self.0[SEQUENCE];
        let before = sequence.load(Ordering::Relaxed);
        sequence.store(before.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.set_sizes(self.sizes().0, bytes.len() as u32);
        for (word, eight) in self.0[TEXT..].iter().zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded[..eight.len()].copy_from_slice(eight);
            word.store(u64::from_ne_bytes(padded), Ordering::Relaxed);
        }
        sequence.store(before.wrapping_add(2), Ordering::Release);
    }

    /// What the row shows now.
    #[must_use]
    pub fn read(self) -> Shown {
        let (lights, _) = self.sizes();
        let colors = self.0[COLORS..TEXT].iter();
        Shown {
            lights: colors
                .flat_map(|w| w.load(Ordering::Relaxed).to_ne_bytes())
                .take(lights as usize)
                .collect(),
            text: self.text(),
        }
    }

    fn text(self) -> String {
        let mut text = self.text_now();
        for _ in 1..READS {
            if text.is_ok() {
                break;
            }
            hint::spin_loop();
            text = self.text_now();
        }
        text.unwrap_or_else(|changing| changing)
    }

    /// The text; what was seen of it, as the error, when it changed meanwhile.
    fn text_now(self) -> Result<String, String> {
        let before = self.0[SEQUENCE].load(Ordering::Acquire);
        let (_, len) = self.sizes();
        // Nothing but loads until the sequence number is read again: who takes longer than the
        // writer's next change never has a whole text.
        let mut words = [0; TEXT_BYTES / 8];
        for (to, word) in words.iter_mut().zip(&self.0[TEXT..]) {
            *to = word.load(Ordering::Relaxed);
        }
        fence(Ordering::Acquire);
        let after = self.0[SEQUENCE].load(Ordering::Relaxed);
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        let text = String::from_utf8_lossy(&bytes[..len as usize]).into_owned();
        match before == after && before.is_multiple_of(2) {
            true => Ok(text),
            false => Err(text),
        }
    }

    /// Number of lights and bytes of the text.
    fn sizes(self) -> (u32, u32) {
        let word = self.0[SIZES].load(Ordering::Relaxed);
        let text_len = ((word >> 32) as u32).min(TEXT_BYTES as u32);
        ((word as u32).min(MOST_LIGHTS), text_len)
    }

    fn set_sizes(self, lights: u32, text_len: u32) {
        let word = u64::from(lights) | u64::from(text_len) << 32;
        self.0[SIZES].store(word, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note() -> [AtomicU64; WORDS] {
        [const { AtomicU64::new(0) }; WORDS]
    }

    #[test]
    fn a_row_shows_what_was_set() {
        let note = note();
        assert!(Row::of(&note[1..]).is_none());
        let row = Row::of(&note).unwrap();
        assert_eq!(row.read(), Shown::default());
        row.set_lights(11);
        row.set_light(2, 9);
        row.set_light(10, 7);
        row.set_light(99, 9);
        row.set_text("half-way");
        let shown = row.read();
        assert_eq!(shown.lights, [0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 7]);
        assert_eq!(shown.text, "half-way");
        row.set_text("");
        assert_eq!(row.read().text, "");
        assert_eq!(row.read().lights.len(), 11);
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        let note = note();
        let row = Row::of(&note).unwrap();
        row.set_text(&format!("{}é", "x".repeat(TEXT_BYTES - 1)));
        assert_eq!(row.read().text, "x".repeat(TEXT_BYTES - 1));
    }

    #[test]
    fn a_text_that_changes_is_read_whole() {
        let note = note();
        let row = Row::of(&note).unwrap();
        let texts = ["a".repeat(TEXT_BYTES), "b".repeat(TEXT_BYTES / 2)];
        row.set_text(&texts[0]);
        let (writes, reads) = if cfg!(miri) {
            (100, 20)
        } else {
            (20_000, 2_000)
        };
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for i in 0..writes {
                    row.set_text(&texts[i % 2]);
                    std::thread::yield_now();
                }
            });
            // A text whose writer is taken off its processor in the middle is shown as it is after
            // a while, so each reading is looked at by itself.
            let mut whole = 0;
            while whole < reads && !writer.is_finished() {
                if let Ok(text) = row.text_now() {
                    assert!(texts.contains(&text), "{text}");
                    whole += 1;
                }
            }
        });
        assert_eq!(row.read().text, texts[1]);
    }
}
