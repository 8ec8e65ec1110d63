//! Making communicators.
//!
//! A new communicator needs a number that its processes agree on and that none of them uses for
//! another one. The process with rank 0 in the new group takes one of its own: its count of such
//! numbers times the size of the world, plus its process number. Such a number is unique in the
//! whole job without any agreement, so communicators can be made in several threads at once, and it
//! travels with what the operation has to exchange anyway. Numbers are not used again; there are
//! 2^29 divided by the size of the world for each process. Communicators with processes of several
//! jobs have numbers from 2^29 on, drawn by lot from 2^29; one that is in use here already is
//! refused.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_core_group::Group;
use margay_sys_os::user::Mem;

use crate::attribute::Attributes;
use crate::comm::Topology;
use crate::comm::{Comm, FOREIGN, Parts, RESERVED};
use crate::constants::comm::MPI_COMM_NULL;
use crate::constants::sentinel::MPI_UNDEFINED;
use crate::error::*;
use crate::exchange::Words;
use crate::info::Info;
use crate::operation::{Operation, Root};
use crate::request::Finish;
use crate::{Mpi, fail};

impl Mpi {
    /// Returns a number for a communicator that is made of `parent` and whose rank 0 may be this
    /// process.
    pub fn propose(&self, parent: &Comm) -> Result<u32> {
        self.propose_for(self.spans(parent))
    }

    /// Returns a number for a communicator whose rank 0 may be this process; `foreign`: processes
    /// of other jobs are in it.
    pub fn propose_for(&self, foreign: bool) -> Result<u32> {
        let count = self.proposals.fetch_add(1, Ordering::Relaxed);
        if foreign {
            let mut hasher = DefaultHasher::new();
            (self.identity(self.rank.world_rank()), std::process::id()).hash(&mut hasher);
            (count, self.rank.clock().now_ns()).hash(&mut hasher);
            return Ok(FOREIGN | (hasher.finish() as u32 & (FOREIGN - 1)));
        }
        let number = count * u64::from(self.rank.world_size()) + u64::from(self.rank.world_rank());
        match u32::try_from(number) {
            Ok(id) if id < RESERVED => Ok(id),
            _ => fail!(
                MPI_ERR_OTHER,
                "this process has made {count} communicators in its life; there are no more numbers for them"
            ),
        }
    }

    /// Returns a communicator with what it inherits from `parent`.
    pub(crate) fn inherit(&self, parent: &Comm, comm: Arc<Comm>) -> Result<u32> {
        let (errhandler, session) = {
            let state = parent.state();
            (state.errhandler, state.session)
        };
        self.errhandler_retain(errhandler)?;
        comm.state().errhandler = errhandler;
        comm.state().session = session;
        self.comm_add(comm)
    }

    /// `MPI_Comm_dup` and `MPI_Comm_dup_with_info`.
    ///
    /// # Errors
    /// When a handle is invalid or a copy function of an attribute fails.
    pub fn comm_dup(&self, handle: u32, info: Info) -> Result<u32> {
        let parent = self.comm(handle)?;
        let snapshot = parent.attributes().snapshot();
        let attributes = Attributes::copy_for(snapshot, handle)?;
        let comm = match &parent.remote {
            None => {
                let mut id = [if parent.rank == 0 {
                    self.propose(&parent)? as i32
                } else {
                    0
                }];
                self.broadcast_words(&parent, 0, &mut id)?;
                self.same_processes(&parent, Some(id[0] as u32), None)
            }
            Some(_) => {
                let (id, inner) = self.intercomm_numbers(&parent)?;
                let inner = self.same_processes(
                    parent.inner.as_ref().expect("an inter-communicator"),
                    Some(inner),
                    None,
                );
                self.same_processes(&parent, Some(id), Some(Arc::new(inner)))
            }
        };
        comm.set_info(info);
        *comm.attributes() = attributes;
        self.inherit(&parent, Arc::new(comm))
    }

