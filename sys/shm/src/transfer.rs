//! The cell over which two ranks share the work of copying one large message.
//!
//! The sender offers a cell; the receiver enters where the data shall go; then both claim parts of
//! the message, one from the front and one from the back, and copy them, the receiver by reading
//! the sender's memory, the sender by writing the receiver's. A side that is late or busy copies
//! less; a sender that computes copies nothing and loses nothing. The message is complete when the
//! parts that are done add up.
//!
//! A cell goes `FREE -> OFFERED -> MATCHED -> FREE`. Only the sender leaves and enters FREE, so it
//! alone recycles cells; it does so when all parts are done and the receiver has said that it saw
//! it (`seen`), or when the receiver declined. A sender that wants its memory back before a
//! receiver has come for it goes `OFFERED -> REVOKED`, and then the receiver can only decline.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::segment::Segment;

/// Cells of a rank: large messages that it may have under way at once.
pub const CELLS: usize = 64;

const FREE: u32 = 0;
const OFFERED: u32 = 1;
const MATCHED: u32 = 2;
const REVOKED: u32 = 3;

/// From where a side claims parts. Two ranks that exchange messages again and again should keep to
/// their ends in both directions: then each copies the same bytes each time, and finds them in its
/// own cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Front,
    Back,
}

const BACK_SHIFT: u32 = 32;
const FRONT: u64 = (1 << BACK_SHIFT) - 1;

/// Shared state of one large message.
#[repr(C, align(128))]
pub struct Cell {
    state: AtomicU32,
    /// The receiver has seen the end and does not look here any more.
    seen: AtomicU32,
    /// Bytes to move, entered by the receiver (its buffer may be shorter than the message).
    bytes: AtomicU64,
    /// Size of a part in bytes.
    part: AtomicU64,
    /// Receiver's process and address.
    pid: AtomicU32,
    address: AtomicU64,
    /// Parts claimed so far: those from the front in the low half, those from the back in the high
    /// half.
    claimed: AtomicU64,
    /// Bytes copied so far.
    done: AtomicU64,
    /// 0, or 1 + the start of a part that the sender claimed and could not copy.
    returned: AtomicU64,
}

/// What the receiver entered.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Process of the receiver; 0 when the sender shall leave the copying to the receiver.
    pub pid: u32,
    /// Address there.
    pub address: u64,
    /// Bytes to move.
    pub bytes: u64,
}

/// A rank's own cells.
pub struct Cells {
    segment: Arc<Segment>,
    offset: u64,
    cells: NonNull<[Cell; CELLS]>,
}

// SAFETY: the cells are atomics in a segment that is kept.
unsafe impl Send for Cells {}

impl Cells {
    /// Makes the cells of `rank` in the heap. None when the heap's address space is used up.
    ///
    /// # Panics
    /// When `rank` is not in the job.
    #[must_use]
    pub fn create(segment: &Arc<Segment>, rank: u32) -> Option<Cells> {
        let bytes = size_of::<[Cell; CELLS]>() as u64;
        let offset = segment.heap_alloc(bytes)?;
        let cells = segment.heap_at(offset, bytes, 128)?.cast();
        let known = &segment.cell(rank).transfer;
        known.store(offset, Ordering::Release);
        Some(Cells {
            segment: segment.clone(),
            offset,
            cells,
        })
    }

    /// Offers a free cell; returns its number and its heap offset for the peer. `busy` says which
    /// cells the sender itself still works on: the receiver may be done with one, and all of its
    /// parts be copied, before the sender has looked again.
    #[must_use]
    pub fn offer(&self, busy: impl Fn(usize) -> bool) -> Option<(usize, u64)> {
        let index = (0..CELLS).find(|&i| self.get(i).is_free() && !busy(i))?;
        let cell = self.get(index);
        cell.seen.store(0, Ordering::Relaxed);
        cell.claimed.store(0, Ordering::Relaxed);
        cell.done.store(0, Ordering::Relaxed);
        cell.returned.store(0, Ordering::Relaxed);
        cell.state.store(OFFERED, Ordering::Release);
        Some((index, self.offset + (index * size_of::<Cell>()) as u64))
    }

    /// The cell of that number.
    #[must_use]
    pub fn get(&self, index: usize) -> &Cell {
        &self.all()[index]
    }

