//! The compiled form of a datatype: what a copier executes.
//!
//! One element is a sequence of items in typemap order. An item repeats its body `count` times at a
//! constant stride; the body is a dense block of bytes or another sequence. A vector is one item, a
//! vector of vectors one item in another, whatever its counts; adjacent blocks are merged and equal
//! strides folded while the sequence is built. (The idea of folding typemaps to a few strided
//! loops: Gropp, Lusk and Swider, "Improving the performance of MPI derived datatypes", 1999.)

use std::sync::Arc;

/// `count` dense blocks of `block` bytes, the first at `offset` bytes from the buffer's address,
/// each next one `stride` bytes further. `stride` has no meaning when `count` is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub offset: i64,
    pub block: u64,
    pub count: u64,
    pub stride: i64,
}

impl Run {
    /// Bytes of data in the run.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.block * self.count
    }
}

/// The compiled form of a datatype. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Flat {
    pub(crate) seq: Arc<Seq>,
    pub(crate) extent: i64,
    pub(crate) true_lb: i64,
    pub(crate) true_ub: i64,
}

impl Flat {
    /// Bytes of data in one element.
    #[inline]
    pub fn size(&self) -> u64 {
        self.seq.size
    }

    /// Bytes from one element to the next; may be negative.
    #[inline]
    pub fn extent(&self) -> i64 {
        self.extent
    }

    /// Displacement of the first byte of one element's data.
    #[inline]
    pub fn true_lb(&self) -> i64 {
        self.true_lb
    }

    /// One past the last byte of one element's data.
    #[inline]
    pub fn true_ub(&self) -> i64 {
        self.true_ub
    }

    /// Bytes of data in `count` elements; `None` when that exceeds 63 bits.
    #[inline]
    pub fn packed_size(&self, count: u64) -> Option<u64> {
        self.size()
            .checked_mul(count)
            .filter(|&n| n <= i64::MAX as u64)
    }

    /// The smallest byte range `[low, high)` (relative to the buffer) that holds the data of
    /// `count` elements; `None` when it exceeds 63 bits. `(0, 0)` when there is no data.
    pub fn span(&self, count: u64) -> Option<(i64, i64)> {
        if count == 0 || self.size() == 0 {
            return Some((0, 0));
        }
        let last = i64::try_from(count - 1).ok()?.checked_mul(self.extent)?;
        Some((
            self.true_lb.checked_add(last.min(0))?,
            self.true_ub.checked_add(last.max(0))?,
        ))
    }

    /// When the data of `count` elements is one dense byte range: the displacement at which it
    /// starts. Data of no bytes is dense and starts at 0.
    #[inline]
    pub fn contiguous(&self, count: u64) -> Option<i64> {
        match &self.seq.items[..] {
            [] => Some(0),
            [
                Item {
                    offset,
                    count: 1,
                    body: Body::Bytes(block),
                    ..
                },
            ] => (count <= 1 || *block as i64 == self.extent).then_some(*offset),
            _ => None,
        }
    }

    /// When one element is a single strided run: that run.
    pub fn single_run(&self) -> Option<Run> {
        match &self.seq.items[..] {
            [
                Item {
                    offset,
                    count,
                    stride,
                    body: Body::Bytes(block),
                },
            ] => Some(Run {
                offset: *offset,
                block: *block,
                count: *count,
                stride: *stride,
            }),
            _ => None,
        }
    }

    /// Dense blocks in one element (saturating): what decides between gathering in place and
    /// packing.
    pub fn blocks(&self) -> u64 {
        self.seq.blocks
    }
}

/// A sequence of items in typemap order.
#[derive(Debug)]
pub(crate) struct Seq {
    pub items: Box<[Item]>,
    /// Packed position at which each item starts.
    pub starts: Box<[u64]>,
    /// Packed bytes of the whole sequence.
    pub size: u64,
    /// Sequences on the longest path down, this one included.
    pub depth: usize,
    blocks: u64,
    /// The same as single words, where it comes to that.
    pub words: Option<Words>,
}

/// Words of the same size that lie where an index says, as the elements of an irregular mesh.
#[derive(Debug)]
pub(crate) struct Words {
    /// Bytes of a word: 4, 8 or 16.
    pub size: u64,
    /// Where each lies, relative to the origin of the sequence.
    pub offsets: Box<[i64]>,
}

impl Words {
    /// Of fewer items the runs are as fast, and short records keep their fields in one piece.
    const FEWEST: usize = 16;
    /// Mean words of an item up to which it is worth the memory.
    const MEAN: u64 = 8;

    fn of(items: &[Item], bytes: u64) -> Option<Words> {
        if items.len() < Words::FEWEST {
            return None;
        }
        let block = |item: &Item| match item.body {
            Body::Bytes(block) => Some(block),
            Body::Seq(_) => None,
        };
        let blocks = || items.iter().map(block);
        let size = blocks().try_fold(u64::MAX, |least, block| Some(least.min(block?)))?;
        let whole = blocks().flatten().all(|block| block.is_multiple_of(size));
        let mean = bytes / size / items.len() as u64;
        if !matches!(size, 4 | 8 | 16) || !whole || mean > Words::MEAN {
            return None;
        }
        let mut offsets = Vec::with_capacity((bytes / size) as usize);
        for item in items {
            for repetition in 0..item.count as i64 {
                let first = item.offset + repetition * item.stride;
                let words = (item.body.size() / size) as i64;
                offsets.extend((0..words).map(|word| first + word * size as i64));
            }
        }
        Some(Words {
            size,
            offsets: offsets.into(),
        })
    }
}

