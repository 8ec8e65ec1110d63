//! A rank's inbox: where all those leave messages that have no ring to it.
//!
//! A [ring] for each pair of ranks is fast and costs memory for each pair. Most pairs
//! of a large job talk rarely. So a rank has rings to some peers and reaches all others through
//! their inboxes. What that costs belongs to the rank, not to the pair: each rank has [`CELLS`]
//! cells for what it sends, and an inbox is one word, the newest cell of a list.
//!
//! Protocol, which a process may be killed in at any instruction:
//!
//! - A sender fills a free cell of its own, stores the number of the newest cell of the inbox in
//!   it, and makes its cell the newest by compare-and-swap. Before that nobody knows the cell;
//!   after it the message is there. There is no moment in which the list is broken, as there is
//!   with an exchange of the tail and a store behind it.
//! - The receiver takes the whole list by exchanging the word with 0 and reads it backwards: the
//!   messages of each sender come in the order of sending. Since nothing else takes from the list,
//!   a cell that becomes the newest one again meanwhile does no harm.
//! - The receiver gives a cell back by setting its bit in its sender's `returned`. The sender takes
//!   all bits at once when it has no other cell left. A bit counts only for a cell that is with
//!   somebody.
//! - The cells of a receiver that died come back by [`Outbox::forget`], when its process is gone
//!   and so gives nothing back.
//!
//! Memory orderings: a cell is written before the compare-and-swap (*release*) and read after the
//! exchange (*acquire*); those of other senders in between are read-modify-writes and so belong to
//! the same release sequence. The bit is set (*release*) after the last read of the cell and taken
//! (*acquire*) before it is written again.
//!
//! **Rings begin and end here.** That a ring has been made is a message in the inbox, and so is
//! that a ring will not be used any more, with the position at which it ends. So there is one order
//! of all that a sender sends, whichever way: what it left in the inbox before it made the ring has
//! been taken before the receiver knows the ring, and what comes in the inbox after the end of the
//! ring is taken after the receiver has emptied it. Neither side ever waits for the other.

use std::collections::VecDeque;
use std::sync::Arc;

use margay_sys_os::copy::copy;
use margay_sys_os::sync::{Cell, Ordering};

#[cfg(not(loom))]
use crate::pool::{self, Chunk, Pool};
use crate::ring;
#[cfg(not(loom))]
use crate::ring::{CHUNK_WORDS, Consumer, Producer, RingPlace};
#[cfg(not(loom))]
use crate::segment::Segment;

/// The first word of the payload.
const PAYLOAD: usize = 2;

/// In a cell's top: it tells that a ring begins, or ends. Only this module sets these.
const OPENS: u32 = 1 << 9;
const CLOSES: u32 = 1 << 10;
const OWN: u32 = ring::CHUNK | OPENS | CLOSES;

pub(crate) mod format;
mod letter;

use format::*;
pub use format::{BLOCK_BYTES, BLOCKS, CELL_BYTES, CELLS, CellWords};
pub use letter::{Letter, PayloadOf};

/// What a rank has, in models.
#[cfg(loom)]
struct Shared {
    desk: Desk,
    cells: [InboxCell; CELLS],
    blocks: [Block; BLOCKS],
}

/// What keeps the memory alive.
#[derive(Clone)]
enum Home {
    #[cfg(not(loom))]
    Segment(Arc<Segment>),
    #[cfg(loom)]
    Heap(Arc<[Shared]>),
}

impl Home {
    #[inline]
    fn desk(&self, rank: usize) -> &Desk {
        match self {
            #[cfg(not(loom))]
            Home::Segment(segment) => {
                assert!(rank < self.ranks());
                let at = (rank * size_of::<Desk>()) as u64;
                // SAFETY: the layout was checked to have the inboxes of all ranks inside the
                // mapping, aligned to a page.
                unsafe {
                    segment
                        .at(segment.layout.inboxes_offset + at)
                        .cast()
                        .as_ref()
                }
            }
            #[cfg(loom)]
            Home::Heap(all) => &all[rank].desk,
        }
    }

