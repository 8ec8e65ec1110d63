//! What is wrong with the arguments of a group or topology.

use std::fmt;

/// An argument that a group operation refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupError {
    /// Entry `index` of the ranks (or, for ranges, a rank that range `index` gives) is not a rank
    /// of the group (`MPI_ERR_RANK`).
    NoSuchRank { index: usize, rank: i64, size: u32 },
    /// A rank occurs twice (`MPI_ERR_RANK`).
    DuplicateRank { index: usize, rank: i64 },
    /// A process occurs twice.
    DuplicateProcess { process: u32 },
    /// Range `index` has a stride of zero, or one that leads away from its last rank
    /// (`MPI_ERR_ARG`).
    Stride {
        index: usize,
        first: i64,
        last: i64,
        stride: i64,
    },
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchRank {
                index,
                rank,
                size: 0,
            } => {
                write!(
                    f,
                    "entry {index} is rank {rank}; the group is empty and has no ranks"
                )
            }
            Self::NoSuchRank { index, rank, size } => {
                write!(
                    f,
                    "entry {index} is rank {rank}; the group has ranks 0 to {}",
                    size - 1
                )
            }
            Self::DuplicateRank { index, rank } => {
                write!(
                    f,
                    "entry {index} is rank {rank} for the second time; each may occur once"
                )
            }
            Self::DuplicateProcess { process } => {
                write!(
                    f,
                    "process {process} occurs twice; a group has each process once"
                )
            }
            Self::Stride {
                index,
                first,
                last,
                stride,
            } => {
                write!(
                    f,
                    "range {index} goes from {first} to {last} by {stride}, which does not lead there"
                )
            }
        }
    }
}

impl std::error::Error for GroupError {}

/// An argument that a topology refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopologyError {
    /// A dimension of the grid is not positive (in `dims_create`: negative) (`MPI_ERR_DIMS`).
    Dimension { dimension: usize, value: i64 },
    /// The given dimensions do not divide the number of processes (`MPI_ERR_DIMS`).
    Indivisible { processes: i64, given: i64 },
    /// The grid has more than 2^31 - 1 processes (`MPI_ERR_DIMS`).
    TooLarge,
    /// There is no such dimension (`MPI_ERR_DIMS`).
    NoSuchDimension { dimension: i64, dimensions: usize },
    /// An array has not one entry for each dimension (`MPI_ERR_ARG`).
    Lengths { expected: usize, found: usize },
    /// A coordinate lies outside of a dimension that does not wrap around (`MPI_ERR_ARG`).
    Coordinate {
        dimension: usize,
        value: i64,
        size: i64,
    },
    /// Not a rank of the topology (`MPI_ERR_RANK`).
    NoSuchRank { rank: i64, size: i64 },
    /// `index[node]` of a graph is below the entry before it or does not end with the edges
    /// (`MPI_ERR_ARG`).
    Index { node: usize, value: i64 },
    /// `edges[position]` names no node of the graph (`MPI_ERR_ARG`).
    EdgeTarget {
        position: usize,
        value: i64,
        nodes: usize,
    },
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dimension { dimension, value } => {
                write!(f, "dims[{dimension}] is {value}; it is too small")
            }
            Self::Indivisible { processes, given } => {
                write!(
                    f,
                    "{processes} processes cannot be arranged: the given dimensions have a product of {given}"
                )
            }
            Self::TooLarge => f.write_str("the grid has more than 2147483647 processes"),
            Self::NoSuchDimension {
                dimension,
                dimensions,
            } => {
                write!(
                    f,
                    "there is no dimension {dimension}; the grid has {dimensions}, counted from 0"
                )
            }
            Self::Lengths { expected, found } => {
                write!(f, "an array has {found} entries; it must have {expected}")
            }
            Self::Coordinate {
                dimension,
                value,
                size,
            } => {
                write!(
                    f,
                    "coords[{dimension}] is {value}; the dimension goes from 0 to {} and does not wrap",
                    size - 1
                )
            }
            Self::NoSuchRank { rank, size } => {
                write!(f, "there is no rank {rank}; the topology has {size}")
            }
            Self::Index { node, value } => {
                write!(
                    f,
                    "index[{node}] is {value}; the entries must not decrease and the last must count the edges"
                )
            }
            Self::EdgeTarget {
                position,
                value,
                nodes,
            } => {
                write!(
                    f,
                    "edges[{position}] is {value}; the graph has {nodes} nodes, counted from 0"
                )
            }
        }
    }
}

impl std::error::Error for TopologyError {}
