//! Events of regions and of their members, of barriers, and of what only some members do.

use std::sync::atomic::Ordering;

use margay_core_openmp::tools::{
    CANCEL_ACTIVATED, CANCEL_DETECTED, Callback, Endpoint, PARALLEL_INVOKER_RUNTIME,
    PARALLEL_LEAGUE, PARALLEL_TEAM, Sync, TASK_IMPLICIT, TASK_INITIAL, Work,
};

use margay_sys_threads::outlined::Outlined;

use super::{Event, TaskTool, Tool, Word};
use crate::team::{Context, Request, Team};

impl Context {
    /// A region with this function begins; its team is ready.
    #[cold]
    pub(crate) fn tell_fork(
        &self,
        tool: &Tool,
        team: &'static Team,
        request: Request,
        function: usize,
    ) {
        let task = self.task.get();
        let caller = self.caller(tool);
        let flags = PARALLEL_TEAM | PARALLEL_INVOKER_RUNTIME;
        team.tool.start(Some(task), flags);
        task.tool.enter_library(caller);
        tool.raise(&Event::ParallelBegin {
            encountering: &task.tool,
            region: &team.tool.data,
            requested: if request.threads == 0 {
                self.icv.get().threads
            } else {
                request.threads
            },
            flags,
            code: caller.return_address,
            function,
        });
    }

    /// A region that this member forked is over.
    #[cold]
    pub(crate) fn tell_joined(&self, tool: &Tool, team: &'static Team) {
        let task = self.task_tool();
        tool.raise(&Event::ParallelEnd {
            region: &team.tool.data,
            encountering: task,
            flags: team.tool.flags.load(Ordering::Relaxed),
            code: self.code(tool),
        });
        task.leave_library();
    }

    /// This member begins; of the initial thread's team, that thread.
    #[cold]
    pub(crate) fn tell_member_begins(&self, tool: &Tool) {
        let task = &self.member.implicit().tool;
        let is_initial = self.team.parent().is_none();
        let flags = if is_initial {
            TASK_INITIAL
        } else {
            TASK_IMPLICIT
        };
        task.start(flags);
        tool.raise(&Event::ImplicitTask {
            endpoint: Endpoint::Begin,
            region: Some(&self.team.tool.data),
            task,
            size: self.team.size,
            index: if is_initial { 1 } else { self.id },
            flags,
        });
        if self.work.has_loop() {
            self.tell_work_begins(tool, Work::Loop);
        }
    }

    /// The same for a member whose body the caller runs.
    #[cold]
    pub(crate) fn tell_caller_begins(&self, tool: &Tool) {
        let is_initial = self.team.parent().is_none();
        if is_initial {
            self.team.tool.start(None, 0);
        }
        self.tell_member_begins(tool);
        if !is_initial {
            self.set_exit_frame(tool);
        }
    }

    /// This member runs a target region, as the initial thread of a team of its own: no region is
    /// reported to a tool, which may ask.
    #[cold]
    pub(crate) fn prepare_target(&self, team: &'static Team) {
        team.tool.start(Some(self.task.get()), 0);
        team.member(0).implicit().tool.start(TASK_INITIAL);
    }

    /// The body of this member is over: it comes to the barrier at the region's end.
    #[cold]
    pub(crate) fn tell_body_over(&self, tool: &Tool) {
        let task = &self.member.implicit().tool;
        self.tell_open_work_ends(tool);
        task.end_body();
        if self.team.size == 1 {
            return;
        }
        let code = self.own_code(tool);
        self.tell_sync(tool, Sync::BarrierParallel, Endpoint::Begin, code);
    }

    /// This member is over, and past the barrier at the region's end.
    #[cold]
    pub(crate) fn tell_member_over(&self, tool: &Tool) {
        let task = &self.member.implicit().tool;
        if self.team.size > 1 {
            let code = self.own_code(tool);
            task.stop_waiting();
            for callback in [Callback::SyncRegionWait, Callback::SyncRegion] {
                tool.raise(&Event::Sync {
                    callback,
                    kind: Sync::BarrierParallel,
                    endpoint: Endpoint::End,
                    region: None,
                    task,
                    code,
                });
            }
        }
        tool.raise(&Event::ImplicitTask {
            endpoint: Endpoint::End,
            region: None,
            task,
            size: if self.id == 0 || self.team.size > 1 {
                self.team.size
            } else {
                0
            },
            index: self.id,
            flags: task.flags.load(Ordering::Relaxed),
        });
    }

