//! What is reported to a tool (OMPT), and what is kept for it with teams and tasks.
//!
//! A thread, for a tool, is what has thread-local variables of its own: a thread of the program, or
//! a member that has a TLS block (`tls.rs`). The first member of a region is the thread that
//! encountered it.
//!
//! The C side of the interface is in `abi/omp`, which [attaches](crate::Runtime::attach_tool) a
//! [`Tool`]; without one, a construct checks one word of its [`Context`] and does nothing else.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use margay_core_openmp::tools::{
    CALLBACKS, Callback, Dependence, Dispatch, Endpoint, FRAME_PROGRAM_POINTER, FRAME_RUNTIME_CFA,
    FRAME_RUNTIME_POINTER, Mutex, Severity, State, Sync, TaskStatus, Work,
};
use margay_sys_os::static_ref::StaticRef;
use margay_sys_threads::caller::{self, Caller};

use crate::node::TaskNode;
use crate::team::Context;

mod inquiry;
mod region;
mod tasks;
mod work;

pub use inquiry::{ParallelInfo, TaskInfo};
pub(crate) use tasks::task_flags;
pub(crate) use work::OpenWork;

/// A word that belongs to the tool (`ompt_data_t`).
pub type Word = AtomicU64;

/// The tool of a process. Lives as long as that.
pub struct Tool {
    /// Passes an event on.
    pub raise: fn(&Event<'_>),
    /// The addresses of the library's instructions.
    pub code: Range<usize>,
    /// The addresses of the tool's functions, by the number of the callback; 0 for none.
    pub callbacks: [AtomicUsize; CALLBACKS],
    /// Of locks and critical constructs it hears only where they are waited for.
    pub only_waits: bool,
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool").finish_non_exhaustive()
    }
}

impl Tool {
    /// Whether the tool wants to be called for this.
    #[must_use]
    pub fn wants(&self, callback: Callback) -> bool {
        self.callbacks[callback as usize].load(Ordering::Relaxed) != 0
    }

    /// The call by which this task of the program has entered the library.
    fn caller(&self, task: &TaskTool) -> Caller {
        let below = task.frame.exit.load(Ordering::Relaxed);
        caller::outside_of(&self.code, below as usize)
    }

    fn raise(&self, event: &Event<'_>) {
        (self.raise)(event);
    }
}

/// What has happened. `code` is the address in the program to which the call returns that made it
/// happen; 0 if it has happened in no call of the program's.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    ParallelBegin {
        encountering: &'a TaskTool,
        region: &'a Word,
        requested: u32,
        flags: u32,
        code: usize,
        /// The region's function; 0 of a league.
        function: usize,
    },
    ParallelEnd {
        region: &'a Word,
        encountering: &'a TaskTool,
        flags: u32,
        code: usize,
    },
    ImplicitTask {
        endpoint: Endpoint,
        region: Option<&'a Word>,
        task: &'a TaskTool,
        size: u32,
        index: u32,
        flags: u32,
    },
    /// The thread's initial task is over, and the thread, too.
    ThreadEnd,
    Sync {
        /// [`Callback::SyncRegion`], [`Callback::SyncRegionWait`] or [`Callback::Reduction`]
        callback: Callback,
        kind: Sync,
        endpoint: Endpoint,
        region: Option<&'a Word>,
        task: &'a TaskTool,
        code: usize,
    },
    Work {
        kind: Work,
        endpoint: Endpoint,
        region: &'a Word,
        task: &'a TaskTool,
        count: u64,
        code: usize,
    },
    /// The instance is a first iteration and a count, or an address.
    Dispatch {
        region: &'a Word,
        task: &'a TaskTool,
        kind: Dispatch,
        instance: (u64, u64),
    },
    Masked {
        endpoint: Endpoint,
        region: &'a Word,
        task: &'a TaskTool,
        code: usize,
    },
    TaskCreate {
        encountering: &'a TaskTool,
        task: &'a TaskTool,
        flags: u32,
        has_dependences: bool,
        code: usize,
    },
    Dependences {
        task: &'a TaskTool,
        list: &'a [(usize, Dependence)],
    },
    TaskDependence {
        before: &'a TaskTool,
        after: &'a TaskTool,
    },
    TaskSchedule {
        prior: &'a TaskTool,
        status: TaskStatus,
        next: Option<&'a TaskTool>,
    },
    /// [`Callback::MutexAcquire`] and [`Callback::LockInit`]
    MutexAcquire {
        callback: Callback,
        kind: Mutex,
        hint: u32,
        wait: u64,
        code: usize,
    },
    /// [`Callback::MutexAcquired`], [`Callback::MutexReleased`] and [`Callback::LockDestroy`]
    Mutex {
        callback: Callback,
        kind: Mutex,
        wait: u64,
        code: usize,
    },
    NestLock {
        endpoint: Endpoint,
        wait: u64,
        code: usize,
    },
    Flush {
        code: usize,
    },
    Cancel {
        task: &'a TaskTool,
        flags: u32,
        code: usize,
    },
    Error {
        severity: Severity,
        message: &'a str,
        code: usize,
    },
}

/// `ompt_frame_t`: from where the library called the task's body, and where the task called the
/// library.
#[derive(Debug, Default)]
#[repr(C)]
pub struct TaskFrame {
    exit: AtomicU64,
    enter: AtomicU64,
    exit_flags: AtomicI32,
    enter_flags: AtomicI32,
}

