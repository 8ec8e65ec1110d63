//! Fast paths of collectives between ranks of one machine.
//!
//! A communicator whose ranks share a segment has a [`Channel`]: a board in shared memory
//! ([`margay_sys_shm::board`]). Small operations put their data into slots and read the others'
//! slots; large ones put addresses into the slots and every rank copies what it needs straight from
//! the others' buffers, once. Which way an operation goes depends only on what the standard makes
//! equal on all ranks, so all decide alike; what fits neither way returns `false` and goes by
//! schedule.
//!
//! Where ranks have a core each, every rank reads every slot (one cache-line transfer). Where cores
//! are short, the last to arrive does the work for all and releases them with one store: the ranks
//! then wait for one word, and nobody has to be scheduled twice.
//!
//! Reductions are computed in rank order, so results do not change from run to run.

mod blocks;
mod direct;
mod exchange;
pub(crate) mod posted;
mod short;
mod tag;
mod waiting;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use margay_core_datatype::Basic;
use margay_core_group::Group;
use margay_core_reduce::Op;
use margay_sys_os::{cpu, processor};
use margay_sys_shm::board::{Board, Operation, SLOT_BYTES, STAGE_BYTES};

pub use self::blocks::{Blocks, Parts};
use self::direct::expose;
pub use self::exchange::{Combination, Exchange, Share};
pub use self::posted::{Arguments, Posted};
use self::tag::{Kind, LAST, Tag};
use self::waiting::looks_again;
use crate::call::Failed;
use crate::data::{self, Data};
use crate::rank::Rank;

/// Bytes of a slot for data; before them is the tag that says what the rank is doing.
pub const SHORT_BYTES: usize = SLOT_BYTES - TAG_BYTES;
const TAG_BYTES: usize = 8;

/// Blocks of an all-to-all shorter than this go as messages: a system call for each costs more.
const LEAST_PULL: u64 = 4096;

/// Where cores are short, contributions up to this many bytes go through lanes piece by piece, if
/// lanes have this length.
const IN_PIECES: u64 = 1 << 20;
const LEAST_LANE: u64 = 16 << 10;

/// Among more ranks an all-to-all does not go by lanes: with 1,024 ranks it took half a second,
/// most of it for mapping pages.
const MOST_LANES: u32 = 256;

/// Where every rank has a core, contributions to an exchange longer than this, and what goes from a
/// root or to one, are copied from one buffer to the other.
const PUBLISHED_IF_ROOMY: usize = 16 << 10;
const SENT_IF_ROOMY: u64 = 16 << 10;

/// On AMD's processors two ranks with a core each swap blocks by messages up to this many bytes;
/// others they copy from each other.
const SWAPPED: u64 = 512 << 10;

/// Reductions to one rank that are longer go in pieces where every rank has a core, up to this many
/// bytes.
const REDUCED_AT_ONCE: u64 = 32 << 10;
const REDUCED_IN_PIECES: u64 = 512 << 10;
/// Bytes of such a piece. A rank may be two of them ahead.
const REDUCED_PIECE: u64 = 16 << 10;

/// Up to this many ranks with a core each, every rank combines all contributions by itself.
const COMBINED_BY_ALL: u32 = 4;

/// Up to this many ranks find out at the first operation whether they may read each other's memory.
/// It takes two operations, so two pages of each rank.
const PROBED_AT_ONCE: u32 = 16;

/// Bytes of a result that are computed at a time.
const COMBINED_PIECE: usize = 8 << 10;

/// Which collectives of a communicator a channel serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    /// Blocking ones.
    Blocking,
    /// Nonblocking ones (`posted.rs`).
    Nonblocking,
}

/// A communicator's board and where its ranks are.
pub struct Channel {
    board: Board,
    members: Arc<Group>,
    context: u32,
    /// Every rank has a core: poll all slots rather than wait for a release.
    roomy: bool,
    /// Ranks may die without this one being ended, too.
    is_watching: bool,
    /// Whether all ranks may read each other's memory; found out at the first need.
    attach: OnceLock<bool>,
}

