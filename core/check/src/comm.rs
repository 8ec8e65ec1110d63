//! Communicators, and the collective calls on them.

use margay_core_reduce::Op;

use crate::checker::Checker;
use crate::finding::{Call, Finding, Kind};
use crate::objects::{Collective, Comm, Slot};
use crate::record::{Item, Record};
use crate::state::*;
use crate::types::{Data, Mismatch};

/// `MPI_Ibcast` and `MPI_Bcast_init` do what `MPI_Bcast` does.
pub fn plain(name: &str) -> String {
    let base = name.strip_suffix("_init").unwrap_or(name);
    match base.strip_prefix("MPI_I") {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase()) => {
            let mut letters = rest.chars();
            let first = letters.next().map(|c| c.to_ascii_uppercase());
            format!("MPI_{}{}", first.unwrap_or_default(), letters.as_str())
        }
        _ => base.into(),
    }
}

/// Whether a collective call returns only when all, or the root alone, have come to it.
enum Awaits {
    All,
    Root,
    Nobody,
}

fn awaits(name: &str, is_root: bool) -> Awaits {
    match name {
        "MPI_Bcast" | "MPI_Scatter" | "MPI_Scatterv" if !is_root => Awaits::Root,
        "MPI_Gather" | "MPI_Gatherv" | "MPI_Reduce" if is_root => Awaits::All,
        "MPI_Bcast" | "MPI_Scatter" | "MPI_Scatterv" | "MPI_Gather" | "MPI_Gatherv"
        | "MPI_Reduce" | "MPI_Scan" | "MPI_Exscan" => Awaits::Nobody,
        name if name.starts_with("MPI_Neighbor") => Awaits::Nobody,
        _ => Awaits::All,
    }
}

impl Checker {
    /// A process begins a collective call on a communicator. Returns its place among the calls.
    pub(crate) fn begin_collective(
        &mut self,
        process: usize,
        record: &Record,
        handle: u64,
        with_data: bool,
    ) -> Option<(usize, u64)> {
        let moment = self.processes[process].tick();
        let own = &self.processes[process];
        let id = *own.comms.get(&handle)?;
        let rank = self.comms[id].rank_of(own.rank)?;
        if self.comms[id].is_opaque || self.comms[id].is_lost {
            return None;
        }
        let list = |at: usize| match with_data {
            true => record.list(at).to_vec(),
            false => Vec::new(),
        };
        let types = |at: usize| list(at).into_iter().map(|h| h as u64).collect();
        let is_in_place = |at: usize| with_data && record.handle(at) == MPI_IN_PLACE;
        let new = Collective {
            process,
            rank,
            call: own.call(process, &record.name, record.site),
            name: plain(&record.name),
            is_in_place: [is_in_place(0), is_in_place(3)],
            counts: [list(1), list(4)],
            types: [types(2), types(5)],
            root: if with_data { record.number(6) } else { NO_ROOT },
            op: if with_data { record.handle(7) } else { 0 },
            moment,
        };
        let number = self.comms[id].made.entry(process).or_default();
        let at = *number;
        *number += 1;
        let comm = &self.comms[id];
        let others = comm.slots.get(&at).map_or(&[][..], |slot| &slot.calls);
        let found = others
            .iter()
            .find_map(|other| self.disagree(id, other, &new));
        let slot = self.comms[id].slots.entry(at).or_default();
        slot.calls.push(new);
        if let Some(found) = found {
            self.report(found);
        }
        Some((id, at))
    }

    /// A collective call on a communicator has failed.
    pub(crate) fn collective_failed(&mut self, process: usize, handle: u64) {
        if let Some(&id) = self.processes[process].comms.get(&handle) {
            self.comms[id].is_lost = true;
            self.comms[id].slots.clear();
        }
    }

    /// Whether a process that has returned from a collective call has to wait for the records of
    /// others.
    pub(crate) fn collective_waits(&self, process: usize, place: (usize, u64)) -> bool {
        let comm = &self.comms[place.0];
        let Some(slot) = comm.slots.get(&place.1) else {
            return false;
        };
        let Some(own) = slot.calls.iter().find(|c| c.process == process) else {
            return false;
        };
        let is_root = own.root == own.rank as i64 || own.root == MPI_ROOT;
        let all = comm.members.len();
        match awaits(&own.name, is_root) {
            Awaits::All => slot.calls.len() < all,
            Awaits::Root => !comm.is_inter && !slot.calls.iter().any(|c| c.rank as i64 == own.root),
            Awaits::Nobody => false,
        }
    }

