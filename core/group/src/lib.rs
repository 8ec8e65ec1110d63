//! Process groups (MPI 5.0, chapter 7) and virtual topologies (chapter 8), as immutable values
//! without communication.
//!
//! A process is known by its `u32` number in the job, a rank is a position in a group. Arguments
//! that come from a user's program are `i64` and are checked here; the errors name the argument's
//! position and value.
#![forbid(unsafe_code)]

mod cart;
mod dims;
mod error;
mod graph;
mod group;

pub use cart::Cart;
pub use dims::dims_create;
pub use error::{GroupError, TopologyError};
pub use graph::{DistGraph, Edge, Graph};
pub use group::{Comparison, Group};