/// The ranks do not agree about an operation: another collective, root or size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// A rank that does something else than this one.
    pub rank: u32,
    /// Its bytes, if it is the same kind of operation with the same root.
    pub bytes: Option<u64>,
    /// This rank's bytes.
    pub expected: u64,
    /// They may agree, but something else went wrong.
    pub cause: Option<Cause>,
}

/// Why an operation through shared memory could not be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A rank has died, or the communicator was revoked.
    Failed(Failed),
    /// The memory of the rank could be read at first and then not any more.
    Unreadable,
    /// The ranks have other counts for their shares of a reduction.
    Counts,
    /// The rank uses the communicator no more.
    Left,
    /// Another thread of this rank is in a collective operation of the same communicator.
    Busy,
}

impl Channel {
    /// Returns the channel of the communicator with that context and these members, of which this
    /// rank is number `me`. Every member calls it. None where the ranks share no memory or boards
    /// are used up.
    #[must_use]
    pub fn open(
        rank: &Rank,
        members: &Arc<Group>,
        me: u32,
        context: u32,
        plane: Plane,
    ) -> Option<Channel> {
        let ranks = members.size();
        if ranks < 2 {
            return None;
        }
        let segment = rank.memory_among(members.processes())?;
        if members.processes().any(|p| p >= segment.ranks()) {
            return None;
        }
        let mut hasher = DefaultHasher::new();
        context.hash(&mut hasher);
        (plane as u8).hash(&mut hasher);
        for process in members.processes() {
            process.hash(&mut hasher);
        }
        let channel = Channel {
            board: Board::open(segment, hasher.finish(), ranks, me)?,
            members: members.clone(),
            context,
            // By what all ranks know alike: their policies of waiting may differ.
            roomy: rank.has_core(),
            is_watching: rank.is_watching(),
            attach: OnceLock::new(),
        };
        if plane == Plane::Blocking && ranks == segment.ranks() && ranks <= PROBED_AT_ONCE {
            // Nonblocking collectives, which cannot ask, so know it in most programs. Who cannot
            // find out has the failure in the operation that follows.
            let _ = channel.may_attach(rank);
        }
        Some(channel)
    }

    pub(crate) fn context(&self) -> u32 {
        self.context
    }

    pub(crate) fn members(&self) -> &Group {
        &self.members
    }

    /// Ends this rank's use of the channel (the communicator is freed).
    pub fn close(&self) {
        self.board.leave();
    }

    /// Broadcasts `data` of `root`. Returns false when it must go by schedule.
    ///
    /// # Errors
    /// When the ranks do not agree about the operation.
    pub fn bcast(&self, rank: &Rank, data: Data, root: u32) -> Result<bool, Disagreement> {
        if self.is_message(data.size(), true) {
            return Ok(false);
        }
        if self.is_pulled(data.size()) && self.may_attach(rank)? {
            let tag = Tag::new(Kind::Bcast, Some(root), data.size());
            let is_root = root == self.board.me();
            let source = is_root.then_some(&data);
            self.pull_from_root(rank, (tag, root), source, (Some(&data), 0))?;
            return Ok(true);
        }
        self.exchange(rank, &Exchange::Bcast { data, root })
    }

    /// Reduces to all, or to `root` only (the output of others is not touched). Returns false when
    /// it must go by schedule.
    ///
    /// # Errors
    /// When the ranks do not agree about the operation.
    #[inline]
    pub fn reduce(
        &self,
        rank: &Rank,
        what: Combination<'_>,
        root: Option<u32>,
    ) -> Result<bool, Disagreement> {
        if what.basic.size() != what.basic.extent() {
            return Ok(false);
        }
        let bytes = what.count * what.basic.extent();
        if self.is_short(bytes) {
            return self.reduce_short(rank, &what, root).map(|()| true);
        }
        if self.roomy && root.is_some() && bytes > REDUCED_AT_ONCE {
            if bytes > REDUCED_IN_PIECES {
                return Ok(false);
            }
            self.reduce_in_pieces(rank, &what, root, REDUCED_PIECE)?;
            return Ok(true);
        }
        if self.goes_in_pieces(bytes) {
            self.reduce_in_pieces(rank, &what, root, self.board.lane_bytes() as u64)?;
            return Ok(true);
        }
        if bytes > self.reduced_bytes(root) as u64 {
            return self.reduce_slices(rank, &what, root);
        }
        self.exchange(rank, &Exchange::Reduce(what, root))
    }

