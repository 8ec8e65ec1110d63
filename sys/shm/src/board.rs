//! A communicator's control block in shared memory: a slot a rank, an arrival counter and a release
//! word, so that small collective operations are stores and loads instead of messages.
//!
//! Operations on a board are numbered from 1 by everybody alike. In operation `n` a rank *puts* its
//! contribution into its slot and marks it `n`; others *read* it. A rank has [`DEPTH`] slots and uses
//! them in turn, so it may run ahead of the others; it writes a slot again only when everybody has
//! put `n + 1 - DEPTH`, that is, has finished every operation that read the slot's old contents.
//!
//! **The order is enforced, not asked for.** A rank executes an operation through an [`Operation`],
//! of which a board has one at a time; what is read is lent by it. So as long as a rank holds a
//! slice, its operation lives, it has not put the next one, and nobody may write what the slice
//! shows. The other steps of the argument:
//!
//! - Each slot, lane and arrival belongs to one rank, and a board has one [`Board`] for each rank:
//!   [`Board::open`] claims the number by a bit in shared memory, which only goes back when all
//!   ranks have left and the board is cleared.
//! - A rank writes its slot and its lane only until it has put, once for each operation and only
//!   when the ranks have come far enough, which `put`, `lay` and `stage` check themselves. They are
//!   read only when the slot's mark is that of the operation.
//! - A stage belongs to the first rank that claims it in an operation (a word beside the gate).
//!   The mark of the slot, or of the result, that is written afterwards says that it was staged, and
//!   without it nothing is lent.
//! - The result belongs to the rank that an arrival made the last. Within an operation there is at
//!   most one: a rank arrives once, and after one arrival that completes the count fewer ranks are
//!   left than complete it. It is read only when its mark is that of the operation.
//!
//! That holds for all ranks of this process, whatever safe code does with their boards. Another
//! process is outside of it: one whose memory is corrupt may write at any time what a slice here
//! shows. The users of slices (copies, and arithmetic on numbers of which any bytes are a value)
//! then have wrong data, and nothing that decides about memory is read twice from a slice.
//!
//! Memory orderings: a slot's bytes are written before its mark (release) and read after it
//! (acquire). The arrival counter is one read-modify-write (acquire and release), so the last to
//! arrive sees all slots; the mark of the result is stored (release) after its bytes and loaded
//! (acquire) before they are read.
//!
//! Boards are found by a key (communicator and members) in a table at the start of the heap, so
//! making one takes no message; a board goes back to the table when all its ranks have left it.

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::owner::OwnerLock;
use crate::segment::Segment;

/// Slots of a rank: operations that it may be ahead of the slowest.
pub const DEPTH: u64 = 4;
/// Bytes of a contribution. The first of them share a cache line with the mark.
pub const SLOT_BYTES: usize = 4096 - 8;

/// Bytes that one rank can stage for all in one operation (a broadcast that does not fit a slot).
pub const STAGE_BYTES: usize = 128 << 10;

/// Contributions too long for a slot that a rank may have laid out: it writes a lane again when everybody has finished the
/// operation before the last.
const LANES: u64 = 2;
/// Longest contribution in bytes.
const LANE_BYTES: usize = 64 << 10;
/// All lanes of a board together take no more, if the number of ranks lets them have a page each.
const LANES_BYTES: usize = 4 << 20;

/// Communicators of a job that can have a board at the same time. Beyond, they do without.
const ENTRIES: usize = 4096;

#[repr(C, align(128))]
struct Slot {
    /// Number of the operation, and [`STAGED`].
    mark: AtomicU64,
    bytes: [UnsafeCell<u8>; SLOT_BYTES],
}

/// In a mark: the rank that wrote it has staged before.
const STAGED: u64 = 1 << 63;

/// Ranks that a board can have: so many bits fit the page of claims.
const MAX_RANKS: u32 = 32_768;

#[repr(C, align(128))]
struct Gate {
    /// Ranks that have arrived at the operation; the last one sets it to 0.
    arrived: AtomicU32,
    /// The last operation in which a rank claimed the stage of this gate.
    staged: AtomicU64,
}

