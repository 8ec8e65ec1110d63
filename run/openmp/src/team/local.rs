//! What only the thread that runs a member touches: its deque, and what it keeps to use again.

use std::cell::{Cell, RefCell};

use margay_sys_threads::deque::Owner;
use margay_sys_threads::task_block::TaskBlock;

use super::{Context, Team};
use crate::depend::Access;
use crate::node::TaskNode;
use crate::task::Task;
use crate::task_loop::LoopPace;

/// The part of a member that only the thread that runs it touches. On cache lines of its own, too.
#[repr(align(128))]
pub(crate) struct MemberLocal {
    pub(super) tasks: Owner<Box<Task>>,
    #[expect(
        clippy::vec_box,
        reason = "a task keeps its box from one life to the next"
    )]
    free_tasks: RefCell<Vec<Box<Task>>>,
    free_nodes: RefCell<Vec<&'static TaskNode>>,
    /// Memory for arguments that the program writes itself.
    free_blocks: RefCell<Vec<TaskBlock>>,
    /// A task with fewer unfinished children than this goes on creating tasks with dependences.
    pub(crate) enough_children: Cell<u64>,
    pub(crate) loop_pace: LoopPace,
    /// Memory for the accesses of a new task.
    accesses: Cell<Vec<(usize, Access)>>,
    /// Teams that this member forked before.
    pub(super) teams: RefCell<Vec<&'static Team>>,
}

/// Teams that a member keeps; others go to the runtime.
pub(super) const TEAMS_KEPT: usize = 4;

/// Tasks and nodes that a member keeps. Those that it runs for others go back in bundles, or their
/// creators would ask for memory for each new one.
const TASKS_KEPT: usize = 512;

/// Blocks of memory that a member keeps; they are larger.
const BLOCKS_KEPT: usize = 256;

impl MemberLocal {
    pub(super) fn new(tasks: Owner<Box<Task>>) -> MemberLocal {
        MemberLocal {
            tasks,
            free_tasks: RefCell::default(),
            free_nodes: RefCell::default(),
            free_blocks: RefCell::default(),
            enough_children: Cell::new(0),
            loop_pace: LoopPace::default(),
            accesses: Cell::default(),
            teams: RefCell::default(),
        }
    }
}

impl Context {
    pub(crate) fn new_task(&self, node: &'static TaskNode) -> Box<Task> {
        let mut free = self.local().free_tasks.borrow_mut();
        let task = free
            .pop()
            .or_else(|| self.runtime().nodes.free_tasks.get_some(&mut free));
        match task {
            Some(mut task) => {
                task.node = node;
                task
            }
            None => Box::new(Task::new(node, self.icv.get())),
        }
    }

    pub(crate) fn free_task(&self, task: Box<Task>) {
        let mut free = self.local().free_tasks.borrow_mut();
        if free.len() >= TASKS_KEPT {
            self.runtime().nodes.free_tasks.put_half(&mut free);
        }
        free.push(task);
    }

    /// Calls `f` with these accesses in a list.
    pub fn with_accesses<R>(
        &self,
        accesses: impl Iterator<Item = (usize, Access)>,
        f: impl FnOnce(&[(usize, Access)]) -> R,
    ) -> R {
        // What runs meanwhile may need a list of its own.
        let mut list = self.local().accesses.take();
        list.extend(accesses);
        let result = f(&list);
        list.clear();
        self.local().accesses.set(list);
        result
    }

    /// Memory for the arguments of a task, of at least this many bytes.
    #[must_use]
    pub fn new_block(&self, bytes: usize) -> TaskBlock {
        let free = if TaskBlock::is_usual(bytes) {
            self.local().free_blocks.borrow_mut().pop()
        } else {
            None
        };
        free.unwrap_or_else(|| TaskBlock::new(bytes))
    }

    /// Keeps the memory of a task that is over for the next one.
    pub fn free_block(&self, block: TaskBlock) {
        let mut free = self.local().free_blocks.borrow_mut();
        if TaskBlock::is_usual(block.bytes()) && free.len() < BLOCKS_KEPT {
            free.push(block);
        }
    }

    pub(crate) fn new_node(&self, parent: &'static TaskNode) -> &'static TaskNode {
        let mut free = self.local().free_nodes.borrow_mut();
        let node = free
            .pop()
            .or_else(|| self.runtime().nodes.free.get_some(&mut free))
            .unwrap_or_else(|| self.runtime().nodes.make());
        node.attach(Some(parent));
        node
    }

    pub(crate) fn free_node(&self, node: &'static TaskNode) {
        node.reset();
        let mut free = self.local().free_nodes.borrow_mut();
        if free.len() >= TASKS_KEPT {
            self.runtime().nodes.free.put_half(&mut free);
        }
        free.push(node);
    }
}