    /// A reduction piece by piece. To one rank, the others put the next piece while it combines
    /// one.
    fn reduce_in_pieces(
        &self,
        rank: &Rank,
        what: &Combination<'_>,
        root: Option<u32>,
        piece_bytes: u64,
    ) -> Result<(), Disagreement> {
        let element = what.basic.extent();
        let most = piece_bytes / element;
        let mut first = 0;
        while first < what.count {
            let offset = (first * element) as i64;
            let piece = Combination {
                count: most.min(what.count - first),
                input: &what.input.shifted(offset),
                output: &what.output.shifted(offset),
                ..*what
            };
            self.exchange(rank, &Exchange::Reduce(piece, root))?;
            first += piece.count;
        }
        Ok(())
    }

    /// Whether contributions of `bytes` bytes go through lanes piece by piece: where cores are
    /// short. There, ranks that copy from each other make a system call for each pair, one after
    /// the other, for pages that are looked up one by one.
    fn goes_in_pieces(&self, bytes: u64) -> bool {
        let lane = self.board.lane_bytes() as u64;
        !self.roomy && lane >= LEAST_LANE && (lane + 1..=IN_PIECES).contains(&bytes)
    }

    /// Every rank's block to `root`. Returns false when it must go by schedule.
    ///
    /// # Errors
    /// When the ranks do not agree about the operation.
    pub fn gather(
        &self,
        rank: &Rank,
        send: Option<Data>,
        recv: Option<Blocks<'_>>,
        (bytes, root): (u64, u32),
    ) -> Result<bool, Disagreement> {
        if self.is_message(bytes, true) {
            return Ok(false);
        }
        if self.roomy && self.is_pulled(bytes) && self.may_attach(rank)? {
            self.pull_to_root(rank, send.as_ref(), recv, (bytes, root))?;
            return Ok(true);
        }
        let exchange = Exchange::Gather {
            send,
            recv,
            bytes,
            root,
        };
        self.exchange(rank, &exchange)
    }

    /// A block of `root` to every rank. Returns false when it must go by schedule.
    ///
    /// # Errors
    /// When the ranks do not agree about the operation.
    pub fn scatter(
        &self,
        rank: &Rank,
        send: Option<Blocks<'_>>,
        recv: Option<Data>,
        (bytes, root): (u64, u32),
    ) -> Result<bool, Disagreement> {
        if self.is_message(bytes, true) {
            return Ok(false);
        }
        let (me, ranks) = (self.board.me(), self.ranks());
        let total = bytes.saturating_mul(ranks.into());
        let staged = total <= STAGE_BYTES as u64;
        let over = bytes >= LEAST_PULL && !staged;
        if (self.is_pulled(bytes) || over) && self.may_attach(rank)? {
            let tag = Tag::new(Kind::Scatter, Some(root), bytes);
            if let (Some(send), Some(recv)) = (&send, &recv) {
                data::copy(&send.data(me, 1), recv);
            }
            let all = send.map(|send| send.data(0, ranks));
            let block = (recv.as_ref(), bytes * u64::from(me));
            self.pull_from_root(rank, (tag, root), all.as_ref(), block)?;
            return Ok(true);
        }
        let exchange = Exchange::Scatter {
            send,
            recv,
            bytes,
            root,
        };
        self.exchange(rank, &exchange)
    }

    /// Reduces, and gives each rank its share. Returns false when it must go by schedule.
    ///
    /// # Errors
    /// When the ranks do not agree about the operation.
    pub fn reduce_scatter(
        &self,
        rank: &Rank,
        what: Combination<'_>,
        share: Share,
    ) -> Result<bool, Disagreement> {
        let exchange = Exchange::ReduceScatter(what, share);
        Ok(self.exchange(rank, &exchange)? || self.reduce_share(rank, &what, share)?)
    }

