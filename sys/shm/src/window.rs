//! A window's control block: what ranks that share memory need to synchronize one-sided operations.
//!
//! The block lies in the arena of the window's rank 0, which makes it before the others learn where
//! it is and frees it when all have left the window. Every field is an atomic; `docs/windows.md`
//! draws them byte by byte.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::segment::Segment;
use crate::turn::Turn;

/// The version of the block and of the table of attachments.
pub const VERSION: u32 = 4;

#[repr(C, align(128))]
struct Head {
    version: AtomicU32,
    ranks: AtomicU32,
    all: Padded,
}

#[repr(C, align(64))]
struct Padded(Lock);

#[repr(C, align(64))]
struct PaddedTurn(Turn);

/// What belongs to one target. The two locks are on lines of their own.
#[repr(C, align(128))]
struct Target {
    lock: Padded,
    accumulate: PaddedTurn,
    /// 1 + the arena offset of its table of attachments, 0 when there is none; a line of its own.
    table: AtomicU64,
}

/// One rank's view of a window's control block.
pub struct Block {
    _segment: Arc<Segment>,
    base: NonNull<u8>,
    ranks: u32,
}

// SAFETY: the base points into a mapping that lives as long as the segment; all access is atomic.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// Bytes of a block for `ranks`.
    #[must_use]
    pub fn bytes(ranks: u32) -> u64 {
        let n = u128::from(ranks);
        let (head, target) = (size_of::<Head>() as u128, size_of::<Target>() as u128);
        // More than 64 bits hold is more than any arena has.
        let bytes = head + n * target + 8 * n * n + 4 * n * (n + 1);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Makes the zeroed memory at `offset` of the arena of `owner` a block, and views it. None when
    /// it cannot be mapped.
    #[must_use]
    pub fn create(segment: &Arc<Segment>, owner: u32, offset: u64, ranks: u32) -> Option<Block> {
        let block = Block::map(segment, owner, offset, ranks)?;
        block.head().ranks.store(ranks, Ordering::Relaxed);
        block.head().version.store(VERSION, Ordering::Release);
        Some(block)
    }

    /// Views the block at `offset` of the arena of `owner`. None when it cannot be mapped or is not
    /// a block of this version for that many ranks.
    #[must_use]
    pub fn open(segment: &Arc<Segment>, owner: u32, offset: u64, ranks: u32) -> Option<Block> {
        let block = Block::map(segment, owner, offset, ranks)?;
        let is = block.head().version.load(Ordering::Acquire) == VERSION
            && block.head().ranks.load(Ordering::Relaxed) == ranks;
        is.then_some(block)
    }

    fn map(segment: &Arc<Segment>, owner: u32, offset: u64, ranks: u32) -> Option<Block> {
        let end = offset.checked_add(Block::bytes(ranks))?;
        if end > segment.arena_bytes() || !offset.is_multiple_of(128) || owner >= segment.ranks() {
            return None;
        }
        let base = segment.arena(owner)?;
        Some(Block {
            _segment: segment.clone(),
            // SAFETY: inside of the arena (checked).
            base: unsafe { base.add(offset as usize) },
            ranks,
        })
    }

    /// Exclusive locks of single targets (class 1, not solo) against locks of all targets (class
    /// 0).
    #[must_use]
    pub fn all(&self) -> &Lock {
        &self.head().all.0
    }

    /// The lock of a target: class 0 shared, class 1 exclusive, solo.
    #[must_use]
    #[inline]
    pub fn lock(&self, target: u32) -> &Lock {
        &self.target(target).lock.0
    }

    /// Taken while the target's memory is accumulated to.
    #[must_use]
    #[inline]
    pub fn accumulate(&self, target: u32) -> &Turn {
        &self.target(target).accumulate.0
    }

    /// How often `by` has posted its window to `of`; wraps around.
    #[must_use]
    pub fn posted(&self, of: u32, by: u32) -> &AtomicU32 {
        self.counter(of, by, 0)
    }

    /// How often `by` has completed an access epoch at `of`; wraps around.
    #[must_use]
    pub fn completed(&self, of: u32, by: u32) -> &AtomicU32 {
        self.counter(of, by, 1)
    }

    /// What `by` says that it holds of the lock of `of` (none: of the lock of all targets), or
    /// waits for: 0 for nothing, else 1 + the class. Said before the lock is entered and taken back
    /// after it is left, so that others know whom they wait for in vain when `by` has died.
    #[must_use]
    pub fn claim(&self, by: u32, of: Option<u32>) -> &AtomicU32 {
        let of = of.unwrap_or(self.ranks);
        assert!(by < self.ranks && of <= self.ranks, "ranks {of} and {by}");
        let n = self.ranks as usize;
        self.word(2 * n * n + by as usize * (n + 1) + of as usize)
    }

    /// Enters the table of attachments of `of`, which lies at `offset` of its arena.
    pub fn set_table(&self, of: u32, offset: u64) {
        self.target(of).table.store(offset + 1, Ordering::Release);
    }

    /// Where the table of attachments of `of` lies in its arena, if it has one.
    #[must_use]
    pub fn table(&self, of: u32) -> Option<u64> {
        self.target(of).table.load(Ordering::Acquire).checked_sub(1)
    }

    fn head(&self) -> &Head {
        // SAFETY: checked when it was mapped; atomics.
        unsafe { self.base.cast::<Head>().as_ref() }
    }

    #[inline]
    fn target(&self, rank: u32) -> &Target {
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
        let at = size_of::<Head>() + rank as usize * size_of::<Target>();
        // SAFETY: the block holds one for each rank; atomics.
        unsafe { self.base.add(at).cast::<Target>().as_ref() }
    }

    fn counter(&self, of: u32, by: u32, which: usize) -> &AtomicU32 {
        assert!(of < self.ranks && by < self.ranks, "ranks {of} and {by}");
        let n = self.ranks as usize;
        self.word((of as usize * n + by as usize) * 2 + which)
    }

    /// One of the words behind the targets.
    fn word(&self, index: usize) -> &AtomicU32 {
        let at = size_of::<Head>() + self.ranks as usize * size_of::<Target>() + 4 * index;
        assert!(at + 4 <= Block::bytes(self.ranks) as usize, "word {index}");
        // SAFETY: inside of the block; atomics.
        unsafe { self.base.add(at).cast::<AtomicU32>().as_ref() }
    }
}

