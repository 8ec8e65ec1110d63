//! Operations with a block for each rank. Hosts have equally many ranks, which follow each other.

use std::sync::Arc;

use margay_run_engine::{Data, copy};
use margay_sys_os::user::Mem;

use super::Divided;
use super::reductions::starts;
use crate::comm::Comm;
use crate::error::Result;
use crate::operation::{Blocks, Operand, Operation, Root};

/// The blocks of `ranks` from `first` on.
fn blocks(operand: &Operand, first: u32, ranks: u32) -> Operand {
    let at = i64::from(first) * operand.count as i64 * operand.datatype.extent();
    Operand {
        mem: operand.mem.shifted(at),
        count: operand.count * u64::from(ranks),
        datatype: operand.datatype.clone(),
    }
}

impl Divided<'_> {
    fn packed(&self, bytes: u64) -> Operand {
        self.mpi
            .bytes_operand(Mem::owned(bytes as usize), bytes as usize)
    }

    /// The rank that collects or deals out on this host, and whether it is this one.
    fn head_of(&self, root: u32) -> (Root, Option<Arc<Comm>>) {
        let head = self.division.head(self.comm, root);
        (Root::Rank(head), self.division.heads(self.comm, root))
    }

    pub(super) fn gather(
        &self,
        send: Option<&Operand>,
        recv: Option<&Operand>,
        root: u32,
    ) -> Result<()> {
        let tags = [self.tag(), self.tag()];
        let local = &self.division.local;
        let (head, heads) = self.head_of(root);
        let first = self.comm.rank - local.rank;
        let collected = match (recv, &heads) {
            (Some(recv), _) => Some(blocks(recv, first, 1)),
            (None, Some(_)) => send.map(|send| self.packed(send.bytes() * u64::from(local.size()))),
            (None, None) => None,
        };
        let within = Operation::Gather {
            send: send.cloned(),
            recv: match recv {
                Some(_) => collected.clone(),
                None => (collected.as_ref()).map(|all| self.part_of(all, local.size())),
            },
            root: head,
        };
        self.step(local, &within, tags[0])?;
        let Some(heads) = heads else { return Ok(()) };
        let between = Operation::Gather {
            send: if recv.is_some() { None } else { collected },
            recv: recv.map(|recv| blocks(recv, 0, local.size())),
            root: Root::Rank(self.division.hosts.host(root)),
        };
        self.step(&heads, &between, tags[1])
    }

    pub(super) fn scatter(
        &self,
        send: Option<&Operand>,
        recv: Option<&Operand>,
        root: u32,
    ) -> Result<()> {
        let tags = [self.tag(), self.tag()];
        let local = &self.division.local;
        let (head, heads) = self.head_of(root);
        let mut dealt = None;
        if let Some(heads) = heads {
            let first = self.comm.rank - local.rank;
            let came = match send {
                Some(_) => None,
                None => recv.map(|recv| self.packed(recv.bytes() * u64::from(local.size()))),
            };
            let between = Operation::Scatter {
                send: send.map(|send| blocks(send, 0, local.size())),
                recv: came.clone(),
                root: Root::Rank(self.division.hosts.host(root)),
            };
            self.step(&heads, &between, tags[0])?;
            dealt = match send {
                Some(send) => Some(blocks(send, first, 1)),
                None => came.map(|all| self.part_of(&all, local.size())),
            };
        }
        let within = Operation::Scatter {
            send: dealt,
            recv: recv.cloned(),
            root: head,
        };
        self.step(local, &within, tags[1])
    }

    /// As the allgather, of blocks of any lengths, which go packed. The ranks of each host follow
    /// each other.
    pub(super) fn allgatherv(&self, send: Option<&Operand>, recv: &Blocks) -> Result<()> {
        let tags = [self.tag(), self.tag(), self.tag()];
        let (local, hosts) = (&self.division.local, &self.division.hosts);
        let all = 0..self.comm.size();
        let bytes: Vec<u64> = all.clone().map(|rank| recv.bytes_of(rank)).collect();
        let starts = starts(&bytes);
        let total = starts[bytes.len()];
        // Where the blocks are to lie is a matter of each rank.
        let in_place = recv.packed();
        let packed = in_place.clone();
        let packed = packed.unwrap_or_else(|| Mem::owned(total as usize));
        let place = |rank: u32| packed.shifted(starts[rank as usize] as i64);
        let blocks = |counts: Vec<u64>, displs: Vec<u64>| Blocks {
            mem: packed.clone(),
            counts,
            displs: displs.into_iter().map(|at| at as i64).collect(),
            datatypes: Arc::new([self.packed(0).datatype]),
        };
        let rank = self.comm.rank;
        let heads = self.division.heads(self.comm, 0);
        let own = match (send, &heads, &in_place) {
            (Some(send), _, _) => Some(send.clone()),
            (None, Some(_), Some(_)) => None,
            (None, _, _) => Some(recv.operand_of(rank)),
        };
        let first = (rank - local.rank) as usize;
        let members = first..first + local.size() as usize;
        let within = Operation::Gatherv {
            send: own,
            recv: (heads.is_some())
                .then(|| blocks(bytes[members.clone()].to_vec(), starts[members].to_vec())),
            root: Root::Rank(0),
        };
        self.step(local, &within, tags[0])?;
        if let Some(heads) = heads {
            let ends = |host: u32| {
                let ranks = hosts.members(host);
                let first = ranks[0] as usize;
                (starts[first], starts[first + ranks.len()])
            };
            let ends: Vec<(u64, u64)> = (0..hosts.count()).map(ends).collect();
            let lengths = ends.iter().map(|(start, end)| end - start);
            let between = Operation::Allgatherv {
                send: None,
                recv: blocks(
                    lengths.collect(),
                    ends.iter().map(|(start, _)| *start).collect(),
                ),
            };
            self.step(&heads, &between, tags[1])?;
        }
        let back = Operation::Bcast {
            data: self.mpi.bytes_operand(packed.clone(), total as usize),
            root: Root::Rank(0),
        };
        self.step(local, &back, tags[2])?;
        if in_place.is_none() {
            for rank in all {
                let from = Data::bytes(place(rank), bytes[rank as usize]);
                copy(&from, &recv.data_of(rank));
            }
        }
        Ok(())
    }

    /// One block of `ranks`.
    fn part_of(&self, all: &Operand, ranks: u32) -> Operand {
        Operand {
            count: all.count / u64::from(ranks),
            ..all.clone()
        }
    }

    /// Within the host each rank gets what is for its counterparts on all hosts, and exchanges that
    /// with them.
    pub(super) fn alltoall(&self, send: Option<&Operand>, recv: &Operand) -> Result<()> {
        let tags = [self.tag(), self.tag()];
        let local = &self.division.local;
        let hosts = &self.division.hosts;
        let (ranks, count, bytes) = (local.size(), hosts.count(), recv.bytes());
        let own = send.unwrap_or(recv);
        let all = ranks * count;
        let (outgoing, met) = (
            self.packed(bytes * u64::from(all)),
            self.packed(bytes * u64::from(all)),
        );
        let place = |operand: &Operand, number: u32| {
            let mem = operand.mem.shifted((u64::from(number) * bytes) as i64);
            Data::bytes(mem, bytes)
        };
        for rank in 0..all {
            let (host, other) = (rank / ranks, rank % ranks);
            let to = place(&outgoing, other * count + host);
            copy(&blocks(own, rank, 1).data(), &to);
        }
        let within = Operation::Alltoall {
            send: Some(self.part_of(&outgoing, ranks)),
            recv: self.part_of(&met, ranks),
        };
        self.step(local, &within, tags[0])?;
        for rank in 0..all {
            let (host, other) = (rank / ranks, rank % ranks);
            copy(&place(&met, other * count + host), &place(&outgoing, rank));
        }
        let between = Operation::Alltoall {
            send: Some(self.part_of(&outgoing, count)),
            recv: blocks(recv, 0, ranks),
        };
        match &self.division.across {
            Some(across) => self.step(across, &between, tags[1]),
            None => Ok(()),
        }
    }
}
