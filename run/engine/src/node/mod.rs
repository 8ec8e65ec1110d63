//! Fast paths of blocking collectives between ranks of one machine.
//!
//! A communicator whose ranks share a segment has a [`Channel`]: a board in shared memory
//! ([`margay_sys_shm::board`]). Small operations put their data into slots and read the others' slots;
//! large ones put addresses into the slots and every rank copies what it needs straight from the
//! others' buffers, once. Which way an operation goes depends only on what the standard makes equal
//! on all ranks, so all decide alike; what fits neither way returns `false` and goes by schedule.
//!
//! Where ranks have a core each, every rank reads every slot (one cache-line transfer). Where cores
//! are short, the last to arrive does the work for all and releases them with one store: the ranks
//! then wait for one word, and nobody has to be scheduled twice.
//!
//! Reductions are computed in rank order, so results do not change from run to run.

mod direct;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use margay_core_datatype::{Basic, Datatype};
use margay_core_group::Group;
use margay_core_reduce::Op;
use margay_sys_os::cpu;
use margay_sys_os::user::Mem;
use margay_sys_shm::board::{Board, Operation, SLOT_BYTES, STAGE_BYTES};

use self::direct::expose;
use crate::call::{Failed, Pending};
use crate::data::{self, Data};
use crate::engine::Engine;
use crate::rank::Rank;

/// Bytes of a slot for data; before them is the tag that says what the rank is doing.
pub const SHORT_BYTES: usize = SLOT_BYTES - TAG_BYTES;
const TAG_BYTES: usize = 8;

/// Blocks of an all-to-all shorter than this go as messages: a system call for each costs more.
const LEAST_PULL: u64 = 4096;

/// Among more ranks an all-to-all does not go by lanes: with 1,024 ranks it took half a second, most of it for mapping pages.
const MOST_LANES: u32 = 256;

/// Contributions to an exchange longer than this are copied from the peer's buffer where every rank has a core.
const PUBLISHED_IF_ROOMY: usize = 16 << 10;

/// Up to this many ranks with a core each, every rank combines all contributions by itself.
const COMBINED_BY_ALL: u32 = 4;

/// Bytes of a result that are computed at a time.
const COMBINED_PIECE: usize = 8 << 10;

/// A communicator's board and where its ranks are.
pub struct Channel {
    board: Board,
    members: Arc<Group>,
    context: u32,
    /// Every rank has a core: poll all slots rather than wait for a release.
    roomy: bool,
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
    /// Another thread of this rank is in a collective operation of the same communicator.
    Busy,
}

/// The kinds of operation, as they stand in tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Barrier = 1,
    Bcast = 2,
    Reduce = 3,
    Allgather = 4,
    Alltoall = 5,
    Address = 6,
    Vote = 7,
}

/// What a rank does in an operation, in eight bytes: kind 8 bits, root + 1 24 bits, bytes 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tag(u64);

impl Tag {
    #[inline]
    fn new(kind: Kind, root: Option<u32>, bytes: u64) -> Tag {
        let root = root.map_or(0, |r| u64::from(r) + 1) & 0xff_ffff;
        Tag((kind as u64) << 56 | root << 32 | bytes & 0xffff_ffff)
    }

    #[inline]
    fn check(self, rank: u32, slot: &[u8]) -> Result<(), Disagreement> {
        let other = u64::from_ne_bytes(slot[..TAG_BYTES].try_into().expect("eight bytes"));
        if other == self.0 {
            return Ok(());
        }
        let same = other >> 32 == self.0 >> 32;
        Err(self.other(rank, same.then_some(other & 0xffff_ffff)))
    }

    /// A rank does something else, or has other bytes.
    fn other(self, rank: u32, bytes: Option<u64>) -> Disagreement {
        Disagreement {
            rank,
            bytes,
            expected: self.0 & 0xffff_ffff,
            cause: None,
        }
    }
}

/// Equal blocks of a user's buffer: `count` elements of a datatype for each rank.
#[derive(Clone, Copy, Debug)]
pub struct Blocks<'a> {
    /// The memory; its base is the user's address.
    pub mem: &'a Mem,
    /// Elements of a block.
    pub count: u64,
    /// Their type.
    pub datatype: &'a Arc<Datatype>,
}

