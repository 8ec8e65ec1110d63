//! What OpenMP means, without C: teams and their members, work shares, tasks, locks, internal
//! control variables. A [`Runtime`] owns what the threads of a program share.
//!
//! Members of teams are not threads: see [`team`]. The C symbols are in `abi/gomp`.
#![forbid(unsafe_code)]

pub mod affinity;
pub mod allocator;
pub mod bundled;
pub mod calls;
mod depend;
pub mod environment;
mod few;
pub mod icv;
pub mod lock;
mod machine;
mod member_limit;
mod node;
mod place_list;
mod reduction;
mod runtime;
mod scheduler;
mod spare;
pub mod task;
mod task_loop;
pub mod team;
mod tls;
pub mod tool;
pub mod work;

pub use depend::Access;
pub use margay_run_threads::AnyClock;
pub use place_list::PlaceList;
pub use runtime::{Runtime, preempt_members};
