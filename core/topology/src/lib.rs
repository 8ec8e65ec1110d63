//! CPUs, cores and memory nodes as values, and the placement of the threads of several processes on
//! them.
//!
//! The facts come from the texts that Linux gives under `/sys`; their reader is handed in, so a
//! test describes a machine by a few texts. The placement is that of NASA Ames' Multi-Level
//! Parallelism (Ciotti, "Towards Scalable 1024 Processor Shared Memory Systems", 2001, section
//! 5.2): the usable CPUs are counted, and thread t of a process gets the CPU t places behind those
//! of the processes before it.
#![forbid(unsafe_code)]

mod list;
mod place;
mod topology;

pub use list::{list_text, parse_list};
pub use place::{Placement, place};
pub use topology::{Cpu, Topology};
