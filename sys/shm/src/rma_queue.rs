//! Where an origin leaves one-sided operations for a target that it can reach only through the
//! system.
//!
//! An RMA queue belongs to one origin and one target and lies in the target's arena. It has slots,
//! used in turn, and room for data that does not fit a slot. The origin alone *posts*. Entries are
//! done in the order in which they were posted, by the process that holds the *key*: the target,
//! when it looks, or the origin, which so takes back what the target has not done. Nobody waits for
//! the key but an origin whose target is just at work, which is so for moments, or longer where the
//! target has lost its core; it sleeps then like who waits for a [turn](crate::turn), which the key
//! is. `docs/windows.md` draws the bytes.
//!
//! Why that is right: what an entry needs is stored before its sequence number (release), and read
//! after it (acquire). Only the holder of the key does entries and counts them as done; the key is
//! taken by an acquiring exchange and given back by a releasing store behind the count, so the next
//! holder sees the count and all effects on the target's memory that were made by loads and stores,
//! and does no entry twice and none out of turn. An origin that sees the count (acquire) sees
//! results. A slot is written again only when its entry is done.

#[cfg(not(loom))]
use std::ptr::NonNull;
#[cfg(not(loom))]
use std::sync::Arc;

#[cfg(not(loom))]
use crate::arena;
#[cfg(not(loom))]
use crate::segment::Segment;
use crate::turn::{Turn, Waits};
use margay_sys_os::sync::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
use margay_sys_os::user::Mem;

/// The version of the format.
pub const VERSION: u32 = 2;

/// Entries that fit at a time.
pub const SLOTS: u64 = if cfg!(loom) { 2 } else { 32 };

/// Bytes of data in a slot.
pub const IN_SLOT: usize = 32;

/// Bytes of data beside the slots.
pub const ROOM: usize = BYTES as usize - ROOM_AT;

/// Bytes of an RMA queue.
pub const BYTES: u64 = 80 << 10;

const ROOM_AT: usize = size_of::<Entries>();

#[repr(C, align(64))]
struct Line<T>(T);

#[repr(C)]
struct Lock {
    version: AtomicU32,
    key: Turn,
}

#[repr(C, align(64))]
struct Slot {
    /// 1 + the number of the entry.
    sequence: AtomicU64,
    verb: AtomicU64,
    at: AtomicU64,
    data: AtomicU64,
    _bytes: [AtomicU64; IN_SLOT / 8],
}

/// What is in an RMA queue in front of the data.
#[repr(C)]
pub struct Entries {
    lock: Line<Lock>,
    /// Entries that are done, since the beginning.
    done: Line<AtomicU64>,
    slots: [Slot; SLOTS as usize],
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What to do.
    pub verb: u8,
    /// Handle of the reduction.
    pub op: u16,
    /// Handle of the element type.
    pub basic: u16,
    /// Where in the target's window, in bytes.
    pub at: u64,
    /// How many bytes of it.
    pub bytes: u32,
    /// Where the entry's data begins in the queue.
    pub data: u32,
}

/// One side's view of an RMA queue.
#[cfg(not(loom))]
pub struct RmaQueue {
    mem: Mem,
    entries: NonNull<Entries>,
}

// SAFETY: the pointer is into memory that `mem` keeps mapped; what is shared through it is atomic.
#[cfg(not(loom))]
unsafe impl Send for RmaQueue {}
// SAFETY: as above.
#[cfg(not(loom))]
unsafe impl Sync for RmaQueue {}

#[cfg(not(loom))]
impl RmaQueue {
    /// The target makes the zeroed memory at `offset` of the arena of `owner` an RMA queue. None
    /// when it cannot be mapped.
    #[must_use]
    pub fn create(segment: &Arc<Segment>, owner: u32, offset: u64) -> Option<RmaQueue> {
        let queue = RmaQueue::map(segment, owner, offset)?;
        let version = &queue.lock.0.version;
        version.store(VERSION, Ordering::Release);
        Some(queue)
    }

