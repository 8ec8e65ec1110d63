//! Graph topologies: known to all (MPI-1) and distributed.

use crate::error::TopologyError;

/// A graph that every process knows whole (`MPI_Graph_create`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    index: Box<[i64]>,
    edges: Box<[i64]>,
}

impl Graph {
    /// A graph of `index.len()` nodes; `index[i]` is the number of neighbours of nodes 0 to i, and
    /// `edges` holds the neighbours of node 0, of node 1, ... Multiple edges and edges to oneself
    /// are allowed.
    pub fn new(index: &[i64], edges: &[i64]) -> Result<Graph, TopologyError> {
        let mut before = 0;
        for (node, &value) in index.iter().enumerate() {
            if value < before || value > edges.len() as i64 {
                return Err(TopologyError::Index { node, value });
            }
            before = value;
        }
        if before != edges.len() as i64 {
            return Err(TopologyError::Index {
                node: index.len().saturating_sub(1),
                value: before,
            });
        }
        let nodes = index.len();
        match edges
            .iter()
            .position(|&edge| edge < 0 || edge >= nodes as i64)
        {
            Some(position) => Err(TopologyError::EdgeTarget {
                position,
                value: edges[position],
                nodes,
            }),
            None => Ok(Graph {
                index: index.into(),
                edges: edges.into(),
            }),
        }
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u32 {
        self.index.len() as u32
    }

    /// The argument `index`.
    pub fn index(&self) -> &[i64] {
        &self.index
    }

    /// The argument `edges`.
    pub fn edges(&self) -> &[i64] {
        &self.edges
    }

    /// The neighbours of `rank`, in the order given.
    pub fn neighbours(&self, rank: i64) -> Result<&[i64], TopologyError> {
        let size = self.index.len() as i64;
        if !(0..size).contains(&rank) {
            return Err(TopologyError::NoSuchRank { rank, size });
        }
        let start = if rank == 0 {
            0
        } else {
            self.index[rank as usize - 1]
        };
        Ok(&self.edges[start as usize..self.index[rank as usize] as usize])
    }

    /// The rank in the graph of a process that has `rank` now (`MPI_Graph_map`): the same one,
    /// `None` beyond it.
    pub fn map(&self, rank: i64) -> Option<u32> {
        u32::try_from(rank).ok().filter(|&rank| rank < self.nodes())
    }
}

/// A process's own part of a distributed graph.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DistGraph {
    /// Ranks that data comes from.
    pub sources: Vec<u32>,
    /// Weight of each source; empty when the graph is unweighted.
    pub source_weights: Vec<i64>,
    /// Ranks that data goes to.
    pub destinations: Vec<u32>,
    /// Weight of each destination; empty when the graph is unweighted.
    pub destination_weights: Vec<i64>,
    pub weighted: bool,
}

/// An edge of a distributed graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    pub source: u32,
    pub destination: u32,
    pub weight: i64,
}

impl DistGraph {
    /// The part of `rank` of a graph with these edges (`MPI_Dist_graph_create`, after they have
    /// been exchanged), in the order of the edges. The weights are left out when the graph is
    /// unweighted.
    pub fn from_edges(
        rank: u32,
        weighted: bool,
        edges: impl IntoIterator<Item = Edge>,
    ) -> DistGraph {
        let mut graph = DistGraph {
            weighted,
            ..DistGraph::default()
        };
        for edge in edges {
            if edge.destination == rank {
                graph.sources.push(edge.source);
                graph.source_weights.extend(weighted.then_some(edge.weight));
            }
            if edge.source == rank {
                graph.destinations.push(edge.destination);
                graph
                    .destination_weights
                    .extend(weighted.then_some(edge.weight));
            }
        }
        graph
    }
}
