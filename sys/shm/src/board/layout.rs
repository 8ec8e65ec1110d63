//! The bytes of a board: what lies where, and how a slot is written and read. `docs/segment.md`
//! draws them.

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Slots of a rank: operations that it may be ahead of the slowest.
pub const DEPTH: u64 = 4;
/// Bytes of a contribution. The first of them share a cache line with the mark.
pub const SLOT_BYTES: usize = 4096 - 8;

/// Bytes that one rank can stage for all in one operation (a broadcast that does not fit a slot).
pub const STAGE_BYTES: usize = 128 << 10;

/// Contributions too long for a slot that a rank may have published: it writes a lane again when
/// everybody has finished the operation before the last.
pub(super) const LANES: u64 = 2;
/// Longest contribution in bytes.
const LANE_BYTES: usize = 64 << 10;
/// All lanes of a board together take no more, if the number of ranks lets them have a page each.
const LANES_BYTES: usize = 4 << 20;

#[repr(C, align(128))]
pub(super) struct Slot {
    /// Number of the operation, and [`STAGED`].
    pub(super) mark: AtomicU64,
    bytes: [UnsafeCell<u8>; SLOT_BYTES],
}

/// In a mark: the rank that wrote it has staged before.
pub(super) const STAGED: u64 = 1 << 63;

/// Ranks that a board can have: as many bits as fit the page of claims.
pub(super) const MAX_RANKS: u32 = 32_768;

#[repr(C, align(128))]
pub(super) struct Gate {
    /// Ranks that have arrived at the operation; the last one sets it to 0.
    pub(super) arrived: AtomicU32,
    /// The last operation in which a rank claimed the stage of this gate.
    pub(super) staged: AtomicU64,
}

/// Where ranks that are ahead wait for the others.
#[repr(C, align(128))]
pub(super) struct Room {
    /// All ranks have put this operation: the last one to arrive at it says so.
    pub(super) reached: AtomicU64,
    /// A bit for each rank that waits until all have come far enough.
    pub(super) waiting: [AtomicU64; MAX_RANKS as usize / 64],
}

#[repr(C, align(128))]
pub(super) struct Shared {
    /// A bit for each rank: its [`Board`](super::Board) has been opened.
    pub(super) claims: [AtomicU64; MAX_RANKS as usize / 64],
    pub(super) results: [Slot; DEPTH as usize],
    pub(super) gates: [Gate; DEPTH as usize],
    pub(super) room: Room,
    // Then DEPTH slots for each rank, then DEPTH stages, then LANES lanes for each rank.
}

impl Slot {
    /// # Safety
    /// Nobody else may touch the bytes until the mark is stored.
    #[inline]
    pub(super) unsafe fn write(&self, len: usize, fill: impl FnOnce(&mut [u8])) {
        assert!(len <= SLOT_BYTES, "{len} bytes in a slot");
        if len > 0 {
            let bytes = self.bytes.as_ptr().cast::<u8>().cast_mut();
            // SAFETY: the bytes lie in `UnsafeCell`s of shared memory; nobody else touches them.
            fill(unsafe { std::slice::from_raw_parts_mut(bytes, len) });
        }
    }

    /// # Safety
    /// Nobody may write the bytes while the result lives.
    #[inline]
    pub(super) unsafe fn bytes(&self, len: usize) -> &[u8] {
        assert!(len <= SLOT_BYTES, "{len} bytes in a slot");
        // SAFETY: as above, for reading.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), len) }
    }
}

/// The operation of a mark.
#[inline]
pub(super) const fn number(mark: u64) -> u64 {
    mark & !STAGED
}

/// Offset of the stages: behind the slots.
pub(super) const fn slots_for(ranks: u32) -> usize {
    size_of::<Shared>() + ranks as usize * DEPTH as usize * size_of::<Slot>()
}

/// Offset of the lanes: behind the stages.
pub(super) const fn lanes_for(ranks: u32) -> usize {
    slots_for(ranks) + DEPTH as usize * STAGE_BYTES
}

/// Bytes of a lane: whole pages.
pub(super) const fn lane_bytes(ranks: u32) -> usize {
    let share = LANES_BYTES / LANES as usize / ranks as usize / 4096 * 4096;
    match share {
        0 => 4096,
        1..LANE_BYTES => share,
        _ => LANE_BYTES,
    }
}

pub(super) const fn bytes_for(ranks: u32) -> u64 {
    lanes_for(ranks) as u64 + ranks as u64 * LANES * lane_bytes(ranks) as u64
}

/// Zeroes the marks and counters of a board that nobody uses.
///
/// # Safety
/// `at` must point to a board of `ranks` ranks that nobody else touches.
pub(super) unsafe fn clear(at: NonNull<u8>, ranks: u32) {
    let shared = at.cast::<Shared>();
    // SAFETY: by the caller's promise.
    let s = unsafe { shared.as_ref() };
    for claim in &s.claims {
        claim.store(0, Ordering::Relaxed);
    }
    s.room.reached.store(0, Ordering::Relaxed);
    for waiting in &s.room.waiting {
        waiting.store(0, Ordering::Relaxed);
    }
    for slot in &s.results {
        slot.mark.store(0, Ordering::Relaxed);
    }
    for gate in &s.gates {
        gate.arrived.store(0, Ordering::Relaxed);
        gate.staged.store(0, Ordering::Relaxed);
    }
    for index in 0..ranks as usize * DEPTH as usize {
        // SAFETY: the slots lie behind the shared part.
        let slot = unsafe { shared.add(1).cast::<Slot>().add(index).as_ref() };
        slot.mark.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn parts_of_a_board_are_as_drawn() {
        assert_eq!(offset_of!(Shared, claims), 0);
        assert_eq!(offset_of!(Shared, results), 4096);
        assert_eq!(offset_of!(Shared, gates), 20_480);
        assert_eq!(size_of::<Gate>(), 128);
        assert_eq!(offset_of!(Gate, arrived), 0);
        assert_eq!(offset_of!(Gate, staged), 8);
        assert_eq!(offset_of!(Shared, room), 20_992);
        assert_eq!(offset_of!(Room, waiting), 8);
        assert_eq!(size_of::<Shared>(), 25_216);
        assert_eq!(size_of::<Slot>(), 4096);
        assert_eq!(offset_of!(Slot, mark), 0);
        assert_eq!(offset_of!(Slot, bytes), 8);
        assert_eq!(slots_for(3), 25_216 + 3 * 4 * 4096);
        assert_eq!(lanes_for(3), slots_for(3) + 4 * (128 << 10));
        assert_eq!(bytes_for(3), lanes_for(3) as u64 + 3 * 2 * (64 << 10));
        let lanes = [2, 32, 64, 1000].map(lane_bytes);
        assert_eq!(lanes, [64 << 10, 64 << 10, 32 << 10, 4096]);
    }
}
