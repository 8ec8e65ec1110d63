//! One-sided communication: windows, the operations on them and their synchronization.
//!
//! | file | subject |
//! | --- | --- |
//! | `lib.rs` | the window and what is asked of it without communicating |
//! | `create.rs` | the functions that make and free windows |
//! | `make.rs` | making a window: what its processes send each other, and the paths that follow |
//! | `hints.rs` | the hints of a window |
//! | `attach.rs` | memory of dynamic windows |
//! | `operation.rs` | put, get, accumulate and their kin as values, and their checks |
//! | `access.rs` | which way they go |
//! | `reach.rs` | the ways to a target's memory: mapped here, or through the system |
//! | `rma.rs` | short operations left for a target that is reached through the system |
//! | `combine.rs` | accumulating packed elements |
//! | `epoch.rs` | which epochs are open, and what may be called in them |
//! | `sync.rs` | fence, post-start-complete-wait, flush |
//! | `lock.rs` | locks |
//! | `server.rs` | operations as messages, where a target's memory is out of reach |
//! | `task.rs`, `wire.rs`, `queue.rs` | an operation under way as messages; the messages; lock queues of a target |
//!
//! The protocol and the shared format are described in `docs/windows.md`.

#![forbid(unsafe_code)]

pub mod access;
mod attach;
mod combine;
mod create;
mod epoch;
mod hints;
mod lock;
mod make;
pub mod operation;
mod queue;
mod reach;
mod rma;
mod server;
mod sync;
mod task;
mod wire;

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicIsize, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use margay_run_engine::ProgressHook;
use margay_run_mpi::attribute::{Access, Attributes, Carrier};
use margay_run_mpi::comm::Comm;
use margay_run_mpi::constants::keyval::*;
use margay_run_mpi::constants::sentinel::MPI_PROC_NULL;
use margay_run_mpi::constants::win::MPI_WIN_NULL;
use margay_run_mpi::constants::window::*;
use margay_run_mpi::errhandler::Action;
use margay_run_mpi::error::*;
use margay_run_mpi::handle::{Kind, Table};
use margay_run_mpi::info::Info;
use margay_run_mpi::{Mpi, fail};
use margay_sys_os::cma::Peer;
use margay_sys_os::lock::{RankGuard, RankLock};
use margay_sys_os::sweep::Sweep;
use margay_sys_os::user::Mem;
use margay_sys_shm::window::Block;

use attach::Attachments;
use epoch::Epoch;
use make::Made;
use rma::OriginQueue;
use server::Serving;

/// The windows of a rank.
pub struct WindowsState {
    table: RankLock<Table<Arc<Window>>>,
    /// Stores to windows may be on their way that no fence has followed.
    unsettled: AtomicBool,
}

impl Default for WindowsState {
    fn default() -> WindowsState {
        WindowsState {
            table: RankLock::new(Table::new(Kind::Win)),
            unsettled: AtomicBool::new(false),
        }
    }
}

impl WindowsState {
    /// Returns the lock around the table, to be made cheap where the program has one thread.
    #[must_use]
    pub fn lock(&self) -> &RankLock<Table<Arc<Window>>> {
        &self.table
    }
}

/// The functions of one-sided communication, on a rank's MPI and its windows.
// Methods on the way of short operations take it by value: two registers, while a reference would
// need memory.
#[derive(Clone, Copy)]
pub struct Windows<'a> {
    mpi: &'a Mpi,
    state: &'a WindowsState,
}

impl<'a> Windows<'a> {
    /// Both belong to the same rank.
    #[inline(always)]
    #[must_use]
    pub fn new(mpi: &'a Mpi, state: &'a WindowsState) -> Windows<'a> {
        Windows { mpi, state }
    }

    #[inline(always)]
    fn table(self) -> RankGuard<'a, Table<Arc<Window>>> {
        self.state.table.lock()
    }
}

/// How a window was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavor {
    /// `MPI_Win_create`
    Create,
    /// `MPI_Win_allocate`
    Allocate,
    /// `MPI_Win_create_dynamic`
    Dynamic,
    /// `MPI_Win_allocate_shared`
    Shared,
}

/// A window. Immutable but for its epochs, attached memory, name, attributes and the like.
// Fields: what each operation asks of a window stands side by side; parts of it would be one more
// way to go for all of them.
pub struct Window {
    handle: AtomicU32,
    /// Of the same processes as the communicator that it was made from, never seen by the program.
    comm: Arc<Comm>,
    flavor: Flavor,
    /// What a target knows of each other.
    targets: Box<[Target]>,
    /// What goes back when the window is freed.
    made: Made,
    /// From which end long operands of this window's operations are gone through.
    sweep: Sweep,
    /// Where the ranks share memory: the control block.
    block: Option<Arc<Block>>,
    /// The queues, if they are in use.
    hook: Option<Arc<dyn ProgressHook>>,
    /// Operations may be left for some target.
    uses_queues: bool,
    /// All ranks may attach to each other.
    attach: bool,
    /// Where some target's memory is out of reach.
    serving: Option<Serving>,
    attachments: Arc<Mutex<Attachments>>,
    /// An epoch is open that covers all targets.
    all: AtomicBool,
    /// The open epoch is one of locks.
    passive: AtomicBool,
    epoch: Mutex<Epoch>,
    /// Calls in which programs poll.
    polls: AtomicU32,
    values: Values,
    state: Mutex<State>,
}

