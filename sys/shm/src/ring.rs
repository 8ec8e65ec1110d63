//! A pipe between two ranks: a single-producer single-consumer ring of cache lines.
//!
//! Every line is published by one store: its first word carries a sequence number that tells the
//! lap, so the consumer polls the very line that brings the message and a message of one line costs
//! one cache-line transfer. A longer message is a run of lines, published in order, each with its
//! own sequence number: the consumer copies the first lines out while the producer still writes the
//! last ones, and the caches move both ways at the same time. (On processors where a line that
//! another core wrote costs 15 ns to read, that is what a message of 4 KiB takes; a head that
//! points to bytes elsewhere costs a second transfer on top.)
//!
//! Memory orderings:
//!
//! - The producer writes words 1..8 of a line (plain), then word 0 with *release*. The consumer
//!   reads word 0 with *acquire*; when the sequence is the one it expects, it sees the words, and
//!   nobody writes them until it has given the line back.
//! - The consumer gives lines back by storing its head with *release* after it has read them; the
//!   producer loads the head with *acquire* before it writes there again. So no line is written
//!   while the consumer may read it.
//! - The head is published once a quarter of the ring, not once a message: its line then moves
//!   between the cores rarely. A quarter that is never published cannot stop the producer, because
//!   a message is at most [`MAX_LINES`] long.
//!
//! Sequence numbers are the low 32 bits of the line's position plus one. A slot's old value is one
//! lap behind, and zeroed memory is position -1, so neither is ever taken for a new line.

use margay_sys_os::sync::{AtomicU32, AtomicU64, Cell, Ordering};
#[cfg(not(loom))]
use std::ptr::NonNull;
use std::sync::Arc;

#[cfg(not(loom))]
use crate::pool::{self, Chunk, Pool};
#[cfg(not(loom))]
use crate::segment::Segment;

/// Rings that a rank may have to others at the same time: as many as a cell of a grid in three
/// dimensions has neighbours. With its pool, its cells and its part of a board a rank then has less
/// than 1 MiB, however many ranks there are.
pub const MOST: u64 = 26;

/// Lines in a ring.
pub const LINES: u64 = if cfg!(loom) { 4 } else { 256 };
/// Longest message in lines: with a quarter of the ring unpublished it still finds room.
pub const MAX_LINES: u64 = LINES / 2;
/// Payload of a line that continues a message, in bytes.
pub const LINE_BYTES: usize = 56;

/// A run of up to this many lines is published from its end: its first line, which the consumer
/// polls, then brings all of it. Longer runs are published from the start, so that the consumer
/// copies while the producer still writes.
const BACKWARDS: u64 = 4;

/// This many lines are awaited and read together. A consumer that looks at each line reads ahead,
/// by speculation, into lines that the producer is about to write and takes them away from it; the
/// last of several lines also says that all of them may be fetched at the same time.
const GROUP: usize = 8;

/// In the caller's word of a line: the line tells of a chunk. Only [`Producer::push_chunk`] sets
/// it, so what a line with it says about memory has been written there, whatever else safe code
/// puts into lines.
pub const CHUNK: u32 = 1 << 8;

/// The words of a line that tell where the chunk lies: its bytes, and its flag.
#[cfg(not(loom))]
pub(crate) const CHUNK_WORDS: std::ops::Range<usize> = 4..6;

/// The words of a line behind word 0.
pub type LineWords = [u64; 7];

#[repr(C, align(64))]
struct Line {
    /// Sequence (low half) and the caller's word (high half).
    mark: AtomicU64,
    words: Cell<LineWords>,
}

#[repr(C, align(128))]
struct Heads {
    lines: AtomicU64,
    /// 1 once there is a producer.
    producer: AtomicU32,
    /// [`NONE`], [`READS`] or [`LEFT`].
    consumer: AtomicU32,
}

