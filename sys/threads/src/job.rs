//! Jobs: work in one word, for a [`deque`](crate::deque), and the frames in which it lies.
//!
//! A fork must not allocate: the forked half is a closure in the forker's own stack frame, and the
//! deque holds its address. [`fork`] keeps that sound: it does not return before the closure has
//! run, here or on a thief, or has been taken back. What is enqueued and left alone lies in a node
//! of a [`Nodes`] pool, which each worker recycles.
//!
//! `C` is what a job is given when it runs: its worker.

use std::any::Any;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::deque::{Owner, Word};
pub use crate::tally::{Count, Home, Latch};

/// The begin of every frame that holds a job.
#[repr(C)]
struct Header<C: 'static> {
    does: &'static Does<C>,
    /// Its label is the job's tag. Done when a lent job has run.
    latch: Latch,
}

/// What can be done with a kind of frame.
struct Does<C: 'static> {
    run: unsafe fn(NonNull<Header<C>>, &C),
    discard: unsafe fn(NonNull<Header<C>>),
}

/// Work that is to be run once, by any thread. Dropping it unrun discards an owned one.
pub struct Job<C: 'static>(NonNull<Header<C>>);

// SAFETY: what a job holds may go to any thread: `fork` and `Nodes` ask for `Send`.
unsafe impl<C> Send for Job<C> {}

// SAFETY: the address of the frame is all of a job.
unsafe impl<C> Word for Job<C> {
    #[inline]
    fn into_word(self) -> u64 {
        ManuallyDrop::new(self).0.as_ptr().expose_provenance() as u64
    }

    #[inline]
    unsafe fn from_word(word: u64) -> Self {
        let at = std::ptr::with_exposed_provenance_mut(word as usize);
        // SAFETY: the word is the address of a frame.
        Job(unsafe { NonNull::new_unchecked(at) })
    }
}

impl<C> Job<C> {
    /// The number that the forker gave.
    #[inline]
    #[must_use]
    pub fn tag(&self) -> u32 {
        // SAFETY: a frame lives until its job has been run or discarded.
        unsafe { self.0.as_ref() }.latch.label()
    }

    /// Runs it.
    #[inline]
    pub fn run(self, context: &C) {
        let frame = ManuallyDrop::new(self).0;
        // SAFETY: the frame lives, and as the job is consumed it runs once.
        unsafe { (frame.as_ref().does.run)(frame, context) }
    }
}

impl<C> Drop for Job<C> {
    fn drop(&mut self) {
        // SAFETY: the frame lives and its job has not been run.
        unsafe { (self.0.as_ref().does.discard)(self.0) }
    }
}

/// What running jobs asks of its worker.
pub trait Context: Sized + 'static {
    /// The deque into which this worker forks.
    fn deque(&self) -> &Owner<Job<Self>>;

    /// The number that jobs forked now carry.
    fn tag(&self) -> u32;

    /// Called when an entry has been pushed: somebody may have to be woken.
    fn pushed(&self);

    /// Returns when the latch is done; runs other work in the meantime.
    fn wait(&self, latch: &Latch);

    /// Wakes a waiter that a latch returned.
    fn wake(&self, waiter: u32);

    /// Where this worker's deque ends now, to be given to [`wait_for_tasks`](Self::wait_for_tasks).
    type Mark;

    fn mark(&self) -> Self::Mark;

    /// Returns when the count, made on this thread at the time of the mark, is zero; runs other
    /// work in the meantime.
    fn wait_for_tasks(&self, count: &Count, mark: Self::Mark);

    /// Which worker of all this is.
    fn worker_slot(&self) -> u16;

    /// Wakes a waiter that a count of the worker at a worker_slot returned.
    fn wake_task(&self, worker_slot: u16, waiter: u32);

    /// Where nodes come from and go to.
    fn nodes(&self) -> &Nodes<Self>;

    /// This worker's thread.
    fn home(&self) -> &Home;
}

#[repr(C)]
struct Frame<C: 'static, B, R> {
    header: Header<C>,
    second: UnsafeCell<ManuallyDrop<B>>,
    result: UnsafeCell<MaybeUninit<Result<R, Box<dyn Any + Send>>>>,
}

