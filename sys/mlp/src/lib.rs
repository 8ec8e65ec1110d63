//! Groups of processes that share an arena, behind safe and typed wrappers.
//!
//! `sys/` is the one place of the workspace, besides the C shims under `abi/`, that may contain
//! `unsafe` and system calls. Each module wraps one mechanism so that the crates above can say
//! `#![forbid(unsafe_code)]`:
//!
//! | module | mechanism |
//! | --- | --- |
//! | [`robust`] | lock and barrier of processes, any of which may die |
//! | [`group`] | the arena of a group of processes: one memfd at the same address in all of them |
//! | [`openmp`] | the OpenMP runtime that is in the process, whichever it is |

#[cfg(not(loom))]
pub mod group;
#[cfg(not(loom))]
pub mod openmp;
pub mod robust;
