//! Collectives in which each rank contributes once and then reads what others contributed: one
//! operation of the board.
//!
//! An [`Exchange`] says what a rank contributes, whom it waits for and what it does then. A
//! blocking collective waits between the steps ([`Channel::exchange`]); of a nonblocking one
//! progress takes the next step when it may be taken ([`posted`](super::posted)).

use margay_core_datatype::Basic;
use margay_core_reduce::Op;
use margay_sys_os::cpu;
use margay_sys_os::user::Mem;
use margay_sys_shm::board::{Operation, STAGE_BYTES};

use super::{
    Blocks, COMBINED_PIECE, Channel, Disagreement, Kind, LAST, MOST_LANES, Parts, SHORT_BYTES,
    TAG_BYTES, Tag, looks_again, part, put, read,
};
use crate::data::{self, Data};
use crate::rank::Rank;

/// Blocks from this many bytes on are packed one by one, without the rank's own, which then is
/// copied once instead of twice. Below, packing all blocks as one is faster.
const SINGLE_BLOCK: u64 = 512;

/// One rank's part of a collective. `None` for what is sent is `MPI_IN_PLACE`, or what has no
/// meaning on this rank.
pub enum Exchange<'a> {
    /// Nothing is exchanged.
    Barrier {
        /// The ranks use the communicator no more.
        is_last: bool,
    },
    /// The data of `root` to all.
    Bcast {
        /// What is sent or received.
        data: Data,
        /// The rank that has it.
        root: u32,
    },
    /// Every rank's block to `root`.
    Gather {
        /// This rank's block.
        send: Option<Data>,
        /// Where the blocks go, at the root.
        recv: Option<Blocks<'a>>,
        /// Packed bytes of a block.
        bytes: u64,
        /// The rank that gets them.
        root: u32,
    },
    /// A block of `root` to every rank.
    Scatter {
        /// The blocks, at the root.
        send: Option<Blocks<'a>>,
        /// This rank's block.
        recv: Option<Data>,
        /// Packed bytes of a block.
        bytes: u64,
        /// The rank that has them.
        root: u32,
    },
    /// Every rank's block to all.
    Allgather {
        /// This rank's block.
        send: Option<Data>,
        /// Where the blocks go.
        recv: Blocks<'a>,
        /// Which bytes of each block: the first, and how many.
        piece: (u64, u64),
    },
    /// Every rank's block to all, of different lengths.
    Allgatherv {
        /// This rank's block.
        send: Option<Data>,
        /// Where the blocks go.
        recv: Parts<'a>,
    },
    /// A block from every rank to every rank, not in place.
    Alltoall {
        /// The blocks that go out.
        send: Blocks<'a>,
        /// Where those go that come in.
        recv: Blocks<'a>,
    },
    /// The combination of all elements, to all or to one.
    Reduce(Combination<'a>, Option<u32>),
    /// A part of the combination to each rank.
    ReduceScatter(Combination<'a>, Share),
    /// The combination of the elements of the ranks up to this one, or (false) of those before it.
    Scan(Combination<'a>, bool),
}

/// What a reduction combines. Input and output are the same memory in place.
#[derive(Clone, Copy)]
pub struct Combination<'a> {
    /// The operation; it was checked against the type.
    pub op: Op,
    /// The type of an element.
    pub basic: Basic,
    /// Elements that each rank contributes.
    pub count: u64,
    /// Where they are.
    pub input: &'a Mem,
    /// Where the result goes; of no meaning where there is none.
    pub output: &'a Mem,
}

/// Which elements of a combination a rank gets.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// The first of them.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// Not 0 where shares differ: a number of 24 bits that depends on all of them, so that ranks
    /// notice when they disagree.
    pub mark: u32,
}

/// Whom a rank waits for after it has contributed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaited {
    Nobody,
    One(u32),
    /// The ranks below this one.
    Below(u32),
    All,
    /// All, and nobody else waits for all.
    AllAlone,
}

impl Combination<'_> {
    #[inline(always)]
    fn bytes(&self) -> usize {
        (self.count * self.basic.extent()) as usize
    }

    pub(super) fn is_in_place(&self) -> bool {
        self.input.address() == self.output.address()
    }
}

