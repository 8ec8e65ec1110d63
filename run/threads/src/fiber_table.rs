//! The fibers of one worker and their states; see the crate's README for the state diagram.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use margay_sys_threads::fiber::Fiber;

use margay_sys_threads::wake_queue::MAX_FIBERS;

/// The number that stands for a thread's own stack.
pub(crate) const ROOT: u16 = 0;

/// A fiber of the pool: the slot of its worker, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FiberId {
    pub(crate) worker: u16,
    pub(crate) fiber: u16,
}

impl FiberId {
    pub(crate) fn to_word(self) -> u32 {
        u32::from(self.worker) << 16 | u32::from(self.fiber)
    }

    pub(crate) fn from_word(word: u32) -> FiberId {
        FiberId {
            worker: (word >> 16) as u16,
            fiber: word as u16,
        }
    }
}

/// Idle fibers that a worker keeps. A fiber costs 9 µs to make, and its stack the pages that were
/// touched.
const IDLE_KEPT: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FiberState {
    /// Runs now, or has not been resumed yet.
    Running,
    /// Suspended until it is woken.
    Waiting,
    /// In the queue of fibers that can go on.
    Ready,
    /// Without work, kept for its stack.
    Idle,
}

/// A fiber of this worker, or the root.
struct FiberSlot<W> {
    /// None while it runs, and always for the root.
    fiber: Option<Fiber>,
    state: FiberState,
    /// Woken while it was not waiting: its next wait ends at once.
    has_permit: bool,
    work: Option<W>,
}

/// What a worker lets its observer know of its fibers. Only the worker writes it; on cache lines of
/// its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct FiberCounts {
    /// Fibers that can go on.
    ready: AtomicU32,
    /// Fibers resumed so far.
    switches: AtomicU64,
}

impl FiberCounts {
    pub(crate) fn ready(&self) -> u32 {
        self.ready.load(Ordering::Relaxed)
    }

    pub(crate) fn switches(&self) -> u64 {
        self.switches.load(Ordering::Relaxed)
    }
}

/// The fibers of one worker. `W` is the work that a fiber is given. Belongs to one thread.
pub(crate) struct FiberTable<W> {
    current: Cell<u16>,
    slots: RefCell<Vec<FiberSlot<W>>>,
    ready: RefCell<VecDeque<u16>>,
    idle: RefCell<Vec<u16>>,
    /// Slots without a fiber.
    unused: RefCell<Vec<u16>>,
    counts: Arc<FiberCounts>,
}

impl<W> FiberTable<W> {
    /// The table of a thread that runs on its own stack.
    pub(crate) fn new(counts: Arc<FiberCounts>) -> FiberTable<W> {
        FiberTable {
            current: Cell::new(ROOT),
            slots: RefCell::new(vec![FiberSlot {
                fiber: None,
                state: FiberState::Running,
                has_permit: false,
                work: None,
            }]),
            ready: RefCell::new(VecDeque::new()),
            idle: RefCell::new(Vec::new()),
            unused: RefCell::new(Vec::new()),
            counts,
        }
    }

    /// The fiber that runs.
    #[inline]
    pub(crate) fn current(&self) -> u16 {
        self.current.get()
    }

    #[inline]
    pub(crate) fn set_current(&self, fiber: u16) {
        self.current.set(fiber);
    }

    /// How often a fiber, or the root, has been resumed.
    #[inline]
    pub(crate) fn switches(&self) -> u64 {
        self.counts.switches()
    }

    fn push_ready(&self, fiber: u16) {
        let ready = &mut *self.ready.borrow_mut();
        ready.push_back(fiber);
        self.counts
            .ready
            .store(ready.len() as u32, Ordering::Relaxed);
    }

    /// Running to waiting. Returns false, and takes the permit, if the running fiber has one: it
    /// does not wait then.
    pub(crate) fn start_waiting(&self) -> bool {
        let slot = &mut self.slots.borrow_mut()[usize::from(self.current())];
        if std::mem::take(&mut slot.has_permit) {
            return false;
        }
        slot.state = FiberState::Waiting;
        true
    }

    /// The running fiber goes to the end of the ready queue.
    pub(crate) fn requeue_current(&self) {
        let me = self.current();
        self.slots.borrow_mut()[usize::from(me)].state = FiberState::Ready;
        self.push_ready(me);
    }

    /// A fiber goes on after it was suspended.
    pub(crate) fn continue_as(&self, me: u16) {
        self.slots.borrow_mut()[usize::from(me)].state = FiberState::Running;
        self.current.set(me);
    }

