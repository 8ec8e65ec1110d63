//! Large operations: ranks publish where their buffers are, and copy straight from there.

use margay_sys_os::user::Mem;
use margay_sys_os::{cma, cpu};
use margay_sys_shm::board::Operation;

use super::exchange::Awaited;
use super::{
    Blocks, Cause, Channel, Combination, Disagreement, Kind, Share, TAG_BYTES, Tag, put, read,
};
use crate::call::Failed;
use crate::collective::Requests;
use crate::data::{self, Data};
use crate::rank::Rank;

/// Bytes that a rank copies from one peer before it asks the next (large reductions).
const PIECE: u64 = 256 << 10;

/// A buffer that others read: where it is, and the packed copy if it had holes.
pub(super) struct Exposed {
    pub(super) address: u64,
    _packed: Option<Mem>,
}

impl Channel {
    /// Whether all ranks may read each other's memory. All call it at the same operation; the first
    /// call asks, later ones know.
    ///
    /// # Errors
    /// When the ranks do not agree about the operation.
    pub fn may_attach(&self, rank: &Rank) -> Result<bool, Disagreement> {
        if let Some(&known) = self.attach.get() {
            return Ok(known);
        }
        const PROBE: u64 = 0x6d61_7267_6179_0a0d;
        let word = Mem::from_vec(PROBE.to_ne_bytes().to_vec());
        let report = self.put_address(rank, word.address() as u64)?;
        let next = (self.board.me() + 1) % self.board.ranks();
        let copy = Mem::owned(8);
        let is_read = pull(&report, next, 0, &copy, 0, 8)
            && copy.with_bytes(0, 8, |bytes| bytes == PROBE.to_ne_bytes());
        drop(report);
        let tag = Tag::new(Kind::Vote, None, 0);
        let vote = self.begin(rank)?;
        put(&vote, tag, 1, |slot| slot[0] = u8::from(is_read));
        self.all(rank, &vote, tag)?;
        let mut all = true;
        for member in 0..self.board.ranks() {
            all &= read(&vote, member, tag, 1)?[0] == 1;
        }
        Ok(*self.attach.get_or_init(|| all))
    }