impl Exchange<'_> {
    #[inline(always)]
    fn kind(&self) -> Kind {
        match self {
            Exchange::Barrier { .. } => Kind::Barrier,
            Exchange::Bcast { .. } => Kind::Bcast,
            Exchange::Gather { .. } => Kind::Gather,
            Exchange::Scatter { .. } => Kind::Scatter,
            Exchange::Allgather { .. } => Kind::Allgather,
            Exchange::Allgatherv { .. } => Kind::Allgatherv,
            Exchange::Alltoall { .. } => Kind::Alltoall,
            Exchange::Reduce(..) => Kind::Reduce,
            Exchange::ReduceScatter(..) => Kind::ReduceScatter,
            Exchange::Scan(_, true) => Kind::Scan,
            Exchange::Scan(_, false) => Kind::Exscan,
        }
    }

    #[inline(always)]
    pub(super) fn root(&self) -> Option<u32> {
        match self {
            Exchange::Bcast { root, .. }
            | Exchange::Gather { root, .. }
            | Exchange::Scatter { root, .. } => Some(*root),
            Exchange::Reduce(_, root) => *root,
            // In the place of a root, of which there is none.
            Exchange::Barrier { is_last: true } => Some(LAST),
            Exchange::ReduceScatter(_, share) if share.mark != 0 => Some(share.mark),
            _ => None,
        }
    }

    /// What `rank` says that it does, if it does the same as this one.
    #[inline(always)]
    pub(super) fn tag_of(&self, rank: u32, ranks: u32) -> Tag {
        let bytes = match self {
            Exchange::Barrier { .. } => 0,
            Exchange::Bcast { data, .. } => data.size(),
            Exchange::Gather { bytes, .. } | Exchange::Scatter { bytes, .. } => *bytes,
            Exchange::Allgather { piece, .. } => piece.1,
            Exchange::Allgatherv { recv, .. } => recv.bytes_of(rank),
            Exchange::Alltoall { recv, .. } => recv.bytes() * u64::from(ranks),
            Exchange::Reduce(what, _)
            | Exchange::ReduceScatter(what, _)
            | Exchange::Scan(what, _) => what.bytes() as u64,
        };
        Tag::new(self.kind(), self.root(), bytes)
    }

    /// What all say together, in the result of the operation.
    fn common_tag(&self, ranks: u32) -> Tag {
        match self {
            Exchange::Allgatherv { recv, .. } => {
                let sum = (0..ranks).map(|rank| recv.bytes_of(rank)).sum();
                Tag::new(Kind::Allgatherv, None, sum)
            }
            _ => self.tag_of(0, ranks),
        }
    }

    /// Bytes that `rank` contributes.
    #[inline(always)]
    fn contribution(&self, rank: u32, ranks: u32) -> u64 {
        match self {
            Exchange::Barrier { .. } => 0,
            Exchange::Bcast { root, .. } | Exchange::Scatter { root, .. } if *root != rank => 0,
            Exchange::Gather { root, .. } if *root == rank => 0,
            Exchange::Scatter { bytes, .. } => bytes * u64::from(ranks),
            Exchange::Reduce(_, Some(root)) if *root == rank => 0,
            _ => self.tag_of(rank, ranks).bytes(),
        }
    }

    /// Most bytes that a rank contributes, and how many have a place.
    #[inline(always)]
    fn most(&self, channel: &Channel) -> (u64, usize) {
        let ranks = channel.ranks();
        let lane = channel.board.lane_bytes();
        match self {
            Exchange::Bcast { data, .. } => (data.size(), STAGE_BYTES),
            Exchange::Scatter { bytes, .. } => (bytes.saturating_mul(ranks.into()), STAGE_BYTES),
            Exchange::Gather { bytes, .. } => (*bytes, lane),
            Exchange::Allgatherv { recv, .. } => {
                let most = (0..ranks).map(|rank| recv.bytes_of(rank)).max();
                (most.unwrap_or(0), lane)
            }
            Exchange::Alltoall { recv, .. } => {
                // Reading a page of every rank costs each rank more than a few messages do, from
                // some number of ranks on.
                let room = if ranks > MOST_LANES {
                    SHORT_BYTES
                } else {
                    lane
                };
                (recv.bytes().saturating_mul(u64::from(ranks)), room)
            }
            Exchange::Reduce(_, root) => {
                (self.tag_of(0, ranks).bytes(), channel.reduced_bytes(*root))
            }
            _ => (self.tag_of(0, ranks).bytes(), lane),
        }
    }

    /// Whether it goes through the channel's board. All ranks find the same.
    #[inline(always)]
    pub fn fits(&self, channel: &Channel) -> bool {
        let whole = match self {
            Exchange::Reduce(what, _)
            | Exchange::ReduceScatter(what, _)
            | Exchange::Scan(what, _) => what.basic.size() == what.basic.extent(),
            _ => true,
        };
        let (bytes, room) = self.most(channel);
        whole && bytes <= room as u64
    }

    #[inline(always)]
    pub(super) fn awaited(&self, me: u32) -> Awaited {
        match self {
            Exchange::Bcast { root, .. } | Exchange::Scatter { root, .. } if *root == me => {
                Awaited::Nobody
            }
            Exchange::Bcast { root, .. } | Exchange::Scatter { root, .. } => Awaited::One(*root),
            Exchange::Gather { root, .. } | Exchange::Reduce(_, Some(root)) => match *root == me {
                true => Awaited::AllAlone,
                false => Awaited::Nobody,
            },
            // The lower ranks may be several operations ahead.
            Exchange::Scan(..) => Awaited::Below(me),
            _ => Awaited::All,
        }
    }

    /// Where contributions are staged, the root does not wait for the others: it may be several
    /// operations ahead.
    #[inline(always)]
    fn is_staged(&self) -> bool {
        matches!(self, Exchange::Bcast { .. } | Exchange::Scatter { .. })
    }

    /// Whether a rank copies its own block by itself, and does not contribute it.
    #[inline(always)]
    fn keeps_own(&self) -> bool {
        match self {
            Exchange::Alltoall { recv, .. } => recv.bytes() >= SINGLE_BLOCK,
            Exchange::Scatter { bytes, .. } => *bytes >= SINGLE_BLOCK,
            Exchange::ReduceScatter(what, _) => !what.is_in_place(),
            _ => false,
        }
    }

    /// Writes what this rank contributes.
    #[inline(always)]
    fn fill(&self, me: u32, ranks: u32, out: &mut [u8]) {
        match self {
            Exchange::Barrier { .. } => {}
            Exchange::Bcast { data, .. } => data.walk().pack(data, out),
            Exchange::Gather { send, .. } => {
                if let Some(send) = send {
                    pack(send, out);
                }
            }
            Exchange::Allgather {
                send,
                recv,
                piece: (from, bytes),
            } => match send {
                Some(send) => pack(&send.range(*from, *bytes), out),
                None => pack(&recv.data(me, 1).range(*from, *bytes), out),
            },
            Exchange::Allgatherv { send, recv } => match send {
                Some(send) => pack(send, out),
                None => pack(&recv.data(me), out),
            },
            Exchange::Scatter { send: None, .. } => {}
            Exchange::Scatter {
                send: Some(send), ..
            }
            | Exchange::Alltoall { send, .. } => {
                if !self.keeps_own() {
                    return pack(&send.data(0, ranks), out);
                }
                let block = out.len() / ranks as usize;
                for (to, place) in (0..ranks).zip(out.chunks_exact_mut(block)) {
                    if to != me {
                        pack(&send.data(to, 1), place);
                    }
                }
            }
            Exchange::Reduce(what, _) | Exchange::Scan(what, _) => what.input.read(0, out),
            Exchange::ReduceScatter(what, share) => {
                if !self.keeps_own() {
                    return what.input.read(0, out);
                }
                let element = what.basic.extent() as usize;
                let first = share.first as usize * element;
                let end = first + share.count as usize * element;
                what.input.read(0, &mut out[..first]);
                what.input.read(end as i64, &mut out[end..]);
            }
        }
    }
}

