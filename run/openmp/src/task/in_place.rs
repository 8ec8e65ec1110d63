//! Undeferred tasks that need nothing beside what their creator has on its stack: most of those
//! with `if(false)`, of those in final tasks, and of those without a team.

use std::sync::atomic::Ordering;

use super::{complete, recycle};
use crate::icv::Icv;
use crate::node::TaskNode;
use crate::team::Context;

/// What a task has left that was run in place: dependences, reductions, or children that outlive
/// it.
#[derive(Debug)]
#[must_use]
pub struct LeftByTask {
    parent: &'static TaskNode,
    node: &'static TaskNode,
}

/// What is in force again when such a task is over.
#[derive(Debug)]
pub(crate) struct SavedInPlace {
    parent: &'static TaskNode,
    node: &'static TaskNode,
    task: &'static TaskNode,
    icv: &'static Icv,
    was_final: bool,
    group: Option<&'static TaskNode>,
}

impl Context {
    /// Whether a new task, without dependences, event and arguments to be copied by a function, is
    /// run by [`run_in_place`](Self::run_in_place). Only reads memory.
    #[inline]
    #[must_use]
    pub fn runs_in_place(&self, is_undeferred: bool) -> bool {
        let is_at_once = is_undeferred || self.is_final.get() || self.team.size == 1;
        if !is_at_once || self.tool.is_some() || self.team.is_cancelled() {
            return false;
        }
        let Ok(inherited) = self.inherited.try_borrow() else {
            return false;
        };
        inherited.reductions.is_none()
            && !inherited.group.is_some_and(super::is_group_cancelled)
            && self.frame.get().in_place.get(Ordering::Relaxed).is_some()
    }

    /// Makes the node that [`run_in_place`](Self::run_in_place) needs, where there is none.
    pub(crate) fn make_in_place(&self) {
        let parent = self.frame.get();
        if parent.in_place.get(Ordering::Relaxed).is_none() {
            let node = self.new_node(parent);
            parent.in_place.set(Some(node), Ordering::Relaxed);
        }
    }

    /// Runs a task whose body is `body` as part of the current one, with the node that its parent
    /// keeps for this. Returns what the caller passes to [`end_in_place`](Self::end_in_place);
    /// apart from the body this only reads and writes memory.
    ///
    /// # Panics
    /// When there is no such node: [`runs_in_place`](Self::runs_in_place) tells.
    #[inline]
    pub fn run_in_place(&self, is_final: bool, body: impl FnOnce()) -> Option<LeftByTask> {
        let saved = self.enter_in_place(is_final);
        body();
        self.leave_in_place(&saved)
    }

    #[inline]
    pub(crate) fn enter_in_place(&self, is_final: bool) -> SavedInPlace {
        let parent = self.frame.get();
        let node = parent.in_place.get(Ordering::Relaxed);
        let node = node.expect("a node for a task in place");
        node.attach(Some(parent));
        node.owner.set(Some(self.member), Ordering::Relaxed);
        self.frame.set(node);
        SavedInPlace {
            parent,
            node,
            task: self.task.replace(node),
            icv: self.icv.get(),
            was_final: self.is_final.replace(is_final),
            group: self.inherited.borrow().group,
        }
    }

    #[inline]
    pub(crate) fn leave_in_place(&self, saved: &SavedInPlace) -> Option<LeftByTask> {
        let &SavedInPlace { parent, node, .. } = saved;
        self.task.set(saved.task);
        self.frame.set(parent);
        self.icv.set(saved.icv);
        self.is_final.set(saved.was_final);
        let mut inherited = self.inherited.borrow_mut();
        inherited.group = saved.group;
        let is_plain = inherited.reductions.is_none();
        drop(inherited);
        let has_left_nothing =
            is_plain && node.children.is_alone() && !node.has_siblings.load(Ordering::Relaxed);
        (!has_left_nothing).then_some(LeftByTask { parent, node })
    }

    /// Ends a task that has left something.
    #[cold]
    #[inline(never)]
    pub fn end_in_place(&self, left: LeftByTask) {
        let LeftByTask { parent, node } = left;
        drop(self.inherited.borrow_mut().reductions.take());
        parent.in_place.set(None, Ordering::Relaxed);
        if node.children.is_alone() {
            recycle(Some(self), self.team, node);
        } else {
            // Counted as a child only now that it outlives the call: until then its parent, below
            // it on this stack, neither waited nor ended.
            parent.children.add_child();
            complete(Some(self), self.team, node);
        }
    }
}