    /// `MPI_Comm_idup`: the handle of the new communicator, which may be used when the request is
    /// complete, and the request.
    ///
    /// # Errors
    /// As [`Mpi::comm_dup`].
    pub fn comm_idup(&self, handle: u32, info: Info) -> Result<(u32, u32)> {
        let parent = self.comm(handle)?;
        let snapshot = parent.attributes().snapshot();
        let attributes = Attributes::copy_for(snapshot, handle)?;
        let mut parts = Vec::new();
        let mut numbers = Vec::new();
        let mut broadcast = |over: &Arc<Comm>, root: Root, value: u32| -> Result<Mem> {
            let mem = Mem::from_vec(value.to_ne_bytes().to_vec());
            let operation = Operation::Bcast {
                data: self.bytes_operand(mem.clone(), 4),
                root,
            };
            parts.push(self.start_collective(over, &operation)?);
            Ok(mem)
        };
        let first = parent.rank == 0;
        let comm = match (&parent.remote, &parent.inner) {
            (Some(remote), Some(own)) => {
                let inner = Arc::new(self.same_processes(own, None, None));
                let id = if first { self.propose(&parent)? } else { 0 };
                numbers.push((inner.clone(), broadcast(own, Root::Rank(0), id)?));
                // The group with the lower first process decides; both groups are disjoint.
                let ours = self.comes_first(&parent.group, remote);
                let id = if first { self.propose(&parent)? } else { 0 };
                let comm = Arc::new(self.same_processes(&parent, None, Some(inner)));
                let number = if ours {
                    let number = broadcast(own, Root::Rank(0), id)?;
                    broadcast(&parent, if first { Root::Here } else { Root::Null }, id)?;
                    number
                } else {
                    broadcast(&parent, Root::Rank(0), 0)?
                };
                numbers.push((comm.clone(), number));
                comm
            }
            _ => {
                let comm = Arc::new(self.same_processes(&parent, None, None));
                let id = if first { self.propose(&parent)? } else { 0 };
                numbers.push((comm.clone(), broadcast(&parent, Root::Rank(0), id)?));
                comm
            }
        };
        comm.set_info(info);
        *comm.attributes() = attributes;
        let new = self.inherit(&parent, comm)?;
        let finish = Finish::Number(numbers);
        Ok((new, self.request_of(parent.handle(), parts, finish)?))
    }

    /// Returns a communicator of the same processes that the program never sees, and every
    /// process's words (collective).
    pub fn comm_hidden(
        &self,
        parent: &Arc<Comm>,
        words: &[i32],
    ) -> Result<(Arc<Comm>, Vec<Vec<i32>>)> {
        let first = parent.rank == 0;
        let mut all = words.to_vec();
        all.push(if first {
            self.propose(parent)? as i32
        } else {
            0
        });
        let all = self.gather_all(parent, &all)?;
        let id = all[0][words.len()] as u32;
        let comm = self.same_processes(parent, Some(id), None);
        let session = parent.state().session;
        comm.state().session = session;
        Ok((Arc::new(comm), all))
    }

    fn same_processes(&self, parent: &Comm, id: Option<u32>, inner: Option<Arc<Comm>>) -> Comm {
        Comm::new(Parts {
            id,
            rank: parent.rank,
            group: parent.group.clone(),
            remote: parent.remote.clone(),
            inner,
            topology: parent.topology.clone(),
        })
    }

    /// Returns a communicator of some processes of `parent`, in which this process is.
    pub(crate) fn add_intracomm(
        &self,
        parent: &Comm,
        id: u32,
        group: Arc<Group>,
        topology: Option<Topology>,
    ) -> Result<u32> {
        let rank = group
            .rank(self.rank.world_rank())
            .expect("the caller is in the new group");
        let comm = Comm::new(Parts {
            id: Some(id),
            rank,
            group,
            remote: None,
            inner: None,
            topology,
        });
        self.inherit(parent, Arc::new(comm))
    }

    pub fn add_intercomm(
        &self,
        parent: &Comm,
        numbers: (u32, u32),
        group: Arc<Group>,
        remote: Arc<Group>,
    ) -> Result<u32> {
        let rank = group
            .rank(self.rank.world_rank())
            .expect("the caller is in the new group");
        let inner = Comm::new(Parts {
            id: Some(numbers.1),
            rank,
            group: group.clone(),
            remote: None,
            inner: None,
            topology: None,
        });
        let comm = Comm::new(Parts {
            id: Some(numbers.0),
            rank,
            group,
            remote: Some(remote),
            inner: Some(Arc::new(inner)),
            topology: None,
        });
        self.inherit(parent, Arc::new(comm))
    }

    /// `MPI_Comm_split`; `color` `MPI_UNDEFINED` gives `MPI_COMM_NULL`. With `topology`, the new
    /// communicator has it.
    ///
    /// # Errors
    /// When the color is negative.
    pub fn comm_split(
        &self,
        parent: &Arc<Comm>,
        color: i32,
        key: i32,
        topology: Option<Topology>,
    ) -> Result<u32> {
        if color < 0 && color != MPI_UNDEFINED {
            fail!(
                MPI_ERR_ARG,
                "the color is {color}; it must not be negative (MPI_UNDEFINED leaves the process out)"
            );
        }
        let words = [
            color,
            key,
            self.propose(parent)? as i32,
            self.propose(parent)? as i32,
        ];
        let (local, remote) = self.exchange(parent, &words)?;
        if color == MPI_UNDEFINED {
            return Ok(MPI_COMM_NULL);
        }
        let members = |all: &[Words]| {
            let mut chosen: Vec<(i32, u32)> = (0u32..)
                .zip(all)
                .filter(|(_, words)| words[0] == color)
                .map(|(rank, words)| (words[1], rank))
                .collect();
            chosen.sort_unstable();
            chosen.into_iter().map(|(_, rank)| rank).collect::<Vec<_>>()
        };
        let ranks = members(&local);
        let group = Arc::new(pick(&parent.group, &ranks));
        let first = &local[ranks[0] as usize];
        let Some(remote_group) = &parent.remote else {
            return self.add_intracomm(parent, first[2] as u32, group, topology);
        };
        let others = members(&remote);
        let Some(&leader) = others.first() else {
            // Nobody on the other side has this color.
            return Ok(MPI_COMM_NULL);
        };
        let id = first[2].min(remote[leader as usize][2]) as u32;
        let remote_group = Arc::new(pick(remote_group, &others));
        self.add_intercomm(parent, (id, first[3] as u32), group, remote_group)
    }