    fn all(&self) -> &[Cell; CELLS] {
        debug_assert!(Arc::strong_count(&self.segment) > 0);
        // SAFETY: checked at creation to lie inside the segment, aligned; atomics.
        unsafe { self.cells.as_ref() }
    }
}

/// A cell of the rank `of` by the heap offset that it sent. None when it has none there: whatever
/// the number is, what is not a cell is not taken for one.
#[must_use]
pub fn at(segment: &Segment, of: u32, offset: u64) -> Option<&Cell> {
    if of >= segment.ranks() {
        return None;
    }
    let first = segment.cell(of).transfer.load(Ordering::Acquire);
    let within = offset.checked_sub(first).filter(|_| first != 0)?;
    let is_one = within < size_of::<[Cell; CELLS]>() as u64 && within.is_multiple_of(CELL_BYTES);
    let cell = segment.heap_at(offset, CELL_BYTES, 128)?;
    // SAFETY: inside the heap, aligned (checked), where `Cells::create` has made cells, which
    // consist of atomics; nothing else is made there, since the heap only grows.
    is_one.then(|| unsafe { cell.cast::<Cell>().as_ref() })
}

const CELL_BYTES: u64 = size_of::<Cell>() as u64;

impl Cell {
    /// Receiver: enters where the data goes; from now on both sides may copy. Returns false when
    /// the sender has revoked its offer.
    #[must_use]
    pub fn accept(&self, target: Target, part: u64) -> bool {
        self.bytes.store(target.bytes, Ordering::Relaxed);
        self.part.store(part.max(1), Ordering::Relaxed);
        self.pid.store(target.pid, Ordering::Relaxed);
        self.address.store(target.address, Ordering::Relaxed);
        self.leave_offered(MATCHED)
    }

    /// Sender: revokes the offer, so that its memory is its own again; the cell is not free before
    /// the receiver has declined. Returns false when the receiver has accepted already.
    #[must_use]
    pub fn revoke(&self) -> bool {
        self.leave_offered(REVOKED)
    }

    fn leave_offered(&self, next: u32) -> bool {
        let state = &self.state;
        let left = state.compare_exchange(OFFERED, next, Ordering::AcqRel, Ordering::Relaxed);
        left.is_ok()
    }

    /// Sender: where the data goes, once the receiver has entered it.
    #[must_use]
    pub fn target(&self) -> Option<Target> {
        (self.state.load(Ordering::Acquire) == MATCHED).then(|| Target {
            pid: self.pid.load(Ordering::Relaxed),
            address: self.address.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        })
    }

