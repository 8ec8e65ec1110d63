//! The store of the parallel file system: files striped over directories, with parity, checksums
//! and a log, so that a crash at any moment followed by the loss of as many directories as there
//! is parity leaves every byte right that was synced.
//!
//! A [`Store`] stands on [`Disk`]s, one for each stripe directory; [`Folder`] is one over a
//! directory of the system. The stored bytes are drawn in docs/pfs-format.md.
//!
//! All types may be shared between threads.

#![forbid(unsafe_code)]

mod acl;
mod array;
mod change;
mod charge;
mod codec;
mod counted;
mod data;
mod disk;
mod fault;
mod file;
mod folder;
mod holes;
mod leaving;
mod log;
mod mend;
mod names;
mod ops;
mod pace;
mod quota;
mod reserve;
mod slots;
mod spread;
mod state;
mod store;
mod sums;
mod watched;
mod writers;

pub use change::{Attr, kind};
pub use counted::{Counted, Traffic};
pub use disk::{Disk, PARTS, Part, Pending, Space, Write};
pub use fault::{Fault, Result};
pub use folder::Folder;
pub use holes::Allocating;
pub use names::{Entry, Making, ROOT, Renaming, Setting};
pub use ops::{Known, Usage};
pub use quota::{Amount, Owner, Quota};
pub use state::{Found, Health, Member, Read, State, read as read_state};
pub use store::{Clock, Making as StoreMaking, Progress, Store};
pub use watched::{Watched, in_time};
