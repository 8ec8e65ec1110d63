//! The queue of jobs as values: which jobs start now and why the others wait ([`Scheduler`]), what
//! administrators say ([`Settings`]), what a job asks for ([`Wishes`]), how batch scripts say it
//! ([`script`]), and how recorded workloads would have run ([`replay`]). Time is a parameter, in
//! whole seconds since any fixed moment; nothing here reads a clock, a file or the environment.
#![forbid(unsafe_code)]

mod begin;
mod job;
mod pass;
mod pattern;
mod places;
mod profile;
pub mod replay;
mod rules;
mod scheduler;
pub mod script;
mod settings;
pub mod swf;
mod time;
mod usage;
mod wishes;

pub use begin::{BeginDay, BeginTime, LocalTime};
pub use job::{After, Awaited, Dependency, End, Job, JobId, Part, Phase, Tag, TaskDependency};
pub use pass::{Decision, Outside, Reason, refusal};
pub use pattern::{Names, expand};
pub use places::Host;
pub use rules::{AccountRules, Backfill, Gang, QUEUE, QueueRules, Reservation, Settings};
pub use scheduler::{Ends, Scheduler};
pub use time::{duration, shown};
pub use wishes::{Array, Dialect, Joined, MailEvent, Output, Size, Warning, Wishes, ranges};