/// What is kept for a tool with a task. Used only where there is one.
#[derive(Debug)]
pub struct TaskTool {
    pub data: Word,
    pub frame: TaskFrame,
    /// Its kind and its clauses (`ompt_task_flag_t`); 0 of a taskgroup.
    pub flags: AtomicU32,
    /// What the thread that runs it waits for, as a number of [`State`]; 0 for nothing.
    waits: AtomicU32,
    /// The task that is suspended on the same stack while this one runs; of an explicit task.
    below: StaticRef<TaskNode>,
    /// It is in `taskyield`.
    yields: AtomicBool,
    /// The number of the lock that it waits for.
    wait_id: AtomicU64,
}

impl TaskTool {
    pub(crate) fn new() -> TaskTool {
        TaskTool {
            data: Word::new(0),
            frame: TaskFrame::default(),
            flags: AtomicU32::new(0),
            waits: AtomicU32::new(0),
            below: StaticRef::none(),
            yields: AtomicBool::new(false),
            wait_id: AtomicU64::new(0),
        }
    }

    /// A new task.
    pub(crate) fn start(&self, flags: u32) {
        self.data.store(0, Ordering::Relaxed);
        self.flags.store(flags, Ordering::Relaxed);
        self.frame.exit.store(0, Ordering::Relaxed);
        self.frame
            .exit_flags
            .store(FRAME_RUNTIME_POINTER, Ordering::Relaxed);
        self.below.set(None, Ordering::Relaxed);
        self.yields.store(false, Ordering::Relaxed);
        self.leave_library();
        self.stop_waiting();
    }

    /// The task has called the library.
    pub(crate) fn enter_library(&self, caller: Caller) {
        let enter = caller.frame as u64;
        self.frame.enter.store(enter, Ordering::Relaxed);
        self.frame
            .enter_flags
            .store(FRAME_RUNTIME_CFA, Ordering::Relaxed);
    }

    /// The task goes on in the program.
    pub(crate) fn leave_library(&self) {
        self.frame.enter.store(0, Ordering::Relaxed);
    }

    /// Where the address goes of the frame from which the task's body is called.
    #[must_use]
    pub fn exit_frame(&self) -> &Word {
        &self.frame.exit
    }

    /// The program runs the task's body itself, in the frame by which it has called the library.
    pub(crate) fn set_exit_frame(&self, caller: Caller) {
        let (address, flags) = match caller.frame_pointer {
            0 => (caller.frame, FRAME_RUNTIME_CFA),
            pointer => (pointer, FRAME_PROGRAM_POINTER),
        };
        self.frame.exit.store(address as u64, Ordering::Relaxed);
        self.frame.exit_flags.store(flags, Ordering::Relaxed);
    }

    /// The task's body is over.
    pub(crate) fn end_body(&self) {
        self.frame.exit.store(0, Ordering::Relaxed);
    }

    /// The thread waits in this task for the lock with this number, or for something without one
    /// (0).
    pub fn wait(&self, state: State, id: u64) {
        self.wait_id.store(id, Ordering::Relaxed);
        self.waits.store(state as u32, Ordering::Relaxed);
    }

    pub fn stop_waiting(&self) {
        self.waits.store(0, Ordering::Relaxed);
        self.wait_id.store(0, Ordering::Relaxed);
    }
}

/// What is kept for a tool with a team.
#[derive(Debug)]
pub(crate) struct TeamTool {
    pub(crate) data: Word,
    /// The task that encountered the region.
    encountering: StaticRef<TaskNode>,
    /// Whether it is a league's team, or a program's region.
    flags: AtomicU32,
}

impl TeamTool {
    pub(crate) fn new() -> TeamTool {
        TeamTool {
            data: Word::new(0),
            encountering: StaticRef::none(),
            flags: AtomicU32::new(0),
        }
    }

    pub(crate) fn start(&self, encountering: Option<&'static TaskNode>, flags: u32) {
        self.data.store(0, Ordering::Relaxed);
        self.encountering.set(encountering, Ordering::Relaxed);
        self.flags.store(flags, Ordering::Relaxed);
    }
}

impl Context {
    /// What is kept for a tool with the current task.
    #[must_use]
    pub fn task_tool(&self) -> &'static TaskTool {
        &self.task.get().tool
    }

    /// The call by which the current task has entered the library.
    fn caller(&self, tool: &Tool) -> Caller {
        tool.caller(self.task_tool())
    }

    /// The address in the program to which that call returns.
    #[must_use]
    pub fn code(&self, tool: &Tool) -> usize {
        self.caller(tool).return_address
    }

    /// The tool, as this member knows it.
    #[inline]
    #[must_use]
    pub fn tool(&self) -> Option<&'static Tool> {
        self.tool
    }

    /// What is kept for a tool with the region.
    #[must_use]
    pub fn region_word(&self) -> &'static Word {
        &self.team.tool.data
    }

    /// Runs `f`, in which the current task is in the library, with the address to which it will
    /// return.
    pub fn in_library<R>(&self, tool: &Tool, f: impl FnOnce(usize) -> R) -> R {
        let (task, caller) = (self.task_tool(), self.caller(tool));
        task.enter_library(caller);
        let result = f(caller.return_address);
        task.leave_library();
        result
    }

    /// The program runs the body of the current task itself, in the function that has called the
    /// library.
    pub(crate) fn set_exit_frame(&self, tool: &Tool) {
        let task = self.task_tool();
        // That function's frame is outside the one of the task around it.
        task.set_exit_frame(caller::outside_of(&tool.code, 0));
    }

    /// Where a call of a compiler's own puts the address of its frame, if a tool asks for it.
    #[inline]
    #[must_use]
    pub fn exit_frame(&self) -> Option<&'static Word> {
        self.tool.map(|_| self.task_tool().exit_frame())
    }
}