    /// `MPI_Comm_create`: `group` is a subgroup of the (local) group; processes outside get
    /// `MPI_COMM_NULL`.
    ///
    /// # Errors
    /// When the group has a process that the communicator has not.
    pub fn comm_create(
        &self,
        parent: &Arc<Comm>,
        group: &Arc<Group>,
        topology: Option<Topology>,
    ) -> Result<u32> {
        check_subgroup(parent, group)?;
        let here = group.rank(self.rank.world_rank());
        // Only the first of a group needs numbers, but which process that is may differ from
        // process to process.
        let words = match here {
            Some(rank) => [
                rank as i32,
                self.propose(parent)? as i32,
                self.propose(parent)? as i32,
            ],
            None => [-1, 0, 0],
        };
        let (local, remote) = self.exchange(parent, &words)?;
        if here.is_none() {
            return Ok(MPI_COMM_NULL);
        }
        let first = group
            .process(0)
            .and_then(|process| parent.group.rank(process))
            .expect("a subgroup");
        let numbers = &local[first as usize];
        let Some(remote_group) = &parent.remote else {
            return self.add_intracomm(parent, numbers[1] as u32, group.clone(), topology);
        };
        let mut members: Vec<(i32, u32)> = (0u32..)
            .zip(&remote)
            .filter(|(_, words)| words[0] >= 0)
            .map(|(rank, words)| (words[0], rank))
            .collect();
        members.sort_unstable();
        let Some(&(_, leader)) = members.first() else {
            return Ok(MPI_COMM_NULL);
        };
        let id = numbers[1].min(remote[leader as usize][1]) as u32;
        let others: Vec<u32> = members.into_iter().map(|(_, rank)| rank).collect();
        let remote_group = Arc::new(pick(remote_group, &others));
        self.add_intercomm(parent, (id, numbers[2] as u32), group.clone(), remote_group)
    }

    /// `MPI_Comm_create_group`: collective over `group` only. The number goes from the group's
    /// first process down a binomial tree, as messages in the collective context under the
    /// program's tag.
    ///
    /// # Errors
    /// When the group has a process that the communicator has not, or not the caller.
    pub fn comm_create_group(
        &self,
        parent: &Arc<Comm>,
        group: &Arc<Group>,
        tag: i32,
    ) -> Result<u32> {
        check_subgroup(parent, group)?;
        let Some(rank) = group.rank(self.rank.world_rank()) else {
            return Ok(MPI_COMM_NULL);
        };
        let size = group.size();
        let tag = Comm::special_tag(tag);
        let mut id = if rank == 0 { self.propose(parent)? } else { 0 };
        // The bit by which this rank differs from its parent in the tree.
        let mut bit = 1;
        while bit < size && rank & bit == 0 {
            bit <<= 1;
        }
        if rank != 0 {
            let source = process_of(group, rank - bit);
            id = self.receive_words(parent, source, tag, 1)?[0] as u32;
        }
        bit >>= 1;
        while bit > 0 {
            if rank + bit < size {
                let target = process_of(group, rank + bit);
                self.send_words(parent, target, tag, &[id as i32]);
            }
            bit >>= 1;
        }
        self.add_intracomm(parent, id, group.clone(), None)
    }
}

fn process_of(group: &Group, rank: u32) -> u32 {
    group.process(rank).expect("a rank of the group")
}

fn pick(group: &Group, ranks: &[u32]) -> Group {
    let processes = ranks.iter().map(|&r| process_of(group, r)).collect();
    Group::from_processes(processes).expect("processes of a group are distinct")
}

fn check_subgroup(parent: &Comm, group: &Group) -> Result<()> {
    for (rank, process) in group.processes().enumerate() {
        if parent.group.rank(process).is_none() {
            fail!(
                MPI_ERR_GROUP,
                "rank {rank} of the group is process {process}, which is not in {}",
                parent.describe()
            );
        }
    }
    Ok(())
}
