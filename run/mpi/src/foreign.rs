//! Processes of other jobs: their identity, how they are reached, and when they are reached no
//! more.
//!
//! A process is known everywhere by the registry of its own job and its rank there ([`Address`]);
//! here by a number: its rank if it is of this process's job, else a number from the size of this
//! job's world on, in the order in which they were met. When two groups meet, one process makes a
//! *bridge*, a place in which every process of both has a rank; messages between processes of
//! different jobs go through it. A bridge is given up when no communicator has any of its foreign
//! processes.

use std::net::TcpListener;
use std::sync::{Arc, MutexGuard};

use margay_core_group::Group;
use margay_core_registry::Phase;
use margay_run_engine::others::{Joined, Member};
use margay_run_engine::{Contact, Crossing, JobAddress, Outside, Peers};
use margay_sys_os::sockets::fill_random;

use crate::comm::Comm;
use crate::constants::comm::MPI_COMM_NULL;
use crate::error::*;
use crate::{Mpi, fail};

/// The identity of a process, the same for all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The id of its job's registry.
    pub job: u64,
    /// The system that has the registry, 0 where the job is on several hosts.
    pub system: u64,
    /// Its rank there.
    pub rank: u32,
    /// Its process id.
    pub pid: u32,
    /// The number of its descriptor of the registry.
    pub descriptor: i32,
}

impl Address {
    /// Words of an address in messages.
    pub const WORDS: usize = 7;

    /// Of a rank of the job that is found there.
    pub fn of(job: JobAddress, rank: u32) -> Address {
        Address {
            job: job.id,
            system: job.system,
            rank,
            pid: job.pid,
            descriptor: job.descriptor,
        }
    }

    /// Returns where its job is found.
    pub fn job_address(&self) -> JobAddress {
        JobAddress {
            id: self.job,
            system: self.system,
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
            self.system as i32,
            (self.system >> 32) as i32,
            self.rank as i32,
            self.pid as i32,
            self.descriptor,
        ]
    }

    /// From words.
    #[must_use]
    pub fn from_words(words: &[i32]) -> Address {
        let long = |at: usize| u64::from(words[at] as u32) | u64::from(words[at + 1] as u32) << 32;
        Address {
            job: long(0),
            system: long(2),
            rank: words[4] as u32,
            pid: words[5] as u32,
            descriptor: words[6],
        }
    }

    /// Returns the addresses one after the other in `words`.
    pub fn list(words: &[i32]) -> Vec<Address> {
        let all = words.chunks_exact(Address::WORDS);
        all.map(Address::from_words).collect()
    }

    /// Whether both are one process.
    #[must_use]
    pub fn same(&self, other: &Address) -> bool {
        self.is_of_job(other) && self.rank == other.rank
    }

