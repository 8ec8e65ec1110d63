//! Tasks: creating, executing, waiting, groups, cancellation, events.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_core_openmp::tools::{Sync, TaskStatus};
use margay_sys_threads::child_count::{CHILD, CHILD_AND_NODE, CHILD_NODE, NextStep};
use margay_sys_threads::inspect::Wait;
use margay_sys_threads::outlined::{Frame, TaskCall};
use margay_sys_threads::reduction_table::ReductionTable;

use crate::depend::{self, Access};
use crate::icv::Icv;
use crate::node::TaskNode;
use crate::reduction::{FoundCopy, Reductions};
use crate::task_loop::LoopRange;
use crate::team::{Context, TaskFilter, Team};
use crate::tool::{TaskTool, Tool, task_flags};

mod event;
mod in_place;

pub use event::{Event, Events};
pub use in_place::LeftByTask;
pub(crate) use in_place::SavedInPlace;

/// A deferred task: its body, and the control variables and constructs in force for it.
#[derive(Debug)]
pub struct Task {
    pub(crate) node: &'static TaskNode,
    pub(crate) priority: u32,
    pub(crate) frame: Frame,
    pub(crate) icv: &'static Icv,
    pub(crate) inherited: Inherited,
    pub(crate) is_final: bool,
    /// Its arguments are objects that its body destroys, so it has to run even when it is
    /// cancelled.
    pub(crate) has_objects: bool,
    pub(crate) event: Option<Arc<Event>>,
    /// Where it stands for several tasks of a loop: which.
    pub(crate) range: Option<LoopRange>,
}

/// What a task inherits from the one that creates it.
#[derive(Clone, Debug, Default)]
pub struct Inherited {
    /// The innermost taskgroup.
    pub(crate) group: Option<&'static TaskNode>,
    pub(crate) reductions: Option<Arc<Reductions>>,
}

/// The clauses of a task.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaskClauses {
    /// `if(false)`
    pub is_undeferred: bool,
    pub is_final: bool,
    pub priority: u32,
    /// Others, as a tool knows them.
    pub report: u32,
}

/// A new task is run at once when its parent has more unfinished children than this for each member
/// of the team, and more than the second number: the deque stays bounded.
const CHILDREN_PER_MEMBER: u64 = 64;
const CHILDREN_AT_LEAST: u64 = 256;

/// How long a task that creates many others, with dependences, waits for the next of them to finish
/// ...
const PACE_NS: u64 = 10_000;
/// ... and how long between two searches for one that is ready.
const PACE_STEP_NS: u64 = 500;

impl Task {
    pub(crate) fn new(node: &'static TaskNode, icv: &'static Icv) -> Task {
        Task {
            node,
            priority: 0,
            frame: Frame::new(),
            icv,
            inherited: Inherited::default(),
            is_final: false,
            has_objects: false,
            event: None,
            range: None,
        }
    }
}

/// What is in force again when a task is over.
#[derive(Debug)]
pub(crate) struct SavedTask {
    task: &'static TaskNode,
    frame: &'static TaskNode,
    icv: &'static Icv,
    is_final: bool,
    inherited: Inherited,
}

impl Context {
    /// Creates a task. With an event, the task is over only when the event is fulfilled. Returns
    /// false where none is created, since the construct is cancelled.
    pub fn task(
        &self,
        call: &mut TaskCall<'_>,
        clauses: TaskClauses,
        accesses: &[(usize, Access)],
        event: Option<Arc<Event>>,
    ) -> bool {
        if self.is_cancelled() {
            return false;
        }
        let is_final = clauses.is_final || self.is_final.get();
        let at_once = clauses.is_undeferred
            || self.is_final.get()
            || (self.team.size == 1 && event.is_none() && accesses.is_empty());
        if at_once || (accesses.is_empty() && event.is_none() && self.has_many_children()) {
            self.wait_for_accesses(accesses);
            self.run_undeferred(
                call,
                TaskClauses {
                    is_final,
                    ..clauses
                },
                event,
            );
            return true;
        }
        let parent = self.frame.get();
        let mut task = self.new_task(self.new_node(parent));
        parent.children.add_child();
        task.frame.load(call);
        task.is_final = is_final;
        task.has_objects = call.has_objects();
        task.icv = self.icv.get();
        task.priority = self.limit_priority(clauses.priority);
        self.inherited.borrow().clone_into(&mut task.inherited);
        if let Some(event) = &event {
            event.bind(task.node, self.team);
        }
        task.event = event;
        if let Some(tool) = self.tool {
            let flags = task_flags(false, is_final, clauses.report);
            self.tell_task_created(tool, task.node, flags, accesses);
        }
        let ready = if accesses.is_empty() {
            Some(task)
        } else {
            depend::enter(self.task.get(), task, accesses, self.tool)
        };
        match ready {
            // With an event or dependences. No other member would run it, and the event may be
            // fulfilled before its creator waits for anything.
            Some(task) if self.team.size == 1 => self.run(task),
            Some(task) => self.push(task),
            None => {}
        }
        if !accesses.is_empty() && self.has_many_children() {
            self.keep_pace();
        }
        true
    }