    /// Views the queue there. None when it cannot be mapped or is none of this version.
    #[must_use]
    pub fn open(segment: &Arc<Segment>, owner: u32, offset: u64) -> Option<RmaQueue> {
        let queue = RmaQueue::map(segment, owner, offset)?;
        let version = queue.lock.0.version.load(Ordering::Acquire);
        (version == VERSION).then_some(queue)
    }

    fn map(segment: &Arc<Segment>, owner: u32, offset: u64) -> Option<RmaQueue> {
        if !offset.is_multiple_of(64) || owner >= segment.ranks() {
            return None;
        }
        let mem = arena::view(segment, owner, offset, BYTES)?;
        // SAFETY: inside of the arena (checked by the view).
        let entries = unsafe { segment.arena(owner)?.add(offset as usize) }.cast();
        Some(RmaQueue { mem, entries })
    }

    /// The memory of the queue, for the data of entries.
    #[must_use]
    #[inline]
    pub fn mem(&self) -> &Mem {
        &self.mem
    }

    /// Where the data of entry `number` lies if it fits the slot.
    #[must_use]
    #[inline]
    pub fn in_slot(number: u64) -> u32 {
        let slot =
            std::mem::offset_of!(Entries, slots) + (number % SLOTS) as usize * size_of::<Slot>();
        (slot + size_of::<Slot>() - IN_SLOT) as u32
    }

    /// Where the data `used` bytes behind the slots lies.
    #[must_use]
    #[inline]
    pub fn in_room(used: usize) -> u32 {
        (ROOM_AT + used) as u32
    }
}

#[cfg(not(loom))]
impl std::ops::Deref for RmaQueue {
    type Target = Entries;

    #[inline]
    fn deref(&self) -> &Entries {
        // SAFETY: the memory is mapped, aligned (the offset is a multiple of 64) and long enough;
        // atomics.
        unsafe { self.entries.as_ref() }
    }
}

impl Entries {
    /// How many are done; what they did and brought is seen after this.
    #[must_use]
    #[inline]
    pub fn done(&self) -> u64 {
        self.done.0.load(Ordering::Acquire)
    }

    /// Takes the key if nobody holds it.
    #[inline]
    #[must_use]
    pub fn enter(&self) -> bool {
        self.lock.0.key.enter(0)
    }

    /// Gives the key back; `done` entries are done now. Returns whether the other side may wait for
    /// it: then it must be woken.
    #[inline]
    #[must_use]
    pub fn leave(&self, done: u64) -> bool {
        self.done.0.store(done, Ordering::Release);
        self.lock.0.key.leave()
    }