/// Nobody consumes.
const NONE: u32 = 0;
/// There is a consumer.
const READS: u32 = 1;
/// The consumer has read all that it will, and is gone.
const LEFT: u32 = 2;

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
        segment: Arc<Segment>,
        offset: u64,
        at: NonNull<Shared>,
    },
    #[cfg(any(test, loom))]
    Heap(Arc<Shared>),
}

// SAFETY: marks are atomics; the words of a line are written by the only producer while the line is
// its own and read by the only consumer after the mark, which orders the two.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Home {
    #[inline]
    fn get(&self) -> &Shared {
        match self {
            #[cfg(not(loom))]
            // SAFETY: `at` was checked to lie inside the segment, aligned, and the segment is kept;
            // a `RingPlace` is where a ring has been made.
            Home::Segment { at, .. } => unsafe { at.as_ref() },
            #[cfg(any(test, loom))]
            Home::Heap(shared) => shared,
        }
    }

    /// The segment in which it lies.
    #[cfg(not(loom))]
    fn segment(&self) -> Option<&Arc<Segment>> {
        match self {
            Home::Segment { segment, .. } => Some(segment),
            #[cfg(test)]
            Home::Heap(_) => None,
        }
    }
}

/// Where a ring lies, as its maker has published.
#[cfg(not(loom))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingPlace {
    /// The segment in which it lies, as its id.
    pub(crate) segment: u64,
    pub(crate) offset: u64,
}

#[cfg(not(loom))]
impl RingPlace {
    /// The offset in the segment.
    pub(crate) fn offset(self) -> u64 {
        self.offset
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
    published_head: u64,
    /// 1 + the position of the last line whose chunk was lent.
    #[cfg(not(loom))]
    drained: u64,
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
    /// Makes a new ring in the segment's heap and returns its producer. None when
    /// the heap's address space is used up.
    #[must_use]
    pub fn create(segment: &Arc<Segment>) -> Option<Producer> {
        let place = RingPlace {
            segment: segment.id(),
            offset: segment.heap_alloc(size_bytes())?,
        };
        let home = open(segment, place)?;
        let free = home.get().heads.producer.swap(1, Ordering::AcqRel) == 0;
        free.then(|| Producer::at(home))
    }

    /// Where it lies.
    pub(crate) fn place(&self) -> Option<RingPlace> {
        match &self.home {
            Home::Segment {
                segment, offset, ..
            } => Some(RingPlace {
                segment: segment.id(),
                offset: *offset,
            }),
            #[cfg(test)]
            Home::Heap(_) => None,
        }
    }

    /// As [`restart`](Self::restart), where the consumer's process has ended without leaving.
    #[must_use]
    pub fn restart_without(&mut self, peer: u32) -> bool {
        let segment = self.home.segment();
        let is_gone = segment.is_some_and(|segment| segment.registry().has_exited(peer));
        if is_gone {
            self.home
                .get()
                .heads
                .consumer
                .store(LEFT, Ordering::Relaxed);
        }
        is_gone && self.restart()
    }

    /// Pushes a line that tells of a chunk, which is the peer `to`'s from now on until it gives it
    /// back: `top` as in [`push`](Self::push) and with [`CHUNK`], and `words`, of which two become
    /// the chunk's. Returns false, and puts the chunk back, when the ring is full.
    ///
    /// # Panics
    /// When pool and ring lie in different segments, or the chunk is another pool's.
    pub fn push_chunk(
        &mut self,
        top: u32,
        mut words: LineWords,
        pool: &mut Pool,
        chunk: Chunk,
        to: u32,
    ) -> bool {
        let segment = self.home.segment().map(|segment| segment.id());
        assert_eq!(
            segment,
            Some(pool.segment().id()),
            "segments of ring and pool"
        );
        if !self.has_room(1) {
            pool.put_back(chunk);
            return false;
        }
        words[CHUNK_WORDS].copy_from_slice(&pool.hand_over(chunk, to).words());
        self.publish_any(self.tail, top | CHUNK, |line| *line = words);
        self.tail += 1;
        true
    }
}

#[cfg(not(loom))]
impl Consumer {
    /// Opens the ring at `place` from a position on. None when that is in another segment, when
    /// there is no room for a ring there or when it has, or had, a consumer.
    pub(crate) fn open(
        segment: &Arc<Segment>,
        place: RingPlace,
        position: u64,
    ) -> Option<Consumer> {
        Consumer::enter(open(segment, place)?, position)
    }

