//! Making communicators.
//!
//! A new communicator needs a number that its processes agree on and that none of them uses for another one. The process
//! with rank 0 in the new group takes one of its own: its count of such numbers times the size of the world, plus its
//! process number. Such a number is unique in the whole job without any agreement, so communicators can be made
//! in several threads at once, and it travels with what the operation has to exchange anyway. Numbers are not used again;
//! there are 2^29 divided by the size of the world for each process. Communicators with processes of several jobs have
//! numbers from 2^29 on, drawn by lot from 2^29; one that is in use here already is refused.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_core_datatype::Basic;
use margay_core_group::Group;
use margay_core_reduce as reduce;
use margay_run_engine::{Data, Envelope, Mode, Pattern};
use margay_sys_os::user::Mem;

use crate::attribute::Attributes;
use crate::collective::{Elements, Operand, Operation, Root};
use crate::comm::{Comm, Parts};
use crate::constants::comm::MPI_COMM_NULL;
use crate::constants::sentinel::MPI_UNDEFINED;
use crate::dynamic::{Address, NewBridge};
use crate::error::*;
use crate::info::Info;
use crate::op::{Bound, Op};
use crate::recover::failure;
use crate::request::Finish;
use crate::topology::Topology;
use crate::{Mpi, fail};

/// Numbers from here on are of communicators with processes of several jobs.
pub(crate) const FOREIGN: u32 = 1 << 29;

/// Numbers from here to [`FOREIGN`] are those of libraries beside MPI.
pub(crate) const RESERVED: u32 = FOREIGN - (1 << 16);

/// What every process tells the others when a communicator is made.
type Words = Vec<i32>;

impl Mpi {
    /// A number for a communicator that is made of `parent` and whose rank 0 may be this process.
    pub(crate) fn propose(&self, parent: &Comm) -> Result<u32> {
        self.propose_for(self.spans(parent))
    }

