//! Processes of other jobs: who they are, how they are reached, and when they are reached no more.
//!
//! A process is known everywhere by the segment of its own job and its rank there ([`Address`]); here by a number:
//! its rank if it is of the own job, else a number from the size of the own world on, in the order in which they were met.
//! When two groups meet, one process makes a *bridge*, a segment in which everybody of both has a rank; messages between
//! processes of different jobs go through it. A bridge is given up when no communicator has any of its foreign processes.

pub mod names;
pub mod port;
pub mod spawn;

use std::sync::{Arc, MutexGuard};

use margay_core_group::Group;
use margay_run_engine::others::{self, Member};
use margay_sys::segment::{Phase, Segment, Sizes};

use crate::comm::Comm;
use crate::error::*;
use crate::{Mpi, fail};

/// Who a process is, alike for all processes of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The id of its job's segment.
    pub segment: u64,
    /// Its rank there.
    pub rank: u32,
    /// Its process id.
    pub pid: u32,
    /// The number of its descriptor of the segment.
    pub descriptor: i32,
}

impl Address {
    /// Words of an address in messages.
    pub const WORDS: usize = 5;

    pub(crate) fn of(segment: &Segment, rank: u32) -> Address {
        use std::os::fd::AsRawFd;
        Address {
            segment: segment.id(),
            rank,
            pid: std::process::id(),
            descriptor: segment.fd().as_raw_fd(),
        }
    }

    /// As words.
    #[must_use]
    pub fn words(&self) -> [i32; Address::WORDS] {
        [
            self.segment as i32,
            (self.segment >> 32) as i32,
            self.rank as i32,
            self.pid as i32,
            self.descriptor,
        ]
    }

    /// From words.
    #[must_use]
    pub fn from_words(words: &[i32]) -> Address {
        Address {
            segment: u64::from(words[0] as u32) | u64::from(words[1] as u32) << 32,
            rank: words[2] as u32,
            pid: words[3] as u32,
            descriptor: words[4],
        }
    }

    /// The addresses one after the other in `words`.
    pub(crate) fn list(words: &[i32]) -> Vec<Address> {
        let all = words.chunks_exact(Address::WORDS);
        all.map(Address::from_words).collect()
    }

    pub(crate) fn same(&self, other: &Address) -> bool {
        (self.segment, self.rank) == (other.segment, other.rank)
    }
}

/// The processes of other jobs that this one has met.
#[derive(Default)]
pub struct Others {
    known: Vec<Foreign>,
    bridges: Vec<Bridge>,
    /// Meetings begun so far, and those of them that have ended.
    begun: u64,
    ended: u64,
}

/// While there is one no bridge is given up: its thread has met processes that are in no communicator yet.
pub(crate) struct Meeting<'a>(&'a Mpi);

impl Drop for Meeting<'_> {
    fn drop(&mut self) {
        self.0.others().ended += 1;
        // What another thread has left because of this one.
        self.0.give_up_bridges();
    }
}

struct Foreign {
    address: Address,
    home: Arc<Segment>,
    /// The bridge through which it is reached.
    bridge: Option<u64>,
}

struct Bridge {
    segment: Arc<Segment>,
    /// The own rank in it.
    me: u32,
    /// The processes of other jobs in it, and their ranks in it.
    foreign: Vec<(u32, u32)>,
}

