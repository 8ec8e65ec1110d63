//! A rank's pool of bulk chunks: the rank fills a chunk, tells a peer where it is, and the peer
//! gives it back when it has copied it out.
//!
//! One pool serves all of a rank's peers, so its memory does not grow with their number, and the
//! chunks that were used last are used next, so they stay in the sender's level-2 cache.
//!
//! Where a chunk lies goes to the peer in a line of a [ring](crate::ring) that nothing else can
//! write. That a peer which does not keep the format reads what others are writing is not found:
//! asking the flag's line before the first byte of each chunk is copied would cost its transfer
//! between the cores once more.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::segment::Segment;

/// Bytes in a chunk: half of a chunk pair fits into a level-1 cache, a pool into a level-2 cache.
pub const CHUNK: usize = 32 << 10;
/// Chunks in a pool.
pub const CHUNKS: usize = 14;

#[repr(C, align(128))]
struct Flag(AtomicU32);

/// The filling side of a pool.
pub struct Pool {
    segment: Arc<Segment>,
    flags: NonNull<[Flag; CHUNKS]>,
    flags_offset: u64,
    chunks: NonNull<u8>,
    chunks_offset: u64,
    /// To whom each chunk was handed over last.
    handed: [u32; CHUNKS],
}

// SAFETY: the pointers lie in the segment, which is kept; flags are atomics, chunks follow the
// protocol below.
unsafe impl Send for Pool {}

/// A chunk that has been taken and not yet been passed to anybody.
#[derive(Debug)]
pub struct Chunk {
    index: usize,
    /// The pool of which it is.
    pool: NonNull<[Flag; CHUNKS]>,
}

/// Where a chunk lies in the segment's heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Heap offset of the bytes.
    bytes: u64,
    /// Heap offset of the flag that says whether the chunk is in use.
    flag: u64,
}

impl Place {
    /// As it stands in a line.
    pub(crate) fn of([bytes, flag]: [u64; 2]) -> Place {
        Place { bytes, flag }
    }

    /// The words for a line.
    pub(crate) fn words(self) -> [u64; 2] {
        [self.bytes, self.flag]
    }
}

impl Pool {
    /// Makes a pool in the segment's heap. None when the heap's address space is used up.
    #[must_use]
    pub fn create(segment: &Arc<Segment>) -> Option<Pool> {
        let flag_bytes = size_of::<[Flag; CHUNKS]>() as u64;
        let flags_offset = segment.heap_alloc(flag_bytes)?;
        let flags = segment.heap_at(flags_offset, flag_bytes, 128)?;
        let chunks_offset = segment.heap_alloc((CHUNK * CHUNKS) as u64)?;
        let chunks = segment.heap_at(chunks_offset, (CHUNK * CHUNKS) as u64, 64)?;
        Some(Pool {
            segment: segment.clone(),
            flags: flags.cast(),
            flags_offset,
            chunks,
            chunks_offset,
            handed: [u32::MAX; CHUNKS],
        })
    }

    /// A free chunk, if there is one.
    #[must_use]
    pub fn take(&mut self) -> Option<Chunk> {
        let index = self
            .flags()
            .iter()
            .position(|flag| flag.0.load(Ordering::Acquire) == 0)?;
        self.flags()[index].0.store(1, Ordering::Relaxed);
        let pool = self.flags;
        Some(Chunk { index, pool })
    }

    /// Fills `len` bytes of a taken chunk.
    ///
    /// # Panics
    /// When `len` is more than [`CHUNK`], or the chunk is another pool's.
    pub fn fill(&mut self, chunk: &Chunk, len: usize, fill: impl FnOnce(&mut [u8])) {
        assert!(len <= CHUNK, "{len} bytes in a chunk of {CHUNK}");
        self.assert_has(chunk);
        // SAFETY: the index is below CHUNKS; the chunk is this pool's, taken and not passed to
        // anybody (it is not consumed yet), so nobody reads it.
        fill(unsafe {
            std::slice::from_raw_parts_mut(self.chunks.add(chunk.index * CHUNK).as_ptr(), len)
        });
    }

    /// Where the peer finds the chunk; from now on the chunk is the peer's until it gives it back.
    ///
    /// # Panics
    /// When the chunk is another pool's.
    #[must_use]
    pub(crate) fn hand_over(&mut self, chunk: Chunk, to: u32) -> Place {
        self.assert_has(&chunk);
        self.handed[chunk.index] = to;
        Place {
            bytes: self.chunks_offset + (chunk.index * CHUNK) as u64,
            flag: self.flags_offset + (chunk.index * size_of::<Flag>()) as u64,
        }
    }

    /// A peer has died: takes back the chunks that it has not given back. Those of a peer whose
    /// process is not gone stay its own, since it may be reading them.
    pub fn forget(&mut self, peer: u32) {
        if !self.segment.registry().has_exited(peer) {
            return;
        }
        for (index, _) in self
            .handed
            .iter()
            .enumerate()
            .filter(|&(_, &to)| to == peer)
        {
            self.flags()[index].0.store(0, Ordering::Relaxed);
        }
        for to in self.handed.iter_mut().filter(|to| **to == peer) {
            *to = u32::MAX;
        }
    }