    /// A process has returned from a collective call, or has completed its request.
    pub(crate) fn end_collective(&mut self, process: usize, place: (usize, u64)) {
        let comm = &mut self.comms[place.0];
        let all = comm.members.len();
        let Some(slot) = comm.slots.get_mut(&place.1) else {
            return;
        };
        if let Some(own) = slot.calls.iter().find(|c| c.process == process) {
            let is_root = own.root == own.rank as i64;
            let from: Vec<Moment> = match awaits(&own.name, is_root) {
                Awaits::All => slot.calls.iter().map(|c| c.moment.clone()).collect(),
                Awaits::Root => (slot.calls.iter())
                    .filter(|c| c.rank as i64 == own.root)
                    .map(|c| c.moment.clone())
                    .collect(),
                Awaits::Nobody => Vec::new(),
            };
            for moment in from {
                self.processes[process].join(&moment);
            }
        }
        slot.returned += 1;
        if slot.returned >= all && slot.calls.len() >= all {
            comm.slots.remove(&place.1);
        }
        self.processes[process].tick();
    }

    /// Which member has not come to a collective operation: its world rank.
    pub(crate) fn missing(&self, (id, at): (usize, u64)) -> Option<u32> {
        let comm = &self.comms[id];
        let slot = comm.slots.get(&at)?;
        let is_there = |rank: usize| slot.calls.iter().any(|c| c.rank == rank);
        let missing = comm
            .members
            .iter()
            .enumerate()
            .find(|(rank, _)| !is_there(*rank));
        missing.map(|(_, world)| *world)
    }

    /// The collective calls that some members have made and others have not.
    pub(crate) fn incomplete_collectives(&mut self, is_good: bool) {
        let mut found = Vec::new();
        // Of a job that ended well all ranks have come to the calls that wait for them; what they
        // have not come to is certain where the members are.
        let world = self.world.filter(|_| is_good);
        let is_looked_at = |id: usize| world.is_none_or(|world| world == id);
        for (_, comm) in self
            .comms
            .iter()
            .enumerate()
            .filter(|(id, comm)| is_looked_at(*id) && !comm.is_lost)
        {
            let all = comm.members.len();
            // What a rank has not freed is said of the rank itself.
            let is_said = |slot: &Slot| slot.calls[0].name == "MPI_Comm_free";
            let is_open = |slot: &Slot| (1..all).contains(&slot.calls.len()) && !is_said(slot);
            let Some(slot) = comm.slots.values().find(|slot| is_open(slot)) else {
                continue;
            };
            let missing = (comm.members.iter().enumerate())
                .filter(|(rank, _)| !slot.calls.iter().any(|c| c.rank == *rank))
                .filter_map(|(_, world)| self.process_of(*world));
            for other in missing {
                let own = &slot.calls[0];
                let last = self.processes[other].last.clone();
                // No collective call comes after MPI_Finalize has begun.
                let is_last =
                    |last: &Call| self.processes[other].is_finalized || last.name == "MPI_Finalize";
                if let Some(last) = last.filter(is_last) {
                    found.push(
                        Finding::new(Kind::Collective)
                            .say(format!("rank {} calls ", self.processes[own.process].rank))
                            .call(&own.call)
                            .say(format!(
                                ", which rank {} never calls: its last call is ",
                                self.processes[other].rank
                            ))
                            .call(&last)
                            .say("; every rank of a communicator must make the same collective calls"),
                    );
                    break;
                }
            }
        }
        found.into_iter().for_each(|f| self.report(f));
    }