/// One process's part of a window.
struct Target {
    /// Number of the process.
    process: u32,
    /// As which it is written to.
    peer: Peer,
    base: u64,
    size: u64,
    /// Bytes of one displacement.
    unit: i64,
    /// An epoch is open that covers it: a kind of [`epoch`].
    open: AtomicU8,
    path: AccessPath,
}

/// How this process gets to a target's memory.
enum AccessPath {
    /// By loads and stores.
    Mapped(Mem),
    /// Through the system; short operations by leaving them for the target, if it has an RMA queue.
    Attach(Option<Box<OriginQueue>>),
    /// By asking the target.
    Message,
    /// The target has several pieces of memory, each with its way.
    Dynamic,
}

/// The values of predefined attributes, at addresses that a program may keep.
struct Values {
    base: usize,
    size: AtomicIsize,
    unit: AtomicI32,
    flavor: AtomicI32,
    model: AtomicI32,
}

/// What the program may change.
struct State {
    errhandler: u32,
    name: String,
    attributes: Attributes,
    info: Info,
}

/// A part of a window as `MPI_Win_shared_query` returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its size in bytes.
    pub size: u64,
    /// Bytes of one displacement.
    pub unit: u64,
    /// Its address in this process, 0 when it has none.
    pub address: usize,
}

impl Flavor {
    fn value(self) -> i32 {
        match self {
            Flavor::Create => MPI_WIN_FLAVOR_CREATE,
            Flavor::Allocate => MPI_WIN_FLAVOR_ALLOCATE,
            Flavor::Dynamic => MPI_WIN_FLAVOR_DYNAMIC,
            Flavor::Shared => MPI_WIN_FLAVOR_SHARED,
        }
    }
}

impl Window {
    /// Returns the handle.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.handle.load(Ordering::Relaxed)
    }

    /// Returns the communicator of its processes.
    #[must_use]
    pub fn comm(&self) -> &Arc<Comm> {
        &self.comm
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> String {
        self.state().name.clone()
    }

    /// Names it.
    pub fn set_name(&self, name: String) {
        self.state().name = name;
    }

    /// Returns the handle of its error handler.
    #[must_use]
    pub fn errhandler(&self) -> u32 {
        self.state().errhandler
    }

    /// Access to the attributes.
    pub fn attributes(&self) -> impl std::ops::DerefMut<Target = Attributes> + '_ {
        Access::new(self.state(), |s| &s.attributes, |s| &mut s.attributes)
    }

    /// Returns the value of a predefined attribute as `MPI_Win_get_attr` gives it: the base, or
    /// where the number stands.
    #[must_use]
    pub fn predefined_attribute(&self, key: i32) -> Option<usize> {
        let values = &self.values;
        Some(match key {
            MPI_WIN_BASE => values.base,
            MPI_WIN_SIZE => std::ptr::from_ref(&values.size).addr(),
            MPI_WIN_DISP_UNIT => std::ptr::from_ref(&values.unit).addr(),
            MPI_WIN_CREATE_FLAVOR => std::ptr::from_ref(&values.flavor).addr(),
            MPI_WIN_MODEL => std::ptr::from_ref(&values.model).addr(),
            _ => return None,
        })
    }

    /// For messages: "window 'halo' (4 ranks)".
    #[must_use]
    pub fn describe(&self) -> String {
        let n = self.comm.size();
        let ranks = format!("{n} {}", if n == 1 { "rank" } else { "ranks" });
        let name = self.name();
        if name.is_empty() {
            format!("the window ({ranks})")
        } else {
            format!("window '{name}' ({ranks})")
        }
    }

    /// Returns the target of a rank that the program names; `None` is `MPI_PROC_NULL`.
    #[inline]
    fn target(&self, rank: i32) -> Result<Option<u32>> {
        match self.targets.get(rank as usize) {
            // Negative ranks are beyond every window.
            Some(_) => Ok(Some(rank as u32)),
            None if rank == MPI_PROC_NULL => Ok(None),
            None => fail!(MPI_ERR_RANK, "rank {rank} is not in {}", self.describe()),
        }
    }

    fn rank(&self) -> u32 {
        self.comm.rank
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no callback runs under this lock")
    }

    fn epoch(&self) -> MutexGuard<'_, Epoch> {
        self.epoch.lock().expect("no panic under this lock")
    }

    fn attachments(&self) -> MutexGuard<'_, Attachments> {
        self.attachments.lock().expect("no panic under this lock")
    }
}

