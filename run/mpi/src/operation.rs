//! Collective operations as values: what one process brings to one.

use std::sync::Arc;

use margay_core_datatype::Datatype;
use margay_core_schedule::{Block, Part, Reduction as Amount};
use margay_run_engine::{Buffer, Data};
use margay_sys_os::user::Mem;

use crate::op::Bound;

/// `count` elements of a datatype. In operations with equal blocks, those of one process.
#[derive(Clone)]
pub struct Operand {
    /// Where the elements are.
    pub mem: Mem,
    /// How many.
    pub count: u64,
    /// Of which type.
    pub datatype: Arc<Datatype>,
}

/// A block for each process.
#[derive(Clone)]
pub struct Blocks {
    /// Where the blocks are.
    pub mem: Mem,
    /// Elements of each block.
    pub counts: Vec<u64>,
    /// Displacements: of one type for all in its extents, of a type for each block in bytes.
    pub displs: Vec<i64>,
    /// One type for all, or one for each block.
    pub datatypes: Arc<[Arc<Datatype>]>,
}

/// Where the one process of a rooted operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// This rank; of an inter-communicator, of the remote group.
    Rank(u32),
    /// `MPI_ROOT`: here, for the other group.
    Here,
    /// `MPI_PROC_NULL`: another process of the local group, for the other group.
    Null,
}

/// What is reduced and how.
#[derive(Clone)]
pub struct Elements {
    /// Elements of each operand; in `ReduceScatterBlock` of each process's part.
    pub count: u64,
    /// Of which type.
    pub datatype: Arc<Datatype>,
    /// The operation, with the datatype's handle for functions of the program.
    pub op: Bound,
}

/// A collective operation with the arguments of one process. `None` for a send buffer is
/// `MPI_IN_PLACE`; what has no meaning on this process is `None` too.
#[derive(Clone)]
pub enum Operation {
    Barrier,
    /// A barrier in `MPI_Finalize`, which is no other rank's `MPI_Barrier`.
    Leave,
    Bcast {
        data: Operand,
        root: Root,
    },
    Gather {
        send: Option<Operand>,
        recv: Option<Operand>,
        root: Root,
    },
    Gatherv {
        send: Option<Operand>,
        recv: Option<Blocks>,
        root: Root,
    },
    Scatter {
        send: Option<Operand>,
        recv: Option<Operand>,
        root: Root,
    },
    Scatterv {
        send: Option<Blocks>,
        recv: Option<Operand>,
        root: Root,
    },
    Allgather {
        send: Option<Operand>,
        recv: Operand,
    },
    Allgatherv {
        send: Option<Operand>,
        recv: Blocks,
    },
    Alltoall {
        send: Option<Operand>,
        recv: Operand,
    },
    Alltoallv {
        send: Option<Blocks>,
        recv: Blocks,
    },
    Alltoallw {
        send: Option<Blocks>,
        recv: Blocks,
    },
    Reduce {
        send: Option<Mem>,
        recv: Option<Mem>,
        what: Elements,
        root: Root,
    },
    Allreduce {
        send: Option<Mem>,
        recv: Mem,
        what: Elements,
    },
    ReduceScatterBlock {
        send: Option<Mem>,
        recv: Mem,
        what: Elements,
    },
    ReduceScatter {
        send: Option<Mem>,
        recv: Mem,
        counts: Vec<u64>,
        what: Elements,
    },
    Scan {
        send: Option<Mem>,
        recv: Mem,
        what: Elements,
    },
    Exscan {
        send: Option<Mem>,
        recv: Mem,
        what: Elements,
    },
    NeighborAllgather {
        send: Operand,
        recv: Operand,
    },
    NeighborAllgatherv {
        send: Operand,
        recv: Blocks,
    },
    NeighborAlltoall {
        send: Operand,
        recv: Operand,
    },
    NeighborAlltoallv {
        send: Blocks,
        recv: Blocks,
    },
    NeighborAlltoallw {
        send: Blocks,
        recv: Blocks,
    },
}

impl Operation {
    /// The rank of its root, if it has one that it knows.
    pub(crate) fn root(&self) -> Option<u32> {
        use Operation as O;
        match self {
            O::Bcast { root, .. }
            | O::Gather { root, .. }
            | O::Gatherv { root, .. }
            | O::Scatter { root, .. }
            | O::Scatterv { root, .. }
            | O::Reduce { root, .. } => match root {
                Root::Rank(rank) => Some(*rank),
                Root::Here | Root::Null => None,
            },
            _ => None,
        }
    }
}

