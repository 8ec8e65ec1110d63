//! Walking the data of many elements in packed order, from and to any byte.

use crate::flat::{Body, Flat, Item, Run, Seq, Words};

/// A position in the packed data of `count` elements of a datatype.
///
/// It is resumable: a message is packed or unpacked in fragments of any size by calling
/// [`Cursor::next_run`] with what the fragment still holds. Making a cursor over elements that are
/// one strided run allocates nothing. Seeking takes time logarithmic in the datatype's blocks and
/// independent of `count`.
#[derive(Debug, Clone)]
pub struct Cursor {
    /// The elements as one item.
    top: Item,
    /// Current repetition of `top`.
    iteration: u64,
    /// For each nested sequence on the way down: current item and its repetition. What lies below
    /// the current leaf is zero, so that a sequence starts anew without resetting.
    frames: Box<[Frame]>,
    /// Bytes of the current block that are done.
    within: u64,
    position: u64,
    total: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Frame {
    item: usize,
    iteration: u64,
}

impl Cursor {
    /// A cursor at the first byte of `count` elements. Both [`Flat::packed_size`] and
    /// [`Flat::span`] of `count` must be `Some` (panics otherwise): the caller reports that error
    /// to the user.
    pub fn new(flat: &Flat, count: u64) -> Cursor {
        let total = flat
            .packed_size(count)
            .expect("count elements exceed 2^63 bytes");
        flat.span(count)
            .expect("count elements span more than 2^63 bytes");
        let folded = match &flat.seq.items[..] {
            [item] if total > 0 => item.fold(count, flat.extent),
            _ => None,
        };
        let top = folded.unwrap_or_else(|| Item {
            offset: 0,
            count,
            stride: flat.extent,
            body: Body::Seq(flat.seq.clone()),
        });
        let depth = match &top.body {
            Body::Bytes(_) => 0,
            Body::Seq(seq) => seq.depth,
        };
        Cursor {
            top,
            iteration: 0,
            frames: vec![Frame::default(); depth].into(),
            within: 0,
            position: 0,
            total,
        }
    }

    /// Packed bytes before the cursor.
    #[inline]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Packed bytes of all elements.
    #[inline]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Packed bytes after the cursor.
    #[inline]
    pub fn remaining(&self) -> u64 {
        self.total - self.position
    }

    /// Moves to `position` in the packed data, at most to its end.
    pub fn seek(&mut self, position: u64) {
        self.position = position.min(self.total);
        self.frames.fill(Frame::default());
        self.within = 0;
        if self.position == self.total {
            return;
        }
        let unit = self.top.body.size();
        self.iteration = self.position / unit;
        let mut rest = self.position % unit;
        let mut body = &self.top.body;
        for frame in &mut self.frames {
            let Body::Seq(seq) = body else { break };
            frame.item = seq.starts.partition_point(|&start| start <= rest) - 1;
            rest -= seq.starts[frame.item];
            body = &seq.items[frame.item].body;
            frame.iteration = rest / body.size();
            rest %= body.size();
        }
        self.within = rest;
    }

    /// Moves `bytes` on in the packed data, at most to its end.
    pub fn advance(&mut self, bytes: u64) {
        self.seek(self.position.saturating_add(bytes));
    }

    /// The next run of at most `max_bytes` bytes of data, and moves behind it. A block that does
    /// not fit, and the rest of one that was begun, comes as a run of one (partial) block. `None`
    /// at the end and when `max_bytes` is 0.
    pub fn next_run(&mut self, max_bytes: u64) -> Option<Run> {
        if max_bytes == 0 || self.position == self.total {
            return None;
        }
        let (run, _) = take::<false>(
            &self.top,
            0,
            &mut self.iteration,
            &mut self.frames,
            &mut self.within,
            max_bytes,
        );
        self.position += run.bytes();
        Some(run)
    }

    /// Whether there is anything for [`next_words`](Self::next_words).
    #[inline]
    pub fn has_words(&self) -> bool {
        self.words().is_some()
    }

    /// Where elements consist of single words that lie as an index says: the next words of at most
    /// `max_bytes` bytes, and moves behind them. Bytes of a word, and where each of them lies
    /// beside a common displacement. `None` where there are none, or within a word;
    /// [`next_run`](Self::next_run) goes on in any case.
    pub fn next_words(&mut self, max_bytes: u64) -> Option<(u64, i64, &[i64])> {
        let size = self.words()?.size;
        let within = self.position % self.top.body.size();
        if self.position == self.total || !within.is_multiple_of(size) || max_bytes < size {
            return None;
        }
        let first = (within / size) as usize;
        let count = self.words()?.offsets.len() - first;
        let count = count.min((max_bytes / size) as usize);
        let base = self.top.offset + self.iteration as i64 * self.top.stride;
        self.advance(count as u64 * size);
        let words = &self.words()?.offsets[first..first + count];
        Some((size, base, words))
    }

