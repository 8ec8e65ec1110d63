//! What a rank does in one operation: it puts, arrives, releases, and is lent what the others put.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{Ordering, fence};

use super::layout::{DEPTH, Gate, LANES, STAGE_BYTES, STAGED, Slot, number};
use super::{Board, SUSPENDED};

/// Everybody has been seen to have come far enough.
const MAY_PUT: u32 = 1;
/// The lane is being written.
const PUBLISHING: u32 = 2;
const HAS_PUT: u32 = 4;
const HAS_STAGED: u32 = 8;
const HAS_ARRIVED: u32 = 16;
/// It was the last to arrive, and has not released the others.
const IS_LAST: u32 = 32;

/// One operation of one rank on a board, and what may be done in it. See the module.
pub struct Operation<'b> {
    board: &'b Board,
    n: u64,
    /// One thread at a time executes it.
    stays: PhantomData<Cell<()>>,
}

impl<'b> Operation<'b> {
    /// Operation `n` of the rank, which has no other in progress.
    #[inline(always)]
    pub(super) fn new(board: &'b Board, n: u64) -> Operation<'b> {
        Operation {
            board,
            n,
            stays: PhantomData,
        }
    }

    #[inline]
    fn has(&self, bits: u32) -> bool {
        self.board.progress.load(Ordering::Relaxed) & bits != 0
    }

    /// Nobody else changes the word while the operation lives, so this needs no locked instruction.
    #[inline]
    fn note(&self, set: u32, cleared: u32) {
        let progress = self.board.progress.load(Ordering::Relaxed);
        self.board
            .progress
            .store(progress & !cleared | set, Ordering::Relaxed);
    }

    /// Its number, from 1.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.n
    }

    /// Whether this rank may put its part: everybody has come far enough.
    #[must_use]
    #[inline]
    pub fn may_put(&self) -> bool {
        if self.has(MAY_PUT) {
            return true;
        }
        let may = self.n < DEPTH || self.board.have_all_put(self.n + 1 - DEPTH);
        if may {
            self.note(MAY_PUT, 0);
        }
        may
    }

    /// Has the last rank to arrive at an operation [wake](Board::make_room) this one. Who is still
    /// behind must be looked at again afterwards.
    pub fn wait_for_room(&self) {
        let me = self.board.me;
        let waiting = &self.board.shared().room.waiting[me as usize / 64];
        waiting.fetch_or(1 << (me % 64), Ordering::Relaxed);
        // Before the marks are looked at: either this rank sees the last one, or who has made it
        // sees the bit (see `make_room`).
        fence(Ordering::SeqCst);
    }

    /// Puts this rank's part: `fill` writes `len` bytes. Once for each operation.
    ///
    /// # Panics
    /// When `len` is more than [`SLOT_BYTES`](super::SLOT_BYTES), when this rank [may not
    /// put](Self::may_put) or has put.
    #[inline]
    pub fn put(&self, len: usize, fill: impl FnOnce(&mut [u8])) {
        assert!(self.may_put(), "ranks are behind");
        assert!(!self.has(HAS_PUT | PUBLISHING), "a rank puts once");
        self.note(HAS_PUT, 0);
        let slot = self.board.slot(self.board.me, self.n);
        // SAFETY: this rank's slot, in which nobody reads operation n before its mark, nor an
        // earlier one any more, since this rank may put; it puts for the first time.
        unsafe { slot.write(len, fill) };
        self.mark(slot);
    }

    /// Whether `rank` has put its part.
    ///
    /// # Panics
    /// When the board has no such rank; so do the other functions.
    #[must_use]
    #[inline]
    pub fn has_put(&self, rank: u32) -> bool {
        self.board.has_put(rank, self.n)
    }

    /// The first `len` bytes that `rank` put in this operation.
    ///
    /// # Panics
    /// When `rank` [has put](Self::has_put) nothing, and when `len` is more than
    /// [`SLOT_BYTES`](super::SLOT_BYTES).
    #[must_use]
    #[inline]
    pub fn read(&self, rank: u32, len: usize) -> &[u8] {
        let slot = self.board.slot(rank, self.n);
        self.assert_is_put(slot, rank);
        // SAFETY: the slot has been written in this operation; while the operation lives, this rank
        // does not put the next one, so the slot is not written again.
        unsafe { slot.bytes(len) }
    }

