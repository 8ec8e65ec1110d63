//! The memory that the ranks of a job share, behind safe and typed wrappers.
//!
//! `sys/` is the one place of the workspace, besides the C shims under `abi/`, that may contain
//! `unsafe` and system calls. Each module wraps one mechanism so that the crates above can say
//! `#![forbid(unsafe_code)]`:
//!
//! | module | mechanism |
//! | --- | --- |
//! | [`segment`] | the job's shared memory (one memfd) |
//! | [`layout`] | where its parts begin, its header and the cell of every rank |
//! | [`mapping`] | its file and the mappings of it |
//! | [`environment`] | the environment variables by which launcher and ranks find it and each other |
//! | [`registry`] | who the ranks are and what they do |
//! | [`waits`] | what the threads of a rank wait for |
//! | [`allocator`] | its heap, and the arena of each rank |
//! | [`inbox`] | where those leave messages for a rank that have no ring to it |
//! | [`ring`] | single-producer single-consumer ring of cache lines with a byte area |
//! | [`pool`] | a rank's pool of bulk chunks, filled by it and emptied by its peers |
//! | [`transfer`] | the cell over which two ranks share the copying of one message |
//! | [`arena`] | memory that a rank shares on request |
//! | [`board`] | a communicator's control block: a slot a rank, arrival counters, results |
//! | [`doorbell`] | the socket by which a rank is woken that sleeps on sockets |
//! | `owner` | the lock of the table of boards, whose holder may die |
//! | [`window`] | a window's control block: locks, counters and the list of attached memory |
//! | [`rma_queue`] | where an origin leaves one-sided operations, until the target or it itself does them |
//! | [`turn`] | the lock under which ranks accumulate to one target |

#[cfg(not(loom))]
pub mod allocator;
#[cfg(not(loom))]
pub mod arena;
#[cfg(not(loom))]
pub mod board;
#[cfg(not(loom))]
pub mod doorbell;
#[cfg(not(loom))]
pub mod environment;
pub mod inbox;
#[cfg(not(loom))]
pub mod layout;
#[cfg(not(loom))]
pub mod mapping;
mod owner;
#[cfg(not(loom))]
pub mod pool;
#[cfg(not(loom))]
pub mod registry;
pub mod ring;
pub mod rma_queue;
#[cfg(not(loom))]
pub mod segment;
#[cfg(not(loom))]
pub mod transfer;
pub mod turn;
pub mod waits;
#[cfg(not(loom))]
pub mod window;
