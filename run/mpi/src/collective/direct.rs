//! Collectives of short parts by messages that go at once, with no schedule: those in which every
//! message is on its way alone (gatherv, scatterv, alltoallv), blocking and nonblocking, and
//! blocking prefix reductions along a chain.
//!
//! The messages are those of the schedules, so each rank decides for itself which of the two ways
//! it takes; only the chain is one for all ranks or for none. A rank sends without waiting for the
//! receivers' calls, and so may be many calls ahead of them.

use std::sync::Arc;

use margay_core_schedule::{Ranks, TAGS};
use margay_run_engine::{
    Child, Data, Envelope, Execution, Mode, Outcome, Pattern, ReqId, WHOLE, combine, copy,
};
use margay_sys_os::user::Mem;

use crate::active::Active;
use crate::comm::Comm;
use crate::error::*;
use crate::fast::exchange;
use crate::operation::{Blocks, Elements, Operand, Operation, Root};
use crate::outcome::disagreement;
use crate::{Mpi, Status};

/// The longest part that goes directly, in bytes.
const MOST_BYTES: u64 = WHOLE as u64;

/// The longest part of a nonblocking operation: longer ones a rank's progress thread copies, which
/// runs schedules.
const BEGUN_BYTES: u64 = 64 << 10;

/// Among more ranks such parts do not all go at once: a schedule has only some under way.
const ALL_AT_ONCE: u32 = 16;

/// The longest operand of a prefix reduction that goes along the chain, in bytes. The chain is for
/// ranks that share cores: each does many calls before it leaves its core. Where every rank of more
/// than two has one, and for longer operands, the ranks' shared memory is as fast or faster.
const CHAIN_BYTES: u64 = 1024;

/// An operation in which every message is on its way alone, as this rank takes part in it.
enum Alone<'a> {
    /// A gather to this rank.
    Gather(&'a Option<Operand>, &'a Blocks),
    /// A gather to that rank.
    GatherTo(&'a Operand, u32),
    /// A scatter from this rank.
    Scatter(&'a Blocks, &'a Option<Operand>),
    /// A scatter from that rank.
    ScatterFrom(&'a Operand, u32),
    /// From every rank to every rank.
    Alltoall(&'a Blocks, &'a Blocks),
}

/// One collective operation under way.
struct Direct<'a> {
    mpi: &'a Mpi,
    comm: &'a Arc<Comm>,
    sequence: u32,
    /// Sends that did not go at once.
    sends: Vec<ReqId>,
    /// The first that went wrong; the others go on.
    wrong: Option<Error>,
    /// A member has died, or the communicator was revoked.
    has_failed: bool,
}

impl Mpi {
    /// Does a blocking operation by messages that go at once. Returns false when it is not one for
    /// this way; then nothing was done.
    pub(super) fn collective_direct(
        &self,
        comm: &Arc<Comm>,
        operation: &Operation,
    ) -> Result<bool> {
        use Operation as O;
        if comm.is_inter() || comm.size() < 2 {
            return Ok(false);
        }
        // All ranks open the channel in the same operation, whether they need it or not.
        let has_channel = comm.channel(&self.rank).is_some();
        let begin = || Direct::new(self, comm);
        if let Some(alone) = alone(comm, operation, MOST_BYTES) {
            return begin().complete(&alone);
        }
        match operation {
            O::Scan { what, .. } | O::Exscan { what, .. }
                if (1..=CHAIN_BYTES).contains(&(what.count * what.datatype.size()))
                    && what.datatype.size() as i64 == what.datatype.extent()
                    && exchange(comm, operation).is_some()
                    && has_channel
                    && (comm.size() == 2 || !self.rank.has_core()) =>
            {
                begin().chain(operation, what)
            }
            _ => Ok(false),
        }
    }

    /// Begins a nonblocking operation in which every message is on its way alone: what can go at
    /// once has gone. None when it is not one for this way; then nothing was done.
    pub(super) fn icollective_direct(
        &self,
        comm: &Arc<Comm>,
        operation: &Operation,
    ) -> Option<Active> {
        if comm.is_inter() || comm.size() < 2 {
            return None;
        }
        // As above.
        let _ = comm.posting(&self.rank);
        let most = if comm.size() <= ALL_AT_ONCE {
            BEGUN_BYTES
        } else {
            MOST_BYTES
        };
        let alone = alone(comm, operation, most)?;
        Some(Direct::new(self, comm).begin(&alone))
    }
}