    pub(crate) fn limit_priority(&self, priority: u32) -> u32 {
        priority.min(self.runtime().environment.max_task_priority)
    }

    pub(crate) fn has_many_children(&self) -> bool {
        self.frame.get().children.unfinished() > self.most_children()
            && self.runtime().environment.throttles_tasks
    }

    fn most_children(&self) -> u64 {
        (u64::from(self.team.size) * CHILDREN_PER_MEMBER).max(CHILDREN_AT_LEAST)
    }

    /// Many children of the current task have not finished, and the next ones may have to wait for
    /// them: runs those that are ready, and lets others finish some, so that what a task needs is
    /// still in a cache when it runs. Waits for nothing in particular: what they wait for may be
    /// this task.
    #[cold]
    #[inline(never)]
    fn keep_pace(&self) {
        let children = &self.frame.get().children;
        let filter = TaskFilter::Descendants(self.task.get());
        let mut left = children.unfinished();
        // After waits in vain the next one comes later.
        if left < self.local().enough_children.get() {
            return;
        }
        let enough = self.most_children() / 2;
        let mut left_ns = PACE_NS;
        while left > enough {
            if let Some(task) = self.find(filter) {
                self.run(task);
                left = children.unfinished();
                continue;
            }
            if left_ns == 0 || !self.spin_for(PACE_STEP_NS, &|| children.unfinished() < left) {
                self.local().enough_children.set(2 * left);
                return;
            }
            let now_left = children.unfinished();
            left_ns = if now_left < left {
                PACE_NS
            } else {
                left_ns - PACE_STEP_NS
            };
            left = now_left;
        }
        self.local().enough_children.set(0);
    }