    /// Counts the caller as waiting for the key until the result is dropped.
    #[must_use]
    pub fn waits(&self) -> Waits<'_> {
        self.lock.0.key.waits()
    }

    /// Posts entry `number`, whose data has been stored; the origin alone. The entry [`SLOTS`]
    /// before it is done.
    #[inline]
    pub fn post(&self, number: u64, entry: Entry) {
        let slot = self.slot(number);
        let (op, basic) = (u64::from(entry.op), u64::from(entry.basic));
        let verb = u64::from(entry.verb) | op << 16 | basic << 32;
        slot.verb.store(verb, Ordering::Relaxed);
        slot.at.store(entry.at, Ordering::Relaxed);
        let data = u64::from(entry.bytes) | u64::from(entry.data) << 32;
        slot.data.store(data, Ordering::Relaxed);
        slot.sequence.store(number + 1, Ordering::Release);
    }

    /// Entry `number`, if it has been posted.
    #[must_use]
    #[inline]
    pub fn entry(&self, number: u64) -> Option<Entry> {
        let slot = self.slot(number);
        if slot.sequence.load(Ordering::Acquire) != number + 1 {
            return None;
        }
        let verb = slot.verb.load(Ordering::Relaxed);
        let data = slot.data.load(Ordering::Relaxed);
        Some(Entry {
            verb: verb as u8,
            op: (verb >> 16) as u16,
            basic: (verb >> 32) as u16,
            at: slot.at.load(Ordering::Relaxed),
            bytes: data as u32,
            data: (data >> 32) as u32,
        })
    }

    #[inline]
    fn slot(&self, number: u64) -> &Slot {
        &self.slots[(number % SLOTS) as usize]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::mem::offset_of;

    use super::*;
    use crate::arena::Arena;
    use crate::layout::Sizes;

    fn place() -> (Arc<Segment>, u64) {
        let sizes = Sizes {
            ranks: 2,
            heap_bytes: 1 << 20,
            arena_bytes: 1 << 20,
        };
        let segment = Arc::new(Segment::create(sizes).unwrap());
        let address = Arena::new(&segment, 1).alloc(BYTES).unwrap();
        let offset = segment.place_of(address, BYTES).unwrap().1;
        (segment, offset)
    }

    const ENTRY: Entry = Entry {
        verb: 3,
        op: 0x23,
        basic: 0x214,
        at: 1 << 40,
        bytes: 24,
        data: 160,
    };

    #[test]
    fn the_queue_is_as_drawn() {
        assert_eq!(size_of::<Slot>(), 64);
        assert_eq!(
            (offset_of!(Entries, done), offset_of!(Entries, slots)),
            (64, 128)
        );
        assert_eq!((offset_of!(Lock, key), size_of::<Lock>()), (4, 12));
        assert_eq!(offset_of!(Slot, data), 24);
        assert_eq!((ROOM_AT, ROOM), (2176, 79744));
        assert_eq!((RmaQueue::in_slot(0), RmaQueue::in_slot(33)), (160, 224));
        assert_eq!(RmaQueue::in_room(8), 2184);
    }

    /// An RMA queue of this version, written byte by byte as `docs/windows.md` draws it.
    #[test]
    fn this_version_is_read_and_others_are_refused() {
        let (segment, offset) = place();
        assert!(RmaQueue::open(&segment, 1, offset).is_none());
        let raw = arena::view(&segment, 1, offset, BYTES).unwrap();
        raw.write(0, &2u32.to_ne_bytes());
        raw.write(4, &1u32.to_ne_bytes());
        raw.write(8, &1u32.to_ne_bytes());
        raw.write(64, &5u64.to_ne_bytes());
        let slot = 128 + 5 * 64;
        raw.write(slot, &6u64.to_ne_bytes());
        raw.write(slot + 8, &0x0214_0023_0003_u64.to_ne_bytes());
        raw.write(slot + 16, &(1u64 << 40).to_ne_bytes());
        raw.write(slot + 24, &24u32.to_ne_bytes());
        raw.write(slot + 28, &160u32.to_ne_bytes());
        let queue = RmaQueue::open(&segment, 1, offset).unwrap();
        assert!(!queue.enter(), "somebody holds the key");
        assert_eq!(queue.done(), 5);
        assert_eq!(queue.entry(5), Some(ENTRY));
        assert_eq!(queue.entry(6), None);
        assert!(queue.leave(6), "somebody waits");
        raw.write(0, &1u32.to_ne_bytes());
        assert!(RmaQueue::open(&segment, 1, offset).is_none());
    }

    /// An origin that posts numbers, and two that do what was posted: each is done once and in
    /// turn.
    #[test]
    fn entries_are_done_once_and_in_turn() {
        const ENTRIES: u64 = 200_000;
        let (segment, offset) = place();
        let target = RmaQueue::create(&segment, 1, offset).unwrap();
        let origin = RmaQueue::open(&segment, 1, offset).unwrap();
        let next = AtomicU64::new(0);
        let work = |queue: &RmaQueue, most: u64| {
            if !queue.enter() {
                return;
            }
            let mut done = queue.done();
            for _ in 0..most {
                let Some(entry) = queue.entry(done) else {
                    break;
                };
                let mut data = [0; 8];
                queue.mem().read(i64::from(entry.data), &mut data);
                assert_eq!(u64::from_ne_bytes(data), done * 3);
                assert_eq!(next.fetch_add(1, Ordering::Relaxed), done);
                done += 1;
            }
            assert!(!queue.leave(done), "nobody waits");
        };
        std::thread::scope(|s| {
            s.spawn(|| {
                while target.done() < ENTRIES {
                    work(&target, 3);
                }
            });
            for number in 0..ENTRIES {
                while number - origin.done() >= SLOTS {
                    work(&origin, SLOTS);
                }
                let data = RmaQueue::in_slot(number);
                let bytes = (number * 3).to_ne_bytes();
                origin.mem().write(i64::from(data), &bytes);
                origin.post(number, Entry { data, ..ENTRY });
                if number % 7 == 0 {
                    work(&origin, 1);
                }
            }
        });
        assert_eq!(next.into_inner(), ENTRIES);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use margay_sys_os::event_count::EventCount;
    use margay_sys_os::sync::Cell;

    const ENTRIES: u64 = 3;

    struct Shared {
        entries: Entries,
        /// What the origin stores before it posts, a place for each slot, as the data of entries.
        data: [Cell<u64>; SLOTS as usize],
        /// The numbers that were done, one after the other: what is done to the target's memory.
        effect: Cell<Vec<u64>>,
        /// That of the origin.
        event_count: EventCount,
    }

    // SAFETY: what is not atomic is watched by loom, which is what the model is for.
    unsafe impl Sync for Shared {}
    // SAFETY: as above.
    unsafe impl Send for Shared {}

    impl Shared {
        fn new() -> Shared {
            let word = || AtomicU64::new(0);
            let slot = |_| Slot {
                sequence: word(),
                verb: word(),
                at: word(),
                data: word(),
                _bytes: std::array::from_fn(|_| word()),
            };
            Shared {
                entries: Entries {
                    lock: Line(Lock {
                        version: AtomicU32::new(VERSION),
                        key: Turn::new(),
                    }),
                    done: Line(word()),
                    slots: std::array::from_fn(slot),
                },
                data: std::array::from_fn(|_| Cell::new(0)),
                effect: Cell::new(Vec::new()),
                event_count: EventCount::new(),
            }
        }

        /// Does what is posted, as who holds the key. Returns how many are done now.
        fn serve(&self) -> u64 {
            let mut done = self.entries.done();
            while let Some(entry) = self.entries.entry(done) {
                assert_eq!(entry.at, done);
                // SAFETY: the origin writes there again when the entry is done.
                let data = self.data[(done % SLOTS) as usize].with(|at| unsafe { *at });
                // SAFETY: only the holder of the key is here.
                self.effect.with_mut(|at| unsafe { (*at).push(data) });
                done += 1;
            }
            done
        }

        /// As an origin: everything is done after this, by the one or by the other.
        fn complete(&self) {
            if !self.entries.enter() {
                let _waits = self.entries.waits();
                let mut has = self.entries.enter();
                while !has {
                    self.event_count.sleep(u64::MAX, || {
                        has = self.entries.enter();
                        has
                    });
                    has = has || self.entries.enter();
                }
            }
            let done = self.serve();
            let _ = self.entries.leave(done);
        }
    }

    /// Every interleaving of an origin that posts more than there is room for, takes back what is
    /// not done and sleeps while the target has the key, and a target that looks: all is done once
    /// and in turn, by somebody who sees the data.
    #[test]
    fn entries_are_done_once_and_in_turn_under_loom() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let shared = Arc::new(Shared::new());
            let target = shared.clone();
            let target = loom::thread::spawn(move || {
                for _ in 0..2 {
                    if target.entries.entry(target.entries.done()).is_some()
                        && target.entries.enter()
                    {
                        let done = target.serve();
                        if target.entries.leave(done) {
                            target.event_count.wake();
                        }
                    }
                }
            });
            for number in 0..ENTRIES {
                if number - shared.entries.done() >= SLOTS {
                    shared.complete();
                }
                // SAFETY: the entry that was there before is done.
                shared.data[(number % SLOTS) as usize].with_mut(|at| unsafe { *at = number + 10 });
                let entry = Entry {
                    verb: 1,
                    op: 0,
                    basic: 0,
                    at: number,
                    bytes: 8,
                    data: 0,
                };
                shared.entries.post(number, entry);
            }
            shared.complete();
            assert_eq!(shared.entries.done(), ENTRIES);
            target.join().unwrap();
            // SAFETY: nobody else is left.
            shared
                .effect
                .with(|at| assert_eq!(unsafe { &*at }, &[10, 11, 12]));
        });
    }
}
