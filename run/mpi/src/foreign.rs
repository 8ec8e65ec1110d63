//! Processes of other jobs: their identity, how they are reached, and when they are reached no
//! more.
//!
//! A process is known everywhere by the registry of its own job and its rank there ([`Address`]);
//! here by a number: its rank if it is of this process's job, else a number from the size of this
//! job's world on, in the order in which they were met. When two groups meet, one process makes a
//! *bridge*, a place in which every process of both has a rank; messages between processes of
//! different jobs go through it. A bridge is given up when no communicator has any of its foreign
//! processes.

use std::sync::{Arc, MutexGuard};

use margay_core_group::Group;
use margay_core_registry::Phase;
use margay_run_engine::others::Member;
use margay_run_engine::{JobAddress, Outside, Peers};

use crate::comm::Comm;
use crate::constants::comm::MPI_COMM_NULL;
use crate::error::*;
use crate::{Mpi, fail};

/// The identity of a process, the same for all processes of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The id of its job's registry.
    pub job: u64,
    /// Its rank there.
    pub rank: u32,
    /// Its process id.
    pub pid: u32,
    /// The number of its descriptor of the registry.
    pub descriptor: i32,
}

impl Address {
    /// Words of an address in messages.
    pub const WORDS: usize = 5;

    /// Of a rank of the job that is found there.
    pub fn of(job: JobAddress, rank: u32) -> Address {
        Address {
            job: job.id,
            rank,
            pid: job.pid,
            descriptor: job.descriptor,
        }
    }

    /// Returns where its job is found.
    pub(crate) fn job_address(&self) -> JobAddress {
        JobAddress {
            id: self.job,
            pid: self.pid,
            descriptor: self.descriptor,
        }
    }

    /// As words.
    #[must_use]
    pub fn words(&self) -> [i32; Address::WORDS] {
        [
            self.job as i32,
            (self.job >> 32) as i32,
            self.rank as i32,
            self.pid as i32,
            self.descriptor,
        ]
    }

    /// From words.
    #[must_use]
    pub fn from_words(words: &[i32]) -> Address {
        Address {
            job: u64::from(words[0] as u32) | u64::from(words[1] as u32) << 32,
            rank: words[2] as u32,
            pid: words[3] as u32,
            descriptor: words[4],
        }
    }

    /// Returns the addresses one after the other in `words`.
    pub fn list(words: &[i32]) -> Vec<Address> {
        let all = words.chunks_exact(Address::WORDS);
        all.map(Address::from_words).collect()
    }

    pub fn same(&self, other: &Address) -> bool {
        (self.job, self.rank) == (other.job, other.rank)
    }
}

/// The processes of other jobs that this one has met.
pub(crate) struct Others {
    /// The handle of the communicator with the processes that spawned this job.
    parent: u32,
    known: Vec<Foreign>,
    bridges: Vec<Bridge>,
    /// Connections to groups begun so far, and those of them that have ended.
    begun: u64,
    ended: u64,
}

impl Default for Others {
    fn default() -> Others {
        Others {
            parent: MPI_COMM_NULL,
            known: Vec::new(),
            bridges: Vec::new(),
            begun: 0,
            ended: 0,
        }
    }
}

/// What the roots of two groups have agreed on, for an inter-communicator of both.
pub struct Agreed {
    /// Number of the new communicator, and of its inner one.
    pub numbers: (u32, u32),
    /// The segment through which processes of different jobs reach each other, if there are any.
    pub bridge: Option<Address>,
    /// The processes of the other group.
    remote: Vec<Address>,
    /// All processes in the order of their ranks in the bridge.
    members: Vec<Address>,
}

impl Agreed {
    /// Decodes what a root sends its group, whose processes are `own`: `[number, inner number, how,
    /// bridge, remote addresses]`, `how` being 0 without a bridge, 1 when this process's group
    /// comes first in it, 2 when the other does.
    #[must_use]
    pub fn from_words(own: &[Address], words: &[i32]) -> Agreed {
        let (how, rest) = (words[2], &words[3..]);
        let remote = Address::list(&rest[Address::WORDS..]);
        let (first, second) = match how {
            1 => (own, &remote[..]),
            _ => (&remote[..], own),
        };
        Agreed {
            numbers: (words[0] as u32, words[1] as u32),
            bridge: (how != 0).then(|| Address::from_words(rest)),
            members: [first, second].concat(),
            remote,
        }
    }
}

/// While there is one no bridge is given up: its thread has met processes that are in no
/// communicator yet.
pub struct Connecting<'a>(&'a Mpi);

impl Drop for Connecting<'_> {
    fn drop(&mut self) {
        self.0.others().ended += 1;
        // What another thread has left because of this one.
        self.0.give_up_bridges();
    }
}