    /// Gives back a chunk that was not handed over after all.
    ///
    /// # Panics
    /// When the chunk is another pool's.
    pub fn put_back(&mut self, chunk: Chunk) {
        self.assert_has(&chunk);
        self.flags()[chunk.index].0.store(0, Ordering::Relaxed);
    }

    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }

    fn assert_has(&self, chunk: &Chunk) {
        assert_eq!(chunk.pool, self.flags, "a chunk is filled in its own pool");
    }

    fn flags(&self) -> &[Flag; CHUNKS] {
        debug_assert!(Arc::strong_count(&self.segment) > 0);
        // SAFETY: checked at creation to lie inside the segment, aligned; atomics.
        unsafe { self.flags.as_ref() }
    }
}

/// Lends the `len` bytes at `place` to `f` and gives the chunk back to its owner. Returns false
/// when the place is not inside the heap (a peer that does not keep the format).
///
/// # Safety
/// The place comes from [`Pool::hand_over`], and what it returned is drained once.
pub(crate) unsafe fn drain(
    segment: &Segment,
    place: Place,
    len: usize,
    f: impl FnOnce(&[u8]),
) -> bool {
    let (Some(bytes), Some(flag)) = (
        segment.heap_at(place.bytes, len.min(CHUNK) as u64, 64),
        segment.heap_at(place.flag, size_of::<Flag>() as u64, 128),
    ) else {
        return false;
    };
    if len > CHUNK {
        return false;
    }
    // SAFETY: inside the heap (checked); the owner does not write until the flag below is cleared.
    f(unsafe { std::slice::from_raw_parts(bytes.as_ptr(), len) });
    // SAFETY: inside the heap, aligned (checked); an atomic.
    unsafe { flag.cast::<Flag>().as_ref() }
        .0
        .store(0, Ordering::Release);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_is_as_drawn() {
        assert_eq!(size_of::<Flag>(), 128);
        assert_eq!((CHUNK, CHUNKS), (32_768, 14));
    }

    #[test]
    fn a_chunk_of_another_pool_is_refused_and_the_last_one_comes_first() {
        let segment = Arc::new(crate::segment::tests::roomy());
        let mut pools = [0, 1].map(|_| Pool::create(&segment).unwrap());
        let chunk = pools[0].take().unwrap();
        let fill = std::panic::AssertUnwindSafe(|| pools[1].fill(&chunk, 1, |_| {}));
        assert!(std::panic::catch_unwind(fill).is_err());
        pools[0].put_back(chunk);
        let again = pools[0].take().unwrap();
        assert_eq!(again.index, 0, "the chunk that was used last comes first");
        pools[0].put_back(again);
        let nowhere = Place::of([0, 0]);
        // SAFETY: nothing is lent where there is no heap.
        assert!(!unsafe { drain(&segment, nowhere, 1, |_| unreachable!()) });
    }
}

#[cfg(test)]
mod ring_tests {
    use super::{CHUNKS, Pool};
    use std::sync::Arc;

    use crate::ring::{CHUNK, Consumer, Producer};
    use crate::segment::Segment;
    use crate::segment::tests::roomy;

    fn connected(segment: &Arc<Segment>) -> (Producer, Consumer) {
        let tx = Producer::create(segment).unwrap();
        let rx = Consumer::open(segment, tx.place().unwrap(), 0).unwrap();
        (tx, rx)
    }

    #[test]
    fn chunks_go_over_and_come_back() {
        let segment = Arc::new(roomy());
        let (mut tx, mut rx) = connected(&segment);
        let mut pool = Pool::create(&segment).unwrap();
        for mark in 0..CHUNKS as u8 {
            let chunk = pool.take().unwrap();
            pool.fill(&chunk, 100, |bytes| bytes.fill(mark));
            assert!(tx.push_chunk(7, [u64::from(mark); 7], &mut pool, chunk, 1));
        }
        assert!(pool.take().is_none());
        for mark in 0..CHUNKS as u8 {
            let (top, words) = rx.peek().unwrap();
            assert_eq!((top, words[3]), (7 | CHUNK, u64::from(mark)));
            assert!(rx.drain(100, |bytes| assert_eq!(bytes, [mark; 100])));
            assert!(!rx.drain(100, |_| unreachable!("it has been given back")));
            rx.release(1);
        }
        assert!(pool.take().is_some());
    }

    #[test]
    fn only_the_dead_lose_their_chunks() {
        let segment = Arc::new(roomy());
        let mut tx = Producer::create(&segment).unwrap();
        let mut pool = Pool::create(&segment).unwrap();
        while let Some(chunk) = pool.take() {
            assert!(tx.push_chunk(7, [0; 7], &mut pool, chunk, 1));
        }
        pool.forget(1);
        assert!(pool.take().is_none());
        segment.registry().set_exited(1, false);
        pool.forget(1);
        assert!(pool.take().is_some());
    }

    #[test]
    fn no_line_but_that_of_a_chunk_lends_memory() {
        let segment = Arc::new(roomy());
        let (mut tx, mut rx) = connected(&segment);
        let place = tx.place().unwrap();
        assert!(tx.push(CHUNK | 3, |words| *words = [place.offset; 7]));
        assert_eq!(rx.peek().unwrap().0, 3);
        assert!(!rx.drain(8, |_| unreachable!()));
        let other = Arc::new(roomy());
        assert!(Consumer::open(&other, place, 0).is_none());
    }
}
