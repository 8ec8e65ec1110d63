//! How arrays lie in memory and over processes.

/// Which dimension of an array varies fastest: the last (C) or the first (Fortran). The
/// discriminants are the values of `MPI_ORDER_*` in the standard ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    C = 12,
    Fortran = 15,
}

/// How a dimension is distributed. The discriminants are the values of `MPI_DISTRIBUTE_*` in the
/// standard ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    None = 16,
    Block = 17,
    Cyclic = 18,
}

/// `MPI_DISTRIBUTE_DFLT_DARG` in the standard ABI.
pub(crate) const DEFAULT_DARG: i64 = 19;

impl Order {
    /// From the value of `MPI_ORDER_*`.
    pub fn from_abi(value: i64) -> Option<Order> {
        [Order::C, Order::Fortran]
            .into_iter()
            .find(|&o| o as i64 == value)
    }
}

impl Distribution {
    /// From the value of `MPI_DISTRIBUTE_*`.
    pub fn from_abi(value: i64) -> Option<Distribution> {
        [
            Distribution::None,
            Distribution::Block,
            Distribution::Cyclic,
        ]
        .into_iter()
        .find(|&d| d as i64 == value)
    }
}
