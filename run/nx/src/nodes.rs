//! Which process is where: nodes, the types of the processes on them, and the ranks that these are.

use margay_core_registry::place::{self, CONTROLS, UNPLACED};
use margay_run_engine::{Pending, Rank};

use crate::error::*;
use crate::{PTYPES, ptype_of, refuse};

/// The addresses of the job's processes.
pub(crate) struct Nodes {
    me: u32,
    /// The ranks on each node. Empty where rank r is alone on node r, as it usually is.
    on_node: Vec<Vec<u32>>,
    count: u32,
    own: (u32, u32),
    /// The rank of the controlling process, whose number as a node is `count`.
    host: Option<u32>,
}

impl Nodes {
    pub(crate) fn read(rank: &Rank) -> Result<Nodes> {
        let mut places: Vec<(u32, u32)> = places(rank).collect();
        let me = rank.world_rank();
        let is_host = |&&(_, ptype): &&(u32, u32)| ptype == CONTROLS;
        let host = places.last().filter(is_host).map(|_| rank.world_size() - 1);
        let own = match host == Some(me) {
            true => (me, process_type(rank, me)),
            false => places[me as usize],
        };
        if host.is_some() {
            places.pop();
        }
        let plain = (0..).zip(&places).all(|(r, &(node, _))| node == r);
        let count = places.iter().map(|&(node, _)| node + 1).max().unwrap_or(1);
        let wrong = |&(_, ptype): &(u32, u32)| ptype >= PTYPES && ptype != UNPLACED;
        if count > 1 << 16 || places.iter().any(wrong) {
            refuse!(
                EQFAULT,
                "the job has {count} nodes; NX has room for 65536 nodes and process types below {PTYPES}"
            );
        }
        let mut on_node = Vec::new();
        if !plain {
            on_node = vec![Vec::new(); count as usize];
            for (r, &(node, _)) in (0..).zip(&places) {
                on_node[node as usize].push(r);
            }
        }
        Ok(Nodes {
            me,
            own,
            on_node,
            count,
            host,
        })
    }

    /// Node and type of this process, as it was started.
    pub(crate) fn own(&self) -> (u32, u32) {
        self.own
    }

    /// Whether this is the controlling process.
    pub(crate) fn is_host(&self) -> bool {
        self.host == Some(self.me)
    }

    /// Returns how many nodes there are.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Returns the ranks that were started with the same type as this one, in the order of their
    /// nodes. Waits until all processes are known, which matters only where a controlling process
    /// starts them in several steps.
    pub(crate) fn siblings(&self, rank: &Rank) -> Vec<u32> {
        let known = || places(rank).all(|(_, ptype)| ptype != UNPLACED);
        rank.block(|_| known().then_some(()), |_| Some(Pending::Elsewhere));
        let mut all: Vec<(u32, u32)> = (0..)
            .zip(places(rank))
            .filter(|&(_, (_, ptype))| ptype == self.own.1)
            .map(|(rank, (node, _))| (node, rank))
            .collect();
        all.sort_unstable();
        all.into_iter().map(|(_, rank)| rank).collect()
    }

    /// Returns the rank of the process of that type on that node. A process that is alone on its
    /// node gets the messages to all types; they wait until it has the type that they are for.
    #[inline]
    pub(crate) fn find(&self, rank: &Rank, node: i64, ptype: u32) -> Result<u32> {
        if (0..i64::from(self.count)).contains(&node) {
            if self.on_node.is_empty() {
                return Ok(node as u32);
            }
            return self.find_among(rank, node as u32, ptype);
        }
        self.host(node)
    }

    fn find_among(&self, rank: &Rank, node: u32, ptype: u32) -> Result<u32> {
        match self.on_node[node as usize][..] {
            [] => refuse!(EQNODE, "no process was started on node {node}"),
            [alone] => Ok(alone),
            ref several => {
                let now = |r: u32| process_type(rank, r);
                match several.iter().find(|&&r| now(r) == ptype) {
                    Some(&found) => Ok(found),
                    None => {
                        let there: Vec<String> =
                            several.iter().map(|&r| now(r).to_string()).collect();
                        refuse!(
                            EQPID,
                            "no process on node {node} has the type {ptype}; those there have {}",
                            there.join(" and ")
                        )
                    }
                }
            }
        }
    }

