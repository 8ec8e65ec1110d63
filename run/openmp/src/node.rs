//! The nodes of the task tree: parents, children, and how many children of a task have not
//! finished.
//!
//! Each task, implicit or explicit, has a node, and so has each taskgroup. Nodes are recycled,
//! never freed.
//!
//! One word of a node counts its children that have not finished (low half) and its child nodes
//! that have not been recycled (high half). When the high half is zero all descendants are done,
//! since a node is recycled only after all nodes below it. Creating a task and finishing it on the
//! member that created it must not cost a locked instruction, so the count has two parts: `local`,
//! which only the owner writes (the member that executes the task), and `remote`, from which others
//! subtract. `remote` starts at [`ZERO`], and the sum is `local - (ZERO - remote)`. A node is in
//! one of three states:
//!
//! | state | value of `remote` | who notices the end |
//! | --- | --- | --- |
//! | private | [`ZERO`] minus what others finished | the owner, when it checks |
//! | [`WAITED`] | the sum | the member that finishes the last child wakes the owner |
//! | [`FINISHED`] | the sum; the task itself is over | the member that recycles the last child node recycles this one |
//!
//! The owner takes a node from private to waited and back, and in the end to finished. In the
//! latter two states it subtracts from `remote` as well (`is_shared`, which only the owner reads).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use margay_sys_threads::static_ref::StaticRef;

use crate::depend::{Dependence, Siblings};
use crate::team::Member;

/// A child, and its node.
pub const CHILD: u64 = 1;
/// The node of a child.
pub const CHILD_NODE: u64 = 1 << 32;
const BOTH: u64 = CHILD | CHILD_NODE;
const ZERO: u64 = (1 << 60) | (1 << 31);
const WAITED: u64 = 1 << 62;
const FINISHED: u64 = 1 << 63;
const SUM: u64 = WAITED - 1;
const CHILDREN: u64 = CHILD_NODE - 1;
/// After this many tasks the owner subtracts what others finished from `local`, long before their
/// part could overflow.
const SETTLE: u64 = 1 << 20;

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
    local: AtomicU64,
    remote: AtomicU64,
    is_shared: AtomicBool,
    /// Of a taskgroup: it has been cancelled.
    pub is_cancelled: AtomicBool,
    /// Of a taskgroup: it belongs to a work share or region with task reductions, not to the
    /// program.
    pub is_workshare: AtomicBool,
    /// Of a taskgroup: the one around it.
    pub outer_group: StaticRef<TaskNode>,
    /// Whether it has been an element of a dependence.
    pub has_dependence: AtomicBool,
    pub dependence: Mutex<Dependence>,
    /// Whether a child of it has had dependences. Only its owner, and the member that recycles it,
    /// use it.
    pub has_siblings: AtomicBool,
    /// Dependences among its children.
    pub siblings: Mutex<Siblings>,
}

/// What the member that finished a child has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    Nothing,
    WakeOwner,
    Recycle,
}

/// The nodes of a process.
#[derive(Debug, Default)]
pub struct TaskNodes {
    /// The number of the last node that was made.
    last_number: AtomicU32,
    /// Nodes that no member keeps. Bounded by the nodes that were in use at the same time.
    free: Mutex<Vec<&'static TaskNode>>,
}

