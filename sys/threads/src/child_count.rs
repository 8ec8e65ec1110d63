//! How many children of a task have not finished, and how many of their nodes are in use.
//!
//! One word of a task's node counts the task's children that have not finished (low half) and its
//! child nodes that have not been recycled (high half). When the high half is zero all descendants
//! are done, since a node is recycled only after all nodes below it. Creating a task and finishing
//! it on the member that created it must not cost a locked instruction, so the count has two parts:
//! `local`, which only the owner writes (the member that executes the task), and `remote`, from
//! which others subtract. `remote` starts at `ZERO`, and the sum is `local - (ZERO - remote)`. A
//! count is in one of four states:
//!
//! | state | value of `remote` | who notices the end |
//! | --- | --- | --- |
//! | private | `ZERO` minus what others finished | the owner, when it checks |
//! | `WAITED` | the sum | the member that finishes the last child wakes the owner |
//! | shared | the sum | nobody: the thread that finishes the task does |
//! | `FINISHED` | the sum; the task itself is over | the member that recycles the last child node recycles this one |
//!
//! The owner takes a count from private to waited and back, and in the end to finished. A task
//! whose end is another thread's to tell (`detach`) goes from private to shared by its owner, and
//! from there to finished by that thread, while the former owner may be finishing children. In all
//! states but private the owner subtracts from `remote` as well (`is_shared`).

use margay_sys_os::sync::{AtomicBool, AtomicU64, Ordering};

/// A child.
pub const CHILD: u64 = 1;
/// The node of a child.
pub const CHILD_NODE: u64 = 1 << 32;
/// Both, for a child whose node is recycled as it finishes.
pub const CHILD_AND_NODE: u64 = CHILD | CHILD_NODE;
const ZERO: u64 = (1 << 60) | (1 << 31);
const WAITED: u64 = 1 << 62;
const FINISHED: u64 = 1 << 63;
const SUM: u64 = WAITED - 1;
const CHILDREN: u64 = CHILD_NODE - 1;
/// After this many tasks the owner subtracts what others finished from `local`, long before their
/// part could overflow.
const SETTLE: u64 = 1 << 20;

/// What the member that finished a child has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    Nothing,
    WakeOwner,
    Recycle,
}

/// See the module.
#[derive(Debug)]
pub struct ChildCount {
    local: AtomicU64,
    remote: AtomicU64,
    is_shared: AtomicBool,
}

impl Default for ChildCount {
    fn default() -> Self {
        Self::new()
    }
}

impl ChildCount {
    /// No children, in the private state.
    #[must_use]
    pub fn new() -> ChildCount {
        ChildCount {
            local: AtomicU64::new(0),
            remote: AtomicU64::new(ZERO),
            is_shared: AtomicBool::new(false),
        }
    }

    /// Back to no children, when nobody uses it.
    #[inline]
    pub fn reset(&self) {
        self.local.store(0, Ordering::Relaxed);
        self.remote.store(ZERO, Ordering::Relaxed);
        self.is_shared.store(false, Ordering::Relaxed);
    }

    /// Counts one more child. For the owner.
    #[inline]
    pub fn add_child(&self) {
        let local = self
            .local
            .load(Ordering::Relaxed)
            .wrapping_add(CHILD_AND_NODE);
        self.local.store(local, Ordering::Relaxed);
        if local & (SETTLE - 1) == 0 {
            self.settle();
        }
    }

