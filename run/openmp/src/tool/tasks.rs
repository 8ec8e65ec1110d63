//! Events of tasks.

use std::sync::atomic::Ordering;

use margay_core_openmp::tools::{
    CANCEL_DISCARDED_TASK, CANCEL_TASKGROUP, Callback, Dependence, Endpoint, Sync, TASK_EXPLICIT,
    TASK_FINAL, TASK_MERGEABLE, TASK_TASKWAIT, TASK_UNDEFERRED, TaskStatus,
};

use super::{Event, TaskTool, Tool};
use crate::depend::Access;
use crate::node::TaskNode;
use crate::team::Context;

impl Context {
    /// The current task creates a task. Of an undeferred one,
    /// [`tell_undeferred_over`](Self::tell_undeferred_over) comes later.
    #[cold]
    pub(crate) fn tell_task_created(
        &self,
        tool: &Tool,
        node: &'static TaskNode,
        flags: u32,
        accesses: &[(usize, Access)],
    ) {
        self.tell_created(tool, &node.tool, TASK_EXPLICIT | flags, accesses);
        if flags & TASK_UNDEFERRED == 0 {
            self.task_tool().leave_library();
        }
    }

    fn tell_created(&self, tool: &Tool, task: &TaskTool, flags: u32, accesses: &[(usize, Access)]) {
        let encountering = self.task_tool();
        let caller = self.caller(tool);
        encountering.enter_library(caller);
        task.start(flags);
        tool.raise(&Event::TaskCreate {
            encountering,
            task,
            flags,
            has_dependences: !accesses.is_empty(),
            code: caller.return_address,
        });
        if !accesses.is_empty() && tool.wants(Callback::Dependences) {
            let list: Vec<_> = accesses
                .iter()
                .map(|&(address, access)| match access {
                    Access::Read => (address, Dependence::In),
                    Access::Write => (address, Dependence::Inout),
                    Access::AllMemory => (0, Dependence::InoutAllMemory),
                })
                .collect();
            tool.raise(&Event::Dependences { task, list: &list });
        }
    }

    /// An undeferred task is over: its creator goes on in the program.
    #[inline]
    pub(crate) fn tell_undeferred_over(&self) {
        if self.tool.is_some() {
            self.task_tool().leave_library();
        }
    }

    /// The current task is suspended, and this one runs.
    #[cold]
    pub(crate) fn tell_starts(&self, tool: &Tool, next: &'static TaskNode) {
        let prior = self.task.get();
        next.tool.below.set(Some(prior), Ordering::Relaxed);
        let status = if prior.tool.yields.load(Ordering::Relaxed) {
            TaskStatus::Yield
        } else {
            TaskStatus::Switch
        };
        tool.raise(&Event::TaskSchedule {
            prior: &prior.tool,
            status,
            next: Some(&next.tool),
        });
    }

    /// `taskyield`, which `f` does.
    #[cold]
    pub(crate) fn tell_yield(&self, tool: &Tool, f: impl FnOnce()) {
        let task = self.task_tool();
        self.in_library(tool, |_| {
            task.yields.store(true, Ordering::Relaxed);
            f();
            task.yields.store(false, Ordering::Relaxed);
        });
    }

    /// The status of the current task, whose body is over, if no event is to be waited for.
    pub(crate) fn status_at_end(&self) -> TaskStatus {
        if self.tool.is_some() && self.is_cancelled() {
            TaskStatus::Cancel
        } else {
            TaskStatus::Complete
        }
    }

    /// The current task is over, and the one below goes on.
    #[cold]
    pub(crate) fn tell_ends(&self, tool: &Tool, status: TaskStatus, next: &'static TaskNode) {
        let prior = self.task.get();
        prior.tool.end_body();
        tool.raise(&Event::TaskSchedule {
            prior: &prior.tool,
            status,
            next: Some(&next.tool),
        });
    }

    /// The body of the current task will not run, because its group or region is cancelled.
    pub fn tell_body_discarded(&self) {
        if let Some(tool) = self.tool {
            Self::raise_discarded(tool, self.task_tool());
        }
    }

    fn raise_discarded(tool: &Tool, task: &TaskTool) {
        tool.raise(&Event::Cancel {
            task,
            flags: CANCEL_TASKGROUP | CANCEL_DISCARDED_TASK,
            code: 0,
        });
    }

    /// A task will not run, because its group or region is cancelled.
    #[cold]
    pub(crate) fn tell_discarded(&self, tool: &Tool, node: &'static TaskNode) {
        Self::raise_discarded(tool, &node.tool);
        tool.raise(&Event::TaskSchedule {
            prior: &node.tool,
            status: TaskStatus::Cancel,
            next: Some(self.task_tool()),
        });
    }

    /// The event of a task is fulfilled by this one: before the task's body is over, or later.
    pub fn tell_fulfilled(&self, task: &TaskTool, is_late: bool) {
        if let Some(tool) = self.tool {
            tool.raise(&Event::TaskSchedule {
                prior: task,
                status: if is_late {
                    TaskStatus::LateFulfill
                } else {
                    TaskStatus::EarlyFulfill
                },
                next: (!is_late).then(|| self.task_tool()),
            });
        }
    }

    /// Runs `wait`, which waits for dependences of the current task's children: to a tool, a task
    /// without a body that depends on them.
    #[cold]
    pub(crate) fn tell_wait_for_accesses(
        &self,
        tool: &'static Tool,
        accesses: &[(usize, Access)],
        wait: impl FnOnce(&TaskTool),
    ) {
        let waiting = TaskTool::new();
        let flags = TASK_TASKWAIT | TASK_UNDEFERRED | TASK_MERGEABLE;
        self.tell_created(tool, &waiting, flags, accesses);
        let task = self.task_tool();
        task.wait(Sync::Taskwait.state(), 0);
        wait(&waiting);
        task.stop_waiting();
        tool.raise(&Event::TaskSchedule {
            prior: &waiting,
            status: TaskStatus::TaskwaitComplete,
            next: None,
        });
        task.leave_library();
    }

    /// A taskgroup of the program begins.
    #[cold]
    pub(crate) fn tell_group_begins(&self, tool: &Tool) {
        tool.raise(&Event::Sync {
            callback: Callback::SyncRegion,
            kind: Sync::Taskgroup,
            endpoint: Endpoint::Begin,
            region: Some(self.region_word()),
            task: self.task_tool(),
            code: self.code(tool),
        });
    }

    /// Runs `wait`, which is the end of a taskgroup of the program.
    #[cold]
    pub(crate) fn tell_group_ends(&self, tool: &Tool, wait: impl FnOnce()) {
        let (task, caller) = (self.task_tool(), self.caller(tool));
        let raise = |callback, endpoint| {
            tool.raise(&Event::Sync {
                callback,
                kind: Sync::Taskgroup,
                endpoint,
                region: Some(self.region_word()),
                task,
                code: caller.return_address,
            });
        };
        task.enter_library(caller);
        raise(Callback::SyncRegionWait, Endpoint::Begin);
        task.wait(Sync::Taskgroup.state(), 0);
        wait();
        task.stop_waiting();
        raise(Callback::SyncRegionWait, Endpoint::End);
        raise(Callback::SyncRegion, Endpoint::End);
        task.leave_library();
    }
}

/// The flags of a task with these clauses.
pub(crate) fn task_flags(is_undeferred: bool, is_final: bool, more: u32) -> u32 {
    let mut flags = more;
    if is_undeferred {
        flags |= TASK_UNDEFERRED;
    }
    if is_final {
        flags |= TASK_FINAL;
    }
    flags
}
