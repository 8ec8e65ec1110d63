//! A communicator's control block in shared memory: a slot a rank, an arrival counter and a release
//! word, so that small collective operations are stores and loads instead of messages.
//!
//! Operations on a board are numbered from 1 by everybody alike. In operation `n` a rank *puts* its
//! contribution into its slot and marks it `n`; others *read* it. A rank has [`DEPTH`] slots and
//! uses them in turn, so it may run ahead of the others; it writes a slot again only when everybody
//! has put `n + 1 - DEPTH`, that is, has finished every operation that read the slot's old
//! contents.
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
//!   when the ranks have come far enough, which `put`, `publish_large` and `stage` check
//!   themselves. They are read only when the slot's mark is that of the operation.
//! - A stage belongs to the first rank that claims it in an operation (a word beside the gate). The
//!   mark of the slot, or of the result, that is written afterwards says that it was staged, and
//!   without it nothing is lent.
//! - The result belongs to the rank that an arrival made the last. Within an operation there is at
//!   most one: a rank arrives once, and after one arrival that completes the count fewer ranks are
//!   left than complete it. It is read only when its mark is that of the operation.
//!
//! An operation that is suspended lends nothing, and its rank begins no other one.
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

mod layout;
mod operation;

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::layout::{BOARDS, BoardEntry};
use crate::segment::Segment;
use layout::{
    LANES, MAX_RANKS, Shared, Slot, bytes_for, clear, lane_bytes, lanes_for, number, slots_for,
};

pub use layout::{DEPTH, SLOT_BYTES, STAGE_BYTES};
pub use operation::Operation;

/// One rank's place on a board.
pub struct Board {
    segment: Arc<Segment>,
    shared: NonNull<Shared>,
    entry: usize,
    ranks: u32,
    me: u32,
    /// Four times the number of the last operation, and [`IN_PROGRESS`] or [`SUSPENDED`] while it
    /// is; [`LEFT`] afterwards.
    state: AtomicU64,
    /// How far the operation in progress is, as bits. Here and not in the [`Operation`], which so
    /// has two words and passes through calls in registers: one that was put together in memory and
    /// is copied would wait for the stores before.
    progress: AtomicU32,
}

/// The marks of at most this number of ranks are looked at faster than what somebody else has seen.
const FEW: u32 = 16;

/// In a state: the operation is in progress, and its [`Operation`] exists.
const IN_PROGRESS: u64 = 1;
/// In a state: the operation is in progress, and [`Board::resume`] gives it.
const SUSPENDED: u64 = 2;

/// The state of a board that its rank has left: an operation is in progress that does not end.
const LEFT: u64 = u64::MAX;

// SAFETY: the pointer lies in the segment, which is kept; what is not atomic is reached through an
// `Operation` only (see the module), which stays on its thread.
unsafe impl Send for Board {}
// SAFETY: as above; `begin` hands out one operation at a time.
unsafe impl Sync for Board {}