impl Blocks<'_> {
    /// Packed bytes of a block.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.count * self.datatype.size()
    }

    /// `blocks` of them from the `first`.
    fn data(&self, first: u32, blocks: u32) -> Data {
        let offset = i64::from(first) * self.count as i64 * self.datatype.extent();
        Data::typed(
            self.mem.shifted(offset),
            self.count * u64::from(blocks),
            self.datatype,
        )
    }
}

impl Channel {
    /// Returns the channel of the communicator with that context and these members, of which this
    /// rank is number `me`. Every member calls it. None where the ranks share no memory or boards
    /// are used up.
    #[must_use]
    pub fn open(rank: &Rank, members: &Arc<Group>, me: u32, context: u32) -> Option<Channel> {
        let segment = rank.common_memory()?;
        let ranks = members.size();
        if ranks < 2 || members.processes().any(|p| p >= segment.ranks()) {
            return None;
        }
        let mut hasher = DefaultHasher::new();
        context.hash(&mut hasher);
        for process in members.processes() {
            process.hash(&mut hasher);
        }
        Some(Channel {
            board: Board::open(segment, hasher.finish(), ranks, me)?,
            members: members.clone(),
            context,
            // By what all ranks know alike: their policies of waiting may differ.
            roomy: segment.ranks() <= rank.peers().cores(),
            attach: OnceLock::new(),
        })
    }

    /// Ends this rank's use of the channel (the communicator is freed).
    pub fn close(&self) {
        self.board.leave();
    }

    /// Waits until all have come.
    ///
    /// # Errors
    /// When the ranks do not agree about the operation.
    pub fn barrier(&self, rank: &Rank) -> Result<(), Disagreement> {
        let tag = Tag::new(Kind::Barrier, None, 0);
        let op = self.begin(rank)?;
        put(&op, tag, 0, |_| {});
        self.all(rank, &op, tag, 0, |_| {})
    }

    /// Broadcasts `data` of `root`. Returns false when it must go by schedule.
    ///
    /// # Errors
    /// When the ranks do not agree about the operation.
    pub fn bcast(&self, rank: &Rank, data: &Data, root: u32) -> Result<bool, Disagreement> {
        let len = data.size() as usize;
        if len > STAGE_BYTES {
            return self.pull_from_root(rank, data, root);
        }
        let staged = len > SHORT_BYTES;
        let tag = Tag::new(Kind::Bcast, Some(root), len as u64);
        let op = self.begin(rank)?;
        if self.board.me() == root && staged {
            // The root does not wait for the others: it may be several broadcasts ahead. Where
            // another rank takes itself for the root and has staged, its tag reports that to the
            // others.
            let _ = op.stage(len, |stage| data.walk().pack(data, stage));
            put(&op, tag, 0, |_| {});
            self.wake();
        } else if self.board.me() == root {
            put(&op, tag, len, |slot| data.walk().pack(data, slot));
            self.wake();
        } else {
            put(&op, tag, 0, |_| {});
            self.wake();
            self.wait(rank, Some(root), || op.has_put(root))?;
            if staged {
                read(&op, root, tag, 0)?;
                let bytes = op.staged(root, len).ok_or_else(|| tag.other(root, None))?;
                data.walk().unpack(data, bytes);
            } else {
                data.walk().unpack(data, read(&op, root, tag, len)?);
            }
        }
        Ok(true)
    }