    /// Whether both are of one job.
    #[must_use]
    pub fn is_of_job(&self, other: &Address) -> bool {
        self.job_address().is_of_job(&other.job_address())
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

/// Where a bridge is, as the root that makes it tells all others: its address, whose descriptor for
/// a bridge over the network is 1 when it is encrypted and else 0, and the secret of such a bridge.
pub const PLACE_WORDS: usize = Address::WORDS + 8;

/// What the roots of two groups have agreed on, for an inter-communicator of both.
pub struct Agreed {
    /// Number of the new communicator, and of its inner one.
    pub numbers: (u32, u32),
    /// The bridge through which processes of different jobs reach each other, if there are any.
    pub bridge: Option<Address>,
    /// Its secret, where it is one over the network.
    secret: Option<[u8; 32]>,
    /// The processes of this process's group come first in it.
    own_first: bool,
    /// The processes of the other group.
    remote: Vec<Address>,
    /// All processes in the order of their ranks in the bridge.
    members: Vec<Address>,
}

impl Agreed {
    /// Decodes what a root sends its group, whose processes are `own`: `[number, inner number, how,
    /// place, remote addresses]`, `how` being 0 without a bridge, 1 when this process's group comes
    /// first in it, 2 when the other does; 3 and 4 for one over the network.
    #[must_use]
    pub fn from_words(own: &[Address], words: &[i32]) -> Agreed {
        let (how, rest) = (words[2], &words[3..]);
        let (place, addresses) = rest.split_at(PLACE_WORDS);
        let remote = Address::list(addresses);
        let own_first = how % 2 == 1;
        let (first, second) = match own_first {
            true => (own, &remote[..]),
            false => (&remote[..], own),
        };
        let secret = || {
            let mut secret = [0; 32];
            let words = place[Address::WORDS..].iter();
            for (four, word) in secret.chunks_exact_mut(4).zip(words) {
                four.copy_from_slice(&word.to_ne_bytes());
            }
            secret
        };
        Agreed {
            numbers: (words[0] as u32, words[1] as u32),
            bridge: (how != 0).then(|| Address::from_words(place)),
            secret: (how > 2).then(secret),
            own_first,
            members: [first, second].concat(),
            remote,
        }
    }

    /// The words by which a root without a bridge of its own says where the bridge is.
    #[must_use]
    pub fn how(bridge: Option<&NewBridge>) -> (i32, Vec<i32>) {
        bridge.map_or((0, vec![0; PLACE_WORDS]), |b| (b.how, b.place.clone()))
    }
}

/// How the processes of a bridge over the network reach each other.
pub struct Ways {
    /// Where this process listens.
    listener: std::io::Result<TcpListener>,
    /// Where its group and the other one do.
    own: Vec<Contact>,
    remote: Vec<Contact>,
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
    /// 1, or 3 for one over the network.
    how: i32,
    /// Where it is.
    place: Vec<i32>,
    /// Keeps it until others do.
    _peers: Option<Arc<dyn Peers>>,
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
            Some(outside) if !address.is_of_job(&self.own_address()) => {
                outside.find(address.job_address())
            }
            _ => Ok(own.clone()),
        }
    }

    /// Returns what distinguishes a process from all others, the same for all processes.
    #[must_use]
    pub fn identity(&self, process: u32) -> (u64, u32) {
        match process.checked_sub(self.rank.world_size()) {
            None => {
                let own = self.own_address();
                (own.job ^ own.system, process)
            }
            Some(at) => match self.others().known.get(at as usize) {
                Some(Foreign { address, .. }) => (address.job ^ address.system, address.rank),
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
                system: 0,
                rank: me,
                pid: std::process::id(),
                descriptor: -1,
            },
        }
    }