    /// A node for a task that this one creates, with its event.
    pub(crate) fn new_child(&self, event: Option<&Arc<Event>>) -> &'static TaskNode {
        let parent = self.frame.get();
        let node = self.new_node(parent);
        parent.children.add_child();
        if let Some(event) = event {
            event.bind(node, self.team);
        }
        node
    }

    /// Runs a task in its creator's place.
    fn run_undeferred(
        &self,
        call: &mut TaskCall<'_>,
        clauses: TaskClauses,
        event: Option<Arc<Event>>,
    ) {
        let is_final = clauses.is_final;
        let is_simple = event.is_none() && self.tool.is_none() && !call.copies();
        if is_simple && self.inherited.borrow().reductions.is_none() {
            self.make_in_place();
            if let Some(left) = self.run_in_place(is_final, || call.call_in_place()) {
                self.end_in_place(left);
            }
            return;
        }
        let node = self.new_child(event.as_ref());
        if let Some(tool) = self.tool {
            let flags = task_flags(true, is_final, clauses.report);
            self.tell_task_created(tool, node, flags, &[]);
        }
        let inherited = self.inherited.borrow().clone();
        // The arguments are the creator's: they are copied before the task is entered.
        let copied = call.copies().then(|| {
            let mut task = self.new_task(node);
            task.frame.load(call);
            task
        });
        let saved = self.enter_task(node, self.icv.get(), is_final, inherited);
        match (copied, self.tool) {
            (Some(mut task), _) => {
                self.call(&mut task);
                self.free_task(task);
            }
            (None, None) => call.call_in_place(),
            (None, Some(_)) => call.call_in_place_for_tool(node.tool.exit_frame()),
        }
        if let Some(event) = event {
            event.wait(self);
        }
        self.leave_task(saved, self.status_at_end());
        self.tell_undeferred_over();
        complete(Some(self), self.team, node);
    }

    /// Calls the body of the current task.
    #[inline]
    pub(crate) fn call(&self, task: &mut Task) {
        match self.tool {
            None => task.frame.call(),
            Some(_) => task.frame.call_for_tool(task.node.tool.exit_frame()),
        }
    }

    /// Executes a deferred task.
    pub(crate) fn run(&self, mut task: Box<Task>) {
        if task.range.is_some() {
            self.run_range(task);
            return;
        }
        let node = task.node;
        let mut event = task.event.take();
        let inherited = std::mem::take(&mut task.inherited);
        let group = inherited.group;
        let is_cancelled = self.team.is_cancelled() || group.is_some_and(is_group_cancelled);
        if is_cancelled && !task.has_objects {
            task.frame.discard();
            if let Some(tool) = self.tool {
                self.tell_discarded(tool, node);
            }
            // Its body, which never runs, would have had the event fulfilled.
            if let Some(event) = event.take() {
                drop(self.runtime().events.take(event.number));
            }
        } else {
            let saved = self.enter_task(node, task.icv, task.is_final, inherited);
            self.call(&mut task);
            let status = match &event {
                Some(event) if !event.is_fulfilled() => TaskStatus::Detach,
                _ => self.status_at_end(),
            };
            self.leave_task(saved, status);
        }
        self.free_task(task);
        if let Some(event) = event
            && event.is_awaited_after(node)
        {
            // Fulfilling the event completes the task.
            return;
        }
        complete(Some(self), self.team, node);
    }

    #[inline]
    pub(crate) fn enter_task(
        &self,
        node: &'static TaskNode,
        icv: &'static Icv,
        is_final: bool,
        inherited: Inherited,
    ) -> SavedTask {
        node.owner.set(Some(self.member), Ordering::Relaxed);
        if let Some(tool) = self.tool {
            self.tell_starts(tool, node);
        }
        SavedTask {
            task: self.task.replace(node),
            frame: self.frame.replace(node),
            icv: self.icv.replace(icv),
            is_final: self.is_final.replace(is_final),
            inherited: self.inherited.replace(inherited),
        }
    }

    #[inline]
    pub(crate) fn leave_task(&self, saved: SavedTask, status: TaskStatus) {
        if let Some(tool) = self.tool {
            self.tell_ends(tool, status, saved.task);
        }
        self.task.set(saved.task);
        self.frame.set(saved.frame);
        self.icv.set(saved.icv);
        self.is_final.set(saved.is_final);
        drop(self.inherited.replace(saved.inherited));
    }

    /// `taskwait`: waits for the children of the current task.
    pub fn taskwait(&self) {
        match self.tool {
            None => self.wait_for_children(),
            Some(tool) => self.tell_wait(tool, Sync::Taskwait, || self.wait_for_children()),
        }
    }

    fn wait_for_children(&self) {
        let task = self.task.get();
        let mut frame = self.frame.get();
        loop {
            if frame.children.unfinished() != 0 {
                self.wait_on_node(frame, TaskFilter::Descendants(task), &|| {
                    frame.children.unfinished() == 0
                });
            }
            if std::ptr::eq(frame, task) {
                break;
            }
            match frame.parent.get(Ordering::Relaxed) {
                Some(outer) => frame = outer,
                None => break,
            }
        }
    }

    /// `taskwait depend`: waits for the children on which these accesses depend.
    pub fn wait_for_accesses(&self, accesses: &[(usize, Access)]) {
        if accesses.is_empty() {
            return;
        }
        match self.tool {
            None => self.wait_for_predecessors(accesses, None),
            Some(tool) => self.tell_wait_for_accesses(tool, accesses, |waiting| {
                self.wait_for_predecessors(accesses, Some((tool, waiting)));
            }),
        }
    }

    fn wait_for_predecessors(
        &self,
        accesses: &[(usize, Access)],
        report: Option<(&Tool, &TaskTool)>,
    ) {
        let task = self.task.get();
        if let Some(waiter) = depend::wait_for(task, accesses, self.member, report) {
            self.wait(Wait::Tasks, TaskFilter::Descendants(task), &|| {
                waiter.pending.load(Ordering::SeqCst) == 0
            });
        }
    }

    /// `taskyield`: executes another task, if there is one.
    pub fn taskyield(&self) {
        match self.tool {
            None => self.run_another(),
            Some(tool) => self.tell_yield(tool, || self.run_another()),
        }
    }

    fn run_another(&self) {
        match self.find(TaskFilter::Descendants(self.task.get())) {
            Some(task) => self.run(task),
            None => self.yield_now(),
        }
    }

    /// Begins a taskgroup.
    pub fn start_group(&self, is_workshare: bool) {
        let node = self.new_node(self.frame.get());
        node.owner.set(Some(self.member), Ordering::Relaxed);
        node.group.is_cancelled.store(false, Ordering::Relaxed);
        node.group
            .is_workshare
            .store(is_workshare, Ordering::Relaxed);
        let outer = self.inherited.borrow_mut().group.replace(node);
        node.group.outer.set(outer, Ordering::Relaxed);
        self.frame.set(node);
        if let Some(tool) = self.tool
            && !is_workshare
        {
            self.tell_group_begins(tool);
        }
    }

    /// Ends the innermost taskgroup: waits for its tasks and all below them.
    pub fn end_group(&self) {
        let node = self.frame.get();
        if std::ptr::eq(node, self.task.get()) {
            return;
        }
        let wait = || {
            if !node.children.is_alone() {
                self.wait_on_node(node, TaskFilter::Descendants(self.task.get()), &|| {
                    node.children.is_alone()
                });
            }
        };
        match self.tool {
            Some(tool) if !node.group.is_workshare.load(Ordering::Relaxed) => {
                self.tell_group_ends(tool, wait);
            }
            _ => wait(),
        }
        let outer = node.group.outer.get(Ordering::Relaxed);
        self.inherited.borrow_mut().group = outer;
        if let Some(outer) = node.parent.get(Ordering::Relaxed) {
            self.frame.set(outer);
        }
        self.free_node(node);
    }

    /// Registers task reductions for the current taskgroup.
    pub fn register(&self, table: ReductionTable<'_>) {
        let first = table.address();
        let outer = self.inherited.borrow().reductions.clone();
        let made = Reductions::new(table, self.team.size, None, outer);
        self.runtime().reductions.insert(first, &made);
        self.inherited.borrow_mut().reductions = Some(made);
    }

    /// The same for a work share, whose first member has made the copies.
    pub(crate) fn register_share(
        &self,
        table: ReductionTable<'_>,
        made: Option<&Reductions>,
    ) -> Arc<Reductions> {
        let outer = self.inherited.borrow().reductions.clone();
        let made = Reductions::new(table, self.team.size, made, outer);
        self.inherited.borrow_mut().reductions = Some(Arc::clone(&made));
        made
    }

    /// Ends the taskgroup of a work share with reductions.
    pub fn unregister_share(&self, is_cancelled: bool) {
        self.end_group();
        let mut inherited = self.inherited.borrow_mut();
        let outer = inherited.reductions.take().and_then(|inner| inner.outer());
        inherited.reductions = outer;
        drop(inherited);
        if !is_cancelled {
            self.barrier_of(Sync::BarrierWorkshare, 0);
        }
    }

    /// The program has combined the copies for the table at this address.
    pub fn unregister(&self, table: usize) {
        let mut inherited = self.inherited.borrow_mut();
        if let Some(gone) = self.runtime().reductions.remove(table) {
            let is_current = inherited
                .reductions
                .as_ref()
                .is_some_and(|current| Arc::ptr_eq(current, &gone));
            if is_current {
                inherited.reductions = gone.outer();
            }
        }
    }

    /// The addresses of this member's copies of variables; see `Reductions::remap`.
    ///
    /// # Errors
    /// The address that belongs to no reduction in force.
    pub fn remap(&self, words: &mut [usize], count: usize) -> Result<(), usize> {
        let reductions = self.inherited.borrow().reductions.clone();
        match reductions {
            Some(reductions) => reductions.remap(words, count, self.id),
            None => words.first().map_or(Ok(()), |&first| Err(first)),
        }
    }

    /// This member's copy of the variable at an address, or of which that is a copy; none if no
    /// construct around reduces it.
    #[must_use]
    pub fn find_copy(&self, address: usize) -> Option<FoundCopy> {
        let inherited = self.inherited.borrow();
        inherited.reductions.as_ref()?.find(address, self.id)
    }

    /// Whether the current task is not that of a member.
    #[must_use]
    pub fn is_in_explicit_task(&self) -> bool {
        !std::ptr::eq(self.task.get(), self.member.implicit())
    }

    /// Numbers of the current task and of its parent, which other tasks that are alive do not have;
    /// 0 for no parent.
    #[must_use]
    pub fn task_numbers(&self) -> (u32, u32) {
        let task = self.task.get();
        let parent = task.parent.get(Ordering::Relaxed);
        (task.number, parent.map_or(0, |parent| parent.number))
    }

    /// Whether new tasks are not to be started: the region or the innermost taskgroup has been
    /// cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.team.is_cancelled() || self.is_in_cancelled_group()
    }

    #[must_use]
    pub fn is_in_cancelled_group(&self) -> bool {
        self.inherited
            .borrow()
            .group
            .is_some_and(is_group_cancelled)
    }

    /// `cancel taskgroup`
    pub fn cancel_group(&self) {
        let Some(mut group) = self.inherited.borrow().group else {
            return;
        };
        if group.group.is_workshare.load(Ordering::Relaxed)
            && let Some(outer) = group.group.outer.get(Ordering::Relaxed)
        {
            group = outer;
        }
        group.group.is_cancelled.store(true, Ordering::Release);
    }

    /// `cancel parallel`
    pub fn cancel_region(&self) {
        self.team.cancel();
    }

    /// `cancel for` and `cancel sections`
    pub fn cancel_share(&self) {
        self.team.cancel_work();
    }
}