impl Operation {
    /// Packed bytes that this process gives, or receives where it gives none.
    pub(crate) fn own_bytes(&self) -> u64 {
        use Operation as O;
        match self {
            O::Barrier | O::Leave => 0,
            O::Bcast { data, .. } => data.bytes(),
            O::Gather { send, recv, .. } | O::Scatter { send, recv, .. } => {
                send.as_ref().or(recv.as_ref()).map_or(0, Operand::bytes)
            }
            O::Gatherv { send, recv, .. } => match (send, recv) {
                (Some(send), _) => send.bytes(),
                (None, Some(recv)) => recv.bytes(),
                (None, None) => 0,
            },
            O::Scatterv { send, recv, .. } => match (send, recv) {
                (Some(send), _) => send.bytes(),
                (None, Some(recv)) => recv.bytes(),
                (None, None) => 0,
            },
            O::Allgather { send, recv } | O::Alltoall { send, recv } => {
                send.as_ref().unwrap_or(recv).bytes()
            }
            O::Allgatherv { send, recv } => send.as_ref().map_or(recv.bytes(), Operand::bytes),
            O::Alltoallv { send, recv } | O::Alltoallw { send, recv } => {
                send.as_ref().unwrap_or(recv).bytes()
            }
            O::Reduce { what, .. }
            | O::Allreduce { what, .. }
            | O::ReduceScatterBlock { what, .. }
            | O::ReduceScatter { what, .. }
            | O::Scan { what, .. }
            | O::Exscan { what, .. } => what.count * what.datatype.size(),
            O::NeighborAllgather { send, .. }
            | O::NeighborAllgatherv { send, .. }
            | O::NeighborAlltoall { send, .. } => send.bytes(),
            O::NeighborAlltoallv { send, .. } | O::NeighborAlltoallw { send, .. } => send.bytes(),
        }
    }
}

impl Operand {
    /// Packed bytes of the elements.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.count * self.datatype.size()
    }

    pub(crate) fn block(&self) -> Block {
        Block {
            count: self.count as i64,
            bytes: self.bytes(),
        }
    }

    pub(crate) fn buffer(&self) -> Buffer {
        Buffer::Typed {
            mem: self.mem.clone(),
            datatype: self.datatype.clone(),
        }
    }

    /// Packed bytes `position .. position + len` of it.
    #[must_use]
    pub fn part(&self, position: u64, len: u64) -> Data {
        Data::part(self.mem.clone(), &self.datatype, position, len)
    }

    /// Returns where it is when its elements lie in one piece.
    #[must_use]
    pub fn dense(&self) -> Option<(&Mem, i64)> {
        let at = self.datatype.flat().contiguous(self.count)?;
        Some((&self.mem, at))
    }
}

impl Blocks {
    /// Packed bytes of all blocks.
    pub(crate) fn bytes(&self) -> u64 {
        (0..self.counts.len() as u32)
            .map(|rank| self.bytes_of(rank))
            .sum()
    }

    /// Packed bytes of one block.
    pub(crate) fn bytes_of(&self, rank: u32) -> u64 {
        let i = rank as usize;
        self.counts[i] * self.datatypes[i.min(self.datatypes.len() - 1)].size()
    }

    /// One block; all have one type.
    pub(crate) fn operand_of(&self, rank: u32) -> Operand {
        let (i, datatype) = (rank as usize, &self.datatypes[0]);
        let at = self.displs[i].wrapping_mul(datatype.extent());
        Operand {
            mem: self.mem.shifted(at),
            count: self.counts[i],
            datatype: datatype.clone(),
        }
    }

    /// The same as the data of a message.
    pub(crate) fn data_of(&self, rank: u32) -> Data {
        self.operand_of(rank).data()
    }

    /// Returns where all blocks are when they lie in one piece, one behind the other.
    pub(crate) fn packed(&self) -> Option<Mem> {
        let mut next = *self.displs.first()?;
        for (&count, &start) in self.counts.iter().zip(&self.displs) {
            if start != next {
                return None;
            }
            next = start.checked_add_unsigned(count)?;
        }
        let all = Operand {
            count: self.counts.iter().sum(),
            ..self.operand_of(0)
        };
        all.dense().map(|(mem, at)| mem.shifted(at))
    }

    pub(crate) fn parts(&self) -> Vec<Part> {
        (self.counts.iter().zip(&self.displs).enumerate())
            .map(|(i, (&count, &start))| {
                let datatype = &self.datatypes[i.min(self.datatypes.len() - 1)];
                Part {
                    start,
                    bytes: count * datatype.size(),
                }
            })
            .collect()
    }

    pub(crate) fn typed(&self) -> Buffer {
        Buffer::Typed {
            mem: self.mem.clone(),
            datatype: self.datatypes[0].clone(),
        }
    }

    pub(crate) fn per_peer(&self) -> Buffer {
        Buffer::PerPeer {
            mem: self.mem.clone(),
            datatypes: self.datatypes.clone(),
        }
    }
}

impl Elements {
    pub(crate) fn buffer(&self, mem: &Mem) -> Buffer {
        Buffer::Typed {
            mem: mem.clone(),
            datatype: self.datatype.clone(),
        }
    }

    pub(crate) fn amount(&self) -> Amount {
        Amount {
            count: self.count,
            size: self.datatype.size(),
            commutative: self.op.op.commutes(),
        }
    }
}