    /// Makes a bridge for the processes of two groups: in memory where all can share some, and else
    /// over the network. `encrypts`: the other group's job encrypts what it sends to other hosts.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn make_bridge(
        &self,
        own: &[Address],
        remote: &[Address],
        encrypts: bool,
    ) -> Result<NewBridge> {
        let outside = self.outside()?;
        let home = outside.address();
        let mut all = own.iter().chain(remote);
        if all.all(|address| address.job_address().is_near(&home)) {
            let ranks = own.len() + remote.len();
            return match outside.make_bridge(ranks as u32) {
                Ok((job, peers)) => {
                    let mut place = Address::of(job, 0).words().to_vec();
                    place.resize(PLACE_WORDS, 0);
                    Ok(NewBridge {
                        how: 1,
                        place,
                        _peers: Some(peers),
                    })
                }
                Err(error) => fail!(MPI_ERR_NO_MEM, "{error}"),
            };
        }
        let mut random = [0; 40];
        if let Err(error) = fill_random(&mut random) {
            fail!(MPI_ERR_OTHER, "the system gives no random numbers: {error}");
        }
        let words = random.chunks_exact(4);
        let mut words =
            words.map(|four| i32::from_ne_bytes(four.try_into().expect("four of them")));
        let mut place: Vec<i32> = words.by_ref().take(2).collect();
        place.resize(Address::WORDS - 1, 0);
        place.push(i32::from(encrypts || outside.encrypts()));
        place.extend(words);
        Ok(NewBridge {
            how: 3,
            place,
            _peers: None,
        })
    }

    /// For a bridge over the network: listens, and finds out where all others do. `exchange`, which
    /// is called at the root alone, sends words to the other root and returns the other's.
    ///
    /// # Errors
    /// When the other side is gone.
    pub fn find_ways(
        &self,
        comm: &Arc<Comm>,
        root: u32,
        agreed: &Agreed,
        exchange: impl FnOnce(&[i32]) -> Result<Vec<i32>>,
    ) -> Result<Option<Ways>> {
        if agreed.secret.is_none() {
            return Ok(None);
        }
        let (listener, contact) = match self.outside()?.listen() {
            Ok((listener, contact)) => (Ok(listener), contact),
            Err(error) => (Err(error), Contact::default()),
        };
        let own = self.gather_all(comm, &contact.words())?.concat();
        let (mut theirs, mut problem) = (Vec::new(), None);
        if comm.rank == root {
            match exchange(&own) {
                Ok(words) if words.len() == agreed.remote.len() * Contact::WORDS => theirs = words,
                Ok(_) => {
                    problem = Some(Error::new(
                        MPI_ERR_PORT,
                        "the other side does not say where all of its processes are",
                    ));
                }
                Err(error) => problem = Some(error),
            }
        }
        let theirs = self.tell_group(comm, root, theirs, problem)?;
        let list = |words: &[i32]| -> Vec<Contact> {
            let all = words.chunks_exact(Contact::WORDS);
            all.map(Contact::from_words).collect()
        };
        Ok(Some(Ways {
            listener,
            own: list(&own),
            remote: list(&theirs),
        }))
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
    pub fn meet(&self, agreed: &Agreed, ways: Option<Ways>) -> Result<Vec<u32>> {
        if let Some(bridge) = agreed.bridge {
            self.cross(bridge, agreed, ways)?;
        }
        let home = self.own_address();
        let others = self.others();
        agreed
            .remote
            .iter()
            .map(|address| {
                let known = self.number_of(&home, &others, address);
                known.ok_or_else(|| {
                    Error::new(
                        MPI_ERR_INTERN,
                        format!("the process with pid {} is not known", address.pid),
                    )
                })
            })
            .collect()
    }

    fn number_of(&self, home: &Address, others: &Others, address: &Address) -> Option<u32> {
        if address.is_of_job(home) {
            return (address.rank < self.rank.world_size()).then_some(address.rank);
        }
        let at = others.known.iter().position(|f| f.address.same(address))?;
        Some(self.rank.world_size() + at as u32)
    }

    /// Joins a bridge, as the rank of it that this process is among the members.
    fn join(
        &self,
        bridge: Address,
        agreed: &Agreed,
        ways: Option<Ways>,
        me: u32,
    ) -> Result<Joined> {
        let system = |error: std::io::Error| Error::new(MPI_ERR_OTHER, error.to_string());
        let joined = match (agreed.secret, ways) {
            (Some(secret), Some(ways)) => {
                let (first, second) = match agreed.own_first {
                    true => (ways.own, ways.remote),
                    false => (ways.remote, ways.own),
                };
                let contacts = first.into_iter().chain(second);
                let members = contacts.zip(&agreed.members);
                let members: Vec<_> = members
                    .map(|(contact, member)| (contact, member.job_address(), member.rank))
                    .collect();
                self.rank.cross(Crossing {
                    key: bridge.job,
                    secret,
                    encrypts: bridge.descriptor == 1,
                    me,
                    listener: ways.listener.map_err(system)?,
                    members,
                })
            }
            _ => self.rank.join_bridge(bridge.job_address(), me),
        };
        joined.map_err(system)
    }

    /// Joins a bridge, and enters the processes that this one meets on it.
    fn cross(&self, bridge: Address, agreed: &Agreed, ways: Option<Ways>) -> Result<()> {
        let members = &agreed.members[..];
        let system = |error: std::io::Error| Error::new(MPI_ERR_OTHER, error.to_string());
        let own = self.own_address();
        let Some(me) = members.iter().position(|m| m.same(&own)) else {
            fail!(
                MPI_ERR_INTERN,
                "this process is not among those that connect"
            );
        };
        let joined = self.join(bridge, agreed, ways, me as u32)?;
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
            if member.is_of_job(&own) {
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
            let process = match self.number_of(&own, &others, member) {
                Some(process) => process,
                None => {
                    let mut known = others.known.iter();
                    let shared = known
                        .find(|f| f.address.is_of_job(member))
                        .map(|f| f.home.clone());
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
