//! Collectives of communicators whose ranks are on several hosts: within each host through its
//! memory, between hosts by messages between one rank of each, and within each host again.
//!
//! How a communicator is divided, and which operations are, follows from what all its ranks know:
//! the hosts of all members, and arguments that the standard makes equal. Within a host the ranks
//! choose by themselves between memory and messages. Each part is an operation of a communicator
//! that the program does not see; these have the number of the one that is divided, and each of
//! their operations has a tag of its own there.
//!
//! Nonblocking and persistent operations, and those of the program's reductions, are divided in the
//! same way, but as one schedule of messages (`core/schedule`'s `hosts`).

mod blocks;
mod reductions;

use std::collections::VecDeque;
use std::sync::Arc;

use margay_core_schedule::Tuning;
use margay_run_engine::{Data, ReqId, copy};
use margay_sys_os::user::Mem;

use crate::Mpi;
use crate::comm::{Comm, Division, part};
use crate::error::*;
use crate::op::Op;
use crate::operation::{Blocks, Elements, Operand, Operation, Root};
use crate::outcome::disagreement;

/// Data from this many bytes on is long: it goes between hosts in segments, or dealt out among the
/// ranks of each host.
const LONG: u64 = 64 << 10;

/// Bytes of such a segment: as long as the longest packet between hosts or more, so that the rank
/// that passes it on is not woken for less.
const SEGMENT: u64 = 128 << 10;

/// Segments of a broadcast that are under way between two hosts.
const SEGMENTS: usize = 4;

impl Division {
    /// One rank of each host, `root` on its own; none where this rank is none of them.
    fn heads(&self, comm: &Comm, root: u32) -> Option<Arc<Comm>> {
        self.among(comm, &self.hosts.representatives(root))
    }

    /// The last rank of each host; none where this rank is none of them.
    fn lasts(&self, comm: &Comm) -> Option<Arc<Comm>> {
        let last = |host| self.hosts.members(host).last().copied();
        let lasts: Vec<u32> = (0..self.hosts.count()).filter_map(last).collect();
        self.among(comm, &lasts)
    }

    /// A communicator of these ranks, one of each host; none where this rank is none of them.
    fn among(&self, comm: &Comm, heads: &[u32]) -> Option<Arc<Comm>> {
        if !heads.contains(&comm.rank) {
            return None;
        }
        let same = |across: &&Arc<Comm>| {
            let processes = heads.iter().map(|&rank| comm.group.process(rank));
            across.group.processes().map(Some).eq(processes)
        };
        match self.across.as_ref().filter(same) {
            Some(across) => Some(across.clone()),
            None => part(comm, heads).map(Arc::new),
        }
    }

    /// The number on its host of the rank that speaks for it.
    fn head(&self, comm: &Comm, root: u32) -> u32 {
        let here = self.hosts.host(comm.rank);
        match self.hosts.host(root) == here {
            true => self.hosts.place(root),
            false => 0,
        }
    }
}

/// An operation on a divided communicator.
struct Divided<'a> {
    mpi: &'a Mpi,
    comm: &'a Comm,
    division: &'a Division,
}

