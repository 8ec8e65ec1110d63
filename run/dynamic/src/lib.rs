//! Dynamic processes: groups of processes that find each other while they run.
//!
//! | module | subject |
//! | --- | --- |
//! | `deadline` | how long the other side is waited for |
//! | [`port`] | ports, accept and connect, `MPI_Comm_join` |
//! | `peer` | the other root: what is said to it and by it |
//! | `target` | what the name of a port says |
//! | `callers` | connections to a port, of which any may be hostile |
//! | [`spawn`] | starting processes |
//! | [`names`] | published names of services |
//!
//! How processes of other jobs are known and reached is `foreign.rs` of `margay-run-mpi`.

#![forbid(unsafe_code)]

mod callers;
mod deadline;
pub mod names;
mod peer;
pub mod port;
pub mod spawn;
mod target;

use std::sync::Mutex;

use margay_run_mpi::Mpi;

use names::Names;
use port::Ports;

/// What a rank keeps about ports and names.
#[derive(Default)]
pub struct DynamicState {
    ports: Mutex<Ports>,
    names: Mutex<Names>,
}

/// The functions of dynamic processes, on a rank's MPI and the state beside it.
#[derive(Clone, Copy)]
pub struct Dynamic<'a> {
    mpi: &'a Mpi,
    state: &'a DynamicState,
}

impl<'a> Dynamic<'a> {
    /// Both belong to the same rank.
    #[must_use]
    pub fn new(mpi: &'a Mpi, state: &'a DynamicState) -> Dynamic<'a> {
        Dynamic { mpi, state }
    }
}