struct Foreign {
    address: Address,
    home: Arc<dyn Peers>,
    /// The bridge through which it is reached.
    bridge: Option<u64>,
}

/// A bridge that this process has made and that others have not joined yet.
pub struct NewBridge {
    /// Where it is found.
    pub address: Address,
    /// Keeps it until others do.
    _peers: Arc<dyn Peers>,
}

struct Bridge {
    peers: Arc<dyn Peers>,
    /// This process's rank in it.
    me: u32,
    /// The processes of other jobs in it, and their ranks in it.
    foreign: Vec<(u32, u32)>,
}

impl Mpi {
    fn others(&self) -> MutexGuard<'_, Others> {
        self.others.lock().expect("no panic under this lock")
    }

    /// `MPI_Comm_get_parent`
    #[must_use]
    pub fn parent(&self) -> u32 {
        self.others().parent
    }

    /// Enters the communicator with the processes that spawned this job.
    pub fn set_parent(&self, handle: u32) {
        self.others().parent = handle;
    }

    /// A communicator is freed, which may be the one with the processes that spawned this job.
    pub(crate) fn lose_parent(&self, handle: u32) {
        let mut others = self.others();
        if others.parent == handle {
            others.parent = MPI_COMM_NULL;
        }
    }

    /// Returns how other jobs are reached.
    pub fn outside(&self) -> Result<&dyn Outside> {
        match self.rank.outside() {
            Some(outside) => Ok(outside),
            None => fail!(
                MPI_ERR_UNSUPPORTED_OPERATION,
                "this rank has no shared memory through which other jobs could be reached"
            ),
        }
    }

    /// Returns the registry of the job at `address`; that of this process's job is at hand.
    pub fn find_home(&self, address: &Address) -> std::io::Result<Arc<dyn Peers>> {
        let own = self.rank.peers();
        match self.rank.outside() {
            Some(outside) if address.job != own.id() => outside.find(address.job_address()),
            _ => Ok(own.clone()),
        }
    }

    /// Returns what distinguishes a process from all others, the same for all processes.
    #[must_use]
    pub fn identity(&self, process: u32) -> (u64, u32) {
        match process.checked_sub(self.rank.world_size()) {
            None => (self.rank.peers().id(), process),
            Some(at) => match self.others().known.get(at as usize) {
                Some(foreign) => (foreign.address.job, foreign.address.rank),
                None => (u64::MAX, process),
            },
        }
    }

    /// Whether a group has processes of other jobs.
    #[must_use]
    pub fn is_foreign(&self, group: &Group) -> bool {
        let own = self.rank.world_size();
        group.processes().any(|p| p >= own)
    }

    /// Whether a communicator spans several jobs.
    #[must_use]
    pub fn spans(&self, comm: &Comm) -> bool {
        self.is_foreign(&comm.group) || comm.remote.as_ref().is_some_and(|r| self.is_foreign(r))
    }

    /// Returns this process's address.
    pub fn own_address(&self) -> Address {
        let me = self.rank.world_rank();
        match self.rank.outside() {
            Some(outside) => Address::of(outside.address(), me),
            None => Address {
                job: self.rank.peers().id(),
                rank: me,
                pid: std::process::id(),
                descriptor: -1,
            },
        }
    }

    /// Makes a bridge for this many processes.
    pub fn make_bridge(&self, ranks: usize) -> Result<NewBridge> {
        match self.outside()?.make_bridge(ranks as u32) {
            Ok((job, peers)) => Ok(NewBridge {
                address: Address::of(job, 0),
                _peers: peers,
            }),
            Err(error) => fail!(MPI_ERR_NO_MEM, "{error}"),
        }
    }

    /// To be held from before [`meet`](Self::meet) until the processes that were met are in a
    /// communicator.
    pub fn begin_connecting(&self) -> Connecting<'_> {
        self.others().begun += 1;
        Connecting(self)
    }

    /// Returns the numbers of the other group's processes. Those of other jobs are reached through
    /// the bridge from now on unless they are reached already.
    ///
    /// # Errors
    /// When this process cannot join the bridge.
    pub fn meet(&self, agreed: &Agreed) -> Result<Vec<u32>> {
        if let Some(bridge) = agreed.bridge {
            self.cross(bridge, &agreed.members)?;
        }
        let home = self.rank.peers().id();
        let others = self.others();
        agreed
            .remote
            .iter()
            .map(|address| {
                let known = self.number_of(home, &others, address);
                known.ok_or_else(|| {
                    Error::new(
                        MPI_ERR_INTERN,
                        format!("the process with pid {} is not known", address.pid),
                    )
                })
            })
            .collect()
    }

    fn number_of(&self, home: u64, others: &Others, address: &Address) -> Option<u32> {
        if address.job == home {
            return (address.rank < self.rank.world_size()).then_some(address.rank);
        }
        let at = others.known.iter().position(|f| f.address.same(address))?;
        Some(self.rank.world_size() + at as u32)
    }

    /// Joins a bridge.
    fn cross(&self, bridge: Address, members: &[Address]) -> Result<()> {
        let system = |error: std::io::Error| Error::new(MPI_ERR_OTHER, error.to_string());
        let own = self.own_address();
        let Some(me) = members.iter().position(|m| m.same(&own)) else {
            fail!(
                MPI_ERR_INTERN,
                "this process is not among those that connect"
            );
        };
        let joined = self.rank.join_bridge(bridge.job_address(), me as u32);
        let joined = joined.map_err(system)?;
        if joined.peers.size() as usize != members.len() {
            fail!(
                MPI_ERR_INTERN,
                "{} processes meet in memory for {}",
                members.len(),
                joined.peers.size()
            );
        }
        let home = self.rank.peers();
        let key = joined.peers.id();
        let mut others = self.others();
        let mut list = Vec::with_capacity(members.len());
        let mut foreign = Vec::new();
        for (at, member) in (0u32..).zip(members) {
            let nobody = || {
                let text = format!(
                    "the process with pid {} is not a rank of its job",
                    member.pid
                );
                Error::new(MPI_ERR_PORT, text)
            };
            if member.job == home.id() {
                if member.rank >= home.size() {
                    return Err(nobody());
                }
                list.push(Member {
                    process: member.rank,
                    routed: false,
                    home: (home.clone(), member.rank),
                });
                continue;
            }
            let process = match self.number_of(home.id(), &others, member) {
                Some(process) => process,
                None => {
                    let known = others.known.iter();
                    let shared = known
                        .map(|f| &f.home)
                        .find(|home| home.id() == member.job)
                        .cloned();
                    let home = match shared {
                        Some(home) => home,
                        None => self.find_home(member).map_err(system)?,
                    };
                    if member.rank >= home.size() {
                        return Err(nobody());
                    }
                    others.known.push(Foreign {
                        address: *member,
                        home,
                        bridge: None,
                    });
                    self.rank.world_size() + others.known.len() as u32 - 1
                }
            };
            let place = (process - self.rank.world_size()) as usize;
            // A way that both sides still have stays, so that messages keep their order.
            let old = others.known[place].bridge;
            let stays = old.is_some_and(|old| others.still_has(old, process));
            if !stays {
                others.known[place].bridge = Some(key);
            }
            let them = &others.known[place];
            if !stays {
                self.rank
                    .watch_other(process, &them.home, them.address.rank);
            }
            list.push(Member {
                process,
                routed: !stays,
                home: (them.home.clone(), them.address.rank),
            });
            foreign.push((process, at));
        }
        others.bridges.push(Bridge {
            peers: joined.peers.clone(),
            me: me as u32,
            foreign,
        });
        let ranks = self.rank.world_size() + others.known.len() as u32;
        drop(others);
        self.rank.join(joined.world(list), ranks);
        Ok(())
    }

    /// Gives up the bridges none of whose foreign processes is in a communicator any more, unless a
    /// thread is connecting to some: then that one does it at the end.
    pub(crate) fn give_up_bridges(&self) {
        let begun = {
            let others = self.others();
            if others.bridges.is_empty() || others.begun != others.ended {
                return;
            }
            others.begun
        };
        let mut used = std::collections::BTreeSet::new();
        for (_, comm) in self.objects().comms.iter() {
            for group in [Some(&comm.group), comm.remote.as_ref()]
                .into_iter()
                .flatten()
            {
                used.extend(group.processes().filter(|&p| p >= self.rank.world_size()));
            }
        }
        let mut others = self.others();
        if others.begun != begun {
            return;
        }
        let mut gone = Vec::new();
        others.bridges.retain(|bridge| {
            let processes: Vec<u32> = bridge.foreign.iter().map(|&(p, _)| p).collect();
            let key = bridge.peers.id();
            let free = processes.iter().all(|p| !used.contains(p));
            if free && self.rank.part(key, &processes) {
                bridge.peers.set_phase(bridge.me, Phase::Finalized);
                gone.push(key);
                return false;
            }
            true
        });
        for foreign in &mut others.known {
            foreign.bridge.take_if(|key| gone.contains(key));
        }
    }
}

impl Others {
    /// Whether a process has not given that bridge up on its side.
    fn still_has(&self, key: u64, process: u32) -> bool {
        let Some(bridge) = self.bridges.iter().find(|b| b.peers.id() == key) else {
            return false;
        };
        let rank = bridge.foreign.iter().find(|&&(p, _)| p == process);
        rank.is_some_and(|&(_, rank)| bridge.peers.phase(rank) == Phase::Running)
    }
}
