//! Workers: what one thread of the pool does, and the one place where it waits.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_sys_os::{clock, cpu, fence};
use margay_sys_threads::deque::Owner;
use margay_sys_threads::fiber::{self, Fiber, Status};
use margay_sys_threads::job::{self, Context, Count, Home, Job, Latch, Nodes};
use margay_sys_threads::preempt::Timer;

use crate::inbox::MAX_FIBERS;
use crate::offer::{Covered, Offer, Offered, Patience, RIPE};
use crate::pool::{Seat, Shared, Token, settle};
use crate::rest::Rest;

/// The context on a thread's own stack.
const ROOT: u16 = 0;

/// Idle fibers that a worker keeps. A fiber costs 9 µs to make and its stack the pages that were touched.
const IDLE_KEPT: usize = 64;

/// Looks at a condition, with nothing else to do, before the fiber is suspended for it. A line that the other core writes
/// comes in 100 to 200 ns, a suspension and a wake cost about as much.
const LOOKS: u32 = 40;

/// Longest sleep of an idle worker. Every sleep ends by a wake; this bounds what a lost one could cost.
const SLEEP_NS: u64 = 500_000_000;

/// While others press, an idle worker is not woken for each publication but comes by so often ...
const DOZE_NS: u64 = 1_000_000;
/// ... for so many times, before it sleeps for good.
const DOZES: u32 = 50;

/// An idle worker looks so often at what others have: each look takes lines from the cores that write them. What comes for itself it sees at once.
const LOOK_NS: u64 = 1_000;

/// Something to do.
enum Work {
    Job(Job<Worker>),
    Stolen(Job<Worker>),
    Offer(Arc<dyn Offer>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Runs, or has no body yet.
    Running,
    /// Suspended until somebody wakes it.
    Waiting,
    /// In the queue of those that can go on.
    Ready,
    /// Without work.
    Idle,
}

/// A fiber of this worker, or the root.
struct Slot {
    /// Not here while it runs, and never for the root.
    fiber: Option<Fiber>,
    state: State,
    /// Woken while it was not waiting: its next wait ends at once.
    has_permit: bool,
    work: Option<Work>,
}

/// Processor time of one fiber after which others of its worker have their turn, where that is watched: longer than any wait for
/// something that is under way, shorter than anybody's patience ...
const SLICE_NS: u64 = 10_000_000;
/// ... and so long, or to the next tick of the kernel, where fibers use theirs up while others wait, since they may spin for each other and
/// each of such waits costs slices ... (Half a millisecond, by the kernel's clock for profiling, let NPB's LU with 4 members on 2 cores
/// use a quarter of the time, and took 7 % from teams that compute.)
const SHORT_SLICE_NS: u64 = 3_000_000;
/// ... until so many in a row were not used up, or nobody waited.
const SHORT_SLICES: u32 = 50;

/// Slices without anybody waiting, for a turn or for anything, after which a worker stops watching.
const QUIET_SLICES: u32 = 100;

/// Fibers of this worker are watched while others wait.
#[derive(Default)]
struct Watch {
    timer: Option<Timer>,
    is_on: bool,
    /// When this worker may begin something new in the middle of something else.
    begins_at_ns: u64,
    /// Short slices to come unless another one is used up.
    short: u32,
    /// Fibers resumed when the current slice began.
    switches: u64,
    quiet_slices: u32,
}

impl Watch {
    fn tick_each(&self, period_ns: u64) {
        if let Some(timer) = &self.timer {
            timer.set(period_ns);
        }
    }
}

/// How far a worker was; see [`Context::mark`].
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    end: u64,
    switches: u64,
}

/// A thread that runs work: one of the pool's, or the user's while it is in a call. Belongs to that thread.
pub struct Worker {
    shared: Arc<Shared>,
    seat: u16,
    own: Arc<Seat>,
    /// 0 for a user's thread, otherwise its number in the pool.
    number: usize,
    /// Whose work this is: the seat of the user's thread for which it was forked, plus one.
    tag: Cell<u32>,
    current: Cell<u16>,
    deque: Owner<Job<Worker>>,
    home: Home,
    nodes: Nodes<Worker>,
    slots: RefCell<Vec<Slot>>,
    idle: RefCell<Vec<u16>>,
    unused: RefCell<Vec<u16>>,
    ready: RefCell<VecDeque<u16>>,
    /// Fibers resumed so far.
    switches: Cell<u64>,
    random: Cell<u64>,
    /// How many offers it has laid out that were short.
    offers: Cell<u64>,
    patience: Patience,
    /// When this worker ran out of work, or 0.
    idle_since_ns: Cell<u64>,
    dozes: Cell<u32>,
    /// How long it steals nothing after the last theft.
    rest: Rest,
    watch: RefCell<Watch>,
    /// For the bodies of its fibers.
    this: Weak<Worker>,
}

