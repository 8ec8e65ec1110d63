//! Loops that are cut into tasks.
//!
//! A grain of one iteration makes more tasks than anybody could keep, and each is over in
//! nanoseconds. So one task of the runtime stands for a range of the loop's tasks. The worker that
//! runs it leaves its upper halves to others until what is left is short, and executes those, one
//! task after the other.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use margay_core_openmp::schedule::Iterations;
use margay_core_openmp::taskloop::{Cut, Tasks};
use margay_core_openmp::tools::{Endpoint, TaskStatus};
use margay_sys_os::clock::Clock;
use margay_sys_threads::outlined::TaskCall;
use margay_sys_threads::reduction_table::ReductionTable;

use crate::depend;
use crate::node::TaskNode;
use crate::task::{Task, TaskClauses, complete, is_group_cancelled};
use crate::team::Context;
use crate::tool::task_flags;

/// Some of a loop's tasks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoopRange {
    tasks: Tasks,
    iterations: Iterations,
    /// The number of the first, and of the first beyond.
    first: u64,
    end: u64,
    /// Distinguishes the loop from others.
    number: u64,
}

/// How many tasks of a loop take about [`PIECE_TICKS`], as one member knows.
#[derive(Debug, Default)]
pub(crate) struct LoopPace {
    /// The loop, and the tasks.
    current: Cell<(u64, u64)>,
    /// Loops that this member has cut.
    loops: Cell<u64>,
}

/// Tasks that are executed one after the other take this long, by the processor's counter: about 2
/// µs, so that others need not wait for some of them.
const PIECE_TICKS: u64 = 5_000;
/// At most this many, however short.
const PIECE: u64 = 256;
/// After this many tasks the time is taken: tasks of a loop may differ.
const LOOK_AFTER: u64 = 4;

impl LoopRange {
    fn len(&self) -> u64 {
        self.end - self.first
    }

    /// Cuts off the upper half.
    fn split(&mut self) -> LoopRange {
        let middle = self.first + self.len().div_ceil(2);
        let upper = LoopRange {
            first: middle,
            ..*self
        };
        self.end = middle;
        upper
    }

    /// The bounds of the next task.
    fn next(&mut self) -> Option<(u64, u64)> {
        if self.first >= self.end {
            return None;
        }
        let (first, end) = self.tasks.of(self.first);
        self.first += 1;
        Some((self.iterations.value(first), self.iterations.value(end)))
    }
}

impl LoopPace {
    /// A number for a loop that member `id` cuts.
    fn new_loop(&self, id: u32) -> u64 {
        self.loops.set(self.loops.get() + 1);
        self.loops.get() << 32 | u64::from(id)
    }

    /// How many of the loop's tasks to execute one after the other.
    fn of(&self, number: u64) -> u64 {
        match self.current.get() {
            (current, piece) if current == number => piece,
            _ => 1,
        }
    }

    /// How many have taken this long.
    fn record(&self, number: u64, tasks: u64, took: u64) {
        let before = self.of(number);
        let piece = if took >= PIECE_TICKS {
            tasks / 2
        } else if 2 * took < PIECE_TICKS && tasks >= before {
            2 * tasks
        } else {
            before
        };
        self.current.set((number, piece.clamp(1, PIECE)));
    }
}

impl Context {
    /// Cuts a loop into tasks.
    pub fn taskloop(
        &self,
        call: TaskCall<'_>,
        clauses: TaskClauses,
        iterations: Iterations,
        cut: Cut,
        group: Option<Option<ReductionTable<'_>>>,
    ) {
        let is_group = group.is_some();
        if let Some(table) = group {
            self.start_group(false);
            if let Some(table) = table {
                self.register(table);
            }
        }
        if !self.is_cancelled() {
            self.tell_taskloop(Endpoint::Begin, iterations.count);
            let tasks = Tasks::cut(iterations.count, cut, u64::from(self.team.size));
            let range = LoopRange {
                tasks,
                iterations,
                first: 0,
                end: tasks.tasks,
                number: self.local().loop_pace.new_loop(self.id),
            };
            // Objects in the arguments are copied before the loop's tasks can run. A tool learns of
            // each task.
            if call.may_repeat() && call.is_small() && self.tool.is_none() {
                self.range_task(&call, clauses, range);
            } else {
                self.taskloop_tasks(&call, clauses, range);
            }
            self.tell_taskloop(Endpoint::End, iterations.count);
        }
        if is_group {
            self.end_group();
        }
    }

    /// Creates the tasks one by one.
    fn taskloop_tasks(&self, call: &TaskCall<'_>, clauses: TaskClauses, mut range: LoopRange) {
        while let Some((first, end)) = range.next() {
            let at_once = self.is_at_once(clauses) || self.has_many_children();
            let mut task = self.loop_task(call, clauses);
            task.frame.set_bounds(first, end);
            if let Some(tool) = self.tool {
                let flags = task_flags(at_once, task.is_final, clauses.report);
                self.tell_task_created(tool, task.node, flags, &[]);
            }
            if at_once {
                let inherited = self.inherited.borrow().clone();
                let node = task.node;
                let saved = self.enter_task(node, self.icv.get(), task.is_final, inherited);
                self.call(&mut task);
                self.leave_task(saved, self.status_at_end());
                self.tell_undeferred_over();
                self.free_task(task);
                complete(Some(self), self.team, node);
            } else {
                self.push(task);
            }
        }
    }