    /// Of a job in which no process could go on: two ranks that wait in collective calls for each
    /// other, on different communicators.
    pub(crate) fn crossed_collectives(&mut self) {
        let waits = self
            .processes
            .iter()
            .enumerate()
            .flat_map(|(process, own)| {
                let places = own.running.values().filter_map(|r| r.collective);
                places.map(move |place| (process, place))
            });
        let waits: Vec<_> = waits.collect();
        let misses = |(id, at): (usize, u64), process: usize| {
            let comm = &self.comms[id];
            let slot = comm.slots.get(&at)?;
            let is_member = comm.rank_of(self.processes[process].rank).is_some();
            (is_member && slot.calls.iter().all(|c| c.process != process)).then_some(slot)
        };
        let own = |slot: &Slot, process: usize| {
            let own = slot.calls.iter().find(|c| c.process == process)?;
            Some((self.processes[process].rank, own.call.clone()))
        };
        let found = waits.iter().enumerate().find_map(|(i, &(a, at_a))| {
            let mut others = waits[i + 1..].iter().filter(|(b, _)| *b != a);
            others.find_map(|&(b, at_b)| {
                let first = own(misses(at_a, b)?, a)?;
                let second = own(misses(at_b, a)?, b)?;
                (at_a.0 != at_b.0).then_some((first, second))
            })
        });
        if let Some(((rank, call), (other, of_other))) = found {
            let found = Finding::new(Kind::Collective)
                .say(format!("rank {rank} calls "))
                .call(&call)
                .say(format!(", but rank {other} calls "))
                .call(&of_other)
                .say(
                    " on another communicator, and each waits for the other; all ranks of a \
                      communicator must make the same collective calls on it",
                );
            self.report(found);
        }
    }

    /// What is wrong between the calls of two members.
    fn disagree(&self, id: usize, a: &Collective, b: &Collective) -> Option<Finding> {
        let comm = &self.comms[id];
        let world = |c: &Collective| self.processes[c.process].rank;
        let both = |kind: Kind, what_a: String, what_b: String, remedy: &str| {
            let side = |f: Finding, c: &Collective, what: String| {
                f.say(format!("rank {} calls ", world(c)))
                    .call(&c.call)
                    .say(what)
            };
            let first = side(Finding::new(kind), a, what_a).say(", but ");
            side(first, b, what_b).say("; ").say(remedy)
        };
        if a.name != b.name {
            let remedy =
                "collective calls on a communicator must come in the same order on all its ranks";
            return Some(both(Kind::Collective, String::new(), String::new(), remedy));
        }
        let is_blocking = |c: &Collective| c.call.name == c.name;
        if is_blocking(a) != is_blocking(b) {
            let remedy = "a blocking and a nonblocking collective operation do not match";
            return Some(both(Kind::Collective, String::new(), String::new(), remedy));
        }
        if comm.is_inter {
            return None;
        }
        if a.root != b.root {
            let with = |c: &Collective| format!(" with root {}", c.root);
            return Some(both(
                Kind::Root,
                with(a),
                with(b),
                "the root must be the same on all ranks",
            ));
        }
        if a.op != b.op && (a.op < FIRST_OWN || b.op < FIRST_OWN) {
            let with = |c: &Collective| format!(" with {}", op_name(c.op));
            let remedy = "the operation must be the same on all ranks";
            return Some(both(Kind::Operation, with(a), with(b), remedy));
        }
        let (sent, received, mismatch) = self.compare(comm, a, b)?;
        let kind = match mismatch {
            Mismatch::Types => Kind::Type,
            Mismatch::Counts => Kind::Count,
        };
        let remedy = match mismatch {
            Mismatch::Types => "the types of what is sent and received must be the same",
            Mismatch::Counts => "what is sent must be as much as what is received",
        };
        let with = |data: Data| format!(" with {}", data.in_words());
        Some(both(kind, with(sent), with(received), remedy))
    }

    /// The data of one side of a collective call: 0 what it sends, 1 what it receives.
    fn data(&self, c: &Collective, side: usize, of: usize) -> Option<Data> {
        let one = |list: &[i64], at: usize| match list {
            [only] => Some(*only),
            list => list.get(at).copied(),
        };
        let handle = match &c.types[side][..] {
            [only] => *only,
            list => *list.get(of)?,
        };
        Some(Data {
            count: one(&c.counts[side], of)?,
            of: Some(self.processes[c.process].data_type(handle)?),
        })
    }