impl Channel {
    /// Does an exchange that [fits](Exchange::fits). Returns false when it does not.
    ///
    /// # Errors
    /// When the ranks do not agree about the operation.
    #[inline(always)]
    pub fn exchange(&self, rank: &Rank, exchange: &Exchange<'_>) -> Result<bool, Disagreement> {
        if !exchange.fits(self) {
            return Ok(false);
        }
        let op = self.begin(rank)?;
        if !self.may_contribute(&op, exchange) {
            self.wait(rank, None, || self.may_contribute(&op, exchange))?;
        }
        self.contribute_to(&op, exchange);
        let awaited = exchange.awaited(self.board.me());
        if awaited != Awaited::Nobody {
            let on = match awaited {
                Awaited::One(root) => Some(root),
                _ => None,
            };
            let mut seen = 0;
            self.wait(rank, on, || self.is_ready(&op, awaited, &mut seen))?;
        }
        self.finish(&op, exchange)?;
        Ok(true)
    }

    /// Whether this rank may contribute: the place is free. If not, it is woken when it is.
    #[inline(always)]
    pub(super) fn may_contribute(&self, op: &Operation<'_>, exchange: &Exchange<'_>) -> bool {
        let bytes = || exchange.contribution(self.board.me(), self.ranks());
        let has_place = || bytes() <= SHORT_BYTES as u64 || exchange.is_staged();
        let may = || op.may_put() && (has_place() || op.may_publish());
        may() || looks_again(op, may)
    }