#[repr(C, align(128))]
struct Shared {
    /// A bit for each rank: its [`Board`] has been opened.
    claims: [AtomicU64; MAX_RANKS as usize / 64],
    results: [Slot; DEPTH as usize],
    gates: [Gate; DEPTH as usize],
    // Then DEPTH slots for each rank, then DEPTH stages, then LANES lanes for each rank.
}

#[repr(C)]
struct Entry {
    /// 0 where there is no board.
    key: AtomicU64,
    offset: AtomicU64,
    ranks: AtomicU32,
    /// Ranks that have left; with all of them the board is free.
    left: AtomicU32,
}

#[repr(C, align(128))]
pub(crate) struct Table {
    lock: OwnerLock,
    /// Entries that were ever used.
    used: AtomicU32,
    entries: [Entry; ENTRIES],
}

/// One rank's place on a board.
pub struct Board {
    segment: Arc<Segment>,
    shared: NonNull<Shared>,
    entry: usize,
    ranks: u32,
    me: u32,
    /// Twice the number of the last operation, and 1 while it is in progress; [`LEFT`] afterwards.
    state: AtomicU64,
    /// How far the operation in progress is, as bits. Here and not in the [`Operation`], which so has two words and passes
    /// through calls in registers: one that was put together in memory and is copied would wait for the stores before.
    progress: AtomicU32,
}

/// Everybody has been seen to have come far enough.
const MAY_PUT: u32 = 1;
/// The lane is being written.
const LAYING: u32 = 2;
const HAS_PUT: u32 = 4;
const HAS_STAGED: u32 = 8;
const HAS_ARRIVED: u32 = 16;
/// It was the last to arrive, and has not released the others.
const IS_LAST: u32 = 32;

/// The state of a board that its rank has left: an operation is in progress that does not end.
const LEFT: u64 = u64::MAX;

// SAFETY: the pointer lies in the segment, which is kept; what is not atomic is reached through an
// `Operation` only (see the module), which stays on its thread.
unsafe impl Send for Board {}
// SAFETY: as above; `begin` hands out one operation at a time.
unsafe impl Sync for Board {}

