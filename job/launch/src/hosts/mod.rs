//! Jobs on several hosts: one agent on each, started by a remote shell, and a relay here.
//!
//! ```text
//! launcher <- guard's protocol, pipes -> relay <- remote shell -> agent -> guard -> ranks
//! ```
//!
//! The relay is a process that stands to the launcher as the guard of a job on one host does: it
//! speaks the same protocol, has the other ends of the ranks' pipes, and ends everything when the
//! launcher is gone. An agent does on its host what the launcher does otherwise. The bytes between
//! them are drawn in `docs/wire.md`. Beyond the width of the tree, agents start those of other
//! hosts and pass on what these and the relay say to each other: a host's end of a wide job is one
//! remote shell for each of its branches, and the relay is the only one that understands messages.
//!
//! | module | subject |
//! | --- | --- |
//! | [`wire`] | messages between relay and agents |
//! | `task` | an agent's task, as bytes |
//! | `stage` | programs that are sent to the hosts |
//! | `shell` | the command of the remote shell |
//! | `relay` | the process that stands between the launcher and the agents |
//! | `connection` | the relay's end of one agent |
//! | [`agent`] | the agent |
//! | `branches` | the hosts that are reached through an agent |
//! | `asks` | questions of ranks, which the relay answers |
//! | `local` | the ranks of the agent's host |
//! | `streams` | what they write and read |
//! | `looks` | where the ranks of the agent's host are, for who asks the relay |
//! | `locations` | the message with all hosts and the locations of the ranks |
//! | [`names`] | names of hosts in lists |
//! | `mirror` | what one host learns of the ranks of others |

pub mod agent;
mod asks;
mod branches;
mod connection;
mod local;
mod locations;
mod looks;
mod mirror;
pub mod names;
pub(crate) mod relay;
mod shell;
mod stage;
mod streams;
pub(crate) mod task;
pub mod wire;

pub use shell::{
    is_here as is_this_machine, named as named_shell, program_on, words as remote_words,
};