impl Worker {
    pub(crate) fn new(
        shared: Arc<Shared>,
        seat: u16,
        number: usize,
        deque: Owner<Job<Worker>>,
    ) -> Rc<Worker> {
        let own = Arc::clone(shared.seat(seat));
        Rc::new_cyclic(|this| Worker {
            shared,
            seat,
            own,
            number,
            tag: Cell::new(u32::from(seat) + 1),
            current: Cell::new(ROOT),
            deque,
            home: Home::new(),
            nodes: Nodes::new(),
            slots: RefCell::new(vec![Slot {
                fiber: None,
                state: State::Running,
                has_permit: false,
                work: None,
            }]),
            idle: RefCell::new(Vec::new()),
            unused: RefCell::new(Vec::new()),
            ready: RefCell::new(VecDeque::new()),
            switches: Cell::new(0),
            random: Cell::new(clock::ticks() | 1),
            offers: Cell::new(0),
            patience: Patience::default(),
            idle_since_ns: Cell::new(0),
            dozes: Cell::new(0),
            rest: Rest::default(),
            watch: RefCell::new(Watch::default()),
            this: this.clone(),
        })
    }

    /// The life of one of the pool's own threads.
    pub(crate) fn serve_pool(self: Rc<Self>) {
        settle(Rc::clone(&self));
        self.serve();
        self.finish_idle();
    }

    /// A user's thread ends, or leaves the pool. Gives back what stays with the seat.
    pub(crate) fn leave(self: Rc<Self>) {
        self.finish_idle();
        let (shared, seat) = (Arc::clone(&self.shared), self.seat);
        // Fibers that wait for ever (a program that ends inside of a parallel construct) keep the worker and its seat.
        if let Some(worker) = Rc::into_inner(self) {
            shared.give_seat_back(seat, worker.deque);
        }
    }

    /// Lets idle fibers return, and with them their stacks go.
    fn finish_idle(&self) {
        loop {
            let Some(fiber) = self.idle.borrow_mut().pop() else {
                return;
            };
            self.resume(fiber);
        }
    }

    /// The worker's number: 0 for a user's thread, from 1 on for the pool's.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Threads that run work at the same time, as many as were asked for with [`set_active`](Self::set_active).
    #[must_use]
    pub fn active(&self) -> usize {
        self.shared.active()
    }

