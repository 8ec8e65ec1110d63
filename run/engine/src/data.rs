//! The data of a message: some elements of a datatype in claimed memory, and walking over them.

use std::sync::Arc;

use margay_core_datatype::{Cursor, Datatype};
use margay_sys_os::file::Slice;
use margay_sys_os::user::{Mem, Piece};

/// What a message carries or where it shall go.
#[derive(Clone, Debug)]
pub struct Data {
    mem: Mem,
    shape: Shape,
    size: u64,
}

#[derive(Clone, Debug)]
enum Shape {
    /// `size` bytes in one piece at this displacement.
    Dense(i64),
    /// Elements of a datatype with holes or strides: how many, and how many packed bytes of them
    /// come before the data.
    Typed(Arc<Datatype>, u64, u64),
}

impl Data {
    /// `len` bytes at the base of `mem`.
    #[must_use]
    #[inline]
    pub fn bytes(mem: Mem, len: u64) -> Data {
        Data {
            mem,
            shape: Shape::Dense(0),
            size: len,
        }
    }

    /// `count` elements of `datatype` at the base of `mem`.
    ///
    /// # Panics
    /// When the elements together exceed 2^63 bytes; the caller has reported that to the user
    /// before.
    #[must_use]
    pub fn typed(mem: Mem, count: u64, datatype: &Arc<Datatype>) -> Data {
        let flat = datatype.flat();
        let size = flat
            .packed_size(count)
            .expect("the count was checked against the datatype");
        let shape = match flat.contiguous(count) {
            Some(offset) => Shape::Dense(offset),
            None => Shape::Typed(datatype.clone(), count, 0),
        };
        Data { mem, shape, size }
    }

    /// Packed bytes `skip .. skip + bytes` of elements of `datatype` at the base of `mem`.
    ///
    /// # Panics
    /// When bytes of a datatype without data are asked for.
    #[must_use]
    pub fn part(mem: Mem, datatype: &Arc<Datatype>, skip: u64, bytes: u64) -> Data {
        let count = (skip + bytes).div_ceil(datatype.size());
        let shape = match datatype.flat().contiguous(count) {
            Some(offset) => Shape::Dense(offset + skip as i64),
            None => Shape::Typed(datatype.clone(), count, skip),
        };
        Data {
            mem,
            shape,
            size: bytes,
        }
    }

    /// Packed bytes.
    #[must_use]
    #[inline]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Packed bytes `from .. from + bytes` of this data.
    ///
    /// # Panics
    /// When there are fewer than `from + bytes`.
    #[must_use]
    pub fn range(&self, from: u64, bytes: u64) -> Data {
        assert!(
            from.checked_add(bytes).is_some_and(|end| end <= self.size),
            "bytes {from}..+{bytes} of {}",
            self.size
        );
        let shape = match &self.shape {
            Shape::Dense(offset) => Shape::Dense(offset + from as i64),
            Shape::Typed(datatype, count, skip) => {
                Shape::Typed(datatype.clone(), *count, skip + from)
            }
        };
        Data {
            mem: self.mem.clone(),
            shape,
            size: bytes,
        }
    }

    /// Whether a message of this many packed bytes ends within a basic element. Of data in one
    /// piece that is not known.
    #[must_use]
    pub fn splits(&self, bytes: u64) -> bool {
        match &self.shape {
            Shape::Dense(_) => false,
            Shape::Typed(datatype, _, skip) => datatype.get_elements(skip + bytes).is_none(),
        }
    }

    /// Returns the mean length of its dense pieces in bytes; of data in one piece, beyond all
    /// lengths.
    #[must_use]
    pub fn mean_piece(&self) -> u64 {
        match &self.shape {
            Shape::Dense(_) => u64::MAX,
            Shape::Typed(datatype, ..) => datatype.size() / datatype.flat().blocks().max(1),
        }
    }

    /// Returns its dense pieces in their order.
    #[must_use]
    pub fn pieces(&self) -> Vec<Slice> {
        let piece = |at, len: u64| Slice {
            mem: self.mem.clone(),
            at,
            len: len as usize,
        };
        match &self.shape {
            Shape::Dense(offset) => vec![piece(*offset, self.size)],
            Shape::Typed(datatype, count, skip) => {
                let mut cursor = Cursor::new(datatype.flat(), *count);
                cursor.seek(*skip);
                let mut left = self.size;
                let mut pieces = Vec::new();
                while let Some((at, len)) = cursor.next_piece(left) {
                    left -= len;
                    pieces.push(piece(at, len));
                }
                pieces
            }
        }
    }

    /// Returns the memory, and the displacement of the data in it, when the data is in one piece.
    #[must_use]
    #[inline]
    pub(crate) fn dense(&self) -> Option<(&Mem, i64)> {
        match self.shape {
            Shape::Dense(offset) => Some((&self.mem, offset)),
            Shape::Typed(..) => None,
        }
    }

