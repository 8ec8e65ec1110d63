//! The bytes of inboxes in the segment: the desks of all ranks, then their cells, and then their
//! blocks.

use margay_sys_os::sync::{AtomicU64, Cell};

/// Cells of a rank: messages that it may have in inboxes at the same time.
pub const CELLS: usize = if cfg!(loom) { 2 } else { 256 };
/// Bytes of a message that fit into a cell.
pub const CELL_BYTES: usize = 96;
/// Blocks of a rank, for messages that do not fit into a cell.
pub const BLOCKS: usize = if cfg!(loom) { 1 } else { 16 };
/// Bytes of a message that fit into a block.
pub const BLOCK_BYTES: usize = if cfg!(loom) { 8 } else { 4096 };

/// Words in which cells are given back.
pub(super) const RETURNED: usize = CELLS.div_ceil(64);
/// Words of a cell's message: as in a line of a ring, and then the rest of [`CELL_BYTES`].
pub(super) const WORDS: usize = 14;

/// The words of a message in a cell.
pub type CellWords = [u64; WORDS];

/// A rank's part of the words that others write. Those of all ranks lie together: a rank that sends
/// to a thousand others touches some tens of pages, not a thousand.
#[repr(C, align(128))]
pub(super) struct Desk {
    /// 0, or 1 + the number of the newest cell.
    pub(super) newest: AtomicU64,
    pub(super) returned: Returned,
}

/// Cells of the rank that receivers have given back, a bit each.
#[repr(C, align(64))]
pub(super) struct Returned(pub(super) [AtomicU64; RETURNED]);

#[repr(C, align(128))]
pub(super) struct InboxCell {
    /// 0, or 1 + the number of the cell that was the newest before.
    pub(super) next: AtomicU64,
    /// What kind of message (high half), 0 or 1 + its block (low half).
    pub(super) mark: Cell<u64>,
    pub(super) words: Cell<CellWords>,
}

#[repr(C, align(4096))]
pub(super) struct Block(pub(super) Cell<[u8; BLOCK_BYTES]>);

// SAFETY: cells and blocks are written by their rank while they are its own, and read by the one
// who took them from its inbox; the protocol of the inbox orders the two.
unsafe impl Sync for InboxCell {}
// SAFETY: as above.
unsafe impl Send for InboxCell {}
// SAFETY: as above.
unsafe impl Sync for Block {}
// SAFETY: as above.
unsafe impl Send for Block {}

/// Where the cells of the first rank begin, from the first desk on, and the blocks.
pub(super) const fn cells_offset(ranks: u32) -> u64 {
    (ranks as u64 * size_of::<Desk>() as u64).next_multiple_of(4096)
}

pub(super) const fn blocks_offset(ranks: u32) -> u64 {
    cells_offset(ranks) + ranks as u64 * size_of::<[InboxCell; CELLS]>() as u64
}

/// Bytes of the inboxes of all ranks; zeroed memory is empty ones.
#[must_use]
pub(crate) const fn all_bytes(ranks: u32) -> u64 {
    blocks_offset(ranks) + ranks as u64 * size_of::<[Block; BLOCKS]>() as u64
}
