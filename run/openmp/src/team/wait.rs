//! Members that wait: for tasks, for other members; and the tasks that they run meanwhile.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use margay_sys_os::fence;
use margay_sys_threads::inspect::Wait;

use super::Context;
use crate::affinity;
use crate::node::TaskNode;
use crate::scheduler::StealBackoff;
use crate::task::Task;

/// A member that finds no task, where there have been some, spins for this long and searches again
/// ...
const SPIN_NS: u64 = 1_000;
/// ... this many times before it sleeps: the member that creates the next task would have to wake
/// it.
const SPINS: u32 = 4;

/// The tasks that a waiting member may run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TaskFilter {
    /// Any task of the team.
    Any,
    /// Descendants of this task: OpenMP's task scheduling constraint.
    Descendants(&'static TaskNode),
}

impl TaskFilter {
    fn ancestor(self) -> Option<&'static TaskNode> {
        match self {
            TaskFilter::Any => None,
            TaskFilter::Descendants(node) => Some(node),
        }
    }
}

/// A member in its role as a thief of tasks.
#[derive(Debug)]
pub(super) struct TaskThief {
    /// When the task that runs here was stolen; 0 if it was not, or if a search has begun since it
    /// is over.
    stolen_ns: Cell<u64>,
    backoff: StealBackoff,
}

impl TaskThief {
    pub(super) fn new() -> TaskThief {
        TaskThief {
            stolen_ns: Cell::new(0),
            backoff: StealBackoff::default(),
        }
    }
}

impl Context {
    /// Waits under a key until a condition holds; others run meanwhile. The member that makes it
    /// true wakes the key.
    pub(crate) fn wait_until(&self, what: Wait, key: usize, condition: &dyn Fn() -> bool) {
        if !condition() {
            let scheduler = &self.runtime().scheduler;
            let wait = || scheduler.wait_until(key, condition);
            self.member.record().waiting(what, wait);
            affinity::keep_bound(self);
        }
    }

    /// Lets others run.
    pub(crate) fn yield_now(&self) {
        self.runtime().scheduler.yield_now();
        affinity::keep_bound(self);
    }

    /// Waits until all tasks below the current frame are done; runs some.
    #[inline]
    pub(super) fn wait_for_descendants(&self) {
        let frame = self.frame.get();
        if !frame.children.is_alone() {
            self.wait_for_descendants_of(frame);
        }
    }

    fn wait_for_descendants_of(&self, frame: &'static TaskNode) {
        self.wait_on_node(frame, TaskFilter::Any, &|| frame.children.is_alone());
        crate::depend::forget(frame);
    }

    /// Waits for `done`, which depends on the children of `node`, a frame of the current task.
    pub(crate) fn wait_on_node(
        &self,
        node: &'static TaskNode,
        filter: TaskFilter,
        done: &dyn Fn() -> bool,
    ) {
        let mut spins = 0;
        while !done() {
            self.back_off(done);
            if let Some(task) = self.find(filter) {
                self.run(task);
                spins = 0;
            } else if spins < SPINS && self.spin_for(SPIN_NS, done) {
                spins += 1;
            } else if !done() {
                node.children.start_waiting();
                self.sleep(Wait::Tasks, filter, done, true);
                node.children.stop_waiting();
                spins = 0;
            }
        }
    }

    /// This member waits for others: if it has published the team, unclaimed members may be stolen
    /// at once.
    #[inline]
    pub(crate) fn make_members_stealable(&self) {
        if let Some(published) = self.published.take() {
            if self.team.claims.has_unclaimed() {
                self.runtime().scheduler.make_stealable(&published);
            }
            self.published.set(Some(published));
        }
    }

    /// Waits for `done`. The member that makes it true wakes this one.
    pub(crate) fn wait(&self, what: Wait, filter: TaskFilter, done: &dyn Fn() -> bool) {
        // Without tasks the end is mostly near, and a sleeping member has to be woken by one that
        // is busy.
        let has_tasks = || self.team.tasks.has_tasks.load(Ordering::Relaxed);
        if done() {
            return;
        }
        if !has_tasks() {
            let scheduler = &self.runtime().scheduler;
            let spin = || scheduler.spin_until(&|| done() || has_tasks());
            if self.member.record().waiting(what, spin) && done() {
                return;
            }
        }
        let mut spins = 0;
        while !done() {
            self.back_off(done);
            if let Some(task) = self.find(filter) {
                self.run(task);
                spins = 0;
            } else if has_tasks() && spins < SPINS && self.spin_for(SPIN_NS, done) {
                spins += 1;
            } else if !done() {
                self.sleep(what, filter, done, has_tasks());
                spins = 0;
            }
        }
    }