    /// Every rank's block to all. `send` is none in place. Returns false when it must go by
    /// schedule.
    ///
    /// # Errors
    /// When the ranks do not agree about the operation.
    pub fn allgather(
        &self,
        rank: &Rank,
        send: Option<Data>,
        recv: Blocks<'_>,
    ) -> Result<bool, Disagreement> {
        let me = self.board.me();
        let bytes = recv.bytes();
        if self.is_message(bytes, false) {
            return Ok(false);
        }
        if self.is_short(bytes) {
            return self
                .allgather_short(rank, send.as_ref(), recv)
                .map(|()| true);
        }
        if self.goes_in_pieces(bytes) {
            let lane = self.board.lane_bytes() as u64;
            for from in (0..bytes).step_by(lane as usize) {
                let exchange = Exchange::Allgather {
                    send: send.clone(),
                    recv,
                    piece: (from, lane.min(bytes - from)),
                };
                self.exchange(rank, &exchange)?;
            }
            return Ok(true);
        }
        if bytes > self.published_bytes() as u64 && self.may_attach(rank)? {
            let own = recv.data(me, 1);
            if let Some(send) = &send {
                data::copy(send, &own);
            }
            let exposed = expose(send.as_ref().unwrap_or(&own));
            self.pull_all(rank, &exposed, |from| (recv.data(from, 1), 0))?;
            return Ok(true);
        }
        let exchange = Exchange::Allgather {
            send,
            recv,
            piece: (0, bytes),
        };
        self.exchange(rank, &exchange)
    }

    /// As [`allgather`](Self::allgather), with blocks of different lengths.
    ///
    /// # Errors
    /// When the ranks do not agree about the operation.
    pub fn allgatherv(
        &self,
        rank: &Rank,
        send: Option<Data>,
        recv: Parts<'_>,
    ) -> Result<bool, Disagreement> {
        let me = self.board.me();
        let most = (0..self.ranks()).map(|from| recv.bytes_of(from)).max();
        if most > Some(self.published_bytes() as u64) && self.may_attach(rank)? {
            let own = recv.data(me);
            if let Some(send) = &send {
                data::copy(send, &own);
            }
            let exposed = expose(send.as_ref().unwrap_or(&own));
            self.pull_all(rank, &exposed, |from| (recv.data(from), 0))?;
            return Ok(true);
        }
        self.exchange(rank, &Exchange::Allgatherv { send, recv })
    }

    /// A block from every rank to every rank, not in place. Returns false when it must go by
    /// schedule.
    ///
    /// # Errors
    /// When the ranks do not agree about the operation.
    pub fn alltoall(
        &self,
        rank: &Rank,
        send: Blocks<'_>,
        recv: Blocks<'_>,
    ) -> Result<bool, Disagreement> {
        let (me, ranks) = (self.board.me(), self.board.ranks());
        let block = recv.bytes();
        let total = block * u64::from(ranks);
        if self.is_message(block, false) {
            return Ok(false);
        }
        if self.is_short(total) {
            return self.alltoall_short(rank, send, recv).map(|()| true);
        }
        if total as usize > self.published_bytes()
            && block >= LEAST_PULL
            && self.may_attach(rank)?
        {
            let all = send.data(0, ranks);
            data::copy(&send.data(me, 1), &recv.data(me, 1));
            let exposed = expose(&all);
            self.pull_all(rank, &exposed, |from| {
                (recv.data(from, 1), block * u64::from(me))
            })?;
            return Ok(true);
        }
        self.exchange(rank, &Exchange::Alltoall { send, recv })
    }

    /// Ranks of the communicator.
    #[inline]
    fn ranks(&self) -> u32 {
        self.board.ranks()
    }

