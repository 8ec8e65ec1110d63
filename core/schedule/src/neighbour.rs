//! Neighbourhood collectives: everybody exchanges with its neighbours in a topology, directly.

use std::collections::HashMap;

use crate::args::{Block, Part};
use crate::bcast::ring_tag;
use crate::builder::Builder;
use crate::schedule::{Buffer, Peer, Region, Schedule};

/// The neighbours of a process: whom it receives from and sends to, in the order of the blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Neighbourhood {
    sources: Vec<Edge>,
    destinations: Vec<Edge>,
}

/// A neighbour, and what tells this edge from others to the same process; no process is
/// `MPI_PROC_NULL`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Edge {
    peer: Option<u32>,
    tag: u32,
}

impl Neighbourhood {
    /// The neighbours in a Cartesian grid: for each dimension the one before and the one after.
    /// What is sent to the one before arrives there as from the one after, also where both are the
    /// same process.
    pub fn cartesian(neighbours: &[Option<u32>]) -> Neighbourhood {
        let edge = |i: usize, direction: usize| Edge {
            peer: neighbours[i],
            tag: ring_tag(0, direction as u32),
        };
        Neighbourhood {
            sources: (0..neighbours.len()).map(|i| edge(i, i ^ 1)).collect(),
            destinations: (0..neighbours.len()).map(|i| edge(i, i)).collect(),
        }
    }

    /// The neighbours in a graph. Several edges between two processes are matched in their order.
    pub fn graph(sources: &[u32], destinations: &[u32]) -> Neighbourhood {
        let number = |peers: &[u32]| {
            let mut seen: HashMap<u32, u32> = HashMap::new();
            let mut edge = |&peer: &u32| {
                let count = seen.entry(peer).or_default();
                *count += 1;
                Edge {
                    peer: Some(peer),
                    tag: ring_tag(0, *count - 1),
                }
            };
            peers.iter().map(&mut edge).collect()
        };
        Neighbourhood {
            sources: number(sources),
            destinations: number(destinations),
        }
    }

    /// Number of neighbours that this process receives from.
    pub fn sources(&self) -> usize {
        self.sources.len()
    }

    /// Number of neighbours that this process sends to.
    pub fn destinations(&self) -> usize {
        self.destinations.len()
    }

    fn exchange(&self, from: impl Fn(usize) -> Region, to: impl Fn(usize) -> Region) -> Schedule {
        let mut b = Builder::default();
        for (i, edge) in self.sources.iter().enumerate() {
            if let Some(peer) = edge.peer {
                b.recv(Peer::Local(peer), edge.tag, to(i), &[]);
            }
        }
        for (i, edge) in self.destinations.iter().enumerate() {
            if let Some(peer) = edge.peer {
                b.send(Peer::Local(peer), edge.tag, from(i), &[]);
            }
        }
        b.finish()
    }
}

/// `MPI_Neighbor_allgather`. `send_bytes` go to each destination; a block comes from each source.
pub fn neighbor_allgather(neighbours: &Neighbourhood, send_bytes: u64, recv: Block) -> Schedule {
    neighbours.exchange(
        |_| Region::at(Buffer::Send, 0, send_bytes),
        |i| Region::at(Buffer::Recv, i as i64 * recv.count, recv.bytes),
    )
}

/// `MPI_Neighbor_allgatherv`. `recv` has a part for each source.
pub fn neighbor_allgatherv(neighbours: &Neighbourhood, send_bytes: u64, recv: &[Part]) -> Schedule {
    neighbours.exchange(
        |_| Region::at(Buffer::Send, 0, send_bytes),
        |i| recv[i].region(Buffer::Recv),
    )
}

/// `MPI_Neighbor_alltoall`.
pub fn neighbor_alltoall(neighbours: &Neighbourhood, send: Block, recv: Block) -> Schedule {
    neighbours.exchange(
        |i| Region::at(Buffer::Send, i as i64 * send.count, send.bytes),
        |i| Region::at(Buffer::Recv, i as i64 * recv.count, recv.bytes),
    )
}

/// `MPI_Neighbor_alltoallv`. `send` has a part for each destination, `recv` for each source.
pub fn neighbor_alltoallv(neighbours: &Neighbourhood, send: &[Part], recv: &[Part]) -> Schedule {
    neighbours.exchange(
        |i| send[i].region(Buffer::Send),
        |i| recv[i].region(Buffer::Recv),
    )
}

/// `MPI_Neighbor_alltoallw`. As [`neighbor_alltoallv`], with displacements in bytes; part `i` is
/// described by type `i`.
pub fn neighbor_alltoallw(neighbours: &Neighbourhood, send: &[Part], recv: &[Part]) -> Schedule {
    neighbours.exchange(
        |i| send[i].region(Buffer::SendOf(i as u32)),
        |i| recv[i].region(Buffer::RecvOf(i as u32)),
    )
}
