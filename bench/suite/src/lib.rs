//! The performance suite behind `margay bench`: ASCI Red's tracking suite and MP LINPACK, on this
//! machine; threading runtimes side by side, `margay bench threads`; and the files of a directory,
//! `margay bench files`.
//!
//! The kernels are programs in C that use MPI (`programs/`, installed in `share/margay/bench`).
//! They are compiled with the installed `mpicc` at first use, or a peer's, run through the
//! launcher, verify themselves and print lines of figures. This crate plans the runs, reads the
//! lines, and makes table, JSON, Markdown and SVG of them. Its program `margay-bench` stands beside
//! `margay`, which runs it for `margay bench`.
//!
//! | module | subject |
//! | --- | --- |
//! | [`command`] | the whole: plan, run, compare, publish |
//! | [`plan`], [`install`], [`lines`] | what is run, how it is compiled, what it prints |
//! | [`report`], [`mod@derive`], [`compare`] | figures of a whole run, against each other and against an older report |
//! | [`page`], [`picture`], `panel` | a report as table and files, and as SVG; one panel of that |
//! | [`threads`] | the part that measures threading runtimes |
//! | [`files`] | the part that measures files |
#![forbid(unsafe_code)]

pub mod command;
pub mod compare;
pub mod derive;
pub mod files;
pub mod install;
pub mod lines;
pub mod page;
mod panel;
pub mod picture;
pub mod plan;
pub mod report;
pub mod threads;

pub use command::bench;