    /// Contributes. Where cores are short and all wait for all, the last to come lets the others
    /// go.
    #[inline(always)]
    pub(super) fn contribute_to(&self, op: &Operation<'_>, exchange: &Exchange<'_>) {
        let (me, ranks) = (self.board.me(), self.ranks());
        let tag = exchange.tag_of(me, ranks);
        let len = exchange.contribution(me, ranks) as usize;
        let fill = |out: &mut [u8]| exchange.fill(me, ranks, out);
        if len <= SHORT_BYTES {
            put(op, tag, len, fill);
        } else if exchange.is_staged() {
            // Where another rank takes itself for the root and has staged, its tag reports that to
            // the others.
            let _ = op.stage(len, fill);
            put(op, tag, 0, |_| {});
        } else {
            op.publish_large(len, fill);
            put(op, tag, 0, |_| {});
        }
        self.tell(op, exchange, exchange.awaited(me));
    }

    /// Wakes those that wait for what this rank has put.
    #[inline(always)]
    pub(super) fn tell(&self, op: &Operation<'_>, exchange: &Exchange<'_>, awaited: Awaited) {
        if self.roomy {
            return self.wake();
        }
        if awaited != Awaited::All {
            return self.tell_of(op, awaited, exchange.root());
        }
        if op.arrive() {
            let agreed = self.check_each(op, exchange);
            let what = match exchange {
                Exchange::Reduce(what, None) => Some(what),
                _ => None,
            };
            let combine = |out: &mut [u8]| {
                if let Some(what) = what {
                    self.combine(op, what.op, what.basic, out);
                }
            };
            let len = what.map_or(0, Combination::bytes);
            // The others find what is wrong; this rank does when it reads the result.
            let _ = self.release(op, exchange.common_tag(self.ranks()), agreed, len, combine);
        }
    }

    /// Whether those have contributed that this rank waits for.
    #[inline(always)]
    pub(super) fn is_ready(&self, op: &Operation<'_>, awaited: Awaited, seen: &mut u32) -> bool {
        match awaited {
            Awaited::Nobody => true,
            Awaited::One(root) => op.has_put(root),
            Awaited::All if !self.roomy => op.is_released(),
            Awaited::Below(rank) => has_put_below(op, seen, rank),
            Awaited::All | Awaited::AllAlone => has_put_below(op, seen, self.ranks()),
        }
    }

    fn check_each(&self, op: &Operation<'_>, exchange: &Exchange<'_>) -> Result<(), Disagreement> {
        self.check_below(op, exchange, self.ranks())
    }

