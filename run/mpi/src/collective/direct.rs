//! Blocking collectives of short parts by messages that go at once, with no schedule: those in
//! which every message is on its way alone (gatherv, scatterv, alltoallv), and prefix reductions
//! along a chain.
//!
//! The messages are those of the schedules, so each rank decides for itself which of the two ways
//! it takes; only the chain is one for all ranks or for none. A rank sends without waiting for the
//! receivers' calls, and so may be many calls ahead of them. What has not come after a short look
//! is received by schedule, which knows what to do when a member dies.

use std::sync::Arc;

use margay_core_schedule::{self as schedule, Ranks, Schedule, TAGS, Tuning};
use margay_run_engine::{Data, Envelope, Mode, Pattern, ReqId, WHOLE, combine, copy};
use margay_sys_os::user::Mem;

use super::plan::{Plan, buffers, elements};
use crate::Mpi;
use crate::comm::Comm;
use crate::error::*;
use crate::fast::exchange;
use crate::operation::{Blocks, Elements, Operand, Operation, Root};
use crate::outcome::disagreement;

/// The longest part that goes directly, in bytes.
const MOST_BYTES: u64 = WHOLE as u64;

/// The longest operand of a prefix reduction that goes along the chain, in bytes. The chain is for
/// ranks that share cores: each does many calls before it leaves its core. Where every rank has
/// one, and for longer operands, the ranks' shared memory is as fast or faster.
const CHAIN_BYTES: u64 = 1024;

/// One collective operation under way.
struct Direct<'a> {
    mpi: &'a Mpi,
    comm: &'a Arc<Comm>,
    sequence: u32,
    /// Sends that did not go at once.
    sends: Vec<ReqId>,
    /// The first that went wrong; the others go on.
    wrong: Option<Error>,
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
        let is_short =
            |blocks: &Blocks| (0..comm.size()).all(|rank| blocks.bytes_of(rank) <= MOST_BYTES);
        let is_here = |root: &Root| *root == Root::Rank(comm.rank);
        let begin = || Direct {
            mpi: self,
            comm,
            sequence: comm.next_tag(),
            sends: Vec::new(),
            wrong: None,
        };
        match operation {
            O::Gatherv {
                send,
                recv: Some(recv),
                root,
            } if is_here(root) && is_short(recv) => begin().gatherv(operation, send, recv),
            O::Gatherv {
                send: Some(send),
                root: Root::Rank(root),
                ..
            } if send.bytes() <= MOST_BYTES && *root < comm.size() && *root != comm.rank => {
                let mut direct = begin();
                direct.send(*root, &send.data());
                direct.end()
            }
            O::Scatterv {
                send: Some(send),
                recv,
                root,
            } if is_here(root) && is_short(send) => begin().scatterv(send, recv),
            O::Scatterv {
                recv: Some(recv),
                root: Root::Rank(root),
                ..
            } if recv.bytes() <= MOST_BYTES && *root < comm.size() && *root != comm.rank => {
                begin().scattered(operation, recv, *root)
            }
            O::Alltoallv {
                send: Some(send),
                recv,
            } if is_short(send) && is_short(recv) => begin().alltoallv(operation, send, recv),
            O::Scan { what, .. } | O::Exscan { what, .. }
                if (1..=CHAIN_BYTES).contains(&(what.count * what.datatype.size()))
                    && what.datatype.size() as i64 == what.datatype.extent()
                    && exchange(comm, operation).is_some()
                    && has_channel
                    && !self.rank.has_core() =>
            {
                begin().chain(operation, what)
            }
            _ => Ok(false),
        }
    }
}

impl Direct<'_> {
    fn gatherv(
        mut self,
        operation: &Operation,
        send: &Option<Operand>,
        recv: &Blocks,
    ) -> Result<bool> {
        if let Some(send) = send {
            copy(&send.data(), &recv.data_of(self.comm.rank));
        }
        self.receive_all(operation, recv);
        self.end()
    }

    fn scatterv(mut self, send: &Blocks, recv: &Option<Operand>) -> Result<bool> {
        for peer in self.after() {
            self.send(peer, &send.data_of(peer));
        }
        if let Some(recv) = recv {
            copy(&send.data_of(self.comm.rank), &recv.data());
        }
        self.end()
    }

    fn scattered(mut self, operation: &Operation, recv: &Operand, root: u32) -> Result<bool> {
        if !self.receive(root, &recv.data()) {
            let id = (self.mpi).start_tagged(self.comm, operation, self.sequence)?;
            self.wait(id);
        }
        self.end()
    }

    fn alltoallv(mut self, operation: &Operation, send: &Blocks, recv: &Blocks) -> Result<bool> {
        for peer in self.after() {
            self.send(peer, &send.data_of(peer));
        }
        let me = self.comm.rank;
        copy(&send.data_of(me), &recv.data_of(me));
        self.receive_all(operation, recv);
        self.end()
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
        if !self.receive(rank - 1, &output) {
            let form = if is_exclusive {
                schedule::exscan_chain
            } else {
                schedule::scan_chain
            };
            let schedule = form(self.ranks(), what.amount(), send.is_none());
            self.follow(operation, schedule);
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

    /// Receives what has come or comes soon. Returns whether it did.
    fn receive(&mut self, from: u32, data: &Data) -> bool {
        if data.size() == 0 {
            return true;
        }
        let pattern = Pattern::new(self.comm.collective(), Some(from), Some(self.tag()));
        let Some(outcome) = self.mpi.rank.recv_soon(data, pattern, self.process(from)) else {
            return false;
        };
        if let Some(error) = disagreement(&outcome.of_exactly(data.size())) {
            self.wrong.get_or_insert(error);
        }
        true
    }

    /// Receives from all others: at once what has come, the rest by schedule.
    fn receive_all(&mut self, operation: &Operation, recv: &Blocks) {
        for distance in 1..self.comm.size() {
            let Ranks { rank, size } = self.ranks();
            let peer = (rank + size - distance) % size;
            if !self.receive(peer, &recv.data_of(peer)) {
                let parts = recv.parts();
                let rest = schedule::receives(self.ranks(), distance, &parts, &Tuning::default());
                return self.follow(operation, rest);
            }
        }
    }

    /// Does the rest by schedule.
    fn follow(&mut self, operation: &Operation, schedule: Schedule) {
        let (send, recv) = buffers(operation);
        let plan = Plan {
            schedule,
            send,
            recv,
            reduce: elements(operation).map(|e| e.op.reduction(&e.datatype)),
        };
        let id = self.mpi.start_plan(self.comm, plan, self.sequence);
        self.wait(id);
    }

    fn wait(&mut self, id: ReqId) {
        if let Some(error) = disagreement(&self.mpi.rank.wait(id)) {
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

    fn process(&self, rank: u32) -> u32 {
        let process = self.comm.group.process(rank);
        process.expect("ranks of the communicator are members")
    }

    /// The tag of an operation's first messages between two ranks, which are the only ones.
    fn tag(&self) -> u32 {
        self.sequence.wrapping_mul(TAGS)
    }
}