    /// A cell by its number.
    #[inline]
    fn cell(&self, number: usize) -> &InboxCell {
        match self {
            #[cfg(not(loom))]
            Home::Segment(segment) => {
                let ranks = segment.layout.ranks;
                assert!(number < ranks as usize * CELLS);
                let at = cells_offset(ranks) + (number * size_of::<InboxCell>()) as u64;
                // SAFETY: as in `desk`.
                unsafe {
                    segment
                        .at(segment.layout.inboxes_offset + at)
                        .cast()
                        .as_ref()
                }
            }
            #[cfg(loom)]
            Home::Heap(all) => &all[number / CELLS].cells[number % CELLS],
        }
    }

    #[inline]
    fn block(&self, rank: usize, index: usize) -> &Block {
        match self {
            #[cfg(not(loom))]
            Home::Segment(segment) => {
                let ranks = segment.layout.ranks;
                assert!(rank < ranks as usize && index < BLOCKS);
                let at = blocks_offset(ranks) + ((rank * BLOCKS + index) * BLOCK_BYTES) as u64;
                // SAFETY: as in `desk`.
                unsafe {
                    segment
                        .at(segment.layout.inboxes_offset + at)
                        .cast()
                        .as_ref()
                }
            }
            #[cfg(loom)]
            Home::Heap(all) => &all[rank].blocks[index],
        }
    }

    fn ranks(&self) -> usize {
        match self {
            #[cfg(not(loom))]
            Home::Segment(segment) => segment.layout.ranks as usize,
            #[cfg(loom)]
            Home::Heap(all) => all.len(),
        }
    }
}

/// Nobody has the cell.
const NOBODY: u32 = u32::MAX;

/// The sending side of a rank: its cells.
pub struct Outbox {
    home: Home,
    me: usize,
    /// Cells that are here; the last one was used last.
    free: Vec<u16>,
    /// Who has each cell.
    held_by: [u32; CELLS],
    /// 0, or 1 + the block that belongs to each cell that is out.
    block_of: [u8; CELLS],
    /// A bit for each block that is here.
    free_blocks: u32,
}

impl Outbox {
    fn at(home: Home, me: usize) -> Outbox {
        Outbox {
            home,
            me,
            free: (0..CELLS as u16).rev().collect(),
            held_by: [NOBODY; CELLS],
            block_of: [0; CELLS],
            free_blocks: ((1u64 << BLOCKS) - 1) as u32,
        }
    }

    /// Takes the cells that receivers have given back.
    fn reclaim(&mut self) {
        for word in 0..RETURNED {
            let returned = &self.home.desk(self.me).returned.0[word];
            if returned.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = returned.swap(0, Ordering::Acquire);
            while bits != 0 {
                let index = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if index < CELLS {
                    self.put_back(index);
                }
            }
        }
    }

    /// A cell is here again, if it was with somebody.
    fn put_back(&mut self, index: usize) {
        if std::mem::replace(&mut self.held_by[index], NOBODY) == NOBODY {
            return;
        }
        let block = std::mem::take(&mut self.block_of[index]);
        if block != 0 {
            self.free_blocks |= 1 << (block - 1);
        }
        self.free.push(index as u16);
    }

    /// A free cell, and a block if the message is that long.
    fn take(&mut self, bytes: usize) -> Option<(usize, Option<usize>)> {
        let needs_block = bytes > CELL_BYTES;
        if self.free.is_empty() || (needs_block && self.free_blocks == 0) {
            self.reclaim();
        }
        if needs_block && self.free_blocks == 0 {
            return None;
        }
        let index = usize::from(self.free.pop()?);
        let block = needs_block.then(|| self.free_blocks.trailing_zeros() as usize);
        if let Some(block) = block {
            self.free_blocks &= !(1 << block);
            self.block_of[index] = block as u8 + 1;
        }
        Some((index, block))
    }

    /// Leaves a message with `to`: `top` goes with it, `fill` writes the words (which may hold an
    /// older message's), and the payload follows them, in the cell or in a block. Returns false
    /// when no cell or block is free.
    ///
    /// # Panics
    /// When the payload is longer than a block.
    pub fn push(
        &mut self,
        to: u32,
        top: u32,
        payload: &[u8],
        fill: impl FnOnce(&mut CellWords),
    ) -> bool {
        assert!(payload.len() <= BLOCK_BYTES, "{} bytes", payload.len());
        let Some((index, block)) = self.take(payload.len()) else {
            return false;
        };
        if let Some(block) = block {
            let place = &self.home.block(self.me, block).0;
            // SAFETY: the block is here, so nobody reads it.
            place.with_mut(|place| copy(payload, unsafe { &mut (&mut *place)[..payload.len()] }));
        }
        let inline = if block.is_some() { &[] } else { payload };
        self.publish(index, to, top & !OWN, |words| {
            fill(words);
            ring::fill_words(&mut words[PAYLOAD..], inline);
        });
        true
    }

