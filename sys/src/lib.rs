//! The operating system and the processor, behind safe and typed wrappers.
//!
//! This is the one crate of the workspace, besides the C shims under `abi/`, that may contain
//! `unsafe` and system calls. Each module wraps one mechanism so that the crates above can say
//! `#![forbid(unsafe_code)]`:
//!
//! | module | mechanism |
//! | --- | --- |
//! | [`segment`] | the job's shared memory (one memfd), its header and the cell of every rank |
//! | [`ring`] | single-producer single-consumer ring of cache lines with a byte area |
//! | [`pool`] | a rank's pool of bulk chunks, filled by it and emptied by its peers |
//! | [`transfer`] | the cell over which two ranks share the copying of one message |
//! | [`arena`] | memory that a rank shares on request |
//! | [`board`] | a communicator's control block: a slot a rank, arrival counter, release word |
//! | [`window`] | a window's control block: locks, counters and the list of attached memory |
//! | [`inbox`] | where an origin leaves one-sided operations, until the target or it itself does them |
//! | [`turn`] | the lock under which ranks accumulate to one target |
//! | [`user`] | memory that the user claims to own: checked copies, strided copies |
//! | [`cma`] | cross-memory attach: reading and writing another process |
//! | [`doorbell`] | the futex word on which a rank sleeps |
//! | [`markers`] | a rank's lights and text for displays (the Program Marker Array) |
//! | [`robust`] | lock and barrier of processes, any of which may die |
//! | [`group`] | the arena of a group of processes: one memfd at the same address in all of them |
//! | [`memory`] | how much memory there is, on which node it lies, binding it |
//! | [`openmp`] | the OpenMP runtime that is in the process, whichever it is |
//! | [`heap`] | memory for the program, with a description in front of it |
//! | [`identity`] | sets of thread-local variables that a stack takes on |
//! | [`link`] | shared references to what is never freed, boxes that are handed over |
//! | [`outlined`] | functions and data into which a compiler outlines OpenMP constructs |
//! | [`slot`] | the context of what runs here |
//! | [`lock`] | a lock that costs nothing while a rank has one thread |
//! | [`cpu`] | usable cores, binding, yielding, pausing |
//! | [`clock`] | monotonic time |
//! | [`process`] | starting processes, waiting for them, ending whole families |
//! | [`signal`] | names of signals, receiving and sending them |
//! | [`file`] | files: access at offsets from claimed memory, sizes, locks on ranges |
//! | [`port`] | named sockets over which processes without common memory meet |
//! | [`descriptor`] | waiting for many descriptors, writing without blocking |
//! | [`fence`] | a full fence between threads that only the rare side pays for |
//! | [`deque`] | a worker's deque, with thieves at the other end |
//! | [`job`] | closures in one word, lent from a stack or in a recycled node, and who waits for them |
//! | [`preempt`] | interrupting a thread that computes for long, while it is in the program's own code |
//! | [`sleepers`] | who of several sleeps and may be woken for work |
//! | [`tally`] | how a forker learns that what it forked is done |
//! | [`shelf`] | counted pointers that one thread lays out and others look at |
//! | [`fiber`] | stacks of their own and the switch between them |
//! | [`terminal`] | the foreground of a terminal, pseudo-terminals |

#[cfg(not(loom))]
pub mod arena;
#[cfg(not(loom))]
pub mod board;
#[cfg(not(loom))]
pub mod clock;
#[cfg(not(loom))]
pub mod cma;
#[cfg(not(loom))]
pub mod cpu;
pub mod deque;
#[cfg(not(loom))]
pub mod descriptor;
pub mod doorbell;
pub mod fence;
#[cfg(not(loom))]
pub mod fiber;
#[cfg(not(loom))]
pub mod file;
#[cfg(not(loom))]
pub mod group;
#[cfg(not(loom))]
pub mod heap;
#[cfg(not(loom))]
pub mod identity;
pub mod inbox;
#[cfg(not(loom))]
pub mod job;
#[cfg(not(loom))]
pub mod link;
#[cfg(not(loom))]
pub mod lock;
#[cfg(not(loom))]
pub mod markers;
#[cfg(not(loom))]
pub mod memory;
#[cfg(not(loom))]
pub mod openmp;
#[cfg(not(loom))]
pub mod outlined;
#[cfg(not(loom))]
pub mod pool;
#[cfg(not(loom))]
pub mod port;
#[cfg(not(loom))]
pub mod preempt;
#[cfg(not(loom))]
pub mod process;
pub mod ring;
pub mod robust;
#[cfg(not(loom))]
pub mod segment;
#[cfg(not(loom))]
pub mod shelf;
#[cfg(not(loom))]
pub mod signal;
pub mod sleepers;
#[cfg(not(loom))]
pub mod slot;
#[cfg(not(loom))]
mod sweep;
mod sync;
pub mod tally;
#[cfg(not(loom))]
pub mod terminal;
#[cfg(not(loom))]
pub mod transfer;
pub mod turn;
#[cfg(not(loom))]
pub mod user;
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod vectors;
#[cfg(not(loom))]
pub mod window;
