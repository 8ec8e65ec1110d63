//! Starts the ranks of a job, on this machine or on several, and watches over them until all have
//! ended.
//!
//! | module | subject |
//! | --- | --- |
//! | [`plan`] | what a job is: programs, ranks, choices |
//! | `setup`, [`run`](mod@run) | setting a job up; the loop that runs it |
//! | [`guard`] | the process that starts the ranks and leaves nothing behind |
//! | [`hosts`] | jobs on several hosts: agents there, and a relay here |
//! | [`program`] | finding a program, explaining why it cannot run |
//! | [`environment`] | the environment of the ranks |
//! | [`binding`] | which rank runs on which cores |
//! | [`input`] | passing standard input on |
//! | [`output`], [`ordered`], [`spool`] | merging the ranks' output |
//! | `sinks` | where the ranks' output comes from and goes |
//! | `recorder` | the program that records the job beside its ranks |
//! | [`verdict`] | what the end of a rank means for the job |
//! | [`report`] | what the launcher says when a job fails |
//! | [`energy`], [`used`] | what a job used, also on its other hosts |
//! | [`turns`] | jobs that take turns with others in a partition |
//! | [`spawned`] | being run by a program that spawns processes |
//!
//! What the ranks of a job do is read by `margay-job-observe`, and the jobs of this machine are
//! found by `margay-job-registry`.
#![forbid(unsafe_code)]

pub mod binding;
mod capture;
pub mod energy;
pub mod environment;
pub mod frameworks;
pub mod guard;
pub mod hosts;
pub mod input;
pub mod machine;
pub mod ordered;
pub mod other_abi;
pub mod output;
pub mod plan;
pub mod program;
mod recorder;
pub mod report;
pub mod run;
mod setup;
mod sinks;
pub mod spawned;
pub mod spool;
pub mod step;
mod tell;
pub mod turns;
pub mod used;
pub mod verdict;

pub use run::run;
