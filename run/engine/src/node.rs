//! Fast paths of blocking collectives between ranks of one machine.
//!
//! A communicator whose ranks share a segment has a [`Channel`]: a board in shared memory
//! ([`margay_sys::board`]). Small operations put their data into slots and read the others' slots;
//! large ones put addresses into the slots and every rank copies what it needs straight from the
//! others' buffers, once. Which way an operation goes depends only on what the standard makes equal
//! on all ranks, so all decide alike; what fits neither way returns `false` and goes by schedule.
//!
//! Where ranks have a core each, every rank looks at every slot (one cache-line transfer). Where
//! cores are short, the last to arrive does the work for all and releases them with one store: the
//! ranks then wait for one word, and nobody has to be scheduled twice.
//!
//! Reductions are computed in rank order, so results do not change from run to run.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use margay_core_datatype::{Basic, Datatype};
use margay_core_group::Group;
use margay_core_reduce::{self as reduce, Op};
use margay_sys::board::{Board, SLOT_BYTES, STAGE_BYTES};
use margay_sys::process::is_alive;
use margay_sys::user::Mem;
use margay_sys::{cma, cpu};

use crate::data::{self, Data};
use crate::engine::{Engine, Failed, Pending};
use crate::rank::Rank;

/// Bytes of a slot for data; before them is the tag that says what the rank is doing.
pub const SHORT_BYTES: usize = SLOT_BYTES - TAG_BYTES;
const TAG_BYTES: usize = 8;

/// Blocks of an all-to-all shorter than this go as messages: a system call for each costs more.
const LEAST_PULL: u64 = 4096;

/// Bytes that a rank copies from one peer before it asks the next (large reductions).
const PIECE: u64 = 256 << 10;

/// A communicator's board and where its ranks are.
pub struct Channel {
    board: Board,
    members: Arc<Group>,
    context: u32,
    /// Number of the last operation.
    last: AtomicU64,
    /// Every rank has a core: look at all slots rather than wait for a release.
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
    pub trouble: Option<Trouble>,
}

/// Why an operation through shared memory could not be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A rank has died, or the communicator was revoked.
    Failed(Failed),
    /// The memory of the rank could be read at first and then not any more.
    Unreadable,
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
        Err(Disagreement {
            rank,
            bytes: same.then_some(other & 0xffff_ffff),
            expected: self.0 & 0xffff_ffff,
            trouble: None,
        })
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

/// A buffer that others read: where it is, and the packed copy if it had holes.
struct Exposed {
    address: u64,
    _packed: Option<Mem>,
}