    /// Counts one more child that a running child creates, a part of itself: the count is not zero
    /// meanwhile. `is_owner`: the owner calls.
    #[inline]
    pub fn add_sibling(&self, is_owner: bool) {
        if is_owner && !self.is_shared.load(Ordering::Relaxed) {
            self.add_child();
        } else {
            // In the private state this may exceed what others have finished: the sum wraps around.
            self.remote.fetch_add(CHILD_AND_NODE, Ordering::Relaxed);
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
    pub fn unfinished(&self) -> u64 {
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
        self.leave_private(WAITED, Ordering::SeqCst);
    }

    /// From now on any thread may [finish](Self::finish) the task, whose body is over. For the
    /// owner, before it tells that thread.
    pub fn share(&self) {
        self.leave_private(0, Ordering::AcqRel);
    }

    /// Moves the owner's part to `remote`, which enters `state`. Returns `remote`.
    fn leave_private(&self, state: u64, order: Ordering) -> u64 {
        debug_assert!(!self.is_shared.load(Ordering::Relaxed));
        let local = self.local.load(Ordering::Relaxed);
        let change = local.wrapping_sub(ZERO).wrapping_add(state);
        self.is_shared.store(true, Ordering::Relaxed);
        self.remote.fetch_add(change, order).wrapping_add(change)
    }

    /// Back to the private state. For the owner.
    pub fn stop_waiting(&self) {
        let sum = self.remote.swap(ZERO, Ordering::SeqCst) & SUM;
        self.local.store(sum, Ordering::Relaxed);
        self.is_shared.store(false, Ordering::Relaxed);
    }

    /// The task is over. For the owner or, in the shared state, the one thread that ends the task.
    /// Returns whether all tasks below it are over, too, so that the node may be recycled;
    /// otherwise [`done`](Self::done) of the last of them asks for it.
    #[inline]
    #[must_use]
    pub fn finish(&self) -> bool {
        let is_shared = self.is_shared.load(Ordering::Relaxed);
        if !is_shared && self.sum() == 0 {
            return true;
        }
        self.finish_with_children(is_shared)
    }

    #[cold]
    fn finish_with_children(&self, is_shared: bool) -> bool {
        let remote = if is_shared {
            self.remote.fetch_add(FINISHED, Ordering::AcqRel)
        } else {
            self.leave_private(FINISHED, Ordering::AcqRel)
        };
        remote & SUM == 0
    }

    /// A child has finished ([`CHILD`]), its node has been recycled ([`CHILD_NODE`]), or both.
    /// `is_owner`: the owner calls.
    #[inline]
    #[must_use]
    pub fn done(&self, what: u64, is_owner: bool) -> NextStep {
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn children_divide_here_and_elsewhere() {
        let count = ChildCount::new();
        count.add_child();
        count.add_sibling(false);
        assert_eq!(count.unfinished(), 2);
        count.start_waiting();
        count.add_sibling(true);
        count.add_sibling(false);
        assert_eq!(count.unfinished(), 4);
        count.stop_waiting();
        count.add_sibling(true);
        for _ in 0..5 {
            assert!(!count.is_alone());
            assert_eq!(count.done(CHILD_AND_NODE, false), NextStep::Nothing);
        }
        assert!(count.is_alone() && count.finish());
    }

    #[test]
    fn children_finish_here_and_elsewhere() {
        let count = ChildCount::new();
        for _ in 0..3 {
            count.add_child();
        }
        assert_eq!(count.unfinished(), 3);
        assert_eq!(count.done(CHILD, false), NextStep::Nothing);
        assert_eq!(count.unfinished(), 2);
        assert_eq!(count.done(CHILD_NODE, false), NextStep::Nothing);
        count.start_waiting();
        assert_eq!(count.done(CHILD_AND_NODE, false), NextStep::Nothing);
        assert_eq!(count.done(CHILD, false), NextStep::WakeOwner);
        assert!(!count.is_alone());
        count.stop_waiting();
        assert_eq!(count.unfinished(), 0);
        assert!(!count.is_alone());
        assert!(!count.finish());
        assert_eq!(count.done(CHILD_NODE, false), NextStep::Recycle);
    }

    #[test]
    fn a_creator_of_millions_settles() {
        let count = ChildCount::new();
        // Miri takes a thousand times as long.
        for _ in 0..if cfg!(miri) { 1000 } else { 3 * SETTLE } {
            count.add_child();
            assert_eq!(count.done(CHILD_AND_NODE, false), NextStep::Nothing);
        }
        assert!(count.is_alone() && count.finish());
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread::{self, JoinHandle};

    use super::*;

    /// What lets the owner sleep: a permit.
    #[derive(Default)]
    struct Sleep {
        permit: Mutex<bool>,
        changed: Condvar,
    }

    impl Sleep {
        fn wake(&self) {
            *self.permit.lock().unwrap() = true;
            self.changed.notify_one();
        }

        fn sleep(&self) {
            let mut permit = self.permit.lock().unwrap();
            while !std::mem::take(&mut *permit) {
                permit = self.changed.wait(permit).unwrap();
            }
        }
    }

    /// What happens to the nodes of a task and its children.
    #[derive(Default)]
    struct Nodes {
        of_children: u64,
        own: u32,
    }

    impl Nodes {
        fn recycle_own(&mut self) {
            assert_eq!(self.of_children, 2, "all below is recycled before");
            self.own += 1;
        }
    }

    type Shared = Arc<(ChildCount, Sleep, Mutex<Nodes>)>;

    fn shared() -> Shared {
        Arc::new((ChildCount::new(), Sleep::default(), Mutex::default()))
    }

    /// Finishes two children on another thread: one with its node, one whose node is recycled
    /// later.
    fn finish_two(all: &Shared) -> JoinHandle<()> {
        let all = all.clone();
        thread::spawn(move || {
            let (count, sleep, nodes) = &*all;
            for what in [CHILD, CHILD_AND_NODE, CHILD_NODE] {
                nodes.lock().unwrap().of_children += what / CHILD_NODE;
                match count.done(what, false) {
                    NextStep::Nothing => {}
                    NextStep::WakeOwner => sleep.wake(),
                    NextStep::Recycle => nodes.lock().unwrap().recycle_own(),
                }
            }
        })
    }

    /// The owner waits for its children, some of which it finishes itself: it is woken.
    #[test]
    fn child_count_wakes_an_owner_that_waits() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let all = shared();
            let (count, sleep, _) = &*all;
            for _ in 0..3 {
                count.add_child();
            }
            let other = finish_two(&all);
            assert_eq!(count.done(CHILD_AND_NODE, true), NextStep::Nothing);
            while count.unfinished() != 0 {
                count.start_waiting();
                if count.unfinished() != 0 {
                    sleep.sleep();
                }
                count.stop_waiting();
            }
            other.join().unwrap();
            assert!(count.is_alone() && count.finish());
        });
    }

    /// A task ends before its children: exactly one side recycles its node, and only when all below
    /// is over.
    #[test]
    fn child_count_is_recycled_once() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let all = shared();
            let (count, _, nodes) = &*all;
            count.add_child();
            count.add_child();
            let other = finish_two(&all);
            if count.finish() {
                nodes.lock().unwrap().recycle_own();
            }
            other.join().unwrap();
            assert_eq!(nodes.lock().unwrap().own, 1);
        });
    }

    /// A child divides itself on another thread while the owner waits, or ends.
    fn divide_one(waits: bool) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let all = shared();
            let (count, sleep, nodes) = &*all;
            count.add_child();
            let other = {
                let all = all.clone();
                thread::spawn(move || {
                    let (count, sleep, nodes) = &*all;
                    count.add_sibling(false);
                    for _ in 0..2 {
                        nodes.lock().unwrap().of_children += 1;
                        match count.done(CHILD_AND_NODE, false) {
                            NextStep::Nothing => {}
                            NextStep::WakeOwner => sleep.wake(),
                            NextStep::Recycle => nodes.lock().unwrap().recycle_own(),
                        }
                    }
                })
            };
            while waits && count.unfinished() != 0 {
                count.start_waiting();
                if count.unfinished() != 0 {
                    sleep.sleep();
                }
                count.stop_waiting();
            }
            if waits {
                assert_eq!(nodes.lock().unwrap().of_children, 2);
            }
            if count.finish() {
                nodes.lock().unwrap().recycle_own();
            }
            other.join().unwrap();
            assert_eq!(nodes.lock().unwrap().own, 1);
        });
    }

    #[test]
    fn child_count_waits_for_all_parts_of_a_child() {
        divide_one(true);
    }

    #[test]
    fn child_count_is_recycled_after_all_parts_of_a_child() {
        divide_one(false);
    }

    /// Another thread ends a task whose body is over (`detach`) while its former owner finishes a
    /// child: exactly one of them recycles the node.
    #[test]
    fn child_count_of_a_detached_task() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let all = shared();
            let (count, _, nodes) = &*all;
            count.add_child();
            count.add_child();
            assert_eq!(count.done(CHILD_NODE, false), NextStep::Nothing);
            nodes.lock().unwrap().of_children += 1;
            count.share();
            let other = {
                let all = all.clone();
                thread::spawn(move || {
                    let (count, _, nodes) = &*all;
                    if count.finish() {
                        nodes.lock().unwrap().recycle_own();
                    }
                })
            };
            for what in [CHILD, CHILD_AND_NODE] {
                nodes.lock().unwrap().of_children += what / CHILD_NODE;
                if count.done(what, true) == NextStep::Recycle {
                    nodes.lock().unwrap().recycle_own();
                }
            }
            other.join().unwrap();
            assert_eq!(nodes.lock().unwrap().own, 1);
        });
    }
}