    /// Counts this rank in, once for each operation. Returns whether it was the last; it then sees
    /// what all have put, and [releases](Self::release) them.
    ///
    /// # Panics
    /// When this rank has put nothing, and when it has arrived.
    #[must_use]
    #[inline]
    pub fn arrive(&self) -> bool {
        let in_order = self.has(HAS_PUT) && !self.has(HAS_ARRIVED);
        assert!(in_order, "a rank arrives once, after it has put");
        let arrived = &self.gate().arrived;
        let last = arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.board.ranks;
        if last {
            // Nobody arrives here again before this rank has put the next operation.
            arrived.store(0, Ordering::Relaxed);
            let reached = &self.board.shared().room.reached;
            reached.fetch_max(self.n, Ordering::Release);
        }
        self.note(HAS_ARRIVED | if last { IS_LAST } else { 0 }, 0);
        last
    }

    /// Lets those go who wait, with a result of `len` bytes that `fill` writes.
    ///
    /// # Panics
    /// When `len` is more than [`SLOT_BYTES`](super::SLOT_BYTES), and when this rank was not the
    /// last to [arrive](Self::arrive) or has released the others.
    #[inline]
    pub fn release(&self, len: usize, fill: impl FnOnce(&mut [u8])) {
        assert!(self.has(IS_LAST), "the last to arrive releases");
        self.note(0, IS_LAST);
        let result = self.result_slot();
        // SAFETY: the last to arrive owns the result of operation n, and this is the first time.
        // Nobody reads it before its mark, nor an earlier one any more: this rank has put.
        unsafe { result.write(len, fill) };
        self.mark(result);
    }

    /// Whether this operation has been released.
    #[must_use]
    #[inline]
    pub fn is_released(&self) -> bool {
        number(self.result_slot().mark.load(Ordering::Acquire)) >= self.n
    }

    /// The first `len` bytes of the result.
    ///
    /// # Panics
    /// When this operation [is not released](Self::is_released), and when `len` is more than
    /// [`SLOT_BYTES`](super::SLOT_BYTES).
    #[must_use]
    #[inline]
    pub fn result(&self, len: usize) -> &[u8] {
        let slot = self.result_slot();
        let mark = number(slot.mark.load(Ordering::Acquire));
        assert_eq!(mark, self.n, "the operation is released");
        // SAFETY: the result has been written in this operation; while the operation lives, this
        // rank does not put the next one, so nobody is the last to arrive at one that writes it.
        unsafe { slot.bytes(len) }
    }