    /// Returns the only rank on that node, if there is only one.
    #[inline]
    pub(crate) fn alone(&self, node: i64) -> Result<Option<u32>> {
        if !(0..i64::from(self.count)).contains(&node) {
            return self.host(node).map(Some);
        }
        Ok(match self.on_node.get(node as usize) {
            None => Some(node as u32),
            Some(ranks) => match ranks[..] {
                [alone] => Some(alone),
                _ => None,
            },
        })
    }

    /// Returns the ranks that node and type select, -1 for all, this one last.
    pub(crate) fn all(&self, rank: &Rank, node: i64, ptype: i64) -> Result<Vec<u32>> {
        if node != -1 && !(0..i64::from(self.count)).contains(&node) {
            return self.no_node(node);
        }
        if ptype != -1 {
            ptype_of(ptype)?;
        }
        let now = |r: u32| process_type(rank, r);
        let fits = |&(r, (n, _)): &(u32, (u32, u32))| {
            (node == -1 || node == i64::from(n)) && (ptype == -1 || ptype == i64::from(now(r)))
        };
        let nodes = (0..).zip(places(rank)).take(rank.application().len());
        let found = nodes.filter(fits).map(|(rank, _)| rank);
        let mut found: Vec<u32> = found.collect();
        if found.is_empty() {
            refuse!(EQNOPROC, "no process of type {ptype} is on node {node}");
        }
        found.sort_by_key(|&rank| rank == self.me);
        Ok(found)
    }

    /// Returns all nodes on which there is a process, but this process's node.
    pub(crate) fn others(&self) -> impl Iterator<Item = i64> + '_ {
        let own = i64::from(self.own.0);
        let used = |node: &i64| {
            self.on_node
                .get(*node as usize)
                .is_none_or(|r| !r.is_empty())
        };
        (0..i64::from(self.count))
            .filter(move |&node| node != own)
            .filter(used)
    }

    pub(crate) fn set_ptype(&self, rank: &Rank, ptype: u32) -> Result<()> {
        if let Some(ranks) = self.on_node.get(self.own.0 as usize) {
            let taken = |r: &u32| *r != self.me && process_type(rank, *r) == ptype;
            if ranks.iter().any(taken) {
                refuse!(
                    EQPID,
                    "another process on node {} has the type {ptype}",
                    self.own.0
                );
            }
        }
        let note = rank.peers().make_note(self.me, place::KEY, place::WORDS);
        let Some(note) = note else {
            refuse!(
                EQFAULT,
                "the job's registry has no room for the type of this process"
            );
        };
        place::set_process_type(&note, ptype);
        Ok(())
    }

    /// The rank of the controlling process, if there is one and `node` is its number.
    #[cold]
    fn host(&self, node: i64) -> Result<u32> {
        match self.host {
            Some(host) if node == i64::from(self.count) => Ok(host),
            _ => self.no_node(node),
        }
    }

    #[cold]
    fn no_node<T>(&self, node: i64) -> Result<T> {
        refuse!(
            EQNODE,
            "there is no node {node}; the application has the nodes 0 to {}",
            self.count - 1
        )
    }
}

/// Node of each rank, and the type that its process was started with.
fn places(rank: &Rank) -> impl Iterator<Item = (u32, u32)> {
    (0..rank.world_size()).map(|r| {
        let note = rank.peers().note(r, place::KEY);
        place::started_as(note.as_deref(), r)
    })
}

/// Returns the type that the process of a rank has now.
fn process_type(rank: &Rank, of: u32) -> u32 {
    place::process_type(rank.peers().note(of, place::KEY).as_deref())
}