/// A lock that ranks hold in one of two classes, which exclude each other; class 1 of a solo lock
/// also excludes itself. One word: who holds it, and whether somebody waits. Waiting is the
/// caller's: it marks the word, and who leaves a marked word must wake all that may wait.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Lock(AtomicU64);

/// Holders of class 0 in bits 0 to 30, of class 1 in bits 31 to 61.
const SHIFT: [u32; 2] = [0, 31];
const COUNT: u64 = (1 << 31) - 1;
const WAITING: u64 = 1 << 63;

impl Lock {
    /// Enters in `class` if that is possible now, else marks that somebody waits. `solo` is the
    /// same in all calls for one lock.
    #[inline]
    #[must_use]
    pub fn enter(&self, class: usize, solo: bool) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let holders = |class: usize| word >> SHIFT[class] & COUNT;
            let alone = solo && class == 1;
            let free = holders(1 - class) == 0 && !(alone && holders(class) > 0);
            let next = if free {
                word + (1 << SHIFT[class])
            } else if word & WAITING != 0 {
                return false;
            } else {
                word | WAITING
            };
            match self
                .0
                .compare_exchange_weak(word, next, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return free,
                Err(now) => word = now,
            }
        }
    }

    /// Leaves `class`. Returns whether others may wait: then all of them must be woken.
    #[inline]
    #[must_use]
    pub fn leave(&self, class: usize) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let next = (word & !WAITING) - (1 << SHIFT[class]);
            match self
                .0
                .compare_exchange_weak(word, next, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return word & WAITING != 0,
                Err(now) => word = now,
            }
        }
    }
}