/// Returns the messages of an operation in which each is on its way alone, if no part has more than
/// `most` bytes.
fn alone<'a>(comm: &Comm, operation: &'a Operation, most: u64) -> Option<Alone<'a>> {
    use Operation as O;
    let is_short = |blocks: &Blocks| (0..comm.size()).all(|rank| blocks.bytes_of(rank) <= most);
    let is_here = |root: &Root| *root == Root::Rank(comm.rank);
    let is_there = |root: u32| root < comm.size() && root != comm.rank;
    match operation {
        O::Gatherv {
            send,
            recv: Some(recv),
            root,
        } if is_here(root) && is_short(recv) => Some(Alone::Gather(send, recv)),
        O::Gatherv {
            send: Some(send),
            root: Root::Rank(root),
            ..
        } if send.bytes() <= most && is_there(*root) => Some(Alone::GatherTo(send, *root)),
        O::Scatterv {
            send: Some(send),
            recv,
            root,
        } if is_here(root) && is_short(send) => Some(Alone::Scatter(send, recv)),
        O::Scatterv {
            recv: Some(recv),
            root: Root::Rank(root),
            ..
        } if recv.bytes() <= most && is_there(*root) => Some(Alone::ScatterFrom(recv, *root)),
        O::Alltoallv {
            send: Some(send),
            recv,
        } if is_short(send) && is_short(recv) => Some(Alone::Alltoall(send, recv)),
        _ => None,
    }
}

