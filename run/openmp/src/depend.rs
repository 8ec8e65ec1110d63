//! Dependences among the children of a task: the `depend` clause.
//!
//! For each address that a dependence names, the parent remembers the last task that may write it and those that have
//! read it since. A new task waits for some of them; each of them has a list of whom it holds up.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use margay_sys_threads::link::Link;

use crate::node::Node;
use crate::task::Task;
use crate::team::Member;

/// What a task does with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    /// `out`, `inout`, and `mutexinoutset`, whose tasks exclude each other also when one after the other.
    Write,
}

/// A task that others may wait for, as long as it has not been recycled.
#[derive(Clone, Copy, Debug)]
struct Earlier {
    node: &'static Node,
    serial: u32,
}

/// The state of a task that takes part in dependences.
#[derive(Debug, Default)]
pub struct Dependence {
    is_done: bool,
    later: Vec<Later>,
    /// The task, while it is held up.
    held: Option<Box<Task>>,
    /// How many tasks hold it up, and one more while the list is being made.
    pending: u32,
}

/// Who is held up.
#[derive(Clone, Debug)]
enum Later {
    Task(&'static Node),
    Waiter(Arc<Waiter>),
}

/// Somebody who waits in place until dependences are met.
#[derive(Debug)]
pub struct Waiter {
    pub pending: AtomicU32,
    member: Link<Member>,
}

/// What the children of a task do with each address.
#[derive(Debug, Default)]
pub struct Siblings(HashMap<usize, Accesses>);

#[derive(Debug, Default)]
struct Accesses {
    writer: Option<Earlier>,
    readers: Vec<Earlier>,
}

/// Readers of one address are looked through for those that are done when there are more than this.
const READERS: usize = 64;

impl Siblings {
    /// Forgets them: all children are done.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The earlier tasks for which a task with these accesses waits; the task, if there is one, is remembered.
    fn earlier(&mut self, accesses: &[(usize, Access)], task: Option<Earlier>) -> Vec<Earlier> {
        let mut found: Vec<Earlier> = Vec::new();
        for &(address, access) in accesses {
            let there = self.0.entry(address).or_default();
            match access {
                Access::Read => found.extend(there.writer),
                Access::Write if there.readers.is_empty() => found.extend(there.writer),
                Access::Write => found.extend(&there.readers),
            }
            let Some(task) = task else { continue };
            match access {
                Access::Read => {
                    if there.readers.len() > READERS {
                        there.readers.retain(Earlier::is_alive);
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
            found.retain(|earlier| {
                earlier.node.number != task.node.number || earlier.serial != task.serial
            });
        }
        // A node may be there twice with different serial numbers: as a task that is over, and as one that is not.
        found.sort_unstable_by_key(|earlier| (earlier.node.number, earlier.serial));
        found.dedup_by_key(|earlier| (earlier.node.number, earlier.serial));
        found
    }
}

impl Earlier {
    fn of(node: &'static Node) -> Earlier {
        Earlier {
            node,
            serial: node.serial.load(Ordering::Relaxed),
        }
    }

    fn is_alive(&self) -> bool {
        self.node.serial.load(Ordering::Acquire) == self.serial
    }

    /// Enters `later` in the list of the task, unless it is over.
    fn hold(&self, later: &Later) -> bool {
        let mut dependence = lock(self.node);
        if !self.is_alive() || dependence.is_done {
            return false;
        }
        dependence.later.push(later.clone());
        true
    }
}

fn lock(node: &'static Node) -> MutexGuard<'static, Dependence> {
    node.dependence
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Enters a new task under `parent`. Returns it when nothing holds it up; otherwise it comes out of [`finish`] of the last
/// task that does.
pub fn enter(
    parent: &'static Node,
    task: Box<Task>,
    accesses: &[(usize, Access)],
) -> Option<Box<Task>> {
    let node = task.node;
    node.has_dependence.store(true, Ordering::Relaxed);
    *lock(node) = Dependence {
        pending: 1,
        ..Dependence::default()
    };
    parent.has_siblings.store(true, Ordering::Relaxed);
    let earlier = siblings(parent).earlier(accesses, Some(Earlier::of(node)));
    for earlier in earlier {
        lock(node).pending += 1;
        if !earlier.hold(&Later::Task(node)) {
            lock(node).pending -= 1;
        }
    }
    let mut dependence = lock(node);
    dependence.pending -= 1;
    if dependence.pending == 0 {
        return Some(task);
    }
    dependence.held = Some(task);
    None
}

/// Who waits in place for what these accesses depend on; none when there is nothing to wait for.
#[must_use]
pub fn wait_for(
    parent: &'static Node,
    accesses: &[(usize, Access)],
    member: &'static Member,
) -> Option<Arc<Waiter>> {
    parent.has_siblings.store(true, Ordering::Relaxed);
    let earlier = siblings(parent).earlier(accesses, None);
    let waiter = Arc::new(Waiter {
        pending: AtomicU32::new(0),
        member: Link::to(member),
    });
    for earlier in earlier {
        waiter.pending.fetch_add(1, Ordering::SeqCst);
        if !earlier.hold(&Later::Waiter(Arc::clone(&waiter))) {
            waiter.pending.fetch_sub(1, Ordering::SeqCst);
        }
    }
    (waiter.pending.load(Ordering::SeqCst) != 0).then_some(waiter)
}

/// A task is over: hands every task that only it held up to `ready`, and wakes who waits in place.
pub fn finish(node: &'static Node, mut ready: impl FnMut(Box<Task>)) {
    let later = {
        let mut dependence = lock(node);
        dependence.is_done = true;
        std::mem::take(&mut dependence.later)
    };
    node.has_dependence.store(false, Ordering::Relaxed);
    for later in later {
        match later {
            Later::Task(node) => {
                let mut dependence = lock(node);
                dependence.pending -= 1;
                if dependence.pending == 0
                    && let Some(task) = dependence.held.take()
                {
                    drop(dependence);
                    ready(task);
                }
            }
            Later::Waiter(waiter) => {
                if waiter.pending.fetch_sub(1, Ordering::SeqCst) == 1
                    && let Some(member) = waiter.member.get(Ordering::Relaxed)
                {
                    member.notify();
                }
            }
        }
    }
}

/// All children of `parent` are done: forgets what they did.
#[inline]
pub fn forget(parent: &'static Node) {
    if parent.has_siblings.load(Ordering::Relaxed) {
        parent.has_siblings.store(false, Ordering::Relaxed);
        siblings(parent).clear();
    }
}

/// The table of `parent`.
fn siblings(parent: &'static Node) -> MutexGuard<'static, Siblings> {
    parent
        .siblings
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}
