//! Memory that calls use: is another one still using it?

use margay_core_datatype::Basic;

use crate::calls::{Sort, sort};
use crate::checker::Checker;
use crate::comm::plain;
use crate::finding::{Call, Finding, Kind};
use crate::record::Record;
use crate::state::*;

/// Where it begins and ends, and whether the call writes to it.
type Range = (u64, u64, bool);

impl Checker {
    /// A call uses memory. `until` says how long; none: until it returns.
    pub(crate) fn uses(
        &mut self,
        process: usize,
        call: &Call,
        data: (u64, i64, u64),
        writes: bool,
        until: Option<Until>,
    ) {
        let range = self.range(process, data, writes);
        self.uses_ranges(process, call, range.as_slice(), until);
    }

    /// What a blocking collective call uses, or the receive of a message that was probed.
    pub(crate) fn uses_of_call(&mut self, process: usize, record: &Record, call: &Call) {
        if plain(&record.name) == record.name {
            let ranges = self.ranges_of(process, record);
            self.uses_ranges(process, call, &ranges, None);
        }
    }

    /// What a call that has returned uses until its request is done.
    pub(crate) fn uses_of_request(&mut self, process: usize, record: &Record, running: &Running) {
        if record.name.ends_with("_init") || record.name == "MPI_Ibsend" {
            return;
        }
        let before = Record {
            items: running.items.clone(),
            ..record.clone()
        };
        self.uses_of_operation(process, &before, &running.call, record.handle(0));
    }

    /// What the operation of a request uses; `record` is the one before the call that made it.
    pub(crate) fn uses_of_operation(
        &mut self,
        process: usize,
        record: &Record,
        call: &Call,
        request: u64,
    ) {
        if request >= FIRST_OWN {
            let ranges = self.ranges_of(process, record);
            self.uses_ranges(process, call, &ranges, Some(Until::Request(request)));
        }
    }

    fn ranges_of(&self, process: usize, record: &Record) -> Vec<Range> {
        let data = |at: usize| {
            (
                record.handle(at),
                record.number(at + 1),
                record.handle(at + 2),
            )
        };
        let sent = (data(0), record.number(3), false);
        let received = (data(0), record.number(3), true);
        let of_exchange = (data(5), record.number(8), true);
        let used = match (record.name.as_str(), sort(&record.name)) {
            ("MPI_Mrecv" | "MPI_Imrecv", _) if record.handle(3) >= FIRST_OWN => {
                vec![(data(0), 0, true)]
            }
            ("MPI_Isendrecv_replace", _) => vec![of_exchange],
            (_, Sort::Exchange) => vec![sent, of_exchange],
            (_, Sort::Send) => vec![sent],
            (_, Sort::Receive) => vec![received],
            (_, Sort::Collective) => return self.ranges_of_collective(process, record),
            _ => Vec::new(),
        };
        // What goes to nobody is not read, and what comes from nobody is not written.
        let used = used
            .into_iter()
            .filter(|(_, peer, _)| *peer != MPI_PROC_NULL);
        used.filter_map(|(data, _, writes)| self.range(process, data, writes))
            .collect()
    }

