//! How processes that another launcher has started become one job.
//!
//! Slurm's `srun`, the Hydra of MPICH and of Intel MPI, Flux, and Open MPI's launcher give each of
//! their processes a number and a place where all of them can put values for each other: by PMI-1
//! over a descriptor ([`pmi`]) or by the library of PMIx ([`pmix`]). Over either, which are one
//! [`Wire`] here, the processes find out who is on the same host, share a segment there as the
//! ranks of Margay's own launcher do, and learn the addresses of the others ([`meet`]).

#![forbid(unsafe_code)]

mod meet;
pub mod pmi;
pub mod pmix;

use std::fmt;

pub use meet::{Met, VARIABLE_PORTS, meet};

/// What a launcher offers to the processes of a job.
pub trait Wire: Send {
    /// The rank of this process.
    fn rank(&self) -> u32;

    /// The number of processes.
    fn size(&self) -> u32;

    /// Keeps a value for the others, who can get it after the next [`fence`](Self::fence). A key is
    /// put once by one process. Neither has spaces.
    ///
    /// # Errors
    /// When the launcher refuses it or is gone.
    fn put(&mut self, key: &str, value: &str) -> Result<(), WireError>;

    /// Waits until all processes have come here.
    ///
    /// # Errors
    /// When the launcher is gone.
    fn fence(&mut self) -> Result<(), WireError>;

    /// The value that process `of` has put.
    ///
    /// # Errors
    /// When there is none.
    fn get(&mut self, of: u32, key: &str) -> Result<String, WireError>;

    /// The first process on the host of this one, as far as the launcher tells.
    fn first_of_host(&mut self) -> Option<u32>;

    /// This process will end in order.
    fn finalize(&mut self);

    /// Has the launcher end all processes.
    fn abort(&mut self, code: i32);
}

/// Why a launcher's offer could not be used: one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireError(pub String);

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WireError {}

/// Connects to the launcher of this process, as `variable`, the environment, shows it; none where
/// it offers nothing.
///
/// # Errors
/// When it offers something that does not work.
pub fn find(variable: impl Fn(&str) -> Option<String>) -> Option<Result<Box<dyn Wire>, WireError>> {
    if let Some(descriptor) = variable("PMI_FD") {
        let numbers = (variable("PMI_RANK"), variable("PMI_SIZE"));
        let wire = pmi::Pmi::open(&descriptor, numbers);
        return Some(wire.map(|wire| Box::new(wire) as Box<dyn Wire>));
    }
    variable("PMIX_NAMESPACE")?;
    let wire = pmix::PmixWire::open(variable("MARGAY_PMIX").as_deref());
    Some(wire.map(|wire| Box::new(wire) as Box<dyn Wire>))
}
