//! A communicator's control block in shared memory: a slot a rank, an arrival counter and a release
//! word, so that small collective operations are stores and loads instead of messages.
//!
//! Operations on a board are numbered from 1 by everybody alike. In operation `n` a rank *puts* its
//! contribution into its slot and marks it `n`; others *read* it. A rank has [`DEPTH`] slots and uses
//! them in turn, so it may run ahead of the others; it writes a slot again only when everybody has
//! put `n + 1 - DEPTH`, that is, has finished every operation that read the slot's old contents.
//!
//! Memory orderings: a slot's bytes are written before its mark (release) and read after it
//! (acquire). The arrival counter is one read-modify-write (acquire and release), so the last to
//! arrive sees all slots; the release word is stored (release) after the result and loaded (acquire)
//! before it is read.
//!
//! Boards are found by a key (communicator and members) in a table at the start of the heap, so
//! making one takes no message; a board goes back to the table when all its ranks have left it.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::segment::Segment;
use margay_sys_os::cpu;

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
    mark: AtomicU64,
    bytes: [std::cell::UnsafeCell<u8>; SLOT_BYTES],
}

#[repr(C, align(128))]
struct Gate {
    arrived: AtomicU32,
}

#[repr(C, align(128))]
struct Shared {
    released: Slot,
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
    lock: AtomicU32,
    /// Entries that were ever used.
    used: AtomicU32,
    entries: [Entry; ENTRIES],
}

/// One rank's view of a board.
pub struct Board {
    segment: Arc<Segment>,
    shared: NonNull<Shared>,
    entry: usize,
    ranks: u32,
    me: u32,
    left: AtomicU32,
}

// SAFETY: the pointer lies in the segment, which is kept; access follows the module's protocol.
unsafe impl Send for Board {}
// SAFETY: as above; an operation is only executed by one thread of a rank at a time, which MPI asks
// of the program.
unsafe impl Sync for Board {}