    pub(crate) fn spin_for(&self, time_ns: u64, done: &dyn Fn() -> bool) -> bool {
        self.runtime().scheduler.spin_for(time_ns, done)
    }

    /// Steals nothing for a while if the task that was stolen last was tiny.
    fn back_off(&self, done: &dyn Fn() -> bool) {
        let stolen_ns = self.thief.stolen_ns.replace(0);
        if stolen_ns == 0 {
            return;
        }
        let backoff_ns = self.thief.backoff.record(self.team.now_ns() - stolen_ns);
        if backoff_ns != 0 {
            self.spin_for(backoff_ns, done);
        }
    }

    /// Sleeps until `done`, or until there may be a task. If `spins`, this has not spun for long
    /// before.
    fn sleep(&self, what: Wait, filter: TaskFilter, done: &dyn Fn() -> bool, spins: bool) {
        let (team, member) = (self.team, self.member);
        let is_constrained = filter.ancestor().is_some();
        let sleepers = if is_constrained {
            &team.tasks.constrained_sleepers
        } else {
            &team.tasks.sleepers
        };
        member
            .is_constrained
            .store(is_constrained, Ordering::Relaxed);
        member.has_wakeup.store(false, Ordering::SeqCst);
        member.is_asleep.store(true, Ordering::SeqCst);
        sleepers.fetch_add(1, Ordering::SeqCst);
        if team.tasks.has_tasks.load(Ordering::SeqCst) {
            // A member that pushes a task from now on sees the sleeper; tasks that were pushed
            // before are seen here.
            fence::heavy();
            if let Some(task) = self.find(filter) {
                sleepers.fetch_sub(1, Ordering::SeqCst);
                member.is_asleep.store(false, Ordering::SeqCst);
                self.run(task);
                return;
            }
        }
        let has_wakeup = || member.has_wakeup.load(Ordering::SeqCst);
        let is_over = || done() || has_wakeup();
        if spins {
            self.wait_until(what, member.key(), &is_over);
        } else if !is_over() {
            let scheduler = &self.runtime().scheduler;
            let park = || scheduler.park_until(member.key(), &is_over);
            member.record().waiting(what, park);
            affinity::keep_bound(self);
        }
        sleepers.fetch_sub(1, Ordering::SeqCst);
        member.is_asleep.store(false, Ordering::SeqCst);
        member.has_wakeup.store(false, Ordering::SeqCst);
    }

    /// A task that this member may run now.
    pub(crate) fn find(&self, filter: TaskFilter) -> Option<Box<Task>> {
        let ancestor = filter.ancestor();
        if !self.team.tasks.has_tasks.load(Ordering::Relaxed) {
            return None;
        }
        if let Some(task) = self.team.dequeue(ancestor) {
            return Some(task);
        }
        while let Some(task) = self.local().tasks.pop() {
            if ancestor.is_none_or(|node| task.node.is_within(node)) {
                return Some(task);
            }
            // Not for this member now. While the task was out of the deque, a member that may run
            // it has searched in vain.
            self.team.enqueue(task);
        }
        let size = self.team.size;
        let mut victim = self.victim.get();
        for _ in 0..size {
            victim = if victim + 1 >= size { 0 } else { victim + 1 };
            if victim == self.id {
                continue;
            }
            let stealer = &self.team.members[victim as usize].tasks;
            if stealer.is_empty() {
                continue;
            }
            let stolen =
                stealer.steal_if(|task| ancestor.is_none_or(|node| task.node.is_within(node)));
            if let Some(task) = &stolen {
                // One with dependences would not be run by its creator in passing: its queue would
                // only grow.
                if !task.node.has_dependence.load(Ordering::Relaxed) {
                    self.thief.stolen_ns.set(self.team.now_ns());
                }
                // The next search begins with the same victim.
                self.victim
                    .set(if victim == 0 { size - 1 } else { victim - 1 });
                return stolen;
            }
        }
        None
    }

    /// Puts a task where this member finds it first and other members last.
    pub(crate) fn push(&self, task: Box<Task>) {
        if task.priority != 0 {
            self.team.enqueue(task);
            return;
        }
        self.local().tasks.push(task);
        self.team.announce_task();
    }
}