impl Windows<'_> {
    /// Returns the window of a handle.
    ///
    /// # Errors
    /// When there is none.
    #[inline]
    pub fn window(&self, handle: u32) -> Result<Arc<Window>> {
        match self.table().get(handle) {
            Some(window) => Ok(window.clone()),
            None => Err(unknown(handle)),
        }
    }

    /// Returns what to do about an error on a window; `None` if the handle is not one of a window.
    #[must_use]
    pub fn error_action(&self, handle: u32) -> Option<Action> {
        let window = self.table().get(handle).cloned()?;
        Some(self.mpi.action_of(window.errhandler(), handle))
    }

    /// `MPI_Win_get_group`: the handle of a new group.
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn group(&self, handle: u32) -> Result<u32> {
        let comm = self.window(handle)?.comm.clone();
        let session = comm.state().session;
        self.mpi.group_add(comm.group.clone(), session)
    }

    /// `MPI_Win_shared_query`; `MPI_PROC_NULL` asks for the first part that has bytes.
    ///
    /// # Errors
    /// When the rank is not in the window or the window is dynamic.
    pub fn part(&self, handle: u32, rank: i32) -> Result<Part> {
        let window = self.window(handle)?;
        if window.flavor == Flavor::Dynamic {
            fail!(
                MPI_ERR_RMA_FLAVOR,
                "{} is dynamic; only other windows have parts that can be asked for",
                window.describe()
            );
        }
        let part = |rank: usize| {
            let target = &window.targets[rank];
            let none = target.size == 0 && hints::is_set(&window.info(), "alloc_shared_noncontig");
            let address = match &target.path {
                _ if none => None,
                AccessPath::Mapped(mem) => Some(mem.address()),
                // This rank's memory is always here.
                _ => (rank as u32 == window.rank()).then_some(window.values.base),
            };
            Part {
                size: address.map_or(0, |_| target.size),
                unit: target.unit as u64,
                address: address.unwrap_or(0),
            }
        };
        Ok(match window.target(rank)? {
            Some(target) => part(target as usize),
            None => {
                let first = window.targets.iter().position(|target| target.size > 0);
                let nothing = Part {
                    size: 0,
                    unit: 1,
                    address: 0,
                };
                first.map_or(nothing, part)
            }
        })
    }

    /// `MPI_Win_set_errhandler`
    ///
    /// # Errors
    /// When a handle is invalid.
    pub fn set_errhandler(&self, handle: u32, errhandler: u32) -> Result<()> {
        let window = self.window(handle)?;
        self.mpi.errhandler_replace(errhandler, |new| {
            std::mem::replace(&mut window.state().errhandler, new)
        })
    }

    /// `MPI_Win_get_errhandler`: a handle that the program has to free.
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn get_errhandler(&self, handle: u32) -> Result<u32> {
        let errhandler = self.window(handle)?.errhandler();
        self.mpi.errhandler_share(errhandler)
    }

    /// `MPI_Win_call_errhandler` is raising an error of the program.
    ///
    /// # Errors
    /// Always, unless the window is invalid, which is another error.
    pub fn call_errhandler(&self, handle: u32, code: i32) -> Error {
        match self.window(handle) {
            Err(error) => error,
            Ok(window) => Error::new(
                code,
                format!(
                    "the program raised {} on {}",
                    self.mpi.error_name(code),
                    window.describe()
                ),
            ),
        }
    }

    /// `MPI_Win_set_attr`
    ///
    /// # Errors
    /// As [`Mpi::attribute_set`].
    pub fn set_attribute(&self, handle: u32, key: i32, value: usize) -> Result<()> {
        let window = self.window(handle)?;
        self.mpi
            .attribute_set(Carrier::Win, handle, key, value, || window.attributes())
    }

    /// `MPI_Win_get_attr`
    ///
    /// # Errors
    /// As [`Mpi::attribute_get`].
    pub fn attribute(&self, handle: u32, key: i32) -> Result<Option<usize>> {
        let window = self.window(handle)?;
        if let Some(value) = window.predefined_attribute(key) {
            let has = window.flavor != Flavor::Dynamic || key != MPI_WIN_BASE;
            return Ok(Some(if has { value } else { 0 }));
        }
        let attributes = window.attributes().snapshot();
        self.mpi.attribute_get(Carrier::Win, key, &attributes)
    }

    /// `MPI_Win_delete_attr`
    ///
    /// # Errors
    /// As [`Mpi::attribute_delete`].
    pub fn delete_attribute(&self, handle: u32, key: i32) -> Result<()> {
        let window = self.window(handle)?;
        self.mpi
            .attribute_delete(Carrier::Win, handle, key, || window.attributes())
    }
}

#[cold]
fn unknown(handle: u32) -> Error {
    let text = match handle {
        MPI_WIN_NULL => "the window is MPI_WIN_NULL".to_string(),
        _ => format!("{handle:#x} is not a window; was it freed?"),
    };
    Error::new(MPI_ERR_WIN, text)
}