impl Channel {
    /// The channel of the communicator with that context and these members, of which this rank is
    /// number `me`. Every member calls it. None where the ranks share no memory or boards are used
    /// up.
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
            last: AtomicU64::new(0),
            roomy: !rank.is_crowded(),
            attach: OnceLock::new(),
        })
    }

    /// This rank needs the channel no more (the communicator is freed).
    pub fn close(&self) {
        self.board.leave();
    }

    /// Waits until all have come.
    ///
    /// # Errors
    /// When the ranks do not agree about the operation.
    pub fn barrier(&self, rank: &Rank) -> Result<(), Disagreement> {
        let tag = Tag::new(Kind::Barrier, None, 0);
        let n = self.begin(rank)?;
        self.put(n, tag, 0, |_| {});
        self.all(rank, n, tag, 0, |_| {})
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
        let n = self.begin(rank)?;
        if self.board.me() == root && staged {
            // The root does not wait for the others: it may be several broadcasts ahead.
            self.board
                .stage(n, len, |stage| data.walk().pack(data, stage));
            self.put(n, tag, 0, |_| {});
            self.wake();
        } else if self.board.me() == root {
            self.put(n, tag, len, |slot| data.walk().pack(data, slot));
            self.wake();
        } else if staged {
            self.put(n, tag, 0, |_| {});
            self.wake();
            self.wait(rank, Some(root), || self.board.has_put(root, n))?;
            self.read(root, n, tag, 0)?;
            data.walk().unpack(data, self.board.staged(n, len));
        } else {
            self.put(n, tag, 0, |_| {});
            self.wake();
            self.wait(rank, Some(root), || self.board.has_put(root, n))?;
            data.walk().unpack(data, self.read(root, n, tag, len)?);
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
        if len > SHORT_BYTES {
            return match root {
                None => self.reduce_slices(rank, (op, basic), count, input, output),
                Some(_) => Ok(false),
            };
        }
        let tag = Tag::new(Kind::Reduce, root, bytes);
        let n = self.begin(rank)?;
        self.put(n, tag, len, |slot| input.read(0, slot));
        let combine = |out: &mut [u8]| self.combine_slots(n, op, basic, out);
        match root {
            None => {
                self.all(rank, n, tag, len, combine)?;
                if self.roomy {
                    output.with_bytes_mut(0, len, combine);
                } else {
                    output.write(0, &self.board.result(n, TAG_BYTES + len)[TAG_BYTES..]);
                }
            }
            Some(root) if root == self.board.me() => {
                self.wake();
                self.wait_for_all(rank, n)?;
                self.check_all(n, tag)?;
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
        if len > SHORT_BYTES {
            if !self.may_attach(rank)? {
                return Ok(false);
            }
            if send.is_some() {
                data::copy(mine, &own);
            }
            let exposed = expose(mine);
            self.pull_all(rank, &exposed, |from| (recv.data(from, 1), 0))?;
            return Ok(true);
        }
        let n = self.begin(rank)?;
        let own_len = (mine.size() as usize).min(len);
        self.put(n, tag, own_len, |slot| mine.walk().pack(mine, slot));
        self.all(rank, n, tag, 0, |_| {})?;
        for from in 0..self.board.ranks() {
            if from != me || send.is_some() {
                let place = recv.data(from, 1);
                place.walk().unpack(&place, self.read(from, n, tag, len)?);
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
        if total as usize > SHORT_BYTES {
            if block < LEAST_PULL || !self.may_attach(rank)? {
                return Ok(false);
            }
            data::copy(&send.data(me, 1), &recv.data(me, 1));
            let exposed = expose(&all);
            self.pull_all(rank, &exposed, |from| {
                (recv.data(from, 1), block * u64::from(me))
            })?;
            return Ok(true);
        }
        let len = total as usize;
        let tag = Tag::new(Kind::Alltoall, None, total);
        let n = self.begin(rank)?;
        let own_len = (all.size() as usize).min(len);
        self.put(n, tag, own_len, |slot| all.walk().pack(&all, slot));
        self.all(rank, n, tag, 0, |_| {})?;
        let start = (block * u64::from(me)) as usize;
        for from in 0..ranks {
            let place = recv.data(from, 1);
            let bytes = &self.read(from, n, tag, len)?[start..start + block as usize];
            place.walk().unpack(&place, bytes);
        }
        Ok(true)
    }

    /// Starts the next operation: its number, once this rank may put.
    #[inline]
    fn begin(&self, rank: &Rank) -> Result<u64, Disagreement> {
        let n = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        if !self.board.may_put(n) {
            self.wait(rank, None, || self.board.may_put(n))?;
        }
        Ok(n)
    }

    /// Puts this rank's part of operation `n`: what it does, and `len` bytes of data.
    #[inline]
    fn put(&self, n: u64, tag: Tag, len: usize, fill: impl FnOnce(&mut [u8])) {
        self.board.put(n, TAG_BYTES + len, |slot| {
            slot[..TAG_BYTES].copy_from_slice(&tag.0.to_ne_bytes());
            fill(&mut slot[TAG_BYTES..]);
        });
    }

    /// What `from` has put in operation `n`, if it does the same as this rank.
    #[inline]
    fn read(&self, from: u32, n: u64, tag: Tag, len: usize) -> Result<&[u8], Disagreement> {
        let slot = self.board.read(from, n, TAG_BYTES + len);
        tag.check(from, slot)?;
        Ok(&slot[TAG_BYTES..])
    }

    fn check_all(&self, n: u64, tag: Tag) -> Result<(), Disagreement> {
        for from in 0..self.board.ranks() {
            self.read(from, n, tag, 0)?;
        }
        Ok(())
    }

    /// Waits until all have put operation `n`. Where cores are short, the last to come writes a
    /// result of `len` bytes by `fill` and lets the others go.
    #[inline]
    fn all(
        &self,
        rank: &Rank,
        n: u64,
        tag: Tag,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Disagreement> {
        if self.roomy {
            self.wake();
            self.wait_for_all(rank, n)?;
            return self.check_all(n, tag);
        }
        if self.board.arrive(n) {
            let verdict = self.check_all(n, tag);
            self.board.release(n, TAG_BYTES + len, |result| {
                // The result carries the tag of those who agree with the last to come.
                result[..TAG_BYTES].copy_from_slice(&tag.0.to_ne_bytes());
                if verdict.is_ok() {
                    fill(&mut result[TAG_BYTES..]);
                } else {
                    result[..TAG_BYTES].fill(0xff);
                }
            });
            self.wake();
            return verdict;
        }
        self.wait(rank, None, || self.board.is_released(n))?;
        match tag.check(self.board.me(), self.board.result(n, TAG_BYTES)) {
            Ok(()) => Ok(()),
            // Somebody disagrees with somebody: find one who disagrees with this rank, if any.
            Err(general) => self.check_all(n, tag).and(Err(general)),
        }
    }

    #[inline]
    fn wait_for_all(&self, rank: &Rank, n: u64) -> Result<(), Disagreement> {
        let mut seen = 0;
        self.wait(rank, None, || {
            while seen < self.board.ranks() && self.board.has_put(seen, n) {
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
        if rank.look_for(&mut ready) {
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
            trouble: Some(Trouble::Failed(failed)),
        })
    }

    /// What all have put in operation `n`, combined in rank order.
    fn combine_slots(&self, n: u64, op: Op, basic: Basic, out: &mut [u8]) {
        let last = self.board.ranks() - 1;
        let out_len = out.len();
        let slot = |member| &self.board.read(member, n, TAG_BYTES + out_len)[TAG_BYTES..];
        out.copy_from_slice(slot(last));
        for member in (0..last).rev() {
            reduce::apply_with(cpu::Widest, op, basic, out, slot(member))
                .expect("the operation was checked against the type");
        }
    }

    /// Whether all ranks may read each other's memory. All call it at the same operation; the first
    /// call asks, later ones know.
    fn may_attach(&self, rank: &Rank) -> Result<bool, Disagreement> {
        if let Some(&known) = self.attach.get() {
            return Ok(known);
        }
        const PROBE: u64 = 0x6d61_7267_6179_0a0d;
        let word = Mem::from_vec(PROBE.to_ne_bytes().to_vec());
        let n = self.put_address(rank, word.address() as u64)?;
        let next = (self.board.me() + 1) % self.board.ranks();
        let copy = Mem::owned(8);
        let read = self.pull(next, n, 0, &copy, 0, 8)
            && copy.with_bytes(0, 8, |bytes| bytes == PROBE.to_ne_bytes());
        let tag = Tag::new(Kind::Vote, None, 0);
        let n = self.begin(rank)?;
        self.put(n, tag, 1, |slot| slot[0] = u8::from(read));
        self.all(rank, n, tag, 0, |_| {})?;
        let mut all = true;
        for member in 0..self.board.ranks() {
            all &= self.read(member, n, tag, 1)?[0] == 1;
        }
        Ok(*self.attach.get_or_init(|| all))
    }

    /// Tells all where a buffer of this rank is; returns the operation in which all have told.
    fn put_address(&self, rank: &Rank, address: u64) -> Result<u64, Disagreement> {
        let tag = Tag::new(Kind::Address, None, 16);
        let n = self.begin(rank)?;
        self.put(n, tag, 16, |slot| write_address(slot, address));
        self.all(rank, n, tag, 0, |_| {})?;
        Ok(n)
    }

    /// Copies `len` bytes at `offset` of the buffer that `from` told in operation `n`.
    fn pull(&self, from: u32, n: u64, offset: u64, to: &Mem, at: i64, len: u64) -> bool {
        let told = &self.board.read(from, n, TAG_BYTES + 16)[TAG_BYTES..];
        let word = |i: usize| u64::from_ne_bytes(told[i..i + 8].try_into().expect("eight bytes"));
        let (address, pid) = (word(0), word(8) as u32);
        cma::read(pid, address + offset, to, at, len as usize).is_ok()
    }

    /// As [`pull`](Self::pull), unpacked into `place`. All ranks have agreed before that it works; one that cannot be read
    /// all the same goes to `unreadable`, and the operation goes on, so that nobody waits for this rank.
    fn pull_into(
        &self,
        from: u32,
        n: u64,
        offset: u64,
        place: &Data,
        unreadable: &mut Option<u32>,
    ) {
        let len = place.size();
        let ok = if let Some((mem, at)) = place.dense() {
            self.pull(from, n, offset, mem, at, len)
        } else {
            let packed = Mem::owned(len as usize);
            let ok = self.pull(from, n, offset, &packed, 0, len);
            if ok {
                data::copy(&Data::bytes(packed, len), place);
            }
            ok
        };
        if !ok {
            unreadable.get_or_insert(from);
        }
    }

    /// Every rank copies from every other; `place` says where to and from which offset. The buffers
    /// are free again when it returns.
    fn pull_all(
        &self,
        rank: &Rank,
        mine: &Exposed,
        place: impl Fn(u32) -> (Data, u64),
    ) -> Result<(), Disagreement> {
        let ranks = self.board.ranks();
        let me = self.board.me();
        let n = self.put_address(rank, mine.address)?;
        let mut unreadable = None;
        for step in 1..ranks {
            // Staggered, so that not all read the same rank's memory at once.
            let from = (me + step) % ranks;
            let (place, offset) = place(from);
            self.pull_into(from, n, offset, &place, &mut unreadable);
        }
        self.settle(rank, unreadable)
    }

    /// The memory of a member cannot be read any more: most likely it has died.
    #[cold]
    fn unreadable(&self, rank: &Rank, member: u32) -> Disagreement {
        let process = self.members.process(member);
        // Where ranks may die, it may also have left the operation, and its buffer, because it noticed a death first.
        let gone = rank.is_watching()
            || rank
                .segment()
                .zip(process)
                .is_some_and(|(segment, process)| !is_alive(segment.cell(process).pid()));
        Disagreement {
            rank: member,
            bytes: None,
            expected: 0,
            trouble: Some(if gone {
                Trouble::Failed(Failed::Process)
            } else {
                Trouble::Unreadable
            }),
        }
    }

    /// The end of an operation in which ranks read each other's memory: waits for all, and tells all when somebody could
    /// not read.
    fn settle(&self, rank: &Rank, unreadable: Option<u32>) -> Result<(), Disagreement> {
        let tag = Tag::new(Kind::Vote, None, 0);
        let n = self.begin(rank)?;
        // 1: all could be read; 0: somebody could not; 2: since he has died.
        let own = unreadable.map(|member| self.unreadable(rank, member));
        let failed = Some(Trouble::Failed(Failed::Process));
        let vote = match &own {
            None => 1,
            Some(d) if d.trouble == failed => 2,
            Some(_) => 0,
        };
        self.put(n, tag, 1, |slot| slot[0] = vote);
        self.all(rank, n, tag, 0, |_| {})?;
        for member in 0..self.board.ranks() {
            let vote = self.read(member, n, tag, 1)?[0];
            if vote != 1 {
                return Err(own.unwrap_or(Disagreement {
                    rank: member,
                    bytes: None,
                    expected: 0,
                    trouble: if vote == 2 {
                        failed
                    } else {
                        Some(Trouble::Unreadable)
                    },
                }));
            }
        }
        Ok(())
    }

    fn pull_from_root(&self, rank: &Rank, data: &Data, root: u32) -> Result<bool, Disagreement> {
        if !self.may_attach(rank)? {
            return Ok(false);
        }
        let tag = Tag::new(Kind::Bcast, Some(root), data.size());
        let me = self.board.me();
        let n = self.begin(rank)?;
        if me == root {
            let exposed = expose(data);
            self.put(n, tag, 16, |slot| write_address(slot, exposed.address));
            self.wake();
            let n = self.begin(rank)?;
            self.put(n, tag, 0, |_| {});
            self.wait_for_all(rank, n)?;
        } else {
            self.put(n, tag, 0, |_| {});
            self.wake();
            self.wait(rank, Some(root), || self.board.has_put(root, n))?;
            self.read(root, n, tag, 16)?;
            let mut unreadable = None;
            self.pull_into(root, n, 0, data, &mut unreadable);
            // The root waits for this before its buffer is free again; nobody else has to.
            let n = self.begin(rank)?;
            self.put(n, tag, 0, |_| {});
            self.wake();
            if let Some(root) = unreadable {
                return Err(self.unreadable(rank, root));
            }
        }
        Ok(true)
    }

    /// A large reduction to all: every rank reduces its slice of everybody's elements, then copies
    /// the other slices.
    fn reduce_slices(
        &self,
        rank: &Rank,
        (op, basic): (Op, Basic),
        count: u64,
        input: &Mem,
        output: &Mem,
    ) -> Result<bool, Disagreement> {
        let (me, ranks) = (self.board.me(), self.board.ranks());
        let element = basic.extent();
        if count < u64::from(ranks) * 64 || !self.may_attach(rank)? {
            return Ok(false);
        }
        let slice = |of: u32| {
            let from = count * u64::from(of) / u64::from(ranks) * element;
            let to = count * u64::from(of + 1) / u64::from(ranks) * element;
            (from, to)
        };
        let n = self.put_address(rank, input.address() as u64)?;
        let (first, end) = slice(me);
        let mut unreadable = None;
        let piece = PIECE / element * element;
        let operand = Mem::owned(piece.min(end - first) as usize);
        let result = Mem::owned(piece.min(end - first) as usize);
        let mut at = first;
        while at < end {
            let len = piece.min(end - at);
            for member in (0..ranks).rev() {
                let target = if member == ranks - 1 {
                    &result
                } else {
                    &operand
                };
                if member == me {
                    input.with_bytes(at as i64, len as usize, |own| target.write(0, own));
                } else {
                    let place = Data::bytes(target.clone(), len);
                    self.pull_into(member, n, at, &place, &mut unreadable);
                }
                if member != ranks - 1 {
                    result.with_bytes_mut(0, len as usize, |inout| {
                        operand.with_bytes(0, len as usize, |left| {
                            reduce::apply_with(cpu::Widest, op, basic, inout, left)
                                .expect("the operation was checked against the type");
                        });
                    });
                }
            }
            // In place, nobody but this rank reads this slice of this buffer.
            result.with_bytes(0, len as usize, |bytes| output.write(at as i64, bytes));
            at += len;
        }
        // All slices are reduced, so the input may be overwritten and the results may be read.
        let n = self.put_address(rank, output.address() as u64)?;
        for step in 1..ranks {
            let from = (me + step) % ranks;
            let (first, end) = slice(from);
            let place = Data::bytes(output.shifted(first as i64), end - first);
            self.pull_into(from, n, first, &place, &mut unreadable);
        }
        self.settle(rank, unreadable)?;
        Ok(true)
    }
}

/// Address and process of a buffer, as [`Channel::pull`] reads them.
fn write_address(slot: &mut [u8], address: u64) {
    slot[..8].copy_from_slice(&address.to_ne_bytes());
    slot[8..16].copy_from_slice(&u64::from(std::process::id()).to_ne_bytes());
}

fn expose(data: &Data) -> Exposed {
    match data.dense() {
        Some((mem, at)) => Exposed {
            address: mem.address().wrapping_add_signed(at as isize) as u64,
            _packed: None,
        },
        None => {
            let size = data.size();
            let packed = Mem::owned(size as usize);
            data::copy(data, &Data::bytes(packed.clone(), size));
            Exposed {
                address: packed.address() as u64,
                _packed: Some(packed),
            }
        }
    }
}
