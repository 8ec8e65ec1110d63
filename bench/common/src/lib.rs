//! What all measurements share.
//!
//! | module | subject |
//! | --- | --- |
//! | [`process`] | commands that are run to their end; background load |
//! | [`mpi`] | an MPI implementation below a prefix: compiling and launching with it |
//! | [`host`] | the machine that figures come from |
//! | [`statistics`] | medians |
//! | [`page`] | tables, numbers as text, the files of a report, progress |
//! | [`font`] | the font of pictures |
#![forbid(unsafe_code)]

pub mod font;
pub mod host;
pub mod mpi;
pub mod page;
pub mod process;
pub mod statistics;