    /// Publishes where a buffer of this rank is; returns the operation in which all ranks have done
    /// so.
    fn put_address(&self, rank: &Rank, address: u64) -> Result<Operation<'_>, Disagreement> {
        self.put_address_as(rank, Tag::new(Kind::Address, None, 16), address)
    }

    /// The same under a tag that also says in what.
    fn put_address_as(
        &self,
        rank: &Rank,
        tag: Tag,
        address: u64,
    ) -> Result<Operation<'_>, Disagreement> {
        let op = self.begin(rank)?;
        put(&op, tag, 16, |slot| write_address(slot, address));
        self.all(rank, &op, tag)?;
        Ok(op)
    }

    /// Every rank copies from every other; `place` says where to and from which offset. The buffers
    /// are free again when it returns.
    pub(super) fn pull_all(
        &self,
        rank: &Rank,
        mine: &Exposed,
        place: impl Fn(u32) -> (Data, u64),
    ) -> Result<(), Disagreement> {
        let ranks = self.board.ranks();
        let me = self.board.me();
        let report = self.put_address(rank, mine.address)?;
        let mut unreadable = None;
        for step in 1..ranks {
            // Staggered, so that not all read the same rank's memory at once.
            let from = (me + step) % ranks;
            let (place, offset) = place(from);
            pull_into(&report, from, offset, &place, &mut unreadable);
        }
        drop(report);
        self.settle(rank, unreadable)
    }

    /// The memory of a member cannot be read any more: most likely it has died.
    #[cold]
    fn unreadable(&self, rank: &Rank, member: u32) -> Disagreement {
        let process = self.members.process(member);
        // Where ranks may die, it may also have left the operation, and its buffer, because it
        // noticed a death first.
        let gone =
            rank.is_watching() || process.is_some_and(|process| !rank.peers().is_alive(process));
        Disagreement {
            rank: member,
            bytes: None,
            expected: 0,
            cause: Some(if gone {
                Cause::Failed(Failed::Process)
            } else {
                Cause::Unreadable
            }),
        }
    }

    /// Whether it is known that all ranks may.
    #[must_use]
    pub fn attaches(&self) -> bool {
        self.attach.get() == Some(&true)
    }

    /// The end of an operation in which ranks read each other's memory: waits for all, and reports
    /// to all when a rank could not read.
    fn settle(&self, rank: &Rank, unreadable: Option<u32>) -> Result<(), Disagreement> {
        let tag = Tag::new(Kind::Vote, None, 0);
        let op = self.begin(rank)?;
        // 1: all could be read; 0: somebody could not; 2: since he has died.
        let own = unreadable.map(|member| self.unreadable(rank, member));
        let failed = Some(Cause::Failed(Failed::Process));
        let vote = match &own {
            None => 1,
            Some(d) if d.cause == failed => 2,
            Some(_) => 0,
        };
        put(&op, tag, 1, |slot| slot[0] = vote);
        self.all(rank, &op, tag)?;
        for member in 0..self.board.ranks() {
            let vote = read(&op, member, tag, 1)?[0];
            if vote != 1 {
                return Err(own.unwrap_or(Disagreement {
                    rank: member,
                    bytes: None,
                    expected: 0,
                    cause: if vote == 2 {
                        failed
                    } else {
                        Some(Cause::Unreadable)
                    },
                }));
            }
        }
        Ok(())
    }

    /// Each rank but `root` copies to the place of its `block` from an offset of `source`, which
    /// the root has.
    pub(super) fn pull_from_root(
        &self,
        rank: &Rank,
        (tag, root): (Tag, u32),
        source: Option<&Data>,
        (place, offset): (Option<&Data>, u64),
    ) -> Result<(), Disagreement> {
        let op = self.begin(rank)?;
        if let Some(source) = source {
            let exposed = expose(source);
            put(&op, tag, 16, |slot| write_address(slot, exposed.address));
            self.tell_of(&op, Awaited::Nobody, Some(root));
            drop(op);
            let end = self.begin(rank)?;
            put(&end, tag, 0, |_| {});
            self.tell_of(&end, Awaited::AllAlone, Some(root));
            return self.wait_for_all(rank, &end);
        }
        put(&op, tag, 0, |_| {});
        self.tell_of(&op, Awaited::One(root), Some(root));
        self.wait(rank, Some(root), || op.has_put(root))?;
        let agreed = read(&op, root, tag, 16).map(|_| ());
        let mut unreadable = None;
        if let (Some(place), Ok(())) = (place, &agreed) {
            pull_into(&op, root, offset, place, &mut unreadable);
        }
        drop(op);
        // The root waits for this before its buffer is free again; nobody else has to.
        // Who disagrees says so as well, and stays in step with the others.
        let end = self.begin(rank)?;
        put(&end, tag, 0, |_| {});
        self.tell_of(&end, Awaited::Nobody, Some(root));
        drop(end);
        agreed?;
        match unreadable {
            Some(root) => Err(self.unreadable(rank, root)),
            None => Ok(()),
        }
    }

    /// The root copies each rank's block, of this length in bytes.
    pub(super) fn pull_to_root(
        &self,
        rank: &Rank,
        send: Option<&Data>,
        recv: Option<Blocks<'_>>,
        (bytes, root): (u64, u32),
    ) -> Result<(), Disagreement> {
        let (me, ranks) = (self.board.me(), self.ranks());
        let tag = Tag::new(Kind::Gather, Some(root), bytes);
        let op = self.begin(rank)?;
        let Some(recv) = recv else {
            let exposed = send.map(expose);
            let address = exposed.as_ref().map_or(0, |exposed| exposed.address);
            put(&op, tag, 16, |slot| write_address(slot, address));
            self.tell_of(&op, Awaited::Nobody, Some(root));
            drop(op);
            // The buffer is free again when the root has copied it.
            let end = self.begin(rank)?;
            put(&end, tag, 0, |_| {});
            self.tell_of(&end, Awaited::One(root), Some(root));
            self.wait(rank, Some(root), || end.has_put(root))?;
            return read(&end, root, tag, 0).map(|_| ());
        };
        put(&op, tag, 16, |slot| write_address(slot, 0));
        self.tell_of(&op, Awaited::AllAlone, Some(root));
        if let Some(send) = send {
            data::copy(send, &recv.data(me, 1));
        }
        self.wait_for_all(rank, &op)?;
        let agreed = self.check_all(&op, tag);
        let mut unreadable = None;
        if agreed.is_ok() {
            for from in (0..ranks).filter(|&from| from != me) {
                pull_into(&op, from, 0, &recv.data(from, 1), &mut unreadable);
            }
        }
        drop(op);
        let end = self.begin(rank)?;
        put(&end, tag, 0, |_| {});
        self.tell_of(&end, Awaited::Nobody, Some(root));
        drop(end);
        agreed?;
        match unreadable {
            Some(member) => Err(self.unreadable(rank, member)),
            None => Ok(()),
        }
    }

    /// A large reduction, to all or to `root`: every rank reduces its slice of everybody's
    /// elements, then those who get the result copy the other slices.
    pub(super) fn reduce_slices(
        &self,
        rank: &Rank,
        what: &Combination<'_>,
        root: Option<u32>,
    ) -> Result<bool, Disagreement> {
        let (me, ranks) = (self.board.me(), self.board.ranks());
        let (count, element) = (what.count, what.basic.extent());
        if count < u64::from(ranks) * 64 || !self.may_attach(rank)? {
            return Ok(false);
        }
        let slice = |of: u32| {
            let from = count * u64::from(of) / u64::from(ranks) * element;
            let to = count * u64::from(of + 1) / u64::from(ranks) * element;
            (from, to)
        };
        let (first, end) = slice(me);
        let is_receiver = root.is_none_or(|root| root == me);
        let scratch = (!is_receiver).then(|| self.scratch(rank, end - first));
        let result = match &scratch {
            Some(scratch) => scratch.clone(),
            None => what.output.shifted(first as i64),
        };
        let in_place = is_receiver && what.is_in_place();
        let mut unreadable = None;
        let report = self.put_address(rank, what.input.address() as u64)?;
        self.reduce_slice(
            rank,
            &report,
            what,
            (first, end),
            (&result, in_place),
            &mut unreadable,
        );
        drop(report);
        // All slices are reduced, so the input may be overwritten and the results may be read.
        let report = self.put_address(rank, result.address() as u64)?;
        if is_receiver {
            for step in 1..ranks {
                let from = (me + step) % ranks;
                let (first, end) = slice(from);
                let place = Data::bytes(what.output.shifted(first as i64), end - first);
                pull_into(&report, from, 0, &place, &mut unreadable);
            }
        }
        drop(report);
        self.settle(rank, unreadable)?;
        self.give_back(rank, [scratch]);
        Ok(true)
    }

    /// A large reduction of which every rank gets a share: it reads the others' elements of its
    /// share.
    pub(super) fn reduce_share(
        &self,
        rank: &Rank,
        what: &Combination<'_>,
        share: Share,
    ) -> Result<bool, Disagreement> {
        // Where cores are short, a system call for each pair of ranks costs more than messages.
        let fits = self.roomy && what.basic.size() == what.basic.extent();
        if !fits || !self.may_attach(rank)? {
            return Ok(false);
        }
        let element = what.basic.extent();
        let first = share.first * element;
        let bytes = share.count * element;
        let tag = Tag::new(
            Kind::ReduceScatter,
            (share.mark != 0).then_some(share.mark),
            what.count * element,
        );
        let address = what.input.address() as u64;
        let report = self.put_address_as(rank, tag, address)?;
        // In place the share would overwrite what others still read.
        let scratch = what.is_in_place().then(|| self.scratch(rank, bytes));
        let result = scratch.as_ref().unwrap_or(what.output);
        let mut unreadable = None;
        let range = (first, first + bytes);
        self.reduce_slice(rank, &report, what, range, (result, false), &mut unreadable);
        drop(report);
        self.settle(rank, unreadable)?;
        if let Some(scratch) = &scratch {
            scratch.copy_to(0, what.output, 0, bytes as usize);
        }
        self.give_back(rank, [scratch]);
        Ok(true)
    }

    /// Reduces bytes `first..end` of everybody's elements to `result`, where the first of them has
    /// its place; `in_place`: the caller's elements lie there.
    fn reduce_slice(
        &self,
        rank: &Rank,
        report: &Operation<'_>,
        what: &Combination<'_>,
        (first, end): (u64, u64),
        (result, in_place): (&Mem, bool),
        unreadable: &mut Option<u32>,
    ) {
        let (me, ranks) = (self.board.me(), self.board.ranks());
        let piece = PIECE / what.basic.extent() * what.basic.extent();
        let longest = piece.min(end - first);
        let operand = self.scratch(rank, longest);
        let own = (in_place && me != ranks - 1).then(|| self.scratch(rank, longest));
        let mut at = first;
        while at < end {
            let len = piece.min(end - at);
            // Nobody but this rank reads this slice of its buffers, so the result grows where it
            // belongs. In place its own elements lie there, and are needed after those of the ranks
            // behind it.
            if let Some(own) = &own {
                what.input.copy_to(at as i64, own, 0, len as usize);
            }
            let result = result.shifted((at - first) as i64);
            if me != ranks - 1 {
                let place = Data::bytes(result.clone(), len);
                pull_into(report, ranks - 1, at, &place, unreadable);
            } else if !in_place {
                what.input.copy_to(at as i64, &result, 0, len as usize);
            }
            for member in (0..ranks - 1).rev() {
                let (left, from) = match &own {
                    Some(own) if member == me => (own, 0),
                    None if member == me => (what.input, at as i64),
                    _ => {
                        let place = Data::bytes(operand.clone(), len);
                        pull_into(report, member, at, &place, unreadable);
                        (&operand, 0)
                    }
                };
                result.with_operands(0, left, from, len as usize, |inout, left| {
                    cpu::Widest::FORWARDS
                        .apply(what.op, what.basic, inout, left)
                        .expect("the operation was checked against the type");
                });
            }
            at += len;
        }
        self.give_back(rank, [Some(operand), own]);
    }

    fn scratch(&self, rank: &Rank, bytes: u64) -> Mem {
        rank.with_engine(|engine| engine.spare().take(bytes as usize))
    }

    fn give_back<const N: usize>(&self, rank: &Rank, blocks: [Option<Mem>; N]) {
        rank.with_engine(|engine| {
            for block in blocks.into_iter().flatten() {
                engine.spare().give(block);
            }
        });
    }
}

