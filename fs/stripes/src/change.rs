//! Changes of the metadata as the log keeps them. Each says what something is from now on, not
//! what was done to it, so that a change may be applied twice, and over a snapshot that has it.

use crate::codec::{Reader, Writer};

/// What a file, directory or link is, beside its contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// Type and permissions, as `stat` has them.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    /// Number of a device file.
    pub rdev: u32,
    pub size: u64,
    /// Times in nanoseconds since 1970.
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
}

/// Types of files in [`Attr::mode`].
pub mod kind {
    pub const MASK: u32 = 0o170_000;
    pub const FILE: u32 = 0o100_000;
    pub const FOLDER: u32 = 0o040_000;
    pub const LINK: u32 = 0o120_000;
    pub const FIFO: u32 = 0o010_000;
    pub const CHARACTER: u32 = 0o020_000;
    pub const BLOCK: u32 = 0o060_000;
    pub const SOCKET: u32 = 0o140_000;
}

/// Where a row lies, as the map of its file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRef {
    /// The slot.
    pub slot: u64,
    /// Generation: unique for every writing of a row.
    pub generation: u64,
    /// Blocks of the file that are stored.
    pub blocks: u32,
}

/// How the rows of a file are laid out, as far as that differs from file to file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Units of the file in a row.
    pub data: u32,
    /// Bytes of a unit.
    pub unit: u32,
    /// The directories that the rows are spread over, a bit each.
    pub over: u64,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// There is an inode, with these attributes; a symbolic link with its target.
    Inode(u64, Attr, Vec<u8>),
    /// There is no such inode.
    Gone(u64),
    /// A directory has an entry.
    Entry(u64, Vec<u8>, u64),
    /// A directory has no such entry.
    NoEntry(u64, Vec<u8>),
    /// Rows of a file lie there.
    Rows(u64, Vec<(u64, RowRef)>),
    /// A file has no rows from this one on.
    Cut(u64, u64),
    /// From this row of a file on, this many rows are holes.
    Hole(u64, u64, u64),
    /// Size and time of modification of a file.
    Size(u64, u64, i64),
    /// An extended attribute, none where it is not there.
    Attribute(u64, Vec<u8>, Option<Vec<u8>>),
    /// The next inode, and the next generation of rows.
    Counters(u64, u64),
    /// A file is laid out like this, and these are its rows, and no others. Many rows come in
    /// several changes: only the last one, which says so, has an effect, with the rows of all.
    Laid(u64, Shape, Vec<(u64, RowRef)>, bool),
}

/// Appends rows and their places.
fn encode_rows(rows: &[(u64, RowRef)], out: &mut Writer) {
    out.u32(rows.len() as u32);
    for (row, at) in rows {
        out.u64(*row);
        out.u64(at.slot);
        out.u64(at.generation);
        out.u32(at.blocks);
    }
}

/// Reads rows and their places.
fn decode_rows(bytes: &mut Reader<'_>) -> Option<Vec<(u64, RowRef)>> {
    let mut rows = Vec::new();
    for _ in 0..bytes.u32()? {
        let row = bytes.u64()?;
        let at = RowRef {
            slot: bytes.u64()?,
            generation: bytes.u64()?,
            blocks: bytes.u32()?,
        };
        rows.push((row, at));
    }
    Some(rows)
}

