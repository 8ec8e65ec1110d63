//! OTF2's encoding: numbers without their leading zeros, records with their length, files of chunks
//! of one size.

use std::io::{self, Write};

/// Bytes of a chunk of events.
pub const EVENT_CHUNK: usize = 1 << 20;
/// Bytes of a chunk of definitions. A definition is in one chunk.
pub const DEFINITION_CHUNK: usize = 4 << 20;
/// A text is cut there, so that its definition is in one chunk.
const MOST_TEXT: usize = 64 << 10;

/// What stands between records.
pub mod mark {
    pub const END_OF_BUFFER: u8 = 1;
    pub const END_OF_FILE: u8 = 2;
    pub const HEADER: u8 = 3;
    pub const TIME: u8 = 5;
    pub const ATTRIBUTES: u8 = 6;
}
/// All numbers are little-endian.
pub const LITTLE_ENDIAN: u8 = 0x42;

/// The fields of a record.
#[derive(Default)]
pub struct Fields(pub Vec<u8>);

impl Fields {
    pub fn byte(&mut self, value: u8) -> &mut Fields {
        self.0.push(value);
        self
    }

    /// A number of 32 bits; all of them stand for "none".
    pub fn word(&mut self, value: u32) -> &mut Fields {
        match value {
            u32::MAX => self.byte(u8::MAX),
            value => self.long(u64::from(value)),
        }
    }

    /// A number of 64 bits; all of them stand for "none".
    pub fn long(&mut self, value: u64) -> &mut Fields {
        push_long(&mut self.0, value);
        self
    }

    /// A text ends with a zero.
    pub fn text(&mut self, text: &str) -> &mut Fields {
        let end = text.find('\0').unwrap_or(text.len()).min(MOST_TEXT);
        self.0
            .extend(&text.as_bytes()[..text.floor_char_boundary(end)]);
        self.byte(0)
    }

    pub fn fixed(&mut self, value: u64) -> &mut Fields {
        self.0.extend(value.to_le_bytes());
        self
    }
}

/// How many bytes a number has without its leading zeros, then these.
fn push_long(to: &mut Vec<u8>, value: u64) {
    if value == u64::MAX {
        return to.push(u8::MAX);
    }
    let length = 8 - value.leading_zeros() as usize / 8;
    to.push(length as u8);
    to.extend(&value.to_le_bytes()[..length]);
}

/// Writes a file of events or definitions.
pub struct ChunkWriter<W> {
    to: W,
    size: usize,
    chunk: Vec<u8>,
    fields: Fields,
    /// Events so far.
    pub events: u64,
    time: Option<u64>,
}

impl<W: Write> ChunkWriter<W> {
    pub fn new(to: W, size: usize) -> ChunkWriter<W> {
        let mut writer = ChunkWriter {
            to,
            size,
            chunk: Vec::new(),
            fields: Fields::default(),
            events: 0,
            time: None,
        };
        writer.begin();
        writer
    }

    /// The header of a chunk: its first event and, once it is full, its last one.
    fn begin(&mut self) {
        self.chunk.extend([mark::HEADER, LITTLE_ENDIAN]);
        self.chunk.extend((self.events + 1).to_le_bytes());
        self.chunk.extend(0_u64.to_le_bytes());
    }

    fn end(&mut self) -> io::Result<()> {
        const LAST: usize = 10;
        self.chunk[LAST..LAST + 8].copy_from_slice(&self.events.to_le_bytes());
        self.to.write_all(&self.chunk)?;
        self.chunk.clear();
        Ok(())
    }

    /// Goes to the next chunk unless this one has room for more than `needed` bytes. Returns
    /// whether it is a new one.
    fn room(&mut self, needed: usize) -> io::Result<bool> {
        if self.chunk.len() + needed < self.size {
            return Ok(false);
        }
        self.chunk.resize(self.size, 0);
        self.end()?;
        self.begin();
        Ok(true)
    }

    /// A definition.
    pub fn definition(&mut self, kind: u8, fields: &Fields) -> io::Result<()> {
        self.room(fields.0.len() + 10)?;
        self.record(kind, &fields.0);
        Ok(())
    }

    /// A kind, how many bytes follow, then these.
    fn record(&mut self, kind: u8, bytes: &[u8]) {
        self.chunk.push(kind);
        if bytes.len() < usize::from(u8::MAX) {
            self.chunk.push(bytes.len() as u8);
        } else {
            self.chunk.push(u8::MAX);
            self.chunk.extend((bytes.len() as u64).to_le_bytes());
        }
        self.chunk.extend(bytes);
    }

    /// An event. Its time is not before that of the event before.
    pub fn event(
        &mut self,
        time: u64,
        kind: u8,
        fields: impl FnOnce(&mut Fields),
    ) -> io::Result<()> {
        let mut all = std::mem::take(&mut self.fields);
        all.0.clear();
        fields(&mut all);
        let written = self.begin_event(time, all.0.len() + 10).map(|()| {
            self.record(kind, &all.0);
        });
        self.fields = all;
        written
    }

    /// An event with one number, which has no length: it is in the number.
    pub fn single(&mut self, time: u64, kind: u8, value: u64) -> io::Result<()> {
        self.begin_event(time, 10)?;
        self.chunk.push(kind);
        push_long(&mut self.chunk, value);
        Ok(())
    }