    /// Threads that there are to run work, the calling one included.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.shared.config.workers
    }

    /// Changes how many take work: at least 1, at most [`workers`](Self::workers). Returns how many it is then. Who has begun
    /// something finishes it.
    pub fn set_active(&self, workers: usize) -> usize {
        self.shared.set_active(workers)
    }

    /// The number that tells for which user's thread the running work was forked.
    #[inline]
    #[must_use]
    pub fn tag(&self) -> u32 {
        self.tag.get()
    }

    /// Where the running fiber is to be woken.
    #[inline]
    #[must_use]
    pub fn token(&self) -> Token {
        Token {
            seat: self.seat,
            fiber: self.current.get(),
        }
    }

    /// Lays an offer out for others, and wakes at most one of them. The caller goes on by taking parts itself; others leave it to the caller
    /// for a few microseconds if `is_short`, since it may be over by then.
    pub fn offer(&self, offer: Arc<dyn Offer>, is_short: bool) -> Offered {
        let tag = offer.tag();
        let offered = self
            .own
            .offers
            .lay_out(offer, self.mark_offer(is_short), self.seat);
        self.shared.published(tag);
        offered
    }

    /// Lays out an offer with this tag again, if it still lies here: next to free, unlike laying out another one.
    #[inline]
    pub fn offer_again(&self, covered: Covered, tag: u32, is_short: bool) -> Option<Offered> {
        if covered.seat() != self.seat {
            return None;
        }
        let mark = self.mark_offer(is_short);
        let offered = self.own.offers.uncover(covered, mark);
        if offered.is_some() {
            self.shared.published(tag);
        }
        offered
    }

    #[inline]
    fn mark_offer(&self, is_short: bool) -> u64 {
        if !is_short {
            return RIPE;
        }
        let offers = self.offers.get().wrapping_add(1);
        self.offers.set(offers);
        // Not that of another worker, nor RIPE, nor what a shelf has for covered.
        u64::from(self.seat + 1) << 48 | offers & 0xffff_ffff_ffff
    }

    /// Lets others take a short offer of this worker at once.
    pub fn ripen(&self, offered: &Offered) {
        self.own.offers.mark(offered, RIPE);
    }

    /// Takes an offer of this worker back. Tells where it can be laid out again.
    #[inline]
    pub fn withdraw(&self, offered: Offered) -> Option<Covered> {
        self.own.offers.withdraw(offered)
    }

    /// Enqueues `work`, to be run once by any worker. [`wait_enqueued`](Self::wait_enqueued) waits for it.
    #[inline]
    pub fn enqueue(&self, work: impl FnOnce(&Worker) + Send + 'static) {
        let enqueued = &self.own.enqueued;
        // Only this thread writes it.
        enqueued.store(enqueued.load(Ordering::Relaxed) + 1, Ordering::Release);
        let job = self.nodes.job(self.tag(), move |worker: &Worker| {
            work(worker);
            worker.completed();
        });
        self.deque.push(job);
        self.pushed();
    }

    #[inline]
    fn completed(&self) {
        let completed = &self.own.completed;
        completed.store(completed.load(Ordering::Relaxed) + 1, Ordering::Release);
        fence::light();
        if self.shared.enqueue_waiters.load(Ordering::Relaxed) == 0 {
            return;
        }
        // Of two that complete the last two at the same time, one at least has to see both.
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.shared.has_completed_all() {
            self.unpark_all(self.enqueue_address());
        }
    }

    /// Returns when everything that was enqueued, by whomever, is complete. Not to be called by something enqueued, which would
    /// wait for itself.
    pub fn wait_enqueued(&self) {
        while !self.shared.has_completed_all() {
            self.shared.enqueue_waiters.fetch_add(1, Ordering::SeqCst);
            fence::heavy();
            self.park(self.enqueue_address(), || !self.shared.has_completed_all());
            self.shared.enqueue_waiters.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn enqueue_address(&self) -> usize {
        std::ptr::from_ref(&self.shared.enqueue_waiters).addr()
    }

    /// Suspends the running fiber until another wakes it by its [`token`](Self::token), and lets the worker do other things. May return without
    /// a reason: callers look at their condition again.
    pub fn block(&self) {
        let me = self.current.get();
        {
            let slot = &mut self.slots.borrow_mut()[usize::from(me)];
            if std::mem::take(&mut slot.has_permit) {
                return;
            }
            slot.state = State::Waiting;
        }
        self.leave_to_others(me);
    }

    /// Wakes a fiber, of this or of another worker.
    pub fn wake(&self, token: Token) {
        if token.seat == self.seat {
            self.make_ready(token.fiber);
        } else {
            self.shared.wake_remote(token);
        }
    }

    /// Lets the other fibers of this worker run, and begins what nobody has begun.
    pub fn yield_now(&self) {
        self.drain();
        if self.ready.borrow().is_empty() {
            match self.find() {
                Some(work) => self.assign(work),
                None => return,
            }
        }
        // Behind the others.
        let me = self.current.get();
        self.slots.borrow_mut()[usize::from(me)].state = State::Ready;
        self.ready.borrow_mut().push_back(me);
        self.leave_to_others(me);
    }

    /// Lets this worker do other things until the running fiber, which is in a queue or waits to be woken, has its turn again.
    fn leave_to_others(&self, me: u16) {
        let tag = self.tag.get();
        if me == ROOT {
            self.serve();
        } else {
            fiber::suspend();
        }
        self.slots.borrow_mut()[usize::from(me)].state = State::Running;
        self.current.set(me);
        self.tag.set(tag);
    }

    /// Sees to it that from now on no fiber of this worker computes for ever while others of it wait, where [`preempt_by`](crate::preempt_by) has said
    /// how. Costs next to nothing when it is so already.
    #[inline]
    pub fn watch(&self) {
        if !self.watch.borrow().is_on {
            self.begin_to_watch();
        }
    }

    #[cold]
    fn begin_to_watch(&self) {
        let watch = &mut *self.watch.borrow_mut();
        watch.is_on = true;
        watch.quiet_slices = 0;
        watch.short = 0;
        if watch.timer.is_none() {
            // Without a timer everything works that does not wait for another by spinning.
            watch.timer = Timer::new().ok();
        }
        watch.tick_each(SLICE_NS);
    }

    /// A slice has ended, in the middle of the program's code. Tells whether the running fiber should let others run.
    #[must_use]
    pub fn slice_ended(&self) -> bool {
        let has_other_work = self.has_other_work();
        let watch = &mut *self.watch.borrow_mut();
        let switches = self.switches.get();
        let has_had_a_slice = std::mem::replace(&mut watch.switches, switches) == switches;
        if has_other_work && has_had_a_slice {
            if watch.short == 0 {
                watch.tick_each(SHORT_SLICE_NS);
            }
            watch.short = SHORT_SLICES;
        } else if watch.short > 0 {
            watch.short -= 1;
            if watch.short == 0 {
                watch.tick_each(SLICE_NS);
            }
        }
        if has_other_work {
            watch.quiet_slices = 0;
            if has_had_a_slice {
                // The next one's begins when the caller yields.
                watch.switches += 1;
            }
            return has_had_a_slice;
        }
        // Others may wake one that waits here, and nothing but the next tick would give it its turn.
        if self.has_waiting() {
            watch.quiet_slices = 0;
            return false;
        }
        watch.quiet_slices += 1;
        if watch.quiet_slices >= QUIET_SLICES {
            watch.is_on = false;
            watch.tick_each(0);
        }
        false
    }

    fn has_waiting(&self) -> bool {
        let slots = self.slots.borrow();
        slots.iter().any(|slot| slot.state == State::Waiting)
    }

    /// Gives a fiber to an open offer, of this worker or of another, and tells whether there was one: members that spin may wait for one that nobody has
    /// begun.
    #[must_use]
    pub fn begin_offer(&self) -> bool {
        {
            // However short slices are: who is on the way shall find something left, since what has begun stays here.
            let watch = &mut *self.watch.borrow_mut();
            let now = clock::now_ns();
            if now < watch.begins_at_ns {
                return false;
            }
            watch.begins_at_ns = now + SLICE_NS;
        }
        let mut seats = self.shared.seats();
        let Some(offer) = seats.find_map(|seat| self.open_offer(seat, |_| true)) else {
            return false;
        };
        self.assign(Work::Offer(offer));
        true
    }

    /// Waits under an address if `must_wait` says so, until [`unpark_one`](Self::unpark_one) or [`unpark_all`](Self::unpark_all)
    /// is called for that address. What `must_wait` looks at is changed either before, or by who calls `unpark` after.
    pub fn park(&self, address: usize, must_wait: impl FnOnce() -> bool) {
        let token = self.token();
        if !self.shared.parking.enter(address, token, must_wait) {
            return;
        }
        loop {
            self.block();
            if !self.shared.parking.is_entered(address, token, false) {
                return;
            }
        }
    }

    /// Waits until `is_over`, under an address. Looks for a moment first when this worker has nothing else to do.
    pub fn wait_until(&self, address: usize, is_over: impl Fn() -> bool) {
        if is_over() || self.look(&is_over) {
            return;
        }
        while !is_over() {
            self.park(address, || !is_over());
        }
    }

    /// Wakes the one that has waited longest under an address. `change` is called before, while nobody can begin to wait there; it is told
    /// whether one was found and whether more wait.
    pub fn unpark_one(&self, address: usize, change: impl FnOnce(bool, bool)) {
        if let Some(token) = self.shared.parking.remove_one(address, change) {
            self.wake(token);
        }
    }

    /// Wakes all that wait under an address.
    pub fn unpark_all(&self, address: usize) {
        for token in self.shared.parking.remove_all(address) {
            self.wake(token);
        }
    }

    /// Whether this worker could do something else than what it does.
    #[must_use]
    pub fn has_other_work(&self) -> bool {
        !self.ready.borrow().is_empty()
            || !self.deque.is_empty()
            || self.has_inbox()
            || self.open_offer(&self.own, |_| true).is_some()
    }

    /// Looks at a condition for a moment while this worker has nothing else to do, before who makes it true has to be told who waits.
    pub fn look(&self, is_over: &impl Fn() -> bool) -> bool {
        for _ in 0..LOOKS {
            if is_over() {
                return true;
            }
            if self.has_other_work() {
                return false;
            }
            cpu::pause();
        }
        false
    }

    /// Looks at a condition for so long, in nanoseconds, or until it holds. False: this worker has something else to do.
    pub fn look_for(&self, time_ns: u64, is_over: &impl Fn() -> bool) -> bool {
        let until = clock::now_ns() + time_ns;
        while !is_over() && clock::now_ns() < until {
            if self.has_other_work() {
                return false;
            }
            cpu::pause();
        }
        true
    }

    fn has_inbox(&self) -> bool {
        !self.own.inbox.is_empty()
    }

    fn make_ready(&self, fiber: u16) {
        let slot = &mut self.slots.borrow_mut()[usize::from(fiber)];
        match slot.state {
            State::Waiting => {
                slot.state = State::Ready;
                self.ready.borrow_mut().push_back(fiber);
            }
            State::Running => slot.has_permit = true,
            // It will look at its condition anyway, or has no condition.
            State::Ready | State::Idle => {}
        }
    }

    fn drain(&self) {
        if self.has_inbox() {
            self.own.inbox.drain(|fiber| self.make_ready(fiber as u16));
        }
    }

    /// Whether this worker may take work that carries a tag. The user's threads only take their own: each of them is thread 0 of what
    /// it forked, and it should come back when that is done.
    fn may_take(&self, tag: u32) -> bool {
        if self.number == 0 {
            tag == u32::from(self.seat) + 1
        } else {
            self.number < self.shared.active()
        }
    }

    /// The loop of a thread: goes on with what is ready, begins new work, waits. Returns when the root is ready, or when the
    /// pool is over.
    fn serve(&self) {
        loop {
            self.drain();
            let ready = self.ready.borrow_mut().pop_front();
            match ready {
                Some(ROOT) => {
                    self.switches.set(self.switches.get() + 1);
                    return;
                }
                Some(fiber) => self.resume(fiber),
                None => match self.find() {
                    Some(work) => self.assign(work),
                    None if self.number != 0 && self.shared.is_over.load(Ordering::Acquire) => {
                        return;
                    }
                    None => self.idle(),
                },
            }
        }
    }

    fn resume(&self, fiber: u16) {
        self.idle_since_ns.set(0);
        self.switches.set(self.switches.get() + 1);
        let at = usize::from(fiber);
        let mut body = {
            let slot = &mut self.slots.borrow_mut()[at];
            slot.state = State::Running;
            slot.fiber
                .take()
                .expect("only a fiber that does not run is resumed")
        };
        self.current.set(fiber);
        let status = body.resume();
        self.current.set(ROOT);
        match status {
            Status::Suspended => self.slots.borrow_mut()[at].fiber = Some(body),
            Status::Finished => {
                self.slots.borrow_mut()[at].state = State::Idle;
                self.unused.borrow_mut().push(fiber);
            }
        }
    }

    /// Gives work to a fiber, which is ready then.
    fn assign(&self, work: Work) {
        let idle = self.idle.borrow_mut().pop();
        let fiber = idle.unwrap_or_else(|| self.new_fiber());
        let slot = &mut self.slots.borrow_mut()[usize::from(fiber)];
        slot.work = Some(work);
        slot.state = State::Ready;
        self.ready.borrow_mut().push_back(fiber);
    }

    fn new_fiber(&self) -> u16 {
        let this = self.this.clone();
        let body = move || {
            // The worker lives as long as its loop, which resumed this.
            if let Some(worker) = this.upgrade() {
                worker.run_fiber();
            }
        };
        let stack_bytes = self.shared.config.stack_bytes;
        let fiber = Fiber::new(stack_bytes, body).unwrap_or_else(|error| {
            panic!("no stack of {stack_bytes} bytes for another blocked task: {error}; ask for smaller stacks, or let fewer tasks wait at the same time")
        });
        let unused = self.unused.borrow_mut().pop();
        let slots = &mut *self.slots.borrow_mut();
        let at = unused.unwrap_or_else(|| {
            assert!(
                slots.len() < MAX_FIBERS,
                "{MAX_FIBERS} tasks of one worker are blocked; no more can: let fewer tasks wait at the same time"
            );
            slots.push(Slot {
                fiber: None,
                state: State::Idle,
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

    /// The body of a fiber: does work until something else of this worker can go on or nothing is left.
    fn run_fiber(&self) {
        let me = self.current.get();
        loop {
            let work = self.slots.borrow_mut()[usize::from(me)].work.take();
            let Some(mut work) = work else {
                // Resumed without work: the worker's end.
                return;
            };
            loop {
                self.run(work);
                self.drain();
                if !self.ready.borrow().is_empty() {
                    break;
                }
                match self.find() {
                    Some(next) => work = next,
                    None => break,
                }
            }
            let mut idle = self.idle.borrow_mut();
            if idle.len() >= IDLE_KEPT {
                return;
            }
            idle.push(me);
            drop(idle);
            self.slots.borrow_mut()[usize::from(me)].state = State::Idle;
            fiber::suspend();
            self.current.set(me);
        }
    }

    fn run(&self, work: Work) {
        match work {
            Work::Job(job) => {
                self.tag.set(job.tag());
                job.run(self);
            }
            Work::Stolen(job) => {
                let began = clock::now_ns();
                self.tag.set(job.tag());
                job.run(self);
                self.rest.after(clock::now_ns() - began);
            }
            Work::Offer(offer) => {
                self.tag.set(offer.tag());
                offer.help(self);
            }
        }
    }

    /// Something to do: the youngest of its own, an open offer, or the oldest of somebody else's.
    fn find(&self) -> Option<Work> {
        if let Some(job) = job::pop(self) {
            return Some(Work::Job(job));
        }
        if let Some(offer) = self.open_offer(&self.own, |_| true) {
            return Some(Work::Offer(offer));
        }
        if self.number != 0 && self.number >= self.shared.active() {
            return None;
        }
        if !self.rest() {
            return None;
        }
        self.patience.begin();
        let seats = self.shared.seats_used();
        let first = self.next_random() as usize % seats;
        for step in 0..seats {
            let at = (first + step) % seats;
            if at == usize::from(self.seat) {
                continue;
            }
            let seat = self.shared.seat(at as u16);
            if let Some(offer) = self.open_offer(seat, |mark| self.patience.is_over(mark)) {
                return Some(Work::Offer(offer));
            }
            if let Some(job) = seat.stealer.steal_if(|job| self.may_take(job.tag())) {
                // There is more: the next sleeper's turn.
                if !seat.stealer.is_empty() {
                    self.shared.published(job.tag());
                }
                return Some(Work::Stolen(job));
            }
        }
        self.patience.end();
        None
    }

    /// Leaves others alone for a while when the last theft was of little. False: something of its own has come up.
    fn rest(&self) -> bool {
        let rest_ns = self.rest.ns();
        if rest_ns == 0 {
            return true;
        }
        self.look_for(rest_ns, &|| false)
    }

    fn open_offer(&self, seat: &Seat, pleases: impl Fn(u64) -> bool) -> Option<Arc<dyn Offer>> {
        seat.offers.find(pleases, |offer| {
            offer.is_open() && self.may_take(offer.tag())
        })
    }

    /// Whether there seems to be something to do. What this worker may not take counts only where that is seen without
    /// taking it, and of others' offers those that may be taken now, or `any`.
    fn sees_work(&self, any: bool) -> bool {
        if self.has_other_work() {
            return true;
        }
        if self.number != 0
            && (self.number >= self.shared.active() || self.shared.is_over.load(Ordering::Acquire))
        {
            return self.shared.is_over.load(Ordering::Acquire);
        }
        let takes_any = self.number != 0 || self.shared.has_one_user();
        self.patience.begin();
        let pleases = |mark| any || self.patience.is_over(mark);
        let is_there = self.shared.seats().any(|seat| {
            (takes_any && !seat.stealer.is_empty()) || self.open_offer(seat, pleases).is_some()
        });
        if !is_there {
            self.patience.end();
        }
        is_there
    }

    /// The only place that waits: looks for a while, then sleeps. Returns when there may be something to do.
    fn idle(&self) {
        let is_pressed = self.shared.is_pressed();
        let now = clock::now_ns();
        if self.idle_since_ns.get() == 0 {
            self.idle_since_ns.set(now);
            self.dozes.set(0);
        }
        let spin_ns = if is_pressed {
            0
        } else {
            self.shared.config.spin_ns
        };
        let until = self.idle_since_ns.get() + spin_ns;
        let (mut now, mut look_at) = (now, now);
        while now < until {
            if now >= look_at {
                if self.sees_work(false) {
                    return;
                }
                look_at = now + LOOK_NS;
            }
            for _ in 0..8 {
                if self.has_other_work() {
                    return;
                }
                cpu::pause();
            }
            now = clock::now_ns();
        }
        let seat = &*self.own;
        // Threads of the user wait for something of theirs, which will wake them.
        let dozes = is_pressed && self.number != 0 && self.dozes.get() < DOZES;
        // One that may take nothing is not worth waking for a publication; it is told when it may.
        let is_active = || self.number < self.shared.active().max(1);
        if !is_active() {
            let bell = seat.bed.bell();
            bell.sleep(SLEEP_NS, || is_active() || self.sees_work(true));
        } else if dozes {
            self.dozes.set(self.dozes.get() + 1);
            seat.bed.bell().sleep(DOZE_NS, || self.sees_work(true));
        } else {
            let opens_later = seat
                .offers
                .find(|_| true, |offer| offer.opens_later())
                .is_some();
            let limit_ns = if opens_later { DOZE_NS } else { SLEEP_NS };
            let asleep_at = clock::now_ns();
            let calls = self.shared.seats().map(|seat| seat.stealer.call());
            self.shared
                .sleepers
                .sleep(&seat.bed, limit_ns, calls, || self.sees_work(true));
            if clock::now_ns() - asleep_at < limit_ns {
                // Woken: looks for a while again also when what it was woken for is over. To be woken for the next again costs more.
                self.idle_since_ns.set(0);
            }
        }
    }

    fn next_random(&self) -> u64 {
        // Marsaglia's xorshift: victims need no better.
        let mut random = self.random.get();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.set(random);
        random
    }
}

impl Context for Worker {
    #[inline]
    fn deque(&self) -> &Owner<Job<Self>> {
        &self.deque
    }

    #[inline]
    fn tag(&self) -> u32 {
        self.tag.get()
    }

    #[inline]
    fn pushed(&self) {
        if self.deque.call().is_raised() {
            self.shared.called(self.deque.call(), self.tag.get());
        }
    }

    fn wait(&self, latch: &Latch) {
        if self.look(&|| latch.is_done()) {
            return;
        }
        if latch.announce(self.token().to_number()) {
            self.block();
        }
    }

    fn wake(&self, waiter: u32) {
        Worker::wake(self, Token::of_number(waiter));
    }

    type Mark = Mark;

    #[inline]
    fn mark(&self) -> Mark {
        Mark {
            end: self.deque.end(),
            switches: self.switches.get(),
        }
    }

    fn wait_for_tasks(&self, count: &Count, mark: Mark) {
        // What lies above the mark was forked by the waiter or below it, and may run on its stack. Not so when another
        // fiber has run in between, whose entries may be among them: what that waits for may be the waiter itself.
        while self.switches.get() == mark.switches
            && self.deque.end().wrapping_sub(mark.end) as i64 > 0
        {
            let Some(job) = job::pop(self) else { break };
            let tag = self.tag.replace(job.tag());
            job.run(self);
            self.tag.set(tag);
        }
        if count.is_zero(&self.home) || self.look(&|| count.is_zero(&self.home)) {
            return;
        }
        count.announce(u32::from(self.current.get()) + 1);
        while !count.is_zero(&self.home) {
            self.block();
        }
        count.announce(0);
    }

    #[inline]
    fn seat(&self) -> u16 {
        self.seat
    }

    fn wake_task(&self, seat: u16, waiter: u32) {
        let fiber = (waiter - 1) as u16;
        Worker::wake(self, Token { seat, fiber });
    }

    #[inline]
    fn nodes(&self) -> &Nodes<Self> {
        &self.nodes
    }

    #[inline]
    fn home(&self) -> &Home {
        &self.home
    }
}