impl Board {
    /// The board of `key`; the first of its `ranks` makes it. `me` is this rank's number on it. None
    /// when there is no room for another board, or when somebody has been `me` on this board.
    ///
    /// # Panics
    /// When `me` is not below `ranks`.
    #[must_use]
    pub fn open(segment: &Arc<Segment>, key: u64, ranks: u32, me: u32) -> Option<Board> {
        assert!(me < ranks, "rank {me} of {ranks}");
        if ranks > MAX_RANKS {
            return None;
        }
        let table = segment.boards()?;
        let _guard = table.lock.lock();
        let key = key.max(1);
        let used = table.used.load(Ordering::Relaxed) as usize;
        let entries = &table.entries[..used.min(ENTRIES)];
        let is = |e: &Entry, k: u64| {
            e.key.load(Ordering::Relaxed) == k && e.ranks.load(Ordering::Relaxed) == ranks
        };
        let bytes = bytes_for(ranks);
        let (index, offset) = if let Some(at) = entries.iter().position(|e| is(e, key)) {
            (at, entries[at].offset.load(Ordering::Relaxed))
        } else if let Some(at) = entries.iter().position(|e| is(e, 0)) {
            let offset = entries[at].offset.load(Ordering::Relaxed);
            let old = segment.heap_at(offset, bytes, 128)?;
            // SAFETY: inside the heap (checked); everybody has left this board, and the table's lock
            // keeps others from opening it meanwhile.
            unsafe { clear(old, ranks) };
            entries[at].key.store(key, Ordering::Relaxed);
            (at, offset)
        } else {
            let entry = table.entries.get(used)?;
            if segment.heap_left() < bytes + reserve(segment.ranks()) {
                return None;
            }
            let offset = segment.heap_alloc(bytes)?;
            entry.key.store(key, Ordering::Relaxed);
            entry.offset.store(offset, Ordering::Relaxed);
            entry.ranks.store(ranks, Ordering::Relaxed);
            entry.left.store(0, Ordering::Relaxed);
            table.used.store(used as u32 + 1, Ordering::Relaxed);
            (used, offset)
        };
        let shared: NonNull<Shared> = segment.heap_at(offset, bytes, 128)?.cast();
        // SAFETY: inside the heap, aligned (checked); claims are atomics.
        let claims = unsafe { &shared.as_ref().claims };
        let bit = 1 << (me % 64);
        if claims[me as usize / 64].fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            return None;
        }
        Some(Board {
            segment: segment.clone(),
            shared,
            entry: index,
            ranks,
            me,
            state: AtomicU64::new(0),
            progress: AtomicU32::new(0),
        })
    }

    /// Ranks of the board.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// This rank's number on it.
    #[must_use]
    pub fn me(&self) -> u32 {
        self.me
    }

    /// Begins this rank's next operation. It ends when the value is dropped. None while one is in
    /// progress, and when this rank has left.
    #[must_use]
    #[inline(always)]
    pub fn begin(&self) -> Option<Operation<'_>> {
        let state = self.state.load(Ordering::Relaxed);
        if state & 1 != 0 {
            return None;
        }
        // Acquire: another thread of this rank may have ended the operation before.
        self.state
            .compare_exchange(state, state + 3, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        self.progress.store(0, Ordering::Relaxed);
        Some(Operation {
            board: self,
            n: (state >> 1) + 1,
            stays: PhantomData,
        })
    }

    /// Longest contribution in bytes that has a place in a lane.
    #[must_use]
    pub fn lane_bytes(&self) -> usize {
        lane_bytes(self.ranks)
    }

    fn stage_at(&self, n: u64) -> NonNull<u8> {
        let slots = slots_for(self.ranks) + (n % DEPTH) as usize * STAGE_BYTES;
        // SAFETY: `bytes_for` counts DEPTH stages behind the slots.
        unsafe { self.shared.cast::<u8>().add(slots) }
    }

    fn lane_at(&self, rank: u32, n: u64, len: usize) -> NonNull<u8> {
        let lane = self.lane_bytes();
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
        assert!(len <= lane, "{len} bytes in a lane");
        let index = rank as usize * LANES as usize + (n % LANES) as usize;
        // SAFETY: `bytes_for` counts LANES lanes for each rank behind the stages.
        unsafe {
            self.shared
                .cast::<u8>()
                .add(lanes_for(self.ranks) + index * lane)
        }
    }

    #[inline]
    fn has_put(&self, rank: u32, n: u64) -> bool {
        number(self.slot(rank, n).mark.load(Ordering::Acquire)) >= n
    }

    #[inline]
    fn have_all_put(&self, n: u64) -> bool {
        (0..self.ranks).all(|rank| self.has_put(rank, n))
    }

    /// Wakes those of `worlds` (world ranks) that sleep.
    #[inline]
    pub fn wake(&self, worlds: impl Iterator<Item = u32>) {
        for world in worlds {
            self.segment.cell(world).bell().ring();
        }
    }

    /// This rank needs the board no more. When all have left, it is used for other communicators.
    /// While an operation is in progress this does nothing; the board is left when it is dropped.
    pub fn leave(&self) {
        let state = self.state.load(Ordering::Relaxed) & !1;
        let left = self
            .state
            .compare_exchange(state, LEFT, Ordering::Acquire, Ordering::Relaxed);
        if left.is_ok() {
            self.give_back();
        }
    }

    fn give_back(&self) {
        if let Some(table) = self.segment.boards() {
            let _guard = table.lock.lock();
            let entry = &table.entries[self.entry];
            if entry.left.fetch_add(1, Ordering::Relaxed) + 1 == self.ranks {
                entry.left.store(0, Ordering::Relaxed);
                entry.key.store(0, Ordering::Relaxed);
            }
        }
    }

    #[inline]
    fn shared(&self) -> &Shared {
        // SAFETY: checked at opening to lie inside the heap, aligned; the segment is kept.
        unsafe { self.shared.as_ref() }
    }

    #[inline]
    fn slot(&self, rank: u32, n: u64) -> &Slot {
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
        let index = rank as usize * DEPTH as usize + (n % DEPTH) as usize;
        // SAFETY: `bytes_for` counts DEPTH slots for each rank behind the shared part.
        unsafe { self.shared.add(1).cast::<Slot>().add(index).as_ref() }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // Nothing borrows the board, so an operation that seems to be in progress was forgotten.
        if *self.state.get_mut() != LEFT {
            self.give_back();
        }
    }
}

