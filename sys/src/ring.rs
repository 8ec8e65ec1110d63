//! A pipe between two ranks: a single-producer single-consumer ring of cache lines, and a byte area
//! beside it for payloads that do not fit into a line.
//!
//! A line is published by one store: its first word carries a sequence number that tells the lap, so
//! the consumer polls the very line that brings the message and a message of up to 40 bytes costs
//! one cache-line transfer. Memory orderings:
//!
//! - The producer writes words 1..8 (relaxed) and the byte area (plain), then word 0 with *release*.
//!   The consumer reads word 0 with *acquire*; when the sequence is the one it expects, it sees all
//!   that was written before.
//! - The consumer gives lines and bytes back by storing its heads with *release* after it has read
//!   them; the producer loads the heads with *acquire* before it writes there again. So no line and
//!   no byte is written while the consumer may read it.
//! - Heads are published once a quarter of the ring, not once a message: the line with the heads
//!   then moves between the cores rarely. A quarter that is never published cannot stop the
//!   producer, because a fragment is at most [`MAX_FRAGMENT`] long.
//!
//! Sequence numbers are the low 32 bits of the line's position plus one. A slot's old value is one
//! lap behind, and zeroed memory is position -1, so neither is ever taken for a new line.

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use std::ptr::NonNull;
use std::sync::Arc;

#[cfg(not(loom))]
use crate::segment::Segment;

/// Lines in a ring.
pub const LINES: u64 = if cfg!(loom) { 4 } else { 64 };
/// Bytes in the area beside the lines.
pub const BYTES: u64 = if cfg!(loom) { 32 } else { 16 << 10 };
/// Longest payload of one line. With a quarter of the area unpublished and the worst skip at its
/// end, a fragment of 3/8 of the area always finds room in an empty ring.
pub const MAX_FRAGMENT: usize = (BYTES as usize) * 3 / 8;

/// One message: word 0 is the sequence (low half) and the caller's word (high half).
pub type LineWords = [u64; 8];

#[repr(C, align(64))]
struct Line([AtomicU64; 8]);

#[repr(C, align(128))]
struct Heads {
    lines: AtomicU64,
    bytes: AtomicU64,
    /// 1 once there is a producer, 1 once there is a consumer.
    producer: AtomicU32,
    consumer: AtomicU32,
}

/// The ring in memory; zeroed memory is an empty ring.
#[repr(C, align(128))]
pub struct Shared {
    heads: Heads,
    lines: [Line; LINES as usize],
    bytes: std::cell::UnsafeCell<[u8; BYTES as usize]>,
}

// SAFETY: lines and heads are atomics; the byte area follows the protocol of the module.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

/// What keeps a ring's memory alive.
#[derive(Clone)]
enum Home {
    #[cfg(not(loom))]
    Segment {
        _keep: Arc<Segment>,
        at: NonNull<Shared>,
    },
    #[cfg(any(test, loom))]
    Heap(Arc<Shared>),
}

impl Home {
    #[inline]
    fn get(&self) -> &Shared {
        match self {
            #[cfg(not(loom))]
            // SAFETY: `at` was checked to lie inside the segment, aligned, and the segment is kept.
            Home::Segment { at, .. } => unsafe { at.as_ref() },
            #[cfg(any(test, loom))]
            Home::Heap(shared) => shared,
        }
    }
}

/// The sending end.
pub struct Producer {
    home: Home,
    tail: u64,
    seen_head: u64,
    byte_tail: u64,
    seen_byte_head: u64,
}

// SAFETY: the end may move between threads; the memory it points to is kept by its home.
unsafe impl Send for Producer {}

/// The receiving end.
pub struct Consumer {
    home: Home,
    head: u64,
    told_head: u64,
    byte_head: u64,
    told_byte_head: u64,
}

// SAFETY: as for the producer.
unsafe impl Send for Consumer {}

/// Room in the byte area, to be filled and then pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Where the bytes start, in the area.
    pub start: u32,
    /// By how much the area's head moves when the consumer is done: length and skipped end.
    pub advance: u32,
}

