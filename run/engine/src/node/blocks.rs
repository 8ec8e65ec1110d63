//! Blocks of a user's buffer, one for each rank.

use std::sync::Arc;

use margay_core_datatype::Datatype;
use margay_sys_os::user::Mem;

use crate::data::Data;

/// Equal blocks of a user's buffer: `count` elements of a datatype for each rank.
#[derive(Clone, Copy, Debug)]
pub struct Blocks<'a> {
    /// The memory; its base is the user's address.
    pub mem: &'a Mem,
    /// Elements of a block.
    pub count: u64,
    /// Their type.
    pub datatype: &'a Arc<Datatype>,
}

impl Blocks<'_> {
    /// Packed bytes of a block.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.count * self.datatype.size()
    }

    /// `blocks` of them from the `first`.
    pub(super) fn data(&self, first: u32, blocks: u32) -> Data {
        let offset = i64::from(first) * self.count as i64 * self.datatype.extent();
        Data::typed(
            self.mem.shifted(offset),
            self.count * u64::from(blocks),
            self.datatype,
        )
    }
}

/// Blocks of different lengths of a user's buffer, one for each rank.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// The memory; its base is the user's address.
    pub mem: &'a Mem,
    /// Elements of each block.
    pub counts: &'a [u64],
    /// Where each begins, in extents of the type.
    pub displs: &'a [i64],
    /// The type of the elements.
    pub datatype: &'a Arc<Datatype>,
}

impl Parts<'_> {
    pub(super) fn bytes_of(&self, rank: u32) -> u64 {
        self.counts[rank as usize] * self.datatype.size()
    }

    pub(super) fn data(&self, rank: u32) -> Data {
        let offset = self.displs[rank as usize] * self.datatype.extent();
        let count = self.counts[rank as usize];
        Data::typed(self.mem.shifted(offset), count, self.datatype)
    }
}