/// One operation of one rank on a board, and what may be done in it. See the module.
pub struct Operation<'b> {
    board: &'b Board,
    n: u64,
    /// One thread at a time executes it.
    stays: PhantomData<Cell<()>>,
}

impl Operation<'_> {
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

    /// Puts this rank's part: `fill` writes `len` bytes. Once for each operation.
    ///
    /// # Panics
    /// When `len` is more than [`SLOT_BYTES`], when this rank [may not put](Self::may_put) or has put.
    #[inline]
    pub fn put(&self, len: usize, fill: impl FnOnce(&mut [u8])) {
        assert!(self.may_put(), "ranks are behind");
        assert!(!self.has(HAS_PUT | LAYING), "a rank puts once");
        self.note(HAS_PUT, 0);
        let slot = self.board.slot(self.board.me, self.n);
        // SAFETY: this rank's slot, in which nobody reads operation n before its mark, nor an earlier
        // one any more, since this rank may put; it puts for the first time.
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
    /// When `rank` [has put](Self::has_put) nothing, and when `len` is more than [`SLOT_BYTES`].
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
        }
        self.note(HAS_ARRIVED | if last { IS_LAST } else { 0 }, 0);
        last
    }

    /// Lets those go who wait, with a result of `len` bytes that `fill` writes.
    ///
    /// # Panics
    /// When `len` is more than [`SLOT_BYTES`], and when this rank was not the last to
    /// [arrive](Self::arrive) or has released the others.
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
    /// [`SLOT_BYTES`].
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
    /// [releases](Self::release) the others. Returns false, and stages nothing, when another rank has
    /// staged in this operation.
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
            // SAFETY: inside the board (see `stage_at`). This rank has claimed the stage of operation
            // n, nobody reads it before the mark that follows, and nobody reads what was staged
            // DEPTH operations ago, since this rank may put.
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
        // SAFETY: inside the board. The rank that claimed the stage in this operation has filled it,
        // which the mark says; it is not written again while the operation lives (see `read`).
        (slot.mark.load(Ordering::Acquire) == self.n | STAGED)
            .then(|| unsafe { std::slice::from_raw_parts(at, len) })
    }

    /// Whether this rank may lay out its part: everybody has finished the operation in which this lane was
    /// used before.
    #[must_use]
    #[inline]
    pub fn may_lay(&self) -> bool {
        self.n < LANES || self.board.have_all_put(self.n + 1 - LANES)
    }

    /// Lays out this rank's part, too long for a slot: `fill` writes `len` bytes. Before [`put`](Self::put), which
    /// publishes it.
    ///
    /// # Panics
    /// When `len` is more than [`Board::lane_bytes`], when this rank [may not](Self::may_lay), and when it has put.
    pub fn lay(&self, len: usize, fill: impl FnOnce(&mut [u8])) {
        assert!(self.may_lay(), "ranks are behind");
        let in_order = !self.has(HAS_PUT | LAYING);
        assert!(in_order, "a rank lays out before it puts");
        self.note(LAYING, 0);
        let lane = self.board.lane_at(self.board.me, self.n, len).as_ptr();
        // SAFETY: inside the board (see `lane_at`). This rank's lane, in which nobody reads operation n before
        // the slot's mark, nor what it laid out LANES operations ago, since this rank may lay.
        fill(unsafe { std::slice::from_raw_parts_mut(lane, len) });
        self.note(0, LAYING);
    }

    /// What `rank` laid out in this operation.
    ///
    /// # Panics
    /// When `len` is more than [`Board::lane_bytes`], and when `rank` [has put](Self::has_put) nothing.
    #[must_use]
    pub fn laid(&self, rank: u32, len: usize) -> &[u8] {
        self.assert_is_put(self.board.slot(rank, self.n), rank);
        let lane = self.board.lane_at(rank, self.n, len).as_ptr();
        // SAFETY: inside the board. The rank has put, so it does not write its lane in this operation any
        // more; nor in a later one while this operation lives (see `read`).
        unsafe { std::slice::from_raw_parts(lane, len) }
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
        self.board.state.store(self.n << 1, Ordering::Release);
    }
}

