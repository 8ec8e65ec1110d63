//! A pipe between two ranks: a single-producer single-consumer ring of cache lines.
//!
//! Every line is published by one store: its first word carries a sequence number that tells the
//! lap, so the consumer polls the very line that brings the message and a message of one line costs
//! one cache-line transfer. A longer message is a run of lines, published in order, each with its
//! own sequence number: the consumer copies the first lines out while the producer still writes the
//! last ones, and the caches move both ways at the same time. (On processors where a line that
//! another core wrote costs 15 ns to read, that is what a message of 4 KiB takes; a head that points
//! to bytes elsewhere costs a second transfer on top.)
//!
//! Memory orderings:
//!
//! - The producer writes words 1..8 of a line (relaxed), then word 0 with *release*. The consumer
//!   reads word 0 with *acquire*; when the sequence is the one it expects, it sees the words.
//! - The consumer gives lines back by storing its head with *release* after it has read them; the
//!   producer loads the head with *acquire* before it writes there again. So no line is written
//!   while the consumer may read it.
//! - The head is published once a quarter of the ring, not once a message: its line then moves
//!   between the cores rarely. A quarter that is never published cannot stop the producer, because
//!   a message is at most [`MAX_LINES`] long.
//!
//! Sequence numbers are the low 32 bits of the line's position plus one. A slot's old value is one
//! lap behind, and zeroed memory is position -1, so neither is ever taken for a new line.

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use std::ptr::NonNull;
use std::sync::Arc;

#[cfg(not(loom))]
use crate::segment::Segment;

/// Lines in a ring.
pub const LINES: u64 = if cfg!(loom) { 4 } else { 256 };
/// Longest message in lines: with a quarter of the ring unpublished it still finds room.
pub const MAX_LINES: u64 = LINES / 2;
/// Payload of a line that continues a message, in bytes.
pub const LINE_BYTES: usize = 56;

/// One line: word 0 is the sequence (low half) and the caller's word (high half).
pub type LineWords = [u64; 8];

#[repr(C, align(64))]
struct Line([AtomicU64; 8]);

#[repr(C, align(128))]
struct Heads {
    lines: AtomicU64,
    /// 1 once there is a producer, 1 once there is a consumer.
    producer: AtomicU32,
    consumer: AtomicU32,
}

/// The ring in memory; zeroed memory is an empty ring.
#[repr(C, align(128))]
pub struct Shared {
    heads: Heads,
    lines: [Line; LINES as usize],
}

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
}

// SAFETY: the end may move between threads; the memory it points to is kept by its home.
unsafe impl Send for Producer {}

/// The receiving end.
pub struct Consumer {
    home: Home,
    head: u64,
    told_head: u64,
}

// SAFETY: as for the producer.
unsafe impl Send for Consumer {}

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
            producer: AtomicU32::new(1),
            consumer: AtomicU32::new(1),
        },
        lines: std::array::from_fn(|_| Line(std::array::from_fn(|_| AtomicU64::new(0)))),
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
        }
    }

    /// Whether `lines` lines can be pushed now.
    #[inline]
    pub fn has_room(&mut self, lines: u64) -> bool {
        if self.tail + lines - self.seen_head <= LINES {
            return true;
        }
        self.seen_head = self.home.get().heads.lines.load(Ordering::Acquire);
        self.tail + lines - self.seen_head <= LINES
    }

    /// Pushes a line: `top` goes into the high half of word 0, `words` into the following words.
    /// Returns false when the ring is full.
    #[inline]
    pub fn push(&mut self, top: u32, words: &[u64]) -> bool {
        if !self.has_room(1) {
            return false;
        }
        self.publish(top, words);
        true
    }

    /// Pushes a line and as many lines as `rest` needs behind it. Returns false when there is no
    /// room for all of them; then nothing was pushed.
    ///
    /// # Panics
    /// When that is more than [`MAX_LINES`].
    #[inline]
    pub fn push_run(&mut self, top: u32, words: &[u64], rest: &[u8]) -> bool {
        let lines = 1 + rest.len().div_ceil(LINE_BYTES) as u64;
        assert!(lines <= MAX_LINES, "{lines} lines in one message");
        if !self.has_room(lines) {
            return false;
        }
        self.publish(top, words);
        let mut pieces = rest.chunks_exact(LINE_BYTES);
        for piece in &mut pieces {
            let mut words = [0; 7];
            for (word, eight) in words.iter_mut().zip(piece.chunks_exact(8)) {
                *word = u64::from_ne_bytes(eight.try_into().expect("eight bytes"));
            }
            self.publish(0, &words);
        }
        let last = pieces.remainder();
        if !last.is_empty() {
            let mut padded = [0; LINE_BYTES];
            padded[..last.len()].copy_from_slice(last);
            let mut words = [0; 7];
            for (word, eight) in words.iter_mut().zip(padded.chunks_exact(8)) {
                *word = u64::from_ne_bytes(eight.try_into().expect("eight bytes"));
            }
            self.publish(0, &words[..last.len().div_ceil(8)]);
        }
        true
    }

    /// Writes the next line; there is room.
    #[inline]
    fn publish(&mut self, top: u32, words: &[u64]) {
        let line = &self.home.get().lines[(self.tail % LINES) as usize].0;
        for (place, &word) in line[1..].iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        self.tail += 1;
        line[0].store(
            u64::from(top) << 32 | (self.tail & 0xffff_ffff),
            Ordering::Release,
        );
    }
}