impl TaskNodes {
    /// A node that nobody uses.
    pub fn get(&self) -> &'static TaskNode {
        let free = self
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        free.unwrap_or_else(|| self.make())
    }

    /// Keeps a node, which has been [`reset`](TaskNode::reset), for the next one that needs a node.
    pub fn put(&self, node: &'static TaskNode) {
        self.free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(node);
    }

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
            local: AtomicU64::new(0),
            remote: AtomicU64::new(ZERO),
            is_shared: AtomicBool::new(false),
            is_cancelled: AtomicBool::new(false),
            is_workshare: AtomicBool::new(false),
            outer_group: StaticRef::none(),
            has_dependence: AtomicBool::new(false),
            dependence: Mutex::default(),
            has_siblings: AtomicBool::new(false),
            siblings: Mutex::default(),
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
        self.local.store(0, Ordering::Relaxed);
        self.remote.store(ZERO, Ordering::Relaxed);
        self.is_shared.store(false, Ordering::Relaxed);
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

    /// Counts one more child. For the owner.
    #[inline]
    pub fn add_child(&self) {
        let local = self.local.load(Ordering::Relaxed).wrapping_add(BOTH);
        self.local.store(local, Ordering::Relaxed);
        if local & (SETTLE - 1) == 0 {
            self.settle();
        }
    }

    #[cold]
    fn settle(&self) {
        let finished = ZERO.wrapping_sub(self.remote.load(Ordering::Acquire));
        self.remote.fetch_add(finished, Ordering::AcqRel);
        let local = self.local.load(Ordering::Relaxed).wrapping_sub(finished);
        self.local.store(local, Ordering::Relaxed);
    }

    /// The count, for the owner in the private state.
    #[inline]
    fn sum(&self) -> u64 {
        let finished = ZERO.wrapping_sub(self.remote.load(Ordering::Acquire));
        self.local.load(Ordering::Relaxed).wrapping_sub(finished)
    }

    /// Children that have not finished. For the owner.
    #[inline]
    #[must_use]
    pub fn children(&self) -> u64 {
        if self.is_shared.load(Ordering::Relaxed) {
            return self.remote.load(Ordering::Acquire) & CHILDREN;
        }
        self.sum() & CHILDREN
    }

    /// Whether all descendants are done. For the owner.
    #[inline]
    #[must_use]
    pub fn is_alone(&self) -> bool {
        if self.is_shared.load(Ordering::Relaxed) {
            return self.remote.load(Ordering::Acquire) & SUM == 0;
        }
        self.sum() == 0
    }

    /// From now on the member that finishes the last child wakes the owner. For the owner, before
    /// it sleeps.
    pub fn start_waiting(&self) {
        debug_assert!(!self.is_shared.load(Ordering::Relaxed));
        let local = self.local.load(Ordering::Relaxed);
        self.is_shared.store(true, Ordering::Relaxed);
        self.remote.fetch_add(
            local.wrapping_sub(ZERO).wrapping_add(WAITED),
            Ordering::SeqCst,
        );
    }

    /// Back to the private state. For the owner.
    pub fn stop_waiting(&self) {
        let sum = self.remote.swap(ZERO, Ordering::SeqCst) & SUM;
        self.local.store(sum, Ordering::Relaxed);
        self.is_shared.store(false, Ordering::Relaxed);
    }

    /// The task is over. For the owner. Returns whether all tasks below it are over, too, so that
    /// the node may be recycled; otherwise [`child_done`](Self::child_done) of the last of them
    /// asks for it.
    #[inline]
    #[must_use]
    pub fn finish(&self) -> bool {
        if self.sum() == 0 {
            return true;
        }
        self.finish_with_children()
    }

    #[cold]
    fn finish_with_children(&self) -> bool {
        let change = self
            .local
            .load(Ordering::Relaxed)
            .wrapping_sub(ZERO)
            .wrapping_add(FINISHED);
        self.is_shared.store(true, Ordering::Relaxed);
        let sum = self
            .remote
            .fetch_add(change, Ordering::AcqRel)
            .wrapping_add(change);
        sum & SUM == 0
    }

    /// A child has finished ([`CHILD`]), its node has been recycled ([`CHILD_NODE`]), or both.
    /// `here` is the member that calls, if it is one.
    #[inline]
    #[must_use]
    pub fn child_done(&'static self, what: u64, here: Option<&'static Member>) -> NextStep {
        let owner = self.owner.get(Ordering::Relaxed);
        let is_owner = matches!((owner, here), (Some(a), Some(b)) if std::ptr::eq(a, b));
        if is_owner && !self.is_shared.load(Ordering::Relaxed) {
            let local = self.local.load(Ordering::Relaxed).wrapping_sub(what);
            self.local.store(local, Ordering::Relaxed);
            return NextStep::Nothing;
        }
        let sum = self
            .remote
            .fetch_sub(what, Ordering::SeqCst)
            .wrapping_sub(what);
        if sum & FINISHED != 0 {
            if sum & SUM == 0 {
                return NextStep::Recycle;
            }
        } else if sum & WAITED != 0 && sum & CHILDREN == 0 {
            return NextStep::WakeOwner;
        }
        NextStep::Nothing
    }
}

/// Both parts, for a child whose node is recycled as it finishes.
pub const CHILD_AND_NODE: u64 = BOTH;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_finish_here_and_elsewhere() {
        let node = TaskNode::make(1);
        for _ in 0..3 {
            node.add_child();
        }
        assert_eq!(node.children(), 3);
        assert_eq!(node.child_done(CHILD, None), NextStep::Nothing);
        assert_eq!(node.children(), 2);
        assert_eq!(node.child_done(CHILD_NODE, None), NextStep::Nothing);
        node.start_waiting();
        assert_eq!(node.child_done(CHILD_AND_NODE, None), NextStep::Nothing);
        assert_eq!(node.child_done(CHILD, None), NextStep::WakeOwner);
        assert!(!node.is_alone());
        node.stop_waiting();
        assert_eq!(node.children(), 0);
        assert!(!node.is_alone());
        assert!(!node.finish());
        assert_eq!(node.child_done(CHILD_NODE, None), NextStep::Recycle);
    }

    #[test]
    fn descent() {
        let [top, middle, low, other] = [1, 2, 3, 4].map(TaskNode::make);
        middle.attach(Some(top));
        low.attach(Some(middle));
        other.attach(Some(top));
        assert!(low.is_within(top) && low.is_within(low) && !low.is_within(other));
        assert!(!top.is_within(low));
    }

    #[test]
    fn a_creator_of_millions_settles() {
        let node = TaskNode::make(1);
        for _ in 0..3 * SETTLE {
            node.add_child();
            assert_eq!(node.child_done(CHILD_AND_NODE, None), NextStep::Nothing);
        }
        assert!(node.is_alone() && node.finish());
    }
}
