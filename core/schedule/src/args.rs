//! The arguments of collectives, in the form that the builders take.

/// The caller's rank in a communicator (or in the local group of an intercommunicator) and its
/// size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranks {
    pub rank: u32,
    pub size: u32,
}

/// What every process has in the operations with equal blocks: `count` elements of the buffer's
/// type that are `bytes` packed bytes. Block `i` begins at element `i * count`. `bytes` must be
/// equal wherever the standard demands equal type signatures, while counts may differ with the
/// types.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Block {
    pub count: i64,
    pub bytes: u64,
}

/// One peer's part of a buffer in the operations with counts and displacements: `bytes` packed
/// bytes from `start`, which counts elements, for the `w` forms bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Part {
    pub start: i64,
    pub bytes: u64,
}

/// What is reduced: `count` elements of a type with `size` packed bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reduction {
    pub count: u64,
    pub size: u64,
    /// Whether operands may change places. If not, they are combined in rank order.
    pub commutative: bool,
}

impl Reduction {
    pub(crate) fn bytes(&self) -> u64 {
        self.count * self.size
    }
}

/// The size of the remote group of an intercommunicator, beside the [`Ranks`] of the local one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inter {
    pub local: Ranks,
    pub remote_size: u32,
}

/// The root of a rooted operation on an intercommunicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterRoot {
    /// `MPI_ROOT`: this process is the root.
    Myself,
    /// `MPI_PROC_NULL`: the root is another process of the local group.
    Neighbour,
    /// The root is this rank of the remote group.
    Remote(u32),
}
