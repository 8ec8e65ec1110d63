//! The nodes of the task tree: parents, children, and how many children of a task have not
//! finished.
//!
//! Each task, implicit or explicit, has a node, and so has each taskgroup. Nodes are recycled,
//! never freed.
//!
//! How children are counted: [`child_count`](margay_sys_threads::child_count).

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use margay_sys_os::static_ref::StaticRef;
use margay_sys_threads::child_count::{ChildCount, NextStep};

use crate::depend::{Dependence, Siblings};
use crate::spare::Spare;
use crate::task::Task;
use crate::team::Member;
use crate::tool::TaskTool;

/// See the module.
#[derive(Debug)]
pub struct TaskNode {
    /// Unique among all nodes, and so among the tasks that are alive.
    pub number: u32,
    /// How often it has been recycled: a reference with the serial number at that time shows
    /// whether the task is over.
    pub serial: AtomicU32,
    pub parent: StaticRef<TaskNode>,
    pub owner: StaticRef<Member>,
    depth: AtomicU32,
    /// Its children, and whether it may be recycled.
    pub children: ChildCount,
    pub group: Taskgroup,
    /// The node of the last child that its owner ran in place, for the next one.
    pub in_place: StaticRef<TaskNode>,
    /// Whether it has been an element of a dependence.
    pub has_dependence: AtomicBool,
    /// Predecessors that are not over, while there are some.
    pub pending: AtomicU32,
    pub dependence: Mutex<Dependence>,
    /// Whether a child of it has had dependences. Only its owner, and the member that recycles it,
    /// use it.
    pub has_siblings: AtomicBool,
    /// Dependences among its children.
    pub siblings: Mutex<Siblings>,
    pub tool: TaskTool,
}

/// What a node keeps that stands for a taskgroup.
#[derive(Debug)]
pub struct Taskgroup {
    /// It has been cancelled.
    pub is_cancelled: AtomicBool,
    /// It belongs to a work share or region with task reductions, not to the program.
    pub is_workshare: AtomicBool,
    /// The one around it.
    pub outer: StaticRef<TaskNode>,
}

impl Default for Taskgroup {
    fn default() -> Self {
        Taskgroup {
            is_cancelled: AtomicBool::new(false),
            is_workshare: AtomicBool::new(false),
            outer: StaticRef::none(),
        }
    }
}

/// The nodes of a process, and what else the members keep of tasks that are over.
#[derive(Debug)]
pub struct TaskNodes {
    /// The number of the last node that was made.
    last_number: AtomicU32,
    /// Nodes that no member keeps. Bounded by the nodes that were in use at the same time.
    pub free: Spare<&'static TaskNode>,
    pub free_tasks: Spare<Box<Task>>,
}

/// Tasks that are kept for all members.
const FREE_TASKS: usize = 4096;

impl Default for TaskNodes {
    fn default() -> Self {
        TaskNodes {
            last_number: AtomicU32::new(0),
            free: Spare::new(usize::MAX),
            free_tasks: Spare::new(FREE_TASKS),
        }
    }
}

impl TaskNodes {
    /// A new node. Lives as long as the process.
    #[must_use]
    pub fn make(&self) -> &'static TaskNode {
        TaskNode::make(1 + self.last_number.fetch_add(1, Ordering::Relaxed))
    }
}

impl TaskNode {
    fn make(number: u32) -> &'static TaskNode {
        Box::leak(Box::new(TaskNode {
            number,
            serial: AtomicU32::new(0),
            parent: StaticRef::none(),
            owner: StaticRef::none(),
            depth: AtomicU32::new(0),
            children: ChildCount::new(),
            group: Taskgroup::default(),
            in_place: StaticRef::none(),
            has_dependence: AtomicBool::new(false),
            pending: AtomicU32::new(0),
            dependence: Mutex::default(),
            has_siblings: AtomicBool::new(false),
            siblings: Mutex::default(),
            tool: TaskTool::new(),
        }))
    }

    /// Puts a node that nobody uses under `parent`.
    #[inline]
    pub fn attach(&'static self, parent: Option<&'static TaskNode>) {
        self.parent.set(parent, Ordering::Relaxed);
        let depth = parent.map_or(0, |parent| parent.depth.load(Ordering::Relaxed) + 1);
        self.depth.store(depth, Ordering::Relaxed);
    }

    /// Puts a used node into its first state.
    #[inline]
    pub fn reset(&self) {
        self.serial.store(
            self.serial.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Release,
        );
        self.children.reset();
    }

    /// Whether this is `other` or below it.
    #[inline]
    pub fn is_within(&'static self, other: &'static TaskNode) -> bool {
        let depth = other.depth.load(Ordering::Relaxed);
        let mut at = self;
        loop {
            if std::ptr::eq(at, other) {
                return true;
            }
            if at.depth.load(Ordering::Relaxed) <= depth {
                return false;
            }
            match at.parent.get(Ordering::Relaxed) {
                Some(parent) => at = parent,
                None => return false,
            }
        }
    }

    /// Counts a child that a running child, on member `here`, creates as a part of itself.
    #[inline]
    pub fn add_sibling(&'static self, here: &'static Member) {
        let owner = self.owner.get(Ordering::Relaxed);
        let is_owner = owner.is_some_and(|owner| std::ptr::eq(owner, here));
        self.children.add_sibling(is_owner);
    }

    /// A child has finished, its node has been recycled, or both: see [`ChildCount::done`]. `here`
    /// is the member that calls, if it is one.
    #[inline]
    #[must_use]
    pub fn child_done(&'static self, what: u64, here: Option<&'static Member>) -> NextStep {
        let owner = self.owner.get(Ordering::Relaxed);
        let is_owner = matches!((owner, here), (Some(a), Some(b)) if std::ptr::eq(a, b));
        self.children.done(what, is_owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descent() {
        let [top, middle, low, other] = [1, 2, 3, 4].map(TaskNode::make);
        middle.attach(Some(top));
        low.attach(Some(middle));
        other.attach(Some(top));
        assert!(low.is_within(top) && low.is_within(low) && !low.is_within(other));
        assert!(!top.is_within(low));
    }
}