/// Memory that a rank has attached to a dynamic window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Its address in the rank that attached it.
    pub address: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The arena in which it lies and where in it, if it does.
    pub place: Option<(u32, u64)>,
}

#[repr(C, align(64))]
struct Entry {
    /// Odd while the entry is being changed.
    sequence: AtomicU32,
    /// 1 + the rank in whose arena the memory lies, 0 for other memory.
    owner: AtomicU32,
    address: AtomicU64,
    /// 0: nothing is attached here.
    bytes: AtomicU64,
    offset: AtomicU64,
}

#[repr(C, align(64))]
struct TableHead {
    version: AtomicU32,
    capacity: AtomicU32,
}

/// The table of what a rank has attached to a dynamic window; in the arena of that rank, who alone
/// changes it. Others look for memory that stays attached while they look, so an entry that is just
/// being changed is not the one they look for.
pub struct Table {
    _segment: Arc<Segment>,
    base: NonNull<u8>,
    capacity: u32,
}

// SAFETY: as for `Block`.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Table {
    /// Bytes of a table with room for `capacity` entries.
    #[must_use]
    pub fn bytes(capacity: u32) -> u64 {
        size_of::<TableHead>() as u64 + u64::from(capacity) * size_of::<Entry>() as u64
    }

    /// Makes the zeroed memory at `offset` of the arena of `owner` a table. None when it cannot be
    /// mapped.
    #[must_use]
    pub fn create(segment: &Arc<Segment>, owner: u32, offset: u64, capacity: u32) -> Option<Table> {
        let table = Table::map(segment, owner, offset, capacity)?;
        table.head().capacity.store(capacity, Ordering::Relaxed);
        table.head().version.store(VERSION, Ordering::Release);
        Some(table)
    }

    /// The table at `offset` of the arena of `owner`. None when there is none of this version.
    #[must_use]
    pub fn open(segment: &Arc<Segment>, owner: u32, offset: u64) -> Option<Table> {
        let head = Table::map(segment, owner, offset, 0)?;
        if head.head().version.load(Ordering::Acquire) != VERSION {
            return None;
        }
        let capacity = head.head().capacity.load(Ordering::Relaxed);
        Table::map(segment, owner, offset, capacity)
    }

    fn map(segment: &Arc<Segment>, owner: u32, offset: u64, capacity: u32) -> Option<Table> {
        let end = offset.checked_add(Table::bytes(capacity))?;
        if end > segment.arena_bytes() || !offset.is_multiple_of(64) || owner >= segment.ranks() {
            return None;
        }
        let base = segment.arena(owner)?;
        Some(Table {
            _segment: segment.clone(),
            // SAFETY: inside of the arena (checked).
            base: unsafe { base.add(offset as usize) },
            capacity,
        })
    }

    /// Entries that it has room for.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Sets or clears entry `index`.
    ///
    /// # Panics
    /// When there is no such entry.
    pub fn set(&self, index: u32, attached: Option<Attached>) {
        let entry = &self.entries()[index as usize];
        let sequence = entry.sequence.load(Ordering::Relaxed);
        entry.sequence.store(sequence | 1, Ordering::Relaxed);
        std::sync::atomic::fence(Ordering::Release);
        let (owner, offset) = match attached.and_then(|a| a.place) {
            Some((owner, offset)) => (owner + 1, offset),
            None => (0, 0),
        };
        entry.owner.store(owner, Ordering::Relaxed);
        entry.offset.store(offset, Ordering::Relaxed);
        let address = attached.map_or(0, |a| a.address);
        entry.address.store(address, Ordering::Relaxed);
        let bytes = attached.map_or(0, |a| a.bytes);
        entry.bytes.store(bytes, Ordering::Relaxed);
        let next = (sequence | 1).wrapping_add(1);
        entry.sequence.store(next, Ordering::Release);
    }

    /// What covers `[address, address + bytes)`: one piece, or several that touch each other.
    #[must_use]
    pub fn find(&self, address: u64, bytes: u64) -> Option<Attached> {
        let at = |address: u64| {
            let mut entries = self.entries().iter().filter_map(Entry::read);
            entries.find(|a| a.covers(address, 1))
        };
        let mut found = at(address)?;
        while !found.covers(address, bytes) {
            found = found.joined(&at(found.address.checked_add(found.bytes)?)?)?;
        }
        Some(found)
    }

    fn head(&self) -> &TableHead {
        // SAFETY: checked when it was mapped; atomics.
        unsafe { self.base.cast::<TableHead>().as_ref() }
    }

    fn entries(&self) -> &[Entry] {
        // SAFETY: as above; behind the head there are as many entries as its capacity.
        unsafe {
            let first = self.base.add(size_of::<TableHead>()).cast::<Entry>();
            std::slice::from_raw_parts(first.as_ptr(), self.capacity as usize)
        }
    }
}