    /// Lends the first `len` bytes of the chunk of which the current line tells to `f` and gives
    /// the chunk back to its owner. Returns false when the line tells of none or its chunk has been
    /// lent, when a chunk is not so long, and when the place is not inside of the heap (a peer that
    /// does not keep the format).
    pub fn drain(&mut self, len: usize, f: impl FnOnce(&[u8])) -> bool {
        let Some((top, words)) = self.peek() else {
            return false;
        };
        let Some(segment) = self.home.segment() else {
            return false;
        };
        if top & CHUNK == 0 || self.drained > self.head {
            return false;
        }
        self.drained = self.head + 1;
        let place = pool::Place::of([words[CHUNK_WORDS.start], words[CHUNK_WORDS.end - 1]]);
        // SAFETY: `push_chunk` wrote the line for a chunk that was handed over with it, and this is
        // the first time that it is read.
        unsafe { pool::drain(segment, place, len, f) }
    }
}

#[cfg(not(loom))]
fn open(segment: &Arc<Segment>, place: RingPlace) -> Option<Home> {
    if place.segment != segment.id() {
        return None;
    }
    let at = segment.heap_at(place.offset, size_bytes(), 128)?;
    Some(Home::Segment {
        segment: segment.clone(),
        offset: place.offset,
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

/// Enters bytes into words as they lie in memory. What is left of the last word stays zero.
///
/// No way by a buffer: bytes that were stored in small pieces and are loaded in bigger ones make
/// the load wait for all stores before it, also those to lines that another core has.
///
/// # Panics
/// When there are fewer words than the bytes need.
#[inline]
pub fn fill_words(words: &mut [u64], bytes: &[u8]) {
    let (full, rest) = bytes.as_chunks::<8>();
    for (word, eight) in words[..full.len()].iter_mut().zip(full) {
        *word = u64::from_ne_bytes(*eight);
    }
    if !rest.is_empty() {
        let last = rest.iter().rev();
        let word = last.fold(0, |word, &byte| word << 8 | u64::from(byte));
        words[full.len()] = u64::from_le(word);
    }
}

/// What a model has instead of a [`RingPlace`].
#[cfg(loom)]
pub(crate) struct Reopened(Home);

#[cfg(loom)]
impl Reopened {
    pub(crate) fn at_position(&self, position: u64) -> Option<Consumer> {
        Consumer::enter(self.0.clone(), position)
    }
}

#[cfg(loom)]
impl Consumer {
    pub(crate) fn another(&self) -> Reopened {
        Reopened(self.home.clone())
    }
}

/// A ring in private memory, for models and tests.
#[cfg(any(test, loom))]
#[must_use]
pub fn in_private_memory() -> (Producer, Consumer) {
    let shared = Arc::new(Shared {
        heads: Heads {
            lines: AtomicU64::new(0),
            producer: AtomicU32::new(1),
            consumer: AtomicU32::new(READS),
        },
        lines: std::array::from_fn(|_| Line {
            mark: AtomicU64::new(0),
            words: Cell::new([0; 7]),
        }),
    });
    let home = Home::Heap(shared);
    (Producer::at(home.clone()), Consumer::at(home, 0))
}

impl Producer {
    fn at(home: Home) -> Producer {
        Producer {
            home,
            tail: 0,
            seen_head: 0,
        }
    }

    /// Lines that have been pushed.
    #[must_use]
    #[inline]
    pub fn position(&self) -> u64 {
        self.tail
    }

    /// Makes the ring ready for another consumer, who begins at the [position](Self::position).
    /// Returns false while the last one has not [left](Consumer::leave).
    #[must_use]
    pub fn restart(&mut self) -> bool {
        let heads = &self.home.get().heads;
        // Acquire: what it read of the lines comes before what will be written there.
        if heads.consumer.load(Ordering::Acquire) != LEFT {
            return false;
        }
        heads.lines.store(self.tail, Ordering::Relaxed);
        heads.consumer.store(NONE, Ordering::Release);
        self.seen_head = self.tail;
        true
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

    /// Pushes a line: `top`, without [`CHUNK`], goes into the high half of word 0, and `fill`
    /// writes the words behind it, which may hold an older line's, in place: words that were put
    /// together elsewhere and copied would have to wait for the lines before this one (see
    /// [`fill_words`]). Returns false when the ring is full.
    #[inline]
    pub fn push(&mut self, top: u32, fill: impl FnOnce(&mut LineWords)) -> bool {
        if !self.has_room(1) {
            return false;
        }
        self.publish(self.tail, top, fill);
        self.tail += 1;
        true
    }

    /// Pushes a line and as many lines as `rest` needs behind it. Returns false when there is no
    /// room for all of them; then nothing was pushed.
    ///
    /// # Panics
    /// When that is more than [`MAX_LINES`].
    #[inline]
    pub fn push_run(&mut self, top: u32, fill: impl FnOnce(&mut LineWords), rest: &[u8]) -> bool {
        let lines = 1 + rest.len().div_ceil(LINE_BYTES) as u64;
        assert!(lines <= MAX_LINES, "{lines} lines in one message");
        if !self.has_room(lines) {
            return false;
        }
        let first = self.tail;
        self.tail += lines;
        let mut fill = Some(fill);
        let mut begin = |ring: &Self| {
            if let Some(fill) = fill.take() {
                ring.publish(first, top, fill);
            }
        };
        if lines > BACKWARDS {
            begin(self);
        }
        let (pieces, last) = rest.as_chunks::<LINE_BYTES>();
        let mut at = first + 1;
        for piece in pieces {
            self.publish(at, 0, |words| fill_words(words, piece));
            at += 1;
        }
        if !last.is_empty() {
            self.publish(at, 0, |words| fill_words(words, last));
        }
        begin(self);
        true
    }

    /// Writes the line at `position`, which tells of no chunk; there is room.
    #[inline]
    fn publish(&self, position: u64, top: u32, fill: impl FnOnce(&mut LineWords)) {
        self.publish_any(position, top & !CHUNK, fill);
    }

    #[inline]
    fn publish_any(&self, position: u64, top: u32, fill: impl FnOnce(&mut LineWords)) {
        let line = &self.home.get().lines[(position % LINES) as usize];
        // SAFETY: the consumer has given this line back (there is room) and does not read it before
        // the mark below.
        line.words.with_mut(|words| fill(unsafe { &mut *words }));
        line.mark.store(
            u64::from(top) << 32 | ((position + 1) & 0xffff_ffff),
            Ordering::Release,
        );
    }
}

impl Consumer {
    /// Becomes the consumer from a position on, if there is none.
    fn enter(home: Home, position: u64) -> Option<Consumer> {
        let flag = &home.get().heads.consumer;
        let free = flag.compare_exchange(NONE, READS, Ordering::AcqRel, Ordering::Relaxed);
        free.is_ok().then(|| Consumer::at(home, position))
    }

    /// Reads no more. The producer may give the ring to another consumer then.
    pub fn leave(self) {
        self.home
            .get()
            .heads
            .consumer
            .store(LEFT, Ordering::Release);
    }

    /// Lines that have been given back, of all that were ever in the ring.
    #[must_use]
    #[inline]
    pub fn position(&self) -> u64 {
        self.head
    }

    fn at(home: Home, position: u64) -> Consumer {
        Consumer {
            home,
            head: position,
            published_head: position,
            #[cfg(not(loom))]
            drained: 0,
        }
    }

    /// Whether a line has arrived.
    #[inline]
    #[must_use]
    pub fn has_next(&self) -> bool {
        let line = &self.home.get().lines[(self.head % LINES) as usize];
        line.mark.load(Ordering::Acquire) as u32 == (self.head + 1) as u32
    }

    /// As [`has_next`](Self::has_next), while waiting: asks for the lines behind the next one too.
    /// They are here already unless the producer is writing there, and then they come at the same
    /// time as the next one instead of after it.
    #[cfg(not(loom))]
    #[inline]
    #[must_use]
    pub fn awaits_next(&self) -> bool {
        for ahead in 1..BACKWARDS {
            let line = &self.home.get().lines[((self.head + ahead) % LINES) as usize];
            margay_sys_os::cpu::prefetch(std::ptr::from_ref(line).cast());
        }
        !self.has_next()
    }

    /// Whether the lines behind the current one that carry `bytes` have arrived too.
    #[inline]
    #[must_use]
    pub fn has_run(&self, bytes: usize) -> bool {
        let last = self.head + bytes.div_ceil(LINE_BYTES) as u64;
        let line = &self.home.get().lines[(last % LINES) as usize];
        line.mark.load(Ordering::Acquire) as u32 == (last + 1) as u32
    }

    /// The next line, if one has arrived: the high half of word 0 and the words behind it. It stays
    /// until [`release`](Self::release).
    #[inline]
    #[must_use]
    pub fn peek(&self) -> Option<(u32, LineWords)> {
        let line = &self.home.get().lines[(self.head % LINES) as usize];
        let mark = line.mark.load(Ordering::Acquire);
        if mark as u32 != (self.head + 1) as u32 {
            return None;
        }
        // SAFETY: the mark says that the line is written; it is ours until `release`.
        let words = line.words.with(|words| unsafe { *words });
        Some(((mark >> 32) as u32, words))
    }

    /// Copies the lines behind the current one into `to`, from byte `done` on (a multiple of
    /// [`LINE_BYTES`]), as far as they have arrived. Returns how many bytes of `to` are there now.
    #[inline]
    #[must_use]
    pub fn copy_run(&self, to: &mut [u8], done: usize) -> usize {
        let lines = &self.home.get().lines;
        let mut position = self.head + 1 + (done / LINE_BYTES) as u64;
        let mut at = done;
        for group in to[done..].chunks_mut(GROUP * LINE_BYTES) {
            let end = position + group.len().div_ceil(LINE_BYTES) as u64;
            let last = &lines[((end - 1) % LINES) as usize];
            if last.mark.load(Ordering::Acquire) as u32 != end as u32 {
                return at;
            }
            for piece in group.chunks_mut(LINE_BYTES) {
                let line = &lines[(position % LINES) as usize];
                line.words.with(|words| {
                    // SAFETY: as in `peek`; lines are published in order, so the last one's mark
                    // speaks for all before it.
                    let bytes = as_bytes(unsafe { &*words });
                    match piece.as_mut_array::<LINE_BYTES>() {
                        Some(whole) => whole.copy_from_slice(bytes),
                        None => piece.copy_from_slice(&bytes[..piece.len()]),
                    }
                });
                position += 1;
            }
            at += group.len();
        }
        at
    }

    /// Gives `lines` lines back. Returns true when that was published to the producer, which may
    /// wait for it.
    #[inline]
    pub fn release(&mut self, lines: u64) -> bool {
        self.head += lines;
        let due = self.head - self.published_head >= LINES / 4;
        if due {
            self.published_head = self.head;
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
mod tests;

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
                    while !tx.push_run(7, |words| *words = [i; 7], &[i as u8; 16]) {
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
                assert_eq!(words[0], i);
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