    fn check_below(
        &self,
        op: &Operation<'_>,
        exchange: &Exchange<'_>,
        end: u32,
    ) -> Result<(), Disagreement> {
        let ranks = self.ranks();
        for from in 0..end {
            read(op, from, exchange.tag_of(from, ranks), 0)?;
        }
        Ok(())
    }

    /// Takes what this rank gets, when it [is ready](Self::is_ready).
    #[inline(always)]
    pub(super) fn finish(
        &self,
        op: &Operation<'_>,
        exchange: &Exchange<'_>,
    ) -> Result<(), Disagreement> {
        let me = self.board.me();
        self.check_awaited(op, exchange, exchange.awaited(me))?;
        self.take(op, exchange, (me, self.ranks()))
    }

    /// Whether those do the same as this rank that it has waited for.
    #[inline(always)]
    pub(super) fn check_awaited(
        &self,
        op: &Operation<'_>,
        exchange: &Exchange<'_>,
        awaited: Awaited,
    ) -> Result<(), Disagreement> {
        let (me, ranks) = (self.board.me(), self.ranks());
        match awaited {
            Awaited::Nobody => Ok(()),
            Awaited::One(root) => read(op, root, exchange.tag_of(root, ranks), 0).map(|_| ()),
            Awaited::Below(rank) => self.check_below(op, exchange, rank),
            Awaited::All if !self.roomy => {
                let tag = exchange.common_tag(ranks);
                // Two ranks disagree: find one that disagrees with this rank, if any.
                (tag.check(me, op.result(TAG_BYTES)))
                    .or_else(|general| self.check_each(op, exchange).and(Err(general)))
            }
            Awaited::All | Awaited::AllAlone => self.check_each(op, exchange),
        }
    }

    #[inline(always)]
    fn take(
        &self,
        op: &Operation<'_>,
        exchange: &Exchange<'_>,
        (me, ranks): (u32, u32),
    ) -> Result<(), Disagreement> {
        let staged = |root: u32, len: usize| match len <= SHORT_BYTES {
            true => Ok(&op.read(root, TAG_BYTES + len)[TAG_BYTES..]),
            false => op
                .staged(root, len)
                .ok_or_else(|| exchange.tag_of(root, ranks).other(root, None)),
        };
        match exchange {
            Exchange::Barrier { .. } => {}
            Exchange::Bcast { root, .. } if *root == me => {}
            Exchange::Bcast { data, root } => unpack(data, staged(*root, data.size() as usize)?),
            Exchange::Gather { recv: None, .. } => {}
            Exchange::Gather {
                send,
                recv: Some(recv),
                bytes,
                ..
            } => {
                if let Some(send) = send {
                    data::copy(send, &recv.data(me, 1));
                }
                for from in (0..ranks).filter(|&from| from != me) {
                    unpack(&recv.data(from, 1), part(op, from, *bytes as usize));
                }
            }
            Exchange::Scatter {
                send: Some(send),
                recv,
                ..
            } => {
                if let Some(recv) = recv {
                    data::copy(&send.data(me, 1), recv);
                }
            }
            Exchange::Scatter {
                recv, bytes, root, ..
            } => {
                let block = *bytes as usize;
                let all = staged(*root, block * ranks as usize)?;
                if let Some(recv) = recv {
                    unpack(recv, &all[block * me as usize..][..block]);
                }
            }
            Exchange::Allgather { send, recv, piece } => {
                for from in 0..ranks {
                    if from != me || send.is_some() {
                        let place = recv.data(from, 1).range(piece.0, piece.1);
                        unpack(&place, part(op, from, piece.1 as usize));
                    }
                }
            }
            Exchange::Allgatherv { send, recv } => {
                for from in 0..ranks {
                    if from != me || send.is_some() {
                        let len = recv.bytes_of(from) as usize;
                        unpack(&recv.data(from), part(op, from, len));
                    }
                }
            }
            Exchange::Alltoall { send, recv } => {
                let block = recv.bytes() as usize;
                let all = block * ranks as usize;
                for from in 0..ranks {
                    if from == me && exchange.keeps_own() {
                        data::copy(&send.data(me, 1), &recv.data(me, 1));
                    } else {
                        let bytes = &part(op, from, all)[block * me as usize..][..block];
                        unpack(&recv.data(from, 1), bytes);
                    }
                }
            }
            _ => return self.take_combined(op, exchange, (me, ranks)),
        }
        Ok(())
    }

