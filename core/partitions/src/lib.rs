//! Partitions of a machine as values: named sets of nodes in a tree, which may overlap, with
//! permissions and what is known of their scheduling ([`Table`]), their stored text
//! ([`Table::text`]). Nothing here reads a clock, a file or the environment.
//!
//! The idea: Intel's Paragon. Four partitions are always there: `.` (all nodes), `.compute`,
//! `.service` and `.io`. Users make others below them.
#![forbid(unsafe_code)]

mod attributes;
mod refused;
mod shape;
mod table;
mod text;
mod turns;

pub use attributes::{MOST_PRIORITY, Mode, Right, Scheduling};
pub use refused::Refused;
pub use shape::{Shape, Wanted};
pub use table::{COMPUTE, Caller, Changes, IO, Partition, ROOT, Table, path};
pub use turns::{Order, Request, Seen, Turns};