    /// Somebody wakes a fiber: waiting to ready, or a permit if it runs.
    pub(crate) fn wake(&self, fiber: u16) {
        let slot = &mut self.slots.borrow_mut()[usize::from(fiber)];
        match slot.state {
            FiberState::Waiting => {
                slot.state = FiberState::Ready;
                self.push_ready(fiber);
            }
            FiberState::Running => slot.has_permit = true,
            // A ready fiber checks its condition anyway, an idle one has none.
            FiberState::Ready | FiberState::Idle => {}
        }
    }

    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.borrow().is_empty()
    }

    pub(crate) fn pop_ready(&self) -> Option<u16> {
        let ready = &mut *self.ready.borrow_mut();
        let first = ready.pop_front();
        self.counts
            .ready
            .store(ready.len() as u32, Ordering::Relaxed);
        first
    }

    pub(crate) fn has_waiting(&self) -> bool {
        let slots = self.slots.borrow();
        slots.iter().any(|slot| slot.state == FiberState::Waiting)
    }

    pub(crate) fn count_switch(&self) {
        let switches = &self.counts.switches;
        switches.store(switches.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Takes a fiber out of the table to resume it.
    pub(crate) fn start(&self, fiber: u16) -> Fiber {
        self.count_switch();
        self.current.set(fiber);
        let slot = &mut self.slots.borrow_mut()[usize::from(fiber)];
        slot.state = FiberState::Running;
        slot.fiber
            .take()
            .expect("only a fiber that does not run is resumed")
    }

    /// The root runs again; a fiber that was started has been suspended.
    pub(crate) fn put_back(&self, fiber: u16, body: Fiber) {
        self.current.set(ROOT);
        self.slots.borrow_mut()[usize::from(fiber)].fiber = Some(body);
    }

    /// The root runs again; a fiber that was started has ended.
    pub(crate) fn remove(&self, fiber: u16) {
        self.current.set(ROOT);
        self.slots.borrow_mut()[usize::from(fiber)].state = FiberState::Idle;
        self.unused.borrow_mut().push(fiber);
    }

    pub(crate) fn pop_idle(&self) -> Option<u16> {
        self.idle.borrow_mut().pop()
    }

    /// Whether the worker has fewer than [`MAX_FIBERS`].
    pub(crate) fn has_room(&self) -> bool {
        !self.unused.borrow().is_empty() || self.slots.borrow().len() < MAX_FIBERS
    }

    /// Enters a new fiber, for which there must be [room](Self::has_room).
    pub(crate) fn insert(&self, fiber: Fiber) -> u16 {
        let unused = self.unused.borrow_mut().pop();
        let slots = &mut *self.slots.borrow_mut();
        let at = unused.unwrap_or_else(|| {
            debug_assert!(slots.len() < MAX_FIBERS);
            slots.push(FiberSlot {
                fiber: None,
                state: FiberState::Idle,
                has_permit: false,
                work: None,
            });
            (slots.len() - 1) as u16
        });
        let slot = &mut slots[usize::from(at)];
        slot.fiber = Some(fiber);
        slot.has_permit = false;
        at
    }

    /// Gives an idle or new fiber work: it is ready then.
    pub(crate) fn assign(&self, fiber: u16, work: W) {
        let slot = &mut self.slots.borrow_mut()[usize::from(fiber)];
        slot.work = Some(work);
        slot.state = FiberState::Ready;
        self.push_ready(fiber);
    }

    /// The work that a fiber was given.
    pub(crate) fn take_work(&self, fiber: u16) -> Option<W> {
        self.slots.borrow_mut()[usize::from(fiber)].work.take()
    }

    /// Running to idle. Returns false when enough idle fibers are kept: this one is to end.
    pub(crate) fn keep_idle(&self, fiber: u16) -> bool {
        let mut idle = self.idle.borrow_mut();
        if idle.len() >= IDLE_KEPT {
            return false;
        }
        idle.push(fiber);
        drop(idle);
        self.slots.borrow_mut()[usize::from(fiber)].state = FiberState::Idle;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_before_the_wait_is_a_permit() {
        let table = FiberTable::<()>::new(Arc::default());
        table.wake(ROOT);
        table.wake(ROOT);
        assert!(!table.has_ready(), "a running fiber is not queued");
        assert!(!table.start_waiting(), "the permit ends the wait at once");
        assert!(table.start_waiting(), "one permit, however many wakes");
        assert!(table.has_waiting() && !table.has_ready());
        table.wake(ROOT);
        table.wake(ROOT);
        assert_eq!(table.pop_ready(), Some(ROOT));
        assert_eq!(table.pop_ready(), None, "queued once, however many wakes");
        table.continue_as(ROOT);
        assert!(
            table.start_waiting(),
            "a wake of a ready fiber leaves no permit"
        );
    }

    #[test]
    fn a_fiber_that_yields_goes_behind_the_others() {
        let table = FiberTable::new(Arc::default());
        let fiber = table.insert(Fiber::new(64 << 10, || ()).unwrap());
        table.assign(fiber, "work");
        table.requeue_current();
        assert_eq!(table.pop_ready(), Some(fiber));
        assert_eq!(table.pop_ready(), Some(ROOT));
        assert_eq!(table.take_work(fiber), Some("work"));
        assert_eq!(table.take_work(fiber), None);
    }
}
