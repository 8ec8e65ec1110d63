//! The performance suite behind `margay bench`: ASCI Red's tracking suite and MP LINPACK, on this machine; and threading runtimes
//! side by side, `margay bench threads`.
//!
//! The kernels are programs in C that use MPI (`programs/`, installed in `share/margay/bench`). They are compiled with the
//! installed `mpicc` at first use, or a peer's, run through the launcher, verify themselves and print lines of figures.
//! This crate plans the runs, reads the lines, and makes table, JSON, Markdown and SVG of them.
#![forbid(unsafe_code)]

pub mod command;
pub mod compare;
pub mod derive;
pub mod host;
pub mod install;
pub mod lines;
pub mod picture;
pub mod plan;
pub mod process;
pub mod report;
pub mod threads;

pub use command::{BenchOptions, bench};
pub use threads::ThreadsOptions;