impl Consumer {
    fn at(home: Home) -> Consumer {
        Consumer {
            home,
            head: 0,
            told_head: 0,
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

    /// Copies the lines behind the current one into `to`, from byte `done` on (a multiple of
    /// [`LINE_BYTES`]), as far as they have arrived. Returns how many bytes of `to` are there now.
    #[inline]
    #[must_use]
    pub fn copy_run(&self, to: &mut [u8], done: usize) -> usize {
        let mut at = done;
        let lines = &self.home.get().lines;
        while at < to.len() {
            let position = self.head + 1 + (at / LINE_BYTES) as u64;
            let line = &lines[(position % LINES) as usize].0;
            if line[0].load(Ordering::Acquire) as u32 != (position + 1) as u32 {
                return at;
            }
            let end = to.len().min(at + LINE_BYTES);
            let piece = &mut to[at..end];
            let mut eights = piece.chunks_exact_mut(8);
            let mut places = line[1..].iter();
            for (eight, place) in (&mut eights).zip(&mut places) {
                eight.copy_from_slice(&place.load(Ordering::Relaxed).to_ne_bytes());
            }
            let rest = eights.into_remainder();
            if !rest.is_empty() {
                let word = line[1 + (end - at) / 8]
                    .load(Ordering::Relaxed)
                    .to_ne_bytes();
                rest.copy_from_slice(&word[..rest.len()]);
            }
            at = end;
        }
        at
    }

    /// Gives `lines` lines back. Returns true when that was told to the producer, who may wait for
    /// it.
    #[inline]
    pub fn release(&mut self, lines: u64) -> bool {
        self.head += lines;
        let due = self.head - self.told_head >= LINES / 4;
        if due {
            self.told_head = self.head;
            self.home
                .get()
                .heads
                .lines
                .store(self.head, Ordering::Release);
        }
        due
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::segment::Sizes;

    fn pattern(i: u64, len: usize) -> Vec<u8> {
        (0..len).map(|j| (i as usize * 31 + j) as u8).collect()
    }

    #[test]
    fn a_million_messages_arrive_whole_and_in_order() {
        let (mut tx, mut rx) = in_private_memory();
        let n: u64 = if cfg!(miri) { 300 } else { 300_000 };
        let length = |i: u64| (i * 37 % (LINE_BYTES as u64 * 90)) as usize;
        std::thread::scope(|s| {
            s.spawn(move || {
                let mut i = 0u64;
                while i < n {
                    let sent = if i.is_multiple_of(3) {
                        tx.push_run(1, &[i], &pattern(i, length(i)))
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
                    let mut bytes = vec![0; length(i)];
                    let mut done = 0;
                    while done < bytes.len() {
                        done = rx.copy_run(&mut bytes, done);
                    }
                    assert_eq!(bytes, pattern(i, length(i)), "message {i}");
                    rx.release(1 + bytes.len().div_ceil(LINE_BYTES) as u64);
                } else {
                    assert_eq!((words[2], words[7]), (i ^ 0x5555, !i));
                    rx.release(1);
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
        assert!(!tx.push_run(0, &[], &[1; 100]));
        for i in 0..LINES {
            assert_eq!(rx.peek().unwrap().1[1], i);
            rx.release(1);
        }
        assert!(rx.peek().is_none());
        assert!(tx.push(0, &[7]));
        assert_eq!(rx.peek().unwrap().1[1], 7);
    }

    #[test]
    fn the_longest_message_always_finds_room_in_an_empty_ring() {
        let (mut tx, mut rx) = in_private_memory();
        let most = (MAX_LINES as usize - 1) * LINE_BYTES;
        for step in 1..2000usize {
            for len in [step * 131 % most, most] {
                assert!(tx.push_run(0, &[], &vec![0; len]), "{len} bytes");
                rx.release(1 + len.div_ceil(LINE_BYTES) as u64);
            }
        }
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
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;

    /// Every interleaving of a producer that laps the ring and a consumer that gives back late.
    #[test]
    fn runs_of_lines_under_loom() {
        loom::model(|| {
            let (mut tx, mut rx) = in_private_memory();
            let producer = loom::thread::spawn(move || {
                for i in 0..4u64 {
                    while !tx.push_run(7, &[i], &[i as u8; 16]) {
                        loom::thread::yield_now();
                    }
                }
            });
            for i in 0..4u64 {
                let words = loop {
                    match rx.peek() {
                        Some((_, words)) => break words,
                        None => loom::thread::yield_now(),
                    }
                };
                assert_eq!(words[1], i);
                let mut bytes = [0; 16];
                let mut done = 0;
                while done < 16 {
                    done = rx.copy_run(&mut bytes, done);
                    if done < 16 {
                        loom::thread::yield_now();
                    }
                }
                assert_eq!(bytes, [i as u8; 16]);
                rx.release(2);
            }
            producer.join().unwrap();
        });
    }
}