    /// Compares the data of two members, in the order of the calls.
    fn compare(
        &self,
        comm: &Comm,
        a: &Collective,
        b: &Collective,
    ) -> Option<(Data, Data, Mismatch)> {
        let of = |x: Option<Data>, y: Option<Data>| {
            let (x, y) = (x?, y?);
            let wrong = x.mismatch(&y, false)?;
            Some((x, y, wrong))
        };
        let sends = |c: &Collective, to: usize| match c.is_in_place[0] {
            true => None,
            false => self.data(c, 0, to),
        };
        let receives = |c: &Collective, from: usize| match c.is_in_place[1] {
            true => None,
            false => self.data(c, 1, from),
        };
        let root = usize::try_from(a.root).unwrap_or(usize::MAX);
        match a.name.as_str() {
            "MPI_Bcast" => of(self.data(a, 0, 0), self.data(b, 0, 0)),
            "MPI_Reduce"
            | "MPI_Allreduce"
            | "MPI_Scan"
            | "MPI_Exscan"
            | "MPI_Reduce_scatter_block" => of(self.data(a, 0, 0), self.data(b, 0, 0)),
            "MPI_Reduce_scatter" => {
                let size = comm.members.len();
                (0..size).find_map(|r| of(self.data(a, 0, r), self.data(b, 0, r)))
            }
            "MPI_Gather" | "MPI_Gatherv" if a.rank == root => of(receives(a, b.rank), sends(b, 0)),
            "MPI_Gather" | "MPI_Gatherv" if b.rank == root => of(sends(a, 0), receives(b, a.rank)),
            "MPI_Scatter" | "MPI_Scatterv" if a.rank == root => {
                of(sends(a, b.rank), receives(b, 0))
            }
            "MPI_Scatter" | "MPI_Scatterv" if b.rank == root => {
                of(receives(a, 0), sends(b, a.rank))
            }
            "MPI_Allgather" | "MPI_Allgatherv" => of(sends(a, 0), receives(b, a.rank))
                .or_else(|| of(receives(a, b.rank), sends(b, 0))),
            "MPI_Alltoall" | "MPI_Alltoallv" | "MPI_Alltoallw" => {
                of(sends(a, b.rank), receives(b, a.rank))
                    .or_else(|| of(receives(a, b.rank), sends(b, a.rank)))
            }
            _ => None,
        }
    }

    /// A process has got a communicator.
    pub(crate) fn new_comm(
        &mut self,
        process: usize,
        record: &Record,
        place: Option<(usize, u64)>,
    ) {
        let handle = record.handle(0);
        if record.code != 0 || handle == MPI_COMM_NULL {
            return;
        }
        let ranks = |at: usize| -> Option<Vec<u32>> {
            record
                .list(at)
                .iter()
                .map(|&r| u32::try_from(r).ok())
                .collect()
        };
        let (members, remote) = (ranks(2), ranks(3));
        let own = &self.processes[process];
        // The two groups of one between groups have their calls compared apart, so what they make
        // together has no place among these calls.
        let is_merged =
            place.is_some_and(|(parent, _)| self.comms[parent].is_inter) && record.number(4) == 0;
        let is_opaque = place.is_none()
            || is_merged
            || !own.is_of_job
            || members.as_ref().is_none_or(Vec::is_empty)
            || remote.is_none();
        let members = members.unwrap_or_default();
        let key = place.map(|(parent, at)| (parent, at, members.clone()));
        let known = key
            .as_ref()
            .and_then(|key| self.made_comms.get(key).copied());
        let id = known.filter(|_| !is_opaque).unwrap_or_else(|| {
            self.comms.push(Comm {
                members,
                remote: remote.unwrap_or_default(),
                is_inter: record.number(4) != 0,
                is_opaque,
                ..Comm::default()
            });
            self.comms.len() - 1
        });
        // Both groups of one between groups are one communicator for messages, which go between
        // them; the calls of each group are compared apart.
        if let Some(key) = key.filter(|_| !is_opaque) {
            self.made_comms.insert(key, id);
        }
        let own = &mut self.processes[process];
        // A call of another thread that still names this handle has freed an older one.
        for running in own.running.values_mut() {
            if matches!(
                running.call.name.as_str(),
                "MPI_Comm_free" | "MPI_Comm_disconnect"
            ) && let Some(Item::Number(freed)) = running.items.first_mut()
                && *freed as u64 == handle
            {
                *freed = MPI_COMM_NULL as i64;
            }
        }
        own.comms.insert(handle, id);
        own.freed.remove(&handle);
    }
}

const NO_ROOT: i64 = -32768;

/// An operation in words.
pub fn op_name(handle: u64) -> String {
    match Op::from_handle(handle) {
        Some(op) => op.to_string(),
        None if handle < FIRST_OWN => "no valid operation".into(),
        None => "an operation of the program".into(),
    }
}
