//! Virtual topologies.

use std::sync::Arc;

use margay_core_group::{Cart, DistGraph, Edge, Graph, GroupError, TopologyError};

use crate::comm::{Comm, Neighbours, Topology};
use crate::constants::sentinel::MPI_UNDEFINED;
use crate::error::*;
use crate::{Mpi, fail};

impl From<TopologyError> for Error {
    fn from(error: TopologyError) -> Error {
        let class = match error {
            TopologyError::Dimension { .. }
            | TopologyError::Indivisible { .. }
            | TopologyError::TooLarge
            | TopologyError::NoSuchDimension { .. } => MPI_ERR_DIMS,
            TopologyError::NoSuchRank { .. } => MPI_ERR_RANK,
            _ => MPI_ERR_ARG,
        };
        Error::new(class, error.to_string())
    }
}

impl From<GroupError> for Error {
    fn from(error: GroupError) -> Error {
        let class = match error {
            GroupError::Stride { .. } => MPI_ERR_ARG,
            _ => MPI_ERR_RANK,
        };
        Error::new(class, error.to_string())
    }
}

impl Comm {
    /// Returns the Cartesian topology.
    ///
    /// # Errors
    /// When the communicator has none.
    pub fn cart(&self) -> Result<&Arc<Cart>> {
        match &self.topology {
            Some(Topology::Cart(cart)) => Ok(cart),
            _ => fail!(
                MPI_ERR_TOPOLOGY,
                "{} has no Cartesian topology",
                self.describe()
            ),
        }
    }

    /// Returns the graph topology.
    ///
    /// # Errors
    /// When the communicator has none.
    pub fn graph(&self) -> Result<&Arc<Graph>> {
        match &self.topology {
            Some(Topology::Graph(graph)) => Ok(graph),
            _ => fail!(
                MPI_ERR_TOPOLOGY,
                "{} has no graph topology",
                self.describe()
            ),
        }
    }

    /// Returns the distributed graph topology.
    ///
    /// # Errors
    /// When the communicator has none.
    pub fn dist_graph(&self) -> Result<&Arc<DistGraph>> {
        match &self.topology {
            Some(Topology::DistGraph(graph)) => Ok(graph),
            _ => fail!(
                MPI_ERR_TOPOLOGY,
                "{} has no distributed graph topology",
                self.describe()
            ),
        }
    }

    /// Returns the neighbours in whatever topology there is.
    ///
    /// # Errors
    /// When there is none.
    pub fn neighbours(&self) -> Result<Neighbours> {
        let some = |ranks: &[u32]| ranks.iter().map(|&r| Some(r)).collect();
        match &self.topology {
            Some(Topology::Cart(cart)) => {
                let all = cart.neighbours(i64::from(self.rank))?;
                Ok(Neighbours {
                    sources: all.clone(),
                    destinations: all,
                })
            }
            Some(Topology::Graph(graph)) => {
                let all: Vec<Option<u32>> = graph
                    .neighbours(i64::from(self.rank))?
                    .iter()
                    .map(|&r| Some(r as u32))
                    .collect();
                Ok(Neighbours {
                    sources: all.clone(),
                    destinations: all,
                })
            }
            Some(Topology::DistGraph(graph)) => Ok(Neighbours {
                sources: some(&graph.sources),
                destinations: some(&graph.destinations),
            }),
            None => fail!(
                MPI_ERR_TOPOLOGY,
                "{} has no topology; create one with MPI_Cart_create or its companions",
                self.describe()
            ),
        }
    }
}

impl Mpi {
    /// `MPI_Cart_create`. Ranks are not reordered: on one machine all processes are equally far.
    ///
    /// # Errors
    /// When the grid is invalid or has more processes than the communicator.
    pub fn cart_create(&self, parent: u32, dims: &[i64], periods: &[bool]) -> Result<u32> {
        let parent = self.intracomm(parent)?;
        let cart = Cart::new(dims, periods)?;
        let size = cart.size();
        if size > parent.size() {
            fail!(
                MPI_ERR_DIMS,
                "the grid has {size} processes, more than {}",
                parent.describe()
            );
        }
        self.leading(&parent, size, Topology::Cart(Arc::new(cart)))
    }

    /// `MPI_Graph_create`
    ///
    /// # Errors
    /// When the graph is invalid or has more nodes than the communicator processes.
    pub fn graph_create(&self, parent: u32, index: &[i64], edges: &[i64]) -> Result<u32> {
        let parent = self.intracomm(parent)?;
        let graph = Graph::new(index, edges)?;
        let nodes = graph.nodes();
        if nodes > parent.size() {
            fail!(
                MPI_ERR_ARG,
                "the graph has {nodes} nodes, more than {}",
                parent.describe()
            );
        }
        self.leading(&parent, nodes, Topology::Graph(Arc::new(graph)))
    }

    /// Returns a communicator of the first `size` processes of `parent`.
    fn leading(&self, parent: &Arc<Comm>, size: u32, topology: Topology) -> Result<u32> {
        let color = if parent.rank < size { 0 } else { MPI_UNDEFINED };
        self.comm_split(parent, color, 0, Some(topology))
    }

    /// `MPI_Cart_sub`
    ///
    /// # Errors
    /// When the communicator has no Cartesian topology.
    pub fn cart_sub(&self, parent: u32, remain: &[bool]) -> Result<u32> {
        let parent = self.intracomm(parent)?;
        let cart = parent.cart()?.clone();
        let (sub, number, rank) = cart.sub(i64::from(parent.rank), remain)?;
        let topology = Topology::Cart(Arc::new(sub));
        self.comm_split(&parent, number as i32, rank as i32, Some(topology))
    }

    /// `MPI_Dist_graph_create_adjacent`
    ///
    /// # Errors
    /// When a rank is invalid.
    pub fn dist_graph_create_adjacent(&self, parent: u32, graph: DistGraph) -> Result<u32> {
        let parent = self.intracomm(parent)?;
        for &rank in graph.sources.iter().chain(&graph.destinations) {
            if rank >= parent.size() {
                fail!(
                    MPI_ERR_RANK,
                    "rank {} is not in {}",
                    rank as i32,
                    parent.describe()
                );
            }
        }
        self.comm_split(&parent, 0, 0, Some(Topology::DistGraph(Arc::new(graph))))
    }

    /// `MPI_Dist_graph_create`: every process names some edges; all processes learn all edges.
    ///
    /// # Errors
    /// When a rank is invalid.
    pub fn dist_graph_create(&self, parent: u32, edges: &[Edge], weighted: bool) -> Result<u32> {
        let parent = self.intracomm(parent)?;
        let counts = self.gather_counts(&parent, edges.len())?;
        let most = counts.iter().copied().max().unwrap_or(0);
        let mut words = Vec::with_capacity(3 * most);
        for edge in edges {
            words.extend([
                edge.source as i32,
                edge.destination as i32,
                edge.weight as i32,
            ]);
        }
        words.resize(3 * most, 0);
        let all = self.gather_all(&parent, &words)?;
        let edges = all.iter().zip(&counts).flat_map(|(words, &count)| {
            words.chunks(3).take(count).map(|w| Edge {
                source: w[0] as u32,
                destination: w[1] as u32,
                weight: i64::from(w[2]),
            })
        });
        let graph = DistGraph::from_edges(parent.rank, weighted, edges);
        self.comm_split(&parent, 0, 0, Some(Topology::DistGraph(Arc::new(graph))))
    }
}
