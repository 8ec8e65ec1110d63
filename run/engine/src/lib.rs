//! What executes inside a program that passes messages: one engine for every library.
//!
//! [`Rank`] is what the libraries hold: an [`Engine`] behind a lock, and the calls that wait. The
//! engine is a state machine over a [`margay_net_transport::Transport`]; matching is
//! `margay-core-matching`'s, collectives are schedules of `margay-core-schedule`.

#![forbid(unsafe_code)]

mod call;
mod callbacks;
mod collective;
mod data;
mod engine;
mod failures;
mod helper;
pub mod monitor;
pub mod node;
pub mod others;
mod policy;
mod progress_hook;
mod progress_thread;
mod rank;
mod script;
mod slab;
mod spare;
mod wait;

pub use call::{Arrived, Failed, Limits, Mode, MsgId, Outcome, Pending, ReqId};
pub use callbacks::Callbacks;
pub use collective::{Buffer, Child, Collective, Execution, Operator, Reduction, UserOp, combine};
pub use data::{Data, copy};
pub use engine::{Engine, Sent, Task};
pub use margay_core_matching::{Envelope, Pattern};
pub use margay_net_platform::{
    Attending, Clock, Contact, Crossing, JobAddress, Outside, Peers, SystemClock,
};
pub use margay_net_transport::{SHORT, WHOLE};
pub use policy::Policy;
pub use progress_hook::ProgressHook;
pub use progress_thread::ProgressThread;
pub use rank::Rank;
pub use script::{Port, Script, Started};
