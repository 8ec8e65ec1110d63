//! A message of an inbox, as it is lent to its reader.

use super::*;

/// A message in an inbox.
pub struct Letter<'a> {
    /// Who left it.
    pub from: u32,
    /// The sender's word, without what this module adds to it.
    pub top: u32,
    pub(super) mark: u64,
    pub(super) words: &'a CellWords,
    pub(super) home: &'a Home,
}

impl<'a> Letter<'a> {
    /// The words: those of a line, and more of the payload.
    #[must_use]
    #[inline]
    pub fn words(&self) -> &'a CellWords {
        self.words
    }

    /// The first `len` bytes of the payload, or all that a cell or a block has.
    #[must_use]
    #[inline]
    pub fn payload(&self, len: usize) -> PayloadOf<'a> {
        let block = (self.mark as u32)
            .checked_sub(1)
            .map(|block| block as usize);
        PayloadOf {
            words: self.words,
            block: block
                .filter(|&block| block < BLOCKS)
                .map(|block| &self.home.block(self.from as usize, block).0),
            len,
        }
    }
}

/// The bytes of a message, until its cell is given back.
pub struct PayloadOf<'a> {
    words: &'a CellWords,
    block: Option<&'a Cell<[u8; BLOCK_BYTES]>>,
    len: usize,
}

impl PayloadOf<'_> {
    /// Lends them.
    #[inline]
    pub fn with<R>(&self, read: impl FnOnce(&[u8]) -> R) -> R {
        match self.block {
            Some(block) => block.with(|bytes| {
                // SAFETY: the block belongs to a cell that is this side's until it is given back.
                read(unsafe { &(&*bytes)[..self.len.min(BLOCK_BYTES)] })
            }),
            None => read(&ring::as_bytes(&self.words[PAYLOAD..])[..self.len.min(CELL_BYTES)]),
        }
    }
}

#[cfg(not(loom))]
impl Letter<'_> {
    /// Whether it tells of a chunk.
    #[must_use]
    #[inline]
    pub fn has_chunk(&self) -> bool {
        (self.mark >> 32) as u32 & ring::CHUNK != 0
    }

    /// Whether it tells of the begin or the end of a ring.
    #[must_use]
    #[inline]
    pub fn is_of_ring(&self) -> bool {
        (self.mark >> 32) as u32 & (OPENS | CLOSES) != 0
    }

    /// The receiving end of the ring that begins, if it tells of one that has none.
    #[must_use]
    pub fn opened(&self) -> Option<Consumer> {
        if (self.mark >> 32) as u32 & OPENS == 0 {
            return None;
        }
        // Positions go on for the life of a ring, but a number without end would overflow.
        const MOST: u64 = 1 << 62;
        if self.words[1] > MOST {
            return None;
        }
        let segment = self.segment();
        let place = RingPlace {
            segment: segment.id(),
            offset: self.words[0],
        };
        Consumer::open(segment, place, self.words[1])
    }

    /// The position at which a ring ends, if it tells of the end of one.
    #[must_use]
    pub fn closed(&self) -> Option<u64> {
        ((self.mark >> 32) as u32 & CLOSES != 0).then(|| self.words[1])
    }

    pub(super) fn segment(&self) -> &Arc<Segment> {
        match self.home {
            Home::Segment(segment) => segment,
        }
    }
}