    /// Returns the bytes as a piece, when they are in one piece and the user's.
    #[must_use]
    #[inline]
    pub(crate) fn piece(&self) -> Option<Piece> {
        let (mem, at) = self.dense()?;
        mem.piece(at, self.size as usize)
    }

    /// Walks from the first byte.
    #[inline]
    pub(crate) fn walk(&self) -> Walk {
        match &self.shape {
            Shape::Dense(_) => Walk::Dense(0),
            Shape::Typed(datatype, count, skip) => {
                let mut cursor = Cursor::new(datatype.flat(), *count);
                if *skip > 0 {
                    cursor.seek(*skip);
                }
                Walk::Typed(Box::new(cursor), *skip)
            }
        }
    }
}

/// A position in the packed bytes of a [`Data`].
#[derive(Clone, Debug)]
pub(crate) enum Walk {
    Dense(u64),
    /// The cursor, and its position at the first byte of the data.
    Typed(Box<Cursor>, u64),
}

impl Walk {
    /// Packed bytes before the position.
    #[inline]
    pub(crate) fn position(&self) -> u64 {
        match self {
            Walk::Dense(at) => *at,
            Walk::Typed(cursor, first) => cursor.position() - first,
        }
    }

    /// Packs the next `to.len()` bytes, which must be there.
    #[inline]
    pub(crate) fn pack(&mut self, data: &Data, to: &mut [u8]) {
        match (self, &data.shape) {
            (Walk::Dense(at), Shape::Dense(offset)) => {
                data.mem.read(offset + *at as i64, to);
                *at += to.len() as u64;
            }
            (Walk::Typed(cursor, _), _) => {
                let mut done = 0;
                let has_words = cursor.has_words();
                loop {
                    let left = (to.len() - done) as u64;
                    if has_words && let Some((size, base, offsets)) = cursor.next_words(left) {
                        let (size, rest) = (size as usize, &mut to[done..]);
                        let bytes = size * offsets.len();
                        data.mem
                            .gather_words(base, size, offsets, &mut rest[..bytes]);
                        done += bytes;
                        continue;
                    }
                    let Some(run) = cursor.next_run(left) else {
                        break;
                    };
                    let bytes = run.bytes() as usize;
                    data.mem.gather(
                        run.offset,
                        run.block as usize,
                        run.count as usize,
                        run.stride,
                        &mut to[done..done + bytes],
                    );
                    done += bytes;
                }
            }
            (Walk::Dense(_), Shape::Typed(..)) => unreachable!("a walk belongs to its data"),
        }
    }

    /// Unpacks `from` at the position; what goes beyond the end of the data is dropped.
    #[inline]
    pub(crate) fn unpack(&mut self, data: &Data, from: &[u8]) {
        let room = (data.size - self.position()).min(from.len() as u64) as usize;
        let from = &from[..room];
        match (self, &data.shape) {
            (Walk::Dense(at), Shape::Dense(offset)) => {
                data.mem.write(offset + *at as i64, from);
                *at += room as u64;
            }
            (Walk::Typed(cursor, _), _) => {
                let mut done = 0;
                let has_words = cursor.has_words();
                loop {
                    let left = (from.len() - done) as u64;
                    if has_words && let Some((size, base, offsets)) = cursor.next_words(left) {
                        let (size, rest) = (size as usize, &from[done..]);
                        let bytes = size * offsets.len();
                        data.mem.scatter_words(base, size, offsets, &rest[..bytes]);
                        done += bytes;
                        continue;
                    }
                    let Some(run) = cursor.next_run(left) else {
                        break;
                    };
                    let bytes = run.bytes() as usize;
                    data.mem.scatter(
                        run.offset,
                        run.block as usize,
                        run.count as usize,
                        run.stride,
                        &from[done..done + bytes],
                    );
                    done += bytes;
                }
            }
            (Walk::Dense(_), Shape::Typed(..)) => unreachable!("a walk belongs to its data"),
        }
    }
}

/// Copies the elements of `from` to `to`; as many bytes as both have.
pub fn copy(from: &Data, to: &Data) {
    let bytes = from.size.min(to.size) as usize;
    if bytes == 0 {
        return;
    }
    match (from.dense(), to.dense()) {
        (Some((source, at)), _) => {
            source.with_bytes(at, bytes, |packed| to.walk().unpack(to, packed));
        }
        (None, Some((target, at))) => {
            target.with_bytes_mut(at, bytes, |packed| from.walk().pack(from, packed));
        }
        (None, None) => {
            let (mut reader, mut writer) = (from.walk(), to.walk());
            let mut piece = [0; 4096];
            let mut left = bytes;
            while left > 0 {
                let part = &mut piece[..left.min(4096)];
                reader.pack(from, part);
                writer.unpack(to, part);
                left -= part.len();
            }
        }
    }
}