impl Mpi {
    /// Does a blocking operation host by host. Returns false when it is not one for that; then it
    /// goes by schedule, on all ranks alike.
    pub(super) fn collective_by_hosts(&self, comm: &Comm, operation: &Operation) -> Result<bool> {
        use Operation as O;
        let Some(division) = comm.division(self) else {
            return Ok(false);
        };
        let hosts = &division.hosts;
        let tuning = &Tuning::default();
        let divided = Divided {
            mpi: self,
            comm,
            division,
        };
        match operation {
            O::Barrier => divided.barrier()?,
            O::Bcast {
                data,
                root: Root::Rank(root),
            } => divided.bcast(data, *root)?,
            O::Reduce {
                send,
                recv,
                what,
                root: Root::Rank(root),
            } if is_divided(what) => {
                divided.reduce((send.as_ref(), recv.as_ref()), what, *root)?;
            }
            O::Allreduce { send, recv, what } if is_divided(what) => {
                divided.allreduce(send.as_ref(), recv, what)?;
            }
            O::Allgather { send, recv } if hosts.is_blocked() && hosts.is_even() => {
                divided.allgather(send.as_ref(), recv)?;
            }
            O::Allgatherv { send, recv } if hosts.is_blocked() => {
                divided.allgatherv(send.as_ref(), recv)?;
            }
            O::ReduceScatterBlock { send, recv, what }
                if is_divided(what) && hosts.is_blocked() =>
            {
                let counts = vec![what.count; comm.size() as usize];
                divided.reduce_scatter(send.as_ref().unwrap_or(recv), recv, &counts, what)?;
            }
            O::ReduceScatter {
                send,
                recv,
                counts,
                what,
            } if is_divided(what) && hosts.is_blocked() => {
                divided.reduce_scatter(send.as_ref().unwrap_or(recv), recv, counts, what)?;
            }
            O::Scan { send, recv, what } if is_divided(what) && hosts.is_blocked() => {
                divided.scan(send.as_ref(), recv, what, false)?;
            }
            O::Exscan { send, recv, what } if is_divided(what) && hosts.is_blocked() => {
                divided.scan(send.as_ref(), recv, what, true)?;
            }
            O::Gather {
                send,
                recv,
                root: Root::Rank(root),
            } if hosts.collect_blocks(operation.own_bytes(), tuning) => {
                divided.gather(send.as_ref(), recv.as_ref(), *root)?;
            }
            O::Scatter {
                send,
                recv,
                root: Root::Rank(root),
            } if hosts.collect_blocks(operation.own_bytes(), tuning) => {
                divided.scatter(send.as_ref(), recv.as_ref(), *root)?;
            }
            O::Alltoall { send, recv } if hosts.exchange_blocks(operation.own_bytes(), tuning) => {
                divided.alltoall(send.as_ref(), recv)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Whether a reduction is one of predefined elements.
fn is_divided(what: &Elements) -> bool {
    matches!(what.op.op, Op::Builtin(_))
}

impl Divided<'_> {
    /// The next operation of the communicator.
    fn tag(&self) -> u32 {
        self.comm.next_tag()
    }

    /// One part: through memory, or else by messages.
    fn step(&self, comm: &Arc<Comm>, operation: &Operation, tag: u32) -> Result<()> {
        if self.mpi.collective_fast(comm, operation)? {
            return Ok(());
        }
        let begun = self.mpi.start_tagged(comm, operation, tag)?;
        self.end(begun)
    }

    fn end(&self, begun: ReqId) -> Result<()> {
        disagreement(&self.mpi.rank.wait(begun)).map_or(Ok(()), Err)
    }

    fn barrier(&self) -> Result<()> {
        let tags = [self.tag(), self.tag(), self.tag()];
        let local = &self.division.local;
        let heads = self.division.heads(self.comm, 0);
        // Something must go, because a part without data may do nothing.
        let token = || Mem::owned(1);
        let what = Elements {
            count: 1,
            ..self.mpi.no_elements()
        };
        if local.size() > 1 {
            let come = Operation::Reduce {
                send: Some(token()),
                recv: heads.is_some().then(token),
                what,
                root: Root::Rank(0),
            };
            self.step(local, &come, tags[0])?;
        }
        if let Some(heads) = heads {
            self.step(&heads, &Operation::Barrier, tags[1])?;
        }
        if local.size() > 1 {
            let go = Operation::Bcast {
                data: self.mpi.bytes_operand(token(), 1),
                root: Root::Rank(0),
            };
            self.step(local, &go, tags[2])?;
        }
        Ok(())
    }

    fn bcast(&self, data: &Operand, root: u32) -> Result<()> {
        let bytes = data.bytes();
        if bytes == 0 {
            return Ok(());
        }
        if bytes <= 2 * SEGMENT {
            let tags = [self.tag(), self.tag()];
            return self.bcast_at_once(data, root, tags);
        }
        // Packed, so that it can be cut anywhere.
        let packed = match data.dense() {
            Some((mem, at)) => mem.shifted(at),
            None => Mem::owned(bytes as usize),
        };
        let is_apart = data.dense().is_none();
        let dense = Data::bytes(packed.clone(), bytes);
        if is_apart && self.comm.rank == root {
            copy(&data.data(), &dense);
        }
        self.bcast_in_segments(&packed, bytes, root)?;
        if is_apart && self.comm.rank != root {
            copy(&dense, &data.data());
        }
        Ok(())
    }

    fn bcast_at_once(&self, data: &Operand, root: u32, tags: [u32; 2]) -> Result<()> {
        let head = self.division.head(self.comm, root);
        let bcast = |root: u32| Operation::Bcast {
            data: data.clone(),
            root: Root::Rank(root),
        };
        if let Some(heads) = self.division.heads(self.comm, root) {
            let from = self.division.hosts.host(root);
            self.step(&heads, &bcast(from), tags[0])?;
        }
        if self.division.local.size() > 1 {
            self.step(&self.division.local, &bcast(head), tags[1])?;
        }
        Ok(())
    }

    /// While a segment is passed on within the host, the next ones come from the others.
    fn bcast_in_segments(&self, mem: &Mem, bytes: u64, root: u32) -> Result<()> {
        let head = self.division.head(self.comm, root);
        let heads = self.division.heads(self.comm, root);
        let from = self.division.hosts.host(root);
        let segments = bytes.div_ceil(SEGMENT);
        let segment = |number: u64, root: u32| {
            let start = number * SEGMENT;
            let len = SEGMENT.min(bytes - start);
            let mem = mem.shifted(start as i64);
            Operation::Bcast {
                data: self.mpi.bytes_operand(mem, len as usize),
                root: Root::Rank(root),
            }
        };
        let tags: Vec<[u32; 2]> = (0..segments).map(|_| [self.tag(), self.tag()]).collect();
        let mut under_way: VecDeque<ReqId> = VecDeque::new();
        let mut begun = 0;
        for number in 0..segments {
            while let Some(heads) = &heads
                && begun < segments.min(number + SEGMENTS as u64)
            {
                let (next, tag) = (segment(begun, from), tags[begun as usize][0]);
                under_way.push_back(self.mpi.start_tagged(heads, &next, tag)?);
                begun += 1;
            }
            // The root has the data, and may pass it on before it is sent.
            let is_root = self.comm.rank == root;
            let late = if is_root { SEGMENTS } else { 1 };
            if under_way.len() >= late
                && let Some(oldest) = under_way.pop_front()
            {
                self.end(oldest)?;
            }
            if self.division.local.size() > 1 {
                let tag = tags[number as usize][1];
                self.step(&self.division.local, &segment(number, head), tag)?;
            }
        }
        under_way.into_iter().try_for_each(|left| self.end(left))
    }

    fn reduce(
        &self,
        (send, recv): (Option<&Mem>, Option<&Mem>),
        what: &Elements,
        root: u32,
    ) -> Result<()> {
        let tags = [self.tag(), self.tag()];
        let local = &self.division.local;
        let head = self.division.head(self.comm, root);
        let heads = self.division.heads(self.comm, root);
        let is_root = self.comm.rank == root;
        // What the ranks of this host amount to.
        let sum = match (&heads, is_root) {
            (None, _) => None,
            (Some(_), true) => recv.cloned(),
            (Some(_), false) => Some(elements(what)),
        };
        let within = Operation::Reduce {
            send: send.cloned(),
            recv: sum.clone(),
            what: what.clone(),
            root: Root::Rank(head),
        };
        self.step(local, &within, tags[0])?;
        let Some(heads) = heads else { return Ok(()) };
        let between = Operation::Reduce {
            send: if is_root { None } else { sum.clone() },
            recv: if is_root { sum } else { None },
            what: what.clone(),
            root: Root::Rank(self.division.hosts.host(root)),
        };
        self.step(&heads, &between, tags[1])
    }

    fn allreduce(&self, send: Option<&Mem>, recv: &Mem, what: &Elements) -> Result<()> {
        let tags = [self.tag(), self.tag(), self.tag()];
        let local = &self.division.local;
        let ranks = u64::from(local.size());
        let bytes = what.count * what.datatype.size();
        if bytes >= LONG && self.division.hosts.is_even() && what.count >= ranks {
            return self.allreduce_dealt_out(send.unwrap_or(recv), recv, what, tags);
        }
        let heads = self.division.heads(self.comm, 0);
        let within = Operation::Reduce {
            // In place, only the rank that gets the result says so.
            send: send.or((heads.is_none()).then_some(recv)).cloned(),
            recv: heads.is_some().then(|| recv.clone()),
            what: what.clone(),
            root: Root::Rank(0),
        };
        self.step(local, &within, tags[0])?;
        if let Some(heads) = heads {
            let between = Operation::Allreduce {
                send: None,
                recv: recv.clone(),
                what: what.clone(),
            };
            self.step(&heads, &between, tags[1])?;
        }
        if ranks > 1 {
            let back = Operation::Bcast {
                data: Operand {
                    mem: recv.clone(),
                    count: what.count,
                    datatype: what.datatype.clone(),
                },
                root: Root::Rank(0),
            };
            self.step(local, &back, tags[2])?;
        }
        Ok(())
    }

    /// Each rank of a host combines its share, with those of its host and then with those of its
    /// counterparts, and all ranks of the host exchange what came of it.
    fn allreduce_dealt_out(
        &self,
        input: &Mem,
        recv: &Mem,
        what: &Elements,
        tags: [u32; 3],
    ) -> Result<()> {
        let local = &self.division.local;
        let ranks = u64::from(local.size());
        let extent = what.datatype.extent();
        let first = |rank: u64| what.count / ranks * rank + (what.count % ranks).min(rank);
        let counts: Vec<u64> = (0..ranks).map(|r| first(r + 1) - first(r)).collect();
        let own = Elements {
            count: counts[local.rank as usize],
            ..what.clone()
        };
        let (sum, start) = (elements(&own), first(local.rank.into()));
        let within = Operation::ReduceScatter {
            send: Some(input.clone()),
            recv: sum.clone(),
            counts: counts.clone(),
            what: what.clone(),
        };
        self.step(local, &within, tags[0])?;
        if let Some(across) = &self.division.across {
            let between = Operation::Allreduce {
                send: Some(sum),
                recv: recv.shifted(start as i64 * extent),
                what: own,
            };
            self.step(across, &between, tags[1])?;
        }
        if ranks > 1 {
            let back = Operation::Allgatherv {
                send: None,
                recv: Blocks {
                    mem: recv.clone(),
                    displs: (0..ranks).map(|r| first(r) as i64).collect(),
                    counts,
                    datatypes: Arc::new([what.datatype.clone()]),
                },
            };
            self.step(local, &back, tags[2])?;
        }
        Ok(())
    }

    /// Hosts have equally many ranks, which follow each other.
    fn allgather(&self, send: Option<&Operand>, recv: &Operand) -> Result<()> {
        let tags = [self.tag(), self.tag(), self.tag()];
        let hosts = &self.division.hosts;
        let local = &self.division.local;
        let first = self.comm.rank - local.rank;
        let from = |rank: u32, ranks: u32| Operand {
            mem: recv
                .mem
                .shifted(i64::from(rank) * recv.count as i64 * recv.datatype.extent()),
            count: recv.count * u64::from(ranks),
            datatype: recv.datatype.clone(),
        };
        let heads = self.division.heads(self.comm, 0);
        let own = from(self.comm.rank, 1);
        let within = Operation::Gather {
            send: match (send, &heads) {
                (Some(send), _) => Some(send.clone()),
                (None, Some(_)) => None,
                (None, None) => Some(own),
            },
            recv: heads.is_some().then(|| from(first, 1)),
            root: Root::Rank(0),
        };
        self.step(local, &within, tags[0])?;
        if let Some(heads) = heads {
            let between = Operation::Allgather {
                send: None,
                recv: from(0, local.size()),
            };
            self.step(&heads, &between, tags[1])?;
        }
        let back = Operation::Bcast {
            data: from(0, local.size() * hosts.count()),
            root: Root::Rank(0),
        };
        self.step(local, &back, tags[2])
    }
}

/// Memory for operands of a predefined type.
fn elements(what: &Elements) -> Mem {
    Mem::owned(what.count as usize * what.datatype.extent() as usize)
}
