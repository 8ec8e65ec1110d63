//! Events of tasks with `detach`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use margay_sys_os::static_ref::StaticRef;
use margay_sys_threads::inspect::Wait;
use margay_sys_threads::slot;

use super::complete;
use crate::node::TaskNode;
use crate::runtime::Runtime;
use crate::team::{Context, Member, TaskFilter, Team};

/// The event of a task with `detach`. The task is over when its body has run and the event is
/// fulfilled.
#[derive(Debug)]
pub struct Event {
    /// [`BODY_RUN`], [`FULFILLED`], or both.
    state: AtomicU8,
    /// The handle that the program has.
    pub(super) number: usize,
    /// The task's node, and the team.
    node: StaticRef<TaskNode>,
    team: StaticRef<Team>,
    waiter: StaticRef<Member>,
}

const BODY_RUN: u8 = 1;
const FULFILLED: u8 = 2;

/// The events of a process that have not been fulfilled.
#[derive(Debug, Default)]
pub struct Events {
    by_number: Mutex<HashMap<usize, Arc<Event>>>,
    /// The number of the last event.
    last_number: AtomicUsize,
}

impl Events {
    pub(super) fn take(&self, number: usize) -> Option<Arc<Event>> {
        self.lock().remove(&number)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Arc<Event>>> {
        self.by_number
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Event {
    pub(crate) fn bind(&self, node: &'static TaskNode, team: &'static Team) {
        self.node.set(Some(node), Ordering::Release);
        self.team.set(Some(team), Ordering::Release);
    }

    /// The body of a deferred task has run. Returns whether the event is still to be fulfilled.
    pub(super) fn is_awaited_after(&self, node: &'static TaskNode) -> bool {
        if self.state.load(Ordering::SeqCst) & FULFILLED != 0 {
            return false;
        }
        // The thread that fulfils it completes the task, while children may finish on this one.
        node.children.share();
        self.state.fetch_or(BODY_RUN, Ordering::SeqCst) & FULFILLED == 0
    }

    pub(super) fn is_fulfilled(&self) -> bool {
        self.state.load(Ordering::SeqCst) & FULFILLED != 0
    }

    /// The body of an undeferred task has run: waits for the event.
    pub(crate) fn wait(&self, context: &Context) {
        // Fulfilling the event wakes the waiter, which completes the task.
        self.waiter.set(Some(context.member), Ordering::SeqCst);
        let filter = TaskFilter::Descendants(context.task.get());
        context.wait(Wait::Event, filter, &|| self.is_fulfilled());
    }
}

impl Runtime {
    /// A new event, and the handle by which the program knows it.
    #[must_use]
    pub fn new_event(&self) -> (Arc<Event>, usize) {
        let number = 1 + self.events.last_number.fetch_add(1, Ordering::Relaxed);
        let event = Arc::new(Event {
            state: AtomicU8::new(0),
            number,
            node: StaticRef::none(),
            team: StaticRef::none(),
            waiter: StaticRef::none(),
        });
        self.events.lock().insert(number, Arc::clone(&event));
        (event, number)
    }

    /// The event with this handle, until it is fulfilled.
    #[must_use]
    pub fn event(&self, number: usize) -> Option<Arc<Event>> {
        self.events.lock().get(&number).map(Arc::clone)
    }

    /// Fulfils the event with this handle. Returns whether there was one. Any thread may call it.
    pub fn fulfill_event(&self, number: usize) -> bool {
        let Some(event) = self.events.take(number) else {
            return false;
        };
        debug_assert_eq!(event.number, number);
        if self.tool().is_some()
            && let Some(node) = event.node.get(Ordering::Acquire)
        {
            // The task is there until its event is fulfilled.
            let is_late = event.state.load(Ordering::SeqCst) & BODY_RUN != 0;
            slot::with(|context: Option<&Context>| {
                if let Some(context) = context {
                    context.tell_fulfilled(&node.tool, is_late);
                }
            });
        }
        let before = event.state.fetch_or(FULFILLED, Ordering::SeqCst);
        if let Some(waiter) = event.waiter.get(Ordering::SeqCst) {
            waiter.notify();
        } else if before & BODY_RUN != 0
            && let Some(node) = event.node.get(Ordering::Acquire)
            && let Some(team) = event.team.get(Ordering::Acquire)
        {
            complete(None, team, node);
        }
        true
    }
}
