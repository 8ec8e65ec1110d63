//! The jobs that run on this machine: how one finds them, and the shared memory of each.
//!
//! There is no daemon and no list. Each launcher holds its job's segment open, so the descriptors
//! of the running processes are the registry: [`Jobs`] reads them and joins the segments.
#![forbid(unsafe_code)]

mod jobs;

pub use jobs::{Jobs, has_launchers};