/// Size of a ring in the segment's heap, in bytes.
#[must_use]
pub const fn size_bytes() -> u64 {
    size_of::<Shared>() as u64
}

#[cfg(not(loom))]
impl Producer {
    /// Makes a new ring in the segment's heap and returns its producer and its offset. None when
    /// the heap's address space is used up.
    #[must_use]
    pub fn create(segment: &Arc<Segment>) -> Option<(Producer, u64)> {
        let offset = segment.heap_alloc(size_bytes())?;
        let home = open(segment, offset)?;
        claim(&home.get().heads.producer).then(|| (Producer::at(home), offset))
    }
}

#[cfg(not(loom))]
impl Consumer {
    /// Opens the ring at `offset`. None when there is no room for a ring there or when it has a
    /// consumer already.
    #[must_use]
    pub fn open(segment: &Arc<Segment>, offset: u64) -> Option<Consumer> {
        let home = open(segment, offset)?;
        claim(&home.get().heads.consumer).then(|| Consumer::at(home))
    }
}

#[cfg(not(loom))]
fn open(segment: &Arc<Segment>, offset: u64) -> Option<Home> {
    let at = segment.heap_at(offset, size_bytes(), 128)?;
    Some(Home::Segment {
        _keep: segment.clone(),
        at: at.cast(),
    })
}

/// The bytes of some words, as they lie in memory.
#[must_use]
#[inline]
pub fn as_bytes(words: &[u64]) -> &[u8] {
    // SAFETY: any u64 is eight valid bytes and a byte needs no alignment.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

fn claim(flag: &AtomicU32) -> bool {
    flag.swap(1, Ordering::AcqRel) == 0
}

/// A ring in private memory, for models and tests.
#[cfg(any(test, loom))]
#[must_use]
pub fn in_private_memory() -> (Producer, Consumer) {
    let shared = Arc::new(Shared {
        heads: Heads {
            lines: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            producer: AtomicU32::new(1),
            consumer: AtomicU32::new(1),
        },
        lines: std::array::from_fn(|_| Line(std::array::from_fn(|_| AtomicU64::new(0)))),
        bytes: std::cell::UnsafeCell::new([0; BYTES as usize]),
    });
    let home = Home::Heap(shared);
    (Producer::at(home.clone()), Consumer::at(home))
}

impl Producer {
    fn at(home: Home) -> Producer {
        Producer {
            home,
            tail: 0,
            seen_head: 0,
            byte_tail: 0,
            seen_byte_head: 0,
        }
    }

    /// Whether a line can be pushed now.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        if self.tail - self.seen_head < LINES {
            return true;
        }
        self.seen_head = self.home.get().heads.lines.load(Ordering::Acquire);
        self.tail - self.seen_head < LINES
    }

    /// Pushes a line: `top` goes into the high half of word 0, `words` into the following words.
    /// Returns false when the ring is full.
    #[inline]
    pub fn push(&mut self, top: u32, words: &[u64]) -> bool {
        if !self.has_room() {
            return false;
        }
        let line = &self.home.get().lines[(self.tail % LINES) as usize].0;
        for (place, &word) in line[1..].iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        self.tail += 1;
        line[0].store(
            u64::from(top) << 32 | (self.tail & 0xffff_ffff),
            Ordering::Release,
        );
        true
    }

    /// Room for `len` bytes in one piece, if there is any now. Nothing is taken until a line that
    /// names it is pushed with [`push_with`](Self::push_with).
    #[inline]
    pub fn room(&mut self, len: usize) -> Option<Room> {
        if len > MAX_FRAGMENT {
            return None;
        }
        let len = len as u64;
        let at = self.byte_tail % BYTES;
        let skip = if at + len > BYTES { BYTES - at } else { 0 };
        let end = self.byte_tail + skip + len;
        if end - self.seen_byte_head > BYTES {
            self.seen_byte_head = self.home.get().heads.bytes.load(Ordering::Acquire);
            if end - self.seen_byte_head > BYTES {
                return None;
            }
        }
        Some(Room {
            start: ((at + skip) % BYTES) as u32,
            advance: (skip + len) as u32,
        })
    }

    /// Fills `len` bytes of `room` by `fill` and pushes a line for them; `words` must tell the
    /// consumer the room. Returns false, without filling, when the ring has no line free.
    #[inline]
    pub fn push_with(
        &mut self,
        top: u32,
        words: &[u64],
        room: Room,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        assert!(
            u64::from(room.start) + len as u64 <= BYTES && len <= room.advance as usize,
            "{room:?} does not hold {len} bytes"
        );
        if !self.has_room() {
            return false;
        }
        let bytes = self.home.get().bytes.get().cast::<u8>();
        // SAFETY: `room` was found free by this only producer and lies inside the area (asserted);
        // the consumer reads it only after the line below is published.
        fill(unsafe { std::slice::from_raw_parts_mut(bytes.add(room.start as usize), len) });
        self.byte_tail += u64::from(room.advance);
        self.push(top, words)
    }
}