    /// Creates one task for all.
    fn range_task(&self, call: &TaskCall<'_>, clauses: TaskClauses, range: LoopRange) {
        let mut task = self.loop_task(call, clauses);
        if self.is_at_once(clauses) {
            let node = self.run_piece(&task, &mut { range }, false);
            self.free_task(task);
            complete(Some(self), self.team, node);
        } else {
            task.range = Some(range);
            self.push(task);
        }
    }

    fn is_at_once(&self, clauses: TaskClauses) -> bool {
        clauses.is_undeferred || self.is_final.get() || self.team.size == 1
    }

    /// A task of a loop, which is a child of the current task.
    fn loop_task(&self, call: &TaskCall<'_>, clauses: TaskClauses) -> Box<Task> {
        let parent = self.frame.get();
        let mut task = self.new_task(self.new_node(parent));
        parent.children.add_child();
        task.frame.load(call);
        task.is_final = clauses.is_final || self.is_final.get();
        task.has_objects = call.has_objects();
        task.icv = self.icv.get();
        task.priority = self.limit_priority(clauses.priority);
        self.inherited.borrow().clone_into(&mut task.inherited);
        task.event = None;
        task
    }

    /// Executes some tasks of a loop, and leaves the others to who comes first.
    #[inline(never)]
    pub(crate) fn run_range(&self, mut task: Box<Task>) {
        let mut range = task.range.take().expect("the task stands for a range");
        let number = range.number;
        while range.len() > 0 {
            while range.len() > self.local().loop_pace.of(number) {
                let upper = range.split();
                self.push_range(&task, upper);
            }
            task.node = self.run_piece(&task, &mut range, true);
        }
        let node = task.node;
        drop(std::mem::take(&mut task.inherited));
        task.frame.discard();
        self.free_task(task);
        complete(Some(self), self.team, node);
    }

    /// Leaves a part of the range for which `task` stands to others.
    fn push_range(&self, task: &Task, range: LoopRange) {
        let mut other = self.new_task(self.new_sibling(task.node));
        other.frame.load_copy(&task.frame);
        other.is_final = task.is_final;
        other.has_objects = task.has_objects;
        other.icv = task.icv;
        other.priority = task.priority;
        task.inherited.clone_into(&mut other.inherited);
        other.event = None;
        other.range = Some(range);
        self.push(other);
    }

    /// A node for a part of the task of `node`, which is running here.
    fn new_sibling(&self, node: &'static TaskNode) -> &'static TaskNode {
        let parent = node
            .parent
            .get(Ordering::Relaxed)
            .expect("a task of a loop has a parent");
        let sibling = self.new_node(parent);
        parent.add_sibling(self.member);
        sibling
    }

    /// Executes tasks of a loop one after the other: all of the range, or as many as take a moment
    /// if it `may_stop`. The node of `task` stands for each of them. Returns the one that does so
    /// in the end: one with children is not used again.
    fn run_piece(&self, task: &Task, range: &mut LoopRange, may_stop: bool) -> &'static TaskNode {
        let clock = &self.runtime().clock;
        let began = clock.ticks();
        let took = || clock.ticks().wrapping_sub(began);
        let (mut node, mut done, mut is_over) = (task.node, 0, false);
        while !is_over {
            let group = task.inherited.group;
            if self.team.is_cancelled() || group.is_some_and(is_group_cancelled) {
                range.first = range.end;
            }
            let Some((first, end)) = range.next() else {
                break;
            };
            if done != 0 {
                if node.children.is_alone() {
                    depend::forget(node);
                } else {
                    let next = self.new_sibling(node);
                    complete(Some(self), self.team, node);
                    node = next;
                }
            }
            let saved = self.enter_task(node, task.icv, task.is_final, task.inherited.clone());
            task.frame.call_copy(first, end);
            self.leave_task(saved, TaskStatus::Complete);
            done += 1;
            is_over = may_stop && done % LOOK_AFTER == 0 && took() >= PIECE_TICKS;
        }
        if may_stop && done != 0 {
            self.local().loop_pace.record(range.number, done, took());
        }
        node
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_divided_into_its_tasks() {
        let iterations = Iterations::signed(10, 110, 1);
        let tasks = Tasks::cut(iterations.count, Cut::Grain(3), 2);
        let mut range = LoopRange {
            tasks,
            iterations,
            first: 0,
            end: tasks.tasks,
            number: 1,
        };
        let mut at = 10;
        let mut parts = Vec::new();
        while range.len() > 1 {
            parts.push(range.split());
        }
        parts.push(range);
        for mut part in parts.into_iter().rev() {
            while let Some((first, end)) = part.next() {
                assert!(first == at && end > first);
                at = end;
            }
        }
        assert_eq!(at, 110);
    }

    #[test]
    fn pieces_grow_while_they_are_short() {
        let pace = LoopPace::default();
        let number = pace.new_loop(3);
        assert_eq!(pace.of(number), 1);
        for wanted in [2, 4, 8, 16, 32, 64, 128, 256, 256] {
            pace.record(number, pace.of(number), 10);
            assert_eq!(pace.of(number), wanted);
        }
        // The rest of a range tells nothing, but that it took long.
        pace.record(number, 3, 10);
        assert_eq!(pace.of(number), 256);
        pace.record(number, 8, 10 * PIECE_TICKS);
        assert_eq!(pace.of(number), 4);
        pace.record(number, 1, PIECE_TICKS);
        assert_eq!(pace.of(number), 1);
        assert_eq!(pace.of(pace.new_loop(3)), 1);
    }
}
