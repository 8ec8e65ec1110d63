//! What a rank says in its slot that it does.

use super::{Cause, Disagreement, TAG_BYTES};

/// The kinds of operation, as they stand in tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Barrier = 1,
    Bcast = 2,
    Reduce = 3,
    Allgather = 4,
    Alltoall = 5,
    Address = 6,
    Vote = 7,
    Gather = 8,
    Scatter = 9,
    Allgatherv = 10,
    ReduceScatter = 11,
    Scan = 12,
    Exscan = 13,
}

/// In the place of a root, of a barrier that is the last operation of a communicator.
pub(super) const LAST: u32 = 1;

/// What a rank does in an operation, in eight bytes: kind 8 bits, root + 1 24 bits, bytes 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(pub(super) u64);

impl Tag {
    #[inline]
    pub(super) fn new(kind: Kind, root: Option<u32>, bytes: u64) -> Tag {
        let root = root.map_or(0, |r| u64::from(r) + 1) & 0xff_ffff;
        Tag((kind as u64) << 56 | root << 32 | bytes & 0xffff_ffff)
    }

    #[inline]
    pub(super) fn bytes(self) -> u64 {
        self.0 & 0xffff_ffff
    }

    #[inline]
    pub(super) fn check(self, rank: u32, slot: &[u8]) -> Result<(), Disagreement> {
        let other = u64::from_ne_bytes(slot[..TAG_BYTES].try_into().expect("eight bytes"));
        if other == self.0 {
            return Ok(());
        }
        let same = other >> 32 == self.0 >> 32;
        let shares = Kind::ReduceScatter as u64;
        let cause = if other >> 56 == shares && self.0 >> 56 == shares {
            Some(Cause::Counts)
        } else {
            let last = Tag::new(Kind::Barrier, Some(LAST), 0);
            (other == last.0).then_some(Cause::Left)
        };
        Err(Disagreement {
            cause,
            ..self.other(rank, same.then_some(other & 0xffff_ffff))
        })
    }

    /// A rank does something else, or has other bytes.
    pub(super) fn other(self, rank: u32, bytes: Option<u64>) -> Disagreement {
        Disagreement {
            rank,
            bytes,
            expected: self.bytes(),
            cause: None,
        }
    }
}