    /// The same with an attribute, a byte.
    pub fn single_with(
        &mut self,
        time: u64,
        (kind, value): (u8, u64),
        (attribute, of_it): (u32, u8),
    ) -> io::Result<()> {
        const BYTE: u8 = 1;
        let mut list = Fields::default();
        list.word(1).word(attribute).byte(BYTE).byte(of_it);
        self.begin_event(time, list.0.len() + 20)?;
        self.record(mark::ATTRIBUTES, &list.0);
        self.chunk.push(kind);
        push_long(&mut self.chunk, value);
        Ok(())
    }

    fn begin_event(&mut self, time: u64, needed: usize) -> io::Result<()> {
        const TIME: usize = 9;
        let is_new = self.room(needed + TIME)?;
        if is_new || self.time != Some(time) {
            self.chunk.push(mark::TIME);
            self.chunk.extend(time.to_le_bytes());
            self.time = Some(time);
        }
        self.events += 1;
        Ok(())
    }

    /// Writes the end.
    pub fn finish(mut self) -> io::Result<W> {
        self.room(1)?;
        self.chunk.extend([mark::END_OF_FILE, mark::END_OF_BUFFER]);
        self.end()?;
        self.to.flush()?;
        Ok(self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(put: impl FnOnce(&mut Fields) -> &mut Fields) -> Vec<u8> {
        let mut fields = Fields::default();
        put(&mut fields);
        fields.0
    }

    #[test]
    fn numbers_are_as_short_as_they_can_be() {
        let word = |value| bytes(|f| f.word(value));
        let long = |value| bytes(|f| f.long(value));
        assert_eq!(word(0), [0]);
        assert_eq!(word(1), [1, 1]);
        assert_eq!(word(255), [1, 255]);
        assert_eq!(word(256), [2, 0, 1]);
        assert_eq!(word(0x12_3456), [3, 0x56, 0x34, 0x12]);
        assert_eq!(word(u32::MAX - 1), [4, 254, 255, 255, 255]);
        assert_eq!(word(u32::MAX), [255]);
        assert_eq!(long(u64::from(u32::MAX)), [4, 255, 255, 255, 255]);
        assert_eq!(long(1 << 56), [8, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(long(u64::MAX), [255]);
        assert_eq!(bytes(|f| f.text("ab")), b"ab\0");
        assert_eq!(bytes(|f| f.text("a\0b")), b"a\0");
        let long = "ü".repeat(MOST_TEXT);
        assert_eq!(bytes(|f| f.text(&long)).len(), MOST_TEXT + 1);
    }

    /// What libotf2 3.2 writes for these events, with its chunks of 1 MiB.
    #[test]
    fn events_are_the_bytes_that_the_library_writes() {
        const ENTER: u8 = 12;
        const LEAVE: u8 = 13;
        let mut events = ChunkWriter::new(Vec::new(), EVENT_CHUNK);
        events.single(0, ENTER, 0).unwrap();
        events.single(10, LEAVE, 0).unwrap();
        events.single_with(10, (ENTER, 0), (0, 200)).unwrap();
        events.single(300, LEAVE, 0).unwrap();
        let expected = [
            &[3, 0x42, 1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0][..],
            &[5, 0, 0, 0, 0, 0, 0, 0, 0, 12, 0],
            &[5, 10, 0, 0, 0, 0, 0, 0, 0, 13, 0],
            &[6, 5, 1, 1, 0, 1, 200, 12, 0],
            &[5, 44, 1, 0, 0, 0, 0, 0, 0, 13, 0],
            &[2, 1],
        ];
        assert_eq!(events.finish().unwrap(), expected.concat());
    }

    #[test]
    fn chunks_have_one_size_and_begin_with_the_time() {
        let mut events = ChunkWriter::new(Vec::new(), 64);
        for _ in 0..10 {
            events
                .event(7, 14, |f| {
                    f.word(1).word(0).long(9);
                })
                .unwrap();
        }
        let written = events.finish().unwrap();
        // 18 bytes of the header, 9 of the time, 7 of each event, and a zero at least.
        let mut first = 1_u64;
        for chunk in written.chunks(64) {
            assert_eq!(chunk[2..10], first.to_le_bytes());
            let last = u64::from_le_bytes(chunk[10..18].try_into().unwrap());
            assert_eq!((chunk[18], chunk[19]), (mark::TIME, 7));
            let at = 27 + 7 * (last + 1 - first) as usize;
            assert_eq!(chunk[at - 7..at], [14, 5, 1, 1, 0, 1, 9]);
            let end = if last == 10 { mark::END_OF_FILE } else { 0 };
            assert_eq!(chunk[at], end);
            first = last + 1;
        }
        assert_eq!(first, 11);
    }

    #[test]
    fn long_records_have_long_lengths() {
        let mut definitions = ChunkWriter::new(Vec::new(), DEFINITION_CHUNK);
        for length in [253, 254] {
            let text = bytes(|f| f.text(&"x".repeat(length)));
            definitions.definition(10, &Fields(text)).unwrap();
        }
        let written = definitions.finish().unwrap();
        assert_eq!(written[18..20], [10, 254]);
        let second = &written[20 + 254..];
        assert_eq!(second[..10], [10, 255, 255, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(second[10 + 255..], [mark::END_OF_FILE, mark::END_OF_BUFFER]);
    }
}