    fn take_combined(
        &self,
        op: &Operation<'_>,
        exchange: &Exchange<'_>,
        (me, ranks): (u32, u32),
    ) -> Result<(), Disagreement> {
        match exchange {
            Exchange::Reduce(what, root) if root.is_none_or(|root| root == me) => {
                let len = what.bytes();
                match root {
                    Some(_) => self.combine_range(op, what, (0, ranks), (0, len), Some(me)),
                    None if self.roomy => {
                        self.combine_range(op, what, (0, ranks), (0, len), None);
                    }
                    None if len <= SHORT_BYTES => {
                        what.output
                            .write(0, &op.result(TAG_BYTES + len)[TAG_BYTES..]);
                    }
                    None => {
                        let other = || exchange.tag_of(me, ranks).other(me, None);
                        what.output
                            .write(0, op.staged_result(len).ok_or_else(other)?);
                    }
                }
            }
            Exchange::ReduceScatter(what, share) => {
                let element = what.basic.extent() as usize;
                let first = share.first as usize * element;
                let own = exchange.keeps_own().then_some(me);
                let range = (first, share.count as usize * element);
                self.combine_range(op, what, (0, ranks), range, own);
            }
            Exchange::Scan(what, inclusive) => {
                let end = if *inclusive { me + 1 } else { me };
                if end > 0 {
                    self.combine_range(op, what, (0, end), (0, what.bytes()), None);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Combines what the ranks `first..end` have contributed, in their order, into the output: of
    /// `len` bytes from `at` on. The part of `own`, which did not contribute it, is read from this
    /// rank's input.
    fn combine_range(
        &self,
        op: &Operation<'_>,
        what: &Combination<'_>,
        (first, end): (u32, u32),
        (at, len): (usize, usize),
        own: Option<u32>,
    ) {
        let element = what.basic.extent() as usize;
        // Pieces of the result stay in the nearest cache while all contributions are added to them.
        let piece = COMBINED_PIECE / element * element;
        let whole = what.bytes();
        let in_place = own.is_some() && what.is_in_place();
        // In place the caller's elements lie where the result grows.
        let mut kept = vec![0; if in_place { piece.min(len) } else { 0 }];
        let mut done = 0;
        while done < len {
            let bytes = piece.min(len - done);
            let from = at + done;
            if in_place {
                what.input.read(from as i64, &mut kept[..bytes]);
            }
            what.output.with_bytes_mut(done as i64, bytes, |out| {
                for member in (first..end).rev() {
                    let mut apply = |operand: &[u8]| {
                        if member + 1 == end {
                            out.copy_from_slice(operand);
                        } else {
                            cpu::Widest::FORWARDS
                                .apply(what.op, what.basic, out, operand)
                                .expect("the operation was checked against the type");
                        }
                    };
                    if own != Some(member) {
                        apply(&part(op, member, whole)[from..][..bytes]);
                    } else if in_place {
                        apply(&kept[..bytes]);
                    } else {
                        what.input.with_bytes(from as i64, bytes, apply);
                    }
                }
            });
            done += bytes;
        }
    }
}

/// Whether the ranks below `end` have put; `seen` of them are known to have.
#[inline(always)]
pub(super) fn has_put_below(op: &Operation<'_>, seen: &mut u32, end: u32) -> bool {
    while *seen < end && op.has_put(*seen) {
        *seen += 1;
    }
    *seen >= end
}

/// Packs data of as many bytes as there is room for.
fn pack(data: &Data, out: &mut [u8]) {
    let len = out.len().min(data.size() as usize);
    data.walk().pack(data, &mut out[..len]);
}

fn unpack(data: &Data, bytes: &[u8]) {
    data.walk().unpack(data, bytes);
}