impl Consumer {
    fn at(home: Home) -> Consumer {
        Consumer {
            home,
            head: 0,
            told_head: 0,
            byte_head: 0,
            told_byte_head: 0,
        }
    }

    /// The next line, if one has arrived: the high half of word 0 and all words. It stays until
    /// [`release`](Self::release).
    #[inline]
    #[must_use]
    pub fn peek(&self) -> Option<(u32, LineWords)> {
        let line = &self.home.get().lines[(self.head % LINES) as usize].0;
        let first = line[0].load(Ordering::Acquire);
        if first as u32 != (self.head + 1) as u32 {
            return None;
        }
        let mut words = [first, 0, 0, 0, 0, 0, 0, 0];
        for (word, place) in words[1..].iter_mut().zip(&line[1..]) {
            *word = place.load(Ordering::Relaxed);
        }
        Some(((first >> 32) as u32, words))
    }

    /// The bytes that the current line speaks of. None when they are not inside the area (a peer
    /// that does not keep the format).
    #[inline]
    #[must_use]
    pub fn bytes(&self, start: u32, len: usize) -> Option<&[u8]> {
        if u64::from(start) + len as u64 > BYTES {
            return None;
        }
        let bytes = self.home.get().bytes.get().cast::<u8>();
        // SAFETY: inside the area; the producer does not write there before `release` gives the
        // bytes back, which needs `&mut self` and so ends this borrow.
        Some(unsafe { std::slice::from_raw_parts(bytes.add(start as usize), len) })
    }