/// Copies `len` bytes at `offset` of the buffer that `from` published in an operation.
fn pull(report: &Operation<'_>, from: u32, offset: u64, to: &Mem, at: i64, len: u64) -> bool {
    let words = &report.read(from, TAG_BYTES + 16)[TAG_BYTES..];
    let word = |i: usize| u64::from_ne_bytes(words[i..i + 8].try_into().expect("eight bytes"));
    let (address, pid) = (word(0), word(8) as u32);
    cma::read(pid, address.wrapping_add(offset), to, at, len as usize).is_ok()
}

/// As [`pull`], unpacked into `place`. All ranks have agreed before that it works; one that cannot
/// be read all the same goes to `unreadable`, and the operation goes on, so that nobody waits for
/// this rank.
pub(super) fn pull_into(
    report: &Operation<'_>,
    from: u32,
    offset: u64,
    place: &Data,
    unreadable: &mut Option<u32>,
) {
    let len = place.size();
    let ok = if let Some((mem, at)) = place.dense() {
        pull(report, from, offset, mem, at, len)
    } else {
        let packed = Mem::owned(len as usize);
        let ok = pull(report, from, offset, &packed, 0, len);
        if ok {
            data::copy(&Data::bytes(packed, len), place);
        }
        ok
    };
    if !ok {
        unreadable.get_or_insert(from);
    }
}

/// Address and process of a buffer, as [`pull`] reads them.
pub(super) fn write_address(slot: &mut [u8], address: u64) {
    slot[..8].copy_from_slice(&address.to_ne_bytes());
    slot[8..16].copy_from_slice(&u64::from(std::process::id()).to_ne_bytes());
}

pub(super) fn expose(data: &Data) -> Exposed {
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