impl Attached {
    /// This and the piece that begins where it ends, as one piece.
    #[must_use]
    pub fn joined(&self, next: &Attached) -> Option<Attached> {
        // Checked: the words of a table may hold anything.
        let behind = |(owner, offset): (u32, u64)| Some((owner, offset.checked_add(self.bytes)?));
        let place = self
            .place
            .filter(|&p| next.place.is_some() && next.place == behind(p));
        let bytes = self.bytes.checked_add(next.bytes)?;
        (self.address.checked_add(self.bytes) == Some(next.address)).then_some(Attached {
            bytes,
            place,
            ..*self
        })
    }

    /// Whether `[address, address + bytes)` lies in it.
    #[must_use]
    pub fn covers(&self, address: u64, bytes: u64) -> bool {
        address
            .checked_sub(self.address)
            .and_then(|at| at.checked_add(bytes))
            .is_some_and(|end| end <= self.bytes)
    }
}

impl Entry {
    fn read(&self) -> Option<Attached> {
        let sequence = self.sequence.load(Ordering::Acquire);
        if sequence & 1 != 0 {
            return None;
        }
        let owner = self.owner.load(Ordering::Relaxed);
        let offset = self.offset.load(Ordering::Relaxed);
        let attached = Attached {
            address: self.address.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            place: owner.checked_sub(1).map(|owner| (owner, offset)),
        };
        std::sync::atomic::fence(Ordering::Acquire);
        let same = self.sequence.load(Ordering::Relaxed) == sequence;
        (same && attached.bytes > 0).then_some(attached)
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;
    use crate::arena::Arena;
    use crate::layout::Sizes;

    fn segment() -> Arc<Segment> {
        let sizes = Sizes {
            ranks: 3,
            heap_bytes: 1 << 20,
            arena_bytes: 1 << 21,
        };
        Arc::new(Segment::create(sizes).unwrap())
    }

    fn place(segment: &Arc<Segment>, rank: u32, bytes: u64) -> u64 {
        let mut arena = Arena::new(segment, rank);
        let address = arena.alloc(bytes).unwrap();
        segment.place_of(address, bytes).unwrap().1
    }

    #[test]
    fn the_block_is_as_drawn() {
        assert_eq!(size_of::<Head>(), 128);
        assert_eq!(offset_of!(Head, ranks), 4);
        assert_eq!(offset_of!(Head, all), 64);
        assert_eq!(size_of::<Target>(), 256);
        assert_eq!(offset_of!(Target, accumulate), 64);
        assert_eq!(offset_of!(Target, table), 128);
        assert_eq!(Block::bytes(3), 128 + 3 * 256 + 72 + 48);
        assert_eq!(size_of::<TableHead>(), 64);
        assert_eq!(size_of::<Entry>(), 64);
        assert_eq!(offset_of!(Entry, owner), 4);
        assert_eq!(offset_of!(Entry, address), 8);
        assert_eq!(offset_of!(Entry, bytes), 16);
        assert_eq!(offset_of!(Entry, offset), 24);
    }

    /// A block and a table of this version, written byte by byte as `docs/windows.md` draws them.
    #[test]
    fn this_version_is_read_and_others_are_refused() {
        let segment = segment();
        let offset = place(&segment, 0, Block::bytes(2));
        let raw = crate::arena::view(&segment, 0, offset, Block::bytes(2)).unwrap();
        raw.write(0, &4u32.to_ne_bytes());
        raw.write(4, &2u32.to_ne_bytes());
        raw.write(128 + 256, &2u64.to_ne_bytes()); // lock of target 1: two of class 0
        raw.write(192 + 256, &1u32.to_ne_bytes()); // accumulate: rank 0 does
        raw.write(196 + 256, &1u32.to_ne_bytes()); // and waited for
        raw.write(256 + 256, &(4096u64 + 1).to_ne_bytes()); // its table
        raw.write(128 + 512 + 8 * 2, &5u32.to_ne_bytes()); // posted to 1 by 0
        raw.write(132 + 512 + 8, &6u32.to_ne_bytes()); // completed at 0 by 1
        raw.write(128 + 512 + 32 + 12, &2u32.to_ne_bytes()); // rank 1 has target 0 exclusively
        raw.write(128 + 512 + 32 + 20, &1u32.to_ne_bytes()); // and all
        let block = Block::open(&segment, 0, offset, 2).unwrap();
        assert!(!block.lock(1).enter(1, true) && block.lock(1).enter(0, false));
        assert!(block.accumulate(0).enter(0) && !block.accumulate(0).leave());
        assert!(!block.accumulate(1).enter(1) && block.accumulate(1).holder() == Some(0));
        assert!(block.accumulate(1).leave());
        assert_eq!((block.table(0), block.table(1)), (None, Some(4096)));
        assert_eq!(block.posted(1, 0).load(Ordering::Relaxed), 5);
        assert_eq!(block.completed(0, 1).load(Ordering::Relaxed), 6);
        let claim = |by, of| block.claim(by, of).load(Ordering::Relaxed);
        assert_eq!((claim(1, Some(0)), claim(1, None)), (2, 1));
        assert_eq!((claim(1, Some(1)), claim(0, Some(1))), (0, 0));
        raw.write(0, &3u32.to_ne_bytes());
        assert!(Block::open(&segment, 0, offset, 2).is_none());

        let offset = place(&segment, 2, Table::bytes(1));
        let raw = crate::arena::view(&segment, 2, offset, Table::bytes(1)).unwrap();
        raw.write(0, &4u32.to_ne_bytes());
        raw.write(4, &1u32.to_ne_bytes());
        for (at, word) in [(72, 1000u64), (80, 24), (88, 640)] {
            raw.write(at, &word.to_ne_bytes());
        }
        raw.write(64 + 4, &2u32.to_ne_bytes());
        let found = Attached {
            address: 1000,
            bytes: 24,
            place: Some((1, 640)),
        };
        let table = Table::open(&segment, 2, offset).unwrap();
        assert_eq!(table.find(1000, 24), Some(found));
        raw.write(64, &1u32.to_ne_bytes());
        assert_eq!(table.find(1000, 24), None, "it is being changed");
        raw.write(0, &3u32.to_ne_bytes());
        assert!(Table::open(&segment, 2, offset).is_none());
    }

    #[test]
    fn both_sides_see_one_block() {
        let segment = segment();
        let offset = place(&segment, 1, Block::bytes(3));
        assert!(Block::open(&segment, 1, offset, 3).is_none());
        let a = Block::create(&segment, 1, offset, 3).unwrap();
        let peer = Arc::new(Segment::join(segment.fd().try_clone_to_owned().unwrap()).unwrap());
        let b = Block::open(&peer, 1, offset, 3).unwrap();
        assert!(Block::open(&peer, 1, offset, 2).is_none());
        assert!(Block::create(&peer, 1, offset, u32::MAX).is_none());
        assert!(Block::create(&peer, 1, u64::MAX - 127, 1).is_none());
        a.posted(2, 1).store(7, Ordering::Release);
        a.completed(2, 1).store(8, Ordering::Release);
        assert_eq!(b.posted(2, 1).load(Ordering::Acquire), 7);
        assert_eq!(b.completed(2, 1).load(Ordering::Acquire), 8);
        assert!(a.lock(2).enter(1, true));
        assert!(!b.lock(2).enter(0, false));
        assert!(b.accumulate(2).enter(0) && !a.accumulate(2).enter(0));
        let waits = a.accumulate(2).waits();
        assert!(b.accumulate(2).leave());
        drop(waits);
        assert!(!b.accumulate(2).leave());
        assert!(a.lock(2).leave(1));
        assert!(b.lock(2).enter(0, false));
    }

    #[test]
    fn classes_exclude_each_other_and_solo_itself() {
        let lock = Lock::default();
        assert!(lock.enter(0, false) && lock.enter(0, false));
        assert!(!lock.enter(1, false));
        assert!(lock.leave(0));
        assert!(!lock.leave(0));
        assert!(lock.enter(1, false) && lock.enter(1, false));
        assert!(!lock.enter(1, true) && !lock.enter(0, false));
        assert!(lock.leave(1));
        assert!(!lock.leave(1));
        assert!(lock.enter(1, true));
        assert!(!lock.enter(0, true));
        assert!(lock.leave(1));
        assert!(
            lock.enter(0, true) && lock.enter(0, true),
            "class 0 is shared"
        );
        assert!(!lock.enter(1, true));
    }

    /// Four threads count to 80,000 with a counter that only the lock protects.
    fn threads_count(enter: impl Fn() -> bool + Sync, leave: impl Fn() -> bool + Sync) {
        let counter = AtomicU64::new(0);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..20_000 {
                        while !enter() {
                            std::thread::yield_now();
                        }
                        let value = counter.load(Ordering::Relaxed);
                        counter.store(value + 1, Ordering::Relaxed);
                        let _ = leave();
                    }
                });
            }
        });
        assert_eq!(counter.into_inner(), 80_000);
    }

    #[test]
    fn threads_take_turns() {
        let lock = Lock::default();
        threads_count(|| lock.enter(1, true), || lock.leave(1));
        let turn = Turn::default();
        threads_count(|| turn.enter(0), || turn.leave());
    }

    #[test]
    fn attachments_are_found_while_they_last() {
        let segment = segment();
        let offset = place(&segment, 2, Table::bytes(4));
        assert!(Table::open(&segment, 2, offset).is_none());
        let table = Table::create(&segment, 2, offset, 4).unwrap();
        let seen = Table::open(&segment, 2, offset).unwrap();
        assert_eq!(seen.capacity(), 4);
        let a = Attached {
            address: 1000,
            bytes: 24,
            place: None,
        };
        let b = Attached {
            address: 5000,
            bytes: 8,
            place: Some((1, 64)),
        };
        table.set(0, Some(a));
        table.set(3, Some(b));
        assert_eq!(seen.find(1008, 16), Some(a));
        assert_eq!(seen.find(1008, 17), None);
        assert_eq!(seen.find(5000, 8), Some(b));
        let c = Attached { address: 1024, ..a };
        table.set(1, Some(c));
        assert_eq!(
            seen.find(1008, 32).map(|f| (f.address, f.bytes)),
            Some((1000, 48))
        );
        assert_eq!(seen.find(1008, 48), None);
        table.set(0, None);
        assert_eq!(seen.find(1008, 1), None);
    }
}