    /// Reduces `count` elements to all, or to `root` only. `input` and `output` are where the
    /// elements are and go (`output` of others than the root is not touched). Returns false when it
    /// must go by schedule.
    ///
    /// # Errors
    /// When the ranks do not agree about the operation.
    pub fn reduce(
        &self,
        rank: &Rank,
        (op, basic): (Op, Basic),
        count: u64,
        input: &Mem,
        output: &Mem,
        root: Option<u32>,
    ) -> Result<bool, Disagreement> {
        let element = basic.extent();
        if basic.size() != element {
            return Ok(false);
        }
        let bytes = count * element;
        let len = bytes as usize;
        if len > self.reduced_bytes(root) {
            return match root {
                None => self.reduce_slices(rank, (op, basic), count, input, output),
                Some(_) => Ok(false),
            };
        }
        let tag = Tag::new(Kind::Reduce, root, bytes);
        let here = self.begin(rank)?;
        self.contribute(rank, &here, tag, len, |part| input.read(0, part))?;
        let combine = |out: &mut [u8]| self.combine(&here, op, basic, out);
        match root {
            None => {
                self.all(rank, &here, tag, len, combine)?;
                if self.roomy {
                    output.with_bytes_mut(0, len, combine);
                } else if len <= SHORT_BYTES {
                    output.write(0, &here.result(TAG_BYTES + len)[TAG_BYTES..]);
                } else {
                    let me = self.board.me();
                    let result = here.staged_result(len);
                    output.write(0, result.ok_or_else(|| tag.other(me, None))?);
                }
            }
            Some(root) if root == self.board.me() => {
                self.wake();
                self.wait_for_all(rank, &here)?;
                self.check_all(&here, tag)?;
                output.with_bytes_mut(0, len, combine);
            }
            Some(_) => self.wake(),
        }
        Ok(true)
    }

    /// Every rank's block to all. `send` is none in place. Returns false when it must go by
    /// schedule.
    ///
    /// # Errors
    /// When the ranks do not agree about the operation.
    pub fn allgather(
        &self,
        rank: &Rank,
        send: Option<&Data>,
        recv: Blocks<'_>,
    ) -> Result<bool, Disagreement> {
        let me = self.board.me();
        let own = recv.data(me, 1);
        let mine = send.unwrap_or(&own);
        let len = recv.bytes() as usize;
        let tag = Tag::new(Kind::Allgather, None, len as u64);
        if len > self.published_bytes() && self.may_attach(rank)? {
            if send.is_some() {
                data::copy(mine, &own);
            }
            let exposed = expose(mine);
            self.pull_all(rank, &exposed, |from| (recv.data(from, 1), 0))?;
            return Ok(true);
        }
        if len > self.board.lane_bytes() {
            return Ok(false);
        }
        let op = self.begin(rank)?;
        let own_len = (mine.size() as usize).min(len);
        self.contribute(rank, &op, tag, own_len, |part| mine.walk().pack(mine, part))?;
        self.all(rank, &op, tag, 0, |_| {})?;
        for from in 0..self.board.ranks() {
            if from != me || send.is_some() {
                let place = recv.data(from, 1);
                place.walk().unpack(&place, read(&op, from, tag, len)?);
            }
        }
        Ok(true)
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
        let all = send.data(0, ranks);
        if total as usize > self.published_bytes()
            && block >= LEAST_PULL
            && self.may_attach(rank)?
        {
            data::copy(&send.data(me, 1), &recv.data(me, 1));
            let exposed = expose(&all);
            self.pull_all(rank, &exposed, |from| {
                (recv.data(from, 1), block * u64::from(me))
            })?;
            return Ok(true);
        }
        // Reading a page of every rank costs each rank more than a few messages do, from some number of ranks on.
        let reads_lanes = total as usize > SHORT_BYTES;
        if total > self.board.lane_bytes() as u64 || (reads_lanes && ranks > MOST_LANES) {
            return Ok(false);
        }
        let len = total as usize;
        let tag = Tag::new(Kind::Alltoall, None, total);
        let op = self.begin(rank)?;
        let own_len = (all.size() as usize).min(len);
        self.contribute(rank, &op, tag, own_len, |part| all.walk().pack(&all, part))?;
        self.all(rank, &op, tag, 0, |_| {})?;
        let start = (block * u64::from(me)) as usize;
        for from in 0..ranks {
            let place = recv.data(from, 1);
            let bytes = &read(&op, from, tag, len)?[start..start + block as usize];
            place.walk().unpack(&place, bytes);
        }
        Ok(true)
    }

