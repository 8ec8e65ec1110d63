//! What `margay bench` can measure.

use clap::ValueEnum;

/// The kernels of the suite, in the order in which they are run and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kernel {
    /// The 24 Livermore loops on one core.
    Livermore,
    /// Ping-pong between neighbours.
    Comtest,
    /// Copy, scale, add and triad.
    Stream,
    /// Bandwidth of each level of the memory.
    Ladder,
    /// Element vector multiply.
    Evm,
    /// Parallel matrix multiply.
    Matmul,
    /// MP LINPACK, and the library's own LU.
    Linpack,
}