impl Slot {
    /// # Safety
    /// Nobody else may touch the bytes until the mark is stored.
    #[inline]
    unsafe fn write(&self, len: usize, fill: impl FnOnce(&mut [u8])) {
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
    unsafe fn bytes(&self, len: usize) -> &[u8] {
        assert!(len <= SLOT_BYTES, "{len} bytes in a slot");
        // SAFETY: as above, for reading.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), len) }
    }
}

#[cold]
fn has_not_put(rank: u32) -> ! {
    panic!("rank {rank} has put nothing in this operation");
}

/// The operation of a mark.
#[inline]
const fn number(mark: u64) -> u64 {
    mark & !STAGED
}

/// Offset of the stages: behind the slots.
const fn slots_for(ranks: u32) -> usize {
    size_of::<Shared>() + ranks as usize * DEPTH as usize * size_of::<Slot>()
}

/// Offset of the lanes: behind the stages.
const fn lanes_for(ranks: u32) -> usize {
    slots_for(ranks) + DEPTH as usize * STAGE_BYTES
}

/// Bytes of a lane: whole pages.
const fn lane_bytes(ranks: u32) -> usize {
    let share = LANES_BYTES / LANES as usize / ranks as usize / 4096 * 4096;
    match share {
        0 => 4096,
        1..LANE_BYTES => share,
        _ => LANE_BYTES,
    }
}

/// Heap that boards leave to what nobody can do without: a pipe between every two ranks, and every
/// rank's pool and transfer cells.
const fn reserve(ranks: u32) -> u64 {
    let ranks = ranks as u64;
    ranks * ranks * (crate::ring::size_bytes() + 128) + ranks * (1 << 20)
}

const fn bytes_for(ranks: u32) -> u64 {
    lanes_for(ranks) as u64 + ranks as u64 * LANES * lane_bytes(ranks) as u64
}

/// Zeroes the marks and counters of a board that nobody uses.
///
/// # Safety
/// `at` must point to a board of `ranks` ranks that nobody else touches.
unsafe fn clear(at: NonNull<u8>, ranks: u32) {
    let shared = at.cast::<Shared>();
    // SAFETY: by the caller's promise.
    let s = unsafe { shared.as_ref() };
    for claim in &s.claims {
        claim.store(0, Ordering::Relaxed);
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
    use crate::segment::Sizes;
    use std::mem::offset_of;

    #[test]
    fn table_and_board_are_as_drawn() {
        assert_eq!((size_of::<Table>(), ENTRIES), (98_432, 4096));
        assert_eq!(offset_of!(Table, lock), 0);
        assert_eq!(offset_of!(Table, used), 4);
        assert_eq!(offset_of!(Table, entries), 8);
        assert_eq!(size_of::<Entry>(), 24);
        assert_eq!(offset_of!(Entry, key), 0);
        assert_eq!(offset_of!(Entry, offset), 8);
        assert_eq!(offset_of!(Entry, ranks), 16);
        assert_eq!(offset_of!(Entry, left), 20);
        assert_eq!(offset_of!(Shared, claims), 0);
        assert_eq!(offset_of!(Shared, results), 4096);
        assert_eq!(offset_of!(Shared, gates), 20_480);
        assert_eq!(size_of::<Gate>(), 128);
        assert_eq!(offset_of!(Gate, arrived), 0);
        assert_eq!(offset_of!(Gate, staged), 8);
        assert_eq!(size_of::<Shared>(), 20_992);
        assert_eq!(size_of::<Slot>(), 4096);
        assert_eq!(offset_of!(Slot, mark), 0);
        assert_eq!(offset_of!(Slot, bytes), 8);
        assert_eq!(slots_for(3), 20_992 + 3 * 4 * 4096);
        assert_eq!(lanes_for(3), slots_for(3) + 4 * (128 << 10));
        assert_eq!(bytes_for(3), lanes_for(3) as u64 + 3 * 2 * (64 << 10));
        let lanes = [2, 32, 64, 1000].map(lane_bytes);
        assert_eq!(lanes, [64 << 10, 64 << 10, 32 << 10, 4096]);
    }

    fn segment() -> Arc<Segment> {
        Arc::new(
            Segment::create(Sizes {
                ranks: 4,
                heap_bytes: 16 << 20,
                arena_bytes: 1 << 21,
            })
            .unwrap(),
        )
    }

    #[test]
    fn everybody_sees_what_everybody_put() {
        let segment = segment();
        let ranks = 4u32;
        std::thread::scope(|scope| {
            for me in 0..ranks {
                let segment = &segment;
                scope.spawn(move || {
                    let board = Board::open(segment, 7, ranks, me).unwrap();
                    let spin = |done: &dyn Fn() -> bool| {
                        while !done() {
                            std::thread::yield_now();
                        }
                    };
                    let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
                    let rounds = if cfg!(miri) { 20 } else { 3000 };
                    for n in 1..rounds {
                        let op = board.begin().unwrap();
                        assert_eq!(op.number(), n);
                        spin(&|| op.may_put());
                        let mine = (n * 10 + u64::from(me)).to_ne_bytes();
                        op.put(8, |b| b.copy_from_slice(&mine));
                        if n % 2 == 0 {
                            spin(&|| (0..ranks).all(|r| op.has_put(r)));
                            for r in 0..ranks {
                                assert_eq!(number(op.read(r, 8)), n * 10 + u64::from(r));
                            }
                        } else if op.arrive() {
                            let sum: u64 = (0..ranks).map(|r| number(op.read(r, 8))).sum();
                            op.release(8, |b| b.copy_from_slice(&sum.to_ne_bytes()));
                        } else {
                            spin(&|| op.is_released());
                            assert_eq!(number(op.result(8)), 40 * n + 6);
                        }
                    }
                });
            }
        });
    }

    /// Both boards of two ranks.
    fn pair(segment: &Arc<Segment>, key: u64) -> [Board; 2] {
        [0, 1].map(|me| Board::open(segment, key, 2, me).unwrap())
    }

    #[test]
    fn what_one_stages_all_see() {
        let segment = segment();
        let [a, b] = pair(&segment, 5);
        for n in 1..DEPTH {
            let op = a.begin().unwrap();
            assert!(op.stage(STAGE_BYTES, |bytes| bytes.fill(n as u8)));
            op.put(0, |_| {});
        }
        let ahead = a.begin().unwrap();
        for n in 1..DEPTH {
            assert_eq!(ahead.may_put(), n > 1, "the other has not put {n}");
            let op = b.begin().unwrap();
            let staged = op.staged(0, STAGE_BYTES).unwrap();
            assert!(staged.iter().all(|&x| x == n as u8));
            op.put(0, |_| {});
            let nothing = op.staged(1, STAGE_BYTES);
            assert!(nothing.is_none(), "the other has staged");
        }
    }

    #[test]
    fn a_stage_belongs_to_the_first_who_claims_it() {
        let segment = segment();
        let [a, b] = pair(&segment, 5);
        let [first, second] = [a.begin().unwrap(), b.begin().unwrap()];
        assert!(first.stage(8, |bytes| bytes.fill(1)));
        assert!(!second.stage(8, |_| panic!("it is the other's")));
        assert!(!first.stage(8, |_| panic!("it has been written")));
        second.put(0, |_| {});
        assert!(first.staged(1, 8).is_none());
        first.put(0, |_| {});
        assert_eq!(second.staged(0, 8), Some(&[1; 8][..]));
        assert!(!first.arrive() && second.arrive());
        second.release(0, |_| {});
        assert!(first.is_released() && first.staged_result(8).is_none());
    }

    #[test]
    fn a_rank_has_one_board_and_one_operation_at_a_time() {
        let segment = segment();
        let [a, b] = pair(&segment, 5);
        assert!(Board::open(&segment, 5, 2, 0).is_none(), "taken");
        let op = a.begin().unwrap();
        assert!(a.begin().is_none(), "one at a time");
        a.leave();
        drop(op);
        a.leave();
        assert!(a.begin().is_none(), "left");
        assert!(
            Board::open(&segment, 5, 2, 0).is_none(),
            "taken until all have left"
        );
        drop((a, b));
        assert!(Board::open(&segment, 5, 2, 0).is_some());
    }

    /// Whether a misuse ends in a panic before it does anything.
    fn is_refused(misuse: impl FnOnce()) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(misuse)).is_err()
    }

