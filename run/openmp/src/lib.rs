//! What OpenMP means, without C: teams and their members, work shares, tasks, locks, internal control variables.
//!
//! Members of teams are not threads: see [`team`]. The C symbols are in `abi/gomp`.
#![forbid(unsafe_code)]

pub mod affinity;
pub mod allocator;
mod claims;
mod depend;
pub mod environment;
mod host;
pub mod icv;
pub mod lock;
mod machine;
mod node;
mod reduction;
pub mod task;
pub mod team;
mod variables;
pub mod work;

pub use depend::Access;

/// Begins, when the library is loaded: reads the environment, and sets the scheduler up by it.
pub fn start() {
    host::configure(environment::get());
    host::let_spinning_members_take_turns();
}
