//! MPI collectives as schedules.
//!
//! A builder function takes what one process knows about an operation (its rank, the size, the root, counts in bytes) and
//! gives a [`Schedule`]: sends, receives, copies and reductions, and what each of them waits for. Whoever executes it
//! moves the bytes; nothing here does. The step model is described in this crate's README. All functions are pure, so
//! a schedule can be kept and executed again.
//!
//! Results of reductions are combined in an order that depends on nothing but rank, size and the arguments, so that they
//! are the same in each run; those that several processes get are computed once or by the same expression, so that
//! they are the same bits everywhere.
#![forbid(unsafe_code)]

mod args;
mod builder;
mod schedule;
mod tuning;

pub use args::{Block, Inter, InterRoot, Part, Ranks, Reduction};
pub use schedule::{Buffer, Peer, Progress, Region, Schedule, Step, TAGS, Temp};
pub use tuning::Tuning;