    /// Stages `len` bytes for all, by `fill`: before this rank [puts](Self::put) its part, or
    /// [releases](Self::release) the others. Returns false, and stages nothing, when another rank
    /// has staged in this operation.
    ///
    /// # Panics
    /// When `len` is more than [`STAGE_BYTES`], and when this rank [may not put](Self::may_put).
    #[must_use]
    pub fn stage(&self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        assert!(len <= STAGE_BYTES, "{len} bytes staged");
        assert!(self.may_put(), "ranks are behind");
        let staged = &self.gate().staged;
        let before = staged.load(Ordering::Relaxed);
        let claimed = before < self.n
            && staged
                .compare_exchange(before, self.n, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if claimed {
            let at = self.board.stage_at(self.n).as_ptr();
            // SAFETY: inside the board (see `stage_at`). This rank has claimed the stage of
            // operation n, nobody reads it before the mark that follows, and nobody reads what was
            // staged DEPTH operations ago, since this rank may put.
            fill(unsafe { std::slice::from_raw_parts_mut(at, len) });
            self.note(HAS_STAGED, 0);
        }
        claimed
    }

    /// What `rank` staged before it put its part; none when it has not.
    ///
    /// # Panics
    /// When `len` is more than [`STAGE_BYTES`], and when `rank` [has put](Self::has_put) nothing.
    #[must_use]
    pub fn staged(&self, rank: u32, len: usize) -> Option<&[u8]> {
        let slot = self.board.slot(rank, self.n);
        self.assert_is_put(slot, rank);
        self.staged_before(slot, len)
    }

    /// What the last to arrive staged before it released this operation; none when it has not.
    ///
    /// # Panics
    /// When `len` is more than [`STAGE_BYTES`].
    #[must_use]
    pub fn staged_result(&self, len: usize) -> Option<&[u8]> {
        self.staged_before(self.result_slot(), len)
    }

    fn staged_before(&self, slot: &Slot, len: usize) -> Option<&[u8]> {
        assert!(len <= STAGE_BYTES, "{len} bytes staged");
        let at = self.board.stage_at(self.n).as_ptr();
        // SAFETY: inside the board. The rank that claimed the stage in this operation has filled
        // it, which the mark says; it is not written again while the operation lives (see `read`).
        (slot.mark.load(Ordering::Acquire) == self.n | STAGED)
            .then(|| unsafe { std::slice::from_raw_parts(at, len) })
    }

    /// Whether this rank may publish its part: everybody has finished the operation in which this
    /// lane was used before.
    #[must_use]
    #[inline]
    pub fn may_publish(&self) -> bool {
        self.n < LANES || self.board.have_all_put(self.n + 1 - LANES)
    }

    /// Publishes this rank's part, too long for a slot: `fill` writes `len` bytes. Before
    /// [`put`](Self::put), which publishes it.
    ///
    /// # Panics
    /// When `len` is more than [`Board::lane_bytes`], when this rank [may not](Self::may_publish),
    /// and when it has put.
    pub fn publish_large(&self, len: usize, fill: impl FnOnce(&mut [u8])) {
        assert!(self.may_publish(), "ranks are behind");
        let in_order = !self.has(HAS_PUT | PUBLISHING);
        assert!(in_order, "a rank publishes large data before it puts");
        self.note(PUBLISHING, 0);
        let lane = self.board.lane_at(self.board.me, self.n, len).as_ptr();
        // SAFETY: inside the board (see `lane_at`). This rank's lane, in which nobody reads
        // operation n before the slot's mark, nor what it published LANES operations ago, since
        // this rank may publish.
        fill(unsafe { std::slice::from_raw_parts_mut(lane, len) });
        self.note(0, PUBLISHING);
    }

    /// What `rank` published in this operation.
    ///
    /// # Panics
    /// When `len` is more than [`Board::lane_bytes`], and when `rank` [has put](Self::has_put)
    /// nothing.
    #[must_use]
    pub fn read_large(&self, rank: u32, len: usize) -> &[u8] {
        self.assert_is_put(self.board.slot(rank, self.n), rank);
        let lane = self.board.lane_at(rank, self.n, len).as_ptr();
        // SAFETY: inside the board. The rank has put, so it does not write its lane in this
        // operation any more; nor in a later one while this operation lives (see `read`).
        unsafe { std::slice::from_raw_parts(lane, len) }
    }

    /// Leaves the operation where it is; [`Board::resume`] goes on with it. What it lent has been
    /// given back.
    #[inline]
    pub fn suspend(self) {
        let suspended = self.n << 2 | SUSPENDED;
        self.board.state.store(suspended, Ordering::Release);
        std::mem::forget(self);
    }

    #[inline]
    fn gate(&self) -> &Gate {
        &self.board.shared().gates[(self.n % DEPTH) as usize]
    }

    #[inline]
    fn result_slot(&self) -> &Slot {
        &self.board.shared().results[(self.n % DEPTH) as usize]
    }

    #[inline]
    fn assert_is_put(&self, slot: &Slot, rank: u32) {
        if number(slot.mark.load(Ordering::Acquire)) != self.n {
            has_not_put(rank);
        }
    }

    /// Marks a slot as written in this operation.
    #[inline]
    fn mark(&self, slot: &Slot) {
        let staged = if self.has(HAS_STAGED) { STAGED } else { 0 };
        slot.mark.store(self.n | staged, Ordering::Release);
    }
}

impl Drop for Operation<'_> {
    #[inline]
    fn drop(&mut self) {
        self.board.state.store(self.n << 2, Ordering::Release);
    }
}

#[cold]
fn has_not_put(rank: u32) -> ! {
    panic!("rank {rank} has put nothing in this operation");
}