/// Runs `first` here and lends `second` to an idle worker; when nobody took it, runs it here
/// afterwards. Returns when both have run. A panic of either comes out of here then, the first
/// one's before the second's.
#[inline]
pub fn fork<C, A, B, Q, R>(context: &C, first: A, second: B) -> (Q, R)
where
    C: Context,
    A: FnOnce(&C) -> Q,
    B: FnOnce(&C) -> R + Send,
    R: Send,
{
    let frame = Frame::<C, B, R> {
        header: Header {
            does: const {
                &Does {
                    run: run_lent::<C, B, R>,
                    discard: discard_lent::<C>,
                }
            },
            latch: Latch::new(context.tag()),
        },
        second: UnsafeCell::new(ManuallyDrop::new(second)),
        result: UnsafeCell::new(MaybeUninit::uninit()),
    };
    let at = NonNull::from(&frame).cast::<Header<C>>();
    // The same one for both ends of this job, whatever the context answers later.
    let deque = context.deque();
    let place = deque.push(Job(at));
    context.pushed();

    let first = catch_unwind(AssertUnwindSafe(|| first(context)));

    if frame.header.latch.is_open() && deque.take_back(place) {
        // SAFETY: the job came back, so nobody else touches the frame; the closure is taken out
        // once.
        let second = unsafe { ManuallyDrop::take(&mut *frame.second.get()) };
        return match first {
            Ok(first) => (first, second(context)),
            Err(panic) => {
                drop(second);
                resume_unwind(panic)
            }
        };
    }
    // Taken by a thief or by this worker, or below entries that this frame's work left there.
    wait(context, &frame.header.latch);
    // SAFETY: the latch is done: the result has been written, and nobody else touches the frame any
    // more.
    let second = unsafe { (*frame.result.get()).assume_init_read() };
    match (first, second) {
        (Ok(first), Ok(second)) => (first, second),
        (Err(panic), _) | (_, Err(panic)) => resume_unwind(panic),
    }
}

/// The youngest job of this worker's deque.
#[inline]
pub fn pop<C: Context>(context: &C) -> Option<Job<C>> {
    let job = context.deque().pop()?;
    // SAFETY: a frame lives until its job has been run or discarded.
    let header = unsafe { job.0.as_ref() };
    // Its forker, if that waits for it, may run before the job does, and something else may be in
    // its place by then.
    header.latch.take();
    Some(job)
}

/// Out of line: `fork` is inlined where it is used, and is short where nobody steals.
#[cold]
#[inline(never)]
fn wait<C: Context>(context: &C, latch: &Latch) {
    while !latch.is_done() {
        context.wait(latch);
    }
}

/// # Safety
/// `frame` is that of a `fork` which waits for it; called once.
unsafe fn run_lent<C, B, R>(frame: NonNull<Header<C>>, context: &C)
where
    C: Context,
    B: FnOnce(&C) -> R,
{
    let frame = frame.cast::<Frame<C, B, R>>();
    // SAFETY: the forker waits for the latch, so the frame lives, and only this thread uses it
    // until then.
    let waiter = unsafe {
        let second = ManuallyDrop::take(&mut *frame.as_ref().second.get());
        let result = catch_unwind(AssertUnwindSafe(|| second(context)));
        (*frame.as_ref().result.get()).write(result);
        frame.as_ref().header.latch.set()
    };
    if let Some(waiter) = waiter {
        context.wake(waiter);
    }
}

/// A lent job is never thrown away: its forker waits for it.
///
/// # Safety
/// Never called.
unsafe fn discard_lent<C>(_frame: NonNull<Header<C>>) {
    unreachable!("a job of a waiting forker was dropped");
}

/// Machine words of a node's payload; larger closures are boxed.
const NODE_WORDS: usize = 12;

#[repr(C)]
struct Node<C: 'static> {
    header: Header<C>,
    payload: UnsafeCell<MaybeUninit<[usize; NODE_WORDS]>>,
}

/// A node without a job. A node never moves: jobs are its address.
type Spare<C> = Box<MaybeUninit<Node<C>>>;

/// Recycled frames for jobs that nobody waits for in place. Belongs to one worker; a node is given
/// back to the worker that ran its job.
pub struct Nodes<C: 'static> {
    free: UnsafeCell<Vec<Spare<C>>>,
}

/// Nodes that a worker keeps; more are given back to the system's allocator.
const NODES_KEPT: usize = 4096;

impl<C: Context> Nodes<C> {
    #[must_use]
    pub fn new() -> Self {
        Nodes {
            free: UnsafeCell::new(Vec::new()),
        }
    }

    /// A job that runs `work`.
    #[inline]
    pub fn job<F>(&self, tag: u32, work: F) -> Job<C>
    where
        F: FnOnce(&C) + Send + 'static,
    {
        // SAFETY: the closure borrows nothing.
        unsafe { self.unbounded_job(tag, work) }
    }

    /// A job that may borrow.
    ///
    /// # Safety
    /// It is run or discarded before what it borrows ends.
    #[inline]
    unsafe fn unbounded_job<F: FnOnce(&C) + Send>(&self, tag: u32, work: F) -> Job<C> {
        if size_of::<F>() <= size_of::<[usize; NODE_WORDS]>()
            && align_of::<F>() <= align_of::<usize>()
        {
            self.fitting(tag, work)
        } else {
            let work = Box::new(work);
            self.fitting(tag, move |context: &C| work(context))
        }
    }

    #[inline]
    fn fitting<F: FnOnce(&C) + Send>(&self, tag: u32, work: F) -> Job<C> {
        // SAFETY: nodes belong to one worker and no reference into the list outlives this line.
        let node = unsafe { &mut *self.free.get() }.pop();
        let mut node = node.unwrap_or_else(|| Box::new(MaybeUninit::uninit()));
        let at = node.as_mut_ptr();
        // SAFETY: `at` is the node's memory, which is large and aligned enough for header and
        // payload.
        unsafe {
            (&raw mut (*at).header).write(Header {
                does: const {
                    &Does {
                        run: run_node::<C, F>,
                        discard: discard_node::<C, F>,
                    }
                },
                latch: Latch::new(tag),
            });
            (&raw mut (*at).payload).cast::<F>().write(work);
        }
        // SAFETY: a box is not null.
        Job(unsafe { NonNull::new_unchecked(Box::into_raw(node).cast()) })
    }