    /// Starts the next operation, once this rank may put.
    #[inline(always)]
    fn begin(&self, rank: &Rank) -> Result<Operation<'_>, Disagreement> {
        let Some(op) = self.board.begin() else {
            return Err(self.busy());
        };
        if !op.may_put() {
            self.wait(rank, None, || op.may_put())?;
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

    /// As [`put`], of up to [`Board::lane_bytes`].
    #[inline]
    fn contribute(
        &self,
        rank: &Rank,
        op: &Operation<'_>,
        tag: Tag,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Disagreement> {
        if len <= SHORT_BYTES {
            put(op, tag, len, fill);
            return Ok(());
        }
        if !op.may_publish() {
            self.wait(rank, None, || op.may_publish())?;
        }
        op.publish_large(len, fill);
        put(op, tag, 0, |_| {});
        Ok(())
    }

    /// Longest contribution to a reduction (to `root`, or to all) that goes through the board. Where every rank has a core,
    /// every rank combines all that all contribute; with many of them, slices are better.
    fn reduced_bytes(&self, root: Option<u32>) -> usize {
        if root.is_none() && self.roomy && self.board.ranks() > COMBINED_BY_ALL {
            SHORT_BYTES
        } else {
            self.board.lane_bytes()
        }
    }

    /// Longest contribution to an exchange that goes through the board where ranks can copy from each other: copying twice
    /// is better than a system call for each pair, above all where the calls are made one after the other.
    fn published_bytes(&self) -> usize {
        let most = if self.roomy {
            PUBLISHED_IF_ROOMY
        } else {
            usize::MAX
        };
        self.board.lane_bytes().min(most)
    }

    fn check_all(&self, op: &Operation<'_>, tag: Tag) -> Result<(), Disagreement> {
        for from in 0..self.board.ranks() {
            read(op, from, tag, 0)?;
        }
        Ok(())
    }

    /// Waits until all have put this operation. Where cores are short, the last to come writes a
    /// result of `len` bytes by `fill` and lets the others go.
    #[inline]
    fn all(
        &self,
        rank: &Rank,
        op: &Operation<'_>,
        tag: Tag,
        len: usize,
        fill: impl Fn(&mut [u8]),
    ) -> Result<(), Disagreement> {
        if self.roomy {
            self.wake();
            self.wait_for_all(rank, op)?;
            return self.check_all(op, tag);
        }
        if op.arrive() {
            let mut verdict = self.check_all(op, tag);
            let (short, long) = if len <= SHORT_BYTES {
                (len, 0)
            } else {
                (0, len)
            };
            if long > 0 && verdict.is_ok() && !op.stage(long, &fill) {
                // A rank has staged although its tag says that it does not.
                verdict = Err(tag.other(self.board.me(), None));
            }
            op.release(TAG_BYTES + short, |result| {
                // The result carries the tag of the ranks that agree with the last to arrive.
                result[..TAG_BYTES].copy_from_slice(&tag.0.to_ne_bytes());
                if verdict.is_err() {
                    result[..TAG_BYTES].fill(0xff);
                } else if short > 0 {
                    fill(&mut result[TAG_BYTES..]);
                }
            });
            self.wake();
            return verdict;
        }
        self.wait(rank, None, || op.is_released())?;
        match tag.check(self.board.me(), op.result(TAG_BYTES)) {
            Ok(()) => Ok(()),
            // Two ranks disagree: find one that disagrees with this rank, if any.
            Err(general) => self.check_all(op, tag).and(Err(general)),
        }
    }

    #[inline]
    fn wait_for_all(&self, rank: &Rank, op: &Operation<'_>) -> Result<(), Disagreement> {
        let mut seen = 0;
        self.wait(rank, None, || {
            while seen < self.board.ranks() && op.has_put(seen) {
                seen += 1;
            }
            seen == self.board.ranks()
        })
    }

    #[inline]
    fn wake(&self) {
        let me = self.board.me() as usize;
        self.board.wake(
            self.members
                .processes()
                .enumerate()
                .filter(|&(at, _)| at != me)
                .map(|(_, world)| world),
        );
    }

    #[inline]
    fn wait(
        &self,
        rank: &Rank,
        on: Option<u32>,
        mut ready: impl FnMut() -> bool,
    ) -> Result<(), Disagreement> {
        let world = on.and_then(|member| self.members.process(member));
        let pending = |_: &Engine| Some(Pending::Collective(world, self.context));
        if rank.spin_until(&mut ready) {
            return Ok(());
        }
        let come = |engine: &mut Engine| match ready() {
            true => Some(Ok(())),
            false => engine.broken(self.context, &self.members).map(Err),
        };
        rank.block(come, pending).map_err(|failed| Disagreement {
            rank: on.unwrap_or(self.board.me()),
            bytes: None,
            expected: 0,
            cause: Some(Cause::Failed(failed)),
        })
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