impl Board {
    /// The board of `key`; the first of its `ranks` makes it. `me` is this rank's number on it. None
    /// when there is no room for another board.
    #[must_use]
    pub fn open(segment: &Arc<Segment>, key: u64, ranks: u32, me: u32) -> Option<Board> {
        let table = segment.boards()?;
        let _guard = table.lock();
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
        let shared = segment.heap_at(offset, bytes, 128)?.cast();
        Some(Board {
            segment: segment.clone(),
            shared,
            entry: index,
            ranks,
            me,
            left: AtomicU32::new(0),
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

    /// Whether this rank may put its part of operation `n`: everybody has come far enough.
    #[must_use]
    #[inline]
    pub fn may_put(&self, n: u64) -> bool {
        n < DEPTH || (0..self.ranks).all(|rank| self.has_put(rank, n + 1 - DEPTH))
    }

    /// Puts this rank's part of operation `n`: `fill` writes `len` bytes.
    ///
    /// # Panics
    /// When `len` is more than [`SLOT_BYTES`].
    #[inline]
    pub fn put(&self, n: u64, len: usize, fill: impl FnOnce(&mut [u8])) {
        self.slot(self.me, n).write(n, len, fill);
    }

    /// Whether `rank` has put its part of operation `n`.
    #[must_use]
    #[inline]
    pub fn has_put(&self, rank: u32, n: u64) -> bool {
        self.slot(rank, n).mark.load(Ordering::Acquire) >= n
    }

    /// The first `len` bytes that `rank` put in operation `n`. Only valid after
    /// [`has_put`](Self::has_put), and until this rank puts its part of operation `n + 1`.
    ///
    /// # Panics
    /// When `len` is more than [`SLOT_BYTES`].
    #[must_use]
    #[inline]
    pub fn read(&self, rank: u32, n: u64, len: usize) -> &[u8] {
        self.slot(rank, n).read(len)
    }

    /// Counts this rank in for operation `n`. Returns whether it was the last; it then sees what all
    /// have put.
    #[must_use]
    #[inline]
    pub fn arrive(&self, n: u64) -> bool {
        let gate = &self.shared().gates[(n % DEPTH) as usize];
        let before = gate.arrived.fetch_add(1, Ordering::AcqRel);
        (before + 1).is_multiple_of(self.ranks)
    }

    /// Lets those go who wait for operation `n`, with a result of `len` bytes that `fill` writes.
    /// Called by the last to arrive.
    ///
    /// # Panics
    /// When `len` is more than [`SLOT_BYTES`].
    #[inline]
    pub fn release(&self, n: u64, len: usize, fill: impl FnOnce(&mut [u8])) {
        if len > 0 {
            self.shared().results[(n % DEPTH) as usize].write(n, len, fill);
        }
        self.shared().released.mark.store(n, Ordering::Release);
    }

    /// Whether operation `n` has been released.
    #[must_use]
    #[inline]
    pub fn is_released(&self, n: u64) -> bool {
        self.shared().released.mark.load(Ordering::Acquire) >= n
    }

    /// The first `len` bytes of the result of operation `n`, after [`is_released`](Self::is_released)
    /// and until this rank puts its part of operation `n + 1`.
    ///
    /// # Panics
    /// When `len` is more than [`SLOT_BYTES`].
    #[must_use]
    #[inline]
    pub fn result(&self, n: u64, len: usize) -> &[u8] {
        self.shared().results[(n % DEPTH) as usize].read(len)
    }

    /// Stages `len` bytes for all in operation `n`, by `fill`; call before [`put`](Self::put), by one
    /// rank of the board only.
    ///
    /// # Panics
    /// When `len` is more than [`STAGE_BYTES`].
    pub fn stage(&self, n: u64, len: usize, fill: impl FnOnce(&mut [u8])) {
        assert!(len <= STAGE_BYTES, "{len} bytes staged");
        // SAFETY: inside the board (see `stage_at`); the same rule that lets this rank put operation
        // n says that nobody reads what was staged DEPTH operations ago.
        fill(unsafe { std::slice::from_raw_parts_mut(self.stage_at(n).as_ptr(), len) });
    }

    /// What was staged in operation `n`; valid as [`read`](Self::read) is.
    ///
    /// # Panics
    /// When `len` is more than [`STAGE_BYTES`].
    #[must_use]
    pub fn staged(&self, n: u64, len: usize) -> &[u8] {
        assert!(len <= STAGE_BYTES, "{len} bytes staged");
        // SAFETY: inside the board; the caller has seen the mark of the rank that staged.
        unsafe { std::slice::from_raw_parts(self.stage_at(n).as_ptr(), len) }
    }

    fn stage_at(&self, n: u64) -> NonNull<u8> {
        let slots = slots_for(self.ranks) + (n % DEPTH) as usize * STAGE_BYTES;
        // SAFETY: `bytes_for` counts DEPTH stages behind the slots.
        unsafe { self.shared.cast::<u8>().add(slots) }
    }

    /// Longest contribution in bytes that has a place in a lane.
    #[must_use]
    pub fn lane_bytes(&self) -> usize {
        lane_bytes(self.ranks)
    }

    /// Whether this rank may lay out its part of operation `n`: everybody has finished the operation in which this lane was
    /// used before.
    #[must_use]
    #[inline]
    pub fn may_lay(&self, n: u64) -> bool {
        n < LANES || (0..self.ranks).all(|rank| self.has_put(rank, n + 1 - LANES))
    }

    /// Lays out this rank's part of operation `n`, too long for a slot: `fill` writes `len` bytes. Call when
    /// [`may_lay`](Self::may_lay) says so and before [`put`](Self::put), which publishes it.
    ///
    /// # Panics
    /// When `len` is more than [`lane_bytes`](Self::lane_bytes).
    pub fn lay(&self, n: u64, len: usize, fill: impl FnOnce(&mut [u8])) {
        // SAFETY: inside the board (see `lane_at`); nobody reads what this rank laid out LANES operations ago.
        fill(unsafe {
            std::slice::from_raw_parts_mut(self.lane_at(self.me, n, len).as_ptr(), len)
        });
    }

    /// What `rank` laid out in operation `n`; valid as [`read`](Self::read) is.
    ///
    /// # Panics
    /// When `len` is more than [`lane_bytes`](Self::lane_bytes).
    #[must_use]
    pub fn laid(&self, rank: u32, n: u64, len: usize) -> &[u8] {
        // SAFETY: inside the board; the caller has seen the mark of that rank.
        unsafe { std::slice::from_raw_parts(self.lane_at(rank, n, len).as_ptr(), len) }
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

    /// Wakes those of `worlds` (world ranks) that sleep.
    #[inline]
    pub fn wake(&self, worlds: impl Iterator<Item = u32>) {
        for world in worlds {
            self.segment.wake(world);
        }
    }

    /// This rank needs the board no more. When all have left, it is used for other communicators, so
    /// nothing may be asked of it afterwards.
    pub fn leave(&self) {
        if self.left.swap(1, Ordering::Relaxed) != 0 {
            return;
        }
        if let Some(table) = self.segment.boards() {
            let _guard = table.lock();
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
        self.leave();
    }
}

impl Slot {
    #[inline]
    fn write(&self, n: u64, len: usize, fill: impl FnOnce(&mut [u8])) {
        assert!(len <= SLOT_BYTES, "{len} bytes in a slot");
        if len > 0 {
            let bytes = self.bytes.as_ptr().cast::<u8>().cast_mut();
            // SAFETY: the bytes lie in `UnsafeCell`s of shared memory; by the protocol only the
            // writer of operation n touches them until the mark below is stored.
            fill(unsafe { std::slice::from_raw_parts_mut(bytes, len) });
        }
        self.mark.store(n, Ordering::Release);
    }

    #[inline]
    fn read(&self, len: usize) -> &[u8] {
        assert!(len <= SLOT_BYTES, "{len} bytes in a slot");
        // SAFETY: the caller has seen the mark; by the protocol nobody writes until this rank has
        // gone on to a later operation.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), len) }
    }
}

impl Table {
    fn lock(&self) -> TableGuard<'_> {
        let me = std::process::id();
        // Looks before somebody asks whether the holder is still alive.
        const PATIENCE: u32 = 1000;
        for look in 1u32.. {
            let taken = self
                .lock
                .compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed);
            let Err(holder) = taken else { break };
            if look.is_multiple_of(PATIENCE) && !margay_sys_os::process::is_alive(holder) {
                // What it left half done is an entry that nobody uses.
                let _ = self
                    .lock
                    .compare_exchange(holder, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
            cpu::yield_now();
        }
        TableGuard(self)
    }
}

struct TableGuard<'a>(&'a Table);

impl Drop for TableGuard<'_> {
    fn drop(&mut self) {
        self.0.lock.store(0, Ordering::Release);
    }
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
    s.released.mark.store(0, Ordering::Relaxed);
    for slot in &s.results {
        slot.mark.store(0, Ordering::Relaxed);
    }
    for gate in &s.gates {
        gate.arrived.store(0, Ordering::Relaxed);
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
    use crate::layout::Sizes;
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
        assert_eq!(offset_of!(Shared, released), 0);
        assert_eq!(offset_of!(Shared, results), 4096);
        assert_eq!(offset_of!(Shared, gates), 20_480);
        assert_eq!(size_of::<Gate>(), 128);
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
                    for n in 1..3000u64 {
                        spin(&|| board.may_put(n));
                        let mine = (n * 10 + u64::from(me)).to_ne_bytes();
                        board.put(n, 8, |b| b.copy_from_slice(&mine));
                        if n % 2 == 0 {
                            spin(&|| (0..ranks).all(|r| board.has_put(r, n)));
                            for r in 0..ranks {
                                let got = board.read(r, n, 8).try_into().unwrap();
                                assert_eq!(u64::from_ne_bytes(got), n * 10 + u64::from(r));
                            }
                        } else if board.arrive(n) {
                            let sum: u64 = (0..ranks)
                                .map(|r| {
                                    u64::from_ne_bytes(board.read(r, n, 8).try_into().unwrap())
                                })
                                .sum();
                            board.release(n, 8, |b| b.copy_from_slice(&sum.to_ne_bytes()));
                        } else {
                            spin(&|| board.is_released(n));
                            let got = board.result(n, 8).try_into().unwrap();
                            assert_eq!(u64::from_ne_bytes(got), 40 * n + 6);
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn what_one_stages_all_see() {
        let segment = segment();
        let a = Board::open(&segment, 5, 2, 0).unwrap();
        let b = Board::open(&segment, 5, 2, 1).unwrap();
        for n in 1..=DEPTH {
            a.stage(n, STAGE_BYTES, |bytes| bytes.fill(n as u8));
            a.put(n, 0, |_| {});
        }
        for n in 1..=DEPTH {
            assert!(b.has_put(0, n));
            assert!(b.staged(n, STAGE_BYTES).iter().all(|&x| x == n as u8));
        }
        assert!(!a.may_put(DEPTH), "the other has put nothing yet");
    }

    #[test]
    fn a_board_that_all_have_left_is_used_again() {
        let segment = segment();
        let a = Board::open(&segment, 1, 2, 0).unwrap();
        let b = Board::open(&segment, 1, 2, 1).unwrap();
        a.put(1, 0, |_| {});
        assert!(b.has_put(0, 1));
        let place = a.shared;
        drop(a);
        let other = Board::open(&segment, 2, 2, 0).unwrap();
        assert_ne!(other.shared, place, "still in use by one");
        drop(b);
        let again = Board::open(&segment, 3, 2, 0).unwrap();
        assert_eq!(again.shared, place);
        assert!(!again.has_put(0, 1), "starts anew");
    }
}
