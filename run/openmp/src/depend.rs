//! Dependences among the children of a task: the `depend` clause.
//!
//! For each address that a dependence names, the parent remembers the last task that may write it
//! and the tasks that read it since. A new task waits for some of them, its predecessors; each of
//! those has a list of its successors.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use margay_sys_os::static_ref::StaticRef;
use rustc_hash::FxBuildHasher;

use crate::few::Few;
use crate::node::TaskNode;
use crate::task::Task;
use crate::team::Member;
use crate::tool::{Event, TaskTool, Tool};

/// What a task does with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    /// `out`, `inout`, and `mutexinoutset`: tasks that run one after the other exclude each other,
    /// too.
    Write,
    /// `omp_all_memory`: as writing each address.
    AllMemory,
}

/// A task that others may wait for, as long as its node has not been recycled.
#[derive(Clone, Copy, Debug)]
struct Predecessor {
    node: &'static TaskNode,
    serial: u32,
}

/// The dependence state of a task. How many predecessors it waits for is in its node.
#[derive(Debug, Default)]
pub struct Dependence {
    is_done: bool,
    successors: Few<Successor>,
    /// The task, while it waits for predecessors.
    held: Option<Box<Task>>,
}

/// One that waits for a task.
#[derive(Clone, Debug)]
enum Successor {
    Task(&'static TaskNode),
    Waiter(Arc<DependenceWaiter>),
}

/// A member that waits in place until dependences are satisfied.
#[derive(Debug)]
pub struct DependenceWaiter {
    /// Predecessors that are not done.
    pub pending: AtomicU32,
    member: StaticRef<Member>,
}

/// The accesses of a task's children to each address.
#[derive(Debug, Default)]
pub struct Siblings {
    by_address: HashMap<usize, Accesses, FxBuildHasher>,
    /// The last task that may write any address.
    all_memory: Option<Predecessor>,
    /// Used again for each task.
    found: Vec<Predecessor>,
}

#[derive(Debug, Default)]
struct Accesses {
    writer: Option<Predecessor>,
    readers: Few<Predecessor>,
}

/// With more readers of one address than this, those that are done are removed.
const READERS: usize = 64;

impl Siblings {
    /// Forgets the accesses: all children are done.
    pub fn clear(&mut self) {
        self.by_address.clear();
        self.all_memory = None;
    }

    /// The predecessors of a task with these accesses. The accesses of the task, if there is one,
    /// are remembered.
    fn predecessors(
        &mut self,
        accesses: &[(usize, Access)],
        task: Option<Predecessor>,
    ) -> &[Predecessor] {
        let found = &mut self.found;
        found.clear();
        for &(address, access) in accesses {
            if access == Access::AllMemory {
                found.extend(self.all_memory);
                for there in self.by_address.values() {
                    found.extend(there.writer.iter().chain(there.readers.iter()));
                }
                if task.is_some() {
                    self.by_address.clear();
                    self.all_memory = task;
                }
                continue;
            }
            let there = self.by_address.entry(address).or_insert_with(|| Accesses {
                writer: self.all_memory,
                readers: Few::default(),
            });
            match access {
                Access::AllMemory => {}
                Access::Read => found.extend(there.writer),
                Access::Write if there.readers.is_empty() => found.extend(there.writer),
                Access::Write => found.extend(there.readers.iter()),
            }
            let Some(task) = task else { continue };
            match access {
                Access::AllMemory => {}
                Access::Read => {
                    if there.readers.len() > READERS {
                        there.readers.retain(Predecessor::is_alive);
                    }
                    there.readers.push(task);
                }
                Access::Write => {
                    there.readers.clear();
                    there.writer = Some(task);
                }
            }
        }
        if let Some(task) = task {
            // A task that names an address twice does not wait for itself.
            found.retain(|predecessor| {
                predecessor.node.number != task.node.number || predecessor.serial != task.serial
            });
        }
        // A node may be there twice with different serial numbers: as a task that is over, and as
        // one that is not.
        found.sort_unstable_by_key(|predecessor| (predecessor.node.number, predecessor.serial));
        found.dedup_by_key(|predecessor| (predecessor.node.number, predecessor.serial));
        found
    }
}

impl Predecessor {
    fn of(node: &'static TaskNode) -> Predecessor {
        Predecessor {
            node,
            serial: node.serial.load(Ordering::Relaxed),
        }
    }

    fn is_alive(&self) -> bool {
        self.node.serial.load(Ordering::Acquire) == self.serial
    }