impl Mpi {
    fn others(&self) -> MutexGuard<'_, Others> {
        self.others.lock().expect("no panic under this lock")
    }

    /// The own job's segment.
    pub(crate) fn home(&self) -> Result<&Arc<Segment>> {
        match self.rank.segment() {
            Some(segment) => Ok(segment),
            None => fail!(
                MPI_ERR_UNSUPPORTED_OPERATION,
                "this rank has no shared memory through which other jobs could be reached"
            ),
        }
    }

    /// What tells a process from all others, alike for all processes.
    #[must_use]
    pub fn identity(&self, process: u32) -> (u64, u32) {
        match process.checked_sub(self.rank.world_size()) {
            None => (self.rank.segment().map_or(0, |s| s.id()), process),
            Some(at) => match self.others().known.get(at as usize) {
                Some(foreign) => (foreign.address.segment, foreign.address.rank),
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

    /// The own address.
    pub(crate) fn own_address(&self) -> Address {
        let me = self.rank.world_rank();
        match self.rank.segment() {
            Some(segment) => Address::of(segment, me),
            None => Address {
                segment: 0,
                rank: me,
                pid: std::process::id(),
                descriptor: -1,
            },
        }
    }

    /// A bridge for so many processes.
    pub(crate) fn make_bridge(ranks: usize) -> Result<Arc<Segment>> {
        let sizes = Sizes::for_meeting(ranks as u32);
        match Segment::create(sizes) {
            Ok(segment) => {
                segment
                    .header()
                    .describe(0, 0, margay_sys::cpu::usable_cores() as u32, "");
                Ok(Arc::new(segment))
            }
            Err(error) => fail!(MPI_ERR_NO_MEM, "{error}"),
        }
    }

    /// To be held from before [`meet`](Self::meet) until those who were met are in a communicator.
    pub(crate) fn begin_meeting(&self) -> Meeting<'_> {
        self.others().begun += 1;
        Meeting(self)
    }

    /// The numbers of processes with these addresses. Those of other jobs are reached through `bridge` from now on
    /// unless they are reached already; the processes in it are `members`, in the order of their ranks.
    pub(crate) fn meet(
        &self,
        addresses: &[Address],
        bridge: Option<Address>,
        members: &[Address],
    ) -> Result<Vec<u32>> {
        if let Some(bridge) = bridge {
            self.cross(&self.home()?.clone(), bridge, members)?;
        }
        let home = self.rank.segment().map_or(0, |s| s.id());
        let others = self.others();
        addresses
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
        if address.segment == home {
            return (address.rank < self.rank.world_size()).then_some(address.rank);
        }
        let at = others.known.iter().position(|f| f.address.same(address))?;
        Some(self.rank.world_size() + at as u32)
    }

    /// Joins a bridge.
    fn cross(&self, home: &Arc<Segment>, bridge: Address, members: &[Address]) -> Result<()> {
        let system = |error| Error::new(MPI_ERR_OTHER, format!("{error}"));
        let segment = Arc::new(
            Segment::join_of(bridge.pid, bridge.descriptor, bridge.segment).map_err(system)?,
        );
        if segment.ranks() as usize != members.len() {
            fail!(
                MPI_ERR_INTERN,
                "{} processes meet in memory for {}",
                members.len(),
                segment.ranks()
            );
        }
        let own = self.own_address();
        let Some(me) = members.iter().position(|m| m.same(&own)) else {
            fail!(MPI_ERR_INTERN, "this process is not among those who meet");
        };
        let key = segment.id();
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
            if member.segment == home.id() {
                if member.rank >= home.ranks() {
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
                    let (pid, number) = (member.pid, member.descriptor);
                    let known = others.known.iter();
                    let shared = known
                        .map(|f| &f.home)
                        .find(|home| home.id() == member.segment)
                        .cloned();
                    let home = match shared {
                        Some(home) => home,
                        None => {
                            Arc::new(Segment::join_of(pid, number, member.segment).map_err(system)?)
                        }
                    };
                    if member.rank >= home.ranks() {
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
            segment: segment.clone(),
            me: me as u32,
            foreign,
        });
        let ranks = self.rank.world_size() + others.known.len() as u32;
        drop(others);
        let thresholds = self.rank.thresholds();
        self.rank
            .join(others::world(&segment, me as u32, list, thresholds), ranks);
        Ok(())
    }

    /// Gives up the bridges none of whose foreign processes is in a communicator any more, unless a thread is meeting
    /// some: then that one does it at the end.
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
            let key = bridge.segment.id();
            let free = processes.iter().all(|p| !used.contains(p));
            if free && self.rank.part(key, &processes) {
                bridge.segment.cell(bridge.me).set_phase(Phase::Finalized);
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
        let Some(bridge) = self.bridges.iter().find(|b| b.segment.id() == key) else {
            return false;
        };
        let rank = bridge.foreign.iter().find(|&&(p, _)| p == process);
        rank.is_some_and(|&(_, rank)| bridge.segment.cell(rank).phase() == Phase::Running)
    }
}
