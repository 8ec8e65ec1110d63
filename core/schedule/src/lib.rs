//! MPI collectives as schedules.
//!
//! A builder function takes what one process knows about an operation (its rank, the size, the
//! root, counts in bytes) and gives a [`Schedule`]: sends, receives, copies and reductions, and
//! what each of them waits for. The engine that executes it moves the bytes; nothing here does. The
//! step model is described in this crate's README. All functions are pure, so a schedule can be
//! kept and executed again.
//!
//! Results of reductions are combined in an order that depends on nothing but rank, size and the
//! arguments, so that they are the same in each run; those that several processes get are computed
//! once or by the same expression, so that they are the same bits everywhere.
#![forbid(unsafe_code)]

mod allgather;
mod allreduce;
mod alltoall;
mod args;
mod bcast;
mod builder;
mod exchange;
mod gather;
mod halving;
mod hosts;
mod inter;
mod neighbour;
mod reduce;
mod reduce_scatter;
mod scan;
mod schedule;
mod tree;
mod tuning;

pub use allgather::{allgather, allgatherv};
pub use allreduce::allreduce;
pub use alltoall::{alltoall, alltoallv, alltoallw};
pub use args::{Block, Inter, InterRoot, Part, Ranks, Reduction};
pub use bcast::{barrier, bcast};
pub use gather::{gather, gatherv, scatter, scatterv};
pub use hosts::{
    Hosts, hosts_allgather, hosts_allgatherv, hosts_allreduce, hosts_alltoall, hosts_barrier,
    hosts_bcast, hosts_gather, hosts_reduce, hosts_reduce_scatter, hosts_scan, hosts_scatter,
};
pub use inter::{
    inter_allgather, inter_allgatherv, inter_allreduce, inter_alltoall, inter_alltoallv,
    inter_alltoallw, inter_barrier, inter_bcast, inter_gather, inter_gatherv, inter_reduce,
    inter_reduce_scatter, inter_reduce_scatter_block, inter_scatter, inter_scatterv,
};
pub use neighbour::{
    Neighbourhood, neighbor_allgather, neighbor_allgatherv, neighbor_alltoall, neighbor_alltoallv,
    neighbor_alltoallw,
};
pub use reduce::reduce;
pub use reduce_scatter::{reduce_scatter, reduce_scatter_block};
pub use scan::{exscan, scan};
pub use schedule::{Buffer, Peer, Progress, Region, Schedule, Step, TAGS, Temp};
pub use tuning::Tuning;