    /// Claims the next part, from the front or from the back: offset and length in bytes. None when
    /// all parts are claimed.
    #[must_use]
    pub fn claim(&self, end: End) -> Option<(u64, u64)> {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let part = self.part.load(Ordering::Relaxed);
        let parts = bytes.div_ceil(part);
        let mut claimed = self.claimed.load(Ordering::Relaxed);
        loop {
            let (front, back) = (claimed & FRONT, claimed >> BACK_SHIFT);
            if front + back >= parts {
                return None;
            }
            let (next, index) = match end {
                End::Front => (claimed + 1, front),
                End::Back => (claimed + (1 << BACK_SHIFT), parts - 1 - back),
            };
            match self.claimed.compare_exchange_weak(
                claimed,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    let start = index * part;
                    return Some((start, part.min(bytes - start)));
                }
                Err(now) => claimed = now,
            }
        }
    }

    /// Sender: hands a claimed part back that it may not copy. It does so once: the refusal holds
    /// for all that follows.
    pub fn hand_back(&self, start: u64) {
        self.returned.store(start + 1, Ordering::Release);
    }

    /// Receiver: the part that the sender handed back, once.
    #[must_use]
    pub fn take_back(&self) -> Option<(u64, u64)> {
        if self.returned.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let start = self.returned.swap(0, Ordering::Acquire).checked_sub(1)?;
        let bytes = self.bytes.load(Ordering::Relaxed);
        Some((start, self.part.load(Ordering::Relaxed).min(bytes - start)))
    }

    /// Enters that a claimed part of `bytes` has been copied.
    pub fn finish(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Whether all bytes are there.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.state.load(Ordering::Acquire) == MATCHED
            && self.done.load(Ordering::Acquire) >= self.bytes.load(Ordering::Relaxed)
    }

    /// Receiver: it has seen the end and does not look here any more.
    pub fn leave(&self) {
        self.seen.store(1, Ordering::Release);
    }

    /// Sender: withdraws the offer (the receiver declined, or it never comes to it).
    pub fn withdraw(&self) {
        self.state.store(FREE, Ordering::Release);
    }

    fn is_free(&self) -> bool {
        match self.state.load(Ordering::Acquire) {
            FREE => true,
            MATCHED => self.is_complete() && self.seen.load(Ordering::Acquire) != 0,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Sizes;
    use std::mem::offset_of;

    #[test]
    fn the_cell_is_as_drawn() {
        assert_eq!((size_of::<Cell>(), CELLS), (128, 64));
        let cell = [
            (offset_of!(Cell, state), 0),
            (offset_of!(Cell, seen), 4),
            (offset_of!(Cell, bytes), 8),
            (offset_of!(Cell, part), 16),
            (offset_of!(Cell, pid), 24),
            (offset_of!(Cell, address), 32),
            (offset_of!(Cell, claimed), 40),
            (offset_of!(Cell, done), 48),
            (offset_of!(Cell, returned), 56),
        ];
        assert_eq!(cell.map(|(is, _)| is), cell.map(|(_, drawn)| drawn));
        assert_eq!((FREE, OFFERED, MATCHED, REVOKED), (0, 1, 2, 3));
    }

    #[test]
    fn what_is_no_cell_of_the_rank_is_not_taken_for_one() {
        let segment = Arc::new(crate::segment::tests::small(2));
        let other = segment.heap_alloc(1 << 12).unwrap();
        assert!(at(&segment, 1, other).is_none(), "it has none");
        let cells = Cells::create(&segment, 1).unwrap();
        let (_, offset) = cells.offer(|_| false).unwrap();
        assert!(at(&segment, 1, offset).is_some());
        assert!(at(&segment, 0, offset).is_none(), "another rank's");
        assert!(at(&segment, 2, offset).is_none(), "no rank");
        let end = offset + size_of::<[Cell; CELLS]>() as u64;
        for wrong in [other, offset - 128, offset + 64, end, 0, u64::MAX] {
            assert!(at(&segment, 1, wrong).is_none(), "{wrong}");
        }
    }

    const TARGET: Target = Target {
        pid: 1,
        address: 2,
        bytes: 100,
    };

    #[test]
    fn a_revoked_offer_is_not_accepted_and_its_cell_stays_taken() {
        let segment = Arc::new(crate::segment::tests::small(1));
        let cells = Cells::create(&segment, 0).unwrap();
        let (index, offset) = cells.offer(|_| false).unwrap();
        let theirs = at(&segment, 0, offset).unwrap();
        assert!(cells.get(index).revoke());
        assert!(!theirs.accept(TARGET, 30));
        assert!(cells.get(index).target().is_none());
        assert!(!theirs.is_complete());
        assert_ne!(cells.offer(|_| false).unwrap().0, index);
        cells.get(index).withdraw();
        assert_eq!(cells.offer(|_| false).unwrap().0, index);
        assert!(theirs.accept(TARGET, 30));
    }

    #[test]
    fn parts_are_claimed_once_and_cells_come_back() {
        let segment = Arc::new(
            Segment::create(Sizes {
                ranks: 1,
                heap_bytes: 1 << 20,
                arena_bytes: 1 << 21,
            })
            .unwrap(),
        );
        let cells = Cells::create(&segment, 0).unwrap();
        let (index, offset) = cells.offer(|_| false).unwrap();
        let theirs = at(&segment, 0, offset).unwrap();
        assert!(cells.get(index).target().is_none());
        assert!(theirs.accept(TARGET, 30));
        assert!(!cells.get(index).revoke(), "too late");
        let mut parts = Vec::new();
        while let Some(part) = if parts.len() % 2 == 0 {
            theirs.claim(End::Front)
        } else {
            cells.get(index).claim(End::Back)
        } {
            parts.push(part);
        }
        assert_eq!(parts, [(0, 30), (90, 10), (30, 30), (60, 30)]);
        for (_, bytes) in parts {
            assert!(!theirs.is_complete());
            theirs.finish(bytes);
        }
        assert!(theirs.is_complete());
        assert_ne!(
            cells.offer(|_| false).unwrap().0,
            index,
            "not free before it is left"
        );
        theirs.leave();
        assert_ne!(
            cells.offer(|i| i == index).unwrap().0,
            index,
            "not free while the sender works on it"
        );
        assert_eq!(cells.offer(|_| false).unwrap().0, index);
    }
}