    fn words(&self) -> Option<&Words> {
        match &self.top.body {
            Body::Seq(seq) => seq.words.as_ref(),
            Body::Bytes(_) => None,
        }
    }

    /// The next dense piece of at most `max_bytes` bytes as (displacement, bytes), and moves behind
    /// it.
    pub fn next_piece(&mut self, max_bytes: u64) -> Option<(i64, u64)> {
        if max_bytes == 0 || self.position == self.total {
            return None;
        }
        let (run, _) = take::<true>(
            &self.top,
            0,
            &mut self.iteration,
            &mut self.frames,
            &mut self.within,
            max_bytes,
        );
        self.position += run.bytes();
        Some((run.offset, run.block))
    }
}

/// Packs elements from `source`, in which the buffer's address is at index `origin`, to `packed`,
/// beginning at the cursor's position. Returns the bytes packed: all that `packed` holds or all
/// that remain. Panics when the data lies outside of `source`.
pub fn pack(cursor: &mut Cursor, source: &[u8], origin: usize, packed: &mut [u8]) -> usize {
    let mut done = 0;
    while let Some(run) = cursor.next_run((packed.len() - done) as u64) {
        for (from, len) in blocks(&run, origin) {
            packed[done..done + len].copy_from_slice(&source[from..from + len]);
            done += len;
        }
    }
    done
}

/// The inverse of [`pack`]: scatters `packed` to the elements in `target`. Returns the bytes
/// unpacked.
pub fn unpack(cursor: &mut Cursor, packed: &[u8], target: &mut [u8], origin: usize) -> usize {
    let mut done = 0;
    while let Some(run) = cursor.next_run((packed.len() - done) as u64) {
        for (to, len) in blocks(&run, origin) {
            target[to..to + len].copy_from_slice(&packed[done..done + len]);
            done += len;
        }
    }
    done
}

/// The blocks of a run as (index, bytes) in a slice that holds the buffer's address at `origin`.
fn blocks(run: &Run, origin: usize) -> impl Iterator<Item = (usize, usize)> {
    let Run {
        offset,
        block,
        count,
        stride,
    } = *run;
    let at = move |i: u64| offset.wrapping_add((i as i64).wrapping_mul(stride)) + origin as i64;
    (0..count).map(move |i| {
        (
            usize::try_from(at(i)).expect("data before the slice"),
            block as usize,
        )
    })
}

/// Takes a run (`ONE`: of one block at most) from `item`, whose sequence has its origin at `base`;
/// true when that finished the item.
#[inline]
fn take<const ONE: bool>(
    item: &Item,
    base: i64,
    iteration: &mut u64,
    frames: &mut [Frame],
    within: &mut u64,
    max_bytes: u64,
) -> (Run, bool) {
    let offset = base + item.offset + *iteration as i64 * item.stride;
    let run = match &item.body {
        Body::Seq(seq) => descend::<ONE>(seq, offset, iteration, frames, within, max_bytes),
        Body::Bytes(block) if !ONE && *within == 0 && max_bytes >= *block => {
            let left = item.count - *iteration;
            // Only a short fragment has to pay for the division.
            let fits = left
                .checked_mul(*block)
                .is_some_and(|bytes| bytes <= max_bytes);
            let count = if fits { left } else { max_bytes / block };
            *iteration += count;
            Run {
                offset,
                block: *block,
                count,
                stride: item.stride,
            }
        }
        Body::Bytes(block) => {
            let bytes = (block - *within).min(max_bytes);
            let offset = offset + *within as i64;
            *within += bytes;
            if *within == *block {
                *within = 0;
                *iteration += 1;
            }
            Run {
                offset,
                block: bytes,
                count: 1,
                stride: 0,
            }
        }
    };
    (run, *iteration == item.count)
}

/// Takes from the current item of a sequence with its origin at `origin`, and steps on when that is
/// finished.
fn descend<const ONE: bool>(
    seq: &Seq,
    origin: i64,
    iteration: &mut u64,
    frames: &mut [Frame],
    within: &mut u64,
    max_bytes: u64,
) -> Run {
    let (frame, below) = frames.split_first_mut().expect("a frame for each level");
    let item = &seq.items[frame.item];
    let (run, done) = take::<ONE>(item, origin, &mut frame.iteration, below, within, max_bytes);
    if done {
        frame.iteration = 0;
        frame.item += 1;
        if frame.item == seq.items.len() {
            frame.item = 0;
            *iteration += 1;
        }
    }
    run
}