impl<'a> Direct<'a> {
    fn new(mpi: &'a Mpi, comm: &'a Arc<Comm>) -> Direct<'a> {
        Direct {
            mpi,
            comm,
            sequence: comm.next_tag(),
            sends: Vec::new(),
            wrong: None,
            has_failed: false,
        }
    }

    /// Does it.
    fn complete(mut self, alone: &Alone<'_>) -> Result<bool> {
        self.send_all(alone);
        match alone {
            Alone::Gather(_, recv) | Alone::Alltoall(_, recv) => {
                self.receive_all(recv);
            }
            Alone::ScatterFrom(recv, root) => self.receive(*root, &recv.data()),
            Alone::GatherTo(..) | Alone::Scatter(..) => {}
        }
        self.end()
    }

    /// Begins it.
    fn begin(mut self, alone: &Alone<'_>) -> Active {
        self.send_all(alone);
        let sends = std::mem::take(&mut self.sends).into_iter();
        let mut children: Vec<(ReqId, Child)> = sends.map(|id| (id, Child::Send)).collect();
        match alone {
            Alone::Gather(_, recv) | Alone::Alltoall(_, recv) => {
                children.extend(self.post_all(self.before(), recv));
            }
            Alone::ScatterFrom(recv, root) => children.extend(self.post(*root, recv.data())),
            Alone::GatherTo(..) | Alone::Scatter(..) => {}
        }
        match children.is_empty() {
            true => Active::Done(Status::EMPTY),
            false => Active::Collective(self.begun(children)),
        }
    }

    /// Sends this rank's messages, and copies its own part.
    fn send_all(&mut self, alone: &Alone<'_>) {
        let me = self.comm.rank;
        match alone {
            Alone::Gather(Some(send), recv) => copy(&send.data(), &recv.data_of(me)),
            Alone::Gather(None, _) | Alone::ScatterFrom(..) => {}
            Alone::GatherTo(send, root) => self.send(*root, &send.data()),
            Alone::Scatter(send, recv) => {
                self.after().for_each(|to| self.send(to, &send.data_of(to)));
                if let Some(recv) = recv {
                    copy(&send.data_of(me), &recv.data());
                }
            }
            Alone::Alltoall(send, recv) => {
                self.after().for_each(|to| self.send(to, &send.data_of(to)));
                copy(&send.data_of(me), &recv.data_of(me));
            }
        }
    }

    /// A prefix reduction along the chain of ranks. What comes and goes passes through the user's
    /// memory, from where and to where messages go at once.
    fn chain(mut self, operation: &Operation, what: &Elements) -> Result<bool> {
        let (send, recv, is_exclusive) = match operation {
            Operation::Scan { send, recv, .. } => (send, recv, false),
            Operation::Exscan { send, recv, .. } => (send, recv, true),
            _ => unreachable!("only prefix reductions go along a chain"),
        };
        let Ranks { rank, size } = self.ranks();
        let elements_at = |mem: &Mem| Data::typed(mem.clone(), what.count, &what.datatype);
        let (input, output) = (
            elements_at(send.as_ref().unwrap_or(recv)),
            elements_at(recv),
        );
        let is_last = rank + 1 == size;
        if rank == 0 {
            self.send(1, &input);
            if !is_exclusive && send.is_some() {
                copy(&input, &output);
            }
            return self.end();
        }
        let saved = |data: &Data| {
            let mem = Mem::owned(data.size() as usize);
            copy(data, &Data::bytes(mem.clone(), data.size()));
            mem
        };
        // This rank's operand, then the combination up to it.
        let up_to = saved(&input);
        self.receive(rank - 1, &output);
        if self.has_failed {
            return self.end();
        }
        if !(is_exclusive && is_last) {
            let before = is_exclusive.then(|| saved(&output));
            let reduction = what.op.reduction(&what.datatype);
            combine(&reduction, recv, &up_to, what.count);
            copy(&Data::bytes(up_to, output.size()), &output);
            if !is_last {
                self.send(rank + 1, &output);
            }
            if let Some(before) = before {
                self.wait_sent();
                copy(&Data::bytes(before, output.size()), &output);
            }
        }
        self.end()
    }

    /// Sends at once, or begins to. As by schedule, nothing goes where there is no data.
    fn send(&mut self, to: u32, data: &Data) {
        if data.size() == 0 {
            return;
        }
        let envelope = Envelope {
            context: self.comm.collective(),
            source: self.comm.rank,
            tag: self.tag(),
        };
        let (rank, to) = (&self.mpi.rank, self.process(to));
        if !rank.send_soon(data, to, envelope) {
            self.sends
                .push(rank.isend(Mode::Standard, data.clone(), to, envelope));
        }
    }

    /// Waits until what was sent may be written again.
    fn wait_sent(&mut self) {
        for id in std::mem::take(&mut self.sends) {
            self.wait(id);
        }
    }

    /// Receives, at once what has come or comes soon.
    fn receive(&mut self, from: u32, data: &Data) {
        if !self.receive_soon(from, data) {
            let posted = self.post(from, data.clone());
            self.wait_begun(posted.into_iter().collect());
        }
    }

    /// Receives what has come or comes soon. Returns whether it did.
    fn receive_soon(&mut self, from: u32, data: &Data) -> bool {
        if data.size() == 0 {
            return true;
        }
        let pattern = self.pattern(from);
        let Some(outcome) = self.mpi.rank.recv_soon(data, pattern, self.process(from)) else {
            return false;
        };
        self.note(&outcome.of_exactly(data.size()));
        true
    }

    /// Receives from all others: at once what has come, then the rest.
    fn receive_all(&mut self, recv: &Blocks) {
        let mut late = self.before();
        while let Some(from) = late.next() {
            if !self.receive_soon(from, &recv.data_of(from)) {
                let rest = std::iter::once(from).chain(late);
                return self.wait_begun(self.post_all(rest, recv).collect());
            }
        }
    }

    /// Begins to receive from these ranks.
    fn post_all(
        &self,
        ranks: impl Iterator<Item = u32>,
        recv: &Blocks,
    ) -> impl Iterator<Item = (ReqId, Child)> {
        ranks.filter_map(|from| self.post(from, recv.data_of(from)))
    }

    /// Begins to receive; nothing comes where there is no data.
    fn post(&self, from: u32, data: Data) -> Option<(ReqId, Child)> {
        let bytes = data.size();
        (bytes != 0).then(|| {
            let rank = &self.mpi.rank;
            let id = rank.irecv(data, self.pattern(from), Some(self.process(from)));
            (id, Child::Receive(bytes))
        })
    }

    /// One request for messages that have been begun, which ends also when a member dies.
    fn begun(&self, children: Vec<(ReqId, Child)>) -> ReqId {
        let place = (self.comm.collective(), self.comm.rank);
        let execution = Execution::begun(place, &self.comm.group, children);
        self.mpi.rank.icollective(execution)
    }

    fn wait_begun(&mut self, children: Vec<(ReqId, Child)>) {
        let id = self.begun(children);
        self.wait(id);
    }

    fn wait(&mut self, id: ReqId) {
        let outcome = self.mpi.rank.wait(id);
        self.note(&outcome);
    }

    fn note(&mut self, outcome: &Outcome) {
        self.has_failed |= outcome.failed.is_some();
        if let Some(error) = disagreement(outcome) {
            self.wrong.get_or_insert(error);
        }
    }

    fn end(mut self) -> Result<bool> {
        self.wait_sent();
        match self.wrong {
            None => Ok(true),
            Some(error) => Err(error),
        }
    }

    fn ranks(&self) -> Ranks {
        Ranks {
            rank: self.comm.rank,
            size: self.comm.size(),
        }
    }

    /// The other ranks, beginning after this one, so that not all begin with the same.
    fn after(&self) -> impl Iterator<Item = u32> + use<> {
        let Ranks { rank, size } = self.ranks();
        (1..size).map(move |distance| (rank + distance) % size)
    }

    /// The other ranks, in the order in which what they send comes then.
    fn before(&self) -> impl Iterator<Item = u32> + use<> {
        let Ranks { rank, size } = self.ranks();
        (1..size).map(move |distance| (rank + size - distance) % size)
    }

    fn pattern(&self, from: u32) -> Pattern {
        Pattern::new(self.comm.collective(), Some(from), Some(self.tag()))
    }

    fn process(&self, rank: u32) -> u32 {
        let process = self.comm.group.process(rank);
        process.expect("ranks of the communicator are members")
    }

    /// The tag of an operation's first messages between two ranks, which are the only ones.
    fn tag(&self) -> u32 {
        self.sequence.wrapping_mul(TAGS)
    }
}