impl Change {
    /// Appends the bytes of the change.
    pub fn encode(&self, out: &mut Writer) {
        match self {
            Change::Inode(ino, attr, target) => {
                out.u8(1);
                out.u64(*ino);
                for word in [attr.mode, attr.uid, attr.gid, attr.nlink, attr.rdev] {
                    out.u32(word);
                }
                out.u64(attr.size);
                for time in [attr.atime, attr.mtime, attr.ctime] {
                    out.i64(time);
                }
                out.bytes(target);
            }
            Change::Gone(ino) => {
                out.u8(2);
                out.u64(*ino);
            }
            Change::Entry(folder, name, ino) => {
                out.u8(3);
                out.u64(*folder);
                out.bytes(name);
                out.u64(*ino);
            }
            Change::NoEntry(folder, name) => {
                out.u8(4);
                out.u64(*folder);
                out.bytes(name);
            }
            Change::Rows(ino, rows) => {
                out.u8(5);
                out.u64(*ino);
                encode_rows(rows, out);
            }
            Change::Cut(ino, row) => {
                out.u8(6);
                out.u64(*ino);
                out.u64(*row);
            }
            Change::Size(ino, size, mtime) => {
                out.u8(7);
                out.u64(*ino);
                out.u64(*size);
                out.i64(*mtime);
            }
            Change::Attribute(ino, name, value) => {
                out.u8(8);
                out.u64(*ino);
                out.bytes(name);
                out.u8(u8::from(value.is_some()));
                out.bytes(value.as_deref().unwrap_or_default());
            }
            Change::Counters(ino, generation) => {
                out.u8(9);
                out.u64(*ino);
                out.u64(*generation);
            }
            Change::Hole(ino, row, count) => {
                out.u8(10);
                out.u64(*ino);
                out.u64(*row);
                out.u64(*count);
            }
            Change::Laid(ino, shape, rows, is_last) => {
                out.u8(11);
                out.u64(*ino);
                out.u32(shape.data);
                out.u32(shape.unit);
                out.u64(shape.over);
                out.u8(u8::from(*is_last));
                encode_rows(rows, out);
            }
        }
    }

    /// Reads the next change; none when the bytes are none.
    pub fn decode(bytes: &mut Reader<'_>) -> Option<Change> {
        let kind = bytes.u8()?;
        let first = bytes.u64()?;
        Some(match kind {
            1 => {
                let mut attr = Attr::default();
                for word in [
                    &mut attr.mode,
                    &mut attr.uid,
                    &mut attr.gid,
                    &mut attr.nlink,
                    &mut attr.rdev,
                ] {
                    *word = bytes.u32()?;
                }
                attr.size = bytes.u64()?;
                for time in [&mut attr.atime, &mut attr.mtime, &mut attr.ctime] {
                    *time = bytes.i64()?;
                }
                Change::Inode(first, attr, bytes.bytes()?.to_vec())
            }
            2 => Change::Gone(first),
            3 => {
                let name = bytes.bytes()?.to_vec();
                Change::Entry(first, name, bytes.u64()?)
            }
            4 => Change::NoEntry(first, bytes.bytes()?.to_vec()),
            5 => Change::Rows(first, decode_rows(bytes)?),
            6 => Change::Cut(first, bytes.u64()?),
            7 => Change::Size(first, bytes.u64()?, bytes.i64()?),
            8 => {
                let name = bytes.bytes()?.to_vec();
                let is_there = bytes.u8()? != 0;
                let value = bytes.bytes()?.to_vec();
                Change::Attribute(first, name, is_there.then_some(value))
            }
            9 => Change::Counters(first, bytes.u64()?),
            10 => Change::Hole(first, bytes.u64()?, bytes.u64()?),
            11 => {
                let shape = Shape {
                    data: bytes.u32()?,
                    unit: bytes.u32()?,
                    over: bytes.u64()?,
                };
                let is_last = bytes.u8()? != 0;
                Change::Laid(first, shape, decode_rows(bytes)?, is_last)
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_read_as_it_was_written_and_a_part_of_one_is_none() {
        let row = RowRef {
            slot: 3,
            generation: 4,
            blocks: 5,
        };
        let attr = Attr {
            mode: 0o100_644,
            mtime: -5,
            ..Attr::default()
        };
        let shape = Shape {
            data: 2,
            unit: 1 << 16,
            over: 0b111,
        };
        let changes = [
            Change::Inode(7, attr, b"target".to_vec()),
            Change::Gone(7),
            Change::Entry(1, b"name".to_vec(), 7),
            Change::NoEntry(1, b"name".to_vec()),
            Change::Rows(7, vec![(0, row), (9, row)]),
            Change::Cut(7, 2),
            Change::Size(7, 100, -1),
            Change::Attribute(7, b"user.a".to_vec(), Some(vec![])),
            Change::Attribute(7, b"user.a".to_vec(), None),
            Change::Counters(8, 9),
            Change::Hole(7, 1, 3),
            Change::Laid(7, shape, vec![(1, row)], true),
        ];
        for change in changes {
            let mut out = Writer::default();
            change.encode(&mut out);
            let mut reader = Reader(&out.0);
            assert_eq!(Change::decode(&mut reader), Some(change));
            assert!(reader.is_empty());
            for len in 0..out.0.len() {
                assert_eq!(Change::decode(&mut Reader(&out.0[..len])), None);
            }
        }
    }
}