    /// Gives the current line back, and `advance` bytes with it. Returns true when that was told to
    /// the producer, who may wait for it.
    #[inline]
    pub fn release(&mut self, advance: u32) -> bool {
        self.head += 1;
        self.byte_head += u64::from(advance);
        let lines_due = self.head - self.told_head >= LINES / 4;
        let bytes_due = self.byte_head - self.told_byte_head >= BYTES / 4;
        let heads = &self.home.get().heads;
        if bytes_due {
            self.told_byte_head = self.byte_head;
            heads.bytes.store(self.byte_head, Ordering::Release);
        }
        if lines_due {
            self.told_head = self.head;
            heads.lines.store(self.head, Ordering::Release);
        }
        lines_due || bytes_due
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::segment::Sizes;

    #[test]
    fn a_million_messages_arrive_whole_and_in_order() {
        let (mut tx, mut rx) = in_private_memory();
        let n: u64 = if cfg!(miri) { 300 } else { 1_000_000 };
        std::thread::scope(|s| {
            s.spawn(move || {
                let mut i = 0u64;
                while i < n {
                    let sent = if i.is_multiple_of(3) {
                        let len = (i * 37 % 5000) as usize;
                        tx.room(len).is_some_and(|room| {
                            let place = u64::from(room.start) | u64::from(room.advance) << 32;
                            tx.push_with(1, &[i, len as u64, place], room, len, |b| {
                                b.fill(i as u8);
                            })
                        })
                    } else {
                        tx.push(0, &[i, i ^ 0x5555, 3, 4, 5, 6, !i])
                    };
                    if sent {
                        i += 1;
                    } else {
                        std::thread::yield_now();
                    }
                }
            });
            for i in 0..n {
                let (top, words) = loop {
                    match rx.peek() {
                        Some(line) => break line,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(words[1], i);
                if top == 1 {
                    let len = words[2] as usize;
                    let bytes = rx.bytes(words[3] as u32, len).unwrap();
                    assert!(bytes.iter().all(|&b| b == i as u8), "message {i}");
                    rx.release((words[3] >> 32) as u32);
                } else {
                    assert_eq!((words[2], words[7]), (i ^ 0x5555, !i));
                    rx.release(0);
                }
            }
        });
    }

    #[test]
    fn a_full_ring_says_so_and_goes_on() {
        let (mut tx, mut rx) = in_private_memory();
        let mut pushed = 0;
        while tx.push(0, &[pushed]) {
            pushed += 1;
        }
        assert_eq!(pushed, LINES);
        for i in 0..LINES {
            assert_eq!(rx.peek().unwrap().1[1], i);
            rx.release(0);
        }
        assert!(rx.peek().is_none());
        assert!(tx.push(0, &[7]));
        assert_eq!(rx.peek().unwrap().1[1], 7);
    }

    #[test]
    fn the_longest_fragment_always_finds_room_in_an_empty_ring() {
        let (mut tx, mut rx) = in_private_memory();
        for step in 1..2000usize {
            for len in [step * 131 % MAX_FRAGMENT, MAX_FRAGMENT] {
                let room = tx.room(len).expect("room in an empty ring");
                assert!(tx.push_with(0, &[], room, len, |_| {}));
                assert!(rx.peek().is_some());
                rx.release(room.advance);
            }
        }
        assert_eq!(tx.room(MAX_FRAGMENT + 1), None);
    }

    #[test]
    fn a_ring_has_one_producer_and_one_consumer() {
        let segment = Arc::new(
            Segment::create(Sizes {
                ranks: 2,
                heap_bytes: 1 << 20,
                arena_bytes: 1 << 21,
            })
            .unwrap(),
        );
        let (mut tx, offset) = Producer::create(&segment).unwrap();
        let rx = Consumer::open(&segment, offset).unwrap();
        assert!(Consumer::open(&segment, offset).is_none());
        assert!(Consumer::open(&segment, offset + 8).is_none());
        assert!(tx.push(9, &[1, 2]));
        assert_eq!(rx.peek().unwrap().0, 9);
        assert!(rx.bytes(BYTES as u32 - 1, 2).is_none());
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;

    /// Every interleaving of a producer that laps the ring and a consumer that gives back late.
    #[test]
    fn lines_and_bytes_under_loom() {
        loom::model(|| {
            let (mut tx, mut rx) = in_private_memory();
            let producer = loom::thread::spawn(move || {
                for i in 0..5u64 {
                    loop {
                        let room = tx.room(8);
                        let place = room.map_or(0, |r| u64::from(r.start));
                        let sent = room.is_some_and(|room| {
                            tx.push_with(room.advance, &[i, place], room, 8, |b| {
                                b.copy_from_slice(&i.to_ne_bytes());
                            })
                        });
                        if sent {
                            break;
                        }
                        loom::thread::yield_now();
                    }
                }
            });
            for i in 0..5u64 {
                let (advance, words) = loop {
                    match rx.peek() {
                        Some(line) => break line,
                        None => loom::thread::yield_now(),
                    }
                };
                assert_eq!(words[1], i);
                assert_eq!(rx.bytes(words[2] as u32, 8).unwrap(), i.to_ne_bytes());
                rx.release(advance);
            }
            producer.join().unwrap();
        });
    }
}