    /// Of a collective call whose communicator is known; not what `MPI_Alltoallw` uses, and what is
    /// sent in parts by `MPI_Scatterv` and `MPI_Alltoallv`: records do not say where these are.
    fn ranges_of_collective(&self, process: usize, record: &Record) -> Vec<Range> {
        let own = &self.processes[process];
        let comm = own.comms.get(&record.handle(8)).map(|id| &self.comms[*id]);
        let comm = comm.filter(|comm| own.is_of_job && !comm.is_inter && !comm.is_opaque);
        let Some((comm, rank)) = comm.and_then(|comm| Some((comm, comm.rank_of(own.rank)?))) else {
            return Vec::new();
        };
        let ranks = i64::try_from(comm.members.len()).unwrap_or_default();
        let is_root = usize::try_from(record.number(6)) == Ok(rank);
        let is_in_place = record.handle(0) == MPI_IN_PLACE;
        let all = |at: usize| {
            record
                .list(at)
                .iter()
                .fold(0, |sum: i64, n| sum.saturating_add(*n))
        };
        let of_each = |at: usize| all(at).saturating_mul(ranks);
        let name = plain(&record.name);
        let sent = match name.as_str() {
            "MPI_Bcast" | "MPI_Gather" | "MPI_Gatherv" | "MPI_Allgather" | "MPI_Allgatherv"
            | "MPI_Reduce" | "MPI_Allreduce" | "MPI_Scan" | "MPI_Exscan" | "MPI_Reduce_scatter" => {
                all(1)
            }
            "MPI_Scatter" if is_root => of_each(1),
            "MPI_Alltoall" | "MPI_Reduce_scatter_block" => of_each(1),
            _ => 0,
        };
        let received = match name.as_str() {
            "MPI_Gather" | "MPI_Reduce" if !is_root => 0,
            "MPI_Exscan" if rank == 0 => 0,
            "MPI_Gather" | "MPI_Allgather" | "MPI_Alltoall" => of_each(4),
            "MPI_Reduce_scatter_block" if is_in_place => of_each(4),
            "MPI_Reduce_scatter" if is_in_place => all(1),
            "MPI_Reduce_scatter" => record.list(1).get(rank).copied().unwrap_or_default(),
            "MPI_Scatter"
            | "MPI_Scatterv"
            | "MPI_Reduce"
            | "MPI_Allreduce"
            | "MPI_Scan"
            | "MPI_Exscan"
            | "MPI_Reduce_scatter_block" => all(4),
            _ => 0,
        };
        let of = |at: usize| record.list(at).first().map_or(0, |of| *of as u64);
        let sent = (record.handle(0), sent, of(2));
        let writes = name == "MPI_Bcast" && !is_root;
        let received = (record.handle(3), received, of(5));
        let mut ranges: Vec<Range> = self.range(process, sent, writes).into_iter().collect();
        ranges.extend(self.range(process, received, true));
        if matches!(name.as_str(), "MPI_Allgatherv" | "MPI_Alltoallv")
            || name == "MPI_Gatherv" && is_root
        {
            ranges.extend(self.parts(process, record, of(5)));
        }
        ranges
    }

    /// What is received in parts, each from its place; those side by side are one.
    fn parts(&self, process: usize, record: &Record, of: u64) -> Vec<Range> {
        let Some(size) = self.processes[process]
            .data_type(of)
            .and_then(|of| of.size())
        else {
            return Vec::new();
        };
        let (counts, places) = (record.list(4), record.list(9));
        let parts = places.iter().zip(counts).filter_map(|(&place, &count)| {
            let offset = place.checked_mul(i64::try_from(size).ok()?)?;
            let at = record.handle(3).checked_add_signed(offset)?;
            self.range(process, (at, count, of), true)
        });
        let mut parts: Vec<Range> = parts.filter(|_| record.handle(3) > 2).collect();
        parts.sort_unstable();
        parts.dedup_by(|next, last| {
            let is_beside = next.0 <= last.1;
            if is_beside {
                last.1 = last.1.max(next.1);
            }
            is_beside
        });
        parts
    }

    /// The bytes of data without gaps, if there are any.
    fn range(
        &self,
        process: usize,
        (buffer, count, of): (u64, i64, u64),
        writes: bool,
    ) -> Option<Range> {
        let of = self.processes[process]
            .data_type(of)
            .filter(|t| t.is_dense)?;
        let is_nowhere = buffer <= 2 || of.basic() == Some(Basic::Packed);
        let bytes = of.size()?.checked_mul(u64::try_from(count).ok()?)?;
        let end = buffer.checked_add(bytes)?;
        (!is_nowhere && end > buffer).then_some((buffer, end, writes))
    }

    fn uses_ranges(&mut self, process: usize, call: &Call, ranges: &[Range], until: Option<Until>) {
        let own = &self.processes[process];
        let mut uses = ranges
            .iter()
            .filter_map(|range| Some((range, own.uses.find(range.0, range.1, range.2)?)));
        let found = uses.next().map(|((_, _, writes), old)| {
            let does = |writes: bool| if writes { "writes to" } else { "reads" };
            Finding::new(Kind::Buffer)
                .say(format!("rank {}: ", own.rank))
                .call(call)
                .say(format!(" {} memory that ", does(*writes)))
                .call(&old.call)
                .say(format!(
                    " still {}; complete that one first",
                    does(old.writes)
                ))
        });
        let mut is_left_out = false;
        for &(begin, end, writes) in ranges {
            if let Some(until) = until {
                let new = Use {
                    begin,
                    end,
                    writes,
                    call: call.clone(),
                    until,
                };
                is_left_out |= !self.processes[process].uses.enter(new);
            }
            self.access_own(process, call, (begin, end), writes, until);
        }
        if is_left_out {
            self.left_out(
                "more memory is in use at the same time than is remembered; calls that use the rest of it too early are not found",
            );
        }
        if let Some(found) = found {
            self.report(found);
        }
    }
}
