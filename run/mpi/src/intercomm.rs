//! Making inter-communicators of two groups, and one group of both.

use std::sync::Arc;

use margay_core_group::Group;

use crate::comm::Comm;
use crate::error::*;
use crate::exchange::Words;
use crate::foreign::{Address, Agreed, NewBridge, PLACE_WORDS};
use crate::{Mpi, fail};

impl Mpi {
    /// Numbers for an inter-communicator with the groups of `parent` and for its inner one.
    pub(crate) fn intercomm_numbers(&self, parent: &Arc<Comm>) -> Result<(u32, u32)> {
        let proposals = if parent.rank == 0 {
            [self.propose(parent)? as i32, self.propose(parent)? as i32]
        } else {
            [0, 0]
        };
        let (local, remote) = self.exchange(parent, &proposals)?;
        Ok((local[0][0].min(remote[0][0]) as u32, local[0][1] as u32))
    }

    /// `MPI_Intercomm_create`. The leaders send each other their groups over `peer` (significant at
    /// the leaders), and each its own group.
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
        let agreed = Agreed::from_words(&own, &words);
        let _connecting = self.begin_connecting();
        let ways = self.find_ways(local, local_leader as u32, &agreed, |ours| {
            let Some((peer, process, tag, _)) = &held else {
                fail!(MPI_ERR_INTERN, "the leader has met nobody");
            };
            self.send_words(peer, *process, *tag, &[ours.len() as i32]);
            self.send_words(peer, *process, *tag, ours);
            let length = self.receive_words(peer, *process, *tag, 1)?[0];
            self.receive_words(peer, *process, *tag, length.max(0) as usize)
        })?;
        let met = self.meet(&agreed, ways);
        if agreed.bridge.is_some() {
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
        self.add_intercomm(local, agreed.numbers, local.group.clone(), Arc::new(remote))
    }

    /// The leader's part: whom it talks to and the bridge that it made, and the words for its group
    /// (as those of `shake`).
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
        let encrypts = self.rank().outside().is_some_and(|o| o.encrypts());
        let sizes = [own.len() as i32, id as i32, i32::from(encrypts)];
        self.send_words(&peer, process, tag, &sizes);
        self.send_words(&peer, process, tag, &ours);
        let theirs = self.receive_words(&peer, process, tag, 3)?;
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
        let alike = own.iter().chain(&remote).all(|a| a.is_of_job(&own[0]));
        let (how, bridge, place) = if alike {
            let (how, place) = Agreed::how(None);
            (how, None, place)
        } else if own[0] < remote[0] {
            let bridge = self.make_bridge(own, &remote, theirs[2] != 0)?;
            let (how, place) = Agreed::how(Some(&bridge));
            self.send_words(&peer, process, tag, &[&[how], &place[..]].concat());
            (how, Some(bridge), place)
        } else {
            let mut words = self.receive_words(&peer, process, tag, 1 + PLACE_WORDS)?;
            (words.remove(0) + 1, None, words)
        };
        let mut agreed = vec![id.min(theirs[1] as u32) as i32, inner as i32, how];
        agreed.extend(place);
        agreed.extend(words);
        Ok(((peer, process, tag, bridge), agreed))
    }

    /// Whether the first process of `a` comes before that of `b`, in an order on which all
    /// processes agree.
    pub(crate) fn comes_first(&self, a: &Group, b: &Group) -> bool {
        let first = |g: &Group| g.process(0).map(|p| self.identity(p));
        first(a) < first(b)
    }

    /// `MPI_Intercomm_merge`: the group that says `high` comes second; when both say the same, the
    /// one with the lower first process comes first.
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
