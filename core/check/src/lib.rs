//! What is wrong with the calls of an MPI program. Records of calls come in, findings go out; where
//! they come from and how places become files and lines is somebody else's business.
//!
//! | module | subject |
//! | --- | --- |
//! | `record` | records as bytes |
//! | `finding` | what was found, in words and places |
//! | `checker` | records in the order in which things happened |
//! | `calls` | what each call means |
//! | `arguments` | arguments that are wrong |
//! | `comm` | communicators and collective calls |
//! | `messages` | which send belongs to which receive; races |
//! | `request` | requests: lost, unused, in use |
//! | `window` | epochs and accesses that conflict |
//! | `accesses` | accesses to a window by their bytes |
//! | `buffers` | memory that calls use |
//! | `uses` | memory that open calls use by its addresses |
//! | `takers` | receives of any source that others are compared with |
//! | `threads` | calls of several threads |
//! | `types` | datatypes as signatures |
//! | `state` | what is known of a process |
//!
//! What ranks send to each other is compared only within the job's first MPI_COMM_WORLD and within
//! communicators, not between them. Nothing is reported that may be right: where records do not say
//! enough, calls are taken for right.
#![forbid(unsafe_code)]

mod accesses;
mod arguments;
mod buffers;
mod calls;
mod checker;
mod comm;
mod finding;
mod local;
mod messages;
mod objects;
mod record;
mod request;
mod state;
mod takers;
mod threads;
mod types;
mod uses;
mod window;

pub use checker::{Checker, End, Ended};
pub use finding::{Call, Finding, Kind, Part, Site};
pub use record::{Item, MOST_BYTES, Phase, Record};