    /// A number for a communicator whose rank 0 may be this process; `foreign`: processes of other jobs are in it.
    pub(crate) fn propose_for(&self, foreign: bool) -> Result<u32> {
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

    /// Every process's `words` (equally many), in the order of ranks: those of the local and of the remote group.
    fn exchange(&self, comm: &Arc<Comm>, words: &[i32]) -> Result<(Vec<Words>, Vec<Words>)> {
        let local = self.gather_words(comm.inner.as_ref().unwrap_or(comm), words, comm.size())?;
        let remote = match &comm.remote {
            None => Vec::new(),
            Some(remote) => self.gather_words(comm, words, remote.size())?,
        };
        Ok((local, remote))
    }

    fn gather_words(&self, comm: &Arc<Comm>, words: &[i32], peers: u32) -> Result<Vec<Words>> {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let length = bytes.len();
        let recv = Mem::owned(length * peers as usize);
        self.collective(
            comm,
            Operation::Allgather {
                send: Some(self.bytes_operand(Mem::from_vec(bytes), length)),
                recv: self.bytes_operand(recv.clone(), length),
            },
        )?;
        Ok(recv.with_bytes(0, length * peers as usize, |all| {
            all.chunks(length.max(1))
                .map(|one| {
                    one.chunks(4)
                        .map(|w| i32::from_ne_bytes(w.try_into().expect("four bytes")))
                        .collect()
                })
                .collect()
        }))
    }

    /// Every process's count.
    pub(crate) fn gather_counts(&self, comm: &Arc<Comm>, count: usize) -> Result<Vec<usize>> {
        let all = self.gather_words(comm, &[count as i32], comm.size())?;
        Ok(all.into_iter().map(|words| words[0] as usize).collect())
    }

    /// Every process's words, equally many.
    pub(crate) fn gather_all(&self, comm: &Arc<Comm>, words: &[i32]) -> Result<Vec<Vec<i32>>> {
        if words.is_empty() {
            return Ok(vec![Vec::new(); comm.size() as usize]);
        }
        self.gather_words(comm, words, comm.size())
    }

    /// No elements, where an argument of a collective has no meaning.
    #[must_use]
    pub fn no_operand(&self) -> Operand {
        self.bytes_operand(Mem::empty(), 0)
    }

    /// The same for reductions.
    #[must_use]
    pub fn no_elements(&self) -> Elements {
        let entry = self.basics[(Basic::Byte.handle() - 0x200) as usize].as_ref();
        let entry = entry.expect("every basic type is there");
        Elements {
            count: 0,
            datatype: entry.datatype.clone(),
            op: Bound::new(Op::Builtin(reduce::Op::Bor), entry),
        }
    }

    pub(crate) fn bytes_operand(&self, mem: Mem, length: usize) -> Operand {
        Operand {
            mem,
            count: length as u64,
            datatype: self.basic(Basic::Byte),
        }
    }

    /// A communicator with what it inherits from `parent`.
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

    /// `MPI_Comm_idup`: the handle of the new communicator, which may be used when the request is complete, and the
    /// request.
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

    /// A communicator of the same processes that the program never sees, and every process's words (collective).
    pub(crate) fn comm_hidden(
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

    /// Numbers for an inter-communicator with the groups of `parent` and for its inner one.
    fn intercomm_numbers(&self, parent: &Arc<Comm>) -> Result<(u32, u32)> {
        let proposals = if parent.rank == 0 {
            [self.propose(parent)? as i32, self.propose(parent)? as i32]
        } else {
            [0, 0]
        };
        let (local, remote) = self.exchange(parent, &proposals)?;
        Ok((local[0][0].min(remote[0][0]) as u32, local[0][1] as u32))
    }

    /// `words` of rank `root` to all.
    pub(crate) fn broadcast_words(
        &self,
        comm: &Arc<Comm>,
        root: u32,
        words: &mut [i32],
    ) -> Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let length = bytes.len();
        let mem = Mem::from_vec(bytes);
        let data = self.bytes_operand(mem.clone(), length);
        self.collective(
            comm,
            Operation::Bcast {
                data,
                root: Root::Rank(root),
            },
        )?;
        for (i, word) in words.iter_mut().enumerate() {
            let mut four = [0; 4];
            mem.read(4 * i as i64, &mut four);
            *word = i32::from_ne_bytes(four);
        }
        Ok(())
    }

    /// A communicator of some processes of `parent`, in which this process is.
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

    pub(crate) fn add_intercomm(
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

    /// `MPI_Comm_split`; `color` `MPI_UNDEFINED` gives `MPI_COMM_NULL`. With `topology`, the new communicator has it.
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

    /// `MPI_Comm_create`: `group` is a subgroup of the (local) group; processes outside get `MPI_COMM_NULL`.
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
        // Only the first of a group needs numbers, but who that is may differ from process to process.
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

    /// `MPI_Comm_create_group`: collective over `group` only. The number goes from the group's first process down a
    /// binomial tree, as messages in the collective context under the program's tag.
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

    /// Sends words to a process in the collective context of `comm`.
    fn send_words(&self, comm: &Comm, process: u32, tag: u32, words: &[i32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let length = bytes.len() as u64;
        let envelope = Envelope {
            context: comm.collective(),
            source: comm.rank,
            tag,
        };
        let data = Data::bytes(Mem::from_vec(bytes), length);
        // Whoever waits for it finds out himself that it does not come.
        let _ = self.rank.send(Mode::Standard, &data, process, envelope);
    }

    fn receive_words(&self, comm: &Comm, process: u32, tag: u32, words: usize) -> Result<Words> {
        let Some(source) = comm.peers().rank(process) else {
            fail!(
                MPI_ERR_INTERN,
                "process {process} is not in {}",
                comm.describe()
            );
        };
        let pattern = Pattern::new(comm.collective(), Some(source), Some(tag));
        let mem = Mem::owned(4 * words);
        let data = Data::bytes(mem.clone(), 4 * words as u64);
        if let Some(failed) = self.rank.recv(data, pattern, Some(process)).failed {
            return Err(failure(failed, &comm.describe()));
        }
        Ok(mem.with_bytes(0, 4 * words, |bytes| {
            bytes
                .chunks(4)
                .map(|w| i32::from_ne_bytes(w.try_into().expect("four bytes")))
                .collect()
        }))
    }

    /// `MPI_Intercomm_create`. The leaders tell each other their groups over `peer` (significant at the leaders), and
    /// each its own group.
    ///
    /// # Errors
    /// When a rank is invalid, or the groups have a process in common.
    pub fn intercomm_create(
        &self,
        local: &Arc<Comm>,
        local_leader: i32,
        peer: u32,
        remote_leader: i32,
        tag: i32,
    ) -> Result<u32> {
        if local_leader < 0 || local_leader as u32 >= local.size() {
            fail!(
                MPI_ERR_RANK,
                "local_leader {local_leader} is not in {}",
                local.describe()
            );
        }
        let leads = local.rank == local_leader as u32;
        let own = self.addresses(local)?;
        let mut held = None;
        let mut words = Vec::new();
        let mut problem = None;
        if leads {
            match self.meet_leader(local, &own, peer, remote_leader, tag) {
                Ok((met, agreed)) => {
                    held = Some(met);
                    words = agreed;
                }
                Err(error) => problem = Some(error),
            }
        }
        let words = self.tell_group(local, local_leader as u32, words, problem)?;
        let (numbers, rest) = ((words[0] as u32, words[1] as u32), &words[3..]);
        let bridge = (words[2] != 0).then(|| Address::from_words(&rest[..Address::WORDS]));
        let remote = Address::list(&rest[Address::WORDS..]);
        let mut members = own.clone();
        match words[2] {
            1 => members.extend(&remote),
            _ => members.splice(0..0, remote.iter().copied()).for_each(drop),
        }
        let _meeting = self.begin_meeting();
        let met = self.meet(&remote, bridge, &members);
        if bridge.is_some() {
            // Everybody must have joined before the bridge may be let go of.
            let joined = self.gather_all(local, &[i32::from(met.is_ok())])?;
            let joined = i32::from(joined.iter().all(|w| w[0] == 1));
            let mut theirs = vec![joined];
            if let Some((peer, process, tag, bridge)) = held {
                self.send_words(&peer, process, tag, &theirs);
                theirs = self.receive_words(&peer, process, tag, 1)?;
                drop(bridge);
            }
            let theirs = self.tell_group(local, local_leader as u32, theirs, None)?;
            if theirs[0] + joined != 2 {
                met?;
                fail!(
                    MPI_ERR_OTHER,
                    "not all processes could join the memory for both groups"
                );
            }
        }
        let remote =
            Group::from_processes(met?).map_err(|e| Error::new(MPI_ERR_INTERN, e.to_string()))?;
        self.add_intercomm(local, numbers, local.group.clone(), Arc::new(remote))
    }

    /// The leader's part: whom it talks to and the bridge that it made, and the words for its group (as those of
    /// `shake`).
    #[allow(clippy::type_complexity)]
    fn meet_leader(
        &self,
        local: &Comm,
        own: &[Address],
        peer: u32,
        remote_leader: i32,
        tag: i32,
    ) -> Result<((Arc<Comm>, u32, u32, Option<NewBridge>), Words)> {
        let peer = self.comm(peer)?;
        let Some(process) = peer.peer(remote_leader)? else {
            fail!(MPI_ERR_RANK, "remote_leader is MPI_PROC_NULL");
        };
        if local.group.rank(process).is_some() {
            fail!(
                MPI_ERR_RANK,
                "remote_leader {remote_leader} of {} is in the local group; the groups must be disjoint",
                peer.describe()
            );
        }
        let tag = Comm::special_tag(tag);
        let ours: Words = own.iter().flat_map(Address::words).collect();
        let foreign = self.spans(local) || self.spans(&peer);
        let (id, inner) = (self.propose_for(foreign)?, self.propose(local)?);
        self.send_words(&peer, process, tag, &[own.len() as i32, id as i32]);
        self.send_words(&peer, process, tag, &ours);
        let theirs = self.receive_words(&peer, process, tag, 2)?;
        let length = theirs[0] as usize * Address::WORDS;
        let words = self.receive_words(&peer, process, tag, length)?;
        let remote = Address::list(&words);
        if let Some(both) = remote.iter().find(|r| own.iter().any(|o| o.same(r))) {
            fail!(
                MPI_ERR_COMM,
                "the process with pid {} is in both groups; they must be disjoint",
                both.pid
            );
        }
        // Both sides find the same, and the same one of them makes the bridge.
        let alike = own.iter().chain(&remote).all(|a| a.job == own[0].job);
        let (how, bridge, place) = if alike {
            (0, None, vec![0; Address::WORDS])
        } else if own[0] < remote[0] {
            let bridge = self.make_bridge(own.len() + remote.len())?;
            let place = bridge.address.words().to_vec();
            self.send_words(&peer, process, tag, &place);
            (1, Some(bridge), place)
        } else {
            (
                2,
                None,
                self.receive_words(&peer, process, tag, Address::WORDS)?,
            )
        };
        let mut agreed = vec![id.min(theirs[1] as u32) as i32, inner as i32, how];
        agreed.extend(place);
        agreed.extend(words);
        Ok(((peer, process, tag, bridge), agreed))
    }

    /// Whether the first process of `a` comes before that of `b`, in an order on which all processes agree.
    pub(crate) fn comes_first(&self, a: &Group, b: &Group) -> bool {
        let first = |g: &Group| g.process(0).map(|p| self.identity(p));
        first(a) < first(b)
    }

    /// `MPI_Intercomm_merge`: the group that says `high` comes second; when both say the same, the one with the
    /// lower first process comes first.
    ///
    /// # Errors
    /// When the processes of a group do not agree about `high`.
    pub fn intercomm_merge(&self, comm: &Arc<Comm>, high: bool) -> Result<u32> {
        let remote_group = comm.remote.as_ref().expect("an inter-communicator");
        let words = [
            i32::from(high),
            if comm.rank == 0 {
                self.propose(comm)? as i32
            } else {
                0
            },
        ];
        let (local, remote) = self.exchange(comm, &words)?;
        if local.iter().any(|w| w[0] != words[0]) {
            fail!(
                MPI_ERR_ARG,
                "the processes of the local group of {} give different values of high",
                comm.describe()
            );
        }
        let lower = self.comes_first(&comm.group, remote_group);
        let first = match (words[0], remote[0][0]) {
            (ours, theirs) if ours == theirs => lower,
            (ours, _) => ours == 0,
        };
        let id = local[0][1].min(remote[0][1]) as u32;
        let union = if first {
            comm.group.union(remote_group)
        } else {
            remote_group.union(&comm.group)
        };
        self.add_intracomm(comm, id, Arc::new(union), None)
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
