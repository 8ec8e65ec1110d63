//! A rank's row of the Program Marker Array: lights with colours and a line of text, which the rank sets and displays read
//! while the program runs (M. Snir and others, *IBM Systems Journal* 34(2), 1995; D. Feitelson, SHPCC 1994).
//!
//! A row lies in the segment's heap from the first mark on, and the rank's cell says where. A light is one byte. The text is
//! kept whole by a sequence number: odd while it changes, and a reader that sees it change reads again.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

use crate::segment::Segment;

/// The most lights that a row can have.
pub const MOST_LIGHTS: u32 = 32;
/// The longest text in bytes.
pub const TEXT_BYTES: usize = 80;
/// How often a text that changes is read again; after that it is shown as it is.
const LOOKS: u32 = 1000;

/// One rank's row, as it lies in the segment.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Row {
    sequence: AtomicU32,
    lights: AtomicU32,
    text_len: AtomicU32,
    unused: AtomicU32,
    colors: [AtomicU8; MOST_LIGHTS as usize],
    text: [AtomicU64; TEXT_BYTES / 8],
}

/// What a row shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// The colour of each light.
    pub lights: Vec<u8>,
    /// The text.
    pub text: String,
}

impl Row {
    /// The row of a rank; none before its first mark.
    #[must_use]
    pub fn of(segment: &Segment, rank: u32) -> Option<&Row> {
        Row::at(segment, segment.cell(rank).markers())
    }

    /// The row of a rank, made with so many lights (at most [`MOST_LIGHTS`]) if it has none. Only the rank itself calls this,
    /// from one thread at a time. None when the heap is used up.
    #[must_use]
    pub fn make(segment: &Segment, rank: u32, lights: u32) -> Option<&Row> {
        if let Some(row) = Row::of(segment, rank) {
            return Some(row);
        }
        let offset = segment.heap_alloc(size_of::<Row>() as u64)?;
        let row = Row::at(segment, offset)?;
        row.lights.store(lights.min(MOST_LIGHTS), Ordering::Relaxed);
        segment.cell(rank).set_markers(offset);
        Some(row)
    }

    fn at(segment: &Segment, offset: u64) -> Option<&Row> {
        let at = segment.heap_at(offset, size_of::<Row>() as u64, 128)?;
        // SAFETY: inside the heap and aligned (checked); a row is nothing but atomics, for which all bytes are values.
        Some(unsafe { at.cast::<Row>().as_ref() })
    }

    /// Gives a light a colour; one that the row does not have is left out.
    pub fn set_light(&self, light: u32, color: u8) {
        if let Some(place) = self.colors.get(light as usize) {
            place.store(color, Ordering::Relaxed);
        }
    }

    /// Replaces the text, cut to [`TEXT_BYTES`] at a character. One thread at a time may call this.
    pub fn set_text(&self, text: &str) {
        let bytes = &text.as_bytes()[..text.floor_char_boundary(TEXT_BYTES)];
        let before = self.sequence.load(Ordering::Relaxed);
        self.sequence
            .store(before.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.text_len.store(bytes.len() as u32, Ordering::Relaxed);
        for (word, eight) in self.text.iter().zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded[..eight.len()].copy_from_slice(eight);
            word.store(u64::from_ne_bytes(padded), Ordering::Relaxed);
        }
        self.sequence
            .store(before.wrapping_add(2), Ordering::Release);
    }

    /// What the row shows now.
    #[must_use]
    pub fn read(&self) -> Shown {
        let lights = self.lights.load(Ordering::Relaxed).min(MOST_LIGHTS);
        let colors = self.colors[..lights as usize].iter();
        Shown {
            lights: colors.map(|c| c.load(Ordering::Relaxed)).collect(),
            text: self.text(),
        }
    }

    fn text(&self) -> String {
        let mut bytes = Vec::new();
        for _ in 0..LOOKS {
            let before = self.sequence.load(Ordering::Acquire);
            let len = (self.text_len.load(Ordering::Relaxed) as usize).min(TEXT_BYTES);
            let words = self.text.iter();
            bytes = words
                .flat_map(|w| w.load(Ordering::Relaxed).to_ne_bytes())
                .take(len)
                .collect();
            fence(Ordering::Acquire);
            let after = self.sequence.load(Ordering::Relaxed);
            if before == after && before.is_multiple_of(2) {
                break;
            }
            margay_sys_os::cpu::pause();
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Sizes;
    use std::mem::offset_of;

    fn segment() -> Segment {
        Segment::create(Sizes {
            ranks: 2,
            heap_bytes: 1 << 20,
            arena_bytes: 0,
        })
        .unwrap()
    }

    #[test]
    fn a_row_is_as_drawn() {
        assert_eq!(size_of::<Row>(), 128);
        assert_eq!(
            [
                offset_of!(Row, lights),
                offset_of!(Row, text_len),
                offset_of!(Row, colors),
                offset_of!(Row, text)
            ],
            [4, 8, 16, 48]
        );
    }

    #[test]
    fn rows_are_made_once_and_read_by_others() {
        let segment = segment();
        assert!(Row::of(&segment, 1).is_none());
        let row = Row::make(&segment, 1, 3).unwrap();
        row.set_light(2, 9);
        row.set_light(99, 9);
        row.set_text("half-way");
        let other = Segment::join(segment.fd().try_clone_to_owned().unwrap()).unwrap();
        let shown = Row::of(&other, 1).unwrap().read();
        assert_eq!(
            (shown.lights, shown.text.as_str()),
            (vec![0, 0, 9], "half-way")
        );
        Row::make(&segment, 1, 8).unwrap().set_text("");
        assert_eq!(Row::of(&other, 1).unwrap().read().text, "");
        assert!(Row::of(&other, 0).is_none());
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        let segment = segment();
        let row = Row::make(&segment, 0, 1).unwrap();
        row.set_text(&format!("{}é", "x".repeat(TEXT_BYTES - 1)));
        assert_eq!(row.read().text, "x".repeat(TEXT_BYTES - 1));
    }

    #[test]
    fn a_text_that_changes_is_read_whole() {
        let segment = segment();
        let row = Row::make(&segment, 0, 1).unwrap();
        let texts = ["a".repeat(TEXT_BYTES), "b".repeat(TEXT_BYTES / 2)];
        row.set_text(&texts[0]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..20_000 {
                    row.set_text(&texts[i % 2]);
                }
            });
            for _ in 0..2_000 {
                let text = row.read().text;
                assert!(texts.contains(&text), "{text}");
            }
        });
    }
}
