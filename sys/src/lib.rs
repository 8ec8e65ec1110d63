//! The operating system and the processor, behind safe and typed wrappers.
//!
//! This is the one crate of the workspace, besides the C shims under `abi/`, that may contain
//! `unsafe` and system calls. Each module wraps one mechanism so that the crates above can say
//! `#![forbid(unsafe_code)]`:
//!
//! | module | mechanism |
//! | --- | --- |
//! | [`segment`] | the job's shared memory (one memfd), its header and the cell of every rank |
//! | [`ring`] | single-producer single-consumer ring of cache lines with a byte area |
//! | [`pool`] | a rank's pool of bulk chunks, filled by it and emptied by its peers |
//! | [`board`] | a communicator's control block: one slot a rank, arrival counters, staging |
//! | [`user`] | memory that the user claims to own: checked copies, strided copies |
//! | [`cma`] | cross-memory attach: reading and writing another process |
//! | [`doorbell`] | the futex word on which a rank sleeps |
//! | [`lock`] | a lock that costs nothing while a rank has one thread |
//! | [`cpu`] | usable cores, binding, yielding, pausing |
//! | [`clock`] | monotonic time |

pub mod clock;
pub mod cpu;
pub mod doorbell;
pub mod segment;
mod sync;
