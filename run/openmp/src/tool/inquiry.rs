//! What a tool may ask about regions and tasks.

use std::sync::atomic::Ordering;

use margay_core_openmp::tools::State;

use super::{TaskTool, Word};
use crate::node::TaskNode;
use crate::team::Context;

/// A region around the caller.
#[derive(Clone, Copy, Debug)]
pub struct ParallelInfo {
    pub region: &'static Word,
    pub size: u32,
}

/// A task around the caller.
#[derive(Clone, Copy, Debug)]
pub struct TaskInfo {
    pub flags: u32,
    pub task: &'static TaskTool,
    pub region: &'static Word,
    /// The thread number of the member that runs it.
    pub thread: u32,
}

impl Context {
    /// The region this many levels outside the current one; none where there is no such.
    #[must_use]
    pub fn parallel_info(&self, level: u32) -> Option<ParallelInfo> {
        let mut team = self.team;
        for _ in 0..level {
            team = team.parent()?.team();
        }
        Some(ParallelInfo {
            region: &team.tool.data,
            size: team.size,
        })
    }

    /// The task this many levels outside the current one: the one that is suspended below it on its
    /// stack, or has encountered its region; none where there is no such.
    #[must_use]
    pub fn task_info(&self, level: u32) -> Option<TaskInfo> {
        let mut node = self.task.get();
        for _ in 0..level {
            node = outer(node)?;
        }
        let owner = node.owner.get(Ordering::Relaxed)?;
        Some(TaskInfo {
            flags: node.tool.flags.load(Ordering::Relaxed),
            task: &node.tool,
            region: &owner.team().tool.data,
            thread: owner.id,
        })
    }

    /// What the current task waits for, as a number of [`State`], with the number of the lock if
    /// that is one; or what it does.
    #[must_use]
    pub fn tool_state(&self) -> (u32, u64) {
        let task = self.task_tool();
        match task.waits.load(Ordering::Relaxed) {
            0 if self.level() == 0 => (State::WorkSerial as u32, 0),
            0 => (State::WorkParallel as u32, 0),
            waits => (waits, task.wait_id.load(Ordering::Relaxed)),
        }
    }
}

fn outer(node: &'static TaskNode) -> Option<&'static TaskNode> {
    if let Some(below) = node.tool.below.get(Ordering::Relaxed) {
        return Some(below);
    }
    let team = node.owner.get(Ordering::Relaxed)?.team();
    team.tool.encountering.get(Ordering::Relaxed)
}