impl Board {
    /// The board of `key`; the first of its `ranks` makes it. `me` is this rank's number on it.
    /// None when there is no room for another board, or when somebody has been `me` on this board.
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
        let entries = &table.entries[..used.min(BOARDS)];
        let is = |e: &BoardEntry, k: u64| {
            e.key.load(Ordering::Relaxed) == k && e.ranks.load(Ordering::Relaxed) == ranks
        };
        let bytes = bytes_for(ranks);
        let (index, offset) = if let Some(at) = entries.iter().position(|e| is(e, key)) {
            (at, entries[at].offset.load(Ordering::Relaxed))
        } else if let Some(at) = entries.iter().position(|e| is(e, 0)) {
            let offset = entries[at].offset.load(Ordering::Relaxed);
            let old = segment.heap_at(offset, bytes, 128)?;
            // SAFETY: inside the heap (checked); everybody has left this board, and the table's
            // lock keeps others from opening it meanwhile.
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
        if state & (IN_PROGRESS | SUSPENDED) != 0 {
            return None;
        }
        // Acquire: another thread of this rank may have ended the operation before.
        let next = state + 4 + IN_PROGRESS;
        self.state
            .compare_exchange(state, next, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        self.progress.store(0, Ordering::Relaxed);
        Some(Operation::new(self, next >> 2))
    }

    /// Goes on with the operation that was [suspended](Operation::suspend). None when none was.
    #[must_use]
    #[inline]
    pub fn resume(&self) -> Option<Operation<'_>> {
        let state = self.state.load(Ordering::Relaxed);
        if state == LEFT || state & SUSPENDED == 0 {
            return None;
        }
        // Acquire: another thread of this rank may have suspended it.
        let next = state - SUSPENDED + IN_PROGRESS;
        self.state
            .compare_exchange(state, next, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        Some(Operation::new(self, next >> 2))
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
        let is_known =
            || self.ranks > FEW && self.shared().room.reached.load(Ordering::Acquire) >= n;
        is_known() || (0..self.ranks).all(|rank| self.has_put(rank, n))
    }

    /// Wakes those of `worlds` (world ranks) that sleep.
    #[inline]
    pub fn wake(&self, worlds: impl Iterator<Item = u32>) {
        for world in worlds {
            self.segment.wake(world);
        }
    }

    /// Wakes the ranks that [wait for room](Operation::wait_for_room), after this one was the last
    /// to arrive. `world` gives the world rank of a rank of the board.
    pub fn make_room(&self, world: impl Fn(u32) -> Option<u32>) {
        // After the marks of all: see `wait_for_room`.
        fence(Ordering::SeqCst);
        let words = self.ranks.div_ceil(64);
        for (word, waiting) in (0..words).zip(&self.shared().room.waiting) {
            if waiting.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let bits = waiting.swap(0, Ordering::Relaxed);
            let ranks = (0..64).filter(|bit| bits >> bit & 1 != 0);
            self.wake(ranks.filter_map(|bit| world(64 * word + bit)));
        }
    }

    /// This rank needs the board no more. When all have left, it is used for other communicators.
    /// While an operation is in progress this does nothing; the board is left when it is dropped.
    pub fn leave(&self) {
        let state = self.state.load(Ordering::Relaxed) & !(IN_PROGRESS | SUSPENDED);
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

/// Heap that boards leave to what nobody can do without: a pipe between every two ranks, and every
/// rank's pool and transfer cells.
const fn reserve(ranks: u32) -> u64 {
    let ranks = ranks as u64;
    ranks * (crate::ring::MOST * (crate::ring::size_bytes() + 128) + (1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Sizes;

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

    #[test]
    fn a_suspended_operation_goes_on_where_it_was() {
        let segment = segment();
        let [a, b] = pair(&segment, 5);
        assert!(a.resume().is_none(), "nothing was begun");
        let op = a.begin().unwrap();
        op.put(8, |bytes| bytes.fill(1));
        assert!(a.resume().is_none(), "it is not suspended");
        op.suspend();
        assert!(a.begin().is_none(), "it is in progress");
        a.leave();
        b.begin().unwrap().put(8, |bytes| bytes.fill(2));
        let op = a.resume().unwrap();
        assert!(a.resume().is_none(), "one at a time");
        assert_eq!((op.number(), op.read(1, 8)), (1, &[2; 8][..]));
        assert!(is_refused(|| op.put(8, |_| {})), "it has put");
        drop(op);
        assert!(a.resume().is_none(), "it has ended");
        assert_eq!(a.begin().unwrap().number(), 2);
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
        assert!(is_refused(|| _ = op.read_large(1, 8)));
        assert!(is_refused(|| _ = op.staged(1, 8)));
        assert!(is_refused(|| _ = op.result(8)), "not released");
        assert!(is_refused(|| _ = op.arrive()), "it has not put");
        assert!(is_refused(|| op.release(8, |_| {})), "not the last");
        op.publish_large(8, |_| assert!(is_refused(|| op.put(0, |_| {}))));
        op.put(0, |_| {});
        drop(op);
        b.begin().unwrap().put(0, |_| {});

        let op = a.begin().unwrap();
        op.put(8, |_| assert!(is_refused(|| op.put(8, |_| {}))));
        assert!(is_refused(|| op.put(8, |_| {})), "it has put");
        assert!(is_refused(|| op.publish_large(8, |_| {})), "it has put");
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
            assert!(
                is_refused(|| op.publish_large(8, |bytes| bytes.fill(1))),
                "not yet"
            );
            assert!(late == 5 || is_refused(|| _ = op.stage(8, |bytes| bytes.fill(1))));
        }
        assert_eq!(held, [0; 8]);
    }

    /// One rank is ahead, and sleeps until the slowest has come as far as it must.
    #[test]
    fn the_last_to_arrive_makes_room() {
        let segment = segment();
        let [a, b] = pair(&segment, 5);
        std::thread::scope(|scope| {
            let (ahead, at) = (&segment, &a);
            let count = scope.spawn(move || {
                let mut woken = 0;
                for _ in 0..200 {
                    let op = at.begin().unwrap();
                    let may = || {
                        op.may_put() || {
                            op.wait_for_room();
                            op.may_put()
                        }
                    };
                    while !may() {
                        // Nobody else ends this sleep.
                        ahead.registry().event_count(0).sleep(u64::MAX, may);
                        woken += 1;
                    }
                    op.put(0, |_| {});
                    let _ = op.arrive();
                }
                woken
            });
            for n in 0..200 {
                if n % 16 == 0 {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                let op = b.begin().unwrap();
                while !op.may_put() {
                    std::thread::yield_now();
                }
                op.put(0, |_| {});
                if op.arrive() {
                    b.make_room(Some);
                }
            }
            assert!(count.join().unwrap() > 0, "it was never ahead");
        });
    }

    #[test]
    fn what_the_last_has_seen_all_know() {
        let ranks = FEW + 1;
        let segment = Arc::new(
            Segment::create(Sizes {
                ranks,
                heap_bytes: 64 << 20,
                arena_bytes: 1 << 21,
            })
            .unwrap(),
        );
        let boards: Vec<Board> = (0..ranks)
            .map(|me| Board::open(&segment, 7, ranks, me).unwrap())
            .collect();
        for n in 1..3 * DEPTH {
            for board in &boards {
                let op = board.begin().unwrap();
                assert!(op.may_put());
                op.put(0, |_| {});
                let last = op.arrive();
                assert_eq!(last, board.me() == ranks - 1);
            }
            assert_eq!(boards[0].shared().room.reached.load(Ordering::Relaxed), n);
        }
        for _ in 0..DEPTH - 1 {
            boards[0].begin().unwrap().put(0, |_| {});
        }
        assert!(
            !boards[0].begin().unwrap().may_put(),
            "the others are behind"
        );
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
