//! Reductions of which each rank gets a part of its own. The ranks of each host follow each other.

use std::sync::Arc;

use margay_run_engine::copy;
use margay_sys_os::user::Mem;

use super::{Divided, LONG, elements};
use crate::error::Result;
use crate::operation::{Blocks, Elements, Operand, Operation, Root};

impl Elements {
    /// As many others of the same kind.
    fn counted(&self, count: u64) -> Elements {
        Elements {
            count,
            ..self.clone()
        }
    }

    /// `count` of them from the element `first` of some memory on.
    fn operand(&self, mem: &Mem, first: u64, count: u64) -> Operand {
        Operand {
            mem: mem.shifted(first as i64 * self.datatype.extent()),
            count,
            datatype: self.datatype.clone(),
        }
    }
}

/// Where each of the counted blocks begins, and where the last one ends.
pub(super) fn starts(counts: &[u64]) -> Vec<u64> {
    let mut starts = vec![0];
    starts.extend(counts.iter().scan(0, |end, count| {
        *end += count;
        Some(*end)
    }));
    starts
}

impl Divided<'_> {
    /// What each rank of `ranks`, which follow each other, has of `counts`.
    fn of_ranks<'a>(ranks: &[u32], counts: &'a [u64]) -> &'a [u64] {
        let first = ranks[0] as usize;
        &counts[first..first + ranks.len()]
    }

    pub(super) fn reduce_scatter(
        &self,
        input: &Mem,
        recv: &Mem,
        counts: &[u64],
        what: &Elements,
    ) -> Result<()> {
        let tags = [self.tag(), self.tag(), self.tag()];
        let (local, hosts) = (&self.division.local, &self.division.hosts);
        let total: u64 = counts.iter().sum();
        if total * what.datatype.size() >= LONG && hosts.is_even() {
            return self.reduce_scatter_dealt_out(input, recv, counts, what, [tags[0], tags[1]]);
        }
        let heads = self.division.heads(self.comm, 0);
        let sum = (heads.is_some()).then(|| elements(&what.counted(total)));
        let within = Operation::Reduce {
            send: Some(input.clone()),
            recv: sum.clone(),
            what: what.counted(total),
            root: Root::Rank(0),
        };
        self.step(local, &within, tags[0])?;
        let here = hosts.host(self.comm.rank);
        let own = Self::of_ranks(hosts.members(here), counts);
        let mut dealt = None;
        if let Some(heads) = heads {
            let of_host = |host| Self::of_ranks(hosts.members(host), counts).iter().sum();
            let part = elements(&what.counted(own.iter().sum()));
            let between = Operation::ReduceScatter {
                send: sum,
                recv: part.clone(),
                counts: (0..hosts.count()).map(of_host).collect(),
                what: what.counted(total),
            };
            self.step(&heads, &between, tags[1])?;
            dealt = Some(Blocks {
                mem: part,
                displs: starts(own).iter().map(|&at| at as i64).collect(),
                counts: own.to_vec(),
                datatypes: Arc::new([what.datatype.clone()]),
            });
        }
        let within = Operation::Scatterv {
            send: dealt,
            recv: Some(what.operand(recv, 0, counts[self.comm.rank as usize])),
            root: Root::Rank(0),
        };
        self.step(local, &within, tags[2])
    }

    /// Each rank combines on its host what is for its counterparts on all hosts, and then with
    /// those what is for itself. All hosts have equally many ranks.
    fn reduce_scatter_dealt_out(
        &self,
        input: &Mem,
        recv: &Mem,
        counts: &[u64],
        what: &Elements,
        tags: [u32; 2],
    ) -> Result<()> {
        let local = &self.division.local;
        let (ranks, hosts) = (local.size(), self.division.hosts.count());
        let starts = starts(counts);
        let own = |place: u32| (0..hosts).map(move |host| (host * ranks + place) as usize);
        let sorted = elements(&what.counted(starts[counts.len()]));
        let mut at = 0;
        for rank in (0..ranks).flat_map(own) {
            let count = counts[rank];
            let (from, to) = (
                what.operand(input, starts[rank], count),
                what.operand(&sorted, at, count),
            );
            copy(&from.data(), &to.data());
            at += count;
        }
        let of_place = |place| own(place).map(|rank| counts[rank]).sum();
        let sums: Vec<u64> = (0..ranks).map(of_place).collect();
        let own_sum = what.counted(sums[local.rank as usize]);
        let sum = elements(&own_sum);
        let within = Operation::ReduceScatter {
            send: Some(sorted),
            recv: sum.clone(),
            counts: sums,
            what: what.counted(starts[counts.len()]),
        };
        self.step(local, &within, tags[0])?;
        let between = Operation::ReduceScatter {
            send: Some(sum),
            recv: recv.clone(),
            counts: own(local.rank).map(|rank| counts[rank]).collect(),
            what: own_sum,
        };
        match &self.division.across {
            Some(across) => self.step(across, &between, tags[1]),
            None => Ok(()),
        }
    }

    /// The last rank of each host learns what those before it amount to, and its host from it.
    /// `excludes`: without the rank's own operand.
    pub(super) fn scan(
        &self,
        send: Option<&Mem>,
        recv: &Mem,
        what: &Elements,
        excludes: bool,
    ) -> Result<()> {
        let tags = [self.tag(), self.tag(), self.tag()];
        let (local, hosts) = (&self.division.local, &self.division.hosts);
        let whole = |mem: &Mem| what.operand(mem, 0, what.count);
        let is_last = local.rank + 1 == local.size();
        // It ends up as what the host amounts to.
        let kept = (excludes && is_last).then(|| elements(what));
        if let Some(kept) = &kept {
            copy(&whole(send.unwrap_or(recv)).data(), &whole(kept).data());
        }
        let (send, own) = (send.cloned(), recv.clone());
        let what_own = what.clone();
        let within = match excludes {
            true => Operation::Exscan {
                send,
                recv: own,
                what: what_own,
            },
            false => Operation::Scan {
                send,
                recv: own,
                what: what_own,
            },
        };
        self.step(local, &within, tags[0])?;
        let before = elements(what);
        if let Some(lasts) = self.division.lasts(self.comm) {
            let sum = match kept {
                Some(kept) => {
                    if local.size() > 1 {
                        self.mpi.reduce_local(&what.op, recv, &whole(&kept));
                    }
                    kept
                }
                None => recv.clone(),
            };
            let between = Operation::Exscan {
                send: Some(sum),
                recv: before.clone(),
                what: what.clone(),
            };
            self.step(&lasts, &between, tags[1])?;
        }
        if hosts.host(self.comm.rank) == 0 {
            return Ok(());
        }
        let back = Operation::Bcast {
            data: whole(&before),
            root: Root::Rank(local.size() - 1),
        };
        self.step(local, &back, tags[2])?;
        if excludes && local.rank == 0 {
            copy(&whole(&before).data(), &whole(recv).data());
        } else {
            self.mpi.reduce_local(&what.op, &before, &whole(recv));
        }
        Ok(())
    }
}
