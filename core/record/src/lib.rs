//! The flight recorder: the last library calls of each thread of a rank, in memory that survives
//! the process.
//!
//! It is one note of each rank (`docs/segment.md` draws it): a header, a table of call sites, and a
//! ring of records of 32 bytes for each thread. [`Recorder`] writes it, [`Reader`] reads it from
//! any process at any time, whatever its words are: the rank may be in the middle of a record,
//! dead, or have written over its memory.
//!
//! A thread that makes more than 500,000 calls a second would spend its time on records. Its calls
//! are counted then, by call site and peer, and the sums are entered as records of
//! [`Kind::Total`], until it becomes slower or waits.

#![forbid(unsafe_code)]

mod counted;
mod format;
mod origin;
mod piece;
mod read;
mod teams;
mod write;

pub use format::{KEY, Kind, NO_PEER, Record, Shape, Site, VERSION};
pub use origin::{NameCell, Origin};
pub use piece::Piece;
pub use read::{Clock, Damaged, Lane, Reader, moment};
pub use teams::{KeptMember, KeptTeam, TEAMS_KEY, TEAMS_WORDS, kept_teams, take_lines};
pub use write::{Call, Message, Recorder, Timer};