    /// The initial thread of this context is over.
    pub fn tell_thread_over(&self) {
        if let Some(tool) = self.tool
            && self.team.parent().is_none()
        {
            let task = &self.member.implicit().tool;
            tool.raise(&Event::ImplicitTask {
                endpoint: Endpoint::End,
                region: None,
                task,
                size: 0,
                index: 1,
                flags: TASK_INITIAL,
            });
            tool.raise(&Event::ThreadEnd);
        }
    }

    /// The address in the program of the region's call, for the member that makes it.
    fn own_code(&self, tool: &Tool) -> usize {
        if self.id == 0
            && let Some(outside) = self.team.tool.encountering.get(Ordering::Relaxed)
        {
            tool.caller(&outside.tool).return_address
        } else {
            0
        }
    }

    /// Begins or ends a region of synchronization of the current task, and the wait in it.
    pub(super) fn tell_sync(&self, tool: &Tool, kind: Sync, endpoint: Endpoint, code: usize) {
        let task = self.task_tool();
        let mut callbacks = [Callback::SyncRegion, Callback::SyncRegionWait];
        if endpoint == Endpoint::End {
            task.stop_waiting();
            callbacks.reverse();
        }
        for callback in callbacks {
            tool.raise(&Event::Sync {
                callback,
                kind,
                endpoint,
                region: Some(self.region_word()),
                task,
                code,
            });
        }
        if endpoint == Endpoint::Begin {
            task.wait(kind.state(), 0);
        }
    }

    /// Runs `wait`, which is a region of synchronization.
    #[cold]
    pub(crate) fn tell_wait(&self, tool: &Tool, kind: Sync, wait: impl FnOnce()) {
        if kind != Sync::Taskwait {
            self.tell_open_work_ends(tool);
        }
        let caller = self.caller(tool);
        let task = self.task_tool();
        task.enter_library(caller);
        self.tell_sync(tool, kind, Endpoint::Begin, caller.return_address);
        wait();
        self.tell_sync(tool, kind, Endpoint::End, caller.return_address);
        task.leave_library();
    }

    /// `masked` and `master`: this member begins or ends the block.
    pub fn tell_masked(&self, endpoint: Endpoint) {
        if let Some(tool) = self.tool {
            tool.raise(&Event::Masked {
                endpoint,
                region: self.region_word(),
                task: self.task_tool(),
                code: self.code(tool),
            });
        }
    }

    /// `cancel` (activated) or `cancellation point` (detected), of a construct with this flag.
    pub fn tell_cancel(&self, construct: u32, is_activated: bool) {
        if let Some(tool) = self.tool {
            let how = if is_activated {
                CANCEL_ACTIVATED
            } else {
                CANCEL_DETECTED
            };
            tool.raise(&Event::Cancel {
                task: self.task_tool(),
                flags: construct | how,
                code: self.code(tool),
            });
        }
    }
}

/// Leagues. The teams run one after the other on the thread that encounters them, as part of its
/// task: the initial task that a tool gets for each has no other life.
impl Context {
    #[cold]
    pub(crate) fn tell_league_begins(&self, tool: &Tool, region: &Word, count: u32) {
        let (task, caller) = (self.task_tool(), self.caller(tool));
        task.enter_library(caller);
        tool.raise(&Event::ParallelBegin {
            encountering: task,
            region,
            requested: count,
            flags: PARALLEL_LEAGUE | PARALLEL_INVOKER_RUNTIME,
            code: caller.return_address,
            function: 0,
        });
    }

    #[cold]
    pub(crate) fn tell_team(&self, tool: &Tool, region: &Word, body: Outlined<'_>) {
        let (number, count) = self.teams.get();
        let task = TaskTool::new();
        task.start(TASK_INITIAL);
        let raise = |endpoint, region| {
            tool.raise(&Event::ImplicitTask {
                endpoint,
                region,
                task: &task,
                size: count,
                index: number,
                flags: TASK_INITIAL,
            });
        };
        raise(Endpoint::Begin, Some(region));
        body.call_for_tool(task.exit_frame());
        self.tell_open_work_ends(tool);
        raise(Endpoint::End, None);
    }

    #[cold]
    pub(crate) fn tell_league_ends(&self, tool: &Tool, region: &Word) {
        let task = self.task_tool();
        tool.raise(&Event::ParallelEnd {
            region,
            encountering: task,
            flags: PARALLEL_LEAGUE | PARALLEL_INVOKER_RUNTIME,
            code: self.code(tool),
        });
        task.leave_library();
    }
}