    /// Enters a successor of this task. Returns false when the task is over.
    fn add(&self, successor: &Successor) -> bool {
        if !self.is_alive() {
            return false;
        }
        let mut dependence = lock(self.node);
        if !self.is_alive() || dependence.is_done {
            return false;
        }
        dependence.successors.push(successor.clone());
        true
    }
}

fn lock(node: &'static TaskNode) -> MutexGuard<'static, Dependence> {
    node.dependence
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Enters a new task under `parent`. Returns the task when it has no predecessors; otherwise
/// [`finish`] of the last of them does.
pub fn enter(
    parent: &'static TaskNode,
    task: Box<Task>,
    accesses: &[(usize, Access)],
    tool: Option<&Tool>,
) -> Option<Box<Task>> {
    let node = task.node;
    node.has_dependence.store(true, Ordering::Relaxed);
    parent.has_siblings.store(true, Ordering::Relaxed);
    let mut siblings = siblings(parent);
    let predecessors = siblings.predecessors(accesses, Some(Predecessor::of(node)));
    // Nobody else knows the task before it is a successor, or the next one is entered.
    let mut dependence = lock(node);
    dependence.is_done = false;
    if predecessors.is_empty() {
        return Some(task);
    }
    dependence.held = Some(task);
    drop(dependence);
    // One more, so that the task stays until all are entered.
    let all = predecessors.len() as u32 + 1;
    node.pending.store(all, Ordering::Relaxed);
    let successor = Successor::Task(node);
    let is_over = |predecessor: &&Predecessor| {
        let is_added = predecessor.add(&successor);
        if is_added && let Some(tool) = tool {
            tell(tool, predecessor, &node.tool);
        }
        !is_added
    };
    let over = predecessors.iter().filter(is_over).count();
    release(node, over as u32 + 1)
}

/// `count` predecessors of a task are over. Returns the task when they were the last ones.
fn release(node: &'static TaskNode, count: u32) -> Option<Box<Task>> {
    // All but the last leave what they have done to the last one.
    if node.pending.fetch_sub(count, Ordering::AcqRel) != count {
        return None;
    }
    lock(node).held.take()
}

/// Lets `member` wait in place for the predecessors of these accesses. Returns none when there are
/// none.
#[must_use]
pub fn wait_for(
    parent: &'static TaskNode,
    accesses: &[(usize, Access)],
    member: &'static Member,
    report: Option<(&Tool, &TaskTool)>,
) -> Option<Arc<DependenceWaiter>> {
    parent.has_siblings.store(true, Ordering::Relaxed);
    let mut siblings = siblings(parent);
    let predecessors = siblings.predecessors(accesses, None);
    if predecessors.is_empty() {
        return None;
    }
    let waiter = Arc::new(DependenceWaiter {
        pending: AtomicU32::new(0),
        member: StaticRef::to(member),
    });
    for predecessor in predecessors {
        waiter.pending.fetch_add(1, Ordering::SeqCst);
        if !predecessor.add(&Successor::Waiter(Arc::clone(&waiter))) {
            waiter.pending.fetch_sub(1, Ordering::SeqCst);
        } else if let Some((tool, waiting)) = report {
            tell(tool, predecessor, waiting);
        }
    }
    (waiter.pending.load(Ordering::SeqCst) != 0).then_some(waiter)
}

#[cold]
fn tell(tool: &Tool, predecessor: &Predecessor, after: &TaskTool) {
    (tool.raise)(&Event::TaskDependence {
        before: &predecessor.node.tool,
        after,
    });
}

/// A task is over: calls `ready` with each task for which it was the last predecessor, and wakes
/// members that wait in place.
pub fn finish(node: &'static TaskNode, mut ready: impl FnMut(Box<Task>)) {
    let successors = {
        let mut dependence = lock(node);
        dependence.is_done = true;
        std::mem::take(&mut dependence.successors)
    };
    node.has_dependence.store(false, Ordering::Relaxed);
    for successor in successors {
        match successor {
            Successor::Task(node) => {
                if let Some(task) = release(node, 1) {
                    ready(task);
                }
            }
            Successor::Waiter(waiter) => {
                if waiter.pending.fetch_sub(1, Ordering::SeqCst) == 1
                    && let Some(member) = waiter.member.get(Ordering::Relaxed)
                {
                    member.notify();
                }
            }
        }
    }
}

/// All children of `parent` are done: forgets their accesses.
#[inline]
pub fn forget(parent: &'static TaskNode) {
    if parent.has_siblings.load(Ordering::Relaxed) {
        parent.has_siblings.store(false, Ordering::Relaxed);
        siblings(parent).clear();
    }
}

/// The accesses of the children of `parent`.
fn siblings(parent: &'static TaskNode) -> MutexGuard<'static, Siblings> {
    parent
        .siblings
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}