    /// Starts the next operation, once this rank may put.
    #[inline(always)]
    fn begin(&self, rank: &Rank) -> Result<Operation<'_>, Disagreement> {
        let Some(op) = self.board.begin() else {
            return Err(self.busy());
        };
        if !op.may_put() {
            self.wait(rank, None, || {
                op.may_put() || looks_again(&op, || op.may_put())
            })?;
        }
        Ok(op)
    }

    #[cold]
    fn busy(&self) -> Disagreement {
        Disagreement {
            rank: self.board.me(),
            bytes: None,
            expected: 0,
            cause: Some(Cause::Busy),
        }
    }

    /// Longest contribution to a reduction (to `root`, or to all) that goes through the board.
    /// Where every rank has a core, every rank combines all that all contribute; with many of them,
    /// slices are better.
    fn reduced_bytes(&self, root: Option<u32>) -> usize {
        if root.is_none() && self.roomy && self.board.ranks() > COMBINED_BY_ALL {
            SHORT_BYTES
        } else {
            self.board.lane_bytes()
        }
    }

    /// Longest contribution to an exchange that goes through the board where ranks can copy from
    /// each other: copying twice is better than a system call for each pair, above all where the
    /// calls are made one after the other.
    fn published_bytes(&self) -> usize {
        let most = if self.roomy {
            PUBLISHED_IF_ROOMY
        } else {
            usize::MAX
        };
        self.board.lane_bytes().min(most)
    }

    /// Whether `bytes` bytes from or to a root are copied from one buffer to the other, if ranks
    /// may.
    fn is_pulled(&self, bytes: u64) -> bool {
        bytes > self.sent_bytes()
    }

    /// Whether a block of `bytes` bytes goes as a message, from or to a root or between all: two
    /// ranks with a core each copy it together, which beats a system call of one of them (64 KiB
    /// in 2.6 and 7.4 µs). Where both have a block to copy, it does so on AMD's processors only (an
    /// all-to-all of 64 KiB: 5.0 and 8.4 µs, on Intel's 9.1 and 6.7).
    fn is_message(&self, bytes: u64, is_rooted: bool) -> bool {
        let is_long = self.roomy && self.ranks() == 2 && bytes > SENT_IF_ROOMY;
        is_long && (is_rooted || bytes <= SWAPPED && processor::is_amd())
    }

    /// Most bytes from or to a root that go through the board where ranks can copy from each other.
    fn sent_bytes(&self) -> u64 {
        if self.roomy {
            SENT_IF_ROOMY
        } else {
            STAGE_BYTES as u64
        }
    }

    fn check_all(&self, op: &Operation<'_>, tag: Tag) -> Result<(), Disagreement> {
        for from in 0..self.board.ranks() {
            read(op, from, tag, 0)?;
        }
        Ok(())
    }

    /// What all have put in an operation, combined in rank order.
    fn combine(&self, here: &Operation<'_>, op: Op, basic: Basic, out: &mut [u8]) {
        // Pieces of the result stay in the nearest cache while all contributions are added to them.
        let piece = COMBINED_PIECE / basic.extent() as usize * basic.extent() as usize;
        let (last, len) = (self.board.ranks() - 1, out.len());
        for (at, out) in out.chunks_mut(piece).enumerate() {
            let bytes = out.len();
            let part = |member| &part(here, member, len)[at * piece..][..bytes];
            out.copy_from_slice(part(last));
            for member in (0..last).rev() {
                cpu::Widest::FORWARDS
                    .apply(op, basic, out, part(member))
                    .expect("the operation was checked against the type");
            }
        }
    }
}

/// Puts this rank's part of an operation: what it does, and `len` bytes of data.
#[inline]
fn put(op: &Operation<'_>, tag: Tag, len: usize, fill: impl FnOnce(&mut [u8])) {
    op.put(TAG_BYTES + len, |slot| {
        slot[..TAG_BYTES].copy_from_slice(&tag.0.to_ne_bytes());
        fill(&mut slot[TAG_BYTES..]);
    });
}

/// Returns what `from` has put in an operation, if it does the same as this rank.
#[inline]
fn read<'a>(
    op: &'a Operation<'_>,
    from: u32,
    tag: Tag,
    len: usize,
) -> Result<&'a [u8], Disagreement> {
    let short = if len <= SHORT_BYTES { len } else { 0 };
    let slot = op.read(from, TAG_BYTES + short);
    tag.check(from, slot)?;
    Ok(match len <= SHORT_BYTES {
        true => &slot[TAG_BYTES..],
        false => op.read_large(from, len),
    })
}

/// Returns what `from` has contributed to an operation.
#[inline]
fn part<'a>(op: &'a Operation<'_>, from: u32, len: usize) -> &'a [u8] {
    if len <= SHORT_BYTES {
        &op.read(from, TAG_BYTES + len)[TAG_BYTES..]
    } else {
        op.read_large(from, len)
    }
}