    /// Makes a cell that was taken the newest of the inbox of `to`.
    fn publish(&mut self, index: usize, to: u32, top: u32, fill: impl FnOnce(&mut CellWords)) {
        let cell = self.home.cell(self.me * CELLS + index);
        // SAFETY: the cell is here, so nobody reads it.
        cell.words.with_mut(|words| fill(unsafe { &mut *words }));
        let mark = u64::from(top) << 32 | u64::from(self.block_of[index]);
        // SAFETY: as above.
        cell.mark.with_mut(|place| unsafe { *place = mark });
        self.held_by[index] = to;
        let number = (self.me * CELLS + index) as u64 + 1;
        let newest = &self.home.desk(to as usize).newest;
        let mut seen = newest.load(Ordering::Relaxed);
        loop {
            cell.next.store(seen, Ordering::Relaxed);
            let swapped =
                newest.compare_exchange_weak(seen, number, Ordering::Release, Ordering::Relaxed);
            match swapped {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}

#[cfg(not(loom))]
impl Outbox {
    /// The sending side of rank `me`. None when it has been made before over the same segment: two
    /// would fill the same cells. Who has it is not asked of the shared memory, which another
    /// process may have filled.
    ///
    /// # Panics
    /// When `me` is not a rank of the segment.
    #[must_use]
    pub fn new(segment: &Arc<Segment>, me: u32) -> Option<Outbox> {
        assert!(me < segment.ranks(), "rank {me} of {}", segment.ranks());
        let home = Home::Segment(segment.clone());
        let is_first = segment.senders[me as usize].set(()).is_ok();
        is_first.then(|| Outbox::at(home, me as usize))
    }

    /// Whether a message of `bytes` bytes can be left now.
    pub fn has_room(&mut self, bytes: usize) -> bool {
        let fits =
            |own: &Self| !own.free.is_empty() && (bytes <= CELL_BYTES || own.free_blocks != 0);
        if !fits(self) {
            self.reclaim();
        }
        fits(self)
    }

    /// Leaves with `to` where a chunk is, as [`Producer::push_chunk`] does. Returns false, and puts
    /// the chunk back, when no cell is free.
    ///
    /// # Panics
    /// When the pool lies in another segment, or the chunk is another pool's.
    pub fn push_chunk(
        &mut self,
        to: u32,
        top: u32,
        words: ring::LineWords,
        pool: &mut Pool,
        chunk: Chunk,
    ) -> bool {
        assert_eq!(self.segment().id(), pool.segment().id(), "one segment");
        let Some((index, _)) = self.take(0) else {
            pool.put_back(chunk);
            return false;
        };
        let place = pool.hand_over(chunk, to).words();
        self.publish(index, to, top & !OWN | ring::CHUNK, |cell| {
            cell[..words.len()].copy_from_slice(&words);
            cell[CHUNK_WORDS].copy_from_slice(&place);
        });
        true
    }

    /// Tells `to` that a ring to it begins, which has no receiver. Returns false when no cell is
    /// free.
    ///
    /// # Panics
    /// When it lies in another segment.
    #[must_use]
    pub fn push_opened(&mut self, to: u32, ring: &Producer) -> bool {
        self.push_ring(to, OPENS, ring)
    }

    /// Tells `to` that nothing more will come in the ring. Returns false when no cell is free.
    ///
    /// # Panics
    /// When it lies in another segment.
    #[must_use]
    pub fn push_closed(&mut self, to: u32, ring: &Producer) -> bool {
        self.push_ring(to, CLOSES, ring)
    }

    fn push_ring(&mut self, to: u32, top: u32, ring: &Producer) -> bool {
        let (place, position) = (ring.place(), ring.position());
        assert_eq!(Some(self.segment().id()), place.map(|p| p.segment));
        let Some((index, _)) = self.take(0) else {
            return false;
        };
        let offset = place.map_or(0, RingPlace::offset);
        self.publish(index, to, top, |words| {
            (words[0], words[1]) = (offset, position);
        });
        true
    }

    /// A peer has died: takes back the cells that it has not given back. Those of a peer whose
    /// process is not gone stay its own, since it may be reading them.
    pub fn forget(&mut self, peer: u32) {
        if !self.segment().registry().has_exited(peer) {
            return;
        }
        // First what it did give back, so that no cell comes twice.
        self.reclaim();
        for index in 0..CELLS {
            if self.held_by[index] == peer {
                self.put_back(index);
            }
        }
    }

    fn segment(&self) -> &Segment {
        match &self.home {
            Home::Segment(segment) => segment,
        }
    }
}

/// The receiving side of a rank.
pub struct Inbox {
    home: Home,
    me: usize,
    /// Cells that were taken from the list and not been read, oldest first.
    taken: VecDeque<u32>,
}

impl Inbox {
    fn at(home: Home, me: usize) -> Inbox {
        let taken = VecDeque::new();
        Inbox { home, me, taken }
    }

    /// Whether there is a message.
    #[inline]
    #[must_use]
    pub fn has_next(&self) -> bool {
        !self.taken.is_empty() || self.home.desk(self.me).newest.load(Ordering::Relaxed) != 0
    }

    /// Takes the list, when all that was taken before has been read.
    fn collect(&mut self) {
        let most = self.home.ranks() * CELLS;
        let mut at = self.home.desk(self.me).newest.swap(0, Ordering::Acquire);
        // What a peer has overwritten may name anything, and lead in a circle.
        while let Some(number) = at.checked_sub(1)
            && number < most as u64
            && self.taken.len() < most
        {
            self.taken.push_front(number as u32);
            at = self.home.cell(number as usize).next.load(Ordering::Relaxed);
        }
    }

    /// Lends the oldest message to `read` and gives its cell back, unless `read` returns false:
    /// then the message stays the oldest. Returns the sender, if there is a message and it was
    /// read.
    #[inline]
    pub fn take(&mut self, read: impl FnOnce(&Letter<'_>) -> bool) -> Option<u32> {
        if self.taken.is_empty() {
            self.collect();
        }
        let number = *self.taken.front()? as usize;
        let cell = self.home.cell(number);
        // SAFETY: the cell was in the list, so its sender has written it and leaves it alone until
        // it is given back.
        let mark = cell.mark.with(|mark| unsafe { *mark });
        let home = &self.home;
        let was_read = cell.words.with(|words| {
            read(&Letter {
                from: (number / CELLS) as u32,
                top: (mark >> 32) as u32 & !OWN,
                mark,
                // SAFETY: as above; the letter does not outlive this call.
                words: unsafe { &*words },
                home,
            })
        });
        if !was_read {
            return None;
        }
        self.taken.pop_front();
        let index = number % CELLS;
        let returned = &self.home.desk(number / CELLS).returned.0[index / 64];
        returned.fetch_or(1 << (index % 64), Ordering::Release);
        Some((number / CELLS) as u32)
    }
}

#[cfg(not(loom))]
impl Inbox {
    /// The receiving side of rank `me`. Of two, each would get some of the messages.
    ///
    /// # Panics
    /// When `me` is not a rank of the segment.
    #[must_use]
    pub fn new(segment: &Arc<Segment>, me: u32) -> Inbox {
        assert!(me < segment.ranks(), "rank {me} of {}", segment.ranks());
        Inbox::at(Home::Segment(segment.clone()), me as usize)
    }
}

#[cfg(not(loom))]
impl Inbox {
    /// Lends the first `len` bytes of the chunk of which the oldest message tells to `f`, and gives
    /// both back. Returns the sender, and none when the message tells of no chunk; a chunk that is
    /// not inside of the heap (a peer that does not keep the format) is not lent.
    pub fn drain(&mut self, len: usize, f: impl FnOnce(&[u8])) -> Option<u32> {
        self.take(|letter| {
            if !letter.has_chunk() {
                return false;
            }
            let place = pool::Place::of([
                letter.words[CHUNK_WORDS.start],
                letter.words[CHUNK_WORDS.end - 1],
            ]);
            // SAFETY: `push_chunk` wrote the cell for a chunk that was handed over with it, and the
            // cell goes back with this reading.
            let _ = unsafe { pool::drain(letter.segment(), place, len, f) };
            true
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use margay_sys_os::sync::AtomicU64;

    /// Interleavings with up to `switches` switches that no thread asked for: with all of them the
    /// models take hours.
    fn explore(switches: usize, f: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(switches);
        builder.check(f);
    }

    fn world(ranks: usize) -> Home {
        let shared = || Shared {
            desk: Desk {
                newest: AtomicU64::new(0),
                returned: Returned(std::array::from_fn(|_| AtomicU64::new(0))),
            },
            cells: std::array::from_fn(|_| InboxCell {
                next: AtomicU64::new(0),
                mark: Cell::new(0),
                words: Cell::new([0; WORDS]),
            }),
            blocks: std::array::from_fn(|_| Block(Cell::new([0; BLOCK_BYTES]))),
        };
        Home::Heap((0..ranks).map(|_| shared()).collect())
    }

    fn push(out: &mut Outbox, value: u64) {
        while !out.push(0, 0, &[], |words| words[0] = value) {
            loom::thread::yield_now();
        }
    }

    fn take(inbox: &mut Inbox) -> (u32, u64) {
        loop {
            let mut value = 0;
            let read = inbox.take(|letter| {
                value = letter.words()[0];
                true
            });
            match read {
                Some(from) => return (from, value),
                None => loom::thread::yield_now(),
            }
        }
    }

    /// Two senders, one of which has to use a cell again.
    #[test]
    fn an_inbox_keeps_the_order_of_each_sender() {
        explore(2, || {
            let home = world(3);
            let senders = [(1, 3), (2, 1)].map(|(rank, n)| {
                let mut out = Outbox::at(home.clone(), rank);
                loom::thread::spawn(move || (0..n).for_each(|value| push(&mut out, value)))
            });
            let mut inbox = Inbox::at(home, 0);
            let mut next = [0, 0, 0];
            for _ in 0..4 {
                let (from, value) = take(&mut inbox);
                assert_eq!(value, next[from as usize]);
                next[from as usize] += 1;
            }
            assert_eq!(next, [0, 3, 1]);
            for sender in senders {
                sender.join().unwrap();
            }
        });
    }

    /// A sender leaves a message, makes a ring and uses it, ends it, leaves a message, and uses the
    /// ring again: all comes in order, and no line is written while it is read.
    #[test]
    fn an_inbox_orders_the_lives_of_a_ring() {
        const OPENED: u64 = 100;
        const CLOSED: u64 = 200;
        explore(2, || {
            let home = world(2);
            let (mut tx, rx) = ring::in_private_memory();
            let again = rx.another();
            rx.leave();
            let mut out = Outbox::at(home.clone(), 1);
            let sender = loom::thread::spawn(move || {
                let mut value = 0;
                for life in 0..2 {
                    if life == 0 {
                        push(&mut out, value);
                        value += 1;
                    }
                    while !tx.restart() {
                        loom::thread::yield_now();
                    }
                    push(&mut out, OPENED + tx.position());
                    assert!(tx.push(0, |words| words[0] = value));
                    value += 1;
                    push(&mut out, CLOSED + tx.position());
                }
            });
            let mut inbox = Inbox::at(home, 0);
            let mut ring: Option<ring::Consumer> = None;
            let mut expected = 0;
            let mut seen = |value| {
                assert_eq!(value, expected);
                expected += 1;
            };
            let mut ends = 0;
            while ends < 2 {
                match take(&mut inbox).1 {
                    end @ CLOSED.. => {
                        let mut rx = ring.take().expect("a ring that ends has begun");
                        while rx.position() < end - CLOSED {
                            seen(rx.peek().expect("what came before the end is here").1[0]);
                            rx.release(1);
                        }
                        rx.leave();
                        ends += 1;
                    }
                    begin @ OPENED.. => {
                        let rx = again.at_position(begin - OPENED);
                        ring = Some(rx.expect("a ring that begins has no consumer"));
                        let rx = ring.as_mut().expect("it has just begun");
                        if let Some((_, words)) = rx.peek() {
                            seen(words[0]);
                            rx.release(1);
                        }
                    }
                    value => seen(value),
                }
            }
            assert_eq!(expected, 3);
            sender.join().unwrap();
        });
    }
}
