//! What a scheduler of threads is made of, behind safe and typed wrappers.
//!
//! `sys/` is the one place of the workspace, besides the C shims under `abi/`, that may contain
//! `unsafe` and system calls. Each module wraps one mechanism so that the crates above can say
//! `#![forbid(unsafe_code)]`:
//!
//! | module | mechanism |
//! | --- | --- |
//! | [`tls_block`] | sets of thread-local variables that a stack takes on |
//! | [`outlined`] | functions and data into which a compiler outlines OpenMP constructs |
//! | [`reduction_table`] | tables by which a compiler registers reductions of tasks |
//! | [`task_block`] | memory of tasks whose arguments the program writes itself |
//! | [`border`] | on which side a stack is: in the program, or in the runtime that it calls |
//! | `here` | what each set of thread-local variables has of this, and how it is found |
//! | [`caller`] | where a program called the library, and from where that calls the program |
//! | [`slot`] | the context of what runs here |
//! | [`deque`] | a worker's deque, with thieves at the other end |
//! | [`job`] | closures in one word, lent from a stack or in a recycled node, and who waits for them |
//! | [`preempt`] | interrupting a thread that computes or waits for long, where that is safe |
//! | [`sleepers`] | which of several workers sleep and may be woken for work |
//! | [`claims`] | which worker runs which member of a team |
//! | [`child_count`] | how many children of a task have not finished |
//! | [`wake_queue`] | fibers of a worker that other threads have woken |
//! | [`tally`] | how a forker learns that what it forked is done |
//! | [`shelf`] | counted pointers that one thread publishes and others read |
//! | [`fiber`] | stacks of their own and the switch between them |
//! | [`inspect`] | what debuggers and `margay threads` find in a process |

#[cfg(not(loom))]
pub mod border;
#[cfg(not(loom))]
pub mod caller;
pub mod child_count;
pub mod claims;
pub mod deque;
#[cfg(not(loom))]
pub mod fiber;
#[cfg(not(loom))]
mod here;
#[cfg(not(loom))]
pub mod inspect;
#[cfg(not(loom))]
pub mod job;
#[cfg(not(loom))]
pub mod outlined;
#[cfg(not(loom))]
pub mod preempt;
#[cfg(all(test, loom))]
mod protocols;
pub mod reduction_table;
pub mod shelf;
pub mod sleepers;
#[cfg(not(loom))]
pub mod slot;
#[cfg(not(loom))]
pub mod tally;
#[cfg(not(loom))]
pub mod task_block;
#[cfg(not(loom))]
pub mod tls_block;
pub mod wake_queue;
