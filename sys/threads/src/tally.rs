//! How a forker learns that what it forked is done: the latch of one job, the count of a group of
//! tasks.

use std::marker::PhantomData;

use margay_sys_os::sync::{AtomicU64, Cell, Ordering};

/// Tells one waiter that something is done. The waiter is a number that means something to who
/// waits; see `set`.
///
/// Until it is done a latch carries a label. Both are one word, since each fork writes them, and
/// what it writes is most of what it costs.
#[derive(Debug)]
pub struct Latch {
    /// The label below; above it [`OPEN`], [`TAKEN`], [`DONE`], or a waiter and [`WAITER`].
    state: AtomicU64,
}

const STATE_SHIFT: u32 = 32;
const OPEN: u32 = 0;
const DONE: u32 = 1;
const TAKEN: u32 = 2;
const WAITER: u32 = 1 << 31;

impl Latch {
    /// An open latch.
    #[inline]
    #[must_use]
    pub fn new(label: u32) -> Self {
        Latch {
            state: AtomicU64::new(word(OPEN, label)),
        }
    }

    /// The label of a latch that is not done.
    #[inline]
    #[must_use]
    pub fn label(&self) -> u32 {
        self.state.load(Ordering::Relaxed) as u32
    }

    /// Notes that what this latch waits for has been taken in hand on the thread that made it. To
    /// be called there, by who does it then.
    #[inline]
    pub(crate) fn take(&self) {
        // A waiter already knows.
        if self.is_open() {
            self.state
                .store(word(TAKEN, self.label()), Ordering::Relaxed);
        }
    }