/// `count` copies of `body` at `offset`, `offset + stride`, ... relative to the origin of the
/// sequence.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub offset: i64,
    pub count: u64,
    pub stride: i64,
    pub body: Body,
}

#[derive(Debug, Clone)]
pub(crate) enum Body {
    /// Dense bytes, at least one.
    Bytes(u64),
    Seq(Arc<Seq>),
}

impl Body {
    pub fn size(&self) -> u64 {
        match self {
            Body::Bytes(n) => *n,
            Body::Seq(seq) => seq.size,
        }
    }
}

impl Item {
    pub fn size(&self) -> u64 {
        self.count * self.body.size()
    }

    /// `n` (at least 1) copies of this item `stride` bytes apart, folded into one loop where they
    /// are one; `None` where that takes another level.
    pub fn fold(&self, n: u64, stride: i64) -> Option<Item> {
        let mut item = self.clone();
        if n == 1 {
            return Some(item);
        }
        if self.count == 1 {
            match self.body {
                Body::Bytes(block) if stride == block as i64 => item.body = Body::Bytes(block * n),
                _ => (item.count, item.stride) = (n, stride),
            }
            return Some(item);
        }
        if (self.count as i64).checked_mul(self.stride) == Some(stride) {
            item.count = self.count * n;
            return Some(item);
        }
        None
    }
}

impl Seq {
    pub fn new(items: Vec<Item>) -> Seq {
        let mut size = 0;
        let mut depth = 1;
        let mut blocks = 0u64;
        let mut starts = Vec::with_capacity(items.len());
        for item in &items {
            starts.push(size);
            size += item.size();
            let inner = match &item.body {
                Body::Bytes(_) => 1,
                Body::Seq(seq) => {
                    depth = depth.max(seq.depth + 1);
                    seq.blocks
                }
            };
            blocks = blocks.saturating_add(item.count.saturating_mul(inner));
        }
        Seq {
            words: Words::of(&items, size),
            items: items.into(),
            starts: starts.into(),
            size,
            depth,
            blocks,
        }
    }

    /// The whole sequence as one item.
    pub fn as_item(self: &Arc<Seq>) -> Item {
        match &self.items[..] {
            [item] => item.clone(),
            _ => Item {
                offset: 0,
                count: 1,
                stride: 0,
                body: Body::Seq(self.clone()),
            },
        }
    }
}

/// Sequences of at most this many items are copied into the one that uses them once, so that blocks
/// can merge across; longer ones are shared.
const INLINE_ITEMS: usize = 8;

/// Collects the items of a sequence, merging as it goes.
#[derive(Debug, Default)]
pub(crate) struct SeqBuilder {
    items: Vec<Item>,
}

impl SeqBuilder {
    /// Appends `count` blocks `stride` bytes apart, the first at `offset`, each of `blocklength`
    /// copies of `seq` `extent` bytes apart. The caller has checked that all displacements and
    /// sizes fit 63 bits.
    pub fn add(
        &mut self,
        seq: &Arc<Seq>,
        offset: i64,
        blocklength: u64,
        extent: i64,
        count: u64,
        stride: i64,
    ) {
        if seq.items.is_empty() || blocklength == 0 || count == 0 {
            return;
        }
        if blocklength * count == 1 && seq.items.len() <= INLINE_ITEMS {
            for item in &seq.items {
                self.push(Item {
                    offset: item.offset + offset,
                    ..item.clone()
                });
            }
            return;
        }
        let mut item = repeat(repeat(seq.as_item(), blocklength, extent), count, stride);
        item.offset += offset;
        self.push(item);
    }

    pub fn finish(self) -> Arc<Seq> {
        // A sequence of one unrepeated sequence is that sequence, provided that it starts at the
        // same origin.
        if let [
            Item {
                offset: 0,
                count: 1,
                body: Body::Seq(seq),
                ..
            },
        ] = &self.items[..]
        {
            return seq.clone();
        }
        Arc::new(Seq::new(self.items))
    }

    fn push(&mut self, item: Item) {
        let Body::Bytes(block) = item.body else {
            self.items.push(item);
            return;
        };
        let Some(last) = self.items.last_mut() else {
            self.items.push(item);
            return;
        };
        let Body::Bytes(last_block) = last.body else {
            self.items.push(item);
            return;
        };
        let last_offset = last.offset + (last.count as i64 - 1) * last.stride;
        if item.count == 1 && last_offset + last_block as i64 == item.offset {
            // Adjacent to the last block: take that one off and put the merged block in its place.
            if last.count == 1 {
                last.body = Body::Bytes(last_block + block);
                return;
            }
            last.count -= 1;
            if last.count == 1 {
                last.stride = 0;
            }
            self.items.push(Item {
                offset: last_offset,
                count: 1,
                stride: 0,
                body: Body::Bytes(last_block + block),
            });
            return;
        }
        if last_block == block {
            let gap = item.offset - last_offset;
            let continues_last = last.count == 1 || last.stride == gap;
            let continues_item = item.count == 1 || item.stride == gap;
            if continues_last && continues_item {
                last.stride = gap;
                last.count += item.count;
                return;
            }
        }
        self.items.push(item);
    }
}

fn repeat(item: Item, n: u64, stride: i64) -> Item {
    match item.fold(n, stride) {
        Some(folded) => folded,
        None => {
            let offset = item.offset;
            let body = Body::Seq(Arc::new(Seq::new(vec![Item { offset: 0, ..item }])));
            Item {
                offset,
                count: n,
                stride,
                body,
            }
        }
    }
}