pub(crate) fn is_group_cancelled(group: &'static TaskNode) -> bool {
    group.group.is_cancelled.load(Ordering::Acquire)
        || (group.group.is_workshare.load(Ordering::Relaxed)
            && group
                .group
                .outer
                .get(Ordering::Relaxed)
                .is_some_and(|outer| outer.group.is_cancelled.load(Ordering::Acquire)))
}

/// A task is over, and its event fulfilled. `here` is the caller, if that is a member of the team.
pub(crate) fn complete(here: Option<&Context>, team: &'static Team, node: &'static TaskNode) {
    if node.has_dependence.load(Ordering::Relaxed) {
        depend::finish(node, |task| match here {
            Some(context) => context.push(task),
            None => team.enqueue(task),
        });
    }
    let Some(parent) = node.parent.get(Ordering::Relaxed) else {
        return;
    };
    let is_done = node.children.finish();
    let what = if is_done { CHILD_AND_NODE } else { CHILD };
    if is_done {
        recycle(here, team, node);
    }
    notify_parent(here, team, parent, what);
}

fn notify_parent(
    here: Option<&Context>,
    team: &'static Team,
    mut parent: &'static TaskNode,
    mut what: u64,
) {
    loop {
        match parent.child_done(what, here.map(|context| context.member)) {
            NextStep::Nothing => return,
            NextStep::WakeOwner => {
                if let Some(owner) = parent.owner.get(Ordering::Relaxed) {
                    owner.notify();
                }
                return;
            }
            NextStep::Recycle => {
                let Some(above) = parent.parent.get(Ordering::Relaxed) else {
                    return;
                };
                recycle(here, team, parent);
                parent = above;
                what = CHILD_NODE;
            }
        }
    }
}

fn recycle(here: Option<&Context>, team: &'static Team, node: &'static TaskNode) {
    depend::forget(node);
    match here {
        Some(context) => context.free_node(node),
        None => {
            node.reset();
            team.runtime.nodes.free.put(node);
        }
    }
}