    /// Whether nobody has called `take` or waits, and it is not done.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        state(self.state.load(Ordering::Relaxed)) == OPEN
    }

    /// Whether it is done. What was written before is then seen.
    #[inline]
    #[must_use]
    pub fn is_done(&self) -> bool {
        state(self.state.load(Ordering::Acquire)) == DONE
    }

    /// Names the waiter, a number below 2^31, that `set` returns. False: it is done already.
    pub fn announce(&self, waiter: u32) -> bool {
        debug_assert!(waiter & WAITER == 0);
        let before = self.state.load(Ordering::Acquire);
        if state(before) == DONE {
            return false;
        }
        // Only `set` can come in between.
        let announced = word(waiter | WAITER, before as u32);
        self.state
            .compare_exchange(before, announced, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Done. Returns the waiter, to be woken; the latch may be gone by then and is not to be
    /// touched again.
    #[must_use]
    pub(crate) fn set(&self) -> Option<u32> {
        let before = state(self.state.swap(word(DONE, 0), Ordering::AcqRel));
        (before & WAITER != 0).then_some(before & !WAITER)
    }
}

fn word(state: u32, label: u32) -> u64 {
    u64::from(state) << STATE_SHIFT | u64::from(label)
}

fn state(word: u64) -> u32 {
    (word >> STATE_SHIFT) as u32
}

/// A thread's number, which no other thread of this process ever has; cannot leave its thread.
#[derive(Debug)]
pub struct Home {
    number: u64,
    stays: PhantomData<*const ()>,
}

impl Home {
    #[must_use]
    pub fn new() -> Self {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        Home {
            number: NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            stays: PhantomData,
        }
    }
}

impl Default for Home {
    fn default() -> Self {
        Self::new()
    }
}

/// A count of tasks that come and go, and who waits for it to be zero. Tasks that are added and
/// finished on the thread that made the count cost no locked instruction.
///
/// There are two sums, of what was added and of what was finished, each in two parts: the home
/// thread's, which only that thread writes, and the others'. `finished` is read before `added`:
/// both only grow and nothing is finished before it is added, so when they are equal there was a
/// moment between the two reads at which nothing was under way.
#[derive(Debug)]
pub struct Count {
    home: u64,
    home_added: HomeCell,
    home_finished: HomeCell,
    others_added: AtomicU64,
    /// Finished by others in the low bits, the waiter above: the worker that finishes the last task
    /// needs to read the waiter and must not touch the count after that, so both are one word. A
    /// waiter is a fiber of the home thread.
    others_finished: AtomicU64,
}

/// Bits of the count in a word that has a waiter above.
const COUNT_BITS: u32 = 40;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

// SAFETY: the cells are only touched on the home thread, which a `Home` proves.
unsafe impl Sync for Count {}
// SAFETY: as above; the numbers themselves may go anywhere.
unsafe impl Send for Count {}

impl Count {
    /// A count of zero.
    #[must_use]
    pub fn new(home: &Home) -> Self {
        Count {
            home: home.number,
            home_added: HomeCell::new(),
            home_finished: HomeCell::new(),
            others_added: AtomicU64::new(0),
            others_finished: AtomicU64::new(0),
        }
    }

    /// One more.
    #[inline]
    pub fn add(&self, here: &Home) {
        if here.number == self.home {
            // SAFETY: this is the home thread, as the number says.
            unsafe { self.home_added.raise() };
        } else {
            self.others_added.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// One fewer. Returns the waiter, to be woken; unless this is the home thread the count may be
    /// gone by then.
    ///
    /// # Safety
    /// A task for which [`add`](Self::add) was called is over, and this is called once for it: a
    /// waiter for zero takes away what the tasks borrow.
    #[inline]
    pub unsafe fn finish(&self, here: &Home) -> Option<u32> {
        let before = if here.number == self.home {
            // SAFETY: as in `add`.
            unsafe { self.home_finished.raise() };
            self.others_finished.load(Ordering::SeqCst)
        } else {
            self.others_finished.fetch_add(1, Ordering::SeqCst)
        };
        let waiter = (before >> COUNT_BITS) as u32;
        (waiter != 0).then_some(waiter)
    }

    /// Whether it is zero. Only the home thread can know.
    #[inline]
    #[must_use]
    pub fn is_zero(&self, here: &Home) -> bool {
        assert_eq!(
            here.number, self.home,
            "a count is read by the thread that made it"
        );
        let finished = self.others_finished.load(Ordering::SeqCst);
        // SAFETY: this is the home thread (checked).
        let (home_finished, home_added) =
            unsafe { (self.home_finished.get(), self.home_added.get()) };
        let finished = finished.wrapping_add(home_finished);
        let added = self.others_added.load(Ordering::SeqCst);
        let added = added.wrapping_add(home_added);
        (finished ^ added) & COUNT_MASK == 0
    }

    /// Names who is woken by each task that is finished from now on: a fiber of the home thread, or
    /// nobody (0).
    pub fn announce(&self, waiter: u32) {
        assert!(
            waiter >> (u64::BITS - COUNT_BITS) == 0,
            "{waiter} is too large for a waiter"
        );
        let waiter = u64::from(waiter) << COUNT_BITS;
        let mut word = self.others_finished.load(Ordering::SeqCst);
        while let Err(seen) = self.others_finished.compare_exchange_weak(
            word,
            (word & COUNT_MASK) | waiter,
            Ordering::SeqCst,
            Ordering::SeqCst,
        ) {
            word = seen;
        }
    }
}

/// A number that only the home thread touches.
struct HomeCell(Cell<u64>);

impl std::fmt::Debug for HomeCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("of the home thread")
    }
}

impl HomeCell {
    fn new() -> Self {
        HomeCell(Cell::new(0))
    }

    /// # Safety
    /// This is the home thread.
    #[inline]
    unsafe fn get(&self) -> u64 {
        // SAFETY: by the caller's promise nobody else is here.
        self.0.with(|value| unsafe { *value })
    }

    /// # Safety
    /// This is the home thread.
    #[inline]
    unsafe fn raise(&self) {
        // SAFETY: as above.
        self.0
            .with_mut(|value| unsafe { *value = (*value).wrapping_add(1) });
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    use super::*;

    /// A permit, as a fiber has it: a wake that comes before the wait is not lost.
    struct Permit(Mutex<bool>, Condvar);

    impl Permit {
        fn new() -> Permit {
            Permit(Mutex::new(false), Condvar::new())
        }

        fn wake(&self) {
            *self.0.lock().unwrap() = true;
            self.1.notify_one();
        }

        fn block(&self) {
            let mut permit = self.0.lock().unwrap();
            while !*permit {
                permit = self.1.wait(permit).unwrap();
            }
            *permit = false;
        }
    }

    #[test]
    fn tally_latch_wakes_its_waiter() {
        loom::model(|| {
            let (latch, permit) = (Arc::new(Latch::new(7)), Arc::new(Permit::new()));
            let value = Arc::new(AtomicU64::new(0));
            let runner = {
                let (latch, permit, value) = (latch.clone(), permit.clone(), value.clone());
                thread::spawn(move || {
                    value.store(7, Ordering::Relaxed);
                    if let Some(waiter) = latch.set() {
                        assert_eq!(waiter, 3);
                        permit.wake();
                    }
                })
            };
            while !latch.is_done() {
                if latch.announce(3) {
                    permit.block();
                }
            }
            assert_eq!(value.load(Ordering::Relaxed), 7);
            runner.join().unwrap();
        });
    }

    #[test]
    fn tally_count_ends_when_all_tasks_have_and_not_before() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let home = Home::new();
            let count = Arc::new(Count::new(&home));
            let permit = Arc::new(Permit::new());
            let ended = Arc::new(AtomicU64::new(0));
            count.add(&home);
            let others: Vec<_> = (0..2)
                .map(|which| {
                    let (count, permit, ended) = (count.clone(), permit.clone(), ended.clone());
                    // The second task was spawned by the home thread, too.
                    if which == 1 {
                        count.add(&home);
                    }
                    thread::spawn(move || {
                        let here = Home::new();
                        if which == 0 {
                            // A task adds another and ends it.
                            count.add(&here);
                            ended.fetch_add(1, Ordering::Relaxed);
                            // SAFETY: nothing is borrowed.
                            if unsafe { count.finish(&here) }.is_some() {
                                permit.wake();
                            }
                        }
                        ended.fetch_add(1, Ordering::Relaxed);
                        // SAFETY: nothing is borrowed.
                        if unsafe { count.finish(&here) }.is_some() {
                            permit.wake();
                        }
                    })
                })
                .collect();
            count.announce(5);
            while !count.is_zero(&home) {
                permit.block();
            }
            count.announce(0);
            assert_eq!(ended.load(Ordering::Relaxed), 3);
            for other in others {
                other.join().unwrap();
            }
        });
    }
}
