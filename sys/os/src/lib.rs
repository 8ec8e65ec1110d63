//! The operating system and the processor, behind safe and typed wrappers.
//!
//! `sys/` is the one place of the workspace, besides the C shims under `abi/`, that may contain
//! `unsafe` and system calls. Each module wraps one mechanism so that the crates above can say
//! `#![forbid(unsafe_code)]`:
//!
//! | module | mechanism |
//! | --- | --- |
//! | [`user`] | memory that the user claims to own: checked copies, strided copies |
//! | [`cma`] | cross-memory attach: reading and writing another process |
//! | [`event_count`] | the futex word on which a rank sleeps |
//! | [`memory`] | how much memory there is, on which node it lies, binding it |
//! | [`kept`] | rows of atomic words in memory that something else keeps |
//! | [`heap`] | memory for the program, with a description in front of it |
//! | [`lock`] | a lock that costs nothing while a rank has one thread |
//! | [`mod@copy`] | copies of bytes, without a slow case of the C library's |
//! | [`crew`] | threads that help with work in pieces |
//! | [`cpu`] | usable cores, binding, yielding, pausing |
//! | [`clock`] | monotonic time |
//! | [`crash`] | what a process writes down when a signal is about to kill it |
//! | [`credentials`] | users: their names, who owns a process, becoming one |
//! | [`process`] | starting processes, waiting for them, ending whole families |
//! | [`signal`] | names of signals, receiving and sending them |
//! | [`extent`] | ranges of plain files: pieces at offsets, taking space and giving it back |
//! | [`fuse_device`] | the kernel's end of a file system in a process |
//! | [`mod@file`] | files: access at offsets from claimed memory, sizes, locks on ranges |
//! | [`packets`] | sockets that keep messages apart, memory that both ends have |
//! | [`port`] | named sockets over which processes without common memory meet |
//! | [`services`] | published names, which vanish with the process that published them |
//! | [`counters`] | what the processor and the system count of other processes |
//! | [`descriptor`] | waiting for many descriptors, writing without blocking |
//! | [`fence`] | a full fence between threads that only the rare side pays for |
//! | [`static_ref`] | shared references to what is never freed, boxes that are handed over |
//! | [`symbols`] | symbols by name, libraries, the code of a library |
//! | [`pmix`] | the client of PMIx, by which processes of a foreign launcher exchange values |
//! | [`python`] | the interpreter of Python: its structures, from where the calling thread has called |
//! | [`postgres`] | the client of PostgreSQL |
//! | [`terminal`] | the foreground of a terminal, pseudo-terminals |
//! | [`trace`] | registers and stacks of threads of other processes |
//! | [`thread_end`] | what is to be done when a thread has ended |
//! | [`sync`] | atomics and cells, those of loom where a model is checked |

#[cfg(not(loom))]
pub mod clock;
#[cfg(not(loom))]
pub mod cma;
pub mod copy;
#[cfg(not(loom))]
pub mod counters;
#[cfg(not(loom))]
pub mod cpu;
#[cfg(not(loom))]
pub mod crash;
#[cfg(not(loom))]
pub mod credentials;
#[cfg(not(loom))]
pub mod crew;
#[cfg(not(loom))]
pub mod descriptor;
pub mod event_count;
#[cfg(not(loom))]
pub mod extent;
pub mod fence;
#[cfg(not(loom))]
pub mod file;
#[cfg(not(loom))]
pub mod fuse_device;
#[cfg(not(loom))]
pub mod heap;
#[cfg(not(loom))]
pub mod kept;
#[cfg(not(loom))]
pub mod lock;
#[cfg(not(loom))]
pub mod memory;
#[cfg(not(loom))]
pub mod packets;
#[cfg(not(loom))]
pub mod pmix;
#[cfg(not(loom))]
pub mod port;
#[cfg(not(loom))]
pub mod postgres;
#[cfg(not(loom))]
pub mod process;
pub mod processor;
#[cfg(not(loom))]
pub mod python;
#[cfg(not(loom))]
pub mod services;
#[cfg(not(loom))]
pub mod signal;
#[cfg(not(loom))]
pub mod sockets;
pub mod static_ref;
#[cfg(not(loom))]
pub mod sweep;
#[cfg(not(loom))]
pub mod symbols;
pub mod sync;
#[cfg(not(loom))]
pub mod terminal;
#[cfg(not(loom))]
pub mod thread_end;
#[cfg(not(loom))]
pub mod trace;
#[cfg(not(loom))]
pub mod user;
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod vectors;
