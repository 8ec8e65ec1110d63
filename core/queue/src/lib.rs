//! The queue of jobs as values: which jobs start now and why the others wait ([`decide`]), what a
//! job asks for ([`Wishes`]), and how batch scripts say it ([`script`]). Time is a parameter, in
//! whole seconds since any fixed moment; nothing here reads a clock, a file or the environment.
#![forbid(unsafe_code)]

mod decide;
mod job;
mod pattern;
pub mod script;
mod time;
mod wishes;

pub use decide::{Decision, Reason, decide, refusal};
pub use job::{After, Dependency, End, Job, JobId, Phase};
pub use pattern::{Names, expand};
pub use time::{duration, shown};
pub use wishes::{Array, Dialect, Joined, Output, Size, Warning, Wishes};