    fn give_back(&self, node: Spare<C>) {
        // SAFETY: as in `fitting`.
        let free = unsafe { &mut *self.free.get() };
        if free.len() < NODES_KEPT {
            free.push(node);
        }
    }
}

impl<C: Context> Default for Nodes<C> {
    fn default() -> Self {
        Self::new()
    }
}

/// # Safety
/// `frame` is a node with a payload of type `F`; called once.
unsafe fn run_node<C: Context, F: FnOnce(&C)>(frame: NonNull<Header<C>>, context: &C) {
    // SAFETY: the node is this thread's now; the payload is read once and the node given back
    // before it runs, so that what it enqueues finds a warm one.
    let work = unsafe {
        let node = frame.cast::<Node<C>>().as_ptr();
        let work = (&raw mut (*node).payload).cast::<F>().read();
        context.nodes().give_back(Box::from_raw(node.cast()));
        work
    };
    work(context);
}

/// # Safety
/// `frame` is a node with a payload of type `F`; called once.
unsafe fn discard_node<C: Context, F>(frame: NonNull<Header<C>>) {
    // SAFETY: the node is this thread's now.
    unsafe {
        let node = frame.cast::<Node<C>>().as_ptr();
        (&raw mut (*node).payload).cast::<F>().drop_in_place();
        drop(Spare::<C>::from_raw(node.cast()));
    }
}

/// What tasks borrow must neither shrink nor grow.
type Invariant<'s> = fn(&'s ()) -> &'s ();

/// Tasks that a [`group`] waits for.
pub struct Group<'s, C: Context> {
    count: Count,
    /// Where to wake the waiter.
    worker_slot: u16,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    is_cancelled: AtomicBool,
    scope: PhantomData<Invariant<'s>>,
    context: PhantomData<fn(C)>,
}

/// Runs `body`, which may [`spawn`](Group::spawn) tasks that borrow what outlives the call, and
/// returns when it and all of them have run. The first panic of any comes out of here.
pub fn group<'s, C: Context, R>(context: &C, body: impl FnOnce(&C, &Group<'s, C>) -> R) -> R {
    let group = Group {
        count: Count::new(context.home()),
        worker_slot: context.worker_slot(),
        panic: Mutex::new(None),
        is_cancelled: AtomicBool::new(false),
        scope: PhantomData,
        context: PhantomData,
    };
    let mark = context.mark();
    let result = catch_unwind(AssertUnwindSafe(|| body(context, &group)));
    context.wait_for_tasks(&group.count, mark);
    assert!(group.count.is_zero(context.home()));
    let panic = group
        .panic
        .into_inner()
        .expect("nothing panics with this lock held");
    match (result, panic) {
        (Ok(result), None) => result,
        (Err(panic), _) | (_, Some(panic)) => resume_unwind(panic),
    }
}

/// An address that may go to another thread.
struct Anywhere<T>(*const T);

// SAFETY: the code that uses the address argues why.
unsafe impl<T> Send for Anywhere<T> {}

impl<T> Anywhere<T> {
    fn get(&self) -> *const T {
        self.0
    }
}

impl<'s, C: Context> Group<'s, C> {
    /// A task of this group; runs here or on any other worker, at the latest when the group is
    /// waited for.
    #[inline]
    pub fn spawn<F>(&self, context: &C, task: F)
    where
        F: FnOnce(&C, &Group<'s, C>) + Send + 's,
    {
        self.count.add(context.home());
        let group = Anywhere(std::ptr::from_ref(self));
        let work = move |context: &C| {
            // SAFETY: the group waits in `group` until this task is counted as finished.
            let group = unsafe { &*group.get() };
            if !group.is_cancelled() {
                let result = catch_unwind(AssertUnwindSafe(|| task(context, group)));
                if let Err(panic) = result {
                    group.note(panic);
                }
            }
            // Read before: the group may be gone when this was its last task.
            let worker_slot = group.worker_slot;
            // SAFETY: this task, which was added when it was spawned, is over; jobs run once.
            if let Some(waiter) = unsafe { group.count.finish(context.home()) } {
                context.wake_task(worker_slot, waiter);
            }
        };
        // SAFETY: the closure runs before `group` returns, and so within `'s`; it is never
        // discarded, since a deque outlives the jobs in it.
        let job = unsafe { context.nodes().unbounded_job(context.tag(), work) };
        context.deque().push(job);
        context.pushed();
    }

    /// Tasks that have not begun will not begin, except those that ask. Tasks that run may ask.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
    }

    /// Whether [`cancel`](Self::cancel) was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Acquire)
    }

    #[cold]
    fn note(&self, panic: Box<dyn Any + Send>) {
        let mut first = self
            .panic
            .lock()
            .expect("nothing panics with this lock held");
        first.get_or_insert(panic);
    }
}