    #[test]
    fn what_is_out_of_order_is_refused() {
        let segment = segment();
        let [a, b] = pair(&segment, 5);
        let op = a.begin().unwrap();
        assert!(is_refused(|| _ = op.read(1, 8)), "it has not put");
        assert!(is_refused(|| _ = op.read(0, 8)), "nor has this rank");
        assert!(is_refused(|| _ = op.laid(1, 8)));
        assert!(is_refused(|| _ = op.staged(1, 8)));
        assert!(is_refused(|| _ = op.result(8)), "not released");
        assert!(is_refused(|| _ = op.arrive()), "it has not put");
        assert!(is_refused(|| op.release(8, |_| {})), "not the last");
        op.lay(8, |_| assert!(is_refused(|| op.put(0, |_| {}))));
        op.put(0, |_| {});
        drop(op);
        b.begin().unwrap().put(0, |_| {});

        let op = a.begin().unwrap();
        op.put(8, |_| assert!(is_refused(|| op.put(8, |_| {}))));
        assert!(is_refused(|| op.put(8, |_| {})), "it has put");
        assert!(is_refused(|| op.lay(8, |_| {})), "it has put");
        let other = b.begin().unwrap();
        other.put(0, |_| {});
        assert!(!op.arrive() && other.arrive());
        assert!(is_refused(|| _ = op.arrive()), "it has arrived");
        other.release(0, |_| assert!(is_refused(|| other.release(0, |_| {}))));
        assert!(is_refused(|| other.release(0, |_| {})), "it has released");
        drop(op);

        for _ in 0..2 {
            a.begin().unwrap().put(0, |_| {});
        }
        // The other reads operation 2: what it holds is not written.
        let held = other.read(0, 8);
        for late in [5, 6] {
            let op = a.begin().unwrap();
            assert_eq!((op.number(), op.may_put()), (late, late == 5));
            match late {
                5 => op.put(0, |_| {}),
                _ => assert!(is_refused(|| op.put(8, |bytes| bytes.fill(1)))),
            }
            assert!(is_refused(|| op.lay(8, |bytes| bytes.fill(1))), "not yet");
            assert!(late == 5 || is_refused(|| _ = op.stage(8, |bytes| bytes.fill(1))));
        }
        assert_eq!(held, [0; 8]);
    }

    #[test]
    fn a_board_that_all_have_left_is_used_again() {
        let segment = segment();
        let [a, b] = pair(&segment, 1);
        a.begin().unwrap().put(0, |_| {});
        assert!(b.begin().unwrap().has_put(0));
        let place = a.shared;
        drop(a);
        let other = Board::open(&segment, 2, 2, 0).unwrap();
        assert_ne!(other.shared, place, "still in use by one");
        drop(b);
        let again = Board::open(&segment, 3, 2, 0).unwrap();
        assert_eq!(again.shared, place);
        assert!(!again.begin().unwrap().has_put(0), "starts anew");
    }
}
